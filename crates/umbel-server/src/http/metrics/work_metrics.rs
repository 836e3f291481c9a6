//! Metrics of scavenges and backups.

use crate::event_store::continuous_backup::ContinuousBackupStatus;
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
    if let Some(backup) = &service.continuous_backup {
        add_continuous_backup(set, &backup.status());
    }
}

/// Adds the state of the continuous backup into an object store.
fn add_continuous_backup(set: &mut MetricSet, status: &ContinuousBackupStatus) {
    if let Some(bytes) = status.lag.bytes {
        let help = "Bytes of the event log that are not in the object backup";
        set.gauge("object_backup_lag_bytes", help, bytes as f64);
    }
    let help = "Age of the oldest moment after which an event is not in the object backup";
    set.gauge("object_backup_lag_seconds", help, status.lag.age.as_secs_f64());
    if let Some(micros) = status.last_success_micros {
        let help = "Start of the last successful run of the object backup in seconds since 1970";
        let name = "object_backup_last_success_timestamp_seconds";
        set.gauge(name, help, micros as f64 / MICROS);
    }
    let stopped = f64::from(u8::from(status.stopped.is_some()));
    let help = "1 if the object backup has stopped until the server starts again";
    set.gauge("object_backup_stopped", help, stopped);
    let runs = Counters::default();
    let outcomes =
        [(WorkOutcome::Success, status.successes), (WorkOutcome::Errored, status.failures)];
    for (outcome, count) in outcomes {
        runs.get_or_create(&vec![("outcome", outcome.name().to_string())]).inc_by(count);
    }
    set.add("object_backup_runs", "Runs of the object backup", || runs.clone());
    let help = "Bytes that the object backup uploaded";
    set.counter("object_backup_uploaded_bytes", help, status.backup.uploaded_bytes);
    let requests = Counters::default();
    for (verb, count) in &status.backup.requests {
        requests.get_or_create(&vec![("verb", (*verb).to_string())]).inc_by(*count);
    }
    let help = "Requests of the object backup to the object store";
    set.add("object_backup_requests", help, || requests.clone());
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
