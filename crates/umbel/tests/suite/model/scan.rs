//! Operations that scan keys: iterators, ranges, prefixes, cursors, with a snapshot or without.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use umbel::{DbCursor, Error, Iter};

use crate::suite::option_sets;

use super::oracle::{Map, ModelStore, OpenIter};
use super::write::{self, any_range, short};

type Entry = (Vec<u8>, Arc<[u8]>);
/// Both ends of a range.
pub type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// The entries within `bounds`, which may be reversed.
pub fn within(map: &Map, bounds: &Bounds) -> Vec<Entry> {
    let from = |key: &Vec<u8>| match &bounds.0 {
        Bound::Unbounded => true,
        Bound::Included(bound) => key >= bound,
        Bound::Excluded(bound) => key > bound,
    };
    let to = |key: &Vec<u8>| match &bounds.1 {
        Bound::Unbounded => true,
        Bound::Included(bound) => key <= bound,
        Bound::Excluded(bound) => key < bound,
    };
    let inside = map.iter().filter(|(key, _)| from(key) && to(key));
    inside.map(|(key, value)| (key.clone(), Arc::clone(value))).collect()
}

/// Asserts that `found` is the expected entry.
fn assert_entry(found: Option<umbel::Result<(Vec<u8>, Vec<u8>)>>, expected: Option<&Entry>) {
    let found = found.map(|entry| entry.unwrap());
    let (key, value) = match (&found, expected) {
        (None, None) => return,
        (Some(found), Some(expected)) => (found.0 == expected.0, found.1[..] == expected.1[..]),
        _ => (false, false),
    };
    let shown = |key: Option<&Vec<u8>>| key.map(|key| short(key));
    assert!(
        key && value,
        "found {:?}, expected {:?}; same value: {value}",
        shown(found.as_ref().map(|e| &e.0)),
        shown(expected.map(|e| &e.0)),
    );
}

/// Asserts that `iter` yields exactly the expected entries.
pub fn assert_yields(mut iter: Iter, expected: &[Entry]) {
    for entry in expected {
        assert_entry(iter.next(), Some(entry));
    }
    assert_entry(iter.next(), None);
    assert_entry(iter.next_back(), None);
    assert_entry(iter.next(), None);
}

/// Reads in random order from both ends until they meet.
pub fn assert_meets(model: &mut ModelStore, iter: Iter, expected: Vec<Entry>) {
    let mut open = OpenIter { iter, left: expected.into() };
    while advance(model, &mut open) {}
}

fn advance(model: &mut ModelStore, open: &mut OpenIter) -> bool {
    let more = !open.left.is_empty();
    if model.random.percent(50) {
        assert_entry(open.iter.next(), open.left.pop_front().as_ref());
    } else {
        assert_entry(open.iter.next_back(), open.left.pop_back().as_ref());
    }
    more
}

/// Scans everything, forward.
pub fn forward(model: &mut ModelStore) {
    let space = model.any_space();
    model.note(format!("iterate {space} forward"));
    let space = &model.spaces[space];
    let all = within(&space.map, &(Bound::Unbounded, Bound::Unbounded));
    assert_yields(space.handle.iter(), &all);
}

/// Scans everything, backward.
pub fn backward(model: &mut ModelStore) {
    let space = model.any_space();
    model.note(format!("iterate {space} backward"));
    let space = &model.spaces[space];
    let mut iter = space.handle.iter().rev();
    for (key, value) in space.map.iter().rev() {
        assert_entry(iter.next(), Some(&(key.clone(), Arc::clone(value))));
    }
    assert_entry(iter.next(), None);
}

/// Scans everything, from both ends.
pub fn both_ends(model: &mut ModelStore) {
    let space = model.any_space();
    model.note(format!("iterate {space} from both ends"));
    let all = within(&model.spaces[space].map, &(Bound::Unbounded, Bound::Unbounded));
    let iter = model.spaces[space].handle.iter();
    assert_meets(model, iter, all);
}

/// Bounds of every kind.
pub fn any_bounds(model: &mut ModelStore, space: usize) -> Bounds {
    let (start, end) = any_range(model, space);
    let mut bound = |key: Vec<u8>| match model.random.below_usize(5) {
        0 => Bound::Unbounded,
        1..3 => Bound::Included(key),
        _ => Bound::Excluded(key),
    };
    (bound(start), bound(end))
}

/// Scans a range, from both ends.
pub fn range(model: &mut ModelStore) {
    let space = model.any_space();
    let bounds = any_bounds(model, space);
    model.note(format!("range {space} {}", shown(&bounds)));
    let expected = within(&model.spaces[space].map, &bounds);
    let iter = model.spaces[space].handle.range::<Vec<u8>>(bounds);
    assert_meets(model, iter, expected);
}

fn shown(bounds: &Bounds) -> String {
    let own = |bound: &Bound<Vec<u8>>| format!("{:?}", bound.as_ref().map(|key| short(key)));
    format!("{} to {}", own(&bounds.0), own(&bounds.1))
}

/// Scans a prefix, from both ends.
pub fn prefix(model: &mut ModelStore) {
    let space = model.any_space();
    let mut prefix = model.likely_key(space);
    prefix.truncate(model.random.below_usize(prefix.len() + 1));
    model.note(format!("prefix {space} {}", short(&prefix)));
    let map = &model.spaces[space].map;
    let expected: Vec<Entry> = map
        .iter()
        .filter(|(key, _)| key.starts_with(&prefix))
        .map(|(key, value)| (key.clone(), Arc::clone(value)))
        .collect();
    let iter = model.spaces[space].handle.prefix(&prefix);
    assert_meets(model, iter, expected);
}

/// Opens an iterator that later operations continue.
pub fn open_iter(model: &mut ModelStore) {
    let space = model.any_space();
    let bounds = any_bounds(model, space);
    model.note(format!("open an iterator of {space} over {}", shown(&bounds)));
    let left: VecDeque<Entry> = within(&model.spaces[space].map, &bounds).into();
    let iter = model.spaces[space].handle.range::<Vec<u8>>(bounds);
    if model.iters.len() > 3 {
        model.iters.remove(0);
    }
    model.iters.push(OpenIter { iter, left });
}

/// Continues an iterator opened earlier.
pub fn advance_iter(model: &mut ModelStore) {
    if model.iters.is_empty() {
        return;
    }
    let mut open = model.iters.remove(model.random.below_usize(model.iters.len()));
    model.note(format!("continue an iterator that has {} left", open.left.len()));
    for _ in 0..model.random.below_usize(20) {
        if !advance(model, &mut open) {
            return;
        }
    }
    model.iters.push(open);
}

/// Random movements of a cursor; the store may be written to meanwhile.
pub fn cursor(model: &mut ModelStore) {
    let space = model.any_space();
    let bounds = any_bounds(model, space);
    model.note(format!("scan with a cursor of {space} over {}", shown(&bounds)));
    let expected = within(&model.spaces[space].map, &bounds);
    let cursor = model.spaces[space].handle.cursor::<Vec<u8>>(bounds).unwrap();
    let writes = model.random.percent(30);
    check_cursor(model, cursor, &expected, writes.then_some(space));
}

/// Scans `expected` with a cursor; if `written` names a keyspace, writes to it in between.
pub fn check_cursor(
    model: &mut ModelStore,
    mut cursor: DbCursor,
    expected: &[Entry],
    written: Option<usize>,
) {
    let mut at: Option<usize> = None;
    assert!(!cursor.valid() && cursor.key().is_empty() && cursor.value().unwrap().is_empty());
    for _ in 0..model.random.below_usize(60) {
        let key = match expected.is_empty() || model.random.percent(40) {
            true => model.any_key(),
            false => expected[model.random.below_usize(expected.len())].0.clone(),
        };
        match model.random.below_usize(24) {
            0 => {
                cursor.seek_to_first().unwrap();
                at = (!expected.is_empty()).then_some(0);
            }
            1 => {
                cursor.seek_to_last().unwrap();
                at = expected.len().checked_sub(1);
            }
            2..5 => {
                cursor.seek(&key).unwrap();
                let found = expected.partition_point(|entry| entry.0 < key);
                at = (found < expected.len()).then_some(found);
            }
            5..8 => {
                cursor.seek_for_prev(&key).unwrap();
                at = expected.partition_point(|entry| entry.0 <= key).checked_sub(1);
            }
            8..16 => {
                cursor.next().unwrap();
                at = at.and_then(|at| (at + 1 < expected.len()).then_some(at + 1));
            }
            16..23 => {
                cursor.prev().unwrap();
                at = at.and_then(|at| at.checked_sub(1));
            }
            _ if written.is_some() => write::batch(model),
            _ => {}
        }
        assert_eq!(cursor.valid(), at.is_some());
        if let Some(at) = at {
            assert_eq!(short(cursor.key()), short(&expected[at].0));
            assert!(cursor.key() == expected[at].0);
            match cursor.value() {
                Ok(value) => assert!(value == &expected[at].1[..]),
                // The cursor would have to open a file, but the store is closed.
                Err(error) => {
                    let long = expected[at].1.len() > option_sets::INLINE_VALUE_BYTES_MIN;
                    let closed = model.db.is_none() && matches!(error, Error::Closed);
                    assert!(long && closed, "{error}");
                }
            }
        }
    }
}
