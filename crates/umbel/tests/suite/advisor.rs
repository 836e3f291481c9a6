//! The advisor: what it lets go of, what it has built, and that it never costs what it cannot win.

use umbel::{Db, FilterAdvice, Keyspace, KeyspaceOptions};
use umbel_sim::Sim;

use crate::suite::stage::{PATH, inline, key};

/// Keys that lie between those that are there, none twice.
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

/// Searches of tables that did not have the key.
fn false_reads(keyspace: &Keyspace) -> u64 {
    let levels = keyspace.stats().levels;
    levels.iter().map(|level| level.false_reads).sum()
}

fn in_memory(advice: &FilterAdvice) -> u64 {
    advice.levels.iter().map(|level| level.bytes_in_memory).sum()
}

#[test]
fn filters_that_only_hits_reach_are_let_go_of_and_come_back_when_they_are_missed() {
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
    // Everything is still there, and what is not there still is not.
    hits(&keyspace, 0, 2000);
    let seen = false_reads(&keyspace);
    misses(&keyspace, 0, 5000);
    let missed = false_reads(&keyspace) - seen;
    assert!((48..300).contains(&missed), "{missed}");
    let turned = advice(&db);
    assert_eq!((in_memory(&turned), turned.levels[0].kept), (before, "plain"));
    assert!(db.verify().unwrap().damage.is_empty());
}

/// A store whose gets all found something, so that no filter is kept in memory.
fn filters_let_go_of(sim: &Sim) -> (Db, Keyspace) {
    let db = Db::open(PATH, inline(&sim.env())).unwrap();
    let keyspace = db.keyspace("a", small(true)).unwrap();
    fill(&keyspace, 0..40_000);
    keyspace.compact(None, None).unwrap();
    hits(&keyspace, 0, 30_000);
    assert_eq!(in_memory(&advice(&db)), 0);
    (db, keyspace)
}

#[test]
fn whoever_asks_filters_on_their_own_gets_them_back() {
    let sim = Sim::new(1);
    let (db, keyspace) = filters_let_go_of(&sim);
    let passed = (0..10_000).filter(|&index| keyspace.may_contain(absent(index))).count();
    assert!(passed < 300, "{passed}");
    assert!((0..40_000).all(|index| keyspace.may_contain(present(index))));
    assert!(in_memory(&advice(&db)) > 0);
}

#[test]
fn garbage_is_found_although_filters_were_let_go_of() {
    let sim = Sim::new(1);
    let (db, keyspace) = filters_let_go_of(&sim);
    fill(&keyspace, 0..8_000);
    db.wait_for_compaction().unwrap();
    let entries: u64 = keyspace.stats().levels.iter().map(|level| level.entries).sum();
    assert!(entries < 40_000 + 40_000 / 12, "{entries}");
}

#[test]
fn new_tables_get_the_filters_that_save_most_in_the_same_memory() {
    let sims = [Sim::new(1), Sim::new(1)];
    let [with, without] = [true, false].map(|advisor| {
        let db = Db::open(PATH, inline(&sims[usize::from(advisor)].env())).unwrap();
        let keyspace = db.keyspace("a", small(advisor)).unwrap();
        fill(&keyspace, 0..40_000);
        misses(&keyspace, 0, 30_000);
        // Written while it is known what is asked.
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
    let most = without.0.kept_bytes + without.0.kept_bytes / 50;
    assert!(in_memory(&with.0) <= most, "{} of {most}", in_memory(&with.0));
    assert!(with.1 * 2 < without.1, "{} against {}", with.1, without.1);
}

#[test]
fn what_reads_asked_is_known_after_a_reopen() {
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

/// Gets that memtables answer say nothing of the tables that these become.
#[test]
fn a_level_that_nobody_asked_keeps_its_filters() {
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
fn without_the_advisor_or_without_filters_nothing_is_decided() {
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
