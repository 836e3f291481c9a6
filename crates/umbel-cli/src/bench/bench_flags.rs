//! The flags of `umbel bench`, by LevelDB's and RocksDB's names. Each can be written with `_` or
//! with `-` between its words, with `=` or a space before its value.

use std::path::PathBuf;

use clap::{Arg, Args, Command, ValueEnum};

use umbel::ExistenceSize;
use umbel_base::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

use super::left_aside::LEFT_ASIDE;
use crate::number::{counts, parse_share, parse_signed, parse_switch};

/// The most entries a benchmark may be asked for: their keys stay within a signed 64-bit number.
pub const COUNT_MAX: u64 = 1 << 48;
/// A key of readmissing is a byte longer.
const KEY_SIZE_MAX: u64 = KEY_BYTES_MAX as u64 - 1;
const VALUE_SIZE_MAX: u64 = VALUE_BYTES_MAX as u64;
/// About thirty years, which can be added to any time of the clock.
const SECONDS_MAX: u64 = 1_000_000_000;

const EXAMPLES: &str = "\
Benchmarks:
  fillseq fillrandom filluniquerandom fillbatch fillsync fill100K    write into a fresh store
  overwrite updaterandom deleteseq deleterandom                      write
  readrandom readmissing readhot readrandomsmall readseq readreverse read
  multireadrandom seekrandom                                         read
  readwhilewriting readwhilescanning readrandomwriterandom           both
  flush compact waitforcompaction open verify                        look after the store
  stats levelstats xxh3 crc32c                                       tables, and a checksum
  name[X10] runs one ten times, name[X10-W2] after two runs that do not count

Examples:
  umbel bench
  umbel bench --benchmarks=fillrandom,readrandom,readmissing --bloom_bits=10 --num=10M
  umbel bench --benchmarks readrandom --use_existing_db --db DIR --threads 4 --histogram";

/// Which engine's key bytes are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum KeyFormat {
    /// 8 bytes big-endian, then `0` up to the key size
    Rocksdb,
    /// 16 decimal digits
    Leveldb,
}

/// Whose result lines are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LineFormat {
    /// RocksDB's
    Rocksdb,
    /// LevelDB's
    Leveldb,
}

/// The flags as given; `settings` makes sense of them.
#[derive(Debug, Args)]
#[command(rename_all = "snake_case", after_help = EXAMPLES, next_help_heading = "Workload")]
pub struct BenchFlags {
    /// Benchmarks in the order they run [default: a tour of about a minute]
    #[arg(long, value_name = "NAME,...")]
    pub benchmarks: Option<String>,
    /// Entries that benchmarks write and choose from [default: 1000000, 3000000 for the tour]
    #[arg(long, value_name = "N", value_parser = counts(1, COUNT_MAX))]
    pub num: Option<u64>,
    /// Reads of each thread; -1 is --num
    #[arg(long, value_name = "N", value_parser = parse_signed, default_value = "-1",
        allow_negative_numbers = true)]
    pub reads: i64,
    /// Writes of each thread; -1 is --num
    #[arg(long, value_name = "N", value_parser = parse_signed, default_value = "-1",
        allow_negative_numbers = true)]
    pub writes: i64,
    /// Deletes of each thread; -1 is --num
    #[arg(long, value_name = "N", value_parser = parse_signed, default_value = "-1",
        allow_negative_numbers = true)]
    pub deletes: i64,
    /// Threads that run a benchmark at the same time
    #[arg(long, value_name = "N", value_parser = counts(1, 1024), default_value = "1")]
    pub threads: u64,
    /// Bytes of a key
    #[arg(long, value_name = "BYTES", value_parser = counts(1, KEY_SIZE_MAX), default_value = "16")]
    pub key_size: u64,
    /// Letters `a` in front of each key
    #[arg(long, value_name = "BYTES", value_parser = counts(0, 1024), default_value = "0")]
    pub key_prefix: u64,
    /// How keys are written
    #[arg(long, value_enum, default_value_t = KeyFormat::Rocksdb)]
    pub key_format: KeyFormat,
    /// Bytes of a value
    #[arg(long, value_name = "BYTES", value_parser = counts(0, VALUE_SIZE_MAX),
        default_value = "100")]
    pub value_size: u64,
    /// Values compress to this share of their size
    #[arg(long, value_name = "SHARE", value_parser = parse_share, default_value = "0.5")]
    pub compression_ratio: f64,
    /// Entries of a write batch, and keys of a multi-get [default: 1, and 32 for multireadrandom]
    #[arg(long, value_name = "N", value_parser = counts(1, 1 << 20))]
    pub batch_size: Option<u64>,
    /// Seconds that a random benchmark runs, whatever the counts say; 0 goes by the counts
    #[arg(long, value_name = "SECONDS", value_parser = counts(0, SECONDS_MAX), default_value = "0")]
    pub duration: u64,
    /// Entries that seekrandom reads behind each seek
    #[arg(long, value_name = "N", value_parser = counts(0, COUNT_MAX), default_value = "0")]
    pub seek_nexts: u64,
    /// seekrandom reads them backwards
    #[arg(long, value_name = "0|1", value_parser = parse_switch, default_value = "0",
        num_args = 0..=1, default_missing_value = "1", action = clap::ArgAction::Set)]
    pub reverse_iterator: bool,
    /// Reads among 100 operations of readrandomwriterandom
    #[arg(long, value_name = "PERCENT", value_parser = counts(0, 100), default_value = "90")]
    pub readwritepercent: u64,
    /// 1: a read lends the value; 0: it copies it
    #[arg(long, value_name = "0|1", value_parser = parse_switch, default_value = "1",
        num_args = 0..=1, default_missing_value = "1", action = clap::ArgAction::Set)]
    pub pin_slice: bool,
    /// Seed of the random numbers; 0 takes the time
    #[arg(long, value_name = "N", value_parser = counts(0, u64::MAX), default_value = "0")]
    pub seed: u64,

    #[command(flatten)]
    pub store: StoreFlags,
    #[command(flatten)]
    pub report: ReportFlags,
}

/// The flags that shape the store.
#[derive(Debug, Args)]
#[command(rename_all = "snake_case", next_help_heading = "Store")]
pub struct StoreFlags {
    /// Work on the store as it is; benchmarks that need a fresh one are skipped
    #[arg(long, value_name = "0|1", value_parser = parse_switch, default_value = "0",
        num_args = 0..=1, default_missing_value = "1", action = clap::ArgAction::Set)]
    pub use_existing_db: bool,
    /// Filter bits per key, 1 to 1000; -1 and 0 are no filter
    #[arg(long, value_name = "BITS", value_parser = parse_signed, default_value = "10",
        allow_negative_numbers = true)]
    pub bloom_bits: i64,
    /// A filter of every key that was ever put, asked before anything else, or its bytes
    #[arg(long, value_name = "off|grow|BYTES", value_parser = parse_existence,
        default_value = "off")]
    pub existence_filter: ExistenceSize,
    /// Bytes of cached blocks; -1 is the engine's default
    #[arg(long, value_name = "BYTES", value_parser = parse_signed, default_value = "-1",
        allow_negative_numbers = true)]
    pub cache_size: i64,
    /// Bytes of a memtable [default: 64MiB]
    #[arg(long, value_name = "BYTES", value_parser = counts(4 << 10, 16 << 30))]
    pub write_buffer_size: Option<u64>,
    /// Bytes of all memtables
    #[arg(long, value_name = "BYTES", value_parser = counts(0, 1 << 40))]
    pub db_write_buffer_size: Option<u64>,
    /// Bytes of the shortest value that gets a file of its own [default: 1048577]
    #[arg(long, value_name = "BYTES", value_parser = counts(65, (256 << 20) + 1))]
    pub min_blob_size: Option<u64>,
    /// Bytes of a disk block [default: 4096]
    #[arg(long, value_name = "BYTES", value_parser = counts(64, 1 << 20))]
    pub block_size: Option<u64>,
    /// Bytes of a table [default: 64MiB]
    #[arg(long, value_name = "BYTES", value_parser = counts(4 << 10, 16 << 30),
        aliases = ["target_file_size_base", "target-file-size-base"])]
    pub max_file_size: Option<u64>,
    /// Bytes of the first level below level 0 [default: 256MiB]
    #[arg(long, value_name = "BYTES", value_parser = counts(4 << 10, 1 << 50))]
    pub max_bytes_for_level_base: Option<u64>,
    /// How many times larger each level is than the one above [default: 10]
    #[arg(long, value_name = "N", value_parser = counts(2, 1000))]
    pub max_bytes_for_level_multiplier: Option<u64>,
    /// Tables in level 0 that start a compaction [default: 4]
    #[arg(long, value_name = "N", value_parser = counts(1, 1000))]
    pub level0_file_num_compaction_trigger: Option<u64>,
    /// none, lz4, zstd; 0 is none, 1 is lz4
    #[arg(long, value_name = "KIND", default_value = "none",
        aliases = ["compression_type", "compression-type"])]
    pub compression: String,
    /// Threads that flush and compact [default: 2]
    #[arg(long, value_name = "N", value_parser = counts(0, 64))]
    pub max_background_jobs: Option<u64>,
    /// Sync the log before a write is acknowledged
    #[arg(long, value_name = "0|1", value_parser = parse_switch, default_value = "0",
        num_args = 0..=1, default_missing_value = "1", action = clap::ArgAction::Set)]
    pub sync: bool,
    /// Write no log: a crash loses what was not flushed
    #[arg(long, value_name = "0|1", value_parser = parse_switch, default_value = "0",
        num_args = 0..=1, default_missing_value = "1", action = clap::ArgAction::Set)]
    pub disable_wal: bool,
    /// Leave the temporary folder where it is
    #[arg(long, value_name = "0|1", value_parser = parse_switch, default_value = "0",
        num_args = 0..=1, default_missing_value = "1", action = clap::ArgAction::Set)]
    pub keep: bool,
}

/// The flags that say what is reported and how.
#[derive(Debug, Args)]
#[command(rename_all = "snake_case", next_help_heading = "Report")]
pub struct ReportFlags {
    /// Result lines of RocksDB or LevelDB
    #[arg(long, value_enum, default_value_t = LineFormat::Rocksdb)]
    pub format: LineFormat,
    /// Time each operation and print histograms (costs two clock readings an operation)
    #[arg(long, value_name = "0|1", value_parser = parse_switch, default_value = "0",
        num_args = 0..=1, default_missing_value = "1", action = clap::ArgAction::Set)]
    pub histogram: bool,
    /// Print the store's counters at the end
    #[arg(long, value_name = "0|1", value_parser = parse_switch, default_value = "0",
        num_args = 0..=1, default_missing_value = "1", action = clap::ArgAction::Set)]
    pub statistics: bool,
    /// A line on standard error every N operations of each thread; 0 is none
    #[arg(long, value_name = "N", value_parser = counts(0, COUNT_MAX), default_value = "0")]
    pub stats_interval: u64,
    /// At least so many seconds between two such lines
    #[arg(long, value_name = "SECONDS", value_parser = counts(0, SECONDS_MAX), default_value = "0")]
    pub stats_interval_seconds: u64,
    /// Seconds between two rows of --report_file; 0 writes none
    #[arg(long, value_name = "SECONDS", value_parser = counts(0, SECONDS_MAX), default_value = "0")]
    pub report_interval_seconds: u64,
    /// A CSV with the operations of each interval
    #[arg(long, value_name = "FILE", default_value = "report.csv")]
    pub report_file: PathBuf,
    /// Repeated benchmarks print the confidence interval instead of the average
    #[arg(long, value_name = "0|1", value_parser = parse_switch, default_value = "0",
        num_args = 0..=1, default_missing_value = "1", action = clap::ArgAction::Set)]
    pub confidence_interval_only: bool,
}

/// Reads the size of an existence filter: `off`, `grow`, or so many bytes.
fn parse_existence(text: &str) -> Result<ExistenceSize, String> {
    match text {
        "off" => Ok(ExistenceSize::Off),
        "grow" => Ok(ExistenceSize::Growing { first_keys: 1 << 20 }),
        bytes => match counts(4096, 1 << 40)(bytes) {
            Ok(bytes) => Ok(ExistenceSize::Fixed { bytes }),
            Err(_) => Err("must be off, grow, or bytes from 4096 to 2^40 (like 64MiB)".to_owned()),
        },
    }
}

/// Lets every flag of the command be written with `-` too, and takes the flags of db_bench that
/// mean nothing here.
pub fn with_db_bench_spellings(command: Command) -> Command {
    // A number that is out of range is to be told so, and not that `-5` is no flag.
    let command = command.mut_args(|flag| flag.allow_negative_numbers(true));
    let command = command.mut_args(|flag| match flag.get_long() {
        Some(name) if name.contains('_') => {
            let dashed = dashed(name);
            flag.alias(dashed)
        }
        _ => flag,
    });
    LEFT_ASIDE.iter().fold(command, |command, name| {
        let flag = Arg::new(*name).long(*name).hide(true).num_args(0..=1);
        let flag = flag.allow_hyphen_values(true);
        command.arg(if name.contains('_') { flag.alias(dashed(name)) } else { flag })
    })
}

/// clap keeps names that live as long as the program; there are a few dozen.
fn dashed(name: &str) -> &'static str {
    Box::leak(name.replace('_', "-").into_boxed_str())
}
