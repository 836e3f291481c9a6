//! Who reads, and who subscribes or connects and leaves again.

use umbel_proto::reading::{at, at_most, backwards, of_all, of_stream, subscription};
use umbel_proto::streams::read_req::{AllOption, RevisionOption};
use umbel_proto::streams::read_resp::Content;

use super::ground::{Answers, Done, Ground, odd};
use super::ledger::stream_name;
use super::order::Order;
use super::plan::Kind;
use crate::serving::connection::Connection;
use crate::serving::messages::mix;

/// Events of a stream that are read at once,
const STREAM_EVENTS: u64 = 100;
/// of all,
const ALL_EVENTS: u64 = 1000;
/// that a subscriber to all takes,
const FOLLOWED_OF_ALL: u64 = 200;
/// and one to a stream.
const FOLLOWED_OF_STREAM: u64 = 50;

/// One call of this kind. False: there was nothing to ask for yet.
pub(super) async fn one(
    ground: &Ground,
    connection: &Connection,
    kind: Kind,
    call: u64,
) -> Done<bool> {
    match kind {
        Kind::ReadStream => stream(ground, connection, call).await,
        Kind::ReadAll => all(ground, connection, call).await,
        Kind::ReadMissing => missing(connection, call).await,
        Kind::FollowAll => follow_all(ground, connection, call).await,
        Kind::FollowStream => follow_stream(ground, connection, call).await,
        Kind::Connection => connect(ground, call).await,
        _ => Err("is no read".to_string()),
    }
}

/// A stream that has events, and how many it has at least.
fn some_stream(ground: &Ground, call: u64) -> Option<(String, u64)> {
    let stream = (mix(call) % ground.ledger.streams() as u64) as usize;
    let events = ground.ledger.in_stream(stream);
    (events > 0).then(|| (stream_name(stream), events))
}

async fn stream(ground: &Ground, connection: &Connection, call: u64) -> Done<bool> {
    let Some((name, events)) = some_stream(ground, call) else { return Ok(false) };
    let is_backwards = call.is_multiple_of(2);
    let from = mix(!call) % events;
    let options = match is_backwards {
        true => backwards(of_stream(&name, RevisionOption::End(()))),
        false => of_stream(&name, RevisionOption::Revision(from)),
    };
    let mut answers = Answers::open(connection, at_most(STREAM_EVENTS, options)).await?;
    let mut revisions = Vec::new();
    while let Some(event) = answers.event().await? {
        revisions.push(event.stream_revision);
    }
    let wanted = match is_backwards {
        true => events.min(STREAM_EVENTS),
        false => (events - from).min(STREAM_EVENTS),
    };
    let first = revisions.first().copied().unwrap_or_default();
    let is_first = if is_backwards { first >= events - 1 } else { first == from };
    let step = |pair: &[u64]| match is_backwards {
        true => pair[0] == pair[1] + 1,
        false => pair[0] + 1 == pair[1],
    };
    if !is_first || (revisions.len() as u64) < wanted || !revisions.windows(2).all(step) {
        return odd(&format!("a read of {name} with {events} events"), revisions);
    }
    Ok(true)
}

async fn all(ground: &Ground, connection: &Connection, call: u64) -> Done<bool> {
    let Some(place) = ground.ledger.place(mix(call)) else { return Ok(false) };
    let mut answers = Answers::open(connection, at_most(ALL_EVENTS, of_all(at(place)))).await?;
    let mut order = Order::from_somewhere();
    let mut first = None;
    while let Some(event) = answers.event().await? {
        order.see(&event)?;
        first = first.or(Some(event.commit_position));
    }
    if first != Some(place) {
        return odd(&format!("a read of all from {place}"), first);
    }
    Ok(true)
}

async fn missing(connection: &Connection, call: u64) -> Done<bool> {
    let name = format!("soak-missing-{call}");
    let options = at_most(1, of_stream(&name, RevisionOption::Start(())));
    match Answers::open(connection, options).await?.next().await? {
        Some(Content::StreamNotFound(_)) => Ok(true),
        other => odd("a read of a missing stream", other),
    }
}

async fn follow_all(ground: &Ground, connection: &Connection, call: u64) -> Done<bool> {
    let Some(place) = ground.ledger.place(mix(call)) else { return Ok(false) };
    let (from, wanted) = match call % 3 {
        0 => (AllOption::End(()), 0),
        1 => (AllOption::End(()), 5),
        _ => (at(place), FOLLOWED_OF_ALL),
    };
    let mut answers = Answers::open(connection, subscription(of_all(from))).await?;
    answers.confirmed().await?;
    let mut order = Order::from_somewhere();
    for _ in 0..wanted {
        match answers.event().await? {
            Some(event) => order.see(&event)?,
            None => return odd("a subscription to all", "its end"),
        };
    }
    Ok(true)
}

async fn follow_stream(ground: &Ground, connection: &Connection, call: u64) -> Done<bool> {
    let Some((name, events)) = some_stream(ground, call) else { return Ok(false) };
    let options = subscription(of_stream(&name, RevisionOption::Start(())));
    let mut answers = Answers::open(connection, options).await?;
    answers.confirmed().await?;
    for wanted in 0..events.min(FOLLOWED_OF_STREAM) {
        match answers.event().await? {
            Some(event) if event.stream_revision == wanted => {}
            other => return odd(&format!("a subscription to {name} at {wanted}"), other),
        }
    }
    Ok(true)
}

async fn connect(ground: &Ground, call: u64) -> Done<bool> {
    let connection = ground.connect().await?;
    if call.is_multiple_of(2) {
        missing(&connection, call).await?;
    }
    Ok(true)
}
