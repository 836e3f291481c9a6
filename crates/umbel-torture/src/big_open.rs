//! A large store opens quickly, after a kill and after a clean close; what it cost to write.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use umbel::{Db, KeyspaceOptions, Options};

use crate::random::{Random, join};
use crate::report::{Tally, now};
use crate::scratch::Scratch;

/// Keys of 16 bytes with values of 100.
pub const KEYS: u64 = 10_000_000;

fn key(number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&join(number, 3).to_be_bytes());
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

/// Loads and waits to be killed.
pub fn child(folder: &Path, keys: u64) -> Result<(), String> {
    let said = |error: umbel::Error| error.to_string();
    let db = Db::open(folder, Options::default()).map_err(said)?;
    let keyspace = db.keyspace("big", KeyspaceOptions::default()).map_err(said)?;
    let mut random = Random::new(9);
    for number in 0..keys {
        keyspace.put(key(number), random.bytes(100)).map_err(said)?;
    }
    let stats = db.stats();
    println!("loaded, write amplification {:.2}", stats.write_amplification);
    // Until the parent kills this process.
    loop {
        std::thread::park();
    }
}

/// All of it.
pub fn campaign(keys: u64) -> Tally {
    let tally = Tally::new("big-open");
    let held = measure(keys, &tally);
    tally.scenario(held.is_ok());
    if let Err(text) = held {
        tally.violation(text, "big-open".to_string());
    }
    tally
}

fn measure(keys: u64, tally: &Tally) -> Result<(), String> {
    let io = |error: std::io::Error| error.to_string();
    let said = |error: umbel::Error| error.to_string();
    let scratch = Scratch::new("big")?;
    let store = scratch.path().join("store");
    let program = std::env::current_exe().map_err(io)?;
    let begun = now();
    let mut child = Command::new(program)
        .arg("--big-child")
        .arg(&store)
        .args(["--keys", &keys.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .map_err(io)?;
    let mut line = String::new();
    if let Some(output) = child.stdout.take() {
        BufReader::new(output).read_line(&mut line).map_err(io)?;
    }
    let loaded = now() - begun;
    child.kill().map_err(io)?;
    child.wait().map_err(io)?;
    if !line.starts_with("loaded") {
        return Err(format!("the child did not load: '{line}'"));
    }
    tally.note(format!("{keys} keys: {} in {:.1} s", line.trim(), loaded.as_secs_f64()));
    let data = keys * 116;
    let space = |scratch: &Scratch| scratch.bytes("store") as f64 / data as f64;
    tally.note(format!("space after the kill: {:.2} times the data", space(&scratch)));

    let (db, killed) = timed_open(&store)?;
    check_some(&db, keys)?;
    tally.note(format!("opened after kill -9 in {:.3} s", killed.as_secs_f64()));
    db.wait_for_compaction().map_err(said)?;
    db.close().map_err(said)?;
    tally.note(format!("space after a clean close: {:.2} times the data", space(&scratch)));
    let (db, clean) = timed_open(&store)?;
    check_some(&db, keys)?;
    tally.note(format!("opened after a clean close in {:.3} s", clean.as_secs_f64()));
    db.close().map_err(said)?;
    if clean > Duration::from_millis(500) || killed > Duration::from_secs(2) {
        return Err("opening took longer than 0.5 s (closed) or 2 s (killed)".to_string());
    }
    Ok(())
}

fn timed_open(store: &Path) -> Result<(Db, Duration), String> {
    let begun = now();
    let db = Db::open(store, Options::default()).map_err(|error| error.to_string())?;
    Ok((db, now() - begun))
}

fn check_some(db: &Db, keys: u64) -> Result<(), String> {
    let said = |error: umbel::Error| error.to_string();
    let keyspace = db.existing_keyspace("big").map_err(said)?.ok_or("the keyspace has gone")?;
    // The newest are the ones a crash would take.
    let sample = (0..keys).step_by(997).chain(keys.saturating_sub(200_000)..keys);
    for number in sample {
        if !keyspace.contains(key(number)).map_err(said)? {
            return Err(format!("key {number} of {keys} is lost"));
        }
    }
    Ok(())
}
