//! Tests that events and writes of requests are left to blocking threads, however they are dropped.

use std::sync::Arc;

use hyper::body::Bytes;
use prost::Message;
use tonic::Status;
use umbel_events::{EventId, ExpectedVersion};
use umbel_proto::kv::{BatchRequest, Operation, OperationKind};
use umbel_proto::streams::BatchAppendReq;
use umbel_proto::streams::batch_append_req::Options;
use umbel_proto::v2::streams::{AppendRecord, AppendRecordsRequest, AppendRequest, SchemaInfo};

use crate::event_store::append_command::{AppendCommand, StreamEvents};
use crate::grpc::message_limits::RequestMessage;
use crate::protocol::deadline::Deadline;
use crate::protocol::proto_convert::{self, ProposedEvent};
use crate::resources::deferred_drop::{PARTS_DEFERRED_MAX, count_parts_left};
use crate::resources::inbound_quota::InboundQuota;
use crate::services::kv::BatchMessage;
use crate::services::streams::multi_stream_append::Transaction;
use crate::services::streams::partial_batch::PartialBatch;
use crate::services::streams::proposed_events::BatchPart;
use crate::services::streams::record_part::{RecordsMessage, SessionPart};
use crate::test_support::test_service::{TestService, event};

/// Number of events, records or writes; a list of half of them would be dropped at once.
const PARTS: usize = 2000;

/// Runs a test on the only worker of a runtime.
fn run_on_worker(test: impl FnOnce()) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async { test() });
}

fn read<M: RequestMessage>(message: &impl Message) -> M {
    M::from_bytes(message.encode_to_vec().into()).unwrap()
}

fn batch_part() -> BatchPart {
    let proposed_messages = (0..PARTS as i64).map(event).collect();
    read(&BatchAppendReq { proposed_messages, ..BatchAppendReq::default() })
}

fn records(streams: &[&str]) -> Vec<AppendRecord> {
    let schema = SchemaInfo { format: 1, name: "Counted".to_string(), id: None };
    let record = |number: usize| AppendRecord {
        schema: Some(schema.clone()),
        stream: streams[number % streams.len()].to_string(),
        ..AppendRecord::default()
    };
    (0..PARTS).map(record).collect()
}

fn left<T>(value: T) -> usize {
    count_parts_left(|| drop(value))
}

/// Story: the worker of a call freed the events of a message or batch that was refused.
#[test]
fn events_of_a_batch_are_not_freed_on_a_worker() {
    run_on_worker(|| {
        assert_eq!(left(batch_part()), PARTS);
        let fixture = TestService::new();
        let quota = &fixture.service.append_quota;
        let batch = || {
            let stream_identifier = Some(proto_convert::stream_identifier("cart"));
            let options = Options { stream_identifier, ..Options::default() };
            let mut batch =
                PartialBatch::new(options, Deadline::NEVER, fixture.batch_timer(), quota);
            batch.add(batch_part(), quota);
            batch
        };
        assert_eq!(left(batch()), PARTS);
        let mut rejected = batch();
        let reject = || rejected.reject(Status::internal("no"), quota);
        assert_eq!(count_parts_left(reject), PARTS);
        let part = batch_part();
        assert_eq!(count_parts_left(|| rejected.add(part, quota)), PARTS);
        let mut added = batch();
        let mut others = quota.new_share();
        assert!(others.grow(crate::limits::APPENDS_BYTES_MAX - quota.used_bytes()));
        let part = batch_part();
        assert_eq!(count_parts_left(|| added.add(part, quota)), 2 * PARTS, "there is no quota");
        drop(others);
        let mut complete = batch();
        complete.options.expected_stream_position =
            Some(umbel_proto::streams::batch_append_req::Expected::Any(()));
        assert_eq!(left(complete.into_append().unwrap()), PARTS);
        assert_eq!(quota.used_bytes(), 0);
    });
}

#[test]
fn records_of_a_transaction_are_not_freed_on_a_worker() {
    run_on_worker(|| {
        let request = AppendRecordsRequest { records: records(&["a", "b"]), checks: Vec::new() };
        let message = || read::<RecordsMessage>(&request);
        // The streams are parts, too.
        assert_eq!(left(message()), PARTS + 2);
        let stream = "a".to_string();
        let session = AppendRequest { stream, records: records(&[""]), expected_revision: None };
        assert_eq!(left(read::<SessionPart>(&session)), PARTS);
        let fixture = TestService::new();
        let quota = &fixture.service.append_quota;
        let mut transaction = Transaction::new(quota);
        for mut records in message().0.unwrap().streams.into_inner() {
            let (stream, expected) = (records.stream.clone(), ExpectedVersion::Any);
            let index = transaction.add_stream(stream, expected).unwrap();
            let events = std::mem::take(&mut records.events);
            transaction.add_all(index, events, records.bytes).unwrap();
        }
        assert_eq!(left(transaction), PARTS + 2);
        let streams = message().0.unwrap().streams.into_inner().into_iter().map(|records| {
            let (stream, events) = (records.stream, records.events);
            StreamEvents { stream, expected: ExpectedVersion::Any, events }
        });
        let streams: Vec<StreamEvents> = streams.collect();
        let share = Arc::clone(quota).new_share();
        assert_eq!(left(AppendCommand::to_streams(streams.into(), Vec::new(), share)), PARTS + 2);
        assert_eq!(quota.used_bytes(), 0);
    });
}

/// Story: the appender freed the events of an append to many streams, since each of the streams had
/// few of them.
#[test]
fn events_of_a_completed_append_to_streams_are_not_freed_by_the_appender() {
    run_on_worker(|| {
        let request = AppendRecordsRequest { records: records(&["a", "$b"]), checks: Vec::new() };
        let message = read::<RecordsMessage>(&request);
        let streams = message.0.unwrap().streams.into_inner().into_iter().map(|records| {
            let (stream, events) = (records.stream, records.events);
            StreamEvents { stream, expected: ExpectedVersion::Any, events }
        });
        let streams: Vec<StreamEvents> = streams.collect();
        let share = TestService::new().service.append_quota.new_share();
        let append = AppendCommand::to_streams(streams.into(), Vec::new(), share);
        let complete = || assert_eq!(append.into_system_streams(), ["$b"]);
        assert_eq!(count_parts_left(complete), PARTS + 2);
    });
}

/// Story: while the events of two of the longest appends waited for a blocking thread, the appender
/// freed those of further appends, for milliseconds each.
#[test]
fn events_above_the_limit_wait_with_their_quota_and_not_for_the_appender() {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        let (release, released) = std::sync::mpsc::channel::<()>();
        let busy = tokio::task::spawn_blocking(move || released.recv());
        let quota = Arc::new(InboundQuota::new(1));
        let mut share = quota.new_share();
        assert!(share.grow(1));
        let event = |number: usize| {
            let id = EventId((number as u128).to_be_bytes());
            ProposedEvent::new(id, "".into(), false, (Bytes::new(), Box::default()))
        };
        let events = (0..=PARTS_DEFERRED_MAX).map(event).collect::<Vec<_>>().into();
        let (stream, expected) = ("s".to_string(), ExpectedVersion::Any);
        let append = AppendCommand::to_stream(StreamEvents { stream, expected, events }, share);
        let complete = || assert!(append.into_system_streams().is_empty());
        assert_eq!(count_parts_left(complete), PARTS_DEFERRED_MAX + 1);
        assert_eq!(quota.used_bytes(), 1, "they wait for the only blocking thread");
        release.send(()).unwrap();
        busy.await.unwrap().unwrap();
        tokio::task::spawn_blocking(|| ()).await.unwrap();
        assert_eq!(quota.used_bytes(), 0);
    });
}

#[test]
fn writes_of_a_batch_are_not_freed_on_a_worker() {
    run_on_worker(|| {
        let operation = || Operation {
            keyspace: String::new(),
            kind: Some(OperationKind::Delete(b"k".to_vec().into())),
        };
        let operations = (0..PARTS).map(|_| operation()).collect();
        let request = BatchRequest { operations, ..BatchRequest::default() };
        assert_eq!(left(read::<BatchMessage>(&request)), PARTS);
    });
}
