//! What a store holds of the machine: memory, file descriptors, and what readers keep from going.

use std::fmt;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use umbel_table::FilterKeep;

use super::MEBIBYTE;
use crate::filter_choice::Choice;
use crate::memory_budget::MemoryBudgetStats;
use crate::store::Store;
use crate::weigh;

/// Memory, in bytes, against the budget.
#[derive(Debug, Clone, Default)]
pub struct MemoryStats {
    /// The budget for all parts together.
    pub budget_bytes: u64,
    /// What the process may use, where the operating system says.
    pub machine_bytes: Option<u64>,
    /// Whether the budget is larger than that.
    pub exceeds_machine: bool,
    /// All parts together.
    pub held_bytes: u64,
    /// Memtables that take writes or wait to be flushed, with their filters.
    pub memtable_bytes: u64,
    /// Memtables that were flushed, but that cursors still look at.
    pub memtable_held_bytes: u64,
    /// Cached blocks.
    pub block_bytes: u64,
    /// Taken for blocks and indexes, but free at the moment.
    pub spare_bytes: u64,
    /// Open tables: indexes, filters, slots, range tombstones.
    pub table_bytes: u64,
    /// The mapped log as far as it was touched, about.
    pub log_bytes: u64,
    /// Buffers of running flushes and compactions, about.
    pub compaction_bytes: u64,
    /// Open cursors and iterators, and blocks that are in memory only because they stand in them.
    pub cursor_bytes: u64,
    /// Whether these are so many that cursors keep copies of their entries instead of blocks.
    pub cursors_park: bool,
    /// Tables that are open.
    pub tables_open: u64,
    /// Open tables of whose indexes only the tops stay, the parts coming and going as blocks do.
    pub indexes_paged: u64,
    /// Open tables whose filters are kept smaller than they are on disk.
    pub filters_folded: u64,
    /// Open tables whose filters are not kept.
    pub filters_left_out: u64,
    /// Whether memory that asks for huge pages may be given some, where the operating system says.
    /// Where not, everything works on small pages, with more misses of address translation.
    pub huge_pages: Option<bool>,
    /// Tables that were closed, to be opened again when needed, to stay within the budget.
    pub tables_closed: u64,
    /// What all stores hold together, where the budget is shared. Blocks, spare bytes and cursors
    /// are those of all stores then, in the other fields, too.
    pub shared: Option<MemoryBudgetStats>,
}

/// File descriptors of tables.
#[derive(Debug, Clone, Default)]
pub struct DescriptorStats {
    /// How many files of tables may be open; `None` where there is no limit.
    pub open_tables_max: Option<u64>,
    /// How many are open.
    pub open_tables: u64,
    /// How often one was opened again that had been closed for others.
    pub reopened: u64,
    /// How often a call found no descriptor left.
    pub shortages: u64,
    /// Why background work is put off, while it is.
    pub work_put_off: Option<String>,
}

/// What readers hold back, as far as known.
#[derive(Debug, Clone, Default)]
pub struct ReaderStats {
    /// Snapshots that are open.
    pub snapshots: usize,
    /// The newest write that the oldest of them sees.
    pub oldest_snapshot: Option<u64>,
    /// How long the oldest has been open at least, in microseconds: counted from the first flush,
    /// compaction or call for these numbers after it was taken.
    pub oldest_snapshot_micros: u64,
    /// Cursors that look at memtables and tables some of which were replaced since.
    pub cursors_behind: usize,
    /// How long the oldest of them has been behind at least, in microseconds.
    pub oldest_cursor_micros: u64,
    /// Bytes of flushed memtables that they keep in memory.
    pub held_memtable_bytes: u64,
    /// Replaced tables whose files they keep.
    pub held_tables: u64,
    /// Bytes of those files.
    pub held_table_bytes: u64,
    /// Obsolete files, of whatever kind, that are kept because another process has the store open
    /// for reading only.
    pub pinned_files: u64,
    /// Their bytes.
    pub pinned_file_bytes: u64,
    /// Older versions that flushes and compactions have kept since the store was opened, because a
    /// snapshot, or a reader that was there when they began, saw them still. One that is kept by
    /// several in turn counts each time.
    pub versions_kept: u64,
    /// Bytes of the keys and values of these.
    pub version_bytes_kept: u64,
}

pub(super) fn memory(store: &Store, log_bytes: u64) -> MemoryStats {
    let parts = weigh::parts(store, log_bytes);
    weigh::settle_cache(store, &parts);
    let budget = &store.budget;
    let kept = kept(store);
    MemoryStats {
        budget_bytes: budget.sizes.total,
        machine_bytes: budget.sizes.machine,
        exceeds_machine: budget.sizes.exceeds_machine(),
        held_bytes: parts.total(),
        memtable_bytes: parts.memtables,
        memtable_held_bytes: parts.memtables_held,
        block_bytes: parts.blocks,
        spare_bytes: parts.spare,
        table_bytes: parts.tables,
        log_bytes: parts.log,
        compaction_bytes: parts.compactions,
        cursor_bytes: parts.cursors,
        cursors_park: budget.cursors.is_tight(),
        huge_pages: store.options.env.resources.huge_pages(),
        tables_closed: budget.readers_closed.load(Ordering::Relaxed),
        shared: budget.membership().map(|own| own.shared().stats()),
        ..kept
    }
}

/// How many tables are open, and what of them is kept.
fn kept(store: &Store) -> MemoryStats {
    let mut kept = MemoryStats::default();
    for keyspace in store.keyspaces() {
        let view = keyspace.view.load();
        for (_, table) in view.version.tables() {
            let Some(open) = table.opened() else { continue };
            let on_disk = Choice::Plain.bytes(&table.meta);
            kept.tables_open += 1;
            kept.indexes_paged += u64::from(open.table().is_paged());
            kept.filters_left_out += u64::from(on_disk > 0 && !open.has_filter());
            let is_folded = matches!(open.keep(), FilterKeep::Plain { factor: 2.. });
            let is_folded = is_folded && open.has_filter() && open.filter_bytes() <= on_disk / 2;
            kept.filters_folded += u64::from(is_folded);
        }
    }
    kept
}

pub(super) fn descriptors(store: &Store) -> DescriptorStats {
    let [most, open_tables, reopened, shortages] = store.context.descriptors.summary();
    let put_off = store.put_off.lock().unwrap_or_else(PoisonError::into_inner);
    DescriptorStats {
        open_tables_max: (most < u64::MAX).then_some(most),
        open_tables,
        reopened,
        shortages,
        work_put_off: put_off.as_ref().map(ToString::to_string),
    }
}

pub(super) fn readers(store: &Store) -> ReaderStats {
    let now = store.options.env.clock.now();
    store.snapshots.note_time(now);
    let (snapshots, oldest_snapshot, since) = store.snapshots.summary();
    let micros = |since: std::time::Duration| now.saturating_sub(since).as_micros() as u64;
    store.context.obsolete.sweep();
    let (pinned_files, pinned_file_bytes) = store.context.obsolete.kept_sums();
    let mut stats = ReaderStats {
        pinned_files,
        pinned_file_bytes,
        snapshots,
        oldest_snapshot,
        oldest_snapshot_micros: since.map_or(0, micros),
        held_tables: store.context.held_files.0.load(Ordering::Relaxed),
        held_table_bytes: store.context.held_files.1.load(Ordering::Relaxed),
        ..ReaderStats::default()
    };
    for keyspace in store.keyspaces() {
        keyspace.view.note_time(now);
        let past = keyspace.view.past();
        stats.cursors_behind += past.holders;
        stats.held_memtable_bytes += past.memtable_bytes;
        for work in &keyspace.counters.work {
            stats.versions_kept += work.versions_kept.load(Ordering::Relaxed);
            stats.version_bytes_kept += work.version_bytes_kept.load(Ordering::Relaxed);
        }
        stats.oldest_cursor_micros = stats.oldest_cursor_micros.max(past.since.map_or(0, micros));
    }
    stats
}

impl fmt::Display for MemoryStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mebibytes = |bytes: u64| bytes as f64 / MEBIBYTE;
        writeln!(
            f,
            "memory: {:.1} of {:.1} MiB: memtables {:.1}, memtables held by cursors {:.1}, blocks \
             {:.1}, spare {:.1}, open tables {:.1}, log {:.1}, compactions {:.1}, cursors {:.1}; \
             {} tables open, \
             {} indexes paged, {} filters folded, {} left out; {} tables closed",
            mebibytes(self.held_bytes),
            mebibytes(self.budget_bytes),
            mebibytes(self.memtable_bytes),
            mebibytes(self.memtable_held_bytes),
            mebibytes(self.block_bytes),
            mebibytes(self.spare_bytes),
            mebibytes(self.table_bytes),
            mebibytes(self.log_bytes),
            mebibytes(self.compaction_bytes),
            mebibytes(self.cursor_bytes),
            self.tables_open,
            self.indexes_paged,
            self.filters_folded,
            self.filters_left_out,
            self.tables_closed
        )?;
        if let Some(shared) = &self.shared {
            writeln!(f, "memory of the shared budget: {shared}")?;
        }
        if self.huge_pages == Some(false) {
            writeln!(f, "memory: the system gives no huge pages; small ones do")?;
        }
        match self.machine_bytes {
            Some(machine) if self.exceeds_machine => writeln!(
                f,
                "memory: the budget is larger than the {:.1} MiB that the process may use",
                mebibytes(machine)
            ),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for DescriptorStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let most = self.open_tables_max.map_or("any number".to_string(), |most| most.to_string());
        writeln!(
            f,
            "files: {} tables open of {most}, {} opened again, {} calls short of descriptors",
            self.open_tables, self.reopened, self.shortages
        )?;
        match &self.work_put_off {
            Some(reason) => writeln!(f, "files: background work is put off: {reason}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for ReaderStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let oldest = match self.oldest_snapshot {
            Some(sequence) => format!(
                ", the oldest at write {sequence} for {:.1} s",
                self.oldest_snapshot_micros as f64 / 1e6
            ),
            None => String::new(),
        };
        writeln!(
            f,
            "readers: {} snapshots{oldest}; {} cursors behind, the oldest for {:.1} s; they hold \
             {:.1} MiB of memtables and {} replaced tables of {:.1} MiB; {} older versions of \
             {:.1} MiB kept for them when tables were written",
            self.snapshots,
            self.cursors_behind,
            self.oldest_cursor_micros as f64 / 1e6,
            self.held_memtable_bytes as f64 / MEBIBYTE,
            self.held_tables,
            self.held_table_bytes as f64 / MEBIBYTE,
            self.versions_kept,
            self.version_bytes_kept as f64 / MEBIBYTE
        )
    }
}
