//! Tests of range tombstones, both whole and cut, which are read while others are added.

use proptest::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering};
use umbel_base::{RangeTombstone, RangeTombstoneRef};
use umbel_memtable::{Memtable, MemtableOptions};
use umbel_sim::Random;

use crate::filter_and_accounting::newest_over;

fn memtable() -> Memtable {
    Memtable::new(&MemtableOptions { capacity_bytes: 1 << 20, bloom_bits: 10 })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn covering_tombstone_equals_a_linear_search(
        ranges in prop::collection::vec((0u8..30, 0u8..30), 1..120),
        cut_at in 0usize..120,
        ask_each in 1usize..40,
    ) {
        let memtable = memtable();
        let mut model = Vec::new();
        prop_assert_eq!(memtable.covering(&[1], u64::MAX), None);
        for (number, (start, end)) in ranges.into_iter().enumerate() {
            let sequence = number as u64 + 1;
            memtable.delete_range(&[start], &[end], sequence);
            model.push(RangeTombstone { start: vec![start], end: vec![end], sequence });
            if number == cut_at {
                let added = model.iter().filter(|t| t.start < t.end).map(RangeTombstoneRef::from);
                prop_assert!(memtable.range_tombstones().eq(added));
                for key in 0..31u8 {
                    let over = |t: &&RangeTombstone| t.start[0] <= key && key < t.end[0];
                    let newest = model.iter().filter(over).map(|t| t.sequence).max();
                    prop_assert_eq!(newest_over(&memtable, &[key], u64::MAX), newest);
                }
            }
            if number % ask_each == 0 {
                for key in 0..31u8 {
                    let at = Random::new(sequence + u64::from(key)).below(sequence + 2);
                    let over = |t: &&RangeTombstone| {
                        t.sequence <= at && t.start[0] <= key && key < t.end[0]
                    };
                    let newest = model.iter().filter(over).map(|t| t.sequence).max();
                    prop_assert_eq!(memtable.covering(&[key], at), newest);
                }
            }
        }
    }
}

#[test]
fn readers_see_published_range_deletes() {
    const DELETES: u64 = 2_000;
    let (memtable, published) = (memtable(), AtomicU64::new(0));
    let start = |number: u64| (Random::new(number).below(5_000) as u16).to_be_bytes();
    let end = |number: u64| (Random::new(number).below(5_000) as u16 + 3).to_be_bytes();
    let read = |seed: u64| {
        let mut random = Random::new(seed);
        loop {
            let newest = published.load(Ordering::Acquire);
            if newest > 0 {
                let number = 1 + random.below(newest);
                let found = memtable.covering(&start(number), u64::MAX);
                assert!(found.is_some_and(|found| found >= number));
                assert_eq!(memtable.covering(&start(number), number), Some(number));
                if newest.is_multiple_of(64) {
                    assert_eq!(newest_over(&memtable, &start(number), number), Some(number));
                }
            }
            if newest == DELETES {
                return;
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1..=DELETES {
                memtable.delete_range(&start(number), &end(number), number);
                published.store(number, Ordering::Release);
            }
        });
        scope.spawn(|| read(1));
        scope.spawn(|| read(2));
    });
}
