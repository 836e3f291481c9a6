//! A store's statistics as JSON.

use serde_json::{Value, json};
use umbel::{
    BlobStats, DescriptorStats, ExistenceSize, ExistenceStats, KeyspaceStats, LevelStats, LogStats,
    MemoryStats, ReaderStats, Stats, VerifyReport,
};

/// Returns all statistics as JSON.
pub fn to_json(stats: &Stats) -> Value {
    json!({
        "keyspaces": stats.keyspaces.iter().map(keyspace_json).collect::<Vec<_>>(),
        "cache_hits": stats.cache_hits,
        "cache_misses": stats.cache_misses,
        "cache_carried": stats.cache_warmed,
        "cache_evictions": stats.cache_evictions,
        "cache_bytes": stats.cache_bytes,
        "cache_capacity": stats.cache_capacity,
        "stalls": stats.stalls,
        "stall_micros": stats.stall_micros,
        "table_bytes_direct": stats.table_bytes_direct,
        "table_bytes_buffered": stats.table_bytes_buffered,
        "commits": stats.commits,
        "commit_groups": stats.commit_groups,
        "log_bytes_written": stats.log_bytes_written,
        "log_bytes_live": stats.log_bytes_live,
        "log_syncs": stats.log_syncs,
        "log": wal_json(&stats.log),
        "snapshots": stats.snapshots,
        "memory": memory_json(&stats.memory),
        "descriptors": descriptors_json(&stats.descriptors),
        "readers": readers_json(&stats.readers),
        "blobs": blobs_json(&stats.blobs),
        "last_sequence": stats.last_sequence,
        "write_amplification": stats.write_amplification,
        "read_only_reason": stats.read_only_reason,
    })
}

fn wal_json(log: &LogStats) -> Value {
    json!({
        "is_mapped": log.is_mapped,
        "why_unmapped": log.why_unmapped,
        "spare_bytes": log.spare_bytes,
        "segments_made": log.segments_made,
        "segments_reused": log.segments_reused,
        "segments_awaited": log.segments_awaited,
    })
}

fn memory_json(memory: &MemoryStats) -> Value {
    json!({
        "budget_bytes": memory.budget_bytes,
        "machine_bytes": memory.machine_bytes,
        "exceeds_machine": memory.exceeds_machine,
        "held_bytes": memory.held_bytes,
        "memtable_bytes": memory.memtable_bytes,
        "memtable_held_bytes": memory.memtable_held_bytes,
        "cursor_bytes": memory.cursor_bytes,
        "cursors_park": memory.cursors_park,
        "block_bytes": memory.block_bytes,
        "spare_bytes": memory.spare_bytes,
        "table_bytes": memory.table_bytes,
        "log_bytes": memory.log_bytes,
        "compaction_bytes": memory.compaction_bytes,
        "tables_open": memory.tables_open,
        "indexes_paged": memory.indexes_paged,
        "filters_folded": memory.filters_folded,
        "filters_left_out": memory.filters_left_out,
        "huge_pages": memory.huge_pages,
        "tables_closed": memory.tables_closed,
    })
}

fn descriptors_json(descriptors: &DescriptorStats) -> Value {
    json!({
        "open_tables_max": descriptors.open_tables_max,
        "open_tables": descriptors.open_tables,
        "reopened": descriptors.reopened,
        "shortages": descriptors.exhaustions,
        "work_put_off": descriptors.postponed_work,
    })
}

fn readers_json(readers: &ReaderStats) -> Value {
    json!({
        "snapshots": readers.snapshots,
        "oldest_snapshot": readers.oldest_snapshot,
        "oldest_snapshot_micros": readers.oldest_snapshot_micros,
        "cursors_behind": readers.cursors_behind,
        "oldest_cursor_micros": readers.oldest_cursor_micros,
        "held_memtable_bytes": readers.held_memtable_bytes,
        "held_tables": readers.held_tables,
        "held_table_bytes": readers.held_table_bytes,
        "pinned_files": readers.pinned_files,
        "pinned_file_bytes": readers.pinned_file_bytes,
        "versions_kept": readers.versions_kept,
        "version_bytes_kept": readers.version_bytes_kept,
    })
}

fn blobs_json(blobs: &BlobStats) -> Value {
    json!({
        "files": blobs.files,
        "bytes": blobs.bytes,
        "held_files": blobs.held_files,
        "held_bytes": blobs.held_bytes,
        "bytes_written": blobs.bytes_written,
    })
}

fn keyspace_json(keyspace: &KeyspaceStats) -> Value {
    json!({
        "name": keyspace.name,
        "user_bytes_written": keyspace.user_bytes_written,
        "memtable_bytes": keyspace.memtable_bytes,
        "memtable_entries": keyspace.memtable_entries,
        "frozen_memtables": keyspace.frozen_memtables,
        "blobs": keyspace.blobs,
        "blob_bytes": keyspace.blob_bytes,
        "hidden_entries_passed": keyspace.hidden_entries_passed,
        "skip_spans": keyspace.skip_spans,
        "memtable_negatives": keyspace.memtable_negatives,
        "gets": keyspace.gets,
        "existence_filter": existence_size_json(keyspace.existence_filter),
        "existence": keyspace.existence.as_ref().map(existence_json),
        "existence_is_asked": keyspace.existence_is_probed,
        "existence_problem": keyspace.existence_problem,
        "prefix_probes": keyspace.prefix_probes,
        "prefix_negatives": keyspace.prefix_negatives,
        "write_amplification": keyspace.write_amplification,
        "levels": keyspace.levels.iter().map(level_json).collect::<Vec<_>>(),
    })
}

fn level_json(level: &LevelStats) -> Value {
    json!({
        "level": level.level,
        "tables": level.tables,
        "bytes": level.bytes,
        "target_bytes": level.target_bytes,
        "entries": level.entries,
        "deletes": level.deletes,
        "range_tombstones": level.range_tombstones,
        "filter_bytes": level.filter_bytes,
        "filter_bytes_in_memory": level.filter_bytes_in_memory,
        "filter_probes": level.filter_probes,
        "filter_true_negatives": level.filter_true_negatives,
        "filter_false_positives": level.filter_false_positives,
        "measured_rate": level.measured_rate,
        "designed_rate": level.designed_rate,
        "table_reads": level.table_reads,
        "false_reads": level.false_reads,
        "bytes_read_compaction": level.bytes_read_compaction,
        "bytes_written": level.bytes_written,
        "bytes_moved": level.bytes_moved,
        "compactions": level.compactions,
        "compaction_micros": level.compaction_micros,
        "compaction_entries_in": level.compaction_entries_in,
        "compaction_entries_dropped": level.compaction_entries_dropped,
        "compaction_versions_kept": level.compaction_versions_kept,
        "compaction_version_bytes_kept": level.compaction_version_bytes_kept,
    })
}

/// Report of a verification; `log_entries` is the number of WAL entries that are in no table yet.
pub fn verify_to_json(report: &VerifyReport, log_entries: u64, seconds: f64) -> Value {
    json!({
        "whole": report.damage.is_empty(),
        "damage": report.damage,
        "tables": report.tables,
        "entries": report.entries,
        "log_entries": log_entries,
        "bytes": report.bytes,
        "blobs": report.blobs,
        "blob_bytes": report.blob_bytes,
        "seconds": seconds,
    })
}

/// Returns the configured size of an existence filter as JSON.
pub fn existence_size_json(size: ExistenceSize) -> Value {
    match size {
        ExistenceSize::Off => json!("off"),
        ExistenceSize::Growing { .. } => json!("grow"),
        ExistenceSize::Fixed { bytes } => json!(bytes),
    }
}

/// Statistics of an existence filter.
pub fn existence_json(stats: &ExistenceStats) -> Value {
    json!({
        "state": stats.state(),
        "lost": stats.lost,
        "is_answering": stats.is_answering,
        "is_filling": stats.is_filling,
        "items": stats.items,
        "designed_items": stats.designed_items,
        "designed_items_next": stats.designed_items_next,
        "memory_bytes": stats.memory_bytes,
        "fill": stats.fill,
        "designed_rate": stats.designed_rate,
        "estimated_rate": stats.estimated_rate,
        "measured_rate": stats.measured_rate,
        "denied": stats.denied,
        "maybe": stats.maybe,
        "in_vain": stats.false_positives,
        "covered": stats.covered,
        "lag_items": stats.lag_items,
        "flushes": stats.flushes,
        "generations": stats.generations,
        "bytes_written": stats.bytes_written,
        "unread_pages": stats.unread_pages,
        "damaged_lines": stats.damaged_lines,
        "healed_lines": stats.healed_lines,
        "damaged_journals": stats.damaged_journals,
        "growths": stats.growths,
        "rebuilds": stats.rebuilds,
    })
}
