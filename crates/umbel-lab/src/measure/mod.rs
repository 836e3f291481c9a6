//! One repetition of one piece of work: wall time, processor time, bytes written.

use std::cell::Cell;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::engine::{ReadDigest, Result};
use crate::measure::latency::Latency;

pub mod disk_usage;
pub mod latency;
pub mod machine;
pub mod page_cache;
pub mod sanity_checks;

/// Cost of a repetition.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sample {
    /// Number of operations.
    pub operations: u64,
    /// Wall time.
    pub wall_ns: u64,
    /// Processor time of the calling thread.
    pub thread_ns: u64,
    /// Processor time of all threads, including those of other open stores.
    pub process_ns: u64,
    /// Bytes written to the file system, by the kernel's count of dirtied pages.
    pub written_bytes: Option<u64>,
    /// Bytes written to the device meanwhile by all processes, if that was measured.
    pub device_bytes: Option<u64>,
    /// Times of single calls, if each was timed.
    pub latency: Option<Latency>,
    /// Writes per second of the concurrent writer, if there was one.
    pub writes_per_second: Option<f64>,
    /// Digest of the values that were read.
    pub tally: ReadDigest,
}

impl Sample {
    /// Wall time of one operation.
    pub fn wall(&self) -> f64 {
        self.wall_ns as f64 / self.operations.max(1) as f64
    }

    /// Combines `self` and the next sample into one, whose number of operations is that of `self`.
    pub fn and_then(self, next: Sample) -> Sample {
        let sum = |a: Option<u64>, b: Option<u64>| a.zip(b).map(|(a, b)| a + b);
        Sample {
            wall_ns: self.wall_ns + next.wall_ns,
            thread_ns: self.thread_ns + next.thread_ns,
            process_ns: self.process_ns + next.process_ns,
            written_bytes: sum(self.written_bytes, next.written_bytes),
            device_bytes: sum(self.device_bytes, next.device_bytes),
            ..self
        }
    }

    /// Operations per second of wall time.
    pub fn rate(&self) -> f64 {
        1e9 / self.wall().max(f64::MIN_POSITIVE)
    }

    /// Processor time of one operation in the calling thread.
    pub fn thread(&self) -> f64 {
        self.thread_ns as f64 / self.operations.max(1) as f64
    }
}

/// Returns the present moment.
#[expect(clippy::disallowed_methods, reason = "the harness measures the real clock")]
pub fn now() -> Instant {
    Instant::now()
}

/// Sleeps.
#[expect(clippy::disallowed_methods, reason = "engines without counters are observed")]
pub fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// The clocks of a measurement, which the measured work can stop while it prepares its input.
#[derive(Debug, Default)]
pub struct Stopwatch {
    /// Excluded time in nanoseconds: wall time and processor time.
    excluded_ns: Cell<(u64, u64)>,
}

impl Stopwatch {
    /// Runs work that is not measured, in the measured thread. Other threads continue, and their
    /// processor time stays in the sample.
    pub fn untimed<T>(&self, work: impl FnOnce() -> T) -> T {
        let start = now();
        let thread = processor_ns(ClockId::ThreadCPUTime);
        let made = work();
        let (wall_ns, thread_ns) = self.excluded_ns.get();
        let thread_ns = thread_ns + processor_ns(ClockId::ThreadCPUTime) - thread;
        self.excluded_ns.set((wall_ns + start.elapsed().as_nanos() as u64, thread_ns));
        made
    }
}

/// Runs some work and returns the work's cost.
pub fn measure(operations: u64, work: impl FnOnce() -> Result<ReadDigest>) -> Result<Sample> {
    measure_with(operations, |_| work())
}

/// Runs some work and returns the work's cost without its [untimed](Stopwatch::untimed) parts.
pub fn measure_with(
    operations: u64,
    work: impl FnOnce(&Stopwatch) -> Result<ReadDigest>,
) -> Result<Sample> {
    let watch = Stopwatch::default();
    let written = written_bytes();
    let process = processor_ns(ClockId::ProcessCPUTime);
    let thread = processor_ns(ClockId::ThreadCPUTime);
    let start = now();
    let tally = work(&watch)?;
    let wall_ns = start.elapsed().as_nanos() as u64;
    let thread_ns = processor_ns(ClockId::ThreadCPUTime) - thread;
    let process_ns = processor_ns(ClockId::ProcessCPUTime) - process;
    let (untimed_wall_ns, untimed_thread_ns) = watch.excluded_ns.get();
    Ok(Sample {
        operations,
        wall_ns: wall_ns.saturating_sub(untimed_wall_ns),
        thread_ns: thread_ns.saturating_sub(untimed_thread_ns),
        process_ns: process_ns.saturating_sub(untimed_thread_ns),
        written_bytes: written_bytes().zip(written).map(|(after, before)| after - before),
        tally,
        ..Sample::default()
    })
}

/// Sleeps, and returns the processor time of the program's other threads meanwhile.
pub fn others_while_waiting(time: Duration) -> Duration {
    let others = || {
        processor_ns(ClockId::ProcessCPUTime).saturating_sub(processor_ns(ClockId::ThreadCPUTime))
    };
    let before = others();
    pause(time);
    Duration::from_nanos(others().saturating_sub(before))
}

fn processor_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Returns the kernel's count of bytes that this process has written so far.
pub fn written_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/io").ok()?;
    text.lines().find_map(|line| line.strip_prefix("write_bytes: "))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keeps this thread's processor busy, and returns the time that passed.
    fn spin(time: Duration) -> Duration {
        let start = now();
        while start.elapsed() < time {
            std::hint::spin_loop();
        }
        start.elapsed()
    }

    /// Every bound is a time that was measured around or inside the measurement, so that it holds
    /// at any speed.
    #[test]
    fn untimed_work_is_excluded_from_the_time() {
        let time = Duration::from_millis(5);
        let thread_time = || processor_ns(ClockId::ThreadCPUTime);
        let (mut worked, mut left_out, mut thread_left_out) = (Duration::ZERO, Duration::ZERO, 0);
        let (start, thread_start) = (now(), thread_time());
        let sample = measure_with(1, |watch| {
            for _ in 0..2 {
                worked += spin(time);
                watch.untimed(|| {
                    let thread_start = thread_time();
                    left_out += spin(4 * time);
                    thread_left_out += thread_time() - thread_start;
                });
            }
            Ok(ReadDigest::default())
        })
        .expect("a sample");
        let (whole, thread_whole) = (start.elapsed(), thread_time() - thread_start);
        let wall = Duration::from_nanos(sample.wall_ns);
        assert!(wall >= worked && wall <= whole - left_out, "{sample:?}, {whole:?}, {left_out:?}");
        let thread_max = thread_whole - thread_left_out;
        assert!(sample.thread_ns <= thread_max, "{sample:?}, at most {thread_max} ns");
        let mut worked = Duration::ZERO;
        let timed = measure(1, || {
            worked = spin(time);
            Ok(ReadDigest::default())
        });
        assert!(Duration::from_nanos(timed.expect("a sample").wall_ns) >= worked);
    }
}
