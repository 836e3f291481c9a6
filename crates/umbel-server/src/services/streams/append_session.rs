//! AppendSession: records for several streams, a stream a message, appended together or not at all.

use std::collections::HashSet;
use std::sync::Arc;

use tonic::{Request, Response, Status};
use umbel_events::{Error, Expected, StreamState, Violation};
use umbel_proto::v2::streams::{AppendRequest, AppendResponse, AppendSessionResponse};

use crate::access::Caller;
use crate::acl::Action;
use crate::failure;
use crate::messages::Messages;
use crate::question;
use crate::record::Record;
use crate::rich_failure::{self, invalid};
use crate::service::Service;
use crate::transaction::{self, Transaction};

/// Appends what the client sends once it has sent all of it.
pub async fn append_session(
    service: Arc<Service>,
    request: Request<Messages<AppendRequest>>,
) -> Result<Response<AppendSessionResponse>, Status> {
    // What has come is held in memory, of which the others need their share.
    let caller = Caller::of(request.extensions());
    let gather = gather(&service, &caller, request.into_inner());
    let gathered = tokio::time::timeout(service.parts_time, gather);
    let transaction = gathered.await.unwrap_or_else(|_| Err(rich_failure::parts_too_late()))?;
    let done = transaction.submit(&service.store).await.map_err(refused)?;
    let position = done.position();
    let output = done.streams.iter().map(|(stream, appended)| AppendResponse {
        stream: stream.clone(),
        stream_revision: appended.last.map_or(-1, |last| last as i64),
        position: appended.position.map(|position| position as i64),
    });
    Ok(Response::new(AppendSessionResponse { output: output.collect(), position }))
}

/// All parts of a session.
async fn gather(
    service: &Service,
    caller: &Caller,
    mut parts: Messages<AppendRequest>,
) -> Result<Transaction, Status> {
    let mut transaction = Transaction::new(&service.budget);
    let mut named = HashSet::new();
    while let Some(part) = parts.message().await.map_err(rich_failure::unreadable)? {
        let AppendRequest { stream, records, expected_revision } = part;
        let expected = match expected_revision.map(transaction::expected) {
            None => Expected::Any,
            Some(Some(
                expected @ (Expected::Any
                | Expected::NoStream
                | Expected::Exists
                | Expected::Exact(_)),
            )) => expected,
            Some(_) => {
                return Err(invalid(
                    "expected_revision is a revision, -1 (no stream), -2 (any) or -4 (exists)",
                ));
            }
        };
        // They are counted while the store is asked.
        let mut share = service.budget.share();
        if !share.grow(question::of_records(records.len())) {
            return Err(failure::no_room());
        }
        let checked = service.access.check(&service.store, caller, Action::Write, &stream).await;
        drop(share);
        checked.map_err(|status| rich_failure::refused(status, "AppendSession", caller.name()))?;
        let shown = stream.clone();
        let place = transaction.add_stream(stream, expected)?;
        if !named.insert(shown.to_lowercase()) {
            return Err(rich_failure::stream_twice(&shown));
        }
        for record in records {
            if !record.stream.is_empty() && record.stream != shown {
                return Err(invalid(
                    "a record of a session names another stream than its message; leave it out",
                ));
            }
            transaction.add(place, Record::read(record, || service.event_id())?)?;
        }
        if transaction.has_no_records(place) {
            return Err(invalid(format!(
                "the message for stream '{}' has no records; send at least one",
                shown.escape_debug()
            )));
        }
    }
    if named.is_empty() {
        return Err(rich_failure::no_requests());
    }
    Ok(transaction)
}

/// Of several streams that are not as expected the first is told.
fn refused(error: Error) -> Status {
    match error {
        #[cfg(feature = "canary")]
        Error::NotAsExpected(mut violations)
            if umbel_base::canary::Switch::ServerSessionTellsLast.is_on()
                && violations.len() > 1 =>
        {
            refused(Error::NotAsExpected(violations.split_off(violations.len() - 1)))
        }
        Error::NotAsExpected(violations) => match violations.first() {
            Some(first) => conflict(first),
            None => rich_failure::of(&Error::NotAsExpected(violations)),
        },
        error => rich_failure::of(&error),
    }
}

/// An append met its stream in another state than its writer expected.
pub fn conflict(violation: &Violation) -> Status {
    let Violation { stream, expected, .. } = violation;
    let actual = match violation.state {
        StreamState::Tombstoned => return rich_failure::tombstoned(stream),
        // Its revisions go on, so whoever comes next wants to know the last.
        StreamState::Deleted { last } => last as i64,
        state => transaction::actual_number(state),
    };
    rich_failure::revision_conflict(stream, transaction::expected_number(*expected), actual)
}

#[cfg(test)]
mod tests {
    use tonic::Code;
    use umbel_proto::v2::streams::{AppendRecord, SchemaInfo};

    use super::*;
    use crate::limits::PARTS_TIME;
    use crate::stage::{Stage, run, sent};

    fn part(stream: &str) -> AppendRequest {
        let schema = SchemaInfo { format: 1, name: "Counted".to_string(), id: None };
        let data = b"{}".to_vec();
        let record = AppendRecord { schema: Some(schema), data, ..AppendRecord::default() };
        AppendRequest { stream: stream.to_string(), records: vec![record], expected_revision: None }
    }

    #[test]
    fn a_session_whose_end_does_not_come_is_given_up() {
        run(async {
            let stage = Stage::new();
            let (parts, streaming) = sent();
            for stream in ["cart", "till"] {
                parts.send(part(stream)).unwrap();
            }
            let call = append_session(Arc::clone(&stage.service), Request::new(streaming));
            let held = async {
                tokio::time::sleep(PARTS_TIME / 2).await;
                stage.bytes()
            };
            let call = tokio::time::timeout(PARTS_TIME * 2, call);
            let (answer, held) = tokio::join!(call, held);
            let status = answer.expect("it is given up").unwrap_err();
            assert_eq!(status.code(), Code::DeadlineExceeded);
            assert!(held > 0 && stage.bytes() == 0, "{held}");
            assert_eq!(stage.store.stream("cart").unwrap(), StreamState::Missing);
        });
    }

    #[test]
    fn a_session_gives_its_memory_back_when_it_is_done() {
        let stage = Stage::new();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let (parts, streaming) = sent();
            for stream in ["cart", "till"] {
                parts.send(part(stream)).unwrap();
            }
            drop(parts);
            let call = append_session(Arc::clone(&stage.service), Request::new(streaming));
            let answer = call.await.unwrap().into_inner();
            assert_eq!(answer.output.len(), 2);
            assert_eq!(Some(answer.position), answer.output[1].position);
            assert_eq!(stage.bytes(), 0);
        });
    }
}
