//! Memory that a store of a shared budget publishes, and requests that other stores may make.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use umbel_base::ignore_poison::IgnorePoison;

/// Interface of a store to the other stores of its budget.
///
/// INVARIANT: no call waits for the store's commit, manifest or closing locks: it only tries them.
/// A call may wait for the work lock; holders of that lock wait for nothing of another store. The
/// other locks a call takes are leaf locks. So a caller may hold any lock of its own store except
/// the work lock, and no cycle of waiting stores is possible.
pub trait BudgetMember: Send + Sync + Debug {
    /// Freezes large memtables; the store flushes them itself. `false` if that frees nothing or the
    /// store is busy.
    fn yield_memtables(&self) -> bool;

    /// Closes readers of tables beyond the store's fair share.
    fn yield_readers(&self);

    /// Wakes background threads that wait for a slot. Tries the work lock.
    fn wake(&self);

    /// Publishes the memory that the store holds now.
    fn publish(&self);
}

/// A use of memory that a store publishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryUse {
    /// Memtables that take writes or wait to be flushed.
    Memtables,
    /// The subset of [`MemoryUse::Memtables`] that take writes.
    Writable,
    /// Memtables that no flush frees: cursors read them, or the store cannot flush.
    MemtablesHeld,
    /// Open readers of tables.
    Readers,
    /// Metadata of tables, open or not, and existence filters.
    Known,
    /// The mapped WAL.
    Log,
}

/// Number of memory uses.
const MEMORY_USES: usize = 6;

/// Bytes of each use.
#[derive(Debug, Default)]
pub struct MemoryUseBytes([AtomicU64; MEMORY_USES]);

impl MemoryUseBytes {
    /// Bytes of one use.
    pub fn of(&self, part: MemoryUse) -> u64 {
        self.0[part as usize].load(Ordering::Relaxed)
    }
}

/// Memory that a store holds, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct MemberUsage {
    /// As [`MemoryUse::Memtables`].
    pub memtables: u64,
    /// As [`MemoryUse::Writable`].
    pub writable: u64,
    /// As [`MemoryUse::MemtablesHeld`].
    pub memtables_held: u64,
    /// As [`MemoryUse::Readers`].
    pub readers: u64,
    /// As [`MemoryUse::Known`].
    pub known: u64,
    /// As [`MemoryUse::Log`]; `None` if it is unknown at the moment, which keeps the published
    /// value.
    pub log: Option<u64>,
    /// Whether flushes can free the memtables.
    pub can_flush: bool,
}

/// Memory that one store published last.
///
/// INVARIANT: a sum over all slots equals the sum of their bytes and is never below it. A value
/// changes under the lock of its slot, and the sum changes by the difference.
#[derive(Debug, Default)]
pub struct MemberSlot {
    bytes: MemoryUseBytes,
    publishing: Mutex<()>,
}

impl MemberSlot {
    /// Bytes of one use, as published last.
    pub fn of(&self, part: MemoryUse) -> u64 {
        self.bytes.of(part)
    }

    /// Lock under which a store publishes. Only the locks of super versions and lists are taken
    /// under it.
    pub fn lock(&self) -> MutexGuard<'_, ()> {
        self.publishing.lock().ignore_poison()
    }

    /// The same lock, if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, ()>> {
        self.publishing.try_lock().ok()
    }

    /// Sets the bytes of a use and changes the sums by the difference.
    pub fn set(
        &self,
        _locked: &MutexGuard<'_, ()>,
        part: MemoryUse,
        bytes: u64,
        sums: &MemoryUseBytes,
    ) {
        let before = self.bytes.0[part as usize].swap(bytes, Ordering::Relaxed);
        sums.0[part as usize].fetch_add(bytes.wrapping_sub(before), Ordering::Relaxed);
    }

    /// Publishes all uses.
    pub fn publish(
        &self,
        locked: &MutexGuard<'_, ()>,
        holding: MemberUsage,
        sums: &MemoryUseBytes,
    ) {
        let MemberUsage { memtables, writable, memtables_held, .. } = holding;
        let (memtables, writable, held) = match holding.can_flush {
            true => (memtables, writable, memtables_held),
            false => (0, 0, memtables_held + memtables),
        };
        let log = holding.log.unwrap_or_else(|| self.of(MemoryUse::Log));
        let parts = [
            (MemoryUse::Memtables, memtables),
            (MemoryUse::Writable, writable),
            (MemoryUse::MemtablesHeld, held),
            (MemoryUse::Readers, holding.readers),
            (MemoryUse::Known, holding.known),
            (MemoryUse::Log, log),
        ];
        parts.into_iter().for_each(|(part, bytes)| self.set(locked, part, bytes, sums));
    }

    /// Counts all memtables as memtables that no flush frees.
    pub fn withdraw_memtables(&self, locked: &MutexGuard<'_, ()>, sums: &MemoryUseBytes) {
        let held = self.of(MemoryUse::MemtablesHeld) + self.of(MemoryUse::Memtables);
        self.set(locked, MemoryUse::MemtablesHeld, held, sums);
        self.set(locked, MemoryUse::Memtables, 0, sums);
        self.set(locked, MemoryUse::Writable, 0, sums);
    }

    /// Removes this slot's bytes from the sums.
    pub fn clear(&self, sums: &MemoryUseBytes) {
        let log = Some(0);
        self.publish(&self.lock(), MemberUsage { log, ..MemberUsage::default() }, sums);
    }
}
