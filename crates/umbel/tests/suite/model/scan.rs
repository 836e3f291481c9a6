//! Operations that walk over keys: iterators, ranges, prefixes, cursors, at a snapshot or not.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use umbel::{DbCursor, Error, Iter};

use crate::suite::settings;

use super::world::{Map, OpenIter, World};
use super::write::{self, any_range, short};

type Entry = (Vec<u8>, Arc<[u8]>);
/// Both ends of a range.
pub type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// What lies within `bounds`, which may be the wrong way round.
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

/// Fails unless `found` is the entry expected.
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

/// Fails unless `iter` yields just what is expected, and then nothing.
pub fn assert_yields(mut iter: Iter, expected: &[Entry]) {
    for entry in expected {
        assert_entry(iter.next(), Some(entry));
    }
    assert_entry(iter.next(), None);
    assert_entry(iter.next_back(), None);
    assert_entry(iter.next(), None);
}

/// Walks a random way from both ends until they meet.
pub fn assert_meets(world: &mut World, iter: Iter, expected: Vec<Entry>) {
    let mut open = OpenIter { iter, left: expected.into() };
    while advance(world, &mut open) {}
}

fn advance(world: &mut World, open: &mut OpenIter) -> bool {
    let more = !open.left.is_empty();
    if world.random.percent(50) {
        assert_entry(open.iter.next(), open.left.pop_front().as_ref());
    } else {
        assert_entry(open.iter.next_back(), open.left.pop_back().as_ref());
    }
    more
}

/// Everything, forward.
pub fn forward(world: &mut World) {
    let space = world.any_space();
    world.note(format!("iterate {space} forward"));
    let space = &world.spaces[space];
    let all = within(&space.map, &(Bound::Unbounded, Bound::Unbounded));
    assert_yields(space.handle.iter(), &all);
}

/// Everything, backward.
pub fn backward(world: &mut World) {
    let space = world.any_space();
    world.note(format!("iterate {space} backward"));
    let space = &world.spaces[space];
    let mut iter = space.handle.iter().rev();
    for (key, value) in space.map.iter().rev() {
        assert_entry(iter.next(), Some(&(key.clone(), Arc::clone(value))));
    }
    assert_entry(iter.next(), None);
}

/// Everything, from both ends.
pub fn both_ends(world: &mut World) {
    let space = world.any_space();
    world.note(format!("iterate {space} from both ends"));
    let all = within(&world.spaces[space].map, &(Bound::Unbounded, Bound::Unbounded));
    let iter = world.spaces[space].handle.iter();
    assert_meets(world, iter, all);
}

/// Bounds of every kind.
pub fn any_bounds(world: &mut World, space: usize) -> Bounds {
    let (start, end) = any_range(world, space);
    let mut bound = |key: Vec<u8>| match world.random.below(5) {
        0 => Bound::Unbounded,
        1..3 => Bound::Included(key),
        _ => Bound::Excluded(key),
    };
    (bound(start), bound(end))
}

/// A range, from both ends.
pub fn range(world: &mut World) {
    let space = world.any_space();
    let bounds = any_bounds(world, space);
    world.note(format!("range {space} {}", shown(&bounds)));
    let expected = within(&world.spaces[space].map, &bounds);
    let iter = world.spaces[space].handle.range::<Vec<u8>>(bounds);
    assert_meets(world, iter, expected);
}

fn shown(bounds: &Bounds) -> String {
    let own = |bound: &Bound<Vec<u8>>| format!("{:?}", bound.as_ref().map(|key| short(key)));
    format!("{} to {}", own(&bounds.0), own(&bounds.1))
}

/// A prefix, from both ends.
pub fn prefix(world: &mut World) {
    let space = world.any_space();
    let mut prefix = world.likely_key(space);
    prefix.truncate(world.random.below(prefix.len() + 1));
    world.note(format!("prefix {space} {}", short(&prefix)));
    let map = &world.spaces[space].map;
    let expected: Vec<Entry> = map
        .iter()
        .filter(|(key, _)| key.starts_with(&prefix))
        .map(|(key, value)| (key.clone(), Arc::clone(value)))
        .collect();
    let iter = world.spaces[space].handle.prefix(&prefix);
    assert_meets(world, iter, expected);
}

/// Opens an iterator that later operations go on with.
pub fn open_iter(world: &mut World) {
    let space = world.any_space();
    let bounds = any_bounds(world, space);
    world.note(format!("open an iterator of {space} over {}", shown(&bounds)));
    let left: VecDeque<Entry> = within(&world.spaces[space].map, &bounds).into();
    let iter = world.spaces[space].handle.range::<Vec<u8>>(bounds);
    if world.iters.len() > 3 {
        world.iters.remove(0);
    }
    world.iters.push(OpenIter { iter, left });
}

/// Goes on with an iterator opened earlier.
pub fn advance_iter(world: &mut World) {
    if world.iters.is_empty() {
        return;
    }
    let mut open = world.iters.remove(world.random.below(world.iters.len()));
    world.note(format!("go on with an iterator that has {} left", open.left.len()));
    for _ in 0..world.random.below(20) {
        if !advance(world, &mut open) {
            return;
        }
    }
    world.iters.push(open);
}

/// A random walk with a cursor; the store may be written to meanwhile.
pub fn cursor(world: &mut World) {
    let space = world.any_space();
    let bounds = any_bounds(world, space);
    world.note(format!("walk with a cursor of {space} over {}", shown(&bounds)));
    let expected = within(&world.spaces[space].map, &bounds);
    let cursor = world.spaces[space].handle.cursor::<Vec<u8>>(bounds).unwrap();
    let writes = world.random.percent(30);
    walk(world, cursor, &expected, writes.then_some(space));
}

/// Walks over `expected`; where `written` names a keyspace, writes to it on the way.
pub fn walk(world: &mut World, mut cursor: DbCursor, expected: &[Entry], written: Option<usize>) {
    let mut at: Option<usize> = None;
    assert!(!cursor.valid() && cursor.key().is_empty() && cursor.value().unwrap().is_empty());
    for _ in 0..world.random.below(60) {
        let key = match expected.is_empty() || world.random.percent(40) {
            true => world.any_key(),
            false => expected[world.random.below(expected.len())].0.clone(),
        };
        match world.random.below(24) {
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
            _ if written.is_some() => write::batch(world),
            _ => {}
        }
        assert_eq!(cursor.valid(), at.is_some());
        if let Some(at) = at {
            assert_eq!(short(cursor.key()), short(&expected[at].0));
            assert!(cursor.key() == expected[at].0);
            match cursor.value() {
                Ok(value) => assert!(value == &expected[at].1[..]),
                // A file that would have to be opened: the store is closed.
                Err(error) => {
                    let long = expected[at].1.len() > settings::INLINE_VALUE_BYTES_LEAST;
                    let closed = world.db.is_none() && matches!(error, Error::Closed);
                    assert!(long && closed, "{error}");
                }
            }
        }
    }
}
