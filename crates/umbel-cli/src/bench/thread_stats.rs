//! Counts of one thread in a benchmark, and of all threads together.
//!
//! The clock is read at the start, at the end and every 1000 operations or so. Only --histogram
//! reads it for each operation: a reading costs about as much as a fast get.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use umbel_env::Clock;

use super::bench_settings::Settings;
use super::histogram::{Histogram, Layout};
use super::run_header::timestamp;
use crate::bench::bench_flags::LineFormat;
use crate::io::output::note;

/// Number of operations between two checks of the clock, the stop flag and the progress counter.
const CHECK_INTERVAL: u64 = 1000;

/// Condition on which a benchmark stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopCondition {
    /// Stops when the counts of operations are reached.
    CountReached,
    /// Stops when the counts are reached, or after this time if that is sooner.
    CountOrTime(Duration),
    /// Stops after this time, regardless of the counts.
    TimeElapsed(Duration),
}

/// Kinds of operations, each with its own histogram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Operation {
    /// A get of one key.
    Read = 0,
    /// A put.
    Write = 1,
    /// A delete.
    Delete = 2,
    /// A seek, with the entries read after it.
    Seek = 3,
    /// A read, a change and a write.
    Update = 4,
    /// A checksum.
    Hash = 5,
}

/// Names as RocksDB prints them, in the order of [`Operation`].
const OPERATION_NAMES: [&str; 6] = ["read", "write", "delete", "seek", "update", "hash"];

/// The latencies of one kind of operation.
#[derive(Debug, Clone)]
pub struct OperationLatency {
    /// The kind's name.
    pub name: &'static str,
    /// Histogram in microseconds, in the buckets that are printed.
    pub micros: Histogram,
    /// Histogram in nanoseconds, for percentiles below a microsecond.
    pub nanos: Histogram,
}

/// State that the threads of a benchmark share.
#[derive(Debug, Default)]
pub struct SharedState {
    /// Set when every thread has to end.
    pub stop: AtomicBool,
    /// Number of finished operations, for the progress bar.
    pub done: AtomicU64,
    /// Number of counting threads that still run, without the extra background thread.
    pub running: AtomicU64,
}

/// One thread's counts.
pub struct ThreadStats<'a> {
    clock: &'a dyn Clock,
    shared: &'a SharedState,
    thread: usize,
    start: Duration,
    end: Duration,
    deadline: Option<Duration>,
    counts_limit: bool,
    /// Number of finished operations.
    pub done: u64,
    /// Bytes of keys and values that the operations read or wrote.
    pub bytes: u64,
    /// Number of gets that found their key.
    pub found: u64,
    /// Number of gets.
    pub lookup_count: u64,
    /// Text of the result line after the numbers.
    pub message: String,
    over: bool,
    next_check: u64,
    published: u64,
    latencies: Option<ThreadLatencies>,
    interval: Option<IntervalReport>,
}

struct ThreadLatencies {
    layout: Layout,
    last: Duration,
    kinds: [Option<Box<OperationLatency>>; OPERATION_NAMES.len()],
}

struct IntervalReport {
    operations: u64,
    time: Duration,
    next: u64,
    last: Duration,
    last_done: u64,
}

impl<'a> ThreadStats<'a> {
    /// Starts to count, and starts the clock.
    pub fn start(
        settings: &Settings,
        clock: &'a dyn Clock,
        shared: &'a SharedState,
        thread: usize,
        until: StopCondition,
    ) -> ThreadStats<'a> {
        let now = clock.now();
        let layout = match settings.format {
            LineFormat::Leveldb => Layout::Leveldb,
            LineFormat::Rocksdb => Layout::Rocksdb,
        };
        let (deadline, counts_limit) = match until {
            StopCondition::CountReached => (None, true),
            StopCondition::CountOrTime(time) => (Some(now + time), true),
            StopCondition::TimeElapsed(time) => (Some(now + time), false),
        };
        ThreadStats {
            clock,
            shared,
            thread,
            start: now,
            end: now,
            deadline,
            counts_limit,
            done: 0,
            bytes: 0,
            found: 0,
            lookup_count: 0,
            message: String::new(),
            over: false,
            next_check: CHECK_INTERVAL,
            published: 0,
            latencies: settings.histogram.then(|| ThreadLatencies {
                layout,
                last: now,
                kinds: Default::default(),
            }),
            interval: (settings.stats_interval > 0).then_some(IntervalReport {
                operations: settings.stats_interval,
                time: settings.stats_interval_time,
                next: settings.stats_interval,
                last: now,
                last_done: 0,
            }),
        }
    }

    /// Whether the thread should continue, given that the counts allow `limit` operations.
    #[inline]
    pub fn wants_more(&self, limit: u64) -> bool {
        !self.over && (self.done < limit || !self.counts_limit)
    }

    /// Counts operations that were done together.
    #[inline]
    pub fn count_operations(&mut self, operations: u64, kind: Operation) {
        self.done += operations;
        if self.latencies.is_some() {
            self.time(kind);
        }
        if self.done >= self.next_check {
            self.check();
        }
    }

    #[cold]
    fn check(&mut self) {
        self.next_check = self.done + CHECK_INTERVAL;
        self.shared.done.fetch_add(self.done - self.published, Ordering::Relaxed);
        self.published = self.done;
        self.over |= self.shared.stop.load(Ordering::Relaxed);
        if self.deadline.is_some_and(|deadline| self.clock.now() >= deadline) {
            self.over = true;
        }
        if self.interval.is_some() {
            self.report_interval();
        }
    }

    fn time(&mut self, kind: Operation) {
        let now = self.clock.now();
        let Some(latencies) = &mut self.latencies else { return };
        let took = now.saturating_sub(latencies.last);
        latencies.last = now;
        let layout = latencies.layout;
        let latency = latencies.kinds[kind as usize].get_or_insert_with(|| {
            Box::new(OperationLatency {
                name: OPERATION_NAMES[kind as usize],
                micros: Histogram::new(layout),
                nanos: Histogram::new(Layout::Rocksdb),
            })
        });
        let nanos = took.as_nanos() as f64;
        latency.micros.add(nanos / 1000.0);
        latency.nanos.add(nanos);
    }

    fn report_interval(&mut self) {
        let now = self.clock.now();
        let Some(interval) = &mut self.interval else { return };
        if self.done < interval.next || now.saturating_sub(interval.last) < interval.time {
            return;
        }
        let since = now.saturating_sub(interval.last).as_secs_f64().max(1e-9);
        let total = now.saturating_sub(self.start).as_secs_f64().max(1e-9);
        let operations = self.done - interval.last_done;
        note(&format!(
            "{} ... thread {}: ({operations},{}) ops and ({:.1},{:.1}) ops/second in \
             ({since:.6},{total:.6}) seconds",
            timestamp(self.clock.wall_micros() / 1_000_000),
            self.thread,
            self.done,
            operations as f64 / since,
            self.done as f64 / total
        ));
        interval.next = self.done + interval.operations;
        interval.last = now;
        interval.last_done = self.done;
    }

    /// Whether another thread failed, so that this thread must end.
    pub fn is_stopped(&self) -> bool {
        self.shared.stop.load(Ordering::Relaxed)
    }

    /// Whether any counting thread still runs, beside this background thread.
    pub fn others_running(&self) -> bool {
        self.shared.running.load(Ordering::Relaxed) > 0
    }

    /// Stops the thread's clock.
    pub fn stop(&mut self) {
        self.end = self.clock.now();
        self.shared.done.fetch_add(self.done - self.published, Ordering::Relaxed);
        self.published = self.done;
    }

    /// Adds this thread's counts to the totals of all threads.
    pub fn add_to(self, result: &mut BenchmarkTotals) {
        result.done += self.done;
        result.bytes += self.bytes;
        result.found += self.found;
        result.lookup_count += self.lookup_count;
        result.seconds += self.end.saturating_sub(self.start).as_secs_f64();
        result.start = result.start.min(self.start);
        result.end = result.end.max(self.end);
        if result.message.is_empty() {
            result.message = self.message;
        }
        let kinds = self.latencies.into_iter().flat_map(|latencies| latencies.kinds);
        for latency in kinds.flatten() {
            match result.latencies.iter_mut().find(|known| known.name == latency.name) {
                Some(known) => {
                    known.micros.merge(&latency.micros);
                    known.nanos.merge(&latency.nanos);
                }
                None => result.latencies.push(*latency),
            }
        }
    }
}

/// Counts of all threads of a benchmark.
#[derive(Debug, Clone)]
pub struct BenchmarkTotals {
    /// Number of operations.
    pub done: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
    /// Number of gets that found their key.
    pub found: u64,
    /// Number of gets.
    pub lookup_count: u64,
    /// Sum of the running times of all threads, in seconds.
    pub seconds: f64,
    /// Time at which the first thread started.
    pub start: Duration,
    /// Time at which the last thread ended.
    pub end: Duration,
    /// Text of the result line after the numbers.
    pub message: String,
    /// Histograms, if requested.
    pub latencies: Vec<OperationLatency>,
}

impl Default for BenchmarkTotals {
    fn default() -> BenchmarkTotals {
        BenchmarkTotals {
            done: 0,
            bytes: 0,
            found: 0,
            lookup_count: 0,
            seconds: 0.0,
            start: Duration::MAX,
            end: Duration::ZERO,
            message: String::new(),
            latencies: Vec::new(),
        }
    }
}

impl BenchmarkTotals {
    /// Seconds from the first thread's start to the last thread's end; never zero, so that rates
    /// can divide by it.
    pub fn elapsed(&self) -> f64 {
        self.end.saturating_sub(self.start).as_secs_f64().max(1e-9)
    }

    /// Number of operations, at least 1: a benchmark that counts no operations is one operation.
    pub fn operations(&self) -> u64 {
        self.done.max(1)
    }

    /// Microseconds of one thread's time for an operation.
    pub fn micros_per_operation(&self) -> f64 {
        self.seconds * 1e6 / self.operations() as f64
    }

    /// Operations of all threads per second of wall time.
    pub fn operations_per_second(&self) -> f64 {
        self.operations() as f64 / self.elapsed()
    }

    /// MiB per second of wall time; `None` if no bytes were counted.
    pub fn megabytes_per_second(&self) -> Option<f64> {
        (self.bytes > 0).then(|| self.bytes as f64 / 1_048_576.0 / self.elapsed())
    }
}
