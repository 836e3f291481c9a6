//! [`Follower`]: somebody who follows a part of a store's events, and what it was told.

use std::sync::Arc;

use umbel_events::{
    Batch, Error, EventFilter, EventId, Position, RecordedEvent, Since, Store, Subscribed,
    Subscription,
};

use super::ledger::Known;
use crate::random::Random;

/// Which events somebody follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Those of a stream.
    Stream(&'static str),
    /// All.
    All,
    /// Those that pass the filter with this number.
    Filtered(usize),
    /// Those of a view.
    View(&'static str),
}

/// How many filters there are.
const FILTERS: usize = 4;
const STREAMS: [&str; 4] = ["cart-0", "cart-1", "order-0", "order-1"];
const VIEWS: [&str; 4] = ["$ce-cart", "$ce-order", "$et-Paid", "$streams"];

impl Kind {
    /// Whether an event is one of those that are followed; said without the store's own means.
    pub fn holds(self, event: &Known) -> bool {
        let (stream, kind) = (event.stream.as_str(), event.kind.as_str());
        let is_system = stream.starts_with('$');
        match self {
            Kind::Stream(name) => stream == name,
            Kind::All => true,
            Kind::Filtered(0) => stream.starts_with("order-") || stream.starts_with("cart-2"),
            Kind::Filtered(1) => kind.starts_with("Paid"),
            Kind::Filtered(2) => !stream.starts_with("cart-"),
            Kind::Filtered(_) => kind == "Added" || kind == "Paid",
            Kind::View("$streams") => !is_system && event.revision == 0,
            Kind::View("$et-Paid") => kind == "Paid",
            Kind::View(view) => {
                let category = stream.split_once('-').filter(|_| !is_system);
                category.is_some_and(|(category, _)| view.strip_prefix("$ce-") == Some(category))
            }
        }
    }

    /// Whether it goes on behind a position, and not behind a number.
    pub fn is_by_position(self) -> bool {
        matches!(self, Kind::All | Kind::Filtered(_))
    }

    fn subscribed(self) -> Result<Subscribed, Error> {
        Ok(match self {
            Kind::Stream(name) => Subscribed::Stream(name.to_string()),
            Kind::All => Subscribed::All,
            Kind::Filtered(number) => Subscribed::Filtered(filter(number)?),
            Kind::View(view) => Subscribed::View(view.to_string()),
        })
    }

    fn got(self, event: &RecordedEvent) -> Got {
        let RecordedEvent { stream, revision, position, id, .. } = event;
        let what = match self {
            Kind::View(_) => String::from_utf8_lossy(&event.data).into_owned(),
            _ => format!("{revision}@{stream}"),
        };
        let place = if self.is_by_position() { *position } else { *revision };
        Got { place, position: *position, id: *id, what }
    }
}

fn filter(number: usize) -> Result<Arc<EventFilter>, Error> {
    match number {
        0 => EventFilter::stream_prefixes(&["order-", "cart-2"]),
        1 => EventFilter::type_prefixes(&["Paid"]),
        2 => EventFilter::stream_regex("^(?!cart-)"),
        _ => EventFilter::type_regex("^(Added|Paid)$"),
    }
}

/// An event that somebody was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Got {
    /// Its number in the stream or the view; among all its position.
    pub place: u64,
    /// Its position.
    pub position: u64,
    /// Its id; of an entry of a view that of the link.
    pub id: EventId,
    /// Its revision and stream, with an `@` between them.
    pub what: String,
}

/// A place to go on behind, kept with how many events had been told by then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    /// The place; `None` for the start.
    pub place: Option<u64>,
    /// How many events.
    pub told: usize,
}

/// What somebody met who asked for a batch.
#[derive(Debug)]
pub enum Met {
    /// The store could not say.
    Failed(Error),
    /// It said what cannot be.
    Wrong(String),
}

impl From<Error> for Met {
    fn from(error: Error) -> Met {
        Met::Failed(error)
    }
}

/// What a batch came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heard {
    /// Whether it had events.
    pub has_events: bool,
    /// Whether it said that there is no more.
    pub is_caught_up: bool,
}

/// Somebody who follows.
#[derive(Debug, Clone)]
pub struct Follower {
    /// What is followed.
    pub kind: Kind,
    /// What was told, in order.
    pub got: Vec<Got>,
    /// Behind which place to go on: what was kept last.
    pub resume: Option<u64>,
    /// Every place that was kept, in order.
    pub kept: Vec<Kept>,
    /// All events up to this position were said to be told.
    pub complete_through: u64,
}

impl Follower {
    /// Somebody who was told nothing yet.
    pub fn new(kind: Kind) -> Follower {
        let (got, kept) = (Vec::new(), Vec::new());
        Follower { kind, got, resume: None, kept, complete_through: 0 }
    }

    /// Four of each kind.
    pub fn everybody() -> Vec<Follower> {
        let kinds = (0..FILTERS).flat_map(|number| {
            let (stream, view) = (Kind::Stream(STREAMS[number]), Kind::View(VIEWS[number]));
            [stream, Kind::All, Kind::Filtered(number), view]
        });
        kinds.map(Follower::new).collect()
    }

    /// A subscription behind what was kept.
    pub fn subscribe(&self, store: &Store) -> Result<Subscription, Error> {
        let since = self.resume.map_or(Since::Start, Since::After);
        store.subscribe(self.kind.subscribed()?, since)
    }

    /// Asks for a batch in some way, in which nothing stands behind `bound`, and notes what it
    /// says.
    pub fn hear(
        &mut self,
        store: &Store,
        subscription: &mut Subscription,
        bound: Position,
        ask: impl FnOnce(&mut Subscription) -> Result<Batch, Error>,
    ) -> Result<Heard, Met> {
        let before = store.visible().0.min(bound.0);
        let batch = ask(subscription)?;
        let visible = store.visible().0;
        self.note(&batch, before, visible.min(bound.0)).map_err(Met::Wrong)?;
        if subscription.place() != self.resume {
            let place = subscription.place();
            let text = format!("its place is {place:?} and should be {:?}", self.resume);
            return Err(Met::Wrong(text));
        }
        let kept = Kept { place: self.resume, told: self.got.len() };
        if self.kept.last() != Some(&kept) {
            self.kept.push(kept);
        }
        Ok(Heard { has_events: !batch.events.is_empty(), is_caught_up: batch.is_caught_up })
    }

    /// Notes a batch. Up to `before` all could be seen before it was asked for, and behind
    /// `visible` nothing when it was there.
    fn note(&mut self, batch: &Batch, before: u64, visible: u64) -> Result<(), String> {
        let begun = self.resume;
        // The index of a stream has an event a moment before everybody can see it.
        let told_through = if matches!(self.kind, Kind::Stream(_)) { u64::MAX } else { visible };
        for event in &batch.events {
            let got = self.kind.got(event);
            let why = if self.resume.is_some_and(|place| got.place <= place) {
                format!("behind place {:?}", self.resume)
            } else if got.position <= self.complete_through {
                format!("although there was no more up to {}", self.complete_through)
            } else if got.position > told_through {
                format!("although only what lies up to {visible} can be seen")
            } else {
                self.resume = Some(got.place);
                self.got.push(got);
                continue;
            };
            return Err(format!("{got:?} was told {why}"));
        }
        match batch.checkpoint {
            Some(Position(at)) if self.kind.is_by_position() => {
                // Behind a power cut a checkpoint may name what is gone.
                let most = visible.max(begun.unwrap_or(0));
                if self.resume.is_some_and(|place| at < place) || at > most {
                    return Err(format!(
                        "the checkpoint {at} was told at {:?}, when {visible} could be seen",
                        self.resume
                    ));
                }
                self.resume = Some(at);
            }
            None if !self.kind.is_by_position() || self.resume.is_none() => {}
            other => return Err(format!("the checkpoint {other:?} was told")),
        }
        if batch.is_caught_up {
            self.complete_through = self.complete_through.max(before);
        }
        Ok(())
    }

    /// Goes back to a place that was kept; what was told behind it is forgotten.
    pub fn go_back(&mut self, random: &mut Random) {
        let Some(last) = self.kept.len().checked_sub(1) else { return };
        let index = last.saturating_sub(random.below(30) as usize);
        let Kept { place, told } = self.kept[index];
        self.kept.truncate(index + 1);
        self.got.truncate(told);
        self.resume = place;
        let last_position = self.got.last().map_or(0, |got| got.position);
        let through = if self.kind.is_by_position() { place.unwrap_or(0) } else { last_position };
        self.complete_through = self.complete_through.min(through);
    }

    /// Forgets what a power cut took, which is all behind `visible`, and returns it.
    pub fn forget_behind(&mut self, visible: u64) -> Vec<Got> {
        let left = self.got.partition_point(|got| got.position <= visible);
        let gone = self.got.split_off(left);
        self.complete_through = self.complete_through.min(visible);
        self.kept.retain(|kept| kept.told <= left);
        // Revisions and numbers are given again; positions are not, and a checkpoint stays good.
        if !self.kind.is_by_position() {
            self.resume = self.got.last().map(|got| got.place);
            // What was hidden may be seen again.
            self.complete_through = self.got.last().map_or(0, |got| got.position);
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(position: u64) -> RecordedEvent {
        let revision = (position - 96) / 8;
        RecordedEvent {
            stream: "cart-0".to_string(),
            revision,
            position,
            id: super::super::id(revision),
            kind: "Paid".to_string(),
            is_json: true,
            created: 0,
            data: Vec::new(),
            metadata: Vec::new(),
        }
    }

    fn batch(positions: &[u64], checkpoint: Option<u64>, is_caught_up: bool) -> Batch {
        let events = positions.iter().map(|position| event(*position)).collect();
        Batch { events, checkpoint: checkpoint.map(Position), is_caught_up, ..Batch::default() }
    }

    #[test]
    fn a_batch_that_cannot_be_is_refused() {
        let mut follower = Follower::new(Kind::All);
        let told = batch(&[96, 104], Some(104), false);
        follower.note(&told, 104, 104).expect("the first two");
        for (positions, checkpoint, visible, why) in [
            (&[104, 112][..], Some(112), 112, "one was told before"),
            (&[120, 112], Some(120), 120, "they are not in order"),
            (&[112], Some(112), 104, "nobody can see it yet"),
            (&[112], Some(120), 112, "the checkpoint is beyond what can be seen"),
            (&[112], Some(104), 112, "the checkpoint lies before what was told"),
            (&[], Some(96), 112, "the checkpoint goes back"),
            (&[112], None, 112, "there is no checkpoint"),
        ] {
            let wrong = batch(positions, checkpoint, false);
            follower.clone().note(&wrong, visible, visible).expect_err(why);
        }
        follower.note(&batch(&[], Some(112), true), 112, 112).expect("nothing passed");
        assert_eq!((follower.resume, follower.complete_through), (Some(112), 112));
        follower.note(&batch(&[120], Some(120), false), 120, 120).expect("the next one");
    }

    #[test]
    fn who_was_told_that_there_is_no_more_is_told_no_more_of_it() {
        let mut follower = Follower::new(Kind::Stream("cart-0"));
        follower.note(&batch(&[96], None, true), 112, 112).expect("all there is");
        let late = batch(&[104], None, false);
        follower.clone().note(&late, 112, 112).expect_err("it could be seen before");
        follower
            .clone()
            .note(&batch(&[120], Some(120), false), 120, 120)
            .expect_err("no checkpoint");
        follower.note(&batch(&[120], None, false), 112, 112).expect("a stream tells a bit earlier");
        assert_eq!(follower.resume, Some(3), "the revision");
    }

    #[test]
    fn a_power_cut_takes_what_was_told_last_and_checkpoints_stay() {
        let told = |kind: Kind, checkpoint: Option<u64>| {
            let mut follower = Follower::new(kind);
            for position in [96, 104, 112] {
                let checkpoint = checkpoint.map(|_| position);
                let told = batch(&[position], checkpoint, true);
                follower.note(&told, position, position).expect("in order");
                let kept = Kept { place: follower.resume, told: follower.got.len() };
                follower.kept.push(kept);
            }
            follower
        };
        let mut all = told(Kind::All, Some(0));
        let mut stream = told(Kind::Stream("cart-0"), None);
        for follower in [&mut all, &mut stream] {
            let gone = follower.forget_behind(104);
            assert_eq!(gone.iter().map(|got| got.position).collect::<Vec<_>>(), [112]);
            assert_eq!((follower.got.len(), follower.kept.len()), (2, 2));
            assert_eq!(follower.complete_through, 104);
        }
        assert_eq!(all.resume, Some(112), "no event will stand there or before");
        assert_eq!(stream.resume, Some(1), "revisions are given again");
        let mut random = Random::new(5);
        while all.kept.len() > 1 {
            all.go_back(&mut random);
            assert_eq!(all.got.last().map(|got| got.place), all.resume);
        }
        assert_eq!((all.resume, all.got.len(), all.complete_through), (Some(96), 1, 96));
    }

    /// The campaign says by itself which events are of a kind; a typing error there would look like
    /// a bug of the store.
    #[test]
    fn filters_are_said_in_two_ways_and_agree() {
        let streams =
            ["cart-0", "cart-2", "cart-20", "cart-1", "order-0", "orders", "plain", "$own"];
        let mut passed = [0; FILTERS];
        for stream in streams.into_iter().chain(["$$cart-1", "$$order-1", "cart-new-7"]) {
            for kind in ["Paid", "Added", "Removed", "Seen", "$metadata", "Paid2", "$streamDeleted"]
            {
                let (id, stream) = (super::super::id(0), stream.to_string());
                let kind = kind.to_string();
                let known = Known { id, stream, revision: 0, kind, is_there: true };
                for (number, count) in passed.iter_mut().enumerate() {
                    let filter = filter(number).expect("a good filter");
                    let passes = filter.passes(&known.stream, &known.kind).expect("in time");
                    assert_eq!(passes, Kind::Filtered(number).holds(&known), "{number}: {known:?}");
                    *count += usize::from(passes);
                }
            }
        }
        assert!(passed.iter().all(|count| *count > 0), "{passed:?}");
    }
}
