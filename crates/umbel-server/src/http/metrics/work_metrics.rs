//! Metrics of scavenges and backups.

use crate::continuous_backup::backup_status::ContinuousBackupStatus;
use crate::event_store::work_history::{WorkHistory, WorkOutcome};
use crate::http::metrics::MICROS;
use crate::http::metrics::metric_set::{Counters, Gauges, MetricSet};
use crate::server_context::ServerContext;
use crate::telemetry::metric_labels::Labels;

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
    let backups = &service.continuous_backups;
    if !backups.is_empty() {
        let states: Vec<_> = backups.iter().map(|backup| backup.status()).collect();
        add_continuous_backups(set, &states);
    }
}

/// Adds the states of the continuous backups into an object store.
fn add_continuous_backups(set: &mut MetricSet, backups: &[ContinuousBackupStatus]) {
    let gauge = |set: &mut MetricSet, name, help, value: fn(&ContinuousBackupStatus) -> _| {
        let gauges = Gauges::default();
        for (status, value) in backups.iter().filter_map(|it| Some(it).zip(value(it))) {
            gauges.get_or_create(&labels(status, None)).set(value);
        }
        set.add(name, help, || gauges.clone());
    };
    let counter = |set: &mut MetricSet, name, help, values: CounterValues| {
        let counters = Counters::default();
        for status in backups {
            for (label, value) in values(status) {
                counters.get_or_create(&labels(status, label)).inc_by(value);
            }
        }
        set.add(name, help, || counters.clone());
    };
    for status in backups {
        let Some(lag) = status.progress.lag else { continue };
        let (name, help) = (status.names.lag_metric, status.names.lag_help);
        set.gauge(name, help, lag as f64);
    }
    let help = "Age of the oldest moment after which a write is not in the object backup";
    gauge(set, "object_backup_lag_seconds", help, |it| Some(it.lag_age.as_secs_f64()));
    let help = "Start of the last successful run of the object backup in seconds since 1970";
    gauge(set, "object_backup_last_success_timestamp_seconds", help, |it| {
        it.last_success_micros.map(|micros| micros as f64 / MICROS)
    });
    let help = "1 if the object backup has stopped until the server starts again";
    gauge(set, "object_backup_stopped", help, |it| Some(f64::from(u8::from(it.stopped.is_some()))));
    counter(set, "object_backup_runs", "Runs of the object backup", |it| {
        [(WorkOutcome::Success, it.successes), (WorkOutcome::Errored, it.failures)]
            .map(|(outcome, count)| (Some(("outcome", outcome.name())), count))
            .to_vec()
    });
    let help = "Bytes that the object backup uploaded";
    counter(set, "object_backup_uploaded_bytes", help, |it| {
        vec![(None, it.progress.uploaded_bytes)]
    });
    let help = "Objects of the object backup that something else had deleted";
    counter(set, "object_backup_lost_objects", help, |it| vec![(None, it.lost_objects)]);
    let help = "Requests of the object backup to the object store";
    counter(set, "object_backup_requests", help, |it| {
        let requests = it.progress.requests.iter();
        requests.map(|(verb, count)| (Some(("verb", *verb)), *count)).collect()
    });
}

/// A label and its value.
type Label = (&'static str, &'static str);
/// Returns the values of a counter, each with its label.
type CounterValues = fn(&ContinuousBackupStatus) -> Vec<(Option<Label>, u64)>;

/// Labels of a sample about a continuous backup.
fn labels(status: &ContinuousBackupStatus, further: Option<Label>) -> Labels {
    let store = ("store", status.names.label);
    [Some(store), further].into_iter().flatten().map(|(name, text)| (name, text.into())).collect()
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
