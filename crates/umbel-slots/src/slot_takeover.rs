//! [`SlotTakeover`]: a node that becomes the leader.

use umbel_env::{Clock, Objects};

use crate::freshness::{Contact, SlotTimes};
use crate::slot_creation::{CreationStep, SlotCreation};
use crate::slot_error::SlotResult;
use crate::slot_follower::{FollowStep, SlotFollower};
use crate::slot_format::{SLOT_PREFIX, Slot, SlotEntry, SlotIds, number_of_slot, slot_name};
use crate::slot_requests::{Timed, damaged, list};
use crate::slot_writer::SlotWriter;

/// A node that becomes the leader: it follows up to the end, and then creates the slot that begins
/// an epoch. A node that is overtaken follows, and tries again.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SlotTakeover {
    store: [u8; 16],
    times: SlotTimes,
    node: String,
    follower: SlotFollower,
    phase: Phase,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Phase {
    /// Follows up to the end.
    Following,
    /// The chain ended at this moment: the caller decides whether the node begins an epoch.
    AtEnd(Contact),
    /// Creates the slot that begins the epoch.
    Fencing { current: Contact, creation: SlotCreation },
    /// Looks for slots after its own one, which cannot exist.
    Checking { success: Contact, slot: Slot },
}

/// Result of a step of a takeover.
#[derive(Debug)]
pub enum TakeoverStep {
    /// The node followed.
    Followed(FollowStep),
    /// The node is at the end of the chain and can begin an epoch: [`SlotTakeover::begin_epoch`].
    AtEnd,
    /// The next step is to follow at once.
    Again,
    /// Another slot has the number, or the node was too slow. It follows again.
    Overtaken,
    /// The node is the leader. The slot began its epoch.
    Leading(Box<SlotWriter>, Slot),
}

impl SlotTakeover {
    /// A takeover by a follower.
    pub fn new(
        store: [u8; 16],
        times: SlotTimes,
        node: impl Into<String>,
        follower: SlotFollower,
    ) -> SlotTakeover {
        SlotTakeover { store, times, node: node.into(), follower, phase: Phase::Following }
    }

    /// The follower, as far as it got.
    pub fn follower(&self) -> &SlotFollower {
        &self.follower
    }

    /// Begins an epoch after [`TakeoverStep::AtEnd`], with a new random uid. Does nothing if the
    /// node is not at the end.
    pub fn begin_epoch(&mut self, uid: [u8; 16], wall_micros: u64, entries: Vec<SlotEntry>) {
        let Phase::AtEnd(current) = self.phase else { return };
        let end = self.follower.end();
        let slot = Slot {
            ids: SlotIds { store: self.store, uid },
            number: end.number + 1,
            epoch: end.epoch + 1,
            previous: end.uid,
            node: self.node.clone(),
            wall_micros,
            entries,
        };
        self.phase = Phase::Fencing { current, creation: SlotCreation::new(slot) };
    }

    /// Whether the node is at the end, and waits for the caller's decision.
    pub fn is_at_end(&self) -> bool {
        matches!(self.phase, Phase::AtEnd(_))
    }

    /// Follows again after [`TakeoverStep::AtEnd`], since the leader may still live.
    pub fn keep_following(&mut self) {
        if let Phase::AtEnd(_) = self.phase {
            self.phase = Phase::Following;
        }
    }

    /// Sends the next request.
    ///
    /// # Errors
    /// Those of [`SlotFollower::step`]. Slots after the node's own one are damage: an object is
    /// missing, and the node must not lead.
    pub fn step(&mut self, objects: &dyn Objects, clock: &dyn Clock) -> SlotResult<TakeoverStep> {
        match self.phase.clone() {
            Phase::Following => {
                let followed = self.follower.step(objects, clock)?;
                if let FollowStep::Current(Some(contact)) = followed {
                    self.phase = Phase::AtEnd(contact);
                    return Ok(TakeoverStep::AtEnd);
                }
                Ok(TakeoverStep::Followed(followed))
            }
            Phase::AtEnd(_) => Ok(TakeoverStep::AtEnd),
            Phase::Fencing { current, creation } => self.fence(objects, clock, current, creation),
            Phase::Checking { success, slot } => self.check_above(objects, clock, success, slot),
        }
    }

    fn fence(
        &mut self,
        objects: &dyn Objects,
        clock: &dyn Clock,
        current: Contact,
        mut creation: SlotCreation,
    ) -> SlotResult<TakeoverStep> {
        let Timed { value, contact, answered } = creation.step(objects, clock)?;
        match value {
            CreationStep::Open => {
                self.phase = Phase::Fencing { current, creation };
                Ok(TakeoverStep::Again)
            }
            CreationStep::Other => {
                self.phase = Phase::Following;
                Ok(TakeoverStep::Overtaken)
            }
            CreationStep::Mine => {
                // A won number is no proof: others could have used and deleted it meanwhile.
                let is_fresh = answered.is_some_and(|now| current.is_fresh(now, self.times.fresh));
                self.phase = match contact.filter(|_| is_fresh) {
                    Some(success) => Phase::Checking { success, slot: creation.slot },
                    None => Phase::Following,
                };
                Ok(if is_fresh { TakeoverStep::Again } else { TakeoverStep::Overtaken })
            }
        }
    }

    fn check_above(
        &mut self,
        objects: &dyn Objects,
        clock: &dyn Clock,
        success: Contact,
        slot: Slot,
    ) -> SlotResult<TakeoverStep> {
        let own = slot_name(slot.number);
        let page = list(objects, clock, SLOT_PREFIX, Some(own.as_str()))?;
        if let Some(above) = page.value.objects.first() {
            if number_of_slot(above.name.as_str()) == Some(slot.number + 1) {
                // A later leader followed this slot already.
                self.phase = Phase::Following;
                return Ok(TakeoverStep::Overtaken);
            }
            let reason = format!(
                "slot {} was missing before it, so the store lost objects; start no leader, and \
                 restore them",
                slot.number
            );
            return Err(damaged(objects, &above.name, reason));
        }
        let end = self.follower.end().followed_by(&slot);
        let end = end.map_err(|reason| damaged(objects, &own, reason))?;
        let writer = SlotWriter::new(self.store, self.times, self.node.clone(), end, success);
        Ok(TakeoverStep::Leading(Box::new(writer), slot))
    }
}
