//! The memory budget of a store: limits of each memory use, and counters of the memory that it
//! uses.
//!
//! The budget limits the sum of memtables, cached blocks, open tables' indexes and filters, the
//! mapped WAL and buffers of compactions. Each memory use except the block cache stays within a
//! share of the budget; the cache takes the bytes that other uses leave. No memory is allocated
//! before data needs it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use umbel_base::limits::LEVELS;
use umbel_base::{Error, Result};

use crate::cache::block_cache::ClockCache;
use crate::cache::cursor_memory::CursorMemory;
use crate::options::{OptionCaps, Options};
use crate::shared_budget::memory_use_limits::{
    BUDGET_MIN, BudgetShares, CURSORS_SHARE, LAST_TABLES_FACTOR,
};
use crate::shared_budget::{JobKind, JobSlot, Membership, MemoryBudget, MemoryUse};
use crate::store_budget::residency::{LevelDemand, Residency, plan};

pub mod filter_selection;
pub mod residency;

/// Assumed memory of the machine if the system does not report it.
const UNKNOWN_MACHINE_BYTES: u64 = 2 << 30;
/// Maximum of the default memory budget.
const DEFAULT_MAX: u64 = 4 << 30;
/// Largest budget with which the store requests the allocator to return freed memory.
const TRIMMED_MAX: u64 = 1 << 30;
/// Minimum interval between requests to the allocator to return freed memory.
const TRIM_INTERVAL_MILLIS: u64 = 100;

/// Limits of each memory use, computed when the store is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetSizes {
    /// The whole memory budget.
    pub total: u64,
    /// Bytes of memory that the process may use, if known.
    pub machine: Option<u64>,
    /// Bytes kept free for memory that no use counts.
    pub overhead: u64,
    /// Bytes of all memtables together above which the largest ones are flushed. Writers wait at
    /// twice these bytes.
    pub buffers: u64,
    /// Limits that the budget puts on a keyspace's options.
    pub caps: OptionCaps,
    /// Maximum bytes of one WAL segment.
    pub segment: u64,
    /// Bytes of indexes and filters above which table readers are closed.
    pub tables: u64,
    /// Minimum and maximum bytes of the block cache.
    pub cache: (u64, u64),
    /// Maximum number of compactions, or parts of a split compaction, that run at the same time.
    pub compactions: usize,
    /// Bytes that a compaction reads ahead in each source.
    pub readahead: u64,
    /// Approximate bytes of the buffers of all these compactions and a flush.
    pub job_buffers: u64,
}

impl Options {
    /// Returns an error that names the option that is out of range and its permitted values.
    ///
    /// # Errors
    /// `Invalid`, also if the memory budget is too small for the other options.
    pub fn check(&self) -> Result<()> {
        self.check_ranges()?;
        self.memory_budget.as_ref().map_or(Ok(()), MemoryBudget::check_capacity)?;
        BudgetSizes::new(self).map(drop)
    }
}

impl BudgetSizes {
    /// Computes the limits for `options` on this machine. If the budget is too small, the error
    /// names the minimum.
    pub fn new(options: &Options) -> Result<BudgetSizes> {
        let machine = options.env.resources.memory_bytes();
        if let Some(budget) = &options.memory_budget {
            return Ok(BudgetSizes::of(options, budget.shares(), machine));
        }
        let requested = options.cache_bytes.unwrap_or(0);
        let requested = requested
            .saturating_add(options.write_buffer_total_bytes.unwrap_or(0).saturating_mul(2));
        let least = BUDGET_MIN.saturating_add(requested);
        let total = match options.memory_bytes {
            Some(given) if given < least => return Err(too_small(options, given, least)),
            Some(given) => given,
            // The configured sizes need indexes and filters besides.
            None => (machine.unwrap_or(UNKNOWN_MACHINE_BYTES) / 4)
                .min(DEFAULT_MAX)
                .max(least.saturating_add(requested / 4)),
        };
        Ok(BudgetSizes::of(options, &BudgetShares::new(total, requested), machine))
    }

    fn of(options: &Options, shares: &BudgetShares, machine: Option<u64>) -> BudgetSizes {
        let buffers_max = match options.memory_budget {
            // The limit of one store never exceeds that of all.
            Some(_) => shares.memtables,
            None => u64::MAX,
        };
        let buffers = options.write_buffer_total_bytes.unwrap_or(shares.memtables);
        let caps = OptionCaps {
            memtable_bytes: shares.size,
            table_bytes: shares.size,
            last_table_bytes: shares.size.saturating_mul(LAST_TABLES_FACTOR),
            level_bytes_base: shares.total.saturating_mul(4),
        };
        let at_once = shares.compactions.min(options.background_threads.max(1) as u64);
        BudgetSizes {
            total: shares.total,
            machine,
            buffers: buffers.min(buffers_max),
            caps,
            segment: options.log_segment_bytes.min(shares.size),
            overhead: shares.overhead,
            tables: shares.tables,
            cache: (shares.cache_min, options.cache_bytes.unwrap_or(u64::MAX)),
            compactions: shares.compactions as usize,
            readahead: shares.readahead,
            job_buffers: (at_once * shares.job).min(shares.jobs),
        }
    }

    /// Maximum bytes of the block cache while no other use takes memory.
    pub fn cache_initial(&self) -> u64 {
        self.total.max(self.cache.0).min(self.cache.1)
    }

    /// Whether the memory budget exceeds the memory that the process may use.
    pub fn exceeds_machine(&self) -> bool {
        self.machine.is_some_and(|machine| self.total > machine)
    }
}

fn too_small(options: &Options, given: u64, least: u64) -> Error {
    let part = match (options.cache_bytes, options.write_buffer_total_bytes) {
        (None, None) => "",
        _ => {
            " with the given cache_bytes and write_buffer_total_bytes (twice), which are part of \
             it,"
        }
    };
    Error::invalid(format!(
        "memory_bytes is {given}, which is too small: the least that works{part} is {least}"
    ))
}

/// The memory budget of an open store.
#[derive(Debug)]
pub struct StoreBudget {
    /// Limits of each memory use.
    pub sizes: BudgetSizes,
    /// Bytes that table readers use: indexes, filters, block slots, range tombstones, open files.
    pub tables: Arc<AtomicU64>,
    /// Bytes of the metadata of all tables: their manifest records and their entries in versions.
    pub table_metadata: AtomicU64,
    /// Bytes of the existence filters of keyspaces, at the last decision on the residency of
    /// tables.
    pub existence: AtomicU64,
    /// Memory of the open cursors of this store, or of all stores that share the budget.
    pub cursors: Arc<CursorMemory>,
    /// Approximate bytes that running compactions and flushes use.
    pub compactions: AtomicU64,
    /// For each level, the residency of a table that is opened; see [`Residency`].
    residency: [(AtomicBool, AtomicU64); LEVELS],
    /// Value of `tables` at which table readers are closed next.
    pub close_threshold: AtomicU64,
    /// Number of table readers closed to stay within the budget.
    pub readers_closed: AtomicU64,
    /// Lock that a thread holds while it closes table readers.
    pub close_lock: Mutex<()>,
    /// Time of the last request to the allocator to return memory, in milliseconds of the clock.
    trimmed_at: AtomicU64,
    /// Membership of the store in a shared budget.
    membership: Option<Membership>,
}

impl StoreBudget {
    /// Creates the budget of a store with these options.
    ///
    /// # Errors
    /// `Invalid` if the budget is too small, or a shared budget has its maximum number of stores.
    pub fn of(options: &Options) -> Result<StoreBudget> {
        let own = StoreBudget::new(BudgetSizes::new(options)?);
        let Some(shared) = &options.memory_budget else { return Ok(own) };
        let membership = shared.join()?;
        let cursors = Arc::clone(membership.shared().cursors());
        Ok(StoreBudget { cursors, membership: Some(membership), ..own })
    }

    fn new(sizes: BudgetSizes) -> StoreBudget {
        StoreBudget {
            close_threshold: AtomicU64::new(sizes.tables),
            cursors: Arc::new(CursorMemory::new(sizes.total / CURSORS_SHARE)),
            membership: None,
            sizes,
            tables: Arc::default(),
            table_metadata: AtomicU64::new(0),
            existence: AtomicU64::new(0),
            compactions: AtomicU64::new(0),
            residency: std::array::from_fn(|_| (AtomicBool::new(false), AtomicU64::new(1))),
            readers_closed: AtomicU64::new(0),
            close_lock: Mutex::default(),
            trimmed_at: AtomicU64::new(0),
        }
    }

    /// Membership of the store in a shared budget; `None` if the store has a budget of its own.
    #[inline]
    pub fn membership(&self) -> Option<&Membership> {
        self.membership.as_ref()
    }

    /// The block cache: a new one, or the one of all stores that share the budget.
    pub fn cache(&self) -> Arc<ClockCache> {
        match &self.membership {
            Some(membership) => Arc::clone(membership.shared().cache()),
            None => {
                let cursors = Arc::clone(&self.cursors);
                Arc::new(ClockCache::new(self.sizes.cache_initial(), cursors))
            }
        }
    }

    /// Maximum bytes of the store's next WAL segment.
    pub fn segment_bytes(&self) -> u64 {
        let limit = self.sizes.segment;
        self.membership.as_ref().map_or(limit, |own| limit.min(own.shared().segment_bytes()))
    }

    /// Number of written bytes after which the sizes of memtables are summed again.
    pub fn check_interval_bytes(&self) -> u64 {
        let buffers = self.sizes.buffers / 64;
        self.membership.as_ref().map_or(buffers, |own| {
            (own.shared().fair_memtable_bytes().min(self.sizes.buffers) / 16).min(buffers)
        })
    }

    /// Limit of the memtables while the WAL is replayed, in bytes.
    pub fn replay_max(&self) -> u64 {
        let limit = self.sizes.buffers * 2;
        self.membership.as_ref().map_or(limit, |own| limit.min(own.replay_max()))
    }

    /// Limit of table readers, in bytes: the share of tables, less the metadata of tables,
    /// existence filters and cursors.
    pub fn readers_max(&self) -> u64 {
        if let Some(membership) = &self.membership {
            return membership.readers_max();
        }
        let limit = self.sizes.tables;
        let known = self.table_metadata.load(Ordering::Relaxed);
        let existence = self.existence.load(Ordering::Relaxed);
        limit - (known + existence + self.cursors.bytes()).min(limit / 4 * 3)
    }

    /// Whether table readers exceed their limit, so that some must be closed.
    pub fn exceeds_readers_max(&self) -> bool {
        let held = self.tables.load(Ordering::Relaxed);
        held > self.close_threshold.load(Ordering::Relaxed)
            && self.membership.as_ref().is_none_or(|own| held > own.readers_max())
    }

    /// Publishes the memory of this store's table readers, after one was opened. Returns whether
    /// this store's readers, or those of all stores of the budget, exceed their limit.
    pub fn exceeds_shared_readers_max(&self) -> bool {
        let Some(membership) = &self.membership else { return self.exceeds_readers_max() };
        membership.publish_use(MemoryUse::Readers, self.tables.load(Ordering::Relaxed));
        membership.shared().exceeds_readers_max() || self.exceeds_readers_max()
    }

    /// Sets the bytes at which table readers are closed next. `limit` is their limit, and `left`
    /// are the bytes that they still use.
    pub fn set_close_threshold(&self, limit: u64, left: u64) {
        // Memory of cursors and compactions goes only with them: an immediate retry frees nothing.
        let retry_threshold = left + limit / 8;
        let at = match &self.membership {
            // The bytes that the other stores leave change: with a shared budget `limit` is checked
            // each time.
            Some(_) if left <= limit => 0,
            Some(_) => retry_threshold,
            None => limit.max(retry_threshold),
        };
        self.close_threshold.store(at, Ordering::Relaxed);
    }

    /// Takes a job slot to run a part of a compaction in parallel.
    pub fn try_take_slot(&self) -> Option<JobSlot> {
        match &self.membership {
            Some(membership) => membership.try_take_slot(JobKind::Compaction),
            None => Some(JobSlot::default()),
        }
    }

    /// Whether a required compaction of another store waits for a job slot.
    pub fn is_slot_awaited(&self) -> bool {
        self.membership.as_ref().is_some_and(|own| own.shared().is_slot_awaited())
    }

    /// Whether the allocator must be requested at `now` to return freed memory. The request takes
    /// time, and retained memory matters only with a small budget.
    pub fn is_time_to_trim(&self, now: Duration) -> bool {
        if self.sizes.total > TRIMMED_MAX {
            return false;
        }
        let now = now.as_millis() as u64;
        let trimmed =
            self.membership.as_ref().map_or(&self.trimmed_at, |own| &own.shared().trimmed_at);
        let last = trimmed.load(Ordering::Relaxed);
        // Of several threads only one makes the request.
        let set = |from| trimmed.compare_exchange(from, now, Ordering::Relaxed, Ordering::Relaxed);
        // Stores that share a budget may have clocks that differ.
        now.abs_diff(last) >= TRIM_INTERVAL_MILLIS && set(last).is_ok()
    }

    /// Counts `bytes` as memory of a compaction or flush until the reservation is dropped.
    pub fn reserve(self: &Arc<Self>, bytes: u64) -> MemoryReservation {
        self.compactions.fetch_add(bytes, Ordering::Relaxed);
        if let Some(membership) = &self.membership {
            membership.shared().compactions().fetch_add(bytes, Ordering::Relaxed);
        }
        MemoryReservation { budget: Arc::clone(self), bytes }
    }

    /// Whether running compactions or flushes use memory.
    pub fn is_working(&self) -> bool {
        self.compactions.load(Ordering::Relaxed) > 0
    }

    /// Decides the residency of each level's tables, by the memory that they need. `past` are the
    /// bytes of readers of replaced tables.
    pub fn plan_residency(&self, levels: &[LevelDemand; LEVELS], past: u64) {
        let limit = self.readers_max();
        let planned = plan(levels, limit - past.min(limit / 2));
        for (level, residency) in self.residency.iter().zip(planned) {
            level.0.store(residency.paged, Ordering::Relaxed);
            level.1.store(residency.filter_factor, Ordering::Relaxed);
        }
    }

    /// Residency of a table of level `level` that is opened now.
    pub fn residency(&self, level: usize) -> Residency {
        if level == SEQUENTIAL_READ {
            return Residency { paged: true, filter_factor: Residency::NO_FILTER };
        }
        match self.residency.get(level) {
            Some((paged, factor)) => Residency {
                paged: paged.load(Ordering::Relaxed),
                filter_factor: factor.load(Ordering::Relaxed),
            },
            None => Residency::default(),
        }
    }
}

/// Pseudo level of a table that is only scanned once.
pub const SEQUENTIAL_READ: usize = usize::MAX;

/// Memory reservation of a running compaction or flush.
#[derive(Debug)]
pub struct MemoryReservation {
    budget: Arc<StoreBudget>,
    bytes: u64,
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        self.budget.compactions.fetch_sub(self.bytes, Ordering::Relaxed);
        if let Some(membership) = &self.budget.membership {
            membership.shared().compactions().fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use umbel_env::{Env, Resources};

    #[derive(Debug)]
    struct Machine(Option<u64>);

    impl Resources for Machine {
        fn memory_bytes(&self) -> Option<u64> {
            self.0
        }
        fn open_files_max(&self) -> Option<u64> {
            None
        }
    }

    fn options(machine: Option<u64>, memory_bytes: Option<u64>) -> Options {
        let env = Env { resources: Arc::new(Machine(machine)), ..Env::system() };
        Options { env, memory_bytes, ..Options::default() }
    }

    #[test]
    fn default_budget_is_a_quarter_of_usable_memory() {
        let total = |machine| BudgetSizes::new(&options(machine, None)).unwrap().total;
        assert_eq!(total(Some(8 << 30)), 2 << 30);
        assert_eq!(total(Some(64 << 30)), 4 << 30);
        assert_eq!(total(Some(1 << 20)), BUDGET_MIN, "less would not work");
        assert_eq!(total(None), 512 << 20);
        let much = BudgetSizes::new(&options(Some(1 << 30), Some(2 << 30))).unwrap();
        assert!(much.exceeds_machine());
        assert!(
            !BudgetSizes::new(&options(Some(2 << 30), Some(2 << 30))).unwrap().exceeds_machine()
        );
    }

    #[test]
    fn too_small_budget_is_rejected_with_the_minimum() {
        let refused =
            BudgetSizes::new(&options(None, Some(BUDGET_MIN - 1))).unwrap_err().to_string();
        assert!(refused.contains("memory_bytes is 6291455"), "{refused}");
        assert!(refused.contains("the least that works is 6291456"), "{refused}");
        assert!(BudgetSizes::new(&options(None, Some(BUDGET_MIN))).is_ok());
        let finer = |memory_bytes| Options {
            cache_bytes: Some(10 << 20),
            write_buffer_total_bytes: Some(1 << 20),
            ..options(None, memory_bytes)
        };
        let refused = BudgetSizes::new(&finer(Some(17 << 20))).unwrap_err().to_string();
        assert!(refused.contains("is 18874368"), "{refused}");
        assert!(BudgetSizes::new(&finer(Some(18 << 20))).is_ok());
        assert_eq!(BudgetSizes::new(&finer(None)).unwrap().total, 512 << 20);
    }

    /// A caller set a cache of 4 GiB and no memory budget. The default budget was only slightly
    /// larger, no memory was left for indexes, and gets loaded index blocks one by one.
    #[test]
    fn default_budget_keeps_indexes_beside_large_cache() {
        let cached = Options { cache_bytes: Some(4 << 30), ..options(Some(24 << 30), None) };
        let sizes = BudgetSizes::new(&cached).unwrap();
        assert_eq!(sizes.cache.1, 4 << 30);
        assert!(sizes.tables > 512 << 20, "{sizes:?}");
    }

    #[test]
    fn shares_fit_into_the_budget() {
        for mebibytes in [6, 7, 8, 13, 64, 512, 4096, 100_000] {
            let sizes = BudgetSizes::new(&options(None, Some(mebibytes << 20))).unwrap();
            let parts =
                2 * sizes.buffers + sizes.tables + sizes.segment + sizes.cache.0 + sizes.overhead;
            assert!(parts <= sizes.total, "{sizes:?}");
            assert!(
                sizes.caps.memtable_bytes.min(crate::shared_budget::memory_use_limits::BUFFERS_MAX)
                    <= sizes.buffers
            );
            assert!(sizes.compactions >= 1);
        }
    }

    #[test]
    fn allocator_is_queried_rarely_and_for_small_budgets_only() {
        let budget = |mebibytes: u64| {
            StoreBudget::new(BudgetSizes::new(&options(None, Some(mebibytes << 20))).unwrap())
        };
        let (small, large) = (budget(64), budget(2048));
        let requested = [500, 550, 599, 600, 601].map(|millis| {
            let now = Duration::from_millis(millis);
            (small.is_time_to_trim(now), large.is_time_to_trim(now))
        });
        assert_eq!(requested.map(|both| both.0), [true, false, false, true, false]);
        assert_eq!(requested.map(|both| both.1), [false; 5]);
    }

    #[test]
    fn tables_are_opened_with_the_decided_residency() {
        let budget = StoreBudget::new(BudgetSizes::new(&options(None, Some(64 << 20))).unwrap());
        assert_eq!(budget.residency(3), Residency::default());
        let mut levels = [LevelDemand::default(); LEVELS];
        levels[3] = LevelDemand { unpaged: 100 << 20, paged: 1 << 20, filters: 100 << 20 };
        budget.plan_residency(&levels, 0);
        let least = Residency { paged: true, filter_factor: Residency::NO_FILTER };
        assert_eq!(budget.residency(3), least);
        assert_eq!(budget.residency(SEQUENTIAL_READ), least);
        budget.plan_residency(&[LevelDemand::default(); LEVELS], 0);
        assert_eq!(budget.residency(3), Residency::default());
    }

    /// Existence filters counted in the limit of the block cache, but not in that of table readers,
    /// which still took half of the budget.
    #[test]
    fn table_readers_leave_memory_for_existence_filters() {
        let budget = StoreBudget::new(BudgetSizes::new(&options(None, Some(64 << 20))).unwrap());
        let limit = budget.readers_max();
        budget.existence.store(10 << 20, Ordering::Relaxed);
        assert_eq!(budget.readers_max(), limit - (10 << 20));
        budget.existence.store(1 << 40, Ordering::Relaxed);
        assert_eq!(budget.readers_max(), limit - limit / 4 * 3, "gets need some of them");
    }
}
