//! Readers of streams and of all events, and two subscriptions that resume from the last crash
//! cycle.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;
use umbel_proto::read_options;
use umbel_proto::streams::read_req::{AllOption, Options, RevisionOption};
use umbel_proto::streams::read_resp::Content;
use umbel_sim::Random;

use crate::server::concurrent_clients::append_clients::SHARED_STREAMS;
use crate::server::concurrent_clients::checked_client::{Client, ReadResult};
use crate::server::concurrent_clients::client_oracle::{
    ClientOracle, ReceivedEvent, SUBSCRIBED_STREAM,
};
use crate::server::concurrent_clients::message_convert::received_event;
use crate::server::concurrent_clients::server_cycle_state::{ClientNotes, ServerCycle};

/// Pause of a reader between two reads.
const READ_PAUSE: Duration = Duration::from_millis(1);

/// Starts the readers; they run until they are stopped.
pub fn spawn(
    readers: &mut JoinSet<()>,
    life: &Arc<ServerCycle>,
    client: Client,
    known: &ClientOracle,
    random: &mut Random,
) {
    let stages = || (Arc::clone(life), client.clone());
    let (of_all, of_stream) = (stages(), stages());
    let seeds = (random.next(), random.next());
    readers.spawn(async move { read_streams(of_stream.0, of_stream.1, seeds.0).await });
    readers.spawn(async move { read_all(of_all.0, of_all.1, seeds.1).await });
    let from = known
        .subscribed_all
        .last()
        .map_or(AllOption::Start(()), |t| read_options::at_position(t.position));
    let all = read_options::subscription(read_options::of_all(from));
    let (life, client) = stages();
    let last = known.subscribed_all.last().cloned();
    readers.spawn(async move {
        note_subscription(&life, &client, all, last, |notes| &mut notes.all).await
    });
    let last = known.subscribed_stream.last().cloned();
    let from =
        last.as_ref().map_or(RevisionOption::Start(()), |t| RevisionOption::Revision(t.revision));
    let one = read_options::subscription(read_options::of_stream(SUBSCRIBED_STREAM, from));
    let (life, client) = stages();
    readers.spawn(async move {
        note_subscription(&life, &client, one, last, |notes| &mut notes.stream).await
    });
}

/// Whether a subscription may deliver an event after another one.
fn is_valid_successor(before: Option<&ReceivedEvent>, event: &ReceivedEvent) -> bool {
    before.is_none_or(|before| {
        event.position > before.position
            && (event.stream != before.stream || event.revision > before.revision)
    })
}

/// Records the events of a subscription.
async fn note_subscription(
    life: &ServerCycle,
    client: &Client,
    options: Options,
    mut last: Option<ReceivedEvent>,
    list: fn(&mut ClientNotes) -> &mut Vec<ReceivedEvent>,
) {
    let mut answers = match client.subscribe(options).await {
        Ok(answers) => answers,
        Err(status) => return life.failed(format!("subscribing after {last:?}: {status:?}")),
    };
    let mut is_confirmed = false;
    loop {
        let content = match answers.message().await {
            Ok(Some(answer)) => answer.content,
            ended => return life.failed(format!("a subscription ended with {ended:?}")),
        };
        match content {
            Some(Content::Confirmation(_)) if !is_confirmed => is_confirmed = true,
            Some(Content::CaughtUp(_)) if is_confirmed => {}
            Some(Content::Event(event)) if is_confirmed => match received_event(event) {
                Ok(event) if is_valid_successor(last.as_ref(), &event) => {
                    let mut notes = life.notes();
                    notes.seen.push((event.position, event.id));
                    list(&mut notes).push(event.clone());
                    last = Some(event);
                }
                Ok(event) => {
                    return life
                        .wrong(format!("a subscription delivered {event:?} after {last:?}"));
                }
                Err(text) => return life.wrong(text),
            },
            other => return life.wrong(format!("a subscription returned {other:?}")),
        }
    }
}

/// Reads streams repeatedly, and checks that everything acknowledged before exists, without gaps.
async fn read_streams(life: Arc<ServerCycle>, client: Client, seed: u64) {
    let mut random = Random::new(seed);
    while !life.is_ending() {
        let stream = format!("shared-{}", random.below(SHARED_STREAMS));
        let is_backwards = random.once_in(2);
        let due = life.notes().acknowledged.get(&stream).copied();
        let read = match is_backwards {
            true => {
                read_options::backwards(read_options::of_stream(&stream, RevisionOption::End(())))
            }
            false => read_options::of_stream(&stream, RevisionOption::Start(())),
        };
        let mut events = match client.read(read).await {
            ReadResult::Events(events, _) => events,
            ReadResult::Tombstoned => return life.wrong(format!("no client tombstoned {stream}")),
            ReadResult::Failed(text) => return life.failed(format!("reading {stream}: {text}")),
        };
        life.notes().seen.extend(events.iter().map(|event| (event.position, event.id)));
        if is_backwards {
            events.reverse();
        }
        let is_dense = (0..).zip(&events).all(|(due, event)| event.revision == due);
        let is_ordered = events.is_sorted_by(|one, two| one.position < two.position);
        let last = events.last().map(|event| event.revision);
        let is_its = events.iter().all(|event| event.stream == stream);
        if !is_dense || !is_ordered || !is_its || last < due {
            let way = if is_backwards { "backwards" } else { "forwards" };
            life.wrong(format!("{stream}, at {due:?} before, was read {way} as {events:?}"));
        }
        sleep(READ_PAUSE).await;
    }
}

/// Reads all events forwards in pages, and the newest events backwards.
async fn read_all(life: Arc<ServerCycle>, client: Client, seed: u64) {
    let mut random = Random::new(seed);
    let mut next: BTreeMap<String, u64> = BTreeMap::new();
    let mut before: Option<ReceivedEvent> = None;
    while !life.is_ending() {
        let from = before
            .as_ref()
            .map_or(AllOption::Start(()), |event| read_options::at_position(event.position));
        let options = read_options::at_most(1 + random.below(60), read_options::of_all(from));
        let events = match client.read(options).await {
            ReadResult::Events(events, _) => events,
            other => return life.failed(format!("reading all: {other:?}")),
        };
        // A position is that of the event at which the read begins.
        let known = usize::from(before.is_some());
        if before.is_some() && events.first() != before.as_ref() {
            life.wrong(format!("reading from {before:?} on began with {:?}", events.first()));
        }
        for event in events.into_iter().skip(known) {
            let due = next.entry(event.stream.clone()).or_default();
            let is_end =
                event.revision == crate::server::concurrent_clients::client_oracle::LAST_OF_ALL;
            if !is_valid_successor(before.as_ref(), &event) || (event.revision != *due && !is_end) {
                return life.wrong(format!("{event:?} came after {before:?}, {due} was due"));
            }
            *due += 1;
            life.notes().seen.push((event.position, event.id));
            before = Some(event);
        }
        let newest = read_options::backwards(read_options::of_all(AllOption::End(())));
        match client.read(read_options::at_most(20, newest)).await {
            ReadResult::Events(events, _) => {
                if !events.is_sorted_by(|one, two| is_valid_successor(Some(two), one)) {
                    life.wrong(format!("all events were read backwards as {events:?}"));
                }
                let seen = events.iter().map(|event| (event.position, event.id));
                life.notes().seen.extend(seen);
            }
            other => return life.failed(format!("reading all backwards: {other:?}")),
        }
        sleep(READ_PAUSE).await;
    }
}
