//! [`MemoryBudget`]: one memory budget for several stores of a process.
//!
//! The stores share one block cache and one count of cursor memory. Each store publishes its other
//! memory uses, and the budget keeps their sums. A store can exceed its fair share of a memory use
//! while the other stores leave memory free. When a sum exceeds its limit, the store with the
//! largest use frees memory, even if it is idle: see [`crate::maintenance::shared_memtable_limit`].

mod budget_member;
mod job_slots;

pub mod memory_use_limits;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use umbel_base::ignore_poison::IgnorePoison;

use umbel_arena::ArenaUsage;
use umbel_base::{Error, Result};
use umbel_env::OpenMark;

use crate::cache::block_cache::ClockCache;
use crate::cache::cursor_memory::CursorMemory;
use crate::fs::fatal_error::FatalError;
use crate::shared_budget::memory_use_limits::{
    BUDGET_MIN, BudgetShares, CACHE_ENTRIES_SHARE, CHUNK_BYTES, CURSORS_SHARE, total_min,
    writing_bytes,
};

pub use budget_member::{BudgetMember, MemberUsage, MemoryUse};
use budget_member::{MemberSlot, MemoryUseBytes};
use job_slots::JobSlots;
pub use job_slots::{JobKind, SLOT_RETRY_INTERVAL, SlotWait};

/// Approximate memory of an open store that no use counts: threads, lists, counters. Measurements
/// gave 66 KiB without background threads, 91 KiB with one and 93 to 105 KiB with two.
const STORE_BYTES: u64 = 96 << 10;
/// The [`STORE_BYTES`] of all stores can take one part in this number of the divided bytes, which
/// limits the number of stores.
const STORES_SHARE: u64 = 3;
/// Minimum of a store's fair share of memtables, in bytes.
const FAIR_MEMTABLES_MIN: u64 = 16 << 10;
/// A WAL segment is sized for at least this number of stores, since more stores can open later.
const EXPECTED_STORES: u64 = 4;
/// Smallest limit that many stores put on the size of a WAL segment.
const SEGMENT_BYTES_MIN: u64 = 32 << 10;
/// Smallest and largest memory budget, in bytes.
const BYTES: (u64, u64) = (BUDGET_MIN, 1 << 50);

/// Memory budget that several stores of one process share: one block cache, and limits for all
/// memtables, indexes, filters, WALs and compactions together. Give a clone of the budget to each
/// store in [`Options::memory_budget`](crate::Options::memory_budget).
///
/// ```
/// # fn main() -> umbel::Result<()> {
/// # let folder = tempfile::tempdir().expect("a temporary folder");
/// let budget = umbel::MemoryBudget::new(64 << 20)?;
/// let options = || umbel::Options { memory_budget: Some(budget.clone()), ..Default::default() };
/// let users = umbel::Db::open(folder.path().join("users"), options())?;
/// let orders = umbel::Db::open(folder.path().join("orders"), options())?;
/// assert_eq!(budget.stats().stores, 2);
/// # drop((users, orders));
/// # Ok(())
/// # }
/// ```
///
/// A busy store uses the memory that idle stores leave. If all memtables, or all table readers,
/// together exceed their limit, the store with the largest use flushes memtables or closes readers.
/// Writers wait only for flushes of their own store. All stores together run only as many
/// background flushes and compactions at a time as fit into the budget. A store without background
/// threads that must flush for other stores flushes at its own next write.
///
/// A store that is closed, or that refuses writes after a failed write, has no share any more. The
/// memtables of such a store stay in memory until its last handle is dropped, and reduce the block
/// cache.
///
/// A budget belongs to the process that created it. In a forked child no store opens with the
/// parent's budget.
#[derive(Clone)]
pub struct MemoryBudget {
    shared: Arc<SharedBudget>,
}

/// Memory that the stores of a [`MemoryBudget`] use together, in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryBudgetStats {
    /// The memory budget.
    pub budget_bytes: u64,
    /// Bytes of all memory uses together.
    pub held_bytes: u64,
    /// Number of open stores that share the budget.
    pub stores: usize,
    /// Maximum number of stores open with the budget at the same time.
    pub stores_max: usize,
    /// Bytes of memtables that take writes or wait for a flush, and of their filters.
    pub memtable_bytes: u64,
    /// Bytes of memtables that no flush frees: cursors read them, or their store is closed or
    /// refuses writes.
    pub memtable_held_bytes: u64,
    /// Bytes of cached blocks.
    pub block_bytes: u64,
    /// Bytes allocated for blocks and indexes that are free at the moment.
    pub spare_bytes: u64,
    /// Bytes of open tables, of the metadata of all tables, and of existence filters.
    pub table_bytes: u64,
    /// Approximate bytes of the mapped WALs that are in memory.
    pub log_bytes: u64,
    /// Approximate bytes of the buffers of running flushes and compactions.
    pub compaction_bytes: u64,
    /// Bytes of open cursors and iterators, and of blocks that are in memory only because a cursor
    /// reads them.
    pub cursor_bytes: u64,
    /// Approximate bytes of open stores that no other field counts.
    pub store_bytes: u64,
}

impl MemoryBudget {
    /// Creates a budget of `bytes` bytes that no store uses yet.
    ///
    /// # Errors
    /// `Invalid` if `bytes` is below the minimum, which the error names.
    pub fn new(bytes: u64) -> Result<MemoryBudget> {
        let (least, limit) = BYTES;
        if !(least..=limit).contains(&bytes) {
            return Err(Error::invalid(format!(
                "the memory budget is {bytes} bytes, but must be {least} to {limit}"
            )));
        }
        let cursors = Arc::new(CursorMemory::new(bytes / CURSORS_SHARE));
        let shares = BudgetShares::new(bytes, 0);
        let flushes = (shares.size / writing_bytes(shares.size)).clamp(1, 64);
        let shared = SharedBudget {
            process: OpenMark::new(),
            cache: Arc::new(ClockCache::new(bytes, Arc::clone(&cursors))),
            cursors,
            sums: MemoryUseBytes::default(),
            compactions: AtomicU64::new(0),
            stores: AtomicUsize::new(0),
            members: Mutex::default(),
            flush_slots: JobSlots::new(flushes as usize),
            compaction_slots: JobSlots::new(shares.compactions as usize),
            job_buffers: (shares.compactions * shares.job).min(shares.jobs)
                + flushes * writing_bytes(shares.size),
            trimmed_at: AtomicU64::new(0),
            shares,
        };
        shared.resize_cache();
        Ok(MemoryBudget { shared: Arc::new(shared) })
    }

    /// Returns the memory that the budget's stores use now; zeros in a forked child.
    pub fn stats(&self) -> MemoryBudgetStats {
        if self.shared.process.is_forked() {
            return MemoryBudgetStats::default();
        }
        self.shared.members(|_, _| true).iter().for_each(|store| store.publish());
        self.shared.stats()
    }

    /// Limit of each memory use.
    pub(crate) fn shares(&self) -> &BudgetShares {
        &self.shared.shares
    }

    /// Returns an error if the budget has no share for another store.
    pub(crate) fn check_capacity(&self) -> Result<()> {
        let stores = self.shared.stores();
        if stores < self.shared.stores_max() { Ok(()) } else { Err(self.capacity_error(stores)) }
    }

    fn capacity_error(&self, stores: usize) -> Error {
        Error::invalid(format!(
            "{stores} stores are open with a memory_budget of {} bytes, which is too small for \
             another: close one of them, or make a budget of {} bytes",
            self.shared.shares.total,
            total_min(STORE_BYTES * STORES_SHARE * (stores as u64 + 1))
        ))
    }

    /// Registers a store with the budget.
    pub(crate) fn join(&self) -> Result<Membership> {
        let shared = &self.shared;
        if shared.process.is_forked() {
            return Err(Error::invalid(
                "the memory_budget was made by a process that forked this one; make another with \
                 MemoryBudget::new after the fork",
            ));
        }
        let limit = shared.stores_max();
        let more = |stores: usize| (stores < limit).then_some(stores + 1);
        match shared.stores.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(Membership::new(Arc::clone(shared))),
            Err(stores) => Err(self.capacity_error(stores)),
        }
    }
}

impl fmt::Debug for MemoryBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shared = &self.shared;
        f.debug_struct("MemoryBudget")
            .field("bytes", &shared.shares.total)
            .field("stores", &shared.stores())
            .finish()
    }
}

impl fmt::Display for MemoryBudgetStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mebibytes = |bytes: u64| bytes as f64 / (1 << 20) as f64;
        write!(
            f,
            "{:.1} of {:.1} MiB, shared by {} stores of {} at most: memtables {:.1}, memtables \
             pinned {:.1}, blocks {:.1}, spare {:.1}, tables {:.1}, logs {:.1}, compactions {:.1}, \
             cursors {:.1}, stores {:.1}",
            mebibytes(self.held_bytes),
            mebibytes(self.budget_bytes),
            self.stores,
            self.stores_max,
            mebibytes(self.memtable_bytes),
            mebibytes(self.memtable_held_bytes),
            mebibytes(self.block_bytes),
            mebibytes(self.spare_bytes),
            mebibytes(self.table_bytes),
            mebibytes(self.log_bytes),
            mebibytes(self.compaction_bytes),
            mebibytes(self.cursor_bytes),
            mebibytes(self.store_bytes)
        )
    }
}

/// Entry of an open store in the list of its budget.
#[derive(Debug)]
struct BudgetEntry {
    slot: Arc<MemberSlot>,
    poison: Arc<FatalError>,
    store: Weak<dyn BudgetMember>,
}

/// State that the stores of a budget share.
#[derive(Debug)]
pub struct SharedBudget {
    shares: BudgetShares,
    process: OpenMark,
    cache: Arc<ClockCache>,
    cursors: Arc<CursorMemory>,
    sums: MemoryUseBytes,
    /// Approximate bytes that running compactions and flushes use.
    compactions: AtomicU64,
    /// Number of stores that are open or being opened.
    stores: AtomicUsize,
    /// The open stores. While this lock is held no other lock is taken.
    members: Mutex<Vec<BudgetEntry>>,
    flush_slots: JobSlots,
    compaction_slots: JobSlots,
    /// Approximate bytes of flushes and compactions when all slots are taken.
    job_buffers: u64,
    /// Time of the last request to the allocator to return memory, in milliseconds of a clock.
    pub trimmed_at: AtomicU64,
}

impl SharedBudget {
    /// The block cache of all stores.
    pub fn cache(&self) -> &Arc<ClockCache> {
        &self.cache
    }

    /// Memory of the cursors of all stores.
    pub fn cursors(&self) -> &Arc<CursorMemory> {
        &self.cursors
    }

    /// Bytes of a memory use, summed over all stores as they published it.
    pub fn sum(&self, part: MemoryUse) -> u64 {
        self.sums.of(part)
    }

    /// Bytes that running flushes and compactions of all stores use.
    pub fn compactions(&self) -> &AtomicU64 {
        &self.compactions
    }

    /// Number of stores that are open or being opened.
    pub fn stores(&self) -> usize {
        self.stores.load(Ordering::Relaxed)
    }

    fn stores_max(&self) -> usize {
        (self.shares.divided / STORES_SHARE / STORE_BYTES) as usize
    }

    fn store_bytes(&self) -> u64 {
        self.stores() as u64 * STORE_BYTES
    }

    fn fair_share(&self, bytes: u64) -> u64 {
        bytes / self.stores().max(1) as u64
    }

    /// A store's fair share of the limit of memtables, in bytes.
    pub fn fair_memtable_bytes(&self) -> u64 {
        self.fair_share(self.shares.memtables).max(FAIR_MEMTABLES_MIN)
    }

    /// Whether stores must freeze memtables: all memtables together exceed their limit, and the
    /// writable ones half of it.
    pub fn needs_freeze(&self) -> bool {
        self.sum(MemoryUse::Memtables) > self.shares.memtables
            && self.sum(MemoryUse::Writable) > self.shares.memtables / 2
    }

    /// Whether all memtables together are so large that writers wait.
    pub fn is_full(&self) -> bool {
        self.sum(MemoryUse::Memtables) > self.shares.memtables * 2
    }

    /// Maximum bytes of a store's next WAL segment.
    pub fn segment_bytes(&self) -> u64 {
        let stores = EXPECTED_STORES.max(self.stores() as u64);
        (self.shares.size / stores).max(SEGMENT_BYTES_MIN)
    }

    /// Limit of all table readers together, in bytes.
    fn readers_max(&self) -> u64 {
        let limit = self.shares.tables;
        let log = self.sum(MemoryUse::Log).saturating_sub(self.shares.size);
        let besides = self.sum(MemoryUse::Known) + self.cursors.bytes() + log + self.store_bytes();
        limit - besides.min(limit / 4 * 3)
    }

    /// Whether all table readers together exceed their limit.
    pub fn exceeds_readers_max(&self) -> bool {
        self.sum(MemoryUse::Readers) > self.readers_max()
    }

    /// A store's fair share of the limit of table readers, in bytes.
    pub fn fair_reader_bytes(&self) -> u64 {
        self.fair_share(self.readers_max())
    }

    /// Whether a store waits for a slot to run a required compaction.
    pub fn is_slot_awaited(&self) -> bool {
        self.compaction_slots.is_awaited()
    }

    fn job_slots(&self, work: JobKind) -> &JobSlots {
        match work {
            JobKind::Flush => &self.flush_slots,
            JobKind::Compaction => &self.compaction_slots,
        }
    }

    fn members_lock(&self) -> MutexGuard<'_, Vec<BudgetEntry>> {
        self.members.lock().ignore_poison()
    }

    /// Returns the open stores that `wanted` selects by slot and fatal error.
    fn members(
        &self,
        wanted: impl Fn(&Arc<MemberSlot>, &FatalError) -> bool,
    ) -> Vec<Arc<dyn BudgetMember>> {
        let found: Vec<Weak<dyn BudgetMember>> = {
            let members = self.members_lock();
            let wanted = members.iter().filter(|member| wanted(&member.slot, &member.poison));
            wanted.map(|member| Weak::clone(&member.store)).collect()
        };
        // Not under the lock: the last reference to a store may be dropped here.
        found.iter().filter_map(Weak::upgrade).collect()
    }

    /// Returns the store with the largest use `part`, if this use is more than `bytes`.
    fn largest(
        &self,
        part: MemoryUse,
        bytes: u64,
    ) -> Option<(Arc<MemberSlot>, Weak<dyn BudgetMember>)> {
        let members = self.members_lock();
        let largest = members.iter().max_by_key(|member| member.slot.of(part))?;
        let is_larger = largest.slot.of(part) > bytes;
        is_larger.then(|| (Arc::clone(&largest.slot), Weak::clone(&largest.store)))
    }

    /// Counts the memtables of stores with a fatal error as memtables that no flush frees.
    fn withdraw_failed(&self) {
        let failed: Vec<Arc<MemberSlot>> = {
            let members = self.members_lock();
            let has_failed =
                |m: &&BudgetEntry| m.poison.is_set() && m.slot.of(MemoryUse::Memtables) > 0;
            members.iter().filter(has_failed).map(|member| Arc::clone(&member.slot)).collect()
        };
        for slot in failed {
            // A store that is publishing does that itself.
            if let Some(locked) = slot.try_lock() {
                slot.withdraw_memtables(&locked, &self.sums);
            }
        }
    }

    /// Bytes of chunks that blocks of the cache can take within the budget.
    fn block_bytes_available(&self) -> u64 {
        self.cache.note_cursors();
        let shares = &self.shares;
        let memtables = self.sum(MemoryUse::Memtables).max(2 * shares.memtables);
        let tables = self.sum(MemoryUse::Readers) + self.sum(MemoryUse::Known);
        let log = self.sum(MemoryUse::Log).max(shares.size);
        let compactions = self.compactions.load(Ordering::Relaxed).max(self.job_buffers);
        let [_, stays] = self.cache.chunk_bytes();
        let held = self.sum(MemoryUse::MemtablesHeld) + self.cursors.bytes() + spare(stays);
        let fixed = memtables + tables + log + compactions + held + self.store_bytes();
        shares.total.saturating_sub(fixed + CHUNK_BYTES + shares.overhead)
    }

    /// Resizes the block cache to the bytes that no store uses otherwise or is about to need.
    pub fn resize_cache(&self) {
        let left = self.block_bytes_available();
        self.cache.set_capacity((left - left / CACHE_ENTRIES_SHARE).max(self.shares.cache_min));
    }

    /// Frees surplus chunks of the block cache.
    pub fn release_memory(&self) {
        let least = self.shares.cache_min + CHUNK_BYTES;
        self.cache
            .release_chunks(self.block_bytes_available().max(least) + self.cursors.block_bytes());
        self.resize_cache();
    }

    /// Returns the memory that the stores published last.
    pub fn stats(&self) -> MemoryBudgetStats {
        self.cache.note_cursors();
        let spare_bytes = self.cache.chunk_bytes().map(spare).iter().sum();
        let blocks = self.cache.held_bytes();
        let mut stats = MemoryBudgetStats {
            budget_bytes: self.shares.total,
            held_bytes: 0,
            stores: self.stores(),
            stores_max: self.stores_max(),
            memtable_bytes: self.sum(MemoryUse::Memtables),
            memtable_held_bytes: self.sum(MemoryUse::MemtablesHeld),
            block_bytes: blocks + blocks / CACHE_ENTRIES_SHARE,
            spare_bytes,
            table_bytes: self.sum(MemoryUse::Readers) + self.sum(MemoryUse::Known),
            log_bytes: self.sum(MemoryUse::Log),
            compaction_bytes: self.compactions.load(Ordering::Relaxed),
            cursor_bytes: self.cursors.bytes(),
            store_bytes: self.store_bytes(),
        };
        stats.held_bytes = stats.memtable_bytes
            + stats.memtable_held_bytes
            + stats.block_bytes
            + stats.spare_bytes
            + stats.table_bytes
            + stats.log_bytes
            + stats.compaction_bytes
            + stats.cursor_bytes
            + stats.store_bytes;
        stats
    }
}

fn spare(arena: ArenaUsage) -> u64 {
    arena.reserved.saturating_sub(arena.used) as u64
}

/// Membership of one store in its budget. The store leaves the budget when it is closed; its memory
/// is counted until its last table is dropped.
#[derive(Debug)]
pub struct Membership {
    shared: Arc<SharedBudget>,
    slot: Arc<MemberSlot>,
    store: OnceLock<Weak<dyn BudgetMember>>,
    has_left: AtomicBool,
}

impl Membership {
    fn new(shared: Arc<SharedBudget>) -> Membership {
        let (slot, store) = (Arc::default(), OnceLock::new());
        Membership { shared, slot, store, has_left: AtomicBool::new(false) }
    }

    /// The state that the stores of the budget share.
    pub fn shared(&self) -> &Arc<SharedBudget> {
        &self.shared
    }

    /// Lists the store, so that other stores can request memory from it.
    pub fn register(&self, store: Weak<dyn BudgetMember>, poison: &Arc<FatalError>) {
        // A store is listed once, when it is opened.
        let _ = self.store.set(Weak::clone(&store));
        let (slot, poison) = (Arc::clone(&self.slot), Arc::clone(poison));
        self.shared.members_lock().push(BudgetEntry { slot, poison, store });
    }

    /// Gives up the store's share; other stores no longer request memory from the store.
    pub fn leave(&self) {
        if self.has_left.swap(true, Ordering::Relaxed) {
            return;
        }
        self.shared.members_lock().retain(|member| !Arc::ptr_eq(&member.slot, &self.slot));
        self.shared.stores.fetch_sub(1, Ordering::Relaxed);
        self.slot.withdraw_memtables(&self.slot.lock(), &self.shared.sums);
    }

    /// Bytes of the memory use `part` that the store published last.
    pub fn published(&self, part: MemoryUse) -> u64 {
        self.slot.of(part)
    }

    /// Publishes the memory use of the store. `holding` runs under a lock, so that the value
    /// published last is the value computed last.
    pub fn publish(&self, holding: impl FnOnce() -> MemberUsage) {
        let locked = self.slot.lock();
        let mut holding = holding();
        holding.can_flush &= !self.has_left.load(Ordering::Relaxed);
        self.slot.publish(&locked, holding, &self.shared.sums);
    }

    /// Publishes the bytes of the memory use `part`.
    pub fn publish_use(&self, part: MemoryUse, bytes: u64) {
        self.slot.set(&self.slot.lock(), part, bytes, &self.shared.sums);
    }

    /// Limit of this store's table readers, in bytes: what other stores leave, and at least its
    /// fair share.
    pub fn readers_max(&self) -> u64 {
        let others =
            self.shared.sum(MemoryUse::Readers).saturating_sub(self.published(MemoryUse::Readers));
        self.shared.readers_max().saturating_sub(others).max(self.shared.fair_reader_bytes())
    }

    /// Limit of this store's memtables while the store is opened, in bytes.
    pub fn replay_max(&self) -> u64 {
        let shared = &self.shared;
        let others =
            shared.sum(MemoryUse::Memtables).saturating_sub(self.published(MemoryUse::Memtables));
        (shared.shares.memtables * 2).saturating_sub(others).max(shared.fair_memtable_bytes())
    }

    /// Bytes of writable memtables that this store can keep when it freezes some.
    pub fn writable_max(&self) -> u64 {
        let shared = &self.shared;
        let others =
            shared.sum(MemoryUse::Writable).saturating_sub(self.published(MemoryUse::Writable));
        (shared.shares.memtables / 2).saturating_sub(others).max(shared.fair_memtable_bytes() / 2)
    }

    /// Requests that the stores with the largest writable memtables freeze them, until all
    /// memtables together are within their limit. Returns `true` if this store itself must freeze
    /// some.
    pub fn request_memtables(&self) -> bool {
        self.shared.withdraw_failed();
        // A store that froze its memtables has less than its fair share left to write to.
        for _ in 0..self.shared.stores() {
            if !self.shared.needs_freeze() {
                return false;
            }
            let own = self.published(MemoryUse::Writable);
            let Some((slot, store)) = self.shared.largest(MemoryUse::Writable, own) else {
                return true;
            };
            let has_yielded = store.upgrade().is_some_and(|store| store.yield_memtables());
            if Arc::ptr_eq(&slot, &self.slot) || !has_yielded {
                return true;
            }
        }
        true
    }

    /// Requests that other stores close table readers beyond their fair share, while all readers
    /// together exceed their limit.
    pub fn request_readers(&self) {
        let fair = self.shared.fair_reader_bytes();
        let is_over = |slot: &Arc<MemberSlot>, _: &FatalError| {
            !Arc::ptr_eq(slot, &self.slot) && slot.of(MemoryUse::Readers) > fair
        };
        for store in self.shared.members(is_over) {
            if !self.shared.exceeds_readers_max() {
                return;
            }
            store.yield_readers();
        }
    }

    /// Takes a job slot if one is free.
    pub fn try_take_slot(&self, work: JobKind) -> Option<JobSlot> {
        let is_taken = self.shared.job_slots(work).try_take();
        is_taken.then(|| JobSlot(Some((Arc::clone(&self.shared), work))))
    }

    /// Takes a job slot, or registers the store to be woken when one is free: see
    /// [`JobSlots::take_or_wait`].
    pub fn take_slot_or_wait(
        &self,
        (work, is_needed): (JobKind, bool),
        wait: &mut Option<SlotWait>,
        now: std::time::Duration,
    ) -> Option<JobSlot> {
        let store = self.store.get()?;
        let is_taken = self.shared.job_slots(work).take_or_wait(store, is_needed, wait, now);
        is_taken.then(|| JobSlot(Some((Arc::clone(&self.shared), work))))
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.leave();
        self.slot.clear(&self.shared.sums);
        self.shared.cache.remove_dropped();
    }
}

/// Right to run one background job, which is released on drop.
#[derive(Debug, Default)]
pub struct JobSlot(Option<(Arc<SharedBudget>, JobKind)>);

impl Drop for JobSlot {
    fn drop(&mut self) {
        if let Some((shared, work)) = self.0.take() {
            shared.job_slots(work).release();
        }
    }
}
