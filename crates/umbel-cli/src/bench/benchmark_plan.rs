//! Which benchmarks there are, and the list of those that `--benchmarks` asks for.

use std::time::Duration;

use super::absent;
use super::settings::Settings;
use super::tally::Until;
use crate::errors::{Failure, Outcome};
use crate::nearest::nearest;

/// Most keys that filluniquerandom shuffles: 8 bytes each.
const UNIQUE_MAX: u64 = 1 << 30;

/// Longest time that a reading benchmark of the tour takes.
const TOUR_READ_TIME: Duration = Duration::from_secs(5);

/// What a benchmark does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Writes keys in order.
    WriteSequential,
    /// Writes random keys.
    WriteRandom,
    /// Writes every key once, in random order.
    WriteUnique,
    /// Reads a random key, changes and writes it.
    Update,
    /// Deletes keys in order.
    DeleteSequential,
    /// Deletes random keys.
    DeleteRandom,
    /// Reads random keys.
    ReadRandom,
    /// Reads keys that lie between those that exist.
    ReadMissing,
    /// Reads random keys of the first hundredth.
    ReadHot,
    /// Walks forwards.
    ReadSequential,
    /// Walks backwards.
    ReadReverse,
    /// Reads many random keys at once.
    MultiRead,
    /// Seeks random keys.
    Seek,
    /// Reads random keys while one more thread writes.
    ReadWhileWriting,
    /// Reads random keys while one more thread walks.
    ReadWhileScanning,
    /// Reads and writes random keys in turn.
    ReadWrite,
    /// Closes and opens the store.
    Open,
    /// Empties the memtables.
    Flush,
    /// Compacts everything.
    Compact,
    /// Waits until nothing is left to compact.
    WaitForCompaction,
    /// Checks every byte of the store.
    Verify,
    /// Checksums 4 KiB at a time.
    Checksum,
    /// Prints RocksDB's or LevelDB's `stats`.
    Stats,
    /// Prints `levelstats`.
    LevelStats,
}

impl Work {
    fn is_random(self) -> bool {
        matches!(
            self,
            Work::WriteRandom
                | Work::Update
                | Work::DeleteRandom
                | Work::ReadRandom
                | Work::ReadMissing
                | Work::ReadHot
                | Work::MultiRead
                | Work::Seek
                | Work::ReadWhileWriting
                | Work::ReadWhileScanning
                | Work::ReadWrite
        )
    }

    fn is_write(self) -> bool {
        matches!(self, Work::WriteSequential | Work::WriteRandom | Work::WriteUnique)
    }

    /// Whether a result line says how long it took; the others print text of their own.
    pub fn has_result_line(self) -> bool {
        !matches!(self, Work::Stats | Work::LevelStats | Work::WaitForCompaction)
    }
}

/// A benchmark's definition.
#[derive(Debug, Clone, Copy)]
struct Benchmark {
    name: &'static str,
    work: Work,
    /// Whether it starts with an empty store.
    fresh: bool,
}

const fn fresh(name: &'static str, work: Work) -> Benchmark {
    Benchmark { name, work, fresh: true }
}

const fn on(name: &'static str, work: Work) -> Benchmark {
    Benchmark { name, work, fresh: false }
}

const BENCHMARKS: [Benchmark; 32] = [
    fresh("fillseq", Work::WriteSequential),
    fresh("fillrandom", Work::WriteRandom),
    fresh("filluniquerandom", Work::WriteUnique),
    fresh("fillbatch", Work::WriteSequential),
    fresh("fillsync", Work::WriteRandom),
    fresh("fill100K", Work::WriteRandom),
    on("overwrite", Work::WriteRandom),
    on("updaterandom", Work::Update),
    on("deleteseq", Work::DeleteSequential),
    on("deleterandom", Work::DeleteRandom),
    on("readrandom", Work::ReadRandom),
    on("readrandomsmall", Work::ReadRandom),
    on("readmissing", Work::ReadMissing),
    on("readhot", Work::ReadHot),
    on("readseq", Work::ReadSequential),
    on("readreverse", Work::ReadReverse),
    on("multireadrandom", Work::MultiRead),
    on("seekrandom", Work::Seek),
    on("readwhilewriting", Work::ReadWhileWriting),
    on("readwhilescanning", Work::ReadWhileScanning),
    on("readrandomwriterandom", Work::ReadWrite),
    on("open", Work::Open),
    on("flush", Work::Flush),
    on("compact", Work::Compact),
    on("compactall", Work::Compact),
    on("waitforcompaction", Work::WaitForCompaction),
    on("verify", Work::Verify),
    on("verifychecksum", Work::Verify),
    on("xxh3", Work::Checksum),
    on("crc32c", Work::Checksum),
    on("stats", Work::Stats),
    on("levelstats", Work::LevelStats),
];

/// One benchmark of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Its name, as result lines print it.
    pub name: &'static str,
    /// What it does.
    pub work: Work,
    /// Whether it starts with an empty store.
    pub fresh: bool,
    /// Entries it writes or chooses from.
    pub num: u64,
    /// Reads of each thread.
    pub reads: u64,
    /// Bytes of a value.
    pub value_size: usize,
    /// Entries of a batch.
    pub batch_size: usize,
    /// Whether every write is synced.
    pub sync: bool,
    /// What ends it.
    pub until: Until,
    /// Runs that do not count.
    pub warmups: u64,
    /// Runs that count.
    pub repeats: u64,
}

/// The steps that the settings ask for; a sentence about the first name that is none.
pub fn parse(settings: &Settings) -> Outcome<Vec<Step>> {
    let names = settings.benchmarks.split(',').map(str::trim).filter(|name| !name.is_empty());
    let steps = names.map(|name| step(name, settings)).collect::<Outcome<Vec<_>>>()?;
    if steps.is_empty() {
        return Err(Failure::usage(
            "--benchmarks names no benchmark; `umbel bench --help` lists them",
        ));
    }
    Ok(steps)
}

fn step(text: &str, settings: &Settings) -> Outcome<Step> {
    let (name, warmups, repeats) = repeats(text)?;
    let Some(benchmark) = BENCHMARKS.iter().find(|benchmark| benchmark.name == name) else {
        return Err(unknown(name));
    };
    let mut step = Step {
        name: benchmark.name,
        work: benchmark.work,
        fresh: benchmark.fresh,
        num: settings.num,
        reads: settings.reads,
        value_size: settings.value_size,
        batch_size: settings.batch_size,
        sync: settings.sync,
        until: until(benchmark.work, settings),
        warmups,
        repeats,
    };
    match name {
        "fillbatch" => step.batch_size = 1000,
        "fillsync" => {
            step.num = (step.num / 1000).max(1);
            step.batch_size = 1;
            step.sync = true;
        }
        "fill100K" => {
            step.num = (step.num / 1000).max(1);
            step.value_size = 100_000;
        }
        "filluniquerandom" if step.num > UNIQUE_MAX => {
            return Err(Failure::usage(format!(
                "--num is {}, but filluniquerandom keeps the order of its keys in memory and takes \
                 at most {UNIQUE_MAX}; take fillrandom",
                step.num
            )));
        }
        "readrandomsmall" => step.reads = (step.reads / 1000).max(1),
        _ => {}
    }
    Ok(step)
}

/// An order has an end, so that only random work goes by --duration. The tour's reads are cut short
/// on a slow machine; what it writes is what it reads later.
fn until(work: Work, settings: &Settings) -> Until {
    match (work.is_random(), work.is_write(), settings.duration) {
        (true, _, Some(duration)) => Until::Elapsed(duration),
        (_, false, None) if settings.tour => Until::Sooner(TOUR_READ_TIME),
        _ => Until::Counts,
    }
}

/// `name[X10-W2]` is run ten times after two runs that do not count.
fn repeats(text: &str) -> Outcome<(&str, u64, u64)> {
    let Some((name, rest)) = text.split_once('[') else { return Ok((text, 0, 1)) };
    let wrong = || {
        Failure::usage(format!(
            "`{text}` is no benchmark; repeats are written as in readrandom[X10-W2]: X runs after \
             W warm-up runs"
        ))
    };
    let rest = rest.strip_suffix(']').ok_or_else(wrong)?;
    let (mut warmups, mut repeats) = (0, 1);
    for part in rest.split('-') {
        let (kind, count) = part.split_at_checked(1).ok_or_else(wrong)?;
        let count: u64 = count.parse().map_err(|_| wrong())?;
        match kind {
            "X" if (1..=10_000).contains(&count) => repeats = count,
            "W" if count <= 10_000 => warmups = count,
            _ => return Err(wrong()),
        }
    }
    Ok((name, warmups, repeats))
}

fn unknown(name: &str) -> Failure {
    if let Some(reason) = absent::reason(name) {
        return Failure::usage(format!("the benchmark `{name}` of db_bench {reason}"));
    }
    let meant = nearest(name, BENCHMARKS.iter().map(|benchmark| benchmark.name));
    let meant = meant.map_or(String::new(), |nearest| format!("; did you mean `{nearest}`?"));
    Failure::usage(format!("unknown benchmark `{name}`{meant} (`umbel bench --help` lists them)"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::settings::testing::settings;

    #[test]
    fn names_are_steps_with_their_own_sizes() {
        let settings = settings(&["--benchmarks=fillsync,fill100K, fillbatch,,open", "--num=5k"]);
        let steps = parse(&settings).unwrap();
        assert_eq!(steps.len(), 4);
        assert_eq!((steps[0].num, steps[0].sync, steps[0].fresh), (5, true, true));
        assert_eq!((steps[1].num, steps[1].value_size), (5, 100_000));
        assert_eq!((steps[2].num, steps[2].batch_size), (5000, 1000));
        assert!(!steps[3].fresh);
    }

    #[test]
    fn repeats_are_read_as_rocksdb_does() {
        let settings = settings(&["--benchmarks=readrandom[X3-W2],readseq[W1],compact[X2]"]);
        let steps = parse(&settings).unwrap();
        let counts: Vec<_> = steps.iter().map(|step| (step.warmups, step.repeats)).collect();
        assert_eq!(counts, [(2, 3), (1, 1), (0, 2)]);
        for text in ["readseq[X]", "readseq[X0]", "readseq[Y2]", "readseq[X2", "readseq[é]"] {
            assert!(repeats(text).is_err(), "{text}");
        }
    }

    #[test]
    fn only_random_work_goes_by_time() {
        let flags = ["--benchmarks=readrandom,readseq,fillseq,fillrandom", "--duration=7"];
        let steps = parse(&settings(&flags)).unwrap();
        let seven = Until::Elapsed(Duration::from_secs(7));
        let untils: Vec<_> = steps.iter().map(|step| step.until).collect();
        assert_eq!(untils, [seven, Until::Counts, Until::Counts, seven]);
        let tour = parse(&settings(&[])).unwrap();
        let until = |name| tour.iter().find(|step| step.name == name).unwrap().until;
        assert_eq!(until("fillrandom"), Until::Counts);
        assert_eq!(until("seekrandom"), Until::Sooner(TOUR_READ_TIME));
    }

    #[test]
    fn a_typo_is_answered_with_the_nearest_name() {
        let settings = settings(&["--benchmarks=fillrandom,readrandum"]);
        assert_eq!(
            parse(&settings).unwrap_err().to_string(),
            "unknown benchmark `readrandum`; did you mean `readrandom`? \
             (`umbel bench --help` lists them)"
        );
        let far = unknown("mixgraph").to_string();
        assert!(!far.contains("did you mean"), "{far}");
        let snappy = unknown("snappycomp").to_string();
        assert!(snappy.contains("measures Snappy, which Umbel does not have"), "{snappy}");
        for benchmark in BENCHMARKS {
            assert_eq!(absent::reason(benchmark.name), None);
        }
    }
}
