//! Tests with the least memory and the fewest files with which a store works, and with crashes.

use std::collections::BTreeMap;

use umbel::{Db, Env, Keyspace, KeyspaceOptions, Options};
use umbel_sim::{Random, Sim, Survival};

use super::fixture::{PATH, existing, inline};

const MEMORY_MIN: u64 = 6 << 20;
const KEYS: usize = 30_000;

fn options(env: &Env) -> Options {
    let (memory_bytes, open_tables_max) = (Some(MEMORY_MIN), Some(4));
    Options { memory_bytes, open_tables_max, ..inline(env) }
}

/// Small blocks and large filters, so that indexes and filters exceed their share.
fn heavy() -> KeyspaceOptions {
    KeyspaceOptions { block_bytes: 128, bloom_bits: 200, ..KeyspaceOptions::default() }
}

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn key(number: usize) -> Vec<u8> {
    let mixed = (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    [mixed.to_be_bytes(), (number as u64).to_be_bytes()].concat()
}

/// Writes to the keyspace, and applies the same writes to the map.
fn change(keyspace: &Keyspace, map: &mut Map, random: &mut Random) {
    let number = random.below_usize(KEYS);
    if random.percent(10) {
        keyspace.delete(key(number)).unwrap();
        map.remove(&key(number));
    } else {
        let len = 40 + random.below_usize(60);
        let value = random.bytes(len);
        keyspace.put(key(number), &value).unwrap();
        map.insert(key(number), value);
    }
}

fn check(keyspace: &Keyspace, map: &Map, random: &mut Random) {
    for _ in 0..300 {
        let wanted = key(random.below_usize(KEYS + KEYS / 10));
        assert_eq!(keyspace.get(&wanted).unwrap().as_ref(), map.get(&wanted));
    }
    let mut cursor = keyspace.cursor::<&[u8]>(..).unwrap();
    cursor.seek_to_first().unwrap();
    for (key, value) in map {
        assert!(cursor.valid());
        assert_eq!((cursor.key(), cursor.value().unwrap()), (&key[..], &value[..]));
        cursor.next().unwrap();
    }
    assert!(!cursor.valid());
}

#[test]
fn store_with_minimum_memory_survives_crashes() {
    let (mut sim, mut map, mut random) = (Sim::new(11), Map::new(), Random::new(11));
    let mut db = Db::open(PATH, options(&sim.env())).unwrap();
    let mut keyspace = db.keyspace("k", heavy()).unwrap();
    let (mut paged, mut omitted, mut reopened) = (0, 0, 0);
    for round in 0..6 {
        let changes = if round == 0 { 2 * KEYS } else { KEYS / 4 };
        (0..changes).for_each(|_| change(&keyspace, &mut map, &mut random));
        let snapshot = db.snapshot();
        let seen = map.clone();
        (0..500).for_each(|_| change(&keyspace, &mut map, &mut random));
        for _ in 0..100 {
            let wanted = key(random.below_usize(KEYS));
            let found = keyspace.get_at(&snapshot, &wanted).unwrap();
            assert_eq!(found.as_ref(), seen.get(&wanted));
        }
        drop(snapshot);
        let stats = db.stats();
        let memory = &stats.memory;
        assert!(memory.held_bytes <= MEMORY_MIN / 10 * 11, "{stats}");
        assert!(stats.descriptors.open_tables <= 4, "{stats}");
        paged += memory.indexes_paged;
        omitted += memory.filters_left_out + memory.filters_folded;
        reopened += stats.descriptors.reopened;
        db.sync().unwrap();
        // The power fails, or the process dies; writes after the sync go to another keyspace.
        let other = db.keyspace("other", KeyspaceOptions::default()).unwrap();
        (0..200).for_each(|number| other.put(key(number), [round; 50]).unwrap());
        let next = match round % 2 {
            0 => sim.crash_image(&Survival::any(u64::from(round), sim.pending_units()), 7),
            _ => sim.kill_image(),
        };
        sim.crash_now();
        drop((keyspace, other, db));
        sim = next;
        db = Db::open(PATH, options(&sim.env())).unwrap();
        keyspace = existing(&db, "k");
        check(&keyspace, &map, &mut random);
    }
    assert!(paged > 0 && omitted > 0 && reopened > 0, "{paged} {omitted} {reopened}");
}
