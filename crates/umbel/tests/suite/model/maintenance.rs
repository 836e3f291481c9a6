//! Operations that keep the store in shape: flushes, compactions, keyspaces, snapshots.

use std::collections::BTreeMap;

use umbel::{Error, KeyspaceOptions};

use super::read::expected_values;
use super::scan;
use super::world::{Held, Map, World};
use crate::suite::settings;

/// Flushes every keyspace or one of them.
pub fn flush(world: &mut World) {
    let all = world.random.percent(50);
    let space = world.any_space();
    if all {
        world.note("flush");
        world.db().flush().unwrap();
        world.spaces.iter_mut().for_each(|space| space.note_flushed());
    } else {
        world.note(format!("flush {space}"));
        world.spaces[space].handle.flush().unwrap();
        world.spaces[space].note_flushed();
    }
    let space = &world.spaces[space];
    assert_eq!(space.handle.marker(), space.marker);
}

/// Flushes some keyspaces without a log together, with a marker.
pub fn flush_all(world: &mut World) {
    let unlogged: Vec<usize> =
        (0..world.spaces.len()).filter(|&space| !world.spaces[space].options.log).collect();
    let chosen: Vec<usize> = unlogged.into_iter().filter(|_| world.random.percent(70)).collect();
    world.writes += 1;
    let marker = format!("flush {}", world.writes).into_bytes();
    world.note(format!("flush {chosen:?} together"));
    let handles: Vec<_> = chosen.iter().map(|&space| world.spaces[space].handle.clone()).collect();
    world.db().flush_all(&handles.iter().collect::<Vec<_>>(), &marker).unwrap();
    for &space in &chosen {
        let space = &mut world.spaces[space];
        space.marker = Some(marker.clone());
        space.note_flushed();
        assert_eq!(space.handle.marker(), space.marker);
    }
}

/// Compacts a keyspace, whole or in part.
pub fn compact(world: &mut World) {
    let space = world.any_space();
    let (start, end) = super::write::any_range(world, space);
    let start = world.random.percent(60).then_some(start);
    let end = world.random.percent(60).then_some(end);
    world.note(format!("compact {space} {:?}", (start.is_some(), end.is_some())));
    world.spaces[space].handle.compact(start.as_deref(), end.as_deref()).unwrap();
    world.spaces[space].note_flushed();
}

/// Waits for the background.
pub fn wait(world: &mut World) {
    world.note("wait for compaction");
    world.db().wait_for_compaction().unwrap();
}

/// Syncs.
pub fn sync(world: &mut World) {
    world.note("sync");
    world.db().sync().unwrap();
}

/// Creates a keyspace, drops one or changes the options of one.
pub fn keyspaces(world: &mut World) {
    match world.random.below(3) {
        0 if world.spaces.len() < 5 => {
            let names = ["one", "two", "three", "four", "five"];
            let free = |name: &&str| world.spaces.iter().all(|space| space.name != *name);
            let name = names.into_iter().find(free).expect("there are five names");
            let options = settings::keyspace_options(&mut world.random);
            world.note(format!("create '{name}', log: {}", options.log));
            world.add_space(name, options);
        }
        1 if world.spaces.len() > 1 => {
            let space = world.any_space();
            let space = world.spaces.remove(space);
            world.note(format!("drop '{}'", space.name));
            let mut batch = world.db().batch();
            batch.put(&space.handle, b"key", b"value");
            world.db().drop_keyspace(&space.name).unwrap();
            assert!(matches!(batch.commit(None), Err(Error::Invalid(_))));
            assert!(matches!(space.handle.get(b"key"), Err(Error::Invalid(_))));
            assert!(matches!(space.handle.put(b"key", b""), Err(Error::Invalid(_))));
            assert!(matches!(space.handle.iter().next(), Some(Err(Error::Invalid(_)))));
            assert!(world.db().existing_keyspace(&space.name).unwrap().is_none());
        }
        _ => {
            let at = world.any_space();
            let options = settings::keyspace_options(&mut world.random);
            // What a keyspace was created with stays.
            let options = KeyspaceOptions { hash: world.spaces[at].options.hash, ..options };
            world.note(format!("change the options of {at}, log: {}", options.log));
            let db = world.db().clone();
            let space = &mut world.spaces[at];
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
pub fn take_snapshot(world: &mut World) {
    world.note("take a snapshot");
    if world.held.len() > 4 {
        world.held.remove(0);
    }
    let snapshot = world.db().snapshot();
    let maps = world.spaces.iter().map(|space| (space.number, space.map.clone()));
    let maps: BTreeMap<u64, Map> = maps.collect();
    world.held.push(Held { snapshot, maps });
}

/// Lets go of a snapshot.
pub fn drop_snapshot(world: &mut World) {
    if !world.held.is_empty() {
        world.note("drop a snapshot");
        world.held.remove(world.random.below(world.held.len()));
    }
}

/// Reads at a snapshot in every way there is.
pub fn read_snapshot(world: &mut World) {
    if world.held.is_empty() {
        return;
    }
    let (held, space) = (world.random.below(world.held.len()), world.any_space());
    let way = world.random.below(5);
    world.note(format!("read {space} at snapshot {held}, way {way}"));
    // What was created later was empty then.
    let number = world.spaces[space].number;
    let map = world.held[held].maps.get(&number).cloned().unwrap_or_default();
    let snapshot = world.held[held].snapshot.clone();
    let handle = world.spaces[space].handle.clone();
    let bounds = scan::any_bounds(world, space);
    match way {
        0 => {
            let key = world.likely_key(space);
            let expected = map.get(&key).map(|value| value.to_vec());
            assert_eq!(handle.get_at(&snapshot, &key).unwrap(), expected);
        }
        1 => {
            let keys: Vec<Vec<u8>> = (0..6).map(|_| world.likely_key(space)).collect();
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
            scan::assert_meets(world, iter, expected);
        }
        _ => {
            let expected = scan::within(&map, &bounds);
            let cursor = handle.cursor_at::<Vec<u8>>(&snapshot, bounds).unwrap();
            scan::walk(world, cursor, &expected, Some(space));
        }
    }
}
