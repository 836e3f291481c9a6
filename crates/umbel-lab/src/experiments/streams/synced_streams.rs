//! New streams with synced appends, 64 in flight, compared with bare syncs.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use umbel_base::ignore_poison::IgnorePoison;

use umbel_events::{
    AppendRequest, Durability, ExpectedVersion, PendingAppend, Store, StoreOptions, StreamAppend,
    WriteResult,
};

use super::new_stream_runs::{MeasurementSum, memory_bytes, millions};
use crate::engine::{Counters, ReadDigest, Result};
use crate::experiment::lab_context::{MeasureContext, Measurement, TemporaryDirectory};
use crate::experiment::{Figure, Subject};
use crate::measure::sanity_checks::Expectations;
use crate::number_format::ratio;
use crate::results::outcome::{Better, Outcome, Scale};
use crate::results::sample_recorder::Recorder;
use crate::workload::stream_batch::StreamBatch;

/// Number of appends in flight.
const IN_FLIGHT: usize = 64;
/// Number of measured parts, each after bare syncs.
const ROUND_PARTS: u64 = 5;
/// Size of the file for bare syncs.
const BARE_BYTES: usize = 1 << 20;
/// Approximate bytes of an append in the log.
const RECORD_BYTES: usize = 200;
const WAITING: &str = "event store, synced, waiting";
const CALLED_BACK: &str = "event store, synced, called back";
const FOUND: &str = "a stream that is new was found";
const BARE_SERIES: &str = "64 in the time of a bare sync";

/// Rate of synced appends.
pub const SYNCED: Figure = Figure {
    name: "synced, 64 in flight",
    unit: "thousand per second",
    better: Better::Higher,
    plot: true,
};
/// Time of a bare sync.
pub const BARE: Figure =
    Figure { name: "one bare sync", unit: "µs", better: Better::Neither, plot: false };

/// Returns the number of streams that are created.
fn streams(scale: Scale) -> u64 {
    scale.choose(10_000, 1_000_000)
}

fn syncs(scale: Scale) -> u64 {
    scale.choose(20, 200)
}

/// Returns the method in words.
pub fn in_words(scale: Scale) -> String {
    format!(
        "{} streams by one thread, in {ROUND_PARTS} parts, once waiting for the oldest of \
         {IN_FLIGHT} appends and once called back when one is done; before each of these {} bare \
         syncs of {RECORD_BYTES} bytes that are written over others in the same directory",
        streams(scale),
        syncs(scale)
    )
}

/// Subject that measures synced appends and bare syncs.
pub struct SyncedStreams {
    /// Folder for the store.
    pub place: MeasureContext,
    /// Scale.
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
        let open = |folder: &TemporaryDirectory| {
            let options = StoreOptions {
                durability: Durability::Synced,
                memory_bytes: memory_bytes(self.scale),
                ..StoreOptions::default()
            };
            Store::open(folder.path(), options)
        };
        let (waiting, called_back) = (open(&folders[0])?, open(&folders[1])?);
        let bare = BareSync::new(&bare_folder)?;
        let mut sums =
            [MeasurementSum::default(), MeasurementSum::default(), MeasurementSum::default()];
        let mut made = StreamBatch::default();
        for part in 0..ROUND_PARTS {
            recorder.next("bare syncs")?;
            sums[0].add(&bare.measure(&self.place, syncs(self.scale))?);
            recorder.next("synced appends")?;
            made.make(count / ROUND_PARTS * part..count / ROUND_PARTS * (part + 1));
            let time = |work: &dyn Fn() -> Result<ReadDigest>| {
                let none = &Counters::default;
                self.place.timed_with_counters(
                    Expectations::WRITES,
                    none,
                    made.count() as u64,
                    |_| work(),
                )
            };
            sums[1].add(&time(&|| append_waiting(&waiting, &made))?);
            recorder.check_stop()?;
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

fn submit(store: &Store, made: &StreamBatch, at: usize) -> Result<PendingAppend> {
    let events = [made.event(at)];
    let appends =
        [StreamAppend { stream: made.name(at), expected: ExpectedVersion::Any, events: &events }];
    Ok(store.submit(&AppendRequest { appends: &appends, checks: &[] })?)
}

/// Whether all answers acknowledge an append to one new stream.
fn is_new(answers: &[WriteResult]) -> bool {
    matches!(answers, [WriteResult { first: Some(0), is_retry: false, .. }])
}

fn append_waiting(store: &Store, made: &StreamBatch) -> Result<ReadDigest> {
    let mut on_their_way: VecDeque<PendingAppend> = VecDeque::with_capacity(IN_FLIGHT);
    let wait = |ticket: PendingAppend| -> Result<()> {
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
    Ok(ReadDigest::default())
}

/// Counts appends in flight and keeps their first error.
#[derive(Default)]
struct InFlightGate {
    state: Mutex<(usize, Option<String>)>,
    changed: Condvar,
}

impl InFlightGate {
    /// Waits until at most `count` appends are in flight.
    fn wait_until_at_most(&self, count: usize) -> Result<MutexGuard<'_, (usize, Option<String>)>> {
        let mut state = self.state.lock().ignore_poison();
        while state.0 > count && state.1.is_none() {
            state = self.changed.wait(state).ignore_poison();
        }
        state.1.take().map_or(Ok(state), |failed| Err(failed.into()))
    }

    fn leave(&self, answers: umbel_events::Result<Vec<WriteResult>>) {
        let mut state = self.state.lock().ignore_poison();
        state.0 -= 1;
        match answers {
            Ok(answers) if is_new(&answers) => {}
            Ok(_) => state.1 = Some(FOUND.to_string()),
            Err(error) => state.1 = Some(error.to_string()),
        }
        self.changed.notify_one();
    }
}

fn append_called_back(store: &Store, made: &StreamBatch) -> Result<ReadDigest> {
    let gate = Arc::new(InFlightGate::default());
    for at in 0..made.count() {
        gate.wait_until_at_most(IN_FLIGHT - 1)?.0 += 1;
        let back = Arc::clone(&gate);
        submit(store, made, at)?.on_acknowledged(move |answers| back.leave(answers));
    }
    drop(gate.wait_until_at_most(0)?);
    Ok(ReadDigest::default())
}

/// An existing file that is overwritten and synced.
struct BareSync {
    file: File,
}

impl BareSync {
    fn new(folder: &TemporaryDirectory) -> Result<BareSync> {
        let file = File::create(folder.path().join("bare"))?;
        file.write_all_at(&vec![1; BARE_BYTES], 0)?;
        file.sync_all()?;
        Ok(BareSync { file })
    }

    fn measure(&self, place: &MeasureContext, count: u64) -> Result<Measurement> {
        place.timed_with_counters(Expectations::WRITES, &Counters::default, count, |_| {
            for number in 0..count as usize {
                let at = number * RECORD_BYTES % (BARE_BYTES - RECORD_BYTES);
                self.file.write_all_at(&[number as u8; RECORD_BYTES], at as u64)?;
                self.file.sync_data()?;
            }
            Ok(ReadDigest::default())
        })
    }
}

/// Returns the interpretation of the figures in a sentence.
pub fn meaning(outcome: &Outcome) -> Option<String> {
    let x = outcome.points.iter().find(|point| point.figure == SYNCED.name)?.x.as_str();
    let of = |series: &str| outcome.spread(series, x, SYNCED.name);
    let (waiting, called_back, bare) = (of(WAITING)?, of(CALLED_BACK)?, of(BARE_SERIES)?);
    let bare_us = outcome.spread(BARE_SERIES, x, BARE.name)?;
    Some(format!(
        "Synced, with {IN_FLIGHT} appends in flight, {:.1} thousand streams a second are created \
         by waiting threads and {:.1} by callbacks: {} and {} of the {:.1} thousand that \
         {IN_FLIGHT} for each bare sync of {:.0} µs would be.",
        waiting.median,
        called_back.median,
        ratio(waiting.median, bare.median),
        ratio(called_back.median, bare.median),
        bare.median,
        bare_us.median,
    ))
}
