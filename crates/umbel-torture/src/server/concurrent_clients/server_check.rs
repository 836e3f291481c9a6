//! Compares the answers of a server after a crash with the answers that clients received before.

use std::collections::HashMap;

use umbel_events::ExpectedVersion;
use umbel_proto::read_options;
use umbel_proto::streams::read_req::{AllOption, RevisionOption};
use umbel_sim::Random;

use crate::server::concurrent_clients::catch_up_boundary;
use crate::server::concurrent_clients::checked_client::{Client, ReadResult};
use crate::server::concurrent_clients::client_oracle::{
    ClientAttempt, ClientBatch, ClientEventId, ClientFate, ClientOracle, DELETED_PREFIX,
    LAST_OF_ALL, ReceivedEvent, SUBSCRIBED_STREAM, ServerContents, StreamDeletion,
};
use crate::server::concurrent_clients::message_convert::AppendAnswer;
use crate::server::concurrent_clients::test_server::{StoreMode, TestServer};
use crate::support::campaign_tally::CampaignTally;

/// Opens the store, serves it and compares. `keeps_all` says whether every acknowledged or seen
/// event must exist. Removes lost events from the oracle. Returns the machine for the next crash
/// cycle.
pub fn check(
    sim: &umbel_sim::Sim,
    mode: StoreMode,
    keeps_all: bool,
    known: &mut ClientOracle,
    random: &mut Random,
    tally: &CampaignTally,
) -> Result<umbel_sim::Sim, String> {
    let Some(server) = TestServer::start(sim, mode)? else {
        return Err("the power failed although the test did not cut it".to_string());
    };
    let address = server.running.address();
    server.clients.block_on(async {
        let client = Client::to(address).await?;
        compare(&client, keeps_all, known, random, tally).await
    })?;
    let store = server.end();
    let report = store.verify().map_err(|error| error.to_string())?;
    if let Some(damage) = report.damage.first() {
        return Err(format!("verifying: {damage}"));
    }
    // The next life finds a closed store, or one whose process died.
    let image = random.once_in(2).then(|| sim.kill_image());
    store.close().map_err(|error| format!("closing: {error}"))?;
    Ok(image.unwrap_or_else(|| sim.kill_image()))
}

async fn compare(
    client: &Client,
    keeps_all: bool,
    known: &mut ClientOracle,
    random: &mut Random,
    tally: &CampaignTally,
) -> Result<(), String> {
    let found = read_contents(client).await?;
    tally.add("events found after an end", found.all.len() as u64);
    check_seen(known, &found, keeps_all, tally)?;
    for attempt in &known.attempts {
        compare_attempt(attempt, &found, keeps_all)?;
    }
    check_no_unknown_events(known, &found)?;
    compare_deletions(client, known, &found, keeps_all).await?;
    compare_streams(client, known, &found).await?;
    let stream = found.streams.get(SUBSCRIBED_STREAM).map_or(&[][..], Vec::as_slice);
    check_subscriptions(&mut known.subscribed_all, &found.all, found.newest(), keeps_all)?;
    check_subscriptions(&mut known.subscribed_stream, stream, found.newest(), keeps_all)?;
    retry_unanswered(client, known, &found, random, tally).await?;
    let found = read_contents(client).await?;
    catch_up_boundary::check(client, known, &found, random).await?;
    // The found positions are known from now on.
    let found = read_contents(client).await?;
    for event in &found.all {
        known.note_seen(event.position, event.id)?;
    }
    let last = |events: &Vec<ReceivedEvent>| events.last().map(|event| event.revision);
    known.last = found
        .streams
        .iter()
        .filter_map(|(name, received)| Some((name.clone(), last(received)?)))
        .collect();
    Ok(())
}

/// Reads all events and checks their order, revisions and ids.
async fn read_contents(client: &Client) -> Result<ServerContents, String> {
    let all = read_options::of_all(AllOption::Start(()));
    let ReadResult::Events(events, _) = client.read(all).await else {
        return Err("all events cannot be read".to_string());
    };
    let mut found = ServerContents::default();
    for event in &events {
        if event.position <= found.newest() {
            return Err(format!("{event:?} comes after position {}", found.newest()));
        }
        let stream = found.streams.entry(event.stream.clone()).or_default();
        if event.revision != LAST_OF_ALL {
            if event.revision != stream.len() as u64 {
                return Err(format!("{event:?} is the {}th of its stream", stream.len()));
            }
            stream.push(event.clone());
        }
        if let Some(other) = found.place.insert(event.id, event.clone()) {
            return Err(format!("{other:?} exists twice, also as {event:?}"));
        }
        found.all.push(event.clone());
    }
    let all = read_options::backwards(read_options::of_all(AllOption::End(())));
    match client.read(all).await {
        ReadResult::Events(backwards, _) if backwards.iter().rev().eq(&events) => Ok(found),
        other => Err(format!("backwards all events are others: {other:?}")),
    }
}

/// Checks that seen events are at their positions. Events that a power cut removed from the end of
/// a buffered store are dropped from the oracle, but their positions must not be reused.
fn check_seen(
    known: &mut ClientOracle,
    found: &ServerContents,
    keeps_all: bool,
    tally: &CampaignTally,
) -> Result<(), String> {
    let at: HashMap<u64, ClientEventId> =
        found.all.iter().map(|event| (event.position, event.id)).collect();
    for (position, id) in std::mem::take(&mut known.seen) {
        match at.get(&position) {
            Some(there) if *there == id => {
                known.seen.insert(position, id);
            }
            Some(there) => {
                return Err(format!("position {position} held {id:x} and holds {there:x} now"));
            }
            None if keeps_all => {
                return Err(format!("{id:x} was seen at position {position} and is gone"));
            }
            None if position < found.newest() => {
                return Err(format!("{id:x} at {position} is gone, and later events are there"));
            }
            None => {
                known.lost.insert(position, id);
            }
        }
    }
    if let Some((position, id)) = known.lost.iter().find(|(position, _)| at.contains_key(position))
    {
        return Err(format!("position {position} held {id:x}, was lost and is used again"));
    }
    for (stream, revision) in known.named.drain(..) {
        let events = found.streams.get(&stream).map_or(0, Vec::len) as u64;
        tally.add("revisions that refusals named", 1);
        if keeps_all && revision >= events {
            return Err(format!(
                "a refusal named revision {revision} of '{stream}', which is gone"
            ));
        }
    }
    Ok(())
}

fn compare_attempt(
    attempt: &ClientAttempt,
    found: &ServerContents,
    keeps_all: bool,
) -> Result<(), String> {
    let ClientBatch { stream, expected, ids, .. } = &attempt.batch;
    let there: Vec<&ReceivedEvent> = ids.iter().filter_map(|id| found.place.get(id)).collect();
    if !there.is_empty() && there.len() != ids.len() {
        return Err(format!("of {:?} only {} are there", attempt.batch, there.len()));
    }
    let first = there.first().map_or(0, |event| event.revision);
    let in_order = (first..).zip(&there).all(|(due, event)| event.revision == due);
    if !in_order || there.iter().any(|event| event.stream != *stream) {
        return Err(format!("{:?} is there as {there:?}", attempt.batch));
    }
    let due = match expected {
        ExpectedVersion::Exact(last) => Some(last + 1),
        ExpectedVersion::NoStream if !stream.starts_with(DELETED_PREFIX) => Some(0),
        _ => None,
    };
    if let Some(due) = due
        && !there.is_empty()
        && first != due
    {
        return Err(format!("{:?} is there as {there:?}", attempt.batch));
    }
    match (attempt.fate, there.last()) {
        (ClientFate::Refused, Some(_)) => {
            Err(format!("{:?} was refused and is there", attempt.batch))
        }
        (ClientFate::Acknowledged(revision, position), Some(last)) => {
            if (last.revision, last.position) == (revision, position) {
                return Ok(());
            }
            Err(format!("{attempt:?} is there as {there:?}"))
        }
        // A power cut takes events of a buffered store from the end.
        (ClientFate::Acknowledged(_, position), None)
            if keeps_all || position <= found.newest() =>
        {
            Err(format!("{attempt:?} is gone; the newest position is {}", found.newest()))
        }
        _ => Ok(()),
    }
}

/// Checks that a client appended every event, except metadata and tombstones.
fn check_no_unknown_events(known: &ClientOracle, found: &ServerContents) -> Result<(), String> {
    let ids: HashMap<ClientEventId, &str> = known
        .attempts
        .iter()
        .flat_map(|attempt| attempt.batch.ids.iter().map(|id| (*id, &*attempt.batch.stream)))
        .collect();
    for event in &found.all {
        let is_ours = !event.stream.starts_with('$') && event.revision != LAST_OF_ALL;
        if is_ours && ids.get(&event.id) != Some(&event.stream.as_str()) {
            return Err(format!("no client appended {event:?}"));
        }
    }
    Ok(())
}

/// Checks that acknowledged deletions are still in effect.
async fn compare_deletions(
    client: &Client,
    known: &mut ClientOracle,
    found: &ServerContents,
    keeps_all: bool,
) -> Result<(), String> {
    let newest = found.newest();
    if let Some(gone) = known.deletions.iter().find(|ending| ending.position > newest)
        && keeps_all
    {
        return Err(format!("{gone:?} is gone; the newest position is {newest}"));
    }
    known.deletions.retain(|ending| ending.position <= newest);
    for StreamDeletion { stream, is_tombstone, position } in &known.deletions {
        let read = read_options::of_stream(stream, RevisionOption::Start(()));
        let last = found.streams.get(stream).and_then(|events| events.last());
        match client.read(read).await {
            ReadResult::Tombstoned => {}
            read if *is_tombstone => return Err(format!("{stream} was tombstoned: {read:?}")),
            ReadResult::Events(events, _) => {
                if let Some(event) = events.iter().find(|event| event.position < *position) {
                    return Err(format!("{event:?} was deleted at {position} and is there"));
                }
            }
            ReadResult::Failed(text) => return Err(format!("reading {stream}: {text}")),
        }
        if *is_tombstone && last.is_some_and(|last| last.position > *position) {
            return Err(format!("{last:?} was appended after the tombstone at {position}"));
        }
    }
    Ok(())
}

/// Checks that each stream, read alone, equals its part of all events; a deleted stream equals the
/// end of this part.
async fn compare_streams(
    client: &Client,
    known: &ClientOracle,
    found: &ServerContents,
) -> Result<(), String> {
    for (stream, events) in found.streams.iter().filter(|(name, _)| !name.starts_with('$')) {
        let forwards = read_options::of_stream(stream, RevisionOption::Start(()));
        let read = match client.read(forwards).await {
            ReadResult::Events(read, is_there) if is_there != read.is_empty() => read,
            ReadResult::Tombstoned if stream.starts_with(DELETED_PREFIX) => {
                if found.all.iter().any(|e| e.stream == *stream && e.revision == LAST_OF_ALL) {
                    continue;
                }
                return Err(format!("{stream} is tombstoned without an event that says so"));
            }
            other => return Err(format!("{stream} was read as {other:?}")),
        };
        let hidden = events.len() - read.len().min(events.len());
        let may_hide = known.deletions.iter().any(|ending| ending.stream == *stream)
            || (stream.starts_with(DELETED_PREFIX)
                && found.streams.contains_key(&format!("$${stream}")));
        if read != events[hidden..] || (hidden > 0 && !may_hide) {
            return Err(format!("{stream} has {events:?}, read alone {read:?}"));
        }
        let backwards =
            read_options::backwards(read_options::of_stream(stream, RevisionOption::End(())));
        match client.read(backwards).await {
            ReadResult::Events(backwards, _) if backwards.iter().rev().eq(&read) => {}
            other => return Err(format!("{stream} has {read:?}, read backwards {other:?}")),
        }
    }
    Ok(())
}

/// Checks that a subscription received, over all crash cycles, every event up to the last one that
/// it received.
fn check_subscriptions(
    received: &mut Vec<ReceivedEvent>,
    found: &[ReceivedEvent],
    newest: u64,
    keeps_all: bool,
) -> Result<(), String> {
    let kept = received.iter().take_while(|event| event.position <= newest).count();
    if keeps_all && kept < received.len() {
        return Err(format!("{:?} was delivered to a subscription and is lost", received[kept]));
    }
    received.truncate(kept);
    let last = received.last().map_or(0, |event| event.position);
    let due = found.partition_point(|event| event.position <= last);
    let differs = (0..kept.max(due)).find(|at| received.get(*at) != found[..due].get(*at));
    match differs {
        Some(at) => Err(format!(
            "a subscription delivered {:?} where {:?} is",
            received.get(at),
            found[..due].get(at)
        )),
        None => Ok(()),
    }
}

/// Removes lost events from the oracle, retries unacknowledged appends, and checks that each append
/// then exists once.
async fn retry_unanswered(
    client: &Client,
    known: &mut ClientOracle,
    found: &ServerContents,
    random: &mut Random,
    tally: &CampaignTally,
) -> Result<(), String> {
    let attempts = std::mem::take(&mut known.attempts);
    for mut attempt in attempts {
        let there = attempt.batch.ids.last().and_then(|id| found.place.get(id));
        let there = there.map(|event| (event.revision, event.position));
        match attempt.fate {
            ClientFate::Acknowledged(..) if there.is_none() => continue,
            ClientFate::Unknown => {
                tally.add("appends without an answer tried again", 1);
                attempt.fate = try_again(client, &attempt.batch, there, random).await?;
            }
            ClientFate::Acknowledged(..) | ClientFate::Refused => {}
        }
        known.attempts.push(attempt);
    }
    Ok(())
}

async fn try_again(
    client: &Client,
    batch: &ClientBatch,
    there: Option<(u64, u64)>,
    random: &mut Random,
) -> Result<ClientFate, String> {
    let known = there
        .map_or(ClientFate::Refused, |(last, position)| ClientFate::Acknowledged(last, position));
    if batch.stream.starts_with(DELETED_PREFIX) {
        // After a deletion the retry may be a new append.
        return Ok(known);
    }
    let answer = match random.once_in(2) {
        true => client.append(batch).await,
        false => client.append_batches(std::slice::from_ref(batch)).await.remove(0),
    };
    match (answer, there) {
        (AppendAnswer::Done(last, position), None) => Ok(ClientFate::Acknowledged(last, position)),
        (AppendAnswer::Wrong(_), None) => Ok(ClientFate::Refused),
        (AppendAnswer::Done(last, position), Some(there)) if there == (last, position) => Ok(known),
        (answer, there) => Err(format!("{batch:?}, at {there:?}, tried again: {answer:?}")),
    }
}
