//! The memory that a store of a shared budget publishes, and the requests that other stores can
//! make of it.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use umbel_base::ignore_poison::IgnorePoison;

/// Interface of a store to the other stores of its budget.
///
/// INVARIANT: no call waits for the store's commit, manifest or closing locks; it only tries to
/// take them. A call can wait for the work lock, whose holders wait for nothing of another store.
/// All other locks that a call takes are leaf locks. So a caller may hold any lock of its own store
/// except the work lock, and no cycle of waiting stores is possible.
pub trait BudgetMember: Send + Sync + Debug {
    /// Freezes large memtables, which the store then flushes itself. Returns `false` if freezing
    /// frees no memory or the store is busy.
    fn yield_memtables(&self) -> bool;

    /// Closes the store's table readers beyond its fair share.
    fn yield_readers(&self);

    /// Wakes the store's background threads that wait for a job slot. Only tries to take the work
    /// lock.
    fn wake(&self);

    /// Publishes the memory that the store uses now.
    fn publish(&self);
}

/// A use of memory that a store publishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryUse {
    /// Memtables that take writes or wait for a flush.
    Memtables,
    /// The memtables that take writes; a part of [`MemoryUse::Memtables`].
    Writable,
    /// Memtables that no flush frees: cursors read them, or the store cannot flush.
    MemtablesHeld,
    /// Open table readers.
    Readers,
    /// Metadata of tables, open or not, and existence filters.
    Known,
    /// The mapped WAL.
    Log,
}

/// Number of memory uses.
const MEMORY_USES: usize = 6;

/// Bytes of each memory use.
#[derive(Debug, Default)]
pub struct MemoryUseBytes([AtomicU64; MEMORY_USES]);

impl MemoryUseBytes {
    /// Bytes of the memory use `part`.
    pub fn of(&self, part: MemoryUse) -> u64 {
        self.0[part as usize].load(Ordering::Relaxed)
    }
}

/// Memory that a store uses, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct MemberUsage {
    /// Bytes of [`MemoryUse::Memtables`].
    pub memtables: u64,
    /// Bytes of [`MemoryUse::Writable`].
    pub writable: u64,
    /// Bytes of [`MemoryUse::MemtablesHeld`].
    pub memtables_held: u64,
    /// Bytes of [`MemoryUse::Readers`].
    pub readers: u64,
    /// Bytes of [`MemoryUse::Known`].
    pub known: u64,
    /// Bytes of [`MemoryUse::Log`]; `None` if unknown at the moment, which leaves the published
    /// value as it is.
    pub log: Option<u64>,
    /// Whether flushes can free the memtables.
    pub can_flush: bool,
}

/// The memory use that one store published last.
///
/// INVARIANT: the sum of a memory use equals the sum of the bytes in all slots. A value changes
/// under the lock of its slot, and the sum changes by the difference, so that it is never too low.
#[derive(Debug, Default)]
pub struct MemberSlot {
    bytes: MemoryUseBytes,
    publishing: Mutex<()>,
}

impl MemberSlot {
    /// Bytes of the memory use `part`, as the store published them last.
    pub fn of(&self, part: MemoryUse) -> u64 {
        self.bytes.of(part)
    }

    /// Takes the lock under which a store publishes. While it is held, only the locks of super
    /// versions and lists are taken.
    pub fn lock(&self) -> MutexGuard<'_, ()> {
        self.publishing.lock().ignore_poison()
    }

    /// Takes the lock under which a store publishes, if the lock is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, ()>> {
        self.publishing.try_lock().ok()
    }

    /// Sets the bytes of a memory use, and changes its sum by the difference.
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

    /// Publishes all memory uses of the store.
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

    /// Counts all memtables of the store as memtables that no flush frees.
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
