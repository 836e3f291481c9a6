//! Runs one benchmark on its threads: all start together, a bar shows how far they are, the first
//! error stops them all.

use std::sync::atomic::Ordering;
use std::sync::{Barrier, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use umbel::{Db, Env, Error, Keyspace, Result};

use super::keys::Random;
use super::plan::{Step, Work};
use super::settings::Settings;
use super::tally::{Counted, Shared, Tally, Until};
use super::values::Pool;
use super::workload::Worker;
use crate::errors::{Failure, Outcome};
use crate::number::grouped;
use crate::output::note;
use crate::progress::{Progress, Unit};

/// How often the bar moves.
const REFRESH: Duration = Duration::from_millis(100);

/// Everything that threads need and that stays the same for all of them.
pub struct Crew<'a> {
    /// The flags.
    pub settings: &'a Settings,
    /// The world.
    pub env: &'a Env,
    /// The store.
    pub db: &'a Db,
    /// The keyspace.
    pub keyspace: &'a Keyspace,
    /// The values.
    pub pool: &'a Pool,
    /// Seed of this run's first thread; the next ones count up from it.
    pub seed: u64,
    /// What watches every look at the progress (the report file).
    pub on_progress: &'a mut dyn FnMut(u64),
}

impl Crew<'_> {
    /// Runs the step on its threads and adds up what they counted.
    pub fn run(&mut self, step: &Step) -> Outcome<Counted> {
        let beside = matches!(step.work, Work::ReadWhileWriting | Work::ReadWhileScanning);
        let counting = if is_single(step.work) { 1 } else { self.settings.threads };
        let threads = counting + usize::from(beside);
        let shared = Shared::default();
        shared.at_work.store(counting as u64, Ordering::Relaxed);
        let barrier = Barrier::new(threads);
        let finished = Finished::default();
        let (settings, db, keyspace) = (self.settings, self.db, self.keyspace);
        let (env, pool, seed) = (self.env, self.pool, self.seed);
        let mut progress = self.progress(step, counting);
        let (shared, barrier, finished) = (&shared, &barrier, &finished);
        thread::scope(|scope| {
            let start = |thread: usize| {
                scope.spawn(move || {
                    let _ending = Ending { shared, finished, counts: thread < counting };
                    let random = Random::new(seed.wrapping_add(thread as u64));
                    let values = pool.values(thread);
                    barrier.wait();
                    let clock = env.clock.as_ref();
                    let mut worker = Worker {
                        step,
                        settings,
                        db: db.clone(),
                        keyspace: keyspace.clone(),
                        beside: thread >= counting,
                        random,
                        values,
                        tally: Tally::start(settings, clock, shared, thread, step.until),
                    };
                    let outcome = worker.run();
                    worker.tally.stop();
                    if outcome.is_err() {
                        shared.stop.store(true, Ordering::Relaxed);
                    }
                    outcome.map(|()| worker.tally)
                })
            };
            let handles: Vec<_> = (0..threads).map(start).collect();
            while !finished.wait(threads, REFRESH) {
                let done = shared.done.load(Ordering::Relaxed);
                let seconds = progress.elapsed().as_secs_f64();
                progress.set(done, || {
                    format!("{} ops/s", grouped((done as f64 / seconds.max(1e-9)) as u64))
                });
                (self.on_progress)(done);
            }
            progress.finish();
            let tallies = handles.into_iter().map(|handle| handle.join());
            add_up(step, tallies.collect(), counting)
        })
    }

    fn progress(&self, step: &Step, threads: usize) -> Progress {
        let each = match step.work {
            Work::WriteRandom | Work::WriteSequential | Work::WriteUnique => {
                self.settings.writes.unwrap_or(step.num)
            }
            Work::DeleteRandom | Work::DeleteSequential => {
                self.settings.deletes.unwrap_or(step.num)
            }
            Work::Compact | Work::Flush | Work::Checksum => 0,
            _ => step.reads,
        };
        let known = each > 0 && !matches!(step.until, Until::Elapsed(_));
        let total = known.then(|| each.saturating_mul(threads as u64));
        Progress::new(step.name, Unit::Operations, total, &self.env.clock)
    }
}

/// Whether more threads would only do the same thing again.
fn is_single(work: Work) -> bool {
    matches!(work, Work::Compact | Work::Flush | Work::Checksum)
}

fn add_up(
    step: &Step,
    results: Vec<thread::Result<Result<Tally<'_>>>>,
    counting: usize,
) -> Outcome<Counted> {
    let mut counted = Counted::default();
    let mut errors: Vec<Error> = Vec::new();
    for (thread, result) in results.into_iter().enumerate() {
        match result {
            Ok(Ok(tally)) if thread < counting => tally.add_to(&mut counted),
            Ok(Ok(_)) => {}
            Ok(Err(error)) => errors.push(error),
            Err(_) => {
                return Err(Failure::System(format!(
                    "a thread of {} ended by a panic, which is a defect of this program; please \
                     report it with the text above",
                    step.name
                )));
            }
        }
    }
    match errors.into_iter().next() {
        Some(error) => Err(Failure::from(error).after(step.name)),
        None => Ok(counted),
    }
}

/// Says that a thread ended, also where it panicked.
struct Ending<'a> {
    shared: &'a Shared,
    finished: &'a Finished,
    counts: bool,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        if self.counts {
            self.shared.at_work.fetch_sub(1, Ordering::Relaxed);
        }
        if thread::panicking() {
            self.shared.stop.store(true, Ordering::Relaxed);
            note("umbel: a thread of the benchmark panicked");
        }
        self.finished.add();
    }
}

/// How many threads ended.
#[derive(Default)]
struct Finished {
    count: Mutex<usize>,
    changed: Condvar,
}

impl Finished {
    fn add(&self) {
        // A count is right whatever the thread that held the lock did.
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.changed.notify_all();
    }

    /// Waits until all ended, but no longer than `time`; whether all ended.
    fn wait(&self, all: usize, time: Duration) -> bool {
        let count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(count, time, |count| *count < all);
        let (count, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *count >= all
    }
}
