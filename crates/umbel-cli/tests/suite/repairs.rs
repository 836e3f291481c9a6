//! `umbel repair`, as a person or a script uses it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;

use serde_json::json;

use super::harness::{Ground, file_of};

fn events(count: u64) -> Vec<u8> {
    let line = |number: u64| {
        let stream = number % 3;
        format!("{{\"stream\":\"s-{stream}\",\"type\":\"Counted\",\"data\":{{\"n\": {number}}}}}\n")
    };
    (0..count).map(line).collect::<String>().into_bytes()
}

/// Changes one byte of a file of the store.
fn harm(ground: &Ground, name: &str, at: usize) {
    let path = ground.store().join(name);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[at] ^= 4;
    std::fs::write(path, bytes).unwrap();
}

const CHUNK: &str = "log/00000001.chunk";

#[test]
fn a_damaged_store_is_repaired_and_what_is_lost_is_named() {
    let ground = Ground::new();
    ground.feed(&["append"], &events(60)).succeeds();
    let said = ground.run(&["repair"]).succeeds().text();
    assert!(said.contains("there is nothing to repair"), "{said}");
    harm(&ground, CHUNK, 1520);
    let damage = ground.run(&["verify"]).fails(3, &["is damaged in"]).text();
    assert!(damage.contains("00000001.chunk at byte 1504"), "{damage}");
    let dry = ground.run(&["repair", "--dry-run"]).fails(3, &["would be lost"]).text();
    assert!(dry.contains("chunk 1") && dry.contains("nothing was changed"), "{dry}");
    assert!(!ground.store().join("damaged-1").exists());
    let done = ground.run(&["repair"]).fails(3, &["are lost", "a backup"]).text();
    let is_named =
        done.contains("stream 's-") && done.contains("revision") && done.contains(" is lost");
    assert!(is_named && done.contains("59 events saved"), "{done}");
    assert!(done.contains("what was damaged is in damaged-1"), "{done}");
    let kept = std::fs::read_to_string(ground.store().join("damaged-1/report.txt")).unwrap();
    assert!(done.starts_with(&kept) && !kept.contains('/') | kept.contains("log/"), "{kept}");
    let whole = ground.run(&["verify"]).succeeds().text();
    assert!(whole.contains("is whole: 59 events"), "{whole}");
    ground.feed(&["append"], &events(3)).succeeds();
    let read = ground.run(&["read", "--all"]).succeeds().text();
    assert_eq!(read.lines().count(), 62, "{read}");
    let again = ground.run(&["repair", "--json"]).succeeds().json();
    assert_eq!((&again["whole"], &again["folder"]), (&json!(true), &json!(null)));
}

#[test]
fn a_table_and_an_index_are_made_anew_without_a_loss() {
    let ground = Ground::new();
    ground.feed(&["append"], &events(60)).succeeds();
    std::fs::remove_file(ground.store().join("CHUNKS")).unwrap();
    let done = ground.run(&["repair", "--json"]).succeeds().json();
    assert_eq!((&done["bytes_lost"], &done["folder"]), (&json!(0), &json!("damaged-1")));
    assert!(done["table"].is_string() && done["index"].is_string(), "{done}");
    let read = ground.run(&["read", "--all"]).succeeds().text();
    assert_eq!(read.lines().count(), 60, "{read}");
}

#[test]
fn what_cannot_be_repaired_is_refused_with_a_sentence() {
    let ground = Ground::with(&[("key", "value")]);
    ground.run(&["repair"]).fails(2, &["holds a key-value store", "checkpoint"]);
    let nothing = ground.path("nothing");
    let nothing = nothing.to_str().unwrap();
    ground.bare(&["repair", "--db", nothing]).fails(2, &["there is no event store"]);
    ground.bare(&["repair"]).fails(2, &["--db"]);
    let other = Ground::new();
    other.feed(&["append"], &events(3)).succeeds();
    let backup = other.path("backup");
    other.run(&["backup", "--to", backup.to_str().unwrap()]).succeeds();
    other.bare(&["repair", "--db", backup.to_str().unwrap()]).fails(2, &["backup"]);
}

/// A link where a chunk should be was refused as too many levels of links.
#[test]
fn what_is_no_file_is_named_and_not_touched() {
    let ground = Ground::new();
    ground.feed(&["append"], &events(60)).succeeds();
    let (chunk, away) = (ground.store().join(CHUNK), ground.store().join("log/away"));
    std::fs::rename(&chunk, &away).unwrap();
    std::os::unix::fs::symlink(&away, &chunk).unwrap();
    let said = ["00000001.chunk: it is a symbolic link", "nothing is lost"];
    ground.run(&["repair"]).fails(4, &said);
    assert!(std::fs::symlink_metadata(&chunk).unwrap().is_symlink(), "the link is still one");
    std::fs::remove_file(&chunk).unwrap();
    std::fs::create_dir(&chunk).unwrap();
    ground.run(&["repair"]).fails(4, &["00000001.chunk: it is not a regular file"]);
    std::fs::remove_dir(&chunk).unwrap();
    std::fs::rename(&away, &chunk).unwrap();
    let said = ground.run(&["repair"]).succeeds().text();
    assert!(said.contains("there is nothing to repair"), "{said}");
}

/// A store that was killed, with a bad byte in the chunk that was written: `verify` does not open
/// it, which would leave out what stands behind.
#[test]
fn what_opening_would_leave_out_is_said_before() {
    let ground = Ground::new();
    let mut command = ground.command();
    command.args(["append", "--db"]).arg(ground.store());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(&events(60)).unwrap();
    input.flush().unwrap();
    let answers = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(answers.take(60).filter(Result::is_ok).count(), 60);
    child.kill().unwrap();
    child.wait().unwrap();
    harm(&ground, CHUNK, 1520);
    // If its log was made durable meanwhile, a later record vouches for what is damaged.
    let said = ground.run(&["verify"]).fails(3, &["00000001.chunk at byte "]);
    let is_told = ["whole append", "was durable"].iter().any(|part| said.stderr.contains(part));
    assert!(is_told && said.text().is_empty(), "{said:?}");
    ground.run(&["repair", "--dry-run"]).fails(3, &["would be lost"]);
    let done = ground.run(&["repair", "--accept-unproven"]).fails(3, &["are lost"]).text();
    assert!(done.contains("59 events saved"), "{done}");
    let read = ground.run(&["read", "--all"]).succeeds().text();
    assert_eq!(read.lines().count(), 59, "{read}");
}

/// Story: whoever had damage in the index, or in the keys and values beside the events, was sent to
/// `umbel repair`, which is about events.
#[test]
fn damage_where_there_are_no_events_is_told_with_what_helps() {
    let ground = Ground::new();
    ground.feed(&["append"], &events(60)).succeeds();
    let before = ground.run(&["read", "--all"]).succeeds().text();
    let index = ground.store().join("index");
    let helps = "index away";
    for (number, extension) in ["CURRENT", "manifest", "table"].into_iter().enumerate() {
        let path = match extension {
            "CURRENT" => index.join(extension),
            extension => file_of(&index, extension),
        };
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        let run = ground.run(&["verify"]).fails(3, &[helps, "rebuilt from the event log"]);
        assert!(!run.stderr.contains("umbel repair"), "{run:?}");
        std::fs::rename(&index, ground.path(&format!("index-{number}"))).unwrap();
        assert_eq!(ground.run(&["read", "--all"]).succeeds().text(), before);
        ground.run(&["verify"]).succeeds();
    }
    let serve = ["serve", "--insecure", "--listen", "127.0.0.1:0", "--kv"];
    let kv = ground.store().join("kv");
    let folder = kv.to_str().unwrap();
    ground.bare(&["--db", folder, "put", "ada", "1815"]).succeeds();
    std::fs::write(kv.join("CURRENT"), "of something else").unwrap();
    let run = ground.run(&serve).fails(3, &["store/kv from a checkpoint"]);
    assert!(!run.stderr.contains("umbel repair"), "{run:?}");
    let run = ground.bare(&["--db", folder, "get", "ada"]).fails(3, &["from a checkpoint"]);
    assert!(!run.stderr.contains("umbel repair"), "{run:?}");
}
