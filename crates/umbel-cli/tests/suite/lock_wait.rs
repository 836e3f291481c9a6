//! `--wait`: a command waits while another process has the store open.

use std::io::Write;
use std::process::{Child, Stdio};

use super::harness::{Ground, Run, wait_until};

/// A process that has the store open until its input ends.
fn holder(ground: &Ground, command: &str, file: &str) -> Child {
    let mut holder = ground.command();
    holder.arg(command).arg("--db").arg(ground.store());
    holder.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let holder = holder.spawn().unwrap();
    let made = ground.store().join(file);
    wait_until("the first process has opened the store", || made.exists());
    holder
}

/// Story: a script started six `umbel put` at once, and five were refused. On a new store one was
/// told of damage, as it looked at the folder while another one made the store.
#[test]
fn six_puts_at_the_same_time_all_succeed() {
    let ground = Ground::new();
    let puts: Vec<Child> = (0..6)
        .map(|number| {
            let mut command = ground.command();
            command.arg("--db").arg(ground.store());
            command.args(["put", &format!("key-{number}"), "value", "--wait"]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    for put in puts {
        Run::from_output(put.wait_with_output().unwrap()).writes("");
    }
    let keys = ground.run(&["scan", "--keys-only"]).succeeds().text();
    assert_eq!(keys.lines().count(), 6, "{keys}");
}

#[test]
fn six_appends_at_the_same_time_all_succeed() {
    let ground = Ground::new();
    let line = br#"{"stream":"cart","type":"Opened","data":1}"#;
    let appends: Vec<Child> = (0..6)
        .map(|_| {
            let mut command = ground.command();
            command.arg("--db").arg(ground.store()).args(["append", "--wait"]);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut append = command.spawn().unwrap();
            append.stdin.take().unwrap().write_all(line).unwrap();
            append
        })
        .collect();
    for append in appends {
        Run::from_output(append.wait_with_output().unwrap()).succeeds();
    }
    let read = ground.run(&["read", "--stream", "cart"]).succeeds().text();
    assert_eq!(read.lines().count(), 6, "{read}");
}

#[test]
fn one_that_waited_in_vain_says_how_long() {
    let ground = Ground::new();
    let mut holding = holder(&ground, "import", "CURRENT");
    let commands: [&[&str]; 3] = [&["put", "a", "1"], &["delete", "a"], &["compact"]];
    for arguments in commands {
        let refused = ground.run(&[arguments, &["--wait=1"]].concat());
        refused.fails(5, &["still in use by another process after 1 s", "--wait=SECONDS"]);
        let refused = ground.run(arguments);
        refused.fails(5, &["in use by another process", "wait for it with --wait"]);
        ground.run(&[arguments, &["--wait=0"]].concat()).fails(5, &["wait for it with --wait"]);
    }
    ground.run(&["get", "a", "--wait=soon"]).fails(2, &["`soon` is not a whole number"]);
    drop(holding.stdin.take());
    assert!(holding.wait().unwrap().success());
}

/// Every command that opens an event store for writing waits for it. Those that only read were
/// refused, too.
#[test]
fn a_held_event_store_is_waited_for_by_every_command() {
    let ground = Ground::new();
    let mut holding = holder(&ground, "append", "CHUNKS");
    let backup = ground.path("backup");
    let commands: [&[&str]; 8] = [
        &["append"],
        &["import-events"],
        &["metadata", "--stream", "cart", "--max-count=3"],
        &["delete", "--stream", "cart"],
        &["scavenge"],
        &["backup", "--to", backup.to_str().unwrap()],
        &["repair"],
        &["serve", "--insecure", "--listen", "127.0.0.1:0"],
    ];
    wait_until("the index was made", || ground.run(&["streams"]).code == 0);
    // What only reads does not wait.
    let reads: [&[&str]; 4] =
        [&["read", "--all"], &["streams"], &["verify"], &["metadata", "--stream", "cart"]];
    for arguments in reads {
        ground.run(arguments).succeeds();
    }
    for arguments in commands {
        let refused = ground.run(&[arguments, &["--wait=1"]].concat());
        assert_eq!(refused.code, 5, "{arguments:?}: {refused:?}");
        let said = "still in use by another process after 1 s";
        assert!(refused.stderr.contains(said), "{arguments:?}: {}", refused.stderr);
    }
    let mut waiting = ground.command();
    waiting.arg("--db").arg(ground.store()).args(["backup", "--wait", "--to"]).arg(&backup);
    let waiting = waiting.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let line = br#"{"stream":"cart","type":"Opened","data":1}"#;
    holding.stdin.take().unwrap().write_all(line).unwrap();
    assert!(holding.wait().unwrap().success());
    Run::from_output(waiting.wait_with_output().unwrap()).succeeds();
    let streams = ground.run(&["streams"]).succeeds().text();
    assert!(streams.contains("cart"), "{streams}");
}
