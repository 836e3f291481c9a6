//! Tests of queues and time series: elements are deleted soon after they were put, and each read of
//! the oldest element passes the keys of all deleted ones.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};

use umbel::{Keyspace, KeyspaceOptions, Snapshot};
use umbel_sim::Random;

use crate::suite::fixture::{new_store, tiny};

/// Returns the key of element `number` of a queue; in a queue that goes backward, later elements
/// have smaller keys.
fn element(queue: u8, number: u64, is_backward: bool) -> Vec<u8> {
    let number = if is_backward { u64::MAX - number } else { number };
    [&[queue][..], &number.to_be_bytes()].concat()
}

/// Returns a key of one of four shapes: short, longer than the bound of a skip span may be,
/// of lengths around that limit, and with a common prefix almost as long as the limit.
fn shaped(shape: u64, number: u64) -> Vec<u8> {
    match shape {
        0 => element(0, number, false),
        1 => [element(0, number, false), vec![7; 1100]].concat(),
        2 => [element(0, number, false), vec![0; 1010 + number as usize % 10]].concat(),
        _ => [vec![u8::MAX; 1018], (number << 12).to_be_bytes().to_vec()].concat(),
    }
}

/// The oldest element of a queue.
fn oldest(keyspace: &Keyspace, queue: u8, is_backward: bool) -> Option<Vec<u8>> {
    let mut cursor = keyspace.cursor([queue].as_slice()..[queue + 1].as_slice()).unwrap();
    match is_backward {
        true => cursor.seek_to_last().unwrap(),
        false => cursor.seek_to_first().unwrap(),
    }
    cursor.valid().then(|| cursor.key().to_vec())
}

/// Returns the number of hidden entries that reads stepped through in each of four spans of pops.
fn hidden_by_span(options: KeyspaceOptions, queues: u8, is_backward: bool) -> [u64; 4] {
    let (_sim, db) = new_store();
    let keyspace = db.keyspace("queue", options).unwrap();
    let live = 200;
    for queue in 0..queues {
        for number in 0..live {
            keyspace.put(element(queue, number, is_backward), [b'v'; 20]).unwrap();
        }
    }
    let mut pops = 0;
    [0; 4].map(|_: u64| {
        let before = keyspace.stats().hidden_entries_passed;
        for _ in 0..4000 {
            let (queue, number) = ((pops % u64::from(queues)) as u8, pops / u64::from(queues));
            let expected = element(queue, number, is_backward);
            assert_eq!(oldest(&keyspace, queue, is_backward).as_ref(), Some(&expected));
            keyspace.put(element(queue, number + live, is_backward), [b'v'; 20]).unwrap();
            keyspace.delete(expected).unwrap();
            pops += 1;
        }
        keyspace.stats().hidden_entries_passed - before
    })
}

/// Story: each pop of a queue stepped over the entries of all pops before it: the fourth 10,000
/// pops took six times as long as the first.
#[test]
fn pops_pass_no_more_hidden_entries_the_longer_a_queue_lives() {
    for is_backward in [false, true] {
        for queues in [1, 16] {
            for options in [KeyspaceOptions::default(), tiny()] {
                let spans = hidden_by_span(options, queues, is_backward);
                assert!(spans[3] <= spans[0] + spans[0] / 3, "{queues} queues: {spans:?}");
                assert!(spans[3] <= 4000 * 80, "{queues} queues: {spans:?}");
            }
        }
    }
}

/// Story: bounds of skip spans had fewer than 1,024 bytes, so a queue with longer keys stepped over
/// all earlier elements, and so did one behind a few deleted long keys.
#[test]
fn queues_with_long_keys_stay_fast() {
    for shape in [0, 1, 2] {
        let (_sim, db) = new_store();
        let keyspace = db.keyspace("queue", KeyspaceOptions::default()).unwrap();
        if shape == 0 {
            for number in 0..8 {
                let key = [vec![0; 1100], vec![number]].concat();
                keyspace.put(&key, b"v").unwrap();
                keyspace.delete(&key).unwrap();
            }
        }
        keyspace.put(shaped(shape, 0), b"v").unwrap();
        let hidden = [0, 4000, 8000].map(|first: u64| {
            let before = keyspace.stats().hidden_entries_passed;
            for number in first..first + 4000 {
                keyspace.put(shaped(shape, number + 1), b"v").unwrap();
                keyspace.delete(shaped(shape, number)).unwrap();
                let mut cursor = keyspace.cursor::<&[u8]>(..).unwrap();
                cursor.seek_to_first().unwrap();
                assert_eq!(cursor.key(), shaped(shape, number + 1));
            }
            keyspace.stats().hidden_entries_passed - before
        });
        assert!(hidden[2] <= hidden[0] + hidden[0] / 3, "shape {shape}: {hidden:?}");
        assert!(hidden[2] <= 4000 * 160, "shape {shape}: {hidden:?}");
    }
}

/// Readers see a put into a skipped range at once, also with cursors that skip that range.
#[test]
fn a_put_into_a_skipped_range_is_found() {
    let (_sim, db) = new_store();
    let keyspace = db.keyspace("queue", KeyspaceOptions::default()).unwrap();
    for number in 0..2000 {
        keyspace.put(element(0, number, false), b"v").unwrap();
    }
    for number in 0..1999 {
        keyspace.delete(element(0, number, false)).unwrap();
        assert_eq!(oldest(&keyspace, 0, false), Some(element(0, number + 1, false)));
    }
    assert!(keyspace.stats().skip_spans > 0);
    for number in [1000, 3, 1998, 0, 999, 1500] {
        keyspace.put(element(0, number, false), b"again").unwrap();
        assert_eq!(oldest(&keyspace, 0, false), Some(element(0, number, false)));
        assert_eq!(keyspace.iter().next_back().unwrap().unwrap().0, element(0, 1999, false));
        keyspace.delete(element(0, number, false)).unwrap();
        assert_eq!(oldest(&keyspace, 0, false), Some(element(0, 1999, false)));
    }
}

/// A snapshot and the entries that it sees.
type Shown = (Snapshot, BTreeMap<Vec<u8>, u64>);

/// Returns all keys that a cursor finds, in one direction.
fn keys(keyspace: &Keyspace, at: Option<&Snapshot>, is_backward: bool) -> Vec<Vec<u8>> {
    let mut cursor = match at {
        Some(snapshot) => keyspace.cursor_at::<&[u8]>(snapshot, ..).unwrap(),
        None => keyspace.cursor::<&[u8]>(..).unwrap(),
    };
    let mut keys = Vec::new();
    if is_backward {
        cursor.seek_to_last().unwrap();
    } else {
        cursor.seek_to_first().unwrap();
    }
    while cursor.valid() {
        keys.push(cursor.key().to_vec());
        if is_backward { cursor.prev().unwrap() } else { cursor.next().unwrap() }
    }
    if is_backward {
        keys.reverse();
    }
    keys
}

/// Random puts, deletes and range deletes, with cursors in both directions in the present state and
/// at snapshots, against a map.
#[test]
fn skipped_ranges_hide_no_key_of_any_state() {
    for seed in 0..16 {
        let element = |_, number, _| shaped(seed / 2 % 4, number);
        let mut random = Random::new(seed);
        let (_sim, db) = new_store();
        let options = if seed % 2 == 0 { tiny() } else { KeyspaceOptions::default() };
        let keyspace = db.keyspace("random", options).unwrap();
        let mut model = BTreeMap::new();
        let mut snapshots: VecDeque<Shown> = VecDeque::new();
        for round in 0..if seed / 2 % 4 == 0 { 250 } else { 80 } {
            // Runs of deletes, long enough to become spans, and single puts into them.
            let (from, count) = (random.below(600), random.below(200));
            for number in from..from + count {
                let key = element(0, number, false);
                match random.below(40) {
                    0 => (keyspace.put(&key, b"v").unwrap(), model.insert(key, round)).1,
                    _ => (keyspace.delete(&key).unwrap(), model.remove(&key)).1,
                };
            }
            for _ in 0..random.below(20) {
                let key = element(0, random.below(600), false);
                keyspace.put(&key, b"v").unwrap();
                model.insert(key, round);
            }
            if random.once_in(10) {
                let (start, end) = (element(0, from, false), element(0, from + 2 * count, false));
                keyspace.delete_range(&start, &end).unwrap();
                model.retain(|key, _| *key < start || *key >= end);
            }
            if random.once_in(15) {
                snapshots.push_back((db.snapshot(), model.clone()));
            }
            if snapshots.len() > 3 {
                snapshots.pop_front();
            }
            for is_backward in [false, true] {
                let expected: Vec<_> = model.keys().cloned().collect();
                assert_eq!(keys(&keyspace, None, is_backward), expected, "seed {seed}");
                for (snapshot, shown) in &snapshots {
                    let expected: Vec<_> = shown.keys().cloned().collect();
                    assert_eq!(keys(&keyspace, Some(snapshot), is_backward), expected);
                }
            }
        }
        assert!(keyspace.stats().skip_spans > 0 || seed % 2 == 0, "seed {seed}");
    }
}

/// A writer moves a queue on and puts elements in front of it again; readers never see an empty
/// queue, nor an oldest element after one that was there before and during the read.
#[test]
fn concurrent_readers_find_elements_put_into_skipped_ranges() {
    // Small memtables are frozen while readers take the present state.
    for options in [KeyspaceOptions::default(), tiny()] {
        check_concurrent_readers(options);
    }
}

fn check_concurrent_readers(options: KeyspaceOptions) {
    let (_sim, db) = new_store();
    let keyspace = db.keyspace("queue", options).unwrap();
    let element = |number: u64| element(0, number, false);
    // The number of an element that stays while it is named here; `u64::MAX` for none.
    let pinned = AtomicU64::new(u64::MAX);
    let done = AtomicU64::new(0);
    keyspace.put(element(0), b"v").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while done.load(Ordering::Acquire) == 0 {
                    let before = pinned.load(Ordering::Acquire);
                    let found = oldest(&keyspace, 0, false);
                    let after = pinned.load(Ordering::Acquire);
                    let found = found.expect("the queue is never empty");
                    if before != u64::MAX && before == after {
                        assert!(found <= element(before), "element {before} was skipped");
                    }
                }
            });
        }
        let mut random = Random::new(7);
        for number in 1..15_000 {
            keyspace.put(element(number), b"v").unwrap();
            keyspace.delete(element(number - 1)).unwrap();
            if random.once_in(8) {
                // Each number is pinned once, so a reader that sees it twice saw it throughout.
                let again = number - 1 - random.below(number.min(5000));
                if again == 0 {
                    continue;
                }
                keyspace.put(element(again), b"again").unwrap();
                pinned.store(again, Ordering::Release);
                for _ in 0..random.below(200) {
                    std::hint::spin_loop();
                }
                pinned.store(u64::MAX, Ordering::Release);
                keyspace.delete(element(again)).unwrap();
            }
        }
        done.store(1, Ordering::Release);
    });
    assert_eq!(oldest(&keyspace, 0, false), Some(element(14_999)));
}
