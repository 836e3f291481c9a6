//! `multi_get` and its variants return the results of single gets, for every distribution of keys.

use crate::suite::fixture::{inline, new_store, tiny};
use proptest::prelude::*;
use umbel::{Db, Error, Keyspace, KeyspaceOptions, Snapshot};
use umbel_sim::{Random, Sim};

/// Keys with a common prefix, as long as a head or shorter, that differ after it.
fn key(random: &mut Random, count: usize) -> Vec<u8> {
    let number = random.below_usize(count);
    match random.below_usize(4) {
        0 => format!("k{number}").into_bytes(),
        1 => format!("category-{:02}-{number:05}", number % 7).into_bytes(),
        2 => (number as u64).to_be_bytes().to_vec(),
        _ => [&(number as u64 % 3).to_be_bytes()[..], &[number as u8, 0][..number % 3]].concat(),
    }
}

fn change(random: &mut Random, db: &Db, keyspace: &Keyspace, count: usize) {
    for _ in 0..random.below_usize(200) {
        let name = key(random, count);
        match random.below_usize(40) {
            0 => {
                let end = key(random, count);
                keyspace.delete_range(name.clone().min(end.clone()), name.max(end)).unwrap();
            }
            1..8 => keyspace.delete(name).unwrap(),
            _ => {
                let len = random.below_usize(80);
                keyspace.put(name, random.bytes(len)).unwrap();
            }
        }
    }
    match random.below_usize(6) {
        0 | 1 => keyspace.flush().unwrap(),
        2 => db.wait_for_compaction().unwrap(),
        3 => keyspace.compact(None, None).unwrap(),
        _ => {}
    }
}

fn assert_alike(keyspace: &Keyspace, keys: &[Vec<u8>], at: Option<&Snapshot>) {
    let one = |key: &Vec<u8>| match at {
        Some(at) => keyspace.get_at(at, key).unwrap(),
        None => keyspace.get(key).unwrap(),
    };
    let single: Vec<_> = keys.iter().map(one).collect();
    let mut received = vec![Vec::new(); keys.len()];
    let lend = |index: usize, value: Option<&[u8]>| received[index].push(value.map(<[u8]>::to_vec));
    let together = match at {
        Some(at) => {
            keyspace.multi_get_with_at(at, keys, lend).unwrap();
            keyspace.multi_get_at(at, keys).unwrap()
        }
        None => {
            keyspace.multi_get_with(keys, lend).unwrap();
            keyspace.multi_get(keys).unwrap()
        }
    };
    assert_eq!(together, single);
    let once: Vec<_> = single.iter().map(|value| vec![value.clone()]).collect();
    assert_eq!(received, once);
    for (key, value) in keys.iter().zip(&single) {
        let mut copy = b"before".to_vec();
        let (found, contained) = match at {
            Some(at) => {
                let found = keyspace.get_into_at(at, key, &mut copy).unwrap();
                (found, keyspace.contains_at(at, key).unwrap())
            }
            None => (keyspace.get_into(key, &mut copy).unwrap(), keyspace.contains(key).unwrap()),
        };
        assert_eq!((found, contained), (value.is_some(), value.is_some()));
        assert_eq!(copy, value.clone().unwrap_or_default());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn multi_get_equals_single_gets(
        seed in any::<u64>(),
        count in 1usize..2_000,
        bloom_bits in prop_oneof![Just(-1), Just(1), Just(10), Just(30)],
    ) {
        let mut random = Random::new(seed);
        let (_sim, db) = new_store();
        // Filters of one bit have enough false positives that keys need second and third rounds.
        let options = KeyspaceOptions { bloom_bits, level0_tables: 5, ..tiny() };
        let keyspace = db.keyspace("k", options).unwrap();
        let mut snapshots = Vec::new();
        for _ in 0..8 {
            change(&mut random, &db, &keyspace, count);
            if random.percent(40) {
                snapshots.push(db.snapshot());
            }
            let key_count = random.below_usize(140);
            let mut keys: Vec<_> = (0..key_count).map(|_| key(&mut random, count)).collect();
            keys.extend(keys.first().cloned());
            assert_alike(&keyspace, &keys, None);
            if !snapshots.is_empty() {
                let at = random.below_usize(snapshots.len());
                assert_alike(&keyspace, &keys, Some(&snapshots[at]));
            }
        }
        let (first, last) = (keyspace.first().unwrap(), keyspace.last().unwrap());
        let all: Vec<_> = keyspace.iter().map(Result::unwrap).collect();
        assert_eq!(first.as_ref(), all.first());
        assert_eq!(last.as_ref(), all.last());
        if let Some(at) = snapshots.first() {
            let all: Vec<_> = keyspace.iter_at(at).unwrap().map(Result::unwrap).collect();
            assert_eq!(keyspace.first_at(at).unwrap().as_ref(), all.first());
            assert_eq!(keyspace.last_at(at).unwrap().as_ref(), all.last());
        }
    }
}

#[test]
fn snapshot_of_another_store_is_rejected() {
    let (_sim, db) = new_store();
    let (_other_sim, other) = new_store();
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    let at = other.snapshot();
    let mut value = Vec::new();
    let refused = [
        keyspace.multi_get_with_at(&at, &[b"a"], |_, _| panic!("nothing is read")).err(),
        keyspace.get_with_at(&at, b"a", |_| ()).err(),
        keyspace.get_into_at(&at, b"a", &mut value).err(),
        keyspace.contains_at(&at, b"a").err(),
        keyspace.first_at(&at).err(),
    ];
    assert!(refused.iter().all(|error| matches!(error, Some(Error::Invalid(_)))), "{refused:?}");
}

#[test]
fn multi_get_reports_damage_like_get() {
    let sim = Sim::new(3);
    let db = Db::open("/data/store", inline(&sim.env())).unwrap();
    let keyspace = db.keyspace("k", tiny()).unwrap();
    for number in 0..300u32 {
        keyspace.put(number.to_be_bytes(), [7; 60]).unwrap();
    }
    keyspace.compact(None, None).unwrap();
    drop((keyspace, db));
    let env = sim.env();
    let entries = env.files.read_dir("/data/store".as_ref()).unwrap();
    let table = entries.iter().find(|entry| entry.name.ends_with(".table")).expect("a table");
    let path = std::path::Path::new("/data/store").join(&table.name);
    let file = env.files.open(&path, umbel_env::Access::Read).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes[100] ^= 1;
    sim.replace(&path, &bytes);
    let db = Db::open("/data/store", inline(&env)).unwrap();
    let keyspace = db.existing_keyspace("k").unwrap().expect("the keyspace is there");
    let keys: Vec<_> = (0..300u32).map(u32::to_be_bytes).collect();
    let failed: Vec<_> = keys.iter().filter(|key| keyspace.get(key).is_err()).collect();
    assert!(!failed.is_empty() && failed.len() < 300);
    assert!(matches!(keyspace.multi_get(&keys), Err(Error::Corruption { .. })));
    let readable: Vec<_> = keys.iter().filter(|key| !failed.contains(key)).collect();
    assert!(keyspace.multi_get(&readable).unwrap().iter().all(Option::is_some));
}

#[test]
fn multi_get_counts_cache_hits_like_gets() {
    let (_sim, db) = new_store();
    let keyspace = db.keyspace("k", tiny()).unwrap();
    for number in 0..400u32 {
        keyspace.put(number.to_be_bytes(), [7; 60]).unwrap();
    }
    keyspace.compact(None, None).unwrap();
    let before = db.stats();
    assert_eq!(keyspace.iter().count(), 400);
    let scanned = db.stats();
    assert!(scanned.cache_misses > before.cache_misses);
    assert_eq!(scanned.cache_hits, before.cache_hits);
    let keys: Vec<_> = (0..400u32).map(u32::to_be_bytes).collect();
    for key in &keys {
        assert!(keyspace.contains(key).unwrap());
    }
    assert_eq!(keyspace.multi_get(&keys).unwrap().len(), 400);
    let read = db.stats();
    assert_eq!(read.cache_misses, scanned.cache_misses);
    assert_eq!(read.cache_hits, scanned.cache_hits + 800);
    let of_levels = read.keyspaces[0].levels.iter();
    assert_eq!(of_levels.map(|level| level.table_reads).sum::<u64>(), 800);
    assert_eq!(read.keyspaces[0].gets, 800);
}

/// Story: blocks read inside the callback of a lent value were counted for the outer read as well,
/// which made the counted cache hits too low.
#[test]
fn reads_inside_value_callback_are_counted_once() {
    let (_sim, db) = new_store();
    let keyspace = db.keyspace("k", tiny()).unwrap();
    let keys: Vec<_> = (0..400u32).map(u32::to_be_bytes).collect();
    for key in &keys {
        keyspace.put(key, [7; 60]).unwrap();
    }
    keyspace.compact(None, None).unwrap();
    let before = db.stats();
    let inner = |_: &[u8]| {
        keys[..200].iter().for_each(|key| assert!(keyspace.contains(key).unwrap()));
    };
    keyspace.get_with(keys[0], inner).unwrap().unwrap();
    let nested = db.stats();
    let misses = nested.cache_misses - before.cache_misses;
    assert!(misses > 2);
    assert_eq!(nested.cache_hits - before.cache_hits, 201 - misses);
    // Both in one block; the scan loads other blocks, which no get needed.
    keyspace.multi_get_with(&keys[398..], |_, _| assert_eq!(keyspace.iter().count(), 400)).unwrap();
    let scanned = db.stats();
    assert!(scanned.cache_misses > nested.cache_misses + 2);
    assert_eq!(scanned.cache_hits, nested.cache_hits + 1);
}
