//! The flags of `umbel filter`.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};
use umbel_filter::HashKind;

use super::kind::Kind;
use crate::number::counts;

/// What is done with a filter.
#[derive(Debug, Subcommand)]
pub enum FilterCommand {
    /// From two of keys, rate and memory the third, for every kind in one table
    Size(SizeArgs),
    /// Make a filter of the lines of a file
    Build(BuildArgs),
    /// Print the lines that may be in a filter, as grep would
    Check(CheckArgs),
    /// Say what a filter is: header, fill, estimated count and rate, a picture of the fill
    Inspect(InspectArgs),
    /// Measure every kind on this machine: bits per key, rate, building, asking
    Bench(BenchArgs),
}

/// Arguments of `filter size`.
#[derive(Debug, Args)]
pub struct SizeArgs {
    /// How many keys there are
    #[arg(long, value_name = "N", value_parser = counts(1, 1 << 40))]
    pub keys: Option<u64>,
    /// The share of absent keys that may pass, like 0.01 for 1 %
    #[arg(long, value_name = "P", value_parser = rate, allow_negative_numbers = true)]
    pub fpp: Option<f64>,
    /// How much memory the filter may take, like 64MiB
    #[arg(long, value_name = "BYTES", value_parser = counts(128, 1 << 40))]
    pub bytes: Option<u64>,
    /// Memory as bits for each key
    #[arg(long, value_name = "B", value_parser = bits, conflicts_with = "bytes",
        allow_negative_numbers = true)]
    pub bits_per_key: Option<f64>,
}

/// Arguments of `filter build`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("size").args(["bits_per_key", "fpp"]))]
pub struct BuildArgs {
    /// The keys, one a line; `-` or nothing is standard input
    #[arg(value_name = "LINES")]
    pub lines: Option<PathBuf>,
    /// Where the filter goes; a file that is there is replaced once the filter is whole
    #[arg(long, short, value_name = "FILE")]
    pub output: PathBuf,
    /// Which kind of filter
    #[arg(long, value_enum, default_value_t = Kind::Blocked)]
    pub kind: Kind,
    /// Bits for each key [default: 10]
    #[arg(long, value_name = "B", value_parser = bits, allow_negative_numbers = true)]
    pub bits_per_key: Option<f64>,
    /// As few bits as let no more than this share of absent keys pass, like 0.01; for bloom and
    /// counting by the textbook's formula, which may end a twentieth above it
    #[arg(long, value_name = "P", value_parser = rate, allow_negative_numbers = true)]
    pub fpp: Option<f64>,
    /// How many bits each key sets, instead of the best number (bloom, blocked, counting)
    #[arg(long, value_name = "K", value_parser = counts(1, 255))]
    pub hashes: Option<u64>,
    /// What keys are hashed with: keyed, siphash-1-3, xxh64, xxh3, murmur3-32, murmur3-128,
    /// seahash, cityhash64, metrohash64, rustc-hash, fxhash, spooky, leveldb
    /// [default: keyed; xxh64 for parquet]
    #[arg(long, value_name = "HASH", value_parser = hash)]
    pub hash: Option<HashKind>,
    /// The seed of the hash, 32 hex digits [default: random for keyed and siphash-1-3, else zeros]
    #[arg(long, value_name = "HEX", value_parser = seed)]
    pub seed: Option<[u8; 16]>,
}

/// Arguments of `filter check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// A filter that `filter build` wrote
    #[arg(value_name = "FILTER")]
    pub filter: PathBuf,
    /// The lines to ask for; `-` or nothing is standard input
    #[arg(value_name = "LINES")]
    pub lines: Option<PathBuf>,
    /// Print the lines that are surely not in it instead
    #[arg(short = 'v', long)]
    pub invert: bool,
    /// Print how many lines there are, instead of the lines
    #[arg(short = 'c', long)]
    pub count: bool,
}

/// Arguments of `filter inspect`.
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// A filter that `filter build` wrote
    #[arg(value_name = "FILTER")]
    pub filter: PathBuf,
}

/// Arguments of `filter bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// How many keys each filter gets
    #[arg(long, value_name = "N", default_value = "100k", value_parser = counts(1000, 1 << 30))]
    pub keys: u64,
    /// Bits for each key, where the kind lets them be chosen
    #[arg(long, value_name = "B", default_value = "10", value_parser = bits,
        allow_negative_numbers = true)]
    pub bits_per_key: f64,
    /// Only these kinds
    #[arg(long, value_enum, value_delimiter = ',')]
    pub kind: Vec<Kind>,
    /// Repetitions; the median counts
    #[arg(long, value_name = "N", default_value = "5", value_parser = counts(1, 1000))]
    pub rounds: u64,
}

fn rate(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(rate) if rate > 0.0 && rate < 1.0 => Ok(rate),
        Ok(_) => Err("must be more than 0 and less than 1, like 0.01 for 1 %".to_string()),
        Err(_) => Err(format!("`{text}` is not a number (like 0.01)")),
    }
}

fn bits(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(bits) if bits > 0.0 && bits <= 1000.0 => Ok(bits),
        Ok(_) => Err("must be more than 0 and at most 1000".to_string()),
        Err(_) => Err(format!("`{text}` is not a number (like 10 or 7.5)")),
    }
}

fn hash(text: &str) -> Result<HashKind, String> {
    text.parse().map_err(|error: umbel_filter::HashError| error.to_string())
}

fn seed(text: &str) -> Result<[u8; 16], String> {
    let bytes = crate::text::parse_hex(text.as_bytes()).map_err(|reason| format!("it {reason}"))?;
    let length = bytes.len();
    <[u8; 16]>::try_from(bytes)
        .map_err(|_| format!("must be 32 hex digits, which are 16 bytes; it has {length} bytes"))
}
