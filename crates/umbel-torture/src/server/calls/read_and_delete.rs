//! Deleting streams, and what reads show.

use tonic::Code;
use umbel_proto::reading::{at_most, backwards, of_all, of_stream};
use umbel_proto::shared::uuid;
use umbel_proto::streams::read_req::{AllOption, Options, RevisionOption};
use umbel_proto::streams::read_resp::{Content, RecordedEvent};
use umbel_proto::streams::{DeleteOptions, DeleteReq, DeleteResp, ExpectedRevision, SERVICE};

use super::model::{Id, Wants};
use super::world::{End, exception};
use super::{NAMES, Run};

/// What a read was answered.
enum Read {
    /// These events.
    Events(Vec<RecordedEvent>),
    /// There is no such stream.
    Missing,
    /// It was tombstoned.
    Ended,
}

/// Deletes a stream, once in a while for good.
pub async fn delete(run: &mut Run<'_>) -> Result<(), String> {
    let name = run.stream();
    let is_for_good = name == NAMES[0] && run.random.once_in(12);
    let wants = run.wants(name);
    let stream = run.streams.of(name);
    if stream.is_deleted || stream.events.is_empty() {
        // Whoever deletes what is not there is asked about in the tests of the store.
        return Ok(());
    }
    let end = match (stream.is_ended, stream.is_at(wants)) {
        (true, _) => End::Named(Code::FailedPrecondition, "stream-deleted"),
        (false, false) => End::Named(Code::FailedPrecondition, "wrong-expected-version"),
        (false, true) => End::Well,
    };
    let expected = match wants {
        Wants::Any => ExpectedRevision::Any(()),
        Wants::NoStream => ExpectedRevision::NoStream(()),
        Wants::Exists => ExpectedRevision::StreamExists(()),
        Wants::At(revision) => ExpectedRevision::Revision(revision),
    };
    let options = DeleteOptions {
        stream_identifier: Some(name.into()),
        expected_stream_revision: Some(expected),
    };
    let (method, asked) = match is_for_good {
        true => ("Tombstone", DeleteReq { options: Some(options) }),
        false => ("Delete", DeleteReq { options: Some(options) }),
    };
    let answer = run.admin().unary::<_, DeleteResp>(SERVICE, method, asked).await;
    end.is(&format!("{method} of {name} that wants {wants:?}"), answer)?;
    if end == End::Well {
        let stream = run.streams.of(name);
        (stream.is_deleted, stream.is_ended) = (!is_for_good, is_for_good);
    }
    Ok(())
}

/// Reads a stream from somewhere, in one direction.
pub async fn read(run: &mut Run<'_>) -> Result<(), String> {
    let name = run.stream();
    let known = run.streams.of(name).events.len() as u64;
    let (is_backwards, count) = (run.random.once_in(2), 1 + run.random.below(30));
    let from = run.random.once_in(2).then(|| run.random.below(known + 2));
    let shown = run.streams.of(name).shown();
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
    run: &mut Run<'_>,
    name: &'static str,
    options: Options,
    wanted: &[(u64, Id)],
    what: &str,
) -> Result<(), String> {
    run.tally.add("reads judged", 1);
    let stream = run.streams.of(name);
    let is_missing = stream.events.is_empty() || stream.is_deleted;
    let is_ended = stream.is_ended;
    match ask(run, options).await.map_err(|why| format!("{what}: {why}"))? {
        Read::Ended if is_ended => Ok(()),
        Read::Missing if is_missing && !is_ended => Ok(()),
        Read::Events(events) if !is_missing && !is_ended => {
            let found: Vec<(u64, Id)> = events
                .iter()
                .map(|event| Some((event.stream_revision, id_of(event)?)))
                .collect::<Option<_>>()
                .unwrap_or_default();
            if found != wanted {
                return Err(format!("{what}: {found:?} and not {wanted:?}"));
            }
            events.iter().try_for_each(|event| place(run, name, event))
        }
        _ => Err(format!("{what}: it is not told that it is missing or ended, or is")),
    }
}

/// Whether an event says what was appended, and is where somebody was told that it is.
fn place(run: &mut Run<'_>, name: &'static str, event: &RecordedEvent) -> Result<(), String> {
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

fn id_of(event: &RecordedEvent) -> Option<Id> {
    match event.id.as_ref()?.value.as_ref()? {
        uuid::Value::Structured(halves) => Some(Id::from(*halves)),
        uuid::Value::String(_) => None,
    }
}

async fn ask(run: &Run<'_>, options: Options) -> Result<Read, String> {
    let mut answers = match run.admin().subscribe(options).await {
        Ok(answers) => answers,
        Err(status) => return Err(format!("{status:?}")),
    };
    let mut events = Vec::new();
    loop {
        match answers.message().await {
            Ok(None) => return Ok(Read::Events(events)),
            Ok(Some(answer)) => match answer.content {
                Some(Content::Event(event)) => events.extend(event.event),
                Some(Content::StreamNotFound(_)) if events.is_empty() => return Ok(Read::Missing),
                other => return Err(format!("a read was told {other:?}")),
            },
            Err(status) if exception(&status) == Some("stream-deleted") => return Ok(Read::Ended),
            Err(status) => return Err(format!("{status:?}")),
        }
    }
}

/// Every stream, and all events in their order, are as they have to be.
pub async fn everything(run: &mut Run<'_>) -> Result<(), String> {
    for name in NAMES {
        let wanted = run.streams.of(name).shown();
        let options = of_stream(name, RevisionOption::Start(()));
        compare(run, name, options, &wanted, &format!("the last read of {name}")).await?;
    }
    let Read::Events(events) = ask(run, of_all(AllOption::Start(()))).await? else {
        return Err("all events are no stream that can be missing".to_string());
    };
    let mut found = Vec::new();
    let mut last = None;
    for event in &events {
        if last.is_some_and(|last| event.commit_position <= last) {
            return Err(format!("an event is not behind {last:?}: {event:?}"));
        }
        last = Some(event.commit_position);
        let stream = event.stream_identifier.clone().unwrap_or_default();
        let name = NAMES.into_iter().find(|name| name.as_bytes() == &stream.stream_name[..]);
        // What the server writes for itself, and a tombstone, are none of ours.
        if let (Some(name), Some("Counted")) =
            (name, event.metadata.get("type").map(|kind| &**kind))
        {
            place(run, name, event)?;
            found.push((name, event.stream_revision, id_of(event).unwrap_or_default()));
        }
    }
    if found != run.streams.all {
        return Err(format!("all events are {found:?} and not {:?}", run.streams.all));
    }
    Ok(())
}
