//! Those who read: streams, all events, and two subscriptions that go on where the last life of the
//! server left them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;
use umbel_proto::reading;
use umbel_proto::streams::read_req::{AllOption, Options, RevisionOption};
use umbel_proto::streams::read_resp::Content;

use super::append::SHARED;
use super::client::{Client, Read};
use super::known::{FOLLOWED, Known, Told};
use super::life::{Notes, Stage};
use super::words::told;
use crate::random::Random;

/// How long a reader rests between two reads.
const REST: Duration = Duration::from_millis(1);

/// Starts them; they go on until they are ended.
pub fn spawn(
    readers: &mut JoinSet<()>,
    stage: &Arc<Stage>,
    client: Client,
    known: &Known,
    random: &mut Random,
) {
    let stages = || (Arc::clone(stage), client.clone());
    let (of_all, of_stream) = (stages(), stages());
    let seeds = (random.next(), random.next());
    readers.spawn(async move { read_streams(of_stream.0, of_stream.1, seeds.0).await });
    readers.spawn(async move { read_all(of_all.0, of_all.1, seeds.1).await });
    let from = known.followed_all.last().map_or(AllOption::Start(()), |t| reading::at(t.position));
    let all = reading::subscription(reading::of_all(from));
    let (stage, client) = stages();
    let last = known.followed_all.last().cloned();
    readers.spawn(async move { follow(&stage, &client, all, last, |notes| &mut notes.all).await });
    let last = known.followed_stream.last().cloned();
    let from =
        last.as_ref().map_or(RevisionOption::Start(()), |t| RevisionOption::Revision(t.revision));
    let one = reading::subscription(reading::of_stream(FOLLOWED, from));
    let (stage, client) = stages();
    readers
        .spawn(async move { follow(&stage, &client, one, last, |notes| &mut notes.stream).await });
}

/// Whether an event may come after another one in what a subscription is told.
fn may_follow(before: Option<&Told>, event: &Told) -> bool {
    before.is_none_or(|before| {
        event.position > before.position
            && (event.stream != before.stream || event.revision > before.revision)
    })
}

/// Notes what a subscription is told.
async fn follow(
    stage: &Stage,
    client: &Client,
    options: Options,
    mut last: Option<Told>,
    list: fn(&mut Notes) -> &mut Vec<Told>,
) {
    let mut answers = match client.subscribe(options).await {
        Ok(answers) => answers,
        Err(status) => return stage.failed(format!("subscribing behind {last:?}: {status:?}")),
    };
    let mut is_confirmed = false;
    loop {
        let content = match answers.message().await {
            Ok(Some(answer)) => answer.content,
            ended => return stage.failed(format!("a subscription ended with {ended:?}")),
        };
        match content {
            Some(Content::Confirmation(_)) if !is_confirmed => is_confirmed = true,
            Some(Content::CaughtUp(_)) if is_confirmed => {}
            Some(Content::Event(event)) if is_confirmed => match told(event) {
                Ok(event) if may_follow(last.as_ref(), &event) => {
                    let mut notes = stage.notes();
                    notes.seen.push((event.position, event.id));
                    list(&mut notes).push(event.clone());
                    last = Some(event);
                }
                Ok(event) => {
                    return stage
                        .wrong(format!("a subscription was told {event:?} after {last:?}"));
                }
                Err(text) => return stage.wrong(text),
            },
            other => return stage.wrong(format!("a subscription was told {other:?}")),
        }
    }
}

/// Reads streams again and again: what was acknowledged before is there, without gaps.
async fn read_streams(stage: Arc<Stage>, client: Client, seed: u64) {
    let mut random = Random::new(seed);
    while !stage.is_ending() {
        let stream = format!("shared-{}", random.below(SHARED));
        let is_backwards = random.once_in(2);
        let due = stage.notes().acknowledged.get(&stream).copied();
        let read = match is_backwards {
            true => reading::backwards(reading::of_stream(&stream, RevisionOption::End(()))),
            false => reading::of_stream(&stream, RevisionOption::Start(())),
        };
        let mut events = match client.read(read).await {
            Read::Events(events, _) => events,
            Read::Tombstoned => return stage.wrong(format!("nobody tombstoned {stream}")),
            Read::Failed(text) => return stage.failed(format!("reading {stream}: {text}")),
        };
        stage.notes().seen.extend(events.iter().map(|event| (event.position, event.id)));
        if is_backwards {
            events.reverse();
        }
        let is_dense = (0..).zip(&events).all(|(due, event)| event.revision == due);
        let is_ordered = events.is_sorted_by(|one, two| one.position < two.position);
        let last = events.last().map(|event| event.revision);
        let is_its = events.iter().all(|event| event.stream == stream);
        if !is_dense || !is_ordered || !is_its || last < due {
            let way = if is_backwards { "backwards" } else { "forwards" };
            stage.wrong(format!("{stream}, at {due:?} before, was read {way} as {events:?}"));
        }
        sleep(REST).await;
    }
}

/// Reads all events in pieces, and their end backwards.
async fn read_all(stage: Arc<Stage>, client: Client, seed: u64) {
    let mut random = Random::new(seed);
    let mut next: BTreeMap<String, u64> = BTreeMap::new();
    let mut before: Option<Told> = None;
    while !stage.is_ending() {
        let from =
            before.as_ref().map_or(AllOption::Start(()), |event| reading::at(event.position));
        let options = reading::at_most(1 + random.below(60), reading::of_all(from));
        let events = match client.read(options).await {
            Read::Events(events, _) => events,
            other => return stage.failed(format!("reading all: {other:?}")),
        };
        // A position is that of the event with which reading begins.
        let known = usize::from(before.is_some());
        if before.is_some() && events.first() != before.as_ref() {
            stage.wrong(format!("reading from {before:?} on began with {:?}", events.first()));
        }
        for event in events.into_iter().skip(known) {
            let due = next.entry(event.stream.clone()).or_default();
            let is_end = event.revision == super::known::LAST_OF_ALL;
            if !may_follow(before.as_ref(), &event) || (event.revision != *due && !is_end) {
                return stage.wrong(format!("{event:?} came after {before:?}, {due} was due"));
            }
            *due += 1;
            stage.notes().seen.push((event.position, event.id));
            before = Some(event);
        }
        let newest = reading::backwards(reading::of_all(AllOption::End(())));
        match client.read(reading::at_most(20, newest)).await {
            Read::Events(events, _) => {
                if !events.is_sorted_by(|one, two| may_follow(Some(two), one)) {
                    stage.wrong(format!("all events were read backwards as {events:?}"));
                }
                let seen = events.iter().map(|event| (event.position, event.id));
                stage.notes().seen.extend(seen);
            }
            other => return stage.failed(format!("reading all backwards: {other:?}")),
        }
        sleep(REST).await;
    }
}
