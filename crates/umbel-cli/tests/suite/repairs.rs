//! `umbel repair`.

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;

use serde_json::json;

use super::test_binary::{Fixture, file_of};

/// Lines for `umbel append`.
pub fn events(count: u64) -> Vec<u8> {
    let line = |number: u64| {
        let stream = number % 3;
        format!("{{\"stream\":\"s-{stream}\",\"type\":\"Counted\",\"data\":{{\"n\": {number}}}}}\n")
    };
    (0..count).map(line).collect::<String>().into_bytes()
}

/// Changes one byte of a file of the store.
pub fn corrupt_byte(fixture: &Fixture, name: &str, at: usize) {
    let path = fixture.store().join(name);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[at] ^= 4;
    std::fs::write(path, bytes).unwrap();
}

/// The first chunk of the event log. With 60 of [`events`], byte 1520 is one of an event.
pub const CHUNK: &str = "log/00000001.chunk";

#[test]
fn repair_saves_events_and_reports_losses() {
    let fixture = Fixture::new();
    fixture.feed(&["append"], &events(60)).succeeds();
    let message = fixture.run(&["repair"]).succeeds().text();
    assert!(message.contains("there is nothing to repair"), "{message}");
    corrupt_byte(&fixture, CHUNK, 1520);
    let remedy = ["is damaged in", "save the readable events with `umbel repair --db "];
    let damage = fixture.run(&["verify"]).fails(3, &remedy).text();
    assert!(damage.contains("00000001.chunk at byte 1504"), "{damage}");
    let dry = fixture.run(&["repair", "--dry-run"]).fails(3, &["would be lost"]).text();
    assert!(dry.contains("chunk 1") && dry.contains("nothing was changed"), "{dry}");
    assert!(!fixture.store().join("damaged-1").exists());
    let done = fixture.run(&["repair"]).fails(3, &["are lost", "a backup"]).text();
    let is_named =
        done.contains("stream 's-") && done.contains("revision") && done.contains(" is lost");
    assert!(is_named && done.contains("59 events saved"), "{done}");
    assert!(done.contains("the damaged files and this report are in damaged-1"), "{done}");
    let kept = std::fs::read_to_string(fixture.store().join("damaged-1/report.txt")).unwrap();
    assert!(done.starts_with(&kept) && !kept.contains('/') | kept.contains("log/"), "{kept}");
    let report = fixture.run(&["verify"]).succeeds().text();
    assert!(report.contains("is undamaged: 59 events"), "{report}");
    fixture.feed(&["append"], &events(3)).succeeds();
    let read = fixture.run(&["read", "--all"]).succeeds().text();
    assert_eq!(read.lines().count(), 62, "{read}");
    let again = fixture.run(&["repair", "--json"]).succeeds().json();
    assert_eq!((&again["whole"], &again["folder"]), (&json!(true), &json!(null)));
}

#[test]
fn missing_chunk_manifest_and_index_are_rebuilt() {
    let fixture = Fixture::new();
    fixture.feed(&["append"], &events(60)).succeeds();
    std::fs::remove_file(fixture.store().join("CHUNKS")).unwrap();
    let done = fixture.run(&["repair", "--json"]).succeeds().json();
    assert_eq!((&done["bytes_lost"], &done["folder"]), (&json!(0), &json!("damaged-1")));
    assert!(done["table"].is_string() && done["index"].is_string(), "{done}");
    let read = fixture.run(&["read", "--all"]).succeeds().text();
    assert_eq!(read.lines().count(), 60, "{read}");
}

#[test]
fn unrepairable_directory_is_rejected() {
    let fixture = Fixture::with(&[("key", "value")]);
    fixture.run(&["repair"]).fails(2, &["holds a key-value store", "checkpoint"]);
    let nothing = fixture.path("nothing");
    let nothing = nothing.to_str().unwrap();
    fixture.bare(&["repair", "--db", nothing]).fails(2, &["there is no event store"]);
    fixture.bare(&["repair"]).fails(2, &["--db"]);
    let other = Fixture::new();
    other.feed(&["append"], &events(3)).succeeds();
    let backup = other.path("backup");
    other.run(&["backup", "--to", backup.to_str().unwrap()]).succeeds();
    other.bare(&["repair", "--db", backup.to_str().unwrap()]).fails(2, &["backup"]);
}

/// Regression: a symbolic link in place of a chunk was reported as too many levels of links.
#[test]
fn non_regular_chunk_is_rejected_unchanged() {
    let fixture = Fixture::new();
    fixture.feed(&["append"], &events(60)).succeeds();
    let (chunk, away) = (fixture.store().join(CHUNK), fixture.store().join("log/away"));
    std::fs::rename(&chunk, &away).unwrap();
    std::os::unix::fs::symlink(&away, &chunk).unwrap();
    let message = ["00000001.chunk: it is a symbolic link", "nothing is lost"];
    fixture.run(&["repair"]).fails(4, &message);
    assert!(std::fs::symlink_metadata(&chunk).unwrap().is_symlink(), "the link is still one");
    std::fs::remove_file(&chunk).unwrap();
    std::fs::create_dir(&chunk).unwrap();
    fixture.run(&["repair"]).fails(4, &["00000001.chunk: it is not a regular file"]);
    std::fs::remove_dir(&chunk).unwrap();
    std::fs::rename(&away, &chunk).unwrap();
    let message = fixture.run(&["repair"]).succeeds().text();
    assert!(message.contains("there is nothing to repair"), "{message}");
}

/// A killed store with a damaged byte in the active chunk: `verify` does not open it, because the
/// open would drop the events after the damage.
#[test]
fn uncommitted_tail_is_reported_before_open() {
    let fixture = Fixture::new();
    let mut command = fixture.command();
    command.args(["append", "--db"]).arg(fixture.store());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(&events(60)).unwrap();
    input.flush().unwrap();
    let answers = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(answers.take(60).filter(Result::is_ok).count(), 60);
    child.kill().unwrap();
    child.wait().unwrap();
    corrupt_byte(&fixture, CHUNK, 1520);
    // If the log became durable meanwhile, a later record proves the damaged one.
    let message = fixture.run(&["verify"]).fails(3, &["00000001.chunk at byte "]);
    let has_reason =
        ["whole append", "was durable"].iter().any(|part| message.stderr.contains(part));
    assert!(has_reason && message.text().is_empty(), "{message:?}");
    fixture.run(&["repair", "--dry-run"]).fails(3, &["would be lost"]);
    let done = fixture.run(&["repair", "--accept-unproven"]).fails(3, &["are lost"]).text();
    assert!(done.contains("59 events saved"), "{done}");
    let read = fixture.run(&["read", "--all"]).succeeds().text();
    assert_eq!(read.lines().count(), 59, "{read}");
}

/// Regression: for damage in the index or in the key-value store, the advice was `umbel repair`,
/// which repairs only events.
#[test]
fn damage_outside_event_log_is_reported_with_remedy() {
    let fixture = Fixture::new();
    fixture.feed(&["append"], &events(60)).succeeds();
    let before = fixture.run(&["read", "--all"]).succeeds().text();
    let index = fixture.store().join("index");
    let helps = "index away";
    for (number, extension) in ["CURRENT", "manifest", "table"].into_iter().enumerate() {
        let path = match extension {
            "CURRENT" => index.join(extension),
            extension => file_of(&index, extension),
        };
        let mut bytes = std::fs::read(&path).unwrap();
        // The first block of a table begins at byte 32.
        let at = if extension == "table" { 40 } else { bytes.len() / 2 };
        bytes[at] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        let run =
            fixture.run(&["verify"]).fails(3, &[helps, "rebuilds the index from the event log"]);
        assert!(!run.stderr.contains("umbel repair"), "{run:?}");
        // Story: a damaged block of the index was listed and counted twice.
        let text = run.text();
        let places: HashSet<&str> = text.lines().collect();
        assert_eq!(places.len(), text.lines().count(), "{text}");
        std::fs::rename(&index, fixture.path(&format!("index-{number}"))).unwrap();
        assert_eq!(fixture.run(&["read", "--all"]).succeeds().text(), before);
        fixture.run(&["verify"]).succeeds();
    }
    let serve = ["serve", "--insecure", "--listen", "127.0.0.1:0", "--kv"];
    let kv = fixture.store().join("kv");
    let directory = kv.to_str().unwrap();
    fixture.bare(&["--db", directory, "put", "ada", "1815"]).succeeds();
    std::fs::write(kv.join("CURRENT"), "of something else").unwrap();
    let run = fixture.run(&serve).fails(3, &["store/kv from a checkpoint"]);
    assert!(!run.stderr.contains("umbel repair"), "{run:?}");
    let run = fixture.bare(&["--db", directory, "get", "ada"]).fails(3, &["from a checkpoint"]);
    assert!(!run.stderr.contains("umbel repair"), "{run:?}");
}
