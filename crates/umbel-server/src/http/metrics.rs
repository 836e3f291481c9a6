//! What `/metrics` says, as OpenMetrics text: the store, its index, its filters, and the calls.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;
use umbel::DirectoryStats;
use umbel_events::{ExistenceStats, Stats};

use crate::calls::Labels;
use crate::kv_store::KvStats;
use crate::service::Service;

/// The content type of the text.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What every metric's name begins with.
const PREFIX: &str = "umbel";
/// Microseconds in a second.
const MICROS: f64 = 1e6;

type Gauges = Family<Labels, Gauge<f64, AtomicU64>>;
type Counters = Family<Labels, Counter<u64>>;

/// Everything as text.
pub fn text(
    stats: &Stats,
    kv: Option<&KvStats>,
    service: &Service,
) -> Result<String, std::fmt::Error> {
    let mut registry = Registry::with_prefix(PREFIX);
    service.calls.register(&mut registry);
    of_memory(&mut registry, service);
    of_log(&mut registry, stats);
    of_existence(&mut registry, &stats.existence);
    of_index(&mut registry, &stats.index);
    of_levels(&mut registry, &stats.index);
    if let Some(kv) = kv {
        of_key_values(&mut registry, kv);
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

/// What clients hold of the server.
fn of_memory(registry: &mut Registry, service: &Service) {
    let connections = service.peers.count() as f64;
    gauge(registry, "connections", "Connections that are open", connections);
    let appends = service.budget.bytes() as f64;
    gauge(registry, "appends_bytes", "Bytes of appends that are not in the log yet", appends);
    let receiving = service.receiving.bytes() as f64;
    gauge(registry, "receiving_bytes", "Bytes of messages that have come in part", receiving);
    let unread = service.unread.bytes() as f64;
    gauge(registry, "unread_bytes", "Bytes read for clients that have not taken them", unread);
    let groups = service.group_room.bytes() as f64;
    gauge(registry, "groups_bytes", "Bytes that all groups of consumers hold", groups);
}

fn of_log(registry: &mut Registry, stats: &Stats) {
    let lag = stats.position.saturating_sub(stats.indexed_through);
    gauge(registry, "position", "Position of the newest event", stats.position as f64);
    gauge(registry, "log_bytes", "Bytes of the event log", stats.log_bytes as f64);
    gauge(registry, "log_chunks", "Files of the event log", stats.chunks as f64);
    gauge(registry, "index_lag_bytes", "Positions that a crash would read again", lag as f64);
    let pinned = stats.pinned_files as f64;
    gauge(registry, "log_pinned_files", "Obsolete chunks that readers keep", pinned);
    let pinned = stats.pinned_file_bytes as f64;
    gauge(registry, "log_pinned_file_bytes", "Bytes of these", pinned);
    of_directory(registry, "", &stats.directory);
}

/// Where the directory of a store is.
fn of_directory(registry: &mut Registry, prefix: &str, directory: &DirectoryStats) {
    for (name, help, is_so) in [
        (
            "directory_moved",
            "1 where the store's path leads elsewhere, and the server goes on in its directory",
            directory.is_moved,
        ),
        ("directory_removed", "1 where the store's directory was removed", directory.is_removed),
    ] {
        gauge(registry, &format!("{prefix}{name}"), help, f64::from(u8::from(is_so)));
    }
}

fn of_existence(registry: &mut Registry, stats: &ExistenceStats) {
    let mut show = |name: &str, help: &str, value: f64| {
        gauge(registry, &format!("existence_{name}"), help, value);
    };
    show("is_on", "1 where there is a filter of streams", f64::from(u8::from(stats.is_on)));
    show("items", "Streams in the filter", stats.items as f64);
    show("designed_items", "Streams that the filter was made for", stats.designed_items as f64);
    show("memory_bytes", "Bytes of the filter in memory", stats.memory_bytes as f64);
    show("fill_ratio", "Share of bits that are set", stats.fill);
    show("designed_rate", "Share of absent streams let through, by design", stats.designed_rate);
    show("estimated_rate", "The same as it follows from the fill", stats.estimated_rate);
    show(
        "measured_rate",
        "The same as measured; NaN before the first question",
        stats.measured_rate.unwrap_or(f64::NAN),
    );
    show("lag_items", "Streams added since the last flush", stats.lag_items as f64);
    show("damaged_lines", "Lines that say maybe to all for damage", stats.damaged_lines as f64);
    for (name, help, value) in [
        ("denied", "Questions answered with no", stats.denied),
        ("maybe", "Questions answered with maybe", stats.maybe),
        ("in_vain", "Questions answered with maybe in vain", stats.in_vain),
        ("flushes", "Flushes", stats.flushes),
        ("bytes_written", "Bytes written to the filter's files", stats.bytes_written),
        ("healed_lines", "Damaged lines that were remade", stats.healed_lines),
        ("growths", "How often it grew", stats.growths),
        ("rebuilds", "How often it was made anew", stats.rebuilds),
    ] {
        counter(registry, &format!("existence_{name}"), help, value);
    }
}

fn of_index(registry: &mut Registry, index: &umbel::Stats) {
    for (name, help, value) in [
        ("memory_bytes", "Memory that the index takes", index.memory.held_bytes as f64),
        ("memory_budget_bytes", "Memory that it may take", index.memory.budget_bytes as f64),
        ("cache_bytes", "Bytes of blocks in the cache", index.cache_bytes as f64),
        ("write_amplification", "Bytes written for each byte given", index.write_amplification),
        ("stall_seconds", "Time writers were held back", index.stall_micros as f64 / MICROS),
        (
            "pinned_files",
            "Obsolete files that readers of other processes keep",
            index.readers.pinned_files as f64,
        ),
        ("pinned_file_bytes", "Bytes of these", index.readers.pinned_file_bytes as f64),
        (
            "read_only",
            "1 where nothing can be written any more",
            f64::from(u8::from(index.read_only_reason.is_some())),
        ),
    ] {
        gauge(registry, &format!("index_{name}"), help, value);
    }
    for (name, help, value) in [
        ("cache_hits", "Blocks found in memory", index.cache_hits),
        ("cache_misses", "Blocks that had to be loaded", index.cache_misses),
        ("commits", "Batches committed", index.commits),
        ("stalls", "How often a writer was held back", index.stalls),
    ] {
        counter(registry, &format!("index_{name}"), help, value);
    }
}

/// The store of keys and values, and who watches it.
fn of_key_values(registry: &mut Registry, kv: &KvStats) {
    let engine = &kv.engine;
    let is_read_only = f64::from(u8::from(engine.read_only_reason.is_some()));
    for (name, help, value) in [
        ("sequence", "The number of the newest write", engine.last_sequence as f64),
        ("read_only", "1 where nothing can be written any more", is_read_only),
        ("memory_bytes", "Memory that the store takes", engine.memory.held_bytes as f64),
        ("memory_budget_bytes", "Memory that it may take", engine.memory.budget_bytes as f64),
        ("snapshots", "States that scans and watches keep", engine.readers.snapshots as f64),
        ("watches", "Watches that go on", kv.watches as f64),
    ] {
        gauge(registry, &format!("kv_{name}"), help, value);
    }
    of_directory(registry, "kv_", &engine.directory);
    counter(registry, "kv_watches_let_go", "Watches that did not keep up", kv.let_go);
}

/// Numbers of the levels, each with its keyspace and its number.
fn of_levels(registry: &mut Registry, index: &umbel::Stats) {
    let gauges = [
        ("level_tables", "Tables of a level"),
        ("level_bytes", "Bytes of a level"),
        ("level_filter_bytes_in_memory", "Bytes of a level's filters in memory"),
        ("level_filter_designed_rate", "Share of missing keys let through, by design"),
    ]
    .map(|(name, help)| (name, help, Gauges::default()));
    let counters = [
        ("level_filter_probes", "Questions to a level's filters"),
        ("level_filter_denied", "Searches that a level's filters saved"),
        ("level_filter_false_positives", "Searches in vain that they let through"),
        ("level_table_reads", "Searches of a level's tables"),
        ("level_bytes_written", "Bytes written into a level"),
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
