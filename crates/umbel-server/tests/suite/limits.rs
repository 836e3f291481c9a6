//! Tests of limits: a request over a limit is refused, and other clients are not affected.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::stream;
use tonic::{Code, Request};
use umbel_events::limits::{APPEND_BYTES_MAX, EVENT_BYTES_MAX};
use umbel_proto::limits::MESSAGE_BYTES_MAX;
use umbel_proto::streams::batch_append_resp::Outcome;
use umbel_proto::streams::read_req::{AllOption, RevisionOption};
use umbel_proto::streams::{BatchAppendReq, ReadReq, append_req, batch_append_req};
use umbel_proto::v2::streams::{AppendRecord, SchemaInfo};
use umbel_server::limits::CONCURRENT_CALLS_MAX;

use super::client::{
    ANY, Client, event, fact, id, name, numbers, of_all, of_stream, recorded, subscription,
};
use super::test_server::TestServer;
use super::v2_client;

fn blob(number: u64, bytes: usize) -> append_req::ProposedMessage {
    append_req::ProposedMessage { data: vec![b'1'; bytes].into(), ..event(number) }
}

#[test]
fn largest_event_round_trips() {
    TestServer::new().run(async |client, _| {
        let bytes = EVENT_BYTES_MAX - event(0).custom_metadata.len();
        client.append("cart", ANY, &[blob(0, bytes)]).await.unwrap();
        let options = of_stream("cart", RevisionOption::Start(()));
        let read = client.read(options).await.unwrap();
        assert_eq!(recorded(read[0].clone()).data.len(), bytes);
    });
}

#[test]
fn oversized_events_report_the_limit() {
    TestServer::new().run(async |client, _| {
        let event_size = client.append("cart", ANY, &[blob(3, EVENT_BYTES_MAX + 1)]).await;
        let event_size = event_size.unwrap_err();
        assert_eq!(fact(&event_size, "exception"), "maximum-append-event-size-exceeded");
        let limit = fact(&event_size, "maximum-append-event-size");
        assert_eq!(limit, EVENT_BYTES_MAX.to_string());
        assert_eq!(fact(&event_size, "event-id"), "00000000-0000-1234-0000-000000000003");
        let three = [0, 1, 2].map(|number| blob(number, 6_000_000));
        let append_size = client.append("cart", ANY, &three).await.unwrap_err();
        let message_size = client.append("cart", ANY, &[blob(0, MESSAGE_BYTES_MAX)]).await;
        for status in [append_size, message_size.unwrap_err()] {
            assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
            assert_eq!(fact(&status, "exception"), "maximum-append-size-exceeded");
            assert_eq!(fact(&status, "maximum-append-size"), APPEND_BYTES_MAX.to_string());
        }
        client.append("cart", ANY, &[event(7)]).await.unwrap();
        let options = of_stream("cart", RevisionOption::Start(()));
        assert_eq!(numbers(client.read(options).await.unwrap()), [7]);
    });
}

/// Story: the schema that the server adds to metadata of the second protocol counted, so the two
/// calls of that protocol refused events that the others accepted.
#[test]
fn all_append_calls_have_one_limit_of_an_event() {
    TestServer::new().run(async |client, server| {
        let properties = [("k".to_string(), prost_types::Value::from("v".to_string()))];
        let metadata = br#"{"k":"v"}"#;
        for with_metadata in [false, true] {
            let metadata = if with_metadata { &metadata[..] } else { b"" };
            for (number, size) in (EVENT_BYTES_MAX - 1..=EVENT_BYTES_MAX + 1).enumerate() {
                let number = number as u64;
                let (bytes, is_taken) = (size - metadata.len(), size <= EVENT_BYTES_MAX);
                let proposed = append_req::ProposedMessage {
                    custom_metadata: metadata.to_vec().into(),
                    ..blob(number, bytes)
                };
                let record = AppendRecord {
                    properties: properties.iter().take(metadata.len()).cloned().collect(),
                    schema: Some(SchemaInfo { format: 3, id: Some("i".repeat(99)), ..schema() }),
                    ..v2_client::blob(number, bytes)
                };
                let of = |call: &str| format!("{call}-{with_metadata}-{number}");
                let first =
                    client.append(&of("append"), ANY, std::slice::from_ref(&proposed)).await;
                assert_eq!(first.is_ok(), is_taken, "append of {size}: {first:?}");
                let batch = BatchAppendReq {
                    correlation_id: Some(id(number)),
                    options: Some(batch_append_req::Options {
                        stream_identifier: Some(name(&of("batch"))),
                        expected_stream_position: Some(ANY.into()),
                        deadline_option: None,
                    }),
                    proposed_messages: vec![proposed],
                    is_final: true,
                };
                let mut answers = client.batches(stream::iter([batch])).await.unwrap();
                let outcome = answers.message().await.unwrap().unwrap().result.unwrap();
                assert_eq!(matches!(outcome, Outcome::Success(_)), is_taken, "batch of {size}");
                let parts = vec![v2_client::part(&of("session"), None, vec![record.clone()])];
                let third = v2_client::session(&client, server.address(), parts).await;
                assert_eq!(third.is_ok(), is_taken, "session of {size}: {third:?}");
                let record = AppendRecord { stream: of("records"), ..record };
                let fourth = v2_client::records(&client, vec![record], &[]).await;
                assert_eq!(fourth.is_ok(), is_taken, "records of {size}: {fourth:?}");
                let status = fourth.err().or(third.err());
                assert!(status.is_none_or(|status| status.message().contains(&size.to_string())));
            }
        }
    });
}

fn schema() -> SchemaInfo {
    v2_client::record(0).schema.unwrap()
}

#[test]
fn malformed_deadline_is_rejected() {
    TestServer::new().run(async |client, _| {
        let mut request = Request::new(ReadReq { options: Some(of_all(AllOption::Start(()))) });
        request.metadata_mut().insert("grpc-timeout", "soon".parse().unwrap());
        let status = client.open(request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
    });
}

#[test]
fn call_limit_of_a_connection_spares_others() {
    TestServer::new().run(async |client, server| {
        let options = subscription(of_all(AllOption::Start(())));
        let mut open = Vec::new();
        for _ in 0..CONCURRENT_CALLS_MAX {
            open.push(client.subscribe(options.clone()).await.unwrap());
        }
        let waits = client.subscribe(options);
        let wait_timeout = Duration::from_millis(200);
        assert!(tokio::time::timeout(wait_timeout, waits).await.is_err(), "one call too many");
        let other = Client::connect(server.address()).await;
        other.append("cart", ANY, &[event(0)]).await.unwrap();
        drop(open);
        let options = of_stream("cart", RevisionOption::Start(()));
        assert_eq!(numbers(client.read(options).await.unwrap()), [0]);
    });
}

#[test]
fn oversized_headers_are_rejected_and_others_served() {
    TestServer::new().run(async |client, server| {
        let mut request = Request::new(ReadReq { options: Some(of_all(AllOption::Start(()))) });
        for number in 0..40 {
            let name: &'static str = Box::leak(format!("x-{number}").into_boxed_str());
            request.metadata_mut().insert(name, "v".repeat(1000).parse().unwrap());
        }
        let refused = match client.open(request).await {
            Ok(mut answers) => answers.message().await.is_err(),
            Err(_) => true,
        };
        assert!(refused, "more headers than there may be");
        let other = Client::connect(server.address()).await;
        assert_eq!(other.read(of_all(AllOption::Start(()))).await.unwrap(), []);
    });
}

/// Formats a number as the documentation page does, with commas.
fn written(number: usize) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev();
    groups.map(|group| std::str::from_utf8(group).unwrap()).collect::<Vec<_>>().join(",")
}

#[test]
fn documentation_page_states_the_limits() {
    use umbel_server::limits;
    let page = include_str!("../../../../docs/reference/server.md");
    let rows = [
        ("one message", format!("{} bytes", written(MESSAGE_BYTES_MAX))),
        ("connections", written(limits::CONNECTIONS_MAX)),
        ("connections that the system", written(limits::BACKLOG as usize)),
        ("pages of one connection", limits::PAGES_MAX.to_string()),
        ("remaining bytes", format!("{} MiB", limits::DISCARD_BYTES_MAX >> 20)),
        ("remaining bytes", format!("{} s, and", limits::DISCARD_TIME.as_secs())),
        ("bytes of all messages", format!("{} MiB", limits::RECEIVE_BYTES_MAX >> 20)),
        ("bytes of all messages", format!("{} KiB", limits::RECEIVE_BYTES_FREE >> 10)),
        ("one message of a call", format!("{} MiB", limits::SMALL_MESSAGE_BYTES_MAX >> 20)),
        ("fields of one message", format!("{} MiB", limits::SMALL_MESSAGE_BYTES_MAX >> 20)),
        ("a message that is decoded", format!("{} KiB", limits::INLINE_MESSAGE_BYTES_MAX >> 10)),
        ("the text of a status", format!("{} KiB", limits::STATUS_BYTES_MAX >> 10)),
        ("the ACL in", written(limits::CACHED_ACLS_MAX)),
        ("the ACL in", format!("{} MiB in all", limits::CACHED_ACLS_BYTES_MAX >> 19)),
        ("events that one ack", written(limits::GROUP_EVENTS_MAX)),
        ("different expressions", limits::FILTER_EXPRESSIONS_MAX.to_string()),
        ("calls open on all", written(limits::OPEN_CALLS_MAX)),
        ("calls open", written(CONCURRENT_CALLS_MAX as usize)),
        ("headers", format!("{} KiB", limits::HEADER_BYTES_MAX >> 10)),
        ("headers", format!("and {} of them", limits::HEADERS_MAX)),
        ("headers", format!("within {} s", limits::HEADERS_TIME.as_secs())),
        ("a new connection", format!("within {} s", limits::PREFACE_TIME.as_secs())),
        ("bytes that a client may send ahead", format!("{} MiB", limits::WINDOW_BYTES >> 20)),
        ("batches of one call that are being", written(limits::BATCHES_IN_FLIGHT_MAX)),
        ("batches of one call that have begun", written(limits::BATCHES_OPEN_MAX)),
        ("from the first part", format!("{} s", limits::PARTIAL_APPEND_TIME.as_secs())),
        ("bytes of all batches", format!("{} MiB", limits::BATCHES_BYTES_MAX >> 20)),
        ("bytes of checks", format!("{} KiB", limits::VIOLATIONS_BYTES_MAX >> 10)),
        ("events taken", format!("{}, and", written(limits::PAGE_EVENTS_MAX))),
        ("events taken", format!("after {} MiB", limits::PAGE_BYTES >> 20)),
        ("bytes read from the store", format!("{} MiB", limits::OUTBOUND_BYTES_MAX >> 20)),
        ("a page of which the client", format!("{} s,", limits::UNREAD_TIME.as_secs())),
        ("a connection without a call", format!("{} s,", limits::IDLE_CONNECTION_TIME.as_secs())),
        ("a scan of keys", format!("{} s", limits::SCAN_TIME.as_secs())),
        ("watches", written(limits::WATCHES_MAX)),
        ("changes that wait for a watch", format!("{} writes", written(limits::WATCH_WRITES_MAX))),
        ("changes that wait for a watch", format!("{} MiB,", limits::WATCH_BYTES_MAX >> 20)),
        ("changes that wait for a watch", format!("{} MiB for", limits::WATCHES_BYTES_MAX >> 20)),
        ("one value of a key", format!("{} bytes", written(limits::KV_VALUE_BYTES_MAX))),
        ("keys of one `MultiGet`", written(limits::KV_KEYS_MAX)),
        ("a batch of keys", format!("{} operations", written(limits::KV_OPERATIONS_MAX))),
        ("a batch of keys", format!("{} conditions", written(limits::KV_CONDITIONS_MAX))),
        ("a batch of keys", format!("{} MiB", limits::KV_BATCH_BYTES_MAX >> 20)),
        ("threads that read", written(limits::BLOCKING_THREADS_MAX)),
        ("threads that read later pages", format!("{} more", written(limits::SLOW_PAGES_MAX))),
        ("a later page of a read", format!("{} ms", limits::PAGE_CPU_TIME.as_millis())),
        ("hidden events that the first page", written(limits::HIDDEN_EVENTS_MAX)),
        ("responses that a task", format!("{} responses", written(limits::POLL_MESSAGES))),
        ("responses that a task", format!("{} KiB", limits::POLL_BYTES >> 10)),
        ("bytes of all appends over", format!("{} KiB", limits::LONG_APPEND_BYTES_MIN >> 10)),
        ("bytes of all appends over", format!("{} MiB", limits::LONG_APPENDS_BYTES_MAX >> 20)),
        ("a connection that sends nothing", format!("{} s,", limits::KEEPALIVE_INTERVAL.as_secs())),
        (
            "a connection that sends nothing",
            format!("has {} s", limits::KEEPALIVE_TIMEOUT.as_secs()),
        ),
    ];
    for (row, value) in rows {
        let line = page.lines().find(|line| line.starts_with(&format!("| {row}")));
        assert!(line.is_some_and(|line| line.contains(&value)), "{row}: {value}");
    }
    assert!(page.contains(&format!("({} bytes) or more stay", written(limits::LARGE_FIELD_BYTES))));
    let opening = format!("nothing after {} s, or", limits::PREFACE_TIME.as_secs());
    assert!(page.contains(&opening), "{opening}");
}

/// Story: one call contains many batches, and an oversized message ended the call for all of them.
#[test]
fn oversized_message_fails_only_its_batch() {
    TestServer::new().run(async |client, _| {
        let part = |number: u64, bytes: usize, is_final: bool| BatchAppendReq {
            correlation_id: Some(id(number)),
            options: Some(batch_append_req::Options {
                stream_identifier: Some(name("cart")),
                expected_stream_position: Some(ANY.into()),
                deadline_option: None,
            }),
            proposed_messages: vec![blob(number, bytes)],
            is_final,
        };
        let single_part = |number, bytes| part(number, bytes, true);
        let parts = vec![
            single_part(1, 10),
            single_part(2, MESSAGE_BYTES_MAX),
            part(3, 10, false),
            part(4, MESSAGE_BYTES_MAX, false),
            part(3, 3 * MESSAGE_BYTES_MAX, false),
            part(3, 10, true),
            part(4, 10, true),
            single_part(5, 10),
        ];
        let mut answers = client.batches(stream::iter(parts)).await.unwrap();
        let mut outcomes = BTreeMap::new();
        while let Some(answer) = answers.message().await.unwrap() {
            let failed = match answer.result.unwrap() {
                Outcome::Success(_) => None,
                Outcome::Error(status) => Some(status.details[0].type_url.clone()),
            };
            let number = (0..9).find(|number| answer.correlation_id == Some(id(*number))).unwrap();
            assert_eq!(outcomes.insert(number, failed), None, "one answer a batch");
            assert_eq!(answer.stream_identifier, Some(name("cart")));
        }
        assert!(outcomes.keys().copied().eq(1..=5), "{outcomes:?}");
        for (number, failed) in outcomes {
            let too_large = failed.is_some_and(|kind| kind.ends_with("MaximumAppendSizeExceeded"));
            assert_eq!(too_large, matches!(number, 2..=4), "{number}");
        }
        let mut read = client.read(of_stream("cart", RevisionOption::Start(()))).await.unwrap();
        let last = recorded(read.pop().unwrap()).data.len();
        assert_eq!((read.len(), last), (1, 10), "nothing of the others was written");
    });
}

#[test]
fn oversized_message_without_a_batch_ends_the_call() {
    TestServer::new().run(async |client, _| {
        let nameless = BatchAppendReq {
            proposed_messages: vec![blob(1, MESSAGE_BYTES_MAX)],
            is_final: true,
            ..BatchAppendReq::default()
        };
        let mut answers = client.batches(stream::iter([nameless])).await.unwrap();
        let status = answers.message().await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    });
}
