//! [`ReservedSpace`]: a file of zeros that keeps space on the disk for the manifest that the next
//! open creates, and for small segments of its log.
//!
//! A store that is open for writing keeps it as large as that takes. It stays when the store is
//! closed or its process dies. Where the disk is full at the next open, that open removes it. A
//! file of that name that holds something is another program's, and stays as it is.

use std::path::Path;
use std::sync::Arc;

use umbel_base::{Error, Result};
use umbel_env::{Access, Env, File};

use crate::names;

const PAGE_BYTES: u64 = 4096;
/// For `CURRENT.new`, and for ends of files that fill no page.
const PAGES_BESIDES: u64 = 4;
/// What the next open may note that the last record of the manifest does not say: a log for each
/// that is there, a copy of them, the opening itself.
const NOTES_BYTES: u64 = 4096;
/// For the smallest segment of the log, which takes deletes.
const SEGMENT_BYTES: u64 = 16 << 10;
/// For the segments of that many opens, one after the other, on a disk that stays full.
const SEGMENTS: u64 = 4;
/// A longer file is not looked through, and taken for another program's.
const BYTES_MAX: u64 = 1 << 30;

/// Space for a manifest.
#[derive(Debug, Clone, Copy)]
pub struct ReservedSpace {
    /// Length of the file; 0 where it is not known to be there.
    bytes: u64,
    /// What the state of the manifest took when it was measured, and where the manifest ended then.
    measured: (u64, u64),
}

impl ReservedSpace {
    /// No space yet, for a manifest whose state was written as its first record up to `end`.
    pub fn none(end: u64) -> ReservedSpace {
        ReservedSpace { bytes: 0, measured: (end, end) }
    }

    /// The same space, for a manifest that was rewritten with its state up to `end`.
    pub fn rewritten(self, end: u64) -> ReservedSpace {
        ReservedSpace { measured: (end, end), ..self }
    }

    /// Keeps space for a manifest that ends at `end` now and whose state takes the bytes that
    /// `measure` counts, and for segments of the log, as many as there is room for.
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
        self.measured = (measure(), end);
        let wanted = self.wanted(end);
        // Measuring takes long where a state is large: an eighth more, for what comes next.
        let ample = wanted + SEGMENTS * SEGMENT_BYTES + self.measured.0 / 8;
        let pages = (0..SEGMENTS * SEGMENT_BYTES / PAGE_BYTES).rev();
        let held = self.bytes;
        let fewer = pages.map(|pages| wanted + pages * PAGE_BYTES).take_while(|it| *it > held);
        self.grow(env, folder, std::iter::once(ample).chain(fewer))
    }

    /// Gives the space of one segment back to the disk, where a manifest that ends at `end` has
    /// enough without it. Whether there was any.
    pub fn give_segment(&mut self, env: &Env, folder: &Path, end: u64) -> Result<bool> {
        let wanted = self.wanted(end).next_multiple_of(PAGE_BYTES);
        let segments = self.bytes.saturating_sub(wanted) / SEGMENT_BYTES;
        if segments == 0 {
            return Ok(false);
        }
        let Some(file) = find(env, folder)? else { return Ok(false) };
        // With what is no whole segment, for the edit that says what became free.
        self.bytes = wanted + (segments - 1) * SEGMENT_BYTES;
        file.set_len(self.bytes)?;
        Ok(true)
    }

    /// No edit makes a state larger by more bytes than it takes in the manifest.
    fn wanted(&self, end: u64) -> u64 {
        let (state_bytes, at) = self.measured;
        state_bytes + (end - at) + NOTES_BYTES + PAGES_BESIDES * PAGE_BYTES
    }

    /// Makes the file as long as the first of `sizes` for which there is space, and reserves it.
    fn grow(
        &mut self,
        env: &Env,
        folder: &Path,
        sizes: impl IntoIterator<Item = u64>,
    ) -> Result<()> {
        let path = names::reserved(folder);
        let file = match env.files.exists(&path)? {
            true => find(env, folder)?,
            false => Some(env.files.create(&path)?),
        };
        let Some(file) = file else { return Ok(()) };
        let mut grown = Ok(());
        for bytes in sizes.into_iter().map(|bytes| bytes.next_multiple_of(PAGE_BYTES)) {
            grown = reserve(&*file, bytes);
            if grown.is_ok() {
                self.bytes = bytes;
            }
            if !matches!(grown, Err(Error::Full { .. })) {
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
    // Of a file that was copied as many bytes may lie in holes.
    file.preallocate(wanted)?;
    // Some file systems reserve for what is written only.
    let zeros = [0; PAGE_BYTES as usize];
    for at in (len..wanted).step_by(zeros.len()) {
        file.write_all_at(&zeros, at)?;
    }
    Ok(())
}

/// Keeps space for a manifest with a state of so many bytes.
pub fn keep_for(env: &Env, folder: &Path, state_bytes: u64) -> Result<()> {
    let mut space = ReservedSpace::none(state_bytes);
    let wanted = space.wanted(state_bytes);
    match space.grow(env, folder, [wanted]) {
        // Any other failure is no want of space.
        Err(full @ Error::Full { .. }) => Err(full),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Gives the space back to the disk. Returns how many bytes, which are [`keep_again`]'s where they
/// did not suffice.
pub fn give_up(env: &Env, folder: &Path) -> u64 {
    let give = || -> Result<u64> {
        let Some(file) = find(env, folder)? else { return Ok(0) };
        let len = file.len()?;
        // Some file systems free what a removed file had only later.
        file.set_len(0)?;
        env.files.remove_file(&names::reserved(folder))?;
        Ok(len)
    };
    give().unwrap_or(0)
}

/// Reserves so many bytes again, if there is room.
pub fn keep_again(env: &Env, folder: &Path, bytes: u64) {
    if bytes > 0 {
        // What cannot be kept is reserved by an open for which there is room.
        let _ = ReservedSpace::none(0).grow(env, folder, [bytes]);
    }
}

/// The file; `None` where it is another program's or has another name as well, under which it is
/// another store's.
fn find(env: &Env, folder: &Path) -> Result<Option<Arc<dyn File>>> {
    let file = env.files.open(&names::reserved(folder), Access::ReadWrite)?;
    let len = file.len()?;
    if len > BYTES_MAX || file.has_other_names()? {
        return Ok(None);
    }
    let mut buffer = [0; PAGE_BYTES as usize];
    for at in (0..len).step_by(buffer.len()) {
        let read = file.read_at(&mut buffer, at)?;
        if buffer.iter().take(read).any(|byte| *byte != 0) {
            return Ok(None);
        }
    }
    Ok(Some(file))
}
