//! Text of `/metrics`: the store, its index, its filters, the calls and the process.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;
use umbel::DirectoryStats;
use umbel_env::{DiskSpace, ProcessUsage};
use umbel_events::{Error, ExistenceStats, Stats};

use crate::consumer_groups::group_reading::GroupReadings;
use crate::continuous_backup::backed_up_store::KV_LABEL;
use crate::http::metrics::kurrent_metrics::SystemUsage;
use crate::http::metrics::metric_set::{Counters, Gauges, MetricSet};
use crate::http::metrics::text_format::TextFormat;
use crate::kv_store::KvStats;
use crate::server_context::ServerContext;
use crate::system_stream;
use crate::telemetry::metric_labels::Labels;

mod group_metrics;
mod kurrent_metrics;
mod metric_set;
mod process_metrics;
mod replica_metrics;
mod telemetry_metrics;
pub mod text_format;
mod work_metrics;

/// Microseconds in a second.
const MICROS: f64 = 1e6;

/// Readings of the stores and of the system, from which the metrics are made.
#[derive(Debug)]
pub struct MetricReadings {
    /// Statistics of the event store, and the usage by the process and of the disk.
    pub usage: (Stats, Option<ProcessUsage>, Option<DiskSpace>),
    /// Statistics of the key-value store, if served.
    pub kv: Option<KvStats>,
    /// Numbers of the consumer groups, if they could be read.
    pub groups: Option<Arc<GroupReadings>>,
}

impl MetricReadings {
    /// Reads the present numbers.
    pub async fn read(service: &ServerContext) -> Result<MetricReadings, Error> {
        let usage = service.store.stats_and_usage(&service.env.resources).await?;
        let kv = match &service.kv {
            Some(kv) => kv.stats().await,
            None => None,
        };
        let groups = service.group_registry.readings(service).await;
        Ok(MetricReadings { usage, kv, groups })
    }
}

/// All metrics as text.
pub fn render(
    readings: &MetricReadings,
    service: &ServerContext,
    format: TextFormat,
) -> Result<String, std::fmt::Error> {
    format.encode(&collect(readings, service, true))
}

/// All metrics. The former names of renamed metrics are left out on request.
pub fn collect(
    readings: &MetricReadings,
    service: &ServerContext,
    has_former_names: bool,
) -> Registry {
    let MetricReadings { usage: (stats, process, disk), kv, groups } = readings;
    let mut set = MetricSet { has_former_names, ..MetricSet::default() };
    service.call_metrics.register(set.registry.sub_registry_with_prefix("umbel"));
    if let Some(times) = &service.tasks.0 {
        times.register(set.registry.sub_registry_with_prefix("umbel"));
    }
    service.failed_logins.register(set.registry.sub_registry_with_prefix("umbel"));
    process_metrics::add_build(&mut set, &service.revision);
    add_memory(&mut set, service);
    set.counter(
        "system_streams_replaced",
        "Tombstoned streams of the server's own state that it replaced by other streams",
        system_stream::replacements(),
    );
    add_damage(&mut set, stats, kv.as_ref(), service);
    add_log(&mut set, stats);
    if let Some(node) = &service.replica {
        replica_metrics::add(&mut set, &node.status());
    }
    work_metrics::add(&mut set, service);
    add_existence(&mut set, &stats.existence);
    add_index(&mut set, &stats.index);
    add_levels(&mut set, &stats.index);
    if let Some(hub) = &service.telemetry {
        telemetry_metrics::add(&mut set, hub);
    }
    if let Some(kv) = kv {
        add_kv(&mut set, kv);
    }
    let now = Duration::from_micros(service.env.clock.wall_micros());
    let usage = SystemUsage { process: process.as_ref(), disk: disk.as_ref(), now };
    add_system(&mut set, stats, service, usage);
    if let Some(groups) = groups {
        group_metrics::add(&mut set, groups, now);
        let registry = set.registry.sub_registry_with_prefix(kurrent_metrics::PREFIX);
        group_metrics::add_kurrent(registry, groups, now);
    }
    set.registry
}

/// Adds what the process uses, and the metrics under KurrentDB's names.
fn add_system(set: &mut MetricSet, stats: &Stats, service: &ServerContext, usage: SystemUsage<'_>) {
    if let Some(process) = usage.process {
        let files_max = service.env.resources.open_files_max();
        process_metrics::add_process(&mut set.registry, process, files_max);
    }
    if let Some(space) = usage.disk {
        process_metrics::add_disk(set, space);
    }
    if let Some(end) = service.tls.as_ref().and_then(|tls| tls.certificate_end()) {
        let help = "Time at which the server's certificate expires, in seconds since 1970";
        set.gauge("certificate_expiry_timestamp_seconds", help, end.as_secs_f64());
    }
    kurrent_metrics::add(&mut set.registry, stats, service, usage);
}

/// Adds metrics of the server's resources that clients hold.
fn add_memory(set: &mut MetricSet, service: &ServerContext) {
    let connections = service.connections.count() as f64;
    set.gauge("connections", "Open connections", connections);
    let appends = service.append_quota.used_bytes() as f64;
    set.gauge(
        "append_buffered_bytes",
        "Bytes of received appends and writes that are not in a log yet",
        appends,
    );
    let receiving = service.receive_quota.used_bytes() as f64;
    let help = "Bytes of messages that no call has taken yet";
    set.gauge("request_buffered_bytes", help, receiving);
    let unread = service.outbound_quota.bytes() as f64;
    set.gauge(
        "response_buffered_bytes",
        "Bytes read for clients that have not received them",
        unread,
    );
    let pages = service.store.read_pool_counts();
    let help = "Pages of reads that wait for a thread of the read pool";
    set.gauge("read_pool_waiting_pages", help, pages.waiting as f64);
    let help = "Pages that the read pool reads";
    set.gauge("read_pool_running_pages", help, pages.running as f64);
    let groups = service.group_quota.bytes() as f64;
    set.gauge("group_buffered_bytes", "Bytes that all consumer groups hold", groups);
}

/// Adds the errors about damaged data, in calls and in the server's own work.
fn add_damage(set: &mut MetricSet, stats: &Stats, kv: Option<&KvStats>, service: &ServerContext) {
    let counters = Counters::default();
    let add = |store: &str, count: u64| {
        counters.get_or_create(&vec![("store", store.to_string())]).inc_by(count);
    };
    // The event store counts the runs of its backup itself.
    add("events", stats.damage_errors);
    if let Some(kv) = kv {
        add(KV_LABEL, kv.damage_errors + service.damaged_kv_runs());
    }
    let help = "Errors about damaged data of a store";
    set.add("damage_errors", help, || counters.clone());
}

fn add_log(set: &mut MetricSet, stats: &Stats) {
    let lag = stats.position.saturating_sub(stats.indexed_through);
    set.gauge("log_position", "Position of the newest event", stats.position as f64);
    let help = "Events appended since the start, those of the server's own streams included";
    set.counter("events_appended", help, stats.events_appended);
    set.gauge("log_bytes", "Bytes of the event log", stats.log_bytes as f64);
    if let Some(quota_bytes) = stats.log_quota_bytes {
        let help = "Bytes of the event log from which appends are refused; absent without a quota";
        set.gauge("log_quota_bytes", help, quota_bytes as f64);
    }
    set.gauge("log_chunks", "Files of the event log", stats.chunks as f64);
    set.gauge(
        "index_lag_bytes",
        "Bytes of the event log that the next open indexes again after a crash",
        lag as f64,
    );
    let pinned = stats.pinned_files as f64;
    set.gauge("log_pinned_files", "Obsolete chunks that readers of other processes keep", pinned);
    let pinned = stats.pinned_file_bytes as f64;
    set.gauge("log_pinned_file_bytes", "Bytes of obsolete files that readers keep", pinned);
    let rejected = stats.clock_rejected.as_secs_f64();
    let help = "Seconds by which the wall clock is ahead of the time that the store believes";
    set.gauge("clock_rejected_seconds", help, rejected);
    let behind = stats.clock_behind.as_secs_f64();
    let help = "Seconds by which the last event is ahead of the wall clock; 0 up to five minutes";
    set.gauge("clock_behind_seconds", help, behind);
    let help = "Number of the clock epoch, from 1; each accepted clock that is behind begins one";
    set.gauge("clock_epoch", help, stats.clock_epoch as f64);
    let start = stats.clock_epoch_start.unwrap_or_default().as_secs_f64();
    let help = "Start of the clock epoch in seconds since 1970; 0 for the first epoch";
    set.gauge("clock_epoch_start_timestamp_seconds", help, start);
    add_directory(set, "", &stats.directory);
}

/// Adds metrics of the state of a store's directory.
fn add_directory(set: &mut MetricSet, prefix: &str, directory: &DirectoryStats) {
    for (name, help, is_set) in [
        (
            "directory_moved",
            "1 if the store's directory was moved; the server continues to use it",
            directory.is_moved,
        ),
        ("directory_removed", "1 if the store's directory was removed", directory.is_removed),
    ] {
        set.gauge(&format!("{prefix}{name}"), help, f64::from(u8::from(is_set)));
    }
}

fn add_existence(set: &mut MetricSet, stats: &ExistenceStats) {
    let mut show = |name: &str, help: &str, value: f64| {
        set.gauge(&format!("existence_{name}"), help, value);
    };
    show("enabled", "1 if the store has an existence filter", f64::from(u8::from(stats.is_on)));
    show("items", "Streams in the existence filter", stats.items as f64);
    show(
        "designed_items",
        "Streams for which the existence filter is sized",
        stats.designed_items as f64,
    );
    show("memory_bytes", "Bytes of the existence filter in memory", stats.memory_bytes as f64);
    show("fill_ratio", "Share of bits set in the existence filter", stats.fill);
    show(
        "designed_false_positive_ratio",
        "Designed false-positive rate of the existence filter",
        stats.designed_rate,
    );
    show(
        "estimated_false_positive_ratio",
        "False-positive rate of the existence filter, estimated from its fill",
        stats.estimated_rate,
    );
    show(
        "measured_false_positive_ratio",
        "Measured false-positive rate of the existence filter; NaN before the first probe",
        stats.measured_rate.unwrap_or(f64::NAN),
    );
    show(
        "unflushed_items",
        "Streams added to the existence filter since its last flush",
        stats.lag_items as f64,
    );
    show(
        "damaged_lines",
        "Damaged lines of the existence filter, which pass every stream",
        stats.damaged_lines as f64,
    );
    for (name, help, value) in [
        ("negatives", "Probes of the existence filter with the result absent", stats.denied),
        ("positives", "Probes of the existence filter with the result maybe present", stats.maybe),
        ("false_positives", "False positives of the existence filter", stats.false_positives),
        ("flushes", "Flushes", stats.flushes),
        ("written_bytes", "Bytes written to the existence filter's files", stats.bytes_written),
        (
            "rebuilt_lines",
            "Damaged lines of the existence filter that were rebuilt",
            stats.healed_lines,
        ),
        (
            "damaged_journals",
            "Journals of the existence filter that the open found damaged",
            stats.damaged_journals,
        ),
        ("growths", "Growths of the existence filter", stats.growths),
        ("rebuilds", "Rebuilds of the existence filter", stats.rebuilds),
    ] {
        set.counter(&format!("existence_{name}"), help, value);
    }
}

fn add_index(set: &mut MetricSet, index: &umbel::Stats) {
    for (name, help, value) in [
        ("memory_bytes", "Memory in use by the index", index.memory.held_bytes as f64),
        ("memory_budget_bytes", "Memory budget", index.memory.budget_bytes as f64),
        ("cache_bytes", "Bytes in the block cache of the index", index.cache_bytes as f64),
        ("write_amplification_ratio", "Write amplification", index.write_amplification),
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
        set.gauge(&format!("index_{name}"), help, value);
    }
    for (name, help, value) in [
        ("cache_hits", "Block cache hits of the index", index.cache_hits),
        ("cache_misses", "Block cache misses of the index", index.cache_misses),
        ("commits", "Batches committed", index.commits),
        ("write_stalls", "Write stalls", index.stalls),
    ] {
        set.counter(&format!("index_{name}"), help, value);
    }
    let stalled = index.stall_micros as f64 / MICROS;
    let help = "Seconds of write stalls of the index";
    set.seconds_counter("index_write_stall_seconds", help, stalled);
    if set.has_former_names {
        let help = "Deprecated name of umbel_index_write_stall_seconds_total";
        set.gauge("index_stall_seconds", help, stalled);
    }
}

/// Metrics of the key-value store and its watches.
fn add_kv(set: &mut MetricSet, kv: &KvStats) {
    let engine = &kv.engine;
    let is_read_only = f64::from(u8::from(engine.read_only_reason.is_some()));
    for (name, help, value) in [
        ("last_sequence", "Sequence number of the newest write", engine.last_sequence as f64),
        ("read_only", "1 if writes fail until a restart", is_read_only),
        ("memory_bytes", "Memory in use by the key-value store", engine.memory.held_bytes as f64),
        ("memory_budget_bytes", "Memory budget", engine.memory.budget_bytes as f64),
        ("snapshots", "Snapshots that scans and watches keep", engine.readers.snapshots as f64),
        ("watches", "Open watches", kv.watches as f64),
    ] {
        set.gauge(&format!("kv_{name}"), help, value);
    }
    add_directory(set, "kv_", &engine.directory);
    set.counter(
        "kv_watches_evicted",
        "Watches evicted because their client was too slow",
        kv.watches_evicted,
    );
}

/// Metrics of the levels, by keyspace and level.
fn add_levels(set: &mut MetricSet, index: &umbel::Stats) {
    let gauges = [
        ("level_tables", "Tables of a level"),
        ("level_bytes", "Bytes of a level"),
        ("level_filter_memory_bytes", "Bytes of a level's filters in memory"),
        (
            "level_filter_designed_false_positive_ratio",
            "Designed false-positive rate of a level's filters",
        ),
    ]
    .map(|(name, help)| (name, help, Gauges::default()));
    let counters = [
        ("level_filter_probes", "Probes of a level's filters"),
        ("level_filter_negatives", "Table lookups that a level's filters saved"),
        ("level_filter_false_positives", "False positives of a level's filters"),
        ("level_table_reads", "Lookups in a level's tables"),
        ("level_written_bytes", "Bytes written to a level"),
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
    for (name, help, family) in gauges {
        set.add(name, help, || family.clone());
    }
    for (name, help, family) in counters {
        set.add(name, help, || family.clone());
    }
}
