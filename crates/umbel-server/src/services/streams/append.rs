//! Append: one group of events a call.

use std::sync::Arc;

use tonic::{Request, Response, Status};
use umbel_events::limits::{APPEND_BYTES_MAX, APPEND_EVENTS_MAX, STREAM_NAME_BYTES_MAX};
use umbel_events::{Appended, Error, Expected};
use umbel_proto::streams::append_req::{Content, ProposedMessage};
use umbel_proto::streams::append_resp::{
    Current, CurrentRevision, OldCurrent, OldExpected, Outcome, PositionOption, Success,
    WrongExpectedVersion,
};
use umbel_proto::streams::{AppendReq, AppendResp, append_resp};

use crate::access::Caller;
use crate::acl::Action;
use crate::budget::{Budget, Share};
use crate::convert::{self, Proposed};
use crate::failure;
use crate::limits::EVENT_BYTES_BESIDE;
use crate::messages::Messages;
use crate::planted::{Bug, planted};
use crate::service::Service;
use crate::store::Append;

/// Appends what the client sends once it has sent all of it.
pub async fn append(
    service: Arc<Service>,
    request: Request<Messages<AppendReq>>,
) -> Result<Response<AppendResp>, Status> {
    // What has come is held in memory, of which the others need their share.
    let caller = Caller::of(request.extensions());
    let gather = gather(&service, &caller, request.into_inner());
    let gathered = tokio::time::timeout(service.parts_time, gather);
    let append = gathered.await.unwrap_or_else(|_| Err(failure::parts_too_late()))?;
    let answer = service.store.submit(append).await;
    let result = match answer.unwrap_or(Err(Error::Store(umbel::Error::Closed))) {
        Ok(done) => Outcome::Success(success(&done)),
        Err(Error::WrongExpected { expected, current, .. }) => {
            Outcome::WrongExpectedVersion(wrong_expected(expected, current))
        }
        Err(error) => return Err(failure::status(&error)),
    };
    Ok(Response::new(AppendResp { result: Some(result) }))
}

/// All parts of an append.
async fn gather(
    service: &Service,
    caller: &Caller,
    mut parts: Messages<AppendReq>,
) -> Result<Append, Status> {
    let options = match next(&mut parts).await? {
        Some(Content::Options(options)) => options,
        _ => return Err(Status::invalid_argument("an append begins with its options")),
    };
    let stream = convert::stream_name(options.stream_identifier)?;
    // It is held while the events come, and no budget counts it.
    if convert::is_too_long(stream.as_bytes()) {
        let why = format!("a stream's name may have {STREAM_NAME_BYTES_MAX} bytes");
        return Err(Status::invalid_argument(why));
    }
    let expected = convert::expected(options.expected_stream_revision)?;
    service.access.check(&service.store, caller, Action::Write, &stream).await?;
    let mut gathered = Gathered::new(&service.budget);
    while let Some(content) = next(&mut parts).await? {
        match content {
            Content::ProposedMessage(message) => gathered.add(message)?,
            Content::Options(_) => {
                return Err(Status::invalid_argument("the options of an append come once"));
            }
        }
    }
    let Gathered { events, share, .. } = gathered;
    Ok(Append { stream, expected, events, share })
}

async fn next(parts: &mut Messages<AppendReq>) -> Result<Option<Content>, Status> {
    let part = match parts.message().await {
        Err(_) if planted(Bug::BreakIsEnd) => None,
        part => part.map_err(failure::unreadable)?,
    };
    match part {
        None => Ok(None),
        Some(AppendReq { content: Some(content) }) => Ok(Some(content)),
        Some(AppendReq { content: None }) if planted(Bug::PartSkipped) => Ok(None),
        Some(AppendReq { content: None }) => {
            Err(Status::invalid_argument("a part of an append is neither options nor event"))
        }
    }
}

/// The events of an append as they come in, within the limits of one.
#[derive(Debug)]
pub struct Gathered {
    /// The events.
    pub events: Vec<Proposed>,
    /// The bytes they hold.
    pub bytes: usize,
    /// What they hold of what all appends together may.
    pub share: Share,
}

impl Gathered {
    /// None yet.
    pub fn new(budget: &Arc<Budget>) -> Gathered {
        Gathered { events: Vec::new(), bytes: 0, share: budget.share() }
    }

    /// Makes room for as many as come at first: often these are all.
    pub fn expect(&mut self, events: usize) {
        if self.events.is_empty() {
            self.events.reserve_exact(events.min(APPEND_EVENTS_MAX));
        }
    }

    /// Takes one more; an error where it is no event or one too many.
    pub fn add(&mut self, message: ProposedMessage) -> Result<(), Status> {
        let event = Proposed::read(message)?;
        self.bytes += event.bytes();
        if self.bytes > APPEND_BYTES_MAX {
            let most = APPEND_BYTES_MAX as u64;
            let message = format!("an append may have {most} bytes; append the events in parts");
            return Err(failure::append_too_large(most, message));
        }
        if self.events.len() == APPEND_EVENTS_MAX {
            return Err(Status::invalid_argument(format!(
                "an append may have {APPEND_EVENTS_MAX} events; append them in parts"
            )));
        }
        if !self.share.grow(event.held_bytes() + EVENT_BYTES_BESIDE) {
            return Err(failure::no_room());
        }
        self.events.push(event);
        Ok(())
    }
}

/// The answer to an append that is done.
pub fn success(done: &Appended) -> Success {
    #[cfg(feature = "canary")]
    let done = &counted_on(*done);
    let revision = match done.last {
        Some(last) => CurrentRevision::CurrentRevision(last),
        None => CurrentRevision::NoStream(()),
    };
    let position = match done.position {
        Some(position) => PositionOption::Position(convert::position(position)),
        None => PositionOption::NoPosition(()),
    };
    Success { current_revision_option: Some(revision), position_option: Some(position) }
}

#[cfg(feature = "canary")]
fn counted_on(done: Appended) -> Appended {
    let is_wrong = done.was_there && umbel_base::canary::Switch::ServerRetryCountsOn.is_on();
    Appended { last: done.last.map(|last| last + u64::from(is_wrong)), ..done }
}

fn wrong_expected(expected: Expected, current: Option<u64>) -> WrongExpectedVersion {
    let old_current = current.map_or(OldCurrent::NoStream(()), OldCurrent::Revision);
    let (old_expected, expected) = match expected {
        Expected::Exact(revision) => {
            (Some(OldExpected::Revision(revision)), append_resp::Expected::Revision(revision))
        }
        Expected::Any => (Some(OldExpected::Any(())), append_resp::Expected::Any(())),
        Expected::Exists => {
            (Some(OldExpected::StreamExists(())), append_resp::Expected::StreamExists(()))
        }
        // Old clients have no word for it.
        Expected::NoStream | Expected::Deleted | Expected::Tombstoned => {
            (None, append_resp::Expected::NoStream(()))
        }
    };
    WrongExpectedVersion {
        old_current: Some(old_current),
        old_expected,
        current: Some(current.map_or(Current::NoStream(()), Current::Revision)),
        expected: Some(expected),
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;
    use umbel_events::EventId;
    use umbel_proto::streams::read_req::UuidForm;

    use crate::limits::{APPENDS_BYTES_MAX, PARTS_TIME};
    use crate::stage::{Stage, event, run, sent};
    use umbel_events::StreamState;
    use umbel_proto::streams::ExpectedRevision;
    use umbel_proto::streams::append_req::Options;

    use super::*;

    #[test]
    fn a_wrong_revision_is_told_to_old_and_to_new_clients() {
        let said = wrong_expected(Expected::Exact(3), Some(5));
        assert_eq!(said.old_current, Some(OldCurrent::Revision(5)));
        assert_eq!(said.old_expected, Some(OldExpected::Revision(3)));
        assert_eq!(said.current, Some(Current::Revision(5)));
        assert_eq!(said.expected, Some(append_resp::Expected::Revision(3)));
        let said = wrong_expected(Expected::NoStream, None);
        assert_eq!(said.current, Some(Current::NoStream(())));
        assert_eq!(said.expected, Some(append_resp::Expected::NoStream(())));
    }

    /// A client that did not end its append held the bytes of its events for ever.
    #[test]
    fn an_append_whose_end_does_not_come_is_given_up() {
        run(async {
            let stage = Stage::new();
            let (parts, streaming) = sent();
            let options = Options {
                stream_identifier: Some(convert::identifier("cart")),
                expected_stream_revision: Some(ExpectedRevision::Any(())),
            };
            for content in [Content::Options(options), Content::ProposedMessage(event(1))] {
                parts.send(AppendReq { content: Some(content) }).unwrap();
            }
            let begun = tokio::time::Instant::now();
            let call = append(Arc::clone(&stage.service), Request::new(streaming));
            let held = async {
                tokio::time::sleep(PARTS_TIME / 2).await;
                stage.bytes()
            };
            let call = tokio::time::timeout(PARTS_TIME * 2, call);
            let (answer, held) = tokio::join!(call, held);
            let answer = answer.expect("it is given up");
            assert_eq!(answer.unwrap_err().code(), Code::Aborted);
            assert!(begun.elapsed() >= PARTS_TIME && begun.elapsed() < PARTS_TIME * 2);
            assert!(held > 0 && stage.bytes() == 0, "{held}");
            assert_eq!(stage.store.stream("cart").unwrap(), StreamState::Missing);
        });
    }

    #[test]
    fn events_are_taken_up_to_the_limit() {
        let message = |bytes: usize| ProposedMessage {
            id: Some(convert::uuid(EventId([7; 16]), UuidForm::String(()))),
            metadata: [("type", "t"), ("content-type", "x")]
                .map(|(key, value)| (key.to_string(), value.to_string()))
                .into(),
            data: vec![0; bytes].into(),
            ..ProposedMessage::default()
        };
        let budget = Arc::new(Budget::default());
        let mut gathered = Gathered::new(&budget);
        gathered.add(message(APPEND_BYTES_MAX - 1)).unwrap();
        let status = gathered.add(message(0)).unwrap_err();
        assert_eq!(status.metadata().get("exception").unwrap(), "maximum-append-size-exceeded");
        let others: Vec<_> = (1..APPENDS_BYTES_MAX / APPEND_BYTES_MAX)
            .map(|_| {
                let mut other = Gathered::new(&budget);
                other.add(message(APPEND_BYTES_MAX - 1)).map(|()| other)
            })
            .collect();
        let status = others.into_iter().find_map(Result::err).expect("there is no more room");
        assert_eq!(status.code(), Code::ResourceExhausted);
        drop(gathered);
        assert_eq!(budget.bytes(), 0);
    }
}
