//! [`RecordExporter`]: exports the queue of one signal in batches.

use std::time::Duration;

use hyper::body::Bytes;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceResponse;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::limits::{OTLP_BATCH_TIME, OTLP_RETRY_PAUSE, OTLP_RETRY_TIME};
use crate::telemetry::otlp::collector_client::CollectorClient;
use crate::telemetry::otlp::export_health::ExportFailure;
use crate::telemetry::otlp::record_messages;
use crate::telemetry::otlp::record_queue::RecordQueue;
use crate::telemetry::otlp::signal::Signal;
use crate::telemetry::otlp::telemetry_hub::TelemetryHub;
use crate::telemetry::otlp::telemetry_record::{LogRecord, QueuedRecord, SpanRecord};

/// A record that is exported in batches.
pub trait ExportedRecord: QueuedRecord + Sized {
    /// Signal of the record.
    const SIGNAL: Signal;

    /// The queue of such records.
    fn queue(hub: &TelemetryHub) -> &RecordQueue<Self>;

    /// The request that exports a batch.
    fn encode(resource: Resource, batch: &[Self]) -> Vec<u8>;

    /// Number of records of a batch that the collector rejected, by its response.
    fn rejected(response: &[u8]) -> u64;
}

impl ExportedRecord for SpanRecord {
    const SIGNAL: Signal = Signal::Traces;

    fn queue(hub: &TelemetryHub) -> &RecordQueue<SpanRecord> {
        &hub.spans
    }

    fn encode(resource: Resource, batch: &[SpanRecord]) -> Vec<u8> {
        record_messages::spans(resource, batch).encode_to_vec()
    }

    fn rejected(response: &[u8]) -> u64 {
        let response = ExportTraceServiceResponse::decode(response).unwrap_or_default();
        let rejected = response.partial_success.map_or(0, |partial| partial.rejected_spans);
        u64::try_from(rejected).unwrap_or(0)
    }
}

impl ExportedRecord for LogRecord {
    const SIGNAL: Signal = Signal::Logs;

    fn queue(hub: &TelemetryHub) -> &RecordQueue<LogRecord> {
        &hub.logs
    }

    fn encode(resource: Resource, batch: &[LogRecord]) -> Vec<u8> {
        record_messages::logs(resource, batch).encode_to_vec()
    }

    fn rejected(response: &[u8]) -> u64 {
        let response = ExportLogsServiceResponse::decode(response).unwrap_or_default();
        let rejected = response.partial_success.map_or(0, |partial| partial.rejected_log_records);
        u64::try_from(rejected).unwrap_or(0)
    }
}

/// Exports the queue of one signal.
#[derive(Debug)]
pub struct RecordExporter<'a> {
    hub: &'a TelemetryHub,
    client: CollectorClient<'a>,
    resource: &'a Resource,
    stop: watch::Receiver<bool>,
}

impl<'a> RecordExporter<'a> {
    /// Creates an exporter that ends once `stop` is true.
    pub fn new(
        hub: &'a TelemetryHub,
        resource: &'a Resource,
        stop: watch::Receiver<bool>,
    ) -> RecordExporter<'a> {
        RecordExporter { hub, client: CollectorClient::new(hub.config()), resource, stop }
    }

    /// Exports batches until the server stops, and then what the queue still holds, without
    /// retries.
    pub async fn run<T: ExportedRecord>(mut self) {
        let queue = T::queue(self.hub);
        while !*self.stop.borrow() {
            tokio::select! {
                () = queue.wait_batch() => {}
                () = tokio::time::sleep(OTLP_BATCH_TIME) => {}
                _ = self.stop.wait_for(|stop| *stop) => {}
            }
            loop {
                let batch = queue.take_batch();
                if batch.is_empty() {
                    break;
                }
                if !self.export_batch(&batch).await {
                    self.hub.count_dropped(T::SIGNAL, batch.len() as u64);
                }
            }
        }
    }

    /// Exports a batch, with retries. Returns whether the collector accepted it.
    async fn export_batch<T: ExportedRecord>(&mut self, batch: &[T]) -> bool {
        let body = Bytes::from(T::encode(self.resource.clone(), batch));
        let (start, [mut pause, pause_max]) = (Instant::now(), OTLP_RETRY_PAUSE);
        loop {
            let exported = self.client.export(T::SIGNAL, body.clone()).await;
            self.hub.record_export(T::SIGNAL, exported.as_ref().map(drop));
            let failure = match exported {
                Ok(response) => {
                    self.hub.count_dropped(T::SIGNAL, T::rejected(&response));
                    return true;
                }
                Err(failure) => failure,
            };
            let wait = retry_pause(&failure, pause);
            let is_late = start.elapsed() + wait > OTLP_RETRY_TIME;
            if *self.stop.borrow() || is_late || !failure.is_retryable() {
                return false;
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                _ = self.stop.wait_for(|stop| *stop) => {}
            }
            pause = (pause * 2).min(pause_max);
        }
    }
}

/// Pause before a retry: the collector's wish, or longer with each failure.
fn retry_pause(failure: &ExportFailure, pause: Duration) -> Duration {
    failure.retry_after.map_or(pause, |seconds| pause.max(Duration::from_secs(seconds)))
}
