//! Commands for event stores.

use std::process::Command;

use serde_json::{Value, json};
use umbel_env::skipped_test::print_skipped;

use super::test_binary::{Fixture, Run, full_device};

const FIRST: &str = r#"{"stream":"cart-42","type":"Opened","data":{"by": "ada"}}"#;
const SECOND: &str =
    r#"{"stream":"cart-42","type":"Added","data":[1, 2.50],"metadata":{"why":"x"}}"#;

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn appended_events_are_acknowledged_read_and_listed() {
    let fixture = Fixture::new();
    let input = format!("{FIRST}\n\n{SECOND}\n");
    let acknowledged = fixture.feed(&["append"], input.as_bytes()).succeeds().text();
    let shown = lines(&acknowledged);
    assert_eq!(shown.len(), 2);
    assert_eq!((&shown[0]["revision"], &shown[1]["revision"]), (&json!(0), &json!(1)));
    assert!(shown[0]["position"].as_u64() < shown[1]["position"].as_u64());
    let read = fixture.run(&["read", "--stream", "cart-42"]).succeeds().text();
    // Data and metadata are kept to the byte.
    assert!(read.contains(r#""data":{"by": "ada"}"#) && read.contains(r#""data":[1, 2.50]"#));
    assert_eq!(lines(&read)[1]["metadata"], json!({"why": "x"}));
    assert_eq!(lines(&read)[0]["id"], shown[0]["id"]);
    let all = fixture.run(&["read", "--all", "--backwards", "--count=1"]).succeeds().text();
    assert_eq!(lines(&all)[0]["type"], json!("Added"));
    fixture.run(&["streams"]).writes("cart-42\t0 to 1\n");
    let whole = fixture.run(&["verify"]).succeeds().text();
    assert!(whole.contains("is undamaged: 2 events"), "{whole}");
    assert_eq!(fixture.run(&["verify", "--json"]).succeeds().json()["events"], json!(2));
}

#[test]
fn read_output_can_be_appended_and_retries_are_recognized() {
    let fixture = Fixture::new();
    let bytes = r#"{"stream":"b","type":"Raw","data_hex":"00ff","metadata_hex":"0a"}"#;
    let input = format!("{FIRST}\n{bytes}\n");
    let first = fixture.feed(&["append", "--sync"], input.as_bytes()).succeeds().text();
    let read = fixture.run(&["read", "--all"]).succeeds().text();
    assert_eq!(lines(&read)[1]["data_hex"], json!("00ff"));
    // The ids are the same, so nothing is written twice.
    let again = fixture.feed(&["append"], read.as_bytes()).succeeds().text();
    assert_eq!(again, first);
    fixture.run(&["streams"]).writes("b\t0 to 0\ncart-42\t0 to 0\n");
}

#[test]
fn views_are_read_and_categories_and_types_listed() {
    let fixture = Fixture::new();
    let other = r#"{"stream":"plain","type":"Added","data":1}"#;
    let input = format!("{FIRST}\n{other}\n{SECOND}\n");
    fixture.feed(&["append"], input.as_bytes()).succeeds();
    fixture.run(&["streams", "--categories"]).writes("cart\t2\n");
    fixture.run(&["streams", "--types", "--prefix=A"]).writes("Added\t2\n");
    let types = fixture.run(&["streams", "--types", "--json"]).succeeds().text();
    let opened = json!({"type": "Opened", "events": 1});
    assert_eq!(lines(&types), [json!({"type": "Added", "events": 2}), opened]);
    let links = lines(&fixture.run(&["read", "--stream=$et-Added"]).succeeds().text());
    assert_eq!((&links[0]["stream"], &links[0]["type"]), (&json!("$et-Added"), &json!("$>")));
    assert_eq!(links[1]["data_hex"], json!("3140636172742d3432"), "1@cart-42");
    let read = ["read", "--stream=$ce-cart", "--resolve-links", "--backwards"];
    let events = lines(&fixture.run(&read).succeeds().text());
    assert_eq!(events.len(), 2);
    assert_eq!((&events[0]["revision"], &events[0]["stream"]), (&json!(1), &json!("cart-42")));
    fixture.run(&["delete", "--stream=cart-42"]).succeeds();
    let events = lines(&fixture.run(&read).succeeds().text());
    assert_eq!(
        (events.len(), &events[0]["type"]),
        (2, &json!("$>")),
        "deleted events leave their links"
    );
    fixture.run(&["read", "--stream=$ce-x"]).fails(1, &["there is no event in the view '$ce-x'"]);
    fixture
        .run(&["read", "--all", "--resolve-links"])
        .fails(2, &["'--all' cannot be used with '--resolve-links'"]);
}

#[test]
fn deleted_stream_returns_and_tombstone_does_not() {
    let fixture = Fixture::new();
    fixture.feed(&["append"], FIRST.as_bytes()).succeeds();
    let wrong = fixture.run(&["delete", "--stream", "cart-42", "--expected", "7"]);
    wrong.fails(2, &["revision 7 was expected of stream 'cart-42'", "its last revision is 0"]);
    fixture.run(&["delete", "--stream", "cart-42", "--expected", "0"]).writes("cart-42: deleted\n");
    fixture.run(&["read", "--stream", "cart-42"]).fails(1, &["there is no stream 'cart-42'"]);
    fixture.run(&["streams"]).writes("cart-42\tdeleted\n");
    fixture.feed(&["append"], SECOND.as_bytes()).succeeds();
    fixture.run(&["streams"]).writes("cart-42\t1 to 1\n");
    let tombstone = ["delete", "--stream", "cart-42", "--tombstone"];
    fixture.run(&tombstone).writes("cart-42: tombstoned\n");
    // Story: the exit code was that of a refused flag, and the text was about appends.
    for read in [&["read", "--stream", "cart-42"][..], &["metadata", "--stream", "cart-42"]] {
        let run = fixture.run(read).fails(1, &["'cart-42' was tombstoned", "umbel streams"]);
        assert!(!run.stderr.contains("append") && !run.stderr.contains("expect"), "{run:?}");
    }
    fixture.run(&["read", "--stream", "$$cart-42"]).fails(1, &["was tombstoned"]);
    // Story: the text was that there is no such stream.
    fixture.run(&["read", "--stream", "$all"]).fails(2, &["write --all instead"]);
    let subscribe = ["subscribe", "--stream", "$all", "--connect", "127.0.0.1:1"];
    fixture.bare(&subscribe).fails(2, &["write --all instead"]);
    let system = fixture.run(&["streams", "--system", "--json"]).succeeds().text();
    assert_eq!(lines(&system)[0]["stream"], json!("$$cart-42"));
}

#[test]
fn scavenge_frees_space_and_reports_it() {
    let fixture = Fixture::new();
    let line = format!(r#"{{"stream":"a","type":"t","data":"{}"}}"#, "x".repeat(1000));
    let input = [line.as_str()].repeat(50).join("\n");
    fixture.feed(&["append"], input.as_bytes()).succeeds();
    fixture.feed(&["append"], FIRST.as_bytes()).succeeds();
    let none = fixture.run(&["scavenge"]).succeeds().text();
    assert!(none.contains("0 events removed, 0 emptied, 0 B freed from 0 chunks"), "{none}");
    fixture.run(&["delete", "--stream", "a"]).writes("a: deleted\n");
    let report = fixture.run(&["scavenge", "--throttle", "50", "--json"]).succeeds().json();
    // Of the newest events the ids stay, so that retries are known.
    assert_eq!((&report["events_removed"], &report["events_emptied"]), (&json!(0), &json!(50)));
    assert!(report["bytes_given_back"].as_u64() > Some(49_000), "{report}");
    let all = fixture.run(&["read", "--all"]).succeeds().text();
    let read: Vec<_> = lines(&all).iter().map(|event| event["stream"].clone()).collect();
    assert_eq!(read, [json!("cart-42"), json!("$$a")]);
    let whole = fixture.run(&["verify"]).succeeds().text();
    assert!(whole.contains("is undamaged: 2 events"), "{whole}");
    fixture.run(&["scavenge", "--throttle", "0"]).fails(2, &["must be 1"]);
    fixture.run(&["scavenge", "--busy", "101"]).fails(2, &["must be 1 to 100"]);
    Fixture::new().run(&["scavenge"]).fails(2, &["there is no event store"]);
}

#[test]
fn damaged_line_is_reported_and_earlier_lines_are_kept() {
    let fixture = Fixture::new();
    for (line, why) in [
        ("{", "is not an event"),
        (r#"["a","t",1,null,null,null,null,null,null,null,null,null]"#, "a JSON array"),
        (r#"{"type":"t","data":1}"#, "has no \"stream\""),
        (r#"{"stream":"a","data":1}"#, "has no \"type\""),
        (r#"{"stream":"a","type":"t"}"#, "has no \"data\""),
        (r#"{"stream":"a","type":"t","data":1,"data_hex":"00"}"#, "has both"),
        (r#"{"stream":"a","type":"t","data_hex":"0"}"#, "not an even number"),
        (r#"{"stream":"a","type":"t","data":1,"id":"7"}"#, "is not an event id"),
        (r#"{"stream":"a","type":"t","data":1,"expected":"often"}"#, "any, no-stream"),
        (r#"{"stream":"a","type":"t","data":1,"expected":3}"#, "revision 3 was expected"),
        (r#"{"stream":"","type":"t","data":1}"#, "0 bytes"),
        (r#"{"stream":"$all","type":"t","data":1}"#, "all streams"),
        (r#"{"stream":"$$a","type":"t","data":1}"#, "not an object"),
        (r#"{"stream":"a","typ":"t","data":1}"#, "unknown field `typ`"),
    ] {
        let input = format!("{FIRST}\n{line}\n{SECOND}\n");
        let stopped = fixture.feed(&["append"], input.as_bytes());
        assert_eq!(stopped.text().lines().count(), 1, "{line}");
        stopped.fails(2, &["standard input, line 2", why, "the lines before it were appended"]);
    }
    let run = fixture.feed(&["append"], b"{\n");
    run.fails(2, &["standard input, line 1", "no line was appended"]);
    let input = format!("{FIRST}\nnothing\n{SECOND}\n");
    let run = fixture.feed(&["append", "--skip-bad"], input.as_bytes()).succeeds();
    assert_eq!(run.text().lines().count(), 2);
    assert!(run.stderr.contains("line 2") && run.stderr.contains("1 damaged line skipped"));
    let filled = fixture.feed(&["append", "--stream=d", "--type=t"], b"{\"data\":1}\n").succeeds();
    assert_eq!(lines(&filled.text())[0]["stream"], json!("d"));
}

/// Regression: `append | head` exited with 0 in the middle of its input.
#[test]
fn append_with_closed_output_reports_unappended_lines() {
    let fixture = Fixture::new();
    let line = |number| format!("{{\"stream\":\"a\",\"type\":\"t\",\"data\":{number}}}\n");
    let input: String = (0..30_000).map(line).collect();
    let file = fixture.path("events");
    std::fs::write(&file, input).unwrap();
    let mut command = fixture.command();
    command.arg("append").arg("--db").arg(fixture.store()).arg(&file);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(4), "{message}");
    let (_, rest) = message.split_once("line ").unwrap();
    let (last, why) = rest.split_once(": ").unwrap();
    assert!(why.contains("standard output was closed"), "{message}");
    let read = fixture.run(&["read", "--stream=a"]).succeeds().text();
    assert_eq!(lines(&read).len(), last.parse::<usize>().unwrap());
}

/// Story: the error of a full standard output named no line, although lines were appended. A
/// repetition appended them twice.
#[test]
fn append_with_full_output_reports_appended_lines() {
    let line = |number| format!("{{\"stream\":\"a\",\"type\":\"t\",\"data\":{number}}}\n");
    // The acknowledgements of 30,000 lines are longer than the buffer of the output.
    for (count, is_cut) in [(1, false), (30_000, true)] {
        let Some(full) = full_device() else { return };
        let fixture = Fixture::new();
        let file = fixture.path("events");
        std::fs::write(&file, (0..count).map(line).collect::<String>()).unwrap();
        let mut command = fixture.command();
        command.arg("append").arg("--db").arg(fixture.store()).arg(&file).stdout(full);
        let why = "could not write to standard output: No space";
        let run = Run::of(&mut command).fails(4, &[why, "were appended"]);
        let appended = match is_cut {
            false => {
                assert!(run.stderr.starts_with("umbel: the lines of "), "{run:?}");
                count
            }
            true => {
                let (_, rest) = run.stderr.split_once(", line ").unwrap();
                rest.split_once(": ").unwrap().0.parse().unwrap()
            }
        };
        let read = fixture.run(&["read", "--stream=a"]).succeeds().text();
        assert_eq!(lines(&read).len(), appended, "{run:?}");
        assert_eq!(appended < count, is_cut, "{run:?}");
    }
}

#[test]
fn foreign_directories_are_rejected_by_kind() {
    let words = Fixture::with(&[("a", "1")]);
    words.feed(&["append"], FIRST.as_bytes()).fails(2, &["holds a key-value store"]);
    words.run(&["read", "--all"]).fails(2, &["holds a key-value store"]);
    words.run(&["backup", "--to", "b"]).fails(2, &["holds a key-value store"]);
    let events = Fixture::new();
    events.run(&["streams"]).fails(2, &["there is no event store", "umbel append"]);
    events.feed(&["append"], FIRST.as_bytes()).succeeds();
    events.run(&["get", "a"]).fails(2, &["holds an event store", "umbel read"]);
    events.run(&["put", "a", "1"]).fails(2, &["holds an event store"]);
    events.run(&["read"]).fails(2, &["--stream"]);
    events.run(&["delete"]).fails(2, &["KEY"]);
}

#[test]
fn filtered_events_are_omitted_in_both_directions() {
    let fixture = Fixture::new();
    fixture.feed(&["append"], format!("{FIRST}\n{SECOND}\n").as_bytes()).succeeds();
    let read = |flags: &[&str]| {
        let read = fixture.run(&[&["read", "--all"], flags].concat()).succeeds().text();
        lines(&read).into_iter().map(|line| line["type"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(read(&["--type-prefix=Op"]), ["Opened"]);
    assert_eq!(read(&["--type-regex=^(?!Op)", "--backwards"]), ["Added"]);
    assert_eq!(read(&["--stream-prefix=cart-", "--backwards"]), ["Added", "Opened"]);
    assert_eq!(read(&["--stream-regex=[0-9]$", "--count=1"]), ["Opened"]);
    assert_eq!(read(&["--stream-prefix=x", "--stream-prefix=y"]).len(), 0);
    let run = fixture.run(&["read", "--all", "--type-regex=(?<a-b>c)"]);
    run.fails(2, &["broken at character 1", "balancing"]);
    fixture.run(&["read", "--stream=cart-42", "--type-prefix=O"]).fails(2, &["--stream"]);
}

/// Regression: the error was about the expected revision, although none was given.
#[test]
fn delete_of_missing_stream_is_rejected() {
    let fixture = Fixture::new();
    fixture.feed(&["append"], FIRST.as_bytes()).succeeds();
    fixture.run(&["delete", "--stream", "never"]).fails(2, &["there is no stream 'never'"]);
}

/// Regression: a read of a store on a full or read-only disk failed with a write error. A store
/// that was not closed could not be read on such a disk at all.
#[test]
fn read_only_event_store_can_be_read() {
    let (fixture, other) = (Fixture::new(), Fixture::new());
    fixture.feed(&["append"], format!("{FIRST}\n").as_bytes()).succeeds();
    other.append_and_kill(FIRST);
    // A small disk, which only the commands in this script see.
    let script = r#"
        mount -t tmpfs -o size=16m tmpfs "$2" && cp -r "$3" "$2/store" || exit 99
        look() {
            "$1" read --all --db "$2/unclosed" && "$1" verify --db "$2/unclosed" &&
            "$1" read --all --db "$2/store" && "$1" read --stream '$ce-cart' --db "$2/store" &&
                "$1" streams --db "$2/store" && "$1" verify --db "$2/store"
        }
        # Holes take no disk space.
        cp -r --sparse=always "$4" "$2/unclosed" || exit 99
        head -c 33554432 /dev/zero > "$2/fill" 2> /dev/null
        look "$@" && mount -o remount,ro "$2" && look "$@"
    "#;
    let disk = fixture.path("disk");
    std::fs::create_dir(&disk).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-c", script, "sh"]);
    command.arg(env!("CARGO_BIN_EXE_umbel")).arg(disk).arg(fixture.store()).arg(other.store());
    // Some systems do not allow unprivileged mounts.
    let output = command.output().ok();
    let output = output.filter(|output| {
        output.status.code() != Some(99) && !output.stderr.starts_with(b"unshare:")
    });
    let Some(output) = output else {
        print_skipped("read on a full and a read-only disk", "no small disk can be mounted here");
        return;
    };
    let text = String::from_utf8(output.stdout).unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{message}");
    assert_eq!(text.matches("\"stream\":\"cart-42\",\"type\":\"Opened\"").count(), 4, "{text}");
    assert_eq!(text.matches("\"stream\":\"$ce-cart\"").count(), 2, "{text}");
    assert_eq!(text.matches("is undamaged: 1 event,").count(), 4, "{text}");
}

/// Story: the check for an enclosing store looked only at the name of the parent directory, which a
/// relative path lacks.
#[test]
fn store_inside_another_store_is_rejected() {
    let fixture = Fixture::new();
    fixture.feed(&["append"], b"").succeeds();
    let log = fixture.store().join("log");
    std::fs::remove_dir_all(&log).unwrap();
    std::fs::create_dir(&log).unwrap();
    for directory in [".", "a/b"] {
        let mut command = fixture.command();
        command.current_dir(&log).args(["append", "--db", directory]);
        let output = command.output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(
            output.status.code() == Some(2) && message.contains("can hold no other directories"),
            "{message}"
        );
    }
    assert_eq!(std::fs::read_dir(&log).unwrap().count(), 0);
}
