//! The events of another server, read over the protocol that clients of event stores speak:
//! KurrentDB, EventStoreDB, or Umbel itself.

use tokio::runtime::Runtime;
use tonic::Streaming;
use umbel_events::EventId;
use umbel_proto::reading::of_all;
use umbel_proto::streams::ReadResp;
use umbel_proto::streams::read_req::AllOption;
use umbel_proto::streams::read_resp::{Content, RecordedEvent};

use super::connection::{self, Connection, event_id};
use super::server_address::ServerAddress;
use crate::errors::{Failure, Outcome};

/// What a server keeps for itself and is not imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Links in streams that are views here.
    ViewLinks,
    /// What it wrote about how it does.
    Statistics,
    /// Its users, projections and the like.
    System,
}

impl Class {
    /// Which of these an event is; `None` where it is to be imported.
    pub fn of(stream: &str, kind: &str, takes_system: bool) -> Option<Class> {
        let subject = stream.strip_prefix("$$");
        let about = subject.unwrap_or(stream);
        // Nobody can append to these here; the others hold links of a projection.
        let is_view = about == "$streams" || ["$ce-", "$et-"].iter().any(|p| about.starts_with(p));
        let holds_links = ["$bc-", "$category-", "$et"].iter().any(|p| about.starts_with(p));
        if subject.is_none() && (is_view || (holds_links && matches!(kind, "$>" | "$@"))) {
            return Some(Class::ViewLinks);
        }
        if about.starts_with("$stats-") {
            return Some(Class::Statistics);
        }
        let is_system = about.starts_with('$') && about != "$settings" && !takes_system;
        is_system.then_some(Class::System)
    }
}

/// An event as the server has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteEvent {
    /// Its stream.
    pub stream: String,
    /// Its number in the stream.
    pub revision: u64,
    /// When it was appended, in units of 100 ns since 1970.
    pub created: Option<u64>,
    /// Its id.
    pub id: EventId,
    /// Its type.
    pub kind: String,
    /// Whether its data is said to be JSON.
    pub is_json: bool,
    /// Its data.
    pub data: Vec<u8>,
    /// What is said about it besides.
    pub metadata: Vec<u8>,
}

/// All events of a server, on their way.
pub struct Remote {
    name: String,
    runtime: Runtime,
    answers: Streaming<ReadResp>,
    taken: u64,
}

impl Remote {
    /// Connects to a server and asks for all of its events.
    pub fn open(address: &ServerAddress) -> Outcome<Remote> {
        let name = address.shown();
        let runtime = connection::runtime()?;
        let answers = runtime.block_on(async {
            let connection = Connection::open(address).await?;
            connection.read(of_all(AllOption::Start(()))).await
        })?;
        Ok(Remote { name, runtime, answers, taken: 0 })
    }

    /// What the server is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The next event; `None` where there are no more.
    pub fn next(&mut self) -> Outcome<Option<RemoteEvent>> {
        loop {
            let answer = self.runtime.block_on(self.answers.message());
            let answer = answer.map_err(|status| self.failed(status.message()))?;
            let Some(answer) = answer else { return Ok(None) };
            // Others say where the log ends, which the last answer says as well.
            let Some(Content::Event(read)) = answer.content else { continue };
            let Some(event) = read.event.or(read.link) else { continue };
            self.taken += 1;
            return match event_of(event) {
                Some(event) => Ok(Some(event)),
                None => Err(self.failed("an answer holds no event that can be read")),
            };
        }
    }

    fn failed(&self, reason: &str) -> Failure {
        Failure::System(format!(
            "reading from the server at {} ended after {} events: {reason}; run this again, what \
             was imported is passed over",
            self.name, self.taken
        ))
    }
}

/// An event out of its message; `None` where it lacks what every event has.
fn event_of(mut event: RecordedEvent) -> Option<RemoteEvent> {
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
#[path = "remote_tests.rs"]
mod tests;
