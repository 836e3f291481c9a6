//! The file `REPAIR`, which is there from before a repair changes anything until it is done: nobody
//! opens the store meanwhile, and the same repair can be brought to its end.
//!
//! FORMAT: `docs/formats/event-log.md`: one line of text.

use std::path::Path;

use umbel_base::checksum::checksum;
use umbel_env::{Access, Env};

use crate::chunk_table::ChunkTable;
use crate::error::{Error, Result};

const NAME: &str = "REPAIR";
const NEW_NAME: &str = "REPAIR.new";
/// No marker is longer.
const BYTES_MAX: u64 = 256;

/// A repair that has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RepairMarker {
    /// The number of the folder that takes what was damaged.
    pub number: u64,
    /// The generation of the table of chunks when it began; 0 where that was not readable. The
    /// next one is that of the repaired store.
    pub generation: u64,
    /// The checksum of the repaired store's seed: a marker of another store says nothing.
    pub seed_checksum: u64,
    /// Whether the existence filter is of another store now.
    pub is_seed_new: bool,
    /// Whether something could not be saved.
    pub is_loss: bool,
}

/// Whether a repair of the store has not ended.
pub fn is_there(env: &Env, folder: &Path) -> Result<bool> {
    Ok(env.files.exists(&folder.join(NAME))?)
}

/// An error where a repair of the store has not ended.
pub fn check_none(env: &Env, folder: &Path) -> Result<()> {
    if !is_there(env, folder)? {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "a repair of the event store in {} did not come to its end; run `umbel repair` again, \
         which goes on there",
        folder.display()
    )))
}

impl RepairMarker {
    /// What a marker says of the seed of a store.
    pub fn checksum_of(seed: &[u8; 16]) -> u64 {
        checksum(0, 0, seed)
    }

    /// Whether this table is the one that the repair was going to publish. Another one was written
    /// by somebody else: the marker is an older copy, or of another store, and so are the files
    /// that it would have moved.
    pub fn is_published_by(&self, table: &ChunkTable) -> bool {
        self.generation.checked_add(1) == Some(table.generation)
            && self.seed_checksum == RepairMarker::checksum_of(&table.seed)
    }

    fn encode(&self) -> String {
        let RepairMarker { number, generation, seed_checksum, is_seed_new, is_loss } = *self;
        let (is_seed_new, is_loss) = (u8::from(is_seed_new), u8::from(is_loss));
        format!("umbel repair {number} {generation} {seed_checksum} {is_seed_new} {is_loss}\n")
    }

    fn decode(bytes: &[u8]) -> Option<RepairMarker> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut words = text.strip_prefix("umbel repair ")?.split_whitespace();
        let mut number = || words.next()?.parse::<u64>().ok();
        let marker = RepairMarker {
            number: number()?,
            generation: number()?,
            seed_checksum: number()?,
            is_seed_new: number()? == 1,
            is_loss: number()? == 1,
        };
        (marker.encode() == text).then_some(marker)
    }

    /// Reads the marker; `None` where there is none, or one that nobody wrote to its end.
    pub fn read(env: &Env, folder: &Path) -> Result<Option<RepairMarker>> {
        let path = folder.join(NAME);
        if !env.files.exists(&path)? {
            return Ok(None);
        }
        let file = env.files.open(&path, Access::Read)?;
        let mut bytes = vec![0; file.len()?.min(BYTES_MAX) as usize];
        file.read_exact_at(&mut bytes, 0)?;
        let marker = RepairMarker::decode(&bytes);
        marker.map(Some).ok_or_else(|| {
            let reason = "this is no line of a repair: the file is damaged, or of another version; \
                          remove it and the folder `index`, which is made of the event log again, \
                          then `umbel repair` finds what is left to do";
            umbel::Error::corruption(&path, 0, reason).into()
        })
    }

    /// Writes it, durably.
    pub fn write(&self, env: &Env, folder: &Path) -> Result<()> {
        let new = folder.join(NEW_NAME);
        if env.files.exists(&new)? {
            // Left by a repair that was killed here.
            env.files.remove_file(&new)?;
        }
        let file = env.files.create(&new)?;
        file.write_all_at(self.encode().as_bytes(), 0)?;
        file.sync()?;
        env.files.rename(&new, &folder.join(NAME))?;
        Ok(env.files.sync_dir(folder)?)
    }

    /// Removes it: the repair has ended.
    pub fn remove(env: &Env, folder: &Path) -> Result<()> {
        for name in [NEW_NAME, NAME] {
            let path = folder.join(name);
            if env.files.exists(&path)? {
                env.files.remove_file(&path)?;
            }
        }
        Ok(env.files.sync_dir(folder)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_comes_back_and_nothing_else_is_taken_for_one() {
        let (number, generation, seed_checksum) = (3, 41, u64::MAX);
        let (is_seed_new, is_loss) = (true, false);
        let marker = RepairMarker { number, generation, seed_checksum, is_seed_new, is_loss };
        let text = marker.encode();
        assert_eq!(RepairMarker::decode(text.as_bytes()), Some(marker));
        for len in 0..text.len() {
            assert_eq!(RepairMarker::decode(&text.as_bytes()[..len]), None, "{len} bytes");
        }
        for numbers in ["1 2 3 2 0", "1 2 3 0 4", "-1 2 3 0 0", "1 2 0 0", "1 2 3 0 0 0"] {
            let wrong = format!("umbel repair {numbers}\n");
            assert_eq!(RepairMarker::decode(wrong.as_bytes()), None, "{wrong:?}");
        }
    }
}
