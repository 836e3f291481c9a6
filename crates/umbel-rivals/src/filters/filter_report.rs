//! Report of the filters as Markdown and as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};
use umbel_lab::measure::machine::Machine;

use crate::filters::candidate_list::version;
use crate::filters::filter_arguments::FilterArguments;
use crate::filters::filter_run::{FilterRow, ProbeMode, SizeResults};
use crate::kv::kv_report::markdown_table::{NO_VALUE, Table, cell, optional_cell};
use crate::kv::kv_results::Spread;

/// Description of the run.
#[derive(Debug)]
pub struct FilterHeading<'a> {
    /// Options of the run.
    pub arguments: &'a FilterArguments,
    /// Machine and date.
    pub machine: &'a Machine,
    /// Load averages before the run.
    pub loads_before: Option<[f64; 3]>,
    /// Load averages after the run.
    pub loads_after: Option<[f64; 3]>,
}

const WHAT_COUNTS: &str = "\
Times are nanoseconds of processor time of the probing thread: the median of the rounds and the \
extremes. Every filter gets the same probes; the filters take turns. The build time is for each \
key, until the filter can be probed. The false-positive rate is measured with four million absent \
keys. In the columns `in turn` the place of a probe depends on the answer before it: the processor \
looks ahead only by guessing answers, as it also does where a filter branches on each bit. A batch \
is all probes in one call, where the crate has one. Keys have 16 bytes.
";

/// Returns the report as a page of Markdown.
pub fn markdown(heading: &FilterHeading<'_>, places: &[SizeResults]) -> String {
    let machine = heading.machine;
    let mut page = format!("# Filters, {}\n\n", machine.date);
    let _ = writeln!(
        page,
        "{}, {} threads, {}, commit {}. Load before {}, after {}.\n\n{WHAT_COUNTS}",
        machine.processor,
        machine.threads,
        machine.kernel,
        machine.commit,
        load(heading.loads_before),
        load(heading.loads_after),
    );
    for place in places {
        let given = if place.of_keys { "given keys" } else { "given hashes" };
        let _ = writeln!(page, "## {} keys, {given}\n\n{}", place.num, table(place));
        for row in &place.rows {
            if let Some(defect) = &row.defect {
                let _ = writeln!(page, "{}: {defect}.\n", row.candidate.name);
            }
        }
    }
    page
}

fn load(loads: Option<[f64; 3]>) -> String {
    loads.map_or(NO_VALUE.to_string(), |loads| format!("{:.2}", loads[0]))
}

fn table(place: &SizeResults) -> String {
    let mut heads = vec!["version"];
    if place.of_keys {
        heads.push("hash");
    }
    heads.extend(["bits per key", "rate %", "build"]);
    heads.extend(ProbeMode::ALL.map(ProbeMode::name));
    let mut table = Table::new("filter", heads);
    for row in &place.rows {
        let mut cells = vec![version(row.candidate.package).to_string()];
        if place.of_keys {
            cells.push(row.candidate.hash.to_string());
        }
        cells.push(optional_cell(row.bits_per_key));
        cells.push(row.rate.map_or(NO_VALUE.to_string(), |rate| format!("{:.4}", rate * 100.0)));
        cells.push(cell(row.build()));
        cells.extend(ProbeMode::ALL.map(|mode| cell(row.probe_time(mode))));
        table.row(row.candidate.name, cells);
    }
    table.text()
}

/// Returns the report as JSON.
pub fn json(heading: &FilterHeading<'_>, places: &[SizeResults]) -> Value {
    let (arguments, machine) = (heading.arguments, heading.machine);
    json!({
        "date": machine.date,
        "commit": machine.commit,
        "processor": machine.processor,
        "threads": machine.threads,
        "memory_mib": machine.memory_mib,
        "kernel": machine.kernel,
        "loads_before": heading.loads_before,
        "loads_after": heading.loads_after,
        "rounds": arguments.rounds,
        "questions": arguments.questions,
        "places": places.iter().map(|place| json!({
            "keys": place.num,
            "given": if place.of_keys { "keys" } else { "hashes" },
            "filters": place.rows.iter().map(of_row).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
    })
}

fn of_row(row: &FilterRow) -> Value {
    let probe_ns: serde_json::Map<String, Value> = ProbeMode::ALL
        .iter()
        .map(|mode| (mode.name().to_string(), of_spread(row.probe_time(*mode))))
        .collect();
    json!({
        "name": row.candidate.name,
        "crate": row.candidate.package,
        "version": version(row.candidate.package),
        "hash": row.candidate.hash,
        "bits_per_key": row.bits_per_key,
        "rate": row.rate,
        "build_ns": of_spread(row.build()),
        "asked_ns": probe_ns,
        "defect": row.defect,
    })
}

fn of_spread(spread: Option<Spread>) -> Value {
    spread.map_or(
        Value::Null,
        |spread| json!({ "least": spread.least, "median": spread.median, "most": spread.most }),
    )
}
