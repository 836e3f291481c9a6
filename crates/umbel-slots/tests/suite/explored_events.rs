//! [`ExploredEvents`]: the event store of an explored node, as far as the rules for the event log
//! need it. An event is its id, one byte long: the log of a node is a list of ids, and an offset
//! is their number. [`CommitGate`] is the code itself.

use std::collections::BTreeMap;

use umbel_slots::{
    AppendStatus, AppendTicket, CommitGate, GateRefusal, LogId, LogPoint, Slot, SlotEntry,
};

const LOG: LogId = LogId { kind: 0, id: 0 };

/// Rule of `docs/explanation/replication.md` that a node breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum EventFault {
    #[default]
    None,
    /// B1: a group sync indexes all that was written.
    IndexesWritten,
    /// B1: a created slot counts for the log as it is when the answer comes.
    SlotEndsAtLogEnd,
    /// B1: a proposed slot counts as a created one.
    CountsProposals,
    /// B2: an open takes its whole log as acknowledged.
    OpenTrustsLog,
    /// B10: a deposed leader acknowledges its appends once it has followed past them.
    DemotionKeepsWaits,
    /// B10: a deposed leader indexes its queue once it has followed past it.
    DemotionKeepsQueue,
    /// B10: a deposed leader does not cut its log.
    DemotionKeepsLog,
    /// B11: an append is acknowledged by its offset alone.
    AcksByOffset,
    /// B12: a close indexes its queue.
    CloseIndexes,
    /// B12: a close acknowledges its waits.
    CloseAcknowledges,
    /// B14: a server opens a replica's directory without the cluster's options.
    OpensAlone,
    /// B14: a detached directory follows again.
    RejoinsDetached,
    /// B19: a promoted node begins with an empty window of recent ids.
    PromotionForgetsIds,
    /// B19: a follower adds no ids while it applies slots.
    FollowerAddsNoIds,
}

impl EventFault {
    /// All faults.
    pub const ALL: [EventFault; 14] = [
        EventFault::IndexesWritten,
        EventFault::SlotEndsAtLogEnd,
        EventFault::CountsProposals,
        EventFault::OpenTrustsLog,
        EventFault::DemotionKeepsWaits,
        EventFault::DemotionKeepsQueue,
        EventFault::DemotionKeepsLog,
        EventFault::AcksByOffset,
        EventFault::CloseIndexes,
        EventFault::CloseAcknowledges,
        EventFault::OpensAlone,
        EventFault::RejoinsDetached,
        EventFault::PromotionForgetsIds,
        EventFault::FollowerAddsNoIds,
    ];
}

/// Loss of the disk in a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskLoss {
    Nothing,
    /// Records beyond the acknowledged slots, which no sync has reached.
    Tail,
    Everything,
}

/// Offset that a waiter waits for, and the id of its event.
type Waiter = (u64, u8);

/// The event store of a node. Its index is in memory: an open indexes the log again.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ExploredEvents {
    fault: EventFault,
    /// Ended while the store is closed. It has the recorded point then.
    gate: CommitGate<Waiter>,
    /// Ids of the records.
    log: Vec<u8>,
    /// Records that are not in the index, with their ends.
    queue: Vec<(u64, u8)>,
    /// Ids of the records in the index. Readers see those up to the visible offset.
    index: Vec<u8>,
    /// The window of recent ids, with the ends of their records.
    recent: BTreeMap<u8, u64>,
    /// Appends whose caller does not wait yet. They survive a close, and not a crash.
    tickets: Vec<(AppendTicket, Waiter)>,
    /// Waits of a deposed leader, if the fault keeps them.
    kept: Vec<Waiter>,
    is_detached: bool,
    /// End of the records that were acknowledged without the cluster; 0 without any.
    alone_end: u64,
}

impl ExploredEvents {
    /// The empty directory of a node.
    pub fn new(fault: EventFault) -> ExploredEvents {
        ExploredEvents {
            fault,
            gate: ended_gate(LogPoint::default()),
            log: Vec::new(),
            queue: Vec::new(),
            index: Vec::new(),
            recent: BTreeMap::new(),
            tickets: Vec::new(),
            kept: Vec::new(),
            is_detached: false,
            alone_end: 0,
        }
    }

    fn has(&self, fault: EventFault) -> bool {
        self.fault == fault
    }

    /// Opens the directory as a follower, and cuts the log. Returns `false` if it is refused.
    pub fn open(&mut self) -> Result<bool, String> {
        let mut in_slots = self.gate.in_slots();
        if self.is_detached && !self.has(EventFault::RejoinsDetached) {
            return Ok(false);
        }
        if self.alone_end > in_slots.offset {
            return Err("the node cuts what its directory acknowledged".into());
        }
        if self.has(EventFault::OpenTrustsLog) {
            in_slots.offset = self.log.len() as u64;
        }
        if !self.has(EventFault::DemotionKeepsLog) {
            self.log.truncate(in_slots.offset as usize);
        }
        self.queue.retain(|(end, _)| *end > in_slots.offset);
        if !self.has(EventFault::DemotionKeepsQueue) {
            self.queue.clear();
        }
        let records: Vec<(u64, u8)> = (1..).zip(self.log.iter().copied()).collect();
        self.recent = records.iter().map(|(end, id)| (*id, *end)).collect();
        self.queue.splice(0..0, records);
        self.index.clear();
        self.gate = CommitGate::new(in_slots);
        Ok(true)
    }

    /// Begins from the state of a snapshot, whose last slot has this epoch.
    pub fn load(&mut self, epoch: u64, state: &[u8]) -> Result<bool, String> {
        self.log = state.to_vec();
        self.queue.clear();
        self.gate = ended_gate(LogPoint { epoch, offset: state.len() as u64 });
        self.open()
    }

    /// The state after the acknowledged slots, for a snapshot.
    pub fn state(&self) -> Vec<u8> {
        self.log[..self.gate.in_slots().offset as usize].to_vec()
    }

    /// Applies a slot of the leader.
    pub fn apply_slot(&mut self, slot: &Slot) -> Result<(), String> {
        let (from, ids) = slot_ids(slot);
        if !ids.is_empty() && from != self.log.len() as u64 {
            return Err(format!("the log ends at {}, slot {}", self.log.len(), slot.number));
        }
        for id in ids {
            self.push(*id);
            if self.has(EventFault::FollowerAddsNoIds) {
                self.recent.remove(id);
            }
        }
        let to = LogPoint { epoch: slot.epoch, offset: self.log.len() as u64 };
        self.gate.slot_applied(to).map_err(refused)
    }

    /// Leads from this epoch on.
    pub fn promote(&mut self, epoch: u64) -> Result<(), String> {
        if self.has(EventFault::PromotionForgetsIds) {
            self.recent.clear();
        }
        self.gate.promote(epoch, self.log.len() as u64).map_err(refused)
    }

    fn push(&mut self, id: u8) -> u64 {
        self.log.push(id);
        let end = self.log.len() as u64;
        self.queue.push((end, id));
        self.recent.insert(id, end);
        end
    }

    /// Appends an event as the leader, or recognizes its id. Its caller waits at once or later.
    /// Returns the id if it is acknowledged.
    pub fn append(&mut self, id: u8, waits: bool) -> Result<Option<u8>, String> {
        let (end, ticket) = match self.recent.get(&id) {
            Some(end) => (*end, self.gate.retry(*end)),
            None => {
                let end = self.push(id);
                (end, self.gate.append(end))
            }
        };
        self.tickets.push((ticket.map_err(refused)?, (end, id)));
        Ok(if waits { self.wait(self.tickets.len() - 1) } else { None })
    }

    /// Whether readers see an event.
    pub fn shows(&self, id: u8) -> bool {
        self.index.iter().take(self.gate.visible() as usize).any(|it| *it == id)
    }

    /// Whether an append has a caller that does not wait yet.
    pub fn has_tickets(&self) -> bool {
        !self.tickets.is_empty()
    }

    /// Waits for an append. Returns its id if it is acknowledged.
    pub fn wait(&mut self, number: usize) -> Option<u8> {
        let (ticket, (end, id)) = self.tickets.remove(number);
        if self.has(EventFault::AcksByOffset) && end <= self.gate.visible() {
            return Some(id);
        }
        match self.gate.wait(ticket, (end, id)) {
            AppendStatus::Acknowledged((_, id)) => Some(id),
            // The client retries, or not.
            AppendStatus::Ambiguous(_) | AppendStatus::Pending => None,
        }
    }

    /// The content of the leader's next slot.
    pub fn next_entry(&mut self) -> SlotEntry {
        let range = self.gate.unslotted();
        if range.is_empty() {
            return SlotEntry::Nothing;
        }
        if self.has(EventFault::CountsProposals) {
            let epoch = self.gate.in_slots().epoch;
            self.gate.slot_created(LogPoint { epoch, offset: range.end }).expect("the log's end");
        }
        let bytes = self.log[range.start as usize..range.end as usize].to_vec();
        SlotEntry::Bytes { log: LOG, from: range.start, bytes }
    }

    /// A slot of the leader is in the chain.
    pub fn slot_created(&mut self, slot: &Slot) -> Result<(), String> {
        let (from, ids) = slot_ids(slot);
        let offset = match self.fault {
            EventFault::SlotEndsAtLogEnd => self.log.len() as u64,
            _ if ids.is_empty() => self.gate.in_slots().offset,
            _ => from + ids.len() as u64,
        };
        self.gate.slot_created(LogPoint { epoch: slot.epoch, offset }).map_err(refused)
    }

    /// Whether the index may have more than it has.
    pub fn can_commit(&self) -> bool {
        self.gate.begin_commit().is_some()
    }

    /// Indexes what the gate permits. Returns the acknowledged ids.
    pub fn commit(&mut self) -> Result<Vec<u8>, String> {
        let Some(commit) = self.gate.begin_commit() else { return Ok(Vec::new()) };
        let through = match self.fault {
            EventFault::IndexesWritten => u64::MAX,
            _ => commit.range().end,
        };
        self.index_through(through);
        let mut done = self.gate.finish_commit(commit).map_err(refused)?;
        let visible = self.gate.visible();
        done.extend(self.kept.extract_if(.., |(end, _)| *end <= visible));
        Ok(done.into_iter().map(|(_, id)| id).collect())
    }

    fn index_through(&mut self, through: u64) {
        let indexed = self.queue.extract_if(.., |(end, _)| *end <= through);
        self.index.extend(indexed.map(|(_, id)| id));
    }

    /// Closes the store. Returns the acknowledged ids.
    pub fn close(&mut self) -> Vec<u8> {
        let failed = self.gate.end();
        if self.has(EventFault::CloseIndexes) {
            self.index_through(u64::MAX);
        }
        self.queue.clear();
        let ids = failed.into_iter().map(|(_, id)| id);
        ids.filter(|_| self.has(EventFault::CloseAcknowledges)).collect()
    }

    /// Ends the store of a leader that leads no more, and opens it again.
    pub fn demote(&mut self) -> Result<(), String> {
        let failed = self.gate.end();
        if self.has(EventFault::DemotionKeepsWaits) {
            self.kept.extend(failed);
        }
        self.open().map(|_| ())
    }

    /// Whether the log has records beyond the acknowledged slots.
    pub fn has_tail(&self) -> bool {
        self.log.len() as u64 > self.gate.in_slots().offset
    }

    /// Ends the process of the node.
    pub fn crash(&mut self, loss: DiskLoss) {
        let ExploredEvents { fault, is_detached, alone_end, .. } = *self;
        let (in_slots, mut log) = (self.gate.in_slots(), std::mem::take(&mut self.log));
        *self = ExploredEvents::new(fault);
        if loss == DiskLoss::Everything {
            return;
        }
        if loss == DiskLoss::Tail {
            log.truncate(in_slots.offset.max(alone_end) as usize);
        }
        (self.log, self.is_detached, self.alone_end) = (log, is_detached, alone_end);
        self.gate = ended_gate(in_slots);
    }

    /// Makes the closed directory one of its own. Returns `false` if it is already.
    pub fn detach(&mut self) -> bool {
        !std::mem::replace(&mut self.is_detached, true)
    }

    /// Whether the directory is one of its own.
    pub fn is_detached(&self) -> bool {
        self.is_detached
    }

    /// Whether a server may open the closed directory without the cluster's options.
    pub fn can_open_alone(&self) -> bool {
        self.is_detached || self.has(EventFault::OpensAlone)
    }

    /// Appends an event to the directory without the cluster, and acknowledges it. Returns the id
    /// if clients take the directory for the cluster's.
    pub fn append_alone(&mut self, id: u8) -> Option<u8> {
        if !self.log.contains(&id) {
            self.log.push(id);
        }
        self.alone_end = self.log.len() as u64;
        (!self.is_detached).then_some(id)
    }

    /// Checks that the node has, indexes and shows the chain. `chain` has the ids of all slots.
    pub fn check(&self, chain: &[u8]) -> Result<(), String> {
        let in_slots = self.gate.in_slots().offset as usize;
        if in_slots > chain.len() || self.log.get(..in_slots) != Some(&chain[..in_slots]) {
            return Err(format!("its log {:?} differs before {in_slots}", self.log));
        }
        if !chain.starts_with(&self.index) {
            return Err(format!("its index has {:?}", self.index));
        }
        match self.gate.visible() <= self.index.len() as u64 {
            true => Ok(()),
            false => Err(format!("it shows {} events without index", self.gate.visible())),
        }
    }
}

/// A gate of a closed store.
fn ended_gate(in_slots: LogPoint) -> CommitGate<Waiter> {
    let mut gate = CommitGate::new(in_slots);
    assert_eq!(gate.end(), []);
    gate
}

fn refused(refusal: GateRefusal) -> String {
    format!("the gate refuses: {refusal}")
}

/// The ids in a slot, and the offset at which they begin.
pub fn slot_ids(slot: &Slot) -> (u64, &[u8]) {
    let found = slot.entries.iter().find_map(|entry| match entry {
        SlotEntry::Bytes { from, bytes, .. } => Some((*from, bytes.as_slice())),
        _ => None,
    });
    found.unwrap_or((0, &[]))
}
