//! Runs the comparisons.

use std::path::Path;
use std::time::Duration;

use umbel_lab::engine::{Engine, EngineSettings, Result, Store};
use umbel_lab::measure::{disk_usage, now, pause, written_bytes};

use crate::deletions::deletion_arguments::DeletionArguments;
use crate::deletions::deletion_kind::{self, DeletionKind};
use crate::engine_runs::{self, RunSelection};

/// Seconds between two measurements of the space.
const SAMPLE_SECONDS: u64 = 1;

/// Measurements of one engine with one kind of deletion.
#[derive(Debug, Clone)]
pub struct DeletionRow {
    /// The kind.
    pub kind: DeletionKind,
    /// Name of the engine.
    pub engine: &'static str,
    /// Bytes of keys and values that remain.
    pub live_bytes: u64,
    /// Disk space right after the deletes; under steady writes, the maximum after the first third.
    pub space_busy: u64,
    /// Disk space after five seconds of idle time.
    pub space_soon: u64,
    /// Disk space at the end of the idle time.
    pub space_idle: u64,
    /// Bytes written by the process for each byte passed to the engine.
    pub write_amplification: Option<f64>,
    /// Writes a second that the engine reached, of a steady kind.
    pub rate: Option<f64>,
    /// Reason why there are no measurements.
    pub note: Option<&'static str>,
}

/// Runs each kind with each engine, in turn.
///
/// # Errors
/// Unknown engines, errors of an engine, and wrong answers.
pub fn run(arguments: &DeletionArguments, stores: &Path) -> Result<Vec<DeletionRow>> {
    let selection = RunSelection { engines: &arguments.runs.engines, name_parts: &arguments.kinds };
    let kinds = deletion_kind::ALL.map(|kind| (kind.name, kind));
    engine_runs::run_each(selection, kinds, stores, |kind, engine, folder| {
        run_one(arguments, kind, engine, folder)
    })
}

fn run_one(
    arguments: &DeletionArguments,
    kind: &DeletionKind,
    engine: &Engine,
    folder: &Path,
) -> Result<DeletionRow> {
    let entries = (kind.entries * arguments.scale / 100).max(10);
    let mut row = DeletionRow {
        kind: *kind,
        engine: engine.name,
        live_bytes: kind.entries_left(entries) * kind.entry_bytes(),
        space_busy: 0,
        space_soon: 0,
        space_idle: 0,
        write_amplification: None,
        rate: None,
        note: engine.missing_reason,
    };
    if row.note.is_some() {
        return Ok(row);
    }
    std::fs::create_dir_all(folder)?;
    let memtable_bytes = arguments.memtable_mib << 20;
    let settings = EngineSettings { memtable_bytes, ..EngineSettings::default() };
    let written_before = written_bytes();
    let store = (engine.open)(folder, &settings)?;
    kind.write(&*store, (0..entries).map(|number| (number, Some(0))))?;
    let mut bytes = entries * kind.entry_bytes();
    if kind.is_steady() {
        let steady = write_steadily(arguments, kind, &*store, entries, folder)?;
        (row.space_busy, row.rate) = (steady.space_max, Some(steady.rate));
        bytes += steady.bytes;
    } else {
        bytes += kind.delete(&*store, entries)?;
        row.space_busy = disk_usage::bytes(folder)?;
    }
    pause(Duration::from_secs(5));
    row.space_soon = disk_usage::bytes(folder)?;
    pause(Duration::from_secs(arguments.idle_seconds - 5));
    row.space_idle = disk_usage::bytes(folder)?;
    let written = written_bytes().zip(written_before).map(|(after, before)| after - before);
    row.write_amplification = written.map(|written| written as f64 / bytes as f64);
    kind.check(&mut *store.reader(engine.fresh_read_path)?, entries)?;
    store.close()?;
    Ok(row)
}

/// Result of steady writes.
struct SteadyWrites {
    /// Maximum disk space after the first third.
    space_max: u64,
    /// Writes a second.
    rate: f64,
    /// Bytes of keys and values.
    bytes: u64,
}

fn write_steadily(
    arguments: &DeletionArguments,
    kind: &DeletionKind,
    store: &dyn Store,
    entries: u64,
    folder: &Path,
) -> Result<SteadyWrites> {
    let (started, mut step, mut steady) =
        (now(), 0, SteadyWrites { space_max: 0, rate: 0.0, bytes: 0 });
    for second in 1..=arguments.steady_seconds {
        let steps = step..step + arguments.rate * SAMPLE_SECONDS;
        step = steps.end;
        let writes = steps.map(|step| kind.steady_write(entries, step));
        let mut bytes = 0;
        kind.write(
            store,
            writes.inspect(|(_, version)| {
                bytes += version.map_or(deletion_kind::KEY_BYTES, |_| kind.entry_bytes());
            }),
        )?;
        steady.bytes += bytes;
        if second > arguments.steady_seconds / 3 {
            steady.space_max = steady.space_max.max(disk_usage::bytes(folder)?);
        }
        pause(Duration::from_secs(second).saturating_sub(started.elapsed()));
    }
    steady.rate = step as f64 / started.elapsed().as_secs_f64();
    Ok(steady)
}
