//! Scavenges of the real binary that are killed at random moments, on a real disk.
//!
//! `UMBEL_SCAVENGE_KILLS=200 cargo test --release -p umbel-cli --test suite scavenge_kills` is the
//! campaign; a normal test run makes only a few rounds. The tests of `umbel-events` crash a
//! scavenge at every call on the crash disk.

use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc::channel;
use std::time::Duration;

use serde_json::json;
use umbel_env::Env;
use umbel_sim::Random;

use super::test_binary::Fixture;

/// Number of streams, of which one in ten is kept.
const STREAMS: u64 = 40;
const EVENTS: u64 = 1600;

/// Creates a store with four chunks, nine tenths of whose events are deleted.
fn mostly_deleted() -> Fixture {
    let fixture = Fixture::new();
    let mut random = Random::new(1);
    let lines: String = (0..EVENTS)
        .map(|number| {
            let stream = format!("cart-{}", number % STREAMS);
            let pad = "x".repeat(random.below(24_000) as usize);
            let event = json!({"stream": stream, "type": "t", "data": {"n": number, "pad": pad}});
            format!("{event}\n")
        })
        .collect();
    fixture.feed(&["append"], lines.as_bytes()).succeeds();
    for stream in (0..STREAMS).filter(|stream| stream % 10 != 0) {
        fixture.run(&["delete", "--stream", &format!("cart-{stream}")]).succeeds();
    }
    fixture
}

pub fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy(&path, &target);
        } else {
            std::fs::copy(&path, &target).unwrap();
        }
    }
}

/// Returns the files of the event log with their lengths.
pub fn log_of(store: &Path) -> Vec<(String, u64)> {
    let entries = std::fs::read_dir(store.join("log")).unwrap().map(Result::unwrap);
    let mut files: Vec<(String, u64)> = entries
        .map(|entry| (entry.file_name().into_string().unwrap(), entry.metadata().unwrap().len()))
        .collect();
    files.sort();
    files
}

fn bytes_of(log: &[(String, u64)]) -> u64 {
    log.iter().map(|(_, bytes)| bytes).sum()
}

/// Events of the kept streams. Checks that the other streams are deleted.
fn streams_of(fixture: &Fixture) -> String {
    let all = (0..STREAMS).map(|stream| {
        let run = fixture.run(&["read", "--stream", &format!("cart-{stream}")]);
        assert_eq!(run.code, i32::from(stream % 10 != 0), "{run:?}");
        run.text()
    });
    all.collect()
}

/// Starts a scavenge and kills it after `delay`.
fn kill_after(fixture: &Fixture, delay: Duration) {
    let mut command = fixture.command();
    command.arg("--db").arg(fixture.store()).arg("scavenge");
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let (_sender, never) = channel::<()>();
    let _ = never.recv_timeout(delay);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn killed_scavenge_resumes_and_finishes() {
    let rounds: u64 =
        std::env::var("UMBEL_SCAVENGE_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(4);
    let before = mostly_deleted();
    let streams = streams_of(&before);
    let untouched = log_of(&before.store());
    // Without a kill.
    let uninterrupted = Fixture::new();
    copy(&before.store(), &uninterrupted.store());
    let clock = Env::system().clock;
    let start = clock.now();
    uninterrupted.run(&["scavenge"]).succeeds();
    let duration_us = (clock.now() - start).as_micros() as u64;
    let all = uninterrupted.run(&["read", "--all"]).succeeds().text();
    let log = log_of(&uninterrupted.store());
    assert!(bytes_of(&log) * 3 < bytes_of(&untouched) * 2, "{untouched:?} became {log:?}");

    let mut interrupted = 0;
    for round in 0..rounds {
        let mut random = Random::new(round);
        let fixture = Fixture::new();
        copy(&before.store(), &fixture.store());
        for _ in 0..=random.below(3) {
            kill_after(
                &fixture,
                Duration::from_micros(random.below(duration_us + duration_us / 10)),
            );
        }
        let left = log_of(&fixture.store());
        interrupted += u64::from(left != untouched && left != log);
        assert_eq!(streams_of(&fixture), streams, "round {round}, killed, {left:?}");
        fixture.run(&["verify"]).succeeds();
        fixture.run(&["scavenge"]).succeeds();
        assert_eq!(streams_of(&fixture), streams, "round {round}, resumed from {left:?}");
        let again = fixture.run(&["read", "--all"]).succeeds().text();
        assert_eq!(again, all, "round {round}, resumed from {left:?}");
        let ended = log_of(&fixture.store());
        let bytes_max = bytes_of(&log) + (1 << 16);
        assert!(
            bytes_of(&ended) <= bytes_max,
            "round {round}: {ended:?}, and without a kill {log:?}"
        );
        fixture.run(&["verify"]).succeeds();
    }
    println!("{interrupted} of {rounds} rounds were killed during a scavenge");
    assert!(
        rounds < 100 || interrupted * 10 > rounds,
        "{interrupted} of {rounds} kills hit a scavenge"
    );
}
