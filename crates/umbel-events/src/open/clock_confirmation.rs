//! [`confirm_clock`]: what happens when an operator confirms the wall clock of a closed store.
//!
//! One write of the chunk manifest confirms the clock. A crash leaves the former manifest or the
//! new one.

use std::path::Path;
use std::sync::Arc;

use umbel_env::Env;

use crate::event_log::EventLog;
use crate::event_log::chunk_manifest::ChunkManifest;
use crate::event_log::clock_epochs::ClockEpoch;
use crate::limits::CLOCK_JUMP_SECONDS_MAX;
use crate::primitives::store_clock::{ClockEvidence, ClockMark, TICKS_PER_SECOND};
use crate::types::error::{Error, Result};

/// Result of the confirmation of a wall clock. Times are in units of 100 ns since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockReport {
    /// The wall clock.
    pub wall: u64,
    /// Time of the last event; `None` without events.
    pub last_event: Option<u64>,
    /// Change by the confirmation.
    pub outcome: ClockOutcome,
}

/// Change by the confirmation of a wall clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockOutcome {
    /// Nothing: the store agrees with the wall clock.
    Unchanged,
    /// The store believes the wall clock, and times of events continue to rise.
    Believed,
    /// A clock epoch with this number began, because events have times in the future.
    NewEpoch(u64),
}

/// Confirms the wall clock, and begins a clock epoch if later events would get times in the future.
/// Writes the manifest only if the store does not agree with the wall clock.
///
/// REQUIRES: every chunk has ended, and the caller holds the store's lock.
pub fn confirm_clock(
    env: &Env,
    folder: &Path,
    manifest: &mut ChunkManifest,
) -> Result<ClockReport> {
    let log = Arc::new(EventLog::read_only(env, folder, manifest.clone(), &[]));
    let last = match log.last_position() {
        Some(position) => Some((position, log.cursor().event_at(position)?.meta.created)),
        None => None,
    };
    let last_created = manifest.epochs.next_created_min(last.unwrap_or_default());
    let known = ClockEvidence { last_created, mark: manifest.clock };
    let mark = ClockMark::of_wall(&*env.clock);
    let report = |outcome| {
        let last_event = last.map(|(_, created)| created);
        ClockReport { wall: mark.time, last_event, outcome }
    };
    if !known.needs_confirmation(&*env.clock) {
        return Ok(report(ClockOutcome::Unchanged));
    }
    if mark.time == 0 {
        return Err(Error::invalid(
            "this machine's clock is before 1970 and cannot be accepted; correct it",
        ));
    }
    let mut outcome = ClockOutcome::Believed;
    if last_created.saturating_sub(mark.time) > CLOCK_JUMP_SECONDS_MAX * TICKS_PER_SECOND {
        let epoch = ClockEpoch { position: manifest.next_start, start: mark.time };
        manifest.epochs.begin(epoch, last.map_or(0, |(position, _)| position));
        outcome = ClockOutcome::NewEpoch(manifest.epochs.number());
    }
    manifest.clock = Some(mark);
    manifest.write(env, folder)?;
    Ok(report(outcome))
}
