//! [`TelemetryHub`]: state of the export that the server's threads share with the exporter.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};
use umbel_env::Env;

use crate::telemetry::otlp::export_health::{ExportFailure, ExportHealth};
use crate::telemetry::otlp::otlp_config::OtlpConfig;
use crate::telemetry::otlp::record_queue::RecordQueue;
use crate::telemetry::otlp::signal::Signal;
use crate::telemetry::otlp::telemetry_record::{LogRecord, QueuedRecord, SpanRecord};
use crate::telemetry::trace_context::{SpanId, TraceId};

/// Outcome of one export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportOutcome {
    /// The collector accepted the records.
    Accepted,
    /// The collector refused the records for good.
    Rejected,
    /// The collector could not be reached, was too slow or overloaded.
    Failed,
}

impl ExportOutcome {
    /// All outcomes.
    pub const ALL: [ExportOutcome; 3] =
        [ExportOutcome::Accepted, ExportOutcome::Rejected, ExportOutcome::Failed];

    /// Name of the outcome in labels.
    pub fn name(self) -> &'static str {
        match self {
            ExportOutcome::Accepted => "accepted",
            ExportOutcome::Rejected => "rejected",
            ExportOutcome::Failed => "failed",
        }
    }
}

/// Counts of one signal.
#[derive(Debug, Default)]
struct SignalCounts {
    dropped: AtomicU64,
    exports: [AtomicU64; ExportOutcome::ALL.len()],
}

/// Queues, counts and state of the export to a collector.
pub struct TelemetryHub {
    config: OtlpConfig,
    env: Env,
    /// Spans that wait for their export.
    pub spans: RecordQueue<SpanRecord>,
    /// Log lines that wait for their export.
    pub logs: RecordQueue<LogRecord>,
    counts: [SignalCounts; Signal::ALL.len()],
    health: ExportHealth,
    started_micros: u64,
    id_seed: [u64; 2],
    ids: AtomicU64,
}

impl fmt::Debug for TelemetryHub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TelemetryHub").field("config", &self.config).finish_non_exhaustive()
    }
}

impl TelemetryHub {
    /// Creates the state of an export. The server exports once it is started with it.
    ///
    /// # Errors
    /// The program is built without the feature `otlp`, an encrypted endpoint has no trusted
    /// authorities, or the system has no random bytes.
    pub fn new(config: OtlpConfig) -> Result<Arc<TelemetryHub>, String> {
        TelemetryHub::with_env(config, &Env::system())
    }

    /// Like [`TelemetryHub::new`], in another environment.
    pub fn with_env(config: OtlpConfig, env: &Env) -> Result<Arc<TelemetryHub>, String> {
        if !cfg!(feature = "otlp") {
            return Err("this program is built without the export to OpenTelemetry".to_string());
        }
        if config.endpoint.is_encrypted && config.tls.is_none() {
            return Err(format!("no trusted authorities are set for {}", config.endpoint));
        }
        let mut random = [0; 16];
        let filled = env.entropy.fill(&mut random);
        filled.map_err(|error| format!("the system has no random bytes: {error}"))?;
        let seed = u128::from_le_bytes(random);
        Ok(Arc::new(TelemetryHub {
            config,
            env: env.clone(),
            spans: RecordQueue::default(),
            logs: RecordQueue::default(),
            counts: Default::default(),
            health: ExportHealth::default(),
            started_micros: env.clock.wall_micros(),
            id_seed: [seed as u64, (seed >> 64) as u64],
            ids: AtomicU64::new(0),
        }))
    }

    /// The settings.
    pub fn config(&self) -> &OtlpConfig {
        &self.config
    }

    /// The environment.
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// Whether a signal is exported.
    pub fn exports(&self, signal: Signal) -> bool {
        self.config.signals.contains(&signal)
    }

    /// Start of all counters in microseconds since 1970.
    pub fn started_micros(&self) -> u64 {
        self.started_micros
    }

    /// Generates a trace id and a span id. Both are unique, and no secrets: two numbers of
    /// SplitMix64 with random seeds, which cost no system call.
    pub fn new_ids(&self) -> (TraceId, SpanId) {
        let number = self.ids.fetch_add(1, Ordering::Relaxed);
        let [high, low] = self.id_seed.map(|seed| mix(seed, number));
        let trace = u128::from(high) << 64 | u128::from(low);
        (TraceId(trace.max(1)), SpanId(mix(high, low).max(1)))
    }

    /// Adds a span to the queue, or counts it as dropped.
    pub fn add_span(&self, span: SpanRecord) {
        self.add(Signal::Traces, &self.spans, span);
    }

    /// Adds a log line to the queue, or counts it as dropped.
    pub fn add_log(&self, line: LogRecord) {
        if self.exports(Signal::Logs) {
            self.add(Signal::Logs, &self.logs, line);
        }
    }

    fn add<T: QueuedRecord>(&self, signal: Signal, queue: &RecordQueue<T>, record: T) {
        if !queue.push(record) {
            self.count_dropped(signal, 1);
        }
    }

    /// Counts records that no collector gets.
    pub fn count_dropped(&self, signal: Signal, records: u64) {
        self.counts[signal as usize].dropped.fetch_add(records, Ordering::Relaxed);
    }

    /// Number of dropped records of a signal since the start.
    pub fn dropped(&self, signal: Signal) -> u64 {
        self.counts[signal as usize].dropped.load(Ordering::Relaxed)
    }

    /// Number of exports of a signal with an outcome since the start.
    pub fn export_count(&self, signal: Signal, outcome: ExportOutcome) -> u64 {
        self.counts[signal as usize].exports[outcome as usize].load(Ordering::Relaxed)
    }

    /// Counts an export, and logs the begin and the end of an outage.
    pub fn record_export(&self, signal: Signal, result: Result<(), &ExportFailure>) {
        let outcome = match result {
            Ok(()) => ExportOutcome::Accepted,
            Err(failure) if failure.is_retryable() => ExportOutcome::Failed,
            Err(_) => ExportOutcome::Rejected,
        };
        let exports = &self.counts[signal as usize].exports[outcome as usize];
        exports.fetch_add(1, Ordering::Relaxed);
        let collector = self.config.endpoint.to_string();
        match result {
            Ok(()) if self.health.record_success(signal) => {
                let dropped: u64 = Signal::ALL.map(|signal| self.dropped(signal)).iter().sum();
                tracing::info!(collector, dropped, "the OpenTelemetry collector accepts exports");
            }
            Ok(()) => {}
            Err(failure) => {
                let now = self.env.clock.wall_micros();
                if self.health.record_failure(signal, failure, now) {
                    let (signal, reason) = (signal.name(), &failure.reason[..]);
                    tracing::warn!(
                        collector,
                        signal,
                        reason,
                        "the OpenTelemetry collector does not accept exports; the server retries \
                         and drops what its queue cannot hold"
                    );
                }
            }
        }
    }

    /// State of the export, as JSON.
    pub fn status(&self) -> Value {
        let signals: Vec<&str> = self.config.signals.iter().map(|signal| signal.name()).collect();
        let dropped: u64 = Signal::ALL.map(|signal| self.dropped(signal)).iter().sum();
        json!({
            "collector": self.config.endpoint.to_string(),
            "signals": signals,
            "failing": self.health.outages(self.env.clock.wall_micros()),
            "droppedRecords": dropped,
            "queuedRecords": self.spans.size().0 + self.logs.size().0,
        })
    }
}

/// A number of the generator SplitMix64.
fn mix(seed: u64, number: u64) -> u64 {
    let mut mixed = seed.wrapping_add(number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
