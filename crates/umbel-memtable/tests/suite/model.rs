//! Compares the memtable with `BTreeMap`, for every key shape, forward and backward.

use umbel_sim::Random;

use crate::test_keys::{SHAPES, Shape, key};
use proptest::prelude::*;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use umbel_base::{Cursor, ValueKind};
use umbel_memtable::{Memtable, MemtableCursor, MemtableOptions};

type Version = (Vec<u8>, Reverse<u64>);

/// A memtable and its expected content.
struct Pair {
    memtable: Arc<Memtable>,
    model: BTreeMap<Version, (ValueKind, Vec<u8>)>,
    sequence: u64,
}

/// Returns the current entry of a cursor.
fn at(cursor: &MemtableCursor) -> Option<(Version, (ValueKind, Vec<u8>))> {
    cursor.valid().then(|| {
        let version = (cursor.key().to_vec(), Reverse(cursor.sequence()));
        (version, (cursor.kind(), cursor.value().to_vec()))
    })
}

fn owned<'a>(
    entry: Option<(&'a Version, &'a (ValueKind, Vec<u8>))>,
) -> Option<(Version, (ValueKind, Vec<u8>))> {
    entry.map(|(version, rest)| (version.clone(), rest.clone()))
}

impl Pair {
    fn new() -> Pair {
        let options = MemtableOptions { capacity_bytes: 1 << 20, bloom_bits: 10 };
        let memtable = Arc::new(Memtable::new(&options));
        Pair { memtable, model: BTreeMap::new(), sequence: 0 }
    }

    fn insert(&mut self, key: Vec<u8>, random: u64) {
        self.sequence += 1 + random % 2;
        let kind = if random.is_multiple_of(8) { ValueKind::Delete } else { ValueKind::Put };
        let len = if kind == ValueKind::Put { random / 8 % 40 } else { 0 };
        let value = vec![random as u8; len as usize];
        self.memtable.insert(&key, self.sequence, kind, &value, random);
        assert!(self.memtable.may_contain(random));
        self.model.insert((key, Reverse(self.sequence)), (kind, value));
    }

    fn check_get(&self, key: &[u8], sequence: u64) {
        let next = self.model.range((key.to_vec(), Reverse(sequence))..).next();
        let expected = next.filter(|((found, _), _)| found == key);
        let found = self.memtable.get(key, sequence);
        let found = found.map(|f| (f.sequence, f.kind, f.value.to_vec()));
        let expected = expected.map(|((_, seq), (kind, value))| (seq.0, *kind, value.clone()));
        assert_eq!(found, expected);
    }

    /// Checks that forward and backward scans find every entry.
    fn check_scans(&self) {
        let mut cursor = self.memtable.cursor();
        assert!(!cursor.valid());
        cursor.seek_to_first().unwrap();
        for entry in &self.model {
            assert_eq!(at(&cursor), owned(Some(entry)));
            cursor.next().unwrap();
        }
        assert!(!cursor.valid());
        cursor.seek_to_last().unwrap();
        for entry in self.model.iter().rev() {
            assert_eq!(at(&cursor), owned(Some(entry)));
            cursor.prev().unwrap();
        }
        assert!(!cursor.valid());
        assert_eq!(self.memtable.entries(), self.model.len() as u64);
    }

    /// Moves a cursor once and checks the result; the cursor was possibly positioned before later
    /// inserts.
    fn check_move(&self, cursor: &mut MemtableCursor, choice: u64, key: Vec<u8>, sequence: u64) {
        let here = at(cursor).map(|(version, _)| version);
        let expected = match (choice % 8, here) {
            (0..=2, Some(here)) => {
                cursor.next().unwrap();
                self.model
                    .range((std::ops::Bound::Excluded(here), std::ops::Bound::Unbounded))
                    .next()
            }
            (3..=5, Some(here)) => {
                cursor.prev().unwrap();
                self.model.range(..here).next_back()
            }
            (0 | 1 | 6, _) => {
                cursor.seek(&key, sequence).unwrap();
                self.model.range((key, Reverse(sequence))..).next()
            }
            (2 | 7, _) => {
                cursor.seek_before(&key).unwrap();
                self.model.range(..(key, Reverse(u64::MAX))).next_back()
            }
            (3, _) => {
                cursor.seek_to_first().unwrap();
                self.model.iter().next()
            }
            _ => {
                cursor.seek_to_last().unwrap();
                self.model.iter().next_back()
            }
        };
        assert_eq!(at(cursor), owned(expected));
    }
}

/// Inserts and reads alternately, with cursors that stay open across inserts.
fn run(shape: Shape, seed: u64, steps: u64, numbers: u64) {
    let mut random = Random::new(seed);
    let mut pair = Pair::new();
    let mut cursors: Vec<MemtableCursor> = (0..3).map(|_| pair.memtable.cursor()).collect();
    for step in 0..steps {
        let in_order = matches!(shape, Shape::Ascending | Shape::Descending);
        let number = if in_order { step } else { random.below(numbers) };
        pair.insert(key(shape, number), random.next());
        let which = key(shape, random.below(numbers.max(step)));
        let sequence = [u64::MAX, random.below(pair.sequence + 2)][random.below(2) as usize];
        pair.check_get(&which, sequence);
        for cursor in &mut cursors {
            if random.below(2) == 0 {
                pair.check_move(cursor, random.next(), which.clone(), sequence);
            }
        }
    }
    pair.check_scans();
}

#[test]
fn long_runs_over_every_key_shape() {
    for (seed, shape) in SHAPES.into_iter().enumerate() {
        run(shape, seed as u64, 12_000, 8_000);
    }
}

#[test]
fn an_empty_memtable_has_nothing() {
    let pair = Pair::new();
    pair.check_scans();
    pair.check_get(b"", u64::MAX);
    let mut cursor = pair.memtable.cursor();
    cursor.seek(b"key", 7).unwrap();
    assert!(!cursor.valid());
    cursor.seek_before(b"key").unwrap();
    assert!(!cursor.valid());
    assert!(pair.memtable.is_empty() && pair.memtable.bytes() == 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn short_runs_over_every_key_shape(
        shape in prop::sample::select(&SHAPES[..]),
        seed: u64,
        steps in 1u64..700,
        numbers in 1u64..1000,
    ) {
        run(shape, seed, steps, numbers);
    }

    #[test]
    fn arbitrary_keys(
        keys in prop::collection::vec(prop::collection::vec(0u8..3, 0..20), 1..400),
        probes in prop::collection::vec(prop::collection::vec(0u8..4, 0..20), 0..50),
    ) {
        let mut pair = Pair::new();
        for (step, key) in keys.iter().enumerate() {
            pair.insert(key.clone(), Random::new(step as u64).next());
        }
        let mut cursor = pair.memtable.cursor();
        for (step, probe) in probes.into_iter().chain(keys).enumerate() {
            let sequence = Random::new(step as u64).below(pair.sequence + 2);
            pair.check_get(&probe, sequence);
            pair.check_move(&mut cursor, step as u64, probe, sequence);
        }
        pair.check_scans();
    }
}
