//! Maintenance operations: flushes, compactions, keyspaces, snapshots.

use std::collections::BTreeMap;

use umbel::{Error, KeyspaceOptions};

use super::oracle::{HeldSnapshot, Map, ModelStore};
use super::read::expected_values;
use super::scan;
use crate::suite::option_sets;

/// Flushes every keyspace or one of them.
pub fn flush(model: &mut ModelStore) {
    let all = model.random.percent(50);
    let space = model.any_space();
    if all {
        model.note("flush");
        model.db().flush().unwrap();
        model.spaces.iter_mut().for_each(|space| space.note_flushed());
    } else {
        model.note(format!("flush {space}"));
        model.spaces[space].handle.flush().unwrap();
        model.spaces[space].note_flushed();
    }
    let space = &model.spaces[space];
    assert_eq!(space.handle.marker(), space.marker);
}

/// Flushes some keyspaces without WAL together, with a marker.
pub fn flush_all(model: &mut ModelStore) {
    let unlogged: Vec<usize> =
        (0..model.spaces.len()).filter(|&space| !model.spaces[space].options.log).collect();
    let chosen: Vec<usize> = unlogged.into_iter().filter(|_| model.random.percent(70)).collect();
    model.writes += 1;
    let marker = format!("flush {}", model.writes).into_bytes();
    model.note(format!("flush {chosen:?} together"));
    let handles: Vec<_> = chosen.iter().map(|&space| model.spaces[space].handle.clone()).collect();
    model.db().flush_all(&handles.iter().collect::<Vec<_>>(), &marker).unwrap();
    for &space in &chosen {
        let space = &mut model.spaces[space];
        space.marker = Some(marker.clone());
        space.note_flushed();
        assert_eq!(space.handle.marker(), space.marker);
    }
}

/// Compacts a keyspace, whole or in part.
pub fn compact(model: &mut ModelStore) {
    let space = model.any_space();
    let (start, end) = super::write::any_range(model, space);
    let start = model.random.percent(60).then_some(start);
    let end = model.random.percent(60).then_some(end);
    model.note(format!("compact {space} {:?}", (start.is_some(), end.is_some())));
    model.spaces[space].handle.compact(start.as_deref(), end.as_deref()).unwrap();
    model.spaces[space].note_flushed();
}

/// Waits for the background work.
pub fn wait(model: &mut ModelStore) {
    model.note("wait for compaction");
    model.db().wait_for_compaction().unwrap();
}

/// Syncs the store.
pub fn sync(model: &mut ModelStore) {
    model.note("sync");
    model.db().sync().unwrap();
}

/// Creates a keyspace, drops one or changes the options of one.
pub fn keyspaces(model: &mut ModelStore) {
    match model.random.below_usize(3) {
        0 if model.spaces.len() < 5 => {
            let names = ["one", "two", "three", "four", "five"];
            let free = |name: &&str| model.spaces.iter().all(|space| space.name != *name);
            let name = names.into_iter().find(free).expect("there are five names");
            let options = option_sets::keyspace_options(&mut model.random);
            model.note(format!("create '{name}', log: {}", options.log));
            model.add_space(name, options);
        }
        1 if model.spaces.len() > 1 => {
            let space = model.any_space();
            let space = model.spaces.remove(space);
            model.note(format!("drop '{}'", space.name));
            let mut batch = model.db().batch();
            batch.put(&space.handle, b"key", b"value");
            model.db().drop_keyspace(&space.name).unwrap();
            assert!(matches!(batch.commit(None), Err(Error::Invalid(_))));
            assert!(matches!(space.handle.get(b"key"), Err(Error::Invalid(_))));
            assert!(matches!(space.handle.put(b"key", b""), Err(Error::Invalid(_))));
            assert!(matches!(space.handle.iter().next(), Some(Err(Error::Invalid(_)))));
            assert!(model.db().existing_keyspace(&space.name).unwrap().is_none());
        }
        _ => {
            let at = model.any_space();
            let options = option_sets::keyspace_options(&mut model.random);
            // The options fixed at creation stay.
            let options = KeyspaceOptions { hash: model.spaces[at].options.hash, ..options };
            model.note(format!("change the options of {at}, log: {}", options.log));
            let db = model.db().clone();
            let space = &mut model.spaces[at];
            if options.log != space.options.log {
                space.handle.flush().unwrap();
                space.note_flushed();
            }
            let again = db.keyspace(&space.name, options.clone()).unwrap();
            assert_eq!(again.options(), options);
            assert_eq!(space.handle.options(), options);
            space.options = options;
        }
    }
}

/// Takes a snapshot.
pub fn take_snapshot(model: &mut ModelStore) {
    model.note("take a snapshot");
    if model.snapshots.len() > 4 {
        model.snapshots.remove(0);
    }
    let snapshot = model.db().snapshot();
    let maps = model.spaces.iter().map(|space| (space.number, space.map.clone()));
    let maps: BTreeMap<u64, Map> = maps.collect();
    model.snapshots.push(HeldSnapshot { snapshot, maps });
}

/// Drops a snapshot.
pub fn drop_snapshot(model: &mut ModelStore) {
    if !model.snapshots.is_empty() {
        model.note("drop a snapshot");
        model.snapshots.remove(model.random.below_usize(model.snapshots.len()));
    }
}

/// Reads at a snapshot by every kind of read.
pub fn read_snapshot(model: &mut ModelStore) {
    if model.snapshots.is_empty() {
        return;
    }
    let (index, space) = (model.random.below_usize(model.snapshots.len()), model.any_space());
    let method = model.random.below_usize(5);
    model.note(format!("read {space} at snapshot {index}, method {method}"));
    // Keyspaces created later were empty then.
    let number = model.spaces[space].number;
    let map = model.snapshots[index].maps.get(&number).cloned().unwrap_or_default();
    let snapshot = model.snapshots[index].snapshot.clone();
    let handle = model.spaces[space].handle.clone();
    let bounds = scan::any_bounds(model, space);
    match method {
        0 => {
            let key = model.likely_key(space);
            let expected = map.get(&key).map(|value| value.to_vec());
            assert_eq!(handle.get_at(&snapshot, &key).unwrap(), expected);
        }
        1 => {
            let keys: Vec<Vec<u8>> = (0..6).map(|_| model.likely_key(space)).collect();
            let found = handle.multi_get_at(&snapshot, &keys).unwrap();
            assert_eq!(found, expected_values(&map, &keys));
        }
        2 => {
            let all = map.iter().map(|(key, value)| (key.clone(), value.clone()));
            scan::assert_yields(handle.iter_at(&snapshot).unwrap(), &all.collect::<Vec<_>>());
        }
        3 => {
            let expected = scan::within(&map, &bounds);
            let iter = handle.range_at::<Vec<u8>>(&snapshot, bounds).unwrap();
            scan::assert_meets(model, iter, expected);
        }
        _ => {
            let expected = scan::within(&map, &bounds);
            let cursor = handle.cursor_at::<Vec<u8>>(&snapshot, bounds).unwrap();
            scan::check_cursor(model, cursor, &expected, Some(space));
        }
    }
}
