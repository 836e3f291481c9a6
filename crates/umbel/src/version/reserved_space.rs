//! [`ReservedSpace`]: a file of zeros that keeps disk space for the manifest that the next open
//! creates, and for small segments of its WAL.
//!
//! A store that is open for writing keeps the file as large as a new manifest needs. The file stays
//! when the store is closed or its process dies. If the disk is full at the next open, that open
//! removes the file. A file of that name with other content belongs to another program, and is
//! neither used nor removed.

use std::path::Path;
use std::sync::Arc;

use umbel_base::{Error, Result};
use umbel_env::{Access, Env, File};

use crate::fs::filenames;

const PAGE_BYTES: u64 = 4096;
static ZEROS: [u8; PAGE_BYTES as usize] = [0; PAGE_BYTES as usize];
/// Number of pages reserved for `CURRENT.new`, and for partly filled last pages of files.
const PAGES_EXTRA: u64 = 4;
/// Bytes reserved for further edits of the next open: one for each WAL segment, a new instance id,
/// the open itself.
const EDITS_BYTES: u64 = 4096;
/// Bytes reserved for a WAL segment of the smallest size, which takes deletes.
const SEGMENT_BYTES: u64 = 16 << 10;
/// Number of WAL segments for which space is reserved, one for each successive open on a disk that
/// stays full.
pub const SEGMENTS: u64 = 4;
/// A longer file is not examined, and counts as a file of another program.
const BYTES_MAX: u64 = 1 << 30;

/// Reserved disk space for a manifest and WAL segments.
#[derive(Debug, Clone, Copy)]
pub struct ReservedSpace {
    /// Length of the reserved file; 0 if the file is not known to exist.
    bytes: u64,
    /// Size of the manifest's state and end of the manifest, both at the last measurement.
    measured_at: (u64, u64),
}

impl ReservedSpace {
    /// Creates the reservation without any space yet, for a manifest whose first record, the state,
    /// ends at `end`.
    pub fn none(end: u64) -> ReservedSpace {
        ReservedSpace { bytes: 0, measured_at: (end, end) }
    }

    /// Returns the same space for a rewritten manifest, whose first record, the state, ends at
    /// `end`.
    pub fn rewritten(self, end: u64) -> ReservedSpace {
        ReservedSpace { measured_at: (end, end), ..self }
    }

    /// Keeps space for the next manifest, when the present one ends at `end` and its state has the
    /// size that `measure` returns. Also keeps space for WAL segments, as far as the disk has
    /// space.
    pub fn keep(
        &mut self,
        env: &Env,
        folder: &Path,
        end: u64,
        measure: impl FnOnce() -> u64,
    ) -> Result<()> {
        if self.wanted(end) + SEGMENTS * SEGMENT_BYTES <= self.bytes {
            return Ok(());
        }
        self.measured_at = (measure(), end);
        let wanted = self.wanted(end);
        // Measuring takes long for a large state: an eighth more, for later edits.
        let ample = wanted + SEGMENTS * SEGMENT_BYTES + self.measured_at.0 / 8;
        let pages = (0..SEGMENTS * SEGMENT_BYTES / PAGE_BYTES).rev();
        let held = self.bytes;
        let fewer = pages.map(|pages| wanted + pages * PAGE_BYTES).take_while(|it| *it > held);
        self.grow(env, folder, std::iter::once(ample).chain(fewer))
    }

    /// Frees the space of one WAL segment, if enough remains for the manifest, which ends at `end`,
    /// and for `kept` segments. Returns whether space was freed.
    pub fn release_segment(
        &mut self,
        env: &Env,
        folder: &Path,
        end: u64,
        kept: u64,
    ) -> Result<bool> {
        let wanted = self.wanted(end).next_multiple_of(PAGE_BYTES);
        let segments = self.bytes.saturating_sub(wanted) / SEGMENT_BYTES;
        if segments <= kept {
            return Ok(false);
        }
        let Some(file) = open_existing(env, folder)? else { return Ok(false) };
        // Including the partial segment, for the edit that records the freed space.
        self.bytes = wanted + (segments - 1) * SEGMENT_BYTES;
        file.set_len(self.bytes)?;
        Ok(true)
    }

    /// Frees all reserved space.
    pub fn release(&mut self, env: &Env, folder: &Path) {
        release(env, folder);
        self.bytes = 0;
    }

    /// Returns the bytes to reserve for a manifest that ends at `end`. An edit enlarges the state
    /// by at most the bytes that it takes in the manifest.
    fn wanted(&self, end: u64) -> u64 {
        let (state_bytes, at) = self.measured_at;
        state_bytes + (end - at) + EDITS_BYTES + PAGES_EXTRA * PAGE_BYTES
    }

    /// Extends the reserved file to the first of `sizes` for which the disk has space.
    fn grow(
        &mut self,
        env: &Env,
        folder: &Path,
        sizes: impl IntoIterator<Item = u64>,
    ) -> Result<()> {
        let path = filenames::reserved(folder);
        let file = match env.files.exists(&path)? {
            true => open_existing(env, folder)?,
            false => Some(env.files.create(&path)?),
        };
        let Some(file) = file else { return Ok(()) };
        let mut grown = Ok(());
        for bytes in sizes.into_iter().map(|bytes| bytes.next_multiple_of(PAGE_BYTES)) {
            grown = reserve(&*file, bytes);
            if grown.is_ok() {
                self.bytes = bytes;
            }
            if !matches!(grown, Err(Error::DiskFull { .. })) {
                break;
            }
        }
        grown
    }
}

fn reserve(file: &dyn File, wanted: u64) -> Result<()> {
    let len = file.len()?;
    if len / 4 > wanted {
        file.set_len(wanted)?;
    }
    // A copied file may have as many bytes in holes.
    file.preallocate(wanted)?;
    // Some file systems reserve space only for written bytes.
    for at in (len..wanted).step_by(ZEROS.len()) {
        file.write_all_at(&ZEROS, at)?;
    }
    // After a power loss, bytes that were not synced may be other than zeros, as in a file of
    // another program.
    file.sync()
}

/// Reserves space for a manifest with a state of `state_bytes` bytes.
pub fn reserve_for(env: &Env, folder: &Path, state_bytes: u64) -> Result<()> {
    let mut space = ReservedSpace::none(state_bytes);
    let wanted = space.wanted(state_bytes);
    match space.grow(env, folder, [wanted]) {
        // Any other failure is not a full disk.
        Err(full @ Error::DiskFull { .. }) => Err(full),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Frees the reserved space. Returns the number of bytes, which the caller passes to [`restore`] if
/// they did not suffice.
pub fn release(env: &Env, folder: &Path) -> u64 {
    let give = || -> Result<u64> {
        let Some(file) = open_existing(env, folder)? else { return Ok(0) };
        let len = file.len()?;
        // Some file systems free the space of a removed file only later.
        file.set_len(0)?;
        env.files.remove_file(&filenames::reserved(folder))?;
        Ok(len)
    };
    give().unwrap_or(0)
}

/// Reserves `bytes` bytes again, if the disk has space.
pub fn restore(env: &Env, folder: &Path, bytes: u64) {
    if bytes > 0 {
        // A later open with enough disk space reserves the rest.
        let _ = ReservedSpace::none(0).grow(env, folder, [bytes]);
    }
}

/// Returns the reserved file. `None` if it belongs to another program, or has a second name and so
/// possibly belongs to another store.
fn open_existing(env: &Env, folder: &Path) -> Result<Option<Arc<dyn File>>> {
    let file = env.files.open(&filenames::reserved(folder), Access::ReadWrite)?;
    let len = file.len()?;
    if len > BYTES_MAX || file.has_other_names()? {
        return Ok(None);
    }
    let mut buffer = [0; PAGE_BYTES as usize];
    for at in (0..len).step_by(buffer.len()) {
        let read = file.read_at(&mut buffer, at)?;
        if buffer.get(..read) != ZEROS.get(..read) {
            return Ok(None);
        }
    }
    Ok(Some(file))
}
