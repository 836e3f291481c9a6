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
    ground.bare(&["--db", backup, "read", "--all"]).fails(2, &["holds a backup"]);
    ground.bare(&["--db", backup, "streams"]).fails(2, &["holds a backup"]);
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

/// The folder of the store was refused, and a link to it was not: the backup lay in the store.
#[test]
fn a_link_to_the_store_is_no_other_folder() {
    let ground = Ground::new();
    ground.feed(&["append"], &events(0..10)).succeeds();
    std::os::unix::fs::symlink(ground.store(), ground.path("link")).unwrap();
    for name in ["link", "link/log/backup", "link/new/backup"] {
        let target = ground.path(name);
        let target = target.to_str().unwrap();
        ground.run(&["backup", "--to", target]).fails(2, &["the folder of the store itself"]);
    }
    assert!(!ground.store().join("log/backup").exists());
    let beside = ground.path("store-backup");
    ground.run(&["backup", "--to", beside.to_str().unwrap()]).succeeds();
}

/// Without `CHUNKS` or `BACKUP` a folder was said to hold no store, or none of keys and values, by
/// everybody but `append` and `repair`.
#[test]
fn a_folder_that_lost_its_table_is_told_by_every_command() {
    let ground = Ground::new();
    ground.feed(&["append"], &events(0..10)).succeeds();
    let (backup, new) = (ground.path("backup"), ground.path("new"));
    let (backup, new) = (backup.to_str().unwrap(), new.to_str().unwrap());
    ground.run(&["backup", "--to", backup]).succeeds();
    std::fs::remove_file(ground.store().join("CHUNKS")).unwrap();
    let missing = ["CHUNKS", "the table of chunks is missing", "umbel repair"];
    ground.feed(&["append"], &events(0..1)).fails(3, &missing);
    let commands: [&[&str]; 5] =
        [&["read", "--all"], &["streams"], &["backup", "--to", new], &["verify"], &["scan"]];
    for command in commands {
        ground.run(command).fails(3, &missing);
    }
    let manifest = ground.path("backup/BACKUP");
    let mut bytes = std::fs::read(&manifest).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&manifest, bytes).unwrap();
    let verify = ["--db", backup, "verify"];
    ground.bare(&verify).fails(3, &["the manifest of the backup", "remove this file"]);
    std::fs::remove_file(&manifest).unwrap();
    ground.bare(&verify).fails(3, &["the file BACKUP"]);
    // Nothing tells whether the backup had more chunks, but what it has is there.
    ground.bare(&["--db", backup, "repair"]).fails(3, &["whether chunks are missing"]);
    assert_eq!(read_all(&ground, "backup").lines().count(), 10);
}

/// An interrupted restore was no event store, and nobody but `append` said what it was.
#[test]
fn an_interrupted_restore_is_told_by_every_command() {
    let ground = Ground::new();
    std::fs::create_dir(ground.store()).unwrap();
    std::fs::write(ground.store().join("RESTORING"), "x").unwrap();
    for command in [&["read", "--all"][..], &["streams"], &["verify"]] {
        ground.run(command).fails(2, &["is being restored from a backup"]);
    }
}
