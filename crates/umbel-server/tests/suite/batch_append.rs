//! Tests of BatchAppend: batches in parts, concurrent, refused or late.

use std::collections::BTreeMap;

use futures_util::{StreamExt, stream};
use prost_types::{Duration, Timestamp};
use tonic::Code;
use umbel_proto::shared::uuid::Value;
use umbel_proto::status::Status;
use umbel_proto::streams::batch_append_req::{DeadlineOption, Options};
use umbel_proto::streams::batch_append_resp::{CurrentRevision, Expected, Outcome};
use umbel_proto::streams::read_req::RevisionOption;
use umbel_proto::streams::{BatchAppendReq, BatchAppendResp, ExpectedRevision};
use umbel_server::limits::BATCHES_OPEN_MAX;

use super::client::{ANY, Client, NO_STREAM, events, id, name, numbers, of_stream};
use super::monitoring::{http_request, metric};
use super::test_server::TestServer;

const START: RevisionOption = RevisionOption::Start(());

fn options(stream: &str, expected: ExpectedRevision) -> Options {
    Options {
        stream_identifier: Some(name(stream)),
        expected_stream_position: Some(expected.into()),
        deadline_option: None,
    }
}

/// Builds a complete batch with this number as its identifier.
fn batch(number: u64, options: Options, events_of: std::ops::Range<u64>) -> BatchAppendReq {
    BatchAppendReq {
        correlation_id: Some(id(number)),
        options: Some(options),
        proposed_messages: events(events_of),
        is_final: true,
    }
}

/// Sends the parts, and returns the responses by the numbers of their batches.
async fn send(client: &Client, parts: Vec<BatchAppendReq>) -> BTreeMap<u64, BatchAppendResp> {
    let mut answers = client.batches(stream::iter(parts)).await.unwrap();
    let mut by_number = BTreeMap::new();
    while let Some(answer) = answers.message().await.unwrap() {
        let Some(Value::Structured(halves)) = answer.correlation_id.clone().unwrap().value else {
            panic!("{answer:?}");
        };
        let former = by_number.insert(halves.least_significant_bits as u64, answer);
        assert!(former.is_none(), "one answer a batch");
    }
    by_number
}

fn revision(answer: &BatchAppendResp) -> u64 {
    match &answer.result {
        Some(Outcome::Success(success)) => match success.current_revision_option {
            Some(CurrentRevision::CurrentRevision(revision)) => revision,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

fn refusal(answer: &BatchAppendResp) -> (i32, &str) {
    let Some(Outcome::Error(Status { code, details, .. })) = &answer.result else {
        panic!("{answer:?}");
    };
    let [detail] = &details[..] else { panic!("{answer:?} has one detail") };
    (*code, detail.type_url.rsplit('.').next().unwrap())
}

#[test]
fn each_batch_gets_its_own_response() {
    TestServer::new().run(async |client, _| {
        let of = |number: u64| format!("cart-{}", number % 50);
        let parts = (0..1000).map(|number: u64| {
            let former = (number / 50).checked_sub(1);
            let expected = former.map_or(NO_STREAM, ExpectedRevision::Revision);
            batch(number, options(&of(number), expected), number..number + 1)
        });
        let answers = send(&client, parts.collect()).await;
        assert_eq!(answers.len(), 1000);
        for (number, answer) in &answers {
            assert_eq!(revision(answer), number / 50, "{number}");
            assert_eq!(answer.stream_identifier, Some(name(&of(*number))));
        }
        let last = answers[&999].expected_stream_position;
        assert_eq!(last, Some(Expected::StreamPosition(18)));
        let read = numbers(client.read(of_stream("cart-7", START)).await.unwrap());
        assert_eq!(read, (0..20).map(|turn| turn * 50 + 7).collect::<Vec<_>>());
    });
}

/// Story: the batches of a call had no latency of their own, so the metrics could not show how long
/// an append takes.
#[test]
fn each_batch_counts_as_an_append_with_its_outcome() {
    TestServer::new().run(async |client, server| {
        let parts =
            (0..4).map(|number: u64| batch(number, options("cart", NO_STREAM), number..number + 1));
        let answers = send(&client, parts.collect()).await;
        assert_eq!(answers.len(), 4);
        let _ = client.append("cart", ANY, &events(9..10)).await.unwrap();
        let address = server.address();
        let check = move || {
            let (_, text) = http_request(address, "GET", "/metrics");
            let of = |call: &str, code: &str| {
                let call = format!("call=\"event_store.client.streams.Streams/{call}\"");
                let labels = [&*call, &*format!("code=\"{code}\"")];
                metric(&text, "umbel_append_seconds_count", &labels)
            };
            assert_eq!(of("BatchAppend", "Ok"), 1.0);
            assert_eq!(of("BatchAppend", "AlreadyExists"), 3.0);
            assert_eq!(of("Append", "Ok"), 1.0);
        };
        tokio::task::spawn_blocking(check).await.unwrap();
    });
}

#[test]
fn parts_of_batches_may_be_interleaved() {
    TestServer::new().run(async |client, _| {
        let part = |number, first: bool, events_of, is_final| {
            let stream = format!("cart-{number}");
            let options = first.then(|| options(&stream, NO_STREAM));
            BatchAppendReq { options, is_final, ..batch(number, Options::default(), events_of) }
        };
        let parts = vec![
            part(1, true, 0..2, false),
            part(2, true, 10..11, false),
            part(1, false, 2..3, false),
            part(2, false, 11..12, true),
            part(1, false, 3..3, true),
        ];
        let answers = send(&client, parts).await;
        assert_eq!((revision(&answers[&1]), revision(&answers[&2])), (2, 1));
        assert_eq!(numbers(client.read(of_stream("cart-1", START)).await.unwrap()), [0, 1, 2]);
        assert_eq!(numbers(client.read(of_stream("cart-2", START)).await.unwrap()), [10, 11]);
    });
}

#[test]
fn failed_batch_does_not_affect_others() {
    TestServer::new().run(async |client, _| {
        client.append("dead", ANY, &events(0..1)).await.unwrap();
        client.delete("Tombstone", "dead", ANY).await.unwrap();
        client.append("cart", ANY, &events(0..1)).await.unwrap();
        let mut anonymous = batch(5, options("a", ANY), 0..1);
        anonymous.proposed_messages[0].id = None;
        let mut large = batch(8, options("a", ANY), 0..2);
        large.proposed_messages[0].data = vec![0; (8 << 20) + 1].into();
        let changed = BatchAppendReq { is_final: false, ..batch(9, options("a", ANY), 0..1) };
        let parts = vec![
            batch(1, options("cart", NO_STREAM), 5..6),
            batch(2, options("dead", ANY), 5..6),
            batch(3, Options::default(), 5..6),
            batch(4, Options { expected_stream_position: None, ..options("a", ANY) }, 5..6),
            anonymous,
            batch(6, options("", ANY), 5..6),
            batch(7, options("$all", ANY), 5..6),
            large,
            changed,
            batch(9, options("b", ANY), 1..2),
            batch(10, options("cart", ANY), 7..8),
        ];
        let answers = send(&client, parts).await;
        assert_eq!(refusal(&answers[&1]), (6, "WrongExpectedVersion"));
        assert_eq!(refusal(&answers[&2]), (5, "StreamDeleted"));
        for number in [3, 4, 5, 6, 7, 9] {
            assert_eq!(refusal(&answers[&number]), (3, "BadRequest"), "{number}");
        }
        assert_eq!(refusal(&answers[&8]), (3, "MaximumAppendSizeExceeded"));
        assert_eq!(revision(&answers[&10]), 1);
    });
}

#[test]
fn expired_batch_is_not_written() {
    TestServer::new().run(async |client, _| {
        let until = |deadline| Options { deadline_option: Some(deadline), ..options("cart", ANY) };
        let now = DeadlineOption::Deadline(Duration { seconds: 0, nanos: 0 });
        let past = DeadlineOption::Deadline21100(Timestamp { seconds: 1, nanos: 0 });
        let future = DeadlineOption::Deadline21100(Timestamp { seconds: i64::MAX, nanos: 0 });
        let later = DeadlineOption::Deadline(Duration { seconds: 3600, nanos: 0 });
        let before_1970 = DeadlineOption::Deadline21100(Timestamp { seconds: -1, nanos: -1 });
        let parts = [now, past, future, later, before_1970].into_iter().zip(1..);
        let parts =
            parts.map(|(deadline, number)| batch(number, until(deadline), number..number + 1));
        let answers = send(&client, parts.collect()).await;
        for number in [1, 2, 5] {
            assert_eq!(refusal(&answers[&number]), (4, "Timeout"));
        }
        let mut written = numbers(client.read(of_stream("cart", START)).await.unwrap());
        written.sort_unstable();
        assert_eq!(written, [3, 4]);
    });
}

#[test]
fn protocol_violation_ends_the_call() {
    TestServer::new().run(async |client, _| {
        let nameless = BatchAppendReq { correlation_id: None, ..batch(0, options("a", ANY), 0..1) };
        let begun = |number| BatchAppendReq {
            is_final: false,
            ..batch(number, options("a", ANY), number..number + 1)
        };
        let too_many: Vec<_> = (0..=BATCHES_OPEN_MAX as u64).map(begun).collect();
        let heavy = |number| {
            let mut part = begun(number);
            part.proposed_messages[0].data = vec![0; 8_000_000].into();
            part
        };
        let too_heavy: Vec<_> = (0..6).map(heavy).collect();
        let cases = [
            (vec![nameless], Code::InvalidArgument),
            (too_many, Code::ResourceExhausted),
            (too_heavy, Code::ResourceExhausted),
        ];
        for (parts, code) in cases {
            let mut answers = client.batches(stream::iter(parts)).await.unwrap();
            assert_eq!(answers.message().await.unwrap_err().code(), code);
        }
        let answers = send(&client, vec![batch(1, options("a", NO_STREAM), 0..1)]).await;
        assert_eq!(revision(&answers[&1]), 0, "nothing of them was written");
    });
}

#[test]
fn client_may_wait_for_each_response() {
    TestServer::new().run(async |client, _| {
        let (sender, receiver) = tokio::sync::mpsc::channel(1);
        let parts = stream::unfold(receiver, |mut receiver| async {
            receiver.recv().await.map(|part| (part, receiver))
        });
        let mut answers = client.batches(parts.boxed()).await.unwrap();
        for number in 0..20 {
            let part = batch(number, options("cart", ANY), number..number + 1);
            sender.send(part).await.unwrap();
            let answer = answers.message().await.unwrap().unwrap();
            assert_eq!(revision(&answer), number);
        }
        drop(sender);
        assert_eq!(answers.message().await.unwrap(), None);
    });
}
