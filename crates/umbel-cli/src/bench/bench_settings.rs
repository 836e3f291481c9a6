//! [`Settings`]: resolved flags of `umbel bench`, with numbers in range and defaults filled in.

use std::path::PathBuf;
use std::time::Duration;

use umbel::{Compression, CompressionPlan, Durability, KeyspaceOptions, Options};
use umbel_base::limits::{BLOOM_BITS_RANGE, KEY_BYTES_MAX};

use crate::bench::bench_flags::{BenchFlags, COUNT_MAX, KeyFormat, LineFormat};
use crate::errors::{CommandError, CommandResult};

/// Benchmarks of the tour, which runs when no benchmarks are named and takes about a minute on two
/// cores; and the number of its entries.
pub const TOUR: &str = "fillrandom,waitforcompaction,levelstats,readrandom,readmissing,readhot,\
    multireadrandom,seekrandom,readseq,readreverse,overwrite,readwhilewriting";
const TOUR_ENTRIES: u64 = 3_000_000;
/// Number of entries if benchmarks are named but `--num` is not given, as in db_bench.
const ENTRIES: u64 = 1_000_000;
/// Bytes that the store allows all memtables together by default.
const MEMTABLE_BYTES_DEFAULT: u64 = 256 << 20;
/// Keys of one multi-get if `--batch_size` is not given.
const MULTI_GET_KEYS: u64 = 32;

/// Settings of a run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The benchmarks, comma-separated.
    pub benchmarks: String,
    /// Whether no benchmarks were named, so that the results are printed in plain words.
    pub tour: bool,
    /// Number of entries to write, and to read from.
    pub num: u64,
    /// Number of reads of each thread.
    pub reads: u64,
    /// Number of writes of each thread, if given.
    pub writes: Option<u64>,
    /// Number of deletes of each thread, if given.
    pub deletes: Option<u64>,
    /// Number of threads.
    pub threads: usize,
    /// Bytes of a key.
    pub key_size: usize,
    /// Number of letters before each key.
    pub key_prefix: usize,
    /// Encoding of keys.
    pub key_format: KeyFormat,
    /// Bytes of a value.
    pub value_size: usize,
    /// Compressed size of values, as a share of their size.
    pub compression_ratio: f64,
    /// Entries of a write batch.
    pub batch_size: usize,
    /// Keys of a multi-get.
    pub multi_get_keys: usize,
    /// Duration of random benchmarks; `None`: as many operations as the counts.
    pub duration: Option<Duration>,
    /// Entries read after a seek.
    pub seek_nexts: u64,
    /// Whether the entries after a seek are read backwards.
    pub reverse_iterator: bool,
    /// Share of reads in `readrandomwriterandom`, in percent.
    pub read_percent: u64,
    /// Whether a read pins the value instead of copying it.
    pub pin_slice: bool,
    /// Seed of the random numbers; `None` takes the time.
    pub seed: Option<u64>,
    /// Whether the benchmarks use an existing store.
    pub use_existing_db: bool,
    /// Whether the temporary directory is kept after the run.
    pub keep: bool,
    /// Whether every write is synced.
    pub sync: bool,
    /// The compression's name as RocksDB prints it.
    pub compression_name: &'static str,
    /// Options of the store.
    pub options: Options,
    /// Options of the measured keyspace.
    pub keyspace: KeyspaceOptions,
    /// Engine whose result lines are printed.
    pub format: LineFormat,
    /// Whether each operation is timed.
    pub histogram: bool,
    /// Whether counters are printed at the end.
    pub statistics: bool,
    /// Operations between two progress lines of a thread; 0: no lines.
    pub stats_interval: u64,
    /// Minimum time between two progress lines of a thread.
    pub stats_interval_time: Duration,
    /// The report file and the time between two of its rows.
    pub report_file: Option<(PathBuf, Duration)>,
    /// Whether repeated benchmarks print the confidence interval instead of the average.
    pub confidence_interval_only: bool,
    /// Whether standard output gets one JSON object instead of text.
    pub json: bool,
}

impl Settings {
    /// Resolves the flags; the error names the invalid flag and its range.
    pub fn resolve(flags: &BenchFlags, json: bool) -> CommandResult<Settings> {
        let tour = flags.benchmarks.is_none();
        let num = flags.num.unwrap_or(if tour { TOUR_ENTRIES } else { ENTRIES });
        let count = |name: &str, value: i64| match value {
            -1 => Ok(None),
            value => check_signed_range(name, value, 1, COUNT_MAX).map(Some),
        };
        let batch_size = flags.batch_size.unwrap_or(1);
        let prefix = flags.key_prefix;
        let least_key = prefix + if flags.key_format == KeyFormat::Leveldb { 16 } else { 1 };
        let key_size = match flags.key_format {
            KeyFormat::Leveldb => flags.key_size.max(least_key),
            KeyFormat::Rocksdb => flags.key_size,
        };
        let key_size = check_range("key_size", key_size, least_key, KEY_BYTES_MAX as u64 - 1)?;
        let (compression, compression_name) = compression(&flags.store.compression)?;
        let report = &flags.report;
        Ok(Settings {
            benchmarks: flags.benchmarks.clone().unwrap_or_else(|| TOUR.to_string()),
            tour,
            num,
            reads: count("reads", flags.reads)?.unwrap_or(num),
            writes: count("writes", flags.writes)?,
            deletes: count("deletes", flags.deletes)?,
            threads: flags.threads as usize,
            key_size: key_size as usize,
            key_prefix: prefix as usize,
            key_format: flags.key_format,
            value_size: flags.value_size as usize,
            compression_ratio: flags.compression_ratio,
            batch_size: batch_size as usize,
            multi_get_keys: flags.batch_size.map_or(MULTI_GET_KEYS, |_| batch_size) as usize,
            duration: (flags.duration > 0).then(|| Duration::from_secs(flags.duration)),
            seek_nexts: flags.seek_nexts,
            reverse_iterator: flags.reverse_iterator,
            read_percent: flags.readwritepercent,
            pin_slice: flags.pin_slice,
            seed: (flags.seed != 0).then_some(flags.seed),
            use_existing_db: flags.store.use_existing_db,
            keep: flags.store.keep,
            sync: flags.store.sync,
            compression_name,
            options: store_options(flags)?,
            keyspace: keyspace_options(flags, compression)?,
            format: report.format,
            histogram: report.histogram,
            statistics: report.statistics,
            stats_interval: report.stats_interval,
            stats_interval_time: Duration::from_secs(report.stats_interval_seconds),
            report_file: (report.report_interval_seconds > 0).then(|| {
                let interval = Duration::from_secs(report.report_interval_seconds);
                (report.report_file.clone(), interval)
            }),
            confidence_interval_only: report.confidence_interval_only,
            json,
        })
    }
}

fn store_options(flags: &BenchFlags) -> CommandResult<Options> {
    let defaults = Options::default();
    let store = &flags.store;
    let cache_bytes = match store.cache_size {
        -1 => None,
        size => Some(check_signed_range("cache_size", size, 0, 1 << 50)?),
    };
    let threads = store.max_background_jobs.unwrap_or(defaults.background_threads as u64);
    let buffers = store.db_write_buffer_size.unwrap_or(0);
    let four_memtables = store.write_buffer_size.unwrap_or(0).saturating_mul(4);
    Ok(Options {
        durability: if store.sync { Durability::Synced } else { Durability::Buffered },
        cache_bytes,
        background_threads: threads as usize,
        write_buffer_total_bytes: match buffers {
            // Four memtables of the given size must fit.
            0 => (four_memtables > MEMTABLE_BYTES_DEFAULT).then(|| four_memtables.min(1 << 40)),
            bytes => Some(check_range("db_write_buffer_size", bytes, 16 << 10, 1 << 40)?),
        },
        inline_value_bytes_max: match store.min_blob_size {
            Some(bytes) => bytes as usize - 1,
            None => defaults.inline_value_bytes_max,
        },
        ..defaults
    })
}

fn keyspace_options(
    flags: &BenchFlags,
    compression: Compression,
) -> CommandResult<KeyspaceOptions> {
    let defaults = KeyspaceOptions::default();
    let store = &flags.store;
    let bits = BLOOM_BITS_RANGE;
    let bloom_bits = i32::try_from(store.bloom_bits).ok().filter(|given| bits.contains(given));
    let Some(bloom_bits) = bloom_bits else {
        return Err(out_of_range("bloom_bits", store.bloom_bits, bits.start(), bits.end()));
    };
    let ratio = store.max_bytes_for_level_multiplier.unwrap_or(u64::from(defaults.level_ratio));
    let trigger = store.level0_file_num_compaction_trigger;
    let trigger = trigger.unwrap_or(defaults.level0_tables as u64);
    let block = store.block_size.unwrap_or(defaults.block_bytes as u64);
    Ok(KeyspaceOptions {
        bloom_bits,
        existence_filter: store.existence_filter,
        memtable_bytes: store.write_buffer_size.unwrap_or(defaults.memtable_bytes),
        table_bytes: store.max_file_size.unwrap_or(defaults.table_bytes),
        block_bytes: block as usize,
        level_bytes_base: store.max_bytes_for_level_base.unwrap_or(defaults.level_bytes_base),
        level_ratio: ratio as u32,
        level0_tables: trigger as usize,
        compression: CompressionPlan::all(compression),
        log: !store.disable_wal,
        ..KeyspaceOptions::default()
    })
}

fn compression(text: &str) -> CommandResult<(Compression, &'static str)> {
    match text.to_ascii_lowercase().as_str() {
        "none" | "0" | "false" => Ok((Compression::None, "NoCompression")),
        "lz4" | "1" | "true" => Ok((Compression::Lz4, "LZ4")),
        "zstd" => Ok((Compression::Zstd, "ZSTD")),
        _ => Err(CommandError::usage(format!(
            "--compression is `{text}`, but must be none, lz4 or zstd (0: none, 1: lz4)"
        ))),
    }
}

fn check_range(name: &str, value: u64, min: u64, max: u64) -> CommandResult<u64> {
    if (min..=max).contains(&value) {
        return Ok(value);
    }
    Err(out_of_range(name, value, min, max))
}

fn check_signed_range(name: &str, value: i64, min: u64, max: u64) -> CommandResult<u64> {
    match u64::try_from(value) {
        Ok(value) if (min..=max).contains(&value) => Ok(value),
        _ => Err(CommandError::usage(format!(
            "--{name} is {value}, but must be {min} to {max}, or -1 for the flag's default"
        ))),
    }
}

fn out_of_range(
    name: &str,
    value: impl std::fmt::Display,
    min: impl std::fmt::Display,
    max: impl std::fmt::Display,
) -> CommandError {
    CommandError::usage(format!("--{name} is {value}, but must be {min} to {max}"))
}

#[cfg(test)]
pub mod testing {
    //! Tests of the settings that command lines result in.

    use clap::{FromArgMatches, Parser};

    use super::*;
    use crate::bench::bench_flags::with_db_bench_spellings;
    use crate::usage_error::error_sentence;

    #[derive(Debug, Parser)]
    struct TestCommandLine {
        #[command(flatten)]
        flags: BenchFlags,
    }

    /// Resolves these flags.
    pub fn resolve(flags: &[&str]) -> CommandResult<Settings> {
        let command = with_db_bench_spellings(<TestCommandLine as clap::CommandFactory>::command());
        let line = ["bench"].iter().chain(flags);
        let matches = command.try_get_matches_from(line);
        let matches = matches
            .map_err(|error| CommandError::usage(error_sentence(error, std::iter::empty())))?;
        let line = TestCommandLine::from_arg_matches(&matches).unwrap();
        Settings::resolve(&line.flags, false)
    }

    /// Resolves flags that must be valid, with [`resolve`].
    pub fn settings(flags: &[&str]) -> Settings {
        resolve(flags).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use umbel::ExistenceSize;

    use super::testing::{self, resolve, settings};
    use super::*;

    #[test]
    fn flag_spellings_are_equivalent() {
        for spelling in [
            &["--bloom_bits=7"][..],
            &["--bloom_bits", "7"],
            &["--bloom-bits=7"],
            &["--bloom-bits", "7"],
        ] {
            assert_eq!(settings(spelling).keyspace.bloom_bits, 7, "{spelling:?}");
        }
        assert_eq!(settings(&["--bloom-bits", "-1"]).keyspace.bloom_bits, -1);
        let existence = |value| settings(&["--existence-filter", value]).keyspace.existence_filter;
        assert_eq!(existence("off"), ExistenceSize::Off);
        assert_eq!(existence("grow"), ExistenceSize::Growing { first_keys: 1 << 20 });
        assert_eq!(existence("64KiB"), ExistenceSize::Fixed { bytes: 65_536 });
        assert_eq!(settings(&["--target-file-size-base=1Mi"]).keyspace.table_bytes, 1 << 20);
        assert_eq!(settings(&["--target_file_size_base=1Mi"]).keyspace.table_bytes, 1 << 20);
    }

    #[test]
    fn every_flag_takes_both_spellings() {
        use clap::CommandFactory;
        #[derive(Debug, clap::Parser)]
        struct Line {
            #[command(flatten)]
            flags: BenchFlags,
        }
        let command = crate::bench::bench_flags::with_db_bench_spellings(Line::command());
        let names: Vec<String> =
            command.get_arguments().filter_map(|flag| flag.get_long()).map(String::from).collect();
        assert!(names.len() > 40 && names.iter().any(|name| name == "value_size"));
        for name in names.iter().filter(|name| *name != "help") {
            let dashed = format!("--{}", name.replace('_', "-"));
            let result = command.clone().try_get_matches_from(["bench", dashed.as_str(), "1"]);
            let unknown =
                result.is_err_and(|error| error.kind() == clap::error::ErrorKind::UnknownArgument);
            assert!(!unknown, "{dashed}");
        }
    }

    #[test]
    fn switches_stand_alone_or_take_a_value() {
        assert!(settings(&["--histogram"]).histogram);
        assert!(settings(&["--histogram=1"]).histogram);
        assert!(!settings(&["--histogram=0"]).histogram);
        assert!(!settings(&["--histogram", "false", "--num=5"]).histogram);
        assert!(settings(&["--histogram", "--num", "5"]).histogram);
        assert!(!settings(&["--pin_slice=0"]).pin_slice);
    }

    #[test]
    fn out_of_range_number_is_rejected_with_flag() {
        for (flag, expected) in [
            ("--num=0", "--num is 0, but must be 1 to"),
            ("--num=-5", "--num is -5, but must be 1 to 281474976710656"),
            ("--num=99999999999999999999", "but must be 1 to 281474976710656"),
            ("--seed=-1", "--seed is -1, but must be 0 or more"),
            ("--write_buffer_size=1", "--write_buffer_size is 1, but must be 4096 to 17179869184"),
            ("--db_write_buffer_size=1", "--db_write_buffer_size is 1, but must be 16384 to"),
            ("--block_size=1", "--block_size is 1, but must be 64 to 1048576"),
            ("--max_bytes_for_level_base=1", "--max_bytes_for_level_base is 1, but must be 4096"),
            ("--duration=9999999999", "--duration is 9999999999, but must be 0 to 1000000000"),
            ("--compression_ratio=half", "`half` is not a number"),
            ("--bloom_bits=1001", "--bloom_bits is 1001, but must be -1 to 1000"),
            ("--bloom_bits=-2", "--bloom_bits is -2"),
            ("--reads=-2", "--reads is -2, but must be 1 to"),
            ("--threads=0", "--threads is 0, but must be 1 to 1024"),
            ("--key_size=0", "--key_size is 0"),
            ("--key_size=65536", "--key_size is 65536, but must be 1 to 65535"),
            ("--value_size=300MiB", "--value_size is 300MiB, but must be 0 to 268435456"),
            ("--compression_ratio=1.5", "--compression_ratio is 1.5, but must be 0 to 1"),
            ("--compression=snappy", "--compression is `snappy`, but must be none, lz4 or zstd"),
            ("--readwritepercent=101", "--readwritepercent is 101"),
        ] {
            let error = resolve(&[flag]).unwrap_err().to_string();
            assert!(error.contains(expected), "{flag}: {error}");
        }
    }

    #[test]
    fn minus_one_is_the_default() {
        let settings = settings(&["--num=77", "--reads=-1", "--cache_size=-1"]);
        assert_eq!(settings.reads, 77);
        assert_eq!(settings.options.cache_bytes, Options::default().cache_bytes);
        assert!(settings.tour);
        assert_eq!(testing::settings(&[]).num, TOUR_ENTRIES);
        assert_eq!(testing::settings(&["--benchmarks=readseq"]).num, ENTRIES);
    }
}
