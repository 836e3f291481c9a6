//! The file `REPAIR`, which exists from before the first change of a repair until its end. While
//! the marker exists, no process can open the store, and an interrupted repair can resume.
//!
//! FORMAT: `docs/formats/event-log.md`: one line of text.

use std::path::Path;

use umbel_base::checksum::checksum;
use umbel_base::shell_word::quote_path;
use umbel_env::{Access, Env};

use crate::event_log::chunk_manifest::ChunkManifest;
use crate::types::error::{Error, Result};

const MARKER_NAME: &str = "REPAIR";
const NEW_MARKER_NAME: &str = "REPAIR.new";
/// Maximum length of a marker.
const BYTES_MAX: u64 = 256;

/// A repair that has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RepairMarker {
    /// Number of the folder that receives the damaged files.
    pub number: u64,
    /// Generation of the chunk manifest at the repair's start; 0 if the manifest was not readable.
    /// The repaired store has the next generation.
    pub generation: u64,
    /// Checksum of the repaired store's seed: a marker of another store is ignored.
    pub seed_checksum: u64,
    /// Whether the repair gives the store a new seed, so that the existence filter no longer
    /// belongs to it.
    pub is_seed_new: bool,
    /// Whether the repair could not salvage all events.
    pub is_loss: bool,
}

/// Whether a repair of the store has not ended.
pub fn exists(env: &Env, folder: &Path) -> Result<bool> {
    Ok(env.files.exists(&folder.join(MARKER_NAME))?)
}

/// Returns an error where a repair of the store has not ended.
pub fn check_no_repair(env: &Env, folder: &Path) -> Result<()> {
    if !exists(env, folder)? {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "a repair of the event store in {} was interrupted; run `umbel repair --db {}` again to \
         complete the repair",
        folder.display(),
        quote_path(folder)
    )))
}

impl RepairMarker {
    /// Returns the checksum of a store's seed as in a marker.
    pub fn checksum_of(seed: &[u8; 16]) -> u64 {
        checksum(0, 0, seed)
    }

    /// Whether `manifest` is the one that the repair was to publish. If not, the marker and the
    /// files that the repair would have moved are an older copy, or come from another store.
    pub fn is_published_by(&self, manifest: &ChunkManifest) -> bool {
        self.generation.checked_add(1) == Some(manifest.generation)
            && self.seed_checksum == RepairMarker::checksum_of(&manifest.seed)
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

    /// Reads the marker; `None` without a complete one.
    pub fn read(env: &Env, folder: &Path) -> Result<Option<RepairMarker>> {
        let path = folder.join(MARKER_NAME);
        if !env.files.exists(&path)? {
            return Ok(None);
        }
        let file = env.files.open(&path, Access::Read)?;
        let mut bytes = vec![0; file.len()?.min(BYTES_MAX) as usize];
        file.read_exact_at(&mut bytes, 0)?;
        let marker = RepairMarker::decode(&bytes);
        marker.map(Some).ok_or_else(|| {
            let reason = format!(
                "this is not a valid marker of a repair: the file is damaged, or of another \
                 version; remove this file and the directory `index`, which is rebuilt from the \
                 event log, then run `umbel repair --db {}`",
                quote_path(folder)
            );
            umbel::Error::corruption(&path, 0, reason).into()
        })
    }

    /// Writes the marker durably.
    pub fn write(&self, env: &Env, folder: &Path) -> Result<()> {
        let new = folder.join(NEW_MARKER_NAME);
        if env.files.exists(&new)? {
            // Left by a repair that was killed here.
            env.files.remove_file(&new)?;
        }
        let file = env.files.create(&new)?;
        file.write_all_at(self.encode().as_bytes(), 0)?;
        file.sync()?;
        env.files.rename(&new, &folder.join(MARKER_NAME))?;
        Ok(env.files.sync_dir(folder)?)
    }

    /// Removes the marker: the repair has ended.
    pub fn remove(env: &Env, folder: &Path) -> Result<()> {
        for name in [NEW_MARKER_NAME, MARKER_NAME] {
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
    fn repair_marker_round_trips_and_other_bytes_are_rejected() {
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
