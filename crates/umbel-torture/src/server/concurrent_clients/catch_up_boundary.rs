//! Check of the change from existing to live events in a subscription: no gap, no repetition.

use tokio::time::timeout;
use tonic::Streaming;
use umbel_events::ExpectedVersion;
use umbel_proto::read_options;
use umbel_proto::streams::ReadResp;
use umbel_proto::streams::read_req::{AllOption, RevisionOption};
use umbel_proto::streams::read_resp::{Content, Progress};
use umbel_sim::Random;

use crate::server::concurrent_clients::checked_client::Client;
use crate::server::concurrent_clients::client_oracle::{
    ClientAttempt, ClientBatch, ClientEventId, ClientFate, ClientOracle, ReceivedEvent,
    SUBSCRIBED_STREAM, ServerContents,
};
use crate::server::concurrent_clients::message_convert::{self, AppendAnswer};
use crate::server::concurrent_clients::test_server::SERVER_TIMEOUT;

/// Subscribes from a random event, and appends one more event after the catch-up.
pub async fn check(
    client: &Client,
    known: &mut ClientOracle,
    found: &ServerContents,
    random: &mut Random,
) -> Result<(), String> {
    let stream = found.streams.get(SUBSCRIBED_STREAM).map_or(&[][..], Vec::as_slice);
    let (all_start, stream_start) =
        (random_index(&found.all, random), random_index(stream, random));
    let from = match all_start.checked_sub(1) {
        Some(at) => read_options::at_position(found.all[at].position),
        None => AllOption::Start(()),
    };
    let mut all = open(client, read_options::of_all(from)).await?;
    let from = match stream_start.checked_sub(1) {
        Some(at) => RevisionOption::Revision(stream[at].revision),
        None => RevisionOption::Start(()),
    };
    let mut one = open(client, read_options::of_stream(SUBSCRIBED_STREAM, from)).await?;
    let (received, progress) = catch_up(&mut all).await?;
    let newest = found.all.last().map(|event| event.position);
    if received != found.all[all_start..]
        || progress.position.map(|position| position.commit_position).unwrap_or(0)
            < newest.unwrap_or(0)
    {
        return Err(format!(
            "a subscription to all from {all_start} of {:?} got {received:?}, then {progress:?}",
            found.all
        ));
    }
    let (received, progress) = catch_up(&mut one).await?;
    let last = Some(stream.last().map_or(-1, |event| event.revision as i64));
    if received != stream[stream_start..] || progress.stream_revision != last {
        return Err(format!(
            "a subscription from {stream_start} of {stream:?} got {received:?}, then {progress:?}"
        ));
    }
    let probe = append(client, known).await?;
    for subscription in [&mut all, &mut one] {
        match next(subscription).await? {
            Content::Event(event) if message_convert::received_event(event.clone())? == probe => {}
            other => return Err(format!("{probe:?} came, but a subscription returned {other:?}")),
        }
    }
    Ok(())
}

fn random_index(events: &[ReceivedEvent], random: &mut Random) -> usize {
    random.below(events.len() as u64 + 1) as usize
}

async fn open(
    client: &Client,
    options: umbel_proto::streams::read_req::Options,
) -> Result<Streaming<ReadResp>, String> {
    let opened = client.subscribe(read_options::subscription(options)).await;
    opened.map_err(|status| format!("subscribing: {status:?}"))
}

async fn next(answers: &mut Streaming<ReadResp>) -> Result<Content, String> {
    let answer = timeout(SERVER_TIMEOUT, answers.message()).await;
    match answer {
        Ok(Ok(Some(ReadResp { content: Some(content) }))) => Ok(content),
        Ok(other) => Err(format!("a subscription ended with {other:?}")),
        Err(_) => Err("a subscription delivers nothing".to_string()),
    }
}

/// Returns all events up to the caught-up message.
async fn catch_up(
    answers: &mut Streaming<ReadResp>,
) -> Result<(Vec<ReceivedEvent>, Progress), String> {
    let mut events = Vec::new();
    let mut is_confirmed = false;
    loop {
        match next(answers).await? {
            Content::Confirmation(_) if !is_confirmed => is_confirmed = true,
            Content::Event(event) if is_confirmed => {
                events.push(message_convert::received_event(event)?)
            }
            Content::CaughtUp(progress) if is_confirmed => return Ok((events, progress)),
            other => return Err(format!("a subscription returned {other:?}")),
        }
    }
}

/// Appends one event to the followed stream.
async fn append(client: &Client, known: &mut ClientOracle) -> Result<ReceivedEvent, String> {
    let id = ClientEventId::from(known.next_id) << 64 | 0x8000;
    known.next_id += 1;
    let stream = SUBSCRIBED_STREAM.to_string();
    let batch = ClientBatch {
        stream: stream.clone(),
        expected: ExpectedVersion::Any,
        ids: vec![id],
        bytes: 0,
    };
    match client.append(&batch).await {
        AppendAnswer::Done(revision, position) => {
            let fate = ClientFate::Acknowledged(revision, position);
            known.attempts.push(ClientAttempt { batch, fate });
            Ok(ReceivedEvent { stream, revision, position, id })
        }
        other => Err(format!("one more event was answered with {other:?}")),
    }
}
