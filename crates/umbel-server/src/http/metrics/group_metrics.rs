//! Metrics of consumer groups, under Umbel's and under KurrentDB's names.

use std::time::Duration;

use prometheus_client::registry::Registry;

use crate::consumer_groups::group_reading::{GroupLag, GroupReading, GroupReadings};
use crate::http::metrics::metric_set::{Counters, Gauges, MetricSet};
use crate::telemetry::metric_labels::Labels;

/// Names of the labels for source and name of a group: Umbel's and KurrentDB's.
const LABELS: [&str; 2] = ["stream", "group"];
const KURRENT_LABELS: [&str; 2] = ["event_stream_id", "group_name"];

/// Value of a metric of a group; `None` if the metric does not apply to it.
type ReadValue = fn(&GroupReading, Duration) -> Option<f64>;

/// The metrics of a group: name, help and value.
const GAUGES: [(&str, &str, ReadValue); 6] = [
    ("group_lag_events", "Events of the source that the group has not processed", lag_events),
    (
        "group_lag_bytes",
        "Bytes of the event log that a group of all events has not read",
        lag_bytes,
    ),
    ("group_parked_events", "Parked events of the group", |one, _| Some(one.state.parked as f64)),
    ("group_in_flight_events", "Events in flight to consumers", |one, _| {
        Some(one.state.in_flight as f64)
    }),
    ("group_oldest_parked_seconds", "Seconds since the oldest parked event was parked", parked_age),
    ("group_consumers", "Connected consumers of the group", |one, _| {
        Some(one.state.consumers as f64)
    }),
];

/// The gauges of a group under KurrentDB's names, without their prefix.
const KURRENT_GAUGES: [(&str, &str, ReadValue); 8] = [
    ("connections", "Connected consumers", |one, _| Some(one.state.consumers as f64)),
    ("parked_messages", "Parked events", |one, _| Some(one.state.parked as f64)),
    ("in_flight_messages", "Events in flight", |one, _| Some(one.state.in_flight as f64)),
    ("oldest_parked_message_seconds", "Age of the oldest parked event", |one, now| {
        Some(parked_age(one, now).unwrap_or(0.0))
    }),
    ("last_known_event_number", "Last event of the stream", |one, _| {
        of_stream(one, one.source_end)
    }),
    ("last_known_event_commit_position", "Last event of $all", |one, _| {
        of_all(one, one.source_end)
    }),
    ("checkpointed_event_number", "Checkpoint in the stream", |one, _| {
        of_stream(one, one.state.checkpoint)
    }),
    ("checkpointed_event_commit_position", "Checkpoint in $all", |one, _| {
        of_all(one, one.state.checkpoint)
    }),
];

/// Adds the metrics of all groups. `now` is the time since 1970.
pub fn add(set: &mut MetricSet, readings: &GroupReadings, now: Duration) {
    set.gauge("groups", "Consumer groups", readings.total as f64);
    let omitted = readings.total.saturating_sub(readings.shown.len()) as f64;
    set.gauge("groups_omitted", "Consumer groups without metrics of their own", omitted);
    for (name, help, value) in GAUGES {
        let family = gauges(readings, LABELS, |group| value(group, now));
        set.add(name, help, || family.clone());
    }
}

/// Adds the metrics of groups under KurrentDB's names.
pub fn add_kurrent(registry: &mut Registry, readings: &GroupReadings, now: Duration) {
    for (name, help, value) in KURRENT_GAUGES {
        let family = gauges(readings, KURRENT_LABELS, |group| value(group, now));
        registry.register(format!("persistent_sub_{name}"), help, family);
    }
    let processed = Counters::default();
    for group in &readings.shown {
        processed.get_or_create(&labels(group, KURRENT_LABELS)).inc_by(group.state.sent);
    }
    registry.register("persistent_sub_items_processed", "Events sent to consumers", processed);
}

fn gauges(
    readings: &GroupReadings,
    names: [&'static str; 2],
    value: impl Fn(&GroupReading) -> Option<f64>,
) -> Gauges {
    let family = Gauges::default();
    for group in &readings.shown {
        if let Some(value) = value(group) {
            family.get_or_create(&labels(group, names)).set(value);
        }
    }
    family
}

fn labels(group: &GroupReading, [source, name]: [&'static str; 2]) -> Labels {
    vec![(source, group.key.source().to_string()), (name, group.key.group.clone())]
}

fn lag_events(group: &GroupReading, _now: Duration) -> Option<f64> {
    match group.lag {
        GroupLag::Events(events) => Some(events as f64),
        GroupLag::LogBytes(_) => None,
    }
}

fn lag_bytes(group: &GroupReading, _now: Duration) -> Option<f64> {
    match group.lag {
        GroupLag::Events(_) => None,
        GroupLag::LogBytes(bytes) => Some(bytes as f64),
    }
}

fn parked_age(group: &GroupReading, now: Duration) -> Option<f64> {
    let parked = Duration::from_micros(group.oldest_parked_micros?);
    Some(now.saturating_sub(parked).as_secs_f64())
}

fn of_stream(group: &GroupReading, number: Option<u64>) -> Option<f64> {
    number.filter(|_| group.key.stream.is_some()).map(|number| number as f64)
}

fn of_all(group: &GroupReading, number: Option<u64>) -> Option<f64> {
    number.filter(|_| group.key.stream.is_none()).map(|number| number as f64)
}
