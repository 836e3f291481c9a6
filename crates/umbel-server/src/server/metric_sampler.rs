//! Samples the server's metrics for the plots of the console.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::server_context::ServerContext;
use crate::telemetry::metric_history::{MetricReading, RECENT_SECONDS};

/// Samples until the server stops.
pub async fn sample(service: Arc<ServerContext>, mut stopped: watch::Receiver<bool>) {
    loop {
        // A closed store has no statistics; the server stops then.
        if let Some(reading) = read(&service).await {
            service.metric_history.add(reading);
        }
        tokio::select! {
            _ = stopped.wait_for(|stopped| *stopped) => return,
            () = tokio::time::sleep(Duration::from_secs(RECENT_SECONDS)) => {}
        }
    }
}

async fn read(service: &Arc<ServerContext>) -> Option<MetricReading> {
    let usage = service.store.stats_and_usage(&service.env.resources);
    let (stats, process, disk) = usage.await.ok()?;
    let unknown = f64::NAN;
    let requests = service.append_quota.used_bytes() + service.receive_quota.used_bytes();
    let clock = &service.env.clock;
    Some(MetricReading {
        wall_micros: clock.wall_micros(),
        monotonic_micros: u64::try_from(clock.now().as_micros()).unwrap_or(u64::MAX),
        events_appended: stats.events_appended,
        log_bytes: stats.log_bytes,
        events_read: service.store.events_read(),
        calls: service.call_metrics.ended_calls(),
        append_latencies: service.call_metrics.appends().latencies().counts(),
        appends_refused: service.call_metrics.appends().refused(),
        gauges: [
            service.connections.count() as f64,
            disk.map_or(unknown, |disk| disk.available_bytes as f64),
            stats.log_bytes as f64,
            stats.index.memory.held_bytes as f64,
            stats.existence.memory_bytes as f64,
            requests as f64,
            service.outbound_quota.bytes() as f64,
            service.group_quota.bytes() as f64,
            process.map_or(unknown, |process| process.resident_bytes as f64),
        ],
    })
}
