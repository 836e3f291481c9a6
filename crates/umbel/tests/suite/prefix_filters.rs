//! Tests of prefix filters: a scan of a prefix skips tables without keys of that prefix, and never
//! a table with such a key.

use umbel::{Db, KeyPrefix, Keyspace, KeyspaceOptions};
use umbel_sim::Sim;

use crate::suite::fixture::{PATH, again, all, existing, inline};

fn key(user: usize, item: usize) -> Vec<u8> {
    format!("user-{user:05}/{item:03}").into_bytes()
}

fn options(rule: Option<&str>) -> KeyspaceOptions {
    KeyspaceOptions {
        prefix: rule.map(|rule| rule.parse::<KeyPrefix>().unwrap()),
        level0_tables: 100,
        ..KeyspaceOptions::default()
    }
}

/// Writes eight tables of level 0, all of which range from the first user to the last.
fn fill(keyspace: &Keyspace) {
    for table in 0..8 {
        for user in (0..800).filter(|user| user % 8 == table || *user == 0 || *user == 799) {
            (0..3).for_each(|item| keyspace.put(key(user, item + table), b"value").unwrap());
        }
        keyspace.flush().unwrap();
    }
}

fn scan(keyspace: &Keyspace, user: usize) -> usize {
    let prefix = format!("user-{user:05}/");
    let found = keyspace.prefix(&prefix).map(|entry| entry.unwrap().0);
    let found: Vec<_> = found.collect();
    assert!(found.iter().all(|key| key.starts_with(prefix.as_bytes())) && found.is_sorted());
    let back: Vec<_> = keyspace.prefix(&prefix).rev().map(|entry| entry.unwrap().0).collect();
    assert!(back.iter().rev().eq(found.iter()));
    found.len()
}

#[test]
fn tables_without_the_prefix_are_skipped() {
    let sim = Sim::new(1);
    let db = Db::open(PATH, inline(&sim.env())).unwrap();
    let plain = db.keyspace("plain", options(None)).unwrap();
    let filtered = db.keyspace("filtered", options(Some("until:/"))).unwrap();
    for keyspace in [&plain, &filtered] {
        fill(keyspace);
    }
    assert_eq!(all(&plain), all(&filtered));
    for user in (0..800).step_by(7).chain([799, 800, 5000]) {
        assert_eq!(scan(&plain, user), scan(&filtered, user), "user {user}");
    }
    let stats = filtered.stats();
    assert!(stats.prefix_probes > 1000, "{}", stats.prefix_probes);
    assert!(stats.prefix_negatives * 10 > stats.prefix_probes * 8, "{}", stats.prefix_negatives);
    assert_eq!(plain.stats().prefix_probes, 0);
    // A range within a prefix, one over two of them, and one without a common prefix.
    for (from, to) in [(key(9, 1), key(9, 2)), (key(9, 1), key(10, 2)), (key(0, 0), key(799, 0))] {
        let range = |keyspace: &Keyspace| keyspace.range(from.clone()..=to.clone()).count();
        assert_eq!(range(&plain), range(&filtered));
    }
    assert!(db.verify().unwrap().damage.is_empty());
}

#[test]
fn deletes_and_changed_prefix_rules_are_seen() {
    let sim = Sim::new(1);
    let db = Db::open(PATH, inline(&sim.env())).unwrap();
    let keyspace = db.keyspace("a", options(Some("until:/"))).unwrap();
    fill(&keyspace);
    let there = scan(&keyspace, 16);
    assert_eq!(there, 3);
    // A table with only range tombstones has no prefixes, and hides entries in lower levels.
    keyspace.delete_range(b"user-00016/", b"user-00016/2").unwrap();
    keyspace.flush().unwrap();
    assert_eq!(scan(&keyspace, 16), 0);
    // A single tombstone is stored in a table as a key is.
    keyspace.delete(key(24, 1)).unwrap();
    keyspace.flush().unwrap();
    assert_eq!(scan(&keyspace, 24), 2);
    let keyspace = db.keyspace("a", options(Some("fixed:10"))).unwrap();
    assert_eq!(scan(&keyspace, 32), 3, "tables by the old rule are scanned");
    keyspace.compact(None, None).unwrap();
    assert_eq!((scan(&keyspace, 32), scan(&keyspace, 24), scan(&keyspace, 16)), (3, 2, 0));
    db.close().unwrap();
    let keyspace = existing(&again(&sim), "a");
    assert_eq!(scan(&keyspace, 40), 3);
}
