//! Runs one benchmark on its threads: all threads start together, a bar shows their progress, and
//! the first error stops all of them.

use std::sync::atomic::Ordering;
use std::sync::{Barrier, Condvar, Mutex};
use std::thread;
use std::time::Duration;
use umbel_base::ignore_poison::IgnorePoison;

use umbel::{Db, Env, Error, Keyspace, Result};

use super::bench_settings::Settings;
use super::workload::Worker;
use crate::bench::benchmark_plan::{BenchmarkKind, BenchmarkStep};
use crate::bench::key_generator::Random;
use crate::bench::thread_stats::{BenchmarkTotals, SharedState, StopCondition, ThreadStats};
use crate::bench::value_generator::ValuePool;
use crate::errors::{CommandError, CommandResult};
use crate::io::output::note;
use crate::io::progress::{Progress, Unit};
use crate::text::numbers::grouped;

/// Interval between updates of the progress bar.
const REFRESH: Duration = Duration::from_millis(100);

/// State that all threads of a benchmark use and none changes.
pub struct WorkerPool<'a> {
    /// Settings of the run.
    pub settings: &'a Settings,
    /// Environment with clock and file system.
    pub env: &'a Env,
    /// The store.
    pub db: &'a Db,
    /// The keyspace.
    pub keyspace: &'a Keyspace,
    /// The values.
    pub pool: &'a ValuePool,
    /// Random seed of the first thread; each next thread's seed is one higher.
    pub seed: u64,
    /// Observer of the progress (the report file).
    pub on_progress: &'a mut dyn FnMut(u64),
}

impl WorkerPool<'_> {
    /// Runs the step on its threads and adds up their counts.
    pub fn run(&mut self, step: &BenchmarkStep) -> CommandResult<BenchmarkTotals> {
        let beside =
            matches!(step.kind, BenchmarkKind::ReadWhileWriting | BenchmarkKind::ReadWhileScanning);
        let counting = if is_single(step.kind) { 1 } else { self.settings.threads };
        let threads = counting + usize::from(beside);
        let shared = SharedState::default();
        shared.running.store(counting as u64, Ordering::Relaxed);
        let barrier = Barrier::new(threads);
        let finished = CompletionCounter::default();
        let (settings, db, keyspace) = (self.settings, self.db, self.keyspace);
        let (env, pool, seed) = (self.env, self.pool, self.seed);
        let mut progress = self.progress(step, counting);
        let (shared, barrier, finished) = (&shared, &barrier, &finished);
        thread::scope(|scope| {
            let start = |thread: usize| {
                scope.spawn(move || {
                    let _ending = CompletionGuard { shared, finished, counts: thread < counting };
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
                        tally: ThreadStats::start(
                            settings,
                            clock,
                            shared,
                            thread,
                            step.stop_condition,
                        ),
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
            merge_totals(step, tallies.collect(), counting)
        })
    }

    fn progress(&self, step: &BenchmarkStep, threads: usize) -> Progress {
        let each = match step.kind {
            BenchmarkKind::WriteRandom
            | BenchmarkKind::WriteSequential
            | BenchmarkKind::WriteUnique => self.settings.writes.unwrap_or(step.num),
            BenchmarkKind::DeleteRandom
            | BenchmarkKind::DeleteSequential
            | BenchmarkKind::DeleteRanges
            | BenchmarkKind::DeleteNestedRanges
            | BenchmarkKind::Queue => self.settings.deletes.unwrap_or(step.num),
            BenchmarkKind::Compact | BenchmarkKind::Flush | BenchmarkKind::Checksum => 0,
            _ => step.reads,
        };
        let known = each > 0 && !matches!(step.stop_condition, StopCondition::TimeElapsed(_));
        let total = known.then(|| each.saturating_mul(threads as u64));
        Progress::new(step.name, Unit::Operations, total, &self.env.clock)
    }
}

/// Whether the benchmark runs on a single thread, because more threads would only repeat its work.
fn is_single(work: BenchmarkKind) -> bool {
    matches!(
        work,
        BenchmarkKind::Compact
            | BenchmarkKind::Flush
            | BenchmarkKind::Checksum
            | BenchmarkKind::DeleteNestedRanges
            | BenchmarkKind::Queue
    )
}

fn merge_totals(
    step: &BenchmarkStep,
    results: Vec<thread::Result<Result<ThreadStats<'_>>>>,
    counting: usize,
) -> CommandResult<BenchmarkTotals> {
    let mut counted = BenchmarkTotals::default();
    let mut errors: Vec<Error> = Vec::new();
    for (thread, result) in results.into_iter().enumerate() {
        match result {
            Ok(Ok(tally)) if thread < counting => tally.add_to(&mut counted),
            Ok(Ok(_)) => {}
            Ok(Err(error)) => errors.push(error),
            Err(_) => {
                return Err(CommandError::System(format!(
                    "a thread of {} ended by a panic, which is a defect of this program; please \
                     report it with the text above",
                    step.name
                )));
            }
        }
    }
    match errors.into_iter().next() {
        Some(error) => Err(CommandError::from(error).with_prefix(step.name)),
        None => Ok(counted),
    }
}

/// Reports the end of a thread, even if the thread panicked.
struct CompletionGuard<'a> {
    shared: &'a SharedState,
    finished: &'a CompletionCounter,
    counts: bool,
}

impl Drop for CompletionGuard<'_> {
    fn drop(&mut self) {
        if self.counts {
            self.shared.running.fetch_sub(1, Ordering::Relaxed);
        }
        if thread::panicking() {
            self.shared.stop.store(true, Ordering::Relaxed);
            note("umbel: a thread of the benchmark panicked");
        }
        self.finished.add();
    }
}

/// Counter of the threads that ended.
#[derive(Default)]
struct CompletionCounter {
    count: Mutex<usize>,
    changed: Condvar,
}

impl CompletionCounter {
    fn add(&self) {
        // A count is right whatever the thread that held the lock did.
        *self.count.lock().ignore_poison() += 1;
        self.changed.notify_all();
    }

    /// Waits until all threads have ended, at most for `time`. Returns whether all have ended.
    fn wait(&self, all: usize, time: Duration) -> bool {
        let count = self.count.lock().ignore_poison();
        let waited = self.changed.wait_timeout_while(count, time, |count| *count < all);
        let (count, _) = waited.ignore_poison();
        *count >= all
    }
}
