//! [`SlotLeader`]: the leader of a replicated event log, from its candidacy to its end.
//!
//! ```text
//! Candidate ── the chain ends here, and the slot that begins an epoch is created ──► Leading
//!     │                                                                               │
//!     │ overtaken, or without the last slots      deposed, stale, resigned            │
//!     └─────────────────────────────────────► Ended ◄─────────────────────────────────┤
//!                                               ▲                                     │
//!                                               └── GivingUp ◄── log failed, closed ──┘
//! ```
//!
//! It is plain data without threads and without waiting: a call of [`SlotLeader::step`] sends at
//! most one request, and holds no lock of the store meanwhile. So appends go on, and tests drive it
//! over a simulated object store. `LeaderThread` calls it in a loop.
//!
//! INVARIANT: a slot has the records of the log from the end of the slot before it, in order. The
//! store learns of a slot only once the chain has it, and the last success before was fresh.
//!
//! INVARIANT: once the node leads no more, the store has ended before anything else happens. All
//! its waits fail then (B10, B11).

use std::time::Duration;

use umbel_env::{Env, Objects};
use umbel_slots::{
    ChainState, FollowStep, LogPoint, SLOT_ENTRIES_MAX, Slot, SlotEntry, SlotError, SlotFollower,
    SlotTakeover, SlotWriter, StoreObject, TakeoverStep, WriteStep, confirm_slot,
};

use crate::replication::leader_status::{LeaderEnd, LeaderRole, LeaderStatus};
use crate::replication::slot_contents::{changes_log, entries_of, slot_bytes_max};
use crate::store::log_replication::LogReplication;
use crate::types::error::Result;

/// Wait after a failed request, which doubles with each further one.
const FIRST_RETRY_WAIT: Duration = Duration::from_millis(50);
/// Maximum wait after a failed request. It is short against the time that followers wait.
const RETRY_WAIT_MAX: Duration = Duration::from_secs(1);
/// Wait after records could not be read or synced, such as on a full disk.
const RECORDS_RETRY_WAIT: Duration = Duration::from_secs(1);
/// Slots after which a resignation does not wait for further appends.
const RESIGNATION_SLOTS_MAX: u32 = 8;
/// Share of the time that followers wait, after which a leader sends a heartbeat at the latest.
const HEARTBEAT_SHARE: u32 = 4;

/// Options of a leader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotLeaderOptions {
    /// Name of the node, for messages.
    pub node: String,
    /// Host at which clients and followers reach the node.
    pub host: String,
    /// Port at this host.
    pub port: u16,
    /// Time from the start of a slot with records to the next one.
    pub batch_interval: Duration,
    /// Time after which a leader without appends shows that it lives.
    pub heartbeat: Duration,
    /// Maximum bytes of records in a slot, unless one record is longer.
    pub records_bytes_max: u64,
}

impl SlotLeaderOptions {
    /// Options of a node with this name and address.
    pub fn new(node: impl Into<String>, host: impl Into<String>, port: u16) -> SlotLeaderOptions {
        SlotLeaderOptions {
            node: node.into(),
            host: host.into(),
            port,
            batch_interval: Duration::from_millis(100),
            heartbeat: Duration::from_secs(2),
            records_bytes_max: 16 << 20,
        }
    }
}

/// Result of a step of a leader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaderStep {
    /// The next step is to follow at once.
    Again,
    /// The next step is to follow after this time, or once the log has records for a slot.
    Wait(Duration),
    /// The node leads no more. Further steps change nothing.
    Ended(LeaderEnd),
}

/// The leader of a replicated event log, from its candidacy to its end.
#[derive(Debug)]
pub struct SlotLeader {
    log: LogReplication,
    env: Env,
    object: StoreObject,
    options: SlotLeaderOptions,
    phase: Phase,
    progress: LeaderProgress,
    /// Failed requests since the last progress.
    failures: u32,
    /// Slots before the one that gives up the epoch; `None` unless the node resigns.
    resignation: Option<u32>,
    /// Whether a request failed since the node last saw one of its slots. The objects may be others
    /// by now, such as those of an empty bucket.
    is_unconfirmed: bool,
    /// Whether an answer lacked the node's last slot since it was confirmed.
    has_lost_slot: bool,
}

/// Progress of a leader, for reports.
#[derive(Debug, Clone)]
pub struct LeaderProgress {
    role: LeaderRole,
    epoch: u64,
    slot: u64,
    /// The node's clock before the last successful creation.
    success: Option<Duration>,
    /// Whether the node is to give up its epoch, so that another one can lead at any moment.
    is_resigning: bool,
    failure: Option<String>,
}

#[derive(Debug)]
enum Phase {
    Candidate(Box<Candidacy>),
    Leading(Box<Leadership>),
    /// The store has ended. The node still tries to write its resignation.
    GivingUp(Box<Leadership>, LeaderEnd),
    Ended(LeaderEnd),
}

#[derive(Debug)]
struct Candidacy {
    takeover: SlotTakeover,
    /// The node's clock before it began the epoch; `None` before it was at the end of the chain.
    began: Option<Duration>,
}

#[derive(Debug)]
struct Leadership {
    writer: SlotWriter,
    /// The node's clock before the last successful creation.
    success: Duration,
    /// Point of the records in the open slot; `None` if it has none.
    open: Option<LogPoint>,
    /// Moment from which on a slot can have records.
    records_due: Duration,
}

/// Result of a step: the next phase, and what the caller does before the next step.
type Next = (Phase, LeaderStep);

impl LeaderProgress {
    /// Whether the node leads and will go on, and its last slot is at most this old.
    pub fn has_lease(&self, now: Duration, lease: Duration) -> bool {
        let is_recent = |success: Duration| now.saturating_sub(success) <= lease;
        self.role == LeaderRole::Leader && !self.is_resigning && self.success.is_some_and(is_recent)
    }

    /// The status at this moment of the node's clock. `log` is that of the leader.
    pub fn status(&self, now: Duration, log: &LogReplication) -> LeaderStatus {
        LeaderStatus {
            role: self.role.clone(),
            epoch: self.epoch,
            slot: self.slot,
            success_age: self.success.map(|success| now.saturating_sub(success)),
            bytes_not_in_slots: log.unslotted_bytes().unwrap_or(0),
            failure: self.failure.clone(),
        }
    }
}

impl SlotLeader {
    /// A candidate of the replicated log that `object` describes. The store of `log` has the
    /// records of all slots of `chain`, and nothing else; `None` stands for a new log.
    ///
    /// REQUIRES: the node saw no slot of another leader for the time that followers wait, or that
    /// leader gave up its epoch, or an operator replaces it.
    pub fn new(
        env: &Env,
        log: LogReplication,
        object: StoreObject,
        chain: Option<ChainState>,
        options: SlotLeaderOptions,
    ) -> SlotLeader {
        let follower = SlotFollower::new(object.store, object.times(), chain);
        SlotLeader::after(env, log, object, follower, options)
    }

    /// A candidate like that of [`SlotLeader::new`], which goes on where this follower is. It takes
    /// fewer requests, in which another leader can create a slot.
    pub fn after(
        env: &Env,
        log: LogReplication,
        object: StoreObject,
        follower: SlotFollower,
        options: SlotLeaderOptions,
    ) -> SlotLeader {
        let takeover =
            SlotTakeover::new(object.store, object.times(), options.node.clone(), follower);
        let (role, epoch, slot) = (LeaderRole::Candidate, 0, 0);
        SlotLeader {
            log,
            env: env.clone(),
            object,
            options,
            phase: Phase::Candidate(Box::new(Candidacy { takeover, began: None })),
            progress: LeaderProgress {
                role,
                epoch,
                slot,
                success: None,
                is_resigning: false,
                failure: None,
            },
            failures: 0,
            resignation: None,
            is_unconfirmed: false,
            has_lost_slot: false,
        }
    }

    /// The event log's side of the replicated log.
    pub fn log(&self) -> &LogReplication {
        &self.log
    }

    /// Progress so far.
    pub fn progress(&self) -> &LeaderProgress {
        &self.progress
    }

    /// State for operators.
    pub fn status(&self) -> LeaderStatus {
        self.progress.status(self.now(), &self.log)
    }

    /// The chain up to the last slot of this leader; `None` while it does not lead.
    pub fn chain(&self) -> Option<&ChainState> {
        match &self.phase {
            Phase::Leading(it) | Phase::GivingUp(it, _) => Some(it.writer.chain()),
            Phase::Candidate(_) | Phase::Ended(_) => None,
        }
    }

    /// Limits of the first request and of any later one (C1, L4).
    pub fn request_limits(&self) -> (Duration, Duration) {
        request_limits(&self.object)
    }

    /// Requests that the node gives up its epoch after the appends that the log has. Then the store
    /// ends. A candidate ends at once.
    pub fn resign(&mut self) {
        self.resignation = self.resignation.or(Some(RESIGNATION_SLOTS_MAX));
        self.progress.is_resigning = true;
    }

    /// Ends the leader without a resignation, and with it the store. A candidate's store stays
    /// open.
    pub fn stop(&mut self) {
        let end = match &self.phase {
            Phase::Candidate(_) | Phase::Leading(_) => LeaderEnd::Closed,
            Phase::GivingUp(_, end) | Phase::Ended(end) => end.clone(),
        };
        if let Phase::Leading(_) = self.phase {
            self.end_store();
        }
        self.phase = self.ended(end).0;
    }

    /// Waits as [`LeaderStep::Wait`] says.
    pub fn wait(&self, time: Duration) {
        let has_records = self.log.unslotted().is_ok_and(|records| !records.is_empty());
        if has_records || self.log.has_ended() {
            // An append ends no wait here: the next slot is not due.
            self.env.threads.pause(time);
        } else {
            let _ = self.log.wait_unslotted(time);
        }
    }

    /// Sends the next request, if one is due.
    pub fn step(&mut self, objects: &dyn Objects) -> LeaderStep {
        let phase = std::mem::replace(&mut self.phase, Phase::Ended(LeaderEnd::Closed));
        let (phase, step) = match phase {
            Phase::Candidate(candidacy) => self.take_over(objects, candidacy),
            Phase::Leading(leadership) => self.lead(objects, leadership),
            Phase::GivingUp(leadership, end) => self.give_up(objects, leadership, end),
            Phase::Ended(end) => self.ended(end),
        };
        self.phase = phase;
        step
    }

    // -- candidate --

    fn take_over(&mut self, objects: &dyn Objects, mut it: Box<Candidacy>) -> Next {
        if self.log.has_ended() {
            return self.ended(LeaderEnd::Closed);
        }
        if self.resignation.is_some() {
            return self.ended(LeaderEnd::Resigned);
        }
        let step = match it.takeover.step(objects, &*self.env.clock) {
            Ok(step) => step,
            Err(SlotError::Objects(error)) => {
                let wait = self.note_failure(error.to_string());
                return (Phase::Candidate(it), wait);
            }
            Err(error) => return self.ended(LeaderEnd::Failed(error.to_string())),
        };
        if let Some(end) = self.end_of_candidacy(&it, &step) {
            return self.ended(end);
        }
        match step {
            TakeoverStep::Overtaken => self.ended(LeaderEnd::Overtaken),
            TakeoverStep::AtEnd => self.begin_epoch(it),
            TakeoverStep::Leading(writer, slot) => {
                let success = it.began.unwrap_or_default();
                self.promote(*writer, &slot, success)
            }
            TakeoverStep::Followed(FollowStep::Current(_)) => {
                let wait = self.note_failure("the object store states no time".into());
                (Phase::Candidate(it), wait)
            }
            TakeoverStep::Followed(_) => {
                self.failures = 0;
                let step = pace(&it.takeover);
                (Phase::Candidate(it), step)
            }
            // The answer about a creation can be unknown for long.
            TakeoverStep::Again => {
                let step = self.repeat();
                (Phase::Candidate(it), step)
            }
        }
    }

    /// Returns the reason why a node that followed so cannot lead; `None` if it can.
    fn end_of_candidacy(&self, it: &Candidacy, step: &TakeoverStep) -> Option<LeaderEnd> {
        let TakeoverStep::Followed(followed) = step else { return None };
        match followed {
            FollowStep::Restart(snapshot) if snapshot.chain.end.number > 0 => {
                Some(LeaderEnd::Overtaken)
            }
            FollowStep::Restart(_) => {
                let has_records = self.log.in_slots().is_ok_and(|point| point.offset > 0);
                has_records.then(|| {
                    let reason = "the event log has records, but its replicated log is new";
                    LeaderEnd::Failed(reason.to_owned())
                })
            }
            // A slot after the end of the chain is that of a leader that lives.
            FollowStep::Applied(slot) => {
                let changes_store = || slot.entries.iter().any(changes_log);
                // A replica records every slot, so that it applies this one as a follower.
                let lacks_it = it.began.is_some() || self.log.is_replica() || changes_store();
                lacks_it.then_some(LeaderEnd::Overtaken)
            }
            // So is one that names objects, which only a follower can apply.
            FollowStep::Object { .. } => Some(LeaderEnd::Overtaken),
            FollowStep::Again | FollowStep::Current(_) => None,
        }
    }

    /// Begins an epoch at the end of the chain. If the node must first confirm its state, it
    /// follows, and comes here again.
    fn begin_epoch(&mut self, mut it: Box<Candidacy>) -> Next {
        // Before another leader is deposed.
        if let Err(error) = self.log.check_promotion() {
            return self.ended(LeaderEnd::Failed(error.to_string()));
        }
        let (host, port) = (self.options.host.clone(), self.options.port);
        let begins = SlotEntry::EpochBegins { host, port };
        it.began = Some(self.now());
        let wall_micros = self.env.clock.wall_micros();
        let begun = match self.env.entropy.id() {
            Ok(uid) => it.takeover.begin_epoch(uid, wall_micros, vec![begins]),
            Err(error) => return self.ended(LeaderEnd::Failed(error.to_string())),
        };
        match begun {
            Ok(_) => {
                let step = pace(&it.takeover);
                (Phase::Candidate(it), step)
            }
            Err(error) => self.ended(LeaderEnd::Failed(error.to_string())),
        }
    }

    /// Leads in the epoch that this slot began.
    fn promote(&mut self, writer: SlotWriter, slot: &Slot, success: Duration) -> Next {
        let (open, records_due) = (None, Duration::ZERO);
        let it = Box::new(Leadership { writer, success, open, records_due });
        self.note_success(slot, success);
        self.progress.epoch = slot.epoch;
        let promoted = self.log.promote(slot.epoch);
        match promoted.and_then(|()| self.log.slot_confirmed(slot, None)) {
            Ok(()) => {
                self.progress.role = LeaderRole::Leader;
                (Phase::Leading(it), LeaderStep::Again)
            }
            Err(error) => self.end_and_give_up(it, LeaderEnd::Failed(error.to_string())),
        }
    }

    // -- leader --

    fn lead(&mut self, objects: &dyn Objects, it: Box<Leadership>) -> Next {
        if self.log.has_ended() {
            return self.end_and_give_up(it, LeaderEnd::Closed);
        }
        if self.is_stale(&it) {
            return self.end_store_and(LeaderEnd::Stale);
        }
        if let Some(reason) = self.log.fatal_error() {
            return self.end_and_give_up(it, LeaderEnd::LogFailed(reason));
        }
        match it.writer.is_busy() {
            true if self.is_unconfirmed => self.confirm_end(objects, it),
            true => self.continue_slot(objects, it),
            false => self.begin_slot(it),
        }
    }

    /// Reads the last slot of this node, before it creates the next one.
    fn confirm_end(&mut self, objects: &dyn Objects, it: Box<Leadership>) -> Next {
        let confirmed =
            confirm_slot(objects, &*self.env.clock, &self.object.store, it.writer.end());
        match confirmed {
            Ok(()) => {
                (self.is_unconfirmed, self.has_lost_slot) = (false, false);
                (Phase::Leading(it), LeaderStep::Again)
            }
            Err(error) => {
                let is_lost = !matches!(error, SlotError::Objects(_));
                // One answer can be wrong (C9).
                if is_lost && self.has_lost_slot {
                    return self.end_store_and(LeaderEnd::Failed(error.to_string()));
                }
                self.has_lost_slot |= is_lost;
                let wait = self.note_failure(error.to_string());
                (Phase::Leading(it), wait)
            }
        }
    }

    /// Whether the slots can have been used by others since the last success.
    fn is_stale(&self, it: &Leadership) -> bool {
        self.now().saturating_sub(it.success) > self.object.times().fresh
    }

    /// Sends the next request for the open slot.
    fn continue_slot(&mut self, objects: &dyn Objects, mut it: Box<Leadership>) -> Next {
        let before = self.now();
        match it.writer.step(objects, &*self.env.clock) {
            Ok(WriteStep::Acknowledged(slot)) => self.acknowledge(it, &slot, before),
            Ok(WriteStep::Open) => {
                let step = self.repeat();
                (Phase::Leading(it), step)
            }
            Ok(WriteStep::Idle) => (Phase::Leading(it), LeaderStep::Again),
            Ok(WriteStep::Deposed) => self.end_store_and(LeaderEnd::Deposed),
            // Until the last success is too old, since the answer can be wrong.
            Err(error) => {
                self.is_unconfirmed = true;
                let wait = self.note_failure(error.to_string());
                (Phase::Leading(it), wait)
            }
        }
    }

    /// The slot is in the chain: its records become visible, and their appends are acknowledged.
    fn acknowledge(&mut self, mut it: Box<Leadership>, slot: &Slot, success: Duration) -> Next {
        it.success = success;
        self.note_success(slot, success);
        let to = it.open.take();
        if let Err(error) = self.log.slot_confirmed(slot, to)
            && !self.log.has_ended()
        {
            return self.end_and_give_up(it, LeaderEnd::Failed(error.to_string()));
        }
        if slot.ends_epoch() {
            return self.end_store_and(LeaderEnd::Resigned);
        }
        (Phase::Leading(it), LeaderStep::Again)
    }

    /// Begins the next slot, if one is due.
    fn begin_slot(&mut self, mut it: Box<Leadership>) -> Next {
        let now = self.now();
        let has_records = self.log.unslotted().is_ok_and(|records| !records.is_empty());
        if has_records && (self.resignation.is_some() || now >= it.records_due) {
            match self.read_records(&it) {
                Ok(Some((to, entries))) => return self.propose_records(it, to, entries),
                // The store was closed meanwhile.
                Ok(None) => {}
                Err(error) => {
                    self.progress.failure = Some(error.to_string());
                    it.records_due = now + RECORDS_RETRY_WAIT;
                }
            }
        }
        if self.resignation.is_some() {
            return self.propose(it, vec![SlotEntry::Resigned]);
        }
        let heartbeat = (it.success + self.heartbeat(&it)).saturating_sub(now);
        if heartbeat.is_zero() {
            return self.propose(it, vec![SlotEntry::Nothing]);
        }
        let wait = match has_records {
            true => heartbeat.min(it.records_due.saturating_sub(now)),
            false => heartbeat,
        };
        (Phase::Leading(it), LeaderStep::Wait(wait))
    }

    fn heartbeat(&self, it: &Leadership) -> Duration {
        let latest = it.writer.chain().settings.follower_wait() / HEARTBEAT_SHARE;
        self.options.heartbeat.min(latest)
    }

    /// Returns the records of the next slot as its entries, with the point after them.
    fn read_records(&self, it: &Leadership) -> Result<Option<(LogPoint, Vec<SlotEntry>)>> {
        let slot_max = it.writer.chain().settings.slot_bytes_max;
        let mut records_max = self.options.records_bytes_max.min(slot_max);
        loop {
            let Some(records) = self.log.next_slot(records_max)? else { return Ok(None) };
            let entries = entries_of(records.chunks);
            // The last entry can be a resignation.
            let fits = entries.len() < SLOT_ENTRIES_MAX && slot_bytes_max(&entries) <= slot_max;
            if fits || records_max == 0 {
                return Ok(Some((records.to, entries)));
            }
            records_max /= 2;
        }
    }

    fn propose_records(
        &mut self,
        mut it: Box<Leadership>,
        to: LogPoint,
        mut entries: Vec<SlotEntry>,
    ) -> Next {
        if let Some(slots_left) = &mut self.resignation {
            let has_all = self.log.unslotted().is_ok_and(|records| records.end <= to.offset);
            if has_all || *slots_left == 0 {
                entries.push(SlotEntry::Resigned);
            }
            *slots_left = slots_left.saturating_sub(1);
        }
        it.open = Some(to);
        it.records_due = self.now() + self.options.batch_interval;
        self.propose(it, entries)
    }

    fn propose(&mut self, mut it: Box<Leadership>, entries: Vec<SlotEntry>) -> Next {
        match self.try_propose(&mut it, entries) {
            Ok(()) => (Phase::Leading(it), LeaderStep::Again),
            Err(end) => self.end_and_give_up(it, end),
        }
    }

    fn try_propose(
        &self,
        it: &mut Leadership,
        entries: Vec<SlotEntry>,
    ) -> std::result::Result<(), LeaderEnd> {
        let uid = self.env.entropy.id().map_err(|error| LeaderEnd::Failed(error.to_string()))?;
        let proposed = it.writer.propose(uid, self.env.clock.wall_micros(), entries);
        proposed.map_err(|error| LeaderEnd::Failed(error.to_string()))
    }

    // -- end --

    /// Writes the resignation of a node whose store has ended. What the open slot has is decided
    /// first.
    fn give_up(&mut self, objects: &dyn Objects, mut it: Box<Leadership>, end: LeaderEnd) -> Next {
        if self.is_stale(&it) {
            return self.ended(end);
        }
        if !it.writer.is_busy() {
            return match self.try_propose(&mut it, vec![SlotEntry::Resigned]) {
                Ok(()) if it.writer.is_busy() => (Phase::GivingUp(it, end), LeaderStep::Again),
                _ => self.ended(end),
            };
        }
        let before = self.now();
        let step = match it.writer.step(objects, &*self.env.clock) {
            Ok(WriteStep::Acknowledged(slot)) => {
                it.success = before;
                self.note_success(&slot, before);
                if slot.ends_epoch() {
                    return self.ended(end);
                }
                LeaderStep::Again
            }
            Ok(WriteStep::Open) => self.repeat(),
            Ok(WriteStep::Idle | WriteStep::Deposed) => return self.ended(end),
            Err(error) => self.note_failure(error.to_string()),
        };
        (Phase::GivingUp(it, end), step)
    }

    /// Ends the store. The node still gives up its epoch.
    fn end_and_give_up(&mut self, mut it: Box<Leadership>, end: LeaderEnd) -> Next {
        it.open = None;
        self.end_store();
        self.progress.role = LeaderRole::GivingUp;
        (Phase::GivingUp(it, end), LeaderStep::Again)
    }

    fn end_store_and(&mut self, end: LeaderEnd) -> Next {
        self.end_store();
        self.ended(end)
    }

    /// Ends the store. A failed close of the index is found and repaired by the next open.
    fn end_store(&self) {
        let _ = self.log.end();
    }

    fn ended(&mut self, end: LeaderEnd) -> Next {
        self.progress.role = LeaderRole::Ended(end.clone());
        (Phase::Ended(end.clone()), LeaderStep::Ended(end))
    }

    // -- progress --

    fn now(&self) -> Duration {
        self.env.clock.now_with_suspends()
    }

    fn note_success(&mut self, slot: &Slot, success: Duration) {
        self.failures = 0;
        self.progress.slot = slot.number;
        self.progress.success = Some(success);
        self.progress.failure = None;
    }

    fn note_failure(&mut self, reason: String) -> LeaderStep {
        self.progress.failure = Some(reason);
        self.failures = self.failures.saturating_add(1);
        LeaderStep::Wait(self.retry_wait())
    }

    /// The next step after one without a result: a read follows a creation at once, and the next
    /// creation after it waits (L5).
    fn repeat(&mut self) -> LeaderStep {
        self.failures = self.failures.saturating_add(1);
        match self.failures.is_multiple_of(2) {
            true => LeaderStep::Wait(self.retry_wait()),
            false => LeaderStep::Again,
        }
    }

    fn retry_wait(&self) -> Duration {
        let doublings = (self.failures / 2).min(16);
        FIRST_RETRY_WAIT.saturating_mul(1 << doublings).min(RETRY_WAIT_MAX)
    }
}

/// Limits of the first request of a node and of any later one: a quarter of the time that followers
/// wait, and a quarter of the time after which a leader ends (C1, L4).
pub fn request_limits(object: &StoreObject) -> (Duration, Duration) {
    let longest = object.times().fresh / 4;
    ((object.settings.follower_wait() / 4).min(longest), longest)
}

/// The step after one of a takeover, which may have to wait (L5).
fn pace(takeover: &SlotTakeover) -> LeaderStep {
    match takeover.wait() {
        Duration::ZERO => LeaderStep::Again,
        time => LeaderStep::Wait(time),
    }
}
