//! One crash cycle (life) of an event store: several threads append, some read, until the crash.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use umbel_base::ignore_poison::IgnorePoison;

use umbel::Env;
use umbel_env::JoinHandle;
use umbel_events::{
    Direction, Durability, Error, EventId, ExpectedVersion, NewEvent, Position, Revision, Store,
    StreamState,
};
use umbel_sim::{Random, Sim};

use super::{AppendAttempt, AppendOracle, AttemptFate, FOLDER, event_id, options};
use crate::support::derived_seed::derive_seed;

const APPENDERS: u64 = 8;
const READERS: u64 = 4;
/// Number of appends of each writer.
const APPENDS_PER_APPENDER: u64 = 60;
/// Number of streams that all writers append to.
const SHARED_STREAMS: u64 = 3;

/// State that the threads of a crash cycle share.
struct AppendLife {
    store: Store,
    next_id: AtomicU64,
    over: AtomicBool,
    attempts: Mutex<Vec<AppendAttempt>>,
    seen: Mutex<Vec<(u64, EventId)>>,
    wrong: Mutex<Option<String>>,
}

impl AppendLife {
    fn wrong(&self, text: String) {
        self.wrong.lock().ignore_poison().get_or_insert(text);
    }
}

/// Runs threads until all are done or the crash has happened. A returned error is a violation.
pub fn live(
    sim: &Sim,
    seed: u64,
    durability: Durability,
    threads: usize,
    known: &mut AppendOracle,
) -> Result<(), String> {
    // A world that ends during the open has acknowledged nothing.
    let Ok(store) = Store::open(FOLDER, options(sim, durability, threads)) else { return Ok(()) };
    let life = Arc::new(AppendLife {
        store,
        next_id: AtomicU64::new(known.next_id),
        over: AtomicBool::new(false),
        attempts: Mutex::default(),
        seen: Mutex::default(),
        wrong: Mutex::default(),
    });
    let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| -> Result<_, String> {
        Env::system().threads.spawn(name, work).map_err(|error| error.to_string())
    };
    let mut readers: Vec<Box<dyn JoinHandle>> = Vec::new();
    for number in 0..READERS {
        let (life, random) = (Arc::clone(&life), Random::new(derive_seed(seed, 100 + number)));
        readers.push(spawn("reader", Box::new(move || read(&life, number, random)))?);
    }
    let mut appenders: Vec<Box<dyn JoinHandle>> = Vec::new();
    for number in 0..APPENDERS {
        let (life, random) = (Arc::clone(&life), Random::new(derive_seed(seed, number)));
        appenders.push(spawn("appender", Box::new(move || append(&life, number, random)))?);
    }
    let appended = join_all(appenders);
    life.over.store(true, Ordering::SeqCst);
    let ended = join_all(readers) && appended;
    known.next_id = life.next_id.load(Ordering::SeqCst);
    known.attempts.append(&mut life.attempts.lock().ignore_poison());
    known.seen.append(&mut life.seen.lock().ignore_poison());
    match life.wrong.lock().ignore_poison().take() {
        Some(text) => Err(text),
        None if !ended => Err("a thread panicked".to_string()),
        None => Ok(()),
    }
}

/// Waits for all threads. Returns `false` if a thread panicked.
fn join_all(threads: Vec<Box<dyn JoinHandle>>) -> bool {
    let mut ended = true;
    for thread in threads {
        ended &= thread.join();
    }
    ended
}

/// Returns the last revision of a stream as this thread sees it.
fn last_of(store: &Store, stream: &str) -> Option<ExpectedVersion> {
    match store.stream_state(stream).ok()? {
        StreamState::Live { last, .. } => Some(ExpectedVersion::Exact(last)),
        _ => Some(ExpectedVersion::NoStream),
    }
}

fn append(life: &AppendLife, number: u64, mut random: Random) {
    for _ in 0..APPENDS_PER_APPENDER {
        let stream = match random.below(SHARED_STREAMS + 1) {
            SHARED_STREAMS => format!("own-{number}"),
            shared => format!("shared-{shared}"),
        };
        let expected = match random.below(4) {
            0 => Some(ExpectedVersion::Any),
            1 => Some(ExpectedVersion::Exact(random.below(40))),
            _ => last_of(&life.store, &stream),
        };
        let Some(expected) = expected else { return };
        let count = 1 + random.below(3);
        let first = life.next_id.fetch_add(count, Ordering::SeqCst);
        let ids: Vec<_> = (first..first + count).map(event_id).collect();
        let data = vec![b' '; random.below(1500) as usize];
        let fate = try_append(life, &stream, expected, &ids, &data);
        life.attempts.lock().ignore_poison().push(AppendAttempt {
            stream: stream.clone(),
            expected,
            ids: ids.clone(),
            fate,
        });
        match fate {
            AttemptFate::Unknown => return,
            AttemptFate::Acknowledged(revision, _) if random.once_in(4) => {
                let again = try_append(life, &stream, expected, &ids, &data);
                if !matches!(again, AttemptFate::Acknowledged(first, _) if first == revision)
                    && again != AttemptFate::Unknown
                {
                    life.wrong(format!(
                        "{ids:?} were acknowledged at {revision} of {stream} ({expected:?}), and \
                         the second time: {again:?}"
                    ));
                }
            }
            AttemptFate::Acknowledged(..) | AttemptFate::Refused => {}
        }
    }
}

fn try_append(
    life: &AppendLife,
    stream: &str,
    expected: ExpectedVersion,
    ids: &[EventId],
    data: &[u8],
) -> AttemptFate {
    let events: Vec<_> = ids.iter().map(|id| NewEvent::json(*id, "Happened", data)).collect();
    match life.store.append(stream, expected, &events) {
        Ok(done) => match (done.first, done.position) {
            (Some(first), Some(position)) => AttemptFate::Acknowledged(first, position),
            answer => {
                life.wrong(format!("an append of events was answered with {answer:?}"));
                AttemptFate::Unknown
            }
        },
        Err(Error::WrongExpectedVersion { current, .. }) => {
            if matches!((expected, current), (ExpectedVersion::Exact(n), Some(last)) if n == last) {
                life.wrong(format!("{stream} is at {current:?} and yet not as {expected:?}"));
            }
            AttemptFate::Refused
        }
        Err(_) => AttemptFate::Unknown,
    }
}

fn read(life: &AppendLife, number: u64, mut random: Random) {
    let mut all = life.store.read_all(Position::START, Direction::Forwards);
    let mut next: BTreeMap<String, u64> = BTreeMap::new();
    let mut position = 0;
    loop {
        let is_over = life.over.load(Ordering::SeqCst);
        if number.is_multiple_of(2) {
            while let Some(Ok(event)) = all.next() {
                let due = next.entry(event.stream.clone()).or_default();
                if event.revision != *due || event.position <= position {
                    life.wrong(format!(
                        "{} of {} at {} came after {position}, revision {due} was expected",
                        event.revision, event.stream, event.position
                    ));
                    return;
                }
                *due += 1;
                position = event.position;
                life.seen.lock().ignore_poison().push((event.position, event.id));
            }
        } else {
            let stream = format!("shared-{}", random.below(SHARED_STREAMS));
            read_stream(life, &stream, random.once_in(2));
        }
        if is_over {
            return;
        }
        let _ = life.store.wait_past(Position(position), Duration::from_millis(2));
    }
}

fn read_stream(life: &AppendLife, stream: &str, backwards: bool) {
    let (from, direction) = match backwards {
        true => (Revision::END, Direction::Backwards),
        false => (Revision::START, Direction::Forwards),
    };
    let mut before: Option<u64> = None;
    for event in life.store.read(stream, from, direction) {
        let Ok(event) = event else { return };
        let is_next = match (before, backwards) {
            (None, false) => event.revision == 0,
            (None, true) => true,
            (Some(before), false) => event.revision == before + 1,
            (Some(before), true) => event.revision + 1 == before,
        };
        if !is_next {
            life.wrong(format!("{} of {stream} was read after {before:?}", event.revision));
            return;
        }
        before = Some(event.revision);
        life.seen.lock().ignore_poison().push((event.position, event.id));
    }
    if backwards && before.is_some_and(|last| last != 0) {
        life.wrong(format!("{stream} was read back to {before:?} and no further"));
    }
}
