//! Where a subscription goes over from what there is to what comes: neither gap nor repetition.

use tokio::time::timeout;
use tonic::Streaming;
use umbel_events::Expected;
use umbel_proto::reading;
use umbel_proto::streams::ReadResp;
use umbel_proto::streams::read_req::{AllOption, RevisionOption};
use umbel_proto::streams::read_resp::{Content, Progress};

use super::check::Found;
use super::client::Client;
use super::known::{Attempt, Batch, FOLLOWED, Fate, Id, Known, Told};
use super::stand::PATIENCE;
use super::words::{self, Answer};
use crate::random::Random;

/// Subscribes from a random event on, and lets one more be appended once that has caught up.
pub async fn check(
    client: &Client,
    known: &mut Known,
    found: &Found,
    random: &mut Random,
) -> Result<(), String> {
    let stream = found.streams.get(FOLLOWED).map_or(&[][..], Vec::as_slice);
    let (behind, behind_too) = (place(&found.all, random), place(stream, random));
    let from = match behind.checked_sub(1) {
        Some(at) => reading::at(found.all[at].position),
        None => AllOption::Start(()),
    };
    let mut all = open(client, reading::of_all(from)).await?;
    let from = match behind_too.checked_sub(1) {
        Some(at) => RevisionOption::Revision(stream[at].revision),
        None => RevisionOption::Start(()),
    };
    let mut one = open(client, reading::of_stream(FOLLOWED, from)).await?;
    let (told, progress) = catch_up(&mut all).await?;
    let newest = found.all.last().map(|event| event.position);
    if told != found.all[behind..]
        || progress.position.map(|position| position.commit_position).unwrap_or(0)
            < newest.unwrap_or(0)
    {
        return Err(format!(
            "a subscription to all behind {behind} of {:?} was told {told:?}, then {progress:?}",
            found.all
        ));
    }
    let (told, progress) = catch_up(&mut one).await?;
    let last = Some(stream.last().map_or(-1, |event| event.revision as i64));
    if told != stream[behind_too..] || progress.stream_revision != last {
        return Err(format!(
            "a subscription behind {behind_too} of {stream:?} was told {told:?}, then {progress:?}"
        ));
    }
    let probe = append(client, known).await?;
    for subscription in [&mut all, &mut one] {
        match next(subscription).await? {
            Content::Event(event) if words::told(event.clone())? == probe => {}
            other => return Err(format!("{probe:?} came, but a subscription told {other:?}")),
        }
    }
    Ok(())
}

fn place(events: &[Told], random: &mut Random) -> usize {
    random.below(events.len() as u64 + 1) as usize
}

async fn open(
    client: &Client,
    options: umbel_proto::streams::read_req::Options,
) -> Result<Streaming<ReadResp>, String> {
    let opened = client.subscribe(reading::subscription(options)).await;
    opened.map_err(|status| format!("subscribing: {status:?}"))
}

async fn next(answers: &mut Streaming<ReadResp>) -> Result<Content, String> {
    let answer = timeout(PATIENCE, answers.message()).await;
    match answer {
        Ok(Ok(Some(ReadResp { content: Some(content) }))) => Ok(content),
        Ok(other) => Err(format!("a subscription ended with {other:?}")),
        Err(_) => Err("a subscription tells nothing".to_string()),
    }
}

/// Everything up to where a subscription says that it has caught up.
async fn catch_up(answers: &mut Streaming<ReadResp>) -> Result<(Vec<Told>, Progress), String> {
    let mut events = Vec::new();
    let mut is_confirmed = false;
    loop {
        match next(answers).await? {
            Content::Confirmation(_) if !is_confirmed => is_confirmed = true,
            Content::Event(event) if is_confirmed => events.push(words::told(event)?),
            Content::CaughtUp(progress) if is_confirmed => return Ok((events, progress)),
            other => return Err(format!("a subscription was told {other:?}")),
        }
    }
}

/// Appends one event to the stream that is followed.
async fn append(client: &Client, known: &mut Known) -> Result<Told, String> {
    let id = Id::from(known.next_id) << 64 | 0x8000;
    known.next_id += 1;
    let stream = FOLLOWED.to_string();
    let batch = Batch { stream: stream.clone(), expected: Expected::Any, ids: vec![id], bytes: 0 };
    match client.append(&batch).await {
        Answer::Done(revision, position) => {
            let fate = Fate::Acknowledged(revision, position);
            known.attempts.push(Attempt { batch, fate });
            Ok(Told { stream, revision, position, id })
        }
        other => Err(format!("one more event was answered with {other:?}")),
    }
}
