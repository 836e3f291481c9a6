//! What a server on what was left tells, beside what clients were told before.

use std::collections::{BTreeMap, HashMap};

use umbel_events::Expected;
use umbel_proto::reading;
use umbel_proto::streams::read_req::{AllOption, RevisionOption};

use super::client::{Client, Read};
use super::known::{Attempt, Batch, DOOMED, Ending, FOLLOWED, Fate, Id, Known, LAST_OF_ALL, Told};
use super::seam;
use super::stand::{Manner, Stand};
use super::words::Answer;
use crate::random::Random;
use crate::report::Tally;

/// What was found in a store.
#[derive(Debug, Default)]
pub struct Found {
    /// All events by position.
    pub all: Vec<Told>,
    /// Events by stream, without the one that ends a stream for good.
    pub streams: BTreeMap<String, Vec<Told>>,
    place: HashMap<Id, Told>,
}

impl Found {
    fn newest(&self) -> u64 {
        self.all.last().map_or(0, |event| event.position)
    }
}

/// Opens the store, serves it and compares. `keeps_all`: whether everything that was acknowledged
/// or seen has to be there. What is gone is forgotten. Answers with the machine for the next life.
pub fn check(
    sim: &umbel_sim::Sim,
    manner: Manner,
    keeps_all: bool,
    known: &mut Known,
    random: &mut Random,
    tally: &Tally,
) -> Result<umbel_sim::Sim, String> {
    let Some(stand) = Stand::start(sim, manner)? else {
        return Err("the power failed although nobody took it away".to_string());
    };
    let address = stand.running.address();
    stand.clients.block_on(async {
        let client = Client::to(address).await?;
        compare(&client, keeps_all, known, random, tally).await
    })?;
    let store = stand.end();
    let report = store.verify().map_err(|error| error.to_string())?;
    if let Some(damage) = report.damage.first() {
        return Err(format!("verifying: {damage}"));
    }
    // The next life finds a store that was closed, or one whose process died.
    let image = random.once_in(2).then(|| sim.kill_image());
    store.close().map_err(|error| format!("closing: {error}"))?;
    Ok(image.unwrap_or_else(|| sim.kill_image()))
}

async fn compare(
    client: &Client,
    keeps_all: bool,
    known: &mut Known,
    random: &mut Random,
    tally: &Tally,
) -> Result<(), String> {
    let found = find(client).await?;
    tally.add("events found after an end", found.all.len() as u64);
    nothing_vanished(known, &found, keeps_all, tally)?;
    for attempt in &known.attempts {
        compare_attempt(attempt, &found, keeps_all)?;
    }
    nothing_invented(known, &found)?;
    compare_endings(client, known, &found, keeps_all).await?;
    compare_streams(client, known, &found).await?;
    let stream = found.streams.get(FOLLOWED).map_or(&[][..], Vec::as_slice);
    trim(&mut known.followed_all, &found.all, found.newest(), keeps_all)?;
    trim(&mut known.followed_stream, stream, found.newest(), keeps_all)?;
    settle(client, known, &found, random, tally).await?;
    let found = find(client).await?;
    seam::check(client, known, &found, random).await?;
    // What is found to be at its place now is known from now on.
    let found = find(client).await?;
    for event in &found.all {
        known.see(event.position, event.id)?;
    }
    let last = |events: &Vec<Told>| events.last().map(|event| event.revision);
    known.last =
        found.streams.iter().filter_map(|(name, told)| Some((name.clone(), last(told)?))).collect();
    Ok(())
}

/// All events, whose order, revisions and ids are right.
async fn find(client: &Client) -> Result<Found, String> {
    let all = reading::of_all(AllOption::Start(()));
    let Read::Events(events, _) = client.read(all).await else {
        return Err("all events cannot be read".to_string());
    };
    let mut found = Found::default();
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
            return Err(format!("{other:?} is there twice, also as {event:?}"));
        }
        found.all.push(event.clone());
    }
    let all = reading::backwards(reading::of_all(AllOption::End(())));
    match client.read(all).await {
        Read::Events(backwards, _) if backwards.iter().rev().eq(&events) => Ok(found),
        other => Err(format!("backwards all events are others: {other:?}")),
    }
}

/// What was seen is at its place; what a power cut took from the end of a buffered store is
/// forgotten, but its positions are not given to others.
fn nothing_vanished(
    known: &mut Known,
    found: &Found,
    keeps_all: bool,
    tally: &Tally,
) -> Result<(), String> {
    let at: HashMap<u64, Id> = found.all.iter().map(|event| (event.position, event.id)).collect();
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

fn compare_attempt(attempt: &Attempt, found: &Found, keeps_all: bool) -> Result<(), String> {
    let Batch { stream, expected, ids, .. } = &attempt.batch;
    let there: Vec<&Told> = ids.iter().filter_map(|id| found.place.get(id)).collect();
    if !there.is_empty() && there.len() != ids.len() {
        return Err(format!("of {:?} only {} are there", attempt.batch, there.len()));
    }
    let first = there.first().map_or(0, |event| event.revision);
    let in_order = (first..).zip(&there).all(|(due, event)| event.revision == due);
    if !in_order || there.iter().any(|event| event.stream != *stream) {
        return Err(format!("{:?} is there as {there:?}", attempt.batch));
    }
    let due = match expected {
        Expected::Exact(last) => Some(last + 1),
        Expected::NoStream if !stream.starts_with(DOOMED) => Some(0),
        _ => None,
    };
    if let Some(due) = due
        && !there.is_empty()
        && first != due
    {
        return Err(format!("{:?} is there as {there:?}", attempt.batch));
    }
    match (attempt.fate, there.last()) {
        (Fate::Refused, Some(_)) => Err(format!("{:?} was refused and is there", attempt.batch)),
        (Fate::Acknowledged(revision, position), Some(last)) => {
            if (last.revision, last.position) == (revision, position) {
                return Ok(());
            }
            Err(format!("{attempt:?} is there as {there:?}"))
        }
        // What a power cut takes of a buffered store, it takes from the end.
        (Fate::Acknowledged(_, position), None) if keeps_all || position <= found.newest() => {
            Err(format!("{attempt:?} is gone; the newest position is {}", found.newest()))
        }
        _ => Ok(()),
    }
}

/// Every event was appended by somebody, but for the metadata and ends of streams.
fn nothing_invented(known: &Known, found: &Found) -> Result<(), String> {
    let ids: HashMap<Id, &str> = known
        .attempts
        .iter()
        .flat_map(|attempt| attempt.batch.ids.iter().map(|id| (*id, &*attempt.batch.stream)))
        .collect();
    for event in &found.all {
        let is_ours = !event.stream.starts_with('$') && event.revision != LAST_OF_ALL;
        if is_ours && ids.get(&event.id) != Some(&event.stream.as_str()) {
            return Err(format!("nobody appended {event:?}"));
        }
    }
    Ok(())
}

/// A deletion that was acknowledged holds.
async fn compare_endings(
    client: &Client,
    known: &mut Known,
    found: &Found,
    keeps_all: bool,
) -> Result<(), String> {
    let newest = found.newest();
    if let Some(gone) = known.endings.iter().find(|ending| ending.position > newest)
        && keeps_all
    {
        return Err(format!("{gone:?} is gone; the newest position is {newest}"));
    }
    known.endings.retain(|ending| ending.position <= newest);
    for Ending { stream, is_tombstone, position } in &known.endings {
        let read = reading::of_stream(stream, RevisionOption::Start(()));
        let last = found.streams.get(stream).and_then(|events| events.last());
        match client.read(read).await {
            Read::Tombstoned => {}
            read if *is_tombstone => return Err(format!("{stream} was tombstoned: {read:?}")),
            Read::Events(events, _) => {
                if let Some(event) = events.iter().find(|event| event.position < *position) {
                    return Err(format!("{event:?} was deleted at {position} and is there"));
                }
            }
            Read::Failed(text) => return Err(format!("reading {stream}: {text}")),
        }
        if *is_tombstone && last.is_some_and(|last| last.position > *position) {
            return Err(format!("{last:?} was appended behind the tombstone at {position}"));
        }
    }
    Ok(())
}

/// Streams read by themselves are what all events say; those that were deleted are an end of it.
async fn compare_streams(client: &Client, known: &Known, found: &Found) -> Result<(), String> {
    for (stream, events) in found.streams.iter().filter(|(name, _)| !name.starts_with('$')) {
        let forwards = reading::of_stream(stream, RevisionOption::Start(()));
        let read = match client.read(forwards).await {
            Read::Events(read, is_there) if is_there != read.is_empty() => read,
            Read::Tombstoned if stream.starts_with(DOOMED) => {
                if found.all.iter().any(|e| e.stream == *stream && e.revision == LAST_OF_ALL) {
                    continue;
                }
                return Err(format!("{stream} is tombstoned without an event that says so"));
            }
            other => return Err(format!("{stream} was read as {other:?}")),
        };
        let hidden = events.len() - read.len().min(events.len());
        let may_hide = known.endings.iter().any(|ending| ending.stream == *stream)
            || (stream.starts_with(DOOMED) && found.streams.contains_key(&format!("$${stream}")));
        if read != events[hidden..] || (hidden > 0 && !may_hide) {
            return Err(format!("{stream} has {events:?}, read alone {read:?}"));
        }
        let backwards = reading::backwards(reading::of_stream(stream, RevisionOption::End(())));
        match client.read(backwards).await {
            Read::Events(backwards, _) if backwards.iter().rev().eq(&read) => {}
            other => return Err(format!("{stream} has {read:?}, read backwards {other:?}")),
        }
    }
    Ok(())
}

/// What a subscription was told over all lives is what there is, up to the last that it was told.
fn trim(told: &mut Vec<Told>, found: &[Told], newest: u64, keeps_all: bool) -> Result<(), String> {
    let kept = told.iter().take_while(|event| event.position <= newest).count();
    if keeps_all && kept < told.len() {
        return Err(format!("{:?} was told to a subscription and is gone", told[kept]));
    }
    told.truncate(kept);
    let last = told.last().map_or(0, |event| event.position);
    let due = found.partition_point(|event| event.position <= last);
    let differs = (0..kept.max(due)).find(|at| told.get(*at) != found[..due].get(*at));
    match differs {
        Some(at) => Err(format!(
            "a subscription was told {:?} where {:?} is",
            told.get(at),
            found[..due].get(at)
        )),
        None => Ok(()),
    }
}

/// Forgets what is gone, and tries again what got no answer: then it is there once.
async fn settle(
    client: &Client,
    known: &mut Known,
    found: &Found,
    random: &mut Random,
    tally: &Tally,
) -> Result<(), String> {
    let attempts = std::mem::take(&mut known.attempts);
    for mut attempt in attempts {
        let there = attempt.batch.ids.last().and_then(|id| found.place.get(id));
        let there = there.map(|event| (event.revision, event.position));
        match attempt.fate {
            Fate::Acknowledged(..) if there.is_none() => continue,
            Fate::Unknown => {
                tally.add("appends without an answer tried again", 1);
                attempt.fate = try_again(client, &attempt.batch, there, random).await?;
            }
            Fate::Acknowledged(..) | Fate::Refused => {}
        }
        known.attempts.push(attempt);
    }
    Ok(())
}

async fn try_again(
    client: &Client,
    batch: &Batch,
    there: Option<(u64, u64)>,
    random: &mut Random,
) -> Result<Fate, String> {
    let known = there.map_or(Fate::Refused, |(last, position)| Fate::Acknowledged(last, position));
    if batch.stream.starts_with(DOOMED) {
        // After a deletion the same append may be another one.
        return Ok(known);
    }
    let answer = match random.once_in(2) {
        true => client.append(batch).await,
        false => client.append_batches(std::slice::from_ref(batch)).await.remove(0),
    };
    match (answer, there) {
        (Answer::Done(last, position), None) => Ok(Fate::Acknowledged(last, position)),
        (Answer::Wrong(_), None) => Ok(Fate::Refused),
        (Answer::Done(last, position), Some(there)) if there == (last, position) => Ok(known),
        (answer, there) => Err(format!("{batch:?}, at {there:?}, tried again: {answer:?}")),
    }
}
