//! `umbel redact`: removes data and metadata of single events.

use std::path::Path;

use serde_json::json;
use umbel::Durability;
use umbel_events::{Redaction, RedactionReport};

use crate::errors::CommandResult;
use crate::events::event_args::RedactArgs;
use crate::events::open_event_store;
use crate::events::remaining_data::{RemainingData, with_server_remedy};
use crate::global_options::StoreLimits;
use crate::io::output::Output;
use crate::text::numbers;

/// Remedy where a server has the store open.
const AT_A_SERVER: &str = "redact the events there: on the page Work of its console \
    (/console/#/work)";

/// Redacts the events. A redaction that was killed continues when it is repeated.
pub fn run(
    directory: Option<&Path>,
    args: &RedactArgs,
    json: bool,
    limits: StoreLimits,
) -> CommandResult<()> {
    let store = open_event_store::open(directory, limits, Durability::Synced)
        .map_err(|failure| with_server_remedy(failure, limits, AT_A_SERVER))?;
    let events: Vec<(&str, u64)> =
        args.events.iter().map(|(stream, revision)| (stream.as_str(), *revision)).collect();
    let report = store.redact(&Redaction { events: &events, reason: &args.reason, user: "" })?;
    let shown = store.path().display().to_string();
    store.close()?;
    let (kept, linked) = (report.files_kept.clone(), report.files_with_other_names.clone());
    let remaining = RemainingData::new(0, kept, linked);
    let mut output = Output::new();
    if json {
        let mut value = json!({
            "events_redacted": report.events_redacted,
            "events_without_data": report.events_without_data,
            "chunks_rewritten": report.chunks_rewritten,
        });
        remaining.add_to_json(&mut value);
        output.json(&value)?;
    } else {
        output.line(&report_text(&shown, &report))?;
        remaining.print(&mut output)?;
    }
    output.flush()?;
    remaining.check("umbel redact")
}

fn report_text(shown: &str, report: &RedactionReport) -> String {
    let audit = match report.events_redacted {
        0 => "",
        _ => "; the stream $redactions has the audit events",
    };
    format!(
        "redacted the event store in {shown}: {} events lost data and metadata, {} had none{audit}",
        numbers::grouped(report.events_redacted),
        numbers::grouped(report.events_without_data),
    )
}
