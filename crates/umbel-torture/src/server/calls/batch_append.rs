//! `BatchAppend`: valid and invalid batches in one call, whose parts are mixed. The server must
//! answer each batch separately, as if the batches had come one after the other.

use std::collections::BTreeMap;

use futures_util::stream;
use prost::Message;
use prost_types::Duration;
use tonic::Code;
use umbel_proto::shared::{
    StreamIdentifier, Uuid, WrongExpectedVersion, uuid, wrong_expected_version,
};
use umbel_proto::streams::append_req::ProposedMessage;
use umbel_proto::streams::batch_append_req::{DeadlineOption, Expected, Options};
use umbel_proto::streams::batch_append_resp::{self, CurrentRevision, Outcome, PositionOption};
use umbel_proto::streams::{BatchAppendReq, BatchAppendResp};
use umbel_sim::Random;

use super::CallRun;
use crate::server::calls::call_server::one_of;
use crate::server::calls::stream_model::{AppendFate, CallEventId, StreamExpectation};

/// Flaw of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BatchFlaw {
    Nothing,
    NoOptions,
    NoWants,
    NoName,
    EmptyName,
    NoText,
    LongName,
    NoType,
    NoId,
    /// A later part has another expected revision.
    TwoMinds,
    /// The batch's deadline has passed.
    TooLate,
    /// The batch's last part is missing.
    Unfinished,
}

const BATCH_FLAWS: [BatchFlaw; 11] = [
    BatchFlaw::NoOptions,
    BatchFlaw::NoWants,
    BatchFlaw::NoName,
    BatchFlaw::EmptyName,
    BatchFlaw::NoText,
    BatchFlaw::LongName,
    BatchFlaw::NoType,
    BatchFlaw::NoId,
    BatchFlaw::TwoMinds,
    BatchFlaw::TooLate,
    BatchFlaw::Unfinished,
];

/// A batch that is sent.
#[derive(Debug, Clone)]
pub struct TestBatch {
    stream: &'static str,
    wants: StreamExpectation,
    ids: Vec<CallEventId>,
    flaw: BatchFlaw,
}

/// Expected answer to a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ExpectedAnswer {
    /// Written, with this last revision, at a new position.
    Written(u64),
    /// Idempotent retry, with this last revision, at its known position.
    There(u64, Option<u64>),
    /// Success without events.
    Nothing(Option<u64>),
    /// The stream is at another revision.
    Wrong(Option<u64>),
    /// The stream was tombstoned.
    Ended,
    /// The request is invalid.
    Bad,
    /// The deadline had passed.
    Late,
}

/// Sends batches in one call and checks each answer.
pub async fn call(run: &mut CallRun<'_>) -> Result<(), String> {
    let count = 1 + run.random.below(6);
    let mut batches: Vec<TestBatch> = (0..count).map(|_| batch(run)).collect();
    if run.random.once_in(4) {
        // The same batch again, in the same call.
        let again = batches[run.random.below(count) as usize].clone();
        batches.push(again);
    }
    let mut parts: Vec<Vec<BatchAppendReq>> =
        (0..).zip(&batches).map(|(number, batch)| split(number, batch, &mut run.random)).collect();
    // In mixed order; a batch takes effect with its last part.
    let (mut sent, mut order) = (Vec::new(), Vec::new());
    while parts.iter().any(|parts| !parts.is_empty()) {
        let at = run.random.below(parts.len() as u64) as usize;
        if !parts[at].is_empty() {
            let part = parts[at].remove(0);
            if part.is_final {
                order.push(at);
            }
            sent.push(part);
        }
    }
    let has_no_number = run.random.once_in(10);
    if has_no_number {
        let value = Some(uuid::Value::String("no uuid".to_string()));
        let correlation_id = Some(Uuid { value }).filter(|_| run.random.once_in(2));
        sent.push(BatchAppendReq { correlation_id, is_final: true, ..BatchAppendReq::default() });
    }
    let what = format!("batches {batches:?} in the order {order:?}");
    let mut answers =
        send_batches(run, sent, has_no_number).await.map_err(|why| format!("{what}: {why}"))?;
    for at in order {
        let batch = &batches[at];
        let answer = answers.remove(&(at as u64));
        let Some(answer) = answer else { return Err(format!("{what}: {at} has no answer")) };
        check_answer(run, batch, answer).map_err(|why| format!("{what}: {at}: {why}"))?;
    }
    // A late batch is answered even without its last part; others are not.
    if answers.is_empty() { Ok(()) } else { Err(format!("{what}: also answered: {answers:?}")) }
}

fn batch(run: &mut CallRun<'_>) -> TestBatch {
    if run.random.once_in(4)
        && let Some(former) = run.former_batch(|run| run.batches.clone())
    {
        let ids = &former.ids;
        let stream = run.streams.of(former.stream);
        let would_double = matches!(stream.fate(former.wants, ids), AppendFate::Written(_))
            && stream.has_any_id(ids);
        if !would_double {
            return former;
        }
    }
    let stream = run.stream();
    let wants = run.random_expectation(stream);
    let count = if run.random.once_in(8) { 0 } else { 1 + run.random.below(3) };
    let ids = run.new_ids(count);
    let flaw = if run.random.once_in(3) {
        one_of(&mut run.random, &BATCH_FLAWS)
    } else {
        BatchFlaw::Nothing
    };
    let flaw = match flaw {
        BatchFlaw::NoType | BatchFlaw::NoId if count == 0 => BatchFlaw::Nothing,
        flaw => flaw,
    };
    let batch = TestBatch { stream, wants, ids, flaw };
    if flaw == BatchFlaw::Nothing && count > 0 {
        run.batches.push(batch.clone());
    }
    batch
}

/// Converts an expectation to its message.
fn expectation(wants: StreamExpectation) -> Expected {
    match wants {
        StreamExpectation::Any => Expected::Any(()),
        StreamExpectation::NoStream => Expected::NoStream(()),
        StreamExpectation::Exists => Expected::StreamExists(()),
        StreamExpectation::At(revision) => Expected::StreamPosition(revision),
    }
}

fn identifier(id: CallEventId) -> Uuid {
    Uuid { value: Some(uuid::Value::Structured(id.into())) }
}

/// Returns the stream name in a batch's message.
fn name(batch: &TestBatch) -> Option<StreamIdentifier> {
    let bytes = match batch.flaw {
        BatchFlaw::NoName => return None,
        BatchFlaw::EmptyName => Vec::new(),
        BatchFlaw::NoText => b"ca\xffrt".to_vec(),
        BatchFlaw::LongName => vec![b'n'; 1025],
        _ => batch.stream.as_bytes().to_vec(),
    };
    Some(StreamIdentifier { stream_name: bytes.into() })
}

fn options(batch: &TestBatch) -> Option<Options> {
    let deadline = if batch.flaw == BatchFlaw::TooLate { 0 } else { 600 };
    let deadline = DeadlineOption::Deadline(Duration { seconds: deadline, nanos: 0 });
    let options = Options {
        stream_identifier: name(batch),
        expected_stream_position: Some(expectation(batch.wants))
            .filter(|_| batch.flaw != BatchFlaw::NoWants),
        deadline_option: Some(deadline),
    };
    Some(options).filter(|_| batch.flaw != BatchFlaw::NoOptions)
}

fn event(id: CallEventId) -> ProposedMessage {
    ProposedMessage {
        id: Some(identifier(id)),
        metadata: [("type", "Counted"), ("content-type", "application/json")]
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .into(),
        data: id.to_string().into_bytes().into(),
        ..ProposedMessage::default()
    }
}

/// Splits a batch into parts: one for all events, or one for each event and an empty part.
fn split(number: u64, batch: &TestBatch, random: &mut Random) -> Vec<BatchAppendReq> {
    let mut events: Vec<_> = batch.ids.iter().map(|id| event(*id)).collect();
    match (batch.flaw, events.last_mut()) {
        (BatchFlaw::NoType, Some(last)) => drop(last.metadata.remove("type")),
        (BatchFlaw::NoId, Some(last)) => last.id = None,
        _ => {}
    }
    let part = |proposed_messages| BatchAppendReq {
        correlation_id: Some(identifier(CallEventId::from(number))),
        options: None,
        proposed_messages,
        is_final: false,
    };
    let needs_parts = matches!(batch.flaw, BatchFlaw::TwoMinds | BatchFlaw::Unfinished);
    let mut parts: Vec<_> = match needs_parts || random.once_in(2) {
        false => vec![part(events)],
        true => events.into_iter().map(|event| vec![event]).chain([Vec::new()]).map(part).collect(),
    };
    if needs_parts {
        parts.push(part(Vec::new()));
    }
    parts[0].options = options(batch);
    let last = parts.len() - 1;
    if batch.flaw == BatchFlaw::TwoMinds {
        let mut other = options(batch).unwrap_or_default();
        other.expected_stream_position = Some(Expected::StreamPosition(12_345));
        parts[last].options = Some(other);
    }
    parts[last].is_final = batch.flaw != BatchFlaw::Unfinished;
    parts
}

/// Sends the parts and returns every answer by the number of its batch.
async fn send_batches(
    run: &CallRun<'_>,
    sent: Vec<BatchAppendReq>,
    is_refused: bool,
) -> Result<BTreeMap<u64, BatchAppendResp>, String> {
    let describe = |status: tonic::Status| format!("the call failed: {status:?}");
    let mut call = run.admin().batches(stream::iter(sent)).await.map_err(describe)?;
    let mut answers = BTreeMap::new();
    let ended = loop {
        match call.message().await {
            Ok(Some(answer)) => {
                let number = match answer.correlation_id.as_ref().and_then(|id| id.value.as_ref()) {
                    Some(uuid::Value::Structured(halves)) => CallEventId::from(*halves) as u64,
                    other => return Err(format!("an answer to {other:?}")),
                };
                if let Some(former) = answers.insert(number, answer) {
                    return Err(format!("{number} was answered twice, first {former:?}"));
                }
            }
            Ok(None) => break None,
            Err(status) => break Some(status),
        }
    };
    match (is_refused, ended) {
        (false, None) => Ok(answers),
        (true, Some(status)) if status.code() == Code::InvalidArgument => Ok(answers),
        (_, ended) => Err(format!("the call ended with {ended:?}")),
    }
}

/// Returns the expected answer to a batch, after all earlier batches.
fn expected_answer(run: &mut CallRun<'_>, batch: &TestBatch) -> ExpectedAnswer {
    match batch.flaw {
        BatchFlaw::Nothing => {}
        BatchFlaw::TooLate => return ExpectedAnswer::Late,
        _ => return ExpectedAnswer::Bad,
    }
    let stream = run.streams.of(batch.stream);
    let last = |first: u64| first + batch.ids.len() as u64 - 1;
    match stream.fate(batch.wants, &batch.ids) {
        AppendFate::Written(first) => ExpectedAnswer::Written(last(first)),
        AppendFate::There(first) => {
            ExpectedAnswer::There(last(first), stream.events[last(first) as usize].position)
        }
        AppendFate::Nothing(at) => ExpectedAnswer::Nothing(at),
        AppendFate::Wrong(at) => ExpectedAnswer::Wrong(at),
        AppendFate::Deleted(_) | AppendFate::Ended => ExpectedAnswer::Ended,
    }
}

fn check_answer(
    run: &mut CallRun<'_>,
    batch: &TestBatch,
    answer: BatchAppendResp,
) -> Result<(), String> {
    let wanted = expected_answer(run, batch);
    let echoed = (answer.stream_identifier.clone(), answer.expected_stream_position);
    if echoed != echo(batch) {
        return Err(format!("the answer repeats {echoed:?}"));
    }
    let is_right = match (&wanted, &answer.result) {
        (
            ExpectedAnswer::Written(_) | ExpectedAnswer::There(..) | ExpectedAnswer::Nothing(_),
            Some(Outcome::Success(done)),
        ) => {
            let revision = match done.current_revision_option {
                Some(CurrentRevision::CurrentRevision(revision)) => Some(revision),
                _ => None,
            };
            let position = match done.position_option {
                Some(PositionOption::Position(position)) => Some(position.commit_position),
                _ => None,
            };
            match (&wanted, position) {
                (ExpectedAnswer::Written(last), Some(position)) => {
                    let is_new = position > run.streams.top;
                    run.streams.append(batch.stream, &batch.ids, position);
                    is_new && revision == Some(*last)
                }
                (ExpectedAnswer::There(last, known), Some(position)) => {
                    revision == Some(*last) && known.is_none_or(|known| known == position)
                }
                (ExpectedAnswer::Nothing(last), None) => revision == *last,
                _ => false,
            }
        }
        (wanted, Some(Outcome::Error(error))) => {
            let (code, name, at) = refusal(wanted);
            let detail = error.details.first().cloned().unwrap_or_default();
            let is_named = detail.type_url.ends_with(&format!("event_store.client.{name}"));
            let facts = WrongExpectedVersion::decode(&detail.value[..]).ok();
            let is_told = at.is_none_or(|at| facts == Some(wrong_version(batch.wants, at)));
            error.code == code as i32 && is_named && is_told
        }
        _ => false,
    };
    run.tally.add("batches judged", 1);
    if is_right { Ok(()) } else { Err(format!("{answer:?} and not {wanted:?}")) }
}

/// Returns code and detail of a refusal, and the stream's revision if it is reported.
fn refusal(wanted: &ExpectedAnswer) -> (Code, &'static str, Option<Option<u64>>) {
    match wanted {
        ExpectedAnswer::Wrong(at) => (Code::AlreadyExists, "WrongExpectedVersion", Some(*at)),
        ExpectedAnswer::Ended => (Code::NotFound, "StreamDeleted", None),
        ExpectedAnswer::Bad => (Code::InvalidArgument, "BadRequest", None),
        ExpectedAnswer::Late => (Code::DeadlineExceeded, "Timeout", None),
        ExpectedAnswer::Written(_) | ExpectedAnswer::There(..) | ExpectedAnswer::Nothing(_) => {
            (Code::Ok, "", None)
        }
    }
}

fn wrong_version(wants: StreamExpectation, at: Option<u64>) -> WrongExpectedVersion {
    use wrong_expected_version::{Current, Expected};
    let expected = match wants {
        StreamExpectation::Any => Expected::ExpectedAny(()),
        StreamExpectation::NoStream => Expected::ExpectedNoStream(()),
        StreamExpectation::Exists => Expected::ExpectedStreamExists(()),
        StreamExpectation::At(revision) => Expected::ExpectedStreamPosition(revision),
    };
    let current = at.map_or(Current::CurrentNoStream(()), Current::CurrentStreamRevision);
    WrongExpectedVersion {
        current_stream_revision_option: Some(current),
        expected_stream_position_option: Some(expected),
    }
}

/// Returns the fields of the batch that its answer repeats.
fn echo(batch: &TestBatch) -> (Option<StreamIdentifier>, Option<batch_append_resp::Expected>) {
    use batch_append_resp::Expected;
    let expected = match batch.wants {
        StreamExpectation::Any => Expected::Any(()),
        StreamExpectation::NoStream => Expected::NoStream(()),
        StreamExpectation::Exists => Expected::StreamExists(()),
        StreamExpectation::At(revision) => Expected::StreamPosition(revision),
    };
    match batch.flaw {
        BatchFlaw::NoOptions => (None, None),
        BatchFlaw::NoWants => (name(batch), None),
        // The answer does not repeat it.
        BatchFlaw::LongName => (None, Some(expected)),
        _ => (name(batch), Some(expected)),
    }
}
