//! Tests of the monitoring endpoints: pages of JSON, and metrics.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use umbel_events::StoreOptions;
use umbel_server::{
    CollectorEndpoint, Config, ObjectBackupConfig, OtlpConfig, Sampler, Signal, TelemetryHub,
};
use umbel_sim::ObjectSim;

use super::client::{ANY, NO_STREAM, events};
use super::persistent_subscriptions::{by_stream, create, of_all, of_stream, settings};
use super::test_server::TestServer;

/// Head and body of the response to `METHOD path` over HTTP/1.1.
pub fn http_request(address: SocketAddr, method: &str, path: &str) -> (String, String) {
    http_request_to("a:7", address, method, path)
}

pub fn http_request_to(
    host: &str,
    address: SocketAddr,
    method: &str,
    path: &str,
) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_ascii_lowercase(), body.to_string())
}

fn json(address: SocketAddr, path: &str) -> Value {
    let (head, body) = http_request(address, "GET", path);
    assert!(head.starts_with("http/1.1 200") && head.contains("application/json"), "{head}");
    serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"))
}

/// Value of the metrics line that begins with `name` and has all of `labels`.
pub fn metric(text: &str, name: &str, labels: &[&str]) -> f64 {
    let mut lines = text.lines().filter(|line| {
        let begins = line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{']));
        begins && labels.iter().all(|label| line.contains(label))
    });
    let line = lines.next().unwrap_or_else(|| panic!("no {name} {labels:?} in\n{text}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn info_pages_describe_server_and_store() {
    TestServer::new().run(async |client, server| {
        let _ = client.append("cart", NO_STREAM, &events(0..3)).await.unwrap();
        let (address, store) = (server.address(), server.store.clone());
        let check = move || {
            assert!(http_request(address, "GET", "/health/ready").0.starts_with("http/1.1 204"));
            assert_eq!(json(address, "/info")["state"], "leader");
            let gossip = json(address, "/gossip");
            let member = &gossip["members"][0];
            assert_eq!(
                (&member["httpEndPointIp"], &member["httpEndPointPort"]),
                (&Value::from("a"), &Value::from(7))
            );
            let stats = json(address, "/stats");
            assert_eq!(stats["store"]["position"], store.visible_position().0);
            assert_eq!(stats["existenceFilter"]["items"], 1);
            assert_eq!(stats["existenceFilter"]["damagedJournals"], 0);
            let path = store.path().display().to_string();
            let directory = json!({ "path": path, "isMoved": false, "isRemoved": false });
            assert_eq!(stats["directory"], directory);
            // Story: neither description of the page had the path, which doctor uses.
            let (_, text) = http_request_to("127.0.0.1", address, "GET", "/openapi.json");
            let document: Value = serde_json::from_str(&text).unwrap();
            let summary = document["paths"]["/stats"]["get"]["summary"].as_str().unwrap();
            assert!(summary.contains("directory.path"), "{summary}");
            let (head, body) = http_request(address, "HEAD", "/stats");
            assert!(head.starts_with("http/1.1 200") && body.is_empty(), "{head}\n{body}");
            assert!(http_request(address, "POST", "/stats").0.starts_with("http/1.1 405"));
            assert!(http_request(address, "GET", "/stats/").0.starts_with("http/1.1 404"));
        };
        tokio::task::spawn_blocking(check).await.unwrap();
    });
    let advertise = Some(("store.example".to_string(), 9));
    TestServer::with(Config { advertise, ..Config::default() }).run(async |_, server| {
        let address = server.address();
        let check = move || assert_eq!(json(address, "/gossip")["serverIp"], "store.example");
        tokio::task::spawn_blocking(check).await.unwrap();
    });
}

/// Names of metrics in a text.
fn metric_names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("umbel_") || word.starts_with("process_")).collect()
}

#[test]
fn dashboard_and_alerts_name_metrics_that_exist() {
    let dashboard = include_str!("../../../../packaging/grafana/umbel-dashboard.json");
    let panels: Value = serde_json::from_str(dashboard).unwrap();
    assert!(panels["panels"].as_array().unwrap().len() > 10);
    let alerts = include_str!("../../../../packaging/prometheus/umbel-alerts.yml");
    let target = tempfile::tempdir().unwrap();
    let backup_directory = Some(target.path().join("copy"));
    let telemetry = unreachable_collector();
    let object_backup = Some(ObjectBackupConfig::new(ObjectSim::new(1).client(1)));
    let config = Config { backup_directory, object_backup, telemetry, ..Config::default() };
    let options = StoreOptions { log_quota_bytes: Some(1 << 30), ..StoreOptions::default() };
    TestServer::with_kv_on(options, config).run(async |client, server| {
        let _ = client.append("cart", NO_STREAM, &events(0..1)).await.unwrap();
        create(&client, of_stream("cart", settings())).await.unwrap();
        create(&client, of_all(by_stream("", &["cart"]))).await.unwrap();
        client.unary::<(), ()>("no.such.Service", "Call", ()).await.expect_err("it is not served");
        let address = server.address();
        let request = move || {
            // The time of a backup has no sample before the first one.
            let (head, body) = http_request_to("127.0.0.1", address, "POST", "/admin/backup");
            assert!(head.starts_with("http/1.1 20"), "{head} {body}");
            loop {
                let (_, text) = http_request(address, "GET", "/metrics");
                if text.contains("umbel_last_successful_backup_timestamp_seconds ") {
                    return text;
                }
            }
        };
        let text = tokio::task::spawn_blocking(request).await.unwrap();
        let served = metric_names(&text);
        let named = metric_names(dashboard).into_iter().chain(metric_names(alerts));
        // Only a server with TLS has a certificate.
        let named = named.filter(|name| *name != "umbel_certificate_expiry_timestamp_seconds");
        let missing: Vec<_> = named.filter(|name| !served.contains(name)).collect();
        assert!(missing.is_empty() || !cfg!(target_os = "linux"), "{missing:?}");
    });
}

/// Export to a collector that does not exist; none if the export is not built.
fn unreachable_collector() -> Option<Arc<TelemetryHub>> {
    let config = OtlpConfig {
        endpoint: CollectorEndpoint::parse("http://127.0.0.1:9").unwrap(),
        signals: Signal::ALL.to_vec(),
        headers: Vec::new(),
        resource: Vec::new(),
        sampler: Sampler::from_name("always_off", 0.0).unwrap(),
        metric_interval: Duration::from_secs(60),
        timeout: Duration::from_secs(1),
        tls: None,
    };
    TelemetryHub::new(config).ok()
}

/// Checks the metrics of the process and of the disk, and those under KurrentDB's names.
fn check_system_metrics(text: &str) {
    let written = metric(text, "kurrentdb_io_events_total", &["activity=\"written\""]);
    assert_eq!(written, metric(text, "umbel_events_appended_total", &[]));
    let appends = ["activity=\"append\"", "status=\"successful\""];
    assert_eq!(metric(text, "kurrentdb_grpc_method_duration_seconds_count", &appends), 2.0);
    let failed = metric(text, "kurrentdb_incoming_grpc_calls_total", &["kind=\"failed\""]);
    let unserved = metric(text, "kurrentdb_incoming_grpc_calls_total", &["unimplemented"]);
    assert_eq!((failed, unserved), (3.0, 3.0));
    assert_eq!(
        metric(text, "kurrentdb_checkpoints", &["writer"]),
        metric(text, "umbel_log_position", &[])
    );
    if cfg!(target_os = "linux") {
        assert!(metric(text, "process_resident_memory_bytes", &[]) > 1e6);
        assert!(metric(text, "process_cpu_seconds_total", &[]) > 0.0);
        assert!(metric(text, "process_open_fds", &[]) < metric(text, "process_max_fds", &[]));
        assert!(metric(text, "process_threads", &[]) >= 2.0);
    }
    let (free, size) = ("umbel_disk_available_bytes", "umbel_disk_size_bytes");
    assert!(metric(text, free, &[]) <= metric(text, size, &[]));
}

#[test]
fn metrics_count_calls_and_store_contents() {
    TestServer::new().run(async |client, server| {
        let _ = client.append("cart", NO_STREAM, &events(0..3)).await.unwrap();
        let _ = client.append("cart", ANY, &events(3..4)).await.unwrap();
        for number in 0..3 {
            let path = format!("Call{number}");
            let status = client.unary::<(), ()>("no.such.Service", &path, ()).await;
            status.expect_err("the server does not answer");
        }
        let (address, store) = (server.address(), server.store.clone());
        let check = move || {
            let (head, text) = http_request(address, "GET", "/metrics");
            assert!(head.contains("text/plain; version=0.0.4"), "{head}");
            assert!(text.contains("# TYPE umbel_calls_total counter\n"), "{text}");
            let append = "call=\"event_store.client.streams.Streams/Append\"";
            assert_eq!(metric(&text, "umbel_calls_total", &[append]), 2.0);
            assert_eq!(metric(&text, "umbel_call_seconds_count", &[append]), 2.0);
            let not_served = "call=\"not served\"";
            assert_eq!(metric(&text, "umbel_calls_total", &[not_served]), 3.0);
            let failed = [not_served, "code=\"Unimplemented\""];
            assert_eq!(metric(&text, "umbel_calls_failed_total", &failed), 3.0);
            assert!(metric(&text, "umbel_connections", &[]) >= 1.0);
            for state in ["waiting", "running"] {
                let name = format!("umbel_read_pool_{state}_pages");
                assert_eq!(metric(&text, &name, &[]), 0.0, "{name}");
            }
            let names =
                ["umbel_append_buffered_bytes", "umbel_appends_bytes", "umbel_unread_bytes"];
            for name in names {
                assert!(metric(&text, name, &[]) >= 0.0);
            }
            for name in ["umbel_log_position", "umbel_position"] {
                assert_eq!(metric(&text, name, &[]), store.visible_position().0 as f64);
            }
            assert!(metric(&text, "umbel_events_appended_total", &[]) >= 4.0);
            assert_eq!(metric(&text, "umbel_build_info", &["version=", "revision="]), 1.0);
            check_system_metrics(&text);
            assert_eq!(metric(&text, "umbel_existence_items", &[]), 1.0);
            assert!(metric(&text, "umbel_existence_negatives_total", &[]) >= 1.0);
            store.flush().unwrap();
            let (_, text) = http_request(address, "GET", "/metrics");
            assert_eq!(metric(&text, "umbel_index_lag_bytes", &[]), 0.0);
            let heads = ["keyspace=\"heads\"", "level=\"0\""];
            // The background thread may have flushed as well.
            assert!(metric(&text, "umbel_level_tables", &heads) >= 1.0);
        };
        tokio::task::spawn_blocking(check).await.unwrap();
    });
}
