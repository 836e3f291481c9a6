//! Tests of keyspaces with hash functions other than the default.

use umbel::{Db, HashKind, Keyspace, KeyspaceOptions};
use umbel_sim::{Sim, Survival};

use crate::suite::fixture::{PATH, again, all, existing, inline, key};

fn options(hash: HashKind) -> KeyspaceOptions {
    KeyspaceOptions {
        hash,
        table_bytes: 64 << 10,
        level_bytes_base: 128 << 10,
        level0_tables: 100,
        ..KeyspaceOptions::default()
    }
}

/// Puts even keys into three levels and a memtable; some keys of each table are deleted later.
fn fill(keyspace: &Keyspace) {
    for round in 0..4 {
        (round * 100..4000).for_each(|index| keyspace.put(key(2 * index), key(index)).unwrap());
        (0..4000).step_by(17 + round).for_each(|index| keyspace.delete(key(2 * index)).unwrap());
        match round {
            0 => keyspace.compact(None, None).unwrap(),
            3 => {}
            _ => keyspace.flush().unwrap(),
        }
    }
}

fn same(a: &Keyspace, b: &Keyspace) {
    assert_eq!(all(a), all(b));
    let keys: Vec<_> = (0..8100).map(key).collect();
    for key in &keys {
        let found = a.get(key).unwrap();
        assert_eq!(found, b.get(key).unwrap());
        assert!(found.is_none() || (a.may_contain(key) && b.may_contain(key)));
    }
    assert_eq!(a.multi_get(&keys).unwrap(), b.multi_get(&keys).unwrap());
}

/// Returns the number of table probes, of rejections by filters, and of searches for absent keys.
fn filter_counts(keyspace: &Keyspace) -> (u64, u64, u64) {
    let levels = keyspace.stats().levels;
    let sum = |count: fn(&umbel::LevelStats) -> u64| levels.iter().map(count).sum();
    (
        sum(|level| level.filter_probes),
        sum(|level| level.filter_true_negatives),
        sum(|level| level.filter_false_positives),
    )
}

#[test]
fn every_hash_kind_reads_and_filters_alike() {
    let sim = Sim::new(1);
    let db = Db::open(PATH, inline(&sim.env())).unwrap();
    let keyed = db.keyspace("keyed", options(HashKind::Keyed)).unwrap();
    let siphash = db.keyspace("siphash", options(HashKind::SipHash13)).unwrap();
    fill(&keyed);
    fill(&siphash);
    same(&keyed, &siphash);
    for keyspace in [&keyed, &siphash] {
        let (probes, negatives, wrong) = filter_counts(keyspace);
        assert!(negatives > 10_000, "{negatives} of {probes}");
        assert!(wrong * 25 < negatives, "{wrong} false positives of {probes}");
    }
    assert!(db.verify().unwrap().damage.is_empty());
    // Unflushed entries come from the WAL, with the hash that the manifest names.
    db.sync().unwrap();
    let crashed = sim.crash_image(&Survival::None, 1);
    drop((keyed, siphash, db));
    let db = again(&crashed);
    let (keyed, siphash) = (existing(&db, "keyed"), existing(&db, "siphash"));
    assert_eq!(siphash.options(), options(HashKind::SipHash13));
    same(&keyed, &siphash);
    siphash.compact(None, None).unwrap();
    same(&keyed, &siphash);
    let (_, negatives, wrong) = filter_counts(&siphash);
    assert!(negatives > 1000 && wrong * 25 < negatives, "{wrong} {negatives}");
}

#[test]
fn keyspace_keeps_its_hash_kind() {
    let sim = Sim::new(1);
    let db = Db::open(PATH, inline(&sim.env())).unwrap();
    let keyspace = db.keyspace("a", options(HashKind::SipHash13)).unwrap();
    keyspace.put(b"key", b"value").unwrap();
    let other = db.keyspace("a", options(HashKind::Keyed)).unwrap_err().to_string();
    assert!(other.contains("was created with the hash siphash-1-3"), "{other}");
    assert_eq!(keyspace.options(), options(HashKind::SipHash13));
    db.keyspace("a", options(HashKind::SipHash13)).unwrap();
    assert_eq!(keyspace.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
    let known = db.keyspace("b", options(HashKind::Xxh64)).unwrap_err().to_string();
    assert!(known.contains("hash is xxh64, but must be keyed or siphash-1-3"), "{known}");
    assert!(db.existing_keyspace("b").unwrap().is_none());
}
