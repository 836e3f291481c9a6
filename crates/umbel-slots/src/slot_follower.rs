//! [`SlotFollower`]: a node that applies the slots of others in their order.
//!
//! INVARIANT: a slot is applied only if it cannot have been deleted. A deletion is announced by a
//! [`Floor`] half of [`SlotTimes::keep`] before. So the slots after the newest floor are safe for
//! half of it after a read that finds no further floor. Without this, a slot could be deleted and
//! then be created again by a late request of a leader that had lost the number. A list proves
//! nothing here, since it can lack any name: it only names snapshots to begin from.
//!
//! INVARIANT: a node with a state applies a slot only while the store has the last slot of this
//! state, or a floor that ends with this slot. Otherwise the objects are an older copy, or those of
//! another log. Numbers alone prove nothing: each history has a slot with this number.
//!
//! INVARIANT: a node with a state loads only a snapshot of a later state of the same chain (C23).
//! Otherwise it would drop slots that a leader acknowledged.
//!
//! INVARIANT (C16): a slot is applied once the node has the objects that it names. An object that
//! is missing can have been deleted, unless the last read of floors is so late that it cannot: only
//! then it is damage. An object that exists is the right one, since no two have one name.

use std::time::Duration;

use umbel_env::{Clock, ObjectName, Objects};

use crate::chain::{ChainEnd, ChainState};
use crate::freshness::{Contact, SlotTimes};
use crate::retry_pace::RetryPace;
use crate::slot_error::{SlotError, SlotResult};
use crate::slot_floor::{Floor, FloorSearch, no_time};
use crate::slot_format::{Slot, slot_name};
use crate::slot_objects::NamedObject;
use crate::slot_requests::{Timed, damaged, list, read_part, read_whole, unreadable};
use crate::slot_settings::SLOT_BYTES_MAX;
use crate::slot_snapshot::{
    SNAPSHOT_BYTES_MAX, SNAPSHOT_PREFIX, SlotSnapshot, parse_snapshot_name,
};

/// Maximum bytes of an object in one request.
pub const OBJECT_PART_BYTES: u64 = 8 << 20;
/// Remedy for objects that are not those of the node's state.
const OTHER_OBJECTS_REMEDY: &str =
    "check the prefix; if the objects are right, start this node with an empty directory";
/// Remedy for objects that lack slots of this node.
const OTHER_BRANCH_REMEDY: &str = "the objects are an older copy, or those of another branch, and \
     can lack slots that were acknowledged; check the prefix; if the objects are right, keep the \
     directory of this node and start it with an empty one";

/// A node that applies the slots of others in their order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SlotFollower {
    store: [u8; 16],
    times: SlotTimes,
    chain: ChainState,
    /// Whether the node has the state after the end. Without it, a snapshot is needed.
    has_state: bool,
    /// The newest floor that the node knows.
    floor: Floor,
    fetch: Option<ObjectFetch>,
    phase: Phase,
    pace: RetryPace,
}

/// Objects that the node reads before it goes on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ObjectFetch {
    /// The slot that names them; `None` if the state of a snapshot needs them.
    slot: Option<Slot>,
    /// Objects that are left, the next one last.
    left: Vec<NamedObject>,
    /// Number of bytes of the next one that were read.
    from: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Phase {
    /// Lists snapshots: the pages so far.
    Listing { after: Option<String>, found: Listing },
    /// Reads floors, up to one that is missing.
    Floors { found: Listing, search: FloorSearch },
    /// Reads the newest snapshot.
    Loading { name: String, number: u64, listed: Contact },
    /// Reads the slot at the end of the node's state, which must exist.
    Confirming { listed: Contact },
    /// Reads a snapshot with the number of the state before the first slot.
    ConfirmingSnapshot { name: String, listed: Contact },
    /// Reads slots. Their safety was shown at this moment.
    Reading { listed: Contact },
}

/// Snapshots of a list.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Listing {
    newest: Option<(u64, String)>,
    /// Name of a snapshot with the number of the node's state.
    at_end: Option<String>,
}

/// Result of a step of a follower.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FollowStep {
    /// The next step is to follow at once.
    Again,
    /// The node's state is that of this snapshot now.
    Restart(SlotSnapshot),
    /// The node needs these bytes of the object, from this offset on. The parts of an object come
    /// in their order. After the last one, the caller compares the checksum:
    /// [`NamedObject::has_bytes`].
    Object {
        /// The object, which the next slot names or the state of the snapshot needs.
        object: NamedObject,
        /// Offset of the bytes in it.
        from: u64,
        /// At most [`OBJECT_PART_BYTES`].
        bytes: Vec<u8>,
    },
    /// This slot is the next one. The node has the objects that it names.
    Applied(Slot),
    /// There was no later slot at this moment; `None` if the store stated no time.
    Current(Option<Contact>),
}

impl SlotFollower {
    /// A follower with the state after this chain, or without a state.
    pub fn new(store: [u8; 16], times: SlotTimes, chain: Option<ChainState>) -> SlotFollower {
        let phase = Phase::listing();
        let (has_state, floor) = (chain.is_some(), Floor::default());
        let chain = chain.unwrap_or_default();
        let (fetch, pace) = (None, RetryPace::default());
        SlotFollower { store, times, chain, has_state, floor, fetch, phase, pace }
    }

    /// The last applied slot.
    pub fn end(&self) -> ChainEnd {
        self.chain.end
    }

    /// The chain up to the last applied slot.
    pub fn chain(&self) -> &ChainState {
        &self.chain
    }

    /// Reads these objects in the next steps, which the state of a snapshot needs. REQUIRES: the
    /// last step was [`FollowStep::Restart`].
    pub fn fetch(&mut self, mut objects: Vec<NamedObject>) {
        objects.reverse();
        self.fetch =
            (!objects.is_empty()).then_some(ObjectFetch { slot: None, left: objects, from: 0 });
    }

    /// Whether the node lacks objects of its state or of the next slot. It records the state of a
    /// snapshot once it has them.
    pub fn is_fetching(&self) -> bool {
        self.fetch.is_some()
    }

    /// Whether the last floor was found missing a fresh time before this contact.
    pub(crate) fn is_list_fresh(&self, now: Contact) -> bool {
        matches!(self.phase, Phase::Reading { listed } if self.times.is_fresh(listed, now))
    }

    /// Lists snapshots in the next step, and then confirms the end of the state.
    pub(crate) fn list_again(&mut self) {
        self.phase = Phase::listing();
    }

    /// Wait before the next step, unless the caller waits longer at the end of the chain.
    pub fn wait(&self) -> Duration {
        self.pace.wait(&self.times)
    }

    /// Sends the next request, or none before it applies a slot whose objects it has.
    ///
    /// # Errors
    /// [`SlotError::Damaged`] if the chain is broken, or an object is missing; failed requests,
    /// after which the step can be repeated.
    pub fn step(&mut self, objects: &dyn Objects, clock: &dyn Clock) -> SlotResult<FollowStep> {
        let has_begun = self.phase != Phase::listing();
        self.pace.go_on();
        let step = self.send(objects, clock);
        match &step {
            Ok(FollowStep::Applied(_) | FollowStep::Restart(_)) => {
                self.pace.reach(self.chain.end.number);
            }
            Ok(FollowStep::Current(_)) => self.pace.progress(),
            Ok(FollowStep::Again) if has_begun && self.phase == Phase::listing() => {
                self.pace.repeat();
            }
            Ok(FollowStep::Again | FollowStep::Object { .. }) => {}
            Err(_) => self.pace.repeat(),
        }
        step
    }

    fn send(&mut self, objects: &dyn Objects, clock: &dyn Clock) -> SlotResult<FollowStep> {
        match self.phase.clone() {
            Phase::Listing { after, found } => self.list_page(objects, clock, after, found),
            Phase::Floors { found, search } => self.read_floor(objects, clock, found, search),
            Phase::Loading { name, number, listed } => {
                self.load(objects, clock, &name, number, listed)
            }
            Phase::Confirming { listed } => self.confirm_end(objects, clock, listed),
            Phase::ConfirmingSnapshot { name, listed } => {
                self.confirm_by_snapshot(objects, clock, &name, listed)
            }
            Phase::Reading { listed } => match self.fetch.clone() {
                Some(fetch) => self.fetch_part(objects, clock, listed, fetch),
                None => self.read_next(objects, clock, listed),
            },
        }
    }

    fn list_page(
        &mut self,
        objects: &dyn Objects,
        clock: &dyn Clock,
        after: Option<String>,
        mut found: Listing,
    ) -> SlotResult<FollowStep> {
        let page = list(objects, clock, SNAPSHOT_PREFIX, after.as_deref())?;
        if page.contact.is_none() {
            return Err(no_time(objects));
        }
        for object in &page.value.objects {
            let Some(number) = parse_snapshot_name(object.name.as_str()) else { continue };
            if found.newest.as_ref().is_none_or(|(newest, _)| number >= *newest) {
                found.newest = Some((number, object.name.as_str().to_owned()));
            }
            if number == self.chain.end.number {
                found.at_end = Some(object.name.as_str().to_owned());
            }
        }
        if let Some(after) = page.value.next_after {
            self.phase = Phase::Listing { after: Some(after), found };
            return Ok(FollowStep::Again);
        }
        if found.newest.is_none() {
            return Err(SlotError::Refused(format!(
                "{} has no snapshot of a replicated log; check the prefix, or create a log there",
                objects.location()
            )));
        }
        self.phase = Phase::Floors { found, search: FloorSearch::new(self.floor) };
        Ok(FollowStep::Again)
    }

    fn read_floor(
        &mut self,
        objects: &dyn Objects,
        clock: &dyn Clock,
        found: Listing,
        mut search: FloorSearch,
    ) -> SlotResult<FollowStep> {
        let Some(listed) = search.step(objects, clock, &self.store)? else {
            self.phase = Phase::Floors { found, search };
            return Ok(FollowStep::Again);
        };
        self.floor = search.newest;
        let Floor { slot, uid, .. } = self.floor;
        let end = self.chain.end;
        if self.has_state && end.number == slot && end.uid != uid {
            let reason =
                format!("this node has another slot with this number; {OTHER_OBJECTS_REMEDY}");
            return Err(damaged(objects, &slot_name(end.number), reason));
        }
        self.phase = self.phase_after(found, listed);
        Ok(FollowStep::Again)
    }

    /// The phase after the newest floor is known.
    fn phase_after(&self, found: Listing, listed: Contact) -> Phase {
        let (end, floor) = (self.chain.end.number, self.floor.slot);
        let is_behind = !self.has_state || end < floor;
        match (found.newest, found.at_end) {
            // The snapshots of deleted slots have no slot after them.
            (Some((number, name)), _) if is_behind && number >= floor => {
                Phase::Loading { name, number, listed }
            }
            // The list lacks the snapshots that exist.
            _ if is_behind => Phase::listing(),
            // No slot has the state before the first one.
            (_, Some(name)) if end == 0 => Phase::ConfirmingSnapshot { name, listed },
            (Some((number, name)), None) if end == 0 => Phase::Loading { name, number, listed },
            // The floor named the slot, which can be deleted. A late request can have used its
            // number again.
            _ if end == floor => Phase::Reading { listed },
            _ => Phase::Confirming { listed },
        }
    }

    fn load(
        &mut self,
        objects: &dyn Objects,
        clock: &dyn Clock,
        name: &str,
        number: u64,
        listed: Contact,
    ) -> SlotResult<FollowStep> {
        let name = object_name(name)?;
        let answer = read_whole(objects, clock, &name, SNAPSHOT_BYTES_MAX)?;
        let Some(bytes) = answer.value else {
            // Newer snapshots replaced it.
            self.phase = Phase::listing();
            return Ok(FollowStep::Again);
        };
        let snapshot = SlotSnapshot::decode(&bytes, &self.store, number).map_err(|error| {
            let remedy = "move it away, and nodes begin from the snapshot before it";
            unreadable(objects, &name, error, remedy)
        })?;
        if self.has_state {
            snapshot.chain.check_continues(&self.chain).map_err(|reason| {
                damaged(objects, &name, format!("{reason}; {OTHER_BRANCH_REMEDY}"))
            })?;
        }
        self.chain = snapshot.chain.clone();
        (self.has_state, self.fetch) = (true, None);
        self.phase = Phase::Reading { listed };
        Ok(FollowStep::Restart(snapshot))
    }

    /// Reads the slot at the end of the state. Without it, or with another one, the objects are
    /// not those of which this node has the state: the node would write after a gap.
    fn confirm_end(
        &mut self,
        objects: &dyn Objects,
        clock: &dyn Clock,
        listed: Contact,
    ) -> SlotResult<FollowStep> {
        let ChainEnd { number, uid, .. } = self.chain.end;
        let name = slot_name(number);
        let Timed { value, answered, .. } = read_whole(objects, clock, &name, SLOT_BYTES_MAX)?;
        if !self.is_listed_lately(listed, answered) {
            self.phase = Phase::listing();
            return Ok(FollowStep::Again);
        }
        let damage =
            |reason: String| damaged(objects, &name, format!("{reason}; {OTHER_OBJECTS_REMEDY}"));
        let Some(bytes) = value else {
            return Err(damage(
                "this node has it, but the store lost it or is an older copy".into(),
            ));
        };
        let slot = Slot::decode(&bytes, &self.store, number)
            .map_err(|error| unreadable(objects, &name, error, OTHER_OBJECTS_REMEDY))?;
        if slot.ids.uid != uid {
            return Err(damage("this node has another slot with this number".into()));
        }
        self.phase = Phase::Reading { listed };
        Ok(FollowStep::Again)
    }

    /// Reads a snapshot with the number of the node's state, and compares their last slots.
    fn confirm_by_snapshot(
        &mut self,
        objects: &dyn Objects,
        clock: &dyn Clock,
        name: &str,
        listed: Contact,
    ) -> SlotResult<FollowStep> {
        let name = object_name(name)?;
        let answer = read_whole(objects, clock, &name, SNAPSHOT_BYTES_MAX)?;
        let Some(bytes) = answer.value else {
            // Newer snapshots replaced it.
            self.phase = Phase::listing();
            return Ok(FollowStep::Again);
        };
        let snapshot = SlotSnapshot::decode(&bytes, &self.store, self.chain.end.number)
            .map_err(|error| unreadable(objects, &name, error, OTHER_OBJECTS_REMEDY))?;
        if snapshot.chain != self.chain {
            let reason = "this node has another slot with this number";
            return Err(damaged(objects, &name, format!("{reason}; {OTHER_OBJECTS_REMEDY}")));
        }
        self.phase = Phase::Reading { listed };
        Ok(FollowStep::Again)
    }

    /// Whether nothing that no floor had announced can have been deleted before the answer.
    fn is_listed_lately(&self, listed: Contact, answered: Option<Contact>) -> bool {
        answered.is_some_and(|now| self.times.is_within(listed, now, self.times.keep / 4))
    }

    fn read_next(
        &mut self,
        objects: &dyn Objects,
        clock: &dyn Clock,
        listed: Contact,
    ) -> SlotResult<FollowStep> {
        let number = self.chain.end.number + 1;
        let name = slot_name(number);
        let Timed { value, contact, answered } = read_whole(objects, clock, &name, SLOT_BYTES_MAX)?;
        if !self.is_listed_lately(listed, answered) {
            // The answer could be of a number that was used before.
            self.phase = Phase::listing();
            return Ok(FollowStep::Again);
        }
        let Some(bytes) = value else { return Ok(FollowStep::Current(contact)) };
        let decoded = Slot::decode(&bytes, &self.store, number);
        let remedy = "start no leader, and restore it";
        let slot = decoded.map_err(|error| unreadable(objects, &name, error, remedy))?;
        let checked = self.chain.check_next(&slot);
        checked.map_err(|reason| damaged(objects, &name, reason))?;
        let left: Vec<NamedObject> =
            slot.entries.iter().rev().filter_map(NamedObject::of).collect();
        if left.is_empty() {
            return self.apply(slot);
        }
        self.fetch = Some(ObjectFetch { slot: Some(slot), left, from: 0 });
        Ok(FollowStep::Again)
    }

    fn apply(&mut self, slot: Slot) -> SlotResult<FollowStep> {
        let advanced = self.chain.advance(&slot);
        advanced.map_err(|reason| SlotError::unwritable(slot.number, &reason))?;
        Ok(FollowStep::Applied(slot))
    }

    /// Reads the next part of an object, or applies the slot after the last one.
    fn fetch_part(
        &mut self,
        objects: &dyn Objects,
        clock: &dyn Clock,
        listed: Contact,
        mut fetch: ObjectFetch,
    ) -> SlotResult<FollowStep> {
        let Some(object) = fetch.left.last().cloned() else {
            self.fetch = None;
            return fetch.slot.map_or(Ok(FollowStep::Again), |slot| self.apply(slot));
        };
        let from = fetch.from;
        let to = object.bytes.min(from.saturating_add(OBJECT_PART_BYTES));
        let part = read_part(objects, clock, &object.name, from..to)?;
        let Some(found) = part.value else {
            if !self.is_listed_lately(listed, part.answered) {
                // A floor after this node's state can have been announced, and the object deleted.
                self.phase = Phase::listing();
                return Ok(FollowStep::Again);
            }
            let reason = "the replicated log names it, and the store lost it; restore it";
            return Err(damaged(objects, &object.name, reason.into()));
        };
        let (bytes, object_bytes) = (found.bytes, found.object_bytes);
        if object_bytes != object.bytes || bytes.len() as u64 != to - from {
            let reason = format!(
                "it has {object_bytes} bytes, and the replicated log states {}; restore it",
                object.bytes
            );
            return Err(damaged(objects, &object.name, reason));
        }
        fetch.from = to;
        if to == object.bytes {
            fetch.left.pop();
            fetch.from = 0;
        }
        let is_done = fetch.left.is_empty() && fetch.slot.is_none();
        self.fetch = (!is_done).then_some(fetch);
        Ok(FollowStep::Object { object, from, bytes })
    }
}

fn object_name(name: &str) -> SlotResult<ObjectName> {
    ObjectName::new(name).map_err(|error| SlotError::Refused(error.to_string()))
}

impl Phase {
    fn listing() -> Phase {
        Phase::Listing { after: None, found: Listing::default() }
    }
}
