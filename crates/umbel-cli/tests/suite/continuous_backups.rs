//! `umbel serve --backup-to URL`: the server backs up into an object store, and starts only with
//! one that can be its own.

use std::fs;

use rustix::process::Signal;
use serde_json::Value;

use super::serve::{Serving, get_page};
use super::test_binary::{Fixture, numbered_events, wait_until};

/// A fixture with an empty object store in a directory, and its URL.
fn with_objects() -> (Fixture, String) {
    let fixture = Fixture::new();
    let directory = fixture.path("objects");
    fs::create_dir(&directory).unwrap();
    let url = format!("file://{}", directory.display());
    (fixture, url)
}

/// The continuous backup on the page `/stats`.
fn status(serving: &Serving) -> Value {
    let (_, body) = get_page(serving.address(), "/stats");
    serde_json::from_str::<Value>(&body).unwrap()["objectBackup"].clone()
}

fn append(fixture: &Fixture, serving: &Serving, numbers: std::ops::Range<u64>) {
    let connect = ["append", "--connect", serving.connection()];
    fixture.feed(&connect, numbered_events(numbers).as_bytes()).succeeds();
}

/// All events that a client of the server reads.
fn read_all(fixture: &Fixture, serving: &Serving) -> String {
    let all = ["subscribe", "--all", "--until-caught-up", "--connect", serving.connection()];
    fixture.bare(&all).succeeds().text()
}

fn wait_for_all(serving: &Serving) {
    wait_until("the backup has all events", || {
        let status = status(serving);
        status["lagBytes"] == 0 && status["state"] == "Running"
    });
}

#[test]
fn killed_server_and_lost_disk_lose_no_event_of_the_backup() {
    let (fixture, url) = with_objects();
    let flags = ["--backup-to", &url, "--backup-interval", "1s", "--backup-throttle", "50MiB"];
    let mut serving = Serving::start(&fixture, &flags);
    let note = serving.next_note("events are backed up to ");
    assert_eq!(note, format!("{url} every 1 s (--backup-to)"));
    append(&fixture, &serving, 0..200);
    append(&fixture, &serving, 200..210);
    wait_for_all(&serving);
    let before = read_all(&fixture, &serving);
    assert_eq!(before.lines().filter(|line| line.contains("Counted")).count(), 210);
    let doctor = ["doctor", "--connect", serving.connection()];
    let findings = fixture.bare(&doctor).succeeds().text();
    let found = findings.lines().find(|line| line.starts_with("ok    backup"));
    assert!(found.is_some_and(|line| line.contains(&url)), "{findings}");
    assert_eq!(serving.stop(Signal::KILL).0, None);
    fs::remove_dir_all(fixture.store()).unwrap();

    let store = fixture.store();
    let restore = ["restore", "--from", &url, "--db", store.to_str().unwrap()];
    fixture.bare(&restore).succeeds();
    let serving = Serving::start(&fixture, &[]);
    assert_eq!(read_all(&fixture, &serving), before);
    assert_eq!(serving.stop(Signal::TERM).0, Some(0));
    // The restored store is another copy, and needs a prefix of its own.
    let flags = ["serve", "--insecure", "--listen", "127.0.0.1:0", "--backup-to", &url];
    let parts =
        ["the backup cannot begin: file://", "another copy of this store", "another prefix"];
    fixture.run(&flags).fails(2, &parts);
}

#[test]
fn last_run_at_shutdown_has_the_last_events() {
    let (fixture, url) = with_objects();
    let flags = ["--backup-to", &url, "--backup-interval", "1h", "--backup-keep", "30d"];
    let serving = Serving::start(&fixture, &flags);
    append(&fixture, &serving, 0..50);
    let all = read_all(&fixture, &serving);
    let (code, _, notes) = serving.stop(Signal::TERM);
    assert_eq!(code, Some(0), "{notes}");
    assert!(notes.contains("the backup has all events"), "{notes}");
    let target = fixture.path("restored");
    let target = target.to_str().unwrap();
    fixture.bare(&["restore", "--from", &url, "--db", target]).succeeds();
    let restored = fixture.bare(&["--db", target, "read", "--all"]).succeeds().text();
    assert_eq!(restored.lines().count(), all.lines().count());
}

/// The outage of a mounted directory is logged once, and shown by `doctor`.
#[test]
fn outage_is_logged_once_and_ends() {
    let (fixture, url) = with_objects();
    let serving = Serving::start(&fixture, &["--backup-to", &url, "--backup-interval", "1s"]);
    append(&fixture, &serving, 0..5);
    wait_for_all(&serving);
    let (here, gone) = (fixture.path("objects"), fixture.path("gone"));
    fs::rename(&here, &gone).unwrap();
    append(&fixture, &serving, 5..10);
    wait_until("two runs fail", || status(&serving)["failuresInRow"].as_u64() >= Some(2));
    let doctor = ["doctor", "--connect", serving.connection()];
    let findings = fixture.bare(&doctor).succeeds().text();
    let found = findings.lines().find(|line| line.starts_with("look  backup"));
    assert!(found.is_some_and(|line| line.contains("lacks ")), "{findings}");
    fs::rename(&gone, &here).unwrap();
    wait_for_all(&serving);
    let (code, _, notes) = serving.stop(Signal::TERM);
    assert_eq!(code, Some(0), "{notes}");
    assert_eq!(notes.matches("the continuous backup failed").count(), 1, "{notes}");
    assert_eq!(notes.matches("the continuous backup succeeds again").count(), 1, "{notes}");
}

#[test]
fn bad_object_stores_and_options_are_refused() {
    let (fixture, url) = with_objects();
    let serve = ["serve", "--insecure", "--listen", "127.0.0.1:0"];
    let missing = format!("{url}/missing");
    let refused: [(&[&str], &[&str]); 7] = [
        (&["--backup-to", "/mnt/share"], &["--backup-to is /mnt/share, but must be the URL"]),
        (&["--backup-to", ""], &["--backup-to is empty, but must be the URL"]),
        (&["--backup-to", "ftp://a/b"], &["ftp://a/b"]),
        (&["--backup-to", &missing], &["missing; mount its file system, or create the directory"]),
        (&["--backup-keep", "30d"], &["--backup-keep has no effect", "--backup-to URL"]),
        (&["--backup-to", &url, "--backup-interval", "0s"], &["must be 1s to 24h"]),
        (&["--backup-to", &url, "--backup-throttle", "9"], &["must have a unit"]),
    ];
    for (flags, parts) in refused {
        fixture.run(&[&serve[..], flags].concat()).fails(2, parts);
        assert!(!fixture.store().exists(), "{flags:?}");
    }
    if !cfg!(feature = "buckets") {
        let flags = ["--backup-to", "s3://bucket/prefix"];
        fixture.run(&[&serve[..], &flags].concat()).fails(2, &["buckets"]);
    }
    fs::write(fixture.path("objects/holiday.jpg"), "a picture").unwrap();
    // A new store would be a line of the log.
    assert_eq!(Serving::start(&fixture, &[]).stop(Signal::TERM).0, Some(0));
    let run = fixture.run(&[&serve[..], &["--backup-to", &url]].concat());
    run.fails(2, &["holds holiday.jpg, but no backup; name an empty prefix"]);
}

/// A printed configuration is one that the server reads.
#[test]
fn printed_options_of_the_backup_are_read_again() {
    let (fixture, url) = with_objects();
    let flags = ["--backup-interval", "5m", "--backup-keep", "30d", "--backup-throttle", "1MiB"];
    let print = ["serve", "--insecure", "--print-config", "--backup-to", &url];
    let printed = fixture.run(&[&print[..], &flags].concat()).succeeds().text();
    let file = fixture.path("umbel.toml");
    fs::write(&file, &printed).unwrap();
    let again = ["serve", "--print-config", "--config", file.to_str().unwrap()];
    let again = fixture.run(&again).succeeds().text();
    let values = |text: &str| {
        let lines = text.lines().filter(|line| line.starts_with("backup-"));
        lines.map(|line| line.split('#').next().unwrap().trim().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(values(&printed), values(&again));
    assert!(values(&again).contains(&"backup-interval = \"300s\"".to_string()), "{again}");
    assert!(values(&again).contains(&"backup-keep = \"2592000s\"".to_string()), "{again}");
}

/// Keys and values of a server survive a lost disk, too.
#[test]
fn keys_and_values_of_a_server_are_backed_up_and_restored() {
    let (fixture, url) = with_objects();
    // The first start makes the stores.
    assert_eq!(Serving::start(&fixture, &["--kv"]).stop(Signal::TERM).0, Some(0));
    let store = fixture.store();
    let kv = store.join("kv");
    let [store, kv] = [&store, &kv].map(|path| path.to_str().unwrap());
    fixture.bare(&["--db", kv, "put", "ada", "1815"]).succeeds();
    let flags = ["--kv", "--backup-to", &url, "--backup-interval", "1s"];
    let mut serving = Serving::start(&fixture, &flags);
    let note = serving.next_note("keys and values are backed up to ");
    assert_eq!(note, format!("{url}/kv"));
    append(&fixture, &serving, 0..20);
    wait_for_all(&serving);
    wait_until("the backup has all keys", || {
        let (_, body) = get_page(serving.address(), "/stats");
        let stats: Value = serde_json::from_str(&body).unwrap();
        stats["kvObjectBackup"]["lagWrites"] == 0
    });
    let doctor = ["doctor", "--connect", serving.connection()];
    let findings = fixture.bare(&doctor).succeeds().text();
    assert!(findings.lines().any(|line| line.starts_with("ok    kv backup")), "{findings}");
    assert_eq!(serving.stop(Signal::KILL).0, None);
    fs::remove_dir_all(fixture.store()).unwrap();

    let verified = fixture.bare(&["verify", "--from", &url]).succeeds().text();
    assert!(verified.contains("keys and values: the backup in"), "{verified}");
    let restore = ["restore", "--from", &url, "--db", store];
    let restored = fixture.bare(&restore).succeeds().text();
    assert!(restored.contains(&format!("keys and values: restored {kv}")), "{restored}");
    assert_eq!(fixture.bare(&["--db", kv, "get", "ada"]).succeeds().text(), "1815\n");
    // Both are backed up by the command as well, and one of them is damaged afterwards.
    fs::create_dir(fixture.path("second")).unwrap();
    let second = format!("file://{}", fixture.path("second").display());
    let back_up = ["--db", store, "backup", "--to", &second];
    let json = fixture.bare(&[&back_up[..], &["--json"]].concat()).succeeds().json();
    assert_eq!((&json["manifest"], &json["kv"]["manifest"]), (&1.into(), &1.into()));
    fs::remove_dir_all(fixture.path("second/kv/tables")).unwrap();
    let again = fixture.path("again");
    let again = again.to_str().unwrap();
    let parts = ["the events are restored, but not the keys and values", "/kv --db "];
    fixture.bare(&["restore", "--from", &second, "--db", again]).fails(3, &parts);
    // Story: the printed command restored the newest keys and values beside older events.
    let past = fixture.path("past");
    let to_time = ["--to-time", "2100-01-01T00:00:00Z"];
    let restore = ["restore", "--from", &second, "--db", past.to_str().unwrap()];
    let restored = fixture.bare(&[&restore[..], &to_time].concat());
    assert_eq!(restored.code, 3, "{restored:?}");
    for part in ["--to-time 2100-01-01T00:00:00", &format!("--db {}/kv`", past.display())] {
        assert!(restored.stderr.contains(part), "`{part}` is not in {restored:?}");
    }
    assert!(!fixture.bare(&["--db", again, "read", "--all"]).succeeds().text().is_empty());
    fixture.bare(&["verify", "--from", &second]).fails(3, &["is damaged in "]);
    // A first backup of the keys and values that is not complete.
    fs::remove_dir_all(fixture.path("second/kv/manifests")).unwrap();
    let parts = ["the events are whole, but the keys and values could not be checked", "/kv is"];
    fixture.bare(&["verify", "--from", &second]).fails(2, &parts);
}
