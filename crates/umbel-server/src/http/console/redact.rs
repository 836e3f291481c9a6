//! Redaction of events by an operator.

use std::sync::Arc;

use prost::bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use tonic::Status;
use umbel_events::{REDACTED_EVENTS_MAX, Redaction, RedactionReport, Store, parse_event_place};

use crate::auth::authorization::Caller;
use crate::event_store::scavenging::file_names;
use crate::protocol::bounded_list::BoundedList;
use crate::protocol::grpc_status;
use crate::server_context::ServerContext;

/// Name of the action.
pub const REDACT: &str = "redact";

/// Request to redact events.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RedactRequest {
    /// Places of the events, each `STREAM@REVISION`.
    events: BoundedList<REDACTED_EVENTS_MAX>,
    /// Reason for the audit events.
    #[serde(default)]
    reason: String,
}

/// Redacts the events of a request on a blocking thread, also if the caller goes away meanwhile.
pub async fn redact(
    service: &Arc<ServerContext>,
    caller: &Caller,
    body: Bytes,
) -> Result<Value, Status> {
    let user = caller.user_name().map(str::to_owned);
    let redacted = service.store.blocking(move |store| Ok(run(store, user.as_deref(), &body)));
    let report = redacted.await.map_err(|error| grpc_status::status(&error))??;
    Ok(json!({
        "eventsRedacted": report.events_redacted,
        "eventsWithoutData": report.events_without_data,
        "chunksRewritten": report.chunks_rewritten,
        "filesKept": file_names(&report.files_kept),
        "filesWithOtherNames": file_names(&report.files_with_other_names),
    }))
}

fn run(store: &Store, user: Option<&str>, body: &[u8]) -> Result<RedactionReport, Status> {
    let request: RedactRequest = serde_json::from_slice(body).map_err(|error| {
        Status::invalid_argument(format!(
            "the request is invalid: {error}; send {{\"events\": [\"STREAM@REVISION\"], \
             \"reason\": \"TEXT\"}}"
        ))
    })?;
    let events: Result<Vec<(&str, u64)>, _> =
        request.events.0.iter().map(|place| parse_event_place(place)).collect();
    let events = events.map_err(|error| grpc_status::status(&error))?;
    if events.is_empty() {
        return Err(Status::invalid_argument(
            "the list of events is empty; name at least one event as STREAM@REVISION",
        ));
    }
    let (reason, author) = (request.reason.as_str(), user.unwrap_or_default());
    let redaction = Redaction { events: &events, reason, user: author };
    let report = store.redact(&redaction).map_err(|error| grpc_status::status(&error))?;
    tracing::info!(user, events = report.events_redacted, reason, "events redacted");
    Ok(report)
}
