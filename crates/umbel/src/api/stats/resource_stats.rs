//! Statistics of a store's resources: memory, file descriptors, and resources that readers keep.

use std::fmt;
use std::sync::atomic::Ordering;

use umbel_table::FilterResidency;

use super::MEBIBYTE;
use crate::maintenance::memory_enforcement;
use crate::shared_budget::MemoryBudgetStats;
use crate::state::store::Store;
use crate::store_budget::filter_selection::FilterSelection;

/// Memory that a store uses, and its memory budget, in bytes.
#[derive(Debug, Clone, Default)]
pub struct MemoryStats {
    /// The memory budget for all parts of the store together.
    pub budget_bytes: u64,
    /// Bytes of memory that the process may use, if the operating system reports a limit.
    pub machine_bytes: Option<u64>,
    /// Whether the memory budget exceeds the memory that the process may use.
    pub exceeds_machine: bool,
    /// Sum of the memory of all parts of the store.
    pub held_bytes: u64,
    /// Bytes of memtables that take writes or wait for a flush, and of their filters.
    pub memtable_bytes: u64,
    /// Bytes of flushed memtables that cursors still read.
    pub memtable_held_bytes: u64,
    /// Bytes of cached blocks.
    pub block_bytes: u64,
    /// Bytes allocated for blocks and indexes that are free at the moment.
    pub spare_bytes: u64,
    /// Bytes of the open tables' indexes, filters, block slots and range tombstones.
    pub table_bytes: u64,
    /// Approximate bytes of the mapped WAL that are in memory.
    pub log_bytes: u64,
    /// Approximate bytes of the buffers of running flushes and compactions.
    pub compaction_bytes: u64,
    /// Bytes of open cursors and iterators, of evicted blocks that they still read, and of skip
    /// spans.
    pub cursor_bytes: u64,
    /// Whether cursors take so much memory that they keep copies of their entries instead of
    /// blocks.
    pub cursors_park: bool,
    /// Number of open tables.
    pub tables_open: u64,
    /// Number of open tables that keep only the top of their index in memory; the other index
    /// blocks are cached and evicted.
    pub indexes_paged: u64,
    /// Number of open tables whose filters are smaller in memory than on disk.
    pub filters_folded: u64,
    /// Number of open tables whose filters are not in memory.
    pub filters_left_out: u64,
    /// Whether the operating system gives huge pages to memory that requests them, if it reports
    /// the setting. Without huge pages, more reads miss the TLB.
    pub huge_pages: Option<bool>,
    /// Number of tables closed to stay within the memory budget; a read opens such a table again.
    pub tables_closed: u64,
    /// Totals of all stores that share the memory budget. With a shared budget, `block_bytes`,
    /// `spare_bytes` and `cursor_bytes` also cover all its stores.
    pub shared: Option<MemoryBudgetStats>,
}

/// Statistics of the file descriptors of tables.
#[derive(Debug, Clone, Default)]
pub struct DescriptorStats {
    /// Limit on the number of open table files; `None` without a limit.
    pub open_tables_max: Option<u64>,
    /// Number of open table files.
    pub open_tables: u64,
    /// Number of times that a closed table file was opened again.
    pub reopened: u64,
    /// Number of calls that found no free descriptor.
    pub exhaustions: u64,
    /// Reason why background work is postponed; `None` if no work is postponed.
    pub postponed_work: Option<String>,
}

/// Resources that readers keep from being freed, as far as the store knows.
#[derive(Debug, Clone, Default)]
pub struct ReaderStats {
    /// Number of open snapshots.
    pub snapshots: usize,
    /// Sequence number of the newest write that the oldest snapshot sees.
    pub oldest_snapshot: Option<u64>,
    /// Minimum age of the oldest snapshot, in microseconds, counted from the first flush,
    /// compaction or statistics call after its creation.
    pub oldest_snapshot_micros: u64,
    /// Number of cursors that read memtables or tables that were replaced since the cursors'
    /// creation.
    pub cursors_behind: usize,
    /// Minimum time for which the oldest cursor has read replaced memtables or tables, in
    /// microseconds.
    pub oldest_cursor_micros: u64,
    /// Bytes of flushed memtables that cursors keep in memory.
    pub held_memtable_bytes: u64,
    /// Number of replaced tables whose files cursors keep.
    pub held_tables: u64,
    /// Bytes of the files of replaced tables that cursors keep.
    pub held_table_bytes: u64,
    /// Number of obsolete files of any kind that are kept because another process has the store
    /// open read-only.
    pub pinned_files: u64,
    /// Bytes of the obsolete files that are kept for other processes.
    pub pinned_file_bytes: u64,
    /// Number of older versions that flushes and compactions kept, since the open, because a
    /// snapshot or an earlier reader still saw them. A version that several compactions keep counts
    /// once for each.
    pub versions_kept: u64,
    /// Bytes of the keys and values of the older versions in `versions_kept`.
    pub version_bytes_kept: u64,
}

pub(super) fn memory(store: &Store, log_bytes: u64) -> MemoryStats {
    let parts = memory_enforcement::measure(store, log_bytes);
    memory_enforcement::resize_cache(store, &parts);
    let budget = &store.budget;
    let kept = table_counts(store);
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

/// Counts the open tables and the bytes of their parts that are in memory.
fn table_counts(store: &Store) -> MemoryStats {
    let mut kept = MemoryStats::default();
    for keyspace in store.keyspaces() {
        let view = keyspace.super_version.load();
        for (_, table) in view.version.tables() {
            let Some(open) = table.opened() else { continue };
            let on_disk = FilterSelection::Plain.bytes(&table.meta);
            kept.tables_open += 1;
            kept.indexes_paged += u64::from(open.table().is_paged());
            kept.filters_left_out += u64::from(on_disk > 0 && !open.has_filter());
            let is_folded = matches!(open.keep(), FilterResidency::Plain { factor: 2.. });
            let is_folded = is_folded && open.has_filter() && open.filter_bytes() <= on_disk / 2;
            kept.filters_folded += u64::from(is_folded);
        }
    }
    kept
}

pub(super) fn descriptors(store: &Store) -> DescriptorStats {
    let [limit, open_tables, reopened, shortages] = store.context.file_cache.summary();
    DescriptorStats {
        open_tables_max: (limit < u64::MAX).then_some(limit),
        open_tables,
        reopened,
        exhaustions: shortages,
        postponed_work: store.fatal_error.postponed().map(|reason| reason.to_string()),
    }
}

pub(super) fn readers(store: &Store) -> ReaderStats {
    let now = store.options.env.clock.now();
    store.snapshots.note_time(now);
    let (snapshots, oldest_snapshot, since) = store.snapshots.summary();
    let micros = |since: std::time::Duration| now.saturating_sub(since).as_micros() as u64;
    store.context.obsolete.sweep();
    let (pinned_files, pinned_file_bytes) = store.context.obsolete.kept_totals();
    let mut stats = ReaderStats {
        pinned_files,
        pinned_file_bytes,
        snapshots,
        oldest_snapshot,
        oldest_snapshot_micros: since.map_or(0, micros),
        held_tables: store.context.retired_files.0.load(Ordering::Relaxed),
        held_table_bytes: store.context.retired_files.1.load(Ordering::Relaxed),
        ..ReaderStats::default()
    };
    for keyspace in store.keyspaces() {
        keyspace.super_version.note_time(now);
        let past = keyspace.super_version.retired_stats();
        stats.cursors_behind += past.holders;
        stats.held_memtable_bytes += past.memtable_bytes;
        for work in &keyspace.counters.levels {
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
            "memory: {:.1} of {:.1} MiB: memtables {:.1}, memtables pinned by cursors {:.1}, \
             blocks {:.1}, spare {:.1}, open tables {:.1}, log {:.1}, compactions {:.1}, cursors \
             {:.1}; {} tables open, {} indexes paged, {} filters folded, {} left out; {} tables \
             closed",
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
            writeln!(f, "memory: the system grants no huge pages; normal ones are used")?;
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
        let limit =
            self.open_tables_max.map_or("any number".to_string(), |limit| limit.to_string());
        writeln!(
            f,
            "files: {} tables open of {limit}, {} opened again, {} calls short of descriptors",
            self.open_tables, self.reopened, self.exhaustions
        )?;
        match &self.postponed_work {
            Some(reason) => writeln!(f, "files: background work is postponed: {reason}"),
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
            "readers: {} snapshots{oldest}; {} cursors of older versions, the oldest for {:.1} s; \
             they pin {:.1} MiB of memtables and {} replaced tables of {:.1} MiB; {} older \
             versions of {:.1} MiB kept for them when tables were written",
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
