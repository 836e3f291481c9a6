//! Writes the output of a flush or compaction to new tables.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use umbel_base::{Cursor, RangeTombstoneRef, Result, SequenceNumber};
use umbel_table::{FilterChoice, TableBuilder, TableMeta, TableOptions};

use crate::compaction::compaction_stream::{CompactionStream, StreamCounts};
use crate::compaction::retained_versions::RetainedVersions;
use crate::compaction::surviving_tombstones::SurvivingTombstones;
use crate::fs::filenames;
use crate::options::{HashKind, KeyspaceOptions};
use crate::state::store::Store;
use crate::store_budget::filter_selection::FilterSelection;
use crate::thread_counters::add;
use crate::version::LiveTable;

/// Minimum size of a table, as a number of keys of the length of its last key. The bounds of a
/// table stay in memory. Smaller tables of long keys would keep a large part of their bytes in
/// memory as bounds.
const FILTER_KEYS_MIN: u64 = 64;

/// Properties of the tables that a flush or compaction writes.
#[derive(Debug)]
pub struct TablePlan {
    /// The level to which the tables are added.
    pub level: usize,
    /// The options of the tables' keyspace.
    pub options: Arc<KeyspaceOptions>,
    /// The second filter that the tables get; `None` if they get none.
    pub second_filter: Option<FilterChoice>,
    /// The filter of the tables that is kept in memory.
    pub selection: FilterSelection,
    /// Whether a table ends when it reaches the size in the options. For level 0 all entries go to
    /// one table.
    pub split: bool,
    /// Approximate maximum bytes of a table.
    pub expected_bytes: u64,
    /// Least key that the output can hold; `None` for no limit.
    pub lower: Option<Vec<u8>>,
    /// Bound before which the output's keys end; `None` for no limit.
    pub upper: Option<Vec<u8>>,
    /// Sequence numbers of the snapshots, for which older versions are kept.
    pub snapshots: Vec<SequenceNumber>,
}

/// Tables that are written but not yet part of a version. Dropping the output removes their files.
#[derive(Debug)]
pub struct TableOutput {
    store: Arc<Store>,
    /// Metadata of the written tables, in key order.
    pub metas: Vec<TableMeta>,
    /// For each table, the ranges of snapshots for which it holds many older versions.
    retained_for: Vec<Vec<(SequenceNumber, SequenceNumber)>>,
    level: usize,
    /// Hash function of the keys.
    hash: HashKind,
    selection: FilterSelection,
    /// Counts of the entries by whether and why they were dropped.
    pub counts: StreamCounts,
    /// Whether `should_preempt` ended the writing before the last entry.
    pub is_abandoned: bool,
    unfinished: Option<u64>,
    keeps_files: bool,
}

impl TableOutput {
    fn new(store: &Arc<Store>, plan: &TablePlan) -> TableOutput {
        let counts = StreamCounts::default();
        let (store, level, choice) = (Arc::clone(store), plan.level, plan.selection);
        let hash = plan.options.hash;
        let (metas, kept_for, is_given_up, unfinished, adopted) = Default::default();
        TableOutput {
            store,
            metas,
            retained_for: kept_for,
            level,
            hash,
            selection: choice,
            counts,
            is_abandoned: is_given_up,
            unfinished,
            keeps_files: adopted,
        }
    }

    /// Syncs the names of the tables, and opens every table, which checks that it can be read back.
    /// The caller removes the tables that do not become part of a version.
    pub fn open_tables(&self) -> Result<Vec<Arc<LiveTable>>> {
        let folder = &self.store.folder;
        self.store.options.env.files.sync_dir(folder)?;
        let open = |(meta, kept_for): (&TableMeta, &Vec<(SequenceNumber, SequenceNumber)>)| {
            let context = Arc::clone(&self.store.context);
            let table = LiveTable::new(meta.clone(), self.level, self.hash, context);
            let table = Arc::new(table.retaining_for(kept_for.clone()));
            table.set_selection(self.selection);
            table.reader()?;
            Ok(table)
        };
        self.metas.iter().zip(&self.retained_for).map(open).collect()
    }

    /// Keeps the tables' files, since a durable manifest names them or possibly names them.
    pub fn keep_files(&mut self) {
        self.keeps_files = true;
    }

    fn begin(&mut self, plan: &TablePlan) -> Result<TableBuilder> {
        let id = self.store.ids.fetch_add(1, Ordering::Relaxed);
        let path = filenames::table(&self.store.folder, id);
        let file = self.store.options.env.files.create(&path)?;
        self.unfinished = Some(id);
        let filter = plan.options.level_filter(plan.level);
        let options = TableOptions {
            block_bytes: plan.options.block_bytes,
            compression: plan.options.compression.levels[plan.level],
            bloom_bits: filter.bits_per_key,
            filter_kind: filter.kind,
            filter_probes: filter.probes,
            second_filter: plan.second_filter,
        };
        let hasher = *self.store.context.hashers.of(self.hash);
        let pieces = write_chunk_bytes(self.store.budget.sizes.readahead);
        let builder = TableBuilder::new(file, id, hasher, options);
        let builder = builder.with_prefix(plan.options.prefix.as_ref());
        Ok(builder.with_chunk_size(pieces, plan.expected_bytes, uses_direct_writes(&self.store)))
    }

    fn end<'a>(
        &mut self,
        mut builder: TableBuilder,
        older: &mut RetainedVersions<'_>,
        tombstones: impl Iterator<Item = RangeTombstoneRef<'a>>,
    ) -> Result<()> {
        tombstones.for_each(|tombstone| builder.add_tombstone(tombstone));
        let direct = builder.is_direct();
        let meta = builder.finish()?;
        let counters = &self.store.counters;
        let written = if direct { &counters.bytes_direct } else { &counters.bytes_buffered };
        add(written, meta.file_bytes);
        self.retained_for.push(older.take_ranges(meta.entries / RETAINED_SHARE));
        self.metas.push(meta);
        self.unfinished = None;
        Ok(())
    }
}

impl Drop for TableOutput {
    fn drop(&mut self) {
        if self.keeps_files {
            return;
        }
        for id in self.metas.iter().map(|meta| meta.id).chain(self.unfinished) {
            // A file that cannot be removed now is removed at the next open.
            let path = filenames::table(&self.store.folder, id);
            let _ = self.store.options.env.files.remove_file(&path);
        }
    }
}

/// Smallest and largest number of bytes of one write to a table's file.
const WRITE_CHUNK_BYTES: (u64, u64) = (256 << 10, 1 << 20);

/// Returns the bytes of one write to a table's file, for a read-ahead of `ahead` bytes.
pub fn write_chunk_bytes(ahead: u64) -> usize {
    ahead.saturating_mul(4).clamp(WRITE_CHUNK_BYTES.0, WRITE_CHUNK_BYTES.1) as usize
}

/// Whether flushes and compactions write tables past the page cache.
fn uses_direct_writes(store: &Store) -> bool {
    store.options.direct_writes.unwrap_or_else(|| {
        let sizes = &store.budget.sizes;
        let cached = sizes.machine.unwrap_or(sizes.total.saturating_mul(4)) / 4;
        store.table_file_bytes() > cached
    })
}

/// A table is rewritten after the drop of snapshots for which alone it holds many older versions:
/// more than one part in this number of its entries.
const RETAINED_SHARE: u64 = 12;

/// Number of entries between two checks for preemption.
const PREEMPTION_CHECK_ENTRIES: u32 = 1024;

/// Writes the entries of `stream`, and `tombstones`, to tables, until the stream ends or
/// `should_preempt` returns `true`.
///
/// INVARIANT: all versions of a key are in one table, and each range tombstone is cut to the keys
/// of its table.
pub fn write_tables<C: Cursor, B: FnMut(&[u8]) -> bool>(
    store: &Arc<Store>,
    plan: &TablePlan,
    mut stream: CompactionStream<C, B>,
    tombstones: &SurvivingTombstones<'_>,
    should_preempt: impl Fn() -> bool,
) -> Result<TableOutput> {
    let mut output = TableOutput::new(store, plan);
    let (mut entries_read, mut older) = (0u32, RetainedVersions::new(&plan.snapshots));
    let mut builder: Option<TableBuilder> = None;
    let mut lower = plan.lower.clone();
    while let Some(entry) = stream.next_entry()? {
        entries_read += 1;
        if entries_read % PREEMPTION_CHECK_ENTRIES == 0 && should_preempt() {
            output.is_abandoned = true;
            return Ok(output);
        }
        let full = builder.as_ref().is_some_and(|builder| {
            let table_bytes_max =
                plan.options.table_bytes.max(FILTER_KEYS_MIN * entry.key.len() as u64);
            plan.split && builder.estimated_bytes() >= table_bytes_max && !entry.repeats
        });
        if full && let Some(done) = builder.take() {
            let clipped = tombstones.within(lower.as_deref(), Some(entry.key));
            output.end(done, &mut older, clipped)?;
            lower = Some(entry.key.to_vec());
        }
        older.note(entry.sequence, entry.repeats);
        let builder = match &mut builder {
            Some(builder) => builder,
            none => none.insert(output.begin(plan)?),
        };
        builder.add(entry.key, entry.sequence, entry.kind, entry.value)?;
    }
    let mut clipped = tombstones.within(lower.as_deref(), plan.upper.as_deref()).peekable();
    if builder.is_none() && clipped.peek().is_some() {
        builder = Some(output.begin(plan)?);
    }
    if let Some(builder) = builder {
        output.end(builder, &mut older, clipped)?;
    }
    output.counts = stream.counts();
    Ok(output)
}
