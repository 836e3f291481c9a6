//! `umbel filter inspect`: prints the properties and the fill of a filter.

use serde_json::json;
use umbel_filter::FilterKind;

use crate::errors::CommandResult;
use crate::filter::filter_args::InspectFilterArgs;
use crate::filter::size_filter::rate_text;
use crate::filter::{fill_chart, filter_file};
use crate::io::output::Output;
use crate::text::escaping;
use crate::text::numbers::{bytes, grouped, percent};

/// Prints the properties of the filter.
pub fn run(args: &InspectFilterArgs, json: bool) -> CommandResult<()> {
    let file = filter_file::read(&args.filter)?;
    let (view, payload) = (file.view(), file.payload());
    let ones: u64 = payload.iter().map(|byte| u64::from(byte.count_ones())).sum();
    let fill = ones as f64 / (payload.len().max(1) * 8) as f64;
    let bits = payload.len() as f64 * 8.0 / view.keys().max(1) as f64;
    let kind = view.kind().map_or("none: no keys were added, every key passes", |kind| kind.name());
    let mut output = Output::new();
    if json {
        let estimated = view.estimated_keys();
        output.json(&json!({
            "kind": view.kind().map(|kind| kind.name()),
            "format": if file.is_parquet { "parquet" } else { "umbel" },
            "hash": file.hasher.kind().name(),
            "seed": escaping::hex(&file.seed),
            "bytes": file.file_bytes,
            "keys": view.keys(),
            "hashes": view.probes(),
            "bits_per_key": bits,
            "fill": fill,
            "estimated_keys": estimated.is_finite().then_some(estimated),
            "designed_rate": view.designed_rate(),
            "estimated_rate": view.estimated_rate(),
        }))?;
        return output.flush();
    }
    output.line(&args.filter.display().to_string())?;
    let mut say = |name: &str, text: String| output.line(&format!("  {name:<16} {text}"));
    say("kind", kind.to_string())?;
    if file.is_parquet {
        say("format", "Apache Parquet".to_string())?;
    }
    say("hash", file.hasher.kind().to_string())?;
    say("seed", escaping::hex(&file.seed))?;
    say("size", bytes(file.file_bytes))?;
    if view.kind().is_some() {
        say("keys", grouped(view.keys()))?;
        say("bits per key", format!("{bits:.2}"))?;
        if view.probes() > 0 {
            say("hashes", view.probes().to_string())?;
        }
        say("ones", percent(fill))?;
        let is_static = view.kind().is_some_and(FilterKind::is_static);
        let estimated = view.estimated_keys();
        let estimated = match estimated.is_finite() {
            true => grouped(estimated.round() as u64),
            false => "unknown: every bit is set".to_string(),
        };
        say("designed rate", rate_text(view.designed_rate()))?;
        // The bits of static kinds say nothing of how many keys there are.
        if !is_static {
            say("estimated keys", estimated)?;
            say("estimated rate", rate_text(view.estimated_rate()))?;
        }
        say("fill", String::new())?;
        for line in fill_chart::draw(payload) {
            output.line(&format!("  |{line}|"))?;
        }
    }
    output.flush()
}
