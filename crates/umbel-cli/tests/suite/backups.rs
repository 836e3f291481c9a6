//! `umbel backup`, `umbel restore`, and `umbel verify` of a backup.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use umbel_env::skipped_test::print_skipped;

use super::serve::Serving;
use super::test_binary::{Fixture, Run, wait_until};

fn events(numbers: std::ops::Range<u64>) -> Vec<u8> {
    let line = |number: u64| {
        let stream = number % 3;
        format!("{{\"stream\":\"s-{stream}\",\"type\":\"Counted\",\"data\":{{\"n\": {number}}}}}\n")
    };
    numbers.map(line).collect::<String>().into_bytes()
}

fn restore(fixture: &Fixture, backup: &str, target: &str) -> Run {
    let (backup, target) = (fixture.path(backup), fixture.path(target));
    let (backup, target) = (backup.to_str().unwrap(), target.to_str().unwrap());
    fixture.bare(&["restore", "--from", backup, "--db", target])
}

fn read_all(fixture: &Fixture, store: &str) -> String {
    let store = fixture.path(store);
    fixture.bare(&["--db", store.to_str().unwrap(), "read", "--all"]).succeeds().text()
}

#[test]
fn incremental_backup_verifies_and_restores_every_event() {
    let fixture = Fixture::new();
    fixture.feed(&["append"], &events(0..500)).succeeds();
    let backup = fixture.path("backup");
    let backup = backup.to_str().unwrap();
    let message = fixture.run(&["backup", "--to", backup]).succeeds().text();
    assert!(
        message.contains("all events up to position") && message.contains("in 1 file"),
        "{message}"
    );
    fixture.feed(&["append", "--sync"], &events(500..510)).succeeds();
    let next = fixture.run(&["backup", "--to", backup, "--throttle=1GiB", "--json"]).succeeds();
    let next = next.json();
    assert_eq!(next["backups"], json!(2));
    assert!(next["copied_bytes"].as_u64() < Some(4000), "{next}");
    assert!(next["bytes"].as_u64() > Some(50_000), "{next}");
    let again = fixture.run(&["backup", "--to", backup, "--json"]).succeeds().json();
    assert_eq!(again["copied_bytes"], json!(0));
    let verify = ["--db", backup, "verify"];
    let report = fixture.bare(&verify).succeeds().text();
    assert!(report.contains("the backup in") && report.contains("is undamaged"), "{report}");
    let message = restore(&fixture, "backup", "restored").succeeds().text();
    assert!(
        message.contains("restored") && message.contains("all events up to position"),
        "{message}"
    );
    assert_eq!(read_all(&fixture, "restored"), read_all(&fixture, "store"));
    let restored = fixture.path("restored");
    let restored = restored.to_str().unwrap();
    let report = fixture.bare(&["--db", restored, "verify"]).succeeds().text();
    assert!(report.contains("510 events"), "{report}");
    restore(&fixture, "backup", "restored").fails(2, &["holds an event store already"]);
    let listed = fixture.bare(&["--db", restored, "streams"]).succeeds().text();
    assert_eq!(listed, "s-0\t0 to 169\ns-1\t0 to 169\ns-2\t0 to 169\n");
}

#[test]
fn missing_and_damaged_backups_are_rejected() {
    let fixture = Fixture::new();
    let backup = fixture.path("backup");
    let backup = backup.to_str().unwrap();
    fixture.run(&["backup", "--to", backup]).fails(2, &["there is no event store"]);
    fixture.run(&["backup"]).fails(2, &["--to"]);
    fixture.feed(&["append"], &events(0..100)).succeeds();
    let store = fixture.store();
    let store = store.to_str().unwrap();
    fixture.run(&["backup", "--to", store]).fails(2, &["the directory of the store itself"]);
    fixture.run(&["backup", "--to", backup, "--throttle=0"]).fails(2, &["--throttle"]);
    restore(&fixture, "store", "new").fails(2, &["there is no backup in", "an event store"]);
    fixture.run(&["backup", "--to", backup]).succeeds();
    fixture.bare(&["--db", backup, "append", "-"]).fails(2, &["holds a backup"]);
    fixture.bare(&["--db", backup, "read", "--all"]).fails(2, &["holds a backup"]);
    fixture.bare(&["--db", backup, "streams"]).fails(2, &["holds a backup"]);
    let chunk = fixture.path("backup/log/00000001.chunk");
    let mut bytes = std::fs::read(&chunk).unwrap();
    bytes[700] ^= 1;
    std::fs::write(&chunk, &bytes).unwrap();
    let verified = fixture.bare(&["--db", backup, "verify"]);
    assert!(
        verified.text().contains("corruption in") && verified.text().contains("00000001.chunk")
    );
    verified.fails(3, &["the backup in", "damaged in 1 place"]);
    let refused = restore(&fixture, "backup", "new");
    refused.fails(3, &["corruption in", "00000001.chunk"]);
    assert!(!fixture.path("new").exists(), "nothing was written");
    std::fs::remove_file(&chunk).unwrap();
    restore(&fixture, "backup", "new").fails(3, &["00000001.chunk", "is missing"]);
    // The next backup makes it whole again.
    fixture.run(&["backup", "--to", backup]).succeeds();
    restore(&fixture, "backup", "new").succeeds();
    assert_eq!(read_all(&fixture, "new"), read_all(&fixture, "store"));
}

/// Story: errors about the disk of a backup gave advice about the store, or none.
#[test]
fn full_and_read_only_backup_disks_are_reported_with_a_remedy() {
    let fixture = Fixture::new();
    fixture.feed(&["append"], &events(0..3000)).succeeds();
    let disk = fixture.path("disk");
    std::fs::create_dir(&disk).unwrap();
    // A small disk, which only the commands in this script see.
    let script = r#"
        mount -t tmpfs -o size=64k tmpfs "$2" && mkdir "$2/objects" || exit 99
        "$1" backup --db "$3" --to "$2/backup"; echo $?
        mount -o remount,ro "$2" || exit 99
        "$1" backup --db "$3" --to "$2/other"; echo $?
        "$1" backup --db "$3" --to "file://$2/objects"; echo $?
    "#;
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-c", script, "sh"]);
    command.arg(env!("CARGO_BIN_EXE_umbel")).arg(&disk).arg(fixture.store());
    // Some systems do not allow unprivileged mounts.
    let output = command.output().ok();
    let output = output.filter(|output| {
        output.status.code() != Some(99) && !output.stderr.starts_with(b"unshare:")
    });
    let Some(output) = output else {
        print_skipped("backup on a full and a read-only disk", "no small disk can be mounted here");
        return;
    };
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "4\n4\n2\n", "{message}");
    let place = "this file is in the backup, not in the store";
    let remedies = [
        format!("{place}: free space on that disk, then run the backup again"),
        format!("{place}: mount its file system for writing, then run the backup again"),
        "in this object store, mount its file system for writing".to_string(),
    ];
    let lines: Vec<&str> = message.lines().collect();
    assert_eq!(lines.len(), remedies.len(), "{message}");
    for (line, remedy) in lines.iter().zip(&remedies) {
        assert!(line.contains(remedy.as_str()), "{line}");
        assert!(!line.contains("nothing acknowledged"), "{line}");
    }
}

/// Regression: a backup through a symbolic link to the store was written into the store.
#[test]
fn backup_through_symlink_into_store_is_rejected() {
    let fixture = Fixture::new();
    fixture.feed(&["append"], &events(0..10)).succeeds();
    std::os::unix::fs::symlink(fixture.store(), fixture.path("link")).unwrap();
    for name in ["link", "link/log/backup", "link/new/backup"] {
        let target = fixture.path(name);
        let target = target.to_str().unwrap();
        fixture.run(&["backup", "--to", target]).fails(2, &["the directory of the store itself"]);
    }
    assert!(!fixture.store().join("log/backup").exists());
    let beside = fixture.path("store-backup");
    fixture.run(&["backup", "--to", beside.to_str().unwrap()]).succeeds();
}

/// Regression: without `CHUNKS` or `BACKUP`, every command except `append` and `repair` reported
/// that the directory holds no store, or no key-value store.
#[test]
fn missing_chunk_manifest_is_reported_by_every_command() {
    let fixture = Fixture::new();
    fixture.feed(&["append"], &events(0..10)).succeeds();
    let (backup, new) = (fixture.path("backup"), fixture.path("new"));
    let (backup, new) = (backup.to_str().unwrap(), new.to_str().unwrap());
    fixture.run(&["backup", "--to", backup]).succeeds();
    std::fs::remove_file(fixture.store().join("CHUNKS")).unwrap();
    let missing = ["CHUNKS", "the chunk manifest is missing", "umbel repair --db "];
    fixture.feed(&["append"], &events(0..1)).fails(3, &missing);
    let commands: [&[&str]; 5] =
        [&["read", "--all"], &["streams"], &["backup", "--to", new], &["verify"], &["scan"]];
    for command in commands {
        fixture.run(command).fails(3, &missing);
    }
    let manifest = fixture.path("backup/BACKUP");
    let mut bytes = std::fs::read(&manifest).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&manifest, bytes).unwrap();
    let verify = ["--db", backup, "verify"];
    fixture.bare(&verify).fails(3, &["the manifest of the backup", "remove this file"]);
    std::fs::remove_file(&manifest).unwrap();
    fixture.bare(&verify).fails(3, &["the file BACKUP"]);
    // It is unknown whether the backup had more chunks; its events are there.
    fixture.bare(&["--db", backup, "repair"]).fails(3, &["whether chunks are missing"]);
    assert_eq!(read_all(&fixture, "backup").lines().count(), 10);
}

/// Regression: only `append` recognized an interrupted restore.
#[test]
fn interrupted_restore_is_reported_by_every_command() {
    let fixture = Fixture::new();
    std::fs::create_dir(fixture.store()).unwrap();
    std::fs::write(fixture.store().join("RESTORING"), "x").unwrap();
    for command in [&["read", "--all"][..], &["streams"], &["verify"]] {
        fixture.run(command).fails(2, &["the restore of a backup into"]);
    }
}

#[test]
fn running_server_scavenges_at_times_of_a_schedule() {
    let fixture = Fixture::new();
    fixture
        .run(&["serve", "--insecure", "--scavenge-schedule", "0 0 30 2 *"])
        .fails(2, &["scavenge-schedule", "choose a day that the month has"]);
    let serving = Serving::start(&fixture, &["--scavenge-schedule", "0 3 * * *"]);
    let connect = serving.address().to_string();
    let scavenge = |args: &[&str]| {
        let args = [&["scavenge", "--connect", &connect], args].concat();
        fixture.bare(&args)
    };
    let status = scavenge(&["--status"]).succeeds().text();
    for wanted in ["waiting for", "0 3 * * * (UTC)", "T03:00:00.000Z", "30 % dead", "25 % of"] {
        assert!(status.contains(wanted), "{wanted}: {status}");
    }
    let change = ["--schedule", "30 4 * * 0", "--threshold", "50", "--busy", "10", "--json"];
    let changed = scavenge(&change).succeeds().json();
    assert_eq!(
        (&changed["state"], &changed["schedule"]),
        (&json!("Waiting"), &json!("30 4 * * 0"))
    );
    assert_eq!(
        (&changed["thresholdPercent"], &changed["throttlePercent"]),
        (&50.into(), &10.into())
    );
    scavenge(&["--schedule", "daily"]).fails(2, &["schedule is", "five fields"]);
    assert!(scavenge(&["--pause"]).succeeds().text().contains("state      paused"));
    assert_eq!(scavenge(&["--resume", "--json"]).succeeds().json()["state"], "Waiting");
    let one = scavenge(&["--threshold", "10", "--busy", "100", "--json"]).succeeds().json();
    assert_eq!(one["chunks"], 0);
    assert!(scavenge(&["--history"]).succeeds().text().contains("Success"));
    scavenge(&["--schedule", "none"]).succeeds();
    assert_eq!(scavenge(&["--status", "--json"]).succeeds().json()["state"], "NotConfigured");
    scavenge(&["--pause", "--resume"]).fails(2, &["--resume"]);
    fixture.bare(&["scavenge", "--pause"]).fails(2, &["--connect"]);
    assert_eq!(serving.stop(Signal::INT).0, Some(0));
    // The option does not replace the schedule that a client has set.
    let serving = Serving::start(&fixture, &["--scavenge-schedule", "0 3 * * *"]);
    let connect = serving.address();
    let status = ["scavenge", "--connect", connect, "--status", "--json"];
    assert_eq!(fixture.bare(&status).succeeds().json()["state"], "NotConfigured");
    assert_eq!(serving.stop(Signal::INT).0, Some(0));
}

/// Waits until the last backup of a server is running and has copied bytes.
fn wait_for_running_backup(address: &str) {
    wait_until("the backup copies", || {
        let (_, body) = request(address, "GET", "/admin/backup/last");
        let last: Value = serde_json::from_str(&body).unwrap();
        last["backupResult"] == "InProgress" && last["bytes"].as_u64() > Some(0)
    });
}

/// Returns the status line and the body of the response to a request to the HTTP API, which refuses
/// unknown hosts.
fn request(address: &str, method: &str, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!("Host: {address}\r\nConnection: close");
    write!(stream, "{method} {path} HTTP/1.1\r\n{head}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    (head.lines().next().unwrap_or_default().to_string(), body.to_string())
}

/// Story: nothing stopped the backup of a server, and the end of the server left it running until
/// the process died.
#[test]
fn backup_at_a_server_is_stopped_by_a_caller_and_by_the_end_of_the_server() {
    let fixture = Fixture::new();
    let data = "x".repeat(1 << 20);
    let line = |number: u64| {
        format!("{{\"stream\":\"cart\",\"type\":\"Filled\",\"data\":[{number},\"{data}\"]}}\n")
    };
    let lines: String = (0..3).map(line).collect();
    fixture.feed(&["append"], lines.as_bytes()).succeeds();
    let target = fixture.path("copy");
    let target = target.to_str().unwrap();
    let serving = Serving::start(&fixture, &["--backup-dir", target]);
    let address = serving.address().to_string();
    // It pauses for 16 s after each block.
    let slow = ["backup", "--connect", &address, "--throttle", "64KiB"];
    let stopped = thread::scope(|scope| {
        let backup = scope.spawn(|| fixture.bare(&slow));
        wait_for_running_backup(&address);
        let (status, body) = request(&address, "DELETE", "/admin/backup/current");
        assert_eq!(status, "HTTP/1.1 200 OK", "{body}");
        backup.join().unwrap()
    });
    assert_eq!(stopped.code, 4, "{stopped:?}");
    let message = "umbel: the backup was stopped at the server";
    assert!(stopped.stderr.ends_with(&format!("{message}\n")), "{stopped:?}");
    let clock = umbel_env::Env::system().clock;
    let (ended, notes, took) = thread::scope(|scope| {
        let backup = scope.spawn(|| fixture.bare(&slow));
        wait_for_running_backup(&address);
        let began = clock.now();
        let (code, _, notes) = serving.stop(Signal::TERM);
        assert_eq!(code, Some(0), "{notes}");
        (backup.join().unwrap(), notes, clock.now().saturating_sub(began))
    });
    assert_eq!(ended.code, 4, "{ended:?}");
    assert!(took < Duration::from_secs(10), "{took:?}");
    let line = notes.lines().filter(|line| line.contains("backup ended")).nth(1);
    let line = line.unwrap_or_else(|| panic!("{notes}"));
    assert!(line.contains("WARN") && line.contains("outcome=\"Interrupted\""), "{line}");
    fixture.run(&["backup", "--to", target]).succeeds();
    fixture.bare(&["verify", "--db", target]).succeeds();
}

/// Regression: `umbel backup` and `umbel scavenge` could only work on a stopped server.
#[test]
fn running_server_backs_up_and_scavenges() {
    let fixture = Fixture::new();
    let event = r#"{"stream":"cart-1","type":"Opened","data":{"n":1}}"#;
    fixture.feed(&["append"], event.as_bytes()).succeeds();
    let target = fixture.path("copy");
    let passwords = [("UMBEL_ADMIN_PASSWORD", "first"), ("UMBEL_OPS_PASSWORD", "second")];
    let flags = ["--disable-tls", "--backup-dir", target.to_str().unwrap()];
    let serving = Serving::with(&fixture, &flags, &passwords);
    let connect = format!("kurrentdb://ops:second@{}?tls=false", serving.address());
    let offline = ["backup", "--to", target.to_str().unwrap()];
    fixture.run(&offline).fails(5, &["umbel backup --connect ADDRESS"]);
    let first = fixture.bare(&["backup", "--connect", &connect]).succeeds();
    let note = "its outcome: umbel backup --history --connect 'kurrentdb://ops@127.0.0.1:";
    assert!(first.stderr.contains(note), "{}", first.stderr);
    let text = first.text();
    assert!(text.starts_with("backed up to ") && text.contains("copy of the server"), "{text}");
    let throttled = ["backup", "--connect", &connect, "--throttle", "20MiB", "--json"];
    let again = fixture.bare(&throttled).succeeds().json();
    assert!(again["backups"] == 2 && again["bytes"].as_u64() > Some(0), "{again}");
    let run = fixture.bare(&["scavenge", "--connect", &connect, "--throttle", "5"]);
    let report = run.succeeds();
    let note = "runs on the server, also if this command ends; its outcome: umbel scavenge \
                --history --connect 'kurrentdb://ops@127.0.0.1:";
    assert!(report.stderr.contains(note), "{}", report.stderr);
    let report = report.text();
    assert!(report.starts_with("scavenged the event store in 127.0.0.1:"), "{report}");
    let all = ["scavenge", "--now", "--connect", &connect, "--json"];
    let all = fixture.bare(&all).succeeds().json();
    assert_eq!((&all["hidden_events_left"], &all["files_kept"]), (&0.into(), &json!([])));
    let history = fixture.bare(&["scavenge", "--history", "--connect", &connect]).succeeds().text();
    assert!(history.lines().count() == 2 && history.matches("by ops").count() == 2, "{history}");
    let backups = ["backup", "--history", "--connect", &connect];
    let history = fixture.bare(&backups).succeeds().text();
    assert!(history.lines().count() == 2 && history.matches("by ops").count() == 2, "{history}");
    assert!(history.lines().all(|line| line.contains("\tSuccess\t")), "{history}");
    let history = fixture.bare(&[&backups[..], &["--json"]].concat()).succeeds().text();
    let newest: Value = serde_json::from_str(history.lines().next().unwrap()).unwrap();
    assert_eq!((&newest["backupResult"], &newest["number"]), (&json!("Success"), &2.into()));
    for refused in [&["--throttle", "1MiB"][..], &["--to", "x"], &["--keep", "1d"]] {
        fixture.bare(&[&backups[..], refused].concat()).fails(2, &[refused[0]]);
    }
    fixture.bare(&["backup", "--history"]).fails(2, &["--connect"]);
    // Neither without permission, nor with an option that only the offline command has.
    let guessed = format!("kurrentdb://ops:guessed@{}?tls=false", serving.address());
    fixture.bare(&["backup", "--connect", &guessed]).fails(2, &["the server says"]);
    fixture.bare(&["scavenge", "--connect", &connect, "--from-start"]).fails(2, &["--from-start"]);
    fixture.bare(&["backup", "--connect", &connect, "--to", "x"]).fails(2, &["--to"]);
    let slow = ["backup", "--connect", &connect, "--throttle", "9kB"];
    fixture.bare(&slow).fails(2, &["bytesPerSecond is 9000", "at least 65536"]);
    assert_eq!(serving.stop(Signal::INT).0, Some(0));
    fixture.bare(&["verify", "--db", target.to_str().unwrap()]).succeeds();
    let serving = Serving::start(&fixture, &[]);
    let connect = serving.address();
    fixture.bare(&["backup", "--connect", connect]).fails(2, &["--backup-dir"]);
    assert_eq!(serving.stop(Signal::INT).0, Some(0));
}
