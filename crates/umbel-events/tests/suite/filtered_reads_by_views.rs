//! Filtered reads by views find the same events as scans. Both find the same events after all
//! changes of the store, and with concurrent appends or scavenges.

use std::collections::BTreeMap;
use std::sync::Arc;

use umbel_events::{
    Direction, Error, EventFilter, ExpectedVersion, FilterStrategy, FilteredItem, NewEvent,
    Position, RecordedEvent, Store,
};
use umbel_sim::{Random, Sim};

use super::scavenge;
use super::support::{id, options};
use super::views::drop_views;

const STREAMS: [&str; 14] = [
    "cart-1",
    "cart-2",
    "cart-42-b",
    "cart-gone",
    "cartoon-1",
    "car",
    "order-1",
    "plain",
    "-1",
    "$sys-1",
    "$$cart-2",
    "$$order-1",
    "$epoch-information",
    "$persistentsubscription-$all::billing-parked",
];
const KINDS: [&str; 7] = ["Opened", "OpenedTwice", "Added", "Closed", "$>", "OrderPlaced", "käse"];
const DIRECTIONS: [Direction; 2] = [Direction::Forwards, Direction::Backwards];

/// Filters of every kind, including those that no view helps.
fn filters() -> Vec<Arc<EventFilter>> {
    let made = [
        EventFilter::type_prefixes(&["Opened"]),
        EventFilter::type_prefixes(&["Open", "Closed", "Or"]),
        EventFilter::type_prefixes(&["$"]),
        EventFilter::type_prefixes(&["Nothing"]),
        EventFilter::type_prefixes(&["New-"]),
        EventFilter::type_regex("^Added"),
        EventFilter::type_regex(r"^(?!\$)"),
        EventFilter::type_regex("(ed|[0-9])$"),
        EventFilter::stream_prefixes(&["cart-"]),
        EventFilter::stream_prefixes(&["cart-4", "order-1"]),
        EventFilter::stream_prefixes(&["cart-gone", "cart-3"]),
        EventFilter::stream_prefixes(&["car"]),
        EventFilter::stream_prefixes(&["$", "-"]),
        EventFilter::stream_regex("^cart-"),
        EventFilter::stream_regex("1$"),
    ];
    made.map(|filter| filter.expect("a good filter")).into()
}

fn read(store: &Store, from: u64, direction: Direction) -> Vec<RecordedEvent> {
    store.read_all(Position(from), direction).map(|event| event.expect("readable")).collect()
}

fn passing(
    store: &Store,
    (from, direction): (u64, Direction),
    filter: &EventFilter,
) -> Vec<RecordedEvent> {
    let passes =
        |event: &RecordedEvent| filter.passes(&event.stream, &event.kind).expect("in time");
    read(store, from, direction).into_iter().filter(passes).collect()
}

struct FilterScript {
    sim: Sim,
    random: Random,
    next_id: u64,
    scavenged: u64,
}

impl FilterScript {
    fn open(&self) -> Store {
        Store::open("/events", options(&self.sim)).expect("the store opens")
    }

    /// Appends some events, sometimes of a new type.
    fn append(&mut self, store: &Store) {
        let stream = STREAMS[self.random.below(STREAMS.len() as u64) as usize];
        let data = vec![b' '; self.random.below(2500) as usize];
        let is_metadata = stream.starts_with("$$");
        let kind = match self.random.below(12) {
            _ if is_metadata => "$metadata".to_string(),
            0 => format!("New-{}", self.next_id),
            _ => KINDS[self.random.below(KINDS.len() as u64) as usize].to_string(),
        };
        let hides = ["{}", r#"{"$maxCount":3}"#, r#"{"$tb":4}"#, r#"{"$maxAge":1}"#];
        let hide = hides[self.random.below(4) as usize].as_bytes();
        let count = 1 + self.random.below(3);
        let numbers = self.next_id..self.next_id + count;
        let data = if is_metadata { hide } else { &data[..] };
        let events: Vec<_> =
            numbers.map(|number| NewEvent::json(id(number), &kind, data)).collect();
        self.next_id += count;
        let done = store.append(stream, ExpectedVersion::Any, &events);
        assert!(matches!(done, Ok(_) | Err(Error::StreamDeleted { .. })), "{done:?}");
    }

    fn scavenge(&mut self, store: &Store) {
        let report = store.scavenge(&scavenge::all()).expect("scavenged");
        self.scavenged += report.events_removed;
    }

    /// Makes one of the possible changes to a store.
    fn change(&mut self, store: Store) -> Store {
        match self.random.below(40) {
            0 => store.flush().expect("flushed"),
            1 | 2 => self.scavenge(&store),
            // Either may have happened before.
            3 => drop(store.delete("cart-1", ExpectedVersion::Any)),
            4 if self.next_id > 150 => drop(store.tombstone("cart-gone", ExpectedVersion::Any)),
            5 | 6 => {
                store.close().expect("closed");
                if self.random.below(3) == 0 {
                    drop_views(&self.sim);
                }
                return self.open();
            }
            _ => self.append(&store),
        }
        store
    }

    /// A start position: at an event, next to one, at an end, or after it.
    fn place(&mut self, store: &Store) -> u64 {
        let all = read(store, 0, Direction::Forwards);
        let any = all[self.random.below(all.len() as u64) as usize].position;
        match self.random.below(8) {
            0 => 0,
            1 => u64::MAX,
            2 => store.visible_position().0 + self.random.below(100),
            3 => any + 1,
            4 => any - 1,
            _ => any,
        }
    }

    /// Reads to the end, and checks every reported position. Calls `between` after each step.
    fn follow(
        &mut self,
        store: &Store,
        (from, direction): (u64, Direction),
        (filter, strategy): (&Arc<EventFilter>, FilterStrategy),
        mut between: impl FnMut(&mut FilterScript),
    ) -> Vec<RecordedEvent> {
        let mut reader = store.read_filtered(Position(from), direction, Arc::clone(filter));
        reader.force_strategy(strategy);
        let mut found: Vec<RecordedEvent> = Vec::new();
        let mut last = None;
        loop {
            let limit = [1, 2, 7, 100, usize::MAX][self.random.below(5) as usize];
            let before = reader.examined();
            let step = reader.next_within(limit).expect("readable");
            assert!(reader.examined() - before <= limit as u64, "no more than requested");
            let at = match &step {
                FilteredItem::Event(event) => event.position,
                FilteredItem::Examined(at) | FilteredItem::End(at) => at.0,
            };
            assert!(at <= store.visible_position().0, "{step:?} could not be seen");
            let is_further = last.is_none_or(|last| match direction {
                Direction::Forwards => at > last,
                Direction::Backwards => at < last,
            });
            match step {
                FilteredItem::End(_) => return found,
                _ => assert!(is_further, "{step:?} behind {last:?}"),
            }
            if let FilteredItem::Event(event) = step {
                found.push(event);
            }
            last = Some(at);
            between(self);
        }
    }

    /// Compares scans and reads by views, without concurrent changes.
    fn compare(&mut self, store: &Store) {
        for filter in filters() {
            for direction in DIRECTIONS {
                let from = self.place(store);
                let wanted = passing(store, (from, direction), &filter);
                for strategy in [FilterStrategy::Views, FilterStrategy::Scan] {
                    let found = self.follow(store, (from, direction), (&filter, strategy), |_| {});
                    assert!(found == wanted, "{filter:?} from {from} {direction:?} {strategy:?}");
                }
            }
        }
    }

    /// Reads with appends and scavenges between the steps. All events that exist throughout the
    /// read are found once and in order, and no other events appear.
    fn race(&mut self, store: &Store) {
        let filters = filters();
        for direction in DIRECTIONS {
            let filter = &filters[self.random.below(filters.len() as u64) as usize];
            let place = (self.place(store), direction);
            let visible = store.visible_position().0;
            let before = passing(store, place, filter);
            let mut left = 30;
            let found = self.follow(store, place, (filter, FilterStrategy::Views), |script| {
                if left == 0 {
                    return;
                }
                left -= 1;
                match script.random.below(12) {
                    0 => script.scavenge(store),
                    1 => store.flush().expect("flushed"),
                    2..=6 => script.append(store),
                    _ => {}
                }
            });
            let after = passing(store, place, filter);
            let known: BTreeMap<u64, &RecordedEvent> =
                before.iter().chain(&after).map(|event| (event.position, event)).collect();
            for event in &found {
                // Events that were appended meanwhile may have been scavenged since.
                let is_new = event.position > visible;
                let is_known = known.get(&event.position) == Some(&event);
                assert!(is_known || is_new, "{filter:?} {place:?}: {event:?} never was");
            }
            for event in &after {
                let is_late = direction == Direction::Backwards && event.position > visible;
                assert!(
                    is_late || found.contains(event),
                    "{filter:?} {place:?}: {event:?} was missed"
                );
            }
        }
    }
}

#[test]
fn view_reads_match_a_full_scan() {
    let seeds = std::env::var("UMBEL_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(8);
    let mut scavenged = 0;
    for seed in 0..seeds {
        let (sim, random) = (Sim::new(seed), Random::new(seed));
        let mut script = FilterScript { sim, random, next_id: 0, scavenged: 0 };
        let mut store = script.open();
        (0..40).for_each(|_| script.append(&store));
        for _ in 0..3 {
            for _ in 0..100 {
                store = script.change(store);
            }
            script.compare(&store);
            (0..4).for_each(|_| script.race(&store));
        }
        let report = store.verify().expect("verified");
        assert!(report.damage.is_empty(), "seed {seed}: {:?}", report.damage);
        scavenged += script.scavenged;
    }
    assert!(scavenged > seeds * 20, "{scavenged} events were scavenged in {seeds} histories");
}
