//! Compares the subscribers' events with the log after a crash cycle.

use umbel_events::{
    Direction, Error, Position, RecordedEvent, Revision, Store, StoreOptions, StreamState,
    Subscription, ViewEvent,
};
use umbel_sim::Random;

use super::FOLDER;
use crate::events::subscriptions::event_oracle::{AppendedEvent, EventOracle};
use crate::events::subscriptions::subscriber::{
    BatchError, DeliveredEvent, Subscriber, SubscriptionKind,
};
use crate::support::campaign_tally::CampaignTally;

/// Number of batches within which a subscriber must catch up.
const BATCHES: u64 = 100_000;

/// Plan of a check.
pub struct CheckPlan {
    /// Options of the open.
    pub options: StoreOptions,
    /// Seed of the check.
    pub seed: u64,
    /// Whether every acknowledged or delivered event must exist.
    pub keeps_all: bool,
    /// Whether this is the last check of the store.
    pub is_last: bool,
}

/// An event that a subscriber must or may have received.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ExpectedEvent {
    got: DeliveredEvent,
    /// Whether the event must have been delivered.
    is_due: bool,
}

/// Opens the store and compares; events that a power cut removed are dropped from the records. Some
/// subscribers catch up from their checkpoints, and a new subscriber of each kind resumes from a
/// checkpoint.
pub fn check(
    plan: CheckPlan,
    followers: &mut [Subscriber],
    oracle: &mut EventOracle,
    tally: &CampaignTally,
) -> Result<(), String> {
    let mut random = Random::new(plan.seed);
    let store = Store::open(FOLDER, plan.options).map_err(|error| format!("opening: {error}"))?;
    let events: Result<Vec<RecordedEvent>, Error> =
        store.read_all(Position::START, Direction::Forwards).collect();
    let events = events.map_err(|error| format!("reading: {error}"))?;
    let visible = store.visible_position().0;
    tally.add("events found after a crash", events.len() as u64);
    let mut lost = Vec::new();
    for follower in &mut *followers {
        let gone = follower.forget_after(visible);
        if let Some(got) = gone.first().filter(|_| plan.keeps_all) {
            let kind = follower.kind;
            return Err(format!("{kind:?}: {got:?} was delivered and is lost after {visible}"));
        }
        tally.add("delivered and lost with a power cut", gone.len() as u64);
        // A link's id is not the id of its event.
        let is_view = matches!(follower.kind, SubscriptionKind::View(_));
        lost.extend(gone.iter().filter(|_| !is_view).map(|got| (got.position, got.id)));
    }
    oracle.compare(&events, visible, plan.keeps_all)?;
    // Noted after the comparison, because the log has earlier events of this life.
    lost.into_iter().for_each(|(position, id)| oracle.lost(position, id));
    for follower in &mut *followers {
        let catches_up = plan.is_last || random.once_in(2);
        let held = check_received(&store, follower, oracle, catches_up, &mut random);
        held.map_err(|text| format!("{:?}: {text}", follower.kind))?;
        tally.add("events delivered", follower.delivered.len() as u64);
        tally.add("checkpoints", follower.resume_points.len() as u64);
    }
    if plan.is_last {
        let gone = oracle.events.values().filter(|event| !event.is_there).count();
        tally.add("events scavenged", gone as u64);
    }
    for kind in 0..4 {
        let follower = &followers[4 * random.below(4) as usize + kind];
        let held = check_resumed(&store, follower, oracle, &mut random);
        held.map_err(|text| format!("{:?}, resumed: {text}", follower.kind))?;
        tally.add("checkpoints gone on behind", 1);
    }
    if random.once_in(4) {
        let report = store.verify().map_err(|error| format!("verifying: {error}"))?;
        if let Some(damage) = report.damage.first() {
            return Err(format!("verifying: {damage}"));
        }
    }
    store.close().map_err(|error| format!("closing: {error}"))?;
    // No power cut takes an event of a closed store.
    oracle.made_durable(visible);
    Ok(())
}

/// Compares the events that a subscriber received in all crash cycles with the known events.
fn check_received(
    store: &Store,
    follower: &mut Subscriber,
    oracle: &EventOracle,
    catches_up: bool,
    random: &mut Random,
) -> Result<(), String> {
    let mut through = (follower.resume, follower.complete_through);
    if catches_up && catch_up(store, follower, random)? {
        through = (Some(u64::MAX), u64::MAX);
    }
    let is_due = |event: &AppendedEvent| match follower.kind {
        SubscriptionKind::Stream(stream) => !oracle.may_be_hidden(stream, event.revision),
        _ => true,
    };
    let mut wanted = expected_events(follower.kind, oracle, is_due);
    if let SubscriptionKind::View(view) = follower.kind {
        compare_view(store, view, &wanted)?;
    }
    for wanted in &mut wanted {
        let is_said = through.0.is_some_and(|place| wanted.got.place <= place)
            || wanted.got.position <= through.1;
        wanted.is_due &= is_said;
    }
    compare(follower.kind, &follower.delivered, &wanted)
}

/// Resumes from a checkpoint and expects exactly the known events.
fn check_resumed(
    store: &Store,
    follower: &Subscriber,
    oracle: &EventOracle,
    random: &mut Random,
) -> Result<(), String> {
    let mut new = Subscriber::new(follower.kind);
    if !follower.resume_points.is_empty() && !random.once_in(4) {
        let index = random.below(follower.resume_points.len() as u64) as usize;
        new.resume = follower.resume_points[index].place;
    }
    let resumed_after = new.resume;
    let has_caught_up = catch_up(store, &mut new, random)?;
    let first = match follower.kind {
        SubscriptionKind::Stream(stream) => {
            match store.stream_state(stream).map_err(|error| error.to_string())? {
                StreamState::Missing => 0,
                StreamState::Live { first, .. } => first,
                StreamState::Deleted { last } => last + 1,
                StreamState::Tombstoned if has_caught_up => {
                    return Err("a tombstoned stream can be subscribed to".to_string());
                }
                StreamState::Tombstoned => return Ok(()),
            }
        }
        _ => 0,
    };
    if !has_caught_up {
        return Err("no event came: the stream is reported as tombstoned".to_string());
    }
    let mut wanted = expected_events(follower.kind, oracle, |_| true);
    let is_after =
        |wanted: &ExpectedEvent| resumed_after.is_none_or(|place| wanted.got.place > place);
    wanted.retain(|wanted| is_after(wanted) && wanted.got.place >= first);
    compare(follower.kind, &new.delivered, &wanted)
        .map_err(|text| format!("{resumed_after:?}: {text}"))?;
    same_ids(&follower.delivered, &new.delivered)
}

/// Checks that a place has the same id for every subscriber, also for links.
fn same_ids(before: &[DeliveredEvent], now: &[DeliveredEvent]) -> Result<(), String> {
    for got in now {
        if let Ok(index) = before.binary_search_by_key(&got.place, |got| got.place)
            && before[index] != *got
        {
            return Err(format!("{:?} was delivered before and now {got:?}", before[index]));
        }
    }
    Ok(())
}

/// Reads batches until the end. Returns `false` if the stream was tombstoned.
fn catch_up(store: &Store, follower: &mut Subscriber, random: &mut Random) -> Result<bool, String> {
    let describe = |met: BatchError| match met {
        BatchError::Wrong(text) => text,
        BatchError::Failed(error) => format!("catching up: {error}"),
    };
    let subscription = follower.subscribe(store);
    let mut subscription = subscription.map_err(|error| describe(BatchError::Failed(error)))?;
    for _ in 0..BATCHES {
        let batch_events_max = 1 + random.below(60) as usize;
        let examined = 1 + random.below(300) as usize;
        let ask = |subscription: &mut Subscription| {
            subscription.try_next_batch(batch_events_max, examined)
        };
        match follower.read_batch(store, &mut subscription, Position::END, ask) {
            Ok(summary) if summary.is_caught_up => return Ok(true),
            Ok(_) => {}
            Err(BatchError::Failed(Error::StreamDeleted { .. })) => return Ok(false),
            Err(met) => return Err(describe(met)),
        }
    }
    Err(format!("it has not caught up after {BATCHES} batches"))
}

/// Returns all events that a subscriber may have received, in order. Events that the log still has
/// and that `is_due` accepts must have been delivered.
fn expected_events(
    kind: SubscriptionKind,
    oracle: &EventOracle,
    is_due: impl Fn(&AppendedEvent) -> bool,
) -> Vec<ExpectedEvent> {
    let mut wanted: Vec<ExpectedEvent> = Vec::new();
    for (position, event) in oracle.events.iter().filter(|(_, event)| kind.holds(event)) {
        let place = match kind {
            SubscriptionKind::Stream(_) => event.revision,
            SubscriptionKind::All | SubscriptionKind::Filtered(_) => *position,
            SubscriptionKind::View(_) => wanted.len() as u64,
        };
        let what = format!("{}@{}", event.revision, event.stream);
        let got = DeliveredEvent { place, position: *position, id: event.id, what };
        wanted.push(ExpectedEvent { got, is_due: event.is_there && is_due(event) });
    }
    wanted
}

/// Compares two ordered lists: checks that each received event is expected, and that every due
/// event was received.
fn compare(
    kind: SubscriptionKind,
    received: &[DeliveredEvent],
    wanted: &[ExpectedEvent],
) -> Result<(), String> {
    let is_view = matches!(kind, SubscriptionKind::View(_));
    let mut left = wanted.iter().peekable();
    let missing = |wanted: &ExpectedEvent| format!("{:?} was not delivered", wanted.got);
    for (number, got) in received.iter().enumerate() {
        while let Some(before) = left.next_if(|wanted| wanted.got.place < got.place) {
            if before.is_due {
                return Err(format!("{}, but then {got:?}", missing(before)));
            }
        }
        match left.next_if(|wanted| wanted.got.place == got.place) {
            Some(ExpectedEvent { got: wanted, .. }) => {
                let is_same = (wanted.position, &wanted.what) == (got.position, &got.what);
                if !is_same || (!is_view && wanted.id != got.id) {
                    return Err(format!("number {number} is {got:?} and should be {wanted:?}"));
                }
            }
            // Metadata may be replaced, and the older event scavenged, before any thread notes it.
            None if got.what.contains("@$$") => {}
            None => return Err(format!("number {number} is {got:?}, which is nowhere")),
        }
    }
    let due = left.find(|wanted| wanted.is_due);
    due.map_or(Ok(()), |wanted| Err(format!("{} at the end", missing(wanted))))
}

/// Checks that a view, read in both directions, equals the received events.
fn compare_view(store: &Store, view: &str, wanted: &[ExpectedEvent]) -> Result<(), String> {
    let read = |from: Revision, direction: Direction| -> Result<Vec<DeliveredEvent>, String> {
        let read = store.read_view(view, from, direction, Position::END);
        let got = |event: Result<ViewEvent, Error>| -> Result<DeliveredEvent, String> {
            let link = event.map_err(|error| format!("reading {view}: {error}"))?.link;
            let what = String::from_utf8_lossy(&link.data).into_owned();
            Ok(DeliveredEvent { place: link.revision, position: link.position, id: link.id, what })
        };
        read.map(got).collect()
    };
    let forwards = read(Revision::START, Direction::Forwards)?;
    let mut backwards = read(Revision::END, Direction::Backwards)?;
    backwards.reverse();
    if forwards != backwards {
        let (there, back) = (forwards.len(), backwards.len());
        return Err(format!("{view} read forwards has {there} entries, backwards {back}"));
    }
    compare(SubscriptionKind::View("read"), &forwards, wanted)
        .map_err(|text| format!("read: {text}"))?;
    let state = store.view(view, Position::END).map_err(|error| error.to_string())?;
    let numbers = state.map_or(0, |state| state.last + 1);
    match numbers == wanted.len() as u64 {
        true => Ok(()),
        false => Err(format!("{view} has given {numbers} numbers to {} events", wanted.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn got(place: u64) -> DeliveredEvent {
        let (position, what) = (96 + 8 * place, format!("{place}@a"));
        DeliveredEvent { place, position, id: super::super::event_id(place), what }
    }

    fn delivered(places: &[u64]) -> Vec<DeliveredEvent> {
        places.iter().map(|place| got(*place)).collect()
    }

    #[test]
    fn gaps_repetitions_and_unknown_events_are_noticed() {
        let wanted: Vec<_> =
            (0..5).map(|place| ExpectedEvent { got: got(place), is_due: place != 2 }).collect();
        let compared =
            |places: &[u64]| compare(SubscriptionKind::Stream("a"), &delivered(places), &wanted);
        compared(&[0, 1, 2, 3, 4]).expect("all of it");
        compared(&[0, 1, 3, 4]).expect("one may be hidden");
        for places in [&[1, 2, 3, 4][..], &[0, 1, 2, 4], &[0, 1, 2, 3], &[0, 1, 1, 3, 4], &[]] {
            compared(places).expect_err("a gap or a repetition");
        }
        compared(&[0, 1, 2, 3, 4, 5]).expect_err("no writer appended it");
        let mut other = delivered(&[0, 1, 2, 3, 4]);
        other[3].id = super::super::event_id(9);
        compare(SubscriptionKind::Stream("a"), &other, &wanted).expect_err("another event");
        compare(SubscriptionKind::View("a"), &other, &wanted).expect("links have ids of their own");
        other[3].what = "4@a".to_string();
        compare(SubscriptionKind::View("a"), &other, &wanted).expect_err("a link to another event");
        same_ids(&delivered(&[1, 3]), &delivered(&[0, 1, 2])).expect("the same");
        same_ids(&other, &delivered(&[3])).expect_err("another one than before");
    }
}
