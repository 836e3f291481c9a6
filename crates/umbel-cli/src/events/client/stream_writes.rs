//! Appends to streams of a server, and deletions, over the calls of clients.

use hyper::http::uri::PathAndQuery;
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;
use umbel_events::{ExpectedVersion, NewEvent};
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
    match answer.map_err(|status| failure(&status))?.into_inner().result {
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
            Err(AppendFailure::Refused(conflict(stream, expected, current)))
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
    connection.unary::<DeleteReq, DeleteResp>(path, request).await.map(drop)
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

fn conflict(stream: &str, expected: ExpectedVersion, current: Option<u64>) -> String {
    let stream = stream.to_string();
    umbel_events::Error::WrongExpectedVersion { stream, expected, current, present: None }
        .to_string()
}

fn failure(status: &Status) -> AppendFailure {
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
