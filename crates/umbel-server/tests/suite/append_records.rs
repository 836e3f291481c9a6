//! Tests of AppendRecords: interleaved streams, with checks of stream states.

use tonic::Code;
use umbel_env::Env;
use umbel_events::limits::{APPEND_EVENTS_MAX, APPEND_STREAMS_MAX};
use umbel_events::{ExpectedVersion, NewEvent, StreamState};
use umbel_proto::streams::read_req::{AllOption, RevisionOption};
use umbel_proto::v2::errors::{
    AppendConsistencyViolationErrorDetails, AppendRecordSizeExceededErrorDetails,
    AppendTransactionSizeExceededErrorDetails, StreamRevisionConflictErrorDetails,
    StreamTombstonedErrorDetails, ViolationType,
};
use umbel_proto::v2::streams::{AppendRecord, AppendRecordsRequest, ConsistencyCheck};

use super::client::{ANY, Client, events, numbers, of_all, of_stream};
use super::test_server::TestServer;
use super::v2_client::{SERVICE, blob, failure, of, record, records};

const START: RevisionOption = RevisionOption::Start(());

async fn read(client: &Client, stream: &str) -> Vec<u64> {
    numbers(client.read(of_stream(stream, START)).await.unwrap())
}

/// Creates a stream with three events, a deleted stream and a tombstoned stream.
async fn prepare_streams(client: &Client, server: &TestServer) {
    client.append("cart", ANY, &events(0..3)).await.unwrap();
    client.append("gone", ANY, &events(3..5)).await.unwrap();
    server.store.delete("gone", ExpectedVersion::Any).unwrap();
    client.append("dead", ANY, &events(5..6)).await.unwrap();
    server.store.tombstone("dead", ExpectedVersion::Any).unwrap();
}

/// Lists the failed checks of a status: index, stream, expected and actual number.
fn violations(status: &tonic::Status) -> Vec<(i32, String, i64, i64)> {
    assert_eq!(status.code(), Code::FailedPrecondition, "{status:?}");
    let (reason, facts) = failure::<AppendConsistencyViolationErrorDetails>(status);
    assert_eq!(reason, "APPEND_CONSISTENCY_VIOLATION");
    let one = |violation: umbel_proto::v2::errors::ConsistencyViolation| {
        let Some(ViolationType::StreamState(state)) = violation.violation else { panic!() };
        (violation.check_index, state.stream, state.expected_state, state.actual_state)
    };
    facts.unwrap().violations.into_iter().map(one).collect()
}

#[test]
fn interleaved_records_keep_their_order_in_each_stream() {
    TestServer::new().run(async |client, _| {
        let sent = || {
            let streams = ["a", "b", "a", "c", "b", "a"];
            (0..).zip(streams).map(|(number, stream)| of(stream, number)).collect()
        };
        let done = records(&client, sent(), &[]).await.unwrap();
        let revisions: Vec<_> =
            done.revisions.iter().map(|one| (&*one.stream, one.revision)).collect();
        assert_eq!(revisions, [("a", 2), ("b", 1), ("c", 0)]);
        assert_eq!(read(&client, "a").await, [0, 2, 5]);
        assert_eq!(read(&client, "b").await, [1, 4]);
        let all = client.read(of_all(AllOption::Start(()))).await.unwrap();
        assert_eq!(numbers(all), [0, 2, 5, 1, 4, 3], "those of a stream stand together");
        assert_eq!(records(&client, sent(), &[]).await.unwrap(), done, "a retry");
        assert_eq!(read(&client, "c").await, [3]);
    });
}

#[test]
fn checks_hold_for_every_state_of_a_stream() {
    TestServer::new().run(async |client, server| {
        prepare_streams(&client, server).await;
        let states = [("cart", 2), ("gone", -5), ("dead", -6), ("none", -1)];
        // For each expectation, the streams that match it.
        let holds: [(i64, &[&str]); 8] = [
            (-1, &["gone", "dead", "none"]),
            (-2, &["cart", "gone", "dead", "none"]),
            (-4, &["cart"]),
            (-5, &["gone"]),
            (-6, &["dead"]),
            (2, &["cart"]),
            (1, &["gone"]),
            (7, &[]),
        ];
        let mut number = 100;
        for (expected, streams) in holds {
            for (stream, actual) in states {
                number += 1;
                let target = format!("target-{number}");
                let done = records(&client, vec![of(&target, number)], &[(stream, expected)]).await;
                if streams.contains(&stream) {
                    done.unwrap();
                } else {
                    let status = done.unwrap_err();
                    assert_eq!(violations(&status), [(0, stream.to_string(), expected, actual)]);
                    assert_eq!(server.store.stream_state(&target).unwrap(), StreamState::Missing);
                }
            }
        }
    });
}

#[test]
fn every_failed_check_is_reported_with_its_index() {
    TestServer::new().run(async |client, server| {
        prepare_streams(&client, server).await;
        let checks = [
            ("cart", 2),
            ("gone", -4),
            ("dead", 0),
            ("cart", -1),
            ("none", 10),
            ("target", -1),
            ("target", -4),
            ("other", 3),
        ];
        let sent = || vec![of("target", 50), of("other", 51)];
        let status = records(&client, sent(), &checks).await.unwrap_err();
        let wanted = [
            (1, "gone", -4, -5),
            (2, "dead", 0, -6),
            (3, "cart", -1, 2),
            (4, "none", 10, -1),
            (6, "target", -4, -1),
            (7, "other", 3, -1),
        ];
        let wanted = wanted
            .map(|(index, name, expected, actual)| (index, name.to_string(), expected, actual));
        assert_eq!(violations(&status), wanted);
        for stream in ["target", "other"] {
            assert_eq!(server.store.stream_state(stream).unwrap(), StreamState::Missing);
        }
        let checks: Vec<_> = (0..5000).map(|_| ("none", 10)).collect();
        let status = records(&client, sent(), &checks).await.unwrap_err();
        assert!(violations(&status).len() > 50 && status.message().contains("5000"), "{status:?}");
    });
}

#[test]
fn check_of_a_written_stream_recognizes_a_retry() {
    TestServer::new().run(async |client, server| {
        prepare_streams(&client, server).await;
        let cases = [("cart", 2, 60, 3), ("gone", -5, 61, 2), ("none", -1, 62, 0)];
        for (stream, expected, number, revision) in cases {
            for _ in 0..2 {
                let sent = vec![of(stream, number)];
                let done = records(&client, sent, &[(stream, expected)]).await.unwrap();
                assert_eq!(done.revisions[0].revision, revision, "{stream}");
            }
            let sent = vec![of(stream, number + 10)];
            let status = records(&client, sent, &[(stream, expected)]).await.unwrap_err();
            assert_eq!(violations(&status), [(0, stream.to_string(), expected, revision)]);
        }
        // A transaction of which only some records exist is a conflict, not a retry.
        let sent = vec![of("cart", 60), of("cart", 99)];
        let status = records(&client, sent, &[]).await.unwrap_err();
        let (_, facts) = failure::<StreamRevisionConflictErrorDetails>(&status);
        let facts = facts.unwrap();
        assert_eq!((facts.expected_revision, facts.actual_revision), (-2, 3));
        for checks in [&[][..], &[("dead", -6)], &[("dead", -2)]] {
            let status = records(&client, vec![of("dead", 63)], checks).await.unwrap_err();
            let tombstoned = status.code() == Code::FailedPrecondition;
            let (reason, _) = failure::<StreamTombstonedErrorDetails>(&status);
            assert!(
                tombstoned
                    && reason.ends_with(if checks.len() == 1 && checks[0].1 == -2 {
                        "VIOLATION"
                    } else {
                        "TOMBSTONED"
                    }),
                "{status:?}"
            );
        }
    });
}

#[test]
fn invalid_records_are_rejected_and_not_written() {
    TestServer::new().run(async |client, _| {
        let good = || vec![of("good", 1)];
        let many = |count: usize| -> Vec<AppendRecord> {
            let small = || AppendRecord { record_id: None, data: Vec::new(), ..of("many", 1) };
            (0..count).map(|_| small()).collect()
        };
        let checks: Vec<_> = (0..APPEND_STREAMS_MAX).map(|_| ("c", -1)).collect();
        type Checks<'a> = &'a [(&'a str, i64)];
        let cases: [(Vec<AppendRecord>, Checks<'_>, &str); 7] = [
            (Vec::new(), &[], "no records"),
            (vec![record(1)], &[], "0 bytes"),
            (good(), &[("", -1)], "0 bytes"),
            (good(), &[("a", -3)], "check 0 expects -3"),
            (good(), &[("a", -1), ("a", i64::MIN)], "check 1 expects"),
            (good(), &checks, "10000 streams"),
            (many(APPEND_EVENTS_MAX + 1), &[], "100000 records"),
        ];
        for (sent, checks, why) in cases {
            let status = records(&client, sent, checks).await.unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument, "{why}: {status:?}");
            assert!(status.message().contains(why), "{why}: {status:?}");
        }
        let unknown = vec![ConsistencyCheck { check: None }];
        let message = AppendRecordsRequest { records: good(), checks: unknown };
        let status = client.unary::<_, ()>(SERVICE, "AppendRecords", message).await.unwrap_err();
        assert!(status.message().contains("unknown kind"), "{status:?}");
        let status = client.unary::<_, ()>(SERVICE, "AppendOthers", ()).await.unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented);
        assert_eq!(client.read(of_all(AllOption::Start(()))).await.unwrap(), []);
    });
}

#[test]
fn oversized_append_reports_the_limit() {
    TestServer::new().run(async |client, _| {
        let one = AppendRecord { stream: "cart".to_string(), ..blob(1, 9_000_000) };
        let status = records(&client, vec![one], &[]).await.unwrap_err();
        let (reason, facts) = failure::<AppendRecordSizeExceededErrorDetails>(&status);
        assert_eq!((&*reason, &*facts.unwrap().stream), ("APPEND_RECORD_SIZE_EXCEEDED", "cart"));
        for sizes in [vec![8_000_000, 8_000_000, 1_000_000], vec![8_000_000; 3]] {
            let blobs = (0..).zip(sizes).map(|(number, size)| AppendRecord {
                stream: format!("s{number}"),
                ..blob(number, size)
            });
            let status = records(&client, blobs.collect(), &[]).await.unwrap_err();
            assert_eq!(status.code(), Code::Aborted, "{status:?}");
            let (reason, _) = failure::<AppendTransactionSizeExceededErrorDetails>(&status);
            assert_eq!(reason, "APPEND_TRANSACTION_SIZE_EXCEEDED");
        }
    });
}

/// A check of a stream that another client writes concurrently either holds for the append or fails
/// it.
#[test]
fn check_and_append_are_atomic() {
    TestServer::new().run(async |client, server| {
        let store = server.store.clone();
        let write = move || {
            for _ in 0..200 {
                let event = NewEvent::json(store.new_id().unwrap(), "Moved", b"{}");
                store.append("watched", ExpectedVersion::Any, &[event]).unwrap();
            }
        };
        let writer = Env::system().threads.spawn("writer", Box::new(write)).unwrap();
        let (mut done, mut revision) = (0, -1);
        for number in 0..400 {
            let sent = vec![of("seen", number)];
            match records(&client, sent, &[("watched", revision)]).await {
                Ok(_) => done += 1,
                Err(status) => {
                    let [(_, _, expected, actual)] = violations(&status)[..] else { panic!() };
                    assert!(expected == revision && actual > revision, "{expected} {actual}");
                    revision = actual;
                }
            }
        }
        writer.join();
        assert_eq!(read(&client, "seen").await.len(), done);
    });
}
