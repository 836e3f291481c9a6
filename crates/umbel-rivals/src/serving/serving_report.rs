//! Report of the servers as Markdown and as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};
use umbel_lab::measure::machine::Machine;

use crate::kv::kv_report::markdown_table::{NO_VALUE, Table, cell, figure};
use crate::kv::kv_results::Spread;
use crate::serving::server_observers::ObserverCounts;
use crate::serving::server_process::ServerKind;
use crate::serving::serving_arguments::ServingArguments;
use crate::serving::serving_run::{OverallShare, ServingResults, WorkRow, WorkSample};

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

const BARE: &str = "\
`umbel serve --insecure` beside a bare tonic server: the same messages over the same calls, \
answers of the same sizes, nothing stored. Synced, its appends are written to a file whose bytes \
are allocated, with one sync for all waiting calls.
";

const AGAINST: &str = "\
`umbel serve --insecure` beside the same command of another build, the baseline.
";

const OBSERVED: &str = "\
`umbel serve --insecure` that is observed, beside the same server that is not, the baseline. \
Observers are scrapes of the metrics each second; a client that requests what the console's \
overview requests each 5 s, and what its live page requests; and a collector in the client \
program, to which the server exports metrics, logs and spans of 1 % of the calls. The first three \
run only while the observed server is measured.
";

const WHAT_COUNTS: &str = "\
The durability is buffered where a row does not say synced. Servers and clients are processes on \
the same machine, the clients one program, each client with a connection of its own; a hundred \
subscribers share a connection. Events have 100 bytes of data. Batches: 256 in flight for each \
client. Rates are events a second: the median of the rounds and the extremes. The share is the \
median of the rounds' shares. Times are those of a call, or from the making of an event to its \
delivery, in milliseconds: the median of the rounds' p50 / p99 / p99.9. Processor time is that \
of the server for each event.
";

/// Returns the report as a page of Markdown.
pub fn markdown(heading: &ServingHeading<'_>, results: &ServingResults) -> String {
    let (machine, arguments) = (heading.machine, heading.arguments);
    let what = match (arguments.observed, &arguments.against) {
        (true, _) => OBSERVED,
        (_, Some(_)) => AGAINST,
        _ => BARE,
    };
    let mut page = format!("# Serving, {}\n\n", machine.date);
    let load = |loads: Option<[f64; 3]>| {
        loads.map_or(NO_VALUE.to_string(), |loads| format!("{:.2}", loads[0]))
    };
    let _ = writeln!(
        page,
        "{}, {} threads, {}, commit {}. Load before {}, after {}. {} rounds of {} s.\n\n\
         {what}\n{WHAT_COUNTS}",
        machine.processor,
        machine.threads,
        machine.kernel,
        machine.commit,
        load(heading.loads_before),
        load(heading.loads_after),
        arguments.rounds,
        arguments.seconds,
    );
    if let Some(observed) = results.observed {
        let ObserverCounts { scrapes, overviews, live, traces } = observed;
        let _ = writeln!(
            page,
            "{scrapes} scrapes, {overviews} answers to the overview, {live} to the live page, \
             {traces} exports of spans.\n",
        );
    }
    if let Some(share) = results.overall_share().filter(|_| arguments.observed) {
        let OverallShare { mean, least, most, shares } = share;
        let _ = writeln!(
            page,
            "Over all rows, the observed server has **{mean:.3}** of the rate of the other one: \
             the geometric mean of {shares} shares, between {least:.3} and {most:.3} with a \
             probability of 95 %.\n",
        );
    }
    page.push_str(&table(arguments.rival().name(), &results.rows));
    page
}

fn table(rival: &str, rows: &[WorkRow]) -> String {
    let of_rival = |what: &str| format!("{rival}, {what}");
    let heads = [
        "clients",
        "umbel, events/s",
        &of_rival("events/s"),
        "share",
        "aim",
        "umbel, ms",
        &of_rival("ms"),
        "umbel, CPU µs",
        &of_rival("CPU µs"),
    ];
    let mut table = Table::new("work", heads);
    for row in rows {
        let rate = |samples: &[WorkSample]| cell(Spread::of(samples.iter().map(|one| one.rate)));
        let aim = aim(rival, row).map_or(NO_VALUE.to_string(), |aim| aim.to_string());
        let cells = vec![
            row.work.clients.to_string(),
            rate(&row.umbel),
            rate(&row.rival),
            row.share().map_or(NO_VALUE.to_string(), |share| {
                format!("{:.2} ({:.2}–{:.2})", share.median, share.least, share.most)
            }),
            aim,
            times(&row.umbel),
            times(&row.rival),
            processor(&row.umbel),
            processor(&row.rival),
        ];
        table.row(&row.work.name(), cells);
    }
    table.text()
}

/// Returns the fraction of the bare server's rate that is the target.
fn aim(rival: &str, row: &WorkRow) -> Option<f64> {
    row.work.kind.target_share().filter(|_| rival == ServerKind::Bare.name())
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
pub fn json(heading: &ServingHeading<'_>, results: &ServingResults) -> Value {
    let (arguments, machine) = (heading.arguments, heading.machine);
    let rival = arguments.rival().name();
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
        "overall_share": results.overall_share().map(|share| json!({
            "mean": share.mean,
            "least": share.least,
            "most": share.most,
            "shares": share.shares,
        })),
        "observers": results.observed.map(|counts| json!({
            "scrapes": counts.scrapes,
            "overviews": counts.overviews,
            "live": counts.live,
            "traces": counts.traces,
        })),
        "work": results.rows.iter().map(|row| json!({
            "name": row.work.name(),
            "clients": row.work.clients,
            "aim": aim(rival, row),
            "share": row.share().map(|share| share.median),
            "umbel": row.umbel.iter().map(of_sample).collect::<Vec<_>>(),
            rival: row.rival.iter().map(of_sample).collect::<Vec<_>>(),
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
