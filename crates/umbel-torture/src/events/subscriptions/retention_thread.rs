//! Thread that truncates and deletes streams, flushes the index and scavenges, while other threads
//! append.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use umbel_events::{
    Error, ExpectedVersion, NewEvent, Position, ScavengeOptions, Store, StreamState,
    metadata_stream,
};
use umbel_sim::Random;

use super::TRUNCATED_STREAMS;
use crate::events::subscriptions::crash_cycle_state::SubscriptionCycle;
use crate::events::subscriptions::event_oracle::AppendedEvent;

/// `$maxCount` that the thread sets on streams.
const MAX_COUNT: u64 = 20;
/// Timeout of a wait for an append.
const APPEND_WAIT: Duration = Duration::from_millis(2);

/// Applies one step after the other until `over` is set or the crash has happened.
pub fn run_retention(
    life: &SubscriptionCycle,
    mut random: Random,
    may_tombstone: bool,
    over: &AtomicU64,
) {
    loop {
        for _ in 0..random.below(25) {
            if over.load(Ordering::SeqCst) != 0 || life.sim.is_dead() {
                return;
            }
            life.store.wait_past(Position::END, APPEND_WAIT);
        }
        let stream = TRUNCATED_STREAMS[random.below(TRUNCATED_STREAMS.len() as u64) as usize];
        let (what, done) = match random.below(20) {
            0..6 => ("flushing", make_durable(life, Store::flush)),
            6..8 => ("syncing", make_durable(life, Store::sync)),
            8..14 => ("hiding", hide(life, stream, &mut random)),
            14..16 => ("deleting", delete(life, stream)),
            16 if may_tombstone && random.once_in(4) => {
                ("ending", tombstone(life, TRUNCATED_STREAMS[1]))
            }
            _ => ("scavenging", scavenge(life)),
        };
        match done {
            Ok(()) => {}
            // A writer has just appended, or the stream was tombstoned.
            Err(Error::WrongExpectedVersion { .. } | Error::StreamDeleted { .. }) => {}
            Err(error) => return life.failed(what, &error),
        }
    }
}

/// Makes the appends so far durable, in one of two ways.
fn make_durable(
    life: &SubscriptionCycle,
    make: fn(&Store) -> Result<(), Error>,
) -> Result<(), Error> {
    let visible = life.store.visible_position().0;
    make(&life.store)?;
    life.oracle().made_durable(visible);
    Ok(())
}

/// Writes metadata that hides some of a stream's events.
fn hide(life: &SubscriptionCycle, stream: &str, random: &mut Random) -> Result<(), Error> {
    let StreamState::Live { first, last } = life.store.stream_state(stream)? else {
        return Ok(());
    };
    let more = match random.once_in(3) {
        true => 0,
        false => random.below((last + 2).saturating_sub(first).max(1)),
    };
    let below = first + more;
    let is_counted = random.once_in(3);
    let count = is_counted.then_some(MAX_COUNT);
    life.oracle().hides(stream, below, count);
    let json = match is_counted {
        true => format!(r#"{{"$tb":{below},"$maxCount":{MAX_COUNT}}}"#),
        false => format!(r#"{{"$tb":{below}}}"#),
    };
    let name = metadata_stream(stream);
    let id = life.ids(1)[0];
    let event = NewEvent::json(id, "$metadata", json.as_bytes());
    let done = life.store.append(&name, ExpectedVersion::Any, &[event])?;
    if let (Some(revision), Some(position)) = (done.last, done.position) {
        let kind = "$metadata".to_string();
        let known = AppendedEvent { id, stream: name, revision, kind, is_there: false };
        let noted = life.oracle().acknowledged(position, known);
        noted.unwrap_or_else(|text| life.wrong(text));
    }
    Ok(())
}

fn delete(life: &SubscriptionCycle, stream: &str) -> Result<(), Error> {
    let StreamState::Live { last, .. } = life.store.stream_state(stream)? else { return Ok(()) };
    life.oracle().hides(stream, last + 1, None);
    life.store.delete(stream, ExpectedVersion::Exact(last)).map(drop)
}

fn tombstone(life: &SubscriptionCycle, stream: &str) -> Result<(), Error> {
    life.oracle().hides(stream, u64::MAX, None);
    life.store.tombstone(stream, ExpectedVersion::Any).map(drop)
}

fn scavenge(life: &SubscriptionCycle) -> Result<(), Error> {
    let options = ScavengeOptions { busy_percent: 100, retry_bytes: 0, ..Default::default() };
    life.store.scavenge(&options).map(drop)
}
