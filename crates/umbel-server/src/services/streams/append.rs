//! The call Append, which appends one group of events.

use std::sync::Arc;

use tonic::{Request, Response, Status};
use umbel_base::fail_point;
use umbel_events::limits::STREAM_NAME_BYTES_MAX;
use umbel_events::{Error, ExpectedVersion, WriteResult};
use umbel_proto::streams::append_resp::{
    Current, CurrentRevision, OldCurrent, OldExpected, Outcome, PositionOption, Success,
    WrongExpectedVersion,
};
use umbel_proto::streams::{AppendResp, append_resp};

use crate::access_control::acl::StreamAction;
use crate::auth::authorization::Caller;
use crate::event_store::append_command::{AppendCommand, StreamEvents};
use crate::grpc::message_stream::MessageStream;
use crate::limits::EVENT_OVERHEAD_BYTES;
use crate::protocol::grpc_status;
use crate::protocol::proto_convert::{self, ProposedEvent};
use crate::resources::deferred_drop::ProposedEventList;
use crate::resources::inbound_quota::{InboundQuota, QuotaShare};
use crate::server_context::ServerContext;
use crate::services::streams::proposed_events::{self, AppendPart, ProposedEvents};

/// Header of a response with a version conflict: its cause, where the numbers do not say it.
const CONFLICT_REASON: &str = "reason";

/// Appends the client's events once all of them are received.
pub async fn append(
    service: Arc<ServerContext>,
    request: Request<MessageStream<AppendPart>>,
) -> Result<Response<AppendResp>, Status> {
    // Received events occupy memory that all appends share.
    let caller = Caller::from_extensions(request.extensions());
    let gather = read_append(&service, &caller, request.into_inner());
    let gathered = tokio::time::timeout(service.partial_append_time, gather);
    let append = gathered.await.unwrap_or_else(|_| Err(grpc_status::append_timed_out()))?;
    let result = service.store.appends().submit(append).await;
    let (result, present) = match result.map_err(Error::into_first_conflict) {
        Ok(streams) => (Outcome::Success(success_response(&streams[0])), None),
        Err(Error::WrongExpectedVersion { expected, current, present, .. }) => {
            (Outcome::WrongExpectedVersion(wrong_expected_version(expected, current)), present)
        }
        Err(error) => return Err(grpc_status::status(&error)),
    };
    let mut response = Response::new(AppendResp { result: Some(result) });
    // The message has no field for the cause.
    if let Some(cause) = present.and_then(|present| present.to_string().parse().ok()) {
        response.metadata_mut().insert(CONFLICT_REASON, cause);
    }
    Ok(response)
}

/// Reads all parts of an append.
async fn read_append(
    service: &ServerContext,
    caller: &Caller,
    mut parts: MessageStream<AppendPart>,
) -> Result<AppendCommand, Status> {
    let options = match next_part(&mut parts).await? {
        Some(AppendPart::Options(options)) => options,
        _ => return Err(Status::invalid_argument("the first message of an append has no options")),
    };
    let stream = proto_convert::stream_name(options.stream_identifier)?;
    // The name is kept while events arrive, and no quota counts it.
    if proto_convert::is_name_too_long(stream.as_bytes()) {
        let why = format!("the stream's name is longer than {STREAM_NAME_BYTES_MAX} bytes");
        return Err(Status::invalid_argument(why));
    }
    let expected = proto_convert::expected_revision(options.expected_stream_revision)?;
    service.authorizer.authorize(&service.store, caller, StreamAction::Write, &stream).await?;
    let mut gathered = EventBuffer::new(&service.append_quota);
    while let Some(content) = next_part(&mut parts).await? {
        match content {
            AppendPart::Event(event) => gathered.add(*event?)?,
            AppendPart::Options(_) | AppendPart::Empty => {
                return Err(Status::invalid_argument(
                    "the append has its options twice; send them in the first message only",
                ));
            }
        }
    }
    let EventBuffer { events, quota_share: share, .. } = gathered;
    Ok(AppendCommand::to_stream(StreamEvents { stream, expected, events }, share))
}

async fn next_part(parts: &mut MessageStream<AppendPart>) -> Result<Option<AppendPart>, Status> {
    let part = parts.message().await;
    fail_point!("append-accept-truncated", part.is_err(), |_| Ok(None));
    match part.map_err(grpc_status::decode_error)? {
        None => Ok(None),
        Some(AppendPart::Empty) => {
            fail_point!("append-accept-empty-part", |_| Ok(None));
            let why = "a message of the append has neither options nor an event";
            Err(Status::invalid_argument(why))
        }
        Some(part) => Ok(Some(part)),
    }
}

/// Received events of an append, within the limits of one append.
#[derive(Debug)]
pub struct EventBuffer {
    /// The events.
    pub events: ProposedEventList,
    /// Bytes of the events.
    pub bytes: usize,
    /// Share of the quota of all appends.
    pub quota_share: QuotaShare,
}

impl EventBuffer {
    /// Creates an empty buffer.
    pub fn new(budget: &Arc<InboundQuota>) -> EventBuffer {
        EventBuffer {
            events: ProposedEventList::default(),
            bytes: 0,
            quota_share: budget.new_share(),
        }
    }

    /// Adds an event; fails if it exceeds a limit.
    pub fn add(&mut self, event: ProposedEvent) -> Result<(), Status> {
        self.charge(event.bytes(), event.memory_bytes() + EVENT_OVERHEAD_BYTES, 1)?;
        self.events.push(event);
        Ok(())
    }

    /// Adds the events of a message; fails if the message is refused or exceeds a limit.
    pub fn add_all(&mut self, message: ProposedEvents) -> Result<(), Status> {
        let ProposedEvents { mut events, bytes, memory_bytes, refusal } = message;
        if let Some(refusal) = refusal {
            return Err(refusal);
        }
        self.charge(bytes, memory_bytes, events.len())?;
        if self.events.is_empty() {
            self.events = events;
        } else {
            self.events.append(&mut events);
        }
        Ok(())
    }

    fn charge(&mut self, bytes: usize, memory_bytes: usize, events: usize) -> Result<(), Status> {
        self.bytes += bytes;
        proposed_events::check_append_limits(self.bytes, self.events.len() + events)?;
        if self.quota_share.grow(memory_bytes) {
            return Ok(());
        }
        Err(grpc_status::append_quota_exhausted())
    }
}

/// Builds the response to a successful append.
pub fn success_response(done: &WriteResult) -> Success {
    let revision = current_revision(done);
    let position = match done.position {
        Some(position) => PositionOption::Position(proto_convert::all_position(position)),
        None => PositionOption::NoPosition(()),
    };
    Success { current_revision_option: Some(revision), position_option: Some(position) }
}

fn current_revision(done: &WriteResult) -> CurrentRevision {
    let Some(last) = done.last else { return CurrentRevision::NoStream(()) };
    fail_point!("append-retry-return-new-revision", done.is_retry, |_| {
        CurrentRevision::CurrentRevision(last + 1)
    });
    CurrentRevision::CurrentRevision(last)
}

fn wrong_expected_version(expected: ExpectedVersion, current: Option<u64>) -> WrongExpectedVersion {
    let old_current = current.map_or(OldCurrent::NoStream2060(()), OldCurrent::CurrentRevision2060);
    let current = current.map_or(Current::CurrentNoStream(()), Current::CurrentRevision);
    let (old_expected, expected) = match expected {
        ExpectedVersion::Exact(revision) => (
            Some(OldExpected::ExpectedRevision2060(revision)),
            append_resp::Expected::ExpectedRevision(revision),
        ),
        ExpectedVersion::Any => {
            (Some(OldExpected::Any2060(())), append_resp::Expected::ExpectedAny(()))
        }
        ExpectedVersion::Exists => (
            Some(OldExpected::StreamExists2060(())),
            append_resp::Expected::ExpectedStreamExists(()),
        ),
        // Old clients have no such value.
        ExpectedVersion::NoStream | ExpectedVersion::Deleted | ExpectedVersion::Tombstoned => {
            (None, append_resp::Expected::ExpectedNoStream(()))
        }
    };
    WrongExpectedVersion {
        current_revision_option_20_6_0: Some(old_current),
        expected_revision_option_20_6_0: old_expected,
        current_revision_option: Some(current),
        expected_revision_option: Some(expected),
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use tonic::Code;
    use umbel_events::EventId;
    use umbel_events::limits::APPEND_BYTES_MAX;
    use umbel_proto::streams::AppendReq;
    use umbel_proto::streams::append_req::{Content, ProposedMessage};
    use umbel_proto::streams::read_req::UuidForm;

    use crate::grpc::message_limits::RequestMessage;
    use crate::limits::{APPENDS_BYTES_MAX, PARTIAL_APPEND_TIME};
    use crate::test_support::test_service::{self, TestService, message_channel, run_paused};
    use umbel_events::StreamState;
    use umbel_proto::streams::ExpectedRevision;
    use umbel_proto::streams::append_req::Options;

    use super::*;

    #[test]
    fn version_conflict_is_reported_to_old_and_new_clients() {
        let conflict = wrong_expected_version(ExpectedVersion::Exact(3), Some(5));
        assert_eq!(
            conflict.current_revision_option_20_6_0,
            Some(OldCurrent::CurrentRevision2060(5))
        );
        assert_eq!(
            conflict.expected_revision_option_20_6_0,
            Some(OldExpected::ExpectedRevision2060(3))
        );
        assert_eq!(conflict.current_revision_option, Some(Current::CurrentRevision(5)));
        assert_eq!(
            conflict.expected_revision_option,
            Some(append_resp::Expected::ExpectedRevision(3))
        );
        let conflict = wrong_expected_version(ExpectedVersion::NoStream, None);
        assert_eq!(conflict.current_revision_option, Some(Current::CurrentNoStream(())));
        assert_eq!(
            conflict.expected_revision_option,
            Some(append_resp::Expected::ExpectedNoStream(()))
        );
    }

    /// Story: a client that did not end its append held the bytes of its events for ever.
    #[test]
    fn append_without_an_end_times_out() {
        run_paused(async {
            let fixture = TestService::new();
            let (parts, streaming) = message_channel();
            let options = Options {
                stream_identifier: Some(proto_convert::stream_identifier("cart")),
                expected_stream_revision: Some(ExpectedRevision::Any(())),
            };
            for content in
                [Content::Options(options), Content::ProposedMessage(test_service::event(1))]
            {
                parts.send(AppendReq { content: Some(content) }).unwrap();
            }
            let begun = tokio::time::Instant::now();
            let call = append(Arc::clone(&fixture.service), Request::new(streaming));
            let held = async {
                tokio::time::sleep(PARTIAL_APPEND_TIME / 2).await;
                fixture.bytes()
            };
            let call = tokio::time::timeout(PARTIAL_APPEND_TIME * 2, call);
            let (answer, held) = tokio::join!(call, held);
            let answer = answer.expect("the append times out");
            assert_eq!(answer.unwrap_err().code(), Code::Aborted);
            assert!(
                begun.elapsed() >= PARTIAL_APPEND_TIME && begun.elapsed() < PARTIAL_APPEND_TIME * 2
            );
            assert!(held > 0 && fixture.bytes() == 0, "{held}");
            assert_eq!(fixture.store.stream_state("cart").unwrap(), StreamState::Missing);
        });
    }

    #[test]
    fn events_are_accepted_up_to_the_limit() {
        let event = |bytes: usize| {
            let message = ProposedMessage {
                id: Some(proto_convert::to_uuid(EventId([7; 16]), UuidForm::String(()))),
                metadata: [("type", "t"), ("content-type", "x")]
                    .map(|(key, value)| (key.to_string(), value.to_string()))
                    .into(),
                data: vec![0; bytes].into(),
                ..ProposedMessage::default()
            };
            let content = Some(Content::ProposedMessage(message));
            match AppendPart::from_bytes(AppendReq { content }.encode_to_vec().into()) {
                Ok(AppendPart::Event(Ok(event))) => *event,
                other => panic!("{other:?}"),
            }
        };
        let budget = Arc::new(InboundQuota::default());
        let mut gathered = EventBuffer::new(&budget);
        gathered.add(event(APPEND_BYTES_MAX - 1)).unwrap();
        let status = gathered.add(event(0)).unwrap_err();
        assert_eq!(status.metadata().get("exception").unwrap(), "maximum-append-size-exceeded");
        let others: Vec<_> = (1..APPENDS_BYTES_MAX / APPEND_BYTES_MAX)
            .map(|_| {
                let mut other = EventBuffer::new(&budget);
                other.add(event(APPEND_BYTES_MAX - 1)).map(|()| other)
            })
            .collect();
        let status =
            others.into_iter().find_map(Result::err).expect("one append exceeds the quota");
        assert_eq!(status.code(), Code::ResourceExhausted);
        drop(gathered);
        assert_eq!(budget.used_bytes(), 0);
    }
}
