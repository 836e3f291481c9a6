//! [`Subscriber`]: follows a part of a store's events and records the received events.

use std::sync::Arc;

use umbel_events::{
    Error, EventFilter, EventId, Position, RecordedEvent, Source, Store, Subscription,
    SubscriptionBatch, SubscriptionStart,
};
use umbel_sim::Random;

use crate::events::subscriptions::event_oracle::AppendedEvent;

/// Kind of subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubscriptionKind {
    /// Events of a stream.
    Stream(&'static str),
    /// All events.
    All,
    /// Events that pass the filter with this number.
    Filtered(usize),
    /// Events of a view.
    View(&'static str),
}

/// Number of filters.
const FILTERS: usize = 4;
const STREAMS: [&str; 4] = ["cart-0", "cart-1", "order-0", "order-1"];
const VIEWS: [&str; 4] = ["$ce-cart", "$ce-order", "$et-Paid", "$streams"];

impl SubscriptionKind {
    /// Whether an event belongs to the subscription; computed without code of the store.
    pub fn holds(self, event: &AppendedEvent) -> bool {
        let (stream, kind) = (event.stream.as_str(), event.kind.as_str());
        let is_system = stream.starts_with('$');
        match self {
            SubscriptionKind::Stream(name) => stream == name,
            SubscriptionKind::All => true,
            SubscriptionKind::Filtered(0) => {
                stream.starts_with("order-") || stream.starts_with("cart-2")
            }
            SubscriptionKind::Filtered(1) => kind.starts_with("Paid"),
            SubscriptionKind::Filtered(2) => !stream.starts_with("cart-"),
            SubscriptionKind::Filtered(_) => kind == "Added" || kind == "Paid",
            SubscriptionKind::View("$streams") => !is_system && event.revision == 0,
            SubscriptionKind::View("$et-Paid") => kind == "Paid",
            SubscriptionKind::View(view) => {
                let category = stream.split_once('-').filter(|_| !is_system);
                category.is_some_and(|(category, _)| view.strip_prefix("$ce-") == Some(category))
            }
        }
    }

    /// Whether the subscription resumes after a position, not after a revision or number.
    pub fn is_by_position(self) -> bool {
        matches!(self, SubscriptionKind::All | SubscriptionKind::Filtered(_))
    }

    fn source(self) -> Result<Source, Error> {
        Ok(match self {
            SubscriptionKind::Stream(name) => Source::Stream(name.into()),
            SubscriptionKind::All => Source::All,
            SubscriptionKind::Filtered(number) => Source::Filtered(filter(number)?),
            SubscriptionKind::View(view) => Source::View(view.into()),
        })
    }

    fn delivered(self, event: &RecordedEvent) -> DeliveredEvent {
        let RecordedEvent { stream, revision, position, id, .. } = event;
        let what = match self {
            SubscriptionKind::View(_) => String::from_utf8_lossy(&event.data).into_owned(),
            _ => format!("{revision}@{stream}"),
        };
        let place = if self.is_by_position() { *position } else { *revision };
        DeliveredEvent { place, position: *position, id: *id, what }
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

/// An event that a subscriber received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveredEvent {
    /// Number of the event in the stream or view; its position in subscriptions to all or filtered
    /// events.
    pub place: u64,
    /// Position of the event.
    pub position: u64,
    /// Id of the event; in a view the id of the link.
    pub id: EventId,
    /// Revision and stream of the event, joined by `@`.
    pub what: String,
}

/// A checkpoint, with the number of events that the subscriber had received when it was saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResumePoint {
    /// Place of the checkpoint; `None` for the start.
    pub place: Option<u64>,
    /// Number of received events.
    pub delivered_count: usize,
}

/// Failure of a request for a batch.
#[derive(Debug)]
pub enum BatchError {
    /// The store returned an error.
    Failed(Error),
    /// The store returned an impossible batch.
    Wrong(String),
}

impl From<Error> for BatchError {
    fn from(error: Error) -> BatchError {
        BatchError::Failed(error)
    }
}

/// Summary of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchSummary {
    /// Whether the batch has events.
    pub has_events: bool,
    /// Whether the batch reports that the subscriber has caught up.
    pub is_caught_up: bool,
}

/// A subscriber, with the events that it received and its checkpoints.
#[derive(Debug, Clone)]
pub struct Subscriber {
    /// Kind of subscription.
    pub kind: SubscriptionKind,
    /// Received events, in order.
    pub delivered: Vec<DeliveredEvent>,
    /// Last saved checkpoint, from which the subscriber resumes.
    pub resume: Option<u64>,
    /// Every saved checkpoint, in order.
    pub resume_points: Vec<ResumePoint>,
    /// All events up to this position are delivered, according to the store.
    pub complete_through: u64,
}

impl Subscriber {
    /// Creates a subscriber without events.
    pub fn new(kind: SubscriptionKind) -> Subscriber {
        let (got, kept) = (Vec::new(), Vec::new());
        Subscriber { kind, delivered: got, resume: None, resume_points: kept, complete_through: 0 }
    }

    /// Returns four subscribers of each kind.
    pub fn all_kinds() -> Vec<Subscriber> {
        let kinds = (0..FILTERS).flat_map(|number| {
            let (stream, view) =
                (SubscriptionKind::Stream(STREAMS[number]), SubscriptionKind::View(VIEWS[number]));
            [stream, SubscriptionKind::All, SubscriptionKind::Filtered(number), view]
        });
        kinds.map(Subscriber::new).collect()
    }

    /// Subscribes from the saved checkpoint.
    pub fn subscribe(&self, store: &Store) -> Result<Subscription, Error> {
        let since = self.resume.map_or(SubscriptionStart::Start, SubscriptionStart::After);
        store.subscribe(self.kind.source()?, since)
    }

    /// Reads a batch by a random call and records it. The batch must have no event after `bound`.
    pub fn read_batch(
        &mut self,
        store: &Store,
        subscription: &mut Subscription,
        bound: Position,
        ask: impl FnOnce(&mut Subscription) -> Result<SubscriptionBatch, Error>,
    ) -> Result<BatchSummary, BatchError> {
        let before = store.visible_position().0.min(bound.0);
        let batch = ask(subscription)?;
        let visible = store.visible_position().0;
        self.note(&batch, before, visible.min(bound.0)).map_err(BatchError::Wrong)?;
        let place = subscription.position();
        if !self.kind.is_by_position() && place > self.resume {
            // The batch passed hidden events after the last delivered one. What it left out by
            // mistake is missing at the end.
            self.resume = place;
        }
        if place != self.resume {
            let text = format!("its place is {place:?} and should be {:?}", self.resume);
            return Err(BatchError::Wrong(text));
        }
        let kept = ResumePoint { place: self.resume, delivered_count: self.delivered.len() };
        if self.resume_points.last() != Some(&kept) {
            self.resume_points.push(kept);
        }
        Ok(BatchSummary { has_events: !batch.events.is_empty(), is_caught_up: batch.is_caught_up })
    }

    /// Records a batch. Everything up to `before` was visible before the request; nothing after
    /// `visible` was visible at the end of the request.
    fn note(&mut self, batch: &SubscriptionBatch, before: u64, visible: u64) -> Result<(), String> {
        let begun = self.resume;
        // The index of a stream has an event shortly before all readers see it.
        let visible_through =
            if matches!(self.kind, SubscriptionKind::Stream(_)) { u64::MAX } else { visible };
        for event in &batch.events {
            let got = self.kind.delivered(event);
            let why = if self.resume.is_some_and(|place| got.place <= place) {
                format!("after place {:?}", self.resume)
            } else if got.position <= self.complete_through {
                format!("although all events up to {} were delivered", self.complete_through)
            } else if got.position > visible_through {
                format!("although only events up to {visible} are visible")
            } else {
                self.resume = Some(got.place);
                self.delivered.push(got);
                continue;
            };
            return Err(format!("{got:?} was delivered {why}"));
        }
        match batch.checkpoint {
            Some(Position(at)) if self.kind.is_by_position() => {
                // After a power cut a checkpoint may name a lost event.
                let checkpoint_max = visible.max(begun.unwrap_or(0));
                if self.resume.is_some_and(|place| at < place) || at > checkpoint_max {
                    return Err(format!(
                        "the checkpoint {at} came at {:?}, when {visible} was visible",
                        self.resume
                    ));
                }
                self.resume = Some(at);
            }
            None if !self.kind.is_by_position() || self.resume.is_none() => {}
            other => return Err(format!("the checkpoint {other:?} was delivered")),
        }
        if batch.is_caught_up {
            self.complete_through = self.complete_through.max(before);
        }
        Ok(())
    }

    /// Goes back to a saved checkpoint; and removes later events from the record.
    pub fn rewind(&mut self, random: &mut Random) {
        let Some(last) = self.resume_points.len().checked_sub(1) else { return };
        let index = last.saturating_sub(random.below(30) as usize);
        let ResumePoint { place, delivered_count } = self.resume_points[index];
        self.resume_points.truncate(index + 1);
        self.delivered.truncate(delivered_count);
        self.resume = place;
        let last_position = self.delivered.last().map_or(0, |got| got.position);
        let through = if self.kind.is_by_position() { place.unwrap_or(0) } else { last_position };
        self.complete_through = self.complete_through.min(through);
    }

    /// Removes and returns all events after `visible`, which a power cut removed from the store.
    pub fn forget_after(&mut self, visible: u64) -> Vec<DeliveredEvent> {
        let left = self.delivered.partition_point(|got| got.position <= visible);
        let gone = self.delivered.split_off(left);
        self.complete_through = self.complete_through.min(visible);
        self.resume_points.retain(|kept| kept.delivered_count <= left);
        // Revisions and numbers are reused, positions are not, and a checkpoint stays valid.
        if !self.kind.is_by_position() {
            self.resume = self.delivered.last().map(|got| got.place);
            // Hidden events may become visible again.
            self.complete_through = self.delivered.last().map_or(0, |got| got.position);
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
            id: super::super::event_id(revision),
            kind: "Paid".to_string(),
            is_json: true,
            created: 0,
            data: Vec::new(),
            metadata: Vec::new(),
        }
    }

    fn batch(positions: &[u64], checkpoint: Option<u64>, is_caught_up: bool) -> SubscriptionBatch {
        let events = positions.iter().map(|position| event(*position)).collect();
        SubscriptionBatch {
            events,
            checkpoint: checkpoint.map(Position),
            is_caught_up,
            ..SubscriptionBatch::default()
        }
    }

    #[test]
    fn impossible_batch_is_rejected() {
        let mut follower = Subscriber::new(SubscriptionKind::All);
        let one_batch = batch(&[96, 104], Some(104), false);
        follower.note(&one_batch, 104, 104).expect("the first two");
        for (positions, checkpoint, visible, why) in [
            (&[104, 112][..], Some(112), 112, "one was delivered before"),
            (&[120, 112], Some(120), 120, "they are not in order"),
            (&[112], Some(112), 104, "it is not visible yet"),
            (&[112], Some(120), 112, "the checkpoint is after the visible events"),
            (&[112], Some(104), 112, "the checkpoint is before a delivered event"),
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
    fn caught_up_subscriber_receives_no_older_event() {
        let mut follower = Subscriber::new(SubscriptionKind::Stream("cart-0"));
        follower.note(&batch(&[96], None, true), 112, 112).expect("all there is");
        let late = batch(&[104], None, false);
        follower.clone().note(&late, 112, 112).expect_err("it was visible before");
        follower
            .clone()
            .note(&batch(&[120], Some(120), false), 120, 120)
            .expect_err("no checkpoint");
        follower.note(&batch(&[120], None, false), 112, 112).expect("a stream is a bit ahead");
        assert_eq!(follower.resume, Some(3), "the revision");
    }

    #[test]
    fn power_cut_loses_last_events_and_keeps_checkpoints() {
        let follow = |kind: SubscriptionKind, checkpoint: Option<u64>| {
            let mut follower = Subscriber::new(kind);
            for position in [96, 104, 112] {
                let checkpoint = checkpoint.map(|_| position);
                let one_batch = batch(&[position], checkpoint, true);
                follower.note(&one_batch, position, position).expect("in order");
                let delivered_count = follower.delivered.len();
                let kept = ResumePoint { place: follower.resume, delivered_count };
                follower.resume_points.push(kept);
            }
            follower
        };
        let mut all = follow(SubscriptionKind::All, Some(0));
        let mut stream = follow(SubscriptionKind::Stream("cart-0"), None);
        for follower in [&mut all, &mut stream] {
            let gone = follower.forget_after(104);
            assert_eq!(gone.iter().map(|got| got.position).collect::<Vec<_>>(), [112]);
            assert_eq!((follower.delivered.len(), follower.resume_points.len()), (2, 2));
            assert_eq!(follower.complete_through, 104);
        }
        assert_eq!(all.resume, Some(112), "no event will stand there or before");
        assert_eq!(stream.resume, Some(1), "revisions are given again");
        let mut random = Random::new(5);
        while all.resume_points.len() > 1 {
            all.rewind(&mut random);
            assert_eq!(all.delivered.last().map(|got| got.place), all.resume);
        }
        assert_eq!((all.resume, all.delivered.len(), all.complete_through), (Some(96), 1, 96));
    }

    /// The campaign defines its own filters; a mistake in them would look like a bug of the store.
    #[test]
    fn both_definitions_of_the_filters_agree() {
        let streams =
            ["cart-0", "cart-2", "cart-20", "cart-1", "order-0", "orders", "plain", "$own"];
        let mut passed = [0; FILTERS];
        for stream in streams.into_iter().chain(["$$cart-1", "$$order-1", "cart-new-7"]) {
            for kind in ["Paid", "Added", "Removed", "Seen", "$metadata", "Paid2", "$streamDeleted"]
            {
                let (id, stream) = (super::super::event_id(0), stream.to_string());
                let kind = kind.to_string();
                let known = AppendedEvent { id, stream, revision: 0, kind, is_there: true };
                for (number, count) in passed.iter_mut().enumerate() {
                    let filter = filter(number).expect("a good filter");
                    let passes = filter.passes(&known.stream, &known.kind).expect("in time");
                    assert_eq!(
                        passes,
                        SubscriptionKind::Filtered(number).holds(&known),
                        "{number}: {known:?}"
                    );
                    *count += usize::from(passes);
                }
            }
        }
        assert!(passed.iter().all(|count| *count > 0), "{passed:?}");
    }
}
