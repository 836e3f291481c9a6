//! [`GrpcSource`]: the events of another server (KurrentDB, EventStoreDB or Umbel), read over the
//! gRPC protocol of event store clients.

use tokio::runtime::Runtime;
use tonic::Streaming;
use umbel_events::EventId;
use umbel_proto::read_options::of_all;
use umbel_proto::streams::ReadResp;
use umbel_proto::streams::read_req::AllOption;
use umbel_proto::streams::read_resp::{Content, RecordedEvent};

use crate::errors::{CommandError, CommandResult};
use crate::events::client::connection_string::ConnectionString;
use crate::events::client::grpc_connection::{self, Connection, event_id};
use crate::text::numbers::counted;

/// Kind of an internal event of a server, which is not imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum InternalEventKind {
    /// Links in system streams that are views in Umbel.
    ViewLinks,
    /// Statistics of the server.
    Statistics,
    /// Users, projections and similar system events of the server.
    System,
}

impl InternalEventKind {
    /// Kind of an event; `None` if the event is to be imported.
    pub fn classify(stream: &str, kind: &str, takes_system: bool) -> Option<InternalEventKind> {
        let subject = stream.strip_prefix("$$");
        let about = subject.unwrap_or(stream);
        // No client can append to these here; the others hold links of a projection.
        let is_view = about == "$streams" || ["$ce-", "$et-"].iter().any(|p| about.starts_with(p));
        let holds_links = ["$bc-", "$category-", "$et"].iter().any(|p| about.starts_with(p));
        if subject.is_none() && (is_view || (holds_links && matches!(kind, "$>" | "$@"))) {
            return Some(InternalEventKind::ViewLinks);
        }
        if about.starts_with("$stats-") {
            return Some(InternalEventKind::Statistics);
        }
        let is_system = about.starts_with('$') && about != "$settings" && !takes_system;
        is_system.then_some(InternalEventKind::System)
    }
}

/// An event as the server sent it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteEvent {
    /// Stream of the event.
    pub stream: String,
    /// Revision of the event in its stream.
    pub revision: u64,
    /// Time of its append, in units of 100 ns since 1970.
    pub created: Option<u64>,
    /// Id of the event.
    pub id: EventId,
    /// Type of the event.
    pub kind: String,
    /// Whether the event's data is declared as JSON.
    pub is_json: bool,
    /// Data of the event.
    pub data: Vec<u8>,
    /// Metadata of the event.
    pub metadata: Vec<u8>,
}

/// Reads all events of a server, in order.
pub struct GrpcSource {
    name: String,
    runtime: Runtime,
    responses: Streaming<ReadResp>,
    events_read: u64,
}

impl GrpcSource {
    /// Connects to a server and reads all of its events.
    pub fn open(address: &ConnectionString) -> CommandResult<GrpcSource> {
        let name = address.host_and_port_text();
        let runtime = grpc_connection::runtime()?;
        let answers = runtime.block_on(async {
            let connection = Connection::open(address).await?;
            connection.read(of_all(AllOption::Start(()))).await
        })?;
        Ok(GrpcSource { name, runtime, responses: answers, events_read: 0 })
    }

    /// Name of the server.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the next event; `None` at the end.
    pub fn next(&mut self) -> CommandResult<Option<RemoteEvent>> {
        loop {
            let answer = self.runtime.block_on(self.responses.message());
            let answer = answer.map_err(|status| self.source_error(status.message()))?;
            let Some(answer) = answer else { return Ok(None) };
            // Others say where the log ends, which the last answer says as well.
            let Some(Content::Event(read)) = answer.content else { continue };
            let Some(event) = read.event.or(read.link) else { continue };
            self.events_read += 1;
            return match decode_event(event) {
                Some(event) => Ok(Some(event)),
                None => Err(self.source_error("the server sent an invalid event")),
            };
        }
    }

    fn source_error(&self, reason: &str) -> CommandError {
        CommandError::System(format!(
            "reading from the server at {} ended after {}: {reason}; run the import again, \
             which skips imported events",
            self.name,
            counted(self.events_read, "event")
        ))
    }
}

/// Decodes an event from its message; `None` if a required field is missing.
fn decode_event(mut event: RecordedEvent) -> Option<RemoteEvent> {
    let stream = String::from_utf8(event.stream_identifier?.stream_name.to_vec()).ok()?;
    let content = event.metadata.get("content-type");
    let is_json = content.is_some_and(|content| content == "application/json");
    let created = event.metadata.get("created").and_then(|created| created.parse().ok());
    Some(RemoteEvent {
        stream,
        revision: event.stream_revision,
        created,
        id: event_id(event.id?)?,
        kind: event.metadata.remove("type")?,
        is_json,
        data: event.data.into(),
        metadata: event.custom_metadata.into(),
    })
}

#[cfg(test)]
mod tests;
