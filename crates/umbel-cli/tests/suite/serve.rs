//! `umbel serve`: start, rejected starts, stop; and `umbel subscribe`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustix::process::{Pid, Signal, kill_process};
use tokio::net::TcpSocket;

use super::test_binary::{Fixture, full_device, wait_until};

/// Running server on the store of a fixture.
pub struct Serving {
    process: Child,
    stdout: BufReader<std::process::ChildStdout>,
    first_line: String,
}

impl Serving {
    /// Starts a server without further flags.
    pub fn start(fixture: &Fixture, flags: &[&str]) -> Serving {
        let flags: Vec<&str> = ["--insecure"].iter().chain(flags).copied().collect();
        Serving::with(fixture, &flags, &[])
    }

    /// Starts a server with these flags and environment variables.
    pub fn with(fixture: &Fixture, flags: &[&str], variables: &[(&str, &str)]) -> Serving {
        let mut command = fixture.command();
        // Most tests kill the process at most, so they need no fsync; flags override the variable.
        command.env("UMBEL_DURABILITY", "buffered");
        command.arg("--db").arg(fixture.store()).envs(variables.iter().copied());
        command.args(["serve", "--listen", "127.0.0.1:0"]).args(flags);
        Serving::of(command)
    }

    /// Starts a server without encryption and users that listens on this address.
    pub fn at(fixture: &Fixture, address: &str) -> Serving {
        let mut command = fixture.command();
        command.env("UMBEL_DURABILITY", "buffered").arg("--db").arg(fixture.store());
        command.args(["serve", "--insecure", "--listen", address]);
        Serving::of(command)
    }

    /// Starts a server with this command.
    fn of(mut command: Command) -> Serving {
        command.stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut stdout = BufReader::new(process.stdout.take().unwrap());
        let mut first_line = String::new();
        stdout.read_line(&mut first_line).unwrap();
        Serving { process, stdout, first_line: first_line.trim_end().to_string() }
    }

    /// Connection string.
    pub fn connection(&self) -> &str {
        &self.first_line
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> &str {
        let rest = self.first_line.strip_prefix("kurrentdb://").unwrap();
        rest.strip_suffix("?tls=false").unwrap()
    }

    /// Reads standard error up to a line with this text. Returns the rest of that line.
    pub fn next_note(&mut self, text: &str) -> String {
        let stderr = self.process.stderr.as_mut().unwrap();
        let mut line = Vec::new();
        let mut byte = [0];
        // No byte after the line is read, so that `stop` returns the following lines.
        while stderr.read(&mut byte).unwrap() == 1 {
            line.push(byte[0]);
            if byte[0] == b'\n' {
                let shown = String::from_utf8_lossy(&line);
                if let Some((_, rest)) = shown.trim_end().split_once(text) {
                    return rest.to_string();
                }
                line.clear();
            }
        }
        panic!("standard error ended before `{text}`");
    }

    /// Sends a signal. Returns the exit code, the rest of standard output, and standard error.
    pub fn stop(mut self, signal: Signal) -> (Option<i32>, String, String) {
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

/// A port that no other socket gets while the server on it is down: a socket is bound to it, and
/// does not listen.
pub struct ReservedPort {
    address: String,
    _socket: Option<TcpSocket>,
}

impl ReservedPort {
    /// Reserves an ephemeral port of the loopback address.
    pub fn new() -> ReservedPort {
        let socket = TcpSocket::new_v4().unwrap();
        // Linux lets a listener with the same option bind beside it. Other systems do not, so there
        // the port is only chosen.
        socket.set_reuseaddr(true).unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = socket.local_addr().unwrap().to_string();
        ReservedPort { address, _socket: cfg!(target_os = "linux").then_some(socket) }
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> &str {
        &self.address
    }
}

/// Returns the status line of the response to `GET path`.
fn get(address: &str, path: &str) -> String {
    get_page(address, path).0.lines().next().unwrap_or_default().to_string()
}

/// Returns head and body of the response to `GET path`.
pub fn get_page(address: &str, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    (head.to_string(), body.to_string())
}

/// Returns the response to `POST path` as the console sends it.
pub fn post(address: &str, path: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let (len, console) = (body.len(), "content-type: application/json\r\nx-umbel-console: 1");
    let head =
        format!("Host: {address}\r\nContent-Length: {len}\r\nConnection: close\r\n{console}");
    write!(stream, "POST /{path} HTTP/1.1\r\n{head}\r\n\r\n{body}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn server_prints_its_address_and_exits_0_on_signal() {
    let fixture = Fixture::new();
    for signal in [Signal::INT, Signal::TERM] {
        let serving = Serving::start(&fixture, &[]);
        assert_eq!(get(serving.address(), "/health/live"), "HTTP/1.1 204 No Content");
        let (code, rest, notes) = serving.stop(signal);
        assert_eq!((code, rest.as_str()), (Some(0), ""), "{notes}");
        assert!(notes.contains("without TLS") && notes.contains("stopped"), "{notes}");
    }
}

/// Regression: `read`, `streams` and `verify` of a store that a server had open failed with exit
/// code 5.
#[test]
fn served_store_can_be_read_and_verified() {
    let fixture = Fixture::new();
    fixture.feed(&["append"], br#"{"stream":"cart-1","type":"Opened","data":1}"#).succeeds();
    let serving = Serving::start(&fixture, &[]);
    let mut events = 1;
    for _ in 0..3 {
        let event = r#"{"stream":"cart-1","type":"Added","data":"{}"}"#;
        let answer = post(serving.address(), "console/api/append", event);
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        events += 1;
        let read = fixture.run(&["read", "--stream", "cart-1"]).succeeds().text();
        assert_eq!(read.lines().count(), events, "{read}");
        let streams = fixture.run(&["streams"]).succeeds().text();
        assert!(streams.contains("cart-1"), "{streams}");
        let verified = fixture.run(&["verify"]).succeeds().text();
        assert!(verified.contains(&format!("is undamaged: {events} events")), "{verified}");
    }
    let (code, _, notes) = serving.stop(Signal::TERM);
    assert_eq!(code, Some(0), "{notes}");
}

/// Regression: SIGHUP, which makes other event stores reload certificates, stopped the server.
#[test]
fn server_survives_closed_terminal() {
    let fixture = Fixture::new();
    let serving = Serving::start(&fixture, &[]);
    let pid = Pid::from_raw(serving.process.id().try_into().unwrap()).unwrap();
    for _ in 0..3 {
        kill_process(pid, Signal::HUP).unwrap();
        assert_eq!(get(serving.address(), "/health/live"), "HTTP/1.1 204 No Content");
    }
    let (code, _, notes) = serving.stop(Signal::TERM);
    assert!(code == Some(0) && notes.contains("stopped"), "{notes}");
}

/// Story: a server wrote standard output to a file on the disk that its store had filled. The
/// server did not start again, so that no client could delete anything.
#[test]
fn full_disk_of_output_does_not_stop_server() {
    let Some(full) = full_device() else { return };
    let fixture = Fixture::new();
    let mut command = fixture.command();
    command.arg("--db").arg(fixture.store());
    command.args(["serve", "--listen", "127.0.0.1:0", "--insecure"]);
    let mut process = command.stdout(full).stderr(Stdio::piped()).spawn().unwrap();
    let mut notes = BufReader::new(process.stderr.take().unwrap()).lines();
    let listens = notes.find(|line| line.as_ref().is_ok_and(|line| line.contains("listening at")));
    assert!(listens.is_some(), "it ended");
    kill_process(Pid::from_raw(process.id().try_into().unwrap()).unwrap(), Signal::TERM).unwrap();
    assert_eq!(process.wait().unwrap().code(), Some(0));
}

/// The printed command works without changes.
#[test]
fn printed_curl_command_appends_an_event() {
    let fixture = Fixture::new();
    let mut command = fixture.command();
    command.arg("--db").arg(fixture.store());
    command.args(["serve", "--insecure", "--listen", "127.0.0.1:0"]);
    let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let notes = BufReader::new(process.stderr.take().unwrap());
    let mut notes = notes.lines().map(Result::unwrap);
    let message = notes.find_map(|note| Some(note.split_once("append an event: ")?.1.to_string()));
    let message = message.unwrap();
    let (head, data) = message.split_once(" -d '").unwrap();
    let (data, url) = data.rsplit_once(' ').unwrap();
    let place = url.strip_prefix("http://").unwrap();
    let (address, path) = place.split_once('/').unwrap();
    let data = data.strip_suffix('\'').unwrap();
    let headers: Vec<&str> = head.split('\'').skip(1).step_by(2).collect();
    let mut stream = TcpStream::connect(address).unwrap();
    let headers = headers.join("\r\n");
    let len = data.len();
    let rest =
        format!("Host: {address}\r\nContent-Length: {len}\r\nConnection: close\r\n{headers}");
    write!(stream, "POST /{path} HTTP/1.1\r\n{rest}\r\n\r\n{data}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 201 Created"), "{answer}");
    kill_process(Pid::from_raw(process.id().try_into().unwrap()).unwrap(), Signal::INT).unwrap();
    assert!(process.wait().unwrap().success());
    let events = fixture.run(&["read", "--stream", "cart-42"]).succeeds().text();
    assert!(events.contains("Opened"), "{events}");
}

#[test]
fn default_store_is_in_current_directory() {
    let fixture = Fixture::new();
    let mut command = fixture.command();
    command.current_dir(fixture.path("")).args(["serve", "--insecure", "--listen", "127.0.0.1:0"]);
    let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first_line = String::new();
    BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut first_line).unwrap();
    kill_process(Pid::from_raw(process.id().try_into().unwrap()).unwrap(), Signal::INT).unwrap();
    let output = process.wait_with_output().unwrap();
    let notes = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && notes.contains("the store is in umbel-data"), "{notes}");
    assert!(fixture.path("umbel-data").join("CHUNKS").exists());
}

/// Story: the server acknowledged appends that power loss could take, unless it had `--sync`.
#[test]
fn appends_are_synced_by_default() {
    let fixture = Fixture::new();
    let messages = |flags: &[&str], variables: &[(&str, &str)]| {
        let mut command = fixture.command();
        command.arg("--db").arg(fixture.store()).envs(variables.iter().copied());
        command.args(["serve", "--insecure", "--listen", "127.0.0.1:0"]).args(flags);
        let (code, _, notes) = Serving::of(command).stop(Signal::TERM);
        assert_eq!(code, Some(0), "{notes}");
        notes
    };
    let notes = messages(&[], &[]);
    assert!(notes.contains("survive power loss (--durability synced)"), "{notes}");
    assert!(!notes.contains("WARN"), "{notes}");
    let notes = messages(&["--durability=buffered"], &[]);
    assert!(notes.contains("not power loss (--durability buffered)"), "{notes}");
    for (flags, variables) in [(&["--sync"][..], &[][..]), (&[], &[("UMBEL_SYNC", "true")])] {
        let notes = messages(flags, variables);
        assert!(notes.contains("survive power loss (--durability synced)"), "{notes}");
        assert!(notes.contains("WARN"), "{notes}");
        assert!(notes.contains("is an earlier name: use durability"), "{notes}");
    }
}

/// Story: flags and variables of common compose files kept the server from starting, or were
/// ignored silently.
#[test]
fn options_of_kurrentdb_are_accepted_and_their_effect_is_logged() {
    let fixture = Fixture::new();
    let flags = [
        "--insecure=true",
        "--disable-tls=false",
        "--mem-db=False",
        "--run-projections=All",
        "--start-standard-projections=true",
        "--enable-atom-pub-over-http",
        "--cluster-size",
        "1",
    ];
    let variables = [("EVENTSTORE_EXT_TCP_PORT", "1113"), ("KURRENTDB_LOG_LEVEL", "Information")];
    let serving = Serving::with(&fixture, &flags, &variables);
    assert_eq!(get(serving.address(), "/health/live"), "HTTP/1.1 204 No Content");
    let (code, _, notes) = serving.stop(Signal::TERM);
    assert_eq!(code, Some(0), "{notes}");
    let parts = [
        "--run-projections has no effect: the built-in projections",
        "--start-standard-projections has no effect: the built-in projections",
        "--enable-atom-pub-over-http has no effect: the port serves gRPC",
        "--cluster-size has no effect: the server is a single node",
        "EVENTSTORE_EXT_TCP_PORT has no effect: clients connect by gRPC",
    ];
    for part in parts {
        assert_eq!(notes.matches(part).count(), 1, "{part}: {notes}");
    }
    assert!(!notes.contains("LOG_LEVEL"), "{notes}");
}

#[test]
fn temporary_store_ends_with_the_process() {
    let fixture = Fixture::new();
    for signal in [Signal::TERM, Signal::KILL] {
        let serving = Serving::start(&fixture, &["--mem-db", "--kv"]);
        let event = r#"{"stream":"cart-1","type":"Added","data":"{}"}"#;
        let answer = post(serving.address(), "console/api/append", event);
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        assert_eq!(fixture.temporary().len(), 1);
        assert!(!fixture.store().exists(), "the directory of --db is not used");
        let (_, _, notes) = serving.stop(signal);
        assert!(notes.contains("is temporary (--mem-db)"), "{notes}");
        wait_until("the directory is removed", || fixture.temporary().is_empty());
    }
}

#[test]
fn json_output_has_connection_string() {
    let fixture = Fixture::new();
    let serving = Serving::start(&fixture, &["--json", "--sync", "--advertise", "store:7"]);
    let message: serde_json::Value = serde_json::from_str(&serving.first_line).unwrap();
    let connection = message["connection_string"].as_str().unwrap();
    assert!(connection.starts_with("kurrentdb://127.0.0.1:"), "{connection}");
    assert_eq!(serving.stop(Signal::INT).0, Some(0));
}

/// Returns the status line of the response to `GET /stats` by this user.
fn stats(address: &str, user: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let credentials = STANDARD.encode(user);
    let head =
        format!("Host: a\r\nAuthorization: Basic {credentials}\r\nConnection: close\r\n\r\n");
    write!(stream, "GET /stats HTTP/1.1\r\n{head}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.lines().next().unwrap_or_default().to_string()
}

/// Users have no default passwords: passwords that the operator does not choose are generated and
/// printed once.
#[test]
fn first_start_generates_passwords_and_prints_them_once() {
    let fixture = Fixture::new();
    let serving = Serving::with(&fixture, &["--disable-tls"], &[]);
    assert!(get(serving.address(), "/stats").contains(" 401 "));
    assert!(stats(serving.address(), "admin:changeit").contains(" 401 "));
    let (_, _, notes) = serving.stop(Signal::TERM);
    let password = |user: &str| {
        let begin = format!("the password of {user} is ");
        let (_, rest) = notes.split_once(&begin).unwrap_or_else(|| panic!("{notes}"));
        rest.split(' ').next().unwrap().to_string()
    };
    let (admin, ops) = (password("admin"), password("ops"));
    assert_ne!(admin, ops);
    let serving = Serving::with(&fixture, &["--disable-tls"], &[("UMBEL_ADMIN_PASSWORD", "late")]);
    assert!(stats(serving.address(), "admin:late").contains(" 401 "), "it was chosen before");
    assert!(stats(serving.address(), &format!("admin:{admin}")).contains(" 200 "));
    assert!(stats(serving.address(), &format!("ops:{ops}")).contains(" 200 "));
    let (_, _, notes) = serving.stop(Signal::TERM);
    assert!(!notes.contains("password of"), "{notes}");
    // Regression: a password that has no effect was ignored silently.
    let ignored = "the configured password for admin has no effect";
    assert_eq!(notes.matches(ignored).count(), 1, "{notes}");
    assert!(!notes.contains("late"), "{notes}");
    assert!(notes.contains("without TLS: passwords can be read"), "{notes}");
}

#[test]
fn environment_passwords_are_used_and_never_printed() {
    let fixture = Fixture::new();
    let chosen = [("UMBEL_ADMIN_PASSWORD", "kept-1"), ("KURRENTDB_DEFAULT_OPS_PASSWORD", "kept-2")];
    let mut command = fixture.command();
    command.args(["serve", "--print-config"]).envs(chosen);
    let printed = String::from_utf8(command.output().unwrap().stdout).unwrap();
    assert!(printed.contains("# admin-password is set by UMBEL_ADMIN_PASSWORD"), "{printed}");
    assert!(!printed.contains("kept"), "{printed}");
    let serving = Serving::with(&fixture, &["--disable-tls"], &chosen);
    assert!(stats(serving.address(), "admin:kept-1").contains(" 200 "));
    assert!(stats(serving.address(), "ops:kept-2").contains(" 200 "));
    let (_, _, notes) = serving.stop(Signal::TERM);
    assert!(!notes.contains("kept") && !notes.contains("password of"), "{notes}");
    let serving = Serving::with(&fixture, &["--disable-tls"], &chosen);
    let (_, _, notes) = serving.stop(Signal::TERM);
    assert!(!notes.contains("has no effect"), "the passwords are those in use: {notes}");
    // JSON output has generated passwords next to the connection string.
    let other = Fixture::new();
    let serving = Serving::with(&other, &["--disable-tls", "--json"], &chosen[..1]);
    let message: serde_json::Value = serde_json::from_str(&serving.first_line).unwrap();
    assert!(message["passwords"]["admin"].is_null());
    assert_eq!(message["passwords"]["ops"].as_str().unwrap().len(), 24);
    assert_eq!(serving.stop(Signal::TERM).0, Some(0));
    let empty = fixture
        .command()
        .args(["serve", "--disable-tls", "--db"])
        .arg(fixture.path("new"))
        .env("UMBEL_ADMIN_PASSWORD", "")
        .output()
        .unwrap();
    let message = String::from_utf8(empty.stderr).unwrap();
    assert!(message.contains("admin") && message.contains("must have 1 to 1024"), "{message}");
}

#[test]
fn unservable_store_is_rejected() {
    let fixture = Fixture::new();
    fixture.run(&["serve"]).fails(2, &["certificate", "--certificate-file", "--insecure"]);
    let half = fixture.run(&["serve", "--certificate-file", "a.pem"]);
    half.fails(2, &["the private key of the certificate is missing"]);
    let both = fixture.run(&["serve", "--insecure", "--certificate-file", "a.pem"]);
    both.fails(2, &["insecure and certificate-file contradict each other"]);
    let both = fixture.run(&["serve", "--insecure", "--disable-tls"]);
    both.fails(2, &["insecure and disable-tls contradict each other"]);
    let missing = ["serve", "--certificate-file", "a.pem", "--certificate-private-key-file", "b"];
    fixture.run(&missing).fails(2, &["no connection can be encrypted", "a.pem: "]);
    let wrong = fixture.run(&["serve", "--insecure", "--listen", "here"]);
    wrong.fails(2, &["--listen", "here"]);
    let wrong = fixture.run(&["serve", "--insecure", "--advertise", "store"]);
    wrong.fails(2, &["--advertise is store", "a colon and a port"]);
    let file = fixture.path("file");
    std::fs::write(&file, "no store").unwrap();
    // Regression: the test failed beside a server at the default port.
    let serve = ["serve", "--insecure", "--listen", "127.0.0.1:0"];
    let run = fixture.bare(&[&["--db", file.to_str().unwrap()], &serve[..]].concat());
    run.fails(2, &["is a file"]);
}

#[test]
fn port_in_use_is_reported() {
    let fixture = Fixture::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let run = fixture.run(&["serve", "--insecure", "--listen", &address]);
    run.fails(4, &["another process listens at", &address, "--listen"]);
}

#[test]
fn served_store_cannot_be_served_twice() {
    let fixture = Fixture::new();
    let serving = Serving::start(&fixture, &[]);
    let run = fixture.run(&["serve", "--insecure", "--listen", "127.0.0.1:0"]);
    run.fails(5, &["another process"]);
    assert_eq!(get(serving.address(), "/ping"), "HTTP/1.1 200 OK");
    assert_eq!(serving.stop(Signal::TERM).0, Some(0));
}

#[test]
fn kv_store_is_rejected_as_event_store() {
    let fixture = Fixture::with(&[("ada", "1815")]);
    let before = fixture.run(&["scan"]).succeeds().text();
    let run = fixture.run(&["serve", "--insecure", "--listen", "127.0.0.1:0"]);
    run.fails(2, &["event store"]);
    assert_eq!(fixture.run(&["scan"]).succeeds().text(), before);
}

/// Writes a config file and returns its path.
fn options(fixture: &Fixture, text: &str) -> String {
    let path = fixture.path("umbel.toml");
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_string()
}

#[test]
fn flags_override_environment_and_config_file() {
    let fixture = Fixture::new();
    let text = "insecure = true\nNodePort = 7\nsync = true\nappend-time = 5\n";
    let file = options(&fixture, text);
    let mut command = fixture.command();
    command.env("UMBEL_APPEND_TIME", "6").env("KURRENTDB_NODE_PORT", "8");
    command.args(["--json", "serve", "--print-config", "--config", &file]);
    command.args(["--stream-existence-filter-size", "256MiB"]).arg("--db").arg(fixture.store());
    let output = command.output().unwrap();
    let printed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let message = |name: &str| (printed[name]["value"].clone(), printed[name]["from"].clone());
    assert_eq!(message("insecure"), (true.into(), file.clone().into()));
    assert_eq!(printed["listen"]["value"], "127.0.0.1:8");
    assert_eq!(printed["listen"]["from"], "default and KURRENTDB_NODE_PORT");
    assert_eq!(message("append-time"), (6.into(), "UMBEL_APPEND_TIME".into()));
    assert_eq!(printed["stream-existence-filter-size"]["value"], 256 << 20);
    assert_eq!(printed["memory"]["value"], serde_json::Value::Null);
    assert_eq!(message("db").1, "--db");
    assert!(!fixture.store().exists(), "nothing is served");
    // Regression: the source of the directory was always the flag.
    let mut command = fixture.command();
    command.env("UMBEL_DB", "elsewhere").args(["--json", "serve", "--print-config"]);
    let printed: serde_json::Value =
        serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
    assert_eq!(printed["db"]["from"], "UMBEL_DB");
    command.args(["--db", "elsewhere"]);
    let printed: serde_json::Value =
        serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
    assert_eq!(printed["db"]["from"], "--db");
}

#[test]
fn printed_config_round_trips() {
    let fixture = Fixture::new();
    let flags = ["serve", "--print-config", "--insecure", "--advertise", "[::1]:9", "--sync"];
    let first = fixture.run(&flags).succeeds().text();
    let file = options(&fixture, &first);
    let again = fixture.bare(&["serve", "--print-config", "--config", &file]).succeeds().text();
    let values = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.split(" #").next().unwrap().trim_end().to_string()).collect()
    };
    assert_eq!(values(&first), values(&again));
    assert!(again.contains(&file) && again.contains("db = "), "{again}");
}

#[test]
fn server_applies_config_file() {
    let fixture = Fixture::new();
    let directory = fixture.store();
    let text = format!("db = '{}'\ninsecure = true\nlisten = '127.0.0.1:0'\n", directory.display());
    let file = options(&fixture, &text);
    let mut command = fixture.command();
    command.args(["serve", "--config", &file]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().unwrap();
    let mut stdout = BufReader::new(process.stdout.take().unwrap());
    let mut first_line = String::new();
    stdout.read_line(&mut first_line).unwrap();
    let first_line = first_line.trim_end().to_string();
    let serving = Serving { process, stdout, first_line };
    assert_eq!(get(serving.address(), "/health/live"), "HTTP/1.1 204 No Content");
    assert_eq!(serving.stop(Signal::TERM).0, Some(0));
    assert!(directory.exists());
}

#[test]
fn unknown_option_is_rejected_with_suggestion() {
    let fixture = Fixture::new();
    let file = options(&fixture, "insecure = true\nNodePrt = 7\n");
    let run = fixture.run(&["serve", "--config", &file]);
    run.fails(2, &["`NodePrt` in ", "did you mean `node-port`?"]);
    // Regression: an endless file filled the memory.
    let run = fixture.run(&["serve", "--config", "/dev/zero"]);
    run.fails(2, &["/dev/zero has more than 1048576 bytes"]);
    let run = fixture.run(&["serve", "--config", "nowhere.toml"]);
    run.fails(4, &["could not read nowhere.toml"]);
    let mut command = fixture.command();
    let output = command.env("UMBEL_INSECRUE", "true").arg("serve").output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("UMBEL_INSECRUE") && message.contains("`insecure`"), "{message}");
    assert_eq!(output.status.code(), Some(2));
}

/// Five events in two streams of two types.
const EVENTS: &str = r#"{"stream":"cart-1","type":"Opened","data":{"n":0}}
{"stream":"order-1","type":"Opened","data":{"n":1}}
{"stream":"cart-1","type":"Added","data":{"n":2}}
{"stream":"cart-1","type":"Added","data":{"n":3}}
{"stream":"order-1","type":"Closed","data_hex":"00ff"}
"#;

fn lines(text: &str) -> Vec<serde_json::Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn caught_up_subscription_equals_read() {
    let fixture = Fixture::new();
    fixture.feed(&["append"], EVENTS.as_bytes()).succeeds();
    let filters: [&[&str]; 6] = [
        &["--all"],
        &["--all", "--stream-prefix=cart-"],
        &["--all", "--type-prefix=Op", "--type-prefix=Cl"],
        &["--all", "--stream-regex=^(?!cart)"],
        &["--all", "--type-regex=d$"],
        &["--stream=cart-1"],
    ];
    let read = |filter: &[&str]| {
        let read = fixture.run(&[&["read"], filter].concat()).succeeds().text();
        lines(&read)
    };
    let wanted = filters.map(read);
    assert_eq!(wanted.each_ref().map(Vec::len), [5, 3, 3, 2, 5, 3]);
    let serving = Serving::start(&fixture, &[]);
    let follow = |flags: &[&str]| {
        let connect = ["subscribe", "--connect", &serving.first_line, "--until-caught-up"];
        fixture.bare(&[&connect, flags].concat()).succeeds().text()
    };
    for (filter, wanted) in filters.iter().zip(&wanted) {
        assert_eq!(&lines(&follow(filter)), wanted, "{filter:?}");
        let from =
            if filter[0] == "--all" { &wanted[1]["position"] } else { &wanted[1]["revision"] };
        let from = format!("--from={from}");
        let behind = follow(&[&[from.as_str()], *filter].concat());
        assert_eq!(lines(&behind), wanted[2..], "{filter:?} {from}");
    }
    assert_eq!(serving.stop(Signal::INT).0, Some(0));
}

/// Story: idle connections took every descriptor of the process, and appends failed that needed a
/// file.
#[cfg(target_os = "linux")]
#[test]
fn idle_connections_leave_descriptors_to_the_store() {
    let fixture = Fixture::new();
    let script = "ulimit -n 96 && exec \"$0\" \"$@\"";
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(script).arg(fixture.command().get_program());
    command.env_remove("UMBEL_DB").arg("--db").arg(fixture.store());
    command.args(["serve", "--listen", "127.0.0.1:0", "--insecure"]);
    let serving = Serving::of(command);
    let connect = |_| {
        let mut stream = TcpStream::connect(serving.address()).unwrap();
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
        stream
    };
    let idle: Vec<TcpStream> = (0..120).map(connect).collect();
    let event = r#"{"stream":"cart-1","type":"Added","data":"{}"}"#;
    for _ in 0..3 {
        let answer = post(serving.address(), "console/api/append", event);
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    }
    let files = std::fs::read_dir(format!("/proc/{}/fd", serving.process.id())).unwrap();
    let is_socket = |path: std::path::PathBuf| {
        std::fs::read_link(path).is_ok_and(|target| target.to_string_lossy().starts_with("socket"))
    };
    let sockets = files.filter(|file| is_socket(file.as_ref().unwrap().path())).count();
    // Connections, one that waits for a slot, and the listener and the runtime's own.
    assert!(sockets <= 32 + 6, "{sockets} sockets");
    drop(idle);
    let (code, _, notes) = serving.stop(Signal::TERM);
    assert_eq!(code, Some(0), "{notes}");
    assert!(notes.contains("connections_max=32"), "{notes}");
}

#[test]
fn subscription_prints_events_until_interrupted() {
    let fixture = Fixture::new();
    fixture.feed(&["append"], EVENTS.as_bytes()).succeeds();
    let serving = Serving::start(&fixture, &[]);
    let mut command = fixture.command();
    command.args(["subscribe", "--all", "--connect", serving.address()]);
    let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(process.stdout.take().unwrap());
    for number in 0..4 {
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        assert_eq!(lines(&line)[0]["data"]["n"], number);
    }
    let pid = Pid::from_raw(process.id().try_into().unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    assert_eq!(process.wait().unwrap().code(), Some(0));
    let mut command = fixture.command();
    command.args(["subscribe", "--all", "--connect", serving.address()]);
    let left = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut left_out = left;
    let mut first = String::new();
    BufReader::new(left_out.stdout.as_mut().unwrap()).read_line(&mut first).unwrap();
    assert_eq!(serving.stop(Signal::INT).0, Some(0));
    assert_eq!(left_out.wait().unwrap().code(), Some(4), "the server ended");
}

#[test]
fn unavailable_subscription_is_reported() {
    let fixture = Fixture::new();
    let serving = Serving::start(&fixture, &[]);
    let follow = |flags: &[&str]| {
        fixture.bare(&[&["subscribe", "--connect", serving.address()], flags].concat())
    };
    follow(&["--all", "--type-regex=a(b"]).fails(2, &["broken at character"]);
    follow(&["--all", "--type-regex=a", "--stream-regex=a"]).fails(2, &["--type-regex"]);
    follow(&["--stream=a", "--type-prefix=a"]).fails(2, &["--stream"]);
    follow(&["--all", "--from=99999999"]).fails(2, &["invalid position"]);
    follow(&[]).fails(2, &["--stream"]);
    fixture.bare(&["subscribe", "--all"]).fails(2, &["--connect"]);
    let wrong = ["subscribe", "--all", "--connect", "https://127.0.0.1:1"];
    fixture.bare(&wrong).fails(4, &["could not reach a server at 127.0.0.1:1"]);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let unused = taken.local_addr().unwrap().to_string();
    drop(taken);
    fixture.bare(&["subscribe", "--all", "--connect", &unused]).fails(4, &["could not reach"]);
    assert_eq!(serving.stop(Signal::INT).0, Some(0));
}
