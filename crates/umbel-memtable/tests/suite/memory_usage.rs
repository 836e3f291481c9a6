//! Tests of the memory of memtables: next to nothing while they are empty, and otherwise as much as
//! they report.

use umbel_sim::Random;

use crate::test_keys::{Shape, key};
use umbel_base::ValueKind;
use umbel_memtable::{Memtable, MemtableOptions};

fn memtable() -> Memtable {
    Memtable::new(&MemtableOptions { capacity_bytes: 64 << 20, bloom_bits: 10 })
}

fn fill(memtable: &Memtable, entries: u64) {
    for sequence in 0..entries {
        let key = key(Shape::Random, sequence);
        memtable.insert(&key, sequence, ValueKind::Put, &[1; 100], Random::new(sequence).next());
    }
}

#[test]
fn small_memtables_take_little() {
    let empty = memtable();
    assert!(empty.memory_bytes() < 1024, "{} bytes while empty", empty.memory_bytes());
    assert!(empty.filter().is_none() && !empty.may_contain(1) && empty.is_empty());
    let ten = memtable();
    fill(&ten, 10);
    assert!(ten.memory_bytes() < 6 * 1024, "{} bytes with ten keys", ten.memory_bytes());
}

#[test]
fn allocated_memory_is_near_the_used_memory() {
    let memtable = memtable();
    let mut entries = 0;
    for more in [1, 100, 1_000, 10_000, 40_000] {
        for sequence in entries..entries + more {
            let key = key(Shape::Random, sequence);
            memtable.insert(
                &key,
                sequence,
                ValueKind::Put,
                &[1; 100],
                Random::new(sequence).next(),
            );
        }
        entries += more;
        let (filled, taken) = (memtable.bytes(), memtable.memory_bytes());
        assert!(filled < taken, "{taken} bytes taken for {filled}");
        assert!(taken < filled + filled * 2 / 3 + 8 * 1024, "{taken} bytes taken for {filled}");
    }
}

#[test]
fn range_deletes_count() {
    let memtable = memtable();
    let before = memtable.memory_bytes();
    memtable.delete_range(&[b'a'; 1000], &[b'b'; 1000], 7);
    assert!((2_000..5_000).contains(&(memtable.memory_bytes() - before)));
    assert!(!memtable.is_empty() && memtable.has_tombstones());
}
