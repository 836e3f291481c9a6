//! [`SlotTakeover`]: a node that becomes the leader.

use std::time::Duration;

use umbel_env::{Clock, ObjectName, Objects};

use crate::freshness::{Contact, SlotTimes};
use crate::retry_pace::RetryPace;
use crate::slot_creation::{CreationStep, SlotCreation};
use crate::slot_entry::SlotEntry;
use crate::slot_error::{SlotError, SlotResult};
use crate::slot_follower::{FollowStep, SlotFollower};
use crate::slot_format::{SLOT_PREFIX, Slot, SlotIds, number_of_slot, slot_name};
use crate::slot_objects::NamedObject;
use crate::slot_requests::{Timed, damaged, list, read_whole};
use crate::slot_settings::SLOT_BYTES_MAX;
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
    /// Whether a list of slots took so long that the node does not wait for one again.
    has_slow_list: bool,
    pace: RetryPace,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Phase {
    /// Follows up to the end.
    Following,
    /// The chain ended at this moment: the caller decides whether the node begins an epoch.
    AtEnd(Contact),
    /// Creates the slot that begins the epoch.
    Fencing { current: Contact, creation: SlotCreation },
    /// Looks for slots after its own one, from this name on.
    Checking { success: Contact, creation: SlotCreation, after: String },
    /// Reads the number after the node's own one. A list has `above`, or took too long.
    Comparing { success: Contact, creation: SlotCreation, above: Option<ObjectName> },
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
        let (node, phase, pace) = (node.into(), Phase::Following, RetryPace::default());
        SlotTakeover { store, times, node, follower, phase, has_slow_list: false, pace }
    }

    /// The follower, as far as it got.
    pub fn follower(&self) -> &SlotFollower {
        &self.follower
    }

    /// Reads objects that the state of a snapshot needs: [`SlotFollower::fetch`].
    pub fn fetch(&mut self, objects: Vec<NamedObject>) {
        self.follower.fetch(objects);
    }

    /// Begins an epoch after [`TakeoverStep::AtEnd`], with a new random uid. Returns `false` if the
    /// node is not at the end, or must first confirm that the objects are those of its state: it
    /// follows, and the call can be repeated at the next [`TakeoverStep::AtEnd`].
    ///
    /// # Errors
    /// [`SlotError::Refused`](crate::SlotError::Refused) if readers would refuse the slot, such as
    /// one whose first entry does not begin an epoch. The node stays at the end.
    pub fn begin_epoch(
        &mut self,
        uid: [u8; 16],
        wall_micros: u64,
        entries: Vec<SlotEntry>,
    ) -> SlotResult<bool> {
        let Phase::AtEnd(current) = self.phase else { return Ok(false) };
        if !self.follower.is_list_fresh(current) {
            // An older copy may have replaced the objects since.
            self.follower.list_again();
            self.pace.repeat();
            self.phase = Phase::Following;
            return Ok(false);
        }
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
        let creation = SlotCreation::after(self.follower.chain(), slot)?;
        self.phase = Phase::Fencing { current, creation };
        Ok(true)
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

    /// Wait before the next step, unless the caller waits longer at the end of the chain. It counts
    /// for [`SlotTakeover::begin_epoch`], too.
    pub fn wait(&self) -> Duration {
        self.pace.wait(&self.times).max(match self.phase {
            Phase::Following => self.follower.wait(),
            _ => Duration::ZERO,
        })
    }

    /// Sends the next request.
    ///
    /// # Errors
    /// Those of [`SlotFollower::step`]. A gap below later slots is damage: an object is missing,
    /// and the node must not lead. [`SlotError::Refused`] if the store contradicts itself for long.
    pub fn step(&mut self, objects: &dyn Objects, clock: &dyn Clock) -> SlotResult<TakeoverStep> {
        let follows = self.phase == Phase::Following;
        self.pace.go_on();
        let step = self.send(objects, clock);
        match &step {
            Ok(TakeoverStep::Followed(FollowStep::Applied(_))) => self.pace.progress(),
            Ok(TakeoverStep::Overtaken) => self.pace.repeat(),
            Err(_) if !follows => self.pace.repeat(),
            _ => {}
        }
        step
    }

    fn send(&mut self, objects: &dyn Objects, clock: &dyn Clock) -> SlotResult<TakeoverStep> {
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
            Phase::Checking { success, creation, after } => {
                self.check_above(objects, clock, success, creation, &after)
            }
            Phase::Comparing { success, creation, above } => {
                self.compare_above(objects, clock, success, creation, above)
            }
        }
    }

    fn fence(
        &mut self,
        objects: &dyn Objects,
        clock: &dyn Clock,
        current: Contact,
        mut creation: SlotCreation,
    ) -> SlotResult<TakeoverStep> {
        let Timed { value, contact, answered } =
            creation.step(objects, clock, &self.times, current)?;
        match value {
            CreationStep::Open | CreationStep::Missing => {
                if matches!(value, CreationStep::Missing) {
                    self.pace.repeat();
                }
                self.phase = Phase::Fencing { current, creation };
                Ok(TakeoverStep::Again)
            }
            CreationStep::Other | CreationStep::Late => {
                self.phase = Phase::Following;
                Ok(TakeoverStep::Overtaken)
            }
            CreationStep::Mine => {
                // A won number is no proof: others could have used and deleted it meanwhile.
                let is_fresh = answered.is_some_and(|now| self.times.is_fresh(current, now));
                self.phase = match contact.filter(|_| is_fresh) {
                    Some(success) if self.has_slow_list => {
                        Phase::Comparing { success, creation, above: None }
                    }
                    Some(success) => {
                        let after = slot_name(creation.slot.number).as_str().to_owned();
                        Phase::Checking { success, creation, after }
                    }
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
        creation: SlotCreation,
        after: &str,
    ) -> SlotResult<TakeoverStep> {
        let limit = self.list_limit();
        let page = match list(objects, clock, SLOT_PREFIX, Some(after)) {
            // The limit of a list (L8): one read of the next number decides.
            Err(error) => {
                let node = clock.now_with_suspends().saturating_sub(success.node);
                if node < limit || !error.is_temporary() {
                    return Err(error);
                }
                self.has_slow_list = true;
                self.phase = Phase::Comparing { success, creation, above: None };
                return Ok(TakeoverStep::Again);
            }
            Ok(page) => page,
        };
        let is_within = page.answered.is_some_and(|now| self.times.is_within(success, now, limit));
        self.has_slow_list |= !is_within;
        // Later leaders could have used and deleted the numbers above meanwhile.
        if !page.answered.is_some_and(|now| self.times.is_fresh(success, now)) {
            return Ok(self.overtaken());
        }
        let mut names = page.value.objects.into_iter().map(|object| object.name);
        if let Some(above) = names.find(|name| number_of_slot(name.as_str()).is_some()) {
            self.phase = Phase::Comparing { success, creation, above: Some(above) };
            return Ok(TakeoverStep::Again);
        }
        if let Some(after) = page.value.next_after {
            self.phase = match is_within {
                true => Phase::Checking { success, creation, after },
                false => Phase::Comparing { success, creation, above: None },
            };
            return Ok(TakeoverStep::Again);
        }
        self.lead(success, creation)
    }

    /// Time after the node's slot within which lists must answer. Followers do not depose the node
    /// meanwhile.
    fn list_limit(&self) -> Duration {
        (self.times.fresh / 4).min(self.follower.chain().settings.follower_wait() / 4)
    }

    fn lead(&mut self, success: Contact, creation: SlotCreation) -> SlotResult<TakeoverStep> {
        let mut chain = self.follower.chain().clone();
        let advanced = chain.advance(&creation.slot);
        advanced.map_err(|reason| SlotError::unwritable(creation.slot.number, &reason))?;
        let (store, times, node) = (self.store, self.times, self.node.clone());
        let writer = SlotWriter::new(store, times, node, chain, success);
        Ok(TakeoverStep::Leading(Box::new(writer), creation.slot))
    }

    /// Reads the number after the node's own one. A list may lack it, and have later slots.
    fn compare_above(
        &mut self,
        objects: &dyn Objects,
        clock: &dyn Clock,
        success: Contact,
        creation: SlotCreation,
        above: Option<ObjectName>,
    ) -> SlotResult<TakeoverStep> {
        let own = creation.slot.number;
        let next = read_whole(objects, clock, &slot_name(own + 1), SLOT_BYTES_MAX)?;
        let is_fresh = next.answered.is_some_and(|now| self.times.is_fresh(success, now));
        if next.value.is_some() || !is_fresh {
            // A later leader followed the node's slot already, or could have done so.
            return Ok(self.overtaken());
        }
        let Some(above) = above else { return self.lead(success, creation) };
        let reason = format!(
            "slot {} before it is missing, so the store lost objects; start no leader, and restore \
             them",
            own + 1
        );
        Err(damaged(objects, &above, reason))
    }

    fn overtaken(&mut self) -> TakeoverStep {
        self.phase = Phase::Following;
        TakeoverStep::Overtaken
    }
}
