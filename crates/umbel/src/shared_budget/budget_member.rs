//! What a store that shares a budget publishes of itself, and what others may ask it to do.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A store, as the other stores of its budget see it.
///
/// INVARIANT: no call waits for the store's commit, manifest or closing locks: they are tried. The
/// work lock is waited for; its holders wait for nothing of another store. The other locks taken
/// are those under which no lock is taken. So a caller may hold any lock of its own store but the
/// work lock, and no cycle of waiting stores is possible.
pub trait BudgetMember: Send + Sync + Debug {
    /// Freezes large memtables, to be flushed by the store itself. `false` where that frees
    /// nothing, or where the store is busy.
    fn yield_memtables(&self) -> bool;

    /// Closes readers of tables beyond the store's fair share.
    fn yield_readers(&self);

    /// Wakes background threads that wait for a turn. Tries the work lock.
    fn wake(&self);

    /// Publishes what the store holds now.
    fn publish(&self);
}

/// A part of what a store holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Memtables that take writes or wait to be flushed.
    Memtables,
    /// Of these, the memtables that take writes.
    Writable,
    /// Memtables that no flush will free: cursors look at them, or the store cannot flush.
    MemtablesHeld,
    /// Open readers of tables.
    Readers,
    /// What is known of tables, open or not, and existence filters.
    Known,
    /// The mapped log.
    Log,
}

/// How many parts there are.
const PARTS: usize = 6;

/// Bytes of each part.
#[derive(Debug, Default)]
pub struct PartBytes([AtomicU64; PARTS]);

impl PartBytes {
    /// Bytes of one part.
    pub fn of(&self, part: Part) -> u64 {
        self.0[part as usize].load(Ordering::Relaxed)
    }
}

/// What a store holds, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Holding {
    /// As [`Part::Memtables`].
    pub memtables: u64,
    /// As [`Part::Writable`].
    pub writable: u64,
    /// As [`Part::MemtablesHeld`].
    pub memtables_held: u64,
    /// As [`Part::Readers`].
    pub readers: u64,
    /// As [`Part::Known`].
    pub known: u64,
    /// As [`Part::Log`]; `None` where it is unknown at the moment, and stays as it was published.
    pub log: Option<u64>,
    /// Whether flushes can free the memtables.
    pub can_flush: bool,
}

/// What one store published last.
///
/// INVARIANT: a sum over all slots is the sum of what they hold, and is never below it: values
/// change under the lock of their slot, and the sum by the difference.
#[derive(Debug, Default)]
pub struct Slot {
    bytes: PartBytes,
    publishing: Mutex<()>,
}

impl Slot {
    /// Bytes of one part, as published last.
    pub fn of(&self, part: Part) -> u64 {
        self.bytes.of(part)
    }

    /// The lock under which a store publishes. No lock but those of views and lists is taken under
    /// it.
    pub fn lock(&self) -> MutexGuard<'_, ()> {
        self.publishing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same where it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, ()>> {
        self.publishing.try_lock().ok()
    }

    /// Sets a part, and changes the sums by the difference.
    pub fn set(&self, _locked: &MutexGuard<'_, ()>, part: Part, bytes: u64, sums: &PartBytes) {
        let before = self.bytes.0[part as usize].swap(bytes, Ordering::Relaxed);
        sums.0[part as usize].fetch_add(bytes.wrapping_sub(before), Ordering::Relaxed);
    }

    /// Publishes all parts.
    pub fn publish(&self, locked: &MutexGuard<'_, ()>, holding: Holding, sums: &PartBytes) {
        let Holding { memtables, writable, memtables_held, .. } = holding;
        let (memtables, writable, held) = match holding.can_flush {
            true => (memtables, writable, memtables_held),
            false => (0, 0, memtables_held + memtables),
        };
        let log = holding.log.unwrap_or_else(|| self.of(Part::Log));
        let parts = [
            (Part::Memtables, memtables),
            (Part::Writable, writable),
            (Part::MemtablesHeld, held),
            (Part::Readers, holding.readers),
            (Part::Known, holding.known),
            (Part::Log, log),
        ];
        parts.into_iter().for_each(|(part, bytes)| self.set(locked, part, bytes, sums));
    }

    /// Counts the memtables among those that no flush will free.
    pub fn withdraw_memtables(&self, locked: &MutexGuard<'_, ()>, sums: &PartBytes) {
        let held = self.of(Part::MemtablesHeld) + self.of(Part::Memtables);
        self.set(locked, Part::MemtablesHeld, held, sums);
        self.set(locked, Part::Memtables, 0, sums);
        self.set(locked, Part::Writable, 0, sums);
    }

    /// Takes everything out of the sums.
    pub fn clear(&self, sums: &PartBytes) {
        let log = Some(0);
        self.publish(&self.lock(), Holding { log, ..Holding::default() }, sums);
    }
}
