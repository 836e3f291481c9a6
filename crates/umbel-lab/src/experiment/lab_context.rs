//! Where experiments take place: the world, the scale, the engines and the keys.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use umbel_env::Env;

use crate::engine::{Counters, Engine, Result, Settings, Store, Tally};
use crate::measure::{Sample, Stopwatch, measure_with, others_while_waiting};
use crate::outcome::{Cost, Scale};
use crate::recorder::Evidence;
use crate::sanity::{self, Circumstances, Expects, Moment};
use crate::user_data::UserData;

/// How long an engine that counts nothing is looked at, to see whether its threads rest.
const LOOK: Duration = Duration::from_millis(100);
/// The share of that which they may work.
const RESTING_SHARE: u32 = 20;
/// How often it is looked at most, before its reads are marked.
const LOOKS_MAX: u32 = 600;

/// What every experiment of a run shares.
#[derive(Debug, Clone, Copy)]
pub struct Lab<'a> {
    /// The world.
    pub env: &'a Env,
    /// How much is measured.
    pub scale: Scale,
    /// The engines that were asked for, at least one.
    pub engines: &'a [Engine],
    /// The folder in which stores are made.
    pub stores: &'a Path,
    /// The user's own keys and queries, where some were given.
    pub data: Option<&'a Arc<UserData>>,
}

/// The world and the folder for stores, to keep.
#[derive(Debug, Clone)]
pub struct Place {
    /// The world.
    pub env: Env,
    stores: PathBuf,
}

impl Place {
    /// An empty folder of this name for a store, which is removed when the value is dropped.
    ///
    /// # Errors
    /// What the operating system refused.
    pub fn folder(&self, name: &str) -> Result<Folder> {
        Folder::new(&self.stores, name)
    }

    /// Does some work on a store, and says what it took and what speaks against that.
    ///
    /// # Errors
    /// Those of the work.
    pub fn timed(
        &self,
        expects: Expects,
        store: &dyn Store,
        operations: u64,
        work: impl FnOnce() -> Result<Tally>,
    ) -> Result<Timed> {
        self.timed_with(expects, store, operations, |_| work())
    }

    /// As [`Place::timed`] for work that stops the clock while it makes what it works with.
    ///
    /// # Errors
    /// Those of the work.
    pub fn timed_with(
        &self,
        expects: Expects,
        store: &dyn Store,
        operations: u64,
        work: impl FnOnce(&Stopwatch) -> Result<Tally>,
    ) -> Result<Timed> {
        self.watched(expects, &|| store.counters(), operations, work)
    }

    /// Flushes a store, waits until it has nothing to do in the background, and does what else is
    /// to be done then. The time that was spent only to see that nothing happens is not in the
    /// sample. An engine that counts no jobs is believed once its threads rest; one whose threads
    /// do not is marked.
    ///
    /// # Errors
    /// Those of the store and of `last`.
    pub fn settled(&self, store: &dyn Store, last: impl FnOnce() -> Result<()>) -> Result<Timed> {
        let (mut watched, mut rests) = (Duration::ZERO, true);
        let mut settled = self.timed(Expects::WRITES, store, 1, || {
            store.flush()?;
            watched = store.wait()?;
            if store.counters().background_jobs.is_none() {
                rests = (0..LOOKS_MAX).any(|_| others_while_waiting(LOOK) < LOOK / RESTING_SHARE);
                watched += LOOK;
            }
            last()?;
            Ok(Tally::default())
        })?;
        if !rests {
            let seconds = (LOOK * LOOKS_MAX).as_secs();
            settled.flags.push(format!("its threads were at work {seconds} s after all was done"));
        }
        let wall_ns = &mut settled.sample.wall_ns;
        *wall_ns = wall_ns.saturating_sub(watched.as_nanos() as u64);
        Ok(settled)
    }

    /// As [`Place::timed`] for what is no [`Store`]: `counters` says what it has counted.
    ///
    /// # Errors
    /// Those of the work.
    pub fn watched(
        &self,
        expects: Expects,
        counters: &dyn Fn() -> Counters,
        operations: u64,
        work: impl FnOnce(&Stopwatch) -> Result<Tally>,
    ) -> Result<Timed> {
        let before = counters();
        let start = Moment::now(&*self.env.clock);
        let sample = measure_with(operations, work)?;
        let moments = [start, Moment::now(&*self.env.clock)];
        let after = counters();
        let seen = Circumstances {
            moments,
            counters: [before, after],
            operations,
            worked: Duration::from_nanos(sample.wall_ns),
            thread: Duration::from_nanos(sample.thread_ns),
            others: Duration::from_nanos(sample.process_ns.saturating_sub(sample.thread_ns)),
        };
        Ok(Timed { sample, before, after, flags: sanity::flags(expects, &seen) })
    }
}

/// What some work took.
#[derive(Debug, Clone)]
pub struct Timed {
    /// The times.
    pub sample: Sample,
    /// What the store had counted before.
    pub before: Counters,
    /// What it had counted after it.
    pub after: Counters,
    /// What speaks against the times.
    pub flags: Vec<String>,
}

impl Timed {
    /// How much a counter grew, for each operation; `None` where the engine does not count it.
    pub fn per_operation(&self, counter: fn(&Counters) -> Option<u64>) -> Option<f64> {
        let grown = counter(&self.after)?.saturating_sub(counter(&self.before)?);
        Some(grown as f64 / self.sample.operations.max(1) as f64)
    }

    /// What the work took.
    pub fn cost(&self) -> Cost {
        let Sample { operations, wall_ns, thread_ns, process_ns, .. } = self.sample;
        Cost { operations, wall_ns, thread_ns, process_ns }
    }

    /// This and what came next as one, counted in operations of this one.
    pub fn and_then(self, next: Timed) -> Timed {
        let flags = [self.flags, next.flags].concat();
        Timed { sample: self.sample.and_then(next.sample), after: next.after, flags, ..self }
    }
}

impl From<&Timed> for Evidence {
    fn from(timed: &Timed) -> Evidence {
        Evidence { flags: timed.flags.clone(), cost: Some(timed.cost()) }
    }
}

impl Lab<'_> {
    /// The world and the folder for stores, to keep.
    pub fn place(&self) -> Place {
        Place { env: self.env.clone(), stores: self.stores.to_path_buf() }
    }

    /// Waits until the file system that holds stores has written everything, where that can be
    /// asked: what it does for the removed store of whoever had his turn before is not to be waited
    /// for in the next one's time. What it could not write is none of this run's.
    pub fn settle(&self) {
        #[cfg(target_os = "linux")]
        if let Ok(folder) = std::fs::File::open(self.stores) {
            let _ = rustix::fs::syncfs(folder);
        }
    }

    /// An empty folder of this name for a store, which is removed when the value is dropped.
    ///
    /// # Errors
    /// What the operating system refused.
    pub fn folder(&self, name: &str) -> Result<Folder> {
        Folder::new(self.stores, name)
    }
}

/// A folder of a store that is removed with what is in it.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Makes it, empty.
    ///
    /// # Errors
    /// What the operating system refused.
    pub fn new(stores: &Path, name: &str) -> Result<Folder> {
        let path = stores.join(name);
        let refused = |doing: &'static str| {
            let name = path.display().to_string();
            move |error| format!("could not {doing} {name}: {error}")
        };
        remove(&path).map_err(refused("remove"))?;
        std::fs::create_dir_all(&path).map_err(refused("create"))?;
        Ok(Folder(path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Opens a store of an engine in it.
    ///
    /// # Errors
    /// What the engine says.
    pub fn open(&self, engine: &Engine, settings: &Settings) -> Result<Box<dyn Store>> {
        let named = |error| format!("{}: {error}", engine.name);
        (engine.open)(&self.0, settings).map_err(|error| named(error).into())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left is removed when the next run begins.
        let _ = remove(&self.0);
    }
}

/// Removes a folder with what is in it, where it is there.
pub(crate) fn remove(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
