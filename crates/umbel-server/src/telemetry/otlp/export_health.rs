//! [`ExportHealth`]: which signals the collector does not accept, and the log lines about it.

use std::fmt;
use std::sync::Mutex;

use serde_json::{Value, json};
use umbel_base::ignore_poison::IgnorePoison;

use crate::telemetry::otlp::signal::Signal;

/// Kind of a failed export. Signals that fail in the same way are one outage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// No connection.
    Unreachable,
    /// No response in time.
    TimedOut,
    /// A response with another status than success.
    Status(u16),
    /// No valid response.
    InvalidResponse,
    /// The server could not read its own metrics.
    NoData,
}

/// Failed export.
#[derive(Debug, Clone)]
pub struct ExportFailure {
    /// Kind of the failure.
    pub kind: FailureKind,
    /// The reason, as a sentence without a full stop.
    pub reason: String,
    /// Seconds after which the collector accepts a retry, if it says so.
    pub retry_after: Option<u64>,
}

/// Outage of one signal.
#[derive(Debug)]
struct Outage {
    kind: FailureKind,
    reason: String,
    since_micros: u64,
}

/// State of the exports by signal.
#[derive(Debug, Default)]
pub struct ExportHealth(Mutex<[Option<Outage>; Signal::ALL.len()]>);

impl ExportFailure {
    /// Creates a failure.
    pub fn new(kind: FailureKind, reason: impl fmt::Display) -> ExportFailure {
        ExportFailure { kind, reason: reason.to_string(), retry_after: None }
    }

    /// Whether the same records may be accepted later.
    pub fn is_retryable(&self) -> bool {
        match self.kind {
            FailureKind::Unreachable | FailureKind::TimedOut | FailureKind::InvalidResponse => true,
            FailureKind::Status(status) => matches!(status, 429 | 502 | 503 | 504),
            FailureKind::NoData => false,
        }
    }
}

impl ExportHealth {
    /// Records a failed export. Returns whether an outage begins that no log line reported.
    pub fn record_failure(&self, signal: Signal, failure: &ExportFailure, now: u64) -> bool {
        let mut outages = self.0.lock().ignore_poison();
        let is_reported = outages.iter().flatten().any(|outage| outage.kind == failure.kind);
        let (kind, reason) = (failure.kind, failure.reason.clone());
        match &mut outages[signal as usize] {
            // An outage that changes its kind stays one outage.
            Some(outage) => {
                (outage.kind, outage.reason) = (kind, reason);
                false
            }
            free => {
                *free = Some(Outage { kind, reason, since_micros: now });
                !is_reported
            }
        }
    }

    /// Records an export. Returns whether it ended the last outage.
    pub fn record_success(&self, signal: Signal) -> bool {
        let mut outages = self.0.lock().ignore_poison();
        outages[signal as usize].take().is_some() && outages.iter().all(Option::is_none)
    }

    /// The failing signals, each with its reason and the seconds since its outage began.
    pub fn outages(&self, now: u64) -> Value {
        let outages = self.0.lock().ignore_poison();
        let failing = Signal::ALL.iter().zip(&*outages).filter_map(|(signal, outage)| {
            let outage = outage.as_ref()?;
            let seconds = now.saturating_sub(outage.since_micros) / 1_000_000;
            let reason = &outage.reason;
            Some(json!({ "signal": signal.name(), "reason": reason, "seconds": seconds }))
        });
        failing.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outage_is_reported_once_and_so_is_its_end() {
        let health = ExportHealth::default();
        let down = ExportFailure::new(FailureKind::Unreachable, "no connection");
        let fails = |signal, failure| health.record_failure(signal, failure, 1_000_000);
        assert!(fails(Signal::Logs, &down));
        assert!(!fails(Signal::Logs, &down) && !fails(Signal::Traces, &down), "one outage");
        let slow = ExportFailure::new(FailureKind::TimedOut, "no response");
        assert!(!fails(Signal::Traces, &slow), "the same outage in another form");
        let refused = ExportFailure::new(FailureKind::Status(404), "no such path");
        assert!(fails(Signal::Metrics, &refused), "another fault");
        let shown = health.outages(4_000_000);
        assert_eq!(shown.as_array().map(Vec::len), Some(3));
        assert_eq!((&shown[0]["signal"], &shown[0]["seconds"]), (&json!("metrics"), &json!(3)));
        assert!(!health.record_success(Signal::Logs) && !health.record_success(Signal::Metrics));
        assert!(health.record_success(Signal::Traces), "the last outage ends");
        assert!(!health.record_success(Signal::Traces));
        assert_eq!(health.outages(0), json!([]));
    }
}
