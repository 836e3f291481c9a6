//! Log of `umbel serve` on standard error, as text and as JSON.

use std::io::{Read, Write};
use std::net::TcpStream;

use rustix::process::Signal;
use serde_json::Value;

use super::serve::Serving;
use super::test_binary::Fixture;

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
    let mut command = other.command();
    command.arg("--db").arg(other.store()).args(["serve", "--insecure", "--log-format", "json"]);
    let output = command.args(["--listen", serving.address()]).output().unwrap();
    assert_eq!(output.status.code(), Some(4));
    let message = String::from_utf8(output.stderr).unwrap();
    let line: Value = serde_json::from_str(&message).expect("one line");
    assert_eq!(line["level"], "ERROR");
    assert!(line["message"].as_str().unwrap().contains("another process listens"), "{line}");
    let _ = serving.stop(Signal::TERM);
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
