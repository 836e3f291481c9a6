//! [`IndexGate`]: decides how much of the log the index may have, and readers may see.
//!
//! A store on one machine decides alone. In a replicated store, the slots decide, by the
//! [`CommitGate`] of `umbel-slots`. Offsets of that gate are positions after a record: the start of
//! the chunk, plus the end of the record in the chunk's file. They grow over the whole log, and no
//! record lies between the end of a chunk and the start of the next one.
//!
//! INVARIANT: `in_slots` and the visible offset are ends of records. So an event is in the slots,
//! or visible, exactly if its position is before that offset.
//!
//! INVARIANT (B10, B11): the gate of a store leads in one epoch at most. So a pending append, which
//! belongs to its store, belongs to that epoch as well. Its ticket states both.
//!
//! Those who wait are not in the [`CommitGate`]: callbacks are in `AckCallbacks`, and threads wait
//! here. Both are released by the visible position, which only the gate advances, and by the end.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use umbel_base::ignore_poison::IgnorePoison;
use umbel_slots::{AppendStatus, AppendTicket, CommitGate, GateRefusal, IndexCommit, LogPoint};

use crate::types::error::{Error, Result};

/// Decides how much of the log the index may have, and readers may see.
#[derive(Debug, Default)]
pub enum IndexGate {
    /// Of a store on one machine: everything that has the store's durability.
    #[default]
    Standalone,
    /// Of a replicated store: what is in acknowledged slots. Boxed, since writers and readers of a
    /// store on one machine have the visible position beside it.
    Replicated(Box<ReplicatedGate>),
}

/// Gate of a replicated store.
#[derive(Debug)]
pub struct ReplicatedGate {
    state: Mutex<GateState>,
    /// Notified after each change.
    changed: Condvar,
}

#[derive(Debug)]
struct GateState {
    gate: CommitGate<Infallible>,
    /// Ends of the records that no acknowledged slot has, in order.
    record_ends: VecDeque<u64>,
    /// Whether the next or the present wait for records ends at once.
    is_interrupted: bool,
}

/// Permission to commit a part of the log to the index, and to make this part visible. Only a gate
/// creates one.
#[derive(Debug)]
#[must_use = "a part of the log is visible only once its commit has ended"]
pub struct CommitPermit {
    end: u64,
    part: Option<IndexCommit>,
}

impl CommitPermit {
    /// Position at or before which the records of the part end.
    #[inline]
    pub fn end(&self) -> u64 {
        self.end
    }
}

impl IndexGate {
    /// The gate of a store that opens with the bytes of the slots up to `in_slots`, as a follower.
    pub fn replicated(in_slots: LogPoint) -> IndexGate {
        let (gate, record_ends) = (CommitGate::new(in_slots), VecDeque::new());
        let state = GateState { gate, record_ends, is_interrupted: false };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        IndexGate::Replicated(Box::new(ReplicatedGate { state, changed }))
    }

    /// The gate of a replicated store; `None` on one machine.
    #[inline]
    pub fn as_replicated(&self) -> Option<&ReplicatedGate> {
        match self {
            IndexGate::Standalone => None,
            IndexGate::Replicated(gate) => Some(gate),
        }
    }

    /// Returns the permission to commit the next part of the log to the index. The part is empty
    /// where the index has all that it may have.
    ///
    /// REQUIRES: one thread commits at a time.
    ///
    /// # Errors
    /// [`Error::AppendAmbiguous`] after the end of the gate.
    #[inline]
    pub fn begin_commit(&self) -> Result<CommitPermit> {
        match self {
            IndexGate::Standalone => Ok(CommitPermit { end: u64::MAX, part: None }),
            IndexGate::Replicated(gate) => gate.begin_commit(),
        }
    }

    /// Ends a commit: calls `show`, which makes the part visible.
    ///
    /// # Errors
    /// [`Error::AppendAmbiguous`] after the end of the gate; nothing becomes visible then.
    #[inline]
    pub fn finish_commit(&self, permit: CommitPermit, show: impl FnOnce()) -> Result<()> {
        match self {
            IndexGate::Standalone => show(),
            IndexGate::Replicated(gate) => gate.finish_commit(permit, show)?,
        }
        Ok(())
    }

    /// Returns an error where the store may write nothing.
    ///
    /// # Errors
    /// [`Error::NotLeader`] for a replicated store that does not lead.
    #[inline]
    pub fn check_leads(&self) -> Result<()> {
        self.as_replicated().map_or(Ok(()), ReplicatedGate::check_leads)
    }

    /// Records an append that is in the log, whose record has this end.
    ///
    /// # Errors
    /// [`Error::NotLeader`] after the end of the gate: no slot will have the record.
    #[inline]
    pub fn record_append(&self, end: u64) -> Result<()> {
        self.as_replicated().map_or(Ok(()), |gate| gate.record_append(end))
    }

    /// Waits until a slot has the event at `position`; on one machine nothing has to.
    ///
    /// # Errors
    /// [`Error::AppendAmbiguous`] once the gate has ended, [`Error::NotLeader`] for a follower.
    pub fn wait_for_slot(&self, position: u64) -> Result<()> {
        self.as_replicated().map_or(Ok(()), |gate| gate.wait_for_slot(position))
    }

    /// The ticket of an append whose last event is at `position`; `None` on one machine, without
    /// events, and after the end of the gate.
    #[inline]
    pub fn ticket(&self, position: u64) -> Option<AppendTicket> {
        self.as_replicated().and_then(|gate| gate.ticket(position))
    }

    /// Whether the epoch of an append permits to acknowledge it. The append has this ticket, and
    /// its last event is at `position`, which is visible.
    #[inline]
    pub fn confirms(&self, ticket: Option<AppendTicket>, position: u64) -> bool {
        self.as_replicated().is_none_or(|gate| position == 0 || gate.confirms(ticket))
    }

    /// Whether the gate ended: nothing that was not acknowledged before will be.
    #[inline]
    pub fn has_ended(&self) -> bool {
        self.as_replicated()
            .is_some_and(|gate| matches!(gate.lock().refusal(), Some(GateRefusal::Ended)))
    }

    /// Ends the gate, and with it all waits. Does nothing on one machine.
    pub fn end(&self) {
        if let Some(gate) = self.as_replicated() {
            gate.change(|state| drop(state.gate.end()));
        }
    }
}

impl GateState {
    /// Reason why the store may write nothing; `None` while it leads.
    fn refusal(&self) -> Option<GateRefusal> {
        self.gate.retry(0).err()
    }

    fn check_leads(&self) -> Result<()> {
        self.refusal().map_or(Ok(()), |_| Err(Error::NotLeader))
    }

    fn check_not_ended(&self) -> Result<()> {
        match self.refusal() {
            Some(GateRefusal::Ended) => Err(Error::AppendAmbiguous),
            _ => Ok(()),
        }
    }
}

impl ReplicatedGate {
    fn lock(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().ignore_poison()
    }

    fn change<T>(&self, change: impl FnOnce(&mut GateState) -> T) -> T {
        let changed = change(&mut self.lock());
        self.changed.notify_all();
        changed
    }

    fn begin_commit(&self) -> Result<CommitPermit> {
        let state = self.lock();
        state.check_not_ended()?;
        let part = state.gate.begin_commit();
        let end = part.as_ref().map_or(state.gate.visible(), |part| part.range().end);
        Ok(CommitPermit { end, part })
    }

    fn finish_commit(&self, permit: CommitPermit, show: impl FnOnce()) -> Result<()> {
        let Some(part) = permit.part else { return Ok(()) };
        self.change(|state| {
            match state.gate.finish_commit(part) {
                Ok(_) => show(),
                Err(GateRefusal::Ended) => return Err(Error::AppendAmbiguous),
                Err(refusal) => return Err(refused(refusal)),
            }
            Ok(())
        })
    }

    fn check_leads(&self) -> Result<()> {
        self.lock().check_leads()
    }

    fn record_append(&self, end: u64) -> Result<()> {
        self.change(|state| match state.gate.append(end) {
            Ok(_) => {
                state.record_ends.push_back(end);
                Ok(())
            }
            Err(GateRefusal::Ended) => Err(Error::NotLeader),
            Err(refusal) => Err(refused(refusal)),
        })
    }

    fn ticket(&self, position: u64) -> Option<AppendTicket> {
        // The visible offset passes it together with the end of the record.
        (position > 0).then(|| self.lock().gate.retry(position + 1).ok()).flatten()
    }

    fn confirms(&self, ticket: Option<AppendTicket>) -> bool {
        let acknowledged = AppendStatus::Acknowledged(());
        ticket.is_some_and(|ticket| self.lock().gate.status(ticket) == acknowledged)
    }

    fn wait_for_slot(&self, position: u64) -> Result<()> {
        let mut state = self.lock();
        loop {
            state.check_not_ended()?;
            if state.gate.in_slots().offset > position {
                return Ok(());
            }
            state.check_leads()?;
            state = self.changed.wait(state).ignore_poison();
        }
    }

    /// Point up to which the bytes of the log are in acknowledged slots.
    pub fn in_slots(&self) -> LogPoint {
        self.lock().gate.in_slots()
    }

    /// Leads from this epoch on. `log_end` is the end of the log.
    ///
    /// # Errors
    /// An error if the store led before, if the epoch is not a later one, or if the log has more
    /// than the slots.
    pub fn promote(&self, epoch: u64, log_end: u64) -> Result<()> {
        self.change(|state| state.gate.promote(epoch, log_end)).map_err(refused)
    }

    /// Part of the log that the next slots are to have.
    pub fn unslotted(&self) -> Range<u64> {
        self.lock().gate.unslotted()
    }

    /// Waits until the log has something for the next slot, the gate has ended or
    /// [`ReplicatedGate::interrupt_wait`] was called, at most for `timeout`. Returns the part of
    /// the log that the next slots are to have.
    pub fn wait_unslotted(&self, timeout: Duration) -> Range<u64> {
        let waited = self.changed.wait_timeout_while(self.lock(), timeout, |state| {
            let is_idle = state.gate.unslotted().is_empty() && !state.is_interrupted;
            is_idle && state.check_not_ended().is_ok()
        });
        let mut state = waited.ignore_poison().0;
        state.is_interrupted = false;
        state.gate.unslotted()
    }

    /// Ends the present wait of [`ReplicatedGate::wait_unslotted`], or else the next one.
    pub fn interrupt_wait(&self) {
        self.change(|state| state.is_interrupted = true);
    }

    /// Part of the log for one slot: whole records with at most `bytes_max` bytes, or one longer
    /// record. `None` if the slots have everything, or the store does not lead.
    pub fn next_slot(&self, bytes_max: u64) -> Option<(LogPoint, Range<u64>)> {
        let state = self.lock();
        let from = state.gate.in_slots();
        let fits = |end: &u64| end.saturating_sub(from.offset) <= bytes_max;
        let count = state.record_ends.partition_point(fits).max(1);
        let end = *state.record_ends.get(count - 1)?;
        (!state.gate.unslotted().is_empty())
            .then_some((LogPoint { offset: end, ..from }, from.offset..end))
    }

    /// Returns an error where the store applies no slots.
    ///
    /// # Errors
    /// An error after a promotion, and after the end.
    pub fn check_follows(&self) -> Result<()> {
        let mut state = self.lock();
        let in_slots = state.gate.in_slots();
        state.gate.slot_applied(in_slots).map_err(refused)
    }

    /// A follower applied a slot: its log durably has the records up to this point.
    ///
    /// # Errors
    /// Those of [`ReplicatedGate::check_follows`], and an error for an earlier point.
    pub fn slot_applied(&self, to: LogPoint) -> Result<()> {
        self.change(|state| state.gate.slot_applied(to)).map_err(refused)
    }

    /// A slot of this leader is in the chain, with the bytes of its log up to this point.
    ///
    /// # Errors
    /// An error if the slot is not of this log and epoch, or ends within a record.
    pub fn slot_created(&self, to: LogPoint) -> Result<()> {
        self.slot_created_with(to, || ())
    }

    /// Like [`ReplicatedGate::slot_created`]. Calls `note` before any thread can index the records.
    ///
    /// # Errors
    /// Those of [`ReplicatedGate::slot_created`]; `note` is not called then.
    pub fn slot_created_with(&self, to: LogPoint, note: impl FnOnce()) -> Result<()> {
        self.change(|state| {
            let unslotted = state.gate.unslotted();
            let is_within = unslotted.start < to.offset && to.offset <= unslotted.end;
            if is_within && state.record_ends.binary_search(&to.offset).is_err() {
                return Err(Error::invalid("a slot ends within a record of the event log"));
            }
            state.gate.slot_created(to).map_err(refused)?;
            let count = state.record_ends.partition_point(|end| *end <= to.offset);
            state.record_ends.drain(..count);
            note();
            Ok(())
        })
    }
}

#[cold]
fn refused(refusal: GateRefusal) -> Error {
    Error::invalid(format!("the gate of the replicated event log refuses: {refusal}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: LogPoint = LogPoint { epoch: 1, offset: 96 };

    /// A leader with a record in a slot, and another one in none.
    fn leader() -> IndexGate {
        let gate = IndexGate::replicated(LogPoint::default());
        let replicated = gate.as_replicated().expect("replicated");
        replicated.promote(FIRST.epoch, 0).expect("a follower");
        gate.record_append(FIRST.offset).expect("a leader");
        gate.record_append(200).expect("a leader");
        replicated.slot_created(FIRST).expect("a slot of this log");
        gate
    }

    #[test]
    fn permit_ends_with_the_slots() {
        let gate = leader();
        let (shown, hidden) = (gate.ticket(40), gate.ticket(104));
        let permit = gate.begin_commit().expect("a leader");
        assert_eq!(permit.end(), FIRST.offset);
        assert!(!gate.confirms(shown, 40), "not in the index");
        let mut is_visible = false;
        gate.finish_commit(permit, || is_visible = true).expect("permitted");
        assert!(is_visible && gate.confirms(shown, 40) && !gate.confirms(hidden, 104));
        assert!(!gate.confirms(None, 40) && gate.confirms(None, 0), "without events");
        let permit = gate.begin_commit().expect("a leader");
        assert_eq!(permit.end(), FIRST.offset, "nothing new");
        gate.finish_commit(permit, || panic!("an empty part")).expect("no change");
        gate.wait_for_slot(FIRST.offset - 1).expect("in a slot");
    }

    #[test]
    fn end_within_a_commit_shows_nothing() {
        let gate = leader();
        let ticket = gate.ticket(40);
        let permit = gate.begin_commit().expect("a leader");
        gate.end();
        let finished = gate.finish_commit(permit, || panic!("shown after the end"));
        assert!(matches!(finished, Err(Error::AppendAmbiguous)), "{finished:?}");
        assert!(gate.has_ended() && !gate.confirms(ticket, 40));
        assert!(matches!(gate.begin_commit(), Err(Error::AppendAmbiguous)));
        assert!(matches!(gate.wait_for_slot(40), Err(Error::AppendAmbiguous)));
        assert!(matches!(gate.record_append(300), Err(Error::NotLeader)));
        assert!(matches!(gate.check_leads(), Err(Error::NotLeader)));
        assert_eq!(gate.ticket(40), None);
        let replicated = gate.as_replicated().expect("replicated");
        assert!(replicated.promote(2, 0).is_err(), "it led");
        assert_eq!((replicated.in_slots(), replicated.next_slot(u64::MAX)), (FIRST, None));
        assert!(replicated.wait_unslotted(Duration::MAX).is_empty());
    }

    #[test]
    fn slot_has_whole_records() {
        let gate = leader();
        gate.record_append(280).expect("a leader");
        let replicated = gate.as_replicated().expect("replicated");
        let next =
            |bytes_max| replicated.next_slot(bytes_max).map(|(to, range)| (to.offset, range));
        assert_eq!(next(1), Some((200, 96..200)), "one longer record");
        assert_eq!(next(183), Some((200, 96..200)));
        assert_eq!(next(184), Some((280, 96..280)));
        for offset in [97, 199, 201, 281, 88] {
            assert!(replicated.slot_created(LogPoint { offset, ..FIRST }).is_err(), "{offset}");
        }
        replicated.slot_created(FIRST).expect("a slot without records");
        replicated.slot_created(LogPoint { offset: 280, ..FIRST }).expect("both records");
        assert_eq!(next(u64::MAX), None);
    }

    #[test]
    fn interrupt_ends_one_wait() {
        let gate = leader();
        let replicated = gate.as_replicated().expect("replicated");
        replicated.slot_created(LogPoint { offset: 200, ..FIRST }).expect("all records");
        replicated.interrupt_wait();
        assert_eq!(replicated.wait_unslotted(Duration::MAX), 200..200);
        assert_eq!(replicated.wait_unslotted(Duration::ZERO), 200..200);
    }

    #[test]
    fn follower_indexes_what_it_applied() {
        let gate = IndexGate::replicated(LogPoint::default());
        let replicated = gate.as_replicated().expect("replicated");
        replicated.check_follows().expect("a follower");
        replicated.slot_applied(FIRST).expect("the first slot");
        assert!(replicated.slot_applied(LogPoint { offset: 88, ..FIRST }).is_err());
        let permit = gate.begin_commit().expect("a follower");
        assert_eq!(permit.end(), FIRST.offset);
        gate.finish_commit(permit, || ()).expect("permitted");
        replicated.promote(2, FIRST.offset).expect("a follower");
        assert!(replicated.check_follows().is_err() && replicated.slot_applied(FIRST).is_err());
        gate.record_append(200).expect("a leader");
        let mut is_noted = false;
        let to = LogPoint { epoch: 2, offset: 200 };
        assert!(replicated.slot_created_with(FIRST, || is_noted = true).is_err() && !is_noted);
        replicated.slot_created_with(to, || is_noted = true).expect("a slot of this log");
        assert!(is_noted);
    }

    #[test]
    fn store_on_one_machine_permits_everything() {
        let gate = IndexGate::default();
        gate.end();
        assert!(!gate.has_ended() && gate.check_leads().is_ok() && gate.confirms(None, 40));
        gate.record_append(96).expect("no record");
        gate.wait_for_slot(u64::MAX - 1).expect("no wait");
        assert_eq!((gate.ticket(40), gate.begin_commit().expect("open").end()), (None, u64::MAX));
    }
}
