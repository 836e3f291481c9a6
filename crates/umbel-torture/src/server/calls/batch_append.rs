//! `BatchAppend`: several batches over one call, in parts that are mixed, right ones and wrong
//! ones. Each is answered by itself, as if they had come one after the other.

use std::collections::BTreeMap;

use futures_util::stream;
use prost::Message;
use prost_types::Duration;
use tonic::Code;
use umbel_proto::shared::{
    StreamIdentifier, Uuid, WrongExpectedVersion, uuid, wrong_expected_version,
};
use umbel_proto::streams::append_req::ProposedMessage;
use umbel_proto::streams::batch_append_req::{DeadlineOption, Options};
use umbel_proto::streams::batch_append_resp::{self, CurrentRevision, Outcome, PositionOption};
use umbel_proto::streams::{BatchAppendReq, BatchAppendResp, ExpectedRevision};

use super::Run;
use super::model::{Fate, Id, Wants};
use super::world::one_of;
use crate::random::Random;

/// What is wrong with a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    Nothing,
    NoOptions,
    NoWants,
    NoName,
    EmptyName,
    NoText,
    LongName,
    NoType,
    NoId,
    /// A later part names another expectation.
    TwoMinds,
    /// Its deadline is over.
    TooLate,
    /// Its last part does not come.
    Unfinished,
}

const FLAWS: [Flaw; 11] = [
    Flaw::NoOptions,
    Flaw::NoWants,
    Flaw::NoName,
    Flaw::EmptyName,
    Flaw::NoText,
    Flaw::LongName,
    Flaw::NoType,
    Flaw::NoId,
    Flaw::TwoMinds,
    Flaw::TooLate,
    Flaw::Unfinished,
];

/// A batch that is sent.
#[derive(Debug, Clone)]
pub struct Batch {
    stream: &'static str,
    wants: Wants,
    ids: Vec<Id>,
    flaw: Flaw,
}

/// What a batch has to be answered.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Wanted {
    /// Done, with this last revision, and a place that nothing had before.
    Written(u64),
    /// Done, with this last revision, at a place where it is known.
    There(u64, Option<u64>),
    /// Done, with nothing to do.
    Nothing(Option<u64>),
    /// The stream is at something else.
    Wrong(Option<u64>),
    /// The stream was tombstoned.
    Ended,
    /// The request is wrong.
    Bad,
    /// The deadline had passed.
    Late,
}

/// Sends some batches over one call, and compares each answer.
pub async fn call(run: &mut Run<'_>) -> Result<(), String> {
    let count = 1 + run.random.below(6);
    let mut batches: Vec<Batch> = (0..count).map(|_| batch(run)).collect();
    if run.random.once_in(4) {
        // The same once more, in the same call.
        let again = batches[run.random.below(count) as usize].clone();
        batches.push(again);
    }
    let mut parts: Vec<Vec<BatchAppendReq>> = (0..)
        .zip(&batches)
        .map(|(number, batch)| in_parts(number, batch, &mut run.random))
        .collect();
    // Mixed; each batch counts where its last part stands.
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
        ask(run, sent, has_no_number).await.map_err(|why| format!("{what}: {why}"))?;
    for at in order {
        let batch = &batches[at];
        let answer = answers.remove(&(at as u64));
        let Some(answer) = answer else { return Err(format!("{what}: {at} has no answer")) };
        judge(run, batch, answer).map_err(|why| format!("{what}: {at}: {why}"))?;
    }
    // One that is too late is answered even where its last part does not come; others are not.
    if answers.is_empty() { Ok(()) } else { Err(format!("{what}: also answered: {answers:?}")) }
}

fn batch(run: &mut Run<'_>) -> Batch {
    if run.random.once_in(4)
        && let Some(former) = run.former(|run| run.batches.clone())
    {
        let ids = &former.ids;
        let stream = run.streams.of(former.stream);
        let would_double =
            matches!(stream.fate(former.wants, ids), Fate::Written(_)) && stream.knows(ids);
        if !would_double {
            return former;
        }
    }
    let stream = run.stream();
    let wants = run.wants(stream);
    let count = if run.random.once_in(8) { 0 } else { 1 + run.random.below(3) };
    let ids = run.new_ids(count);
    let flaw = if run.random.once_in(3) { one_of(&mut run.random, &FLAWS) } else { Flaw::Nothing };
    let flaw = match flaw {
        Flaw::NoType | Flaw::NoId if count == 0 => Flaw::Nothing,
        flaw => flaw,
    };
    let batch = Batch { stream, wants, ids, flaw };
    if flaw == Flaw::Nothing && count > 0 {
        run.batches.push(batch.clone());
    }
    batch
}

/// What is expected as a message.
fn expectation(wants: Wants) -> ExpectedRevision {
    match wants {
        Wants::Any => ExpectedRevision::Any(()),
        Wants::NoStream => ExpectedRevision::NoStream(()),
        Wants::Exists => ExpectedRevision::StreamExists(()),
        Wants::At(revision) => ExpectedRevision::Revision(revision),
    }
}

fn identifier(id: Id) -> Uuid {
    Uuid { value: Some(uuid::Value::Structured(id.into())) }
}

/// The name that a batch says, as it is.
fn name(batch: &Batch) -> Option<StreamIdentifier> {
    let bytes = match batch.flaw {
        Flaw::NoName => return None,
        Flaw::EmptyName => Vec::new(),
        Flaw::NoText => b"ca\xffrt".to_vec(),
        Flaw::LongName => vec![b'n'; 1025],
        _ => batch.stream.as_bytes().to_vec(),
    };
    Some(StreamIdentifier { stream_name: bytes.into() })
}

fn options(batch: &Batch) -> Option<Options> {
    let deadline = if batch.flaw == Flaw::TooLate { 0 } else { 600 };
    let deadline = DeadlineOption::Duration(Duration { seconds: deadline, nanos: 0 });
    let options = Options {
        stream_identifier: name(batch),
        expected_stream_position: Some(expectation(batch.wants))
            .filter(|_| batch.flaw != Flaw::NoWants),
        deadline_option: Some(deadline),
    };
    Some(options).filter(|_| batch.flaw != Flaw::NoOptions)
}

fn event(id: Id) -> ProposedMessage {
    ProposedMessage {
        id: Some(identifier(id)),
        metadata: [("type", "Counted"), ("content-type", "application/json")]
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .into(),
        data: id.to_string().into_bytes().into(),
        ..ProposedMessage::default()
    }
}

/// The parts of a batch with this number: all in one, or one for each event and an empty one.
fn in_parts(number: u64, batch: &Batch, random: &mut Random) -> Vec<BatchAppendReq> {
    let mut events: Vec<_> = batch.ids.iter().map(|id| event(*id)).collect();
    match (batch.flaw, events.last_mut()) {
        (Flaw::NoType, Some(last)) => drop(last.metadata.remove("type")),
        (Flaw::NoId, Some(last)) => last.id = None,
        _ => {}
    }
    let part = |proposed_messages| BatchAppendReq {
        correlation_id: Some(identifier(Id::from(number))),
        options: None,
        proposed_messages,
        is_final: false,
    };
    let needs_parts = matches!(batch.flaw, Flaw::TwoMinds | Flaw::Unfinished);
    let mut parts: Vec<_> = match needs_parts || random.once_in(2) {
        false => vec![part(events)],
        true => events.into_iter().map(|event| vec![event]).chain([Vec::new()]).map(part).collect(),
    };
    if needs_parts {
        parts.push(part(Vec::new()));
    }
    parts[0].options = options(batch);
    let last = parts.len() - 1;
    if batch.flaw == Flaw::TwoMinds {
        let mut other = options(batch).unwrap_or_default();
        other.expected_stream_position = Some(ExpectedRevision::Revision(12_345));
        parts[last].options = Some(other);
    }
    parts[last].is_final = batch.flaw != Flaw::Unfinished;
    parts
}

/// Every answer by the number of its batch.
async fn ask(
    run: &Run<'_>,
    sent: Vec<BatchAppendReq>,
    is_refused: bool,
) -> Result<BTreeMap<u64, BatchAppendResp>, String> {
    let said = |status: tonic::Status| format!("the call failed: {status:?}");
    let mut call = run.admin().batches(stream::iter(sent)).await.map_err(said)?;
    let mut answers = BTreeMap::new();
    let ended = loop {
        match call.message().await {
            Ok(Some(answer)) => {
                let number = match answer.correlation_id.as_ref().and_then(|id| id.value.as_ref()) {
                    Some(uuid::Value::Structured(halves)) => Id::from(*halves) as u64,
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

/// What a batch has to be answered, now that everything before it is done.
fn wanted(run: &mut Run<'_>, batch: &Batch) -> Wanted {
    match batch.flaw {
        Flaw::Nothing => {}
        Flaw::TooLate => return Wanted::Late,
        _ => return Wanted::Bad,
    }
    let stream = run.streams.of(batch.stream);
    let last = |first: u64| first + batch.ids.len() as u64 - 1;
    match stream.fate(batch.wants, &batch.ids) {
        Fate::Written(first) => Wanted::Written(last(first)),
        Fate::There(first) => {
            Wanted::There(last(first), stream.events[last(first) as usize].position)
        }
        Fate::Nothing(at) => Wanted::Nothing(at),
        Fate::Wrong(at) => Wanted::Wrong(at),
        Fate::Ended => Wanted::Ended,
    }
}

fn judge(run: &mut Run<'_>, batch: &Batch, answer: BatchAppendResp) -> Result<(), String> {
    let wanted = wanted(run, batch);
    let echoed = (answer.stream_identifier.clone(), answer.expected_stream_position);
    if echoed != echo(batch) {
        return Err(format!("the answer repeats {echoed:?}"));
    }
    let is_right = match (&wanted, &answer.result) {
        (
            Wanted::Written(_) | Wanted::There(..) | Wanted::Nothing(_),
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
                (Wanted::Written(last), Some(position)) => {
                    let is_new = position > run.streams.top;
                    run.streams.append(batch.stream, &batch.ids, position);
                    is_new && revision == Some(*last)
                }
                (Wanted::There(last, known), Some(position)) => {
                    revision == Some(*last) && known.is_none_or(|known| known == position)
                }
                (Wanted::Nothing(last), None) => revision == *last,
                _ => false,
            }
        }
        (wanted, Some(Outcome::Error(error))) => {
            let (code, name, at) = refusal(wanted);
            let detail = error.details.clone().unwrap_or_default();
            let is_named = detail.type_url.ends_with(&format!("event_store.client.{name}"));
            let facts = WrongExpectedVersion::decode(&detail.value[..]).ok();
            let is_told = at.is_none_or(|at| facts == Some(told(batch.wants, at)));
            error.code == code as i32 && is_named && is_told
        }
        _ => false,
    };
    run.tally.add("batches judged", 1);
    if is_right { Ok(()) } else { Err(format!("{answer:?} and not {wanted:?}")) }
}

/// Code and detail of a refusal, and what the stream is at where that is told.
fn refusal(wanted: &Wanted) -> (Code, &'static str, Option<Option<u64>>) {
    match wanted {
        Wanted::Wrong(at) => (Code::AlreadyExists, "WrongExpectedVersion", Some(*at)),
        Wanted::Ended => (Code::NotFound, "StreamDeleted", None),
        Wanted::Bad => (Code::InvalidArgument, "BadRequest", None),
        Wanted::Late => (Code::DeadlineExceeded, "Timeout", None),
        Wanted::Written(_) | Wanted::There(..) | Wanted::Nothing(_) => (Code::Ok, "", None),
    }
}

fn told(wants: Wants, at: Option<u64>) -> WrongExpectedVersion {
    use wrong_expected_version::{Current, Expected};
    let expected = match wants {
        Wants::Any => Expected::Any(()),
        Wants::NoStream => Expected::NoStream(()),
        Wants::Exists => Expected::StreamExists(()),
        Wants::At(revision) => Expected::StreamPosition(revision),
    };
    let current = at.map_or(Current::NoStream(()), Current::StreamRevision);
    WrongExpectedVersion { current: Some(current), expected: Some(expected) }
}

/// What an answer repeats of its batch.
fn echo(batch: &Batch) -> (Option<StreamIdentifier>, Option<batch_append_resp::Expected>) {
    use batch_append_resp::Expected;
    let expected = match batch.wants {
        Wants::Any => Expected::Any(()),
        Wants::NoStream => Expected::NoStream(()),
        Wants::Exists => Expected::StreamExists(()),
        Wants::At(revision) => Expected::StreamPosition(revision),
    };
    match batch.flaw {
        Flaw::NoOptions => (None, None),
        Flaw::NoWants => (name(batch), None),
        // It is not kept.
        Flaw::LongName => (None, Some(expected)),
        _ => (name(batch), Some(expected)),
    }
}
