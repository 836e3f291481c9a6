//! Clients that read, and clients that subscribe or connect and leave again.

use umbel_proto::read_options::{at_most, at_position, backwards, of_all, of_stream, subscription};
use umbel_proto::streams::read_req::{AllOption, RevisionOption};
use umbel_proto::streams::read_resp::Content;

use crate::serving::messages::mix;
use crate::serving::soak::soak_context::{
    AnswerStream, SoakContext, WorkResult, unexpected_answer,
};
use crate::serving::soak::soak_oracle::stream_name;
use crate::serving::soak::soak_plan::SoakWork;
use crate::serving::soak::writer_order_check::WriterOrder;
use umbel_testing::server_connection::Connection;

/// Events of a read of a stream.
const STREAM_EVENTS: u64 = 100;
/// Events of a read of all.
const ALL_EVENTS: u64 = 1000;
/// Events that a subscriber to all receives.
const FOLLOWED_OF_ALL: u64 = 200;
/// Events that a subscriber to a stream receives.
const FOLLOWED_OF_STREAM: u64 = 50;

/// Makes one call of this kind. Returns `false` if no events could be read yet.
pub(super) async fn read_one(
    context: &SoakContext,
    connection: &Connection,
    kind: SoakWork,
    call: u64,
) -> WorkResult<bool> {
    match kind {
        SoakWork::ReadStream => read_stream(context, connection, call).await,
        SoakWork::ReadAll => read_all(context, connection, call).await,
        SoakWork::ReadMissing => read_missing(connection, call).await,
        SoakWork::FollowAll => follow_all(context, connection, call).await,
        SoakWork::FollowStream => follow_stream(context, connection, call).await,
        SoakWork::Connection => connect(context, call).await,
        _ => Err("not a read".to_string()),
    }
}

/// Returns a stream that has events, and a lower bound on their number.
fn some_stream(context: &SoakContext, call: u64) -> Option<(String, u64)> {
    let stream = (mix(call) % context.oracle.streams() as u64) as usize;
    let events = context.oracle.in_stream(stream);
    (events > 0).then(|| (stream_name(stream), events))
}

async fn read_stream(
    context: &SoakContext,
    connection: &Connection,
    call: u64,
) -> WorkResult<bool> {
    let Some((name, events)) = some_stream(context, call) else { return Ok(false) };
    let is_backwards = call.is_multiple_of(2);
    let from = mix(!call) % events;
    let options = match is_backwards {
        true => backwards(of_stream(&name, RevisionOption::End(()))),
        false => of_stream(&name, RevisionOption::Revision(from)),
    };
    let mut answers = AnswerStream::open(connection, at_most(STREAM_EVENTS, options)).await?;
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
        return unexpected_answer(&format!("a read of {name} with {events} events"), revisions);
    }
    Ok(true)
}

async fn read_all(context: &SoakContext, connection: &Connection, call: u64) -> WorkResult<bool> {
    let Some(position) = context.oracle.random_position(mix(call)) else { return Ok(false) };
    let mut answers =
        AnswerStream::open(connection, at_most(ALL_EVENTS, of_all(at_position(position)))).await?;
    let mut order = WriterOrder::from_somewhere();
    let mut first = None;
    while let Some(event) = answers.event().await? {
        order.note_event(&event)?;
        first = first.or(Some(event.commit_position));
    }
    if first != Some(position) {
        return unexpected_answer(&format!("a read of all from {position}"), first);
    }
    Ok(true)
}

async fn read_missing(connection: &Connection, call: u64) -> WorkResult<bool> {
    let name = format!("soak-missing-{call}");
    let options = at_most(1, of_stream(&name, RevisionOption::Start(())));
    match AnswerStream::open(connection, options).await?.next().await? {
        Some(Content::StreamNotFound(_)) => Ok(true),
        other => unexpected_answer("a read of a missing stream", other),
    }
}

async fn follow_all(context: &SoakContext, connection: &Connection, call: u64) -> WorkResult<bool> {
    let Some(position) = context.oracle.random_position(mix(call)) else { return Ok(false) };
    let (from, wanted) = match call % 3 {
        0 => (AllOption::End(()), 0),
        1 => (AllOption::End(()), 5),
        _ => (at_position(position), FOLLOWED_OF_ALL),
    };
    let mut answers = AnswerStream::open(connection, subscription(of_all(from))).await?;
    answers.confirmed().await?;
    let mut order = WriterOrder::from_somewhere();
    for _ in 0..wanted {
        match answers.event().await? {
            Some(event) => order.note_event(&event)?,
            None => return unexpected_answer("a subscription to all", "its end"),
        };
    }
    Ok(true)
}

async fn follow_stream(
    context: &SoakContext,
    connection: &Connection,
    call: u64,
) -> WorkResult<bool> {
    let Some((name, events)) = some_stream(context, call) else { return Ok(false) };
    let options = subscription(of_stream(&name, RevisionOption::Start(())));
    let mut answers = AnswerStream::open(connection, options).await?;
    answers.confirmed().await?;
    for wanted in 0..events.min(FOLLOWED_OF_STREAM) {
        match answers.event().await? {
            Some(event) if event.stream_revision == wanted => {}
            other => {
                return unexpected_answer(&format!("a subscription to {name} at {wanted}"), other);
            }
        }
    }
    Ok(true)
}

async fn connect(context: &SoakContext, call: u64) -> WorkResult<bool> {
    let connection = context.connect().await?;
    if call.is_multiple_of(2) {
        read_missing(&connection, call).await?;
    }
    Ok(true)
}
