//! Tests of the advisor: which filters it releases and builds, and that it never costs more than it
//! can save.

use umbel::{Db, FilterAdvice, Keyspace, KeyspaceOptions};
use umbel_sim::Sim;

use crate::suite::fixture::{PATH, inline, key};

/// Returns an absent key between two present ones, another one for each `index`.
fn absent(index: usize) -> Vec<u8> {
    [key(index / 4 * 10), vec![b'~', (index % 4) as u8]].concat()
}

fn present(index: usize) -> Vec<u8> {
    key(index * 10)
}

fn small(advisor: bool) -> KeyspaceOptions {
    KeyspaceOptions {
        advisor,
        memtable_bytes: 256 << 10,
        table_bytes: 16 << 20,
        level_bytes_base: 1 << 20,
        level_ratio: 4,
        ..KeyspaceOptions::default()
    }
}

fn fill(keyspace: &Keyspace, keys: std::ops::Range<usize>) {
    keys.for_each(|index| keyspace.put(present(index * 7919 % 40_000), [7; 100]).unwrap());
}

fn misses(keyspace: &Keyspace, from: usize, count: usize) {
    (from..from + count).for_each(|index| {
        assert!(!keyspace.contains(absent(index * 31 % 160_000)).unwrap());
    });
}

fn hits(keyspace: &Keyspace, from: usize, count: usize) {
    (from..from + count).for_each(|index| {
        assert!(keyspace.contains(present(index * 17 % 40_000)).unwrap());
    });
}

fn advice(db: &Db) -> FilterAdvice {
    db.advice().remove(0)
}

/// Returns the number of searches of tables for absent keys.
fn false_reads(keyspace: &Keyspace) -> u64 {
    let levels = keyspace.stats().levels;
    levels.iter().map(|level| level.false_reads).sum()
}

fn in_memory(advice: &FilterAdvice) -> u64 {
    advice.levels.iter().map(|level| level.bytes_in_memory).sum()
}

#[test]
fn filters_with_hits_only_are_evicted_and_return_on_misses() {
    let sim = Sim::new(1);
    let db = Db::open(PATH, inline(&sim.env())).unwrap();
    let keyspace = db.keyspace("a", small(true)).unwrap();
    fill(&keyspace, 0..40_000);
    keyspace.compact(None, None).unwrap();
    let before = in_memory(&advice(&db));
    assert!(before >= 40_000 * 10 / 8, "{before}");
    hits(&keyspace, 0, 30_000);
    let after = advice(&db);
    assert_eq!(in_memory(&after), 0, "{after:?}");
    assert_eq!(after.levels[0].kept, "nothing");
    assert!(after.levels[0].why.contains("next to nothing"), "{}", after.levels[0].why);
    // All present keys are found, and absent keys are not.
    hits(&keyspace, 0, 2000);
    let seen = false_reads(&keyspace);
    misses(&keyspace, 0, 5000);
    let missed = false_reads(&keyspace) - seen;
    assert!((48..300).contains(&missed), "{missed}");
    let turned = advice(&db);
    assert_eq!((in_memory(&turned), turned.levels[0].kept), (before, "plain"));
    assert!(db.verify().unwrap().damage.is_empty());
}

/// Returns a store in which all gets were hits, so that no filter is kept in memory.
fn store_with_evicted_filters(sim: &Sim) -> (Db, Keyspace) {
    let db = Db::open(PATH, inline(&sim.env())).unwrap();
    let keyspace = db.keyspace("a", small(true)).unwrap();
    fill(&keyspace, 0..40_000);
    keyspace.compact(None, None).unwrap();
    hits(&keyspace, 0, 30_000);
    assert_eq!(in_memory(&advice(&db)), 0);
    (db, keyspace)
}

#[test]
fn direct_filter_probes_restore_evicted_filters() {
    let sim = Sim::new(1);
    let (db, keyspace) = store_with_evicted_filters(&sim);
    let passed = (0..10_000).filter(|&index| keyspace.may_contain(absent(index))).count();
    assert!(passed < 300, "{passed}");
    assert!((0..40_000).all(|index| keyspace.may_contain(present(index))));
    assert!(in_memory(&advice(&db)) > 0);
}

#[test]
fn garbage_is_found_without_evicted_filters() {
    let sim = Sim::new(1);
    let (db, keyspace) = store_with_evicted_filters(&sim);
    fill(&keyspace, 0..8_000);
    db.wait_for_compaction().unwrap();
    let entries: u64 = keyspace.stats().levels.iter().map(|level| level.entries).sum();
    assert!(entries < 40_000 + 40_000 / 12, "{entries}");
}

#[test]
fn new_tables_get_filters_that_save_most() {
    let sims = [Sim::new(1), Sim::new(1)];
    let [with, without] = [true, false].map(|advisor| {
        let db = Db::open(PATH, inline(&sims[usize::from(advisor)].env())).unwrap();
        let keyspace = db.keyspace("a", small(advisor)).unwrap();
        fill(&keyspace, 0..40_000);
        misses(&keyspace, 0, 30_000);
        // Written after the reads are known.
        keyspace.compact(None, None).unwrap();
        for part in 0..3 {
            fill(&keyspace, part * 1000..part * 1000 + 1000);
            keyspace.flush().unwrap();
        }
        misses(&keyspace, 30_000, 12_000);
        let advice = advice(&db);
        assert_eq!(advice.is_on, advisor);
        let seen = false_reads(&keyspace);
        misses(&keyspace, 42_000, 100_000);
        hits(&keyspace, 0, 5000);
        assert!(db.verify().unwrap().damage.is_empty());
        (advice, false_reads(&keyspace) - seen)
    });
    assert_eq!(with.0.levels.len(), without.0.levels.len());
    let second = with.0.levels.iter().filter(|level| level.kept == "second").count();
    assert!(second > 0, "{:?}", with.0);
    assert!(without.0.levels.iter().all(|level| level.kept == "plain" && level.second.is_none()));
    let limit = without.0.kept_bytes + without.0.kept_bytes / 50;
    assert!(in_memory(&with.0) <= limit, "{} of {limit}", in_memory(&with.0));
    assert!(with.1 * 2 < without.1, "{} against {}", with.1, without.1);
}

#[test]
fn probe_statistics_survive_reopen() {
    let sim = Sim::new(1);
    let db = Db::open(PATH, inline(&sim.env())).unwrap();
    let keyspace = db.keyspace("a", small(true)).unwrap();
    fill(&keyspace, 0..40_000);
    keyspace.compact(None, None).unwrap();
    hits(&keyspace, 0, 30_000);
    let before = advice(&db);
    drop(keyspace);
    db.close().unwrap();
    let db = Db::open(PATH, inline(&sim.env())).unwrap();
    let after = advice(&db);
    assert!((after.gets - before.gets).abs() <= 1.0, "{} {}", after.gets, before.gets);
    assert_eq!(after.levels[0].kept, "nothing");
    hits(&db.existing_keyspace("a").unwrap().unwrap(), 0, 2000);
    assert_eq!(in_memory(&advice(&db)), 0);
}

/// Gets that found their key in a memtable say nothing about the table that the memtable becomes.
#[test]
fn unprobed_level_keeps_its_filters() {
    let sim = Sim::new(1);
    let db = Db::open(PATH, inline(&sim.env())).unwrap();
    let options = KeyspaceOptions { memtable_bytes: 64 << 20, ..small(true) };
    let keyspace = db.keyspace("a", options).unwrap();
    fill(&keyspace, 0..40_000);
    hits(&keyspace, 0, 30_000);
    drop(keyspace);
    db.close().unwrap();
    let db = Db::open(PATH, inline(&sim.env())).unwrap();
    let keyspace = db.existing_keyspace("a").unwrap().unwrap();
    keyspace.flush().unwrap();
    misses(&keyspace, 0, 100);
    let advice = advice(&db);
    assert!(advice.gets > 8192.0 && advice.levels.iter().all(|level| level.kept == "plain"));
    assert!(false_reads(&keyspace) < 20);
}

#[test]
fn no_decisions_without_advisor_or_filters() {
    for (advisor, bloom_bits) in [(false, 10), (true, -1)] {
        let sim = Sim::new(1);
        let db = Db::open(PATH, inline(&sim.env())).unwrap();
        let options = KeyspaceOptions { bloom_bits, ..small(advisor) };
        let keyspace = db.keyspace("a", options).unwrap();
        fill(&keyspace, 0..20_000);
        misses(&keyspace, 0, 20_000);
        fill(&keyspace, 20_000..40_000);
        keyspace.compact(None, None).unwrap();
        hits(&keyspace, 0, 20_000);
        let advice = advice(&db);
        let kept = if bloom_bits > 0 { "plain" } else { "none there" };
        assert!(!advice.is_on && advice.levels.iter().all(|level| level.kept == kept));
        assert!(advice.levels.iter().all(|level| level.second.is_none() && level.best.is_none()));
        assert_eq!(in_memory(&advice) > 0, bloom_bits > 0);
    }
}
