//! Sanity checks of a measurement: a failed check flags it, and flagged measurements never count.

use std::time::Duration;

use umbel_env::Clock;

use crate::engine::Counters;

/// Largest drift of the wall clock from the monotonic clock.
const DRIFT: Duration = Duration::from_millis(20);
/// Largest share of loaded blocks among the reads of a warm cache.
const COLD_SHARE: f64 = 0.001;
/// Smallest share of its time that a thread must have had the processor.
const BUSY_SHARE: f64 = 0.75;
/// Largest share of a processor that other threads of the program may have during reads.
const OTHERS_SHARE: f64 = 0.25;
/// Duration of a measurement below which the kernel's processor times are too coarse for a check.
const SHORTEST: Duration = Duration::from_millis(5);

/// Conditions that a measurement must meet to count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expectations {
    /// All blocks that the measurement reads are in the cache.
    pub warm: bool,
    /// No flush or compaction runs during the measurement.
    pub settled: bool,
    /// The measuring thread never waits for a device.
    pub busy: bool,
}

impl Expectations {
    /// Reads from memory.
    pub const READS: Expectations = Expectations { warm: true, settled: true, busy: true };
    /// Reads from a device.
    pub const COLD_READS: Expectations = Expectations { warm: false, settled: true, busy: false };
    /// Work of any kind, for which only the clocks are checked.
    pub const WRITES: Expectations = Expectations { warm: false, settled: false, busy: false };
}

/// Readings of the two clocks at one moment.
#[derive(Debug, Clone, Copy)]
pub struct ClockReading {
    steady: Duration,
    wall_micros: u64,
}

impl ClockReading {
    /// Reads both clocks.
    pub fn now(clock: &dyn Clock) -> ClockReading {
        ClockReading { steady: clock.now(), wall_micros: clock.wall_micros() }
    }
}

/// Observations about a measurement besides its result.
#[derive(Debug, Clone, Copy)]
pub struct Conditions {
    /// Clocks at its beginning and end.
    pub moments: [ClockReading; 2],
    /// Counters of the store before and after.
    pub counters: [Counters; 2],
    /// Number of operations.
    pub operations: u64,
    /// Duration of the work, without the untimed parts.
    pub worked: Duration,
    /// Processor time of the thread.
    pub thread: Duration,
    /// Processor time of all other threads of the program.
    pub others: Duration,
    /// Whether other work of the program may run beside the measurement, so that no share of a
    /// processor flags it.
    pub shares_processors: bool,
}

/// Returns the reasons not to trust a measurement, one sentence each.
pub fn flags(expects: Expectations, seen: &Conditions) -> Vec<String> {
    let mut flags = Vec::new();
    let [start, end] = seen.moments;
    let steady = end.steady.saturating_sub(start.steady);
    let wall = end.wall_micros as f64 - start.wall_micros as f64;
    let drift = wall / 1e6 - steady.as_secs_f64();
    if drift.abs() > DRIFT.as_secs_f64().max(steady.as_secs_f64() / 100.0) {
        flags.push(format!("the clock jumped by {:.3} s", drift));
    }
    let [before, after] = seen.counters;
    let grown = |count: fn(&Counters) -> Option<u64>| {
        count(&after).zip(count(&before)).map_or(0, |(after, before)| after.saturating_sub(before))
    };
    let loaded = grown(|counters| counters.blocks_loaded);
    if expects.warm && loaded as f64 > (seen.operations as f64 * COLD_SHARE).max(1.0) {
        flags.push(format!("the cache was not warm: {loaded} blocks had to be loaded"));
    }
    let jobs = grown(|counters| counters.background_jobs);
    if expects.settled && jobs > 0 {
        flags.push(format!("{jobs} flushes or compactions went on beside it"));
    }
    if expects.settled && before.files != after.files {
        flags.push("files of the store changed beside it".to_string());
    }
    let share =
        |time: Duration| time.as_secs_f64() / seen.worked.as_secs_f64().max(f64::MIN_POSITIVE);
    let has_shares = seen.worked > SHORTEST && !seen.shares_processors;
    if expects.busy && has_shares && share(seen.thread) < BUSY_SHARE {
        let percent = share(seen.thread) * 100.0;
        flags.push(format!("the thread had the processor {percent:.0} % of the time"));
    }
    if expects.settled && has_shares && share(seen.others) > OTHERS_SHARE {
        let percent = share(seen.others) * 100.0;
        flags.push(format!("other threads of the program had {percent:.0} % of a processor"));
    }
    flags
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(micros: u64, wall_micros: u64) -> ClockReading {
        ClockReading { steady: Duration::from_micros(micros), wall_micros }
    }

    fn good() -> Conditions {
        let counted = Counters {
            blocks_loaded: Some(1_000),
            background_jobs: Some(3),
            ..Counters::default()
        };
        Conditions {
            moments: [moment(0, 5_000_000), moment(100_000, 5_100_300)],
            counters: [counted; 2],
            operations: 100_000,
            worked: Duration::from_millis(100),
            thread: Duration::from_millis(99),
            others: Duration::from_millis(2),
            shares_processors: false,
        }
    }

    #[test]
    fn quiet_measurement_is_not_flagged() {
        assert_eq!(flags(Expectations::READS, &good()), Vec::<String>::new());
    }

    #[test]
    fn clock_jump_is_flagged_in_both_directions() {
        for wall in [6_100_000, 4_000_000] {
            let mut seen = good();
            seen.moments[1].wall_micros = wall;
            let flags = flags(Expectations::WRITES, &seen);
            assert!(flags.len() == 1 && flags[0].contains("clock jumped"), "{flags:?}");
        }
    }

    #[test]
    fn cold_cache_flags_warm_reads_only() {
        let mut seen = good();
        seen.counters[1].blocks_loaded = Some(2_000);
        assert!(flags(Expectations::READS, &seen)[0].contains("1000 blocks"));
        assert!(flags(Expectations::COLD_READS, &seen).is_empty());
        seen.counters[1].blocks_loaded = Some(1_050);
        assert!(flags(Expectations::READS, &seen).is_empty());
    }

    #[test]
    fn background_work_flags_reads_only() {
        let mut seen = good();
        seen.counters[1].background_jobs = Some(4);
        assert!(flags(Expectations::READS, &seen)[0].contains("1 flushes or compactions"));
        assert!(flags(Expectations::WRITES, &seen).is_empty());
    }

    #[test]
    fn descheduled_thread_is_flagged() {
        let seen = Conditions { thread: Duration::from_millis(60), ..good() };
        assert!(flags(Expectations::READS, &seen)[0].contains("60 %"));
        assert!(flags(Expectations::COLD_READS, &seen).is_empty());
    }

    #[test]
    fn other_work_of_a_program_that_shares_processors_flags_nothing() {
        let (thread, others) = (Duration::from_millis(60), Duration::from_millis(40));
        let seen = Conditions { thread, others, ..good() };
        assert_eq!(flags(Expectations::READS, &seen).len(), 2);
        let mut seen = Conditions { shares_processors: true, ..seen };
        assert!(flags(Expectations::READS, &seen).is_empty());
        // All other checks remain.
        seen.counters[1].background_jobs = Some(4);
        assert_eq!(flags(Expectations::READS, &seen).len(), 1);
    }

    #[test]
    fn key_generation_time_is_not_wait_time() {
        let (worked, thread) = (Duration::from_millis(50), Duration::from_millis(49));
        let seen = Conditions { worked, thread, ..good() };
        assert!(flags(Expectations::READS, &seen).is_empty());
    }

    /// Story: sled, SurrealKV, LMDB and redb count no jobs, so a merge in one of their threads
    /// during reads went unnoticed.
    #[test]
    fn engine_without_counters_is_judged_by_files_and_threads() {
        let uncounted = |files| Counters { files: Some(files), ..Counters::default() };
        let seen = Conditions { counters: [uncounted(1), uncounted(2)], ..good() };
        assert!(flags(Expectations::READS, &seen)[0].contains("files of the store changed"));
        assert!(flags(Expectations::WRITES, &seen).is_empty());
        let counters = [uncounted(1); 2];
        assert!(flags(Expectations::READS, &Conditions { counters, ..good() }).is_empty());
        let others = Duration::from_millis(40);
        let seen = Conditions { counters, others, ..good() };
        assert!(flags(Expectations::READS, &seen)[0].contains("40 % of a processor"));
        assert!(flags(Expectations::WRITES, &seen).is_empty());
    }
}
