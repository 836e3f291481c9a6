//! Tests of batches from several threads: their visibility to readers, their conditions, and the
//! number of syncs.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use umbel::{Db, Durability, Error, Keyspace, Snapshot};
use umbel_sim::{Random, Sim};

use crate::suite::fixture::{PATH, again, all, existing, threaded, tiny, unlogged};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// All states of the store, by number.
type States = Mutex<Vec<(Map, Map)>>;

/// Returns the number of a keyspace's state, which each batch writes with its other keys.
fn state_number(value: Option<Vec<u8>>) -> usize {
    value.map_or(0, |value| String::from_utf8(value).unwrap().parse().unwrap())
}

fn random_key(random: &mut Random) -> Vec<u8> {
    format!("key-{:03}", random.below_usize(150)).into_bytes()
}

/// Commits one batch over two keyspaces, and records the resulting state before the commit.
fn write_state(db: &Db, spaces: &[Keyspace; 2], states: &States, random: &mut Random) {
    let mut states_held = states.lock().unwrap();
    let number = states_held.len();
    let (mut first, mut second) = states_held.last().unwrap().clone();
    let mut batch = db.batch();
    for (keyspace, map) in spaces.iter().zip([&mut first, &mut second]) {
        for _ in 0..1 + random.below_usize(6) {
            let key = random_key(random);
            match random.below_usize(8) {
                0 => {
                    let end = random_key(random);
                    batch.delete_range(keyspace, &key, &end);
                    map.retain(|k, _| !(*k >= key && *k < end));
                }
                1 => {
                    batch.delete(keyspace, &key);
                    map.remove(&key);
                }
                _ => {
                    let value = random.bytes(40);
                    batch.put(keyspace, &key, &value);
                    map.insert(key, value);
                }
            }
        }
        let value = number.to_string().into_bytes();
        batch.put(keyspace, b"state", &value);
        map.insert(b"state".to_vec(), value);
    }
    states_held.push((first, second));
    drop(states_held);
    batch.commit(Durability::Buffered).unwrap();
}

/// Reads at a snapshot in several ways; all results must belong to one state.
fn read_snapshot(
    snapshot: &Snapshot,
    spaces: &[Keyspace; 2],
    states: &States,
    random: &mut Random,
) {
    let number = state_number(spaces[0].get_at(snapshot, b"state").unwrap());
    let (first, second) = states.lock().unwrap()[number].clone();
    for (keyspace, map) in spaces.iter().zip([&first, &second]) {
        let key = random_key(random);
        assert_eq!(keyspace.get_at(snapshot, &key).unwrap().as_ref(), map.get(&key));
        let mut iter = keyspace.iter_at(snapshot).unwrap();
        let found: Map = if random.percent(50) {
            iter.map(|entry| entry.unwrap()).collect()
        } else {
            std::iter::from_fn(|| iter.next_back()).map(|entry| entry.unwrap()).collect()
        };
        assert!(found == *map, "a snapshot of state {number} shows another one");
    }
}

/// Reads the present state; an iterator and a `multi_get` show one state throughout.
fn read_present(spaces: &[Keyspace; 2], states: &States, random: &mut Random) {
    let keyspace = &spaces[0];
    let found: Map = keyspace.iter().map(|entry| entry.unwrap()).collect();
    let number = state_number(found.get(&b"state"[..]).cloned());
    assert!(found == states.lock().unwrap()[number].0, "an iterator shows no state there was");
    let keys: Vec<Vec<u8>> =
        (0..8).map(|_| random_key(random)).chain([b"state".to_vec()]).collect();
    let values = keyspace.multi_get(&keys).unwrap();
    let number = state_number(values[8].clone());
    let map = states.lock().unwrap()[number].0.clone();
    for (key, value) in keys.iter().zip(&values) {
        assert_eq!(value.as_ref(), map.get(key), "a multi_get shows no state there was");
    }
    // A get shows a state between the newest before it and the newest after it.
    let before = state_number(keyspace.get(b"state").unwrap());
    let value = keyspace.get(&keys[0]).unwrap();
    let after = state_number(keyspace.get(b"state").unwrap());
    let states = states.lock().unwrap();
    let mut between = states[before..=after].iter();
    assert!(before <= after && between.any(|(map, _)| map.get(&keys[0]) == value.as_ref()));
}

/// Readers concurrent with a writer, flushes and compactions see whole batches only.
#[test]
fn readers_see_whole_batches() {
    for threads in [0, 1, 2] {
        let sim = Sim::new(threads as u64);
        let db = Db::open(PATH, threaded(&sim.env(), threads)).unwrap();
        let second = umbel::KeyspaceOptions { log: threads != 1, ..tiny() };
        let spaces =
            [db.keyspace("first", tiny()).unwrap(), db.keyspace("second", second).unwrap()];
        let states: States = Mutex::new(vec![Default::default()]);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for reader in 0..3 {
                let (db, spaces, states, done) = (&db, &spaces, &states, &done);
                scope.spawn(move || {
                    let mut random = Random::new(reader);
                    let mut held = db.snapshot();
                    while !done.load(Ordering::Relaxed) {
                        if random.percent(50) {
                            held = db.snapshot();
                        }
                        read_snapshot(&held, spaces, states, &mut random);
                        read_present(spaces, states, &mut random);
                    }
                });
            }
            let mut random = Random::new(100);
            for round in 0..1200 {
                write_state(&db, &spaces, &states, &mut random);
                if round % 400 == 399 {
                    spaces[0].compact(None, None).unwrap();
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        let (first, _) = states.lock().unwrap().last().unwrap().clone();
        assert!(all(&spaces[0]).into_iter().eq(first));
    }
}

/// Eight threads that sync every write share their syncs, and every write survives a power loss.
#[test]
fn synced_writes_share_their_syncs() {
    let sim = Sim::new(1);
    let db = Db::open(PATH, threaded(&sim.env(), 2)).unwrap();
    let keyspace = db.keyspace("a", None).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..8 {
            let (db, keyspace) = (&db, &keyspace);
            scope.spawn(move || {
                for index in 0..200 {
                    let mut batch = db.batch();
                    batch.put(keyspace, format!("{writer} {index}"), b"value");
                    batch.commit(Durability::Synced).unwrap();
                }
            });
        }
    });
    let stats = db.stats();
    assert_eq!(stats.commits, 1600);
    assert!(stats.commit_groups <= stats.commits);
    assert!(stats.log_syncs <= stats.commits, "{} syncs", stats.log_syncs);
    let crashed = again(&sim.crash_image(&umbel_sim::Survival::None, 1));
    assert_eq!(all(&existing(&crashed, "a")).len(), 1600);
}

/// On a real disk a sync takes long enough that other writers come meanwhile.
#[test]
fn synced_writes_share_their_syncs_on_the_real_disk() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let db = Db::open(&path, Default::default()).unwrap();
    let keyspace = db.keyspace("a", None).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..8 {
            let (db, keyspace) = (&db, &keyspace);
            scope.spawn(move || {
                for index in 0..12 {
                    let mut batch = db.batch();
                    batch.put(keyspace, format!("{writer} {index}"), b"value");
                    batch.commit(Durability::Synced).unwrap();
                }
            });
        }
    });
    let stats = db.stats();
    assert!(stats.log_syncs < stats.commits, "{} syncs", stats.log_syncs);
    drop((keyspace, db));
    let db = Db::open(&path, Default::default()).unwrap();
    assert_eq!(all(&existing(&db, "a")).len(), 96);
}

/// Increments one key from several threads; no increment is lost.
#[test]
fn conditions_prevent_lost_updates() {
    let sim = Sim::new(1);
    let db = Db::open(PATH, threaded(&sim.env(), 2)).unwrap();
    let counters = db.keyspace("counters", tiny()).unwrap();
    let other = db.keyspace("other", unlogged()).unwrap();
    let conflicts = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for writer in 0..6u64 {
            let (db, counters, other, conflicts) = (&db, &counters, &other, &conflicts);
            scope.spawn(move || {
                let mut random = Random::new(writer);
                for _ in 0..60 {
                    while !count_up(db, counters, other, &mut random) {
                        conflicts.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        // Flushes and compactions in between change nothing.
        for _ in 0..20 {
            counters.flush().unwrap();
            counters.compact(None, None).unwrap();
        }
    });
    assert_eq!(counters.get(b"count").unwrap().unwrap(), b"360");
    assert_eq!(all(&other).len(), 360);
    assert_eq!(all(&other).last().unwrap().0, b"000360");
}

/// Tries once to increment a counter with a condition of one of three kinds. Returns `false` if
/// another thread was faster.
fn count_up(db: &Db, counters: &Keyspace, other: &Keyspace, random: &mut Random) -> bool {
    let snapshot = db.snapshot();
    let seen = counters.get_at(&snapshot, b"count").unwrap();
    let count: u64 = seen.as_ref().map_or(0, |v| std::str::from_utf8(v).unwrap().parse().unwrap());
    let mut batch = db.batch();
    match seen {
        _ if random.percent(50) => batch.expect_unchanged(counters, b"count", &snapshot),
        None => batch.expect_absent(counters, b"count"),
        Some(seen) => batch.expect_value(counters, b"count", &seen),
    }
    let next = count + 1;
    batch.put(counters, b"count", next.to_string());
    batch.put(other, format!("{next:06}"), b"");
    match batch.commit(Durability::Buffered) {
        Ok(()) => true,
        Err(Error::Conflict(_)) => false,
        Err(other) => panic!("{other}"),
    }
}

/// A key that was changed and changed back has its old value, but was written.
#[test]
fn rewritten_equal_value_fails_unchanged_condition() {
    let sim = Sim::new(1);
    let db = Db::open(PATH, threaded(&sim.env(), 0)).unwrap();
    let keyspace = db.keyspace("a", tiny()).unwrap();
    keyspace.put(b"k", b"1").unwrap();
    keyspace.put(b"untouched", b"1").unwrap();
    let writes: [fn(&Keyspace); 4] = [
        |k| k.put(b"k", b"1").unwrap(),
        |k| k.delete(b"k").unwrap(),
        |k| k.delete_range(b"a", b"l").unwrap(),
        |k| k.delete(b"k").unwrap(),
    ];
    for write in writes {
        for settle in [false, true] {
            let snapshot = db.snapshot();
            write(&keyspace);
            if settle {
                keyspace.compact(None, None).unwrap();
            }
            let mut batch = db.batch();
            batch.expect_unchanged(&keyspace, b"k", &snapshot);
            batch.put(&keyspace, b"k", b"2");
            assert!(matches!(batch.commit(Durability::Buffered), Err(Error::Conflict(_))));
            let mut batch = db.batch();
            batch.expect_unchanged(&keyspace, b"untouched", &snapshot);
            batch.commit(Durability::Buffered).unwrap();
        }
    }
}

/// Keys of a batch are hashed some operations ahead. Each key must enter the filter with its own
/// hash, or a get would miss the key.
#[test]
fn get_finds_every_key_of_batches_of_any_length() {
    let sim = Sim::new(1);
    let db = Db::open(PATH, threaded(&sim.env(), 1)).unwrap();
    let spaces =
        [db.keyspace("logged", tiny()).unwrap(), db.keyspace("unlogged", unlogged()).unwrap()];
    let key = |length: usize, number: usize| format!("{length}-{number}-{}", "x".repeat(number));
    for length in 1..=40 {
        let mut batch = db.batch();
        for number in 0..length {
            match number % 5 {
                3 => batch.delete_range(&spaces[0], b"a", b"b"),
                other => batch.put(&spaces[other % 2], key(length, number), [number as u8]),
            }
        }
        batch.commit(Durability::Buffered).unwrap();
        for number in (0..length).filter(|number| number % 5 != 3) {
            let value = spaces[number % 5 % 2].get(key(length, number)).unwrap();
            assert_eq!(value.as_deref(), Some(&[number as u8][..]), "{number} of {length}");
        }
    }
}
