//! Report of the servers as Markdown and as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};
use umbel_lab::measure::machine::Machine;

use crate::kv::kv_report::markdown_table::{NO_VALUE, Table, cell, figure};
use crate::kv::kv_results::Spread;
use crate::serving::serving_arguments::ServingArguments;
use crate::serving::serving_run::{WorkRow, WorkSample};

/// Description of the run.
#[derive(Debug)]
pub struct ServingHeading<'a> {
    /// Options of the run.
    pub arguments: &'a ServingArguments,
    /// Machine and date.
    pub machine: &'a Machine,
    /// Load averages before the run.
    pub loads_before: Option<[f64; 3]>,
    /// Load averages after the run.
    pub loads_after: Option<[f64; 3]>,
}

const WHAT_COUNTS: &str = "\
`umbel serve --insecure` beside a bare tonic server: the same messages over the same calls, \
answers of the same sizes, nothing stored. The durability is buffered where a row does not say \
synced. Synced, its appends are written to a file whose bytes \
are allocated, with one sync for all waiting calls. Servers and clients are processes on the same \
machine, the clients one program, each client with a connection of its own; a hundred subscribers \
share a connection. Events have 100 bytes of data. Batches: 256 in flight for each client. Rates \
are events a second: the median of the rounds and the extremes. The share is the median of the \
rounds' shares. Times are those of a call, or from the making of an event to its delivery, in \
milliseconds: the median of the rounds' p50 / p99 / p99.9. Processor time is that of the server \
for each event.
";

/// Returns the report as a page of Markdown.
pub fn markdown(heading: &ServingHeading<'_>, rows: &[WorkRow]) -> String {
    let (machine, arguments) = (heading.machine, heading.arguments);
    let mut page = format!("# Serving, {}\n\n", machine.date);
    let load = |loads: Option<[f64; 3]>| {
        loads.map_or(NO_VALUE.to_string(), |loads| format!("{:.2}", loads[0]))
    };
    let _ = writeln!(
        page,
        "{}, {} threads, {}, commit {}. Load before {}, after {}. {} rounds of {} s.\n\n\
         {WHAT_COUNTS}",
        machine.processor,
        machine.threads,
        machine.kernel,
        machine.commit,
        load(heading.loads_before),
        load(heading.loads_after),
        arguments.rounds,
        arguments.seconds,
    );
    page.push_str(&table(rows));
    page
}

fn table(rows: &[WorkRow]) -> String {
    let heads = [
        "clients",
        "umbel, events/s",
        "bare, events/s",
        "share",
        "aim",
        "umbel, ms",
        "bare, ms",
        "umbel, CPU µs",
        "bare, CPU µs",
    ];
    let mut table = Table::new("work", heads);
    for row in rows {
        let rate = |samples: &[WorkSample]| cell(Spread::of(samples.iter().map(|one| one.rate)));
        let aim = row.work.kind.target_share().map_or(NO_VALUE.to_string(), |aim| aim.to_string());
        let cells = vec![
            row.work.clients.to_string(),
            rate(&row.umbel),
            rate(&row.bare),
            row.share().map_or(NO_VALUE.to_string(), |share| {
                format!("{:.2} ({:.2}–{:.2})", share.median, share.least, share.most)
            }),
            aim,
            times(&row.umbel),
            times(&row.bare),
            processor(&row.umbel),
            processor(&row.bare),
        ];
        table.row(&row.work.name(), cells);
    }
    table.text()
}

fn times(samples: &[WorkSample]) -> String {
    let of = |at: usize| Spread::of(samples.iter().map(|one| one.times_ms[at]));
    let parts = [0, 1, 2].map(|at| of(at).map_or(NO_VALUE.to_string(), |of| figure(of.median)));
    parts.join(" / ")
}

fn processor(samples: &[WorkSample]) -> String {
    let spread = Spread::of(samples.iter().filter_map(|one| one.server_us));
    spread.map_or(NO_VALUE.to_string(), |spread| figure(spread.median))
}

/// Returns the report as JSON.
pub fn json(heading: &ServingHeading<'_>, rows: &[WorkRow]) -> Value {
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
        "seconds": arguments.seconds,
        "work": rows.iter().map(|row| json!({
            "name": row.work.name(),
            "clients": row.work.clients,
            "aim": row.work.kind.target_share(),
            "share": row.share().map(|share| share.median),
            "umbel": row.umbel.iter().map(of_sample).collect::<Vec<_>>(),
            "bare": row.bare.iter().map(of_sample).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
    })
}

fn of_sample(sample: &WorkSample) -> Value {
    json!({
        "events_per_second": sample.rate,
        "p50_ms": sample.times_ms[0],
        "p99_ms": sample.times_ms[1],
        "p999_ms": sample.times_ms[2],
        "server_us_per_event": sample.server_us,
        "client_us_per_event": sample.client_us,
    })
}
