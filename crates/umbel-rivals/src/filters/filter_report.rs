//! The results as Markdown and as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};
use umbel_lab::machine::Machine;

use crate::filters::arguments::Arguments;
use crate::filters::list::version;
use crate::filters::run::{Place, Row, Way};
use crate::record::Spread;
use crate::report::table::{NOTHING, Table, cell, maybe};

/// What the results are of.
#[derive(Debug)]
pub struct Heading<'a> {
    /// What was asked for.
    pub arguments: &'a Arguments,
    /// Where and when.
    pub machine: &'a Machine,
    /// The machine's load before the run.
    pub loads_before: Option<[f64; 3]>,
    /// And now.
    pub loads_after: Option<[f64; 3]>,
}

const WHAT_COUNTS: &str = "\
Times are nanoseconds of processor time of the thread that asks, the median of the rounds with the \
extremes; every filter is asked the same questions, by turns. Building is for each key, until the \
filter can be asked. The rate is measured with four million absent keys. Asked in turn, \
where a question stands depends on the answer before it: the processor looks ahead only by \
guessing answers, as it can where a filter branches on each bit, and as it does in other columns. \
A batch is all questions in one call, where the crate has one. Keys have 16 bytes.
";

/// The results as a page.
pub fn markdown(heading: &Heading<'_>, places: &[Place]) -> String {
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
                let _ = writeln!(page, "{}: {defect}.\n", row.contestant.name);
            }
        }
    }
    page
}

fn load(loads: Option<[f64; 3]>) -> String {
    loads.map_or(NOTHING.to_string(), |loads| format!("{:.2}", loads[0]))
}

fn table(place: &Place) -> String {
    let mut heads = vec!["version"];
    if place.of_keys {
        heads.push("hash");
    }
    heads.extend(["bits per key", "rate %", "build"]);
    heads.extend(Way::ALL.map(Way::name));
    let mut table = Table::new("filter", heads);
    for row in &place.rows {
        let mut cells = vec![version(row.contestant.package).to_string()];
        if place.of_keys {
            cells.push(row.contestant.hash.to_string());
        }
        cells.push(maybe(row.bits_per_key));
        cells.push(row.rate.map_or(NOTHING.to_string(), |rate| format!("{:.4}", rate * 100.0)));
        cells.push(cell(row.build()));
        cells.extend(Way::ALL.map(|way| cell(row.asked(way))));
        table.row(row.contestant.name, cells);
    }
    table.text()
}

/// The results for programs.
pub fn json(heading: &Heading<'_>, places: &[Place]) -> Value {
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

fn of_row(row: &Row) -> Value {
    let asked: serde_json::Map<String, Value> =
        Way::ALL.iter().map(|way| (way.name().to_string(), of_spread(row.asked(*way)))).collect();
    json!({
        "name": row.contestant.name,
        "crate": row.contestant.package,
        "version": version(row.contestant.package),
        "hash": row.contestant.hash,
        "bits_per_key": row.bits_per_key,
        "rate": row.rate,
        "build_ns": of_spread(row.build()),
        "asked_ns": asked,
        "defect": row.defect,
    })
}

fn of_spread(spread: Option<Spread>) -> Value {
    spread.map_or(
        Value::Null,
        |spread| json!({ "least": spread.least, "median": spread.median, "most": spread.most }),
    )
}
