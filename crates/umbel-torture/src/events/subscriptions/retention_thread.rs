//! Who truncates and deletes streams, flushes the index and scavenges, while others append.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use umbel_events::{
    Error, Expected, NewEvent, Position, ScavengeOptions, Store, StreamState, metadata_stream,
};

use super::CUT;
use super::ledger::Known;
use super::stage::Stage;
use crate::random::Random;

/// `$maxCount` of a stream that has one.
const COUNT: u64 = 20;
/// How long to wait for an append.
const NAP: Duration = Duration::from_millis(2);

/// Does one thing after the other until `over` is set or the world has ended.
pub fn tend(stage: &Stage, mut random: Random, may_tombstone: bool, over: &AtomicU64) {
    loop {
        for _ in 0..random.below(25) {
            if over.load(Ordering::SeqCst) != 0 || stage.sim.is_dead() {
                return;
            }
            stage.store.wait_beyond(Position::END, NAP);
        }
        let stream = CUT[random.below(CUT.len() as u64) as usize];
        let (what, done) = match random.below(20) {
            0..6 => ("flushing", make_durable(stage, Store::flush)),
            6..8 => ("syncing", make_durable(stage, Store::sync)),
            8..14 => ("hiding", hide(stage, stream, &mut random)),
            14..16 => ("deleting", delete(stage, stream)),
            16 if may_tombstone && random.once_in(4) => ("ending", end(stage, CUT[1])),
            _ => ("scavenging", scavenge(stage)),
        };
        match done {
            Ok(()) => {}
            // Somebody appended just now, or the stream was ended.
            Err(Error::WrongExpected { .. } | Error::Deleted { .. }) => {}
            Err(error) => return stage.failed(what, &error),
        }
    }
}

/// Makes durable what was appended so far, in one of two ways.
fn make_durable(stage: &Stage, make: fn(&Store) -> Result<(), Error>) -> Result<(), Error> {
    let visible = stage.store.visible().0;
    make(&stage.store)?;
    stage.ledger().made_durable(visible);
    Ok(())
}

/// Gives a stream metadata that hides some of its events.
fn hide(stage: &Stage, stream: &str, random: &mut Random) -> Result<(), Error> {
    let StreamState::Live { first, last } = stage.store.stream(stream)? else { return Ok(()) };
    let more = match random.once_in(3) {
        true => 0,
        false => random.below((last + 2).saturating_sub(first).max(1)),
    };
    let below = first + more;
    let is_counted = random.once_in(3);
    let count = is_counted.then_some(COUNT);
    stage.ledger().hides(stream, below, count);
    let json = match is_counted {
        true => format!(r#"{{"$tb":{below},"$maxCount":{COUNT}}}"#),
        false => format!(r#"{{"$tb":{below}}}"#),
    };
    let name = metadata_stream(stream);
    let id = stage.ids(1)[0];
    let event = NewEvent::json(id, "$metadata", json.as_bytes());
    let done = stage.store.append(&name, Expected::Any, &[event])?;
    if let (Some(revision), Some(position)) = (done.last, done.position) {
        let kind = "$metadata".to_string();
        let known = Known { id, stream: name, revision, kind, is_there: false };
        let noted = stage.ledger().acknowledged(position, known);
        noted.unwrap_or_else(|text| stage.wrong(text));
    }
    Ok(())
}

fn delete(stage: &Stage, stream: &str) -> Result<(), Error> {
    let StreamState::Live { last, .. } = stage.store.stream(stream)? else { return Ok(()) };
    stage.ledger().hides(stream, last + 1, None);
    stage.store.delete(stream, Expected::Exact(last)).map(drop)
}

fn end(stage: &Stage, stream: &str) -> Result<(), Error> {
    stage.ledger().hides(stream, u64::MAX, None);
    stage.store.tombstone(stream, Expected::Any).map(drop)
}

fn scavenge(stage: &Stage) -> Result<(), Error> {
    let options = ScavengeOptions { busy_percent: 100, retry_bytes: 0, ..Default::default() };
    stage.store.scavenge(&options).map(drop)
}
