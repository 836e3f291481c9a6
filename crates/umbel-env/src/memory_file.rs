//! [`MemoryFile`]: a file in memory for tests, whose bytes a test can damage.

use std::path::Path;
use std::sync::{Arc, Mutex};

use umbel_base::Result;
use umbel_base::ignore_poison::IgnorePoison;

use crate::file_system::{File, FileIdentity, Mapping};

/// A file in memory. Clones share its bytes.
#[derive(Debug, Clone, Default)]
pub struct MemoryFile {
    bytes: Arc<Mutex<Vec<u8>>>,
    writes: Arc<Mutex<Vec<usize>>>,
}

impl MemoryFile {
    /// Creates a file with these bytes.
    pub fn new(bytes: Vec<u8>) -> MemoryFile {
        MemoryFile { bytes: Arc::new(Mutex::new(bytes)), writes: Arc::default() }
    }

    /// Returns the file's bytes.
    pub fn bytes(&self) -> Vec<u8> {
        self.bytes.lock().ignore_poison().clone()
    }

    /// Returns the lengths of all writes, in order.
    pub fn writes(&self) -> Vec<usize> {
        self.writes.lock().ignore_poison().clone()
    }
}

impl File for MemoryFile {
    fn path(&self) -> &Path {
        Path::new("7.table")
    }

    fn identity(&self) -> Result<FileIdentity> {
        Ok(FileIdentity { device: 0, inode: 0 })
    }

    fn modified_micros(&self) -> Result<u64> {
        Ok(0)
    }

    fn len(&self) -> Result<u64> {
        Ok(self.bytes.lock().ignore_poison().len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let bytes = self.bytes.lock().ignore_poison();
        let tail = bytes.get(offset as usize..).unwrap_or_default();
        let len = tail.len().min(buffer.len());
        buffer[..len].copy_from_slice(&tail[..len]);
        Ok(len)
    }

    fn write_all_at(&self, source: &[u8], offset: u64) -> Result<()> {
        let mut bytes = self.bytes.lock().ignore_poison();
        let end = offset as usize + source.len();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[offset as usize..end].copy_from_slice(source);
        self.writes.lock().ignore_poison().push(source.len());
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.bytes.lock().ignore_poison().resize(len as usize, 0);
        Ok(())
    }

    fn preallocate(&self, _len: u64) -> Result<()> {
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn map(&self, _len: u64) -> Result<Option<Box<dyn Mapping>>> {
        Ok(None)
    }
}
