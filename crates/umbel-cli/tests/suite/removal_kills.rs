//! Removals by the real binary that are killed at random moments, on a real disk.
//!
//! `UMBEL_REMOVAL_KILLS=200 cargo test --release -p umbel-cli --test suite removal_kills --
//! --nocapture` is the campaign; a normal test run makes only a few kills. The tests of
//! `umbel-events` crash a removal at every call on the crash disk.

use std::process::Stdio;
use std::sync::mpsc::channel;
use std::time::Duration;

use serde_json::json;
use umbel_env::Env;
use umbel_sim::Random;

use super::removals::marked_files;
use super::scavenge_kills::{copy, log_of};
use super::test_binary::Fixture;

/// Number of streams that are removed.
const STREAMS: u64 = 20;
/// Number of events of each of these streams.
const EVENTS: u64 = 40;

/// Random letters, which compression does not shorten.
fn random_text(random: &mut Random, chars: u64) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    (0..chars).map(|_| char::from(LETTERS[random.below(64) as usize])).collect()
}

/// Creates a store with several chunks, in which every event of `gone-*` has the marker in data
/// and metadata.
fn marked_store(marker: &str) -> Fixture {
    let fixture = Fixture::new();
    let mut random = Random::new(7);
    let mut lines = String::new();
    for number in 0..STREAMS * EVENTS {
        let pad = random_text(&mut random, 20_000);
        for stream in [format!("gone-{}", number % STREAMS), format!("kept-{}", number % 9)] {
            let secret = if stream.starts_with("gone") { marker } else { "" };
            let data = json!({"n": number, "pad": pad, "secret": secret});
            let metadata = json!({"secret": secret});
            let event = json!({"stream": stream, "type": "t", "data": data, "metadata": metadata});
            lines.push_str(&format!("{event}\n"));
        }
    }
    fixture.feed(&["append"], lines.as_bytes()).succeeds();
    fixture
}

/// Events of the kept streams.
fn kept_events(fixture: &Fixture) -> String {
    let read = ["read", "--all", "--stream-prefix=kept-"];
    fixture.run(&read).succeeds().text()
}

/// Starts a command and kills it after `delay`. Returns whether it still ran.
fn was_running_when_killed(fixture: &Fixture, arguments: &[String], delay: Duration) -> bool {
    let mut command = fixture.command();
    command.arg("--db").arg(fixture.store()).args(arguments);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let (_sender, never) = channel::<()>();
    let _ = never.recv_timeout(delay);
    let is_running = child.try_wait().unwrap().is_none();
    child.kill().unwrap();
    child.wait().unwrap();
    is_running
}

/// Numbers of a campaign.
#[derive(Debug, Default)]
struct Tally {
    kills: u64,
    /// Kills while the command ran.
    kills_during: u64,
    /// Kills after which the log had changed, and files still had the marker.
    kills_midway: u64,
    rounds: u64,
}

/// Kills a removal in copies of the store, and repeats the removal to its end.
fn run_kills(before: &Fixture, arguments: &[String], marker: &str, kills: u64) -> Tally {
    let kept = kept_events(before);
    let untouched = log_of(&before.store());
    let uninterrupted = Fixture::new();
    copy(&before.store(), &uninterrupted.store());
    let clock = Env::system().clock;
    let start = clock.now();
    uninterrupted.run(arguments).succeeds();
    let duration_us = (clock.now() - start).as_micros() as u64;
    let mut tally = Tally::default();
    while tally.kills < kills {
        let mut random = Random::new(tally.rounds);
        let fixture = Fixture::new();
        copy(&before.store(), &fixture.store());
        for _ in 0..=random.below(3) {
            let delay = Duration::from_micros(random.below(duration_us + duration_us / 10));
            tally.kills += 1;
            tally.kills_during += u64::from(was_running_when_killed(&fixture, arguments, delay));
            let is_marked = !marked_files(&fixture.store(), marker).is_empty();
            tally.kills_midway += u64::from(is_marked && log_of(&fixture.store()) != untouched);
        }
        let context = format!("{arguments:?}, round {}", tally.rounds);
        fixture.run(&["verify"]).succeeds();
        assert_eq!(kept_events(&fixture), kept, "{context}, killed");
        fixture.run(arguments).succeeds();
        assert_eq!(marked_files(&fixture.store(), marker), Vec::<String>::new(), "{context}");
        fixture.run(&["verify"]).succeeds();
        assert_eq!(kept_events(&fixture), kept, "{context}, repeated");
        let backup = fixture.path("backup");
        fixture.run(&["backup", "--to", backup.to_str().unwrap()]).succeeds();
        assert_eq!(marked_files(&backup, marker), Vec::<String>::new(), "{context}, backup");
        tally.rounds += 1;
    }
    tally
}

#[test]
fn killed_removal_is_repeated_to_its_end() {
    let kills: u64 =
        std::env::var("UMBEL_REMOVAL_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(4);
    let id = Env::system().entropy.id().unwrap();
    let marker: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let redacted = marked_store(&marker);
    assert!(marked_files(&redacted.store(), &marker).len() > 1, "the marker is in several files");
    let deleted = Fixture::new();
    copy(&redacted.store(), &deleted.store());
    for stream in 0..STREAMS {
        deleted.run(&["delete", "--stream", &format!("gone-{stream}")]).succeeds();
    }
    let places = (0..STREAMS * EVENTS).map(|n| format!("gone-{}@{}", n % STREAMS, n / STREAMS));
    let redact: Vec<String> = std::iter::once("redact".to_string()).chain(places).collect();
    let scavenge = ["scavenge", "--now"].map(str::to_string);
    for (name, store, arguments) in
        [("scavenge --now", &deleted, &scavenge[..]), ("redact", &redacted, &redact[..])]
    {
        let tally = run_kills(store, arguments, &marker, kills.div_ceil(2));
        println!("{name}: {tally:?}");
        let is_campaign = kills >= 100;
        assert!(!is_campaign || tally.kills_midway * 10 > tally.kills, "{name}: {tally:?}");
    }
}
