//! [`SlotFollower`]: a node that applies the slots of others in their order.
//!
//! INVARIANT: a slot is applied only if it cannot have been deleted since the last list of
//! snapshots. A deletion spares everything after the newest snapshot that is older than
//! [`SlotTimes::keep`]. So the slots after the newest one older than half of it are safe for the
//! other half. Without this, a slot could be deleted and then be created again by a late request of
//! a leader that had lost the number.
//!
//! INVARIANT: a node with a state applies a slot only while the store has the last slot of this
//! state, or an old snapshot that ends with this slot. Otherwise the objects are an older copy, or
//! those of another log. Numbers alone prove nothing: each history has a slot with this number.
//!
//! INVARIANT: a node with a state loads only a snapshot of a later state of the same chain (C23).
//! Otherwise it would drop slots that a leader acknowledged.

use umbel_env::{Clock, ObjectName, Objects};

use crate::chain::{ChainEnd, ChainState};
use crate::freshness::{Contact, SlotTimes, micros};
use crate::slot_error::{SlotError, SlotResult};
use crate::slot_format::{Slot, slot_name};
use crate::slot_requests::{Timed, damaged, list, read_whole, unreadable};
use crate::slot_settings::SLOT_BYTES_MAX;
use crate::slot_snapshot::{
    SNAPSHOT_BYTES_MAX, SNAPSHOT_PREFIX, SlotSnapshot, parse_snapshot_name,
};

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
    phase: Phase,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Phase {
    /// Lists snapshots: the pages so far.
    Listing { after: Option<String>, found: Listing, contact: Option<Contact> },
    /// Reads the newest snapshot.
    Loading { name: String, number: u64, listed: Contact },
    /// Reads the slot at the end of the node's state, which must exist.
    Confirming { listed: Contact },
    /// Reads a snapshot with the number of the node's state, whose slot can be deleted.
    ConfirmingSnapshot { name: String, listed: Contact },
    /// Reads slots. Their safety was shown at this moment.
    Reading { listed: Contact },
}

/// Snapshots of a list.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Listing {
    newest: Option<(u64, String)>,
    /// Number of the newest snapshot that is older than half of the time for which all is kept.
    old: Option<u64>,
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
    /// This slot is the next one.
    Applied(Slot),
    /// There was no later slot at this moment; `None` if the store stated no time.
    Current(Option<Contact>),
}

impl SlotFollower {
    /// A follower with the state after this chain, or without a state.
    pub fn new(store: [u8; 16], times: SlotTimes, chain: Option<ChainState>) -> SlotFollower {
        let phase = Phase::listing();
        let has_state = chain.is_some();
        SlotFollower { store, times, chain: chain.unwrap_or_default(), has_state, phase }
    }

    /// The last applied slot.
    pub fn end(&self) -> ChainEnd {
        self.chain.end
    }

    /// The chain up to the last applied slot.
    pub fn chain(&self) -> &ChainState {
        &self.chain
    }

    /// Whether the last list of snapshots was made a fresh time before this contact.
    pub(crate) fn is_list_fresh(&self, now: Contact) -> bool {
        matches!(self.phase, Phase::Reading { listed } if self.times.is_fresh(listed, now))
    }

    /// Lists snapshots in the next step, and then confirms the end of the state.
    pub(crate) fn list_again(&mut self) {
        self.phase = Phase::listing();
    }

    /// Sends the next request.
    ///
    /// # Errors
    /// [`SlotError::Damaged`] if the chain is broken; failed requests, after which the step can be
    /// repeated.
    pub fn step(&mut self, objects: &dyn Objects, clock: &dyn Clock) -> SlotResult<FollowStep> {
        match self.phase.clone() {
            Phase::Listing { after, found, contact } => {
                self.list_page(objects, clock, after, found, contact)
            }
            Phase::Loading { name, number, listed } => {
                self.load(objects, clock, &name, number, listed)
            }
            Phase::Confirming { listed } => self.confirm_end(objects, clock, listed),
            Phase::ConfirmingSnapshot { name, listed } => {
                self.confirm_by_snapshot(objects, clock, &name, listed)
            }
            Phase::Reading { listed } => self.read_next(objects, clock, listed),
        }
    }

    fn list_page(
        &mut self,
        objects: &dyn Objects,
        clock: &dyn Clock,
        after: Option<String>,
        mut found: Listing,
        first: Option<Contact>,
    ) -> SlotResult<FollowStep> {
        let page = list(objects, clock, SNAPSHOT_PREFIX, after.as_deref())?;
        let Some(contact) = page.contact else {
            let reason =
                "the object store states no time in its answers, so this node cannot know \
                          whether its state is still kept; use another store"
                    .to_owned();
            return Err(SlotError::Refused(format!("{}: {reason}", objects.location())));
        };
        let half = micros(self.times.keep / 2);
        for object in &page.value.objects {
            let Some(number) = parse_snapshot_name(object.name.as_str()) else { continue };
            if found.newest.as_ref().is_none_or(|(newest, _)| number >= *newest) {
                found.newest = Some((number, object.name.as_str().to_owned()));
            }
            if number == self.chain.end.number {
                found.at_end = Some(object.name.as_str().to_owned());
            }
            // An object from the future, or without a time, counts as old.
            let age = self.times.age_micros(contact, object.created_micros);
            if age.is_none_or(|age| age >= half) {
                found.old = found.old.max(Some(number));
            }
        }
        // The first page is the oldest knowledge.
        let first = first.or(Some(contact));
        if let Some(after) = page.value.next_after {
            self.phase = Phase::Listing { after: Some(after), found, contact: first };
            return Ok(FollowStep::Again);
        }
        let listed = first.unwrap_or(contact);
        self.phase = self.phase_after(found, listed).ok_or_else(|| {
            SlotError::Refused(format!(
                "{} has no snapshot of a replicated log; check the prefix, or create a log there",
                objects.location()
            ))
        })?;
        Ok(FollowStep::Again)
    }

    /// The phase after a list of snapshots; `None` if there are none.
    fn phase_after(&self, found: Listing, listed: Contact) -> Option<Phase> {
        let (number, name) = found.newest?;
        let end = self.chain.end.number;
        // No slot has the state before the first one, and an old snapshot can have replaced the
        // slot at the end of a later state. A late request can have used its number again.
        let needs_snapshot = end == 0 || found.old == Some(end);
        let is_behind = !self.has_state || found.old.is_some_and(|old| end < old);
        Some(match found.at_end {
            _ if is_behind => Phase::Loading { name, number, listed },
            Some(name) if needs_snapshot => Phase::ConfirmingSnapshot { name, listed },
            None if needs_snapshot => Phase::Loading { name, number, listed },
            _ => Phase::Confirming { listed },
        })
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
        self.has_state = true;
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

    /// Whether nothing that the list showed as kept can have been deleted before the answer.
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
        let advanced = self.chain.advance(&slot);
        advanced.map_err(|reason| damaged(objects, &name, reason))?;
        Ok(FollowStep::Applied(slot))
    }
}

fn object_name(name: &str) -> SlotResult<ObjectName> {
    ObjectName::new(name).map_err(|error| SlotError::Refused(error.to_string()))
}

impl Phase {
    fn listing() -> Phase {
        Phase::Listing { after: None, found: Listing::default(), contact: None }
    }
}
