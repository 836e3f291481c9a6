//! Batches that their clients leave half sent, with a clock that the test moves.

use std::task::Poll;

use futures_util::StreamExt;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;
use umbel_events::{Direction, Revision, StreamState};
use umbel_proto::streams::ExpectedRevision;
use umbel_proto::streams::batch_append_resp::Outcome;

use super::*;
use crate::access::Access;
use crate::known::Known;
use crate::limits::{APPENDS_BYTES_MAX, PARTS_TIME};
use crate::stage::{Stage, event, id, run, sent};
use crate::users::User;

/// More than timers are late by.
const MOMENT: Duration = Duration::from_millis(10);

/// A call of batches on its way.
async fn call(stage: &Stage) -> (UnboundedSender<BatchAppendReq>, Answers<BatchAppendResp>) {
    let (sender, parts) = sent();
    let (service, request) = (Arc::clone(&stage.service), Request::new(parts));
    let answers = batch_append(service, Deadline::NEVER, Oversized::default(), request).await;
    (sender, answers.unwrap().into_inner())
}

/// The same, of a user whose rights the store has to be asked for.
async fn call_of_user(
    stage: &mut Stage,
) -> (UnboundedSender<BatchAppendReq>, Answers<BatchAppendResp>) {
    let service = Arc::get_mut(&mut stage.service).expect("nobody shares it yet");
    service.access = Access::new(Arc::default(), &service.env, true).unwrap();
    let user = Some(User::with_login("ada"));
    let user = Known::new(1).get_or_read(&stage.store, "ada", &[], |_| Ok(user)).unwrap();
    let (sender, parts) = sent();
    let mut request = Request::new(parts);
    request.extensions_mut().insert(Caller::User(user));
    let service = Arc::clone(&stage.service);
    let answers = batch_append(service, Deadline::NEVER, Oversized::default(), request).await;
    (sender, answers.unwrap().into_inner())
}

/// A part of the batch with this number, with one event of it, to the stream `cart`.
fn part(batch: i64, is_final: bool, number: i64) -> BatchAppendReq {
    let options = Options {
        stream_identifier: Some(convert::identifier("cart")),
        expected_stream_position: Some(ExpectedRevision::Any(())),
        deadline_option: None,
    };
    let correlation_id = Some(id(batch));
    let proposed_messages = vec![event(number)];
    BatchAppendReq { correlation_id, options: Some(options), proposed_messages, is_final }
}

/// A whole batch that came too late, so that its answer is there at once.
fn late(batch: i64) -> BatchAppendReq {
    let mut part = part(batch, true, batch);
    let now = DeadlineOption::Duration(prost_types::Duration::default());
    part.options.as_mut().unwrap().deadline_option = Some(now);
    part
}

/// Which batch was answered, and the code of its failure; 0 where it was written.
async fn next(answers: &mut Answers<BatchAppendResp>) -> (i64, i32) {
    let answer = answers.next().await.expect("there is an answer").unwrap();
    let number = (0..100).find(|number| answer.correlation_id == Some(id(*number)));
    let code = match answer.result {
        Some(Outcome::Error(status)) => status.code,
        Some(Outcome::Success(_)) => 0,
        None => panic!("{answer:?}"),
    };
    (number.expect("a batch of the test"), code)
}

/// As [`next`], where only time can bring the answer.
async fn given_up(answers: &mut Answers<BatchAppendResp>) -> (i64, i32) {
    tokio::time::timeout(PARTS_TIME * 2, next(answers)).await.expect("it is given up")
}

/// Lets the call do what it can, and says whether it waits then.
async fn waits(answers: &mut Answers<BatchAppendResp>) -> bool {
    poll_fn(|context| Poll::Ready(answers.poll_next_unpin(context).is_pending())).await
}

fn written(stage: &Stage) -> Vec<String> {
    let events = stage.store.read("cart", Revision::START, Direction::Forwards);
    events.map(|event| String::from_utf8(event.unwrap().data).unwrap()).collect()
}

/// Story: what had been read of a part was counted nowhere while the store was asked who may
/// append. All threads that ask it may be taken.
#[test]
fn a_part_is_counted_while_the_store_is_asked() {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        let mut stage = Stage::new();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let busy = tokio::task::spawn_blocking(move || released.recv());
        let (parts, mut answers) = call_of_user(&mut stage).await;
        parts.send(part(1, true, 1)).unwrap();
        assert!(waits(&mut answers).await);
        assert_eq!(stage.bytes(), question::of_events(1));
        release.send(()).unwrap();
        busy.await.unwrap().unwrap();
        assert_eq!(next(&mut answers).await, (1, 0));
        assert_eq!((stage.bytes(), written(&stage)), (0, vec!["1".to_string()]));
        // What is known of the rights is not asked again.
        let mut share = stage.service.budget.share();
        assert!(share.grow(APPENDS_BYTES_MAX - question::of_events(1)));
        parts.send(part(2, true, 2)).unwrap();
        assert_eq!(next(&mut answers).await, (2, 0));
    });
}

/// A client that never sent the last part of a batch held its bytes for ever. With 256 MiB of them
/// nobody could append any more.
#[test]
fn a_batch_whose_last_part_does_not_come_is_given_up() {
    run(async {
        let stage = Stage::new();
        let (parts, mut answers) = call(&stage).await;
        let begun = Instant::now();
        parts.send(part(1, false, 10)).unwrap();
        parts.send(part(1, false, 11)).unwrap();
        assert!(waits(&mut answers).await);
        assert!(stage.bytes() > 0);
        assert_eq!(given_up(&mut answers).await, (1, 4));
        assert!((PARTS_TIME..PARTS_TIME + MOMENT).contains(&begun.elapsed()));
        assert_eq!(stage.bytes(), 0);
        // The rest of it may come yet. A part is no batch: none of it may be written.
        parts.send(part(1, false, 12)).unwrap();
        parts.send(part(1, true, 13)).unwrap();
        parts.send(part(2, true, 20)).unwrap();
        assert_eq!(next(&mut answers).await, (2, 0), "the first one has its answer");
        assert_eq!(written(&stage), ["20"]);
        // Its name may be used again.
        parts.send(part(1, true, 14)).unwrap();
        assert_eq!(next(&mut answers).await, (1, 0));
        assert_eq!(written(&stage), ["20", "14"]);
    });
}

#[test]
fn a_batch_is_given_up_at_its_own_deadline_where_that_is_earlier() {
    run(async {
        let stage = Stage::new();
        let (parts, mut answers) = call(&stage).await;
        let begun = Instant::now();
        for (number, seconds) in [(1, 5), (2, 3600), (3, 1)] {
            let mut part = part(number, false, number);
            let duration = prost_types::Duration { seconds, nanos: 0 };
            let deadline_option = Some(DeadlineOption::Duration(duration));
            part.options.as_mut().unwrap().deadline_option = deadline_option;
            parts.send(part).unwrap();
        }
        for (number, seconds) in [(3, 1), (1, 5), (2, PARTS_TIME.as_secs())] {
            assert_eq!(given_up(&mut answers).await, (number, 4));
            let after = Duration::from_secs(seconds);
            assert!((after..after + MOMENT).contains(&begun.elapsed()), "{number}");
        }
        assert_eq!(stage.bytes(), 0);
    });
}

/// A call does nothing while its client takes no answers, so that it could not give up a batch.
#[test]
fn a_client_that_takes_no_answers_cannot_hold_bytes_either() {
    run(async {
        let stage = Stage::new();
        let (parts, mut answers) = call(&stage).await;
        for number in 0..20 {
            parts.send(part(number, false, number)).unwrap();
        }
        assert!(waits(&mut answers).await);
        assert!(stage.bytes() > 0);
        tokio::time::sleep(PARTS_TIME + MOMENT).await;
        assert_eq!(stage.bytes(), 0, "nobody has polled the call");
        let mut answered = Vec::new();
        for _ in 0..20 {
            answered.push(given_up(&mut answers).await);
        }
        answered.sort_unstable();
        assert!(answered.into_iter().eq((0..20).map(|number| (number, 4))));
        assert_eq!(stage.store.stream("cart").unwrap(), StreamState::Missing);
    });
}

#[test]
fn what_is_half_sent_when_a_call_ends_or_its_client_goes_is_given_back() {
    run(async {
        let stage = Stage::new();
        let (parts, mut answers) = call(&stage).await;
        parts.send(part(1, false, 1)).unwrap();
        assert!(waits(&mut answers).await && stage.bytes() > 0);
        drop(parts);
        assert!(answers.next().await.is_none());
        assert_eq!(stage.bytes(), 0);
        let (parts, mut answers) = call(&stage).await;
        parts.send(part(1, false, 1)).unwrap();
        assert!(waits(&mut answers).await && stage.bytes() > 0);
        drop(answers);
        assert_eq!(stage.bytes(), 0);
    });
}

/// While the answers of a call that had ended were not all taken, what was half sent in it held
/// bytes that nobody could use.
#[test]
fn a_call_that_has_ended_holds_nothing_although_answers_are_due() {
    run(async {
        let stage = Stage::new();
        let mut early = 0;
        for round in 0..200 {
            let (parts, mut answers) = call(&stage).await;
            parts.send(part(1, false, 1)).unwrap();
            parts.send(late(2)).unwrap();
            parts.send(late(3)).unwrap();
            let nameless = BatchAppendReq { correlation_id: None, ..part(4, true, 4) };
            parts.send(if round % 2 == 0 { nameless } else { late(4) }).unwrap();
            drop(parts);
            // Which comes first, an answer or the end, is left to chance.
            while let Some(answer) = answers.next().await {
                early += u32::from(answer.is_ok() && stage.bytes() == 0);
            }
            assert_eq!(stage.bytes(), 0);
        }
        assert!(early > 0, "bytes are held until the last answer is taken");
    });
}

/// More batches than may be open at a time are given up one after the other, and whole ones go on.
#[test]
fn batches_that_were_given_up_do_not_keep_whole_ones_out() {
    run(async {
        let stage = Stage::new();
        let (parts, mut answers) = call(&stage).await;
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
        assert_eq!(status.code(), tonic::Code::ResourceExhausted);
    });
}

#[test]
fn what_names_a_batch_is_small_and_a_uuid() {
    run(async {
        let stage = Stage::new();
        let (parts, mut answers) = call(&stage).await;
        let mut long = part(1, false, 1);
        let name = convert::identifier(&"n".repeat(100_000));
        long.options.as_mut().unwrap().stream_identifier = Some(name);
        parts.send(long).unwrap();
        assert!(waits(&mut answers).await);
        assert_eq!(stage.bytes(), 0, "it will be refused");
        let rest = BatchAppendReq { options: None, ..part(1, true, 1) };
        parts.send(rest).unwrap();
        let answer = answers.next().await.unwrap().unwrap();
        assert_eq!(answer.stream_identifier, None);
        assert!(matches!(answer.result, Some(Outcome::Error(status)) if status.code == 3));
        let value = Some(umbel_proto::shared::uuid::Value::String("n".repeat(100_000)));
        let correlation_id = Some(Uuid { value });
        parts.send(BatchAppendReq { correlation_id, ..part(1, true, 1) }).unwrap();
        let status = answers.next().await.unwrap().unwrap_err();
        assert_eq!(status.code(), tonic::Code::InvalidArgument);
        assert!(status.message().len() < 1000, "it does not repeat what it was sent");
    });
}

/// A batch whose time ran out between its last part and its end was counted for as long as the call
/// went on: two of them were enough that the call took nothing more.
#[test]
fn a_batch_whose_time_runs_out_at_its_end_is_counted_no_more() {
    run(async {
        let stage = Stage::new();
        let (_parts, parts) = sent();
        let service = Arc::clone(&stage.service);
        let mut batches =
            Batches::new(service, Caller::Trusted, Deadline::NEVER, Oversized::default(), parts);
        batches.take(part(1, false, 1), None).unwrap();
        assert!(batches.bytes > 0);
        tokio::time::sleep(PARTS_TIME + MOMENT).await;
        let begun = batches.open.remove(&id(1)).unwrap();
        batches.finish(id(1), begun);
        let answer = batches.next().await.expect("it is answered");
        assert!(matches!(answer.result, Some(Outcome::Error(status)) if status.code == 4));
        assert_eq!(batches.bytes, 0);
    });
}

/// The answer to a batch of one part repeated its stream's name out of the message as it came.
#[test]
fn a_batch_keeps_nothing_of_the_message_that_named_its_stream() {
    run(async {
        let stage = Stage::new();
        let whole = prost::bytes::Bytes::from(vec![b'n'; 1 << 20]);
        for (bytes, is_kept) in [(4, true), (1 << 20, false)] {
            let stream_name = whole.slice(..bytes);
            let identifier = Some(umbel_proto::shared::StreamIdentifier { stream_name });
            let options = Options { stream_identifier: identifier, ..Options::default() };
            let batch = Batch::new(options, Deadline::NEVER, &stage.service.budget);
            assert_eq!(batch.options.stream_identifier.is_some(), is_kept);
            assert!(whole.is_unique(), "{bytes} bytes of the message are kept");
        }
    });
}
