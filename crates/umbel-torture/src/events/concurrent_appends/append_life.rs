//! One life of an event store: many append, some read, until the world ends.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use umbel::Env;
use umbel_env::JoinHandle;
use umbel_events::{
    Direction, Durability, Error, EventId, Expected, NewEvent, Position, Revision, Store,
    StreamState,
};
use umbel_sim::Sim;

use super::{Attempt, FOLDER, Fate, Known, id, options};
use crate::random::{Random, join};

const APPENDERS: u64 = 8;
const READERS: u64 = 4;
/// Appends of each who appends.
const APPENDS: u64 = 60;
/// Streams that all of them append to.
const SHARED: u64 = 3;

/// What the threads of a life share.
struct Stage {
    store: Store,
    next_id: AtomicU64,
    over: AtomicBool,
    attempts: Mutex<Vec<Attempt>>,
    seen: Mutex<Vec<(u64, EventId)>>,
    wrong: Mutex<Option<String>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stage {
    fn wrong(&self, text: String) {
        locked(&self.wrong).get_or_insert(text);
    }
}

/// Lives until everybody is done or the world has ended. An error is something that was wrong.
pub fn live(
    sim: &Sim,
    seed: u64,
    durability: Durability,
    threads: usize,
    known: &mut Known,
) -> Result<(), String> {
    // Where the world ends in the opening, nothing was promised.
    let Ok(store) = Store::open(FOLDER, options(sim, durability, threads)) else { return Ok(()) };
    let stage = Arc::new(Stage {
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
        let (stage, random) = (Arc::clone(&stage), Random::new(join(seed, 100 + number)));
        readers.push(spawn("reader", Box::new(move || read(&stage, number, random)))?);
    }
    let mut appenders: Vec<Box<dyn JoinHandle>> = Vec::new();
    for number in 0..APPENDERS {
        let (stage, random) = (Arc::clone(&stage), Random::new(join(seed, number)));
        appenders.push(spawn("appender", Box::new(move || append(&stage, number, random)))?);
    }
    let appended = join_all(appenders);
    stage.over.store(true, Ordering::SeqCst);
    let ended = join_all(readers) && appended;
    known.next_id = stage.next_id.load(Ordering::SeqCst);
    known.attempts.append(&mut locked(&stage.attempts));
    known.seen.append(&mut locked(&stage.seen));
    match locked(&stage.wrong).take() {
        Some(text) => Err(text),
        None if !ended => Err("a thread panicked".to_string()),
        None => Ok(()),
    }
}

/// Waits for all of them. `false` where one panicked.
fn join_all(threads: Vec<Box<dyn JoinHandle>>) -> bool {
    let mut ended = true;
    for thread in threads {
        ended &= thread.join();
    }
    ended
}

/// What this thread believes the last revision of a stream to be.
fn last_of(store: &Store, stream: &str) -> Option<Expected> {
    match store.stream(stream).ok()? {
        StreamState::Live { last, .. } => Some(Expected::Exact(last)),
        _ => Some(Expected::NoStream),
    }
}

fn append(stage: &Stage, number: u64, mut random: Random) {
    for _ in 0..APPENDS {
        let stream = match random.below(SHARED + 1) {
            SHARED => format!("own-{number}"),
            shared => format!("shared-{shared}"),
        };
        let expected = match random.below(4) {
            0 => Some(Expected::Any),
            1 => Some(Expected::Exact(random.below(40))),
            _ => last_of(&stage.store, &stream),
        };
        let Some(expected) = expected else { return };
        let count = 1 + random.below(3);
        let first = stage.next_id.fetch_add(count, Ordering::SeqCst);
        let ids: Vec<_> = (first..first + count).map(id).collect();
        let data = vec![b' '; random.below(1500) as usize];
        let fate = try_append(stage, &stream, expected, &ids, &data);
        locked(&stage.attempts).push(Attempt {
            stream: stream.clone(),
            expected,
            ids: ids.clone(),
            fate,
        });
        match fate {
            Fate::Unknown => return,
            Fate::Acknowledged(revision, _) if random.once_in(4) => {
                let again = try_append(stage, &stream, expected, &ids, &data);
                if !matches!(again, Fate::Acknowledged(first, _) if first == revision)
                    && again != Fate::Unknown
                {
                    stage.wrong(format!(
                        "{ids:?} were acknowledged at {revision} of {stream} ({expected:?}), and \
                         the second time: {again:?}"
                    ));
                }
            }
            Fate::Acknowledged(..) | Fate::Refused => {}
        }
    }
}

fn try_append(
    stage: &Stage,
    stream: &str,
    expected: Expected,
    ids: &[EventId],
    data: &[u8],
) -> Fate {
    let events: Vec<_> = ids.iter().map(|id| NewEvent::json(*id, "Happened", data)).collect();
    match stage.store.append(stream, expected, &events) {
        Ok(done) => match (done.first, done.position) {
            (Some(first), Some(position)) => Fate::Acknowledged(first, position),
            answer => {
                stage.wrong(format!("an append of events was answered with {answer:?}"));
                Fate::Unknown
            }
        },
        Err(Error::WrongExpected { current, .. }) => {
            if matches!((expected, current), (Expected::Exact(n), Some(last)) if n == last) {
                stage.wrong(format!("{stream} is at {current:?} and yet not as {expected:?}"));
            }
            Fate::Refused
        }
        Err(_) => Fate::Unknown,
    }
}

fn read(stage: &Stage, number: u64, mut random: Random) {
    let mut all = stage.store.read_all(Position::START, Direction::Forwards);
    let mut next: BTreeMap<String, u64> = BTreeMap::new();
    let mut position = 0;
    loop {
        let is_over = stage.over.load(Ordering::SeqCst);
        if number.is_multiple_of(2) {
            while let Some(Ok(event)) = all.next() {
                let due = next.entry(event.stream.clone()).or_default();
                if event.revision != *due || event.position <= position {
                    stage.wrong(format!(
                        "{} of {} at {} was met after position {position}, revision {due} was due",
                        event.revision, event.stream, event.position
                    ));
                    return;
                }
                *due += 1;
                position = event.position;
                locked(&stage.seen).push((event.position, event.id));
            }
        } else {
            let stream = format!("shared-{}", random.below(SHARED));
            read_stream(stage, &stream, random.once_in(2));
        }
        if is_over {
            return;
        }
        let _ = stage.store.wait_beyond(Position(position), Duration::from_millis(2));
    }
}

fn read_stream(stage: &Stage, stream: &str, backwards: bool) {
    let (from, direction) = match backwards {
        true => (Revision::END, Direction::Backwards),
        false => (Revision::START, Direction::Forwards),
    };
    let mut before: Option<u64> = None;
    for event in stage.store.read(stream, from, direction) {
        let Ok(event) = event else { return };
        let is_next = match (before, backwards) {
            (None, false) => event.revision == 0,
            (None, true) => true,
            (Some(before), false) => event.revision == before + 1,
            (Some(before), true) => event.revision + 1 == before,
        };
        if !is_next {
            stage.wrong(format!("{} of {stream} was read after {before:?}", event.revision));
            return;
        }
        before = Some(event.revision);
        locked(&stage.seen).push((event.position, event.id));
    }
    if backwards && before.is_some_and(|last| last != 0) {
        stage.wrong(format!("{stream} was read back to {before:?} and no further"));
    }
}
