//! Tests of append, read and delete.

use tonic::Code;
use umbel_proto::streams::append_resp::{
    Current, CurrentRevision, Expected, Outcome, PositionOption, Success,
};
use umbel_proto::streams::read_req::{
    AllOption, ControlOption, FilterOption, FilterOptions, Options, RevisionOption, UuidForm,
    UuidOption,
};
use umbel_proto::streams::read_resp::{Content, EventPosition};
use umbel_proto::streams::{DeleteResult, ExpectedRevision, append_req};

use super::client::{
    ANY, EXISTS, NO_STREAM, at_most, at_position, backwards, event, events, fact, name, numbers,
    of_all, of_stream, part, recorded,
};
use super::test_server::TestServer;

const START: RevisionOption = RevisionOption::Start(());
const END: RevisionOption = RevisionOption::End(());
const NONE: [u64; 0] = [];

fn success(outcome: Outcome) -> Success {
    match outcome {
        Outcome::Success(success) => success,
        other => panic!("{other:?}"),
    }
}

fn last_revision(outcome: Outcome) -> u64 {
    match success(outcome).current_revision_option {
        Some(CurrentRevision::CurrentRevision(revision)) => revision,
        other => panic!("{other:?}"),
    }
}

fn position(outcome: Outcome) -> u64 {
    match success(outcome).position_option {
        Some(PositionOption::Position(position)) => {
            assert_eq!(position.commit_position, position.prepare_position);
            position.commit_position
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn appended_events_are_read_back_unchanged() {
    TestServer::new().run(async |client, _| {
        let appended = client.append("cart", NO_STREAM, &events(0..3)).await.unwrap();
        assert_eq!(last_revision(appended), 2);
        let read = client.read(of_stream("cart", START)).await.unwrap();
        assert_eq!(read.len(), 3);
        let Content::Event(last) = read[2].clone() else { panic!("{read:?}") };
        let commit_position = position(appended);
        assert_eq!(last.position, Some(EventPosition::CommitPosition(commit_position)));
        let last = last.event.unwrap();
        assert_eq!(
            (last.commit_position, last.prepare_position),
            (commit_position, commit_position)
        );
        let sent = event(2);
        assert_eq!((last.id, last.data), (sent.id, sent.data));
        assert_eq!(last.custom_metadata, sent.custom_metadata);
        assert_eq!(last.stream_identifier, Some(name("cart")));
        assert_eq!(last.stream_revision, 2);
        assert_eq!(last.metadata["type"], "Counted");
        assert_eq!(last.metadata["content-type"], "application/json");
        assert!(last.metadata["created"].parse::<u64>().unwrap() > 17_000_000_000_000_000);
    });
}

#[test]
fn stream_is_read_in_both_directions_from_any_revision() {
    TestServer::new().run(async |client, _| {
        client.append("cart", ANY, &events(0..1500)).await.unwrap();
        let read = async |options| numbers(client.read(options).await.unwrap());
        let all: Vec<u64> = (0..1500).collect();
        assert_eq!(read(of_stream("cart", START)).await, all);
        let reversed: Vec<u64> = (0..1500).rev().collect();
        assert_eq!(read(backwards(of_stream("cart", END))).await, reversed);
        let from = |revision| of_stream("cart", RevisionOption::Revision(revision));
        assert_eq!(read(at_most(2, from(7))).await, [7, 8]);
        assert_eq!(read(backwards(at_most(2, from(7)))).await, [7, 6]);
        assert_eq!(read(at_most(0, from(7))).await, NONE);
        assert_eq!(read(from(1499)).await, [1499]);
        assert_eq!(read(from(1500)).await, NONE);
        assert_eq!(read(from(u64::MAX)).await, NONE);
        assert_eq!(read(of_stream("cart", END)).await, NONE);
        assert_eq!(read(backwards(of_stream("cart", START))).await, [0]);
        assert_eq!(read(at_most(600, from(0))).await, all[..600]);
    });
}

#[test]
fn all_is_read_in_both_directions_from_any_position() {
    TestServer::new().run(async |client, _| {
        for number in 0..700 {
            let stream = format!("cart-{}", number % 7);
            client.append(&stream, ANY, &[event(number)]).await.unwrap();
        }
        let read = async |options| client.read(options).await.unwrap();
        let all = read(of_all(AllOption::Start(()))).await;
        let positions: Vec<u64> =
            all.iter().map(|content| recorded(content.clone()).commit_position).collect();
        assert!(positions.is_sorted_by(|one, next| one < next), "{positions:?}");
        assert_eq!(numbers(all), (0..700).collect::<Vec<_>>());
        let reversed = numbers(read(backwards(of_all(AllOption::End(())))).await);
        assert_eq!(reversed, (0..700).rev().collect::<Vec<_>>());
        let from = |number: usize| of_all(at_position(positions[number]));
        assert_eq!(numbers(read(at_most(2, from(7))).await), [7, 8]);
        assert_eq!(numbers(read(backwards(at_most(2, from(7)))).await), [6, 5]);
        assert_eq!(numbers(read(from(699)).await), [699]);
        assert_eq!(numbers(read(of_all(AllOption::End(()))).await), NONE);
        assert_eq!(numbers(read(backwards(of_all(AllOption::Start(())))).await), NONE);
        let beyond_end = client.read(of_all(at_position(positions[699] + 1))).await.unwrap_err();
        assert_eq!(beyond_end.code(), Code::InvalidArgument);
        assert_eq!(beyond_end.message(), "Trying to read from an invalid position.");
    });
}

#[test]
fn uuids_are_returned_in_the_requested_form() {
    TestServer::new().run(async |client, _| {
        client.append("cart", ANY, &[event(5)]).await.unwrap();
        let form = UuidOption { content: Some(UuidForm::String(())) };
        let options = Options { uuid_option: Some(form), ..of_stream("cart", START) };
        let read = client.read(options).await.unwrap();
        let id = recorded(read[0].clone()).id.unwrap();
        let text = umbel_proto::shared::uuid::Value::String(
            "00000000-0000-1234-0000-000000000005".to_string(),
        );
        assert_eq!(id.value, Some(text));
        let mut sent = event(6);
        sent.id = Some(id);
        client.append("other", NO_STREAM, &[sent]).await.unwrap();
        let read = client.read(of_stream("other", START)).await.unwrap();
        assert_eq!(recorded(read[0].clone()).id, event(5).id);
    });
}

#[test]
fn version_conflict_is_reported_in_the_response() {
    TestServer::new().run(async |client, _| {
        client.append("cart", NO_STREAM, &events(0..2)).await.unwrap();
        let wrong = async |stream: &str, expected| match client
            .append(stream, expected, &[event(9)])
            .await
            .unwrap()
        {
            Outcome::WrongExpectedVersion(wrong) => {
                (wrong.current_revision_option.unwrap(), wrong.expected_revision_option.unwrap())
            }
            other => panic!("{other:?}"),
        };
        let (one, none) = (Current::CurrentRevision(1), Current::CurrentNoStream(()));
        assert_eq!(wrong("cart", NO_STREAM).await, (one, Expected::ExpectedNoStream(())));
        let exactly = ExpectedRevision::Revision(5);
        assert_eq!(wrong("cart", exactly).await, (one, Expected::ExpectedRevision(5)));
        assert_eq!(wrong("none", EXISTS).await, (none, Expected::ExpectedStreamExists(())));
        let again = client.append("cart", NO_STREAM, &events(0..2)).await.unwrap();
        assert_eq!(last_revision(again), 1, "a retry is done already");
        let nothing = client.append("none", ANY, &[]).await.unwrap();
        assert_eq!(success(nothing).current_revision_option, Some(CurrentRevision::NoStream(())));
        assert_eq!(success(nothing).position_option, Some(PositionOption::NoPosition(())));
    });
}

#[test]
fn deleted_stream_can_be_recreated_tombstoned_cannot() {
    TestServer::new().run(async |client, _| {
        client.append("cart", ANY, &events(0..2)).await.unwrap();
        let deleted = client.delete("Delete", "cart", ANY).await.unwrap();
        assert!(matches!(deleted.position_option, Some(DeleteResult::Position(_))));
        let read = client.read(of_stream("cart", START)).await.unwrap();
        assert!(matches!(read[..], [Content::StreamNotFound(_)]), "{read:?}");
        client.delete("Delete", "cart", ANY).await.unwrap();
        let again = client.append("cart", NO_STREAM, &[event(7)]).await.unwrap();
        assert_eq!(last_revision(again), 2);
        assert_eq!(numbers(client.read(of_stream("cart", START)).await.unwrap()), [7]);

        client.delete("Tombstone", "cart", ANY).await.unwrap();
        let read = client.read(of_stream("cart", START)).await.unwrap_err();
        let append = client.append("cart", ANY, &[event(8)]).await.unwrap_err();
        let delete = client.delete("Delete", "cart", ANY).await.unwrap_err();
        for status in [read, append, delete] {
            assert_eq!(status.code(), Code::FailedPrecondition, "{status:?}");
            assert_eq!(status.message(), "Event stream 'cart' is deleted.");
            assert_eq!(fact(&status, "exception"), "stream-deleted");
            assert_eq!(fact(&status, "stream-name"), "cart");
        }
        client.delete("Tombstone", "never", NO_STREAM).await.unwrap();
    });
}

#[test]
fn delete_with_version_conflict_is_an_error_with_details() {
    TestServer::new().run(async |client, _| {
        let never = client.delete("Delete", "never", ANY).await.unwrap_err();
        assert_eq!(never.code(), Code::FailedPrecondition);
        assert_eq!(
            never.message(),
            "Delete failed due to WrongExpectedVersion. Stream: never, Expected version: -2, \
             Actual version: -1"
        );
        client.append("cart", ANY, &events(0..2)).await.unwrap();
        let wrong = client.delete("Tombstone", "cart", ExpectedRevision::Revision(7)).await;
        let wrong = wrong.unwrap_err();
        assert_eq!(fact(&wrong, "exception"), "wrong-expected-version");
        assert_eq!(fact(&wrong, "expected-version"), "7");
        assert_eq!(fact(&wrong, "actual-version"), "1");
    });
}

#[test]
fn missing_stream_is_a_response() {
    TestServer::new().run(async |client, _| {
        for options in [of_stream("none", START), backwards(of_stream("none", END))] {
            match &client.read(options).await.unwrap()[..] {
                [Content::StreamNotFound(missing)] => {
                    assert_eq!(missing.stream_identifier, Some(name("none")));
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(client.read(of_all(AllOption::Start(()))).await.unwrap(), []);
    });
}

#[test]
fn clients_may_request_stream_bounds() {
    TestServer::new().run(async |client, _| {
        client.append("cart", ANY, &events(0..3)).await.unwrap();
        let with_bounds = |options| Options {
            control_option: Some(ControlOption { compatibility: 1 }),
            ..options
        };
        for options in [of_stream("cart", START), backwards(of_stream("cart", END))] {
            let read = client.read(with_bounds(options)).await.unwrap();
            assert_eq!(read.len(), 4);
            assert_eq!(read[3], Content::LastStreamPosition(2));
        }
        let metadata = append_req::ProposedMessage {
            data: br#"{"$tb":3}"#.to_vec().into(),
            metadata: [("type", "$metadata"), ("content-type", "application/json")]
                .map(|(key, value)| (key.to_string(), value.to_string()))
                .into(),
            ..event(50)
        };
        client.append("$$cart", ANY, &[metadata]).await.unwrap();
        let read = client.read(with_bounds(of_stream("cart", START))).await.unwrap();
        assert_eq!(read, [Content::FirstStreamPosition(3), Content::LastStreamPosition(2)]);
    });
}

/// Story: a read of a tombstoned stream sent its headers before the error, so clients that wait for
/// the headers returned a reader instead of the error.
#[test]
fn error_before_the_first_message_precedes_the_headers() {
    TestServer::new().run(async |client, _| {
        client.append("gone", ANY, &events(0..3)).await.unwrap();
        client.delete("Tombstone", "gone", ANY).await.unwrap();
        let revision = |number| of_stream("gone", RevisionOption::Revision(number));
        let reads = [
            of_stream("gone", START),
            of_stream("gone", END),
            revision(1),
            backwards(of_stream("gone", START)),
            backwards(of_stream("gone", END)),
            backwards(revision(1)),
            at_most(1, of_stream("gone", START)),
        ];
        for options in reads {
            let status = client.subscribe(options.clone()).await.expect_err("no headers yet");
            assert_eq!(status.code(), Code::FailedPrecondition, "{options:?}");
            assert_eq!(fact(&status, "exception"), "stream-deleted");
            assert_eq!(fact(&status, "stream-name"), "gone");
        }
        // An empty response has headers, and so has one with events.
        let none = client.read(of_stream("cart", START)).await.unwrap();
        assert!(matches!(none[..], [Content::StreamNotFound(_)]), "{none:?}");
        client.append("cart", ANY, &events(0..3)).await.unwrap();
        let read = client.read(of_stream("cart", START)).await.unwrap();
        assert_eq!(numbers(read), [0, 1, 2]);
    });
}

#[test]
fn invalid_requests_are_rejected() {
    TestServer::new().run(async |client, _| {
        let good = append_req::Options {
            stream_identifier: Some(name("cart")),
            expected_stream_revision: Some(ANY),
        };
        let options =
            |options: &append_req::Options| part(append_req::Content::Options(options.clone()));
        let nameless = append_req::Options { stream_identifier: None, ..good.clone() };
        let empty = append_req::Options { stream_identifier: Some(name("")), ..good.clone() };
        let unexpected = append_req::Options { expected_stream_revision: None, ..good.clone() };
        let proposed = |event| part(append_req::Content::ProposedMessage(event));
        let anonymous = append_req::ProposedMessage { id: None, ..event(0) };
        let wrong = [
            vec![],
            vec![proposed(event(0))],
            vec![options(&nameless)],
            vec![options(&empty)],
            vec![options(&unexpected)],
            vec![options(&good), options(&good)],
            vec![options(&good), proposed(anonymous)],
        ];
        for parts in wrong {
            let status = client.append_parts(parts.clone()).await.unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument, "{parts:?}");
        }
        let bare = append_req::ProposedMessage { metadata: Default::default(), ..event(0) };
        let status = client.append("cart", ANY, &[bare]).await.unwrap_err();
        assert_eq!(fact(&status, "exception"), "missing-required-metadata-property");
        assert_eq!(fact(&status, "required-metadata-properties"), "type,content-type");
        let reserved = client.append("$all", ANY, &[event(0)]).await.unwrap_err();
        assert_eq!(reserved.code(), Code::InvalidArgument);

        let filter = Some(FilterOption::Filter(FilterOptions::default()));
        let filtered = Options { filter_option: filter, ..of_all(AllOption::Start(())) };
        let status = client.read(filtered).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        let no_stream_option = Options { stream_option: None, ..of_all(AllOption::Start(())) };
        let status = client.read(no_stream_option).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert_eq!(client.read(of_all(AllOption::Start(()))).await.unwrap(), []);
    });
}
