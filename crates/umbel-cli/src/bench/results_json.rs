//! The results as one JSON object.

use serde_json::{Value, json};

use super::bench_settings::Settings;
use crate::bench::filter_summary::{FilterTotals, LevelFilterTotals};
use crate::bench::thread_stats::{BenchmarkTotals, OperationLatency};
use crate::stats_json;

/// JSON of one run of a benchmark.
pub fn result(name: &str, counted: &BenchmarkTotals) -> Value {
    json!({
        "name": name,
        "operations": counted.operations(),
        "seconds": counted.elapsed(),
        "micros_per_op": counted.micros_per_operation(),
        "ops_per_second": counted.operations_per_second(),
        "bytes": counted.bytes,
        "mb_per_second": counted.megabytes_per_second(),
        "asked": counted.lookup_count,
        "found": counted.found,
        "message": counted.message.trim_end(),
        "latencies": counted.latencies.iter().map(latency).collect::<Vec<_>>(),
    })
}

/// JSON of a benchmark that is skipped because it needs a fresh store but must not create one.
pub fn skipped(name: &str) -> Value {
    json!({ "name": name, "skipped": "--use_existing_db is true" })
}

fn latency(latency: &OperationLatency) -> Value {
    let nanos = &latency.nanos;
    json!({
        "operation": latency.name,
        "count": nanos.count(),
        "average_ns": nanos.average(),
        "min_ns": nanos.min(),
        "p50_ns": nanos.percentile(50.0),
        "p75_ns": nanos.percentile(75.0),
        "p99_ns": nanos.percentile(99.0),
        "p99_9_ns": nanos.percentile(99.9),
        "p99_99_ns": nanos.percentile(99.99),
        "max_ns": nanos.max(),
    })
}

/// JSON of the settings of the run.
pub fn settings(settings: &Settings) -> Value {
    json!({
        "benchmarks": settings.benchmarks,
        "num": settings.num,
        "reads": settings.reads,
        "threads": settings.threads,
        "key_size": settings.key_size,
        "value_size": settings.value_size,
        "batch_size": settings.batch_size,
        "multi_get_keys": settings.multi_get_keys,
        "compression": settings.compression_name,
        "compression_ratio": settings.compression_ratio,
        "bloom_bits": settings.keyspace.bloom_bits,
        "existence_filter": stats_json::existence_size_json(settings.keyspace.existence_filter),
        "memory": settings.options.memory_bytes,
        "open_tables": settings.options.open_tables_max,
        "cache_size": settings.options.cache_bytes,
        "write_buffer_size": settings.keyspace.memtable_bytes,
        "block_size": settings.keyspace.block_bytes,
        "max_background_jobs": settings.options.background_threads,
        "sync": settings.sync,
        "disable_wal": !settings.keyspace.log,
        "use_existing_db": settings.use_existing_db,
        "seed": settings.seed,
    })
}

/// JSON of the filter counts.
pub fn filters(filters: &FilterTotals) -> Value {
    json!({
        "levels": filters.levels().map(level).collect::<Vec<_>>(),
        "total": level(&filters.total()),
    })
}

fn level(level: &LevelFilterTotals) -> Value {
    json!({
        "level": level.level,
        "tables": level.tables,
        "entries": level.entries,
        "filter_bytes": level.filter_bytes,
        "probes": level.probes,
        "true_negatives": level.true_negatives,
        "false_positives": level.false_positives,
        "measured_rate": level.measured_rate(),
        "designed_rate": level.designed_rate,
        "reads_saved": level.true_negatives,
    })
}
