//! AppendRecords: records of several streams in one message, appended together or not at all, if
//! streams are as the checks say. The records of a stream keep their order.

use std::collections::HashMap;
use std::sync::Arc;

use tonic::{Request, Response, Status};
use umbel_events::{Error, Expected, Part, Violation};
use umbel_proto::v2::errors::{ConsistencyViolation, StreamStateViolation, ViolationType};
use umbel_proto::v2::streams::{
    AppendRecordsRequest, AppendRecordsResponse, CheckType, ConsistencyCheck, StreamRevision,
    StreamStateCheck,
};

use crate::access::Caller;
use crate::append_session::conflict;
use crate::messages::Messages;
use crate::record::Record;
use crate::rich_failure::{self, invalid};
use crate::service::Service;
use crate::transaction::{self, Transaction};

/// Appends the records, if the checks hold.
pub async fn append_records(
    service: Arc<Service>,
    request: Request<Messages<AppendRecordsRequest>>,
) -> Result<Response<AppendRecordsResponse>, Status> {
    let caller = Caller::of(request.extensions());
    let mut messages = request.into_inner();
    let come = tokio::time::timeout(service.parts_time, messages.message()).await;
    let message = come.map_err(|_| rich_failure::parts_too_late())?;
    let message = message.map_err(rich_failure::unreadable)?;
    let message = message.ok_or_else(|| invalid("the call has no message; send one"))?;
    let (transaction, origins) = gather(&service, message)?;
    for (action, stream) in transaction.streams() {
        let checked = service.access.check(&service.store, &caller, action, stream).await;
        checked.map_err(|status| rich_failure::refused(status, "AppendRecords", caller.name()))?;
    }
    let done = transaction.submit(&service.store).await.map_err(|error| origins.refused(error))?;
    let position = done.position();
    let revisions = done.streams.iter().map(|(stream, appended)| StreamRevision {
        stream: stream.clone(),
        revision: appended.last.map_or(-1, |last| last as i64),
    });
    Ok(Response::new(AppendRecordsResponse { revisions: revisions.collect(), position }))
}

/// Which check of the client what a transaction expects comes from.
#[derive(Debug, Default)]
struct Origins {
    /// Those of appends, where they come from a check.
    appends: HashMap<usize, usize>,
    /// Those of the checks.
    checks: Vec<usize>,
}

fn gather(
    service: &Service,
    request: AppendRecordsRequest,
) -> Result<(Transaction, Origins), Status> {
    let mut transaction = Transaction::new(&service.budget);
    let mut places: HashMap<String, usize> = HashMap::new();
    if request.records.is_empty() {
        return Err(invalid("there are no records; send at least one"));
    }
    for mut record in request.records {
        let stream = std::mem::take(&mut record.stream);
        let place = match places.get(&stream) {
            Some(place) => *place,
            None => {
                let place = transaction.add_stream(stream.clone(), Expected::Any)?;
                places.insert(stream, place);
                place
            }
        };
        transaction.add(place, Record::read(record, || service.event_id())?)?;
    }
    let mut origins = Origins::default();
    for (index, ConsistencyCheck { check }) in request.checks.into_iter().enumerate() {
        let Some(CheckType::StreamState(StreamStateCheck { stream, expected_state })) = check
        else {
            return Err(invalid(format!(
                "check {index} is of no known kind; stream_state is the one that is served"
            )));
        };
        let Some(expected) = transaction::expected(expected_state) else {
            return Err(invalid(format!(
                "check {index} expects {expected_state}, but a state is a revision, -1 (no \
                 stream), -2 (any), -4 (exists), -5 (deleted) or -6 (tombstoned)"
            )));
        };
        // What an append expects itself also says whether it is a retry.
        let is_taken = expected != Expected::Tombstoned
            && places.get(&stream).is_some_and(|place| {
                let is_taken = transaction.expect(*place, expected);
                is_taken && origins.appends.insert(*place, index).is_none()
            });
        if !is_taken {
            transaction.add_check(stream, expected)?;
            origins.checks.push(index);
        }
    }
    Ok((transaction, origins))
}

impl Origins {
    fn refused(&self, error: Error) -> Status {
        let violations = match error {
            Error::NotAsExpected(violations) => violations,
            error => return rich_failure::of(&error),
        };
        let mut told = Vec::with_capacity(violations.len());
        for violation in violations {
            let index = match violation.part {
                Part::Append(place) => self.appends.get(&place),
                Part::Check(place) => self.checks.get(place),
            };
            match index {
                Some(index) => told.push(of_check(*index, violation)),
                // Nobody checked it: the append itself cannot be.
                None => return conflict(&violation),
            }
        }
        told.sort_by_key(|violation| violation.check_index);
        rich_failure::violations(told)
    }
}

fn of_check(index: usize, violation: Violation) -> ConsistencyViolation {
    let state = StreamStateViolation {
        expected_state: transaction::expected_number(violation.expected),
        actual_state: transaction::actual_number(violation.state),
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
    use umbel_proto::v2::streams::{AppendRecord, AppendRequest, SchemaInfo};

    use super::*;
    use crate::append_session::append_session;
    use crate::stage::{Stage, sent_bytes};

    const MESSAGES: u64 = 3000;

    /// A number that follows from the one before.
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

    /// A message as a client would send it, in which some bytes are others, or some are cut off or
    /// put in.
    fn hostile(mut bytes: Vec<u8>, seed: &mut u64) -> Vec<u8> {
        for _ in 0..next(seed) % 6 {
            let place = next(seed) as usize % (bytes.len() + 1);
            match next(seed) % 4 {
                0 => bytes.truncate(place),
                1 => bytes.insert(place, next(seed) as u8),
                _ if place < bytes.len() => bytes[place] ^= 1 << (next(seed) % 8),
                _ => bytes.push(next(seed) as u8),
            }
        }
        bytes
    }

    #[test]
    fn whatever_comes_is_answered_and_gives_its_memory_back() {
        let stage = Stage::new();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let (mut seed, mut done, mut refused) = (7, 0, 0);
        runtime.block_on(async {
            for number in 0..MESSAGES {
                let (service, name) = (Arc::clone(&stage.service), format!("s{}", number % 5));
                let outcome = if number % 2 == 0 {
                    let state = StreamStateCheck { stream: name.clone(), expected_state: -4 };
                    let check = ConsistencyCheck { check: Some(CheckType::StreamState(state)) };
                    let records = vec![record(2 * number, &name), record(2 * number + 1, "other")];
                    let message = AppendRecordsRequest { records, checks: vec![check] };
                    let bytes = hostile(message.encode_to_vec(), &mut seed);
                    append_records(service, Request::new(sent_bytes(&bytes))).await.map(drop)
                } else {
                    let records = vec![record(2 * number, "")];
                    let message =
                        AppendRequest { stream: name, records, expected_revision: Some(-2) };
                    let bytes = hostile(message.encode_to_vec(), &mut seed);
                    append_session(service, Request::new(sent_bytes(&bytes))).await.map(drop)
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
        assert_eq!(stage.bytes(), 0);
        let report = stage.store.verify().unwrap();
        assert!(report.damage.is_empty(), "{report:?}");
    }
}
