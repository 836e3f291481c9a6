//! Log of `umbel serve` on standard error, as text and as JSON.

use std::io::{PipeWriter, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::Signal;
use serde_json::Value;

use super::serve::Serving;
use super::test_binary::{Fixture, is_time, wait_until};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// Sends a request with a trace id for a missing page, and returns the response.
fn miss(address: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!("Host: a\r\ntraceparent: 00-{TRACE}-00f067aa0ba902b7-01");
    write!(stream, "GET /nothing?secret=1 HTTP/1.1\r\n{head}\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn json_log_has_one_object_per_line() {
    let fixture = Fixture::new();
    let chosen = [("UMBEL_LOG_FORMAT", "json"), ("UMBEL_ADMIN_PASSWORD", "kept-1")];
    let serving = Serving::with(&fixture, &["--disable-tls"], &chosen);
    let answer = miss(serving.address());
    assert!(answer.contains(" 401 ") && answer.contains(TRACE), "{answer}");
    let (code, rest, notes) = serving.stop(Signal::TERM);
    assert_eq!(code, Some(0));
    let lines: Vec<Value> =
        notes.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    for line in &lines {
        assert!(line["timestamp"].is_string() && line["message"].is_string(), "{line}");
        assert!(line["level"].is_string(), "{line}");
    }
    let message =
        |text: &str| lines.iter().any(|line| line["message"].as_str().unwrap().contains(text));
    assert!(message("the store is in") && message("listening at") && message("stopped"), "{notes}");
    let missed = lines.iter().find(|line| line["trace_id"] == TRACE).expect(&notes);
    assert_eq!((&missed["method"], &missed["code"]), (&"GET /nothing".into(), &"401".into()));
    // Generated passwords are output, not part of the log.
    assert!(rest.starts_with("the password of ops is ") && rest.lines().count() == 1, "{rest}");
    assert!(!notes.contains("password of") && !notes.contains("secret"), "{notes}");
}

#[test]
fn start_failure_is_logged_once_in_the_chosen_format() {
    let fixture = Fixture::new();
    let serving = Serving::start(&fixture, &[]);
    let other = Fixture::new();
    let refused = |format: &str| {
        let serve = ["serve", "--insecure", "--log-format", format, "--listen", serving.address()];
        let run = other.run(&serve);
        assert_eq!(run.code, 4, "{run:?}");
        check_times(format, &run.stderr);
        run.stderr
    };
    let line: Value = serde_json::from_str(&refused("json")).expect("one line");
    assert_eq!(line["level"], "ERROR");
    assert!(line["message"].as_str().unwrap().contains("another process listens"), "{line}");
    let line = refused("text");
    assert!(line.lines().count() == 1 && line.contains(" ERROR another process listens"), "{line}");
    let _ = serving.stop(Signal::TERM);
}

/// Fills a pipe, so that the next write waits for the reader.
fn fill(writer: &mut PipeWriter) {
    let flags = fcntl_getfl(&*writer).unwrap();
    fcntl_setfl(&*writer, flags | OFlags::NONBLOCK).unwrap();
    for bytes in [1024, 1] {
        while writer.write(&[b'\n'; 1024][..bytes]).is_ok_and(|written| written > 0) {}
    }
    fcntl_setfl(&*writer, flags).unwrap();
}

/// Story: while the reader of standard error was slow, a server ended without the reason.
#[test]
fn failure_reaches_a_slow_reader() {
    let fixture = Fixture::new();
    let start = |format: &str| {
        let (reader, mut writer) = std::io::pipe().unwrap();
        fill(&mut writer);
        let mut command = fixture.command();
        command.arg("--db").arg(fixture.store()).args(["serve", "--insecure"]);
        command.args(["--listen", "127.0.0.1:0", "--log-format", format]);
        command.arg("--backup-dir").arg(fixture.store().join("backups"));
        let process = command.stdout(Stdio::null()).stderr(writer).spawn().unwrap();
        (process, reader)
    };
    let servers = ["text", "json"].map(start);
    // The log waits for its reader for a second when a server ends.
    let (_sender, never) = std::sync::mpsc::channel::<()>();
    let _ = never.recv_timeout(Duration::from_secs(2));
    for (mut process, mut reader) in servers {
        let mut notes = String::new();
        reader.read_to_string(&mut notes).unwrap();
        let reason = "lies in the directory of the store itself";
        assert_eq!(notes.matches(reason).count(), 1, "{}", notes.trim());
        assert_eq!(process.wait().unwrap().code(), Some(2));
    }
}

/// Asserts that each line of a log has a time and a level.
fn check_times(format: &str, notes: &str) {
    for line in notes.lines() {
        let (time, level) = match format {
            "json" => {
                let line: Value = serde_json::from_str(line).expect(line);
                let text = |name: &str| line[name].as_str().unwrap_or_default().to_string();
                (text("timestamp"), text("level"))
            }
            _ => {
                let mut words = line.split_whitespace().map(str::to_string);
                (words.next().unwrap_or_default(), words.next().unwrap_or_default())
            }
        };
        assert!(is_time(&time), "no time: {line}");
        assert!(["INFO", "WARN", "ERROR"].contains(&&level[..]), "no level: {line}");
    }
}

/// Story: the lines of start and stop had no time in the journal of a container, while all other
/// lines had one.
#[test]
fn every_line_of_start_and_stop_has_a_time() {
    for (format, level) in
        [("text", "info"), ("text", "error"), ("json", "info"), ("json", "error")]
    {
        let fixture = Fixture::new();
        let objects = fixture.path("objects");
        std::fs::create_dir(&objects).unwrap();
        let objects = format!("file://{}", objects.display());
        // Each of them adds lines: a generated password, and options without an effect, too.
        let flags = [
            "--disable-tls",
            "--kv",
            "--sync",
            "--log-quota",
            "1GiB",
            "--backup-to",
            &objects,
            "--log-format",
            format,
            "--log-level",
            level,
        ];
        let variables = [
            ("UMBEL_ADMIN_PASSWORD", "kept-1"),
            ("EVENTSTORE_EXT_TCP_PORT", "1113"),
            ("UMBEL_OTLP_ENDPOINT", "http://127.0.0.1:1"),
        ];
        let serving = Serving::with(&fixture, &flags, &variables);
        let (code, _, notes) = serving.stop(Signal::TERM);
        assert_eq!(code, Some(0), "{notes}");
        check_times(format, &notes);
        let has_password = notes.contains("INFO the password of ops is ");
        assert_eq!(has_password, format == "text", "{notes}");
        for wanted in [
            "the store is in",
            "OpenTelemetry collector at",
            "survive power loss",
            "appends are refused once",
            "events are backed up to",
            "keys and values are backed up to",
            "keys and values are in",
            "the console is at",
            "append an event: ",
            "listening at",
        ] {
            assert_eq!(notes.matches(wanted).count(), 1, "{wanted}: {notes}");
        }
        let last = notes.lines().last().unwrap();
        assert!(last.contains("stopped; all acknowledged writes are on disk"), "{notes}");
        let has_notices = notes.contains("EVENTSTORE_EXT_TCP_PORT has no effect");
        assert_eq!(has_notices, level == "info", "{notes}");
    }
}

/// The last line says that nothing is lost, however the server was stopped.
#[test]
fn stop_of_a_server_is_its_last_line() {
    for (flags, wanted) in [
        (&[][..], "stopped; all acknowledged writes are on disk"),
        (&["--mem-db"], "stopped; the store is removed"),
    ] {
        for is_call in [false, true] {
            let fixture = Fixture::new();
            let serving = Serving::start(&fixture, flags);
            if is_call {
                let address = serving.address().to_string();
                let mut stream = TcpStream::connect(&address).unwrap();
                let head = format!("Host: {address}\r\nContent-Length: 0\r\nConnection: close");
                write!(stream, "POST /admin/shutdown HTTP/1.1\r\n{head}\r\n\r\n").unwrap();
                let mut answer = String::new();
                stream.read_to_string(&mut answer).unwrap();
                assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
                wait_until("the server ends", || TcpStream::connect(&address).is_err());
            }
            let (code, _, notes) = serving.stop(Signal::INT);
            assert_eq!(code, Some(0), "{notes}");
            check_times("text", &notes);
            assert!(notes.contains("INFO shutdown began"), "{notes}");
            let last = notes.lines().last().unwrap();
            assert!(last.ends_with(&format!(" INFO {wanted}")), "{notes}");
            assert_eq!(notes.matches("stopped").count(), 1, "{notes}");
        }
    }
}

/// Regression: the threshold of slow calls could not be configured.
#[test]
fn slow_call_threshold_is_configurable() {
    for (time, is_logged) in [("0", true), ("3600000", false)] {
        let fixture = Fixture::new();
        let serving =
            Serving::with(&fixture, &["--insecure"], &[("UMBEL_LOG_SLOW_MILLISECONDS", time)]);
        let address = format!("http://{}", serving.address());
        fixture.bare(&["doctor", "--connect", &address, "--write"]).succeeds();
        let (_, _, notes) = serving.stop(Signal::TERM);
        assert_eq!(notes.contains("call was slow"), is_logged, "{notes}");
    }
}

/// Story: a server on a mistyped directory served a new, empty store without a word about it.
#[test]
fn creation_of_a_store_is_logged_once() {
    let fixture = Fixture::new();
    let shown = fixture.store().display().to_string();
    let created = |flags: &[&str]| {
        let serving = Serving::start(&fixture, flags);
        let (code, _, notes) = serving.stop(Signal::TERM);
        assert_eq!(code, Some(0), "{notes}");
        let lines = notes.lines().filter_map(|line| line.split_once("INFO created a new "));
        lines.map(|(_, rest)| rest.to_string()).collect::<Vec<_>>()
    };
    let event_store = format!("event store in {shown}, which had none before");
    let kv_store = format!("key-value store in {shown}/kv, which had none before");
    assert_eq!(created(&["--mem-db"]), Vec::<String>::new());
    assert_eq!(created(&["--log-level", "error"]), [event_store]);
    assert_eq!(created(&["--kv"]), [kv_store]);
    assert_eq!(created(&["--kv"]), Vec::<String>::new());
}

#[test]
fn text_log_respects_level() {
    for (level, is_logged) in [("info", true), ("warn", false)] {
        let fixture = Fixture::new();
        let serving = Serving::start(&fixture, &["--log-level", level]);
        assert!(miss(serving.address()).contains(" 404 "));
        let (_, _, notes) = serving.stop(Signal::TERM);
        let line = notes.lines().find(|line| line.contains(TRACE));
        assert_eq!(line.is_some(), is_logged, "{notes}");
        assert!(line.is_none_or(|line| line.contains("INFO request failed")), "{notes}");
        assert!(notes.contains("listening at") && !notes.contains('\u{1b}'), "{notes}");
    }
}
