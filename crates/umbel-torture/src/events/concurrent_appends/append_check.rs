//! Compares the content of a store after a crash with the knowledge of its clients.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use umbel_events::{
    Direction, Error, EventId, ExpectedVersion, NewEvent, Position, Revision, Store, StoreOptions,
};

use super::{AppendAttempt, AppendOracle, AttemptFate, FOLDER};
use crate::support::campaign_tally::CampaignTally;

/// Content of a store.
#[derive(Debug, Default)]
struct EventContents {
    at: BTreeMap<u64, EventId>,
    streams: BTreeMap<String, Vec<EventId>>,
    place: HashMap<EventId, (String, u64, u64)>,
}

/// Opens the store and compares its content with the oracle. `keeps_all` says whether every
/// acknowledged or seen event must exist. Lost events are removed from the oracle.
pub fn check(
    options: StoreOptions,
    keeps_all: bool,
    known: &mut AppendOracle,
    tally: &CampaignTally,
) -> Result<(), String> {
    let store = Store::open(FOLDER, options).map_err(|error| format!("opening: {error}"))?;
    let found = read_contents(&store)?;
    tally.add("events found after a crash", found.at.len() as u64);
    compare_streams(&store, &found)?;
    check_seen(known, &found, keeps_all)?;
    let newest = found.at.keys().next_back().copied().unwrap_or(0);
    for attempt in &known.attempts {
        compare(attempt, &found, keeps_all, newest)?;
    }
    retry_unanswered(&store, known, &found, tally)?;
    let report = store.verify().map_err(|error| error.to_string())?;
    if let Some(damage) = report.damage.first() {
        return Err(format!("verifying: {damage}"));
    }
    // The found positions are known from now on.
    let found = read_contents(&store)?;
    known.seen = found.at.iter().map(|(position, id)| (*position, *id)).collect();
    Ok(())
}

fn read_contents(store: &Store) -> Result<EventContents, String> {
    let mut found = EventContents::default();
    let mut before = 0;
    for event in store.read_all(Position::START, Direction::Forwards) {
        let event = event.map_err(|error| format!("reading: {error}"))?;
        if event.position <= before {
            return Err(format!("position {} comes after {before}", event.position));
        }
        before = event.position;
        found.at.insert(event.position, event.id);
        let ids = found.streams.entry(event.stream.clone()).or_default();
        if event.revision != ids.len() as u64 {
            return Err(format!(
                "revision {} of {} is the {}th",
                event.revision,
                event.stream,
                ids.len()
            ));
        }
        ids.push(event.id);
        let place = (event.stream, event.revision, event.position);
        if let Some(other) = found.place.insert(event.id, place) {
            return Err(format!("{} exists twice, also at {other:?}", event.id));
        }
    }
    Ok(found)
}

/// Checks that each stream, read alone, equals its part of all events.
fn compare_streams(store: &Store, found: &EventContents) -> Result<(), String> {
    for (stream, ids) in &found.streams {
        let read: Result<Vec<_>, Error> =
            store.read(stream, Revision::START, Direction::Forwards).collect();
        let read = read.map_err(|error| format!("reading {stream}: {error}"))?;
        if !read.iter().map(|event| event.id).eq(ids.iter().copied()) {
            return Err(format!("{stream} has {} events, read alone {}", ids.len(), read.len()));
        }
    }
    Ok(())
}

fn check_seen(known: &AppendOracle, found: &EventContents, keeps_all: bool) -> Result<(), String> {
    for (position, id) in &known.seen {
        match found.at.get(position) {
            Some(there) if there == id => {}
            Some(there) => {
                return Err(format!("position {position} held {id} and holds {there} now"));
            }
            None if keeps_all => return Err(format!("{id} at {position} was seen and is lost")),
            None => {}
        }
    }
    Ok(())
}

fn compare(
    attempt: &AppendAttempt,
    found: &EventContents,
    keeps_all: bool,
    newest: u64,
) -> Result<(), String> {
    let AppendAttempt { stream, ids, fate, expected } = attempt;
    let due = match expected {
        ExpectedVersion::Exact(last) => Some(last + 1),
        ExpectedVersion::NoStream => Some(0),
        // A writer that expects a delete or a tombstone cannot name its revision.
        ExpectedVersion::Any
        | ExpectedVersion::Exists
        | ExpectedVersion::Deleted
        | ExpectedVersion::Tombstoned => None,
    };
    if let (AttemptFate::Acknowledged(first, _), Some(due)) = (*fate, due)
        && first != due
    {
        return Err(format!("{ids:?} expected {expected:?} of {stream} and are at {first}"));
    }
    let there = ids.iter().filter(|id| found.place.contains_key(id)).count();
    if there != 0 && there != ids.len() {
        return Err(format!("of {ids:?} in {stream} only {there} exist"));
    }
    match fate {
        AttemptFate::Refused if there > 0 => {
            Err(format!("{ids:?} were refused and are in {stream}"))
        }
        AttemptFate::Acknowledged(first, position) => {
            if there == 0 {
                // A power cut takes events of a buffered store from the end.
                let may_be_gone = !keeps_all && *position > newest;
                return match may_be_gone {
                    true => Ok(()),
                    false => Err(format!("{ids:?} were acknowledged in {stream} and are lost")),
                };
            }
            for (revision, id) in (*first..).zip(ids) {
                let place = &found.place[id];
                if (&place.0, place.1) != (stream, revision) {
                    return Err(format!("{id} was put at {revision} of {stream}, is at {place:?}"));
                }
            }
            Ok(())
        }
        AttemptFate::Refused | AttemptFate::Unknown => Ok(()),
    }
}

/// Removes lost events from the oracle, retries unacknowledged appends, and checks that each append
/// then exists once.
fn retry_unanswered(
    store: &Store,
    known: &mut AppendOracle,
    found: &EventContents,
    tally: &CampaignTally,
) -> Result<(), String> {
    let mut kept = BTreeSet::new();
    for (number, attempt) in known.attempts.iter_mut().enumerate() {
        let AppendAttempt { stream, expected, ids, fate } = attempt;
        match fate {
            AttemptFate::Acknowledged(..) if !found.place.contains_key(&ids[0]) => continue,
            AttemptFate::Acknowledged(..) | AttemptFate::Refused => {}
            AttemptFate::Unknown => {
                let events: Vec<_> =
                    ids.iter().map(|id| NewEvent::json(*id, "Happened", b"")).collect();
                let was_there = found.place.get(&ids[0]);
                tally.add("appends without an answer tried again", 1);
                *fate = match (store.append(stream, *expected, &events), was_there) {
                    (Ok(done), Some((_, revision, _)))
                        if !done.is_retry || done.first != Some(*revision) =>
                    {
                        return Err(format!("{ids:?} are at {revision} of {stream}, not {done:?}"));
                    }
                    (Ok(done), _) => match (done.first, done.position) {
                        (Some(first), Some(position)) => AttemptFate::Acknowledged(first, position),
                        _ => return Err(format!("{ids:?} were answered with {done:?}")),
                    },
                    (Err(Error::WrongExpectedVersion { .. }), None) => AttemptFate::Refused,
                    (Err(error), there) => {
                        return Err(format!("{ids:?}, at {there:?}, tried again: {error}"));
                    }
                };
            }
        }
        kept.insert(number);
    }
    let mut number = 0;
    known.attempts.retain(|_| {
        number += 1;
        kept.contains(&(number - 1))
    });
    Ok(())
}
