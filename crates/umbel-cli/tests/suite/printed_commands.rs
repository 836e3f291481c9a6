//! Commands that the binary prints work as they are printed, apart from the password.

use std::process::Command;

use rustix::process::Signal;
use umbel_env::skipped_test::print_skipped;

use super::doctor::{Certificates, PASSWORDS, certificates};
use super::serve::Serving;
use super::test_binary::{Fixture, Run};

/// Runs a printed command in a shell in which `umbel` is the binary. The password, which the
/// command would prompt for, is put beside the user.
fn run_printed(fixture: &Fixture, command: &str, (user, password): (&str, &str)) -> Run {
    let binaries = fixture.path("bin");
    std::fs::create_dir_all(&binaries).unwrap();
    let _ = std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_umbel"), binaries.join("umbel"));
    let command = command
        .replacen("curl ", "curl -sS --fail-with-body ", 1)
        .replace(&format!("-u {user} "), &format!("-u '{user}:{password}' "));
    let path = format!("{}:{}", binaries.display(), std::env::var("PATH").unwrap_or_default());
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", &command]).env("PATH", path).env("UMBEL_PASSWORD", password);
    Run::of(&mut shell)
}

/// Story: at a server with TLS and users, the printed commands lacked the user and the CA file.
#[test]
fn printed_commands_work_at_a_server_with_tls_and_users() {
    if Command::new("curl").arg("--version").output().is_err() {
        print_skipped("printed commands at a server with TLS and users", "there is no curl");
        return;
    }
    let fixture = Fixture::new();
    let Certificates { authority, flags } = certificates(&fixture, 4000);
    let copy = fixture.path("copy");
    let backup = ["--backup-dir", copy.to_str().unwrap()];
    let flags: Vec<&str> = flags.iter().map(String::as_str).chain(backup).collect();
    let mut serving = Serving::with(&fixture, &flags, &PASSWORDS);
    let append = serving.next_note("append an event: ");
    assert!(append.starts_with("curl -u admin --cacert "), "{append}");
    let admin = ("admin", "a:pass@word/1");
    let appended = run_printed(&fixture, &append, admin).succeeds().text();
    assert!(appended.contains("\"streamId\":\"cart-42\""), "{appended}");
    let port = serving.connection().rsplit(':').next().unwrap().to_string();
    let authority = authority.display();
    let ops = ("ops", "another one");
    let connect = format!("kurrentdb://ops:another%20one@localhost:{port}?tlsCaFile={authority}");
    let outcome = |work: &str| {
        let run = fixture.bare(&[work, "--connect", &connect]).succeeds();
        let printed = run.stderr.split_once("its outcome: ").unwrap().1.trim_end().to_string();
        assert!(!printed.contains("another"), "{printed}");
        run_printed(&fixture, &printed, ops).succeeds().text()
    };
    let backups = outcome("backup");
    assert!(backups.contains("Success\tby ops"), "{backups}");
    let scavenges = outcome("scavenge");
    assert!(scavenges.contains("Success\tby ops"), "{scavenges}");
    assert_eq!(serving.stop(Signal::INT).0, Some(0));
}

/// Story: the printed commands lacked the directory of the store.
#[test]
fn printed_commands_name_the_directory_of_the_store() {
    let fixture = Fixture::new();
    let (events, store) = (fixture.path("events"), fixture.path("my store"));
    let event = r#"{"stream":"cart","type":"Opened","data":1}"#;
    std::fs::write(&events, event).unwrap();
    let (events, store) = (events.to_str().unwrap(), store.to_str().unwrap());
    fixture.bare(&["append", events, "--db", store]).succeeds();
    let refused = fixture.bare(&["read", "--stream", "none", "--db", store]);
    let refused = refused.fails(1, &["there is no stream 'none'"]);
    let printed = refused.stderr.split('`').nth(1).unwrap();
    assert!(printed.starts_with("umbel streams --db '"), "{printed}");
    let listed = run_printed(&fixture, printed, ("ops", "unused")).succeeds().text();
    assert_eq!(listed, "cart\t0 to 0\n");
}

/// Story: the advice for a missing store, and for a store that lacks a file, was a command without
/// `--db`, which was refused as it was printed.
#[test]
fn advice_about_missing_and_damaged_stores_can_be_pasted() {
    let fixture = Fixture::new();
    let store = fixture.path("my store");
    let shown = store.to_str().unwrap();
    let printed = |run: Run| run.stderr.split('`').nth(1).unwrap().to_string();
    let user = ("ops", "unused");
    let append = printed(fixture.bare(&["read", "--all", "--db", shown]));
    assert!(append.starts_with("umbel append --db '"), "{append}");
    run_printed(&fixture, &append, user).succeeds();
    let events = fixture.path("events");
    std::fs::write(&events, r#"{"stream":"cart","type":"Opened","data":1}"#).unwrap();
    fixture.bare(&["append", events.to_str().unwrap(), "--db", shown]).succeeds();
    std::fs::remove_file(store.join("CHUNKS")).unwrap();
    let damaged = fixture.bare(&["verify", "--db", shown]).fails(3, &["chunk manifest is missing"]);
    let repair = printed(damaged);
    assert!(repair.starts_with("umbel repair --db '"), "{repair}");
    run_printed(&fixture, &repair, user).succeeds();
    fixture.bare(&["verify", "--db", shown]).succeeds();
    // A key-value store has its own command.
    let keys = fixture.path("no keys");
    let put = printed(fixture.bare(&["get", "ada", "--db", keys.to_str().unwrap()]));
    assert!(put.starts_with("umbel put KEY VALUE --db '"), "{put}");
    run_printed(&fixture, &put, user).succeeds();
}
