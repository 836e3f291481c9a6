//! Tests of AppendSession: several streams in one append, and refused sessions.

use tonic::Code;
use umbel_events::limits::{APPEND_BYTES_MAX, EVENT_BYTES_MAX};
use umbel_events::{ExpectedVersion, StreamState};
use umbel_proto::limits::MESSAGE_BYTES_MAX;
use umbel_proto::streams::read_req::{AllOption, RevisionOption};
use umbel_proto::v2::errors::{
    AppendRecordSizeExceededErrorDetails, AppendTransactionSizeExceededErrorDetails,
    StreamAlreadyInAppendSessionErrorDetails, StreamRevisionConflictErrorDetails,
    StreamTombstonedErrorDetails,
};
use umbel_proto::v2::streams::{AppendRecord, AppendRequest, SchemaInfo};

use super::client::{ANY, Client, events, numbers, of_all, of_stream, recorded};
use super::test_server::TestServer;
use super::v2_client::{blob, failure, part, record, session};

const START: RevisionOption = RevisionOption::Start(());

async fn read(client: &Client, stream: &str) -> Vec<u64> {
    numbers(client.read(of_stream(stream, START)).await.unwrap())
}

#[test]
fn session_appends_to_several_streams() {
    TestServer::new().run(async |client, server| {
        let address = server.address();
        client.append("till", ANY, &events(0..2)).await.unwrap();
        let parts = || {
            vec![
                part("cart", -1, vec![record(10), record(11)]),
                part("till", 1, vec![record(12)]),
                part("log", None, vec![record(13)]),
            ]
        };
        let done = session(&client, address, parts()).await.unwrap();
        let revisions: Vec<_> =
            done.output.iter().map(|one| (&*one.stream, one.stream_revision)).collect();
        assert_eq!(revisions, [("cart", 1), ("till", 2), ("log", 0)]);
        assert_eq!(Some(done.position), done.output[2].position);
        assert_eq!(read(&client, "cart").await, [10, 11]);
        assert_eq!(read(&client, "till").await, [0, 1, 12]);
        let all = client.read(of_all(AllOption::Start(()))).await.unwrap();
        let last = recorded(all[5].clone());
        assert_eq!(last.commit_position as i64, done.position);
        assert_eq!(last.metadata["content-type"], "application/json");
        assert_eq!(last.metadata["type"], "Counted");
        let revisions = br#"{"$schema.format":"Json","$schema.name":"Counted"}"#;
        assert_eq!(&last.custom_metadata[..], revisions);
        let again = session(&client, address, parts()).await.unwrap();
        assert_eq!(again, done, "a retry gets the same response");
        assert_eq!(read(&client, "cart").await, [10, 11]);
    });
}

#[test]
fn events_of_the_v1_protocol_stay_unchanged() {
    TestServer::new().run(async |client, server| {
        let first = events(0..1);
        client.append("cart", ANY, &first).await.unwrap();
        session(&client, server.address(), vec![part("cart", 0, vec![record(1)])]).await.unwrap();
        let read = client.read(of_stream("cart", START)).await.unwrap();
        assert_eq!(recorded(read[0].clone()).custom_metadata, first[0].custom_metadata);
    });
}

#[test]
fn version_conflict_rejects_the_whole_session() {
    TestServer::new().run(async |client, server| {
        let address = server.address();
        client.append("cart", ANY, &events(0..3)).await.unwrap();
        client.append("gone", ANY, &events(3..5)).await.unwrap();
        server.store.delete("gone", ExpectedVersion::Any).unwrap();
        client.append("dead", ANY, &events(5..6)).await.unwrap();
        server.store.tombstone("dead", ExpectedVersion::Any).unwrap();
        let cases = [
            ("cart", -1, 2),
            ("cart", 1, 2),
            ("cart", i64::MAX, 2),
            ("none", -4, -1),
            ("none", 0, -1),
            ("gone", -4, 1),
            ("gone", 7, 1),
        ];
        for (stream, expected, actual) in cases {
            let parts =
                vec![part("other", -1, vec![record(90)]), part(stream, expected, vec![record(91)])];
            let status = session(&client, address, parts).await.unwrap_err();
            assert_eq!(status.code(), Code::FailedPrecondition, "{stream} {expected}");
            let (reason, facts) = failure::<StreamRevisionConflictErrorDetails>(&status);
            let facts = facts.unwrap();
            assert_eq!(reason, "STREAM_REVISION_CONFLICT");
            assert_eq!((&*facts.stream, facts.expected_revision), (stream, expected));
            assert_eq!(facts.actual_revision, actual, "{stream} {expected}");
        }
        for expected in [-1, -2, -4, 0] {
            let parts = vec![part("dead", expected, vec![record(92)])];
            let status = session(&client, address, parts).await.unwrap_err();
            assert_eq!(status.code(), Code::FailedPrecondition);
            let (reason, facts) = failure::<StreamTombstonedErrorDetails>(&status);
            assert_eq!((&*reason, &*facts.unwrap().stream), ("STREAM_TOMBSTONED", "dead"));
        }
        assert_eq!(server.store.stream_state("other").unwrap(), StreamState::Missing);
        let parts = vec![part("gone", -1, vec![record(93)])];
        assert_eq!(session(&client, address, parts).await.unwrap().output[0].stream_revision, 2);
    });
}

#[test]
fn duplicate_stream_in_a_session_is_rejected_in_any_case() {
    TestServer::new().run(async |client, server| {
        let address = server.address();
        for (one, two) in [("cart", "cart"), ("cart", "CART"), ("Käse", "KÄSE")] {
            let parts = vec![part(one, -2, vec![record(1)]), part(two, -2, vec![record(2)])];
            let status = session(&client, address, parts).await.unwrap_err();
            assert_eq!(status.code(), Code::Aborted);
            let (reason, facts) = failure::<StreamAlreadyInAppendSessionErrorDetails>(&status);
            assert_eq!(reason, "STREAM_ALREADY_IN_APPEND_SESSION");
            assert_eq!(facts.unwrap().stream, two);
        }
        let status = session(&client, address, Vec::new()).await.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition);
        let (reason, facts) = failure::<StreamTombstonedErrorDetails>(&status);
        assert_eq!((&*reason, facts), ("APPEND_SESSION_NO_REQUESTS", None));
        assert_eq!(client.read(of_all(AllOption::Start(()))).await.unwrap(), []);
    });
}

#[test]
fn invalid_session_is_rejected_and_not_written() {
    TestServer::new().run(async |client, server| {
        let schema = |format| {
            let schema = SchemaInfo { format, name: "Counted".to_string(), id: None };
            AppendRecord { schema: Some(schema), ..record(1) }
        };
        let long = "n".repeat(1025);
        let no_id = AppendRecord { record_id: Some("seven".to_string()), ..record(1) };
        let elsewhere = AppendRecord { stream: "till".to_string(), ..record(1) };
        let long_type = SchemaInfo { format: 1, name: long.clone(), id: None };
        let long_type = AppendRecord { schema: Some(long_type), ..record(1) };
        let cases: Vec<(AppendRequest, &str)> = vec![
            (AppendRequest::default(), "0 bytes"),
            (part(&long, -2, vec![record(1)]), "1025 bytes"),
            (part("cart", -2, Vec::new()), "no records"),
            (part("cart", -5, vec![record(1)]), "expected_revision"),
            (part("cart", -6, vec![record(1)]), "expected_revision"),
            (part("cart", -3, vec![record(1)]), "expected_revision"),
            (part("cart", i64::MIN, vec![record(1)]), "expected_revision"),
            (part("cart", -2, vec![schema(0)]), "format"),
            (part("cart", -2, vec![schema(77)]), "77 is not a schema format"),
            (part("cart", -2, vec![AppendRecord::default()]), "format"),
            (part("cart", -2, vec![no_id]), "'seven' is not an event id"),
            (part("cart", -2, vec![elsewhere]), "another stream"),
            (part("cart", -2, vec![long_type]), "type"),
            (part("$all", -2, vec![record(1)]), "$all"),
            (part("$ce-cart", -2, vec![record(1)]), "view"),
            (part("$$cart", -2, vec![record(1)]), "not an object"),
        ];
        for (wrong, why) in cases {
            let parts = vec![part("good", -2, vec![record(2)]), wrong];
            let status = session(&client, server.address(), parts).await.unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument, "{why}: {status:?}");
            assert!(status.message().contains(why), "{why}: {status:?}");
            let (reason, _) = failure::<StreamTombstonedErrorDetails>(&status);
            assert_eq!(reason, "BAD_REQUEST");
        }
        assert_eq!(client.read(of_all(AllOption::Start(()))).await.unwrap(), []);
    });
}

#[test]
fn oversized_session_reports_the_limit() {
    TestServer::new().run(async |client, server| {
        let address = server.address();
        let parts = vec![part("cart", -2, vec![blob(3, EVENT_BYTES_MAX + 1)])];
        let status = session(&client, address, parts).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        let (reason, facts) = failure::<AppendRecordSizeExceededErrorDetails>(&status);
        let facts = facts.unwrap();
        assert_eq!((&*reason, &*facts.stream), ("APPEND_RECORD_SIZE_EXCEEDED", "cart"));
        assert_eq!(Some(facts.record_id), record(3).record_id);
        assert_eq!(facts.max_size, EVENT_BYTES_MAX as i32);
        assert!(facts.size > EVENT_BYTES_MAX as i32);
        let three: Vec<_> = (0..3)
            .map(|number| part(&format!("s{number}"), -2, vec![blob(number, 6_000_000)]))
            .collect();
        let one = vec![part("cart", -2, vec![blob(0, MESSAGE_BYTES_MAX)])];
        for parts in [three, one] {
            let status = session(&client, address, parts).await.unwrap_err();
            assert_eq!(status.code(), Code::Aborted, "{status:?}");
            let (reason, facts) = failure::<AppendTransactionSizeExceededErrorDetails>(&status);
            let facts = facts.unwrap();
            assert_eq!(reason, "APPEND_TRANSACTION_SIZE_EXCEEDED");
            assert_eq!(facts.max_size, APPEND_BYTES_MAX as i32);
            assert!(facts.size > APPEND_BYTES_MAX as i32);
        }
        assert_eq!(client.read(of_all(AllOption::Start(()))).await.unwrap(), []);
        // The limit of the log also counts names and headers; this is below it.
        let parts = vec![part("cart", -2, vec![blob(0, 8_000_000), blob(1, 8_000_000)])];
        session(&client, address, parts).await.unwrap();
    });
}

#[test]
fn missing_record_ids_are_generated_by_the_server() {
    TestServer::new().run(async |client, server| {
        let nameless = || AppendRecord { record_id: None, ..record(7) };
        for _ in 0..2 {
            let parts = vec![part("cart", -2, vec![nameless(), nameless()])];
            session(&client, server.address(), parts).await.unwrap();
        }
        let read = client.read(of_stream("cart", START)).await.unwrap();
        let mut ids: Vec<_> =
            read.into_iter().map(|event| format!("{:?}", recorded(event).id)).collect();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), 4, "the server cannot recognize the retry");
    });
}
