//! `umbel serve`: starting, refusing, stopping.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::harness::Ground;

/// A server on the store of a ground.
struct Serving {
    process: Child,
    stdout: BufReader<std::process::ChildStdout>,
    first_line: String,
}

impl Serving {
    fn start(ground: &Ground, flags: &[&str]) -> Serving {
        let mut command = ground.command();
        command.arg("--db").arg(ground.store());
        command.args(["serve", "--insecure", "--listen", "127.0.0.1:0"]).args(flags);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut stdout = BufReader::new(process.stdout.take().unwrap());
        let mut first_line = String::new();
        stdout.read_line(&mut first_line).unwrap();
        Serving { process, stdout, first_line: first_line.trim_end().to_string() }
    }

    /// `127.0.0.1:PORT`.
    fn address(&self) -> &str {
        let rest = self.first_line.strip_prefix("kurrentdb://").unwrap();
        rest.strip_suffix("?tls=false").unwrap()
    }

    /// Sends a signal; the exit code, what else was written, and what was noted.
    fn stop(mut self, signal: Signal) -> (Option<i32>, String, String) {
        let pid = Pid::from_raw(self.process.id().try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        let output = self.process.wait_with_output().unwrap();
        let notes = String::from_utf8(output.stderr).unwrap();
        assert!(!notes.contains("panicked"), "{notes}");
        (output.status.code(), rest, notes)
    }
}

/// The status line of the answer to `GET path`.
fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.lines().next().unwrap_or_default().to_string()
}

#[test]
fn a_server_says_where_it_is_and_ends_without_an_error_when_told_to() {
    let ground = Ground::new();
    for signal in [Signal::INT, Signal::TERM] {
        let serving = Serving::start(&ground, &[]);
        assert_eq!(get(serving.address(), "/health/live"), "HTTP/1.1 204 No Content");
        let (code, rest, notes) = serving.stop(signal);
        assert_eq!((code, rest.as_str()), (Some(0), ""), "{notes}");
        assert!(notes.contains("in clear") && notes.contains("stopped"), "{notes}");
    }
}

#[test]
fn a_program_is_told_where_it_is_as_json() {
    let ground = Ground::new();
    let serving = Serving::start(&ground, &["--json", "--sync", "--advertise", "store:7"]);
    let said: serde_json::Value = serde_json::from_str(&serving.first_line).unwrap();
    let connection = said["connection_string"].as_str().unwrap();
    assert!(connection.starts_with("kurrentdb://127.0.0.1:"), "{connection}");
    assert_eq!(serving.stop(Signal::INT).0, Some(0));
}

#[test]
fn what_cannot_be_served_is_refused_with_a_sentence() {
    let ground = Ground::new();
    ground.run(&["serve"]).fails(2, &["cannot be encrypted yet", "--insecure"]);
    ground.bare(&["serve", "--insecure"]).fails(2, &["which store?", "--db DIR"]);
    let wrong = ground.run(&["serve", "--insecure", "--listen", "here"]);
    wrong.fails(2, &["--listen", "here"]);
    let wrong = ground.run(&["serve", "--insecure", "--advertise", "store"]);
    wrong.fails(2, &["--advertise is store", "a colon and a port"]);
    let file = ground.path("file");
    std::fs::write(&file, "no store").unwrap();
    let run = ground.bare(&["--db", file.to_str().unwrap(), "serve", "--insecure"]);
    run.fails(2, &["is a file"]);
}

#[test]
fn a_port_that_is_taken_is_told() {
    let ground = Ground::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let run = ground.run(&["serve", "--insecure", "--listen", &address]);
    run.fails(4, &["another process listens at", &address, "--listen"]);
}

#[test]
fn a_store_that_is_served_is_not_served_twice() {
    let ground = Ground::new();
    let serving = Serving::start(&ground, &[]);
    let run = ground.run(&["serve", "--insecure", "--listen", "127.0.0.1:0"]);
    run.fails(5, &["another process"]);
    assert_eq!(get(serving.address(), "/ping"), "HTTP/1.1 200 OK");
    assert_eq!(serving.stop(Signal::TERM).0, Some(0));
}

#[test]
fn a_store_for_keys_and_values_is_no_event_store() {
    let ground = Ground::with(&[("ada", "1815")]);
    let before = ground.run(&["scan"]).succeeds().text();
    let run = ground.run(&["serve", "--insecure", "--listen", "127.0.0.1:0"]);
    run.fails(2, &["event store"]);
    assert_eq!(ground.run(&["scan"]).succeeds().text(), before);
}
