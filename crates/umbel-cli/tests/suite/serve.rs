//! `umbel serve`: starting, refusing, stopping; and `umbel subscribe`, which follows it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustix::process::{Pid, Signal, kill_process};

use super::harness::Ground;

/// A server on the store of a ground.
pub struct Serving {
    process: Child,
    stdout: BufReader<std::process::ChildStdout>,
    first_line: String,
}

impl Serving {
    /// Starts one.
    pub fn start(ground: &Ground, flags: &[&str]) -> Serving {
        let flags: Vec<&str> = ["--insecure"].iter().chain(flags).copied().collect();
        Serving::with(ground, &flags, &[])
    }

    /// Starts one with these flags and variables.
    pub fn with(ground: &Ground, flags: &[&str], variables: &[(&str, &str)]) -> Serving {
        let mut command = ground.command();
        command.arg("--db").arg(ground.store()).envs(variables.iter().copied());
        command.args(["serve", "--listen", "127.0.0.1:0"]).args(flags);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut stdout = BufReader::new(process.stdout.take().unwrap());
        let mut first_line = String::new();
        stdout.read_line(&mut first_line).unwrap();
        Serving { process, stdout, first_line: first_line.trim_end().to_string() }
    }

    /// What clients connect with.
    pub fn connection(&self) -> &str {
        &self.first_line
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> &str {
        let rest = self.first_line.strip_prefix("kurrentdb://").unwrap();
        rest.strip_suffix("?tls=false").unwrap()
    }

    /// Sends a signal; the exit code, what else was written, and what was noted.
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

/// The status line of the answer to `GET path`.
fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.lines().next().unwrap_or_default().to_string()
}

/// The answer to `POST path` from the console.
fn post(address: &str, path: &str, body: &str) -> String {
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

/// `read`, `streams` and `verify` of a store that a server had open were refused with exit code 5:
/// an operator had to stop the server to look at its store.
#[test]
fn a_store_is_read_and_verified_beside_its_server() {
    let ground = Ground::new();
    ground.feed(&["append"], br#"{"stream":"cart-1","type":"Opened","data":1}"#).succeeds();
    let serving = Serving::start(&ground, &[]);
    let mut events = 1;
    for _ in 0..3 {
        let event = r#"{"stream":"cart-1","type":"Added","data":"{}"}"#;
        let answer = post(serving.address(), "console/api/append", event);
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        events += 1;
        let read = ground.run(&["read", "--stream", "cart-1"]).succeeds().text();
        assert_eq!(read.lines().count(), events, "{read}");
        let streams = ground.run(&["streams"]).succeeds().text();
        assert!(streams.contains("cart-1"), "{streams}");
        let verified = ground.run(&["verify"]).succeeds().text();
        assert!(verified.contains(&format!("is whole: {events} events")), "{verified}");
    }
    let (code, _, notes) = serving.stop(Signal::TERM);
    assert_eq!(code, Some(0), "{notes}");
}

/// Who hangs up wants other servers of events to look at their certificates; it ended this one.
#[test]
fn a_server_whose_terminal_is_gone_goes_on() {
    let ground = Ground::new();
    let serving = Serving::start(&ground, &[]);
    let pid = Pid::from_raw(serving.process.id().try_into().unwrap()).unwrap();
    for _ in 0..3 {
        kill_process(pid, Signal::HUP).unwrap();
        assert_eq!(get(serving.address(), "/health/live"), "HTTP/1.1 204 No Content");
    }
    let (code, _, notes) = serving.stop(Signal::TERM);
    assert!(code == Some(0) && notes.contains("stopped"), "{notes}");
}

/// Story: a server whose standard output went to a file on the disk that its store had filled did
/// not start again, so that no client could delete anything.
#[test]
fn a_full_disk_below_the_output_ends_no_server() {
    let Ok(full) = std::fs::OpenOptions::new().write(true).open("/dev/full") else { return };
    let ground = Ground::new();
    let mut command = ground.command();
    command.arg("--db").arg(ground.store());
    command.args(["serve", "--listen", "127.0.0.1:0", "--insecure"]);
    let mut process = command.stdout(full).stderr(Stdio::piped()).spawn().unwrap();
    let mut notes = BufReader::new(process.stderr.take().unwrap()).lines();
    let listens = notes.find(|line| line.as_ref().is_ok_and(|line| line.contains("listening at")));
    assert!(listens.is_some(), "it ended");
    kill_process(Pid::from_raw(process.id().try_into().unwrap()).unwrap(), Signal::TERM).unwrap();
    assert_eq!(process.wait().unwrap().code(), Some(0));
}

/// What is noted can be pasted as it is.
#[test]
fn an_event_is_appended_by_what_the_server_says() {
    let ground = Ground::new();
    let mut command = ground.command();
    command.arg("--db").arg(ground.store());
    command.args(["serve", "--insecure", "--listen", "127.0.0.1:0"]);
    let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let notes = BufReader::new(process.stderr.take().unwrap());
    let mut notes = notes.lines().map(Result::unwrap);
    let said = notes.find_map(|note| Some(note.split_once("an event to paste: ")?.1.to_string()));
    let said = said.unwrap();
    let (head, data) = said.split_once(" -d '").unwrap();
    let (head, url) = head.rsplit_once(' ').unwrap();
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
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    kill_process(Pid::from_raw(process.id().try_into().unwrap()).unwrap(), Signal::INT).unwrap();
    assert!(process.wait().unwrap().success());
    let events = ground.run(&["read", "--stream", "cart-42"]).succeeds().text();
    assert!(events.contains("Opened"), "{events}");
}

#[test]
fn a_store_that_nobody_named_lies_in_the_present_folder() {
    let ground = Ground::new();
    let mut command = ground.command();
    command.current_dir(ground.path("")).args(["serve", "--insecure", "--listen", "127.0.0.1:0"]);
    let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first_line = String::new();
    BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut first_line).unwrap();
    kill_process(Pid::from_raw(process.id().try_into().unwrap()).unwrap(), Signal::INT).unwrap();
    let output = process.wait_with_output().unwrap();
    let notes = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && notes.contains("the store is in umbel-data"), "{notes}");
    assert!(ground.path("umbel-data").join("CHUNKS").exists());
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

/// The status line of the answer to `GET /stats` by this user.
fn stats(address: &str, user: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let said = STANDARD.encode(user);
    let head = format!("Host: a\r\nAuthorization: Basic {said}\r\nConnection: close\r\n\r\n");
    write!(stream, "GET /stats HTTP/1.1\r\n{head}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.lines().next().unwrap_or_default().to_string()
}

/// There is no password that everybody knows: those that nobody chose are made, and said once.
#[test]
fn the_first_start_makes_passwords_and_tells_them_once() {
    let ground = Ground::new();
    let serving = Serving::with(&ground, &["--disable-tls"], &[]);
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
    let serving = Serving::with(&ground, &["--disable-tls"], &[("UMBEL_ADMIN_PASSWORD", "late")]);
    assert!(stats(serving.address(), "admin:late").contains(" 401 "), "it was chosen before");
    assert!(stats(serving.address(), &format!("admin:{admin}")).contains(" 200 "));
    assert!(stats(serving.address(), &format!("ops:{ops}")).contains(" 200 "));
    let (_, _, notes) = serving.stop(Signal::TERM);
    assert!(!notes.contains("password of"), "{notes}");
    assert!(notes.contains("in clear: their passwords can be read"), "{notes}");
}

#[test]
fn chosen_passwords_are_taken_from_the_environment_and_never_shown() {
    let ground = Ground::new();
    let chosen = [("UMBEL_ADMIN_PASSWORD", "kept-1"), ("KURRENTDB_DEFAULT_OPS_PASSWORD", "kept-2")];
    let mut command = ground.command();
    command.args(["serve", "--print-config"]).envs(chosen);
    let printed = String::from_utf8(command.output().unwrap().stdout).unwrap();
    assert!(printed.contains("# admin-password is set by UMBEL_ADMIN_PASSWORD"), "{printed}");
    assert!(!printed.contains("kept"), "{printed}");
    let serving = Serving::with(&ground, &["--disable-tls"], &chosen);
    assert!(stats(serving.address(), "admin:kept-1").contains(" 200 "));
    assert!(stats(serving.address(), "ops:kept-2").contains(" 200 "));
    let (_, _, notes) = serving.stop(Signal::TERM);
    assert!(!notes.contains("kept") && !notes.contains("password of"), "{notes}");
    // Programs read made ones beside the connection string.
    let other = Ground::new();
    let serving = Serving::with(&other, &["--disable-tls", "--json"], &chosen[..1]);
    let said: serde_json::Value = serde_json::from_str(&serving.first_line).unwrap();
    assert!(said["passwords"]["admin"].is_null());
    assert_eq!(said["passwords"]["ops"].as_str().unwrap().len(), 24);
    assert_eq!(serving.stop(Signal::TERM).0, Some(0));
    let empty = ground
        .command()
        .args(["serve", "--disable-tls", "--db"])
        .arg(ground.path("new"))
        .env("UMBEL_ADMIN_PASSWORD", "")
        .output()
        .unwrap();
    let said = String::from_utf8(empty.stderr).unwrap();
    assert!(said.contains("admin") && said.contains("must have 1 to 1024"), "{said}");
}

#[test]
fn what_cannot_be_served_is_refused_with_a_sentence() {
    let ground = Ground::new();
    ground.run(&["serve"]).fails(2, &["certificate", "--certificate-file", "--insecure"]);
    let half = ground.run(&["serve", "--certificate-file", "a.pem"]);
    half.fails(2, &["the private key of the certificate is missing"]);
    let both = ground.run(&["serve", "--insecure", "--certificate-file", "a.pem"]);
    both.fails(2, &["insecure and certificate-file contradict each other"]);
    let both = ground.run(&["serve", "--insecure", "--disable-tls"]);
    both.fails(2, &["insecure and disable-tls contradict each other"]);
    let missing = ["serve", "--certificate-file", "a.pem", "--certificate-private-key-file", "b"];
    ground.run(&missing).fails(2, &["no connection can be encrypted", "a.pem: "]);
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

/// Writes a file of options and returns its path.
fn options(ground: &Ground, text: &str) -> String {
    let path = ground.path("umbel.toml");
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_string()
}

#[test]
fn a_file_the_environment_and_flags_set_a_server_up_and_the_later_wins() {
    let ground = Ground::new();
    let text = "insecure = true\nNodePort = 7\nsync = true\nappend-time = 5\n";
    let file = options(&ground, text);
    let mut command = ground.command();
    command.env("UMBEL_APPEND_TIME", "6").env("KURRENTDB_NODE_PORT", "8");
    command.args(["--json", "serve", "--print-config", "--config", &file]);
    command.args(["--stream-existence-filter-size", "256MiB"]).arg("--db").arg(ground.store());
    let output = command.output().unwrap();
    let printed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let said = |name: &str| (printed[name]["value"].clone(), printed[name]["from"].clone());
    assert_eq!(said("insecure"), (true.into(), file.clone().into()));
    assert_eq!(printed["listen"]["value"], "127.0.0.1:8");
    assert_eq!(printed["listen"]["from"], "default and KURRENTDB_NODE_PORT");
    assert_eq!(said("append-time"), (6.into(), "UMBEL_APPEND_TIME".into()));
    assert_eq!(printed["stream-existence-filter-size"]["value"], 256 << 20);
    assert_eq!(printed["memory"]["value"], serde_json::Value::Null);
    assert_eq!(said("db").1, "--db");
    assert!(!ground.store().exists(), "nothing is served");
    // Story: of the folder it was always said that the flag named it.
    let mut command = ground.command();
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
fn what_is_printed_is_a_file_of_options_that_says_the_same() {
    let ground = Ground::new();
    let flags = ["serve", "--print-config", "--insecure", "--advertise", "[::1]:9", "--sync"];
    let first = ground.run(&flags).succeeds().text();
    let file = options(&ground, &first);
    let again = ground.bare(&["serve", "--print-config", "--config", &file]).succeeds().text();
    let values = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.split(" #").next().unwrap().trim_end().to_string()).collect()
    };
    assert_eq!(values(&first), values(&again));
    assert!(again.contains(&file) && again.contains("db = "), "{again}");
}

#[test]
fn a_server_runs_with_what_a_file_says() {
    let ground = Ground::new();
    let folder = ground.store();
    let text = format!("db = '{}'\ninsecure = true\nlisten = '127.0.0.1:0'\n", folder.display());
    let file = options(&ground, &text);
    let mut command = ground.command();
    command.args(["serve", "--config", &file]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().unwrap();
    let mut stdout = BufReader::new(process.stdout.take().unwrap());
    let mut first_line = String::new();
    stdout.read_line(&mut first_line).unwrap();
    let first_line = first_line.trim_end().to_string();
    let serving = Serving { process, stdout, first_line };
    assert_eq!(get(serving.address(), "/health/live"), "HTTP/1.1 204 No Content");
    assert_eq!(serving.stop(Signal::TERM).0, Some(0));
    assert!(folder.exists());
}

#[test]
fn a_name_that_no_option_has_is_refused_with_the_nearest() {
    let ground = Ground::new();
    let file = options(&ground, "insecure = true\nNodePrt = 7\n");
    let run = ground.run(&["serve", "--config", &file]);
    run.fails(2, &["`NodePrt` in ", "did you mean `node-port`?"]);
    // Memory was filled with one without end.
    let run = ground.run(&["serve", "--config", "/dev/zero"]);
    run.fails(2, &["/dev/zero has more than 1048576 bytes"]);
    let run = ground.run(&["serve", "--config", "nowhere.toml"]);
    run.fails(4, &["could not read nowhere.toml"]);
    let mut command = ground.command();
    let output = command.env("UMBEL_INSECRUE", "true").arg("serve").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("UMBEL_INSECRUE") && said.contains("`insecure`"), "{said}");
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
fn what_is_followed_until_caught_up_is_what_reading_shows() {
    let ground = Ground::new();
    ground.feed(&["append"], EVENTS.as_bytes()).succeeds();
    let filters: [&[&str]; 6] = [
        &["--all"],
        &["--all", "--stream-prefix=cart-"],
        &["--all", "--type-prefix=Op", "--type-prefix=Cl"],
        &["--all", "--stream-regex=^(?!cart)"],
        &["--all", "--type-regex=d$"],
        &["--stream=cart-1"],
    ];
    let read = |filter: &[&str]| {
        let read = ground.run(&[&["read"], filter].concat()).succeeds().text();
        lines(&read)
    };
    let wanted = filters.map(read);
    assert_eq!(wanted.each_ref().map(Vec::len), [5, 3, 3, 2, 5, 3]);
    let serving = Serving::start(&ground, &[]);
    let follow = |flags: &[&str]| {
        let connect = ["subscribe", "--connect", &serving.first_line, "--until-caught-up"];
        ground.bare(&[&connect, flags].concat()).succeeds().text()
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

#[test]
fn what_comes_is_written_at_once_until_somebody_stops_it() {
    let ground = Ground::new();
    ground.feed(&["append"], EVENTS.as_bytes()).succeeds();
    let serving = Serving::start(&ground, &[]);
    let mut command = ground.command();
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
    let mut command = ground.command();
    command.args(["subscribe", "--all", "--connect", serving.address()]);
    let left = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut left_out = left;
    let mut first = String::new();
    BufReader::new(left_out.stdout.as_mut().unwrap()).read_line(&mut first).unwrap();
    assert_eq!(serving.stop(Signal::INT).0, Some(0));
    assert_eq!(left_out.wait().unwrap().code(), Some(4), "the server went away");
}

#[test]
fn what_cannot_be_followed_is_told() {
    let ground = Ground::new();
    let serving = Serving::start(&ground, &[]);
    let follow = |flags: &[&str]| {
        ground.bare(&[&["subscribe", "--connect", serving.address()], flags].concat())
    };
    follow(&["--all", "--type-regex=a(b"]).fails(2, &["broken at character"]);
    follow(&["--all", "--type-regex=a", "--stream-regex=a"]).fails(2, &["--type-regex"]);
    follow(&["--stream=a", "--type-prefix=a"]).fails(2, &["--stream"]);
    follow(&["--all", "--from=99999999"]).fails(2, &["invalid position"]);
    follow(&[]).fails(2, &["--stream"]);
    ground.bare(&["subscribe", "--all"]).fails(2, &["--connect"]);
    let wrong = ["subscribe", "--all", "--connect", "https://127.0.0.1:1"];
    ground.bare(&wrong).fails(4, &["could not reach a server at 127.0.0.1:1"]);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = taken.local_addr().unwrap().to_string();
    drop(taken);
    ground.bare(&["subscribe", "--all", "--connect", &nobody]).fails(4, &["could not reach"]);
    assert_eq!(serving.stop(Signal::INT).0, Some(0));
}
