//! `append`, `delete --stream`, `redact`, `read`, `metadata` and `streams` with `--connect`: work
//! at a running server.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::serve::{ReservedPort, Serving};
use super::test_binary::{Fixture, Run, full_device};

/// Input of `append`: events with these revisions of one stream.
fn lines(stream: &str, numbers: std::ops::Range<u64>) -> String {
    let line =
        |n| format!("{{\"stream\":\"{stream}\",\"type\":\"Counted\",\"data\":{{\"n\":{n}}}}}\n");
    numbers.map(line).collect()
}

fn read(serving: &Serving, fixture: &Fixture, stream: &str) -> Vec<Value> {
    let subscribe =
        ["subscribe", "--connect", serving.address(), "--stream", stream, "--until-caught-up"];
    let text = fixture.bare(&subscribe).succeeds().text();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Story: `umbel append --connect ADDRESS` was refused with the tip to write `-- --connect`.
#[test]
fn events_are_appended_at_a_running_server() {
    let fixture = Fixture::new();
    let serving = Serving::start(&fixture, &[]);
    let feed = |flags: &[&str], input: &str| -> Run {
        let arguments = [&["append", "--connect", serving.address()], flags].concat();
        fixture.feed(&arguments, input.as_bytes())
    };
    let printed = feed(&[], &lines("cart", 0..20)).succeeds().text();
    let printed: Vec<Value> =
        printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(printed.len(), 20);
    assert_eq!((&printed[19]["revision"], &printed[19]["data"]["n"]), (&19.into(), &19.into()));
    assert!(printed[0]["position"].as_u64() < printed[1]["position"].as_u64());
    let id = "01234567-89ab-4cde-8f01-23456789abcd";
    let binary = json!({
        "stream": "cart", "type": "Raw", "data_hex": "00ff", "metadata": { "a": 1 }, "id": id
    });
    feed(&["--expected", "19"], &binary.to_string()).succeeds();
    let events = read(&serving, &fixture, "cart");
    assert_eq!(events.len(), 21);
    assert_eq!((&events[20]["data_hex"], &events[20]["id"]), (&json!("00ff"), &json!(id)));
    assert_eq!(events[20]["metadata"], json!({ "a": 1 }));
    // The lines before a refused one are appended, and those after it are not.
    let conflict = format!(
        "{}{{\"stream\":\"cart\",\"type\":\"X\",\"data\":1,\"expected\":7}}\n{}",
        lines("more", 0..2),
        lines("more", 2..4)
    );
    feed(&[], &conflict).fails(2, &["line 3", "the lines before it were appended", "--skip-bad"]);
    assert_eq!(read(&serving, &fixture, "more").len(), 2);
    let skipped = feed(&["--skip-bad"], &conflict).succeeds();
    assert!(skipped.stderr.contains("1 damaged line skipped"), "{}", skipped.stderr);
    assert_eq!(read(&serving, &fixture, "more").len(), 6);
    feed(&["--sync"], "").fails(2, &["--sync"]);
    // Another process has the store: the message names the way.
    fixture.feed(&["append"], b"").fails(5, &["umbel append --connect ADDRESS"]);
    assert_eq!(serving.stop(Signal::INT).0, Some(0));
}

#[test]
fn streams_are_deleted_and_events_redacted_at_a_running_server() {
    let fixture = Fixture::new();
    fixture.feed(&["append"], lines("cart", 0..3).as_bytes()).succeeds();
    fixture.feed(&["append"], lines("gone", 0..3).as_bytes()).succeeds();
    let passwords = [("UMBEL_ADMIN_PASSWORD", "first"), ("UMBEL_OPS_PASSWORD", "second")];
    let serving = Serving::with(&fixture, &["--disable-tls"], &passwords);
    let of = |user: &str| format!("kurrentdb://{user}@{}?tls=false", serving.address());
    let (admin, guessed) = (of("admin:first"), of("ops:guessed"));
    let redact = ["redact", "cart@1", "--reason", "request 17", "--connect"];
    fixture.bare(&[&redact[..], &[&guessed]].concat()).fails(2, &["the server says"]);
    let report = fixture.bare(&[&redact[..], &[&admin]].concat()).succeeds().text();
    assert!(report.contains("1 event lost data and metadata, 0 had none"), "{report}");
    let again = fixture.bare(&[&redact[..], &[&admin, "--json"]].concat()).succeeds().json();
    assert_eq!((&again["events_redacted"], &again["events_without_data"]), (&0.into(), &1.into()));
    fixture.bare(&["redact", "none@1", "--connect", &admin]).fails(2, &["the server says"]);
    let delete = |flags: &[&str]| {
        fixture.bare(&[&["delete", "--stream", "gone", "--connect", &admin], flags].concat())
    };
    // Story: the text was the one that client libraries parse, without a remedy.
    let conflict = ["revision 7", "but its last revision is 2; read the stream and decide again"];
    delete(&["--expected", "7"]).fails(2, &conflict);
    // Story: a deletion printed nothing.
    delete(&["--expected", "2"]).writes("gone: deleted\n");
    let tombstoned = delete(&["--tombstone", "--json"]).succeeds();
    assert_eq!(tombstoned.json(), json!({ "stream": "gone", "outcome": "tombstoned" }));
    assert_eq!(tombstoned.stderr, "");
    let line = lines("gone", 0..1);
    let append = ["append", "--connect", &admin];
    delete(&[]).fails(2, &["was tombstoned", "use another name"]);
    fixture.feed(&append, line.as_bytes()).fails(2, &["was tombstoned", "use another name"]);
    delete(&["--expected", "no-stream"]).fails(2, &["was tombstoned"]);
    // Story: reads were refused with the text that client libraries parse, and exit code 2.
    for read in [
        &["read", "--stream", "gone"][..],
        &["read", "--stream", "gone", "--backwards"],
        &["subscribe", "--stream", "gone", "--until-caught-up"],
        &["metadata", "--stream", "gone"],
    ] {
        let run = fixture.bare(&[read, &["--connect", &admin]].concat());
        let list = "`umbel streams --connect 'kurrentdb://admin@";
        run.fails(1, &["the stream 'gone' was tombstoned", "never be read", list]);
    }
    let change = ["metadata", "--stream", "gone", "--max-count", "1", "--connect", &admin];
    fixture.bare(&change).fails(2, &["the stream 'gone' was tombstoned"]);
    fixture.bare(&["delete", "key", "--connect", &admin]).fails(2, &["'--connect", "[KEY]"]);
    assert_eq!(serving.stop(Signal::INT).0, Some(0));
    let events = fixture.run(&["read", "--stream", "cart"]).succeeds().text();
    assert!(!events.contains("\"n\":1") && events.contains("\"n\":2"), "{events}");
    let audit = fixture.run(&["read", "--stream", "$redactions"]).succeeds().json();
    assert_eq!(audit["data"]["user"], "admin");
    fixture.run(&["read", "--stream", "gone"]).fails(1, &["tombstoned"]);
}

/// Story: after a kill of the server, the advice was to write `https://`, and nothing said that the
/// line of the error may have been appended. It was.
#[test]
fn append_at_a_server_that_ends_says_what_may_be_appended() {
    let fixture = Fixture::new();
    let serving = Serving::start(&fixture, &[]);
    let mut command = fixture.command();
    command.args(["append", "--connect", serving.address()]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().unwrap();
    let mut input = process.stdin.take().unwrap();
    input.write_all(lines("cart", 0..1).as_bytes()).unwrap();
    let mut acknowledged = String::new();
    BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut acknowledged).unwrap();
    assert!(acknowledged.contains("\"revision\":0"), "{acknowledged}");
    serving.stop(Signal::KILL);
    // A command that has ended reads no more.
    let _ = input.write_all(lines("cart", 1..2).as_bytes());
    drop(input);
    let run = Run::from_output(process.wait_with_output().unwrap());
    let parts = ["line 2", "the lines before it were appended", "may have been appended, too"];
    let run = run.fails(4, &parts);
    assert!(!run.stderr.contains("https://"), "{run:?}");
}

/// Story: the error of a full standard output said that no line was appended, although the first
/// one was. A closed pipe ended the command with exit code 0 before the end of its input.
#[test]
fn append_at_a_server_reports_appended_lines_if_the_output_fails() {
    let fixture = Fixture::new();
    let serving = Serving::start(&fixture, &[]);
    let file = fixture.path("events");
    let run = |count: u64, output: Stdio| {
        std::fs::write(&file, lines("cart", 0..count)).unwrap();
        let mut command = fixture.command();
        command.args(["append", "--connect", serving.address()]).arg(&file);
        command.stdout(output).stderr(Stdio::piped());
        Run::from_output(command.spawn().unwrap().wait_with_output().unwrap())
    };
    let closed = || {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        Stdio::from(writer)
    };
    let after = "the lines up to line 1 were appended, and those after it were not";
    run(3, closed()).fails(4, &["line 1: standard output was closed", after]);
    assert_eq!(run(1, closed()).succeeds().stderr, "");
    let mut appended = 2;
    assert_eq!(read(&serving, &fixture, "cart").len(), appended);
    let full = || full_device().map(Stdio::from);
    let why = "could not write to standard output: No space";
    if let Some(output) = full() {
        run(3, output).fails(4, &["line 1: could not", why, after]);
        appended += 1;
    }
    if let Some(output) = full() {
        run(1, output).fails(4, &["the lines of ", " were appended, but the command could not"]);
        appended += 1;
    }
    assert_eq!(read(&serving, &fixture, "cart").len(), appended);
    assert_eq!(serving.stop(Signal::INT).0, Some(0));
}

/// Story: `read` and `metadata` worked only without a server, or beside it on its machine.
#[test]
fn events_and_metadata_are_read_at_a_running_server() {
    let fixture = Fixture::new();
    fixture.feed(&["append"], lines("cart", 0..5).as_bytes()).succeeds();
    let serving = Serving::start(&fixture, &[]);
    let run =
        |arguments: &[&str]| fixture.bare(&[arguments, &["--connect", serving.address()]].concat());
    for read in [
        &["--stream", "cart"][..],
        &["--stream", "cart", "--from", "3"],
        &["--stream", "cart", "--backwards", "--count", "2"],
        &["--stream", "cart", "--backwards", "--from", "1"],
        &["--stream", "cart", "--count", "0"],
        &["--stream", "$ce-cart"],
        &["--all", "--type-prefix", "Coun"],
        &["--all", "--stream-regex", "^cart", "--backwards", "--count", "1"],
        &["--stream", "$streams", "--resolve-links"],
    ] {
        let read = [&["read"], read].concat();
        let offline = fixture.run(&read);
        let online = run(&read);
        assert_eq!((online.code, online.text()), (offline.code, offline.text()), "{read:?}");
    }
    run(&["read", "--stream", "none"]).fails(1, &["there is no stream 'none'"]);
    run(&["read", "--all", "--type-regex", "("]).fails(2, &[]);
    let metadata = |flags: &[&str]| run(&[&["metadata", "--stream", "cart"], flags].concat());
    metadata(&[]).writes("{}\n");
    metadata(&["--max-count", "3"]).writes("{\"$maxCount\":3}\n");
    metadata(&["--set", r#"{"owner":1.50}"#]).writes("{\"$maxCount\":3,\"owner\":1.50}\n");
    metadata(&["--clear", "owner"]).writes("{\"$maxCount\":3}\n");
    metadata(&["--max-age", "0"]).fails(2, &["$maxAge"]);
    assert_eq!(read(&serving, &fixture, "cart").len(), 3);
    assert_eq!(serving.stop(Signal::INT).0, Some(0));
}

/// Story: the streams of a running server could be listed only beside it on its machine.
#[test]
fn streams_are_listed_at_a_running_server() {
    let fixture = Fixture::new();
    let line =
        |n: u64| format!("{{\"stream\":\"cart-{n:04}\",\"type\":\"T{n:04}\",\"data\":{n}}}\n");
    let mut input: String = (0..2100).map(line).collect();
    let odd = "ü \" & ?=#%\t\u{1}";
    input.push_str(&json!({ "stream": odd, "type": odd, "data": 1 }).to_string());
    fixture.feed(&["append"], input.as_bytes()).succeeds();
    let serving = Serving::start(&fixture, &[]);
    let run =
        |arguments: &[&str]| fixture.bare(&[arguments, &["--connect", serving.address()]].concat());
    run(&["delete", "--stream", "cart-0001"]).succeeds();
    run(&["delete", "--stream", "cart-0002", "--tombstone"]).succeeds();
    run(&["metadata", "--stream", "cart-0003", "--truncate-before", "9"]).succeeds();
    for flags in [
        &[][..],
        &["--json"],
        &["--system", "--json"],
        &["--prefix", "cart-00"],
        &["--prefix", odd],
        &["--prefix", "$$cart"],
        &["--prefix", "none"],
        &["--categories"],
        &["--types"],
        &["--types", "--prefix", "T2", "--json"],
    ] {
        let list = [&["streams"], flags].concat();
        let (offline, online) = (fixture.run(&list).succeeds(), run(&list).succeeds());
        assert_eq!(online.text(), offline.text(), "{flags:?}");
    }
    let listed = run(&["streams"]).succeeds().text();
    assert_eq!(listed.lines().count(), 2101, "{listed}");
    let first: Vec<&str> = listed.lines().take(4).collect();
    let states = ["0 to 0", "deleted", "tombstoned", "empty"];
    for (number, (line, state)) in first.iter().zip(states).enumerate() {
        assert_eq!(*line, format!("cart-{number:04}\t{state}"));
    }
    run(&["streams", "--categories", "--types"]).fails(2, &["--types"]);
    assert_eq!(serving.stop(Signal::INT).0, Some(0));
    // With users, a caller needs one.
    let other = Fixture::new();
    let serving = Serving::with(&other, &["--disable-tls"], &[("UMBEL_OPS_PASSWORD", "second")]);
    let list = |user: &str| {
        let connect = format!("kurrentdb://{user}{}?tls=false", serving.address());
        other.bare(&["streams", "--system", "--prefix", "$user", "--connect", &connect])
    };
    assert!(list("ops:second@").succeeds().text().contains("$user-ops"));
    list("").fails(2, &["authentication required", "name another user in the address"]);
    list("ops:guessed@").fails(2, &["the server says"]);
    assert_eq!(serving.stop(Signal::INT).0, Some(0));
}

/// Begins a list of streams whose reader has taken only the first byte. The first page of names is
/// longer than the buffers of the output, so the command waits within it.
fn begin_list(fixture: &Fixture, address: &str) -> (Child, ChildStdout, String) {
    let mut command = fixture.command();
    command.args(["streams", "--connect", address]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut list = command.spawn().unwrap();
    let mut stdout = list.stdout.take().unwrap();
    let mut first = [0];
    stdout.read_exact(&mut first).unwrap();
    (list, stdout, char::from(first[0]).to_string())
}

/// Returns the whole output and the exit code of a list.
fn end_list((list, mut stdout, mut text): (Child, ChildStdout, String)) -> (String, Run) {
    stdout.read_to_string(&mut text).unwrap();
    (text, Run::from_output(list.wait_with_output().unwrap()))
}

/// Story: a list of streams ended with an error where the server restarted between two pages.
#[test]
fn list_of_streams_goes_on_after_a_restart_of_the_server() {
    let fixture = Fixture::new();
    let pad = "x".repeat(200);
    let line = |n: u64| format!("{{\"stream\":\"{n:04}-{pad}\",\"type\":\"T\",\"data\":1}}\n");
    let input: String = (0..2500).map(line).collect();
    fixture.feed(&["append"], input.as_bytes()).succeeds();
    let wanted = fixture.run(&["streams"]).succeeds().text();
    assert_eq!(wanted.lines().count(), 2500);
    let port = ReservedPort::new();
    let serving = Serving::at(&fixture, port.address());
    let list = begin_list(&fixture, port.address());
    assert_eq!(serving.stop(Signal::INT).0, Some(0));
    let serving = Serving::at(&fixture, port.address());
    let (text, run) = end_list(list);
    assert_eq!(run.code, 0, "{run:?}");
    assert!(text == wanted, "{} lines", text.lines().count());
    // Without the server, the names that were read are printed before the error.
    let list = begin_list(&fixture, port.address());
    assert_eq!(serving.stop(Signal::INT).0, Some(0));
    let (text, run) = end_list(list);
    run.fails(4, &["could not reach a server"]);
    assert!(text.lines().count() == 1000 && wanted.starts_with(&text), "{}", text.lines().count());
}

/// Story: an append that a quota refused ended with the exit code of a failed operating system, and
/// `--skip-bad` skipped every later line.
#[test]
fn append_over_the_quota_has_its_own_exit_code() {
    let fixture = Fixture::new();
    let serving = Serving::start(&fixture, &["--log-quota", "256KiB"]);
    let line = |n: u64| {
        let data = format!("{n}{}", "1".repeat(99_000));
        json!({ "stream": "full", "type": "Large", "data": data })
    };
    let input: String = (0..5).map(|n| format!("{}\n", line(n))).collect();
    for flags in [&[][..], &["--skip-bad"]] {
        let arguments = [&["append", "--connect", serving.address()], flags].concat();
        let run = fixture.feed(&arguments, input.as_bytes());
        run.fails(6, &["quota", "umbel scavenge --now", "--connect", "--log-quota"]);
    }
    assert_eq!(read(&serving, &fixture, "full").len(), 2);
    assert_eq!(serving.stop(Signal::INT).0, Some(0));
}

/// Story: after the stream of parked events was tombstoned, `umbel group parked` printed nothing.
#[test]
fn parked_events_of_a_replaced_stream_are_printed() {
    let fixture = Fixture::new();
    let parked = "$persistentsubscription-cart::billing-parked";
    fixture.feed(&["append"], lines("cart", 0..2).as_bytes()).succeeds();
    let serving = Serving::start(&fixture, &[]);
    let group = |arguments: &[&str]| {
        let arguments = [&["group"], arguments, &["--connect", serving.address()]].concat();
        fixture.bare(&arguments)
    };
    group(&["create", "cart", "billing"]).succeeds();
    let connect = ["--connect", serving.address()];
    let tombstone = [&["delete", "--stream", parked, "--tombstone"][..], &connect].concat();
    fixture.bare(&tombstone).succeeds();
    let link = format!(
        "{{\"stream\":\"{}\",\"type\":\"$>\",\"data_hex\":\"304063617274\"}}",
        parked.replacen('-', ".2-", 1)
    );
    fixture.feed(&[&["append"][..], &connect].concat(), link.as_bytes()).succeeds();
    let shown = group(&["parked", "cart", "billing"]).succeeds().json();
    assert_eq!((&shown["stream"], &shown["data"]["n"]), (&"cart".into(), &0.into()));
    let info = group(&["info", "cart", "billing", "--json"]).succeeds().json();
    assert_eq!(info["last_known"], "1", "the last event of the source");
    assert_eq!(serving.stop(Signal::INT).0, Some(0));
}
