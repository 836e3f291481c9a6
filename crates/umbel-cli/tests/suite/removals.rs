//! `scavenge --now` and `redact`: afterwards no file of the store has the removed data.

use std::io::Read;
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};

use super::test_binary::Fixture;

/// Text in the events to remove.
const MARKER: &str = "Qx7vLw2pRz9kTm4s";

/// Names of the files in this directory that have this text.
pub fn marked_files(directory: &Path, marker: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
        if entry.path().is_dir() {
            found.extend(marked_files(&entry.path(), marker));
            continue;
        }
        let bytes = std::fs::read(entry.path()).unwrap();
        if bytes.windows(marker.len()).any(|part| part == marker.as_bytes()) {
            found.push(entry.path().display().to_string());
        }
    }
    found
}

fn is_marked(fixture: &Fixture) -> bool {
    !marked_files(&fixture.store(), MARKER).is_empty()
}

/// Creates a store with two marked events, and with more data than a pipe holds.
fn with_marked_events() -> Fixture {
    let fixture = Fixture::new();
    let event = |stream: &str, text: &str| json!({"stream": stream, "type": "t", "data": text});
    let pad = "x".repeat(10_000);
    let mut lines: Vec<Value> = (0..40).map(|_| event("kept", &pad)).collect();
    lines.insert(7, event("gone", MARKER));
    lines.insert(30, event("a@b", MARKER));
    let input: String = lines.iter().map(|line| format!("{line}\n")).collect();
    fixture.feed(&["append"], input.as_bytes()).succeeds();
    fixture
}

#[test]
fn scavenge_now_removes_the_newest_events() {
    let fixture = with_marked_events();
    let backup = fixture.path("backup");
    let back_up = || fixture.run(&["backup", "--to", backup.to_str().unwrap()]).succeeds();
    back_up();
    assert_ne!(marked_files(&backup, MARKER), Vec::<String>::new());
    fixture.run(&["redact", "a@b@0"]).succeeds();
    fixture.run(&["delete", "--stream", "gone"]).succeeds();
    let text = fixture.run(&["scavenge", "--now"]).succeeds().text();
    for part in [
        "0 hidden events with data",
        "no file of the store has the removed data any more",
        "backups, checkpoints and other copies made earlier still have the removed data",
    ] {
        assert!(text.contains(part), "{text}");
    }
    assert!(!is_marked(&fixture));
    let report = fixture.run(&["scavenge", "--now", "--json"]).succeeds().json();
    assert_eq!(report["hidden_events_left"], json!(0));
    assert_eq!(
        (&report["files_kept"], &report["files_with_other_names"]),
        (&json!([]), &json!([]))
    );
    assert!(report["other_copies"].as_str().unwrap().contains("backups"), "{report}");
    let plain = fixture.run(&["scavenge", "--json"]).succeeds().json();
    assert_eq!((plain.get("hidden_events_left"), plain.get("files_kept")), (None, None));
    // A later backup into the same directory replaces the files of the earlier one.
    back_up();
    assert_eq!(marked_files(&backup, MARKER), Vec::<String>::new());
    fixture.run(&["verify"]).succeeds();
    assert_eq!(fixture.run(&["read", "--stream", "kept"]).succeeds().text().lines().count(), 40);
}

#[test]
fn redact_removes_data_and_writes_an_audit_event() {
    let fixture = with_marked_events();
    let redact = ["redact", "gone@0", "a@b@0", "--reason", "request 17"];
    let text = fixture.run(&redact).succeeds().text();
    assert!(text.contains("2 events lost data and metadata, 0 had none"), "{text}");
    assert!(text.contains("$redactions") && text.contains("backups, checkpoints"), "{text}");
    assert!(!is_marked(&fixture));
    let read = fixture.run(&["read", "--stream", "a@b"]).succeeds().json();
    assert_eq!((&read["revision"], &read["type"]), (&json!(0), &json!("t")));
    let audit = fixture.run(&["read", "--stream", "$redactions"]).succeeds().text();
    let audit: Vec<Value> = audit.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(audit.len(), 2);
    assert_eq!(
        (&audit[0]["data"]["stream"], &audit[1]["data"]["stream"]),
        (&json!("gone"), &json!("a@b"))
    );
    assert_eq!(audit[0]["data"]["reason"], json!("request 17"));
    let again = fixture.run(&[&redact[..], &["--json"]].concat()).succeeds().json();
    assert_eq!((&again["events_redacted"], &again["events_without_data"]), (&json!(0), &json!(2)));
    assert_eq!((&again["files_kept"], &again["files_with_other_names"]), (&json!([]), &json!([])));
    fixture.run(&["verify"]).succeeds();
}

#[test]
fn invalid_redactions_name_cause_and_remedy() {
    let fixture = with_marked_events();
    fixture.run(&["redact"]).fails(2, &["STREAM@REVISION"]);
    for (place, cause, remedy) in [
        ("gone", "has no @", "such as cart-42@7"),
        ("@0", "no stream name", "such as cart-42@7"),
        ("gone@x", "no revision after the last @", "reads of the stream show"),
        ("gone@-1", "no revision after the last @", "reads of the stream show"),
        ("gone@1", "no event with revision 1", "read the stream"),
        ("absent@0", "no event with revision 0", "read the stream"),
        ("$$gone@0", "system stream", "events of other streams"),
    ] {
        fixture.run(&["redact", "a@b@0", place]).fails(2, &[cause, remedy]);
    }
    let many: Vec<String> = (0..1001).map(|number| format!("gone@{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let refused = fixture.run(&[&["redact"], &many[..]].concat());
    refused.fails(2, &["1001 events are more than the 1000", "use several redactions"]);
    let long = "x".repeat(4097);
    fixture.run(&["redact", "gone@0", "--reason", &long]).fails(2, &["4097 bytes", "shorten it"]);
    Fixture::new().run(&["redact", "a@0"]).fails(2, &["there is no event store"]);
    assert_eq!(marked_files(&fixture.store(), MARKER).len(), 1);
    fixture.run(&["read", "--stream", "$redactions"]).fails(1, &["there is no stream"]);
}

/// Story: a second removal named no file, although a reader kept a replaced file of the first.
#[test]
fn replaced_file_of_a_reader_is_reported_until_the_reader_ends() {
    let fixture = with_marked_events();
    let mut command = fixture.command();
    command.arg("--db").arg(fixture.store()).args(["read", "--all"]).stdout(Stdio::piped());
    let mut reader = command.spawn().unwrap();
    // The reader waits in the middle of its output.
    reader.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let message = ["with removed data", "readers in other processes", "end the readers"];
    for _ in 0..2 {
        let refused = fixture.run(&["redact", "gone@0", "a@b@0"]).fails(1, &message);
        assert!(refused.text().contains("a reader in another process keeps"), "{refused:?}");
        let refused = fixture.run(&["scavenge", "--now", "--json"]).fails(1, &message);
        assert_ne!(refused.json()["files_kept"], json!([]), "{refused:?}");
        assert!(is_marked(&fixture));
    }
    reader.kill().unwrap();
    reader.wait().unwrap();
    fixture.run(&["scavenge", "--now"]).succeeds();
    assert!(!is_marked(&fixture));
}

#[test]
fn hard_linked_copy_is_reported() {
    let fixture = with_marked_events();
    let log = std::fs::read_dir(fixture.store().join("log")).unwrap().map(Result::unwrap);
    std::fs::create_dir(fixture.path("copy")).unwrap();
    for file in log {
        std::fs::hard_link(file.path(), fixture.path("copy").join(file.file_name())).unwrap();
    }
    let text = fixture.run(&["redact", "gone@0", "a@b@0"]).succeeds().text();
    assert!(text.contains("a copy made of hard links still has"), "{text}");
    assert!(!is_marked(&fixture));
}
