//! Deletes and reads of streams.

use tonic::Code;
use umbel_proto::read_options::{at_most, backwards, of_all, of_stream};
use umbel_proto::shared::uuid;
use umbel_proto::streams::read_req::{AllOption, Options, RevisionOption};
use umbel_proto::streams::read_resp::{Content, RecordedEvent};
use umbel_proto::streams::{DeleteOptions, DeleteReq, DeleteResp, ExpectedRevision, SERVICE};

use super::{CallRun, STREAM_NAMES};
use crate::server::calls::call_server::{ExpectedEnd, exception};
use crate::server::calls::stream_model::{CallEventId, StreamExpectation};

/// Answer to a read.
enum ReadAnswer {
    /// These events.
    Events(Vec<RecordedEvent>),
    /// The stream does not exist.
    Missing,
    /// The stream was tombstoned.
    Ended,
}

/// Deletes a stream, sometimes by a tombstone.
pub async fn delete(run: &mut CallRun<'_>) -> Result<(), String> {
    let name = run.stream();
    let is_for_good = name == STREAM_NAMES[0] && run.random.once_in(12);
    let wants = run.random_expectation(name);
    let stream = run.streams.of(name);
    if stream.is_deleted || stream.events.is_empty() {
        // The tests of the store cover the delete of an absent stream.
        return Ok(());
    }
    let end = match (stream.is_tombstoned, stream.is_at(wants)) {
        (true, _) => ExpectedEnd::Named(Code::FailedPrecondition, "stream-deleted"),
        (false, false) => ExpectedEnd::Named(Code::FailedPrecondition, "wrong-expected-version"),
        (false, true) => ExpectedEnd::Success,
    };
    let expected = match wants {
        StreamExpectation::Any => ExpectedRevision::Any(()),
        StreamExpectation::NoStream => ExpectedRevision::NoStream(()),
        StreamExpectation::Exists => ExpectedRevision::StreamExists(()),
        StreamExpectation::At(revision) => ExpectedRevision::Revision(revision),
    };
    let options = DeleteOptions {
        stream_identifier: Some(name.into()),
        expected_stream_revision: Some(expected),
    };
    let (method, request) = match is_for_good {
        true => ("Tombstone", DeleteReq { options: Some(options) }),
        false => ("Delete", DeleteReq { options: Some(options) }),
    };
    let answer = run.admin().unary::<_, DeleteResp>(SERVICE, method, request).await;
    end.check(&format!("{method} of {name} that wants {wants:?}"), answer)?;
    if end == ExpectedEnd::Success {
        let stream = run.streams.of(name);
        (stream.is_deleted, stream.is_tombstoned) = (!is_for_good, is_for_good);
    }
    Ok(())
}

/// Reads a stream from a random revision, in one direction.
pub async fn read(run: &mut CallRun<'_>) -> Result<(), String> {
    let name = run.stream();
    let known = run.streams.of(name).events.len() as u64;
    let (is_backwards, count) = (run.random.once_in(2), 1 + run.random.below(30));
    let from = run.random.once_in(2).then(|| run.random.below(known + 2));
    let shown = run.streams.of(name).visible_events();
    let (wanted, start): (Vec<_>, _) = match (is_backwards, from) {
        (false, None) => (shown, RevisionOption::Start(())),
        (true, None) => (shown.into_iter().rev().collect(), RevisionOption::End(())),
        (false, Some(from)) => {
            let wanted = shown.into_iter().filter(|(revision, _)| *revision >= from);
            (wanted.collect(), RevisionOption::Revision(from))
        }
        (true, Some(from)) => {
            let wanted = shown.into_iter().rev().filter(|(revision, _)| *revision <= from);
            (wanted.collect(), RevisionOption::Revision(from))
        }
    };
    let options = at_most(count, of_stream(name, start));
    let options = if is_backwards { backwards(options) } else { options };
    let what = format!("a read of {name}, backwards: {is_backwards}, from {from:?}");
    compare(run, name, options, &wanted[..wanted.len().min(count as usize)], &what).await
}

async fn compare(
    run: &mut CallRun<'_>,
    name: &'static str,
    options: Options,
    wanted: &[(u64, CallEventId)],
    what: &str,
) -> Result<(), String> {
    run.tally.add("reads judged", 1);
    let stream = run.streams.of(name);
    let is_missing = stream.events.is_empty() || stream.is_deleted;
    let is_ended = stream.is_tombstoned;
    match read_events(run, options).await.map_err(|why| format!("{what}: {why}"))? {
        ReadAnswer::Ended if is_ended => Ok(()),
        ReadAnswer::Missing if is_missing && !is_ended => Ok(()),
        ReadAnswer::Events(events) if !is_missing && !is_ended => {
            let found: Vec<(u64, CallEventId)> = events
                .iter()
                .map(|event| Some((event.stream_revision, id_of(event)?)))
                .collect::<Option<_>>()
                .unwrap_or_default();
            if found != wanted {
                return Err(format!("{what}: {found:?} and not {wanted:?}"));
            }
            events.iter().try_for_each(|event| check_event(run, name, event))
        }
        _ => Err(format!("{what}: a missing or tombstoned stream is reported wrongly")),
    }
}

/// Checks that an event has its appended data and its acknowledged position.
fn check_event(
    run: &mut CallRun<'_>,
    name: &'static str,
    event: &RecordedEvent,
) -> Result<(), String> {
    let id = id_of(event).ok_or("an event without an id")?;
    let known = &mut run.streams.of(name).events[event.stream_revision as usize];
    let position = event.commit_position;
    if *known.position.get_or_insert(position) != position {
        return Err(format!("an event of {name} is at {position} and not at {known:?}"));
    }
    if event.data[..] != *id.to_string().as_bytes() {
        return Err(format!("an event of {name} has other data: {event:?}"));
    }
    Ok(())
}

fn id_of(event: &RecordedEvent) -> Option<CallEventId> {
    match event.id.as_ref()?.value.as_ref()? {
        uuid::Value::Structured(halves) => Some(CallEventId::from(*halves)),
        uuid::Value::String(_) => None,
    }
}

async fn read_events(run: &CallRun<'_>, options: Options) -> Result<ReadAnswer, String> {
    let mut answers = match run.admin().subscribe(options).await {
        Ok(answers) => answers,
        Err(status) if exception(&status) == Some("stream-deleted") => {
            return Ok(ReadAnswer::Ended);
        }
        Err(status) => return Err(format!("{status:?}")),
    };
    let mut events = Vec::new();
    loop {
        match answers.message().await {
            Ok(None) => return Ok(ReadAnswer::Events(events)),
            Ok(Some(answer)) => match answer.content {
                Some(Content::Event(event)) => events.extend(event.event),
                Some(Content::StreamNotFound(_)) if events.is_empty() => {
                    return Ok(ReadAnswer::Missing);
                }
                other => return Err(format!("a read returned {other:?}")),
            },
            Err(status) if exception(&status) == Some("stream-deleted") => {
                return Ok(ReadAnswer::Ended);
            }
            Err(status) => return Err(format!("{status:?}")),
        }
    }
}

/// Checks that every stream, and all events in order, match the model.
pub async fn check_everything(run: &mut CallRun<'_>) -> Result<(), String> {
    for name in STREAM_NAMES {
        let wanted = run.streams.of(name).visible_events();
        let options = of_stream(name, RevisionOption::Start(()));
        compare(run, name, options, &wanted, &format!("the last read of {name}")).await?;
    }
    let ReadAnswer::Events(events) = read_events(run, of_all(AllOption::Start(()))).await? else {
        return Err("all events are no stream that can be missing".to_string());
    };
    let mut found = Vec::new();
    let mut last = None;
    for event in &events {
        if last.is_some_and(|last| event.commit_position <= last) {
            return Err(format!("an event is not after {last:?}: {event:?}"));
        }
        last = Some(event.commit_position);
        let stream = event.stream_identifier.clone().unwrap_or_default();
        let name = STREAM_NAMES.into_iter().find(|name| name.as_bytes() == &stream.stream_name[..]);
        // Events of the server itself and tombstones do not count.
        if let (Some(name), Some("Counted")) =
            (name, event.metadata.get("type").map(|kind| &**kind))
        {
            check_event(run, name, event)?;
            found.push((name, event.stream_revision, id_of(event).unwrap_or_default()));
        }
    }
    if found != run.streams.all {
        return Err(format!("all events are {found:?} and not {:?}", run.streams.all));
    }
    Ok(())
}
