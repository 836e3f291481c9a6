//! The memory budget: how large each part of a store may become, and gauges of what parts hold.
//!
//! One number bounds memtables, cached blocks, indexes and filters of open tables, the mapped log
//! and the buffers of compactions. Each part but the cache has a share that it stays within; the
//! cache takes what the others leave. Nothing is taken before data needs it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use umbel_base::limits::LEVELS;
use umbel_base::{Error, Result};

use crate::cache::ClockCache;
use crate::cursor_memory::CursorMemory;
use crate::memory_budget::{Membership, MemoryBudget, Part, Turn, Work};
use crate::options::{Caps, Options};
use crate::residence::{Needs, Residence, plan};
use crate::shares::{CURSORS_SHARE, LAST_TABLES_FACTOR, LEAST, Shares};

/// What is taken where nothing says how much memory there is.
const UNKNOWN_MACHINE_BYTES: u64 = 2 << 30;
/// The most a store takes without being told.
const DEFAULT_MAX: u64 = 4 << 30;
/// Up to this budget the allocator is asked to give back what it keeps of freed memory.
const TRIMMED_MAX: u64 = 1 << 30;
/// It is asked so often at most.
const TRIM_EVERY_MILLIS: u64 = 100;

/// How large each part may become. Decided when the store is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sizes {
    /// The budget.
    pub total: u64,
    /// What the process may use, where something says.
    pub machine: Option<u64>,
    /// What is kept free for what no part counts.
    pub besides: u64,
    /// Bytes of all memtables together above which the fullest is flushed. Writers wait at twice
    /// that.
    pub buffers: u64,
    /// What a keyspace's options are cut down to.
    pub caps: Caps,
    /// Bytes of one log segment.
    pub segment: u64,
    /// Bytes of indexes and filters above which readers of tables are closed.
    pub tables: u64,
    /// The least and the most the block cache may hold.
    pub cache: (u64, u64),
    /// Compactions, or parts of one, that run at the same time.
    pub compactions: usize,
    /// Bytes that they read ahead in each source.
    pub ahead: u64,
    /// Bytes that they and a flush take, about.
    pub working: u64,
}

impl Options {
    /// An error that says which option is out of range and what it may be.
    ///
    /// # Errors
    /// `Invalid`, also where the memory is too little for the rest.
    pub fn check(&self) -> Result<()> {
        self.check_ranges()?;
        self.memory_budget.as_ref().map_or(Ok(()), MemoryBudget::check_room)?;
        Sizes::new(self).map(drop)
    }
}

impl Sizes {
    /// The sizes that these options and this machine mean. An error where a budget is too small
    /// says the least that works.
    pub fn new(options: &Options) -> Result<Sizes> {
        let machine = options.env.resources.memory_bytes();
        if let Some(budget) = &options.memory_budget {
            return Ok(Sizes::of(options, budget.shares(), machine));
        }
        let asked = options.cache_bytes.unwrap_or(0);
        let asked =
            asked.saturating_add(options.write_buffer_total_bytes.unwrap_or(0).saturating_mul(2));
        let least = LEAST.saturating_add(asked);
        let total = match options.memory_bytes {
            Some(given) if given < least => return Err(too_small(options, given, least)),
            Some(given) => given,
            // What was asked for needs indexes and filters beside it.
            None => (machine.unwrap_or(UNKNOWN_MACHINE_BYTES) / 4)
                .min(DEFAULT_MAX)
                .max(least.saturating_add(asked / 4)),
        };
        Ok(Sizes::of(options, &Shares::new(total, asked), machine))
    }

    fn of(options: &Options, shares: &Shares, machine: Option<u64>) -> Sizes {
        let most_buffers = match options.memory_budget {
            // Of one store, it is never more than that of all.
            Some(_) => shares.buffers,
            None => u64::MAX,
        };
        let buffers = options.write_buffer_total_bytes.unwrap_or(shares.buffers);
        let caps = Caps {
            memtable_bytes: shares.size,
            table_bytes: shares.size,
            last_table_bytes: shares.size.saturating_mul(LAST_TABLES_FACTOR),
            level_bytes_base: shares.total.saturating_mul(4),
        };
        let at_once = shares.compactions.min(options.background_threads.max(1) as u64);
        Sizes {
            total: shares.total,
            machine,
            buffers: buffers.min(most_buffers),
            caps,
            segment: options.log_segment_bytes.min(shares.size),
            besides: shares.besides,
            tables: shares.tables,
            cache: (shares.cache_least, options.cache_bytes.unwrap_or(u64::MAX)),
            compactions: shares.compactions as usize,
            ahead: shares.ahead,
            working: (at_once * shares.job).min(shares.jobs),
        }
    }

    /// What the cache may hold while nothing else holds anything.
    pub fn cache_at_first(&self) -> u64 {
        self.total.max(self.cache.0).min(self.cache.1)
    }

    /// Whether the budget is larger than what the process may use.
    pub fn exceeds_machine(&self) -> bool {
        self.machine.is_some_and(|machine| self.total > machine)
    }
}

fn too_small(options: &Options, given: u64, least: u64) -> Error {
    let part = match (options.cache_bytes, options.write_buffer_total_bytes) {
        (None, None) => "",
        _ => {
            " with the cache_bytes and write_buffer_total_bytes (twice) given, which lie inside \
             of it"
        }
    };
    Error::invalid(format!(
        "memory_bytes is {given}, which is too small: the least that works{part} is {least}"
    ))
}

/// The budget of an open store.
#[derive(Debug)]
pub struct Budget {
    /// How large each part may become.
    pub sizes: Sizes,
    /// Bytes that readers of tables hold: indexes, filters, slots, range tombstones, open files.
    pub tables: Arc<AtomicU64>,
    /// Bytes that is known of tables, whether they are open or not: what the manifest says of them
    /// and their places in versions.
    pub known: AtomicU64,
    /// Bytes of the existence filters of keyspaces, when it was last decided what stays of tables.
    pub existence: AtomicU64,
    /// What open cursors hold: those of this store, or of all that share the budget.
    pub cursors: Arc<CursorMemory>,
    /// Bytes that running compactions and flushes hold, about.
    pub compactions: AtomicU64,
    /// What stays in memory of a table when it is opened, by level; see [`Residence`].
    residence: [(AtomicBool, AtomicU64); LEVELS],
    /// Bytes of `tables` at which readers are closed next.
    pub close_at: AtomicU64,
    /// How many readers were closed to stay within the budget.
    pub readers_closed: AtomicU64,
    /// Held by who closes readers.
    pub closing: Mutex<()>,
    /// When the allocator was last asked to give memory back, in milliseconds of the clock.
    trimmed: AtomicU64,
    /// The store's place in a budget that it shares.
    membership: Option<Membership>,
}

impl Budget {
    /// The budget of a store with these options, of which nothing is used.
    ///
    /// # Errors
    /// `Invalid` where it is too small, or is shared by as many stores as it has room for.
    pub fn of(options: &Options) -> Result<Budget> {
        let own = Budget::new(Sizes::new(options)?);
        let Some(shared) = &options.memory_budget else { return Ok(own) };
        let membership = shared.join()?;
        let cursors = Arc::clone(membership.shared().cursors());
        Ok(Budget { cursors, membership: Some(membership), ..own })
    }

    fn new(sizes: Sizes) -> Budget {
        Budget {
            close_at: AtomicU64::new(sizes.tables),
            cursors: Arc::new(CursorMemory::new(sizes.total / CURSORS_SHARE)),
            membership: None,
            sizes,
            tables: Arc::default(),
            known: AtomicU64::new(0),
            existence: AtomicU64::new(0),
            compactions: AtomicU64::new(0),
            residence: std::array::from_fn(|_| (AtomicBool::new(false), AtomicU64::new(1))),
            readers_closed: AtomicU64::new(0),
            closing: Mutex::default(),
            trimmed: AtomicU64::new(0),
        }
    }

    /// The store's place in a budget that it shares; `None` where the budget is its own.
    #[inline]
    pub fn membership(&self) -> Option<&Membership> {
        self.membership.as_ref()
    }

    /// The block cache: a new one, or that of all stores which share the budget.
    pub fn cache(&self) -> Arc<ClockCache> {
        match &self.membership {
            Some(membership) => Arc::clone(membership.shared().cache()),
            None => {
                let cursors = Arc::clone(&self.cursors);
                Arc::new(ClockCache::new(self.sizes.cache_at_first(), cursors))
            }
        }
    }

    /// Bytes that the store's next log segment may have.
    pub fn segment_bytes(&self) -> u64 {
        let most = self.sizes.segment;
        self.membership.as_ref().map_or(most, |own| most.min(own.shared().segment_bytes()))
    }

    /// Bytes written after which the memtables are added up again.
    pub fn weighing_bytes(&self) -> u64 {
        let buffers = self.sizes.buffers / 64;
        self.membership.as_ref().map_or(buffers, |own| {
            (own.shared().fair_buffers().min(self.sizes.buffers) / 16).min(buffers)
        })
    }

    /// Bytes that memtables may take while logs are replayed.
    pub fn replay_most(&self) -> u64 {
        let most = self.sizes.buffers * 2;
        self.membership.as_ref().map_or(most, |own| most.min(own.replay_most()))
    }

    /// Bytes that readers of tables may hold: the share of all that tables take, without what is
    /// known of them whether they are open or not, and without existence filters and cursors.
    pub fn readers_most(&self) -> u64 {
        if let Some(membership) = &self.membership {
            return membership.readers_most();
        }
        let most = self.sizes.tables;
        let known = self.known.load(Ordering::Relaxed);
        let existence = self.existence.load(Ordering::Relaxed);
        most - (known + existence + self.cursors.bytes()).min(most / 4 * 3)
    }

    /// Whether readers of tables hold so much that some are to be closed.
    pub fn is_over(&self) -> bool {
        let held = self.tables.load(Ordering::Relaxed);
        held > self.close_at.load(Ordering::Relaxed)
            && self.membership.as_ref().is_none_or(|own| held > own.readers_most())
    }

    /// As [`Budget::is_over`], or whether those of all stores together do. Publishes what this
    /// store's readers hold. For when one was opened.
    pub fn is_over_with_others(&self) -> bool {
        let Some(membership) = &self.membership else { return self.is_over() };
        membership.publish_part(Part::Readers, self.tables.load(Ordering::Relaxed));
        membership.shared().readers_are_over() || self.is_over()
    }

    /// Sets at which bytes readers are closed next, where they may hold `most` and `left` are left
    /// of them.
    pub fn closes_at(&self, most: u64, left: u64) {
        // What cursors and compactions hold goes only with them: looking again at once is in vain.
        let in_vain = left + most / 8;
        let at = match &self.membership {
            // What the other stores leave changes: there `most` is looked at each time.
            Some(_) if left <= most => 0,
            Some(_) => in_vain,
            None => most.max(in_vain),
        };
        self.close_at.store(at, Ordering::Relaxed);
    }

    /// Takes a turn to run a part of a compaction beside the others.
    pub fn take_turn(&self) -> Option<Turn> {
        match &self.membership {
            Some(membership) => membership.take_turn(Work::Compaction),
            None => Some(Turn::default()),
        }
    }

    /// Whether a compaction that another store needs waits for a turn.
    pub fn is_turn_needed(&self) -> bool {
        self.membership.as_ref().is_some_and(|own| own.shared().is_turn_needed())
    }

    /// Whether the allocator is to be asked at `now` to give back what it keeps of freed memory.
    /// What it keeps matters beside a small budget only, and asking takes its time.
    pub fn is_time_to_trim(&self, now: Duration) -> bool {
        if self.sizes.total > TRIMMED_MAX {
            return false;
        }
        let now = now.as_millis() as u64;
        let trimmed = self.membership.as_ref().map_or(&self.trimmed, |own| &own.shared().trimmed);
        let last = trimmed.load(Ordering::Relaxed);
        // Of several threads one is enough.
        let set = |from| trimmed.compare_exchange(from, now, Ordering::Relaxed, Ordering::Relaxed);
        // Stores that share a budget may have clocks that differ.
        now.abs_diff(last) >= TRIM_EVERY_MILLIS && set(last).is_ok()
    }

    /// Counts `bytes` as those of a compaction or flush until the answer is dropped.
    pub fn claim(self: &Arc<Self>, bytes: u64) -> Claim {
        self.compactions.fetch_add(bytes, Ordering::Relaxed);
        if let Some(membership) = &self.membership {
            membership.shared().compactions().fetch_add(bytes, Ordering::Relaxed);
        }
        Claim { budget: Arc::clone(self), bytes }
    }

    /// Whether compactions or flushes hold bytes.
    pub fn is_working(&self) -> bool {
        self.compactions.load(Ordering::Relaxed) > 0
    }

    /// Decides what stays in memory of the tables of each level, by what they need and by what
    /// readers of `past` tables hold.
    pub fn decide_residence(&self, levels: &[Needs; LEVELS], past: u64) {
        let most = self.readers_most();
        let planned = plan(levels, most - past.min(most / 2));
        for (level, residence) in self.residence.iter().zip(planned) {
            level.0.store(residence.paged, Ordering::Relaxed);
            level.1.store(residence.filter_factor, Ordering::Relaxed);
        }
    }

    /// What stays in memory of a table of this level that is opened now.
    pub fn residence(&self, level: usize) -> Residence {
        if level == WALKED {
            return Residence { paged: true, filter_factor: Residence::NO_FILTER };
        }
        match self.residence.get(level) {
            Some((paged, factor)) => Residence {
                paged: paged.load(Ordering::Relaxed),
                filter_factor: factor.load(Ordering::Relaxed),
            },
            None => Residence::default(),
        }
    }
}

/// Stands for a level: that of a table which is only walked over once.
pub const WALKED: usize = usize::MAX;

/// Bytes of a running compaction or flush.
#[derive(Debug)]
pub struct Claim {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Drop for Claim {
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
    fn the_default_is_a_quarter_of_what_may_be_used() {
        let total = |machine| Sizes::new(&options(machine, None)).unwrap().total;
        assert_eq!(total(Some(8 << 30)), 2 << 30);
        assert_eq!(total(Some(64 << 30)), 4 << 30);
        assert_eq!(total(Some(1 << 20)), LEAST, "less would not work");
        assert_eq!(total(None), 512 << 20);
        let much = Sizes::new(&options(Some(1 << 30), Some(2 << 30))).unwrap();
        assert!(much.exceeds_machine());
        assert!(!Sizes::new(&options(Some(2 << 30), Some(2 << 30))).unwrap().exceeds_machine());
    }

    #[test]
    fn too_little_is_refused_with_the_least_that_works() {
        let refused = Sizes::new(&options(None, Some(LEAST - 1))).unwrap_err().to_string();
        assert!(refused.contains("memory_bytes is 6291455"), "{refused}");
        assert!(refused.contains("the least that works is 6291456"), "{refused}");
        assert!(Sizes::new(&options(None, Some(LEAST))).is_ok());
        let finer = |memory_bytes| Options {
            cache_bytes: Some(10 << 20),
            write_buffer_total_bytes: Some(1 << 20),
            ..options(None, memory_bytes)
        };
        let refused = Sizes::new(&finer(Some(17 << 20))).unwrap_err().to_string();
        assert!(refused.contains("is 18874368"), "{refused}");
        assert!(Sizes::new(&finer(Some(18 << 20))).is_ok());
        assert_eq!(Sizes::new(&finer(None)).unwrap().total, 512 << 20);
    }

    /// Story: a cache of 4 GiB was asked for and no budget. The budget became as large and a little
    /// more, nothing was left for indexes, and gets loaded their parts one by one.
    #[test]
    fn a_large_cache_leaves_room_for_indexes_where_no_budget_is_given() {
        let cached = Options { cache_bytes: Some(4 << 30), ..options(Some(24 << 30), None) };
        let sizes = Sizes::new(&cached).unwrap();
        assert_eq!(sizes.cache.1, 4 << 30);
        assert!(sizes.tables > 512 << 20, "{sizes:?}");
    }

    #[test]
    fn the_shares_fit_into_the_budget() {
        for mebibytes in [6, 7, 8, 13, 64, 512, 4096, 100_000] {
            let sizes = Sizes::new(&options(None, Some(mebibytes << 20))).unwrap();
            let parts =
                2 * sizes.buffers + sizes.tables + sizes.segment + sizes.cache.0 + sizes.besides;
            assert!(parts <= sizes.total, "{sizes:?}");
            assert!(sizes.caps.memtable_bytes.min(crate::shares::BUFFERS_MAX) <= sizes.buffers);
            assert!(sizes.compactions >= 1);
        }
    }

    #[test]
    fn the_allocator_is_asked_seldom_and_beside_small_budgets_only() {
        let budget = |mebibytes: u64| {
            Budget::new(Sizes::new(&options(None, Some(mebibytes << 20))).unwrap())
        };
        let (small, large) = (budget(64), budget(2048));
        let asked = [500, 550, 599, 600, 601].map(|millis| {
            let now = Duration::from_millis(millis);
            (small.is_time_to_trim(now), large.is_time_to_trim(now))
        });
        assert_eq!(asked.map(|both| both.0), [true, false, false, true, false]);
        assert_eq!(asked.map(|both| both.1), [false; 5]);
    }

    #[test]
    fn what_is_decided_is_what_tables_are_opened_with() {
        let budget = Budget::new(Sizes::new(&options(None, Some(64 << 20))).unwrap());
        assert_eq!(budget.residence(3), Residence::default());
        let mut levels = [Needs::default(); LEVELS];
        levels[3] = Needs { whole: 100 << 20, paged: 1 << 20, filters: 100 << 20 };
        budget.decide_residence(&levels, 0);
        let least = Residence { paged: true, filter_factor: Residence::NO_FILTER };
        assert_eq!(budget.residence(3), least);
        assert_eq!(budget.residence(WALKED), least);
        budget.decide_residence(&[Needs::default(); LEVELS], 0);
        assert_eq!(budget.residence(3), Residence::default());
    }

    /// Story: existence filters counted where the cache's part is reckoned, but readers of tables
    /// kept their half of the budget beside them.
    #[test]
    fn readers_of_tables_leave_room_for_existence_filters() {
        let budget = Budget::new(Sizes::new(&options(None, Some(64 << 20))).unwrap());
        let most = budget.readers_most();
        budget.existence.store(10 << 20, Ordering::Relaxed);
        assert_eq!(budget.readers_most(), most - (10 << 20));
        budget.existence.store(1 << 40, Ordering::Relaxed);
        assert_eq!(budget.readers_most(), most - most / 4 * 3, "gets need some of them");
    }
}
