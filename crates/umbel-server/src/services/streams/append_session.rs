//! The call AppendSession, which appends records of several streams, one stream per message, all or
//! none.

use std::collections::HashSet;
use std::sync::Arc;

use tonic::{Request, Response, Status};
use umbel_base::fail_point;
use umbel_events::{Error, ExpectedVersion, StreamState, VersionConflict};
use umbel_proto::v2::streams::{AppendResponse, AppendSessionResponse};

use crate::access_control::acl::StreamAction;
use crate::auth::authorization::Caller;
use crate::grpc::message_stream::MessageStream;
use crate::protocol::grpc_status;
use crate::protocol::rich_status::{self, invalid};
use crate::server_context::ServerContext;
use crate::services::streams::multi_stream_append::{self, Transaction};
use crate::services::streams::record_part::SessionPart;

/// Appends the client's records once all of them are received.
pub async fn append_session(
    service: Arc<ServerContext>,
    request: Request<MessageStream<SessionPart>>,
) -> Result<Response<AppendSessionResponse>, Status> {
    // Received records occupy memory that all appends share.
    let caller = Caller::from_extensions(request.extensions());
    let gather = read_session(&service, &caller, request.into_inner());
    let gathered = tokio::time::timeout(service.partial_append_time, gather);
    let transaction = gathered.await.unwrap_or_else(|_| Err(rich_status::session_timed_out()))?;
    let done = transaction.submit(&service.store).await.map_err(append_status)?;
    let position = done.position();
    let output = done.streams.iter().map(|(stream, appended)| AppendResponse {
        stream: stream.clone(),
        stream_revision: appended.last.map_or(-1, |last| last as i64),
        position: appended.position.map(|position| position as i64),
    });
    Ok(Response::new(AppendSessionResponse { output: output.collect(), position }))
}

/// Reads all parts of a session.
async fn read_session(
    service: &ServerContext,
    caller: &Caller,
    mut parts: MessageStream<SessionPart>,
) -> Result<Transaction, Status> {
    let mut transaction = Transaction::new(&service.append_quota);
    let (mut named, mut ids) = (HashSet::new(), service.id_generator());
    while let Some(part) = parts.message().await.map_err(rich_status::decode_error)? {
        let SessionPart { stream, records, expected_revision, memory_bytes } = part;
        let expected = match expected_revision.map(multi_stream_append::expected_from_number) {
            None => ExpectedVersion::Any,
            Some(Some(
                expected @ (ExpectedVersion::Any
                | ExpectedVersion::NoStream
                | ExpectedVersion::Exists
                | ExpectedVersion::Exact(_)),
            )) => expected,
            Some(_) => {
                return Err(invalid(
                    "expected_revision must be 0 or more, -1 (no stream), -2 (any) or -4 \
                     (exists)",
                ));
            }
        };
        // They stay counted during the store's append.
        let mut share = service.append_quota.new_share();
        if !share.grow(memory_bytes) {
            return Err(grpc_status::append_quota_exhausted());
        }
        let checked = service
            .authorizer
            .authorize(&service.store, caller, StreamAction::Write, &stream)
            .await;
        drop(share);
        checked.map_err(|status| {
            rich_status::access_denied(status, "AppendSession", caller.user_name())
        })?;
        let shown = stream.clone();
        let index = transaction.add_stream(stream, expected)?;
        if !named.insert(shown.to_lowercase()) {
            return Err(rich_status::duplicate_stream(&shown));
        }
        let mut records = records?;
        records.set_missing_ids(&mut ids).await?;
        transaction.add_all(index, records.events, records.bytes)?;
        if transaction.has_no_records(index) {
            return Err(invalid(format!(
                "the request for stream '{}' has no records; send at least one",
                shown.escape_debug()
            )));
        }
    }
    if named.is_empty() {
        return Err(rich_status::empty_session());
    }
    Ok(transaction)
}

/// Status of a failed append; the first one of several version conflicts is reported.
fn append_status(error: Error) -> Status {
    match error {
        Error::VersionConflicts(violations) => match first_conflict(&violations) {
            Some(first) => revision_conflict_status(first),
            None => rich_status::store_error(&Error::VersionConflicts(violations)),
        },
        error => rich_status::store_error(&error),
    }
}

fn first_conflict(violations: &[VersionConflict]) -> Option<&VersionConflict> {
    fail_point!("session-report-last-conflict", |_| violations.last());
    violations.first()
}

/// Status of a version conflict.
pub fn revision_conflict_status(violation: &VersionConflict) -> Status {
    let VersionConflict { stream, expected, .. } = violation;
    let actual = match violation.state {
        StreamState::Tombstoned => return rich_status::tombstoned(stream),
        // Its revisions continue, so the next writer needs the last one.
        StreamState::Deleted { last } => last as i64,
        state => multi_stream_append::actual_number(state),
    };
    let expected = multi_stream_append::expected_number(*expected);
    rich_status::revision_conflict(stream, expected, actual, violation.present.as_ref())
}

#[cfg(test)]
mod tests {
    use tonic::Code;
    use umbel_proto::v2::streams::{AppendRecord, AppendRequest, SchemaInfo};

    use super::*;
    use crate::limits::PARTIAL_APPEND_TIME;
    use crate::test_support::test_service::{TestService, message_channel, run_paused};

    fn part(stream: &str) -> AppendRequest {
        let schema = SchemaInfo { format: 1, name: "Counted".to_string(), id: None };
        let data = b"{}".to_vec();
        let record = AppendRecord { schema: Some(schema), data, ..AppendRecord::default() };
        AppendRequest { stream: stream.to_string(), records: vec![record], expected_revision: None }
    }

    #[test]
    fn session_without_an_end_times_out() {
        run_paused(async {
            let fixture = TestService::new();
            let (parts, streaming) = message_channel();
            for stream in ["cart", "till"] {
                parts.send(part(stream)).unwrap();
            }
            let call = append_session(Arc::clone(&fixture.service), Request::new(streaming));
            let held = async {
                tokio::time::sleep(PARTIAL_APPEND_TIME / 2).await;
                fixture.bytes()
            };
            let call = tokio::time::timeout(PARTIAL_APPEND_TIME * 2, call);
            let (answer, held) = tokio::join!(call, held);
            let status = answer.expect("the append times out").unwrap_err();
            assert_eq!(status.code(), Code::DeadlineExceeded);
            assert!(held > 0 && fixture.bytes() == 0, "{held}");
            assert_eq!(fixture.store.stream_state("cart").unwrap(), StreamState::Missing);
        });
    }

    #[test]
    fn finished_session_releases_its_quota() {
        let fixture = TestService::new();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let (parts, streaming) = message_channel();
            for stream in ["cart", "till"] {
                parts.send(part(stream)).unwrap();
            }
            drop(parts);
            let call = append_session(Arc::clone(&fixture.service), Request::new(streaming));
            let answer = call.await.unwrap().into_inner();
            assert_eq!(answer.output.len(), 2);
            assert_eq!(Some(answer.position), answer.output[1].position);
            assert_eq!(fixture.bytes(), 0);
        });
    }
}
