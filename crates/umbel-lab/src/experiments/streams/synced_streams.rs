//! New streams that survive power loss, 64 on their way at a time, beside bare syncs.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use umbel_events::{
    Appended, Durability, Expected, Request, Store, StoreOptions, StreamAppend, Ticket,
};

use super::stream_article::{Sum, memory_bytes, millions};
use crate::engine::{Counters, Result, Tally};
use crate::experiment::{Figure, Subject};
use crate::lab::{Folder, Place, Timed};
use crate::number::ratio;
use crate::outcome::{Better, Outcome, Scale};
use crate::recorder::Recorder;
use crate::sanity::Expects;
use crate::streams::NewStreams;

/// How many appends are on their way.
const IN_FLIGHT: usize = 64;
/// In how many parts it is measured, bare syncs before each.
const PARTS: u64 = 5;
/// The file of the bare syncs.
const BARE_BYTES: usize = 1 << 20;
/// About what an append takes of the log.
const RECORD_BYTES: usize = 200;
const WAITING: &str = "event store, synced, waiting";
const CALLED_BACK: &str = "event store, synced, called back";
const FOUND: &str = "a stream that is new was found";
const BARE_SERIES: &str = "64 in the time of a bare sync";

/// Appends that survive power loss.
pub const SYNCED: Figure = Figure {
    name: "synced, 64 in flight",
    unit: "thousand per second",
    better: Better::Higher,
    plot: true,
};
/// How long a sync takes alone.
pub const BARE: Figure =
    Figure { name: "one bare sync", unit: "µs", better: Better::Neither, plot: false };

/// How many streams are created.
fn streams(scale: Scale) -> u64 {
    scale.choose(10_000, 1_000_000)
}

fn syncs(scale: Scale) -> u64 {
    scale.choose(20, 200)
}

/// The same in words.
pub fn in_words(scale: Scale) -> String {
    format!(
        "{} streams by one thread, in {PARTS} parts, once waiting for the oldest of {IN_FLIGHT} \
         appends and once called back when one is done; before each of these {} bare syncs of \
         {RECORD_BYTES} bytes that are written over others in the same folder",
        streams(scale),
        syncs(scale)
    )
}

/// Measures both.
pub struct SyncedStreams {
    /// Where.
    pub place: Place,
    /// How much.
    pub scale: Scale,
}

impl Subject for SyncedStreams {
    fn name(&self) -> String {
        "event store, synced".to_string()
    }

    fn measure(&mut self, recorder: &mut Recorder<'_>) -> Result<()> {
        let count = streams(self.scale);
        let folders = [self.place.folder("waiting")?, self.place.folder("called-back")?];
        let bare_folder = self.place.folder("bare")?;
        let open = |folder: &Folder| {
            let options = StoreOptions {
                durability: Durability::Synced,
                memory_bytes: memory_bytes(self.scale),
                ..StoreOptions::default()
            };
            Store::open(folder.path(), options)
        };
        let (waiting, called_back) = (open(&folders[0])?, open(&folders[1])?);
        let bare = Bare::new(&bare_folder)?;
        let mut sums = [Sum::default(), Sum::default(), Sum::default()];
        let mut made = NewStreams::default();
        for part in 0..PARTS {
            recorder.next("bare syncs")?;
            sums[0].add(&bare.measure(&self.place, syncs(self.scale))?);
            recorder.next("synced appends")?;
            made.make(count / PARTS * part..count / PARTS * (part + 1));
            let time = |work: &dyn Fn() -> Result<Tally>| {
                let none = &Counters::default;
                self.place.watched(Expects::WRITES, none, made.count() as u64, |_| work())
            };
            sums[1].add(&time(&|| append_waiting(&waiting, &made))?);
            recorder.go_on()?;
            sums[2].add(&time(&|| append_called_back(&called_back, &made))?);
        }
        waiting.close()?;
        called_back.close()?;
        let [bare, waiting, called_back] = sums;
        let x = millions(count);
        let bare_us = 1e3 / bare.thousands();
        recorder.record(BARE_SERIES, &x, BARE.name, bare_us, &bare);
        let rate = IN_FLIGHT as f64 * 1e3 / bare_us;
        recorder.record(BARE_SERIES, &x, SYNCED.name, rate, bare.flags);
        for (series, sum) in [(WAITING, waiting), (CALLED_BACK, called_back)] {
            recorder.record(series, &x, SYNCED.name, sum.thousands(), &sum);
        }
        Ok(())
    }
}

fn submit(store: &Store, made: &NewStreams, at: usize) -> Result<Ticket> {
    let events = [made.event(at)];
    let appends =
        [StreamAppend { stream: made.name(at), expected: Expected::Any, events: &events }];
    Ok(store.submit(&Request { appends: &appends, checks: &[] })?)
}

/// Whether these are the answers to an append to one stream that is new.
fn is_new(answers: &[Appended]) -> bool {
    matches!(answers, [Appended { first: Some(0), was_there: false, .. }])
}

fn append_waiting(store: &Store, made: &NewStreams) -> Result<Tally> {
    let mut on_their_way: VecDeque<Ticket> = VecDeque::with_capacity(IN_FLIGHT);
    let wait = |ticket: Ticket| -> Result<()> {
        if is_new(&ticket.wait()?) { Ok(()) } else { Err(FOUND.into()) }
    };
    for at in 0..made.count() {
        if on_their_way.len() == IN_FLIGHT
            && let Some(oldest) = on_their_way.pop_front()
        {
            wait(oldest)?;
        }
        on_their_way.push_back(submit(store, made, at)?);
    }
    on_their_way.into_iter().try_for_each(wait)?;
    Ok(Tally::default())
}

/// Counts appends that are on their way, and keeps what went wrong with one.
#[derive(Default)]
struct Gate {
    state: Mutex<(usize, Option<String>)>,
    changed: Condvar,
}

impl Gate {
    /// Waits until at most so many are on their way.
    fn at_most(&self, count: usize) -> Result<MutexGuard<'_, (usize, Option<String>)>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.0 > count && state.1.is_none() {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.1.take().map_or(Ok(state), |failed| Err(failed.into()))
    }

    fn leave(&self, answers: umbel_events::Result<Vec<Appended>>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 -= 1;
        match answers {
            Ok(answers) if is_new(&answers) => {}
            Ok(_) => state.1 = Some(FOUND.to_string()),
            Err(error) => state.1 = Some(error.to_string()),
        }
        self.changed.notify_one();
    }
}

fn append_called_back(store: &Store, made: &NewStreams) -> Result<Tally> {
    let gate = Arc::new(Gate::default());
    for at in 0..made.count() {
        gate.at_most(IN_FLIGHT - 1)?.0 += 1;
        let back = Arc::clone(&gate);
        submit(store, made, at)?.then(move |answers| back.leave(answers));
    }
    drop(gate.at_most(0)?);
    Ok(Tally::default())
}

/// A file that is there, written over and synced.
struct Bare {
    file: File,
}

impl Bare {
    fn new(folder: &Folder) -> Result<Bare> {
        let file = File::create(folder.path().join("bare"))?;
        file.write_all_at(&vec![1; BARE_BYTES], 0)?;
        file.sync_all()?;
        Ok(Bare { file })
    }

    fn measure(&self, place: &Place, count: u64) -> Result<Timed> {
        place.watched(Expects::WRITES, &Counters::default, count, |_| {
            for number in 0..count as usize {
                let at = number * RECORD_BYTES % (BARE_BYTES - RECORD_BYTES);
                self.file.write_all_at(&[number as u8; RECORD_BYTES], at as u64)?;
                self.file.sync_data()?;
            }
            Ok(Tally::default())
        })
    }
}

/// What it means, in a sentence.
pub fn meaning(outcome: &Outcome) -> Option<String> {
    let x = outcome.points.iter().find(|point| point.figure == SYNCED.name)?.x.as_str();
    let of = |series: &str| outcome.spread(series, x, SYNCED.name);
    let (waiting, called_back, bare) = (of(WAITING)?, of(CALLED_BACK)?, of(BARE_SERIES)?);
    let bare_us = outcome.spread(BARE_SERIES, x, BARE.name)?;
    Some(format!(
        "Synced, with {IN_FLIGHT} appends in flight, {:.1} thousand streams a second are created \
         by who waits and {:.1} by who is called back: {} and {} of the {:.1} thousand that \
         {IN_FLIGHT} for each bare sync of {:.0} µs would be.",
        waiting.median,
        called_back.median,
        ratio(waiting.median, bare.median),
        ratio(called_back.median, bare.median),
        bare.median,
        bare_us.median,
    ))
}
