//! [`ReplicaNode`]: the thread of a node of a replicated log, which follows the slots or leads.
//!
//! ```text
//! Follower ── at the end of the slots, and the node is to lead ──► SlotLeader ── it led ──► Ended
//!     ▲                                                                │
//!     └──────────────────────────── overtaken ─────────────────────────┘
//! ```
//!
//! A node is to lead if an operator promotes it, if the log has no slot yet, if the node led last,
//! if the leader gave up its epoch, or if it created no slot for the time that followers wait. All
//! but the first require that the node is no read-only replica. How long a node waits decides only
//! when it becomes a candidate: the object store decides which candidate leads.
//!
//! INVARIANT: a node that led never follows in the same process (B10): its store has ended.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use umbel_base::ignore_poison::IgnorePoison;
use umbel_env::{Clock, Env, Objects};
use umbel_slots::{
    ChainCheck, ChainState, Contact, FollowStep, SLOT_BYTES_MAX, SLOT_PREFIX, Slot, SlotEntry,
    SlotError, SlotFollower, SlotResult, StoreObject, check_chain_end, slot_name,
};

use crate::replication::deadline_objects::DeadlineObjects;
use crate::replication::leader_status::{LeaderEnd, LeaderRole};
use crate::replication::node_status::{LeaderAddress, NodeRole, NodeStatus};
use crate::replication::slot_leader::{
    LeaderProgress, LeaderStep, SlotLeader, SlotLeaderOptions, request_limits,
};
use crate::store::log_replication::LogReplication;
use crate::store::slot_applier::SlotApplier;
use crate::types::error::Result;

/// Wait after a failed request, which doubles with each further one.
const FIRST_RETRY_WAIT: Duration = Duration::from_millis(100);
/// Maximum wait after a failed request.
const RETRY_WAIT_MAX: Duration = Duration::from_secs(5);
/// Maximum number of later slots that a node counts.
const LATER_SLOTS_MAX: usize = 1000;
/// Slots after which a node that has not reached the end counts the later ones.
const SLOTS_BEFORE_COUNT: u64 = 16;
/// Time between two counts of the later slots.
const COUNT_INTERVAL: Duration = Duration::from_secs(1);
/// Longest wait of a follower before it becomes a candidate, after the leader gave up its epoch.
const RESIGNED_WAIT_MAX: Duration = Duration::from_millis(250);
/// Share of the time that followers wait, by which nodes wait longer than that. With a random part
/// of it, most of them see the slot of the first candidate before they become candidates.
const WAIT_SPREAD_SHARE: u32 = 4;
/// Maximum difference between the clocks of a candidate and of the object store (C21).
const CLOCK_DIFFERENCE_MAX: Duration = Duration::from_secs(60);
/// Reason why a node cannot continue from a snapshot.
const SNAPSHOT_UNSUPPORTED: &str = "slots that this node needs were deleted, and this Umbel loads \
     no snapshots of replicated logs; use a newer one";

/// Reason why a node cannot apply a slot that names objects.
const OBJECTS_UNSUPPORTED: &str = "the next slot names scavenged chunks or long records in \
     objects, which this Umbel does not apply yet; use a newer one";

/// Options of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaNodeOptions {
    /// Options of the node as the leader, with its name and address.
    pub leader: SlotLeaderOptions,
    /// Whether the node leads only after a promotion.
    pub is_read_only: bool,
    /// Time between two looks for the next slot.
    pub poll_interval: Duration,
}

impl ReplicaNodeOptions {
    /// Options of a node with this name and address.
    pub fn new(leader: SlotLeaderOptions) -> ReplicaNodeOptions {
        let poll_interval = Duration::from_millis(200);
        ReplicaNodeOptions { leader, is_read_only: false, poll_interval }
    }
}

/// The thread of a node of a replicated log. Dropping this value ends the node without a
/// resignation, and the store if it leads. Callbacks of appends run in this thread, so that they
/// must not wait for its end.
#[derive(Debug)]
pub struct ReplicaNode {
    shared: Arc<NodeShared>,
    log: LogReplication,
    clock: Arc<dyn Clock>,
    object: StoreObject,
    location: String,
    options: ReplicaNodeOptions,
}

#[derive(Debug)]
struct NodeShared {
    state: Mutex<NodeState>,
    /// Notified at each change of the state.
    changed: Condvar,
    is_leader: AtomicBool,
}

#[derive(Debug)]
struct NodeState {
    wish: Wish,
    /// Whether the node has decided for the first time whether it leads.
    is_ready: bool,
    follow: FollowProgress,
    /// Progress as the leader or a candidate; `None` while the node follows.
    lead: Option<LeaderProgress>,
    leader: Option<LeaderAddress>,
    end: Option<LeaderEnd>,
}

/// Progress of a follower.
#[derive(Debug, Clone, Default)]
struct FollowProgress {
    slot: u64,
    epoch: u64,
    has_resigned: bool,
    slots_behind: u64,
    /// The node's clock at the last answer.
    contact: Option<Duration>,
    /// The node's clock when it applied the last slot, or first found none to apply.
    applied: Option<Duration>,
    failure: Option<String>,
}

/// Request of the owner of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    /// Follow, or lead where no promotion is needed.
    Follow,
    Lead,
    Resign,
    Stop,
}

/// Result of following.
#[derive(Debug)]
enum Followed {
    /// The node is at the end of the slots, as this follower, and is to lead.
    Lead(Box<SlotFollower>),
    Ended(LeaderEnd),
}

/// State of the thread.
struct NodeDriver {
    env: Env,
    log: LogReplication,
    applier: SlotApplier,
    objects: DeadlineObjects,
    object: StoreObject,
    options: ReplicaNodeOptions,
    shared: Arc<NodeShared>,
    /// Failed requests since the last answer.
    failures: u32,
    /// Slots applied since the last look that found no later one.
    slots_in_row: u64,
    /// The node's clock at the last count of later slots.
    counted: Duration,
    /// Random part of the spread that the node waits until its next candidacy, of 255.
    spread: u8,
    /// The node's clock at the last check of the end of the chain.
    chain_checked: Duration,
    /// Reason why the objects are not those of a whole chain, by the last check.
    chain_failure: Option<String>,
}

impl ReplicaNode {
    /// Starts the thread of a node over this object store. `log` and `applier` are those of the
    /// open store.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(
        env: &Env,
        (log, applier): (LogReplication, SlotApplier),
        object: StoreObject,
        objects: Arc<dyn Objects>,
        options: ReplicaNodeOptions,
    ) -> Result<ReplicaNode> {
        let location = objects.location().to_owned();
        let end = applier.chain()?.end;
        let follow = FollowProgress {
            slot: end.number,
            epoch: end.epoch,
            has_resigned: end.has_resigned,
            ..FollowProgress::default()
        };
        let (wish, is_ready, lead, leader, end) = (Wish::Follow, false, None, None, None);
        let state = NodeState { wish, is_ready, follow, lead, leader, end };
        let shared = Arc::new(NodeShared {
            state: Mutex::new(state),
            changed: Condvar::new(),
            is_leader: AtomicBool::new(false),
        });
        let limits = request_limits(&object);
        let driver = NodeDriver {
            env: env.clone(),
            log: log.clone(),
            applier,
            objects: DeadlineObjects::new(objects, Arc::clone(&env.threads), limits),
            object,
            options: options.clone(),
            shared: Arc::clone(&shared),
            failures: 0,
            slots_in_row: 0,
            counted: Duration::ZERO,
            spread: 0,
            chain_checked: Duration::ZERO,
            chain_failure: None,
        };
        env.threads.spawn("umbel-replica", Box::new(move || run(driver)))?;
        let clock = Arc::clone(&env.clock);
        Ok(ReplicaNode { shared, log, clock, object, location, options })
    }

    /// Name of the node.
    pub fn name(&self) -> &str {
        &self.options.leader.node
    }

    /// Whether the node leads only after a promotion.
    pub fn is_read_only(&self) -> bool {
        self.options.is_read_only
    }

    /// Whether the node leads, and its store accepts writes.
    pub fn is_leader(&self) -> bool {
        self.shared.is_leader.load(Ordering::Acquire)
    }

    /// Whether the node leads, and created its last slot within the lease: no other node leads by
    /// then, unless this machine was paused without a trace in its clock.
    pub fn has_lease(&self) -> bool {
        if !self.is_leader() {
            return false;
        }
        let (now, lease) = (self.clock.now_with_suspends(), self.lease());
        let state = self.shared.lock();
        state.lead.as_ref().is_some_and(|progress| progress.has_lease(now, lease))
    }

    /// The lease of a leader. It ends before a follower becomes a candidate, whatever `STORE` has.
    fn lease(&self) -> Duration {
        let follower_wait = self.object.settings.follower_wait();
        Duration::from_micros(self.object.lease_micros).min(follower_wait / 2)
    }

    /// Reason why the node serves no more; `None` before the end.
    pub fn end(&self) -> Option<LeaderEnd> {
        self.shared.lock().end.clone()
    }

    /// State for operators.
    pub fn status(&self) -> NodeStatus {
        let now = self.clock.now_with_suspends();
        let state = self.shared.lock();
        let FollowProgress { slot, epoch, slots_behind, contact, .. } = state.follow;
        let since = |moment: Duration| now.saturating_sub(moment);
        let wait = self.object.settings.follower_wait();
        let is_recent = state.follow.applied.is_some_and(|applied| since(applied) < wait);
        let mut status = NodeStatus {
            node: self.name().to_owned(),
            log: self.object.id_text(),
            store: self.location.clone(),
            role: NodeRole::Follower,
            is_read_only: self.options.is_read_only,
            epoch,
            slot,
            slots_behind,
            contact_age: contact.map(since),
            bytes_not_in_slots: 0,
            leader: state.leader.clone(),
            has_leader_resigned: state.follow.has_resigned,
            is_leader_alive: is_recent && epoch > 0 && !state.follow.has_resigned,
            failure: state.follow.failure.clone(),
        };
        if let Some(progress) = &state.lead {
            let led = progress.status(now, &self.log);
            status.role = match led.role {
                LeaderRole::Candidate => NodeRole::Candidate,
                LeaderRole::Leader => NodeRole::Leader,
                LeaderRole::GivingUp | LeaderRole::Ended(_) => NodeRole::Ended,
            };
            status.epoch = led.epoch.max(epoch);
            status.slot = led.slot.max(slot);
            status.contact_age = led.success_age.or(status.contact_age);
            status.bytes_not_in_slots = led.bytes_not_in_slots;
            status.failure = led.failure;
            status.is_leader_alive = progress.has_lease(now, self.lease());
            status.has_leader_resigned = false;
        }
        if let Some(end) = &state.end {
            status.role = NodeRole::Ended;
            status.failure = Some(end.to_string());
        }
        status
    }

    /// Waits until the node has reached the end of the slots, and leads if it is to do so without a
    /// promotion; at most for `timeout`. Returns whether it has.
    ///
    /// # Errors
    /// The reason why the node ended.
    pub fn wait_ready(&self, timeout: Duration) -> std::result::Result<bool, LeaderEnd> {
        let state = self.shared.lock();
        let waited = self
            .shared
            .changed
            .wait_timeout_while(state, timeout, |state| !state.is_ready && state.end.is_none());
        let state = waited.ignore_poison().0;
        match &state.end {
            Some(end) => Err(end.clone()),
            None => Ok(state.is_ready),
        }
    }

    /// Makes the node the leader, and returns its epoch once it leads. Another leader is fenced: it
    /// acknowledges nothing more. A node that does not lead within `timeout` follows again. Only a
    /// request that was sent by then can still make it the leader.
    ///
    /// # Errors
    /// The reason why the node does not lead, as a sentence.
    pub fn promote(&self, timeout: Duration) -> std::result::Result<u64, String> {
        {
            let mut state = self.shared.lock();
            if state.wish == Wish::Follow {
                state.wish = Wish::Lead;
            }
            self.shared.changed.notify_all();
        }
        let state = self.shared.lock();
        let waited = self
            .shared
            .changed
            .wait_timeout_while(state, timeout, |state| !self.is_leader() && state.end.is_none());
        let state = waited.ignore_poison().0;
        if let Some(end) = &state.end {
            return Err(format!("this node serves no more: {end}"));
        }
        let is_leader = self.is_leader();
        drop(state);
        if !is_leader {
            // A later promotion would surprise the operator, and depose a leader that works.
            self.shared.change(|state| {
                if state.wish == Wish::Lead {
                    state.wish = Wish::Follow;
                }
            });
        }
        let status = self.status();
        if is_leader {
            return Ok(status.epoch);
        }
        let reason = status.failure.unwrap_or_else(|| match status.slots_behind {
            0 => "another leader writes slots; stop it".to_owned(),
            slots => format!("it lacks {slots} slots"),
        });
        Err(format!("this node did not lead within {} s: {reason}", timeout.as_secs()))
    }

    /// Ends the node, and waits for its end, at most for `timeout`. A leader first creates slots
    /// with the appends that its log has, and gives up its epoch.
    pub fn resign(&self, timeout: Duration) {
        self.request(Wish::Resign);
        let state = self.shared.lock();
        let waited =
            self.shared.changed.wait_timeout_while(state, timeout, |state| state.end.is_none());
        drop(waited.ignore_poison());
    }

    fn request(&self, wish: Wish) {
        self.shared.lock().wish = wish;
        self.shared.changed.notify_all();
        self.log.interrupt_wait();
    }
}

impl Drop for ReplicaNode {
    fn drop(&mut self) {
        // Without a wait: a callback in the thread itself may drop this value.
        self.request(Wish::Stop);
    }
}

impl NodeShared {
    fn lock(&self) -> MutexGuard<'_, NodeState> {
        self.state.lock().ignore_poison()
    }

    fn wish(&self) -> Wish {
        self.lock().wish
    }

    fn change(&self, change: impl FnOnce(&mut NodeState)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// Waits for this time, or until the wish changes.
    fn pause(&self, time: Duration) {
        let state = self.lock();
        let wish = state.wish;
        let waited = self.changed.wait_timeout_while(state, time, |state| state.wish == wish);
        drop(waited.ignore_poison());
    }
}

fn run(driver: NodeDriver) {
    let (shared, log) = (Arc::clone(&driver.shared), driver.log.clone());
    let driven = catch_unwind(AssertUnwindSafe(|| driver.drive()));
    let end = driven.unwrap_or_else(|_| {
        // Otherwise all appends would wait for ever.
        let _ = log.end();
        LeaderEnd::Failed("internal: the thread of the replica panicked".into())
    });
    shared.is_leader.store(false, Ordering::Release);
    shared.change(|state| state.end = Some(end));
}

impl NodeDriver {
    /// Drives the node to its end.
    fn drive(mut self) -> LeaderEnd {
        loop {
            let follower = match self.follow() {
                Followed::Lead(follower) => follower,
                Followed::Ended(end) => return end,
            };
            match self.lead(*follower) {
                // The store is open, and follows the slots of the other node.
                LeaderEnd::Overtaken => {
                    let now = self.now();
                    self.shared.change(|state| {
                        state.lead = None;
                        // Otherwise the node is a candidate again before it reads the other slot.
                        state.follow.applied = Some(now);
                    });
                }
                end => return end,
            }
        }
    }

    // -- follower --

    fn follow(&mut self) -> Followed {
        let chain = match self.applier.chain() {
            Ok(chain) => chain,
            Err(error) => return failed(error),
        };
        if let Err(error) = self.draw_spread() {
            return failed(error);
        }
        let (store, times) = (self.object.store, self.object.times());
        let mut follower = SlotFollower::new(store, times, Some(chain));
        loop {
            if let Some(end) = self.requested_end() {
                return Followed::Ended(end);
            }
            match follower.step(&self.objects, &*self.env.clock) {
                Ok(FollowStep::Again) => self.shared.pause(follower.wait()),
                Ok(FollowStep::Restart(snapshot)) if snapshot.chain.end.number == 0 => {}
                Ok(FollowStep::Restart(_)) => return failed(SNAPSHOT_UNSUPPORTED),
                Ok(FollowStep::Object { .. }) => return failed(OBJECTS_UNSUPPORTED),
                Ok(FollowStep::Applied(slot)) => {
                    if let Err(error) = self.apply(&slot) {
                        return failed(error);
                    }
                }
                Ok(FollowStep::Current(None)) => {
                    self.wait_after_failure("the object store states no time".into());
                }
                Ok(FollowStep::Current(Some(contact))) => {
                    if self.decide(follower.chain(), contact) {
                        return Followed::Lead(Box::new(follower));
                    }
                }
                Err(SlotError::Objects(error)) => self.wait_after_failure(error.to_string()),
                Err(error) => return failed(error),
            }
        }
    }

    /// Returns the end of a follower that is to end.
    fn requested_end(&self) -> Option<LeaderEnd> {
        let end = match self.shared.wish() {
            Wish::Follow | Wish::Lead if self.log.has_ended() => return Some(LeaderEnd::Closed),
            Wish::Follow | Wish::Lead => return None,
            Wish::Resign => LeaderEnd::Resigned,
            Wish::Stop => LeaderEnd::Closed,
        };
        // A failed write costs the next open some slots, which it applies again.
        let _ = self.applier.record();
        Some(end)
    }

    fn apply(&mut self, slot: &Slot) -> Result<()> {
        self.applier.apply(slot)?;
        self.failures = 0;
        self.chain_failure = None;
        self.slots_in_row += 1;
        let counted = self.count_later(slot.number);
        let now = self.now();
        let leader = leader_of(slot);
        self.shared.change(|state| {
            let FollowProgress { slots_behind, .. } = state.follow;
            state.follow = FollowProgress {
                slot: slot.number,
                epoch: slot.epoch,
                has_resigned: slot.ends_epoch(),
                slots_behind: counted.unwrap_or(slots_behind.saturating_sub(1)),
                contact: Some(now),
                applied: Some(now),
                failure: None,
            };
            if leader.is_some() {
                state.leader = leader;
            }
        });
        Ok(())
    }

    /// Counts the slots after this one from time to time, while the node catches up.
    fn count_later(&mut self, slot: u64) -> Option<u64> {
        let now = self.now();
        let is_due = self.slots_in_row >= SLOTS_BEFORE_COUNT
            && now.saturating_sub(self.counted) >= COUNT_INTERVAL;
        if !is_due {
            return None;
        }
        self.counted = now;
        let name = slot_name(slot);
        let page = self.objects.list(SLOT_PREFIX, Some(name.as_str()), LATER_SLOTS_MAX);
        page.ok().map(|page| page.value.objects.len() as u64)
    }

    fn draw_spread(&mut self) -> Result<()> {
        let mut drawn = [0];
        self.env.entropy.fill(&mut drawn)?;
        self.spread = drawn[0];
        Ok(())
    }

    /// There is no later slot: returns whether the node begins an epoch. Otherwise waits.
    fn decide(&mut self, chain: &ChainState, contact: Contact) -> bool {
        self.failures = 0;
        self.slots_in_row = 0;
        let now = self.now();
        self.shared.change(|state| {
            state.follow.contact = Some(now);
            // After a start, the leader counts as alive until it should have created a slot.
            state.follow.applied.get_or_insert(now);
            state.follow.slots_behind = 0;
            state.follow.failure = self.chain_failure.clone();
        });
        match self.find_leader(chain) {
            Ok(()) => {}
            Err(SlotError::Objects(error)) => {
                self.wait_after_failure(error.to_string());
                return false;
            }
            // The slot is needed for an address only.
            Err(error) => {
                self.shared.change(|state| state.follow.failure = Some(error.to_string()))
            }
        }
        if self.is_to_lead(chain, now) {
            let refusal = clock_refusal(contact);
            if refusal.is_none() {
                return self.check_chain(chain);
            }
            self.shared.change(|state| state.follow.failure = refusal);
        } else if self.is_check_due(chain, now) {
            self.check_chain(chain);
        }
        self.shared.change(|state| state.is_ready = true);
        self.shared.pause(self.options.poll_interval);
        false
    }

    /// Whether the node begins an epoch at the end of this chain.
    fn is_to_lead(&self, chain: &ChainState, now: Duration) -> bool {
        let state = self.shared.lock();
        let led_last = || {
            let own = &self.options.leader.node;
            state.leader.as_ref().is_some_and(|leader| leader.node == *own)
        };
        let is_overdue = || {
            let applied = state.follow.applied.unwrap_or(now);
            now.saturating_sub(applied) >= self.candidacy_wait(chain)
        };
        match state.wish {
            Wish::Lead => true,
            Wish::Follow if self.options.is_read_only => false,
            Wish::Follow => chain.end.number == 0 || led_last() || is_overdue(),
            Wish::Resign | Wish::Stop => false,
        }
    }

    /// Whether the end can be that before a lost slot. So it is at the start, and while there was
    /// no slot for so long that the leader or one of its slots is lost.
    fn is_check_due(&self, chain: &ChainState, now: Duration) -> bool {
        let state = self.shared.lock();
        let applied = state.follow.applied.unwrap_or(now);
        let is_silent = now.saturating_sub(applied) >= self.candidacy_wait(chain);
        let interval = chain.settings.follower_wait();
        let is_checked = now.saturating_sub(self.chain_checked) < interval;
        !state.is_ready || (is_silent && !is_checked)
    }

    /// Whether the objects have the end of the chain, and no later slot. A lost slot looks like the
    /// end, and a candidate would write into the gap.
    fn check_chain(&mut self, chain: &ChainState) -> bool {
        self.chain_checked = self.now();
        let store = &self.object.store;
        match check_chain_end(&self.objects, &*self.env.clock, store, chain.end) {
            Ok(ChainCheck::Ends) => {
                self.chain_failure = None;
                return true;
            }
            Ok(ChainCheck::GoesOn) => self.chain_failure = None,
            Err(SlotError::Objects(error)) => self.wait_after_failure(error.to_string()),
            Err(error) => {
                let failure = error.to_string();
                self.chain_failure = Some(failure.clone());
                // The node serves what it has. An operator can restore the object meanwhile.
                self.shared.change(|state| state.is_ready = true);
                self.wait_after_failure(failure);
            }
        }
        false
    }

    /// Time without a slot after which the node becomes a candidate.
    fn candidacy_wait(&self, chain: &ChainState) -> Duration {
        let random = |longest: Duration| longest * u32::from(self.spread) / u32::from(u8::MAX);
        if chain.end.has_resigned {
            return random(RESIGNED_WAIT_MAX);
        }
        let wait = chain.settings.follower_wait();
        wait + random(wait / WAIT_SPREAD_SHARE)
    }

    /// Reads the address of the leader, if its first slot was applied before this start.
    fn find_leader(&self, chain: &ChainState) -> SlotResult<()> {
        let Some(start) = chain.epochs.last() else { return Ok(()) };
        if self.shared.lock().leader.is_some() {
            return Ok(());
        }
        let name = slot_name(start.number);
        let found = self.objects.read(&name, 0..SLOT_BYTES_MAX)?.value;
        let bytes = found.map(|found| found.bytes).unwrap_or_default();
        let slot = Slot::decode(&bytes, &self.object.store, start.number).map_err(|error| {
            SlotError::Refused(format!("{}/{name}: {error}", self.objects.location()))
        })?;
        self.shared.change(|state| state.leader = leader_of(&slot));
        Ok(())
    }

    fn wait_after_failure(&mut self, reason: String) {
        self.shared.change(|state| state.follow.failure = Some(reason));
        let doublings = self.failures.min(16);
        self.failures = self.failures.saturating_add(1);
        let wait = FIRST_RETRY_WAIT.saturating_mul(1 << doublings).min(RETRY_WAIT_MAX);
        self.shared.pause(wait);
    }

    fn now(&self) -> Duration {
        self.env.clock.now_with_suspends()
    }

    // -- leader --

    /// Leads to the end of the leadership. The store has the records of all slots of the follower.
    fn lead(&mut self, follower: SlotFollower) -> LeaderEnd {
        let is_promoted = self.shared.wish() == Wish::Lead;
        let (log, options) = (self.log.clone(), self.options.leader.clone());
        let mut leader = SlotLeader::after(&self.env, log, self.object, follower, options);
        loop {
            let wish = self.shared.wish();
            match wish {
                Wish::Follow | Wish::Lead => {}
                Wish::Resign => leader.resign(),
                Wish::Stop => leader.stop(),
            }
            let is_candidate = leader.status().role == LeaderRole::Candidate;
            if is_promoted && wish == Wish::Follow && is_candidate {
                // The promotion ended. The store is open, and follows.
                return LeaderEnd::Overtaken;
            }
            let step = leader.step(&self.objects);
            self.note_leader(&leader);
            match step {
                LeaderStep::Again => {}
                LeaderStep::Wait(time) => leader.wait(time),
                LeaderStep::Ended(end) => return end,
            }
        }
    }

    fn note_leader(&self, leader: &SlotLeader) {
        let progress = leader.progress().clone();
        let is_leader = matches!(leader.status().role, LeaderRole::Leader);
        let was_leader = self.shared.is_leader.swap(is_leader, Ordering::AcqRel);
        let SlotLeaderOptions { node, host, port, .. } = &self.options.leader;
        let begins = is_leader && !was_leader;
        self.shared.change(|state| {
            state.lead = Some(progress);
            if begins {
                let (node, host) = (node.clone(), host.clone());
                state.leader = Some(LeaderAddress { node, host, port: *port });
                state.is_ready = true;
            }
        });
    }
}

/// Returns the reason why a node with this contact is no candidate: the events of a leader have the
/// times of its clock.
fn clock_refusal(contact: Contact) -> Option<String> {
    let difference = contact.wall_micros.abs_diff(contact.store_micros);
    (Duration::from_micros(difference) > CLOCK_DIFFERENCE_MAX).then(|| {
        let seconds = difference / 1_000_000;
        format!(
            "the clocks of this node and of the object store differ by {seconds} s, so this node \
             does not lead; set its clock"
        )
    })
}

fn failed(reason: impl ToString) -> Followed {
    Followed::Ended(LeaderEnd::Failed(reason.to_string()))
}

/// Address of the leader whose epoch the slot begins; `None` for other slots.
fn leader_of(slot: &Slot) -> Option<LeaderAddress> {
    let SlotEntry::EpochBegins { host, port } = slot.entries.first()? else { return None };
    Some(LeaderAddress { node: slot.node.clone(), host: host.clone(), port: *port })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_with_a_wrong_clock_is_no_candidate() {
        let second = 1_000_000;
        let contact = |wall_micros, store_micros| Contact {
            node: Duration::from_secs(5),
            wall_micros,
            store_micros,
        };
        for (wall, store) in [(1000, 1000), (1060, 1000), (1000, 1060)] {
            assert_eq!(clock_refusal(contact(wall * second, store * second)), None);
        }
        for (wall, store) in [(1061, 1000), (1000, 1061)] {
            let refusal = clock_refusal(contact(wall * second, store * second)).expect("refused");
            assert!(refusal.contains("differ by 61 s") && refusal.contains("clock"), "{refusal}");
        }
    }
}
