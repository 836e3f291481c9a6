//! Metrics under the names of KurrentDB, for its alerts and dashboards. Only those whose meaning is
//! the same here.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;
use umbel_env::{DiskSpace, ProcessUsage};
use umbel_events::Stats;

use crate::server_context::ServerContext;
use crate::telemetry::metric_labels::Labels;

/// Prefix of the names.
pub const PREFIX: &str = "kurrentdb";

type Gauges = Family<Labels, Gauge<f64, AtomicU64>>;
type Counters = Family<Labels, Counter<u64>>;

/// Usage as the system reports it.
#[derive(Debug, Clone, Copy)]
pub struct SystemUsage<'a> {
    /// Usage by the process.
    pub process: Option<&'a ProcessUsage>,
    /// Space of the event log's disk.
    pub disk: Option<&'a DiskSpace>,
    /// Time since 1970.
    pub now: Duration,
}

/// Adds the metrics.
pub fn add(registry: &mut Registry, stats: &Stats, service: &ServerContext, usage: SystemUsage) {
    let set = registry.sub_registry_with_prefix(PREFIX);
    let checkpoints = [
        (vec![label("name", "writer"), label("read", "non-flushed")], stats.position as f64),
        (vec![label("name", "index"), label("read", "non-flushed")], stats.indexed_through as f64),
    ];
    set.register("checkpoints", "Positions in the event log", gauges(checkpoints));
    let written = [(vec![label("activity", "written")], stats.events_appended)];
    set.register("io_events", "Events appended", counters(written));
    service.call_metrics.register_kurrent(set);
    let connections = service.connections.count() as f64;
    set.register("kestrel_connections", "Open connections", ConstGauge::new(connections));
    if let Some(process) = usage.process {
        let up_time = usage.now.saturating_sub(process.started).as_secs_f64();
        let help = "Seconds for which the process has been running";
        set.register("proc_up_time_seconds", help, ConstCounter::new(up_time));
        let memory = [
            (vec![label("kind", "working-set")], process.resident_bytes as f64),
            (vec![label("kind", "virtual-bytes")], process.virtual_bytes as f64),
        ];
        set.register("proc_mem_bytes", "Memory of the process", gauges(memory));
    }
    if let Some(disk) = usage.disk {
        let path = service.store.path().to_string_lossy().into_owned();
        let of = |kind| vec![label("kind", kind), ("disk", path.clone())];
        let used = disk.total_bytes.saturating_sub(disk.available_bytes);
        let space = [(of("used"), used as f64), (of("total"), disk.total_bytes as f64)];
        set.register("sys_disk_bytes", "Space of the event log's disk", gauges(space));
    }
}

fn label(name: &'static str, value: &str) -> (&'static str, String) {
    (name, value.to_string())
}

fn gauges<const N: usize>(values: [(Labels, f64); N]) -> Gauges {
    let family = Gauges::default();
    for (labels, value) in values {
        family.get_or_create(&labels).set(value);
    }
    family
}

fn counters<const N: usize>(values: [(Labels, u64); N]) -> Counters {
    let family = Counters::default();
    for (labels, value) in values {
        family.get_or_create(&labels).inc_by(value);
    }
    family
}
