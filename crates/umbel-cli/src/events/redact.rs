//! `umbel redact`: removes data and metadata of single events.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use umbel::Durability;
use umbel_events::{Redaction, RedactionReport};

use crate::errors::CommandResult;
use crate::events::client::connection_string::ConnectionString;
use crate::events::client::grpc_connection::{self, Connection};
use crate::events::client::server_work;
use crate::events::client::shell_command::{store_command, umbel_command};
use crate::events::event_args::RedactArgs;
use crate::events::open_event_store;
use crate::events::remaining_data::{RemainingData, with_server_remedy};
use crate::global_options::StoreLimits;
use crate::io::output::Output;
use crate::text::numbers;

/// Remedy where a server has the store open.
const AT_A_SERVER: &str = "redact the events there: by umbel redact --connect ADDRESS, or on the \
    page Work of its console (/console/#/work)";
/// Action of the console that redacts.
const REDACT_PATH: &str = "/console/api/redact";

/// Redacts the events. A redaction that was killed continues when it is repeated.
pub fn run(
    directory: Option<&Path>,
    args: &RedactArgs,
    json: bool,
    limits: StoreLimits,
) -> CommandResult<()> {
    if let Some(connect) = &args.connect {
        return run_on_server(connect, args, json);
    }
    let store = open_event_store::open(directory, limits, Durability::Synced)
        .map_err(|failure| with_server_remedy(failure, limits, AT_A_SERVER))?;
    let events: Vec<(&str, u64)> =
        args.events.iter().map(|(stream, revision)| (stream.as_str(), *revision)).collect();
    let report = store.redact(&Redaction { events: &events, reason: &args.reason, user: "" })?;
    let shown = store.path().display().to_string();
    let places = places_of(args);
    store.close()?;
    let (kept, linked) = (report.files_kept.clone(), report.files_with_other_names.clone());
    let remaining = RemainingData::new(0, kept, linked);
    print_report(&shown, &report, &remaining, json)?;
    remaining.check(&store_command(&redact_words(&places), Path::new(&shown)))
}

/// Lets a server redact events of its store.
fn run_on_server(connect: &str, args: &RedactArgs, json: bool) -> CommandResult<()> {
    let address = ConnectionString::parse("--connect", connect)?;
    let places = places_of(args);
    let body = json!({ "events": places, "reason": args.reason });
    let answer = grpc_connection::runtime()?.block_on(async {
        let connection = Connection::open(&address).await?;
        server_work::request_action(&connection, REDACT_PATH, &body).await
    })?;
    let number = |name: &str| answer[name].as_u64().unwrap_or_default();
    let files = |name: &str| {
        let names = answer[name].as_array().into_iter().flatten();
        names.filter_map(Value::as_str).map(PathBuf::from).collect::<Vec<_>>()
    };
    let report = RedactionReport {
        events_redacted: number("eventsRedacted"),
        events_without_data: number("eventsWithoutData"),
        chunks_rewritten: number("chunksRewritten"),
        files_kept: files("filesKept"),
        files_with_other_names: files("filesWithOtherNames"),
    };
    let (kept, linked) = (report.files_kept.clone(), report.files_with_other_names.clone());
    // The files are the server's, so this machine cannot see whether they were removed since.
    let remaining = RemainingData::reported(0, kept, linked);
    print_report(&address.host_and_port_text(), &report, &remaining, json)?;
    remaining.check(&umbel_command(&redact_words(&places), &address))
}

/// The events of the command, as its arguments.
fn places_of(args: &RedactArgs) -> Vec<String> {
    let places = args.events.iter().map(|(stream, revision)| format!("{stream}@{revision}"));
    places.collect()
}

/// The command without address and options.
fn redact_words(places: &[String]) -> Vec<&str> {
    ["redact"].into_iter().chain(places.iter().map(String::as_str)).collect()
}

fn print_report(
    shown: &str,
    report: &RedactionReport,
    remaining: &RemainingData,
    json: bool,
) -> CommandResult<()> {
    let mut output = Output::of_verdict().after("the redaction ended");
    if json {
        let mut value = json!({
            "events_redacted": report.events_redacted,
            "events_without_data": report.events_without_data,
            "chunks_rewritten": report.chunks_rewritten,
        });
        remaining.add_to_json(&mut value);
        output.json(&value)?;
    } else {
        output.line(&report_text(shown, report))?;
        remaining.print(&mut output)?;
    }
    output.flush()
}

fn report_text(shown: &str, report: &RedactionReport) -> String {
    let audit = match report.events_redacted {
        0 => "",
        _ => "; the stream $redactions has the audit events",
    };
    format!(
        "redacted the event store in {shown}: {} lost data and metadata, {} had none{audit}",
        numbers::counted(report.events_redacted, "event"),
        numbers::grouped(report.events_without_data),
    )
}
