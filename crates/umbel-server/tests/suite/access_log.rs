//! What the log is told of calls, and the number under which their clients find it there.

use std::collections::VecDeque;
use std::io::{self, Write};
#[cfg(unix)]
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use http_body_util::StreamBody;
use hyper::body::{Bytes, Frame};
use serde_json::Value;
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
use umbel_proto::streams::ReadReq;
use umbel_proto::streams::read_req::RevisionOption;
use umbel_server::Config;

use super::client::{ANY, Client, NO_STREAM, at_most, events, of_stream, subscription};
use super::ground::Ground;
#[cfg(unix)]
use super::watching::{asked, metric};

/// What the traces of these tests begin with: other tests are logged, too.
const OURS: &str = "7e577e577e577e57";
/// How many lines are kept, and how long one may take.
const KEPT: usize = 1 << 14;
const PATIENCE: Duration = Duration::from_secs(20);
const START: RevisionOption = RevisionOption::Start(());
const TOLD: &str = "umbel-trace-id";
/// The user `ops` with the first password, as a header says it.
const OPS: &str = "b3BzOnNlY29uZA==";

/// The lines of the whole process: who takes them is the same for all of its threads.
struct Lines;

static LINES: Mutex<VecDeque<String>> = Mutex::new(VecDeque::new());

fn lines() -> MutexGuard<'static, VecDeque<String>> {
    LINES.lock().unwrap_or_else(PoisonError::into_inner)
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

fn listen() {
    static LISTENING: OnceLock<()> = OnceLock::new();
    LISTENING.get_or_init(|| {
        let layer = fmt::layer().json().flatten_event(true).with_writer(|| Lines);
        let targets = Targets::new().with_target("umbel", Level::DEBUG);
        tracing_subscriber::registry().with(targets).with(layer).init();
    });
}

/// The lines with this number that say this.
fn found(trace: &str, message: &str) -> Vec<Value> {
    let lines = lines();
    let ours = lines.iter().filter(|line| line.contains(trace));
    let read = ours.map(|line| serde_json::from_str::<Value>(line).unwrap());
    read.filter(|line| line["trace_id"] == trace && line["message"] == message).collect()
}

/// The line with this number that says this, once it is there.
async fn line(trace: &str, message: &str) -> Value {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(line) = found(trace, message).pop() {
            return line;
        }
        assert!(Instant::now() < until, "{trace}, {message}: {:?}", found(trace, message));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The newest line about this path that says this, once it is there.
#[cfg(unix)]
async fn last_of(path: &str, says: &str) -> Value {
    let until = Instant::now() + PATIENCE;
    let is_it = |line: &Value| {
        line["path"] == path && line["message"].as_str().is_some_and(|text| text.contains(says))
    };
    loop {
        let read = |line: &String| serde_json::from_str::<Value>(line).unwrap();
        if let Some(line) = lines().iter().map(read).rfind(is_it) {
            return line;
        }
        assert!(Instant::now() < until, "{path}: no line says {says}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A trace with this number, and what a client says of it.
fn trace(number: u64) -> (String, String) {
    let trace = format!("{OURS}{number:016x}");
    let said = format!("00-{trace}-00f067aa0ba902b7-01");
    (trace, said)
}

fn number(metadata: &MetadataMap) -> Option<String> {
    metadata.get(TOLD).map(|trace| trace.to_str().unwrap().to_string())
}

/// A request that says this of its trace.
fn saying(client: &Client, message: ReadReq, traceparent: &str) -> Request<ReadReq> {
    let mut request = client.request(message);
    request.metadata_mut().insert("traceparent", traceparent.parse().unwrap());
    request
}

async fn refused(client: &Client, request: Request<ReadReq>) -> Status {
    client.open(request).await.expect_err("a read without options")
}

#[test]
fn a_call_that_fails_is_found_under_the_number_that_its_client_gave_or_is_told() {
    listen();
    Ground::new().run(async |client, _| {
        let (given, said) = trace(1);
        let status = refused(&client, saying(&client, ReadReq::default(), &said)).await;
        assert_eq!(
            (status.code(), number(status.metadata())),
            (Code::InvalidArgument, Some(given))
        );
        let told = line(&trace(1).0, "call failed").await;
        assert_eq!(told["level"], "INFO", "the server is not to blame");
        assert_eq!(told["method"], "event_store.client.streams.Streams/Read");
        assert_eq!((&told["code"], &told["reason"]), (&"InvalidArgument".into(), &Value::Null));
        assert!(told["peer"].as_str().unwrap().starts_with("127.0.0.1:"), "{told}");
        assert!(told["milliseconds"].as_f64().unwrap() >= 0.0, "{told}");
        // Who says none, or none that is one, is given one.
        let requests = [client.request(ReadReq::default()), {
            saying(&client, ReadReq::default(), &said.to_ascii_uppercase())
        }];
        for request in requests {
            let made = number(refused(&client, request).await.metadata()).unwrap();
            assert!(made.len() == 32 && !made.eq_ignore_ascii_case(&trace(1).0), "{made}");
            line(&made, "call failed").await;
        }
    });
}

/// An operator swapped the directory of a served store for a restored one. The server went on in
/// its own, and nothing but `stats()` told.
#[test]
#[cfg(unix)]
fn a_directory_that_is_moved_is_a_line_of_the_log_and_a_metric() {
    listen();
    Ground::new().run(async |client, ground| {
        let (address, store) = (ground.address(), ground.store.clone());
        let path = store.path().to_path_buf();
        let moved = |text: &str| metric(text, "umbel_directory_moved", &[]);
        let page = async move || {
            let page = tokio::task::spawn_blocking(move || asked(address, "GET", "/metrics").1);
            page.await.unwrap()
        };
        assert_eq!(moved(&page().await), 0.0);
        let (aside, says) = (path.with_extension("aside"), "the event store was moved");
        Command::new("mv").args([&path, &aside]).status().unwrap();
        let line = last_of(&path.display().to_string(), says).await;
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

/// A store whose directory was removed takes no append until the server is started again. The
/// server called itself ready all the same, so that a load balancer went on sending calls to it;
/// and without `--sync` it acknowledged appends for minutes that no later open could find.
#[test]
#[cfg(unix)]
fn a_server_whose_store_takes_no_write_is_not_ready() {
    Ground::new().run(async |client, ground| {
        let (address, store) = (ground.address(), ground.store.clone());
        let ready = async move || {
            let asked = tokio::task::spawn_blocking(move || asked(address, "GET", "/health/ready"));
            asked.await.unwrap()
        };
        assert!(ready().await.0.starts_with("http/1.1 204"));
        std::fs::remove_dir_all(store.path()).unwrap();
        let end = Instant::now() + PATIENCE;
        while ready().await.0.starts_with("http/1.1 204") && Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let (head, body) = ready().await;
        assert!(head.starts_with("http/1.1 503"), "{head}");
        let refused = client.append("cart", NO_STREAM, &events(0..3)).await;
        assert!(refused.is_err(), "{refused:?}");
        assert!(body.contains("nothing can be written") && body.contains("removed"), "{body}");
    });
}

#[test]
fn a_failure_behind_the_first_answers_is_told_with_its_number_in_the_trailers() {
    listen();
    Ground::new().run(async |client, _| {
        let (given, said) = trace(2);
        let options = Some(subscription(of_stream("cart", START)));
        let mut request = saying(&client, ReadReq { options }, &said);
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
        let told = line(&given, "call failed after it had begun to answer").await;
        assert_eq!((&told["level"], &told["code"]), (&"WARN".into(), &"DeadlineExceeded".into()));
        assert!(told["milliseconds"].as_f64().unwrap() >= 150.0, "{told}");
        assert!(told["reason"].as_str().unwrap().contains("deadline"), "{told}");
    });
}

#[test]
fn what_is_slow_is_told_and_what_does_well_is_a_detail() {
    listen();
    let read = || ReadReq { options: Some(at_most(9, of_stream("cart", START))) };
    Ground::with(Config { slow_time: Duration::ZERO, ..Config::default() }).run(
        async |client, _| {
            let (given, said) = trace(3);
            drop(client.open(saying(&client, read(), &said)).await.unwrap());
            let told = line(&given, "call was slow to be answered").await;
            assert_eq!((&told["level"], &told["code"]), (&"WARN".into(), &"Ok".into()));
        },
    );
    Ground::new().run(async |client, _| {
        let _ = client.append("cart", ANY, &events(0..3)).await.unwrap();
        let (given, said) = trace(4);
        let mut answers = client.open(saying(&client, read(), &said)).await.unwrap();
        while answers.message().await.unwrap().is_some() {}
        let told = line(&given, "call done").await;
        assert_eq!(told["level"], "DEBUG");
        assert!(found(&given, "call was slow to be answered").is_empty());
        let (given, said) = trace(5);
        let options = Some(subscription(of_stream("cart", START)));
        let mut answers = client.open(saying(&client, ReadReq { options }, &said)).await.unwrap();
        assert!(answers.message().await.unwrap().is_some());
        drop(answers);
        line(&given, "client left").await;
    });
}

/// Each client that left in the middle of a request was an error of the server's: a line at `ERROR`
/// for every one that crashed.
#[test]
fn who_breaks_off_is_no_failure_of_the_server() {
    listen();
    Ground::new().run(async |client, _| {
        for (number, method) in [(8, "Append"), (9, "Read")] {
            let (given, said) = trace(number);
            let mut grpc = client.clone();
            let path = format!("http://localhost/event_store.client.streams.Streams/{method}");
            let (sender, body) = tokio::sync::mpsc::channel::<Result<Frame<Bytes>, Status>>(1);
            let frames = futures_util::stream::unfold(body, async |mut body| {
                body.recv().await.map(|frame| (frame, body))
            });
            let request = hyper::Request::post(path)
                .header("content-type", "application/grpc")
                .header("traceparent", said)
                .body(Body::new(StreamBody::new(frames)));
            let call = tokio::spawn(GrpcService::call(&mut grpc, request.unwrap()));
            sender.send(Ok(Frame::data(Bytes::from_static(&[0, 0])))).await.unwrap();
            tokio::time::sleep(Duration::from_millis(100)).await;
            sender.send(Err(Status::cancelled("it breaks off"))).await.unwrap();
            let told = line(&given, "call failed").await;
            assert_eq!((&told["level"], &told["code"]), (&"INFO".into(), &"Cancelled".into()));
            call.abort();
        }
    });
}

#[test]
fn users_are_named_and_their_passwords_are_not() {
    listen();
    Ground::with_users().run(async |client, ground| {
        let (given, said) = trace(6);
        let admin = client.with_user("admin", "first");
        let _ = refused(&admin, saying(&admin, ReadReq::default(), &said)).await;
        assert_eq!(line(&given, "call failed").await["user"], "admin");
        let (given, said) = trace(7);
        let liar = client.with_user("admin", "no-such-secret");
        let status = refused(&liar, saying(&liar, ReadReq::default(), &said)).await;
        assert_eq!(status.code(), Code::Unauthenticated);
        let told = line(&given, "call failed").await;
        assert_eq!((&told["user"], &told["code"]), (&Value::Null, &"Unauthenticated".into()));
        // Story: whoever may not come to a place at all was left out of its line.
        let (given, said) = trace(10);
        let mut stream = TcpStream::connect(ground.address()).await.unwrap();
        let head = format!("host: a\r\nauthorization: Basic {OPS}\r\ntraceparent: {said}\r\n\r\n");
        let asked = format!("GET /console/api/users HTTP/1.1\r\n{head}");
        stream.write_all(asked.as_bytes()).await.unwrap();
        let told = line(&given, "request failed").await;
        assert_eq!((&told["user"], &told["code"]), (&"ops".into(), &"403".into()));
    });
    let coded = "YWRtaW46bm8tc3VjaC1zZWNyZXQ";
    for line in lines().iter() {
        assert!(!line.contains("no-such-secret") && !line.contains(coded), "{line}");
    }
}

/// A client that fails as fast as it can would fill the disk that the log is on.
#[test]
fn failures_without_end_are_not_told_without_end() {
    listen();
    Ground::new().run(async |client, _| {
        let began = Instant::now();
        for number in 1000..2000 {
            let _ = refused(&client, saying(&client, ReadReq::default(), &trace(number).1)).await;
        }
        let seconds = began.elapsed().as_secs() + 2;
        let told: usize =
            (1000..2000).map(|number| found(&trace(number).0, "call failed").len()).sum();
        assert!(told >= 100 && told as u64 <= 100 * seconds, "{told} in {seconds} s");
    });
}
