//! Opening a store for reading only, beside a writer of another process or without one.
//!
//! 1. The reader pins version 0 in the lock file, then reads `CURRENT` and the manifest, then pins
//!    the version that the manifest says and drops the first pin. The writer keeps every file that
//!    it names: see [`crate::obsolete`].
//! 2. The logs are read while the writer stores into them. What is read is a prefix of all writes
//!    that holds each one acknowledged before: see `umbel_log::LogReader` and [`crate::recovery`].
//! 3. Without a pin a file that is named may be gone or hold another log. Damage counts only where
//!    it is found twice while `CURRENT` and the manifest stayed as they are.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use umbel_base::{Error, Result};
use umbel_env::check_path;

use crate::open;
use crate::options::Options;
use crate::read_view::Mark;
use crate::store::Store;

/// How often an open begins again because a writer changed the store meanwhile.
const ATTEMPTS_MAX: u32 = 12;
/// How often the same damage is found, whatever else changed, before it is reported.
const SIGHTINGS_MAX: u32 = 4;
/// The longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_millis(64);

/// Opens the store in `folder` for reading only.
pub fn open(folder: &Path, options: Options) -> Result<Arc<Store>> {
    check_path("the store", folder)?;
    let outside = options.env.clone();
    let path = outside.files.absolute(folder)?;
    let (mut last, mut sightings) = (None, BTreeMap::new());
    for attempt in 0..ATTEMPTS_MAX {
        let error = match open::open(folder, options.clone(), true) {
            Err(error) if place_of(&error).is_some() => error,
            opened => return opened,
        };
        let found = (place_of(&error), Mark::take(&outside, &path));
        let times = sightings.entry(found.0.clone()).or_insert(0);
        *times += 1;
        if *times >= SIGHTINGS_MAX || last.as_ref() == Some(&found) {
            return Err(error);
        }
        last = Some(found);
        // Longer each time, and not at all before the second attempt.
        if attempt > 0 {
            let time = Duration::from_millis(1 << attempt.min(16));
            outside.threads.pause(time.min(PAUSE_MAX));
        }
    }
    let reason = format!("a writer changed it during each of {ATTEMPTS_MAX} attempts to read it");
    Err(Error::Stale { path, reason })
}

/// Where a writer's change can look like damage; `None` for every other error.
fn place_of(error: &Error) -> Option<(PathBuf, u64)> {
    match error {
        Error::Corruption { file, offset, .. } => Some((file.clone(), *offset)),
        Error::Io { path, .. } if error.is_missing_file() => Some((path.clone(), 0)),
        _ => None,
    }
}
