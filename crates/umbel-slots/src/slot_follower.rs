//! [`SlotFollower`]: a node that applies the slots of others in their order.
//!
//! INVARIANT: a slot is applied only if it cannot have been deleted since the last list of
//! snapshots. A deletion spares everything after the newest snapshot that is older than
//! [`SlotTimes::keep`]. So the slots after the newest one older than half of it are safe for the
//! other half. Without this, a slot could be deleted and then be created again by a late request of
//! a leader that had lost the number.
//!
//! INVARIANT: a node with a state applies a slot only while the store has the last slot of this
//! state, or an old snapshot of it. Otherwise the objects are an older copy, or those of another
//! log.

use umbel_env::{Clock, ObjectName, Objects};

use crate::chain::ChainEnd;
use crate::freshness::{Contact, SlotTimes, micros};
use crate::slot_error::{SlotError, SlotResult};
use crate::slot_format::{SLOT_BYTES_MAX, Slot, slot_name};
use crate::slot_requests::{Timed, damaged, list, read_whole};
use crate::slot_snapshot::{
    SNAPSHOT_BYTES_MAX, SNAPSHOT_PREFIX, SlotSnapshot, parse_snapshot_name,
};

/// A node that applies the slots of others in their order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SlotFollower {
    store: [u8; 16],
    times: SlotTimes,
    end: ChainEnd,
    /// Whether the node has the state after `end`. Without it, a snapshot is needed.
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
    /// Reads slots. Their safety was shown at this moment.
    Reading { listed: Contact },
}

/// Snapshots of a list.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Listing {
    newest: Option<(u64, String)>,
    /// Number of the newest snapshot that is older than half of the time for which all is kept.
    old: Option<u64>,
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
    /// A follower with the state after `end`, or without a state.
    pub fn new(store: [u8; 16], times: SlotTimes, end: Option<ChainEnd>) -> SlotFollower {
        let phase = Phase::listing();
        let has_state = end.is_some();
        SlotFollower { store, times, end: end.unwrap_or_default(), has_state, phase }
    }

    /// The last applied slot.
    pub fn end(&self) -> ChainEnd {
        self.end
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
        let is_behind = !self.has_state || found.old.is_some_and(|old| self.end.number < old);
        let Some((number, name)) = found.newest else {
            return Err(SlotError::Refused(format!(
                "{} has no snapshot of a replicated log; check the prefix, or create a log there",
                objects.location()
            )));
        };
        // The slot at the end of the state can be deleted once an old snapshot has it.
        let is_end_kept = self.end.number > found.old.unwrap_or(0);
        self.phase = match is_behind {
            true => Phase::Loading { name, number, listed },
            false if is_end_kept => Phase::Confirming { listed },
            false => Phase::Reading { listed },
        };
        Ok(FollowStep::Again)
    }

    fn load(
        &mut self,
        objects: &dyn Objects,
        clock: &dyn Clock,
        name: &str,
        number: u64,
        listed: Contact,
    ) -> SlotResult<FollowStep> {
        let name = ObjectName::new(name.to_owned())
            .map_err(|error| SlotError::Refused(error.to_string()))?;
        let answer = read_whole(objects, clock, &name, SNAPSHOT_BYTES_MAX)?;
        let Some(bytes) = answer.value else {
            // Newer snapshots replaced it.
            self.phase = Phase::listing();
            return Ok(FollowStep::Again);
        };
        let snapshot = SlotSnapshot::decode(&bytes, &self.store, number).map_err(|reason| {
            let remedy = "move it away, and nodes begin from the snapshot before it";
            damaged(objects, &name, format!("{reason}; {remedy}"))
        })?;
        self.end = snapshot.end;
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
        let ChainEnd { number, uid, .. } = self.end;
        let name = slot_name(number);
        let Timed { value, answered, .. } = read_whole(objects, clock, &name, SLOT_BYTES_MAX)?;
        if !self.is_listed_lately(listed, answered) {
            self.phase = Phase::listing();
            return Ok(FollowStep::Again);
        }
        let remedy = "check the prefix; if the objects are right, start this node with an empty \
                      directory";
        let damage = |reason: String| damaged(objects, &name, format!("{reason}; {remedy}"));
        let Some(bytes) = value else {
            return Err(damage(
                "this node has it, but the store lost it or is an older copy".into(),
            ));
        };
        let slot = Slot::decode(&bytes, &self.store, number).map_err(damage)?;
        if slot.ids.uid != uid {
            return Err(damage("this node has another slot with this number".into()));
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
        let number = self.end.number + 1;
        let name = slot_name(number);
        let Timed { value, contact, answered } = read_whole(objects, clock, &name, SLOT_BYTES_MAX)?;
        if !self.is_listed_lately(listed, answered) {
            // The answer could be of a number that was used before.
            self.phase = Phase::listing();
            return Ok(FollowStep::Again);
        }
        let Some(bytes) = value else { return Ok(FollowStep::Current(contact)) };
        let decoded = Slot::decode(&bytes, &self.store, number);
        let slot = decoded.map_err(|reason| damaged(objects, &name, reason))?;
        let followed = self.end.followed_by(&slot);
        self.end = followed.map_err(|reason| damaged(objects, &name, reason))?;
        Ok(FollowStep::Applied(slot))
    }
}

impl Phase {
    fn listing() -> Phase {
        Phase::Listing { after: None, found: Listing::default(), contact: None }
    }
}
