//! [`MemoryBudget`]: one memory budget for several stores of a process.
//!
//! The stores share one block cache, and one count of what cursors hold. Of the other parts each
//! store publishes what it holds, and sums are kept. A store may hold more than its fair share of a
//! part while the others leave it free. When the sum is over, the store that holds most gives way,
//! idle or not: see [`crate::sharing`].

mod member;
mod turns;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use umbel_arena::ArenaBytes;
use umbel_base::{Error, Result};
use umbel_env::OpenMark;

use crate::cache::ClockCache;
use crate::cursor_memory::CursorMemory;
use crate::poison::Poison;
use crate::shares::{
    CHUNK_BYTES, CURSORS_SHARE, LEAST, SEATS_SHARE, Shares, least_total, writing_bytes,
};

pub use member::{BudgetMember, Holding, Part};
use member::{PartBytes, Slot};
use turns::Turns;
pub use turns::{LOOK_AGAIN, TurnWait, Work};

/// What an open store takes that no part counts, about: threads, lists, counters. Measured: 66 KiB
/// without background threads, 91 with one, 93 to 105 with two.
const STORE_BYTES: u64 = 96 << 10;
/// One in so many of the divided bytes may be taken by these.
const STORES_SHARE: u64 = 3;
/// The least fair share of memtables.
const FAIR_BUFFERS_LEAST: u64 = 16 << 10;
/// A log segment is sized for so many stores at least, as more may come.
const FORESEEN_STORES: u64 = 4;
/// The least size of a log segment that many stores bring about.
const SEGMENT_BYTES_LEAST: u64 = 32 << 10;
/// The least and the most bytes of a budget.
const BYTES: (u64, u64) = (LEAST, 1 << 50);

/// A memory budget that several stores of one process share: a block cache for all of them, and
/// bounds for all memtables, indexes, filters, logs and compactions together. Give a clone of it to
/// each store in [`Options::memory_budget`](crate::Options::memory_budget).
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
/// A busy store uses what idle ones leave. Where all memtables together, or all readers of tables,
/// are over their bound, the store that holds most of them flushes, or closes readers. Writers wait
/// for flushes of their own store only. Background threads take turns: of all stores together only
/// as many flush, and as many compact, at a time as fit into the budget. A store without background
/// threads that is to flush for others does it at its own next write.
///
/// A store that is closed, or that became read-only after a failed write, has no share any more.
/// Memtables that it keeps in memory until its last handle is dropped take room from the cache.
///
/// It belongs to the process that made it. In a forked child no store opens with it.
#[derive(Clone)]
pub struct MemoryBudget {
    shared: Arc<SharedBudget>,
}

/// What the stores of a [`MemoryBudget`] hold together, in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryBudgetStats {
    /// The budget.
    pub budget_bytes: u64,
    /// All parts together.
    pub held_bytes: u64,
    /// Stores that are open with it.
    pub stores: usize,
    /// How many may be.
    pub stores_max: usize,
    /// Memtables that take writes or wait to be flushed, with their filters.
    pub memtable_bytes: u64,
    /// Memtables that no flush will free: cursors look at them, or their store is closed or
    /// read-only.
    pub memtable_held_bytes: u64,
    /// Cached blocks.
    pub block_bytes: u64,
    /// Taken for blocks and indexes, but free at the moment.
    pub spare_bytes: u64,
    /// Open tables, what is known of tables, and existence filters.
    pub table_bytes: u64,
    /// The mapped logs as far as they were touched, about.
    pub log_bytes: u64,
    /// Buffers of running flushes and compactions, about.
    pub compaction_bytes: u64,
    /// Open cursors and iterators, and blocks that are in memory only because they stand in them.
    pub cursor_bytes: u64,
    /// What open stores take besides, about.
    pub store_bytes: u64,
}

impl MemoryBudget {
    /// A budget of `bytes` bytes, of which nothing is used.
    ///
    /// # Errors
    /// `Invalid` where that is too little to work, with the least that works.
    pub fn new(bytes: u64) -> Result<MemoryBudget> {
        let (least, most) = BYTES;
        if !(least..=most).contains(&bytes) {
            return Err(Error::invalid(format!(
                "a memory budget of {bytes} bytes was asked for, but it must have {least} to {most}"
            )));
        }
        let cursors = Arc::new(CursorMemory::new(bytes / CURSORS_SHARE));
        let shares = Shares::new(bytes, 0);
        let flushes = (shares.size / writing_bytes(shares.size)).clamp(1, 64);
        let shared = SharedBudget {
            process: OpenMark::new(),
            cache: Arc::new(ClockCache::new(bytes, Arc::clone(&cursors))),
            cursors,
            sums: PartBytes::default(),
            compactions: AtomicU64::new(0),
            stores: AtomicUsize::new(0),
            members: Mutex::default(),
            flushing: Turns::new(flushes as usize),
            compacting: Turns::new(shares.compactions as usize),
            working: (shares.compactions * shares.job).min(shares.jobs)
                + flushes * writing_bytes(shares.size),
            trimmed: AtomicU64::new(0),
            shares,
        };
        shared.settle_cache();
        Ok(MemoryBudget { shared: Arc::new(shared) })
    }

    /// What its stores hold now. Nothing in a forked child.
    pub fn stats(&self) -> MemoryBudgetStats {
        if self.shared.process.is_forked() {
            return MemoryBudgetStats::default();
        }
        self.shared.members(|_, _| true).iter().for_each(|store| store.publish());
        self.shared.stats()
    }

    /// What each part may take.
    pub(crate) fn shares(&self) -> &Shares {
        &self.shared.shares
    }

    /// An error where there is no room for another store.
    pub(crate) fn check_room(&self) -> Result<()> {
        let stores = self.shared.stores();
        if stores < self.shared.stores_max() { Ok(()) } else { Err(self.no_room(stores)) }
    }

    fn no_room(&self, stores: usize) -> Error {
        Error::invalid(format!(
            "{stores} stores are open with a memory_budget of {} bytes, which has no room for \
             another: close one of them, or make a budget of {} bytes",
            self.shared.shares.total,
            least_total(STORE_BYTES * STORES_SHARE * (stores as u64 + 1))
        ))
    }

    /// Takes a store in.
    pub(crate) fn join(&self) -> Result<Membership> {
        let shared = &self.shared;
        if shared.process.is_forked() {
            return Err(Error::invalid(
                "the memory_budget was made by a process that forked this one; make another with \
                 MemoryBudget::new after the fork",
            ));
        }
        let most = shared.stores_max();
        let more = |stores: usize| (stores < most).then_some(stores + 1);
        match shared.stores.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(Membership::new(Arc::clone(shared))),
            Err(stores) => Err(self.no_room(stores)),
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
             held {:.1}, blocks {:.1}, spare {:.1}, tables {:.1}, logs {:.1}, compactions {:.1}, \
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

/// An open store, in the list of its budget.
#[derive(Debug)]
struct Member {
    slot: Arc<Slot>,
    poison: Arc<Poison>,
    store: Weak<dyn BudgetMember>,
}

/// What the stores of a budget share.
#[derive(Debug)]
pub struct SharedBudget {
    shares: Shares,
    process: OpenMark,
    cache: Arc<ClockCache>,
    cursors: Arc<CursorMemory>,
    sums: PartBytes,
    /// Bytes that running compactions and flushes hold, about.
    compactions: AtomicU64,
    /// How many stores are open, or being opened.
    stores: AtomicUsize,
    /// No other lock is taken under it.
    members: Mutex<Vec<Member>>,
    flushing: Turns,
    compacting: Turns,
    /// Bytes that flushes and compactions take, about, when all turns are taken.
    working: u64,
    /// When the allocator was last asked to give memory back, in milliseconds of a clock.
    pub trimmed: AtomicU64,
}

impl SharedBudget {
    /// The block cache of all stores.
    pub fn cache(&self) -> &Arc<ClockCache> {
        &self.cache
    }

    /// What cursors of all stores hold.
    pub fn cursors(&self) -> &Arc<CursorMemory> {
        &self.cursors
    }

    /// What the stores hold of a part.
    pub fn sum(&self, part: Part) -> u64 {
        self.sums.of(part)
    }

    /// Bytes of running flushes and compactions.
    pub fn compactions(&self) -> &AtomicU64 {
        &self.compactions
    }

    /// How many stores are open.
    pub fn stores(&self) -> usize {
        self.stores.load(Ordering::Relaxed)
    }

    fn stores_max(&self) -> usize {
        (self.shares.divided / STORES_SHARE / STORE_BYTES) as usize
    }

    fn store_bytes(&self) -> u64 {
        self.stores() as u64 * STORE_BYTES
    }

    fn fair(&self, bytes: u64) -> u64 {
        bytes / self.stores().max(1) as u64
    }

    /// A store's fair share of the memtables.
    pub fn fair_buffers(&self) -> u64 {
        self.fair(self.shares.buffers).max(FAIR_BUFFERS_LEAST)
    }

    /// Whether memtables are to be frozen: all together are over, and so are those of them that
    /// are not frozen yet.
    pub fn is_to_freeze(&self) -> bool {
        self.sum(Part::Memtables) > self.shares.buffers
            && self.sum(Part::Writable) > self.shares.buffers / 2
    }

    /// Whether all memtables together take so much that writers wait.
    pub fn is_full(&self) -> bool {
        self.sum(Part::Memtables) > self.shares.buffers * 2
    }

    /// Bytes of a store's next log segment, at most.
    pub fn segment_bytes(&self) -> u64 {
        let stores = FORESEEN_STORES.max(self.stores() as u64);
        (self.shares.size / stores).max(SEGMENT_BYTES_LEAST)
    }

    /// Bytes that all readers of tables may hold.
    fn readers_most(&self) -> u64 {
        let most = self.shares.tables;
        let log = self.sum(Part::Log).saturating_sub(self.shares.size);
        let besides = self.sum(Part::Known) + self.cursors.bytes() + log + self.store_bytes();
        most - besides.min(most / 4 * 3)
    }

    /// Whether readers of all tables together hold too much.
    pub fn readers_are_over(&self) -> bool {
        self.sum(Part::Readers) > self.readers_most()
    }

    /// A store's fair share of what readers of tables may hold.
    pub fn fair_readers(&self) -> u64 {
        self.fair(self.readers_most())
    }

    /// Whether a compaction that is needed waits for its turn.
    pub fn is_turn_needed(&self) -> bool {
        self.compacting.is_needed()
    }

    fn turns(&self, work: Work) -> &Turns {
        match work {
            Work::Flush => &self.flushing,
            Work::Compaction => &self.compacting,
        }
    }

    fn members_lock(&self) -> MutexGuard<'_, Vec<Member>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The open stores that `wanted` says, by their slots.
    fn members(&self, wanted: impl Fn(&Arc<Slot>, &Poison) -> bool) -> Vec<Arc<dyn BudgetMember>> {
        let found: Vec<Weak<dyn BudgetMember>> = {
            let members = self.members_lock();
            let wanted = members.iter().filter(|member| wanted(&member.slot, &member.poison));
            wanted.map(|member| Weak::clone(&member.store)).collect()
        };
        // Not under the lock: the last reference of a store may be dropped here.
        found.iter().filter_map(Weak::upgrade).collect()
    }

    /// The store that holds most of a part, where that is more than `bytes`.
    fn largest(&self, part: Part, bytes: u64) -> Option<(Arc<Slot>, Weak<dyn BudgetMember>)> {
        let members = self.members_lock();
        let largest = members.iter().max_by_key(|member| member.slot.of(part))?;
        let is_larger = largest.slot.of(part) > bytes;
        is_larger.then(|| (Arc::clone(&largest.slot), Weak::clone(&largest.store)))
    }

    /// Counts memtables of stores that failed among those that no flush will free.
    fn withdraw_failed(&self) {
        let failed: Vec<Arc<Slot>> = {
            let members = self.members_lock();
            let has_failed = |m: &&Member| m.poison.is_set() && m.slot.of(Part::Memtables) > 0;
            members.iter().filter(has_failed).map(|member| Arc::clone(&member.slot)).collect()
        };
        for slot in failed {
            // Where it is publishing it does that itself.
            if let Some(locked) = slot.try_lock() {
                slot.withdraw_memtables(&locked, &self.sums);
            }
        }
    }

    /// The bytes of chunks that blocks may take.
    fn left_to_blocks(&self) -> u64 {
        self.cache.note_cursors();
        let shares = &self.shares;
        let memtables = self.sum(Part::Memtables).max(2 * shares.buffers);
        let tables = self.sum(Part::Readers) + self.sum(Part::Known);
        let log = self.sum(Part::Log).max(shares.size);
        let compactions = self.compactions.load(Ordering::Relaxed).max(self.working);
        let [_, stays] = self.cache.chunk_bytes();
        let held = self.sum(Part::MemtablesHeld) + self.cursors.bytes() + spare(stays);
        let fixed = memtables + tables + log + compactions + held + self.store_bytes();
        shares.total.saturating_sub(fixed + CHUNK_BYTES + shares.besides)
    }

    /// Leaves to the cache what the other parts of all stores do not hold, or are going to need.
    pub fn settle_cache(&self) {
        let left = self.left_to_blocks();
        self.cache.set_capacity((left - left / SEATS_SHARE).max(self.shares.cache_least));
    }

    /// Gives back chunks that the cache has too many.
    pub fn give_back(&self) {
        let least = self.shares.cache_least + CHUNK_BYTES;
        self.cache.give_back(self.left_to_blocks().max(least) + self.cursors.block_bytes());
        self.settle_cache();
    }

    /// What the stores published last.
    pub fn stats(&self) -> MemoryBudgetStats {
        self.cache.note_cursors();
        let spare_bytes = self.cache.chunk_bytes().map(spare).iter().sum();
        let blocks = self.cache.held();
        let mut stats = MemoryBudgetStats {
            budget_bytes: self.shares.total,
            held_bytes: 0,
            stores: self.stores(),
            stores_max: self.stores_max(),
            memtable_bytes: self.sum(Part::Memtables),
            memtable_held_bytes: self.sum(Part::MemtablesHeld),
            block_bytes: blocks + blocks / SEATS_SHARE,
            spare_bytes,
            table_bytes: self.sum(Part::Readers) + self.sum(Part::Known),
            log_bytes: self.sum(Part::Log),
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

fn spare(arena: ArenaBytes) -> u64 {
    arena.held.saturating_sub(arena.used) as u64
}

/// The place of one store in its budget. It leaves when the store is closed; what it holds is
/// counted until the last of its tables is dropped.
#[derive(Debug)]
pub struct Membership {
    shared: Arc<SharedBudget>,
    slot: Arc<Slot>,
    store: OnceLock<Weak<dyn BudgetMember>>,
    has_left: AtomicBool,
}

impl Membership {
    fn new(shared: Arc<SharedBudget>) -> Membership {
        let (slot, store) = (Arc::default(), OnceLock::new());
        Membership { shared, slot, store, has_left: AtomicBool::new(false) }
    }

    /// What the store shares.
    pub fn shared(&self) -> &Arc<SharedBudget> {
        &self.shared
    }

    /// Lists the store, so that others may ask it to give way.
    pub fn list(&self, store: Weak<dyn BudgetMember>, poison: &Arc<Poison>) {
        // It is listed once, when it is opened.
        let _ = self.store.set(Weak::clone(&store));
        let (slot, poison) = (Arc::clone(&self.slot), Arc::clone(poison));
        self.shared.members_lock().push(Member { slot, poison, store });
    }

    /// Has no share any more, and is not asked by others.
    pub fn leave(&self) {
        if self.has_left.swap(true, Ordering::Relaxed) {
            return;
        }
        self.shared.members_lock().retain(|member| !Arc::ptr_eq(&member.slot, &self.slot));
        self.shared.stores.fetch_sub(1, Ordering::Relaxed);
        self.slot.withdraw_memtables(&self.slot.lock(), &self.shared.sums);
    }

    /// What it published last of a part.
    pub fn published(&self, part: Part) -> u64 {
        self.slot.of(part)
    }

    /// Publishes what the store holds. It is added up under a lock, so that what is published last
    /// is what was seen last.
    pub fn publish(&self, holding: impl FnOnce() -> Holding) {
        let locked = self.slot.lock();
        let mut holding = holding();
        holding.can_flush &= !self.has_left.load(Ordering::Relaxed);
        self.slot.publish(&locked, holding, &self.shared.sums);
    }

    /// Publishes one part.
    pub fn publish_part(&self, part: Part, bytes: u64) {
        self.slot.set(&self.slot.lock(), part, bytes, &self.shared.sums);
    }

    /// Bytes that this store's readers of tables may hold: what the others leave, and no less than
    /// its fair share.
    pub fn readers_most(&self) -> u64 {
        let others = self.shared.sum(Part::Readers).saturating_sub(self.published(Part::Readers));
        self.shared.readers_most().saturating_sub(others).max(self.shared.fair_readers())
    }

    /// What this store's memtables may take while it is opened.
    pub fn replay_most(&self) -> u64 {
        let shared = &self.shared;
        let others = shared.sum(Part::Memtables).saturating_sub(self.published(Part::Memtables));
        (shared.shares.buffers * 2).saturating_sub(others).max(shared.fair_buffers())
    }

    /// Bytes of memtables that this store may leave to be written to when it freezes some.
    pub fn writable_most(&self) -> u64 {
        let shared = &self.shared;
        let others = shared.sum(Part::Writable).saturating_sub(self.published(Part::Writable));
        (shared.shares.buffers / 2).saturating_sub(others).max(shared.fair_buffers() / 2)
    }

    /// Has the stores with the largest writable memtables freeze them, until all are within their
    /// bound. `true` where it is this store's turn to do that.
    pub fn ask_for_memtables(&self) -> bool {
        self.shared.withdraw_failed();
        // Each one asked has less than its fair share left to write to.
        for _ in 0..self.shared.stores() {
            if !self.shared.is_to_freeze() {
                return false;
            }
            let own = self.published(Part::Writable);
            let Some((slot, store)) = self.shared.largest(Part::Writable, own) else { return true };
            let is_asked = store.upgrade().is_some_and(|store| store.yield_memtables());
            if Arc::ptr_eq(&slot, &self.slot) || !is_asked {
                return true;
            }
        }
        true
    }

    /// Has the other stores close readers of tables that are beyond their fair share.
    pub fn ask_for_readers(&self) {
        let fair = self.shared.fair_readers();
        let is_over = |slot: &Arc<Slot>, _: &Poison| {
            !Arc::ptr_eq(slot, &self.slot) && slot.of(Part::Readers) > fair
        };
        for store in self.shared.members(is_over) {
            if !self.shared.readers_are_over() {
                return;
            }
            store.yield_readers();
        }
    }

    /// Takes a turn where one is free.
    pub fn take_turn(&self, work: Work) -> Option<Turn> {
        let is_taken = self.shared.turns(work).take();
        is_taken.then(|| Turn(Some((Arc::clone(&self.shared), work))))
    }

    /// Takes a turn, or has the store woken when one is free: see [`Turns::take_or_wait`].
    pub fn take_turn_or_wait(
        &self,
        (work, is_needed): (Work, bool),
        wait: &mut Option<TurnWait>,
        now: std::time::Duration,
    ) -> Option<Turn> {
        let store = self.store.get()?;
        let is_taken = self.shared.turns(work).take_or_wait(store, is_needed, wait, now);
        is_taken.then(|| Turn(Some((Arc::clone(&self.shared), work))))
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.leave();
        self.slot.clear(&self.shared.sums);
        self.shared.cache.forget_dropped();
    }
}

/// The right to run one piece of background work, given back when it is dropped.
#[derive(Debug, Default)]
pub struct Turn(Option<(Arc<SharedBudget>, Work)>);

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some((shared, work)) = self.0.take() {
            shared.turns(work).release();
        }
    }
}
