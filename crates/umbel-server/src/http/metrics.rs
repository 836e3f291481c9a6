//! OpenMetrics text of `/metrics`: the store, its index, its filters, and the calls.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;
use umbel::DirectoryStats;
use umbel_events::{ExistenceStats, Stats};

use crate::kv_store::KvStats;
use crate::server_context::ServerContext;
use crate::system_stream;
use crate::telemetry::call_metrics::Labels;

/// The content type of the text.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Name prefix of all metrics.
const PREFIX: &str = "umbel";
/// Microseconds in a second.
const MICROS: f64 = 1e6;

type Gauges = Family<Labels, Gauge<f64, AtomicU64>>;
type Counters = Family<Labels, Counter<u64>>;

/// All metrics as text.
pub fn render(
    stats: &Stats,
    kv: Option<&KvStats>,
    service: &ServerContext,
) -> Result<String, std::fmt::Error> {
    let mut registry = Registry::with_prefix(PREFIX);
    service.call_metrics.register(&mut registry);
    add_memory(&mut registry, service);
    counter(
        &mut registry,
        "system_streams_replaced",
        "Tombstoned streams of the server's own state that it replaced by other streams",
        system_stream::replacements(),
    );
    add_log(&mut registry, stats);
    add_existence(&mut registry, &stats.existence);
    add_index(&mut registry, &stats.index);
    add_levels(&mut registry, &stats.index);
    if let Some(kv) = kv {
        add_kv(&mut registry, kv);
    }
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

fn gauge(registry: &mut Registry, name: &str, help: &str, value: f64) {
    registry.register(name, help, ConstGauge::new(value));
}

fn counter(registry: &mut Registry, name: &str, help: &str, value: u64) {
    registry.register(name, help, ConstCounter::new(value));
}

/// Adds metrics of the server's resources that clients hold.
fn add_memory(registry: &mut Registry, service: &ServerContext) {
    let connections = service.connections.count() as f64;
    gauge(registry, "connections", "Open connections", connections);
    let appends = service.append_quota.used_bytes() as f64;
    gauge(
        registry,
        "appends_bytes",
        "Bytes of received appends and writes that are not in a log yet",
        appends,
    );
    let receiving = service.receive_quota.used_bytes() as f64;
    gauge(registry, "receiving_bytes", "Bytes of messages that no call has taken yet", receiving);
    let unread = service.outbound_quota.bytes() as f64;
    gauge(registry, "unread_bytes", "Bytes read for clients that have not received them", unread);
    let groups = service.group_quota.bytes() as f64;
    gauge(registry, "groups_bytes", "Bytes that all consumer groups hold", groups);
}

fn add_log(registry: &mut Registry, stats: &Stats) {
    let lag = stats.position.saturating_sub(stats.indexed_through);
    gauge(registry, "position", "Position of the newest event", stats.position as f64);
    gauge(registry, "log_bytes", "Bytes of the event log", stats.log_bytes as f64);
    gauge(registry, "log_chunks", "Files of the event log", stats.chunks as f64);
    gauge(
        registry,
        "index_lag_bytes",
        "Bytes of the event log that the next open indexes again after a crash",
        lag as f64,
    );
    let pinned = stats.pinned_files as f64;
    gauge(
        registry,
        "log_pinned_files",
        "Obsolete chunks that readers of other processes keep",
        pinned,
    );
    let pinned = stats.pinned_file_bytes as f64;
    gauge(registry, "log_pinned_file_bytes", "Bytes of obsolete files that readers keep", pinned);
    let rejected = stats.clock_rejected.as_secs_f64();
    let help = "Seconds by which the wall clock is ahead of the time that the store believes";
    gauge(registry, "clock_rejected_seconds", help, rejected);
    let behind = stats.clock_behind.as_secs_f64();
    let help = "Seconds by which the last event is ahead of the wall clock; 0 up to five minutes";
    gauge(registry, "clock_behind_seconds", help, behind);
    let help = "Number of the clock epoch, from 1; each accepted clock that is behind begins one";
    gauge(registry, "clock_epoch", help, stats.clock_epoch as f64);
    let start = stats.clock_epoch_start.unwrap_or_default().as_secs_f64();
    let help = "Start of the clock epoch in seconds since 1970; 0 for the first epoch";
    gauge(registry, "clock_epoch_start_seconds", help, start);
    add_directory(registry, "", &stats.directory);
}

/// Adds metrics of the state of a store's directory.
fn add_directory(registry: &mut Registry, prefix: &str, directory: &DirectoryStats) {
    for (name, help, is_set) in [
        (
            "directory_moved",
            "1 if the store's directory was moved; the server continues to use it",
            directory.is_moved,
        ),
        ("directory_removed", "1 if the store's directory was removed", directory.is_removed),
    ] {
        gauge(registry, &format!("{prefix}{name}"), help, f64::from(u8::from(is_set)));
    }
}

fn add_existence(registry: &mut Registry, stats: &ExistenceStats) {
    let mut show = |name: &str, help: &str, value: f64| {
        gauge(registry, &format!("existence_{name}"), help, value);
    };
    show("is_on", "1 if the store has an existence filter", f64::from(u8::from(stats.is_on)));
    show("items", "Streams in the existence filter", stats.items as f64);
    show(
        "designed_items",
        "Streams for which the existence filter is sized",
        stats.designed_items as f64,
    );
    show("memory_bytes", "Bytes of the existence filter in memory", stats.memory_bytes as f64);
    show("fill_ratio", "Share of bits set in the existence filter", stats.fill);
    show(
        "designed_rate",
        "Designed false-positive rate of the existence filter",
        stats.designed_rate,
    );
    show(
        "estimated_rate",
        "False-positive rate of the existence filter, estimated from its fill",
        stats.estimated_rate,
    );
    show(
        "measured_rate",
        "Measured false-positive rate of the existence filter; NaN before the first probe",
        stats.measured_rate.unwrap_or(f64::NAN),
    );
    show(
        "lag_items",
        "Streams added to the existence filter since its last flush",
        stats.lag_items as f64,
    );
    show(
        "damaged_lines",
        "Damaged lines of the existence filter, which pass every stream",
        stats.damaged_lines as f64,
    );
    for (name, help, value) in [
        ("denied", "Probes of the existence filter with the result absent", stats.denied),
        ("maybe", "Probes of the existence filter with the result maybe present", stats.maybe),
        ("in_vain", "False positives of the existence filter", stats.false_positives),
        ("flushes", "Flushes", stats.flushes),
        ("bytes_written", "Bytes written to the existence filter's files", stats.bytes_written),
        (
            "healed_lines",
            "Damaged lines of the existence filter that were rebuilt",
            stats.healed_lines,
        ),
        ("growths", "Growths of the existence filter", stats.growths),
        ("rebuilds", "Rebuilds of the existence filter", stats.rebuilds),
    ] {
        counter(registry, &format!("existence_{name}"), help, value);
    }
}

fn add_index(registry: &mut Registry, index: &umbel::Stats) {
    for (name, help, value) in [
        ("memory_bytes", "Memory in use by the index", index.memory.held_bytes as f64),
        ("memory_budget_bytes", "Memory budget", index.memory.budget_bytes as f64),
        ("cache_bytes", "Bytes in the block cache of the index", index.cache_bytes as f64),
        ("write_amplification", "Write amplification", index.write_amplification),
        (
            "stall_seconds",
            "Seconds of write stalls of the index",
            index.stall_micros as f64 / MICROS,
        ),
        (
            "pinned_files",
            "Obsolete files that readers of other processes keep",
            index.readers.pinned_files as f64,
        ),
        (
            "pinned_file_bytes",
            "Bytes of obsolete files that readers keep",
            index.readers.pinned_file_bytes as f64,
        ),
        (
            "read_only",
            "1 if writes fail until a restart",
            f64::from(u8::from(index.read_only_reason.is_some())),
        ),
    ] {
        gauge(registry, &format!("index_{name}"), help, value);
    }
    for (name, help, value) in [
        ("cache_hits", "Block cache hits of the index", index.cache_hits),
        ("cache_misses", "Block cache misses of the index", index.cache_misses),
        ("commits", "Batches committed", index.commits),
        ("stalls", "Write stalls", index.stalls),
    ] {
        counter(registry, &format!("index_{name}"), help, value);
    }
}

/// Metrics of the key-value store and its watches.
fn add_kv(registry: &mut Registry, kv: &KvStats) {
    let engine = &kv.engine;
    let is_read_only = f64::from(u8::from(engine.read_only_reason.is_some()));
    for (name, help, value) in [
        ("sequence", "Sequence number of the newest write", engine.last_sequence as f64),
        ("read_only", "1 if writes fail until a restart", is_read_only),
        ("memory_bytes", "Memory in use by the key-value store", engine.memory.held_bytes as f64),
        ("memory_budget_bytes", "Memory budget", engine.memory.budget_bytes as f64),
        ("snapshots", "Snapshots that scans and watches keep", engine.readers.snapshots as f64),
        ("watches", "Open watches", kv.watches as f64),
    ] {
        gauge(registry, &format!("kv_{name}"), help, value);
    }
    add_directory(registry, "kv_", &engine.directory);
    counter(
        registry,
        "kv_watches_let_go",
        "Watches evicted because their client was too slow",
        kv.watches_evicted,
    );
}

/// Metrics of the levels, by keyspace and level.
fn add_levels(registry: &mut Registry, index: &umbel::Stats) {
    let gauges = [
        ("level_tables", "Tables of a level"),
        ("level_bytes", "Bytes of a level"),
        ("level_filter_bytes_in_memory", "Bytes of a level's filters in memory"),
        ("level_filter_designed_rate", "Designed false-positive rate of a level's filters"),
    ]
    .map(|(name, help)| (name, help, Gauges::default()));
    let counters = [
        ("level_filter_probes", "Probes of a level's filters"),
        ("level_filter_denied", "Table lookups that a level's filters saved"),
        ("level_filter_false_positives", "False positives of a level's filters"),
        ("level_table_reads", "Lookups in a level's tables"),
        ("level_bytes_written", "Bytes written to a level"),
    ]
    .map(|(name, help)| (name, help, Counters::default()));
    for keyspace in &index.keyspaces {
        for level in keyspace.levels.iter().filter(|level| level.tables > 0) {
            let number = level.level.to_string();
            let labels: Labels = vec![("keyspace", keyspace.name.clone()), ("level", number)];
            let values = [
                level.tables as f64,
                level.bytes as f64,
                level.filter_bytes_in_memory as f64,
                level.designed_rate,
            ];
            for ((_, _, family), value) in gauges.iter().zip(values) {
                family.get_or_create(&labels).set(value);
            }
            let values = [
                level.filter_probes,
                level.filter_true_negatives,
                level.filter_false_positives,
                level.table_reads,
                level.bytes_written,
            ];
            for ((_, _, family), value) in counters.iter().zip(values) {
                family.get_or_create(&labels).inc_by(value);
            }
        }
    }
    gauges.into_iter().for_each(|(name, help, family)| registry.register(name, help, family));
    counters.into_iter().for_each(|(name, help, family)| registry.register(name, help, family));
}
