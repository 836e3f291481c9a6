//! Metrics of the build, the process and the disk. Those of the process have the names that
//! Prometheus clients of every language use.

use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use umbel_env::{DiskSpace, ProcessUsage};

use crate::http::metrics::metric_set::{Gauges, MetricSet};

/// Adds the version and the commit of the build.
pub fn add_build(set: &mut MetricSet, revision: &str) {
    let version = env!("CARGO_PKG_VERSION").to_string();
    let build = Gauges::default();
    build.get_or_create(&vec![("version", version), ("revision", revision.to_string())]).set(1.0);
    // A gauge, because the type `info` exists in OpenMetrics only.
    set.add("build_info", "Version and commit of the build", || build.clone());
}

/// Adds what the process uses.
pub fn add_process(registry: &mut Registry, usage: &ProcessUsage, open_files_max: Option<u64>) {
    registry.register(
        "process_cpu_seconds",
        "User and system CPU time of the process in seconds",
        ConstCounter::new(usage.cpu_time.as_secs_f64()),
    );
    for (name, help, value) in [
        ("process_resident_memory_bytes", "Resident memory in bytes", usage.resident_bytes as f64),
        ("process_virtual_memory_bytes", "Virtual memory in bytes", usage.virtual_bytes as f64),
        ("process_open_fds", "Open file descriptors", usage.open_files as f64),
        ("process_threads", "Threads of the process", usage.threads as f64),
        (
            "process_start_time_seconds",
            "Start of the process in seconds since 1970",
            usage.started.as_secs_f64(),
        ),
    ] {
        registry.register(name, help, ConstGauge::new(value));
    }
    if let Some(limit) = open_files_max {
        let help = "Maximum number of open file descriptors";
        registry.register("process_max_fds", help, ConstGauge::new(limit as f64));
    }
}

/// Adds the space of the disk that has the event log.
pub fn add_disk(set: &mut MetricSet, space: &DiskSpace) {
    let help = "Bytes of the file system that contains the event log";
    set.gauge("disk_size_bytes", help, space.total_bytes as f64);
    let help = "Bytes that the server can still use of that file system";
    set.gauge("disk_available_bytes", help, space.available_bytes as f64);
}
