//! A flat directory of files in memory, which tests read and damage byte by byte. Tests of power
//! loss use the crash disk of `umbel-sim` instead.

use std::any::Any;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use umbel_base::{Error, Result};
use umbel_env::{
    Access, DirectoryEntry, DirectoryLocation, Env, File, FileIdentity, FileSystem, Lock, Mapping,
    Pin,
};
use umbel_log::{ExpectedEnd, LogKind, LogReader, ReadOutcome};

/// Path of the log of most tests.
pub const PATH: &str = "000007.log";
/// Id of the log at [`PATH`]. Its high half is not zero, so that code that ignores the high half
/// fails.
pub const LOG_ID: u64 = 0x5_0000_0007;

/// A sequence number and a payload.
pub type Entry = (u64, Vec<u8>);

#[derive(Debug, Default)]
pub struct Disk {
    files: Mutex<BTreeMap<PathBuf, Arc<MemoryFile>>>,
    /// Whether files can be mapped.
    pub maps: bool,
    /// Maximum length of a file by preallocation.
    pub len_max: Option<u64>,
    /// Number of writes that succeed before one fails; negative if all succeed.
    pub writes_left: Arc<AtomicI64>,
    written_end: Arc<AtomicU64>,
}

impl Disk {
    pub fn new(maps: bool) -> Disk {
        Disk { maps, writes_left: Arc::new(AtomicI64::new(-1)), ..Disk::default() }
    }

    /// A disk with one file, [`PATH`].
    pub fn with_bytes(bytes: &[u8]) -> Arc<Disk> {
        let disk = Arc::new(Disk::new(false));
        disk.put(bytes);
        disk
    }

    pub fn put(&self, bytes: &[u8]) {
        let file = self.file(Path::new(PATH));
        file.bytes.lock().unwrap().clear();
        file.bytes.lock().unwrap().extend_from_slice(bytes);
        self.files.lock().unwrap().insert(PATH.into(), Arc::new(file));
    }

    /// Highest end of all writes.
    pub fn written_end(&self) -> u64 {
        self.written_end.load(Ordering::Relaxed)
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.files.lock().unwrap()[Path::new(PATH)].bytes.lock().unwrap().clone()
    }

    pub fn env(self: &Arc<Self>) -> Env {
        Env { files: Arc::clone(self) as Arc<dyn FileSystem>, ..Env::system() }
    }

    fn file(&self, path: &Path) -> MemoryFile {
        MemoryFile {
            path: path.to_path_buf(),
            bytes: Arc::default(),
            maps: self.maps,
            len_max: self.len_max,
            writes_left: Arc::clone(&self.writes_left),
            written_end: Arc::clone(&self.written_end),
        }
    }
}

/// Result of reading `bytes` as the log of the tests: the records, then the end.
pub fn read(bytes: &[u8], expectation: ExpectedEnd) -> (Vec<Entry>, Result<ReadOutcome>) {
    read_env(&Disk::with_bytes(bytes).env(), Path::new(PATH), expectation)
}

pub fn read_env(
    env: &Env,
    path: &Path,
    expectation: ExpectedEnd,
) -> (Vec<Entry>, Result<ReadOutcome>) {
    let mut records = Vec::new();
    let opened = LogReader::open(env, path, LogKind::WriteAhead, LOG_ID, expectation);
    let mut reader = match opened {
        Ok(reader) => reader,
        Err(error) => return (records, Err(error)),
    };
    loop {
        match reader.next() {
            Ok(Some(record)) => records.push((record.sequence, record.payload.to_vec())),
            Ok(None) => break,
            Err(error) => {
                let again = reader.next().expect_err("the error stays");
                assert_eq!(error.to_string(), again.to_string());
                return (records, Err(error));
            }
        }
    }
    assert!(reader.next().expect("the end stays the end").is_none());
    (records, Ok(reader.outcome()))
}

/// Returns the offset that a corruption error names.
pub fn corruption_offset(error: &Error) -> u64 {
    match error {
        Error::Corruption { offset, .. } => *offset,
        other => panic!("not corruption: {other}"),
    }
}

#[derive(Debug, Clone)]
struct MemoryFile {
    path: PathBuf,
    bytes: Arc<Mutex<Vec<u8>>>,
    maps: bool,
    len_max: Option<u64>,
    writes_left: Arc<AtomicI64>,
    written_end: Arc<AtomicU64>,
}

impl MemoryFile {
    fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let left = self.writes_left.load(Ordering::Relaxed);
        if left == 0 {
            let source = io::Error::other("the disk said no");
            return Err(Error::io("write to", &self.path, source));
        }
        self.writes_left.store(left - i64::from(left > 0), Ordering::Relaxed);
        self.written_end.fetch_max(offset + bytes.len() as u64, Ordering::Relaxed);
        let mut file = self.bytes.lock().unwrap();
        let (start, end) = (offset as usize, offset as usize + bytes.len());
        if file.len() < end {
            file.resize(end, 0);
        }
        file[start..end].copy_from_slice(bytes);
        Ok(())
    }
}

impl File for MemoryFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn identity(&self) -> Result<FileIdentity> {
        Err(unused(&self.path))
    }
    fn modified_micros(&self) -> Result<u64> {
        Err(unused(&self.path))
    }
    fn len(&self) -> Result<u64> {
        Ok(self.bytes.lock().unwrap().len() as u64)
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let file = self.bytes.lock().unwrap();
        let start = (offset as usize).min(file.len());
        let len = buffer.len().min(file.len() - start);
        buffer[..len].copy_from_slice(&file[start..start + len]);
        Ok(len)
    }
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.write(bytes, offset)
    }
    fn set_len(&self, len: u64) -> Result<()> {
        self.bytes.lock().unwrap().resize(len as usize, 0);
        Ok(())
    }
    fn preallocate(&self, len: u64) -> Result<()> {
        if self.len_max.is_some_and(|len_max| len > len_max) {
            let source = io::Error::from(io::ErrorKind::StorageFull);
            return Err(Error::io("preallocate", &self.path, source));
        }
        self.set_len(len)
    }
    fn sync(&self) -> Result<()> {
        Ok(())
    }
    fn map(&self, len: u64) -> Result<Option<Box<dyn Mapping>>> {
        Ok(self
            .maps
            .then(|| Box::new(MemoryMapping { file: self.clone(), len }) as Box<dyn Mapping>))
    }
}

#[derive(Debug)]
struct MemoryMapping {
    file: MemoryFile,
    len: u64,
}

impl Mapping for MemoryMapping {
    fn len(&self) -> u64 {
        self.len
    }
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> Result<()> {
        assert!(offset + bytes.len() as u64 <= self.len, "a store outside of the mapping");
        self.file.write(bytes, offset)
    }
}

impl FileSystem for Disk {
    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        let mut files = self.files.lock().unwrap();
        if files.contains_key(path) {
            let source = io::Error::from(io::ErrorKind::AlreadyExists);
            return Err(Error::io("create", path, source));
        }
        let file = Arc::new(self.file(path));
        files.insert(path.to_path_buf(), Arc::clone(&file));
        Ok(file)
    }
    fn open(&self, path: &Path, _access: Access) -> Result<Arc<dyn File>> {
        match self.files.lock().unwrap().get(path) {
            Some(file) => Ok(Arc::clone(file) as Arc<dyn File>),
            None => Err(Error::io("open", path, io::Error::from(io::ErrorKind::NotFound))),
        }
    }
    fn remove_file(&self, path: &Path) -> Result<()> {
        self.files.lock().unwrap().remove(path);
        Ok(())
    }
    fn remove_dir(&self, _path: &Path) -> Result<()> {
        Ok(())
    }
    fn exists(&self, path: &Path) -> Result<bool> {
        Ok(self.files.lock().unwrap().contains_key(path))
    }
    fn create_dir_all(&self, _path: &Path) -> Result<()> {
        Ok(())
    }
    fn sync_dir(&self, _path: &Path) -> Result<()> {
        Ok(())
    }
    fn rename(&self, source: &Path, target: &Path) -> Result<()> {
        let mut files = self.files.lock().unwrap();
        let file = files.remove(source).expect("the file is there");
        let renamed = MemoryFile { path: target.to_path_buf(), ..MemoryFile::clone(&file) };
        files.insert(target.to_path_buf(), Arc::new(renamed));
        Ok(())
    }
    fn hard_link(&self, source: &Path, _files: &dyn FileSystem, _target: &Path) -> Result<()> {
        Err(unused(source))
    }
    fn absolute(&self, path: &Path) -> Result<PathBuf> {
        Ok(path.to_path_buf())
    }
    fn open_directory(&self, path: &Path) -> Result<Arc<dyn FileSystem>> {
        Err(unused(path))
    }
    fn directory_location(&self) -> Result<DirectoryLocation> {
        Ok(DirectoryLocation::Unchanged)
    }
    fn identity(&self, path: &Path) -> Result<Option<FileIdentity>> {
        Err(unused(path))
    }
    fn innermost(&self) -> &dyn Any {
        self
    }
    fn pin(&self, _path: &Path, _version: u64) -> Result<Option<Box<dyn Pin>>> {
        Ok(None)
    }
    fn read_dir(&self, path: &Path) -> Result<Vec<DirectoryEntry>> {
        Err(unused(path))
    }
    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>> {
        Err(unused(path))
    }
}

fn unused(path: &Path) -> Error {
    Error::io("use", path, io::Error::from(io::ErrorKind::Unsupported))
}
