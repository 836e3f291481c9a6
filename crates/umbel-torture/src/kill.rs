//! The kill campaign: a child of this program works on a store on a real disk with several threads
//! and is killed; what it acknowledged has to be there, of each thread a prefix, and the store
//! opens fast.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use umbel::{Db, Durability, Keyspace, KeyspaceOptions, Options};

use crate::model::Map;
use crate::random::{Random, join};
use crate::report::{Tally, now};
use crate::scratch::Scratch;

/// Threads of the child.
const THREADS: u64 = 4;
const NAMES: [&str; 2] = ["left", "right"];
/// Keys of one thread in one keyspace.
const KEYS: u64 = 600;

enum Write {
    Put(usize, Vec<u8>, Vec<u8>),
    Delete(usize, Vec<u8>),
    DeleteRange(usize, Vec<u8>, Vec<u8>),
}

fn key(thread: u64, number: u64) -> Vec<u8> {
    format!("{thread}/{number:05}").into_bytes()
}

fn count_key(thread: u64) -> Vec<u8> {
    format!("{thread}/count").into_bytes()
}

/// The batch with this number of a thread.
fn batch(seed: u64, thread: u64, number: u64) -> (Vec<Write>, Durability) {
    let mut random = Random::new(join(join(seed, thread), number));
    let mut writes = Vec::new();
    for _ in 0..1 + random.below(4) {
        let side = random.below(2) as usize;
        let at = random.below(KEYS);
        writes.push(match random.below(20) {
            0..=2 => Write::Delete(side, key(thread, at)),
            3 => Write::DeleteRange(side, key(thread, at), key(thread, at + random.below(20))),
            _ => {
                let len = 10 + random.below(400) as usize;
                Write::Put(side, key(thread, at), random.bytes(len))
            }
        });
    }
    let count = (number + 1).to_le_bytes();
    for side in 0..NAMES.len() {
        writes.push(Write::Put(side, count_key(thread), count.to_vec()));
    }
    let synced = random.once_in(40);
    (writes, if synced { Durability::Synced } else { Durability::Buffered })
}

fn options() -> Options {
    Options {
        log_segment_bytes: 256 << 10,
        write_buffer_total_bytes: 1 << 20,
        cache_bytes: 4 << 20,
        ..Options::default()
    }
}

fn open(folder: &Path) -> umbel::Result<(Db, Vec<Keyspace>)> {
    let db = Db::open(folder, options())?;
    let small = KeyspaceOptions {
        memtable_bytes: 64 << 10,
        table_bytes: 64 << 10,
        level_bytes_base: 256 << 10,
        level_ratio: 4,
        ..KeyspaceOptions::default()
    };
    let keyspaces: umbel::Result<Vec<_>> =
        NAMES.iter().map(|name| db.keyspace(name, small.clone())).collect();
    Ok((db, keyspaces?))
}

/// What the child does until it is killed: batches from `counts` on, each acknowledged in the file.
pub fn child(folder: &Path, seed: u64, counts: &[u64]) -> Result<(), String> {
    let acks = OpenOptions::new().write(true).open(folder.join("acks"));
    let acks = acks.map_err(|error| format!("acks: {error}"))?;
    let (db, keyspaces) = open(&folder.join("store")).map_err(|error| error.to_string())?;
    std::thread::scope(|scope| {
        for (thread, &count) in counts.iter().enumerate() {
            let (db, keyspaces, acks) = (&db, &keyspaces, &acks);
            scope.spawn(move || {
                if let Err(error) = work(db, keyspaces, acks, seed, thread as u64, count) {
                    eprintln!("child: {error}");
                    std::process::exit(3);
                }
            });
        }
    });
    Ok(())
}

fn work(
    db: &Db,
    keyspaces: &[Keyspace],
    acks: &File,
    seed: u64,
    thread: u64,
    count: u64,
) -> Result<(), String> {
    for number in count.. {
        let (writes, durability) = batch(seed, thread, number);
        let mut batch = db.batch();
        for write in &writes {
            match write {
                Write::Put(side, key, value) => batch.put(&keyspaces[*side], key, value),
                Write::Delete(side, key) => batch.delete(&keyspaces[*side], key),
                Write::DeleteRange(side, start, end) => {
                    if start < end {
                        batch.delete_range(&keyspaces[*side], start, end);
                    }
                }
            }
        }
        batch.commit(durability).map_err(|error| error.to_string())?;
        let acked = (number + 1).to_le_bytes();
        acks.write_all_at(&acked, thread * 8).map_err(|error| error.to_string())?;
        if number % 900 == 899 {
            let side = (number / 900 % 2) as usize;
            let done = if thread == 0 { keyspaces[side].flush() } else { Ok(()) };
            let done = done.and_then(|()| match (thread, number % 5400) {
                (1, 5399) => keyspaces[side].compact(None, None),
                _ => Ok(()),
            });
            done.map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

/// What the parent knows.
struct World {
    seed: u64,
    counts: Vec<u64>,
    maps: Vec<Map>,
    open_max: Duration,
}

/// So many rounds.
pub fn campaign(seed: u64, rounds: u64) -> Tally {
    let tally = Tally::new("kill");
    let mut world = World {
        seed,
        counts: vec![0; THREADS as usize],
        maps: vec![Map::new(); NAMES.len()],
        open_max: Duration::ZERO,
    };
    let held = Scratch::new("kill").and_then(|scratch| {
        for round in 0..rounds {
            let done = world.round(scratch.path(), round, &tally);
            tally.add("rounds", 1);
            done.map_err(|text| format!("round {round}: {text}"))?;
        }
        Ok(())
    });
    tally.add("longest opening in microseconds", world.open_max.as_micros() as u64);
    tally.add("batches", world.counts.iter().sum());
    tally.scenario(held.is_ok());
    if let Err(text) = held {
        tally.violation(text, format!("kill {seed} {rounds}"));
    }
    // A bound for what hangs; how long opening takes on a quiet machine is measured, not tested.
    if world.open_max > Duration::from_secs(30) {
        tally.violation(
            "an opening took more than thirty seconds".into(),
            format!("kill {seed} {rounds}"),
        );
    }
    tally
}

impl World {
    fn round(&mut self, folder: &Path, round: u64, tally: &Tally) -> Result<(), String> {
        let said = |error: std::io::Error| error.to_string();
        let counts: Vec<u8> = self.counts.iter().flat_map(|count| count.to_le_bytes()).collect();
        std::fs::write(folder.join("acks"), counts).map_err(said)?;
        let program = std::env::current_exe().map_err(said)?;
        let counts = self.counts.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
        let mut child = Command::new(program)
            .arg("--kill-child")
            .arg(folder)
            .args(["--seed", &self.seed.to_string(), "--counts", &counts])
            .stdin(Stdio::null())
            .spawn()
            .map_err(said)?;
        let mut random = Random::new(join(self.seed, round));
        // Waking up early makes another moment to be killed at, which is as good.
        std::thread::park_timeout(Duration::from_millis(15 + random.below(260)));
        let early = child.try_wait().map_err(said)?;
        child.kill().map_err(said)?;
        child.wait().map_err(said)?;
        if let Some(status) = early {
            return Err(format!("the child ended by itself: {status}"));
        }
        let acks = std::fs::read(folder.join("acks")).map_err(said)?;
        let acked: Vec<u64> = acks
            .chunks_exact(8)
            .map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap_or_default()))
            .collect();
        self.check(&folder.join("store"), round, &acked, tally)
    }

    fn check(
        &mut self,
        store: &Path,
        round: u64,
        acked: &[u64],
        tally: &Tally,
    ) -> Result<(), String> {
        if round % 3 == 2 && store.exists() {
            // The next child finds the store as this one left it.
            tally.add("rounds looked at read-only", 1);
            let begun = now();
            let db = match Db::open_read_only(store, options()) {
                Ok(db) => db,
                // Killed before the store was there.
                Err(umbel::Error::Invalid(_)) if acked.iter().all(|acked| *acked == 0) => {
                    return Ok(());
                }
                Err(error) => return Err(error.to_string()),
            };
            self.open_max = self.open_max.max(now() - begun);
            return self.compare(&db, acked);
        }
        let begun = now();
        let (db, _) = open(store).map_err(|error| format!("it does not open: {error}"))?;
        self.open_max = self.open_max.max(now() - begun);
        self.compare(&db, acked)?;
        if round.is_multiple_of(10) {
            crate::look::verify(&db)?;
        }
        db.close().map_err(|error| format!("closing: {error}"))
    }

    fn compare(&mut self, db: &Db, acked: &[u64]) -> Result<(), String> {
        let said = |error: umbel::Error| error.to_string();
        let mut found: Vec<Map> = Vec::new();
        for name in NAMES {
            let map = match db.existing_keyspace(name).map_err(said)? {
                Some(keyspace) => keyspace.iter().collect::<umbel::Result<Map>>().map_err(said)?,
                None => Map::new(),
            };
            found.push(map);
        }
        for thread in 0..THREADS {
            let count = |map: &Map| {
                map.get(&count_key(thread))
                    .and_then(|bytes| bytes[..].try_into().ok())
                    .map_or(0, u64::from_le_bytes)
            };
            let (left, right) = (count(&found[0]), count(&found[1]));
            let acked = acked[thread as usize];
            if left != right {
                return Err(format!("thread {thread}: a torn batch: counts {left} and {right}"));
            }
            if left < acked || left > acked + 1 {
                let text = format!("thread {thread}: {acked} acknowledged, {left} there");
                return Err(text);
            }
            for number in self.counts[thread as usize]..left {
                self.apply(thread, number);
            }
            self.counts[thread as usize] = left;
        }
        for (side, name) in NAMES.iter().enumerate() {
            if found[side] != self.maps[side] {
                let text = crate::differ::difference(name, &self.maps[side], &found[side]);
                return Err(format!("the state is wrong:{text}"));
            }
        }
        Ok(())
    }

    fn apply(&mut self, thread: u64, number: u64) {
        for write in batch(self.seed, thread, number).0 {
            match write {
                Write::Put(side, key, value) => {
                    self.maps[side].insert(key, value);
                }
                Write::Delete(side, key) => {
                    self.maps[side].remove(&key);
                }
                Write::DeleteRange(side, start, end) => {
                    self.maps[side].retain(|key, _| *key < start || *key >= end);
                }
            }
        }
    }
}
