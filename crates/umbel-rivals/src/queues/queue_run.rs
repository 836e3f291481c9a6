//! Runs the workloads.

use std::path::Path;
use std::time::Duration;

use umbel_lab::engine::{Engine, EngineSettings, Result, Store, Write, WriteSource};
use umbel_lab::measure::{disk_usage, now};

use crate::engine_runs::{self, RunSelection};
use crate::queues::queue_arguments::QueueArguments;
use crate::queues::workload::{self, Workload};

/// Measurements of one engine with one workload.
#[derive(Debug, Clone)]
pub struct QueueRow {
    /// The workload.
    pub workload: Workload,
    /// Name of the engine.
    pub engine: &'static str,
    /// Nanoseconds of a pop with its put and read, for each span.
    pub spans: Vec<f64>,
    /// Longest read of an oldest element.
    pub longest_read: Duration,
    /// Bytes of the store's files at the end, before it is closed.
    pub disk_bytes: u64,
    /// Bytes of keys and values of the live elements.
    pub live_bytes: u64,
    /// Bytes written for each byte of keys and values, if the engine counts written bytes.
    pub write_amplification: Option<f64>,
    /// Reason why spans are missing.
    pub note: Option<String>,
}

/// Runs each workload with each engine, in turn.
///
/// # Errors
/// Unknown engines, errors of an engine, and wrong answers.
pub fn run(arguments: &QueueArguments, stores: &Path) -> Result<Vec<QueueRow>> {
    let selection =
        RunSelection { engines: &arguments.runs.engines, name_parts: &arguments.workloads };
    let workloads = workload::ALL.map(|workload| (workload.name, workload));
    engine_runs::run_each(selection, workloads, stores, |workload, engine, folder| {
        run_one(arguments, workload, engine, folder)
    })
}

fn run_one(
    arguments: &QueueArguments,
    workload: &Workload,
    engine: &Engine,
    folder: &Path,
) -> Result<QueueRow> {
    let mut row = QueueRow {
        workload: *workload,
        engine: engine.name,
        spans: Vec::new(),
        longest_read: Duration::ZERO,
        disk_bytes: 0,
        live_bytes: workload.queues * workload.live * (16 + Workload::value(0).len() as u64),
        write_amplification: None,
        note: engine.missing_reason.map(str::to_string),
    };
    if row.note.is_some() {
        return Ok(row);
    }
    std::fs::create_dir_all(folder)?;
    let store = (engine.open)(folder, &EngineSettings::default())?;
    fill(workload, &*store)?;
    let started = now();
    let limit = Duration::from_secs(arguments.seconds_limit);
    let is_late = || started.elapsed() > limit;
    for span in 0..arguments.spans {
        let span_started = now();
        let pops = span * arguments.pops..(span + 1) * arguments.pops;
        let (done, note) =
            pop_span(workload, engine, &*store, pops, &is_late, &mut row.longest_read)?;
        if done > 0 {
            row.spans.push(span_started.elapsed().as_nanos() as f64 / done as f64);
        }
        if note.is_some() {
            row.note = note.map(str::to_string);
            break;
        }
    }
    row.disk_bytes = disk_usage::listing(folder)?.iter().map(|(_, bytes, _)| bytes).sum();
    row.write_amplification = store.counters().write_amplification;
    store.close()?;
    Ok(row)
}

/// A list of writes.
struct Writes<'a>(std::vec::IntoIter<Write<'a>>);

impl WriteSource for Writes<'_> {
    fn next(&mut self) -> Option<Write<'_>> {
        self.0.next()
    }
}

fn fill(workload: &Workload, store: &dyn Store) -> Result<()> {
    for queue in 0..workload.queues {
        for number in 0..workload.live {
            let (key, value) = (workload.key(queue, number), Workload::value(number));
            store.write_all(&mut Writes(vec![(&key[..], Some(&value[..]))].into_iter()))?;
        }
    }
    Ok(())
}

/// Pops elements: reads the oldest, puts a new one and deletes the oldest. Returns the number of
/// pops, and the reason if fewer than requested were made.
fn pop_span(
    workload: &Workload,
    engine: &Engine,
    store: &dyn Store,
    pops: std::ops::Range<u64>,
    is_late: &dyn Fn() -> bool,
    longest_read: &mut Duration,
) -> Result<(u64, Option<&'static str>)> {
    let mut reader = store.reader(engine.fresh_read_path)?;
    let first = pops.start;
    for pop in pops.clone() {
        if is_late() {
            return Ok((pop - first, Some("stopped at the time limit")));
        }
        let (queue, number) = (pop % workload.queues, pop / workload.queues);
        let read_started = now();
        if !workload.read_oldest(&mut *reader, queue, number)? {
            return Ok((0, Some("no read of the last entry here")));
        }
        *longest_read = (*longest_read).max(read_started.elapsed());
        let newest = number + workload.live;
        let (put, value) = (workload.key(queue, newest), Workload::value(newest));
        let deleted = workload.key(queue, number);
        let writes = vec![(&put[..], Some(&value[..])), (&deleted[..], None)];
        store.write_all(&mut Writes(writes.into_iter()))?;
    }
    Ok((pops.end - first, None))
}
