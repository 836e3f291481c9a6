//! Known benchmarks, and the steps that `--benchmarks` names.

use std::time::Duration;

use super::bench_settings::Settings;
use crate::bench::thread_stats::StopCondition;
use crate::bench::unsupported_benchmarks;
use crate::errors::{CommandError, CommandResult};
use crate::text::suggestion::nearest;

/// Maximum number of keys that `filluniquerandom` shuffles; each key takes 8 bytes of memory.
const UNIQUE_MAX: u64 = 1 << 30;

/// Longest time that a reading benchmark of the tour takes.
const TOUR_READ_TIME: Duration = Duration::from_secs(5);

/// Kind of benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BenchmarkKind {
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
    /// Deletes key ranges that do not overlap.
    DeleteRanges,
    /// Deletes nested key ranges in one batch: each range lies within the range before it.
    DeleteNestedRanges,
    /// Uses a queue: reads its first element, puts an element at its end and deletes the first.
    Queue,
    /// Reads random keys.
    ReadRandom,
    /// Reads absent keys, which lie between existing keys.
    ReadMissing,
    /// Reads random keys from the first hundredth of the keys.
    ReadHot,
    /// Reads all entries in ascending key order.
    ReadSequential,
    /// Reads all entries in descending key order.
    ReadReverse,
    /// Reads many random keys at once.
    MultiRead,
    /// Seeks random keys.
    Seek,
    /// Reads random keys while one more thread writes.
    ReadWhileWriting,
    /// Reads random keys while one more thread reads all entries in order.
    ReadWhileScanning,
    /// Reads and writes random keys in turn.
    ReadWrite,
    /// Closes and opens the store.
    Open,
    /// Flushes the memtables.
    Flush,
    /// Compacts everything.
    Compact,
    /// Waits until no compaction is left to do.
    WaitForCompaction,
    /// Checks every byte of the store.
    Verify,
    /// Computes checksums of 4 KiB at a time.
    Checksum,
    /// Prints the table of `stats` in the format of RocksDB or LevelDB.
    Stats,
    /// Prints the table of `levelstats`.
    LevelStats,
}

impl BenchmarkKind {
    fn is_random(self) -> bool {
        matches!(
            self,
            BenchmarkKind::WriteRandom
                | BenchmarkKind::Update
                | BenchmarkKind::DeleteRandom
                | BenchmarkKind::ReadRandom
                | BenchmarkKind::ReadMissing
                | BenchmarkKind::ReadHot
                | BenchmarkKind::MultiRead
                | BenchmarkKind::Seek
                | BenchmarkKind::ReadWhileWriting
                | BenchmarkKind::ReadWhileScanning
                | BenchmarkKind::ReadWrite
        )
    }

    fn is_write(self) -> bool {
        matches!(
            self,
            BenchmarkKind::WriteSequential
                | BenchmarkKind::WriteRandom
                | BenchmarkKind::WriteUnique
        )
    }

    /// Whether the benchmark prints a result line with its duration; other benchmarks print their
    /// own text.
    pub fn has_result_line(self) -> bool {
        !matches!(
            self,
            BenchmarkKind::Stats | BenchmarkKind::LevelStats | BenchmarkKind::WaitForCompaction
        )
    }
}

/// A benchmark's definition.
#[derive(Debug, Clone, Copy)]
struct Benchmark {
    name: &'static str,
    kind: BenchmarkKind,
    /// Whether the benchmark starts with an empty store.
    needs_fresh_store: bool,
}

const fn on_fresh_store(name: &'static str, work: BenchmarkKind) -> Benchmark {
    Benchmark { name, kind: work, needs_fresh_store: true }
}

const fn on_existing_store(name: &'static str, work: BenchmarkKind) -> Benchmark {
    Benchmark { name, kind: work, needs_fresh_store: false }
}

const BENCHMARKS: [Benchmark; 35] = [
    on_fresh_store("fillseq", BenchmarkKind::WriteSequential),
    on_fresh_store("fillrandom", BenchmarkKind::WriteRandom),
    on_fresh_store("filluniquerandom", BenchmarkKind::WriteUnique),
    on_fresh_store("fillbatch", BenchmarkKind::WriteSequential),
    on_fresh_store("fillsync", BenchmarkKind::WriteRandom),
    on_fresh_store("fill100K", BenchmarkKind::WriteRandom),
    on_existing_store("overwrite", BenchmarkKind::WriteRandom),
    on_existing_store("updaterandom", BenchmarkKind::Update),
    on_existing_store("deleteseq", BenchmarkKind::DeleteSequential),
    on_existing_store("deleterandom", BenchmarkKind::DeleteRandom),
    on_existing_store("deleterange", BenchmarkKind::DeleteRanges),
    on_existing_store("deleterangenested", BenchmarkKind::DeleteNestedRanges),
    on_fresh_store("queue", BenchmarkKind::Queue),
    on_existing_store("readrandom", BenchmarkKind::ReadRandom),
    on_existing_store("readrandomsmall", BenchmarkKind::ReadRandom),
    on_existing_store("readmissing", BenchmarkKind::ReadMissing),
    on_existing_store("readhot", BenchmarkKind::ReadHot),
    on_existing_store("readseq", BenchmarkKind::ReadSequential),
    on_existing_store("readreverse", BenchmarkKind::ReadReverse),
    on_existing_store("multireadrandom", BenchmarkKind::MultiRead),
    on_existing_store("seekrandom", BenchmarkKind::Seek),
    on_existing_store("readwhilewriting", BenchmarkKind::ReadWhileWriting),
    on_existing_store("readwhilescanning", BenchmarkKind::ReadWhileScanning),
    on_existing_store("readrandomwriterandom", BenchmarkKind::ReadWrite),
    on_existing_store("open", BenchmarkKind::Open),
    on_existing_store("flush", BenchmarkKind::Flush),
    on_existing_store("compact", BenchmarkKind::Compact),
    on_existing_store("compactall", BenchmarkKind::Compact),
    on_existing_store("waitforcompaction", BenchmarkKind::WaitForCompaction),
    on_existing_store("verify", BenchmarkKind::Verify),
    on_existing_store("verifychecksum", BenchmarkKind::Verify),
    on_existing_store("xxh3", BenchmarkKind::Checksum),
    on_existing_store("crc32c", BenchmarkKind::Checksum),
    on_existing_store("stats", BenchmarkKind::Stats),
    on_existing_store("levelstats", BenchmarkKind::LevelStats),
];

/// One benchmark of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct BenchmarkStep {
    /// Name of the benchmark in result lines.
    pub name: &'static str,
    /// Kind of benchmark.
    pub kind: BenchmarkKind,
    /// Whether the benchmark starts with an empty store.
    pub needs_fresh_store: bool,
    /// Number of entries that the benchmark writes or chooses from.
    pub num: u64,
    /// Number of reads of each thread.
    pub reads: u64,
    /// Bytes of a value.
    pub value_size: usize,
    /// Number of entries of a batch.
    pub batch_size: usize,
    /// Whether every write is synced.
    pub sync: bool,
    /// Stop condition.
    pub stop_condition: StopCondition,
    /// Number of warm-up runs, which do not count.
    pub warmups: u64,
    /// Number of runs that count.
    pub repeats: u64,
}

/// Parses the steps of the settings; the error names the first unknown benchmark.
pub fn parse(settings: &Settings) -> CommandResult<Vec<BenchmarkStep>> {
    let names = settings.benchmarks.split(',').map(str::trim).filter(|name| !name.is_empty());
    let steps = names.map(|name| parse_step(name, settings)).collect::<CommandResult<Vec<_>>>()?;
    if steps.is_empty() {
        return Err(CommandError::usage(
            "--benchmarks names no benchmark; `umbel bench --help` lists all benchmarks",
        ));
    }
    Ok(steps)
}

fn parse_step(text: &str, settings: &Settings) -> CommandResult<BenchmarkStep> {
    let (name, warmups, repeats) = parse_repeats(text)?;
    let Some(benchmark) = BENCHMARKS.iter().find(|benchmark| benchmark.name == name) else {
        return Err(unknown_benchmark(name));
    };
    let mut step = BenchmarkStep {
        name: benchmark.name,
        kind: benchmark.kind,
        needs_fresh_store: benchmark.needs_fresh_store,
        num: settings.num,
        reads: settings.reads,
        value_size: settings.value_size,
        batch_size: settings.batch_size,
        sync: settings.sync,
        stop_condition: stop_condition(benchmark.kind, settings),
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
            return Err(CommandError::usage(format!(
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

/// Returns when a benchmark stops. Benchmarks in key order end with the last key, so only random
/// ones obey `--duration`. The tour cuts reads short on a slow machine, but not writes, since later
/// reads need the entries.
fn stop_condition(work: BenchmarkKind, settings: &Settings) -> StopCondition {
    match (work.is_random(), work.is_write(), settings.duration) {
        (true, _, Some(duration)) => StopCondition::TimeElapsed(duration),
        (_, false, None) if settings.tour => StopCondition::CountOrTime(TOUR_READ_TIME),
        _ => StopCondition::CountReached,
    }
}

/// Parses the repeats of a benchmark: `name[X10-W2]` is run ten times after two warm-up runs that
/// do not count.
fn parse_repeats(text: &str) -> CommandResult<(&str, u64, u64)> {
    let Some((name, rest)) = text.split_once('[') else { return Ok((text, 0, 1)) };
    let wrong = || {
        CommandError::usage(format!(
            "`{text}` is not a benchmark; write repeats as in readrandom[X10-W2]: X runs after W \
             warm-up runs"
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

fn unknown_benchmark(name: &str) -> CommandError {
    if let Some(reason) = unsupported_benchmarks::reason(name) {
        return CommandError::usage(format!("the benchmark `{name}` of db_bench {reason}"));
    }
    let meant = nearest(name, BENCHMARKS.iter().map(|benchmark| benchmark.name));
    let meant = meant.map_or(String::new(), |nearest| format!("; did you mean `{nearest}`?"));
    CommandError::usage(format!(
        "unknown benchmark `{name}`{meant} (`umbel bench --help` lists all benchmarks)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::bench_settings::testing::settings;

    #[test]
    fn benchmark_names_become_sized_steps() {
        let settings = settings(&["--benchmarks=fillsync,fill100K, fillbatch,,open", "--num=5k"]);
        let steps = parse(&settings).unwrap();
        assert_eq!(steps.len(), 4);
        assert_eq!((steps[0].num, steps[0].sync, steps[0].needs_fresh_store), (5, true, true));
        assert_eq!((steps[1].num, steps[1].value_size), (5, 100_000));
        assert_eq!((steps[2].num, steps[2].batch_size), (5000, 1000));
        assert!(!steps[3].needs_fresh_store);
    }

    #[test]
    fn repeats_are_parsed_as_in_rocksdb() {
        let settings = settings(&["--benchmarks=readrandom[X3-W2],readseq[W1],compact[X2]"]);
        let steps = parse(&settings).unwrap();
        let counts: Vec<_> = steps.iter().map(|step| (step.warmups, step.repeats)).collect();
        assert_eq!(counts, [(2, 3), (1, 1), (0, 2)]);
        for text in ["readseq[X]", "readseq[X0]", "readseq[Y2]", "readseq[X2", "readseq[é]"] {
            assert!(parse_repeats(text).is_err(), "{text}");
        }
    }

    #[test]
    fn duration_applies_only_to_random_benchmarks() {
        let flags = ["--benchmarks=readrandom,readseq,fillseq,fillrandom", "--duration=7"];
        let steps = parse(&settings(&flags)).unwrap();
        let seven = StopCondition::TimeElapsed(Duration::from_secs(7));
        let untils: Vec<_> = steps.iter().map(|step| step.stop_condition).collect();
        assert_eq!(
            untils,
            [seven, StopCondition::CountReached, StopCondition::CountReached, seven]
        );
        let tour = parse(&settings(&[])).unwrap();
        let until = |name| tour.iter().find(|step| step.name == name).unwrap().stop_condition;
        assert_eq!(until("fillrandom"), StopCondition::CountReached);
        assert_eq!(until("seekrandom"), StopCondition::CountOrTime(TOUR_READ_TIME));
    }

    #[test]
    fn misspelled_name_gets_suggestion() {
        let settings = settings(&["--benchmarks=fillrandom,readrandum"]);
        assert_eq!(
            parse(&settings).unwrap_err().to_string(),
            "unknown benchmark `readrandum`; did you mean `readrandom`? \
             (`umbel bench --help` lists all benchmarks)"
        );
        let far = unknown_benchmark("mixgraph").to_string();
        assert!(!far.contains("did you mean"), "{far}");
        let snappy = unknown_benchmark("snappycomp").to_string();
        assert!(snappy.contains("measures Snappy, which Umbel does not have"), "{snappy}");
        for benchmark in BENCHMARKS {
            assert_eq!(unsupported_benchmarks::reason(benchmark.name), None);
        }
    }
}
