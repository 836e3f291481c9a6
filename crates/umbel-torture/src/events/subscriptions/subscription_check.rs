//! What the subscribers were told, beside what the log holds after the world ended.

use umbel_events::{
    Direction, Error, Position, RecordedEvent, Revision, Store, StoreOptions, StreamState,
    Subscription, ViewEvent,
};

use super::FOLDER;
use super::follower::{Follower, Got, Kind, Met};
use super::ledger::{Known, Ledger};
use crate::random::Random;
use crate::report::Tally;

/// Batches in which somebody has to catch up.
const BATCHES: u64 = 100_000;

/// How a store is looked at.
pub struct Plan {
    /// How it is opened.
    pub options: StoreOptions,
    /// Decides what is looked at.
    pub seed: u64,
    /// Whether everything that was acknowledged or told has to be there.
    pub keeps_all: bool,
    /// Whether nothing comes afterwards.
    pub is_last: bool,
}

/// An event that somebody was to be told, or may have been.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wanted {
    got: Got,
    /// Whether it was to be told.
    is_due: bool,
}

/// Opens the store and compares; what a power cut took is forgotten. Some catch up from what they
/// kept, and of each kind somebody new goes on behind something that was kept.
pub fn check(
    plan: Plan,
    followers: &mut [Follower],
    ledger: &mut Ledger,
    tally: &Tally,
) -> Result<(), String> {
    let mut random = Random::new(plan.seed);
    let store = Store::open(FOLDER, plan.options).map_err(|error| format!("opening: {error}"))?;
    let events: Result<Vec<RecordedEvent>, Error> =
        store.read_all(Position::START, Direction::Forwards).collect();
    let events = events.map_err(|error| format!("reading: {error}"))?;
    let visible = store.visible().0;
    tally.add("events found after a crash", events.len() as u64);
    let mut lost = Vec::new();
    for follower in &mut *followers {
        let gone = follower.forget_behind(visible);
        if let Some(got) = gone.first().filter(|_| plan.keeps_all) {
            let kind = follower.kind;
            return Err(format!("{kind:?}: {got:?} was told and is gone behind {visible}"));
        }
        tally.add("told and gone with a power cut", gone.len() as u64);
        // The id of a link is not that of an event.
        let is_view = matches!(follower.kind, Kind::View(_));
        lost.extend(gone.iter().filter(|_| !is_view).map(|got| (got.position, got.id)));
    }
    ledger.compare(&events, visible, plan.keeps_all)?;
    // Only now: what the log has of this life lies before it.
    lost.into_iter().for_each(|(position, id)| ledger.lost(position, id));
    for follower in &mut *followers {
        let catches_up = plan.is_last || random.once_in(2);
        let held = look(&store, follower, ledger, catches_up, &mut random);
        held.map_err(|text| format!("{:?}: {text}", follower.kind))?;
        tally.add("events told", follower.got.len() as u64);
        tally.add("checkpoints", follower.kept.len() as u64);
    }
    if plan.is_last {
        let gone = ledger.events.values().filter(|event| !event.is_there).count();
        tally.add("events scavenged", gone as u64);
    }
    for kind in 0..4 {
        let follower = &followers[4 * random.below(4) as usize + kind];
        let held = go_on(&store, follower, ledger, &mut random);
        held.map_err(|text| format!("{:?}, gone on with: {text}", follower.kind))?;
        tally.add("checkpoints gone on behind", 1);
    }
    if random.once_in(4) {
        let report = store.verify().map_err(|error| format!("verifying: {error}"))?;
        if let Some(damage) = report.damage.first() {
            return Err(format!("verifying: {damage}"));
        }
    }
    store.close().map_err(|error| format!("closing: {error}"))?;
    // What a store has when it is closed, no power cut takes.
    ledger.made_durable(visible);
    Ok(())
}

/// Compares what somebody was told in all lives with what there was.
fn look(
    store: &Store,
    follower: &mut Follower,
    ledger: &Ledger,
    catches_up: bool,
    random: &mut Random,
) -> Result<(), String> {
    let mut through = (follower.resume, follower.complete_through);
    if catches_up && catch_up(store, follower, random)? {
        through = (Some(u64::MAX), u64::MAX);
    }
    let is_due = |event: &Known| match follower.kind {
        Kind::Stream(stream) => !ledger.may_be_hidden(stream, event.revision),
        _ => true,
    };
    let mut wanted = wanted(follower.kind, ledger, is_due);
    if let Kind::View(view) = follower.kind {
        compare_view(store, view, &wanted)?;
    }
    for wanted in &mut wanted {
        let is_said = through.0.is_some_and(|place| wanted.got.place <= place)
            || wanted.got.position <= through.1;
        wanted.is_due &= is_said;
    }
    compare(follower.kind, &follower.got, &wanted)
}

/// Somebody new goes on behind a place that was kept, and is told exactly what there is.
fn go_on(
    store: &Store,
    follower: &Follower,
    ledger: &Ledger,
    random: &mut Random,
) -> Result<(), String> {
    let mut new = Follower::new(follower.kind);
    if !follower.kept.is_empty() && !random.once_in(4) {
        let index = random.below(follower.kept.len() as u64) as usize;
        new.resume = follower.kept[index].place;
    }
    let behind = new.resume;
    let has_caught_up = catch_up(store, &mut new, random)?;
    let first = match follower.kind {
        Kind::Stream(stream) => match store.stream(stream).map_err(|error| error.to_string())? {
            StreamState::Missing => 0,
            StreamState::Live { first, .. } => first,
            StreamState::Deleted { last } => last + 1,
            StreamState::Tombstoned if has_caught_up => {
                return Err("a stream that was ended can be followed".to_string());
            }
            StreamState::Tombstoned => return Ok(()),
        },
        _ => 0,
    };
    if !has_caught_up {
        return Err("nothing was told: the stream is said to be ended".to_string());
    }
    let mut wanted = wanted(follower.kind, ledger, |_| true);
    let is_behind = |wanted: &Wanted| behind.is_none_or(|place| wanted.got.place > place);
    wanted.retain(|wanted| is_behind(wanted) && wanted.got.place >= first);
    compare(follower.kind, &new.got, &wanted).map_err(|text| format!("{behind:?}: {text}"))?;
    same_ids(&follower.got, &new.got)
}

/// What stands at one place has the same id for everybody, a link too.
fn same_ids(before: &[Got], now: &[Got]) -> Result<(), String> {
    for got in now {
        if let Ok(index) = before.binary_search_by_key(&got.place, |got| got.place)
            && before[index] != *got
        {
            return Err(format!("{:?} was told before and now {got:?}", before[index]));
        }
    }
    Ok(())
}

/// Asks for batches until there is no more. `false` where the stream was ended for good.
fn catch_up(store: &Store, follower: &mut Follower, random: &mut Random) -> Result<bool, String> {
    let said = |met: Met| match met {
        Met::Wrong(text) => text,
        Met::Failed(error) => format!("catching up: {error}"),
    };
    let subscription = follower.subscribe(store);
    let mut subscription = subscription.map_err(|error| said(Met::Failed(error)))?;
    for _ in 0..BATCHES {
        let most = 1 + random.below(60) as usize;
        let examined = 1 + random.below(300) as usize;
        let ask = |subscription: &mut Subscription| subscription.take(most, examined);
        match follower.hear(store, &mut subscription, Position::END, ask) {
            Ok(heard) if heard.is_caught_up => return Ok(true),
            Ok(_) => {}
            Err(Met::Failed(Error::Deleted { .. })) => return Ok(false),
            Err(met) => return Err(said(met)),
        }
    }
    Err(format!("it has not caught up after {BATCHES} batches"))
}

/// What somebody may have been told of what there ever was, in order. What the log still has and
/// `is_due` says was to be told.
fn wanted(kind: Kind, ledger: &Ledger, is_due: impl Fn(&Known) -> bool) -> Vec<Wanted> {
    let mut wanted: Vec<Wanted> = Vec::new();
    for (position, event) in ledger.events.iter().filter(|(_, event)| kind.holds(event)) {
        let place = match kind {
            Kind::Stream(_) => event.revision,
            Kind::All | Kind::Filtered(_) => *position,
            Kind::View(_) => wanted.len() as u64,
        };
        let what = format!("{}@{}", event.revision, event.stream);
        let got = Got { place, position: *position, id: event.id, what };
        wanted.push(Wanted { got, is_due: event.is_there && is_due(event) });
    }
    wanted
}

/// Both are in order. What was told is among what is wanted, and all that was to be told was.
fn compare(kind: Kind, told: &[Got], wanted: &[Wanted]) -> Result<(), String> {
    let is_view = matches!(kind, Kind::View(_));
    let mut left = wanted.iter().peekable();
    let missing = |wanted: &Wanted| format!("{:?} was not told", wanted.got);
    for (number, got) in told.iter().enumerate() {
        while let Some(before) = left.next_if(|wanted| wanted.got.place < got.place) {
            if before.is_due {
                return Err(format!("{}, but then {got:?}", missing(before)));
            }
        }
        match left.next_if(|wanted| wanted.got.place == got.place) {
            Some(Wanted { got: wanted, .. }) => {
                let is_same = (wanted.position, &wanted.what) == (got.position, &got.what);
                if !is_same || (!is_view && wanted.id != got.id) {
                    return Err(format!("number {number} is {got:?} and should be {wanted:?}"));
                }
            }
            // Metadata is replaced, and the older one scavenged, before anybody takes note of it.
            None if got.what.contains("@$$") => {}
            None => return Err(format!("number {number} is {got:?}, which is nowhere")),
        }
    }
    let due = left.find(|wanted| wanted.is_due);
    due.map_or(Ok(()), |wanted| Err(format!("{} at the end", missing(wanted))))
}

/// A view read by itself, both ways, is what was told.
fn compare_view(store: &Store, view: &str, wanted: &[Wanted]) -> Result<(), String> {
    let read = |from: Revision, direction: Direction| -> Result<Vec<Got>, String> {
        let read = store.read_view(view, from, direction, Position::END);
        let got = |event: Result<ViewEvent, Error>| -> Result<Got, String> {
            let link = event.map_err(|error| format!("reading {view}: {error}"))?.link;
            let what = String::from_utf8_lossy(&link.data).into_owned();
            Ok(Got { place: link.revision, position: link.position, id: link.id, what })
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
    compare(Kind::View("read"), &forwards, wanted).map_err(|text| format!("read: {text}"))?;
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

    fn got(place: u64) -> Got {
        let (position, what) = (96 + 8 * place, format!("{place}@a"));
        Got { place, position, id: super::super::id(place), what }
    }

    fn told(places: &[u64]) -> Vec<Got> {
        places.iter().map(|place| got(*place)).collect()
    }

    #[test]
    fn gaps_repetitions_and_strangers_are_noticed() {
        let wanted: Vec<_> =
            (0..5).map(|place| Wanted { got: got(place), is_due: place != 2 }).collect();
        let compared = |places: &[u64]| compare(Kind::Stream("a"), &told(places), &wanted);
        compared(&[0, 1, 2, 3, 4]).expect("all of it");
        compared(&[0, 1, 3, 4]).expect("one may be hidden");
        for places in [&[1, 2, 3, 4][..], &[0, 1, 2, 4], &[0, 1, 2, 3], &[0, 1, 1, 3, 4], &[]] {
            compared(places).expect_err("a gap or a repetition");
        }
        compared(&[0, 1, 2, 3, 4, 5]).expect_err("nobody appended it");
        let mut other = told(&[0, 1, 2, 3, 4]);
        other[3].id = super::super::id(9);
        compare(Kind::Stream("a"), &other, &wanted).expect_err("another event");
        compare(Kind::View("a"), &other, &wanted).expect("links have ids of their own");
        other[3].what = "4@a".to_string();
        compare(Kind::View("a"), &other, &wanted).expect_err("a link to another event");
        same_ids(&told(&[1, 3]), &told(&[0, 1, 2])).expect("the same");
        same_ids(&other, &told(&[3])).expect_err("another one than before");
    }
}
