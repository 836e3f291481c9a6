//! Flags of `umbel bench`, with the names of LevelDB and RocksDB. Each flag can be written with `_`
//! or with `-` between its words, and with `=` or a space before its value.

use std::path::PathBuf;

use clap::{Arg, Args, Command, ValueEnum};

use umbel::ExistenceSize;
use umbel_base::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

use crate::bench::ignored_flags::IGNORED_FLAGS;
use crate::text::numbers::{integer_parser, parse_fraction, parse_signed, parse_switch};

/// Maximum of `--num`, so that key numbers stay within a signed 64-bit number.
pub const COUNT_MAX: u64 = 1 << 48;
/// Maximum of `--key-size`; a key of `readmissing` is one byte longer.
const KEY_SIZE_MAX: u64 = KEY_BYTES_MAX as u64 - 1;
const VALUE_SIZE_MAX: u64 = VALUE_BYTES_MAX as u64;
/// Maximum of durations in seconds: about thirty years, which can be added to any time of the
/// clock.
const SECONDS_MAX: u64 = 1_000_000_000;

const EXAMPLES: &str = "\
Benchmarks:
  fillseq fillrandom filluniquerandom fillbatch fillsync fill100K    write into a fresh store
  overwrite updaterandom deleteseq deleterandom                      write
  deleterange deleterangenested                                      delete ranges
  queue                                                              put, read first, delete
  readrandom readmissing readhot readrandomsmall readseq readreverse read
  multireadrandom seekrandom                                         read
  readwhilewriting readwhilescanning readrandomwriterandom           read and write
  flush compact waitforcompaction open verify                        maintain the store
  stats levelstats                                                   print tables
  xxh3 crc32c                                                        compute checksums
  name[X10] runs a benchmark ten times, name[X10-W2] after two warm-up runs

Examples:
  umbel bench
  umbel bench --benchmarks=fillrandom,readrandom,readmissing --bloom_bits=10 --num=10M
  umbel bench --benchmarks readrandom --use_existing_db --db DIR --threads 4 --histogram";

/// Encoding of keys, by the engine whose db_bench uses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum KeyFormat {
    /// 8 bytes big-endian, then `0` up to the key size
    Rocksdb,
    /// 16 decimal digits
    Leveldb,
}

/// Engine whose result lines are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LineFormat {
    /// RocksDB result lines
    Rocksdb,
    /// LevelDB result lines
    Leveldb,
}

/// Flags as given on the command line; `bench_settings` resolves them.
#[derive(Debug, Args)]
#[command(rename_all = "snake_case", after_help = EXAMPLES, next_help_heading = "Workload")]
pub struct BenchFlags {
    /// Benchmarks to run, in this order [default: a tour of about a minute]
    #[arg(long, value_name = "NAME,...")]
    pub benchmarks: Option<String>,
    /// Number of entries to write and read from [default: 1000000, tour: 3000000]
    #[arg(long, value_name = "N", value_parser = integer_parser(1, COUNT_MAX))]
    pub num: Option<u64>,
    /// Reads per thread; -1: as --num
    #[arg(long, value_name = "N", value_parser = parse_signed, default_value = "-1",
        allow_negative_numbers = true)]
    pub reads: i64,
    /// Writes per thread; -1: as --num
    #[arg(long, value_name = "N", value_parser = parse_signed, default_value = "-1",
        allow_negative_numbers = true)]
    pub writes: i64,
    /// Deletes per thread; -1: as --num
    #[arg(long, value_name = "N", value_parser = parse_signed, default_value = "-1",
        allow_negative_numbers = true)]
    pub deletes: i64,
    /// Number of concurrent threads
    #[arg(long, value_name = "N", value_parser = integer_parser(1, 1024), default_value = "1")]
    pub threads: u64,
    /// Key size in bytes
    #[arg(
        long,
        value_name = "BYTES",
        value_parser = integer_parser(1, KEY_SIZE_MAX),
        default_value = "16"
    )]
    pub key_size: u64,
    /// Number of letters `a` before each key
    #[arg(long, value_name = "BYTES", value_parser = integer_parser(0, 1024), default_value = "0")]
    pub key_prefix: u64,
    /// Encoding of keys
    #[arg(long, value_enum, default_value_t = KeyFormat::Rocksdb)]
    pub key_format: KeyFormat,
    /// Value size in bytes
    #[arg(long, value_name = "BYTES", value_parser = integer_parser(0, VALUE_SIZE_MAX),
        default_value = "100")]
    pub value_size: u64,
    /// Share of their size to which values compress
    #[arg(long, value_name = "SHARE", value_parser = parse_fraction, default_value = "0.5")]
    pub compression_ratio: f64,
    /// Entries per write batch and keys per multi-get [default: 1, multireadrandom: 32]
    #[arg(long, value_name = "N", value_parser = integer_parser(1, 1 << 20))]
    pub batch_size: Option<u64>,
    /// Duration of random benchmarks in seconds; 0: the counts of operations decide
    #[arg(
        long,
        value_name = "SECONDS",
        value_parser = integer_parser(0, SECONDS_MAX),
        default_value = "0"
    )]
    pub duration: u64,
    /// Entries that seekrandom reads after each seek
    #[arg(long, value_name = "N", value_parser = integer_parser(0, COUNT_MAX), default_value = "0")]
    pub seek_nexts: u64,
    /// Read backwards after each seek of seekrandom
    #[arg(long, value_name = "0|1", value_parser = parse_switch, default_value = "0",
        num_args = 0..=1, default_missing_value = "1", action = clap::ArgAction::Set)]
    pub reverse_iterator: bool,
    /// Share of reads in readrandomwriterandom, in percent
    #[arg(
        long,
        value_name = "PERCENT",
        value_parser = integer_parser(0, 100),
        default_value = "90"
    )]
    pub readwritepercent: u64,
    /// 1: reads pin the value; 0: reads copy it
    #[arg(long, value_name = "0|1", value_parser = parse_switch, default_value = "1",
        num_args = 0..=1, default_missing_value = "1", action = clap::ArgAction::Set)]
    pub pin_slice: bool,
    /// Seed of the random numbers; 0: the current time
    #[arg(long, value_name = "N", value_parser = integer_parser(0, u64::MAX), default_value = "0")]
    pub seed: u64,

    #[command(flatten)]
    pub store: StoreFlags,
    #[command(flatten)]
    pub report: ReportFlags,
}

/// Flags of the store.
#[derive(Debug, Args)]
#[command(rename_all = "snake_case", next_help_heading = "Store")]
pub struct StoreFlags {
    /// Use the existing store; skips benchmarks that need a fresh store
    #[arg(long, value_name = "0|1", value_parser = parse_switch, default_value = "0",
        num_args = 0..=1, default_missing_value = "1", action = clap::ArgAction::Set)]
    pub use_existing_db: bool,
    /// Filter bits per key, 1 to 1000; -1 and 0: no filter
    #[arg(long, value_name = "BITS", value_parser = parse_signed, default_value = "10",
        allow_negative_numbers = true)]
    pub bloom_bits: i64,
    /// Existence filter of all keys, probed before tables: off, grow, or its size in bytes
    #[arg(long, value_name = "off|grow|BYTES", value_parser = parse_existence_size,
        default_value = "off")]
    pub existence_filter: ExistenceSize,
    /// Block cache size in bytes; -1: the remaining memory budget
    #[arg(long, value_name = "BYTES", value_parser = parse_signed, default_value = "-1",
        allow_negative_numbers = true)]
    pub cache_size: i64,
    /// Memtable size in bytes [default: 128MiB]
    #[arg(long, value_name = "BYTES", value_parser = integer_parser(4 << 10, 16 << 30))]
    pub write_buffer_size: Option<u64>,
    /// Total size of all memtables in bytes [default: 256MiB, at least four memtables]
    #[arg(long, value_name = "BYTES", value_parser = integer_parser(0, 1 << 40))]
    pub db_write_buffer_size: Option<u64>,
    /// Minimum size in bytes of a value that is stored in a blob file [default: 1048577]
    #[arg(long, value_name = "BYTES", value_parser = integer_parser(65, (256 << 20) + 1))]
    pub min_blob_size: Option<u64>,
    /// Block size in bytes [default: 4096]
    #[arg(long, value_name = "BYTES", value_parser = integer_parser(64, 1 << 20))]
    pub block_size: Option<u64>,
    /// Table size in bytes [default: 64MiB]
    #[arg(long, value_name = "BYTES", value_parser = integer_parser(4 << 10, 16 << 30),
        aliases = ["target_file_size_base", "target-file-size-base"])]
    pub max_file_size: Option<u64>,
    /// Target size of the first level below level 0, in bytes [default: 1.5GiB]
    #[arg(long, value_name = "BYTES", value_parser = integer_parser(4 << 10, 1 << 50))]
    pub max_bytes_for_level_base: Option<u64>,
    /// Size ratio of adjacent levels [default: 10]
    #[arg(long, value_name = "N", value_parser = integer_parser(2, 1000))]
    pub max_bytes_for_level_multiplier: Option<u64>,
    /// Number of level 0 tables that triggers a compaction [default: 4]
    #[arg(long, value_name = "N", value_parser = integer_parser(1, 1000))]
    pub level0_file_num_compaction_trigger: Option<u64>,
    /// Compression of blocks: none, lz4 or zstd; 0: none, 1: lz4
    #[arg(long, value_name = "KIND", default_value = "none",
        aliases = ["compression_type", "compression-type"])]
    pub compression: String,
    /// Number of threads for flushes and compactions [default: 2]
    #[arg(long, value_name = "N", value_parser = integer_parser(0, 64))]
    pub max_background_jobs: Option<u64>,
    /// Sync the WAL before each write is acknowledged
    #[arg(long, value_name = "0|1", value_parser = parse_switch, default_value = "0",
        num_args = 0..=1, default_missing_value = "1", action = clap::ArgAction::Set)]
    pub sync: bool,
    /// Write no WAL; a crash loses writes that were not flushed
    #[arg(long, value_name = "0|1", value_parser = parse_switch, default_value = "0",
        num_args = 0..=1, default_missing_value = "1", action = clap::ArgAction::Set)]
    pub disable_wal: bool,
    /// Keep the temporary directory
    #[arg(long, value_name = "0|1", value_parser = parse_switch, default_value = "0",
        num_args = 0..=1, default_missing_value = "1", action = clap::ArgAction::Set)]
    pub keep: bool,
}

/// Flags of the report.
#[derive(Debug, Args)]
#[command(rename_all = "snake_case", next_help_heading = "Report")]
pub struct ReportFlags {
    /// Format of the result lines
    #[arg(long, value_enum, default_value_t = LineFormat::Rocksdb)]
    pub format: LineFormat,
    /// Print latency histograms; reads the clock once per operation
    #[arg(long, value_name = "0|1", value_parser = parse_switch, default_value = "0",
        num_args = 0..=1, default_missing_value = "1", action = clap::ArgAction::Set)]
    pub histogram: bool,
    /// Print the counters of the store at the end
    #[arg(long, value_name = "0|1", value_parser = parse_switch, default_value = "0",
        num_args = 0..=1, default_missing_value = "1", action = clap::ArgAction::Set)]
    pub statistics: bool,
    /// Print progress to standard error every N operations of each thread; 0: never
    #[arg(long, value_name = "N", value_parser = integer_parser(0, COUNT_MAX), default_value = "0")]
    pub stats_interval: u64,
    /// Minimum seconds between progress lines of a thread
    #[arg(
        long,
        value_name = "SECONDS",
        value_parser = integer_parser(0, SECONDS_MAX),
        default_value = "0"
    )]
    pub stats_interval_seconds: u64,
    /// Seconds between rows of --report_file; 0: no report
    #[arg(
        long,
        value_name = "SECONDS",
        value_parser = integer_parser(0, SECONDS_MAX),
        default_value = "0"
    )]
    pub report_interval_seconds: u64,
    /// CSV file with the operations of each interval
    #[arg(long, value_name = "FILE", default_value = "report.csv")]
    pub report_file: PathBuf,
    /// Print the confidence interval of repeated benchmarks instead of the average
    #[arg(long, value_name = "0|1", value_parser = parse_switch, default_value = "0",
        num_args = 0..=1, default_missing_value = "1", action = clap::ArgAction::Set)]
    pub confidence_interval_only: bool,
}

/// Parses the size of an existence filter: `off`, `grow`, or a number of bytes.
fn parse_existence_size(text: &str) -> Result<ExistenceSize, String> {
    match text {
        "off" => Ok(ExistenceSize::Off),
        "grow" => Ok(ExistenceSize::Growing { first_keys: 1 << 20 }),
        bytes => match integer_parser(4096, 1 << 40)(bytes) {
            Ok(bytes) => Ok(ExistenceSize::Fixed { bytes }),
            Err(_) => Err("must be off, grow, or bytes from 4096 to 2^40 (like 64MiB)".to_owned()),
        },
    }
}

/// Makes the parser accept every flag with `-` between its words, and the ignored flags of
/// db_bench.
pub fn with_db_bench_spellings(command: Command) -> Command {
    // Otherwise the parser reports `-5` as an unknown flag instead of a number out of range.
    let command = command.mut_args(|flag| flag.allow_negative_numbers(true));
    let command = command.mut_args(|flag| match flag.get_long() {
        Some(name) if name.contains('_') => {
            let dashed = dashed(name);
            flag.alias(dashed)
        }
        _ => flag,
    });
    IGNORED_FLAGS.iter().fold(command, |command, name| {
        let flag = Arg::new(*name).long(*name).hide(true).num_args(0..=1);
        let flag = flag.allow_hyphen_values(true);
        command.arg(if name.contains('_') { flag.alias(dashed(name)) } else { flag })
    })
}

/// Returns the flag's name with `-`; leaks it, since clap keeps static names, of which there are a
/// few dozen.
fn dashed(name: &str) -> &'static str {
    Box::leak(name.replace('_', "-").into_boxed_str())
}
