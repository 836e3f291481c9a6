//! `umbel filter build`: a filter of the lines of a file.

use serde_json::json;
use umbel::Env;
use umbel_filter::{
    BuildError, FilterBuilder, FilterFile, FilterOptions, FilterSize, FilterView, HashKind,
    KeyHasher, to_parquet,
};

use super::args::BuildArgs;
use super::file::Target;
use super::kind::Kind;
use super::lines::Lines;
use super::size::rate_text;
use crate::errors::{Failure, Outcome};
use crate::number::{bytes, grouped};
use crate::output::{Output, note};

/// The bits of a key where nothing is said.
const BITS_PER_KEY: f64 = 10.0;

/// Reads the lines, builds the filter and says what it became.
pub fn run(args: &BuildArgs, json: bool) -> Outcome<()> {
    let size = match (args.bits_per_key, args.fpp) {
        (_, Some(rate)) => FilterSize::Rate(rate),
        (bits, None) => FilterSize::BitsPerKey(bits.unwrap_or(BITS_PER_KEY)),
    };
    let hash = hash(args)?;
    let options = FilterOptions {
        kind: args.kind.of_library(),
        size,
        probes: args.hashes.map(|hashes| hashes as u32),
        hash_kind: hash.number(),
        ..FilterOptions::default()
    };
    let mut builder = FilterBuilder::new(options).map_err(refused)?;
    let seed = args.seed.map_or_else(|| default_seed(hash), Ok)?;
    let hasher = KeyHasher::new(hash, seed).map_err(|error| Failure::usage(error.to_string()))?;
    let target = Target::of(&args.output, args.lines.as_deref())?;
    let mut lines = Lines::open(args.lines.as_deref())?;
    let (mut read, mut returns) = (0, false);
    while lines.read()? {
        lines.iter().for_each(|line| builder.add(hasher.hash(line)));
        read += lines.iter().count() as u64;
        returns |= lines.has_carriage_return();
    }
    if returns {
        note("umbel: some lines end with a carriage return, which is part of the key");
    }
    let filter = builder.finish().map_err(refused)?;
    let encoded = match args.kind {
        Kind::Parquet => parquet(&filter)?,
        _ => FilterFile::encode(hash, seed, &filter)
            .map_err(|error| Failure::usage(error.to_string()))?,
    };
    target.write(&encoded)?;
    let made = Made { lines: read, filter: &filter, file_bytes: encoded.len() as u64 };
    let said = made.text(args, hash, json);
    // What went to standard output is not to be followed by a line about it.
    if target.is_stream {
        note(&said);
        return Ok(());
    }
    let mut output = Output::new();
    output.line(&said)?;
    output.flush()
}

/// The hash that was asked for; without one the store's own, or the only one that Parquet has.
fn hash(args: &BuildArgs) -> Outcome<HashKind> {
    match (args.kind, args.hash) {
        (Kind::Parquet, None | Some(HashKind::Xxh64)) if args.seed.is_none() => Ok(HashKind::Xxh64),
        (Kind::Parquet, _) => Err(Failure::usage(
            "Parquet's filters are made with xxh64 and no seed; leave --hash and --seed out, or \
             take another --kind",
        )),
        (_, hash) => Ok(hash.unwrap_or_default()),
    }
}

/// The filter as Parquet writes it.
fn parquet(filter: &[u8]) -> Outcome<Vec<u8>> {
    let refused = |error: &dyn std::fmt::Display| Failure::usage(error.to_string());
    if filter.is_empty() {
        return Err(Failure::usage("no lines: Parquet has no filter of no keys"));
    }
    let view = FilterView::parse(filter).map_err(|error| refused(&error))?;
    to_parquet(&view).map_err(|error| refused(&error))
}

/// What was built.
struct Made<'f> {
    lines: u64,
    filter: &'f [u8],
    file_bytes: u64,
}

impl Made<'_> {
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
            return format!("no lines: {path} is a filter that lets everything through");
        }
        format!(
            "{path}: {} lines in {}, {bits:.2} bits a key; {} of absent keys pass by design",
            grouped(self.lines),
            bytes(self.file_bytes),
            rate_text(rate)
        )
    }
}

/// Zeros for the hashes of other programs; for those that keep keys from being chosen, a seed that
/// nobody has chosen either.
fn default_seed(hash: HashKind) -> Outcome<[u8; 16]> {
    let mut seed = [0; 16];
    if matches!(hash, HashKind::Keyed | HashKind::SipHash13) {
        Env::system().entropy.fill(&mut seed)?;
    }
    Ok(seed)
}

fn refused(error: BuildError) -> Failure {
    match error {
        BuildError::NoMemory { .. } => Failure::System(error.to_string()),
        error => Failure::usage(error.to_string()),
    }
}
