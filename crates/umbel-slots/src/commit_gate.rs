//! [`CommitGate`]: decides which records of a node's log may be indexed, shown and acknowledged.
//!
//! The slots decide which records exist, and the log of a node can have more: a leader writes a
//! record before its slot exists, and another leader can win the number of that slot. So one gate
//! is between a node's log and all that clients can observe. It has no lock and does no I/O. An
//! event store has one for as long as it is open.
//!
//! INVARIANT (B1): the visible offset is within the acknowledged slots. Only
//! [`CommitGate::finish_commit`] advances it.
//!
//! INVARIANT (B11): an append is acknowledged only by its epoch and its offset. An offset alone
//! proves nothing: another leader's records pass it, too. In one epoch one leader writes, so both
//! together name the same records at all nodes.
//!
//! INVARIANT (B10, B12): a gate follows, then leads in one epoch, and then ends. It never goes
//! back. At its end all waits fail, and nothing is indexed any more.
//!
//! The visible offset is the commit number of Viewstamped Replication (Liskov and Cowling, 2012),
//! the commit index of Raft (Ongaro and Ousterhout, 2014), and the high watermark of Kafka, which
//! bounds readers as well. That an epoch and an offset name one history is Raft's log matching.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

/// Offset in the log, and the epoch in which the log got there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct LogPoint {
    /// Epoch of the slot whose bytes end here; 0 before the first slot.
    pub epoch: u64,
    /// Offset after a record; 0 at the beginning.
    pub offset: u64,
}

/// An append that a leader wrote to its log. The slots decide whether it is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AppendTicket(LogPoint);

/// Whether an append is acknowledged. An outcome returns the waiter, if there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppendStatus<W = ()> {
    /// It depends on a slot or on the index.
    Pending,
    /// Its slot is in the chain, and its events are visible.
    Acknowledged(W),
    /// The epoch or the gate ended before. The append is in the chain or not: a retry finds out.
    Ambiguous(W),
}

/// Part of the log that one thread indexes now: [`CommitGate::begin_commit`].
#[derive(Debug, PartialEq, Eq)]
pub struct IndexCommit(Range<u64>);

/// Reason why a gate refuses a transition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateRefusal {
    /// Only a leader does this, and the node follows.
    Follows,
    /// Only a follower does this, and the node leads.
    Leads,
    /// The gate ended.
    Ended,
    /// The slot has another epoch than the leader.
    OtherEpoch,
    /// The epoch or the offset would go back.
    GoesBack,
    /// The offset is after the end of the log.
    BeyondLog,
    /// The offset is after the acknowledged slots.
    BeyondSlots,
}

impl IndexCommit {
    /// Offsets of the part.
    pub fn range(&self) -> Range<u64> {
        self.0.clone()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Phase {
    Following,
    Leading,
    Ended,
}

/// Decides which records of a node's log may be indexed, shown and acknowledged. `W` is the waiter
/// of an append, such as a callback.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CommitGate<W> {
    phase: Phase,
    /// Point up to which the bytes of the log are in acknowledged slots.
    in_slots: LogPoint,
    /// End of the log of a leader.
    log_end: u64,
    /// Offset up to which the index has the records, and readers see them.
    visible: u64,
    /// Waiters of this epoch, by the offset that they wait for.
    waits: BTreeMap<u64, Vec<W>>,
}

impl<W> CommitGate<W> {
    /// The gate of a follower that opens with the bytes of the slots up to `in_slots`. Nothing is
    /// visible: the open indexes as later slots do.
    pub fn new(in_slots: LogPoint) -> CommitGate<W> {
        let waits = BTreeMap::new();
        CommitGate { phase: Phase::Following, in_slots, log_end: 0, visible: 0, waits }
    }

    /// Point up to which the bytes of the log are in acknowledged slots. A close ends and seals
    /// nothing beyond it.
    pub fn in_slots(&self) -> LogPoint {
        self.in_slots
    }

    /// Offset up to which readers see the log.
    pub fn visible(&self) -> u64 {
        self.visible
    }

    /// Bytes of the log that the leader's next slots are to carry.
    pub fn unslotted(&self) -> Range<u64> {
        match self.phase {
            Phase::Leading => self.in_slots.offset..self.log_end,
            Phase::Following | Phase::Ended => self.in_slots.offset..self.in_slots.offset,
        }
    }

    /// A follower applied a slot: its log has the bytes up to this point.
    ///
    /// # Errors
    /// [`GateRefusal::Leads`] or [`GateRefusal::Ended`] after a promotion: a store that led never
    /// follows. [`GateRefusal::GoesBack`] for an earlier slot.
    pub fn slot_applied(&mut self, to: LogPoint) -> Result<(), GateRefusal> {
        self.check_follows()?;
        if to.epoch < self.in_slots.epoch || to.offset < self.in_slots.offset {
            return Err(GateRefusal::GoesBack);
        }
        self.in_slots = to;
        Ok(())
    }

    /// The node leads from now on: the slot that begins this epoch exists. `log_end` is the end of
    /// its log, which must have nothing beyond the slots.
    ///
    /// # Errors
    /// [`GateRefusal::BeyondSlots`] if the log was not cut. The other reasons are those of
    /// [`CommitGate::slot_applied`].
    pub fn promote(&mut self, epoch: u64, log_end: u64) -> Result<(), GateRefusal> {
        self.check_follows()?;
        if epoch <= self.in_slots.epoch || log_end < self.in_slots.offset {
            return Err(GateRefusal::GoesBack);
        }
        if log_end > self.in_slots.offset {
            return Err(GateRefusal::BeyondSlots);
        }
        self.phase = Phase::Leading;
        self.in_slots.epoch = epoch;
        self.log_end = log_end;
        Ok(())
    }

    /// The leader wrote an append to its log, which ends at `end` now.
    ///
    /// # Errors
    /// [`GateRefusal::Follows`] or [`GateRefusal::Ended`] if the node does not lead;
    /// [`GateRefusal::GoesBack`] if the log had these bytes.
    pub fn append(&mut self, end: u64) -> Result<AppendTicket, GateRefusal> {
        self.check_leads()?;
        if end <= self.log_end {
            return Err(GateRefusal::GoesBack);
        }
        self.log_end = end;
        Ok(AppendTicket(LogPoint { epoch: self.in_slots.epoch, offset: end }))
    }

    /// The leader's log has the events of a repeated append already, up to `end`.
    ///
    /// # Errors
    /// [`GateRefusal::Follows`] or [`GateRefusal::Ended`] if the node does not lead;
    /// [`GateRefusal::BeyondLog`] if the log ends before.
    pub fn retry(&self, end: u64) -> Result<AppendTicket, GateRefusal> {
        self.check_leads()?;
        if end > self.log_end {
            return Err(GateRefusal::BeyondLog);
        }
        Ok(AppendTicket(LogPoint { epoch: self.in_slots.epoch, offset: end }))
    }

    /// A slot of the leader is in the chain, with the bytes of its log up to this point.
    ///
    /// # Errors
    /// [`GateRefusal::Follows`] or [`GateRefusal::Ended`] if the node does not lead;
    /// [`GateRefusal::OtherEpoch`], [`GateRefusal::GoesBack`] or [`GateRefusal::BeyondLog`] if the
    /// slot is not of this log.
    pub fn slot_created(&mut self, to: LogPoint) -> Result<(), GateRefusal> {
        self.check_leads()?;
        if to.epoch != self.in_slots.epoch {
            return Err(GateRefusal::OtherEpoch);
        }
        if to.offset < self.in_slots.offset {
            return Err(GateRefusal::GoesBack);
        }
        if to.offset > self.log_end {
            return Err(GateRefusal::BeyondLog);
        }
        self.in_slots = to;
        Ok(())
    }

    /// Returns the part of the log to index next; `None` if the index has all that it may have.
    /// REQUIRES: one thread indexes at a time.
    pub fn begin_commit(&self) -> Option<IndexCommit> {
        let range = self.visible..self.in_slots.offset;
        (self.phase != Phase::Ended && !range.is_empty()).then_some(IndexCommit(range))
    }

    /// The index has this part: readers see it. Returns the waiters of the appends in it, in the
    /// order of the log. The caller acknowledges them.
    ///
    /// # Errors
    /// [`GateRefusal::Ended`] after the end of the gate, which failed all waits;
    /// [`GateRefusal::GoesBack`] or [`GateRefusal::BeyondSlots`] for a commit that is not the next
    /// one of this gate.
    pub fn finish_commit(&mut self, commit: IndexCommit) -> Result<Vec<W>, GateRefusal> {
        let Range { start, end } = commit.0;
        if self.phase == Phase::Ended {
            return Err(GateRefusal::Ended);
        }
        if start != self.visible {
            return Err(GateRefusal::GoesBack);
        }
        if end > self.in_slots.offset {
            return Err(GateRefusal::BeyondSlots);
        }
        self.visible = end;
        // Later than every visible offset.
        let later = self.waits.split_off(&(end + 1));
        Ok(std::mem::replace(&mut self.waits, later).into_values().flatten().collect())
    }

    /// Whether an append is acknowledged.
    pub fn status(&self, ticket: AppendTicket) -> AppendStatus {
        let AppendTicket(LogPoint { epoch, offset }) = ticket;
        if epoch != self.in_slots.epoch {
            return AppendStatus::Ambiguous(());
        }
        match self.phase {
            _ if offset <= self.visible => AppendStatus::Acknowledged(()),
            Phase::Leading => AppendStatus::Pending,
            Phase::Following | Phase::Ended => AppendStatus::Ambiguous(()),
        }
    }

    /// Adds the waiter of an append, if the append is pending. Otherwise returns the waiter with
    /// the outcome.
    #[must_use = "the waiter needs its outcome"]
    pub fn wait(&mut self, ticket: AppendTicket, waiter: W) -> AppendStatus<W> {
        match self.status(ticket) {
            AppendStatus::Pending => {
                self.waits.entry(ticket.0.offset).or_default().push(waiter);
                AppendStatus::Pending
            }
            AppendStatus::Acknowledged(()) => AppendStatus::Acknowledged(waiter),
            AppendStatus::Ambiguous(()) => AppendStatus::Ambiguous(waiter),
        }
    }

    /// Ends the gate, at a close or once the node leads no more. Returns all waiters, whose appends
    /// are ambiguous. The caller drops the records that are not in the index. A node that led opens
    /// its store again as a follower.
    #[must_use = "each waiter needs an error"]
    pub fn end(&mut self) -> Vec<W> {
        self.phase = Phase::Ended;
        std::mem::take(&mut self.waits).into_values().flatten().collect()
    }

    fn check_follows(&self) -> Result<(), GateRefusal> {
        match self.phase {
            Phase::Following => Ok(()),
            Phase::Leading => Err(GateRefusal::Leads),
            Phase::Ended => Err(GateRefusal::Ended),
        }
    }

    fn check_leads(&self) -> Result<(), GateRefusal> {
        match self.phase {
            Phase::Following => Err(GateRefusal::Follows),
            Phase::Leading => Ok(()),
            Phase::Ended => Err(GateRefusal::Ended),
        }
    }
}

impl fmt::Display for GateRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GateRefusal::Follows => "the node follows",
            GateRefusal::Leads => "the node leads",
            GateRefusal::Ended => "the store leads no more, or was closed",
            GateRefusal::OtherEpoch => "the slot belongs to another epoch",
            GateRefusal::GoesBack => "the log was further already",
            GateRefusal::BeyondLog => "the log ends before",
            GateRefusal::BeyondSlots => "the acknowledged slots end before",
        })
    }
}

impl std::error::Error for GateRefusal {}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(epoch: u64, offset: u64) -> LogPoint {
        LogPoint { epoch, offset }
    }

    /// A leader in epoch 2, whose first 10 bytes are of epoch 1 and visible.
    fn leader() -> CommitGate<char> {
        let mut gate = CommitGate::new(point(1, 10));
        assert_eq!(commit(&mut gate), []);
        gate.promote(2, 10).expect("a follower");
        gate
    }

    /// Indexes all that the gate permits. Returns the waiters.
    fn commit(gate: &mut CommitGate<char>) -> Vec<char> {
        let commit = gate.begin_commit().expect("a part of the log");
        gate.finish_commit(commit).expect("the next part")
    }

    fn append(gate: &mut CommitGate<char>, end: u64, waiter: char) -> AppendTicket {
        let ticket = gate.append(end).expect("a leader");
        assert_eq!(gate.wait(ticket, waiter), AppendStatus::Pending);
        ticket
    }

    #[test]
    fn nothing_beyond_the_slots_is_visible_or_acknowledged() {
        let mut gate = leader();
        let ticket = append(&mut gate, 13, 'a');
        append(&mut gate, 15, 'b');
        assert_eq!((gate.begin_commit(), gate.visible()), (None, 10));
        assert_eq!(gate.unslotted(), 10..15);

        gate.slot_created(point(2, 13)).expect("a slot of this log");
        assert_eq!(gate.status(ticket), AppendStatus::Pending, "not in the index");
        assert_eq!(gate.visible(), 10);
        assert_eq!(commit(&mut gate), ['a']);
        assert_eq!((gate.begin_commit(), gate.visible(), gate.unslotted()), (None, 13, 13..15));
        assert_eq!(gate.status(ticket), AppendStatus::Acknowledged(()));

        gate.slot_created(point(2, 15)).expect("a slot of this log");
        assert_eq!(commit(&mut gate), ['b']);
    }

    #[test]
    fn opens_index_as_later_slots_do() {
        let mut gate = CommitGate::new(point(1, 10));
        assert_eq!(gate.visible(), 0);
        assert_eq!(gate.begin_commit().expect("a part").range(), 0..10);
        assert_eq!(commit(&mut gate), []);
        gate.slot_applied(point(3, 12)).expect("a follower");
        assert_eq!(gate.in_slots(), point(3, 12));
        assert_eq!(gate.begin_commit(), Some(IndexCommit(10..12)));
    }

    #[test]
    fn commits_of_two_threads_or_of_another_gate_are_refused() {
        let mut gate = leader();
        append(&mut gate, 13, 'a');
        gate.slot_created(point(2, 13)).expect("a slot of this log");
        let (first, second) = (gate.begin_commit(), gate.begin_commit());
        assert_eq!(gate.finish_commit(first.expect("a part")), Ok(vec!['a']));
        assert_eq!(gate.finish_commit(second.expect("a part")), Err(GateRefusal::GoesBack));
        let beyond = IndexCommit(13..14);
        assert_eq!(gate.finish_commit(beyond), Err(GateRefusal::BeyondSlots));
        assert_eq!(gate.visible(), 13);
    }

    #[test]
    fn appends_of_another_epoch_are_not_acknowledged_by_their_offset() {
        let mut deposed = leader();
        let ticket = append(&mut deposed, 13, 'a');
        assert_eq!(deposed.end(), ['a']);
        let mut gate = CommitGate::new(point(1, 10));
        gate.slot_applied(point(3, 20)).expect("a follower");
        commit(&mut gate);
        assert!(gate.visible() > 13);
        assert_eq!(gate.wait(ticket, 'b'), AppendStatus::Ambiguous('b'));
        gate.promote(4, 20).expect("a follower");
        assert_eq!(gate.wait(ticket, 'c'), AppendStatus::Ambiguous('c'));
    }

    #[test]
    fn last_slot_of_a_deposed_leader_acknowledges_its_appends() {
        let mut deposed = leader();
        let (first, second) = (append(&mut deposed, 13, 'a'), append(&mut deposed, 15, 'b'));
        assert_eq!(deposed.end(), ['a', 'b']);
        // Its creation had no answer, and the follower reads it.
        let mut gate = CommitGate::new(point(2, 10));
        gate.slot_applied(point(2, 13)).expect("a follower");
        assert_eq!(gate.wait(first, 'c'), AppendStatus::Ambiguous('c'), "not in the index");
        commit(&mut gate);
        assert_eq!(gate.wait(first, 'd'), AppendStatus::Acknowledged('d'));
        assert_eq!(gate.wait(second, 'e'), AppendStatus::Ambiguous('e'));
    }

    #[test]
    fn end_fails_all_waits_and_indexes_nothing() {
        let mut gate = leader();
        let ticket = append(&mut gate, 13, 'a');
        let late = gate.append(15).expect("a leader");
        gate.slot_created(point(2, 13)).expect("a slot of this log");
        let commit = gate.begin_commit().expect("a part of the log");
        assert_eq!(gate.end(), ['a']);
        assert_eq!(gate.finish_commit(commit), Err(GateRefusal::Ended));
        assert_eq!((gate.begin_commit(), gate.visible()), (None, 10));
        assert_eq!((gate.in_slots(), gate.unslotted()), (point(2, 13), 13..13));
        assert_eq!(gate.status(ticket), AppendStatus::Ambiguous(()));
        assert_eq!(gate.wait(late, 'b'), AppendStatus::Ambiguous('b'));
        assert_eq!(gate.end(), [], "no second outcome");
    }

    #[test]
    fn appends_that_were_visible_before_the_end_stay_acknowledged() {
        let mut gate = leader();
        let ticket = append(&mut gate, 13, 'a');
        gate.slot_created(point(2, 13)).expect("a slot of this log");
        assert_eq!(commit(&mut gate), ['a']);
        assert_eq!(gate.end(), []);
        assert_eq!(gate.status(ticket), AppendStatus::Acknowledged(()));
    }

    #[test]
    fn gate_that_led_never_follows() {
        let mut gate = leader();
        assert_eq!(gate.slot_applied(point(3, 12)), Err(GateRefusal::Leads));
        assert_eq!(gate.promote(3, 10), Err(GateRefusal::Leads));
        assert_eq!(gate.end(), []);
        assert_eq!(gate.slot_applied(point(3, 12)), Err(GateRefusal::Ended));
        assert_eq!(gate.promote(3, 10), Err(GateRefusal::Ended));
        assert_eq!(gate.append(12), Err(GateRefusal::Ended));
        assert_eq!(gate.retry(10), Err(GateRefusal::Ended));
        assert_eq!(gate.slot_created(point(2, 10)), Err(GateRefusal::Ended));
    }

    #[test]
    fn followers_write_nothing() {
        let mut gate: CommitGate<char> = CommitGate::new(point(1, 10));
        assert_eq!(gate.append(12), Err(GateRefusal::Follows));
        assert_eq!(gate.retry(10), Err(GateRefusal::Follows));
        assert_eq!(gate.slot_created(point(1, 10)), Err(GateRefusal::Follows));
        assert_eq!(gate.unslotted(), 10..10);
    }

    #[test]
    fn retries_wait_for_the_events_that_the_log_has() {
        let mut gate = leader();
        let earlier = gate.retry(10).expect("a leader");
        assert_eq!(gate.wait(earlier, 'a'), AppendStatus::Acknowledged('a'));
        append(&mut gate, 13, 'b');
        let again = gate.retry(13).expect("a leader");
        assert_eq!(gate.wait(again, 'c'), AppendStatus::Pending);
        assert_eq!(gate.retry(14), Err(GateRefusal::BeyondLog));
        gate.slot_created(point(2, 13)).expect("a slot of this log");
        assert_eq!(commit(&mut gate), ['b', 'c']);
    }

    #[test]
    fn slots_that_are_not_of_this_log_are_refused() {
        let mut gate = leader();
        append(&mut gate, 13, 'a');
        for (to, refusal) in [
            (point(1, 13), GateRefusal::OtherEpoch),
            (point(3, 13), GateRefusal::OtherEpoch),
            (point(2, 9), GateRefusal::GoesBack),
            (point(2, 14), GateRefusal::BeyondLog),
        ] {
            assert_eq!(gate.slot_created(to), Err(refusal), "{to:?}");
        }
        assert_eq!(gate.append(13), Err(GateRefusal::GoesBack));
        assert_eq!(gate.in_slots(), point(2, 10));
        let mut follower: CommitGate<char> = CommitGate::new(point(2, 10));
        for to in [point(1, 12), point(2, 9), point(3, 9)] {
            assert_eq!(follower.slot_applied(to), Err(GateRefusal::GoesBack), "{to:?}");
        }
    }

    #[test]
    fn promotion_requires_a_later_epoch_and_a_log_that_was_cut() {
        let mut gate: CommitGate<char> = CommitGate::new(point(2, 10));
        assert_eq!(gate.promote(2, 10), Err(GateRefusal::GoesBack));
        assert_eq!(gate.promote(3, 9), Err(GateRefusal::GoesBack));
        assert_eq!(gate.promote(3, 11), Err(GateRefusal::BeyondSlots));
        gate.promote(3, 10).expect("a follower");
        assert_eq!(gate.in_slots(), point(3, 10));
        // What it applied as a follower reaches the index as before.
        assert_eq!(gate.begin_commit(), Some(IndexCommit(0..10)));
    }
}
