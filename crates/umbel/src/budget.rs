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

use crate::cursor_memory::CursorMemory;
use crate::options::{Caps, Options};
use crate::residence::{Needs, Residence, plan};

/// What is taken where nothing says how much memory there is.
const UNKNOWN_MACHINE_BYTES: u64 = 2 << 30;
/// The most a store takes without being told.
const DEFAULT_MAX: u64 = 4 << 30;
/// The least that works: below it the log, a memtable, a compaction and the reader of one table do
/// not fit side by side.
const LEAST: u64 = 6 << 20;
/// Kept out of all shares: memory for blocks and indexes comes in chunks of this size, of which one
/// is only partly filled.
pub const CHUNK_BYTES: u64 = 2 << 20;
/// Kept out of all shares too: what the process has besides that no part counts, program and stacks
/// and what the allocator keeps between. A share of the budget, up to a limit.
const BESIDES: (u64, u64) = (4, 32 << 20);
/// The most that all memtables take before the fullest is flushed, without being told.
const BUFFERS_MAX: u64 = 256 << 20;
/// The least size of a memtable, a table and a log segment that a small budget brings about.
const SIZE_LEAST: u64 = 256 << 10;
/// How many times larger tables of the last level may be, which holds nearly all of the data: what
/// every table takes, open or not, and what every edit of the manifest and every pick looks at, is
/// less by as much. A table of the level above then meets few of them, and takes its neighbours
/// along that lie within their bounds.
const LAST_TABLES_FACTOR: u64 = 4;
/// The least and the most that a compaction reads ahead in each source.
const AHEAD_BYTES: (u64, u64) = (16 << 10, 256 << 10);
/// Sources of a large compaction: level 0 just before writers wait, and one table of each level.
const SOURCES: u64 = 32;
/// What a table being written takes besides its filter's hashes and its index.
const WRITER_BYTES: u64 = 320 << 10;

/// One in so many bytes may be held by open cursors; from then on they park.
const CURSORS_SHARE: u64 = 8;

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
        Sizes::new(self).map(drop)
    }
}

impl Sizes {
    /// The sizes that these options and this machine mean. An error where a budget is too small
    /// says the least that works.
    pub fn new(options: &Options) -> Result<Sizes> {
        let machine = options.env.resources.memory_bytes();
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
        let besides = (total.saturating_sub(asked) / BESIDES.0).min(BESIDES.1);
        let shared = total - CHUNK_BYTES - besides;
        let buffers = options.write_buffer_total_bytes.unwrap_or((shared / 8).min(BUFFERS_MAX));
        let size = (shared / 16).max(SIZE_LEAST);
        let caps = Caps {
            memtable_bytes: size,
            table_bytes: size,
            last_table_bytes: size.saturating_mul(LAST_TABLES_FACTOR),
            level_bytes_base: total.saturating_mul(4),
        };
        let ahead = (shared / 8 / SOURCES).clamp(AHEAD_BYTES.0, AHEAD_BYTES.1);
        let job = 12 * ahead + writing_bytes(caps.last_table_bytes.min(64 << 20));
        let compactions = (shared / 8 / job).clamp(1, 64);
        let at_once = compactions.min(options.background_threads.max(1) as u64);
        Ok(Sizes {
            total,
            machine,
            buffers,
            caps,
            segment: options.log_segment_bytes.min(size),
            besides,
            tables: (shared / 2).min(shared.saturating_sub(asked)),
            cache: (shared / 32, options.cache_bytes.unwrap_or(u64::MAX)),
            compactions: compactions as usize,
            ahead,
            working: (at_once * job).min(shared / 8),
        })
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

/// What writing a table of `table_bytes` takes, about: its filter's hashes and its index, at
/// entries of 64 bytes, and what is collected for the next call.
pub fn writing_bytes(table_bytes: u64) -> u64 {
    WRITER_BYTES + table_bytes / 8 + table_bytes / 64
}

/// What merging so many sources into a table of `table_bytes` takes, about.
pub fn merging_bytes(sources: usize, ahead: u64, table_bytes: u64) -> u64 {
    (sources as u64).saturating_mul(ahead).saturating_add(writing_bytes(table_bytes))
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
    /// What open cursors hold.
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
}

impl Budget {
    /// A budget of these sizes of which nothing is used.
    pub fn new(sizes: Sizes) -> Budget {
        Budget {
            close_at: AtomicU64::new(sizes.tables),
            cursors: Arc::new(CursorMemory::new(sizes.total / CURSORS_SHARE)),
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

    /// Bytes that readers of tables may hold: the share of all that tables take, without what is
    /// known of them whether they are open or not, and without existence filters and cursors.
    pub fn readers_most(&self) -> u64 {
        let most = self.sizes.tables;
        let known = self.known.load(Ordering::Relaxed);
        let existence = self.existence.load(Ordering::Relaxed);
        most - (known + existence + self.cursors.bytes()).min(most / 4 * 3)
    }

    /// Whether readers of tables hold so much that some are to be closed.
    pub fn is_over(&self) -> bool {
        self.tables.load(Ordering::Relaxed) > self.close_at.load(Ordering::Relaxed)
    }

    /// Whether the allocator is to be asked at `now` to give back what it keeps of freed memory.
    /// What it keeps matters beside a small budget only, and asking takes its time.
    pub fn is_time_to_trim(&self, now: Duration) -> bool {
        if self.sizes.total > TRIMMED_MAX {
            return false;
        }
        let now = now.as_millis() as u64;
        let last = self.trimmed.load(Ordering::Relaxed);
        // Of several threads one is enough.
        let set =
            |from| self.trimmed.compare_exchange(from, now, Ordering::Relaxed, Ordering::Relaxed);
        now >= last + TRIM_EVERY_MILLIS && set(last).is_ok()
    }

    /// Counts `bytes` as those of a compaction or flush until the answer is dropped.
    pub fn claim(self: &Arc<Self>, bytes: u64) -> Claim {
        self.compactions.fetch_add(bytes, Ordering::Relaxed);
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
            assert!(sizes.caps.memtable_bytes.min(BUFFERS_MAX) <= sizes.buffers);
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
