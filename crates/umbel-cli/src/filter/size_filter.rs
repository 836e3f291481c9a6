//! `umbel filter size`: from two of keys, rate and memory the third, for every kind.

use clap::ValueEnum;
use serde_json::{Value, json};
use umbel_filter::{FilterOptions, FilterPlan, FilterSize};

use super::args::SizeArgs;
use super::kind::Kind;
use crate::errors::{Failure, Outcome};
use crate::number::{bytes, grouped, percent};
use crate::output::Output;

/// What a filter has besides its bits.
const HEADER_BYTES: u64 = umbel_filter::HEADER_BYTES as u64;
/// What rounding up to a whole line adds at most.
const LINE_BYTES: u64 = 64;
/// The most keys that are looked for.
const KEYS_MAX: u64 = 1 << 40;

/// Two of the three, of which the third follows.
#[derive(Debug, Clone, Copy)]
enum Question {
    Memory { keys: u64, rate: f64 },
    Rate { keys: u64, bits_per_key: f64, room: Option<u64> },
    Keys { rate: f64, bytes: u64 },
}

/// A kind's answer.
struct Row {
    kind: Kind,
    keys: u64,
    plan: FilterPlan,
}

/// Writes a row for each kind, the smallest or the most exact first where that differs.
pub fn run(args: &SizeArgs, json: bool) -> Outcome<()> {
    let question = question(args)?;
    let mut output = Output::new();
    let rows: Vec<_> =
        Kind::value_variants().iter().map(|kind| (*kind, row(*kind, question))).collect();
    if json {
        let rows: Vec<Value> = rows.iter().map(|(kind, row)| to_json(*kind, row)).collect();
        output.json(&json!({ "kinds": rows }))?;
        return output.flush();
    }
    output.line(&asked(question))?;
    output.line(&format!(
        "{:<12} {:>15} {:>9} {:>10} {:>7} {:>11}",
        "kind", "keys", "bits/key", "size", "hashes", "pass"
    ))?;
    for (kind, row) in &rows {
        match row {
            Ok(row) => output.line(&text(row))?,
            Err(reason) => output.line(&format!("{:<12} {reason}", kind.name()))?,
        }
    }
    output.flush()
}

fn question(args: &SizeArgs) -> Outcome<Question> {
    let bits = |keys: u64, bytes: u64| {
        let bits = bytes.saturating_sub(HEADER_BYTES) as f64 * 8.0 / keys as f64;
        bits.min(1000.0)
    };
    match (args.keys, args.fpp, args.bytes, args.bits_per_key) {
        (Some(keys), Some(rate), None, None) => Ok(Question::Memory { keys, rate }),
        (Some(keys), None, Some(bytes), None) => {
            Ok(Question::Rate { keys, bits_per_key: bits(keys, bytes), room: Some(bytes) })
        }
        (Some(keys), None, None, Some(bits_per_key)) => {
            Ok(Question::Rate { keys, bits_per_key, room: None })
        }
        (None, Some(rate), Some(bytes), None) => Ok(Question::Keys { rate, bytes }),
        (Some(_), Some(_), ..) => Err(Failure::usage(
            "--keys, --fpp and memory are three; give two of them, and the third is computed",
        )),
        _ => Err(Failure::usage(
            "give two of --keys, --fpp and memory (--bytes, or --bits-per-key with --keys), and \
             the third is computed: umbel filter size --keys 1M --fpp 0.01",
        )),
    }
}

fn asked(question: Question) -> String {
    match question {
        Question::Memory { keys, rate } => {
            format!("{} keys, and {} of absent keys may pass:", grouped(keys), percent(rate))
        }
        Question::Rate { keys, bits_per_key, .. } => {
            format!("{} keys with {bits_per_key:.2} bits each:", grouped(keys))
        }
        Question::Keys { rate, bytes: room } => {
            format!("{}, and {} of absent keys may pass:", bytes(room), percent(rate))
        }
    }
}

fn row(kind: Kind, question: Question) -> Result<Row, String> {
    let with = |size| FilterOptions { kind: kind.of_library(), size, ..FilterOptions::default() };
    let plan = |options: &FilterOptions, keys| {
        FilterPlan::of(options, keys).map_err(|error| error.to_string())
    };
    let (options, keys) = match question {
        Question::Memory { keys, rate } => (with(FilterSize::Rate(rate)), keys),
        Question::Rate { keys, bits_per_key, room } => {
            // Four bits of memory make a counter; asked for by the key, counters are what is meant.
            let share = if kind == Kind::Counting && room.is_some() { 4.0 } else { 1.0 };
            (with(FilterSize::BitsPerKey(bits_per_key / share)), keys)
        }
        Question::Keys { rate, bytes } => {
            let options = with(FilterSize::Rate(rate));
            let fits = |keys| plan(&options, keys).is_ok_and(|plan| plan.bytes <= bytes);
            (options, most(fits).ok_or("does not fit")?)
        }
    };
    let plan = plan(&options, keys)?;
    // Bits are rounded up to whole lines and blocks, of which one may be too many.
    match question {
        Question::Rate { room: Some(room), .. } if plan.bytes > room + LINE_BYTES => {
            Err("does not fit".to_string())
        }
        _ => Ok(Row { kind, keys, plan }),
    }
}

/// The most keys that fit; `None` where none do.
fn most(fits: impl Fn(u64) -> bool) -> Option<u64> {
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

impl Row {
    fn bits_per_key(&self) -> f64 {
        (self.plan.bytes - HEADER_BYTES) as f64 * 8.0 / self.keys as f64
    }
}

fn text(row: &Row) -> String {
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

/// A rate in percent, and where that says nothing as one in so many.
pub fn rate_text(rate: f64) -> String {
    match rate {
        rate if rate >= 1e-4 => percent(rate),
        rate if rate > 0.0 => format!("{rate:.1e}"),
        _ => "0".to_string(),
    }
}

fn to_json(kind: Kind, row: &Result<Row, String>) -> Value {
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
