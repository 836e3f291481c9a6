//! Tests of the export to an OpenTelemetry collector, with a collector of their own.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as NumberValue;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use tokio::time::Instant;
use umbel_env::Env;
use umbel_server::{
    AttributeValue, CollectorEndpoint, Config, ExportOutcome, LogRecord, OtlpConfig, Sampler,
    Signal, TelemetryHub, TraceId, parse_headers,
};

use super::client::{ANY, events};
use super::http_client::{HttpAnswer, send};
use super::test_server::TestServer;

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
/// Upper bound of a wait.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Status for which the collector sends no response.
const SILENT: u16 = 0;

/// Path, head and body of a request.
type ReceivedRequest = (String, String, Vec<u8>);

/// A collector that keeps the requests it gets, and answers them with a status.
struct Collector {
    address: SocketAddr,
    status: Arc<AtomicU16>,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
}

impl Collector {
    fn start() -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (status, requests) = (Arc::new(AtomicU16::new(200)), Arc::default());
        let collector = Collector { address, status, requests };
        let (status, requests) = (Arc::clone(&collector.status), Arc::clone(&collector.requests));
        let accept = move || {
            for stream in listener.incoming() {
                let (status, requests) = (Arc::clone(&status), Arc::clone(&requests));
                let serve = move || answer(stream.unwrap(), &status, &requests);
                drop(Env::system().threads.spawn("collector", Box::new(serve)).unwrap());
            }
        };
        drop(Env::system().threads.spawn("collector", Box::new(accept)).unwrap());
        collector
    }

    /// Bodies of the requests to a path.
    fn bodies(&self, path: &str) -> Vec<Vec<u8>> {
        let requests = self.requests.lock().unwrap();
        let ours = requests.iter().filter(|(to, ..)| to == path);
        ours.map(|(.., body)| body.clone()).collect()
    }

    fn spans(&self) -> Vec<Span> {
        let requests = self.bodies("/v1/traces").into_iter();
        let resources = requests
            .flat_map(|body| ExportTraceServiceRequest::decode(&body[..]).unwrap().resource_spans);
        resources.flat_map(|one| one.scope_spans).flat_map(|one| one.spans).collect()
    }
}

fn answer(
    mut stream: std::net::TcpStream,
    status: &AtomicU16,
    requests: &Mutex<Vec<ReceivedRequest>>,
) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        let head = head.to_ascii_lowercase();
        let (_, length) = head.split_once("content-length: ").unwrap();
        let mut body = vec![0; length.split("\r\n").next().unwrap().parse().unwrap()];
        reader.read_exact(&mut body).unwrap();
        let status = status.load(Ordering::SeqCst);
        if status == SILENT {
            Env::system().threads.pause(TEST_TIMEOUT);
            return;
        }
        if status == 200 {
            let path = head.split(' ').nth(1).unwrap().to_string();
            requests.lock().unwrap().push((path, head, body));
        }
        let answer = format!("HTTP/1.1 {status} x\r\ncontent-length: 0\r\n\r\n");
        stream.write_all(answer.as_bytes()).unwrap();
    }
}

fn config(collector: SocketAddr, ratio: f64) -> OtlpConfig {
    OtlpConfig {
        endpoint: CollectorEndpoint::parse(&format!("http://{collector}")).unwrap(),
        signals: Signal::ALL.to_vec(),
        headers: parse_headers("api-key=kept").unwrap(),
        resource: vec![("deployment.environment.name".to_string(), "test".to_string())],
        sampler: Sampler::from_name(Sampler::DEFAULT_NAME, ratio).unwrap(),
        metric_interval: Duration::from_millis(200),
        timeout: Duration::from_secs(1),
        tls: None,
    }
}

fn server(config: OtlpConfig) -> (TestServer, Arc<TelemetryHub>) {
    let hub = TelemetryHub::new(config).unwrap();
    let telemetry = Some(Arc::clone(&hub));
    (TestServer::with(Config { telemetry, ..Config::default() }), hub)
}

fn get(server: &TestServer, path: &str, headers: &[&str]) -> HttpAnswer {
    send(server.address(), "GET", path, headers, b"")
}

/// Waits until a condition is met.
fn wait_until(what: &str, is_met: impl Fn() -> bool) {
    let end = Instant::now() + TEST_TIMEOUT;
    while !is_met() {
        assert!(Instant::now() < end, "never: {what}");
        Env::system().threads.pause(Duration::from_millis(20));
    }
}

fn attributes(list: &[KeyValue]) -> BTreeMap<&str, String> {
    let text = |pair: &KeyValue| match pair.value.clone().and_then(|value| value.value) {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    };
    list.iter().map(|pair| (&pair.key[..], text(pair))).collect()
}

fn append(server: &mut TestServer, stream: &str) {
    server.run(async |client, _| client.append(stream, ANY, &events(0..3)).await.unwrap());
}

/// Values of counters and gauges without labels, by name.
fn exported_values(body: &[u8]) -> BTreeMap<String, f64> {
    let request = ExportMetricsServiceRequest::decode(body).unwrap();
    let resources = request.resource_metrics.into_iter();
    let metrics = resources.flat_map(|one| one.scope_metrics).flat_map(|one| one.metrics);
    let values = metrics.filter_map(|metric| {
        let points = match metric.data? {
            Data::Sum(sum) => sum.data_points,
            Data::Gauge(gauge) => gauge.data_points,
            _ => return None,
        };
        let point = points.into_iter().find(|point| point.attributes.is_empty())?;
        match point.value? {
            NumberValue::AsDouble(value) => Some((metric.name, value)),
            NumberValue::AsInt(value) => Some((metric.name, value as f64)),
        }
    });
    values.collect()
}

#[test]
fn collector_gets_the_metrics_that_the_page_shows() {
    let collector = Collector::start();
    let (mut server, _hub) = server(config(collector.address, 0.0));
    append(&mut server, "cart-1");
    let sent = collector.bodies("/v1/metrics").len();
    wait_until("two exports of metrics", || collector.bodies("/v1/metrics").len() > sent + 1);
    let (head, body) = {
        let requests = collector.requests.lock().unwrap();
        let mut metrics = requests.iter().rev().filter(|(path, ..)| path == "/v1/metrics");
        let (_, head, body) = metrics.next().unwrap();
        (head.clone(), body.clone())
    };
    assert!(head.contains("api-key: kept") && head.contains("application/x-protobuf"), "{head}");
    let exported = exported_values(&body);
    let page = get(&server, "/metrics", &[]);
    let shown: BTreeMap<&str, f64> = page
        .text()
        .lines()
        .filter(|line| !line.starts_with('#') && !line.contains('{'))
        .filter_map(|line| {
            let (name, value) = line.split_once(' ')?;
            Some((name, value.parse().unwrap()))
        })
        .collect();
    assert_eq!(exported["umbel_events_appended_total"], shown["umbel_events_appended_total"]);
    assert_eq!(exported["umbel_log_position"], shown["umbel_log_position"]);
    assert!(shown["umbel_events_appended_total"] >= 3.0);
    for (name, value) in shown.iter().filter(|(_, value)| !value.is_nan()) {
        let is_former = page.text().contains(&format!("# HELP {name} Deprecated name"));
        let may_miss = name.ends_with("_sum") || name.ends_with("_count");
        assert!(exported.contains_key(*name) != is_former || may_miss, "{name}: {value}");
    }
    assert!(shown.contains_key("umbel_position") && !exported.contains_key("umbel_position"));
    let request = ExportMetricsServiceRequest::decode(&body[..]).unwrap();
    let resource = request.resource_metrics[0].resource.clone().unwrap();
    let described = attributes(&resource.attributes);
    assert_eq!(described["service.name"], "umbel");
    assert_eq!(described["deployment.environment.name"], "test");
}

#[test]
fn sampled_calls_become_spans_with_the_parent_of_the_client() {
    let collector = Collector::start();
    let (mut server, _hub) = server(config(collector.address, 0.0));
    append(&mut server, "cart-1");
    let unsampled = PARENT.replace("-01", "-00");
    let header = |parent: &str| format!("traceparent: {parent}");
    get(&server, "/metrics", &[&header(&unsampled)]);
    let answer = get(&server, "/streams/secret-cart", &[&header(PARENT), "tracestate: shop=1"]);
    wait_until("a span", || !collector.spans().is_empty());
    let spans = collector.spans();
    assert_eq!(spans.len(), 1, "{spans:?}");
    let span = &spans[0];
    assert_eq!(span.trace_id, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736_u128.to_be_bytes());
    assert_eq!(span.parent_span_id, 0x00f0_67aa_0ba9_02b7_u64.to_be_bytes());
    assert_eq!((&span.name[..], &span.trace_state[..]), ("GET /streams/{stream}", "shop=1"));
    assert!(span.end_time_unix_nano >= span.start_time_unix_nano);
    let described = attributes(&span.attributes);
    assert_eq!(described["http.response.status_code"], answer.status.to_string());
    assert_eq!(described["network.peer.address"], "127.0.0.1");
    assert!(!format!("{span:?}").contains("secret"), "a span names no stream");
}

#[test]
fn ratio_of_one_records_every_call_and_zero_none() {
    let collector = Collector::start();
    let (mut server, hub) = server(config(collector.address, 1.0));
    append(&mut server, "cart-1");
    get(&server, "/health/live", &[]);
    get(&server, "/no/such/path", &[]);
    wait_until("three spans", || collector.spans().len() >= 3);
    let spans = collector.spans();
    let named = |name: &str| spans.iter().find(|span| span.name == name).expect(name);
    let append = named("event_store.client.streams.Streams/Append");
    let described = attributes(&append.attributes);
    assert_eq!(
        (&described["rpc.system"][..], &described["rpc.grpc.status_code"][..]),
        ("grpc", "0")
    );
    assert_eq!(described["rpc.method"], "Append");
    assert!(append.parent_span_id.is_empty() && append.span_id.len() == 8);
    named("GET /health/live");
    named("GET not served");
    let traces: std::collections::HashSet<_> = spans.iter().map(|span| &span.trace_id).collect();
    assert_eq!(traces.len(), spans.len(), "each call has a trace of its own");
    assert_eq!(hub.dropped(Signal::Traces), 0);
}

fn log_line(message: &str) -> LogRecord {
    LogRecord {
        wall_micros: 7,
        level: tracing::Level::WARN,
        message: message.to_string(),
        attributes: vec![("stream", AttributeValue::Text("cart".to_string()))],
        trace: Some(TraceId(9)),
    }
}

#[test]
fn log_lines_are_exported_also_at_the_end() {
    let collector = Collector::start();
    let (server, hub) = server(config(collector.address, 0.0));
    hub.add_log(log_line("the disk is full"));
    drop(server);
    let bodies = collector.bodies("/v1/logs");
    let request = ExportLogsServiceRequest::decode(&bodies[0][..]).unwrap();
    let record = &request.resource_logs[0].scope_logs[0].log_records[0];
    let body = record.body.clone().and_then(|body| body.value);
    assert_eq!(body, Some(Value::StringValue("the disk is full".to_string())));
    assert_eq!((record.time_unix_nano, &record.severity_text[..]), (7000, "WARN"));
    assert_eq!(record.trace_id, 9u128.to_be_bytes());
    assert_eq!(attributes(&record.attributes)["stream"], "cart");
}

/// A collector that cannot be reached costs bounded memory, and no call.
#[test]
fn unreachable_collector_costs_only_counted_drops() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let (mut server, hub) = server(config(address, 1.0));
    append(&mut server, "cart-1");
    for number in 0..20_000 {
        hub.add_log(log_line(&format!("line {number}")));
    }
    let (records, bytes) = hub.logs.size();
    assert!(records <= 4096 && bytes <= 4 << 20, "{records} records, {bytes} bytes");
    assert!(hub.dropped(Signal::Logs) >= 20_000 - 4096 - 512, "{}", hub.dropped(Signal::Logs));
    wait_until("failed exports", || hub.export_count(Signal::Metrics, ExportOutcome::Failed) > 2);
    assert!(hub.dropped(Signal::Metrics) > 0);
    let page = get(&server, "/metrics", &[]);
    assert!(page.text().contains("umbel_otlp_dropped_total{signal=\"logs\"} 1"), "{}", page.text());
    assert!(page.text().contains("outcome=\"failed\""));
    let status = get(&server, "/stats", &[]).json();
    let failing = &status["openTelemetry"]["failing"];
    assert!(failing[0]["reason"].as_str().unwrap().contains("no connection"), "{status}");
    let begin = Instant::now();
    drop(server);
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
}

#[test]
fn refused_records_are_dropped_and_overload_is_retried() {
    let collector = Collector::start();
    collector.status.store(400, Ordering::SeqCst);
    let (server, hub) = server(config(collector.address, 0.0));
    hub.add_log(log_line("refused"));
    wait_until("a refusal", || hub.export_count(Signal::Logs, ExportOutcome::Rejected) == 1);
    wait_until("a drop", || hub.dropped(Signal::Logs) == 1);
    collector.status.store(503, Ordering::SeqCst);
    hub.add_log(log_line("retried"));
    wait_until("a failure", || hub.export_count(Signal::Logs, ExportOutcome::Failed) >= 1);
    collector.status.store(200, Ordering::SeqCst);
    wait_until("an export", || hub.export_count(Signal::Logs, ExportOutcome::Accepted) == 1);
    assert_eq!(hub.dropped(Signal::Logs), 1, "a retried record is not lost");
    wait_until("no failing signal", || {
        get(&server, "/stats", &[]).json()["openTelemetry"]["failing"] == serde_json::json!([])
    });
}

#[test]
fn silent_collector_delays_neither_calls_nor_the_end_of_the_server() {
    let collector = Collector::start();
    collector.status.store(SILENT, Ordering::SeqCst);
    let (mut server, hub) = server(config(collector.address, 1.0));
    append(&mut server, "cart-1");
    wait_until("a timeout", || hub.export_count(Signal::Traces, ExportOutcome::Failed) > 0);
    let status = get(&server, "/stats", &[]).json();
    assert!(status.to_string().contains("no response within 1 s"), "{status}");
    let begin = Instant::now();
    drop(server);
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
}
