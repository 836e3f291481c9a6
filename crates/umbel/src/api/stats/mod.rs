//! Statistics of a store, as numbers and as text.

mod blob_stats;
mod directory_stats;
mod existence_stats;
mod resource_stats;
mod wal_stats;

use std::fmt;

use umbel_base::limits::LEVELS;
use umbel_existence::ExistenceStats;

use crate::compaction::picker;
use crate::maintenance::compaction_jobs::picker_input;
use crate::options::ExistenceSize;
use crate::state::keyspace_state::KeyspaceState;
use crate::state::store::Store;
use crate::thread_counters::{ReadEvent, read};

pub use blob_stats::BlobStats;
pub use directory_stats::DirectoryStats;
pub use resource_stats::{DescriptorStats, MemoryStats, ReaderStats};
pub use wal_stats::LogStats;

/// Statistics of a store.
#[derive(Debug, Clone, Default)]
pub struct Stats {
    /// Statistics of the store's keyspaces.
    pub keyspaces: Vec<KeyspaceStats>,
    /// Number of gets that searched a table and found the block in the block cache. Scans are not
    /// counted.
    pub cache_hits: u64,
    /// Number of blocks that gets and scans loaded into the block cache. The block cache's
    /// statistics cover all stores that share a memory budget.
    pub cache_misses: u64,
    /// Number of blocks that compactions loaded into the block cache, to replace cached blocks of
    /// their inputs.
    pub cache_warmed: u64,
    /// Number of blocks evicted from the block cache.
    pub cache_evictions: u64,
    /// Bytes of blocks in the block cache.
    pub cache_bytes: u64,
    /// Capacity of the block cache, in bytes.
    pub cache_capacity: u64,
    /// Number of write stalls.
    pub stalls: u64,
    /// Time that writers stalled, in microseconds.
    pub stall_micros: u64,
    /// Bytes of tables that flushes and compactions wrote past the page cache. Tables that are not
    /// small are written so, if the file system allows it.
    pub table_bytes_direct: u64,
    /// Bytes of tables that flushes and compactions wrote through the page cache.
    pub table_bytes_buffered: u64,
    /// Number of committed batches and single writes.
    pub commits: u64,
    /// Number of group commits.
    pub commit_groups: u64,
    /// Bytes of records written to the WAL since the store was opened.
    pub log_bytes_written: u64,
    /// Number of syncs of the WAL.
    pub log_syncs: u64,
    /// Bytes of the WAL segments that are still needed; of the current segment only the written
    /// part counts.
    pub log_bytes_live: u64,
    /// Statistics of the WAL.
    pub log: LogStats,
    /// Number of open snapshots.
    pub snapshots: usize,
    /// Memory of the store, compared with its memory budget.
    pub memory: MemoryStats,
    /// Statistics of file descriptors.
    pub descriptors: DescriptorStats,
    /// Resources that readers keep from being freed.
    pub readers: ReaderStats,
    /// Statistics of the files of long values.
    pub blobs: BlobStats,
    /// Location of the store's directory.
    pub directory: DirectoryStats,
    /// Sequence number of the store's newest write.
    pub last_sequence: u64,
    /// Bytes written to tables, files of long values and the WAL for each byte of keys and values
    /// that the caller wrote.
    pub write_amplification: f64,
    /// Reason why the store refuses writes; `None` if it accepts writes.
    pub read_only_reason: Option<String>,
}

/// Statistics of a keyspace.
#[derive(Debug, Clone, Default)]
pub struct KeyspaceStats {
    /// Name of the keyspace.
    pub name: String,
    /// Bytes of keys and values that the caller wrote since the store was opened.
    pub user_bytes_written: u64,
    /// Bytes of the keyspace's memtables.
    pub memtable_bytes: u64,
    /// Number of entries in the keyspace's memtables.
    pub memtable_entries: u64,
    /// Number of frozen memtables that wait for a flush.
    pub frozen_memtables: usize,
    /// Number of hidden entries, in runs of at least four, that cursors stepped through since the
    /// store was opened. Cursors skip most of a long run that another cursor passed before.
    pub hidden_entries_passed: u64,
    /// Number of key ranges known to hold no visible key, which cursors skip.
    pub skip_spans: usize,
    /// Number of memtable lookups that the memtable's filter made unnecessary.
    pub memtable_negatives: u64,
    /// Number of probes of tables' prefix filters by scans.
    pub prefix_probes: u64,
    /// Number of prefix filter probes that excluded a table from a scan.
    pub prefix_negatives: u64,
    /// Number of gets since the store was opened.
    pub gets: u64,
    /// Size of the existence filter, as the keyspace's options set it.
    pub existence_filter: ExistenceSize,
    /// Statistics of the keyspace's existence filter, if it has one. In a store opened read-only
    /// they come from the files.
    pub existence: Option<ExistenceStats>,
    /// Whether gets probe the existence filter; `false` in a store opened read-only.
    pub existence_is_probed: bool,
    /// Last error of writing, reading or filling the existence filter; `None` again after a
    /// success.
    pub existence_problem: Option<String>,
    /// Statistics of the keyspace's levels, level 0 first.
    pub levels: Vec<LevelStats>,
    /// Bytes written to tables for each byte of keys and values that the caller wrote.
    pub write_amplification: f64,
    /// Number of files of long values that the keyspace's memtables and tables reference.
    pub blobs: u64,
    /// Bytes of the files of long values that the keyspace references.
    pub blob_bytes: u64,
}

/// Statistics of a level.
#[derive(Debug, Clone, Default)]
pub struct LevelStats {
    /// Number of the level.
    pub level: usize,
    /// Number of tables in the level.
    pub tables: u64,
    /// Bytes of the level's table files.
    pub bytes: u64,
    /// Size in bytes from which on compaction moves data out of the level. 0 for level 0, where the
    /// number of tables decides, and for levels that stay empty.
    pub target_bytes: u64,
    /// Number of entries in the level's tables, deletes and older versions included.
    pub entries: u64,
    /// Number of deletes in the level's tables.
    pub deletes: u64,
    /// Number of range tombstones in the level's tables.
    pub range_tombstones: u64,
    /// Bytes of the level's filters in the table files.
    pub filter_bytes: u64,
    /// Bytes of the level's filters in memory.
    pub filter_bytes_in_memory: u64,
    /// Number of probes of the level's filters.
    pub filter_probes: u64,
    /// Number of filter probes that excluded the key, each of which saved a search of a table.
    pub filter_true_negatives: u64,
    /// Number of filter probes that passed a key that the table lacks.
    pub filter_false_positives: u64,
    /// Number of searches of a table of the level for a key.
    pub table_reads: u64,
    /// Number of searches of a table that lacks the key, whether or not the table has a filter.
    pub false_reads: u64,
    /// Designed false-positive rate of the filters of the level's open tables; 1 without filters.
    pub designed_rate: f64,
    /// Measured false-positive rate of the level's filters; `None` before the first miss.
    pub measured_rate: Option<f64>,
    /// Bytes of tables that compactions into the level read.
    pub bytes_read_compaction: u64,
    /// Bytes written into the level by flushes and compactions.
    pub bytes_written: u64,
    /// Bytes moved into the level without being rewritten.
    pub bytes_moved: u64,
    /// Number of compactions into the level; for level 0, number of flushes.
    pub compactions: u64,
    /// Time of the compactions into the level, in microseconds.
    pub compaction_micros: u64,
    /// Number of entries that the compactions into the level read.
    pub compaction_entries_in: u64,
    /// Number of entries that the compactions into the level dropped.
    pub compaction_entries_dropped: u64,
    /// Number of older versions that compactions into the level kept only because a snapshot or an
    /// earlier reader still sees them.
    pub compaction_versions_kept: u64,
    /// Bytes of the keys and values of the older versions in `compaction_versions_kept`.
    pub compaction_version_bytes_kept: u64,
}

/// Collects the statistics of a store.
pub fn of_store(store: &Store) -> Stats {
    let keyspaces = store.keyspaces();
    // Loads before searches, because a get counts its search first.
    let loads: u64 = keyspaces.iter().map(|keyspace| keyspace.reads.get_loads()).sum();
    let keyspaces: Vec<_> = keyspaces.iter().map(|keyspace| of_keyspace(keyspace)).collect();
    let (cache_loads, cache_evictions) = store.cache.turnover();
    let reads: u64 = keyspaces.iter().flat_map(|k| &k.levels).map(|level| level.table_reads).sum();
    let counters = &store.counters;
    let cache_carried = read(&counters.blocks_warmed);
    let (last_sequence, log_bytes_live, log_bytes_mapped, log) = {
        let state = store.commit_lock();
        let wal = &state.wal;
        (state.last_sequence, wal.live_bytes(), wal.mapped_bytes(), wal_stats::of_wal(wal))
    };
    let log_bytes_written = read(&counters.log_bytes);
    let tables: u64 = keyspaces.iter().flat_map(|k| &k.levels).map(|l| l.bytes_written).sum();
    let user: u64 = keyspaces.iter().map(|k| k.user_bytes_written).sum();
    let blobs = blob_stats::of_store(store, &keyspaces);
    let written = tables + log_bytes_written + blobs.bytes_written;
    Stats {
        keyspaces,
        cache_hits: reads.saturating_sub(loads),
        cache_misses: cache_loads.saturating_sub(cache_carried),
        cache_warmed: cache_carried,
        cache_evictions,
        cache_bytes: store.cache.held_bytes(),
        cache_capacity: store.cache.capacity(),
        stalls: read(&counters.stalls),
        stall_micros: read(&counters.stall_micros),
        table_bytes_direct: read(&counters.bytes_direct),
        table_bytes_buffered: read(&counters.bytes_buffered),
        commits: read(&counters.commits),
        commit_groups: read(&counters.commit_groups),
        log_bytes_written,
        log_syncs: read(&counters.log_syncs),
        log_bytes_live,
        log,
        snapshots: store.snapshots.summary().0,
        memory: resource_stats::memory(store, log_bytes_mapped),
        descriptors: resource_stats::descriptors(store),
        readers: resource_stats::readers(store),
        blobs,
        last_sequence,
        write_amplification: ratio(written, user),
        directory: DirectoryStats::of_store(store),
        read_only_reason: store.fatal_error.check().err().map(|error| error.to_string()),
    }
}

/// Collects the statistics of a keyspace.
pub fn of_keyspace(keyspace: &KeyspaceState) -> KeyspaceStats {
    let view = keyspace.super_version.load();
    let (options, cursors) = (keyspace.options(), keyspace.pick_cursors());
    let targets = picker::level_targets(&picker_input::build(&view.version, &options, &cursors));
    let level = |level| LevelStats { target_bytes: targets[level], ..of_level(keyspace, level) };
    let levels: Vec<_> = (0..LEVELS).map(level).collect();
    let user_bytes_written = read(&keyspace.counters.user_bytes);
    let buffers = std::iter::once(&view.active).chain(&view.frozen);
    let blobs = blob_stats::of_view(&view);
    KeyspaceStats {
        name: keyspace.name.clone(),
        user_bytes_written,
        memtable_bytes: keyspace.memtable_bytes(),
        memtable_entries: buffers.map(|buffer| buffer.memtable.entries()).sum(),
        frozen_memtables: view.frozen.len(),
        hidden_entries_passed: view.skip_spans.hidden_passed(),
        skip_spans: view.skip_spans.counts().0,
        memtable_negatives: keyspace.reads.memtable_negatives(),
        prefix_probes: read(&keyspace.prefixes.probes),
        prefix_negatives: read(&keyspace.prefixes.negatives),
        gets: keyspace.reads.gets(),
        existence_filter: keyspace.configured_options().existence_filter,
        existence: keyspace.existence.stats(),
        existence_is_probed: keyspace.existence.is_on(),
        existence_problem: keyspace.existence.problem(),
        write_amplification: ratio(
            levels.iter().map(|l| l.bytes_written).sum(),
            user_bytes_written,
        ),
        levels,
        blobs: blobs.files,
        blob_bytes: blobs.bytes,
    }
}

fn of_level(keyspace: &KeyspaceState, level: usize) -> LevelStats {
    let view = keyspace.super_version.load();
    let tables = &view.version.levels[level];
    let reads = &keyspace.reads;
    let work = &keyspace.counters.levels[level];
    let filter_true_negatives = reads.sum(level, ReadEvent::FilterNegative);
    let filter_false_positives = reads.sum(level, ReadEvent::FilterFalsePositive);
    let misses = filter_true_negatives + filter_false_positives;
    // Keys spread over tables in proportion to their entries, so the rates are weighted by them.
    let (mut weighed, mut weight) = (0.0, 0.0);
    for table in tables {
        if let Some(reader) = table.opened() {
            let entries = table.meta.entries as f64;
            weighed += entries * reader.designed_rate();
            weight += entries;
        }
    }
    let opened = tables.iter().filter_map(|table| table.opened());
    LevelStats {
        level,
        tables: tables.len() as u64,
        target_bytes: 0,
        bytes: tables.iter().map(|t| t.meta.file_bytes).sum(),
        entries: tables.iter().map(|t| t.meta.entries).sum(),
        deletes: tables.iter().map(|t| t.meta.deletes).sum(),
        range_tombstones: tables.iter().map(|t| t.meta.range_tombstones).sum(),
        filter_bytes: tables.iter().map(|t| t.meta.filter_bytes).sum(),
        filter_bytes_in_memory: opened.map(|open| open.filter_bytes()).sum(),
        filter_probes: reads.sum(level, ReadEvent::FilterProbe),
        filter_true_negatives,
        filter_false_positives,
        table_reads: reads.sum(level, ReadEvent::TableRead),
        false_reads: reads.sum(level, ReadEvent::FalseRead),
        designed_rate: if weight > 0.0 { weighed / weight } else { 1.0 },
        measured_rate: (misses > 0).then(|| filter_false_positives as f64 / misses as f64),
        bytes_read_compaction: read(&work.bytes_read),
        bytes_written: read(&work.bytes_written),
        bytes_moved: read(&work.bytes_moved),
        compactions: read(&work.jobs),
        compaction_micros: read(&work.micros),
        compaction_entries_in: read(&work.entries_in),
        compaction_entries_dropped: read(&work.entries_dropped),
        compaction_versions_kept: read(&work.versions_kept),
        compaction_version_bytes_kept: read(&work.version_bytes_kept),
    }
}

fn ratio(part: u64, total: u64) -> f64 {
    if total == 0 { 0.0 } else { part as f64 / total as f64 }
}

const MEBIBYTE: f64 = 1_048_576.0;

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for keyspace in &self.keyspaces {
            write!(f, "{keyspace}")?;
        }
        writeln!(
            f,
            "cache: {:.1} of {:.1} MiB, {} hits, {} misses, {} warmed by compactions, {} evictions",
            self.cache_bytes as f64 / MEBIBYTE,
            self.cache_capacity as f64 / MEBIBYTE,
            self.cache_hits,
            self.cache_misses,
            self.cache_warmed,
            self.cache_evictions
        )?;
        writeln!(
            f,
            "writes: {} commits in {} groups, {:.1} MiB of log, {} syncs, {} stalls of {:.3} s \
             together, write amplification {:.2}",
            self.commits,
            self.commit_groups,
            self.log_bytes_written as f64 / MEBIBYTE,
            self.log_syncs,
            self.stalls,
            self.stall_micros as f64 / 1e6,
            self.write_amplification
        )?;
        write!(f, "{}{}{}", self.log, self.memory, self.descriptors)?;
        write!(f, "{}{}{}", self.readers, self.blobs, self.directory)?;
        if let Some(reason) = &self.read_only_reason {
            writeln!(f, "read-only: {reason}")?;
        }
        Ok(())
    }
}

impl fmt::Display for KeyspaceStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "keyspace '{}': {} entries in {:.1} MiB of memtables, {} gets, write amplification \
             {:.2}",
            self.name,
            self.memtable_entries,
            self.memtable_bytes as f64 / MEBIBYTE,
            self.gets,
            self.write_amplification
        )?;
        writeln!(
            f,
            "level tables       MiB      entries   filter MiB       probes    negatives \
             false pos.  measured  designed  compactions"
        )?;
        for level in self.levels.iter().filter(|level| level.tables > 0 || level.compactions > 0) {
            let known = level.designed_rate < 1.0 || level.filter_bytes == 0;
            let designed = match known {
                true => format!("{:.4}%", level.designed_rate * 100.0),
                false => "-".into(),
            };
            let measured = level.measured_rate.map_or("-".into(), |r| format!("{:.4}%", r * 100.0));
            writeln!(
                f,
                "{:>5} {:>6} {:>9.1} {:>12} {:>12.2} {:>12} {:>12} {:>10} {:>9} {:>9} {:>12}",
                level.level,
                level.tables,
                level.bytes as f64 / MEBIBYTE,
                level.entries,
                level.filter_bytes as f64 / MEBIBYTE,
                level.filter_probes,
                level.filter_true_negatives,
                level.filter_false_positives,
                measured,
                designed,
                level.compactions
            )?;
        }
        existence_stats::write(f, self)
    }
}
