//! Tests of incomplete batches, with a clock that the test controls.

use std::future::poll_fn;
use std::task::Poll;

use futures_util::StreamExt;
use prost::Message;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;
use tonic::Code;
use umbel_events::{Direction, Revision, StreamState};
use umbel_proto::streams::BatchAppendReq;
use umbel_proto::streams::batch_append_req::Expected;
use umbel_proto::streams::batch_append_resp::Outcome;

use super::*;
use crate::access_control::append_invalidated_cache::StreamCache;
use crate::access_control::users::User;
use crate::auth::authorization::Authorizer;
use crate::event_store::long_append_places::LongAppendPlace;
use crate::grpc::message_limits::RequestMessage;
use crate::limits::{
    APPENDS_BYTES_MAX, EVENT_OVERHEAD_BYTES, LONG_APPEND_BYTES_MIN, LONG_APPENDS_BYTES_MAX,
    PARTIAL_APPEND_TIME,
};
use crate::test_support::test_service::{TestService, event, id, message_channel, run_paused};

/// Memory that counts for an event of one digit and the type "Counted".
const EVENT_BYTES: usize = EVENT_OVERHEAD_BYTES + 8;

/// Time longer than the lateness of timers.
const MOMENT: Duration = Duration::from_millis(10);

/// Starts a batch call.
async fn call(
    fixture: &TestService,
) -> (UnboundedSender<BatchAppendReq>, ResponseStream<BatchAppendResp>) {
    let (sender, parts) = message_channel();
    let (service, request) = (Arc::clone(&fixture.service), Request::new(parts));
    let answers =
        batch_append(service, Deadline::NEVER, OversizedMessages::default(), request).await;
    (sender, answers.unwrap().into_inner())
}

/// Starts the call of a user whose permissions are read from the store.
async fn call_of_user(
    fixture: &mut TestService,
) -> (UnboundedSender<BatchAppendReq>, ResponseStream<BatchAppendResp>) {
    let service = Arc::get_mut(&mut fixture.service).expect("the context is not shared yet");
    service.authorizer = Authorizer::new(Arc::default(), &service.env, true).unwrap();
    let user = Some(User::with_login("ada"));
    let user = StreamCache::new(1).get_or_read(&fixture.store, "ada", &[], |_| Ok(user)).unwrap();
    let (sender, parts) = message_channel();
    let mut request = Request::new(parts);
    request.extensions_mut().insert(Caller::User(user));
    let service = Arc::clone(&fixture.service);
    let answers =
        batch_append(service, Deadline::NEVER, OversizedMessages::default(), request).await;
    (sender, answers.unwrap().into_inner())
}

/// Builds a part of the batch with this number, with one event for the stream `cart`.
fn part(batch: i64, is_final: bool, number: i64) -> BatchAppendReq {
    let options = Options {
        stream_identifier: Some(proto_convert::stream_identifier("cart")),
        expected_stream_position: Some(Expected::Any(())),
        deadline_option: None,
    };
    let correlation_id = Some(id(batch));
    let proposed_messages = vec![event(number)];
    BatchAppendReq { correlation_id, options: Some(options), proposed_messages, is_final }
}

/// Builds a complete batch after its deadline, which gets its response at once.
fn late(batch: i64) -> BatchAppendReq {
    let mut part = part(batch, true, batch);
    let now = DeadlineOption::Deadline(prost_types::Duration::default());
    part.options.as_mut().unwrap().deadline_option = Some(now);
    part
}

/// Returns the number of the answered batch, and the code of its failure; 0 for a success.
async fn next(answers: &mut ResponseStream<BatchAppendResp>) -> (i64, i32) {
    let answer = answers.next().await.expect("there is a response").unwrap();
    let number = (0..100).find(|number| answer.correlation_id == Some(id(*number)));
    let code = match answer.result {
        Some(Outcome::Error(status)) => status.code,
        Some(Outcome::Success(_)) => 0,
        None => panic!("{answer:?}"),
    };
    (number.expect("a known correlation id"), code)
}

/// Waits like [`next`] for a response that only a timeout can produce.
async fn given_up(answers: &mut ResponseStream<BatchAppendResp>) -> (i64, i32) {
    tokio::time::timeout(PARTIAL_APPEND_TIME * 2, next(answers)).await.expect("the batch times out")
}

/// Runs the call as far as possible; returns whether the call then waits.
async fn waits(answers: &mut ResponseStream<BatchAppendResp>) -> bool {
    poll_fn(|context| Poll::Ready(answers.poll_next_unpin(context).is_pending())).await
}

fn written(fixture: &TestService) -> Vec<String> {
    let events = fixture.store.read("cart", Revision::START, Direction::Forwards);
    events.map(|event| String::from_utf8(event.unwrap().data).unwrap()).collect()
}

/// Story: no quota counted a part while it waited for the store's answer about permissions, which
/// takes long if all threads are busy.
#[test]
fn part_is_charged_during_the_permission_lookup() {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        let mut fixture = TestService::new();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let busy = tokio::task::spawn_blocking(move || released.recv());
        let (parts, mut answers) = call_of_user(&mut fixture).await;
        parts.send(part(1, true, 1)).unwrap();
        assert!(waits(&mut answers).await);
        assert_eq!(fixture.bytes(), EVENT_BYTES);
        release.send(()).unwrap();
        busy.await.unwrap().unwrap();
        assert_eq!(next(&mut answers).await, (1, 0));
        assert_eq!((fixture.bytes(), written(&fixture)), (0, vec!["1".to_string()]));
        // A cached permission is not queried again.
        let mut share = fixture.service.append_quota.new_share();
        assert!(share.grow(APPENDS_BYTES_MAX - EVENT_BYTES));
        parts.send(part(2, true, 2)).unwrap();
        assert_eq!(next(&mut answers).await, (2, 0));
    });
}

/// Story: a client that never sent the last part of a batch held the batch's bytes for ever. With
/// 256 MiB of such bytes, no client could append any more.
#[test]
fn batch_without_its_last_part_times_out() {
    run_paused(async {
        let fixture = TestService::new();
        let (parts, mut answers) = call(&fixture).await;
        let begun = Instant::now();
        parts.send(part(1, false, 10)).unwrap();
        parts.send(part(1, false, 11)).unwrap();
        assert!(waits(&mut answers).await);
        assert!(fixture.bytes() > 0);
        assert_eq!(given_up(&mut answers).await, (1, 4));
        assert!((PARTIAL_APPEND_TIME..PARTIAL_APPEND_TIME + MOMENT).contains(&begun.elapsed()));
        assert_eq!(fixture.bytes(), 0);
        // The rest may still arrive. A part is no batch: none of it may be written.
        parts.send(part(1, false, 12)).unwrap();
        parts.send(part(1, true, 13)).unwrap();
        parts.send(part(2, true, 20)).unwrap();
        assert_eq!(next(&mut answers).await, (2, 0), "the first batch has its response");
        assert_eq!(written(&fixture), ["20"]);
        // Its identifier is free again.
        parts.send(part(1, true, 14)).unwrap();
        assert_eq!(next(&mut answers).await, (1, 0));
        assert_eq!(written(&fixture), ["20", "14"]);
    });
}

#[test]
fn batch_times_out_at_its_own_earlier_deadline() {
    run_paused(async {
        let fixture = TestService::new();
        let (parts, mut answers) = call(&fixture).await;
        let begun = Instant::now();
        for (number, seconds) in [(1, 5), (2, 3600), (3, 1)] {
            let mut part = part(number, false, number);
            let duration = prost_types::Duration { seconds, nanos: 0 };
            let deadline_option = Some(DeadlineOption::Deadline(duration));
            part.options.as_mut().unwrap().deadline_option = deadline_option;
            parts.send(part).unwrap();
        }
        for (number, seconds) in [(3, 1), (1, 5), (2, PARTIAL_APPEND_TIME.as_secs())] {
            assert_eq!(given_up(&mut answers).await, (number, 4));
            let after = Duration::from_secs(seconds);
            assert!((after..after + MOMENT).contains(&begun.elapsed()), "{number}");
        }
        assert_eq!(fixture.bytes(), 0);
    });
}

/// Story: a call is not polled while its client takes no responses, so the call could not drop an
/// expired batch.
#[test]
fn unread_responses_do_not_keep_expired_batches() {
    run_paused(async {
        let fixture = TestService::new();
        let (parts, mut answers) = call(&fixture).await;
        for number in 0..20 {
            parts.send(part(number, false, number)).unwrap();
        }
        assert!(waits(&mut answers).await);
        assert!(fixture.bytes() > 0);
        tokio::time::sleep(PARTIAL_APPEND_TIME + MOMENT).await;
        assert_eq!(fixture.bytes(), 0, "the call was not polled");
        let mut answered = Vec::new();
        for _ in 0..20 {
            answered.push(given_up(&mut answers).await);
        }
        answered.sort_unstable();
        assert!(answered.into_iter().eq((0..20).map(|number| (number, 4))));
        assert_eq!(fixture.store.stream_state("cart").unwrap(), StreamState::Missing);
    });
}

#[test]
fn incomplete_batch_is_released_when_the_call_ends() {
    run_paused(async {
        let fixture = TestService::new();
        let (parts, mut answers) = call(&fixture).await;
        parts.send(part(1, false, 1)).unwrap();
        assert!(waits(&mut answers).await && fixture.bytes() > 0);
        drop(parts);
        assert!(answers.next().await.is_none());
        assert_eq!(fixture.bytes(), 0);
        let (parts, mut answers) = call(&fixture).await;
        parts.send(part(1, false, 1)).unwrap();
        assert!(waits(&mut answers).await && fixture.bytes() > 0);
        drop(answers);
        assert_eq!(fixture.bytes(), 0);
    });
}

/// Story: while a client had not taken all responses of an ended call, the call's incomplete
/// batches held bytes that no other call could use.
#[test]
fn ended_call_releases_incomplete_batches_at_once() {
    run_paused(async {
        let fixture = TestService::new();
        let mut early = 0;
        for round in 0..200 {
            let (parts, mut answers) = call(&fixture).await;
            parts.send(part(1, false, 1)).unwrap();
            parts.send(late(2)).unwrap();
            parts.send(late(3)).unwrap();
            let nameless = BatchAppendReq { correlation_id: None, ..part(4, true, 4) };
            parts.send(if round % 2 == 0 { nameless } else { late(4) }).unwrap();
            drop(parts);
            // The order of a response and the end is random.
            while let Some(answer) = answers.next().await {
                early += u32::from(answer.is_ok() && fixture.bytes() == 0);
            }
            assert_eq!(fixture.bytes(), 0);
        }
        assert!(early > 0, "the bytes stay charged until the last response is taken");
    });
}

/// More batches than may be open at a time expire one after the other, while complete batches are
/// written.
#[test]
fn expired_batches_do_not_block_complete_ones() {
    run_paused(async {
        let fixture = TestService::new();
        let (parts, mut answers) = call(&fixture).await;
        for number in 0..BATCHES_OPEN_MAX as i64 {
            parts.send(part(number, false, number)).unwrap();
        }
        for _ in 0..BATCHES_OPEN_MAX {
            assert_eq!(given_up(&mut answers).await.1, 4);
        }
        parts.send(part(90, true, 90)).unwrap();
        assert_eq!(next(&mut answers).await, (90, 0));
        parts.send(part(91, false, 91)).unwrap();
        let status = answers.next().await.unwrap().unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted);
    });
}

#[test]
fn long_stream_name_and_invalid_correlation_id_are_rejected() {
    run_paused(async {
        let fixture = TestService::new();
        let (parts, mut answers) = call(&fixture).await;
        let mut long = part(1, false, 1);
        let name = proto_convert::stream_identifier(&"n".repeat(100_000));
        long.options.as_mut().unwrap().stream_identifier = Some(name);
        parts.send(long).unwrap();
        assert!(waits(&mut answers).await);
        assert_eq!(fixture.bytes(), 0, "the batch will be rejected");
        let rest = BatchAppendReq { options: None, ..part(1, true, 1) };
        parts.send(rest).unwrap();
        let answer = answers.next().await.unwrap().unwrap();
        assert_eq!(answer.stream_identifier, None);
        assert!(matches!(answer.result, Some(Outcome::Error(status)) if status.code == 3));
        let value = Some(umbel_proto::shared::uuid::Value::String("n".repeat(100_000)));
        let correlation_id = Some(Uuid { value });
        parts.send(BatchAppendReq { correlation_id, ..part(1, true, 1) }).unwrap();
        let status = answers.next().await.unwrap().unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().len() < 1000, "the response repeats no invalid options");
    });
}

/// Story: a batch that expired between its last part and its completion counted until the call
/// ended. After two such batches the call read no more messages.
#[test]
fn batch_that_expires_at_completion_is_not_counted() {
    run_paused(async {
        let fixture = TestService::new();
        let (_parts, parts) = message_channel::<BatchAppendReq, BatchPart>();
        let service = Arc::clone(&fixture.service);
        let mut batches = BatchAppendCall::new(
            service,
            Caller::Trusted,
            Deadline::NEVER,
            OversizedMessages::default(),
            parts,
        );
        let batch_part = BatchPart::from_bytes(part(1, false, 1).encode_to_vec().into()).unwrap();
        batches.accept_part(batch_part, None).unwrap();
        assert!(batches.bytes > 0);
        tokio::time::sleep(PARTIAL_APPEND_TIME + MOMENT).await;
        let begun = batches.open.remove(&id(1)).unwrap();
        batches.finish(id(1), begun);
        let answer = batches.next_response().await.expect("the batch gets a response");
        assert!(matches!(answer.result, Some(Outcome::Error(status)) if status.code == 4));
        assert_eq!(batches.bytes, 0);
    });
}

/// Story: the response to a batch of one part contained the stream's name as a slice of the
/// received message, which stayed in memory.
#[test]
fn batch_does_not_retain_the_message_of_its_options() {
    run_paused(async {
        let fixture = TestService::new();
        let message = prost::bytes::Bytes::from(vec![b'n'; 1 << 20]);
        for (bytes, is_kept) in [(4, true), (1 << 20, false)] {
            let stream_name = message.slice(..bytes);
            let identifier = Some(umbel_proto::shared::StreamIdentifier { stream_name });
            let options = Options { stream_identifier: identifier, ..Options::default() };
            let (timer, quota) = (fixture.batch_timer(), &fixture.service.append_quota);
            let batch = PartialBatch::new(options, Deadline::NEVER, timer, quota);
            assert_eq!(batch.options.stream_identifier.is_some(), is_kept);
            assert!(message.is_unique(), "{bytes} bytes of the message are retained");
        }
    });
}

/// Builds a complete batch that is a long append, for this stream.
fn long(batch: i64, stream: &str, deadline: Option<Duration>) -> BatchAppendReq {
    let mut part = part(batch, true, batch);
    part.proposed_messages[0].data = vec![b' '; LONG_APPEND_BYTES_MIN].into();
    let options = part.options.as_mut().unwrap();
    options.stream_identifier = Some(proto_convert::stream_identifier(stream));
    options.deadline_option =
        deadline.map(|time| DeadlineOption::Deadline(time.try_into().unwrap()));
    part
}

/// Story: a call waited for the place of a long append, and saw neither deadlines nor a shutdown
/// meanwhile.
#[test]
fn batch_that_waits_for_its_place_times_out() {
    run_paused(async {
        let fixture = TestService::new();
        let (parts, mut answers) = call(&fixture).await;
        let places = fixture.service.store.appends().take_places();
        let (begun, time) = (Instant::now(), Duration::from_secs(3));
        parts.send(long(1, "cart", Some(time))).unwrap();
        parts.send(long(2, "till", None)).unwrap();
        assert_eq!(given_up(&mut answers).await, (1, 4));
        assert!((time..time + MOMENT).contains(&begun.elapsed()));
        drop(places);
        assert_eq!(next(&mut answers).await, (2, 0));
        assert_eq!(fixture.bytes(), 0);
    });
}

#[test]
fn shutdown_ends_batches_that_wait_for_their_place() {
    for has_ended in [false, true] {
        run_paused(async {
            let fixture = TestService::new();
            let (parts, mut answers) = call(&fixture).await;
            let _places = fixture.service.store.appends().take_places();
            parts.send(long(1, "cart", None)).unwrap();
            let parts = Some(parts).filter(|_| !has_ended);
            assert!(waits(&mut answers).await);
            fixture.stop();
            let refused = given_up(&mut answers).await;
            assert_eq!(refused, (1, i32::from(Code::Unavailable)));
            let last = answers.next().await.map(|answer| answer.unwrap_err().code());
            assert_eq!(last, (!has_ended).then_some(Code::Unavailable));
            assert_eq!(fixture.bytes(), 0);
            assert_eq!(fixture.store.stream_state("cart").unwrap(), StreamState::Missing);
            drop(parts);
        });
    }
}

/// Story: a call whose client read no responses was not polled, and kept the places that it got.
#[test]
fn call_that_is_not_polled_does_not_keep_places() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let fixture = TestService::new();
        let (parts, mut answers) = call(&fixture).await;
        let (other_parts, mut others) = call(&fixture).await;
        let places = fixture.service.store.appends().take_places();
        parts.send(long(1, "cart", None)).unwrap();
        assert!(waits(&mut answers).await);
        tokio::time::sleep(MOMENT).await;
        // All places are needed.
        let mut other = long(2, "till", None);
        other.proposed_messages[0].data = vec![b' '; LONG_APPENDS_BYTES_MAX].into();
        other_parts.send(other).unwrap();
        let waiting = tokio::time::timeout(MOMENT, next(&mut others)).await;
        assert!(waiting.is_err());
        drop(places);
        assert_eq!(given_up(&mut others).await, (2, 0));
        assert_eq!(next(&mut answers).await, (1, 0));
    });
}

/// Batches of a call are written in the order in which they came, long and short ones.
#[test]
fn short_batch_does_not_overtake_a_long_one_of_its_call() {
    run_paused(async {
        let fixture = TestService::new();
        let (parts, mut answers) = call(&fixture).await;
        let places = fixture.service.store.appends().take_places();
        parts.send(long(1, "cart", None)).unwrap();
        assert!(waits(&mut answers).await);
        parts.send(part(2, true, 2)).unwrap();
        assert!(waits(&mut answers).await);
        assert!(written(&fixture).is_empty());
        drop(places);
        assert_eq!(next(&mut answers).await, (1, 0));
        assert_eq!(next(&mut answers).await, (2, 0));
        assert_eq!(written(&fixture)[1], "2");
    });
}

/// Story: a call that waited for the answer about permissions kept its part for ever if its client
/// then read no responses. The quota is that of all clients.
#[test]
fn part_of_a_stalled_call_is_evicted_during_the_permission_lookup() {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        let mut fixture = TestService::new();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let busy = tokio::task::spawn_blocking(move || released.recv());
        let (parts, mut answers) = call_of_user(&mut fixture).await;
        parts.send(part(1, true, 1)).unwrap();
        assert!(waits(&mut answers).await);
        let mut others = fixture.service.append_quota.new_share();
        assert!(!others.grow(APPENDS_BYTES_MAX), "the part is in use");
        tokio::time::sleep(UNTAKEN_MESSAGE_TIME + MOMENT).await;
        assert!(others.grow(APPENDS_BYTES_MAX), "{} bytes are kept", fixture.bytes());
        drop(others);
        release.send(()).unwrap();
        busy.await.unwrap().unwrap();
        // Only the batch fails, once the client reads again.
        assert_eq!(next(&mut answers).await, (1, Code::ResourceExhausted as i32));
        parts.send(part(2, true, 2)).unwrap();
        let outcome = next(&mut answers).await;
        assert_eq!(outcome.0, 2);
        assert_eq!(fixture.bytes(), 0);
    });
}

/// Story: appends that were queued before a part with a new stream were submitted only after the
/// answer about its permissions. A stalled call kept them for ever.
#[test]
fn queued_appends_do_not_wait_for_a_permission_lookup() {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        let mut fixture = TestService::new();
        let (parts, mut answers) = call_of_user(&mut fixture).await;
        let users_allowed = part(1, true, 1);
        parts.send(users_allowed).unwrap();
        let first = next(&mut answers).await;
        let (release, released) = std::sync::mpsc::channel::<()>();
        let busy = tokio::task::spawn_blocking(move || released.recv());
        parts.send(part(2, true, 2)).unwrap();
        let mut other = part(3, true, 3);
        let name = proto_convert::stream_identifier("unknown");
        other.options.as_mut().unwrap().stream_identifier = Some(name);
        parts.send(other).unwrap();
        assert!(waits(&mut answers).await);
        // The call is not polled from here on.
        let began = Instant::now();
        while written(&fixture).len() < 2 && began.elapsed() < Duration::from_secs(20) {
            tokio::time::sleep(MOMENT).await;
        }
        assert_eq!((first, written(&fixture)), ((1, 0), vec!["1".to_string(), "2".to_string()]));
        release.send(()).unwrap();
        busy.await.unwrap().unwrap();
    });
}

/// Story: the events of a batch were decoded although the batch was refused.
#[test]
fn events_after_a_refusal_are_not_decoded() {
    let invalid = vec![0x1a, 0];
    let event = part(1, true, 1).proposed_messages[0].encode_to_vec();
    let valid = [&[0x1a, event.len() as u8], &event[..]].concat();
    // The content of an event is no message.
    let malformed = vec![0x1a, 2, 0xff, 0xff];
    let read = |parts: &[&Vec<u8>]| {
        let message: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        BatchPart::from_bytes(message.into())
    };
    let part = read(&[&valid, &invalid, &malformed, &valid]).unwrap();
    assert!(part.events.refusal.is_some() && part.events.events.is_empty());
    assert_eq!(read(&[&valid, &valid]).unwrap().events.events.len(), 2);
    assert!(read(&[&valid, &malformed]).is_err());
    // The field itself must be a message nevertheless.
    assert!(read(&[&invalid, &vec![0x18, 0]]).is_err());
    let before = crate::protocol::message_reader::fields_read();
    read(&[&invalid, &valid.repeat(1000)]).unwrap();
    let fields = crate::protocol::message_reader::fields_read() - before;
    assert_eq!(fields, 1001);
}

/// Call whose second batch waits for its place, while the permissions of the third one are queried.
struct WaitingCall {
    fixture: TestService,
    parts: UnboundedSender<BatchAppendReq>,
    answers: ResponseStream<BatchAppendResp>,
    places: Option<LongAppendPlace>,
}

impl WaitingCall {
    /// Starts the call; the third batch is for the stream `till`, and has its permissions.
    async fn start(third_bytes: usize) -> WaitingCall {
        let mut fixture = TestService::new();
        let (parts, mut answers) = call_of_user(&mut fixture).await;
        parts.send(part(1, true, 1)).unwrap();
        assert_eq!(next(&mut answers).await, (1, 0));
        let places = Some(fixture.service.store.appends().take_places());
        let (release, released) = std::sync::mpsc::channel::<()>();
        let busy = tokio::task::spawn_blocking(move || released.recv());
        parts.send(long(2, "cart", None)).unwrap();
        let mut third = part(3, true, 3);
        third.proposed_messages[0].data = vec![b' '; third_bytes].into();
        let name = proto_convert::stream_identifier("till");
        third.options.as_mut().unwrap().stream_identifier = Some(name);
        parts.send(third).unwrap();
        assert!(waits(&mut answers).await);
        release.send(()).unwrap();
        busy.await.unwrap().unwrap();
        for _ in 0..20 {
            assert!(waits(&mut answers).await);
            tokio::time::sleep(MOMENT).await;
        }
        WaitingCall { fixture, parts, answers, places }
    }

    fn is_missing(&self) -> bool {
        self.fixture.store.stream_state("till").unwrap() == StreamState::Missing
    }
}

/// Runs a test where one thread blocks.
fn run_with_one_thread(test: impl Future<Output = ()>) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().max_blocking_threads(1).build().unwrap().block_on(test);
}

/// Story: a batch that was authorized while an earlier one waited for its place stayed in the call.
/// If its client then read no responses, the batch kept its quota for ever.
#[test]
fn batch_after_a_waiting_one_does_not_stay_in_a_stalled_call() {
    run_with_one_thread(async {
        // The call receives both batches in one poll.
        for bytes in [10_000, 1] {
            let mut call = WaitingCall::start(bytes).await;
            assert!(call.fixture.bytes() > LONG_APPEND_BYTES_MIN && call.is_missing());
            call.places = None;
            // The call is not polled from here on.
            let began = Instant::now();
            // The quota is released with the submission, and the stream exists once it is durable.
            let is_done = |call: &WaitingCall| call.fixture.bytes() == 0 && !call.is_missing();
            while !is_done(&call) && began.elapsed() < Duration::from_secs(20) {
                tokio::time::sleep(MOMENT).await;
            }
            assert_eq!((call.fixture.bytes(), call.is_missing()), (0, false));
            assert_eq!(next(&mut call.answers).await, (2, 0));
            assert_eq!(next(&mut call.answers).await, (3, 0));
            // The next batch goes directly to the store.
            call.parts.send(part(4, true, 4)).unwrap();
            assert_eq!(next(&mut call.answers).await, (4, 0));
        }
    });
}

/// Story: at shutdown, a batch that waited for its place was refused, and a later batch of its call
/// was written.
#[test]
fn shutdown_refuses_waiting_batches_with_all_later_ones() {
    run_with_one_thread(async {
        let WaitingCall { fixture, parts, mut answers, places } = WaitingCall::start(1).await;
        fixture.stop();
        let mut refused = Vec::new();
        for _ in 0..2 {
            refused.push(next(&mut answers).await);
        }
        refused.sort_unstable();
        let unavailable = i32::from(Code::Unavailable);
        assert_eq!(refused, [(2, unavailable), (3, unavailable)]);
        drop(places);
        let last = answers.next().await.map(|answer| answer.unwrap_err().code());
        assert_eq!(last, Some(Code::Unavailable));
        assert_eq!(fixture.bytes(), 0);
        assert_eq!(fixture.store.stream_state("till").unwrap(), StreamState::Missing);
        assert_eq!(written(&fixture), ["1"]);
        drop(parts);
    });
}
