//! Tests that the directory does not grow without need, and that opening stays cheap.

use std::collections::BTreeSet;
use std::time::Duration;

use umbel::{Db, Keyspace, KeyspaceOptions, Options};
use umbel_env::Env;
use umbel_sim::Sim;

use crate::suite::fixture::{
    self, PATH, again, all, existing, fill, filled, inline, key, live_tables, new_store, threaded,
    tiny,
};

/// Number of table files, and their bytes.
fn tables(env: &Env) -> (usize, u64) {
    let entries = env.files.read_dir(PATH.as_ref()).unwrap();
    let tables = entries.iter().filter(|entry| entry.name.ends_with(".table"));
    tables.fold((0, 0), |(count, bytes), entry| (count + 1, bytes + entry.len))
}

#[test]
fn space_of_deleted_range_is_freed() {
    let (sim, db) = new_store();
    let keyspace = db.keyspace("a", tiny()).unwrap();
    fill(&keyspace, 0..3000, 1);
    keyspace.compact(None, None).unwrap();
    let (_, full) = tables(&sim.env());
    keyspace.delete_range(key(100), key(2900)).unwrap();
    keyspace.compact(None, None).unwrap();
    let (_, left) = tables(&sim.env());
    assert!(left < full / 10, "{left} of {full} bytes are left");
    keyspace.delete_range(b"", [0xff]).unwrap();
    keyspace.compact(None, None).unwrap();
    assert_eq!(tables(&sim.env()), (0, 0));
    assert_eq!(all(&keyspace), []);
    drop((keyspace, db));
    assert_eq!(all(&existing(&again(&sim), "a")), []);
}

#[test]
fn compaction_drops_deletes_and_old_versions() {
    let (_sim, db) = new_store();
    let keyspace = db.keyspace("a", tiny()).unwrap();
    for round in 0..5 {
        fill(&keyspace, 0..500, round);
    }
    (0..500).step_by(2).for_each(|index| keyspace.delete(key(index)).unwrap());
    keyspace.compact(None, None).unwrap();
    let stats = keyspace.stats();
    let entries: u64 = stats.levels.iter().map(|level| level.entries).sum();
    let deletes: u64 = stats.levels.iter().map(|level| level.deletes).sum();
    assert_eq!((entries, deletes), (250, 0));
}

/// Old versions that a snapshot kept in the last level are dropped by the next compaction of their
/// keys.
#[test]
fn versions_kept_for_snapshot_are_dropped_after_it() {
    let (sim, db) = new_store();
    let keyspace = db.keyspace("a", tiny()).unwrap();
    fill(&keyspace, 0..1000, 1);
    let snapshot = db.snapshot();
    keyspace.delete_range(b"", [0xff]).unwrap();
    keyspace.compact(None, None).unwrap();
    assert!(tables(&sim.env()).0 > 0);
    drop(snapshot);
    fill(&keyspace, 0..1000, 2);
    keyspace.delete_range(b"", [0xff]).unwrap();
    keyspace.compact(None, None).unwrap();
    assert_eq!(tables(&sim.env()), (0, 0));
}

/// A keyspace with rare writes must not retain every WAL segment of a busy one.
#[test]
fn idle_keyspace_retains_no_wal() {
    for threads in [0, 2] {
        let sim = Sim::new(1);
        let options = Options {
            log_segment_bytes: 16 << 10,
            write_buffer_total_bytes: Some(128 << 10),
            ..threaded(&sim.env(), threads)
        };
        let db = Db::open(PATH, options).unwrap();
        let idle = db.keyspace("idle", KeyspaceOptions::default()).unwrap();
        let busy = db.keyspace("busy", tiny()).unwrap();
        fill(&idle, 0..3, 1);
        let mut max_logs = 0;
        for round in 0..20 {
            fill(&busy, 0..500, round);
            max_logs = max_logs.max(fixture::files(&sim.env(), ".log"));
        }
        db.wait_for_compaction().unwrap();
        // 128 KiB in segments of 16 KiB, and as much again during a flush.
        assert!(max_logs <= 24, "{max_logs} logs");
        assert!(db.stats().log_bytes_live <= 256 << 10);
        let crashed = again(&sim.kill_image());
        assert_eq!(all(&existing(&crashed, "idle")), filled(0..3, 1));
        assert_eq!(all(&existing(&crashed, "busy")), filled(0..500, 19));
    }
}

#[test]
fn repeated_opens_accumulate_no_files() {
    for kill in [false, true] {
        let mut sim = Sim::new(1);
        for round in 0..50 {
            let db = Db::open(PATH, inline(&sim.env())).unwrap();
            let keyspace = db.keyspace("a", tiny()).unwrap();
            assert_eq!(all(&keyspace), filled(0..round, 1));
            // The first key each time, so that the tables overlap and can be merged.
            fill(&keyspace, 0..1, 1);
            fill(&keyspace, round..round + 1, 1);
            let count = |kind| fixture::files(&sim.env(), kind);
            assert!(count(".log") <= 6, "{} logs in round {round}", count(".log"));
            assert!(
                count(".table") <= 1 + round / 5,
                "{} tables in round {round}",
                count(".table")
            );
            // `CURRENT`, `LOCK`, `RESERVED` and the manifest.
            assert_eq!(count(""), 4 + count(".log") + count(".table"));
            assert_eq!(count(".manifest"), 1);
            if kill {
                sim = sim.kill_image();
            }
        }
    }
}

/// After a busy time every file in the directory is live.
#[test]
fn directory_holds_live_files_only() {
    for threads in [0, 1, 2] {
        let sim = Sim::new(1);
        let db = Db::open(PATH, threaded(&sim.env(), threads)).unwrap();
        for name in ["a", "b"] {
            let keyspace = db.keyspace(name, tiny()).unwrap();
            (0..4).for_each(|round| fill(&keyspace, 0..400, round));
            let iter = keyspace.iter();
            keyspace.compact(None, None).unwrap();
            drop(iter);
        }
        db.drop_keyspace("a").unwrap();
        db.flush().unwrap();
        db.wait_for_compaction().unwrap();
        assert_eq!(fixture::files(&sim.env(), ".table") as u64, live_tables(&db));
        db.close().unwrap();
        let names: BTreeSet<String> = sim
            .env()
            .files
            .read_dir(PATH.as_ref())
            .unwrap()
            .into_iter()
            .filter(|entry| !entry.name.ends_with(".table"))
            .map(|entry| entry.name.split_at(entry.name.len().min(6)).1.to_string())
            .collect();
        // LOCK, CURRENT, RESERVED and one each of the others, without their numbers.
        let known = ["", "T", "ED", ".manifest", ".log"];
        assert!(names.iter().all(|name| known.contains(&&name[..])), "{names:?}");
        let db = again(&sim);
        assert_eq!(fixture::files(&sim.env(), ".table") as u64, live_tables(&db));
        assert_eq!(fixture::files(&sim.env(), ".manifest"), 1);
    }
}

/// Opening reads table metadata from the manifest; the first get opens one table.
#[test]
fn open_reads_no_table() {
    let sim = Sim::new(1);
    let db = Db::open(PATH, inline(&sim.env())).unwrap();
    let options = KeyspaceOptions {
        table_bytes: 4 << 10,
        memtable_bytes: 256 << 10,
        ..KeyspaceOptions::default()
    };
    let keyspace = db.keyspace("a", options).unwrap();
    (0..6000).for_each(|index| keyspace.put(key(index * 7919 % 6000), [7; 500]).unwrap());
    keyspace.compact(None, None).unwrap();
    let count = live_tables(&db);
    assert!(count >= 500, "{count} tables");
    drop((keyspace, db));
    let calls = || -> Vec<(String, u64)> {
        sim.sites().into_iter().filter(|(site, _)| site.contains(".table")).collect()
    };
    let before = calls();
    assert!(before.iter().any(|(site, _)| site.starts_with("open")), "{before:?}");
    let db = again(&sim);
    assert_eq!(live_tables(&db), count);
    assert_eq!(calls(), before);
    let keyspace = existing(&db, "a");
    let opened = || calls().iter().find(|(site, _)| site.starts_with("open ")).unwrap().1;
    let opens_before = opened();
    assert!(keyspace.contains(key(3000)).unwrap());
    assert_eq!(opened(), opens_before + 1);
}

/// Story: an idle store took a sixth more disk space than its data. The store kept overwritten
/// entries that were too few for a compaction, their WAL segments, and segments prepared for writes
/// that did not come.
#[test]
fn idle_store_takes_little_more_than_its_data() {
    const KEYS: usize = 120_000;
    let sim = Sim::new(1);
    let options = Options { log_segment_bytes: 64 << 10, ..threaded(&sim.env(), 2) };
    let db = Db::open(PATH, options.clone()).unwrap();
    let keyspace = db.keyspace("a", KeyspaceOptions::default()).unwrap();
    let place = |number: usize| number * 7919 % KEYS;
    let put = |keyspace: &Keyspace, index| fill(keyspace, index..index + 1, 1);
    (0..KEYS).for_each(|number| put(&keyspace, place(number)));
    keyspace.flush().unwrap();
    db.wait_for_compaction().unwrap();
    // Of each twenty keys two are overwritten and one is deleted, in three parts.
    let change = |keyspace: &Keyspace, part: usize| {
        for index in (0..KEYS).map(place).filter(|index| index / 20 % 3 == part) {
            match index % 20 {
                3 | 13 => fill(keyspace, index..index + 1, 2),
                5 => keyspace.delete(key(index)).unwrap(),
                _ => {}
            }
        }
    };
    change(&keyspace, 0);
    keyspace.flush().unwrap();
    db.wait_for_compaction().unwrap();
    change(&keyspace, 1);
    let snapshot = db.snapshot();
    change(&keyspace, 2);
    db.wait_for_compaction().unwrap();
    drop(snapshot);
    let live: usize = all(&keyspace).iter().map(|(key, value)| key.len() + value.len()).sum();
    let taken = || -> u64 {
        let entries = sim.env().files.read_dir(PATH.as_ref()).unwrap();
        entries.iter().map(|entry| entry.len).sum()
    };
    let share = || taken() as f64 / live as f64;
    let before = share();
    // The store checks again after a while by the real clock, or when it is woken, and reads the
    // simulated one.
    let other = db.keyspace("b", None).unwrap();
    for _ in 0..1200 {
        if share() <= 1.12 && db.stats().keyspaces[0].memtable_entries == 0 {
            break;
        }
        sim.advance(Duration::from_secs(10));
        other.flush().unwrap();
        std::thread::park_timeout(Duration::from_millis(50));
    }
    assert!(share() <= 1.12, "{} of {before}", share());
    drop((keyspace, other));
    db.close().unwrap();
    assert!(share() <= 1.12, "{} when closed", share());
    let db = Db::open(PATH, options).unwrap();
    assert_eq!(all(&existing(&db, "a")).len(), KEYS - KEYS / 20);
    db.verify().unwrap();
}
