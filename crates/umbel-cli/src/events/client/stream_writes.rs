//! Appends to streams of a server, and deletions, over the calls of clients.

use hyper::http::uri::PathAndQuery;
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;
use umbel_events::{Error, ExpectedVersion, NewEvent};
use umbel_proto::shared::{Uuid, uuid};
use umbel_proto::streams::append_resp::{Current, CurrentRevision, Outcome, PositionOption};
use umbel_proto::streams::{
    AppendReq, AppendResp, DeleteOptions, DeleteReq, DeleteResp, ExpectedRevision, append_req,
};

use crate::errors::{CommandError, CommandResult};
use crate::events::client::grpc_connection::{Connection, status_error};

const APPEND_PATH: &str = "/event_store.client.streams.Streams/Append";
const DELETE_PATH: &str = "/event_store.client.streams.Streams/Delete";
const TOMBSTONE_PATH: &str = "/event_store.client.streams.Streams/Tombstone";

/// Reason why an append failed.
#[derive(Debug)]
pub enum AppendFailure {
    /// The server refuses this append, as a sentence; others may succeed.
    Refused(String),
    /// The stream does not have the expected version, as a sentence.
    Conflict(String),
    /// The connection or the server failed, or the user lacks the permission.
    Failed(CommandError),
}

/// Place of an appended event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppendedEvent {
    /// Revision in the stream.
    pub revision: u64,
    /// Position in the event log.
    pub position: u64,
}

/// Appends an event, and waits until the server acknowledges it.
///
/// # Errors
/// The server refuses the append, or the connection ends; then the event may be appended.
pub async fn append(
    connection: &Connection,
    stream: &str,
    expected: ExpectedVersion,
    event: &NewEvent<'_>,
) -> Result<AppendedEvent, AppendFailure> {
    let options = append_req::Options {
        stream_identifier: Some(stream.into()),
        expected_stream_revision: Some(
            expected_revision(expected).map_err(|reason| AppendFailure::Refused(reason.into()))?,
        ),
    };
    let bits = u128::from_be_bytes(event.id.0);
    let content_type = if event.is_json { "application/json" } else { "application/octet-stream" };
    let metadata = [("type", event.kind), ("content-type", content_type)];
    let event = append_req::ProposedMessage {
        id: Some(Uuid { value: Some(uuid::Value::Structured(bits.into())) }),
        metadata: metadata.map(|(name, value)| (name.to_string(), value.to_string())).into(),
        custom_metadata: event.metadata.to_vec().into(),
        data: event.data.to_vec().into(),
    };
    let parts =
        [append_req::Content::Options(options), append_req::Content::ProposedMessage(event)];
    let parts = parts.map(|part| AppendReq { content: Some(part) });
    let mut calls = connection.grpc_client().await.map_err(AppendFailure::Failed)?;
    let path = PathAndQuery::from_static(APPEND_PATH);
    let codec = ProstCodec::<AppendReq, AppendResp>::default();
    let request = Request::new(futures_util::stream::iter(parts));
    let answer = calls.client_streaming(request, path, codec).await;
    match answer.map_err(|status| failure(&status, stream, expected))?.into_inner().result {
        Some(Outcome::Success(done)) => {
            match (done.current_revision_option, done.position_option) {
                (
                    Some(CurrentRevision::CurrentRevision(revision)),
                    Some(PositionOption::Position(at)),
                ) => Ok(AppendedEvent { revision, position: at.commit_position }),
                _ => Err(protocol_failure()),
            }
        }
        Some(Outcome::WrongExpectedVersion(wrong)) => {
            let current = match wrong.current_revision_option {
                Some(Current::CurrentRevision(revision)) => Some(revision),
                _ => None,
            };
            Err(AppendFailure::Conflict(conflict(stream, expected, current).to_string()))
        }
        None => Err(protocol_failure()),
    }
}

/// Deletes a stream, or tombstones it for good.
///
/// # Errors
/// The server refuses the deletion, or the connection ends.
pub async fn delete(
    connection: &Connection,
    stream: &str,
    expected: ExpectedVersion,
    tombstone: bool,
) -> CommandResult<()> {
    let options = DeleteOptions {
        stream_identifier: Some(stream.into()),
        expected_stream_revision: Some(expected_revision(expected).map_err(CommandError::usage)?),
    };
    let path = if tombstone { TOMBSTONE_PATH } else { DELETE_PATH };
    let request = DeleteReq { options: Some(options) };
    let mut calls = connection.grpc_client().await?;
    let (path, codec) = (PathAndQuery::from_static(path), ProstCodec::default());
    let answer = calls.unary::<DeleteReq, DeleteResp, _>(Request::new(request), path, codec).await;
    answer.map(drop).map_err(|status| match stream_refusal(&status, stream, expected) {
        Some(error) => CommandError::from(error),
        None => status_error(&status),
    })
}

fn expected_revision(expected: ExpectedVersion) -> Result<ExpectedRevision, &'static str> {
    Ok(match expected {
        ExpectedVersion::Any => ExpectedRevision::Any(()),
        ExpectedVersion::NoStream => ExpectedRevision::NoStream(()),
        ExpectedVersion::Exists => ExpectedRevision::StreamExists(()),
        ExpectedVersion::Exact(revision) => ExpectedRevision::Revision(revision),
        ExpectedVersion::Deleted | ExpectedVersion::Tombstoned => {
            return Err("a write to a stream cannot expect that the stream is deleted");
        }
    })
}

fn conflict(stream: &str, expected: ExpectedVersion, current: Option<u64>) -> Error {
    Error::WrongExpectedVersion { stream: stream.to_string(), expected, current, present: None }
}

/// The error of the stream's state that a status reports in the words of clients; `None` if the
/// status reports another failure.
fn stream_refusal(status: &Status, stream: &str, expected: ExpectedVersion) -> Option<Error> {
    let trailer = |name: &str| status.metadata().get(name)?.to_str().ok();
    match trailer("exception")? {
        "stream-deleted" => Some(Error::StreamDeleted { stream: stream.to_string() }),
        // The server names the events of the append that the stream has already.
        "wrong-expected-version" if !status.message().contains("WrongExpectedVersion (") => {
            // A negative number stands for a stream without events.
            let current = trailer("actual-version")?.parse().ok();
            Some(conflict(stream, expected, current))
        }
        _ => None,
    }
}

fn failure(status: &Status, stream: &str, expected: ExpectedVersion) -> AppendFailure {
    if let Some(error) = stream_refusal(status, stream, expected) {
        return match error {
            Error::WrongExpectedVersion { .. } => AppendFailure::Conflict(error.to_string()),
            error => AppendFailure::Refused(error.to_string()),
        };
    }
    match status.code() {
        Code::InvalidArgument | Code::FailedPrecondition | Code::AlreadyExists => {
            AppendFailure::Refused(format!("the server says: {}", status.message()))
        }
        _ => AppendFailure::Failed(status_error(status)),
    }
}

fn protocol_failure() -> AppendFailure {
    let text = "the server sent an unexpected response to an append";
    AppendFailure::Failed(CommandError::System(text.to_string()))
}
