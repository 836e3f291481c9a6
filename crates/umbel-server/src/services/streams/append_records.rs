//! The call AppendRecords, which appends records of several streams in one message, all or none, if
//! the checks of stream states hold. The records of a stream keep their order.

use std::collections::HashMap;
use std::sync::Arc;

use tonic::{Request, Response, Status};
use umbel_events::{Error, ExpectedVersion, RequestItem, VersionConflict};
use umbel_proto::v2::errors::{ConsistencyViolation, StreamStateViolation, ViolationType};
use umbel_proto::v2::streams::{
    AppendRecordsResponse, CheckType, ConsistencyCheck, StreamRevision, StreamStateCheck,
};

use crate::auth::authorization::Caller;
use crate::grpc::message_stream::MessageStream;
use crate::protocol::rich_status::{self, invalid};
use crate::server_context::ServerContext;
use crate::services::streams::append_session::revision_conflict_status;
use crate::services::streams::multi_stream_append::{self, Transaction};
use crate::services::streams::record_part::{RecordsMessage, RecordsPart};

/// Appends the records if the checks hold.
pub async fn append_records(
    service: Arc<ServerContext>,
    request: Request<MessageStream<RecordsMessage>>,
) -> Result<Response<AppendRecordsResponse>, Status> {
    let caller = Caller::from_extensions(request.extensions());
    let message = read_message(&service, request.into_inner()).await?;
    let (transaction, origins) = build_transaction(&service, message.0?).await?;
    for (action, stream) in transaction.accesses() {
        let checked = service.authorizer.authorize(&service.store, &caller, action, stream).await;
        checked.map_err(|status| {
            rich_status::access_denied(status, "AppendRecords", caller.user_name())
        })?;
    }
    let done =
        transaction.submit(&service.store).await.map_err(|error| origins.conflict_status(error))?;
    let position = done.position();
    let revisions = done.streams.iter().map(|(stream, appended)| StreamRevision {
        stream: stream.clone(),
        revision: appended.last.map_or(-1, |last| last as i64),
    });
    Ok(Response::new(AppendRecordsResponse { revisions: revisions.collect(), position }))
}

/// Reads the message. Nothing of the stream is kept while the store appends the records.
async fn read_message(
    service: &ServerContext,
    mut messages: MessageStream<RecordsMessage>,
) -> Result<RecordsMessage, Status> {
    let come = tokio::time::timeout(service.partial_append_time, messages.message()).await;
    let message = come.map_err(|_| rich_status::session_timed_out())?;
    let message = message.map_err(rich_status::decode_error)?;
    message.ok_or_else(|| invalid("the call has no message; send one"))
}

/// Maps each expectation of a transaction to the client's check that it comes from.
#[derive(Debug, Default)]
struct CheckOrigins {
    /// Index of the client's check for each append that has an expectation.
    appends: HashMap<usize, usize>,
    /// Index of the client's check for each check of the transaction.
    checks: Vec<usize>,
}

async fn build_transaction(
    service: &ServerContext,
    request: RecordsPart,
) -> Result<(Transaction, CheckOrigins), Status> {
    let mut transaction = Transaction::new(&service.append_quota);
    let mut stream_indexes: HashMap<String, usize> = HashMap::new();
    let mut ids = service.id_generator();
    let RecordsPart { mut streams, checks } = request;
    for records in &mut *streams {
        let stream = std::mem::take(&mut records.stream);
        let stream_index = transaction.add_stream(stream.clone(), ExpectedVersion::Any)?;
        stream_indexes.insert(stream, stream_index);
        records.set_missing_ids(&mut ids).await?;
        let events = std::mem::take(&mut records.events);
        transaction.add_all(stream_index, events, records.bytes)?;
    }
    let mut origins = CheckOrigins::default();
    for (index, ConsistencyCheck { check }) in checks.into_iter().enumerate() {
        let Some(CheckType::StreamState(StreamStateCheck { stream, expected_state })) = check
        else {
            return Err(invalid(format!(
                "check {index} is of an unknown kind; only stream_state is supported"
            )));
        };
        let Some(expected) = multi_stream_append::expected_from_number(expected_state) else {
            return Err(invalid(format!(
                "check {index} expects {expected_state}, but a state is a revision, -1 (no \
                 stream), -2 (any), -4 (exists), -5 (deleted) or -6 (tombstoned)"
            )));
        };
        // The append's own expectation also identifies a retry.
        let is_taken = expected != ExpectedVersion::Tombstoned
            && stream_indexes.get(&stream).is_some_and(|stream_index| {
                let is_taken = transaction.set_expected(*stream_index, expected);
                is_taken && origins.appends.insert(*stream_index, index).is_none()
            });
        if !is_taken {
            transaction.add_check(stream, expected)?;
            origins.checks.push(index);
        }
    }
    Ok((transaction, origins))
}

impl CheckOrigins {
    fn conflict_status(&self, error: Error) -> Status {
        let violations = match error {
            Error::VersionConflicts(violations) => violations,
            error => return rich_status::store_error(&error),
        };
        let mut reported = Vec::with_capacity(violations.len());
        let present = violations.iter().find_map(|violation| violation.present);
        for violation in violations {
            let index = match violation.item {
                RequestItem::Append(item) => self.appends.get(&item),
                RequestItem::Check(item) => self.checks.get(item),
            };
            match index {
                Some(index) => reported.push(check_violation(*index, violation)),
                // Without a check of the client, the append itself conflicts.
                None => return revision_conflict_status(&violation),
            }
        }
        reported.sort_by_key(|violation| violation.check_index);
        rich_status::consistency_violations(reported, present.as_ref())
    }
}

fn check_violation(index: usize, violation: VersionConflict) -> ConsistencyViolation {
    let state = StreamStateViolation {
        expected_state: multi_stream_append::expected_number(violation.expected),
        actual_state: multi_stream_append::actual_number(violation.state),
        stream: violation.stream,
    };
    ConsistencyViolation {
        check_index: i32::try_from(index).unwrap_or(i32::MAX),
        violation: Some(ViolationType::StreamState(state)),
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use umbel_events::StreamState;
    use umbel_proto::v2::streams::{AppendRecord, AppendRecordsRequest, AppendRequest, SchemaInfo};

    use super::*;
    use crate::services::streams::append_session::append_session;
    use crate::test_support::test_service::{self, TestService, message_from_bytes};

    const MESSAGES: u64 = 3000;

    /// Returns the next pseudo-random number.
    fn next(seed: &mut u64) -> u64 {
        *seed =
            seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *seed >> 33
    }

    fn record(number: u64, stream: &str) -> AppendRecord {
        let properties = [("p".to_string(), prost_types::Value::default())].into();
        AppendRecord {
            record_id: Some(format!("00000000-0000-1234-0000-{number:012x}")),
            properties,
            schema: Some(SchemaInfo { format: 1, name: "Counted".to_string(), id: None }),
            data: b"{}".to_vec(),
            stream: stream.to_string(),
        }
    }

    /// Mutates an encoded message: some bytes are changed, cut off or inserted.
    fn hostile(mut bytes: Vec<u8>, seed: &mut u64) -> Vec<u8> {
        for _ in 0..next(seed) % 6 {
            let index = next(seed) as usize % (bytes.len() + 1);
            match next(seed) % 4 {
                0 => bytes.truncate(index),
                1 => bytes.insert(index, next(seed) as u8),
                _ if index < bytes.len() => bytes[index] ^= 1 << (next(seed) % 8),
                _ => bytes.push(next(seed) as u8),
            }
        }
        bytes
    }

    #[test]
    fn any_request_gets_a_response_and_releases_its_quota() {
        let fixture = TestService::new();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let (mut seed, mut done, mut refused) = (7, 0, 0);
        runtime.block_on(async {
            for number in 0..MESSAGES {
                let (service, name) = (Arc::clone(&fixture.service), format!("s{}", number % 5));
                let outcome = if number % 2 == 0 {
                    let state = StreamStateCheck { stream: name.clone(), expected_state: -4 };
                    let check = ConsistencyCheck { check: Some(CheckType::StreamState(state)) };
                    let records = vec![record(2 * number, &name), record(2 * number + 1, "other")];
                    let message = AppendRecordsRequest { records, checks: vec![check] };
                    let bytes = hostile(message.encode_to_vec(), &mut seed);
                    append_records(service, Request::new(message_from_bytes(&bytes)))
                        .await
                        .map(drop)
                } else {
                    let records = vec![record(2 * number, "")];
                    let message =
                        AppendRequest { stream: name, records, expected_revision: Some(-2) };
                    let bytes = hostile(message.encode_to_vec(), &mut seed);
                    append_session(service, Request::new(message_from_bytes(&bytes)))
                        .await
                        .map(drop)
                };
                match outcome {
                    Ok(()) => done += 1,
                    Err(status) => {
                        assert!(!status.message().is_empty(), "{status:?}");
                        refused += 1;
                    }
                }
            }
        });
        assert!(done > MESSAGES / 10 && refused > MESSAGES / 10, "{done} {refused}");
        assert_eq!(fixture.bytes(), 0);
        let report = fixture.store.verify().unwrap();
        assert!(report.damage.is_empty(), "{report:?}");
    }

    /// Story: the call kept the stream of its request, with the quota of the received message,
    /// until its append was acknowledged.
    #[test]
    fn dropped_call_releases_all_that_it_holds() {
        let fixture = TestService::new();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let submitter = fixture.service.store.appends();
            let places = submitter.take_places();
            let call = |number: u64| {
                let long = AppendRecord { data: vec![7; 1 << 20], ..record(number, "cart") };
                let message = AppendRecordsRequest { records: vec![long], checks: vec![] };
                let quota = Arc::clone(&fixture.service.receive_quota);
                let stream = test_service::message_within(&message.encode_to_vec(), quota);
                Box::pin(append_records(Arc::clone(&fixture.service), Request::new(stream)))
            };
            let mut dropped = call(1);
            let time = std::time::Duration::from_secs(1);
            assert!(tokio::time::timeout(time, &mut dropped).await.is_err(), "it has no place");
            assert_eq!(fixture.service.receive_quota.used_bytes(), 0, "the message was taken");
            assert!(fixture.bytes() > 1 << 20);
            drop(dropped);
            // The task that waits for the place ends.
            tokio::task::yield_now().await;
            assert_eq!(fixture.bytes(), 0);
            drop(places);
            call(2).await.unwrap();
            drop(submitter.take_places());
            assert_eq!(fixture.bytes(), 0);
            let state = fixture.store.stream_state("cart").unwrap();
            assert!(matches!(state, StreamState::Live { last: 0, .. }), "{state:?}");
        });
    }
}
