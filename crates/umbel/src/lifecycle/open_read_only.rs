//! Read-only open of a store, with or without a writer in another process.
//!
//! 1. The reader pins version 0 in the lock file, then reads `CURRENT` and the manifest. Then the
//!    reader pins the manifest's version and drops the first pin. The writer keeps every file that
//!    a pinned version names: see [`crate::fs::obsolete_files`].
//! 2. The reader reads the WAL while the writer appends to it. The result is a prefix of all
//!    writes, and includes every write acknowledged before the open: see `umbel_log::LogReader` and
//!    [`crate::lifecycle::recovery`].
//! 3. Without a pin, a file that the manifest names can be missing or hold another WAL segment. So
//!    damage counts only if it is found twice while `CURRENT` and the manifest did not change.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use umbel_base::{Error, Result};
use umbel_env::check_path;

use crate::lifecycle::open;
use crate::lifecycle::stale_read_check::ManifestMark;
use crate::options::Options;
use crate::state::store::Store;

/// Maximum number of attempts of an open that fail because a writer changed the store meanwhile.
const ATTEMPTS_MAX: u32 = 12;
/// The same damage is reported after it was found this many times, even if the writer changed the
/// store between them.
const SAME_DAMAGE_MAX: u32 = 4;
/// The longest pause between two attempts of an open.
const PAUSE_MAX: Duration = Duration::from_millis(64);

/// Opens the store in `folder` read-only.
pub fn open(folder: &Path, options: Options) -> Result<Arc<Store>> {
    check_path("the store", folder)?;
    let outside = options.env.clone();
    let path = outside.files.absolute(folder)?;
    let (mut last, mut sightings) = (None, BTreeMap::new());
    for attempt in 0..ATTEMPTS_MAX {
        let error = match open::open(folder, options.clone(), true) {
            Err(error) if damage_location(&error).is_some() => error,
            opened => return opened,
        };
        let found = (damage_location(&error), ManifestMark::take(&outside, &path));
        let times = sightings.entry(found.0.clone()).or_insert(0);
        *times += 1;
        if *times >= SAME_DAMAGE_MAX || last.as_ref() == Some(&found) {
            return Err(error);
        }
        last = Some(found);
        // The pause grows with each attempt, and the second attempt follows without a pause.
        if attempt > 0 {
            let time = Duration::from_millis(1 << attempt.min(16));
            outside.threads.pause(time.min(PAUSE_MAX));
        }
    }
    let reason = format!("a writer changed it during each of {ATTEMPTS_MAX} attempts to read it");
    Err(Error::Stale { path, reason })
}

/// File and offset of an error that a writer's change can cause; `None` for every other error.
fn damage_location(error: &Error) -> Option<(PathBuf, u64)> {
    match error {
        Error::Corruption { file, offset, .. } => Some((file.clone(), *offset)),
        Error::Io { path, .. } if error.is_missing_file() => Some((path.clone(), 0)),
        _ => None,
    }
}
