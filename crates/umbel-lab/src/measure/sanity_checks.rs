//! What speaks against a measurement: it is marked with it and never counted.

use std::time::Duration;

use umbel_env::Clock;

use crate::engine::Counters;

/// How far the clock on the wall may drift from the one that never jumps, at least.
const DRIFT: Duration = Duration::from_millis(20);
/// The share of loaded blocks among the reads of a warm cache.
const COLD_SHARE: f64 = 0.001;
/// The share of its time that a thread must have had the processor.
const BUSY_SHARE: f64 = 0.75;
/// The share of a processor that other threads of the program may have beside reads.
const OTHERS_SHARE: f64 = 0.25;
/// Below this the kernel's account of processor time is too coarse to say anything.
const SHORTEST: Duration = Duration::from_millis(5);

/// What a measurement must be to count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expects {
    /// Everything that is read lies in the cache.
    pub warm: bool,
    /// Nothing is flushed or compacted meanwhile.
    pub settled: bool,
    /// The thread never waits for a device.
    pub busy: bool,
}

impl Expects {
    /// Reads from memory.
    pub const READS: Expects = Expects { warm: true, settled: true, busy: true };
    /// Reads from a device.
    pub const COLD_READS: Expects = Expects { warm: false, settled: true, busy: false };
    /// Anything, as long as the clock is right.
    pub const WRITES: Expects = Expects { warm: false, settled: false, busy: false };
}

/// The clocks, read together.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    steady: Duration,
    wall_micros: u64,
}

impl Moment {
    /// Reads them.
    pub fn now(clock: &dyn Clock) -> Moment {
        Moment { steady: clock.now(), wall_micros: clock.wall_micros() }
    }
}

/// What is known about a measurement besides its result.
#[derive(Debug, Clone, Copy)]
pub struct Circumstances {
    /// When it began and ended.
    pub moments: [Moment; 2],
    /// What the store had counted before and after.
    pub counters: [Counters; 2],
    /// How many operations it was.
    pub operations: u64,
    /// How long the work took, without what was made meanwhile.
    pub worked: Duration,
    /// Processor time of the thread.
    pub thread: Duration,
    /// Processor time of all other threads of the program.
    pub others: Duration,
}

/// What speaks against a measurement, a sentence for each reason.
pub fn flags(expects: Expects, seen: &Circumstances) -> Vec<String> {
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
    let is_long = seen.worked > SHORTEST;
    if expects.busy && is_long && share(seen.thread) < BUSY_SHARE {
        let percent = share(seen.thread) * 100.0;
        flags.push(format!("the thread had the processor {percent:.0} % of the time"));
    }
    if expects.settled && is_long && share(seen.others) > OTHERS_SHARE {
        let percent = share(seen.others) * 100.0;
        flags.push(format!("other threads of the program had {percent:.0} % of a processor"));
    }
    flags
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(micros: u64, wall_micros: u64) -> Moment {
        Moment { steady: Duration::from_micros(micros), wall_micros }
    }

    fn good() -> Circumstances {
        let counted = Counters {
            blocks_loaded: Some(1_000),
            background_jobs: Some(3),
            ..Counters::default()
        };
        Circumstances {
            moments: [moment(0, 5_000_000), moment(100_000, 5_100_300)],
            counters: [counted; 2],
            operations: 100_000,
            worked: Duration::from_millis(100),
            thread: Duration::from_millis(99),
            others: Duration::from_millis(2),
        }
    }

    #[test]
    fn nothing_speaks_against_a_quiet_measurement() {
        assert_eq!(flags(Expects::READS, &good()), Vec::<String>::new());
    }

    #[test]
    fn a_clock_that_jumps_is_seen_in_both_directions() {
        for wall in [6_100_000, 4_000_000] {
            let mut seen = good();
            seen.moments[1].wall_micros = wall;
            let flags = flags(Expects::WRITES, &seen);
            assert!(flags.len() == 1 && flags[0].contains("clock jumped"), "{flags:?}");
        }
    }

    #[test]
    fn a_cold_cache_speaks_against_warm_reads_only() {
        let mut seen = good();
        seen.counters[1].blocks_loaded = Some(2_000);
        assert!(flags(Expects::READS, &seen)[0].contains("1000 blocks"));
        assert!(flags(Expects::COLD_READS, &seen).is_empty());
        seen.counters[1].blocks_loaded = Some(1_050);
        assert!(flags(Expects::READS, &seen).is_empty());
    }

    #[test]
    fn work_in_the_background_speaks_against_reads_only() {
        let mut seen = good();
        seen.counters[1].background_jobs = Some(4);
        assert!(flags(Expects::READS, &seen)[0].contains("1 flushes or compactions"));
        assert!(flags(Expects::WRITES, &seen).is_empty());
    }

    #[test]
    fn a_thread_that_had_to_wait_is_seen() {
        let seen = Circumstances { thread: Duration::from_millis(60), ..good() };
        assert!(flags(Expects::READS, &seen)[0].contains("60 %"));
        assert!(flags(Expects::COLD_READS, &seen).is_empty());
    }

    #[test]
    fn keys_made_meanwhile_are_no_time_that_the_thread_waited() {
        let (worked, thread) = (Duration::from_millis(50), Duration::from_millis(49));
        let seen = Circumstances { worked, thread, ..good() };
        assert!(flags(Expects::READS, &seen).is_empty());
    }

    /// The story: sled, SurrealKV, LMDB and redb count no jobs, so that a merge in one of their
    /// threads went on beside reads and nobody saw it.
    #[test]
    fn an_engine_that_counts_nothing_is_watched_by_its_files_and_its_threads() {
        let uncounted = |files| Counters { files: Some(files), ..Counters::default() };
        let seen = Circumstances { counters: [uncounted(1), uncounted(2)], ..good() };
        assert!(flags(Expects::READS, &seen)[0].contains("files of the store changed"));
        assert!(flags(Expects::WRITES, &seen).is_empty());
        let counters = [uncounted(1); 2];
        assert!(flags(Expects::READS, &Circumstances { counters, ..good() }).is_empty());
        let others = Duration::from_millis(40);
        let seen = Circumstances { counters, others, ..good() };
        assert!(flags(Expects::READS, &seen)[0].contains("40 % of a processor"));
        assert!(flags(Expects::WRITES, &seen).is_empty());
    }
}
