//! Shared file mappings for writing, where the platform and the file system make them safe.
//!
//! A store into a mapping cannot report an error: the kernel raises a signal instead. So a file is
//! mapped only if its blocks are reserved and never move. Network file systems can lose their
//! server, and copy-on-write file systems allocate new blocks at write-back. On such file systems,
//! on platforms other than Linux, and if the kernel refuses, [`map`] returns the reason.

#![cfg_attr(
    target_os = "linux",
    expect(unsafe_code, reason = "a file mapping is memory that the compiler does not own")
)]

use std::fs;
#[cfg(target_os = "linux")]
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
#[cfg(target_os = "linux")]
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::{AtomicU64, Ordering};

use umbel_base::{Error, Result};

use crate::file_system::Mapping;
#[cfg(target_os = "linux")]
use crate::file_system::Prefaulter;
#[cfg(target_os = "linux")]
use crate::process::ProcessMark;

/// Number of bytes of a file that are mapped through one handle, so that the handle refuses to
/// truncate them.
#[derive(Debug, Default)]
pub(super) struct MappingCount(Arc<MappedLen>);

#[derive(Debug, Default)]
struct MappedLen {
    /// Bytes of the longest mapping created so far.
    bytes_max: AtomicU64,
}

impl MappingCount {
    /// Returns an error if truncating the file to `len` bytes would remove mapped pages.
    pub(super) fn check_cut(&self, path: &Path, len: u64) -> Result<()> {
        let mapped = self.0.bytes_max.load(Ordering::Acquire);
        // Each live mapping holds a clone.
        if Arc::strong_count(&self.0) > 1 && len < mapped {
            let path = path.display();
            let message = format!(
                "{path} cannot be truncated to {len} bytes while {mapped} bytes are mapped"
            );
            return Err(Error::invalid(message));
        }
        Ok(())
    }
}

/// Maps the first `len` bytes of `file`, or returns the reason why mapping is not safe or does not
/// work.
#[cfg(target_os = "linux")]
pub(super) fn map(
    file: &fs::File,
    path: &Path,
    len: u64,
    count: &MappingCount,
) -> std::result::Result<SystemMapping, String> {
    let failed = |error: std::io::Error| format!("mapping it failed ({error})");
    let kind = rustix::fs::fstatfs(file).map_err(|error| failed(error.into()))?.f_type;
    if let Some(reason) = unmappable_reason(kind as u32) {
        return Err(reason);
    }
    let len_in_memory = usize::try_from(len).ok().filter(|&len| len > 0);
    let len_in_memory = len_in_memory.ok_or_else(|| format!("{len} bytes cannot be mapped"))?;
    count.0.bytes_max.fetch_max(len, Ordering::AcqRel);
    let guard = Arc::clone(&count.0);
    let bytes = memmap2::MmapOptions::new().len(len_in_memory).map_raw(file).map_err(failed)?;
    // The first page shows whether the kernel can do it at all: 5.14 was the first.
    prefault(&bytes, 0, len_in_memory.min(PAGE_BYTES)).map_err(|error| match error.kind() {
        std::io::ErrorKind::InvalidInput => {
            "the kernel cannot populate mapped pages (MADV_POPULATE_WRITE)".into()
        }
        _ => failed(error),
    })?;
    let (path, populated) = (path.to_path_buf(), AtomicUsize::new(0));
    let process = ProcessMark::current();
    Ok(SystemMapping(Arc::new(MappedPages {
        path,
        bytes,
        prefaulted: populated,
        process,
        _guard: guard,
    })))
}

/// Maps no file on this platform, since it is not proven that a sync covers mapped pages.
#[cfg(not(target_os = "linux"))]
pub(super) fn map(
    _file: &fs::File,
    _path: &Path,
    _len: u64,
    count: &MappingCount,
) -> std::result::Result<Unmapped, String> {
    count.0.bytes_max.store(0, Ordering::Release);
    Err("files are mapped on Linux only".into())
}

/// The mapping type of a platform without mappings.
#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
pub(super) enum Unmapped {}

#[cfg(not(target_os = "linux"))]
impl Mapping for Unmapped {
    fn len(&self) -> u64 {
        match *self {}
    }

    fn write_at(&mut self, _bytes: &[u8], _offset: u64) -> Result<()> {
        match *self {}
    }
}

/// Returns the reason why a store into a mapping of reserved bytes can fail on this kind of file
/// system (the magic number of `statfs`). `None` if it cannot fail; overlays are as safe as the
/// disk below them.
#[cfg(any(target_os = "linux", test))]
fn unmappable_reason(kind: u32) -> Option<String> {
    const NETWORK: [(u32, &str); 13] = [
        (0x0000_6969, "nfs"),
        (0x0000_517B, "smb"),
        (0xFF53_4D42, "cifs"),
        (0xFE53_4D42, "smb2"),
        (0x6573_5546, "fuse or virtiofs"),
        (0x0102_1997, "9p"),
        (0x7375_7245, "coda"),
        (0x5346_414F, "afs"),
        (0x6B41_4653, "kafs"),
        (0x00C3_6400, "ceph"),
        (0x0BD0_0BD3, "lustre"),
        (0x0116_1970, "gfs2"),
        (0x786F_4256, "vboxsf"),
    ];
    // XFS does once a file shares blocks with a copy, which `cp` makes without a word.
    const COPY_ON_WRITE: [(u32, &str); 5] = [
        (0x5846_5342, "xfs"),
        (0x9123_683E, "btrfs"),
        (0x2FC1_2FC1, "zfs"),
        (0xCA45_1A4E, "bcachefs"),
        (0x0000_3434, "nilfs"),
    ];
    let name = |kinds: &[(u32, &'static str)]| {
        kinds.iter().find(|(known, _)| *known == kind).map(|(_, name)| *name)
    };
    match (name(&NETWORK), name(&COPY_ON_WRITE)) {
        (Some(name), _) => Some(format!("the file system ({name}) may be on another machine")),
        (_, Some(name)) => Some(format!("the file system ({name}) copies what is written over")),
        (None, None) => None,
    }
}

/// Minimum and maximum bytes made writable at a time by the thread that stores. A page made
/// writable counts as dirty and goes to the disk with the next sync, so only pages that are
/// written soon are made writable.
#[cfg(target_os = "linux")]
const PREFAULT_BYTES: (usize, usize) = (64 << 10, 1 << 20);
/// Smallest page size; larger pages are populated whole.
#[cfg(target_os = "linux")]
const PAGE_BYTES: usize = 4096;

/// Makes pages present and writable, so that a store to them costs no fault and cannot fail.
#[cfg(target_os = "linux")]
fn prefault(bytes: &memmap2::MmapRaw, start: usize, end: usize) -> std::io::Result<()> {
    loop {
        return match bytes.advise_range(memmap2::Advice::PopulateWrite, start, end - start) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            populated => populated,
        };
    }
}

/// A mapped file, to which only this value stores.
#[cfg(target_os = "linux")]
#[derive(Debug)]
pub(super) struct SystemMapping(Arc<MappedPages>);

/// The pages of a mapped file.
#[cfg(target_os = "linux")]
#[derive(Debug)]
struct MappedPages {
    path: std::path::PathBuf,
    bytes: memmap2::MmapRaw,
    /// Offset below which stores cause no fault.
    prefaulted: AtomicUsize,
    /// Mark of the process that mapped the file. A forked child has the mapping, too, and would
    /// overwrite the stores of its parent.
    process: ProcessMark,
    _guard: Arc<MappedLen>,
}

#[cfg(target_os = "linux")]
impl Mapping for SystemMapping {
    fn len(&self) -> u64 {
        self.0.bytes.len() as u64
    }

    #[inline]
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> Result<()> {
        let pages = &*self.0;
        pages.check_process()?;
        let mapped = pages.bytes.len();
        let start = usize::try_from(offset).ok();
        let end = start.and_then(|start| start.checked_add(bytes.len()));
        let (Some(start), Some(end)) = (start, end.filter(|&end| end <= mapped)) else {
            return Err(outside(&pages.path, bytes.len(), offset, mapped));
        };
        if end > pages.prefaulted.load(Ordering::Relaxed) {
            pages.prefault_ahead(end)?;
        }
        // SAFETY: `start..end` lies within the mapped bytes, which live as long as `pages`. It was
        // populated while the file was that long. The file is not truncated while mapped: this
        // handle refuses, and the contract of `File::map` binds other holders. Only this function
        // writes to the mapping or makes a pointer to its bytes. It has `&mut self`, and each
        // mapping has one such value. Populating from another thread changes no byte. `bytes` is
        // ordinary memory of the caller and so no part of the mapping.
        unsafe {
            let target = pages.bytes.as_mut_ptr().add(start);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len());
        }
        Ok(())
    }

    fn prefaulter(&self) -> Option<Arc<dyn Prefaulter>> {
        Some(Arc::clone(&self.0) as Arc<dyn Prefaulter>)
    }
}

#[cfg(target_os = "linux")]
impl MappedPages {
    /// Returns an error in a child that was forked since the file was mapped.
    #[inline]
    fn check_process(&self) -> Result<()> {
        if self.process.is_current() { Ok(()) } else { Err(Error::Forked(self.path.clone())) }
    }

    /// Makes the pages up to `end` writable, and more pages after it; the longer the written part
    /// of the file is, the more.
    #[cold]
    fn prefault_ahead(&self, end: usize) -> Result<()> {
        let populated = self.prefaulted.load(Ordering::Relaxed);
        let ahead = populated.clamp(PREFAULT_BYTES.0, PREFAULT_BYTES.1);
        // Whole steps keep the boundaries on pages of any size.
        self.prefault_through(end.next_multiple_of(ahead).min(self.bytes.len()))
    }

    fn prefault_through(&self, through: usize) -> Result<()> {
        let populated = self.prefaulted.load(Ordering::Relaxed);
        if through > populated {
            let made = prefault(&self.bytes, populated, through);
            let failed =
                |error| Error::io("reserve space to write in the mapping of", &self.path, error);
            made.map_err(failed)?;
            self.prefaulted.fetch_max(through, Ordering::Relaxed);
        }
        Ok(())
    }
}

#[cfg(target_os = "linux")]
impl Prefaulter for MappedPages {
    fn prefault(&self, end: u64) -> Result<()> {
        self.check_process()?;
        let end = usize::try_from(end).unwrap_or(usize::MAX).min(self.bytes.len());
        // All but the last step in whole ones, for the boundaries' sake.
        self.prefault_through(end.next_multiple_of(PREFAULT_BYTES.0).min(self.bytes.len()))
    }

    fn release(&self, range: Range<u64>) {
        let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(self.bytes.len());
        // The last byte's page may be stored to yet.
        let start = place(range.start).next_multiple_of(PAGE_BYTES);
        let end = place(range.end) / PAGE_BYTES * PAGE_BYTES;
        if start >= end {
            return;
        }
        // SAFETY: the mapping is shared, so its stores are in the file's pages, and a
        // later access maps them again: no byte changes.
        let _ = unsafe {
            let advice = memmap2::UncheckedAdvice::DontNeed;
            self.bytes.unchecked_advise_range(advice, start, end - start)
        };
    }
}

#[cfg(target_os = "linux")]
#[cold]
fn outside(path: &Path, bytes: usize, offset: u64, mapped: usize) -> Error {
    let path = path.display();
    Error::invalid(format!(
        "internal: a range of {bytes} bytes at {offset} is beyond the {mapped} mapped bytes of \
         {path}"
    ))
}

#[cfg(test)]
mod tests {
    use super::unmappable_reason;

    #[test]
    fn file_systems_are_distinguished() {
        let ext4 = 0xEF53;
        let xfs = 0x5846_5342;
        let tmpfs = 0x0102_1994;
        let overlay = 0x794C_7630;
        for kind in [ext4, tmpfs, overlay] {
            assert_eq!(unmappable_reason(kind), None, "{kind:x}");
        }
        // A copy of an open store shared the blocks of its log. On a full disk the next store into
        // the mapping found no block for the copy that it needs, and the process died by SIGBUS.
        for kind in [xfs, 0x6969, 0xFF53_4D42, 0x6573_5546, 0x9123_683E, 0x2FC1_2FC1, 0x0102_1997] {
            assert!(unmappable_reason(kind).is_some(), "{kind:x}");
        }
    }
}
