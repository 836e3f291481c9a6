//! What `umbel serve` tells on standard error while it runs, as text and as JSON.

use std::io::{Read, Write};
use std::net::TcpStream;

use rustix::process::Signal;
use serde_json::Value;

use super::harness::Ground;
use super::serve::Serving;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// The head of the answer to a page that is not there, asked for with a trace.
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
fn every_line_is_an_object_where_that_is_asked_for() {
    let ground = Ground::new();
    let chosen = [("UMBEL_LOG_FORMAT", "json"), ("UMBEL_ADMIN_PASSWORD", "kept-1")];
    let serving = Serving::with(&ground, &["--disable-tls"], &chosen);
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
    let said =
        |text: &str| lines.iter().any(|line| line["message"].as_str().unwrap().contains(text));
    assert!(said("the store is in") && said("listening at") && said("stopped"), "{notes}");
    let missed = lines.iter().find(|line| line["trace_id"] == TRACE).expect(&notes);
    assert_eq!((&missed["method"], &missed["code"]), (&"GET /nothing".into(), &"401".into()));
    // What was made and has to be told once is output, and no part of the log.
    assert!(rest.starts_with("the password of ops is ") && rest.lines().count() == 1, "{rest}");
    assert!(!notes.contains("password of") && !notes.contains("secret"), "{notes}");
}

#[test]
fn a_failure_to_start_is_told_once_and_in_the_same_form() {
    let ground = Ground::new();
    let serving = Serving::start(&ground, &[]);
    let other = Ground::new();
    let mut command = other.command();
    command.arg("--db").arg(other.store()).args(["serve", "--insecure", "--log-format", "json"]);
    let output = command.args(["--listen", serving.address()]).output().unwrap();
    assert_eq!(output.status.code(), Some(4));
    let said = String::from_utf8(output.stderr).unwrap();
    let line: Value = serde_json::from_str(&said).expect("one line");
    assert_eq!(line["level"], "ERROR");
    assert!(line["message"].as_str().unwrap().contains("another process listens"), "{line}");
    let _ = serving.stop(Signal::TERM);
}

/// Nothing could set the time after which a call is slow: who wanted to see calls of a fifth of a
/// second had to tell of every call.
#[test]
fn the_time_after_which_a_call_is_slow_is_an_option() {
    for (time, is_told) in [("0", true), ("3600000", false)] {
        let ground = Ground::new();
        let serving =
            Serving::with(&ground, &["--insecure"], &[("UMBEL_LOG_SLOW_MILLISECONDS", time)]);
        let address = format!("http://{}", serving.address());
        ground.bare(&["doctor", "--connect", &address, "--write"]).succeeds();
        let (_, _, notes) = serving.stop(Signal::TERM);
        assert_eq!(notes.contains("call was slow to be answered"), is_told, "{notes}");
    }
}

#[test]
fn text_is_for_people_and_the_level_says_how_much() {
    for (level, is_told) in [("info", true), ("warn", false)] {
        let ground = Ground::new();
        let serving = Serving::start(&ground, &["--log-level", level]);
        assert!(miss(serving.address()).contains(" 404 "));
        let (_, _, notes) = serving.stop(Signal::TERM);
        let line = notes.lines().find(|line| line.contains(TRACE));
        assert_eq!(line.is_some(), is_told, "{notes}");
        assert!(line.is_none_or(|line| line.contains("INFO request failed")), "{notes}");
        assert!(notes.contains("listening at") && !notes.contains('\u{1b}'), "{notes}");
    }
}
