//! `umbel backup`, `umbel restore` and `umbel verify` of a backup, as a person or a script uses
//! them.

use serde_json::json;

use super::harness::{Ground, Run};

fn events(numbers: std::ops::Range<u64>) -> Vec<u8> {
    let line = |number: u64| {
        let stream = number % 3;
        format!("{{\"stream\":\"s-{stream}\",\"type\":\"Counted\",\"data\":{{\"n\": {number}}}}}\n")
    };
    numbers.map(line).collect::<String>().into_bytes()
}

fn restore(ground: &Ground, backup: &str, target: &str) -> Run {
    let (backup, target) = (ground.path(backup), ground.path(target));
    let (backup, target) = (backup.to_str().unwrap(), target.to_str().unwrap());
    ground.bare(&["restore", "--from", backup, "--db", target])
}

fn read_all(ground: &Ground, store: &str) -> String {
    let store = ground.path(store);
    ground.bare(&["--db", store.to_str().unwrap(), "read", "--all"]).succeeds().text()
}

#[test]
fn a_store_is_backed_up_again_verified_and_restored_event_by_event() {
    let ground = Ground::new();
    ground.feed(&["append"], &events(0..500)).succeeds();
    let backup = ground.path("backup");
    let backup = backup.to_str().unwrap();
    let said = ground.run(&["backup", "--to", backup]).succeeds().text();
    assert!(said.contains("everything up to position") && said.contains("in 1 file"), "{said}");
    ground.feed(&["append", "--sync"], &events(500..510)).succeeds();
    let next = ground.run(&["backup", "--to", backup, "--throttle=1GiB", "--json"]).succeeds();
    let next = next.json();
    assert_eq!(next["backups"], json!(2));
    assert!(next["copied_bytes"].as_u64() < Some(4000), "{next}");
    assert!(next["bytes"].as_u64() > Some(50_000), "{next}");
    let again = ground.run(&["backup", "--to", backup, "--json"]).succeeds().json();
    assert_eq!(again["copied_bytes"], json!(0));
    let verify = ["--db", backup, "verify"];
    let whole = ground.bare(&verify).succeeds().text();
    assert!(whole.contains("the backup in") && whole.contains("is whole"), "{whole}");
    let said = restore(&ground, "backup", "restored").succeeds().text();
    assert!(said.contains("restored") && said.contains("everything up to position"), "{said}");
    assert_eq!(read_all(&ground, "restored"), read_all(&ground, "store"));
    let restored = ground.path("restored");
    let restored = restored.to_str().unwrap();
    let whole = ground.bare(&["--db", restored, "verify"]).succeeds().text();
    assert!(whole.contains("510 events"), "{whole}");
    restore(&ground, "backup", "restored").fails(2, &["holds an event store already"]);
    let listed = ground.bare(&["--db", restored, "streams"]).succeeds().text();
    assert_eq!(listed, "s-0\t0 to 169\ns-1\t0 to 169\ns-2\t0 to 169\n");
}

#[test]
fn what_is_no_backup_and_what_is_damaged_is_refused_with_a_sentence() {
    let ground = Ground::new();
    let backup = ground.path("backup");
    let backup = backup.to_str().unwrap();
    ground.run(&["backup", "--to", backup]).fails(2, &["there is no event store"]);
    ground.run(&["backup"]).fails(2, &["--to"]);
    ground.feed(&["append"], &events(0..100)).succeeds();
    let store = ground.store();
    let store = store.to_str().unwrap();
    ground.run(&["backup", "--to", store]).fails(2, &["the folder of the store itself"]);
    ground.run(&["backup", "--to", backup, "--throttle=0"]).fails(2, &["--throttle"]);
    restore(&ground, "store", "new").fails(2, &["there is no backup in", "an event store"]);
    ground.run(&["backup", "--to", backup]).succeeds();
    ground.bare(&["--db", backup, "append", "-"]).fails(2, &["holds a backup"]);
    ground.bare(&["--db", backup, "read", "--all"]).fails(2, &["there is no event store"]);
    let chunk = ground.path("backup/log/00000001.chunk");
    let mut bytes = std::fs::read(&chunk).unwrap();
    bytes[700] ^= 1;
    std::fs::write(&chunk, &bytes).unwrap();
    let verified = ground.bare(&["--db", backup, "verify"]);
    assert!(
        verified.text().contains("corruption in") && verified.text().contains("00000001.chunk")
    );
    verified.fails(3, &["the backup in", "damaged in 1 places"]);
    let refused = restore(&ground, "backup", "new");
    refused.fails(3, &["corruption in", "00000001.chunk"]);
    assert!(!ground.path("new").exists(), "nothing was written");
    std::fs::remove_file(&chunk).unwrap();
    restore(&ground, "backup", "new").fails(3, &["00000001.chunk", "is missing"]);
    // The next backup makes it whole again.
    ground.run(&["backup", "--to", backup]).succeeds();
    restore(&ground, "backup", "new").succeeds();
    assert_eq!(read_all(&ground, "new"), read_all(&ground, "store"));
}
