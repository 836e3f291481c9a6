//! Shared file mappings for writing, where the platform and the file system make them safe.
//!
//! A store into a mapping cannot report an error: the kernel raises a signal instead. So a file is
//! mapped only where its blocks are reserved and stay where they are. Network file systems lose
//! their server, and copy-on-write file systems look for new blocks when a page is written back;
//! there, and on every platform other than Linux, [`map`] says `None`.

#![cfg_attr(
    target_os = "linux",
    expect(unsafe_code, reason = "a file mapping is memory that the compiler does not own")
)]

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use umbel_base::{Error, Result};

use crate::file::Mapping;

/// How many bytes of a file are mapped through one handle, so that this handle refuses to cut them.
#[derive(Debug, Default)]
pub(super) struct MappingCount(Arc<MappedLen>);

#[derive(Debug, Default)]
struct MappedLen {
    /// The longest mapping made so far, in bytes.
    bytes_max: AtomicU64,
}

impl MappingCount {
    /// An error where cutting the file to `len` bytes would take mapped pages away.
    pub(super) fn check_cut(&self, path: &Path, len: u64) -> Result<()> {
        let mapped = self.0.bytes_max.load(Ordering::Acquire);
        // Each live mapping holds a clone.
        if Arc::strong_count(&self.0) > 1 && len < mapped {
            let path = path.display();
            let message =
                format!("{path} cannot be cut to {len} bytes while {mapped} of them are mapped");
            return Err(Error::invalid(message));
        }
        Ok(())
    }
}

/// Maps the first `len` bytes of `file`, or says `None` where that is not safe.
#[cfg(target_os = "linux")]
pub(super) fn map(
    file: &fs::File,
    path: &Path,
    len: u64,
    count: &MappingCount,
) -> Result<Option<Box<dyn Mapping>>> {
    let failed = |error| Error::io(format!("map {len} bytes of"), path, error);
    let kind = rustix::fs::fstatfs(file).map_err(|error| failed(error.into()))?.f_type;
    let Ok(len_in_memory) = usize::try_from(len) else { return Ok(None) };
    if len == 0 || is_unsafe_to_map(kind as u32) {
        return Ok(None);
    }
    count.0.bytes_max.fetch_max(len, Ordering::AcqRel);
    let guard = Arc::clone(&count.0);
    // SAFETY: the mapped bytes are only ever written, by `copy_from_slice` through the one `&mut`
    // of the `SystemMapping` that owns the map; nobody holds a reference to them that other
    // writers of the file could break. The file is at least `len` bytes long (the caller looked)
    // and is not cut while mapped: this handle refuses to, and the contract of `File::map` obliges
    // the holders of other handles.
    let bytes = unsafe { memmap2::MmapOptions::new().len(len_in_memory).map_mut(file) };
    let bytes = bytes.map_err(failed)?;
    let path = path.to_path_buf();
    Ok(Some(Box::new(SystemMapping { path, bytes, populated: 0, _guard: guard })))
}

/// Nothing is mapped on this platform: whether a sync covers mapped pages is unproven here.
#[cfg(not(target_os = "linux"))]
pub(super) fn map(
    _file: &fs::File,
    _path: &Path,
    _len: u64,
    count: &MappingCount,
) -> Result<Option<Box<dyn Mapping>>> {
    count.0.bytes_max.store(0, Ordering::Release);
    Ok(None)
}

/// Whether this kind of file system (the magic number that `statfs` gives) may fail a store into a
/// mapping of reserved bytes. Overlays are as safe as the local disk they lie on.
#[cfg(any(target_os = "linux", test))]
fn is_unsafe_to_map(kind: u32) -> bool {
    const NETWORK: [u32; 13] = [
        0x0000_6969, // nfs
        0x0000_517B, // smb
        0xFF53_4D42, // cifs
        0xFE53_4D42, // smb2
        0x6573_5546, // fuse, virtiofs
        0x0102_1997, // 9p
        0x7375_7245, // coda
        0x5346_414F, // afs
        0x6B41_4653, // kafs
        0x00C3_6400, // ceph
        0x0BD0_0BD3, // lustre
        0x0116_1970, // gfs2
        0x786F_4256, // folders of a VirtualBox host
    ];
    const COPY_ON_WRITE: [u32; 4] = [
        0x9123_683E, // btrfs
        0x2FC1_2FC1, // zfs
        0xCA45_1A4E, // bcachefs
        0x0000_3434, // nilfs
    ];
    NETWORK.contains(&kind) || COPY_ON_WRITE.contains(&kind)
}

/// The fewest and the most bytes made writable at a time. A page made writable counts as dirty and
/// goes to the disk with the next sync, so only what is about to be written is.
#[cfg(target_os = "linux")]
const POPULATE_BYTES: (usize, usize) = (64 << 10, 1 << 20);

/// Makes pages present and writable, so that a store to them costs no fault and cannot fail.
#[cfg(target_os = "linux")]
fn populate(bytes: &mut memmap2::MmapMut, start: usize, end: usize) -> std::io::Result<()> {
    use std::io::ErrorKind;
    loop {
        return match bytes.advise_range(memmap2::Advice::PopulateWrite, start, end - start) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            // Kernels before 5.14 do not know the advice: touch a byte of every page instead.
            Err(error) if error.kind() == ErrorKind::InvalidInput => {
                for page in bytes[start..end].chunks_mut(4096) {
                    page[0] = std::hint::black_box(page[0]);
                }
                Ok(())
            }
            Err(error) => Err(error),
        };
    }
}

/// A mapped file.
#[cfg(target_os = "linux")]
#[derive(Debug)]
struct SystemMapping {
    path: std::path::PathBuf,
    bytes: memmap2::MmapMut,
    /// Bytes below this offset can be stored to without a fault.
    populated: usize,
    _guard: Arc<MappedLen>,
}

#[cfg(target_os = "linux")]
impl Mapping for SystemMapping {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    #[inline]
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> Result<()> {
        let mapped = self.bytes.len();
        let start = usize::try_from(offset).ok();
        let end = start.and_then(|start| start.checked_add(bytes.len()));
        let (Some(start), Some(end)) = (start, end.filter(|&end| end <= mapped)) else {
            return Err(outside(&self.path, bytes.len(), offset, mapped));
        };
        if end > self.populated {
            self.populate_through(end)?;
        }
        self.bytes[start..end].copy_from_slice(bytes);
        Ok(())
    }
}

#[cfg(target_os = "linux")]
impl SystemMapping {
    /// Makes the pages up to `end` writable and some more, the more the longer the file has grown.
    #[cold]
    fn populate_through(&mut self, end: usize) -> Result<()> {
        let ahead = self.populated.clamp(POPULATE_BYTES.0, POPULATE_BYTES.1);
        // Whole steps keep the boundaries on pages of any size.
        let through = end.next_multiple_of(ahead).min(self.bytes.len());
        let made = populate(&mut self.bytes, self.populated, through);
        made.map_err(|error| Error::io("make room to write in the mapping of", &self.path, error))?;
        self.populated = through;
        Ok(())
    }
}

#[cfg(target_os = "linux")]
#[cold]
fn outside(path: &Path, bytes: usize, offset: u64, mapped: usize) -> Error {
    let path = path.display();
    Error::invalid(format!("{bytes} bytes at {offset} do not fit the {mapped} mapped of {path}"))
}

#[cfg(test)]
mod tests {
    use super::is_unsafe_to_map;

    #[test]
    fn file_systems_are_told_apart() {
        let ext4 = 0xEF53;
        let xfs = 0x5846_5342;
        let tmpfs = 0x0102_1994;
        let overlay = 0x794C_7630;
        for kind in [ext4, xfs, tmpfs, overlay] {
            assert!(!is_unsafe_to_map(kind), "{kind:x}");
        }
        for kind in [0x6969, 0xFF53_4D42, 0x6573_5546, 0x9123_683E, 0x2FC1_2FC1, 0x0102_1997] {
            assert!(is_unsafe_to_map(kind), "{kind:x}");
        }
    }
}
