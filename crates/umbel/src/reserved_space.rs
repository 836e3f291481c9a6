//! [`ReservedSpace`]: a file that keeps space on the disk for the manifest that the next open
//! creates, and for the first segment of its log. Nothing reads its bytes.
//!
//! A store that is open for writing keeps it as large as that takes. It stays when the store is
//! closed or its process dies. Where the disk is full at the next open, that open removes it.

use std::path::Path;

use umbel_base::{Error, Result};
use umbel_env::{Access, Env};

use crate::names;

const PAGE_BYTES: u64 = 4096;
/// For `CURRENT.new`, and for ends of files that fill no page.
const PAGES_BESIDES: u64 = 4;
/// What the next open may note that the last record of the manifest does not say: a log for each
/// that is there, a copy of them, the opening itself.
const NOTES_BYTES: u64 = 4096;
/// For the smallest segment of the log, which takes deletes.
const SEGMENT_BYTES: u64 = 16 << 10;

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
    /// `measure` counts, and for a segment; where there is no room for both, for the manifest.
    pub fn keep(
        &mut self,
        env: &Env,
        folder: &Path,
        end: u64,
        measure: impl FnOnce() -> u64,
    ) -> Result<()> {
        if self.wanted(end) + SEGMENT_BYTES <= self.bytes {
            return Ok(());
        }
        self.measured = (measure(), end);
        let wanted = self.wanted(end);
        // Measuring takes long where a state is large: an eighth more, for what comes next.
        let ample = wanted + SEGMENT_BYTES + self.measured.0 / 8;
        match self.grow(env, folder, ample) {
            Err(Error::Full { .. }) if self.bytes < wanted => self.grow(env, folder, wanted),
            grown => grown,
        }
    }

    /// Gives the space of the segment back to the disk, where a manifest that ends at `end` has
    /// enough without it. Whether there was any.
    pub fn give_segment(&mut self, env: &Env, folder: &Path, end: u64) -> Result<bool> {
        let wanted = self.wanted(end).next_multiple_of(PAGE_BYTES);
        if self.bytes < wanted + SEGMENT_BYTES {
            return Ok(false);
        }
        let file = env.files.open(&names::reserved(folder), Access::ReadWrite)?;
        if file.has_other_names()? {
            return Ok(false);
        }
        file.set_len(wanted)?;
        self.bytes = wanted;
        Ok(true)
    }

    /// No edit makes a state larger by more bytes than it takes in the manifest.
    fn wanted(&self, end: u64) -> u64 {
        let (state_bytes, at) = self.measured;
        state_bytes + (end - at) + NOTES_BYTES + PAGES_BESIDES * PAGE_BYTES
    }

    fn grow(&mut self, env: &Env, folder: &Path, wanted: u64) -> Result<()> {
        let path = names::reserved(folder);
        let wanted = wanted.next_multiple_of(PAGE_BYTES);
        let file = match env.files.exists(&path)? {
            true => env.files.open(&path, Access::ReadWrite)?,
            false => env.files.create(&path)?,
        };
        if file.len()? / 4 > wanted && !file.has_other_names()? {
            file.set_len(wanted)?;
        }
        // Of a file that was copied as many bytes may lie in holes.
        file.preallocate(wanted)?;
        self.bytes = wanted;
        Ok(())
    }
}

/// Gives the space back to the disk. Whether there was any.
pub fn give_up(env: &Env, folder: &Path) -> bool {
    env.files.remove_file(&names::reserved(folder)).is_ok()
}
