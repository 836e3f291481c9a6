//! The store's statistics as JSON.

use serde_json::{Value, json};
use umbel::{KeyspaceStats, LevelStats, Stats, VerifyReport};

/// All statistics.
pub fn to_json(stats: &Stats) -> Value {
    json!({
        "keyspaces": stats.keyspaces.iter().map(keyspace).collect::<Vec<_>>(),
        "cache_hits": stats.cache_hits,
        "cache_misses": stats.cache_misses,
        "cache_evictions": stats.cache_evictions,
        "cache_bytes": stats.cache_bytes,
        "cache_capacity": stats.cache_capacity,
        "stalls": stats.stalls,
        "stall_micros": stats.stall_micros,
        "commits": stats.commits,
        "commit_groups": stats.commit_groups,
        "log_bytes_written": stats.log_bytes_written,
        "log_bytes_live": stats.log_bytes_live,
        "log_syncs": stats.log_syncs,
        "snapshots": stats.snapshots,
        "last_sequence": stats.last_sequence,
        "write_amplification": stats.write_amplification,
        "read_only_reason": stats.read_only_reason,
    })
}

fn keyspace(keyspace: &KeyspaceStats) -> Value {
    json!({
        "name": keyspace.name,
        "user_bytes_written": keyspace.user_bytes_written,
        "memtable_bytes": keyspace.memtable_bytes,
        "memtable_entries": keyspace.memtable_entries,
        "frozen_memtables": keyspace.frozen_memtables,
        "memtable_negatives": keyspace.memtable_negatives,
        "gets": keyspace.gets,
        "write_amplification": keyspace.write_amplification,
        "levels": keyspace.levels.iter().map(level).collect::<Vec<_>>(),
    })
}

fn level(level: &LevelStats) -> Value {
    json!({
        "level": level.level,
        "tables": level.tables,
        "bytes": level.bytes,
        "target_bytes": level.target_bytes,
        "entries": level.entries,
        "deletes": level.deletes,
        "range_tombstones": level.range_tombstones,
        "filter_bytes": level.filter_bytes,
        "filter_probes": level.filter_probes,
        "filter_true_negatives": level.filter_true_negatives,
        "filter_false_positives": level.filter_false_positives,
        "measured_rate": level.measured_rate,
        "designed_rate": level.designed_rate,
        "table_reads": level.table_reads,
        "bytes_read_compaction": level.bytes_read_compaction,
        "bytes_written": level.bytes_written,
        "bytes_moved": level.bytes_moved,
        "compactions": level.compactions,
        "compaction_micros": level.compaction_micros,
        "compaction_entries_in": level.compaction_entries_in,
        "compaction_entries_dropped": level.compaction_entries_dropped,
    })
}

/// What a verification found; `log_entries` are the entries that are in no table yet.
pub fn verify_to_json(report: &VerifyReport, log_entries: u64, seconds: f64) -> Value {
    json!({
        "whole": report.damage.is_empty(),
        "damage": report.damage,
        "tables": report.tables,
        "entries": report.entries,
        "log_entries": log_entries,
        "bytes": report.bytes,
        "seconds": seconds,
    })
}
