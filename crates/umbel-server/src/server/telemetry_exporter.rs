//! [`TelemetryExporter`]: the thread that exports metrics, log lines and spans to a collector.
//!
//! The thread has a runtime of its own: neither the encoding of many metrics nor a slow collector
//! takes time from the threads that serve calls. Those threads only add records to queues.

use std::io;
use std::sync::Arc;

use hyper::body::Bytes;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use tokio::runtime::Builder;
use tokio::sync::watch;

use crate::http::metrics::{self, MetricReadings};
use crate::limits::OTLP_SHUTDOWN_TIME;
use crate::server_context::ServerContext;
use crate::telemetry::otlp::collector_client::CollectorClient;
use crate::telemetry::otlp::export_health::{ExportFailure, FailureKind};
use crate::telemetry::otlp::metric_messages::{self, MetricPeriod};
use crate::telemetry::otlp::record_exporter::RecordExporter;
use crate::telemetry::otlp::record_messages;
use crate::telemetry::otlp::signal::Signal;
use crate::telemetry::otlp::telemetry_hub::TelemetryHub;
use crate::telemetry::otlp::telemetry_record::{LogRecord, SpanRecord};

/// Name of the service unless the settings have one.
const SERVICE_NAME: &str = "umbel";

/// The thread that exports telemetry.
#[derive(Debug)]
pub struct TelemetryExporter {
    stop: watch::Sender<bool>,
    thread: Box<dyn umbel_env::JoinHandle>,
}

impl TelemetryExporter {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system refuses threads.
    pub fn start(
        service: Arc<ServerContext>,
        hub: Arc<TelemetryHub>,
    ) -> io::Result<TelemetryExporter> {
        let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(2).build()?;
        let (stop, stopped) = watch::channel(false);
        let threads = Arc::clone(&service.env.threads);
        let work = Box::new(move || {
            runtime.block_on(export(&service, &hub, stopped));
            // Frees the connections and the reads that no exporter waits for.
            runtime.shutdown_timeout(OTLP_SHUTDOWN_TIME);
        });
        let thread = threads.spawn("umbel-telemetry", work);
        let thread = thread.map_err(|error| io::Error::other(error.to_string()))?;
        Ok(TelemetryExporter { stop, thread })
    }

    /// Exports what is queued, for some seconds at most, and ends the thread.
    pub fn stop(self) {
        self.stop.send_replace(true);
        self.thread.join();
    }
}

/// Exports all signals until the server stops.
async fn export(service: &ServerContext, hub: &TelemetryHub, stop: watch::Receiver<bool>) {
    let resource = resource(service, hub);
    let late = async {
        let mut stop = stop.clone();
        // An error means that the server has stopped.
        let _ = stop.wait_for(|stop| *stop).await;
        tokio::time::sleep(OTLP_SHUTDOWN_TIME).await;
    };
    let exports = async {
        tokio::join!(
            export_metrics(service, hub, &resource, stop.clone()),
            export_if::<LogRecord>(hub, &resource, stop.clone()),
            export_if::<SpanRecord>(hub, &resource, stop.clone()),
        );
    };
    tokio::select! {
        () = exports => {}
        () = late => {}
    }
}

/// Exports records of one signal, if it is exported.
async fn export_if<T: crate::telemetry::otlp::record_exporter::ExportedRecord>(
    hub: &TelemetryHub,
    resource: &Resource,
    stop: watch::Receiver<bool>,
) {
    if hub.exports(T::SIGNAL) {
        RecordExporter::new(hub, resource, stop).run::<T>().await;
    }
}

/// Exports the metrics at each interval, and at the end.
async fn export_metrics(
    service: &ServerContext,
    hub: &TelemetryHub,
    resource: &Resource,
    mut stop: watch::Receiver<bool>,
) {
    if !hub.exports(Signal::Metrics) {
        return;
    }
    let mut client = CollectorClient::new(hub.config());
    while !*stop.borrow() {
        tokio::select! {
            () = tokio::time::sleep(hub.config().metric_interval) => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
        let mut values = 0;
        let exported = match read_metrics(service, hub, resource).await {
            Ok((body, count)) => {
                values = count;
                client.export(Signal::Metrics, body).await
            }
            Err(failure) => Err(failure),
        };
        hub.record_export(Signal::Metrics, exported.as_ref().map(drop));
        // The next export has the present values, so there is no retry.
        hub.count_dropped(Signal::Metrics, exported.map_or(values, |response| rejected(&response)));
    }
}

/// Reads the metrics that `/metrics` shows. Returns the message, and the number of values.
async fn read_metrics(
    service: &ServerContext,
    hub: &TelemetryHub,
    resource: &Resource,
) -> Result<(Bytes, u64), ExportFailure> {
    let unreadable = |error: &dyn std::fmt::Display| {
        ExportFailure::new(FailureKind::NoData, format!("the metrics cannot be read: {error}"))
    };
    let readings = MetricReadings::read(service).await.map_err(|error| unreadable(&error))?;
    let registry = metrics::collect(&readings, service, false);
    let nanos = |micros: u64| micros.saturating_mul(1000);
    let period = MetricPeriod {
        start_nanos: nanos(hub.started_micros()),
        end_nanos: nanos(service.env.clock.wall_micros()),
    };
    let (message, values) = metric_messages::metrics(&registry, resource.clone(), period)
        .map_err(|error| unreadable(&error))?;
    Ok((Bytes::from(message.encode_to_vec()), values))
}

/// Number of values that the collector rejected, by its response.
fn rejected(response: &[u8]) -> u64 {
    let response = ExportMetricsServiceResponse::decode(response).unwrap_or_default();
    let rejected = response.partial_success.map_or(0, |partial| partial.rejected_data_points);
    u64::try_from(rejected).unwrap_or(0)
}

/// Describes the server. The settings come first.
fn resource(service: &ServerContext, hub: &TelemetryHub) -> Resource {
    let mut pairs = hub.config().resource.clone();
    for (name, value) in [
        ("service.name", SERVICE_NAME.to_string()),
        ("service.version", env!("CARGO_PKG_VERSION").to_string()),
        ("service.instance.id", service.instance_id.to_string()),
    ] {
        if !pairs.iter().any(|(given, _)| given == name) {
            pairs.push((name.to_string(), value));
        }
    }
    record_messages::resource(&pairs)
}
