//! [`SlotCollection`]: deletes slots, snapshots and other objects that no node needs.
//!
//! A round announces the next deletion by a [`Floor`], or deletes what the newest floor announced.
//!
//! INVARIANT: a floor ends with a snapshot that is at least half of [`SlotTimes::keep`] old, by the
//! store's clock and by the clock of this node, which must have seen it for as long: a jump of the
//! store's clock deletes nothing. This node must have read it, too: a damaged snapshot, or that of
//! another log, deletes nothing.
//!
//! INVARIANT (C15): each floor, and each deletion, leaves two snapshots that this node has read,
//! that slots name and that the list has: the one at the floor, and the newest other one. A slot
//! after the floor stays. If one snapshot is damaged later, nodes begin from the other.
//!
//! INVARIANT: only what the newest floor announced is deleted, and only half of
//! [`SlotTimes::keep`] after this node saw the floor first, by both clocks. No later floor is
//! announced before.
//!
//! INVARIANT: a slot is deleted only after all earlier snapshots and all earlier slots that the
//! lists have. A round that ends early leaves the newest ones.
//!
//! INVARIANT (C16): other objects are deleted by the leader only, and only what its [`ObjectTable`]
//! does not need, once it has a slot that it began after the lists. So the table has the uploads of
//! all objects in the lists, of later leaders, too: the slot proves that there is none.

use std::collections::BTreeMap;
use std::time::Duration;

use umbel_env::{Clock, ObjectName, Objects};

use crate::chain::{ChainEnd, ChainState};
use crate::freshness::{Contact, SlotTimes, micros};
use crate::retry_pace::RetryPace;
use crate::slot_error::{SlotError, SlotResult};
use crate::slot_floor::{Floor, FloorSearch};
use crate::slot_format::{SLOT_PREFIX, number_of_slot};
use crate::slot_objects::ObjectTable;
use crate::slot_requests::{create, damaged, list, read_whole, unreadable};
use crate::slot_snapshot::{
    SNAPSHOT_BYTES_MAX, SNAPSHOT_PREFIX, SlotSnapshot, parse_snapshot_name, snapshot_name,
};

/// Prefixes of objects that slots name, but for snapshots.
const OBJECT_PREFIXES: [&str; 2] = ["chunks/", "records/"];

/// Deletes what no node needs, in rounds. Only the leader takes steps.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SlotCollection {
    store: [u8; 16],
    times: SlotTimes,
    /// Moment at which this node saw each snapshot first.
    seen: BTreeMap<String, Duration>,
    /// The newest floor, and the moment at which this node saw it first.
    floor: Floor,
    floor_seen: Option<Contact>,
    /// The snapshots that stay with the newest floor, once this node has read them.
    confirmed: Option<SnapshotPair>,
    phase: Phase,
    pace: RetryPace,
}

/// Snapshots of a list, with the times of their creation.
type Snapshots = BTreeMap<String, Option<u64>>;

/// Names of two snapshots that stay.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct SnapshotPair {
    /// The one at the floor.
    older: String,
    /// Another one, of the same slot or a later one.
    newer: String,
}

/// Deletions and the announcement that a round can make.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Round {
    /// Snapshots that stay with the next floor, which ends with the older one.
    next: Option<SnapshotPair>,
    /// Names of objects to be deleted.
    doomed: Vec<String>,
    /// Names of listed objects, but for slots, snapshots and floors.
    named: Vec<String>,
}

/// Work of a round once it has read two snapshots.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Goal {
    Announce,
    Delete(Round),
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
    /// Reads the snapshots that stay. `older` is the chain in the first one.
    Reading {
        pair: SnapshotPair,
        older: Option<ChainState>,
        goal: Goal,
    },
    Slots {
        round: Round,
    },
    /// Lists the other objects, from the prefix of this number on.
    Objects {
        round: Round,
        prefix: usize,
        after: Option<String>,
    },
    /// Waits for two more slots of the leader: it can have begun the first one before the lists.
    /// `listed` is the last slot at a moment after them.
    Waiting {
        round: Round,
        listed: Option<ChainEnd>,
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
    /// The round goes on after the next slots of the leader. The step sent no request.
    Waiting,
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
            pace: RetryPace::default(),
        }
    }

    /// The newest floor that this node has seen. The number of the first one is 1.
    pub fn floor(&self) -> Floor {
        self.floor
    }

    /// Begins a new round.
    pub fn restart(&mut self) {
        self.phase = Phase::first();
    }

    /// Wait before a step that repeats a failed one.
    pub fn wait(&self) -> Duration {
        self.pace.wait(&self.times)
    }

    /// Sends the next request. REQUIRES: the node leads, and the table has all slots that it
    /// acknowledged up to this call, and no other slots of its epoch.
    ///
    /// # Errors
    /// [`SlotError::Damaged`] if a snapshot that makes others unnecessary cannot be read; failed
    /// requests, after which the step can be repeated.
    pub fn step(
        &mut self,
        objects: &dyn Objects,
        clock: &dyn Clock,
        table: &ObjectTable,
    ) -> SlotResult<CollectionStep> {
        let step = self.send(objects, clock, table);
        match step {
            Ok(_) => self.pace.progress(),
            Err(_) => self.pace.repeat(),
        }
        step
    }

    fn send(
        &mut self,
        objects: &dyn Objects,
        clock: &dyn Clock,
        table: &ObjectTable,
    ) -> SlotResult<CollectionStep> {
        match self.phase.clone() {
            Phase::Snapshots { after, found } => self.list_snapshots(objects, clock, after, found),
            Phase::Floors { found, listed, search } => {
                self.read_floor(objects, clock, table, found, listed, search)
            }
            Phase::Reading { pair, older, goal } => {
                self.read_pair(objects, clock, pair, older, goal)
            }
            Phase::Slots { round } => self.list_slots(objects, clock, round),
            Phase::Objects { round, prefix, after } => {
                self.list_objects(objects, clock, table, round, prefix, after)
            }
            Phase::Waiting { round, listed } => Ok(self.wait_for_slots(table, round, listed)),
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
        table: &ObjectTable,
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
        let next = self.next_pair(table, &found, listed);
        if self.floor.number == 0 {
            return Ok(self.announce(next));
        }
        let half = self.times.keep / 2;
        if !self.floor_seen.is_some_and(|seen| self.times.is_past(seen, now, half)) {
            return Ok(self.end_round());
        }
        let end = self.floor.slot;
        let Some(pair) = pairs(table, &found).into_iter().find(|(number, _)| *number == end) else {
            // A list lacks one of the snapshots, or it is gone.
            return Ok(self.end_round());
        };
        let is_earlier = |name: &String| parse_snapshot_name(name).is_some_and(|it| it < end);
        let doomed = found.into_keys().filter(is_earlier).collect();
        let round = Round { next, doomed, named: Vec::new() };
        self.phase = match self.confirmed.as_ref() == Some(&pair.1) {
            true => Phase::Slots { round },
            false => Phase::Reading { pair: pair.1, older: None, goal: Goal::Delete(round) },
        };
        Ok(CollectionStep::Again)
    }

    /// The snapshots that stay with the next floor. It ends with the newest one that is old enough.
    fn next_pair(
        &self,
        table: &ObjectTable,
        found: &Snapshots,
        listed: Contact,
    ) -> Option<SnapshotPair> {
        let is_old = |name: &String| {
            found.get(name).is_some_and(|created| self.is_old(name, *created, listed))
        };
        let mut pairs = pairs(table, found).into_iter().rev();
        let (number, pair) = pairs.find(|(_, pair)| is_old(&pair.older))?;
        (number > self.floor.slot).then_some(pair)
    }

    /// Goes on with the announcement of the next floor.
    fn announce(&mut self, next: Option<SnapshotPair>) -> CollectionStep {
        let Some(pair) = next else { return self.end_round() };
        self.phase = Phase::Reading { pair, older: None, goal: Goal::Announce };
        CollectionStep::Again
    }

    /// Reads the next one of two snapshots that stay.
    fn read_pair(
        &mut self,
        objects: &dyn Objects,
        clock: &dyn Clock,
        pair: SnapshotPair,
        older: Option<ChainState>,
        goal: Goal,
    ) -> SlotResult<CollectionStep> {
        let name = if older.is_none() { &pair.older } else { &pair.newer };
        let Some(snapshot) = self.read_snapshot(objects, clock, name)? else {
            // Another leader deleted it after newer ones, or an operator moved it away.
            return Ok(self.end_round());
        };
        let Some(older) = older else {
            self.phase = Phase::Reading { pair, older: Some(snapshot.chain), goal };
            return Ok(CollectionStep::Again);
        };
        snapshot.chain.check_continues(&older).map_err(|reason| {
            let reason = format!("it contradicts the snapshot {}: {reason}", pair.older);
            damaged(objects, &snapshot.name(), reason)
        })?;
        self.phase = match goal {
            Goal::Delete(round) => {
                self.confirmed = Some(pair);
                Phase::Slots { round }
            }
            Goal::Announce => {
                let ChainEnd { number: slot, uid, .. } = older.end;
                Phase::Announcing { floor: Floor { number: self.floor.number + 1, slot, uid } }
            }
        };
        Ok(CollectionStep::Again)
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
        mut round: Round,
    ) -> SlotResult<CollectionStep> {
        // One page a round: the oldest names come first.
        let page = list(objects, clock, SLOT_PREFIX, None)?;
        let names = page.value.objects.iter().map(|object| object.name.as_str());
        let end = self.floor.slot;
        let old = names.filter(|name| number_of_slot(name).is_some_and(|it| it <= end));
        round.doomed.extend(old.map(str::to_owned));
        if round.doomed.is_empty() {
            self.phase = Phase::Objects { round, prefix: 0, after: None };
            return Ok(CollectionStep::Again);
        }
        Ok(self.delete(round.doomed))
    }

    /// Goes on with deletions in this order.
    fn delete(&mut self, doomed: Vec<String>) -> CollectionStep {
        self.phase = Phase::Deleting { doomed: doomed.iter().rev().cloned().collect() };
        CollectionStep::Found(doomed)
    }

    fn list_objects(
        &mut self,
        objects: &dyn Objects,
        clock: &dyn Clock,
        table: &ObjectTable,
        mut round: Round,
        prefix: usize,
        after: Option<String>,
    ) -> SlotResult<CollectionStep> {
        let page = list(objects, clock, OBJECT_PREFIXES[prefix], after.as_deref())?;
        let names = page.value.objects.iter().map(|object| object.name.as_str().to_owned());
        round.named.extend(names);
        let next = match &page.value.next_after {
            Some(_) => prefix,
            None => prefix + 1,
        };
        if next < OBJECT_PREFIXES.len() {
            self.phase = Phase::Objects { round, prefix: next, after: page.value.next_after };
            return Ok(CollectionStep::Again);
        }
        let floor = self.floor.slot;
        round.named.retain(|name| table.is_unneeded(name, floor));
        if round.named.is_empty() {
            return Ok(self.announce(round.next));
        }
        // The leader can have acknowledged slots while the list was under way.
        self.phase = Phase::Waiting { round, listed: None };
        Ok(CollectionStep::Again)
    }

    fn wait_for_slots(
        &mut self,
        table: &ObjectTable,
        round: Round,
        listed: Option<ChainEnd>,
    ) -> CollectionStep {
        let end = table.end();
        let Some(listed) = listed else {
            self.phase = Phase::Waiting { round, listed: Some(end) };
            return CollectionStep::Waiting;
        };
        if end.epoch != listed.epoch {
            return self.end_round();
        }
        if end.number < listed.number + 2 {
            return CollectionStep::Waiting;
        }
        let Round { next, mut named, .. } = round;
        named.retain(|name| table.is_unneeded(name, self.floor.slot));
        match named.is_empty() {
            true => self.announce(next),
            false => self.delete(named),
        }
    }
}

/// Pairs of named snapshots that the list has, and the number of the older one of each, in the
/// order of these numbers. The newer one is the newest.
fn pairs(table: &ObjectTable, found: &Snapshots) -> Vec<(u64, SnapshotPair)> {
    let snapshots = table.state().snapshots.iter();
    let names = snapshots.map(|(number, uid)| (*number, snapshot_name(*number, uid)));
    let names = names.map(|(number, name)| (number, name.as_str().to_owned()));
    let mut listed: Vec<_> = names.filter(|(_, name)| found.contains_key(name)).collect();
    let Some((_, newer)) = listed.pop() else { return Vec::new() };
    let pair = |(number, older)| (number, SnapshotPair { older, newer: newer.clone() });
    listed.into_iter().map(pair).collect()
}

fn object_name(name: &str) -> SlotResult<ObjectName> {
    ObjectName::new(name).map_err(|error| SlotError::Refused(error.to_string()))
}

impl Phase {
    fn first() -> Phase {
        Phase::Snapshots { after: None, found: BTreeMap::new() }
    }
}
