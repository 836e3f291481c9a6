//! Checks that every message keeps its values when encoded and decoded, under the field numbers of
//! the protocol's table.

use std::collections::BTreeMap;

use prost::encoding::WireType;
use prost::{Message, bytes::Bytes};
use prost_types::{Duration, Timestamp};
use umbel_proto::gossip::{ClusterInfo, EndPoint, MemberInfo, VNodeState};
use umbel_proto::server_features::{SupportedMethod, SupportedMethods};
use umbel_proto::shared::{
    AllStreamPosition, BadRequest, MaximumAppendSizeExceeded, StreamDeleted, StreamIdentifier,
    Uuid, WrongExpectedVersion, uuid, wrong_expected_version,
};
use umbel_proto::status::{Code, Status, detail};
use umbel_proto::streams::{
    AppendReq, AppendResp, BatchAppendReq, BatchAppendResp, DeleteOptions, DeleteReq, DeleteResp,
    DeleteResult, ExpectedRevision, ReadReq, ReadResp, append_req, append_resp, batch_append_req,
    batch_append_resp, read_req, read_resp,
};

use super::wire_reader::{check, first_wire_type};

const HERE: AllStreamPosition = AllStreamPosition { commit_position: 7, prepare_position: 6 };
const NOW: Timestamp = Timestamp { seconds: 5, nanos: 4 };
const EXPECTED: [ExpectedRevision; 4] = [
    ExpectedRevision::Revision(3),
    ExpectedRevision::NoStream(()),
    ExpectedRevision::Any(()),
    ExpectedRevision::StreamExists(()),
];

fn stream() -> Option<StreamIdentifier> {
    Some(StreamIdentifier { stream_name: Bytes::from_static(b"a") })
}

fn id() -> Option<Uuid> {
    let value = uuid::Value::String("0198f3c2-7a55-4b6e-9c1d-3e5f70819203".to_string());
    Some(Uuid { value: Some(value) })
}

fn metadata() -> BTreeMap<String, String> {
    BTreeMap::from([("type".to_string(), "t".to_string())])
}

#[test]
fn shared_types() {
    check(id().unwrap(), &[2]);
    let halves = uuid::Structured { most_significant_bits: -1, least_significant_bits: 2 };
    check(halves, &[1, 2]);
    check(Uuid { value: Some(uuid::Value::Structured(halves)) }, &[1]);
    check(stream().unwrap(), &[3]);
    check(HERE, &[1, 2]);
    check(StreamDeleted { stream_identifier: stream() }, &[1]);
    check(MaximumAppendSizeExceeded { max_append_size: 9 }, &[1]);
    check(BadRequest { message: "no".to_string() }, &[1]);
    check((), &[]);
}

#[test]
fn batch_with_another_expected_revision() {
    use wrong_expected_version::{Current, Expected};
    let currents = [(Current::CurrentStreamRevision(0), 1), (Current::CurrentNoStream(()), 2)];
    let expectations = [
        (Expected::ExpectedStreamPosition(0), 3),
        (Expected::ExpectedAny(()), 4),
        (Expected::ExpectedStreamExists(()), 5),
        (Expected::ExpectedNoStream(()), 6),
    ];
    for (current, first) in currents {
        for (expected, second) in expectations {
            let message = WrongExpectedVersion {
                current_stream_revision_option: Some(current),
                expected_stream_position_option: Some(expected),
            };
            check(message, &[first, second]);
        }
    }
}

#[test]
fn read_requests() {
    use read_req::{AllOption, CountOption, FilterOption, RevisionOption, StreamOption, UuidForm};
    let revisions = [
        (RevisionOption::Revision(0), 2),
        (RevisionOption::Start(()), 3),
        (RevisionOption::End(()), 4),
    ];
    for (revision, number) in revisions {
        let options = read_req::StreamOptions {
            stream_identifier: stream(),
            revision_option: Some(revision),
        };
        check(options, &[1, number]);
    }
    let position = read_req::Position { commit_position: 2, prepare_position: 1 };
    check(position, &[1, 2]);
    let places =
        [(AllOption::Position(position), 1), (AllOption::Start(()), 2), (AllOption::End(()), 3)];
    for (place, number) in places {
        check(read_req::AllOptions { all_option: Some(place) }, &[number]);
    }
    for (form, number) in [(UuidForm::Structured(()), 1), (UuidForm::String(()), 2)] {
        check(read_req::UuidOption { content: Some(form) }, &[number]);
    }
    let mut options = read_req::Options {
        stream_option: Some(StreamOption::Stream(read_req::StreamOptions::default())),
        read_direction: read_req::ReadDirection::Backwards as i32,
        resolve_links: true,
        count_option: Some(CountOption::Count(0)),
        filter_option: Some(FilterOption::NoFilter(())),
        uuid_option: Some(read_req::UuidOption::default()),
        control_option: Some(read_req::ControlOption { compatibility: 1 }),
    };
    check(options.clone(), &[1, 3, 4, 5, 8, 9, 10]);
    options.stream_option = Some(StreamOption::All(read_req::AllOptions::default()));
    options.count_option = Some(CountOption::Subscription(()));
    options.filter_option = Some(FilterOption::Filter(read_req::FilterOptions::default()));
    check(options.clone(), &[2, 3, 4, 6, 7, 9, 10]);
    check(options.control_option.unwrap(), &[1]);
    check(ReadReq { options: Some(options) }, &[1]);
}

#[test]
fn filters_of_reads() {
    use read_req::{Expression, Filter, FilterOptions, Window};
    let expression = Expression { regex: "^a".to_string(), prefix: vec!["b".to_string(); 2] };
    check(expression.clone(), &[1, 2]);
    let cases = [
        (Filter::StreamIdentifier(expression.clone()), Window::Max(0), [1, 3, 5]),
        (Filter::EventType(expression), Window::Count(()), [2, 4, 5]),
    ];
    for (filter, window, numbers) in cases {
        let message = FilterOptions {
            filter: Some(filter),
            window: Some(window),
            checkpoint_interval_multiplier: 1,
        };
        check(message, &numbers);
    }
}

#[test]
fn read_answers() {
    use read_resp::{Content, EventPosition};
    let event = read_resp::RecordedEvent {
        id: id(),
        stream_identifier: stream(),
        stream_revision: 1,
        prepare_position: 2,
        commit_position: 3,
        metadata: metadata(),
        custom_metadata: Bytes::from_static(b"m"),
        data: Bytes::from_static(b"d"),
    };
    check(event.clone(), &[1, 2, 3, 4, 5, 6, 7, 8]);
    for (position, number) in
        [(EventPosition::CommitPosition(0), 3), (EventPosition::NoPosition(()), 4)]
    {
        let message = read_resp::ReadEvent {
            event: Some(event.clone()),
            link: Some(event.clone()),
            position: Some(position),
        };
        check(message, &[1, 2, number]);
    }
    let confirmation = read_resp::SubscriptionConfirmation { subscription_id: "s".to_string() };
    check(confirmation.clone(), &[1]);
    let checkpoint =
        read_resp::Checkpoint { commit_position: 2, prepare_position: 1, timestamp: Some(NOW) };
    check(checkpoint, &[1, 2, 3]);
    let progress = read_resp::Progress {
        timestamp: Some(NOW),
        stream_revision: Some(0),
        position: Some(HERE),
    };
    check(progress, &[1, 2, 3]);
    let not_found = read_resp::StreamNotFound { stream_identifier: stream() };
    check(not_found.clone(), &[1]);
    let contents = [
        Content::Event(read_resp::ReadEvent::default()),
        Content::Confirmation(confirmation),
        Content::Checkpoint(checkpoint),
        Content::StreamNotFound(not_found),
        Content::FirstStreamPosition(0),
        Content::LastStreamPosition(0),
        Content::LastAllStreamPosition(HERE),
        Content::CaughtUp(progress),
        Content::FellBehind(progress),
    ];
    for (content, number) in contents.into_iter().zip(1..) {
        check(ReadResp { content: Some(content) }, &[number]);
    }
}

#[test]
fn appends() {
    let proposed = append_req::ProposedMessage {
        id: id(),
        metadata: metadata(),
        custom_metadata: Bytes::from_static(b"m"),
        data: Bytes::from_static(b"d"),
    };
    check(proposed.clone(), &[1, 2, 3, 4]);
    for (expected, number) in EXPECTED.into_iter().zip(2..) {
        let options = append_req::Options {
            stream_identifier: stream(),
            expected_stream_revision: Some(expected),
        };
        check(options.clone(), &[1, number]);
        check(AppendReq { content: Some(append_req::Content::Options(options)) }, &[1]);
    }
    check(AppendReq { content: Some(append_req::Content::ProposedMessage(proposed)) }, &[2]);
}

#[test]
fn append_answers() {
    use append_resp::{
        Current, CurrentRevision, Expected, OldCurrent, OldExpected, Outcome, PositionOption,
        Success, WrongExpectedVersion,
    };
    let successes = [
        (CurrentRevision::CurrentRevision(0), PositionOption::Position(HERE), [1, 3]),
        (CurrentRevision::NoStream(()), PositionOption::NoPosition(()), [2, 4]),
    ];
    for (current, position, numbers) in successes {
        let success =
            Success { current_revision_option: Some(current), position_option: Some(position) };
        check(success, &numbers);
        check(AppendResp { result: Some(Outcome::Success(success)) }, &[1]);
    }
    let old = [
        OldExpected::ExpectedRevision2060(0),
        OldExpected::Any2060(()),
        OldExpected::StreamExists2060(()),
    ];
    let new = [
        Expected::ExpectedRevision(0),
        Expected::ExpectedAny(()),
        Expected::ExpectedStreamExists(()),
        Expected::ExpectedNoStream(()),
    ];
    let mut wrong = WrongExpectedVersion {
        current_revision_option_20_6_0: Some(OldCurrent::CurrentRevision2060(0)),
        expected_revision_option_20_6_0: None,
        current_revision_option: Some(Current::CurrentRevision(0)),
        expected_revision_option: None,
    };
    for (expected, number) in old.into_iter().zip(3..) {
        let expected_revision_option_20_6_0 = Some(expected);
        check(WrongExpectedVersion { expected_revision_option_20_6_0, ..wrong }, &[1, number, 6]);
    }
    wrong.current_revision_option_20_6_0 = Some(OldCurrent::NoStream2060(()));
    wrong.current_revision_option = Some(Current::CurrentNoStream(()));
    for (expected, number) in new.into_iter().zip(8..) {
        let expected_revision_option = Some(expected);
        check(WrongExpectedVersion { expected_revision_option, ..wrong }, &[2, 7, number]);
    }
    check(AppendResp { result: Some(Outcome::WrongExpectedVersion(wrong)) }, &[2]);
}

#[test]
fn batch_appends() {
    use batch_append_req::{DeadlineOption, Expected, Options};
    let deadlines = [
        (DeadlineOption::Deadline21100(NOW), 6),
        (DeadlineOption::Deadline(Duration { seconds: 1, nanos: 2 }), 7),
    ];
    let expectations = [
        Expected::StreamPosition(3),
        Expected::NoStream(()),
        Expected::Any(()),
        Expected::StreamExists(()),
    ];
    for (deadline, last) in deadlines {
        for (expected, number) in expectations.into_iter().zip(2..) {
            let options = Options {
                stream_identifier: stream(),
                expected_stream_position: Some(expected),
                deadline_option: Some(deadline),
            };
            check(options, &[1, number, last]);
        }
    }
    let request = BatchAppendReq {
        correlation_id: id(),
        options: Some(Options::default()),
        proposed_messages: vec![batch_append_req::ProposedMessage::default(); 2],
        is_final: true,
    };
    check(request, &[1, 2, 3, 4]);
}

#[test]
fn batch_append_answers() {
    use batch_append_resp::{Expected, Outcome};
    let outcomes = [
        (Outcome::Error(Status::default()), 2),
        (Outcome::Success(append_resp::Success::default()), 3),
    ];
    let expectations = [
        Expected::StreamPosition(0),
        Expected::NoStream(()),
        Expected::Any(()),
        Expected::StreamExists(()),
    ];
    for (outcome, second) in outcomes {
        for (expected, last) in expectations.into_iter().zip(5..) {
            let message = BatchAppendResp {
                correlation_id: id(),
                result: Some(outcome.clone()),
                stream_identifier: stream(),
                expected_stream_position: Some(expected),
            };
            check(message, &[1, second, 4, last]);
        }
    }
}

#[test]
fn deletions() {
    for (expected, number) in EXPECTED.into_iter().zip(2..) {
        let options =
            DeleteOptions { stream_identifier: stream(), expected_stream_revision: Some(expected) };
        check(options.clone(), &[1, number]);
        check(DeleteReq { options: Some(options) }, &[1]);
    }
    check(DeleteResp { position_option: Some(DeleteResult::Position(HERE)) }, &[1]);
    check(DeleteResp { position_option: Some(DeleteResult::NoPosition(())) }, &[2]);
}

#[test]
fn gossip_and_features() {
    let end_point = EndPoint { address: "localhost".to_string(), port: 2113 };
    check(end_point.clone(), &[1, 2]);
    let member = MemberInfo {
        instance_id: id(),
        time_stamp: 1,
        state: VNodeState::Leader as i32,
        is_alive: true,
        http_end_point: Some(end_point),
    };
    assert_eq!((member.state, VNodeState::ResigningLeader as i32), (8, 15));
    check(member.clone(), &[1, 2, 3, 4, 5]);
    check(ClusterInfo { members: vec![member; 2] }, &[1]);
    let method = SupportedMethod {
        method_name: "read".to_string(),
        service_name: "s".to_string(),
        features: vec!["position".to_string(), "events".to_string()],
    };
    check(method.clone(), &[1, 2, 3]);
    let methods = SupportedMethods {
        methods: vec![method],
        event_store_server_version: "26.1.0".to_string(),
    };
    check(methods, &[1, 2]);
}

#[test]
fn outcomes_carry_one_detail() {
    let details = detail("event_store.client.BadRequest", &BadRequest { message: "no".into() });
    assert!(details.type_url.ends_with("/event_store.client.BadRequest"));
    let code = Code::AlreadyExists as i32;
    let status = Status { code, message: "m".to_string(), details: vec![details] };
    assert_eq!((code, Code::Unauthenticated as i32), (6, 16));
    check(status, &[1, 2, 3]);
}

/// Wire types are fixed, too: the expected bytes were written manually from the table.
#[test]
fn numbers_and_texts_match_the_table() {
    assert_eq!(first_wire_type(&stream().unwrap().encode_to_vec()), WireType::LengthDelimited);
    assert_eq!(first_wire_type(&HERE.encode_to_vec()), WireType::Varint);
    let halves = uuid::Structured { most_significant_bits: 1, least_significant_bits: -1 };
    let mut bytes = vec![0x08, 0x01, 0x10];
    bytes.extend([0xff; 9]);
    bytes.push(0x01);
    assert_eq!(halves.encode_to_vec(), bytes);
    let proposed = append_req::ProposedMessage { metadata: metadata(), ..Default::default() };
    assert_eq!(proposed.encode_to_vec(), b"\x12\x09\x0a\x04type\x12\x01t");
}
