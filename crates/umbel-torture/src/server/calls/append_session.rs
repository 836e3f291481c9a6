//! `AppendSession`: records for several streams, together or not at all.

use futures_util::stream;
use prost::Message;
use tonic::{Code, Status};
use umbel_proto::status::{ErrorInfo, RichStatus};
use umbel_proto::v2::errors::{
    StreamAlreadyInAppendSessionErrorDetails, StreamRevisionConflictErrorDetails,
    StreamTombstonedErrorDetails,
};
use umbel_proto::v2::streams::{
    AppendRecord, AppendRequest, AppendSessionResponse, SERVICE, SchemaInfo,
};

use super::Run;
use super::model::{Fate, Id, Wants};
use super::world::one_of;

/// What is wrong with a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
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

const FLAWS: [Flaw; 11] = [
    Flaw::NoParts,
    Flaw::NoRecords,
    Flaw::OddWants,
    Flaw::EmptyName,
    Flaw::LongName,
    Flaw::Twice,
    Flaw::TwiceInCapitals,
    Flaw::OtherStream,
    Flaw::NoFormat,
    Flaw::NoKind,
    Flaw::NoId,
];

/// The records for one stream.
#[derive(Debug, Clone)]
pub struct Part {
    stream: &'static str,
    wants: Wants,
    ids: Vec<Id>,
}

/// Sends a session and compares its answer.
pub async fn call(run: &mut Run<'_>) -> Result<(), String> {
    let (parts, is_former) = session(run);
    let is_flawed = !is_former && run.random.once_in(3);
    let flaw = if is_flawed { one_of(&mut run.random, &FLAWS) } else { Flaw::Nothing };
    let requests = requests(run, &parts, flaw);
    let what = format!("a session of {parts:?}, {flaw:?}");
    let said = |why: String| format!("{what}: {why}");
    let client = run.admin();
    let answer = client.client_streaming(SERVICE, "AppendSession", stream::iter(requests)).await;
    run.tally.add("sessions judged", 1);
    match flaw {
        Flaw::Nothing => judge(run, &parts, answer).map_err(said)?,
        Flaw::NoParts => {
            refused(answer, Code::FailedPrecondition, "APPEND_SESSION_NO_REQUESTS")
                .map_err(said)?;
        }
        Flaw::Twice | Flaw::TwiceInCapitals => {
            let reason = "STREAM_ALREADY_IN_APPEND_SESSION";
            let facts = refused(answer, Code::Aborted, reason).map_err(said)?;
            let told = StreamAlreadyInAppendSessionErrorDetails::decode(&facts[..]);
            let twice = twice(parts[0].stream, flaw);
            if told.as_ref().map(|facts| &*facts.stream) != Ok(&*twice) {
                return Err(said(format!("{told:?} and not {twice}")));
            }
        }
        _ => drop(refused(answer, Code::InvalidArgument, "BAD_REQUEST").map_err(said)?),
    }
    if flaw == Flaw::Nothing {
        run.sessions.push(parts);
    }
    Ok(())
}

/// A session of one to three streams; sometimes one that was sent before.
fn session(run: &mut Run<'_>) -> (Vec<Part>, bool) {
    if run.random.once_in(4)
        && let Some(former) = run.former(|run| run.sessions.clone())
    {
        let fates: Vec<Fate> = former.iter().map(|part| fate(run, part)).collect();
        let would_double = former.iter().zip(&fates).any(|(part, fate)| {
            matches!(fate, Fate::Written(_)) && run.streams.of(part.stream).knows(&part.ids)
        });
        if !would_double {
            return (former, true);
        }
    }
    let mut parts: Vec<Part> = Vec::new();
    for _ in 0..1 + run.random.below(3) {
        let stream = run.stream();
        if parts.iter().all(|part| part.stream != stream) {
            let (wants, count) = (run.wants(stream), 1 + run.random.below(2));
            parts.push(Part { stream, wants, ids: run.new_ids(count) });
        }
    }
    (parts, false)
}

fn fate(run: &mut Run<'_>, part: &Part) -> Fate {
    run.streams.of(part.stream).fate(part.wants, &part.ids)
}

/// How a stream is named once more.
fn twice(stream: &str, flaw: Flaw) -> String {
    match flaw {
        Flaw::TwiceInCapitals => stream.to_uppercase(),
        _ => stream.to_string(),
    }
}

fn number(wants: Wants) -> i64 {
    match wants {
        Wants::Any => -2,
        Wants::NoStream => -1,
        Wants::Exists => -4,
        Wants::At(revision) => revision as i64,
    }
}

fn record(id: Id) -> AppendRecord {
    let text = format!("{id:032x}");
    let groups = [&text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..]];
    AppendRecord {
        record_id: Some(groups.join("-")),
        schema: Some(SchemaInfo { format: 1, name: "Counted".to_string(), id: None }),
        data: id.to_string().into_bytes(),
        ..AppendRecord::default()
    }
}

fn requests(run: &mut Run<'_>, parts: &[Part], flaw: Flaw) -> Vec<AppendRequest> {
    let mut requests: Vec<AppendRequest> = parts
        .iter()
        .map(|part| AppendRequest {
            stream: part.stream.to_string(),
            records: part.ids.iter().map(|id| record(*id)).collect(),
            // Nothing said is any.
            expected_revision: Some(number(part.wants))
                .filter(|_| part.wants != Wants::Any || run.random.once_in(2)),
        })
        .collect();
    let last = requests.len() - 1;
    let request = &mut requests[last];
    match flaw {
        Flaw::Nothing => {}
        Flaw::NoParts => requests.clear(),
        Flaw::NoRecords => request.records.clear(),
        Flaw::OddWants => {
            request.expected_revision = Some(one_of(&mut run.random, &[-3, -5, -6, -7, i64::MIN]));
        }
        Flaw::EmptyName => request.stream.clear(),
        Flaw::LongName => request.stream = "n".repeat(1025),
        Flaw::Twice | Flaw::TwiceInCapitals => {
            let stream = twice(parts[0].stream, flaw);
            let records = vec![record(run.new_ids(1)[0])];
            requests.push(AppendRequest { stream, records, expected_revision: None });
        }
        Flaw::OtherStream => request.records[0].stream = "elsewhere".to_string(),
        Flaw::NoFormat => request.records[0].schema = None,
        Flaw::NoKind => {
            let schema = SchemaInfo { format: 1, ..SchemaInfo::default() };
            request.records[0].schema = Some(schema);
        }
        Flaw::NoId => request.records[0].record_id = Some("seven".to_string()),
    }
    requests
}

/// The facts of a refusal, where it is this one.
fn refused<T: std::fmt::Debug>(
    answer: Result<T, Status>,
    code: Code,
    reason: &str,
) -> Result<Vec<u8>, String> {
    let status = match answer {
        Err(status) if status.code() == code => status,
        other => return Err(format!("{other:?} and not {code:?}")),
    };
    let rich = RichStatus::decode(status.details()).map_err(|error| error.to_string())?;
    let (first, others) = rich.details.split_first().ok_or("a refusal without its kind")?;
    let info = ErrorInfo::decode(&first.value[..]).map_err(|error| error.to_string())?;
    if info.reason != reason || rich.code != code as i32 {
        return Err(format!("{status:?}, {info:?}, and not {reason}"));
    }
    Ok(others.last().map(|facts| facts.value.clone()).unwrap_or_default())
}

fn judge(
    run: &mut Run<'_>,
    parts: &[Part],
    answer: Result<AppendSessionResponse, Status>,
) -> Result<(), String> {
    let fates: Vec<Fate> = parts.iter().map(|part| fate(run, part)).collect();
    let is_wrong = |fate: &Fate| matches!(fate, Fate::Wrong(_) | Fate::Ended);
    let known = fates.iter().filter(|fate| matches!(fate, Fate::There(_))).count();
    if known > 0 && known < fates.len() {
        // A part of what happens together cannot have happened; which stream is told is left open.
        let refused_with = answer.as_ref().map_err(Status::code).err();
        return match refused_with {
            Some(Code::FailedPrecondition) => Ok(()),
            _ => Err(format!("{fates:?} was answered with {answer:?}")),
        };
    }
    let first = parts.iter().zip(&fates).find(|(_, fate)| is_wrong(fate));
    match first {
        Some((part, Fate::Ended)) => {
            let facts = refused(answer, Code::FailedPrecondition, "STREAM_TOMBSTONED")?;
            let told = StreamTombstonedErrorDetails::decode(&facts[..]);
            match told {
                Ok(told) if told.stream == part.stream => Ok(()),
                told => Err(format!("{told:?} and not {part:?}")),
            }
        }
        Some((part, fate)) => {
            let at = if let Fate::Wrong(at) = fate { *at } else { None };
            let facts = refused(answer, Code::FailedPrecondition, "STREAM_REVISION_CONFLICT")?;
            let told = StreamRevisionConflictErrorDetails::decode(&facts[..]);
            let wanted = StreamRevisionConflictErrorDetails {
                stream: part.stream.to_string(),
                expected_revision: number(part.wants),
                actual_revision: at.map_or(-1, |at| at as i64),
            };
            if told.as_ref() == Ok(&wanted) { Ok(()) } else { Err(format!("{told:?}, {wanted:?}")) }
        }
        None => done(run, parts, &fates, answer.map_err(|status| format!("{status:?}"))?),
    }
}

fn done(
    run: &mut Run<'_>,
    parts: &[Part],
    fates: &[Fate],
    answer: AppendSessionResponse,
) -> Result<(), String> {
    let mut most = 0;
    let before = run.streams.top;
    if answer.output.len() != parts.len() {
        return Err(format!("{answer:?} for {} streams", parts.len()));
    }
    for ((part, fate), output) in parts.iter().zip(fates).zip(&answer.output) {
        let position = output.position.and_then(|position| u64::try_from(position).ok());
        let position = position.ok_or_else(|| format!("{output:?} has no place"))?;
        most = most.max(position);
        let (first, known) = match fate {
            Fate::There(first) => {
                let last = *first as usize + part.ids.len() - 1;
                (*first, run.streams.of(part.stream).events[last].position)
            }
            Fate::Written(first) => {
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
    if answer.position == most as i64 { Ok(()) } else { Err(format!("{answer:?}, not {most}")) }
}
