//! Whether the server held no more at the end than when it had settled.
//!
//! The first sixth of the soak is for filling caches and memtables, so the second one is what the
//! last one is compared with. Medians, because memory comes and goes with compactions.

use super::watch::Vitals;

/// Parts that the samples are divided into.
pub const PARTS: usize = 6;
/// The part that the last one is compared with.
const SETTLED: usize = 1;
/// How much of it the last one may be,
const FACTOR: f64 = 1.1;
/// and how many bytes, descriptors and threads more.
const MEMORY_MORE: f64 = (32 << 20) as f64;
const DESCRIPTORS_MORE: f64 = 16.0;
/// The event log keeps the files of so many chunks open, which takes hours to come to.
const FILES_MORE: f64 = 128.0;
const THREADS_MORE: f64 = 4.0;
/// Threads that read the stores are made while others are late, up to 32, and stay while there is
/// work: on a machine that does other things it may take half an hour until there are so many.
const THREADS_BOUND: f64 = 44.0;

/// What was seen at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// Seconds since the soak began.
    pub seconds: f64,
    /// Events that were acknowledged until then.
    pub events: u64,
    /// Bytes of the server's folder.
    pub disk: u64,
    /// Bytes that its index said it held; 0 where it did not say.
    pub index: u64,
    /// What the server's process held.
    pub vitals: Vitals,
}

/// One thing that must hold.
#[derive(Debug, Clone, PartialEq)]
pub struct Check {
    /// What was looked at.
    pub what: &'static str,
    /// Its median in the second sixth,
    pub settled: f64,
    /// and in the last.
    pub last: f64,
    /// The most that the last may be.
    pub most: f64,
    /// Whether it is.
    pub holds: bool,
}

/// What is looked at, and in which figure of a sample it stands.
type Figure = fn(&Vitals) -> u64;

/// The checks, in the order of the report. None holds with fewer samples than parts: nothing is
/// known then.
pub fn judge(samples: &[Sample]) -> Vec<Check> {
    let checks: [(&'static str, Figure, f64, f64, f64); 5] = [
        ("anonymous memory, bytes", |vitals| vitals.anonymous, FACTOR, MEMORY_MORE, 0.0),
        ("sockets", |vitals| vitals.sockets, FACTOR, DESCRIPTORS_MORE, 0.0),
        ("files", |vitals| vitals.files, FACTOR, FILES_MORE, 0.0),
        ("other descriptors", |vitals| vitals.others, FACTOR, DESCRIPTORS_MORE, 0.0),
        ("threads", |vitals| vitals.threads, 1.0, THREADS_MORE, THREADS_BOUND),
    ];
    let check = |(what, figure, factor, more, bound): (&'static str, Figure, f64, f64, f64)| {
        let of = |part| median(part_of(samples, part).iter().map(|sample| figure(&sample.vitals)));
        let (settled, last) = (of(SETTLED), of(PARTS - 1));
        let most = (settled.unwrap_or_default() * factor + more).max(bound);
        let holds = settled.is_some() && last.is_some_and(|last| last <= most);
        Check {
            what,
            settled: settled.unwrap_or_default(),
            last: last.unwrap_or_default(),
            most,
            holds,
        }
    };
    checks.map(check).to_vec()
}

/// The samples of one of [`PARTS`] parts, which differ by one in length at most.
pub fn part_of<T>(samples: &[T], part: usize) -> &[T] {
    let at = |part: usize| samples.len() * part / PARTS;
    &samples[at(part)..at(part + 1)]
}

/// The middle one; the lower of two.
pub fn median(figures: impl Iterator<Item = u64>) -> Option<f64> {
    let mut figures: Vec<u64> = figures.collect();
    figures.sort_unstable();
    let middle = figures.len().checked_sub(1)? / 2;
    figures.get(middle).map(|figure| *figure as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Samples with this memory and these sockets.
    fn samples(of: impl Fn(u64) -> (u64, u64)) -> Vec<Sample> {
        let sample = |at: u64| {
            let (anonymous, sockets) = of(at);
            let vitals = Vitals { anonymous, sockets, threads: 9, ..Vitals::default() };
            Sample {
                seconds: at as f64 * 10.0,
                events: at * 30_000,
                disk: at << 23,
                index: 0,
                vitals,
            }
        };
        (0..360).map(sample).collect()
    }

    fn broken(samples: &[Sample]) -> Vec<&'static str> {
        let checks = judge(samples).into_iter();
        checks.filter(|check| !check.holds).map(|check| check.what).collect()
    }

    #[test]
    fn what_is_flat_after_the_first_sixth_is_flat() {
        // It fills up first, and then comes and goes.
        let filling = |at: u64| ((at.min(60) * 5 + at % 7 * 10) * MIB, 100 + at % 5);
        assert_eq!(broken(&samples(filling)), Vec::<&str>::new());
    }

    #[test]
    fn a_leak_of_memory_is_noticed() {
        // 0.5 MiB a sample: 150 MiB between the middles of the second and the last sixth.
        assert_eq!(
            broken(&samples(|at| (200 * MIB + at * MIB / 2, 100))),
            ["anonymous memory, bytes"]
        );
        // Within a tenth and 32 MiB nobody can tell.
        assert_eq!(broken(&samples(|at| (200 * MIB + at * MIB / 10, 100))), Vec::<&str>::new());
    }

    /// Story: 35 threads became 41 beside builds and tests, of which 32 read the stores, and the
    /// soak was said to have failed.
    #[test]
    fn threads_may_come_up_to_those_that_there_are_at_most() {
        let with = |late: u64| {
            let mut samples = samples(|_| (200 * MIB, 100));
            for (at, sample) in samples.iter_mut().enumerate() {
                sample.vitals.threads = if at < 110 { 35 } else { late };
            }
            broken(&samples)
        };
        assert_eq!(with(41), Vec::<&str>::new());
        assert_eq!(with(45), ["threads"]);
    }

    #[test]
    fn the_bound_is_a_tenth_and_32_mib() {
        let step = |last: u64| samples(move |at| (if at < 300 { 100 * MIB } else { last }, 100));
        assert!(broken(&step(142 * MIB)).is_empty());
        assert_eq!(broken(&step(142 * MIB + 4096)), ["anonymous memory, bytes"]);
    }

    #[test]
    fn a_leak_of_sockets_is_noticed() {
        assert_eq!(broken(&samples(|at| (MIB, 100 + at / 5))), ["sockets"]);
    }

    #[test]
    fn open_files_may_become_as_many_as_the_log_keeps_and_no_more() {
        let with_files = |each: u64| {
            let mut samples = samples(|_| (MIB, 100));
            samples.iter_mut().enumerate().for_each(|(at, sample)| {
                sample.vitals.files = 20 + at as u64 / each;
            });
            samples
        };
        // In the first hour of a soak they went from 44 to 86 in the medians.
        assert_eq!(broken(&with_files(5)), Vec::<&str>::new());
        assert_eq!(broken(&with_files(1)), ["files"]);
    }

    #[test]
    fn a_moment_of_much_is_no_leak() {
        let peak = |at: u64| (if at % 50 == 3 { 900 * MIB } else { 100 * MIB }, 100);
        assert_eq!(broken(&samples(peak)), Vec::<&str>::new());
    }

    #[test]
    fn too_few_samples_prove_nothing() {
        assert_eq!(broken(&samples(|_| (MIB, 1))[..3]).len(), 5);
        assert!(broken(&samples(|_| (MIB, 1))[..6]).is_empty());
        assert_eq!(part_of(&[1, 2, 3, 4, 5, 6, 7], 5), [6, 7]);
    }
}
