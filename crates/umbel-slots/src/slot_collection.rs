//! [`SlotCollection`]: deletes slots and snapshots that no node needs.
//!
//! INVARIANT: only what the newest snapshot older than [`SlotTimes::keep`] makes unnecessary is
//! deleted. Its age counts by the store's clock and by the clock of this node, which must have seen
//! it for as long: a jump of the store's clock deletes nothing. This node must have read it, too: a
//! damaged snapshot, or that of another log, deletes nothing.
//!
//! INVARIANT: a slot is deleted only after all earlier snapshots and all earlier slots. So a node
//! with an earlier state finds neither, if a round ends early: it never applies a late creation of
//! a deleted number after a slot that is left.

use std::collections::BTreeMap;
use std::time::Duration;

use umbel_env::{Clock, ObjectName, Objects};

use crate::freshness::{Contact, SlotTimes, micros};
use crate::slot_error::{SlotError, SlotResult};
use crate::slot_format::{SLOT_PREFIX, number_of_slot};
use crate::slot_requests::{list, read_whole, unreadable};
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
    /// Name of the snapshot that this node read last.
    confirmed: Option<String>,
    phase: Phase,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Phase {
    Snapshots {
        after: Option<String>,
        found: BTreeMap<String, Option<u64>>,
    },
    /// Reads the snapshot that makes others unnecessary.
    Confirming {
        name: String,
        floor: u64,
        doomed: Vec<String>,
    },
    Slots {
        floor: u64,
        doomed: Vec<String>,
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
        let (seen, confirmed) = (BTreeMap::new(), None);
        SlotCollection { store, times, seen, confirmed, phase: Phase::first() }
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
            Phase::Confirming { name, floor, doomed } => {
                self.confirm_snapshot(objects, clock, name, floor, doomed)
            }
            Phase::Slots { floor, doomed } => self.list_slots(objects, clock, floor, doomed),
            Phase::Deleting { mut doomed } => {
                let Some(name) = doomed.pop() else {
                    self.phase = Phase::first();
                    return Ok(CollectionStep::Done);
                };
                objects.delete(&object_name(&name)?)?;
                self.phase = Phase::Deleting { doomed };
                Ok(CollectionStep::Again)
            }
        }
    }

    fn list_snapshots(
        &mut self,
        objects: &dyn Objects,
        clock: &dyn Clock,
        after: Option<String>,
        mut found: BTreeMap<String, Option<u64>>,
    ) -> SlotResult<CollectionStep> {
        let page = list(objects, clock, SNAPSHOT_PREFIX, after.as_deref())?;
        let Some(contact) = page.contact else {
            self.phase = Phase::first();
            return Ok(CollectionStep::Done);
        };
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
        let is_old =
            |(name, created): &(&String, &Option<u64>)| self.is_old(name, **created, contact);
        let old = found.iter().filter(is_old);
        let old = old.filter_map(|(name, _)| Some((parse_snapshot_name(name)?, name.clone())));
        let Some((floor, name)) = old.max() else {
            self.phase = Phase::first();
            return Ok(CollectionStep::Done);
        };
        let doomed = found.into_keys();
        let doomed = doomed.filter(|name| parse_snapshot_name(name).is_some_and(|it| it < floor));
        let doomed = doomed.collect();
        self.phase = match self.confirmed.as_ref() == Some(&name) {
            true => Phase::Slots { floor, doomed },
            false => Phase::Confirming { name, floor, doomed },
        };
        Ok(CollectionStep::Again)
    }

    fn confirm_snapshot(
        &mut self,
        objects: &dyn Objects,
        clock: &dyn Clock,
        name: String,
        floor: u64,
        doomed: Vec<String>,
    ) -> SlotResult<CollectionStep> {
        let object = object_name(&name)?;
        let Some(bytes) = read_whole(objects, clock, &object, SNAPSHOT_BYTES_MAX)?.value else {
            // Another node deleted it after a newer one.
            self.phase = Phase::first();
            return Ok(CollectionStep::Done);
        };
        SlotSnapshot::decode(&bytes, &self.store, floor).map_err(|error| {
            unreadable(objects, &object, error, "nothing is deleted until it is moved away")
        })?;
        self.confirmed = Some(name);
        self.phase = Phase::Slots { floor, doomed };
        Ok(CollectionStep::Again)
    }

    fn is_old(&self, name: &str, created: Option<u64>, now: Contact) -> bool {
        let keep = micros(self.times.keep);
        let stored = self.times.age_micros(now, created);
        let seen = self.seen.get(name).map(|seen| now.node.saturating_sub(*seen));
        stored.is_some_and(|age| age >= keep) && seen.is_some_and(|age| age >= self.times.keep)
    }

    fn list_slots(
        &mut self,
        objects: &dyn Objects,
        clock: &dyn Clock,
        floor: u64,
        mut doomed: Vec<String>,
    ) -> SlotResult<CollectionStep> {
        // One page a round: the oldest names come first.
        let page = list(objects, clock, SLOT_PREFIX, None)?;
        let names = page.value.objects.iter().map(|object| object.name.as_str());
        let old = names.filter(|name| number_of_slot(name).is_some_and(|it| it <= floor));
        doomed.extend(old.map(str::to_owned));
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
