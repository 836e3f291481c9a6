//! Tests of existence filters: which keys they reject, and that they never reject a present key,
//! also after crashes and changes of options.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use umbel::{
    Db, Durability, ExistenceSize, ExistenceStats, HashKind, Keyspace, KeyspaceOptions, Options,
};
use umbel_sim::{Sim, Survival};

use crate::suite::fixture::{
    PATH, again, existing, fill, inline, key, new_store, threaded, tiny, unlogged, value,
};

/// Options with a filter that grows early.
pub fn filtered(options: KeyspaceOptions) -> KeyspaceOptions {
    KeyspaceOptions { existence_filter: ExistenceSize::Growing { first_keys: 50 }, ..options }
}

/// Statistics of the filter.
pub fn filter(keyspace: &Keyspace) -> ExistenceStats {
    keyspace.stats().existence.expect("there is a filter")
}

/// Checks that each kind of lookup finds all keys in `range`.
pub fn has_all(keyspace: &Keyspace, range: std::ops::Range<usize>) {
    let keys: Vec<_> = range.map(key).collect();
    let found = keyspace.multi_get(&keys).unwrap();
    for (key, found) in keys.iter().zip(found) {
        assert!(found.is_some(), "multi_get of {}", key.escape_ascii());
        assert_eq!(keyspace.get(key).unwrap(), found, "{}", key.escape_ascii());
        assert!(keyspace.may_contain(key) && keyspace.contains(key).unwrap());
        assert_eq!(keyspace.get_with(key, <[u8]>::to_vec).unwrap(), found);
    }
}

/// Checks that the filter rejects most of the keys in `range`, which are all absent.
pub fn denies(keyspace: &Keyspace, range: std::ops::Range<usize>) {
    let before = filter(keyspace).denied;
    let count = range.len() as u64;
    for number in range {
        assert_eq!(keyspace.get(key(number)).unwrap(), None);
    }
    let denied = filter(keyspace).denied - before;
    assert!(denied > count * 9 / 10, "{denied} of {count}");
}

#[test]
fn absent_keys_are_rejected_before_table_filters() {
    for hash in [HashKind::Keyed, HashKind::SipHash13] {
        let (_sim, db) = new_store();
        let keyspace = db.keyspace("a", filtered(KeyspaceOptions { hash, ..tiny() })).unwrap();
        fill(&keyspace, 0..800, 1);
        keyspace.delete(key(9000)).unwrap();
        has_all(&keyspace, 0..800);
        let probes = |keyspace: &Keyspace| {
            keyspace.stats().levels.iter().map(|level| level.filter_probes).sum::<u64>()
        };
        let (probed, denied) = (probes(&keyspace), filter(&keyspace).denied);
        denies(&keyspace, 1000..2000);
        denies(&keyspace, 9000..9100);
        let missing: Vec<_> = (2000..3000).map(key).collect();
        assert!(keyspace.multi_get(&missing).unwrap().iter().all(Option::is_none));
        let stats = filter(&keyspace);
        assert!(stats.denied - denied > 1900, "{stats:?}");
        assert!(stats.items >= 790 && stats.measured_rate.unwrap() < 0.1, "{stats:?}");
        assert!(probes(&keyspace) - probed < 2000, "few table filters were probed");
        let gets = keyspace.stats().gets;
        assert_eq!(keyspace.get(key(5000)).unwrap(), None);
        assert_eq!(keyspace.stats().gets, gets + 1, "a denied get is a get");
        assert!(!keyspace.may_contain(key(5000)) || filter(&keyspace).false_positives > 0);
        let text = db.stats().to_string();
        let expected = format!("existence filter (grows): ready, {} keys of ", stats.items);
        assert!(text.contains(&expected), "{text}");
    }
}

#[test]
fn replayed_keys_are_found_after_close_and_kill() {
    let (sim, db) = new_store();
    let keyspace = db.keyspace("a", filtered(tiny())).unwrap();
    fill(&keyspace, 0..100, 1);
    keyspace.flush().unwrap();
    fill(&keyspace, 100..130, 1);
    db.sync().unwrap();
    for image in [sim.kill_image(), sim.crash_image(&Survival::None, 3)] {
        let db = again(&image);
        has_all(&existing(&db, "a"), 0..130);
        denies(&existing(&db, "a"), 1000..1300);
        let lost = filter(&existing(&db, "a")).lost;
        assert_eq!(lost, None, "replay of the WAL needs no rebuild");
        db.close().unwrap();
        let db = again(&image);
        has_all(&existing(&db, "a"), 0..130);
        assert_eq!(filter(&existing(&db, "a")).lost, None);
    }
}

#[test]
fn filter_added_later_covers_memtables_tables_and_snapshots() {
    let (sim, db) = new_store();
    let keyspace = db.keyspace("a", tiny()).unwrap();
    fill(&keyspace, 0..300, 1);
    keyspace.compact(None, None).unwrap();
    fill(&keyspace, 300..310, 1);
    let snapshot = db.snapshot();
    keyspace.delete_range(key(0), key(5)).unwrap();
    keyspace.delete(key(305)).unwrap();
    keyspace.flush().unwrap();
    fill(&keyspace, 310..320, 1);
    db.keyspace("a", filtered(tiny())).unwrap();
    has_all(&keyspace, 5..305);
    has_all(&keyspace, 306..320);
    for number in (0..5).chain([305]) {
        let found = keyspace.get_at(&snapshot, key(number)).unwrap();
        assert_eq!(found, Some(value(number, 1)), "key {number} in the snapshot");
        assert_eq!(keyspace.get(key(number)).unwrap(), None);
    }
    denies(&keyspace, 1000..1300);
    let crashed = again(&sim.kill_image());
    assert_eq!(existing(&crashed, "a").options(), filtered(tiny()), "it is kept");
    has_all(&existing(&crashed, "a"), 306..320);
}

#[test]
fn disabled_filter_is_not_trusted_when_reenabled() {
    let (sim, db) = new_store();
    let large = KeyspaceOptions { memtable_bytes: 1 << 20, ..tiny() };
    let keyspace = db.keyspace("a", filtered(large.clone())).unwrap();
    fill(&keyspace, 0..60, 1);
    keyspace.flush().unwrap();
    db.keyspace("a", large.clone()).unwrap();
    assert!(keyspace.stats().existence.is_none());
    let folder = std::path::Path::new(PATH).join("000000.existence");
    assert_eq!(sim.env().files.read_dir(&folder).unwrap().len(), 0, "its files are removed");
    fill(&keyspace, 60..90, 1);
    db.keyspace("a", filtered(large.clone())).unwrap();
    has_all(&keyspace, 0..90);
    let crashed = again(&sim.kill_image());
    has_all(&existing(&crashed, "a"), 0..90);
    // The same while the store is closed in between.
    db.keyspace("a", large.clone()).unwrap();
    fill(&keyspace, 90..95, 1);
    drop((keyspace, db));
    let db = again(&sim);
    let keyspace = db.keyspace("a", filtered(large)).unwrap();
    has_all(&keyspace, 0..95);
    denies(&keyspace, 1000..1300);
}

#[test]
fn changed_size_rebuilds_at_once_and_after_reopen() {
    let (sim, db) = new_store();
    let sized =
        |bytes| KeyspaceOptions { existence_filter: ExistenceSize::Fixed { bytes }, ..tiny() };
    let keyspace = db.keyspace("a", sized(4096)).unwrap();
    fill(&keyspace, 0..200, 1);
    for (round, options) in [sized(8192), filtered(tiny()), sized(4096)].into_iter().enumerate() {
        db.keyspace("a", options.clone()).unwrap();
        let next = 200 + round * 10;
        fill(&keyspace, next..next + 10, 1);
        has_all(&keyspace, 0..next + 10);
        for image in [sim.kill_image(), sim.crash_image(&Survival::All, 1)] {
            let db = again(&image);
            has_all(&existing(&db, "a"), 0..next + 10);
            assert_eq!(existing(&db, "a").options(), options);
        }
    }
    assert_eq!(filter(&keyspace).memory_bytes, 4096);
}

#[test]
fn recreated_keyspace_has_its_own_filter() {
    let (sim, db) = new_store();
    for round in 0..3 {
        let keyspace = db.keyspace("a", filtered(tiny())).unwrap();
        fill(&keyspace, round * 50..round * 50 + 100, round);
        has_all(&keyspace, round * 50..round * 50 + 100);
        assert_eq!(keyspace.get(key(5000)).unwrap(), None);
        db.drop_keyspace("a").unwrap();
    }
    let folders = sim.env().files.read_dir(PATH.as_ref()).unwrap();
    for entry in folders.iter().filter(|entry| entry.name.ends_with(".existence")) {
        let folder = std::path::Path::new(PATH).join(&entry.name);
        assert!(sim.env().files.read_dir(&folder).unwrap().is_empty(), "{}", entry.name);
    }
    db.keyspace("a", filtered(tiny())).unwrap();
    fill(&existing(&db, "a"), 0..10, 9);
    has_all(&existing(&again(&sim.kill_image()), "a"), 0..10);
}

/// Sequence numbers of writes that a crash loses are assigned again. A filter that claimed to cover
/// these numbers would lack the new keys.
#[test]
fn unlogged_keys_put_again_after_crash_are_found() {
    let (sim, db) = new_store();
    let keyspace = db.keyspace("n", filtered(unlogged())).unwrap();
    fill(&keyspace, 0..40, 1);
    keyspace.flush().unwrap();
    drop((keyspace, db));
    let mut machine = sim;
    for round in 1..6 {
        let db = again(&machine);
        let keyspace = existing(&db, "n");
        fill(&keyspace, 1000 * round..1000 * round + 30, 1);
        // Writes lost at the power failure, and writes that had the same numbers before it.
        machine = match round % 2 {
            0 => machine.crash_image(&Survival::All, round as u64),
            _ => machine.kill_image(),
        };
        let lost = again(&machine);
        assert_eq!(existing(&lost, "n").get(key(1000 * round)).unwrap(), None);
        fill(&existing(&lost, "n"), 100 * round..100 * round + 35, 1);
        existing(&lost, "n").flush().unwrap();
        machine = machine.crash_image(&Survival::None, round as u64);
        let kept = again(&machine);
        has_all(&existing(&kept, "n"), 0..40);
        (1..=round).for_each(|r| has_all(&existing(&kept, "n"), 100 * r..100 * r + 35));
    }
}

#[test]
fn read_only_and_copied_stores_find_every_key() {
    let (sim, db) = new_store();
    let keyspace = db.keyspace("a", filtered(tiny())).unwrap();
    fill(&keyspace, 0..150, 1);
    db.checkpoint("/data/copy").unwrap();
    drop((keyspace, db));
    let files = sim.files();
    let db = Db::open_read_only(PATH, inline(&sim.env())).unwrap();
    has_all(&existing(&db, "a"), 0..150);
    let keyspace_stats = existing(&db, "a").stats();
    let stats = keyspace_stats.existence.clone().expect("stats from its files");
    assert!(!keyspace_stats.existence_is_probed && stats.items >= 145, "{stats:?}");
    assert_eq!((stats.state(), stats.denied, stats.lost), ("ready", 0, None));
    let text = keyspace_stats.to_string();
    assert!(text.contains("(grows): ready, as its files say, "), "{text}");
    drop(db);
    assert_eq!(sim.files(), files, "no file was created or removed");
    let copy = Db::open("/data/copy", inline(&sim.env())).unwrap();
    has_all(&existing(&copy, "a"), 0..150);
    denies(&existing(&copy, "a"), 1000..1300);
}

#[test]
fn conditions_are_checked_with_existence_filter() {
    let (_sim, db) = new_store();
    let keyspace = db.keyspace("a", filtered(tiny())).unwrap();
    for number in 0..50 {
        let mut batch = db.batch();
        batch.expect_absent(&keyspace, key(number));
        batch.put(&keyspace, key(number), b"x");
        batch.commit(Durability::Buffered).unwrap();
        let mut batch = db.batch();
        batch.expect_absent(&keyspace, key(number));
        batch.put(&keyspace, key(number), b"y");
        assert!(batch.commit(Durability::Buffered).is_err(), "key {number} is there");
    }
}

#[test]
fn acknowledged_keys_are_found_while_filter_grows() {
    let sim = Sim::new(1);
    let options = Options { write_buffer_total_bytes: Some(64 << 10), ..threaded(&sim.env(), 2) };
    let db = Db::open(PATH, options).unwrap();
    let keyspace = db.keyspace("a", filtered(tiny())).unwrap();
    let (written, done) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..6000 {
                keyspace.put(key(number), value(number, 1)).unwrap();
                written.store(number + 1, Ordering::Release);
            }
            done.store(true, Ordering::Release);
        });
        scope.spawn(|| {
            let mut sizes = [filtered(tiny()), tiny()].into_iter().cycle();
            while !done.load(Ordering::Acquire) {
                db.keyspace("a", sizes.next().unwrap()).unwrap();
                std::thread::yield_now();
            }
        });
        scope.spawn(|| {
            let mut at = 0;
            while !done.load(Ordering::Acquire) {
                let end = written.load(Ordering::Acquire);
                if end > 0 {
                    at = (at + 7919) % end;
                    has_all(&keyspace, end - 1..end);
                    has_all(&keyspace, at..at + 1);
                }
            }
        });
    });
    db.keyspace("a", filtered(tiny())).unwrap();
    has_all(&keyspace, 0..6000);
    drop((keyspace, db));
    has_all(&existing(&again(&sim), "a"), 0..6000);
}

/// Story: a multi-get loaded the filter again for each group of keys. A filter rebuilt meanwhile
/// without a deleted key rejected that key, although the state being read has it.
#[test]
fn multi_get_sees_one_state_during_filter_rebuild() {
    let (_sim, db) = new_store();
    let keyspace = db.keyspace("a", filtered(tiny())).unwrap();
    fill(&keyspace, 0..40, 1);
    let keys: Vec<_> = (0..40).map(key).collect();
    let grown = filter(&keyspace).growths;
    let mut found = [false; 40];
    let mut is_first = true;
    let result = keyspace.multi_get_with(&keys, |place, value| {
        found[place] = value.is_some();
        if std::mem::take(&mut is_first) {
            (0..40).for_each(|number| keyspace.delete(key(number)).unwrap());
            keyspace.compact(None, None).unwrap();
            fill(&keyspace, 1000..3000, 1);
            keyspace.compact(None, None).unwrap();
        }
    });
    result.unwrap();
    assert!(filter(&keyspace).growths > grown, "it was rebuilt concurrently");
    assert_eq!(found, [true; 40]);
    denies(&keyspace, 4000..4100);
}
