//! [`SlotCollection`]: deletes slots and snapshots that no node needs.
//!
//! A round announces the next deletion by a [`Floor`], or deletes what the newest floor announced.
//!
//! INVARIANT: a floor ends with a snapshot that is at least half of [`SlotTimes::keep`] old, by the
//! store's clock and by the clock of this node, which must have seen it for as long: a jump of the
//! store's clock deletes nothing. This node must have read it, too: a damaged snapshot, or that of
//! another log, deletes nothing.
//!
//! INVARIANT: only what the newest floor announced is deleted, and only half of
//! [`SlotTimes::keep`] after this node saw the floor first, by both clocks. No later floor is
//! announced before.
//!
//! INVARIANT: a slot is deleted only after all earlier snapshots and all earlier slots that the
//! lists have. A round that ends early leaves the newest ones.

use std::collections::BTreeMap;
use std::time::Duration;

use umbel_env::{Clock, ObjectName, Objects};

use crate::freshness::{Contact, SlotTimes, micros};
use crate::slot_error::{SlotError, SlotResult};
use crate::slot_floor::{Floor, FloorSearch};
use crate::slot_format::{SLOT_PREFIX, number_of_slot};
use crate::slot_requests::{create, list, read_whole, unreadable};
use crate::slot_snapshot::{
    SNAPSHOT_BYTES_MAX, SNAPSHOT_PREFIX, SlotSnapshot, parse_snapshot_name,
};

/// Deletes what no node needs, in rounds.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SlotCollection {
    store: [u8; 16],
    times: SlotTimes,
    /// Moment at which this node saw each snapshot first.
    seen: BTreeMap<String, Duration>,
    /// The newest floor, and the moment at which this node saw it first.
    floor: Floor,
    floor_seen: Option<Contact>,
    /// Name of the snapshot at the newest floor that this node has read.
    confirmed: Option<String>,
    phase: Phase,
}

/// Snapshots of a list, with the times of their creation.
type Snapshots = BTreeMap<String, Option<u64>>;

/// Deletions and the announcement that a round can make.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Round {
    /// Name of the snapshot with which the next floor can end.
    next: Option<String>,
    /// Names of objects to be deleted.
    doomed: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Phase {
    Snapshots {
        after: Option<String>,
        found: Snapshots,
    },
    /// Reads floors, up to one that is missing.
    Floors {
        found: Snapshots,
        listed: Contact,
        search: FloorSearch,
    },
    /// Reads the snapshot at the newest floor, which makes others unnecessary.
    Confirming {
        name: String,
        round: Round,
    },
    Slots {
        round: Round,
    },
    /// Reads the snapshot with which the next floor ends.
    Reading {
        name: String,
    },
    /// Creates the next floor.
    Announcing {
        floor: Floor,
    },
    /// Deletes these objects, the last one first.
    Deleting {
        doomed: Vec<String>,
    },
}

/// Result of a step of a collection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CollectionStep {
    /// The next step is to follow at once.
    Again,
    /// These objects are not needed; the next steps delete them in this order. A caller that only
    /// reports begins a new round: [`SlotCollection::restart`].
    Found(Vec<String>),
    /// The round is over.
    Done,
}

impl SlotCollection {
    /// A collection that has seen nothing.
    pub fn new(store: [u8; 16], times: SlotTimes) -> SlotCollection {
        SlotCollection {
            store,
            times,
            seen: BTreeMap::new(),
            floor: Floor::default(),
            floor_seen: None,
            confirmed: None,
            phase: Phase::first(),
        }
    }

    /// Begins a new round.
    pub fn restart(&mut self) {
        self.phase = Phase::first();
    }

    /// Sends the next request.
    ///
    /// # Errors
    /// [`SlotError::Damaged`] if the snapshot that makes others unnecessary cannot be read; failed
    /// requests, after which the step can be repeated.
    pub fn step(&mut self, objects: &dyn Objects, clock: &dyn Clock) -> SlotResult<CollectionStep> {
        match self.phase.clone() {
            Phase::Snapshots { after, found } => self.list_snapshots(objects, clock, after, found),
            Phase::Floors { found, listed, search } => {
                self.read_floor(objects, clock, found, listed, search)
            }
            Phase::Confirming { name, round } => {
                let Some(_) = self.read_snapshot(objects, clock, &name)? else {
                    // Another node deleted it after a newer one.
                    return Ok(self.end_round());
                };
                self.confirmed = Some(name);
                self.phase = Phase::Slots { round };
                Ok(CollectionStep::Again)
            }
            Phase::Slots { round } => self.list_slots(objects, clock, round),
            Phase::Reading { name } => {
                let Some(snapshot) = self.read_snapshot(objects, clock, &name)? else {
                    return Ok(self.end_round());
                };
                let number = self.floor.number + 1;
                let end = snapshot.chain.end;
                let floor = Floor { number, slot: end.number, uid: end.uid };
                self.phase = Phase::Announcing { floor };
                Ok(CollectionStep::Again)
            }
            Phase::Announcing { floor } => {
                // Whatever the answer, the next round reads the floors.
                create(objects, clock, &floor.name(), &floor.encode(&self.store))?;
                Ok(self.end_round())
            }
            Phase::Deleting { mut doomed } => {
                let Some(name) = doomed.pop() else { return Ok(self.end_round()) };
                objects.delete(&object_name(&name)?)?;
                self.phase = Phase::Deleting { doomed };
                Ok(CollectionStep::Again)
            }
        }
    }

    fn end_round(&mut self) -> CollectionStep {
        self.phase = Phase::first();
        CollectionStep::Done
    }

    fn list_snapshots(
        &mut self,
        objects: &dyn Objects,
        clock: &dyn Clock,
        after: Option<String>,
        mut found: Snapshots,
    ) -> SlotResult<CollectionStep> {
        let page = list(objects, clock, SNAPSHOT_PREFIX, after.as_deref())?;
        let Some(listed) = page.contact else { return Ok(self.end_round()) };
        for object in page.value.objects {
            if parse_snapshot_name(object.name.as_str()).is_some() {
                found.insert(object.name.as_str().to_owned(), object.created_micros);
            }
        }
        if let Some(after) = page.value.next_after {
            self.phase = Phase::Snapshots { after: Some(after), found };
            return Ok(CollectionStep::Again);
        }
        self.seen.retain(|name, _| found.contains_key(name));
        for name in found.keys() {
            self.seen.entry(name.clone()).or_insert(clock.now_with_suspends());
        }
        self.phase = Phase::Floors { found, listed, search: FloorSearch::new(self.floor) };
        Ok(CollectionStep::Again)
    }

    fn read_floor(
        &mut self,
        objects: &dyn Objects,
        clock: &dyn Clock,
        found: Snapshots,
        listed: Contact,
        mut search: FloorSearch,
    ) -> SlotResult<CollectionStep> {
        let Some(now) = search.step(objects, clock, &self.store)? else {
            self.phase = Phase::Floors { found, listed, search };
            return Ok(CollectionStep::Again);
        };
        if search.newest.number > self.floor.number {
            (self.floor, self.floor_seen) = (search.newest, search.answered);
            self.confirmed = None;
        }
        let next = self.next_end(&found, listed);
        if self.floor.number == 0 {
            return Ok(self.announce(next));
        }
        let half = self.times.keep / 2;
        if !self.floor_seen.is_some_and(|seen| self.times.is_past(seen, now, half)) {
            return Ok(self.end_round());
        }
        let end = self.floor.slot;
        let number = |name: &&String| parse_snapshot_name(name.as_str());
        let Some(name) = found.keys().find(|name| number(name) == Some(end)) else {
            // The list lacks the snapshot at the floor, or it is gone.
            return Ok(self.end_round());
        };
        let doomed = found.keys().filter(|name| number(name).is_some_and(|it| it < end)).cloned();
        let (name, round) = (name.clone(), Round { next, doomed: doomed.collect() });
        self.phase = match self.confirmed.as_ref() == Some(&name) {
            true => Phase::Slots { round },
            false => Phase::Confirming { name, round },
        };
        Ok(CollectionStep::Again)
    }

    /// Name of the newest snapshot after the floor that is old enough to end the next one.
    fn next_end(&self, found: &Snapshots, listed: Contact) -> Option<String> {
        let old = found.iter().filter(|(name, created)| self.is_old(name, **created, listed));
        let old = old.filter_map(|(name, _)| Some((parse_snapshot_name(name)?, name)));
        let (number, name) = old.max()?;
        (number > self.floor.slot).then(|| name.clone())
    }

    /// Goes on with the announcement of the next floor.
    fn announce(&mut self, next: Option<String>) -> CollectionStep {
        let Some(name) = next else { return self.end_round() };
        self.phase = Phase::Reading { name };
        CollectionStep::Again
    }

    /// Reads a snapshot; `None` if there is none.
    fn read_snapshot(
        &self,
        objects: &dyn Objects,
        clock: &dyn Clock,
        name: &str,
    ) -> SlotResult<Option<SlotSnapshot>> {
        let object = object_name(name)?;
        let read = read_whole(objects, clock, &object, SNAPSHOT_BYTES_MAX)?;
        let (Some(bytes), Some(number)) = (read.value, parse_snapshot_name(name)) else {
            return Ok(None);
        };
        let snapshot = SlotSnapshot::decode(&bytes, &self.store, number).map_err(|error| {
            unreadable(objects, &object, error, "nothing is deleted until it is moved away")
        })?;
        Ok(Some(snapshot))
    }

    fn is_old(&self, name: &str, created: Option<u64>, now: Contact) -> bool {
        let half = self.times.keep / 2;
        let stored = self.times.age_micros(now, created);
        let seen = self.seen.get(name).map(|seen| now.node.saturating_sub(*seen));
        stored.is_some_and(|age| age >= micros(half)) && seen.is_some_and(|age| age >= half)
    }

    fn list_slots(
        &mut self,
        objects: &dyn Objects,
        clock: &dyn Clock,
        round: Round,
    ) -> SlotResult<CollectionStep> {
        // One page a round: the oldest names come first.
        let page = list(objects, clock, SLOT_PREFIX, None)?;
        let Round { next, mut doomed } = round;
        let names = page.value.objects.iter().map(|object| object.name.as_str());
        let end = self.floor.slot;
        let old = names.filter(|name| number_of_slot(name).is_some_and(|it| it <= end));
        doomed.extend(old.map(str::to_owned));
        if doomed.is_empty() {
            return Ok(self.announce(next));
        }
        self.phase = Phase::Deleting { doomed: doomed.iter().rev().cloned().collect() };
        Ok(CollectionStep::Found(doomed))
    }
}

fn object_name(name: &str) -> SlotResult<ObjectName> {
    ObjectName::new(name).map_err(|error| SlotError::Refused(error.to_string()))
}

impl Phase {
    fn first() -> Phase {
        Phase::Snapshots { after: None, found: BTreeMap::new() }
    }
}
