//! Context of experiments: environment, scale, engines and keys.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use umbel_env::Env;

use crate::engine::{Counters, Engine, EngineSettings, ReadDigest, Result, Store};
use crate::measure::sanity_checks::{self, ClockReading, Conditions, Expectations};
use crate::measure::{Sample, Stopwatch, measure_with, others_while_waiting};
use crate::results::outcome::{Cost, Scale};
use crate::results::sample_recorder::MeasurementEvidence;
use crate::workload::data_file::UserData;

/// Length of an idle check of an engine without counters.
const IDLE_CHECK_TIME: Duration = Duration::from_millis(100);
/// Largest share of an idle check during which the engine's threads may work.
const IDLE_SHARE_MAX: u32 = 20;
/// Number of idle checks before the reads are flagged.
const IDLE_CHECKS_MAX: u32 = 600;

/// State that all experiments of a run share.
#[derive(Debug, Clone, Copy)]
pub struct LabContext<'a> {
    /// The world.
    pub env: &'a Env,
    /// Scale of the measurement.
    pub scale: Scale,
    /// The chosen engines, at least one.
    pub engines: &'a [Engine],
    /// The folder in which stores are created.
    pub stores: &'a Path,
    /// The user's own keys and queries, if given.
    pub data: Option<&'a Arc<UserData>>,
    /// Whether other work of the program may run beside measurements.
    pub shares_processors: bool,
}

/// The environment and the folder for stores, as owned values.
#[derive(Debug, Clone)]
pub struct MeasureContext {
    /// The world.
    pub env: Env,
    stores: PathBuf,
    shares_processors: bool,
}

impl MeasureContext {
    /// Creates an empty folder of this name for a store; it is removed when the value is dropped.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn folder(&self, name: &str) -> Result<TemporaryDirectory> {
        TemporaryDirectory::new(&self.stores, name)
    }

    /// Runs some work on a store and returns the work's cost, with the reasons not to trust the
    /// measurement.
    ///
    /// # Errors
    /// The errors of the work.
    pub fn timed(
        &self,
        expects: Expectations,
        store: &dyn Store,
        operations: u64,
        work: impl FnOnce() -> Result<ReadDigest>,
    ) -> Result<Measurement> {
        self.timed_with(expects, store, operations, |_| work())
    }

    /// Measures as [`MeasureContext::timed`] does work that stops the clock while it prepares its
    /// input.
    ///
    /// # Errors
    /// The errors of the work.
    pub fn timed_with(
        &self,
        expects: Expectations,
        store: &dyn Store,
        operations: u64,
        work: impl FnOnce(&Stopwatch) -> Result<ReadDigest>,
    ) -> Result<Measurement> {
        self.timed_with_counters(expects, &|| store.counters(), operations, work)
    }

    /// Flushes a store, waits until its background work is done, and then runs `last`. The time
    /// that only confirmed idleness is not in the sample. An engine without a job counter counts as
    /// idle once its threads rest. If they do not rest, the measurement is flagged.
    ///
    /// # Errors
    /// The errors of the store and of `last`.
    pub fn settle_store(
        &self,
        store: &dyn Store,
        last: impl FnOnce() -> Result<()>,
    ) -> Result<Measurement> {
        let (mut watched, mut rests) = (Duration::ZERO, true);
        let mut settled = self.timed(Expectations::WRITES, store, 1, || {
            store.flush()?;
            watched = store.wait()?;
            if store.counters().background_jobs.is_none() {
                rests = (0..IDLE_CHECKS_MAX).any(|_| {
                    others_while_waiting(IDLE_CHECK_TIME) < IDLE_CHECK_TIME / IDLE_SHARE_MAX
                });
                watched += IDLE_CHECK_TIME;
            }
            last()?;
            Ok(ReadDigest::default())
        })?;
        if !rests {
            let seconds = (IDLE_CHECK_TIME * IDLE_CHECKS_MAX).as_secs();
            let text =
                format!("the engine's threads still worked {seconds} s after the last operation");
            settled.flags.push(text);
        }
        let wall_ns = &mut settled.sample.wall_ns;
        *wall_ns = wall_ns.saturating_sub(watched.as_nanos() as u64);
        Ok(settled)
    }

    /// Measures as [`MeasureContext::timed`] does work on a value that is no [`Store`]; `counters`
    /// returns the value's counters.
    ///
    /// # Errors
    /// The errors of the work.
    pub fn timed_with_counters(
        &self,
        expects: Expectations,
        counters: &dyn Fn() -> Counters,
        operations: u64,
        work: impl FnOnce(&Stopwatch) -> Result<ReadDigest>,
    ) -> Result<Measurement> {
        let before = counters();
        let start = ClockReading::now(&*self.env.clock);
        let sample = measure_with(operations, work)?;
        let moments = [start, ClockReading::now(&*self.env.clock)];
        let after = counters();
        let seen = Conditions {
            moments,
            counters: [before, after],
            operations,
            worked: Duration::from_nanos(sample.wall_ns),
            thread: Duration::from_nanos(sample.thread_ns),
            others: Duration::from_nanos(sample.process_ns.saturating_sub(sample.thread_ns)),
            shares_processors: self.shares_processors,
        };
        Ok(Measurement { sample, before, after, flags: sanity_checks::flags(expects, &seen) })
    }
}

/// Measurement of some work.
#[derive(Debug, Clone)]
pub struct Measurement {
    /// The times.
    pub sample: Sample,
    /// Counters of the store before the work.
    pub before: Counters,
    /// Counters of the store after the work.
    pub after: Counters,
    /// Reasons not to trust the times.
    pub flags: Vec<String>,
}

impl Measurement {
    /// Returns the growth of a counter for each operation; `None` if the engine does not count it.
    pub fn per_operation(&self, counter: fn(&Counters) -> Option<u64>) -> Option<f64> {
        let grown = counter(&self.after)?.saturating_sub(counter(&self.before)?);
        Some(grown as f64 / self.sample.operations.max(1) as f64)
    }

    /// Returns the cost of the work.
    pub fn cost(&self) -> Cost {
        let Sample { operations, wall_ns, thread_ns, process_ns, .. } = self.sample;
        Cost { operations, wall_ns, thread_ns, process_ns }
    }

    /// Combines `self` and the next measurement into one, whose number of operations is that of
    /// `self`.
    pub fn and_then(self, next: Measurement) -> Measurement {
        let flags = [self.flags, next.flags].concat();
        Measurement { sample: self.sample.and_then(next.sample), after: next.after, flags, ..self }
    }
}

impl From<&Measurement> for MeasurementEvidence {
    fn from(timed: &Measurement) -> MeasurementEvidence {
        MeasurementEvidence { flags: timed.flags.clone(), cost: Some(timed.cost()) }
    }
}

impl LabContext<'_> {
    /// Returns the environment and the folder for stores as owned values.
    pub fn measure_context(&self) -> MeasureContext {
        MeasureContext {
            env: self.env.clone(),
            stores: self.stores.to_path_buf(),
            shares_processors: self.shares_processors,
        }
    }

    /// Waits until the file system of the stores has written all dirty pages, if it supports that
    /// call. Otherwise the writes for the last subject's removed store would slow the next subject.
    /// Errors of those writes do not concern this run.
    pub fn settle(&self) {
        #[cfg(target_os = "linux")]
        if let Ok(folder) = std::fs::File::open(self.stores) {
            let _ = rustix::fs::syncfs(folder);
        }
    }

    /// Creates an empty folder of this name for a store; it is removed when the value is dropped.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn folder(&self, name: &str) -> Result<TemporaryDirectory> {
        TemporaryDirectory::new(self.stores, name)
    }
}

/// Folder of a store, removed with its contents on drop.
#[derive(Debug)]
pub struct TemporaryDirectory(PathBuf);

impl TemporaryDirectory {
    /// Creates the folder, empty.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn new(stores: &Path, name: &str) -> Result<TemporaryDirectory> {
        let path = stores.join(name);
        let refused = |doing: &'static str| {
            let name = path.display().to_string();
            move |error| format!("could not {doing} {name}: {error}")
        };
        remove(&path).map_err(refused("remove"))?;
        std::fs::create_dir_all(&path).map_err(refused("create"))?;
        Ok(TemporaryDirectory(path))
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Opens a store of an engine in the folder.
    ///
    /// # Errors
    /// The error of the engine.
    pub fn open(&self, engine: &Engine, settings: &EngineSettings) -> Result<Box<dyn Store>> {
        let named = |error| format!("{}: {error}", engine.name);
        (engine.open)(&self.0, settings).map_err(|error| named(error).into())
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        // The next run removes leftovers.
        let _ = remove(&self.0);
    }
}

/// Removes a folder with its contents, if it exists.
pub(crate) fn remove(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
