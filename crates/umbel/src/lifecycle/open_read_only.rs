//! Read-only open of a store, beside a writer of another process or without one.
//!
//! 1. The reader pins version 0 in the lock file, then reads `CURRENT` and the manifest. Then it
//!    pins the manifest's version and drops the first pin. The writer keeps every file that this
//!    version names: see [`crate::fs::obsolete_files`].
//! 2. The WAL is read while the writer appends to it. The result is a prefix of all writes that
//!    includes each one acknowledged before: see `umbel_log::LogReader` and
//!    [`crate::lifecycle::recovery`].
//! 3. Without a pin a named file may be gone or hold another segment. Damage counts only where it
//!    is found twice while `CURRENT` and the manifest did not change.

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

/// Maximum attempts of an open because a writer changed the store meanwhile.
const ATTEMPTS_MAX: u32 = 12;
/// Number of times that the same damage is found, despite other changes, before it is reported.
const SAME_DAMAGE_MAX: u32 = 4;
/// The longest pause between two attempts.
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

/// Location where a writer's change can look like damage; `None` for every other error.
fn damage_location(error: &Error) -> Option<(PathBuf, u64)> {
    match error {
        Error::Corruption { file, offset, .. } => Some((file.clone(), *offset)),
        Error::Io { path, .. } if error.is_missing_file() => Some((path.clone(), 0)),
        _ => None,
    }
}
