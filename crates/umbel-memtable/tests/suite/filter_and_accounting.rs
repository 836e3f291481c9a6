//! Tests of the parts around the tree: filter, range tombstones, memory accounting, large entries.

use std::sync::Arc;
use umbel_base::limits::KEY_BYTES_MAX;
use umbel_base::{Cursor, ValueKind};
use umbel_memtable::{Memtable, MemtableOptions};

fn memtable(bloom_bits: i32) -> Memtable {
    Memtable::new(&MemtableOptions { capacity_bytes: 1 << 20, bloom_bits })
}

#[test]
fn a_filter_says_no_and_its_absence_maybe() {
    for bits in [-1, 0] {
        assert!(memtable(bits).may_contain(1) && memtable(bits).filter().is_none());
    }
    let filtered = memtable(10);
    assert!(!filtered.may_contain(0x1234_5678_9abc_def0));
    filtered.insert(b"key", 1, ValueKind::Put, b"value", 0x1234_5678_9abc_def0);
    assert!(filtered.may_contain(0x1234_5678_9abc_def0));
    assert!(filtered.filter().is_some_and(|filter| filter.keys() == 1));
}

#[test]
fn sampled_entries_are_from_all_parts_of_the_memtable() {
    let memtable = Arc::new(memtable(10));
    let mut cursor = memtable.cursor();
    cursor.seek_to_sample(1);
    assert!(!cursor.valid());
    let entries = 20_000u32;
    for number in 0..entries {
        memtable.insert(&number.to_be_bytes(), 1, ValueKind::Put, b"value", u64::from(number));
    }
    let (samples, mut tenths) = (4000, [0; 10]);
    for sample in 0..samples {
        cursor.seek_to_sample((sample as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        assert!(cursor.valid());
        let number = u32::from_be_bytes(cursor.key().try_into().unwrap());
        tenths[(number * 10 / entries) as usize] += 1;
    }
    let expected = samples / 10;
    assert!(tenths.iter().all(|&count| count > expected / 2 && count < expected * 2), "{tenths:?}");
}

/// Returns the newest tombstone over `key` at `sequence`, found in the fragments.
pub fn newest_over(memtable: &Memtable, key: &[u8], sequence: u64) -> Option<u64> {
    let mut runs = Vec::new();
    memtable.add_fragmented_tombstones(&mut runs, true);
    runs.iter().filter_map(|run| run.covering(key, sequence)).max()
}

#[test]
fn range_tombstones_are_cut_once() {
    let memtable = memtable(10);
    let fragments = || {
        let mut runs = Vec::new();
        memtable.add_fragmented_tombstones(&mut runs, true);
        runs
    };
    assert!(!memtable.has_tombstones() && fragments().is_empty());
    memtable.delete_range(b"m", b"m", 3);
    memtable.delete_range(b"m", b"a", 4);
    assert!(memtable.is_empty());
    memtable.delete_range(b"a", b"m", 5);
    memtable.delete_range(b"c", b"z", 9);
    assert!(memtable.has_tombstones() && !memtable.is_empty() && memtable.bytes() > 0);
    let cut = fragments();
    assert_eq!(cut.len(), 1);
    assert_eq!(cut[0].covering(b"d", 8), Some(5));
    assert_eq!(cut[0].covering(b"d", 9), Some(9));
    assert!(Arc::ptr_eq(&cut[0], &fragments()[0]));
    memtable.delete_range(b"d", b"e", 12);
    assert_eq!(newest_over(&memtable, b"d", 20), Some(12));
    assert_eq!(cut[0].covering(b"d", 20), Some(9));
}

#[test]
fn large_entries_and_empty_ones() {
    let memtable = memtable(-1);
    let (key, value) = (vec![0xffu8; KEY_BYTES_MAX], vec![7u8; 20 << 20]);
    memtable.insert(&key, 1, ValueKind::Put, &value, 0);
    memtable.insert(b"", 2, ValueKind::Put, b"", 0);
    memtable.insert(b"", 3, ValueKind::Delete, b"", 0);
    assert!(memtable.get(&key, 1).is_some_and(|found| found.value == value));
    assert!(memtable.get(&key, 0).is_none());
    assert_eq!(memtable.get(b"", 2).map(|found| found.kind), Some(ValueKind::Put));
    assert_eq!(memtable.get(b"", 9).map(|found| found.kind), Some(ValueKind::Delete));
    assert!(memtable.bytes() > key.len() + value.len());
    assert!(memtable.bytes() < key.len() + value.len() + 10_000);
}

#[test]
fn bytes_stay_near_the_entries_size() {
    let memtable = memtable(10);
    let mut random = umbel_sim::Random::new(1);
    for sequence in 0..50_000u64 {
        let key = crate::test_keys::key(crate::test_keys::Shape::Random, random.next());
        memtable.insert(&key, sequence, ValueKind::Put, &[1; 100], sequence);
    }
    let each = memtable.bytes() / 50_000;
    assert!((116..116 + 64).contains(&each), "an entry of 116 bytes takes {each}");
}

#[test]
fn a_refused_key_leaves_the_memtable_usable() {
    let memtable = memtable(10);
    let key = vec![0u8; KEY_BYTES_MAX + 1];
    let insert = || memtable.insert(&key, 1, ValueKind::Put, b"", 1);
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(insert)).is_err());
    memtable.insert(b"key", 2, ValueKind::Put, b"value", 2);
    assert_eq!(memtable.entries(), 1);
    assert!(memtable.get(b"key", 2).is_some());
}
