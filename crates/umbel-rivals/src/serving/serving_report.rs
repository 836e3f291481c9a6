//! The results as Markdown and as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};
use umbel_lab::machine::Machine;

use super::arguments::Arguments;
use super::run::{Row, Sample};
use crate::record::Spread;
use crate::report::table::{NOTHING, Table, cell, figure};

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
`umbel serve --insecure` beside a bare tonic server: the same messages over the same calls, \
answers of the same sizes, nothing kept; synced, its appends are written to a file whose bytes are \
allocated, with one sync for all who wait. Servers and clients are processes on the same machine, \
the clients one program, each client with a connection of its own; subscribers share a connection \
by the hundred. Events have 100 bytes of data. Batches: 256 under way for each client. Rates are \
events a second, the median of the rounds with the extremes; the share is the median of the \
rounds' own. Times are those of a call, or of an event's way from its making to a subscriber, in \
milliseconds: the median of the rounds' p50 / p99 / p99.9. Processor time is that of the server \
for each event.
";

/// The results as a page.
pub fn markdown(heading: &Heading<'_>, rows: &[Row]) -> String {
    let (machine, arguments) = (heading.machine, heading.arguments);
    let mut page = format!("# Serving, {}\n\n", machine.date);
    let load = |loads: Option<[f64; 3]>| {
        loads.map_or(NOTHING.to_string(), |loads| format!("{:.2}", loads[0]))
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

fn table(rows: &[Row]) -> String {
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
        let rate = |samples: &[Sample]| cell(Spread::of(samples.iter().map(|one| one.rate)));
        let aim = row.work.kind.aim().map_or(NOTHING.to_string(), |aim| aim.to_string());
        let cells = vec![
            row.work.clients.to_string(),
            rate(&row.umbel),
            rate(&row.bare),
            row.share().map_or(NOTHING.to_string(), |share| {
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

fn times(samples: &[Sample]) -> String {
    let of = |at: usize| Spread::of(samples.iter().map(|one| one.times_ms[at]));
    let parts = [0, 1, 2].map(|at| of(at).map_or(NOTHING.to_string(), |of| figure(of.median)));
    parts.join(" / ")
}

fn processor(samples: &[Sample]) -> String {
    let spread = Spread::of(samples.iter().filter_map(|one| one.server_us));
    spread.map_or(NOTHING.to_string(), |spread| figure(spread.median))
}

/// The results for programs.
pub fn json(heading: &Heading<'_>, rows: &[Row]) -> Value {
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
            "aim": row.work.kind.aim(),
            "share": row.share().map(|share| share.median),
            "umbel": row.umbel.iter().map(of_sample).collect::<Vec<_>>(),
            "bare": row.bare.iter().map(of_sample).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
    })
}

fn of_sample(sample: &Sample) -> Value {
    json!({
        "events_per_second": sample.rate,
        "p50_ms": sample.times_ms[0],
        "p99_ms": sample.times_ms[1],
        "p999_ms": sample.times_ms[2],
        "server_us_per_event": sample.server_us,
        "client_us_per_event": sample.client_us,
    })
}
