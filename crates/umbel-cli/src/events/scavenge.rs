//! `umbel scavenge`: frees the space of events that no reader can read from their streams any more.
//! With `--now` it removes all their data, and reports what still has some.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use umbel::Durability;
use umbel_env::Env;
use umbel_events::{ScavengeOptions, ScavengeReport};

use crate::errors::CommandResult;
use crate::events::auto_scavenge::AutoScavengeRequest;
use crate::events::client::connection_string::ConnectionString;
use crate::events::client::server_work::ServerWork;
use crate::events::client::shell_command::{store_command, umbel_command};
use crate::events::event_args::ScavengeArgs;
use crate::events::open_event_store;
use crate::events::remaining_data::{RemainingData, with_server_remedy};
use crate::events::server_history::ServerHistory;
use crate::global_options::StoreLimits;
use crate::io::output::{Output, note};
use crate::io::progress::{Progress, Unit};
use crate::text::numbers;

/// Remedy where a server has the store open.
const AT_A_SERVER: &str = "start the scavenge there: by umbel scavenge --connect ADDRESS, on the \
    page Work of its console (/console/#/work), or by StartScavenge of a client, whose option \
    remove_all is --now";
/// Interval between two updates of the shown progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// Scavenges the store. A killed scavenge resumes at the next start.
pub fn run(
    directory: Option<&Path>,
    args: &ScavengeArgs,
    json: bool,
    limits: StoreLimits,
) -> CommandResult<()> {
    if let Some(connect) = &args.connect {
        if args.history {
            return ServerHistory::Scavenges.print(connect, json);
        }
        return match AutoScavengeRequest::of(args) {
            Some(request) => request.run(connect, json),
            None => run_on_server(connect, args, json),
        };
    }
    let clock = Env::system().clock;
    let store = open_event_store::open(directory, limits, Durability::Buffered)
        .map_err(|failure| with_server_remedy(failure, limits, AT_A_SERVER))?;
    let options = ScavengeOptions {
        bytes_per_second: args.throttle,
        busy_percent: args.busy.unwrap_or(100),
        dead_percent_min: args.threshold.unwrap_or(0),
        from_start: args.from_start,
        removes_all: args.now,
        ..ScavengeOptions::default()
    };
    let running = store.start_scavenge(&options)?;
    let mut progress = Progress::new("scavenge", Unit::Operations, None, &clock);
    while !running.wait_for(PROGRESS_INTERVAL) {
        let so_far = running.progress();
        progress.set(so_far.events, || report_text(&so_far));
    }
    let seconds = progress.elapsed().as_secs_f64();
    progress.finish();
    let report = running.wait()?;
    let shown = store.path().display().to_string();
    store.close()?;
    if report.resumed_from.is_some() && !json {
        note("resumed an interrupted scavenge");
    }
    let remaining = args.now.then(|| {
        let hidden_events = report.hidden_events_left.unwrap_or_default();
        let (kept, linked) = (report.files_kept.clone(), report.files_with_other_names.clone());
        RemainingData::new(hidden_events, kept, linked)
    });
    let again = store_command(&["scavenge", "--now"], Path::new(&shown));
    print_report(&shown, &report, (remaining.as_ref(), &again), (json, seconds))?;
    remaining.map_or(Ok(()), |remaining| remaining.check(&again))
}

/// Lets a server scavenge its store, and waits for the outcome.
fn run_on_server(connect: &str, args: &ScavengeArgs, json: bool) -> CommandResult<()> {
    let removes_all = args.now;
    let address = ConnectionString::parse("--connect", connect)?;
    let clock = Env::system().clock;
    let mut progress = Progress::new("scavenge", Unit::Operations, None, &clock);
    let work = server_work(args);
    let ended = work.run(&address, |state| {
        let so_far = report_of(state);
        progress.set(so_far.chunks_examined, || report_text(&so_far));
    })?;
    let seconds = progress.elapsed().as_secs_f64();
    progress.finish();
    let report = report_of(&ended);
    let remaining = removes_all.then(|| {
        // The files are the server's, so this machine cannot tell whether they were removed since.
        let hidden_events = report.hidden_events_left.unwrap_or_default();
        let (kept, linked) = (report.files_kept.clone(), report.files_with_other_names.clone());
        RemainingData::reported(hidden_events, kept, linked)
    });
    let shown = address.host_and_port_text();
    let again = umbel_command(&["scavenge", "--now"], &address);
    print_report(&shown, &report, (remaining.as_ref(), &again), (json, seconds))?;
    remaining.map_or(Ok(()), |remaining| remaining.check(&again))
}

/// The request for a scavenge with these arguments.
fn server_work(args: &ScavengeArgs) -> ServerWork {
    let mut start = format!("/admin/scavenge?removeAll={}", args.now);
    for (name, value) in [
        ("throttlePercent", args.busy),
        ("thresholdPercent", args.threshold),
        ("bytesPerSecond", args.throttle),
    ] {
        start.extend(value.map(|value| format!("&{name}={value}")));
    }
    ServerWork {
        start,
        link: "scavengeLink",
        result: "scavengeResult",
        id: "scavengeId",
        name: "scavenge",
        history: &["scavenge", "--history"],
    }
}

/// The report in a response of a server.
fn report_of(state: &Value) -> ScavengeReport {
    let number = |name: &str| state[name].as_u64().unwrap_or_default();
    let files = |name: &str| {
        let names = state[name].as_array().into_iter().flatten();
        names.filter_map(Value::as_str).map(PathBuf::from).collect()
    };
    ScavengeReport {
        chunks: number("chunks"),
        chunks_examined: number("chunksExamined"),
        chunks_rewritten: number("chunksRewritten"),
        chunks_below_threshold: number("chunksBelowThreshold"),
        events: number("events"),
        events_removed: number("eventsRemoved"),
        events_stubbed: number("eventsStubbed"),
        bytes_freed: number("bytesFreed"),
        resumed_from: state["resumedFrom"].as_u64(),
        is_complete: true,
        hidden_events_left: state["hiddenEventsLeft"].as_u64(),
        files_kept: files("filesKept"),
        files_with_other_names: files("filesWithOtherNames"),
    }
}

fn print_report(
    shown: &str,
    report: &ScavengeReport,
    (remaining, with_all): (Option<&RemainingData>, &str),
    (json, seconds): (bool, f64),
) -> CommandResult<()> {
    let mut output = Output::of_verdict().after("the store was scavenged");
    if json {
        let mut value = to_json(report, seconds);
        if let Some(remaining) = remaining {
            value["hidden_events_left"] = json!(report.hidden_events_left);
            remaining.add_to_json(&mut value);
        }
        output.json(&value)?;
        return output.flush();
    }
    output.line(&format!(
        "scavenged the event store in {shown}: {} removed, {} emptied, {} freed from {} in \
         {seconds:.1} s",
        numbers::counted(report.events_removed, "event"),
        numbers::grouped(report.events_stubbed),
        numbers::bytes(report.bytes_freed),
        numbers::counted(report.chunks_rewritten, "chunk"),
    ))?;
    if let Some(remaining) = remaining {
        let left = report.hidden_events_left.unwrap_or_default();
        let left = numbers::counted(left, "hidden event");
        output.line(&format!("read the whole log again: {left} with data"))?;
        remaining.print(&mut output)?;
    } else {
        output.line(&format!(
            "the newest file of the event log was left out; to include it, run {with_all}"
        ))?;
    }
    output.flush()
}

fn report_text(report: &ScavengeReport) -> String {
    format!(
        "{} of {}, {} freed",
        numbers::grouped(report.chunks_examined),
        numbers::counted(report.chunks, "chunk"),
        numbers::bytes(report.bytes_freed),
    )
}

fn to_json(report: &ScavengeReport, seconds: f64) -> Value {
    json!({
        "chunks": report.chunks,
        "chunks_examined": report.chunks_examined,
        "chunks_packed": report.chunks_rewritten,
        "events": report.events,
        "events_removed": report.events_removed,
        "events_emptied": report.events_stubbed,
        "bytes_given_back": report.bytes_freed,
        "resumed_from": report.resumed_from,
        "seconds": seconds,
    })
}
