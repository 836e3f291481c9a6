//! Tests of readers and cursors concurrent with one writer: every published entry is found, in
//! order.

use umbel_sim::Random;

use crate::test_keys::{Shape, key};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use umbel_base::{Cursor, ValueKind, cmp_internal};
use umbel_memtable::{Memtable, MemtableOptions};

const ENTRIES: u64 = 30_000;

/// Returns the key for a sequence number; some keys repeat.
fn key_of(shape: Shape, sequence: u64) -> Vec<u8> {
    match shape {
        Shape::Ascending => key(shape, sequence),
        _ => key(shape, Random::new(sequence).below(ENTRIES / 2)),
    }
}

fn value_of(sequence: u64) -> [u8; 8] {
    sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()
}

/// Reads published keys of any shape at any moment.
fn read(memtable: &Memtable, published: &AtomicU64, shape: Shape, seed: u64) {
    let mut random = Random::new(seed);
    loop {
        let newest = published.load(Ordering::Acquire);
        for _ in 0..50 {
            // The newest entries are where the writer is.
            let back = random.below(64).min(newest - 1);
            let sequence = [newest - back, 1 + random.below(newest)][random.below(2) as usize];
            let key = key_of(shape, sequence);
            let found = memtable.get(&key, sequence).expect("a published entry is found");
            assert_eq!(found.sequence, sequence);
            assert_eq!(found.value, value_of(sequence));
            assert!(memtable.may_contain(sequence));
            let latest = memtable.get(&key, u64::MAX).expect("so is its newest version");
            assert!(latest.sequence >= sequence);
        }
        if newest == ENTRIES {
            return;
        }
    }
}

/// Scans all entries forward or backward, and checks that the scan meets all entries that were
/// published when it began.
fn walk(memtable: &Arc<Memtable>, published: &AtomicU64, forwards: bool) {
    let mut cursor = memtable.cursor();
    loop {
        let newest = published.load(Ordering::Acquire);
        let mut met = 0;
        let mut last: Option<(Vec<u8>, u64)> = None;
        if forwards { cursor.seek_to_first() } else { cursor.seek_to_last() }.unwrap();
        while cursor.valid() {
            let here = (cursor.key().to_vec(), cursor.sequence());
            assert_eq!(cursor.value(), value_of(here.1));
            if let Some(last) = last {
                let order = cmp_internal(&last.0, last.1, &here.0, here.1);
                assert_eq!(order.is_lt(), forwards);
            }
            met += u64::from(here.1 <= newest);
            last = Some(here);
            if forwards { cursor.next() } else { cursor.prev() }.unwrap();
        }
        assert_eq!(met, newest);
        if newest == ENTRIES {
            return;
        }
    }
}

/// Moves a cursor forward and backward around published entries.
fn dither(memtable: &Arc<Memtable>, published: &AtomicU64, shape: Shape) {
    let mut random = Random::new(99);
    let mut cursor = memtable.cursor();
    loop {
        let newest = published.load(Ordering::Acquire);
        let sequence = 1 + random.below(newest);
        let key = key_of(shape, sequence);
        cursor.seek(&key, sequence).unwrap();
        assert_eq!((cursor.key(), cursor.sequence()), (&key[..], sequence));
        cursor.next().unwrap();
        if cursor.valid() {
            // Entries inserted meanwhile may lie between.
            while (cursor.key(), cursor.sequence()) != (&key[..], sequence) {
                assert!(cmp_internal(&key, sequence, cursor.key(), cursor.sequence()).is_lt());
                cursor.prev().unwrap();
            }
        }
        cursor.seek_before(&key).unwrap();
        assert!(!cursor.valid() || cursor.key() < &key[..]);
        if newest == ENTRIES {
            return;
        }
    }
}

fn run(shape: Shape) {
    let options = MemtableOptions { capacity_bytes: 4 << 20, bloom_bits: 10 };
    let memtable = Arc::new(Memtable::new(&options));
    let published = AtomicU64::new(1);
    let put = |sequence: u64| {
        let key = key_of(shape, sequence);
        memtable.insert(&key, sequence, ValueKind::Put, &value_of(sequence), sequence);
        published.store(sequence, Ordering::Release);
    };
    put(1);
    std::thread::scope(|scope| {
        scope.spawn(|| (2..=ENTRIES).for_each(put));
        scope.spawn(|| read(&memtable, &published, shape, 7));
        scope.spawn(|| walk(&memtable, &published, true));
        scope.spawn(|| walk(&memtable, &published, false));
        scope.spawn(|| dither(&memtable, &published, shape));
    });
}

#[test]
fn random_keys() {
    run(Shape::Random);
}

#[test]
fn ascending_keys() {
    run(Shape::Ascending);
}

#[test]
fn keys_with_common_prefixes() {
    run(Shape::Url);
}

#[test]
fn a_few_hot_keys() {
    run(Shape::Hot);
}

#[test]
fn writers_wait_for_one_another() {
    let options = MemtableOptions { capacity_bytes: 4 << 20, bloom_bits: 10 };
    let memtable = Memtable::new(&options);
    let insert = |sequence: u64| {
        let key = key(Shape::CategoryId, sequence);
        memtable.insert(&key, sequence, ValueKind::Put, b"", sequence);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| (0..5_000).for_each(|n| insert(2 * n)));
        scope.spawn(|| (0..5_000).for_each(|n| insert(2 * n + 1)));
    });
    assert_eq!(memtable.entries(), 10_000);
    for sequence in 0..10_000 {
        let found = memtable.get(&key(Shape::CategoryId, sequence), sequence);
        assert!(found.is_some_and(|found| found.sequence == sequence));
    }
}
