//! Records of the second protocol: interleaved, with checks of streams.

use tonic::Code;
use umbel_env::Env;
use umbel_events::limits::{APPEND_EVENTS_MAX, APPEND_STREAMS_MAX};
use umbel_events::{Expected, NewEvent, StreamState};
use umbel_proto::streams::read_req::{AllOption, RevisionOption};
use umbel_proto::v2::errors::{
    AppendConsistencyViolationErrorDetails, AppendRecordSizeExceededErrorDetails,
    AppendTransactionSizeExceededErrorDetails, StreamRevisionConflictErrorDetails,
    StreamTombstonedErrorDetails, ViolationType,
};
use umbel_proto::v2::streams::{AppendRecord, AppendRecordsRequest, ConsistencyCheck};

use super::client::{ANY, Client, events, numbers, of_all, of_stream};
use super::ground::Ground;
use super::second::{SERVICE, blob, failure, of, record, records};

const START: RevisionOption = RevisionOption::Start(());

async fn read(client: &Client, stream: &str) -> Vec<u64> {
    numbers(client.read(of_stream(stream, START)).await.unwrap())
}

/// Streams of which one has three events, one was deleted, one tombstoned.
async fn prepared(client: &Client, ground: &Ground) {
    client.append("cart", ANY, &events(0..3)).await.unwrap();
    client.append("gone", ANY, &events(3..5)).await.unwrap();
    ground.store.delete("gone", Expected::Any).unwrap();
    client.append("dead", ANY, &events(5..6)).await.unwrap();
    ground.store.tombstone("dead", Expected::Any).unwrap();
}

/// What each check that does not hold is told: its place, stream, what was expected and what is.
fn told(status: &tonic::Status) -> Vec<(i32, String, i64, i64)> {
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
    Ground::new().run(async |client, _| {
        let sent = || {
            let streams = ["a", "b", "a", "c", "b", "a"];
            (0..).zip(streams).map(|(number, stream)| of(stream, number)).collect()
        };
        let done = records(&client, sent(), &[]).await.unwrap();
        let said: Vec<_> = done.revisions.iter().map(|one| (&*one.stream, one.revision)).collect();
        assert_eq!(said, [("a", 2), ("b", 1), ("c", 0)]);
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
    Ground::new().run(async |client, ground| {
        prepared(&client, ground).await;
        let states = [("cart", 2), ("gone", -5), ("dead", -6), ("none", -1)];
        // For each expectation, the streams of which it holds.
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
                    assert_eq!(told(&status), [(0, stream.to_string(), expected, actual)]);
                    assert_eq!(ground.store.stream(&target).unwrap(), StreamState::Missing);
                }
            }
        }
    });
}

#[test]
fn every_check_that_does_not_hold_is_told_with_its_place() {
    Ground::new().run(async |client, ground| {
        prepared(&client, ground).await;
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
        assert_eq!(told(&status), wanted);
        for stream in ["target", "other"] {
            assert_eq!(ground.store.stream(stream).unwrap(), StreamState::Missing);
        }
        let checks: Vec<_> = (0..5000).map(|_| ("none", 10)).collect();
        let status = records(&client, sent(), &checks).await.unwrap_err();
        assert!(told(&status).len() > 50 && status.message().contains("5000"), "{status:?}");
    });
}

#[test]
fn what_is_expected_of_a_stream_that_is_written_to_also_knows_a_retry() {
    Ground::new().run(async |client, ground| {
        prepared(&client, ground).await;
        let cases = [("cart", 2, 60, 3), ("gone", -5, 61, 2), ("none", -1, 62, 0)];
        for (stream, expected, number, revision) in cases {
            for _ in 0..2 {
                let sent = vec![of(stream, number)];
                let done = records(&client, sent, &[(stream, expected)]).await.unwrap();
                assert_eq!(done.revisions[0].revision, revision, "{stream}");
            }
            let sent = vec![of(stream, number + 10)];
            let status = records(&client, sent, &[(stream, expected)]).await.unwrap_err();
            assert_eq!(told(&status), [(0, stream.to_string(), expected, revision)]);
        }
        // A part of what happens together cannot have happened.
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
fn what_makes_no_sense_is_refused_with_a_reason_and_writes_nothing() {
    Ground::new().run(async |client, _| {
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
        assert!(status.message().contains("no known kind"), "{status:?}");
        let status = client.unary::<_, ()>(SERVICE, "AppendOthers", ()).await.unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented);
        assert_eq!(client.read(of_all(AllOption::Start(()))).await.unwrap(), []);
    });
}

#[test]
fn what_is_too_large_is_told_the_limit() {
    Ground::new().run(async |client, _| {
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

/// A stream that somebody else appends to at the same time is either found as expected or told.
#[test]
fn a_check_and_an_append_are_one_step() {
    Ground::new().run(async |client, ground| {
        let store = ground.store.clone();
        let write = move || {
            for _ in 0..200 {
                let event = NewEvent::json(store.new_id().unwrap(), "Moved", b"{}");
                store.append("watched", Expected::Any, &[event]).unwrap();
            }
        };
        let writer = Env::system().threads.spawn("writer", Box::new(write)).unwrap();
        let (mut done, mut revision) = (0, -1);
        for number in 0..400 {
            let sent = vec![of("seen", number)];
            match records(&client, sent, &[("watched", revision)]).await {
                Ok(_) => done += 1,
                Err(status) => {
                    let [(_, _, expected, actual)] = told(&status)[..] else { panic!() };
                    assert!(expected == revision && actual > revision, "{expected} {actual}");
                    revision = actual;
                }
            }
        }
        writer.join();
        assert_eq!(read(&client, "seen").await.len(), done);
    });
}
