//! Tests of the access log, and of the trace id by which clients find their calls in the log.

use std::collections::VecDeque;
use std::io::{self, Write};
#[cfg(unix)]
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::Duration;
use umbel_base::ignore_poison::IgnorePoison;

use http_body_util::StreamBody;
use hyper::body::{Bytes, Frame};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tonic::body::Body;
use tonic::client::GrpcService;
use tonic::metadata::MetadataMap;
use tonic::{Code, Request, Status};
use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use umbel_events::StoreOptions;
use umbel_proto::streams::ReadReq;
use umbel_proto::streams::read_req::RevisionOption;
use umbel_server::Config;

use super::client::{ANY, Client, NO_STREAM, at_most, events, of_stream, subscription};
use super::damage::damage_third_event;
use super::http_client::{authorization, send};
#[cfg(unix)]
use super::monitoring::{http_request, metric};
use super::test_server::{TestServer, with_users};

/// Prefix of the trace ids of these tests, which distinguishes them from those of other tests in
/// the log.
const OURS: &str = "7e577e577e577e57";
/// Maximum number of lines kept, and time limit for a line to appear.
const KEPT: usize = 1 << 14;
const TEST_TIMEOUT: Duration = Duration::from_secs(20);
const START: RevisionOption = RevisionOption::Start(());
const TRACE_HEADER: &str = "umbel-trace-id";
/// Credentials of the user `ops` with the first password, as a header value.
const OPS: &str = "b3BzOnNlY29uZA==";

/// Log lines of the process: all of its threads share one subscriber.
struct Lines;

static LINES: Mutex<VecDeque<String>> = Mutex::new(VecDeque::new());

fn lines() -> MutexGuard<'static, VecDeque<String>> {
    LINES.lock().ignore_poison()
}

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8(line.to_vec()).unwrap();
        if text.contains(OURS) || !text.contains(r#""level":"DEBUG""#) {
            let mut lines = lines();
            lines.push_back(text);
            if lines.len() > KEPT {
                lines.pop_front();
            }
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Keeps the lines that the process logs from now on.
pub fn listen() {
    static LISTENING: OnceLock<()> = OnceLock::new();
    LISTENING.get_or_init(|| {
        let layer = fmt::layer().json().flatten_event(true).with_writer(|| Lines);
        let targets = Targets::new().with_target("umbel", Level::DEBUG);
        tracing_subscriber::registry().with(targets).with(layer).init();
    });
}

/// Returns the lines with this text, oldest first.
pub fn lines_with(text: &str) -> Vec<Value> {
    let lines = lines();
    let found = lines.iter().filter(|line| line.contains(text));
    found.map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Lines with this trace id and message.
fn found(trace: &str, message: &str) -> Vec<Value> {
    let lines = lines();
    let ours = lines.iter().filter(|line| line.contains(trace));
    let read = ours.map(|line| serde_json::from_str::<Value>(line).unwrap());
    read.filter(|line| line["trace_id"] == trace && line["message"] == message).collect()
}

/// Waits for the line with this trace id and message.
async fn line(trace: &str, message: &str) -> Value {
    let until = Instant::now() + TEST_TIMEOUT;
    loop {
        if let Some(line) = found(trace, message).pop() {
            return line;
        }
        assert!(Instant::now() < until, "{trace}, {message}: {:?}", found(trace, message));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits for a line with this path and message, and returns the newest such line.
#[cfg(unix)]
async fn last_of(path: &str, message: &str) -> Value {
    let until = Instant::now() + TEST_TIMEOUT;
    let is_it = |line: &Value| {
        line["path"] == path && line["message"].as_str().is_some_and(|text| text.contains(message))
    };
    loop {
        let read = |line: &String| serde_json::from_str::<Value>(line).unwrap();
        if let Some(line) = lines().iter().map(read).rfind(is_it) {
            return line;
        }
        assert!(Instant::now() < until, "{path}: no line says {message}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Trace id with this number, and the client's header for it.
fn trace(number: u64) -> (String, String) {
    let trace = format!("{OURS}{number:016x}");
    let traceparent = format!("00-{trace}-00f067aa0ba902b7-01");
    (trace, traceparent)
}

fn number(metadata: &MetadataMap) -> Option<String> {
    metadata.get(TRACE_HEADER).map(|trace| trace.to_str().unwrap().to_string())
}

/// Builds a request with this trace header.
fn with_trace(client: &Client, message: ReadReq, traceparent: &str) -> Request<ReadReq> {
    let mut request = client.request(message);
    request.metadata_mut().insert("traceparent", traceparent.parse().unwrap());
    request
}

async fn refused(client: &Client, request: Request<ReadReq>) -> Status {
    client.open(request).await.expect_err("a read without options")
}

#[test]
fn failed_call_is_logged_under_its_trace_id() {
    listen();
    TestServer::new().run(async |client, _| {
        let (given, traceparent) = trace(1);
        let status = refused(&client, with_trace(&client, ReadReq::default(), &traceparent)).await;
        assert_eq!(
            (status.code(), number(status.metadata())),
            (Code::InvalidArgument, Some(given))
        );
        let entry = line(&trace(1).0, "call failed").await;
        assert_eq!(entry["level"], "INFO", "the server is not to blame");
        assert_eq!(entry["method"], "event_store.client.streams.Streams/Read");
        assert_eq!((&entry["code"], &entry["reason"]), (&"InvalidArgument".into(), &Value::Null));
        assert!(entry["peer"].as_str().unwrap().starts_with("127.0.0.1:"), "{entry}");
        assert!(entry["milliseconds"].as_f64().unwrap() >= 0.0, "{entry}");
        // A request without a valid trace header gets a new trace id.
        let requests = [client.request(ReadReq::default()), {
            with_trace(&client, ReadReq::default(), &traceparent.to_ascii_uppercase())
        }];
        for request in requests {
            let made = number(refused(&client, request).await.metadata()).unwrap();
            assert!(made.len() == 32 && !made.eq_ignore_ascii_case(&trace(1).0), "{made}");
            line(&made, "call failed").await;
        }
    });
}

/// Story: an operator swapped the directory of a served store for a restored one. The server
/// continued in the old directory, and only `stats()` showed that.
#[test]
#[cfg(unix)]
fn moved_directory_is_logged_and_counted() {
    listen();
    TestServer::new().run(async |client, server| {
        let (address, store) = (server.address(), server.store.clone());
        let path = store.path().to_path_buf();
        let moved = |text: &str| metric(text, "umbel_directory_moved", &[]);
        let page = async move || {
            let page =
                tokio::task::spawn_blocking(move || http_request(address, "GET", "/metrics").1);
            page.await.unwrap()
        };
        assert_eq!(moved(&page().await), 0.0);
        let (aside, message) = (path.with_extension("aside"), "the event store was moved");
        Command::new("mv").args([&path, &aside]).status().unwrap();
        let line = last_of(&path.display().to_string(), message).await;
        assert_eq!(
            (&line["level"], &line["path_now"]),
            (&"WARN".into(), &Value::from(aside.to_str()))
        );
        assert_eq!(moved(&page().await), 1.0);
        let _ = client.append("cart", NO_STREAM, &events(0..3)).await.expect("it goes on there");
        Command::new("mv").args([&aside, &path]).status().unwrap();
        last_of(&path.display().to_string(), "is at its path again").await;
        assert_eq!(moved(&page().await), 0.0);
    });
}

/// A store whose directory was removed accepts no append until a restart. The server still reported
/// readiness, so that a load balancer sent calls to it. Without `--sync`, the server acknowledged
/// appends for minutes that no later open could find.
#[test]
#[cfg(unix)]
fn server_with_an_unwritable_store_is_not_ready() {
    TestServer::new().run(async |client, server| {
        let (address, store) = (server.address(), server.store.clone());
        let ready = async move || {
            let request =
                tokio::task::spawn_blocking(move || http_request(address, "GET", "/health/ready"));
            request.await.unwrap()
        };
        assert!(ready().await.0.starts_with("http/1.1 204"));
        // The store may make a file meanwhile, so that its directory is not empty yet.
        while store.path().exists() {
            std::fs::remove_dir_all(store.path()).ok();
        }
        let end = Instant::now() + TEST_TIMEOUT;
        while ready().await.0.starts_with("http/1.1 204") && Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let (head, body) = ready().await;
        assert!(head.starts_with("http/1.1 503"), "{head}");
        let refused = client.append("cart", NO_STREAM, &events(0..3)).await;
        assert!(refused.is_err(), "{refused:?}");
        assert!(body.contains("writes fail") && body.contains("removed"), "{body}");
    });
}

#[test]
fn late_failure_has_its_trace_id_in_the_trailers() {
    listen();
    TestServer::new().run(async |client, _| {
        let (given, traceparent) = trace(2);
        let options = Some(subscription(of_stream("cart", START)));
        let mut request = with_trace(&client, ReadReq { options }, &traceparent);
        request.metadata_mut().insert("grpc-timeout", "200m".parse().unwrap());
        let mut answers = client.open(request).await.unwrap();
        let status = loop {
            match answers.message().await {
                Ok(answer) => assert!(answer.is_some(), "it ends with a failure"),
                Err(status) => break status,
            }
        };
        assert_eq!(status.code(), Code::DeadlineExceeded);
        assert_eq!(number(status.metadata()), Some(given.clone()));
        let entry = line(&given, "call failed after the first response").await;
        assert_eq!((&entry["level"], &entry["code"]), (&"WARN".into(), &"DeadlineExceeded".into()));
        assert!(entry["milliseconds"].as_f64().unwrap() >= 150.0, "{entry}");
        assert!(entry["reason"].as_str().unwrap().contains("deadline"), "{entry}");
    });
}

#[test]
fn slow_calls_are_warnings_and_fast_ones_debug_lines() {
    listen();
    let read = || ReadReq { options: Some(at_most(9, of_stream("cart", START))) };
    TestServer::with(Config { slow_call_time: Duration::ZERO, ..Config::default() }).run(
        async |client, _| {
            let (given, traceparent) = trace(3);
            drop(client.open(with_trace(&client, read(), &traceparent)).await.unwrap());
            let entry = line(&given, "call was slow").await;
            assert_eq!((&entry["level"], &entry["code"]), (&"WARN".into(), &"Ok".into()));
        },
    );
    TestServer::new().run(async |client, _| {
        let _ = client.append("cart", ANY, &events(0..3)).await.unwrap();
        let (given, traceparent) = trace(4);
        let mut answers = client.open(with_trace(&client, read(), &traceparent)).await.unwrap();
        while answers.message().await.unwrap().is_some() {}
        let entry = line(&given, "call done").await;
        assert_eq!(entry["level"], "DEBUG");
        assert!(found(&given, "call was slow").is_empty());
        let (given, traceparent) = trace(5);
        let options = Some(subscription(of_stream("cart", START)));
        let mut answers =
            client.open(with_trace(&client, ReadReq { options }, &traceparent)).await.unwrap();
        assert!(answers.message().await.unwrap().is_some());
        drop(answers);
        line(&given, "client disconnected").await;
    });
}

/// Story: each client that disconnected in the middle of a request counted as an error of the
/// server: one `ERROR` line for every client that crashed.
#[test]
fn client_disconnect_is_not_a_server_error() {
    listen();
    TestServer::new().run(async |client, _| {
        for (number, method) in [(8, "Append"), (9, "Read")] {
            let (given, traceparent) = trace(number);
            let mut grpc = client.0.clone();
            let path = format!("http://localhost/event_store.client.streams.Streams/{method}");
            let (sender, body) = tokio::sync::mpsc::channel::<Result<Frame<Bytes>, Status>>(1);
            let frames = futures_util::stream::unfold(body, async |mut body| {
                body.recv().await.map(|frame| (frame, body))
            });
            let request = hyper::Request::post(path)
                .header("content-type", "application/grpc")
                .header("traceparent", traceparent)
                .body(Body::new(StreamBody::new(frames)));
            let call = tokio::spawn(GrpcService::call(&mut grpc, request.unwrap()));
            sender.send(Ok(Frame::data(Bytes::from_static(&[0, 0])))).await.unwrap();
            tokio::time::sleep(Duration::from_millis(100)).await;
            sender.send(Err(Status::cancelled("it breaks off"))).await.unwrap();
            let entry = line(&given, "call failed").await;
            assert_eq!((&entry["level"], &entry["code"]), (&"INFO".into(), &"Cancelled".into()));
            call.abort();
        }
    });
}

#[test]
fn log_names_users_but_not_passwords() {
    listen();
    TestServer::with_users().run(async |client, server| {
        let (given, traceparent) = trace(6);
        let admin = client.with_user("admin", "first");
        let _ = refused(&admin, with_trace(&admin, ReadReq::default(), &traceparent)).await;
        assert_eq!(line(&given, "call failed").await["user"], "admin");
        let (given, traceparent) = trace(7);
        let wrong_user = client.with_user("admin", "no-such-secret");
        let status =
            refused(&wrong_user, with_trace(&wrong_user, ReadReq::default(), &traceparent)).await;
        assert_eq!(status.code(), Code::Unauthenticated);
        let entry = line(&given, "call failed").await;
        assert_eq!((&entry["user"], &entry["code"]), (&Value::Null, &"Unauthenticated".into()));
        // Story: the log line of a call that policy refused omitted its caller.
        let (given, traceparent) = trace(10);
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        let head =
            format!("host: a\r\nauthorization: Basic {OPS}\r\ntraceparent: {traceparent}\r\n\r\n");
        let request = format!("GET /console/api/users HTTP/1.1\r\n{head}");
        stream.write_all(request.as_bytes()).await.unwrap();
        let entry = line(&given, "request failed").await;
        assert_eq!((&entry["user"], &entry["code"]), (&"ops".into(), &"403".into()));
    });
    let coded = "YWRtaW46bm8tc3VjaC1zZWNyZXQ";
    for line in lines().iter() {
        assert!(!line.contains("no-such-secret") && !line.contains(coded), "{line}");
    }
}

/// Story: an operator read a damaged event over HTTP. The alert and the advice refer to the log for
/// the damaged file, but the line of a failed page had no reason.
#[test]
fn failed_page_is_logged_with_its_reason() {
    listen();
    let options = StoreOptions { chunk_bytes: 64 << 10, ..StoreOptions::default() };
    TestServer::with_kv_on(options, Config::default()).run(async |_, server| {
        let address = server.address();
        damage_third_event(&server.store);
        let pages = [
            "/streams/cart-2/0/forward/1",
            "/console/api/stream?stream=cart-2&from=0&direction=forwards",
        ];
        for (page, number) in pages.into_iter().zip([40, 41]) {
            let (given, traceparent) = trace(number);
            let header = format!("traceparent: {traceparent}");
            let answer =
                tokio::task::spawn_blocking(move || send(address, "GET", page, &[&header], b""));
            assert_eq!(answer.await.unwrap().status, 500, "{page}");
            let entry = line(&given, "request failed").await;
            assert_eq!((&entry["level"], &entry["code"]), (&"ERROR".into(), &"500".into()));
            let reason = entry["reason"].as_str().unwrap_or_default();
            assert!(reason.contains(".chunk at byte "), "{page}: {entry}");
        }
        let (given, traceparent) = trace(42);
        let header = format!("traceparent: {traceparent}");
        let absent = move || send(address, "GET", "/streams/absent", &[&header], b"");
        assert_eq!(tokio::task::spawn_blocking(absent).await.unwrap().status, 404);
        let entry = line(&given, "request failed").await;
        assert_eq!(entry["reason"], Value::Null, "the client is at fault: {entry}");
    });
}

/// Story: on a full disk, the log did not say which limit an append over HTTP had met.
#[test]
fn append_beyond_the_quota_is_logged_with_its_reason() {
    listen();
    TestServer::with_log_quota(256 << 10).run(async |_, server| {
        let address = server.address();
        let (given, traceparent) = trace(43);
        let fill = move || {
            let data = vec![1; 100_000];
            let header = format!("traceparent: {traceparent}");
            let kind = "content-type: application/octet-stream";
            let mut statuses = (0..10).map(|_| {
                let headers = [kind, "kurrent-eventtype: T", &header];
                send(address, "POST", "/streams/big", &headers, &data).status
            });
            statuses.find(|status| *status != 201)
        };
        assert_eq!(tokio::task::spawn_blocking(fill).await.unwrap(), Some(507));
        let entry = line(&given, "request failed").await;
        assert_eq!((&entry["level"], &entry["code"]), (&"WARN".into(), &"507".into()));
        assert!(entry["reason"].as_str().unwrap_or_default().contains("quota"), "{entry}");
    });
}

/// Without a limit, a client whose calls fail quickly would fill the disk of the log.
#[test]
fn repeated_failures_are_rate_limited() {
    listen();
    TestServer::new().run(async |client, _| {
        let began = Instant::now();
        for number in 1000..2000 {
            let _ =
                refused(&client, with_trace(&client, ReadReq::default(), &trace(number).1)).await;
        }
        let seconds = began.elapsed().as_secs() + 2;
        let entry: usize =
            (1000..2000).map(|number| found(&trace(number).0, "call failed").len()).sum();
        assert!(entry >= 100 && entry as u64 <= 100 * seconds, "{entry} in {seconds} s");
    });
}

/// Lines of this process with a message, whose field `user` is this one.
fn lines_of_user(user: &str, message: &str) -> Vec<Value> {
    let lines = lines();
    let read = lines.iter().map(|line| serde_json::from_str::<Value>(line).unwrap());
    read.filter(|line| line["user"] == user && line["message"] == message).collect()
}

/// Waits until a condition is true.
fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let (_sender, never) = std::sync::mpsc::channel::<()>();
    for _ in 0..1000 {
        if condition() {
            return;
        }
        let _ = never.recv_timeout(Duration::from_millis(10));
    }
    panic!("timeout: {what}");
}

/// Story: after a weekend with a deleted user an operator could not find out who had deleted it.
#[test]
fn changes_of_users_are_logged_with_their_author() {
    listen();
    let server = TestServer::with_users();
    let login = "logged-user";
    let ask = |user: &str, method: &str, path: &str, value: Value| {
        let headers = ["content-type: application/json", &authorization(user)];
        let path = format!("/users{path}");
        send(server.address(), method, &path, &headers, value.to_string().as_bytes()).status
    };
    let named = |rest: &str| format!("/{login}{rest}");
    let admin = "admin:first";
    let fields = json!({ "loginName": login, "fullName": "", "groups": [], "password": "x" });
    assert_eq!(ask(admin, "POST", "", fields), 201);
    assert_eq!(ask(admin, "PUT", &named(""), json!({ "fullName": "A", "groups": [] })), 200);
    let own = format!("{login}:x");
    let change = json!({ "currentPassword": "x", "newPassword": "y" });
    assert_eq!(ask(&own, "POST", &named("/command/change-password"), change), 200);
    let reset = json!({ "newPassword": "z" });
    assert_eq!(ask(admin, "POST", &named("/command/reset-password"), reset), 200);
    assert_eq!(ask(admin, "POST", &named("/command/disable"), json!({})), 200);
    assert_eq!(ask(admin, "POST", &named("/command/enable"), json!({})), 200);
    assert_eq!(ask("ops:second", "DELETE", &named(""), json!({})), 403);
    let fields = json!({ "do": "delete", "login": login }).to_string();
    let headers =
        ["content-type: application/json", "x-umbel-console: 1", &authorization("admin:first")];
    let path = "/console/api/user";
    assert_eq!(send(server.address(), "POST", path, &headers, fields.as_bytes()).status, 200);
    for (message, by) in [
        ("user created", "admin"),
        ("user changed", "admin"),
        ("user changed its password", login),
        ("user got a new password", "admin"),
        ("user disabled", "admin"),
        ("user enabled", "admin"),
        ("user deleted", "admin"),
    ] {
        let lines = lines_of_user(login, message);
        assert_eq!(lines.len(), 1, "{message}: {lines:?}");
        assert_eq!((&lines[0]["by"], &lines[0]["level"]), (&by.into(), &"INFO".into()));
    }
}

/// Story: the log did not say who changed a consumer group or paused auto-scavenge.
#[test]
fn changes_of_groups_and_auto_scavenge_are_logged_with_their_author() {
    listen();
    let server = TestServer::with_users();
    let ops = authorization("ops:second");
    let api = ["content-type: application/json", &ops];
    let ask = |method: &str, path: &str, body: &str| {
        send(server.address(), method, path, &api, body.as_bytes()).status
    };
    let group = "/subscriptions/logged-stream/logged-group";
    assert_eq!(ask("PUT", group, "{}"), 201);
    assert_eq!(ask("POST", group, "{}"), 200);
    let parked = format!("{group}/replayParked");
    assert_eq!(ask("POST", &parked, ""), 200);
    assert_eq!(ask("DELETE", group, ""), 200);
    let console = [&api[..], &["x-umbel-console: 1"]].concat();
    let act = |name: &str, body: Value| {
        let path = format!("/console/api/{name}");
        send(server.address(), "POST", &path, &console, body.to_string().as_bytes()).status
    };
    let create = json!({ "do": "create", "source": "logged-stream", "group": "of-console" });
    assert_eq!(act("change-group", create), 200);
    assert_eq!(ask("POST", "/auto-scavenge/pause", ""), 200);
    assert_eq!(ask("POST", "/auto-scavenge/resume", ""), 200);
    assert_eq!(act("auto-scavenge", json!({ "isPaused": true })), 200);
    assert_eq!(ask("POST", "/auto-scavenge/configure", r#"{"thresholdPercent":31}"#), 200);
    let replay = json!({ "source": "logged-stream", "group": "of-console" });
    assert_eq!(act("replay", replay), 200);
    assert_eq!(ask("POST", "/subscriptions/restart", ""), 200);
    let lines = lines();
    let read: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (message, group) in [
        ("consumer group created", Some("logged-group")),
        ("consumer group changed", Some("logged-group")),
        ("consumer group deleted", Some("logged-group")),
        ("consumer group replays parked events", Some("logged-group")),
        ("consumer group replays parked events", Some("of-console")),
        ("all consumer groups restart", None),
        ("consumer group created", Some("of-console")),
        ("auto-scavenge paused", None),
        ("auto-scavenge resumed", None),
        ("auto-scavenge settings changed", None),
    ] {
        let is_line = |line: &&Value| {
            line["message"] == message && line["by"] == "ops" && line["group"].as_str() == group
        };
        let found: Vec<&Value> = read.iter().filter(is_line).collect();
        assert!(!found.is_empty(), "{message} {group:?}");
        assert!(found.iter().all(|line| line["level"] == "INFO"), "{found:?}");
    }
}

/// Story: guesses of passwords over HTTP and in the console were in no metric, and no line of the
/// log named the user whom they tried.
#[test]
fn failed_logins_are_counted_and_logged_with_the_tried_user() {
    listen();
    let server = TestServer::with_users();
    let address = server.address();
    let wrong = authorization("tried-user:guess");
    assert_eq!(send(address, "GET", "/users", &[&wrong], b"").status, 401);
    assert_eq!(send(address, "GET", "/console/", &[&wrong], b"").status, 401);
    assert_eq!(send(address, "GET", "/stats", &[&wrong], b"").status, 401);
    let fields = json!({ "currentPassword": "guess", "password": "z" }).to_string();
    let headers =
        ["content-type: application/json", "x-umbel-console: 1", &authorization("ops:second")];
    let path = "/console/api/password";
    let refused = send(address, "POST", path, &headers, fields.as_bytes());
    assert_eq!(refused.is(403)["error"], "the current password is wrong");
    // A request without credentials tries no name.
    assert_eq!(send(address, "GET", "/stats", &[], b"").status, 401);
    let metrics = send(address, "GET", "/metrics", &[&authorization("ops:second")], b"");
    for (kind, count) in [("grpc", 0), ("http", 2), ("console", 1), ("password-change", 1)] {
        let line = format!("umbel_failed_logins_total{{kind=\"{kind}\"}} {count}\n");
        assert!(metrics.text().contains(&line), "{line}: {}", metrics.text());
    }
    let lines = lines_of_user("tried-user", "login failed");
    let kinds: Vec<&Value> = lines.iter().map(|line| &line["kind"]).collect();
    assert_eq!(kinds, ["http", "console", "http"]);
    assert!(lines[0]["peer"].as_str().unwrap().starts_with("127.0.0.1:"), "{lines:?}");
    // A flood is counted, and logged in part.
    for number in 0..70 {
        let flood = authorization(&format!("flood-user:{number}"));
        let headers = [&*flood];
        let status = send(address, "GET", "/stats", &headers, b"").status;
        assert!(status == 401 || status == 503, "{status}");
    }
    let logged = lines_of_user("flood-user", "login failed").len();
    assert!(logged <= 60, "{logged} lines");
}

/// Story: a backup failed for weeks, and the log did not say so.
#[test]
fn scavenges_and_backups_are_logged_with_their_outcome() {
    listen();
    let target = tempfile::tempdir().unwrap();
    let file = target.path().join("file");
    let config = Config { backup_directory: Some(file.clone()), ..with_users() };
    let server = TestServer::with(config);
    // The start would refuse a file.
    std::fs::write(&file, "no directory").unwrap();
    let headers = ["content-type: application/json", &authorization("ops:second")];
    let started = |path: &str, id: &str| {
        let answer = send(server.address(), "POST", path, &headers, b"{}").json();
        answer[id].as_str().unwrap().to_string()
    };
    let of_id = |id: &str, message: &str| {
        let lines = lines();
        let read = lines.iter().map(|line| serde_json::from_str::<Value>(line).unwrap());
        read.filter(|line| line["id"] == *id && line["message"] == message).collect::<Vec<_>>()
    };
    let scavenge = started("/admin/scavenge", "scavengeId");
    wait_until("scavenge", || !of_id(&scavenge, "scavenge ended").is_empty());
    let begin = &of_id(&scavenge, "scavenge started")[0];
    assert_eq!((&begin["user"], &begin["is_scheduled"]), (&"ops".into(), &false.into()));
    let end = &of_id(&scavenge, "scavenge ended")[0];
    assert_eq!((&end["user"], &end["outcome"]), (&"ops".into(), &"Success".into()));
    assert_eq!((&end["level"], &end["bytes_freed"]), (&"INFO".into(), &0.into()));
    assert!(end["seconds"].is_number(), "{end}");
    let event = r#"[{"eventId":"7e4c6e5a-0a59-4d33-a1cc-0d1c7a9a4f01","eventType":"T","data":{}}]"#;
    let events = ["content-type: application/vnd.eventstore.events+json", headers[1]];
    let admin = authorization("admin:first");
    let appended = send(server.address(), "POST", "/streams/logged", &events, event.as_bytes());
    assert_eq!(appended.status, 201, "{appended:?}");
    let headers_of_page = [headers[0], "x-umbel-console: 1", &admin];
    let request = br#"{"events":["logged@0"],"reason":"to be logged"}"#;
    let path = "/console/api/redact";
    assert_eq!(send(server.address(), "POST", path, &headers_of_page, request).status, 200);
    let redacted = lines().iter().find(|line| line.contains("to be logged")).cloned().unwrap();
    let redacted: Value = serde_json::from_str(&redacted).unwrap();
    assert_eq!((&redacted["user"], &redacted["events"]), (&"admin".into(), &1.into()));
    assert_eq!(redacted["message"], "events redacted");
    let backup = started("/admin/backup", "backupId");
    wait_until("backup", || !of_id(&backup, "backup ended").is_empty());
    let end = &of_id(&backup, "backup ended")[0];
    assert_eq!((&end["level"], &end["outcome"]), (&"WARN".into(), &"Errored".into()));
    assert!(end["reason"].as_str().unwrap().contains("file"), "{end}");
}
