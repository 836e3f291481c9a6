//! `AppendSession`: atomic appends of records to several streams.

use futures_util::stream;
use prost::Message;
use tonic::{Code, Status};
use umbel_proto::status::{self, ErrorInfo};
use umbel_proto::v2::errors::{
    StreamAlreadyInAppendSessionErrorDetails, StreamRevisionConflictErrorDetails,
    StreamTombstonedErrorDetails,
};
use umbel_proto::v2::streams::{
    AppendRecord, AppendRequest, AppendSessionResponse, SERVICE, SchemaInfo,
};

use super::CallRun;
use crate::server::calls::call_server::one_of;
use crate::server::calls::stream_model::{AppendFate, CallEventId, StreamExpectation};

/// Flaw of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SessionFlaw {
    Nothing,
    NoParts,
    NoRecords,
    OddWants,
    EmptyName,
    LongName,
    Twice,
    TwiceInCapitals,
    OtherStream,
    NoFormat,
    NoKind,
    NoId,
}

const SESSION_FLAWS: [SessionFlaw; 11] = [
    SessionFlaw::NoParts,
    SessionFlaw::NoRecords,
    SessionFlaw::OddWants,
    SessionFlaw::EmptyName,
    SessionFlaw::LongName,
    SessionFlaw::Twice,
    SessionFlaw::TwiceInCapitals,
    SessionFlaw::OtherStream,
    SessionFlaw::NoFormat,
    SessionFlaw::NoKind,
    SessionFlaw::NoId,
];

/// The records for one stream.
#[derive(Debug, Clone)]
pub struct SessionPart {
    stream: &'static str,
    wants: StreamExpectation,
    ids: Vec<CallEventId>,
}

/// Sends a session and checks its answer.
pub async fn call(run: &mut CallRun<'_>) -> Result<(), String> {
    let (parts, is_former) = session(run);
    let is_flawed = !is_former && run.random.once_in(3);
    let flaw =
        if is_flawed { one_of(&mut run.random, &SESSION_FLAWS) } else { SessionFlaw::Nothing };
    let requests = requests(run, &parts, flaw);
    let what = format!("a session of {parts:?}, {flaw:?}");
    let describe = |why: String| format!("{what}: {why}");
    let client = run.admin();
    let answer = client.client_streaming(SERVICE, "AppendSession", stream::iter(requests)).await;
    run.tally.add("sessions judged", 1);
    match flaw {
        SessionFlaw::Nothing => check_answer(run, &parts, answer).map_err(describe)?,
        SessionFlaw::NoParts => {
            refusal_info(answer, Code::FailedPrecondition, "APPEND_SESSION_NO_REQUESTS")
                .map_err(describe)?;
        }
        SessionFlaw::Twice | SessionFlaw::TwiceInCapitals => {
            let reason = "STREAM_ALREADY_IN_APPEND_SESSION";
            let facts = refusal_info(answer, Code::Aborted, reason).map_err(describe)?;
            let decoded = StreamAlreadyInAppendSessionErrorDetails::decode(&facts[..]);
            let twice = repeated_name(parts[0].stream, flaw);
            if decoded.as_ref().map(|facts| &*facts.stream) != Ok(&*twice) {
                return Err(describe(format!("{decoded:?} and not {twice}")));
            }
        }
        _ => drop(refusal_info(answer, Code::InvalidArgument, "BAD_REQUEST").map_err(describe)?),
    }
    if flaw == SessionFlaw::Nothing {
        run.sessions.push(parts);
    }
    Ok(())
}

/// Creates a session of one to three streams, or sometimes an earlier one.
fn session(run: &mut CallRun<'_>) -> (Vec<SessionPart>, bool) {
    if run.random.once_in(4)
        && let Some(former) = run.former_batch(|run| run.sessions.clone())
    {
        let fates: Vec<AppendFate> = former.iter().map(|part| fate(run, part)).collect();
        let would_double = former.iter().zip(&fates).any(|(part, fate)| {
            matches!(fate, AppendFate::Written(_))
                && run.streams.of(part.stream).has_any_id(&part.ids)
        });
        if !would_double {
            return (former, true);
        }
    }
    let mut parts: Vec<SessionPart> = Vec::new();
    for _ in 0..1 + run.random.below(3) {
        let stream = run.stream();
        if parts.iter().all(|part| part.stream != stream) {
            let (wants, count) = (run.random_expectation(stream), 1 + run.random.below(2));
            parts.push(SessionPart { stream, wants, ids: run.new_ids(count) });
        }
    }
    (parts, false)
}

fn fate(run: &mut CallRun<'_>, part: &SessionPart) -> AppendFate {
    run.streams.of(part.stream).fate(part.wants, &part.ids)
}

/// Returns the name of a repeated stream.
fn repeated_name(stream: &str, flaw: SessionFlaw) -> String {
    match flaw {
        SessionFlaw::TwiceInCapitals => stream.to_uppercase(),
        _ => stream.to_string(),
    }
}

fn number(wants: StreamExpectation) -> i64 {
    match wants {
        StreamExpectation::Any => -2,
        StreamExpectation::NoStream => -1,
        StreamExpectation::Exists => -4,
        StreamExpectation::At(revision) => revision as i64,
    }
}

fn record(id: CallEventId) -> AppendRecord {
    let text = format!("{id:032x}");
    let groups = [&text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..]];
    AppendRecord {
        record_id: Some(groups.join("-")),
        schema: Some(SchemaInfo { format: 1, name: "Counted".to_string(), id: None }),
        data: id.to_string().into_bytes(),
        ..AppendRecord::default()
    }
}

fn requests(run: &mut CallRun<'_>, parts: &[SessionPart], flaw: SessionFlaw) -> Vec<AppendRequest> {
    let mut requests: Vec<AppendRequest> = parts
        .iter()
        .map(|part| AppendRequest {
            stream: part.stream.to_string(),
            records: part.ids.iter().map(|id| record(*id)).collect(),
            // A missing expectation means any.
            expected_revision: Some(number(part.wants))
                .filter(|_| part.wants != StreamExpectation::Any || run.random.once_in(2)),
        })
        .collect();
    let last = requests.len() - 1;
    let request = &mut requests[last];
    match flaw {
        SessionFlaw::Nothing => {}
        SessionFlaw::NoParts => requests.clear(),
        SessionFlaw::NoRecords => request.records.clear(),
        SessionFlaw::OddWants => {
            request.expected_revision = Some(one_of(&mut run.random, &[-3, -5, -6, -7, i64::MIN]));
        }
        SessionFlaw::EmptyName => request.stream.clear(),
        SessionFlaw::LongName => request.stream = "n".repeat(1025),
        SessionFlaw::Twice | SessionFlaw::TwiceInCapitals => {
            let stream = repeated_name(parts[0].stream, flaw);
            let records = vec![record(run.new_ids(1)[0])];
            requests.push(AppendRequest { stream, records, expected_revision: None });
        }
        SessionFlaw::OtherStream => request.records[0].stream = "elsewhere".to_string(),
        SessionFlaw::NoFormat => request.records[0].schema = None,
        SessionFlaw::NoKind => {
            let schema = SchemaInfo { format: 1, ..SchemaInfo::default() };
            request.records[0].schema = Some(schema);
        }
        SessionFlaw::NoId => request.records[0].record_id = Some("seven".to_string()),
    }
    requests
}

/// Returns the details of a refusal, if it is the expected one.
fn refusal_info<T: std::fmt::Debug>(
    answer: Result<T, Status>,
    code: Code,
    reason: &str,
) -> Result<Vec<u8>, String> {
    let status = match answer {
        Err(status) if status.code() == code => status,
        other => return Err(format!("{other:?} and not {code:?}")),
    };
    let rich = status::Status::decode(status.details()).map_err(|error| error.to_string())?;
    let (first, others) = rich.details.split_first().ok_or("a refusal without its kind")?;
    let info = ErrorInfo::decode(&first.value[..]).map_err(|error| error.to_string())?;
    if info.reason != reason || rich.code != code as i32 {
        return Err(format!("{status:?}, {info:?}, and not {reason}"));
    }
    Ok(others.last().map(|facts| facts.value.clone()).unwrap_or_default())
}

fn check_answer(
    run: &mut CallRun<'_>,
    parts: &[SessionPart],
    answer: Result<AppendSessionResponse, Status>,
) -> Result<(), String> {
    let fates: Vec<AppendFate> = parts.iter().map(|part| fate(run, part)).collect();
    let is_wrong = |fate: &AppendFate| {
        matches!(fate, AppendFate::Wrong(_) | AppendFate::Deleted(_) | AppendFate::Ended)
    };
    let known = fates.iter().filter(|fate| matches!(fate, AppendFate::There(_))).count();
    if known > 0 && known < fates.len() {
        // No part of a refused session may exist; any of its streams may be named.
        let refused_with = answer.as_ref().map_err(Status::code).err();
        return match refused_with {
            Some(Code::FailedPrecondition) => Ok(()),
            _ => Err(format!("{fates:?} was answered with {answer:?}")),
        };
    }
    let first = parts.iter().zip(&fates).find(|(_, fate)| is_wrong(fate));
    match first {
        Some((part, AppendFate::Ended)) => {
            let facts = refusal_info(answer, Code::FailedPrecondition, "STREAM_TOMBSTONED")?;
            let decoded = StreamTombstonedErrorDetails::decode(&facts[..]);
            match decoded {
                Ok(decoded) if decoded.stream == part.stream => Ok(()),
                decoded => Err(format!("{decoded:?} and not {part:?}")),
            }
        }
        Some((part, fate)) => {
            let at = match fate {
                AppendFate::Wrong(at) | AppendFate::Deleted(at) => *at,
                _ => None,
            };
            let facts = refusal_info(answer, Code::FailedPrecondition, "STREAM_REVISION_CONFLICT")?;
            let decoded = StreamRevisionConflictErrorDetails::decode(&facts[..]);
            let wanted = StreamRevisionConflictErrorDetails {
                stream: part.stream.to_string(),
                expected_revision: number(part.wants),
                actual_revision: at.map_or(-1, |at| at as i64),
            };
            if decoded.as_ref() == Ok(&wanted) {
                Ok(())
            } else {
                Err(format!("{decoded:?}, {wanted:?}"))
            }
        }
        None => check_done(run, parts, &fates, answer.map_err(|status| format!("{status:?}"))?),
    }
}

fn check_done(
    run: &mut CallRun<'_>,
    parts: &[SessionPart],
    fates: &[AppendFate],
    answer: AppendSessionResponse,
) -> Result<(), String> {
    let mut position_max = 0;
    let before = run.streams.top;
    if answer.output.len() != parts.len() {
        return Err(format!("{answer:?} for {} streams", parts.len()));
    }
    for ((part, fate), output) in parts.iter().zip(fates).zip(&answer.output) {
        let position = output.position.and_then(|position| u64::try_from(position).ok());
        let position = position.ok_or_else(|| format!("{output:?} has no place"))?;
        position_max = position_max.max(position);
        let (first, known) = match fate {
            AppendFate::There(first) => {
                let last = *first as usize + part.ids.len() - 1;
                (*first, run.streams.of(part.stream).events[last].position)
            }
            AppendFate::Written(first) => {
                if position <= before.max(run.streams.top) {
                    return Err(format!("{answer:?} is at a place that was taken"));
                }
                run.streams.append(part.stream, &part.ids, position);
                (*first, Some(position))
            }
            _ => return Err(format!("{fate:?} was done")),
        };
        let last = first as i64 + part.ids.len() as i64 - 1;
        let is_right = output.stream == part.stream
            && output.stream_revision == last
            && known.is_none_or(|known| known == position);
        if !is_right {
            return Err(format!("{output:?} for {part:?}, {fate:?}"));
        }
    }
    if answer.position == position_max as i64 {
        Ok(())
    } else {
        Err(format!("{answer:?}, not {position_max}"))
    }
}
