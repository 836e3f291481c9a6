//! `umbel filter size`: computes number of keys, false-positive rate or memory from the other two,
//! for every kind.

use clap::ValueEnum;
use serde_json::{Value, json};
use umbel_filter::{FilterOptions, FilterPlan, FilterSize};

use crate::errors::{CommandError, CommandResult};
use crate::filter::filter_args::SizeArgs;
use crate::filter::filter_kind::FilterKindName;
use crate::io::output::Output;
use crate::text::numbers::{bytes, grouped, percent};

/// Bytes of a filter's header.
const HEADER_BYTES: u64 = umbel_filter::HEADER_BYTES as u64;
/// Maximum number of bytes that rounding up to a whole cache line adds.
const LINE_BYTES: u64 = 64;
/// Maximum number of keys that the command computes.
const KEYS_MAX: u64 = 1 << 40;

/// Two of number of keys, rate and memory, from which the third is computed.
#[derive(Debug, Clone, Copy)]
enum SizeRequest {
    Memory { keys: u64, rate: f64 },
    Rate { keys: u64, bits_per_key: f64, memory_limit: Option<u64> },
    Keys { rate: f64, bytes: u64 },
}

/// Result for one kind of filter.
struct KindSize {
    kind: FilterKindName,
    keys: u64,
    plan: FilterPlan,
}

/// Prints a row for each kind, sorted by memory or by false-positive rate if the kinds differ in
/// it.
pub fn run(args: &SizeArgs, json: bool) -> CommandResult<()> {
    let request = parse_request(args)?;
    let mut output = Output::new();
    let rows: Vec<_> = FilterKindName::value_variants()
        .iter()
        .map(|kind| (*kind, kind_size(*kind, request)))
        .collect();
    if json {
        let rows: Vec<Value> = rows.iter().map(|(kind, row)| to_json(*kind, row)).collect();
        output.json(&json!({ "kinds": rows }))?;
        return output.flush();
    }
    output.line(&request_text(request))?;
    output.line(&format!(
        "{:<12} {:>15} {:>9} {:>10} {:>7} {:>11}",
        "kind", "keys", "bits/key", "size", "hashes", "rate"
    ))?;
    for (kind, row) in &rows {
        match row {
            Ok(row) => output.line(&text(row))?,
            Err(reason) => output.line(&format!("{:<12} {reason}", kind.name()))?,
        }
    }
    output.flush()
}

fn parse_request(args: &SizeArgs) -> CommandResult<SizeRequest> {
    let bits = |keys: u64, bytes: u64| {
        let bits = bytes.saturating_sub(HEADER_BYTES) as f64 * 8.0 / keys as f64;
        bits.min(1000.0)
    };
    match (args.keys, args.fpp, args.bytes, args.bits_per_key) {
        (Some(keys), Some(rate), None, None) => Ok(SizeRequest::Memory { keys, rate }),
        (Some(keys), None, Some(bytes), None) => Ok(SizeRequest::Rate {
            keys,
            bits_per_key: bits(keys, bytes),
            memory_limit: Some(bytes),
        }),
        (Some(keys), None, None, Some(bits_per_key)) => {
            Ok(SizeRequest::Rate { keys, bits_per_key, memory_limit: None })
        }
        (None, Some(rate), Some(bytes), None) => Ok(SizeRequest::Keys { rate, bytes }),
        (Some(_), Some(_), ..) => Err(CommandError::usage(
            "--keys, --fpp and memory are all given; give two of them to compute the third",
        )),
        _ => Err(CommandError::usage(
            "give two of --keys, --fpp and memory (--bytes, or --bits-per-key with --keys) to \
             compute the third: umbel filter size --keys 1M --fpp 0.01",
        )),
    }
}

fn request_text(request: SizeRequest) -> String {
    match request {
        SizeRequest::Memory { keys, rate } => {
            format!("{} keys with a false-positive rate of {}:", grouped(keys), percent(rate))
        }
        SizeRequest::Rate { keys, bits_per_key, .. } => {
            format!("{} keys with {bits_per_key:.2} bits per key:", grouped(keys))
        }
        SizeRequest::Keys { rate, bytes: memory_limit } => {
            format!("{} with a false-positive rate of {}:", bytes(memory_limit), percent(rate))
        }
    }
}

fn kind_size(kind: FilterKindName, request: SizeRequest) -> Result<KindSize, String> {
    let with =
        |size| FilterOptions { kind: kind.to_library_kind(), size, ..FilterOptions::default() };
    let plan = |options: &FilterOptions, keys| {
        FilterPlan::of(options, keys).map_err(|error| error.to_string())
    };
    let (options, keys) = match request {
        SizeRequest::Memory { keys, rate } => (with(FilterSize::Rate(rate)), keys),
        SizeRequest::Rate { keys, bits_per_key, memory_limit } => {
            // A counter takes four bits of memory; bits per key mean counters.
            let share =
                if kind == FilterKindName::Counting && memory_limit.is_some() { 4.0 } else { 1.0 };
            (with(FilterSize::BitsPerKey(bits_per_key / share)), keys)
        }
        SizeRequest::Keys { rate, bytes } => {
            let options = with(FilterSize::Rate(rate));
            let fits = |keys| plan(&options, keys).is_ok_and(|plan| plan.bytes <= bytes);
            (options, keys_max(fits).ok_or("does not fit")?)
        }
    };
    let plan = plan(&options, keys)?;
    // Bits are rounded up to whole lines and blocks, of which one may be too many.
    match request {
        SizeRequest::Rate { memory_limit: Some(memory_limit), .. }
            if plan.bytes > memory_limit + LINE_BYTES =>
        {
            Err("does not fit".to_string())
        }
        _ => Ok(KindSize { kind, keys, plan }),
    }
}

/// Maximum number of keys that fit; `None` if no key fits.
fn keys_max(fits: impl Fn(u64) -> bool) -> Option<u64> {
    if !fits(1) {
        return None;
    }
    let (mut fit, mut too_many) = (1, KEYS_MAX);
    while too_many - fit > 1 {
        let middle = fit + (too_many - fit) / 2;
        *(if fits(middle) { &mut fit } else { &mut too_many }) = middle;
    }
    Some(fit)
}

impl KindSize {
    fn bits_per_key(&self) -> f64 {
        (self.plan.bytes - HEADER_BYTES) as f64 * 8.0 / self.keys as f64
    }
}

fn text(row: &KindSize) -> String {
    let hashes = match row.plan.probes {
        0 => "-".to_string(),
        probes => probes.to_string(),
    };
    format!(
        "{:<12} {:>15} {:>9.2} {:>10} {hashes:>7} {:>11}",
        row.kind.name(),
        grouped(row.keys),
        row.bits_per_key(),
        bytes(row.plan.bytes),
        rate_text(row.plan.designed_rate)
    )
}

/// Formats a rate in percent, or as one in N if the percentage would be too small to read.
pub fn rate_text(rate: f64) -> String {
    match rate {
        rate if rate >= 1e-4 => percent(rate),
        rate if rate > 0.0 => format!("{rate:.1e}"),
        _ => "0".to_string(),
    }
}

fn to_json(kind: FilterKindName, row: &Result<KindSize, String>) -> Value {
    match row {
        Ok(row) => json!({
            "kind": kind.name(),
            "keys": row.keys,
            "bits_per_key": row.bits_per_key(),
            "bytes": row.plan.bytes,
            "hashes": row.plan.probes,
            "designed_rate": row.plan.designed_rate,
        }),
        Err(reason) => json!({ "kind": kind.name(), "impossible": reason }),
    }
}
