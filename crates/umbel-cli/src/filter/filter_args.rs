//! Arguments of `umbel filter`.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};
use umbel_filter::HashKind;

use crate::filter::filter_kind::FilterKindName;
use crate::text::numbers::integer_parser;

/// Commands of `umbel filter`.
#[derive(Debug, Subcommand)]
pub enum FilterCommand {
    /// Compute the keys, false-positive rate or memory of every kind of filter from the other two
    /// values
    Size(SizeArgs),
    /// Build a filter from the lines of a file
    Build(BuildArgs),
    /// Print the lines that may be in a filter; exit code 1 if no line is printed
    Check(CheckArgs),
    /// Print the properties of a filter: header, fill, estimated keys and rate, fill chart
    Inspect(InspectFilterArgs),
    /// Benchmark every kind of filter: bits per key, false-positive rate, build and probe time
    Bench(BenchArgs),
}

/// Arguments of `filter size`.
#[derive(Debug, Args)]
pub struct SizeArgs {
    /// Number of keys
    #[arg(long, value_name = "N", value_parser = integer_parser(1, 1 << 40))]
    pub keys: Option<u64>,
    /// False-positive rate, like 0.01 for 1 %
    #[arg(long, value_name = "P", value_parser = parse_rate, allow_negative_numbers = true)]
    pub fpp: Option<f64>,
    /// Memory of the filter, like 64MiB
    #[arg(long, value_name = "BYTES", value_parser = integer_parser(128, 1 << 40))]
    pub bytes: Option<u64>,
    /// Memory of the filter in bits per key
    #[arg(long, value_name = "B", value_parser = parse_bits, conflicts_with = "bytes",
        allow_negative_numbers = true)]
    pub bits_per_key: Option<f64>,
}

/// Arguments of `filter build`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("size").args(["bits_per_key", "fpp"]))]
pub struct BuildArgs {
    /// File of keys, one per line [default: -, standard input]
    #[arg(value_name = "LINES")]
    pub lines: Option<PathBuf>,
    /// Output file; an existing file is replaced after the filter is complete
    #[arg(long, short, value_name = "FILE")]
    pub output: PathBuf,
    /// Kind of filter
    #[arg(long, value_enum, default_value_t = FilterKindName::Blocked)]
    pub kind: FilterKindName,
    /// Bits per key [default: 10]
    #[arg(long, value_name = "B", value_parser = parse_bits, allow_negative_numbers = true)]
    pub bits_per_key: Option<f64>,
    /// False-positive rate, like 0.01; the smallest filter with at most this rate is built. Without
    /// --hashes, bloom and counting filters have the size by the textbook formula, and up to 1.05
    /// times this rate
    #[arg(long, value_name = "P", value_parser = parse_rate, allow_negative_numbers = true)]
    pub fpp: Option<f64>,
    /// Bits that each key sets (bloom, blocked, counting) [default: the optimum]
    #[arg(long, value_name = "K", value_parser = integer_parser(1, 255))]
    pub hashes: Option<u64>,
    /// Hash function of keys: keyed, siphash-1-3, xxh64, xxh3, murmur3-32, murmur3-128,
    /// seahash, cityhash64, metrohash64, rustc-hash, fxhash, spooky, leveldb
    /// [default: keyed; xxh64 for parquet]
    #[arg(long, value_name = "HASH", value_parser = parse_hash)]
    pub hash: Option<HashKind>,
    /// Seed of the hash, 32 hex digits [default: random for keyed and siphash-1-3, else zeros]
    #[arg(long, value_name = "HEX", value_parser = parse_seed)]
    pub seed: Option<[u8; 16]>,
}

/// Arguments of `filter check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// A filter that `filter build` wrote
    #[arg(value_name = "FILTER")]
    pub filter: PathBuf,
    /// File of lines to check [default: -, standard input]
    #[arg(value_name = "LINES")]
    pub lines: Option<PathBuf>,
    /// Print the lines that are certainly not in the filter
    #[arg(short = 'v', long)]
    pub invert: bool,
    /// Print the number of lines instead of the lines
    #[arg(short = 'c', long)]
    pub count: bool,
}

/// Arguments of `filter inspect`.
#[derive(Debug, Args)]
pub struct InspectFilterArgs {
    /// A filter that `filter build` wrote
    #[arg(value_name = "FILTER")]
    pub filter: PathBuf,
}

/// Arguments of `filter bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// Keys per filter
    #[arg(
        long,
        value_name = "N",
        default_value = "100k",
        value_parser = integer_parser(1000, 1 << 30)
    )]
    pub keys: u64,
    /// Bits per key, for kinds that allow a choice
    #[arg(long, value_name = "B", default_value = "10", value_parser = parse_bits,
        allow_negative_numbers = true)]
    pub bits_per_key: f64,
    /// Kinds to benchmark, comma-separated [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    pub kind: Vec<FilterKindName>,
    /// Repetitions; the median is reported
    #[arg(long, value_name = "N", default_value = "5", value_parser = integer_parser(1, 1000))]
    pub rounds: u64,
}

fn parse_rate(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(rate) if rate > 0.0 && rate < 1.0 => Ok(rate),
        Ok(_) => Err("must be more than 0 and less than 1, like 0.01 for 1 %".to_string()),
        Err(_) => Err(format!("`{text}` is not a number (like 0.01)")),
    }
}

fn parse_bits(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(bits) if bits > 0.0 && bits <= 1000.0 => Ok(bits),
        Ok(_) => Err("must be more than 0 and at most 1000".to_string()),
        Err(_) => Err(format!("`{text}` is not a number (like 10 or 7.5)")),
    }
}

fn parse_hash(text: &str) -> Result<HashKind, String> {
    text.parse().map_err(|error: umbel_filter::HashError| error.to_string())
}

fn parse_seed(text: &str) -> Result<[u8; 16], String> {
    let bytes = crate::text::escaping::parse_hex(text.as_bytes())
        .map_err(|reason| format!("it {reason}"))?;
    let length = bytes.len();
    <[u8; 16]>::try_from(bytes)
        .map_err(|_| format!("must be 32 hex digits, which are 16 bytes; it has {length} bytes"))
}
