//! `--wait`: a command waits while another process has the store open.

use std::io::Write;
use std::process::{Child, Stdio};

use super::test_binary::{Fixture, Run, wait_until};

/// A process that has the store open until its input ends.
fn holder(fixture: &Fixture, command: &str, file: &str) -> Child {
    let mut holder = fixture.command();
    holder.arg(command).arg("--db").arg(fixture.store());
    holder.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let holder = holder.spawn().unwrap();
    let made = fixture.store().join(file);
    wait_until("the first process has opened the store", || made.exists());
    holder
}

/// Story: a script started six `umbel put` at once, and five failed. On a new store, one
/// `umbel put` reported damage, since it read the directory while another process created the
/// store.
#[test]
fn six_puts_at_the_same_time_all_succeed() {
    let fixture = Fixture::new();
    let puts: Vec<Child> = (0..6)
        .map(|number| {
            let mut command = fixture.command();
            command.arg("--db").arg(fixture.store());
            command.args(["put", &format!("key-{number}"), "value", "--wait"]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    for put in puts {
        Run::from_output(put.wait_with_output().unwrap()).writes("");
    }
    let keys = fixture.run(&["scan", "--keys-only"]).succeeds().text();
    assert_eq!(keys.lines().count(), 6, "{keys}");
}

#[test]
fn six_appends_at_the_same_time_all_succeed() {
    let fixture = Fixture::new();
    let line = br#"{"stream":"cart","type":"Opened","data":1}"#;
    let appends: Vec<Child> = (0..6)
        .map(|_| {
            let mut command = fixture.command();
            command.arg("--db").arg(fixture.store()).args(["append", "--wait"]);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut append = command.spawn().unwrap();
            append.stdin.take().unwrap().write_all(line).unwrap();
            append
        })
        .collect();
    for append in appends {
        Run::from_output(append.wait_with_output().unwrap()).succeeds();
    }
    let read = fixture.run(&["read", "--stream", "cart"]).succeeds().text();
    assert_eq!(read.lines().count(), 6, "{read}");
}

#[test]
fn lock_timeout_reports_waited_seconds() {
    let fixture = Fixture::new();
    let mut holder_process = holder(&fixture, "import", "CURRENT");
    let commands: [&[&str]; 3] = [&["put", "a", "1"], &["delete", "a"], &["compact"]];
    for arguments in commands {
        let refused = fixture.run(&[arguments, &["--wait=1"]].concat());
        refused.fails(5, &["still in use by another process after 1 s", "--wait=SECONDS"]);
        let refused = fixture.run(arguments);
        refused.fails(5, &["in use by another process", "wait for it with --wait"]);
        fixture.run(&[arguments, &["--wait=0"]].concat()).fails(5, &["wait for it with --wait"]);
    }
    fixture.run(&["get", "a", "--wait=soon"]).fails(2, &["`soon` is not a whole number"]);
    drop(holder_process.stdin.take());
    assert!(holder_process.wait().unwrap().success());
}

/// Story: a restore from a directory that a backup used ended with exit code 2, as a wrong request.
#[test]
fn busy_backup_directory_has_the_exit_code_of_a_busy_store() {
    let fixture = Fixture::new();
    let line = br#"{"stream":"cart","type":"Opened","data":1}"#;
    fixture.feed(&["append"], line).succeeds();
    let (backup, restored) = (fixture.path("backup"), fixture.path("restored"));
    let (backup, restored) = (backup.to_str().unwrap(), restored.to_str().unwrap());
    fixture.run(&["backup", "--to", backup]).succeeds();
    let lock = fixture.path("backup/LOCK");
    let held = umbel_env::Env::system().files.lock(&lock).unwrap();
    let message = ["another process backs up to", "wait longer with --wait=SECONDS"];
    let restore = ["restore", "--from", backup, "--db", restored];
    fixture.bare(&restore).fails(5, &message);
    fixture.bare(&[&restore[..], &["--wait=1"]].concat()).fails(5, &message);
    fixture.run(&["backup", "--to", backup]).fails(5, &message);
    drop(held);
    fixture.bare(&restore).succeeds();
}

/// Commands that open an event store for writing wait for the lock. Regression: commands that only
/// read were rejected, too.
#[test]
fn every_command_waits_for_a_locked_event_store() {
    let fixture = Fixture::new();
    let mut holder_process = holder(&fixture, "append", "CHUNKS");
    let backup = fixture.path("backup");
    let commands: [&[&str]; 10] = [
        &["append"],
        &["import-events"],
        &["metadata", "--stream", "cart", "--max-count=3"],
        &["delete", "--stream", "cart"],
        &["scavenge"],
        &["scavenge", "--now"],
        &["redact", "cart@0"],
        &["backup", "--to", backup.to_str().unwrap()],
        &["repair"],
        &["serve", "--insecure", "--listen", "127.0.0.1:0"],
    ];
    wait_until("the index was made", || fixture.run(&["streams"]).code == 0);
    // Commands that only read do not wait.
    let reads: [&[&str]; 4] =
        [&["read", "--all"], &["streams"], &["verify"], &["metadata", "--stream", "cart"]];
    for arguments in reads {
        fixture.run(arguments).succeeds();
    }
    for arguments in commands {
        let refused = fixture.run(&[arguments, &["--wait=1"]].concat());
        assert_eq!(refused.code, 5, "{arguments:?}: {refused:?}");
        let message = "still in use by another process after 1 s";
        assert!(refused.stderr.contains(message), "{arguments:?}: {}", refused.stderr);
        let is_served =
            ["append", "delete", "scavenge", "redact", "backup"].contains(&arguments[0]);
        let names_server = refused.stderr.contains("if the process is a server");
        assert_eq!(names_server, is_served, "{arguments:?}: {}", refused.stderr);
    }
    let mut waiting = fixture.command();
    waiting.arg("--db").arg(fixture.store()).args(["backup", "--wait", "--to"]).arg(&backup);
    let waiting = waiting.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let line = br#"{"stream":"cart","type":"Opened","data":1}"#;
    holder_process.stdin.take().unwrap().write_all(line).unwrap();
    assert!(holder_process.wait().unwrap().success());
    Run::from_output(waiting.wait_with_output().unwrap()).succeeds();
    let streams = fixture.run(&["streams"]).succeeds().text();
    assert!(streams.contains("cart"), "{streams}");
}
