//! `umbel filter build`: builds a filter of the lines of a file.

use serde_json::json;
use umbel::Env;
use umbel_filter::{
    BuildError, FilterBuilder, FilterFile, FilterOptions, FilterSize, FilterView, HashKind,
    KeyHasher, to_parquet,
};

use crate::errors::{CommandError, CommandResult};
use crate::filter::filter_args::BuildArgs;
use crate::filter::filter_file::OutputFile;
use crate::filter::filter_kind::FilterKindName;
use crate::filter::line_batches::LineBatches;
use crate::filter::size_filter::rate_text;
use crate::io::output::{Output, note};
use crate::text::numbers::{bytes, grouped};

/// Bits per key if no flag sets them.
const BITS_PER_KEY: f64 = 10.0;

/// Reads the lines, builds the filter and prints its properties.
pub fn run(args: &BuildArgs, json: bool) -> CommandResult<()> {
    let size = match (args.bits_per_key, args.fpp) {
        (_, Some(rate)) => FilterSize::Rate(rate),
        (bits, None) => FilterSize::BitsPerKey(bits.unwrap_or(BITS_PER_KEY)),
    };
    let hash = choose_hash(args)?;
    let options = FilterOptions {
        kind: args.kind.to_library_kind(),
        size,
        probes: args.hashes.map(|hashes| hashes as u32),
        hash_kind: hash.number(),
        ..FilterOptions::default()
    };
    let mut builder = FilterBuilder::new(options).map_err(build_error)?;
    let seed = args.seed.map_or_else(|| default_seed(hash), Ok)?;
    let hasher =
        KeyHasher::new(hash, seed).map_err(|error| CommandError::usage(error.to_string()))?;
    let target = OutputFile::resolve(&args.output, args.lines.as_deref())?;
    let mut lines = LineBatches::open(args.lines.as_deref())?;
    let (mut read, mut returns) = (0, false);
    while lines.read()? {
        lines.iter().for_each(|line| builder.add(hasher.hash(line)));
        read += lines.iter().count() as u64;
        returns |= lines.has_carriage_return();
    }
    if returns {
        note("umbel: note: some lines end with a carriage return, which is part of the key");
    }
    let filter = builder.finish().map_err(build_error)?;
    let encoded = match args.kind {
        FilterKindName::Parquet => build_parquet(&filter)?,
        _ => FilterFile::encode(hash, seed, &filter)
            .map_err(|error| CommandError::usage(error.to_string()))?,
    };
    target.write(&encoded)?;
    let built = BuiltFilter { lines: read, filter: &filter, file_bytes: encoded.len() as u64 };
    let summary = built.text(args, hash, json);
    // A filter on standard output must not be followed by a line of text.
    if target.is_stream {
        note(&summary);
        return Ok(());
    }
    let mut output = Output::new().after("the filter was written");
    output.line(&summary)?;
    output.flush()
}

/// Returns the requested hash; by default the hash of stores, or for Parquet the only one that its
/// format allows.
fn choose_hash(args: &BuildArgs) -> CommandResult<HashKind> {
    match (args.kind, args.hash) {
        (FilterKindName::Parquet, None | Some(HashKind::Xxh64)) if args.seed.is_none() => {
            Ok(HashKind::Xxh64)
        }
        (FilterKindName::Parquet, _) => Err(CommandError::usage(
            "Parquet filters use xxh64 and no seed; remove --hash and --seed, or choose another \
             --kind",
        )),
        (_, hash) => Ok(hash.unwrap_or_default()),
    }
}

/// Builds a filter in the format of Apache Parquet.
fn build_parquet(filter: &[u8]) -> CommandResult<Vec<u8>> {
    let refused = |error: &dyn std::fmt::Display| CommandError::usage(error.to_string());
    if filter.is_empty() {
        return Err(CommandError::usage("no lines: a Parquet filter needs at least one key"));
    }
    let view = FilterView::parse(filter).map_err(|error| refused(&error))?;
    to_parquet(&view).map_err(|error| refused(&error))
}

/// Result of a build.
struct BuiltFilter<'f> {
    lines: u64,
    filter: &'f [u8],
    file_bytes: u64,
}

impl BuiltFilter<'_> {
    fn text(&self, args: &BuildArgs, hash: HashKind, json: bool) -> String {
        let view = FilterView::parse(self.filter).unwrap_or(FilterView::MAYBE);
        let rate = view.designed_rate();
        let payload = self.filter.len().saturating_sub(umbel_filter::HEADER_BYTES);
        let bits = payload as f64 * 8.0 / view.keys().max(1) as f64;
        let path = args.output.display();
        if json {
            let facts = json!({
                "lines": self.lines,
                "keys": view.keys(),
                "kind": args.kind.name(),
                "hash": hash.name(),
                "bytes": self.file_bytes,
                "bits_per_key": bits,
                "designed_rate": rate,
            });
            return facts.to_string();
        }
        if self.filter.is_empty() {
            return format!("no lines: {path} is a filter that passes every key");
        }
        format!(
            "{path}: {} lines in {}, {bits:.2} bits per key, false-positive rate {} by design",
            grouped(self.lines),
            bytes(self.file_bytes),
            rate_text(rate)
        )
    }
}

/// Returns the default seed: random for keyed hashes, so that keys cannot be chosen to collide;
/// zeros for hashes of other programs.
fn default_seed(hash: HashKind) -> CommandResult<[u8; 16]> {
    let mut seed = [0; 16];
    if matches!(hash, HashKind::Keyed | HashKind::SipHash13) {
        Env::system().entropy.fill(&mut seed)?;
    }
    Ok(seed)
}

fn build_error(error: BuildError) -> CommandError {
    match error {
        BuildError::NoMemory { .. } => CommandError::System(error.to_string()),
        error => CommandError::usage(error.to_string()),
    }
}
