//! Metrics of scavenges and backups.

use crate::event_store::work_history::{WorkHistory, WorkOutcome};
use crate::http::metrics::MICROS;
use crate::http::metrics::metric_set::{Counters, MetricSet};
use crate::server_context::ServerContext;

/// Adds outcomes of scavenges and backups, and the next scavenge. A time that does not exist has no
/// sample.
pub fn add(set: &mut MetricSet, service: &ServerContext) {
    for (name, history) in
        [("scavenge", &service.scavenge_history), ("backup", service.backups.history())]
    {
        add_outcomes(set, name, history);
    }
    let status = service.auto_scavenge.status();
    if let Some(next) = status.next_micros {
        let help = "Time of the next automatic scavenge in seconds since 1970";
        set.gauge("auto_scavenge_next_timestamp_seconds", help, next as f64 / MICROS);
    }
    let paused = f64::from(u8::from(status.settings.is_paused));
    set.gauge("auto_scavenge_paused", "1 if auto-scavenge is paused", paused);
}

fn add_outcomes(set: &mut MetricSet, name: &str, history: &WorkHistory) {
    let counters = Counters::default();
    let ended = history.ended();
    for outcome in WorkOutcome::ENDED {
        let count = ended.get(&outcome).copied().unwrap_or(0);
        counters.get_or_create(&vec![("outcome", outcome.name().to_string())]).inc_by(count);
    }
    let help = format!("Ended {name}s since the start of the server");
    set.add(&format!("{name}s"), &help, || counters.clone());
    if let Some(success) = history.last_success_micros() {
        let help = format!("End of the last successful {name} in seconds since 1970");
        let metric = format!("last_successful_{name}_timestamp_seconds");
        set.gauge(&metric, &help, success as f64 / MICROS);
    }
}
