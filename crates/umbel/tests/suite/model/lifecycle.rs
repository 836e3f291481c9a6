//! Operations on the store as a whole: closing, crashing, opening, copying.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;

use umbel::{Db, Env, Error, Options};

use super::check;
use super::scan;
use super::world::{History, Map, World};
use crate::suite::settings;

/// Lets go of everything that keeps the store open, but the store itself.
fn let_go(world: &mut World) {
    world.iters.clear();
    world.held.clear();
}

/// Closes the store while handles and a cursor are still held, and opens it again.
pub fn reopen_closed(world: &mut World) {
    world.note("close and open again");
    close(world);
    open(world);
}

fn close(world: &mut World) {
    let space = world.any_space();
    let bounds = scan::any_bounds(world, space);
    let expected = scan::within(&world.spaces[space].map, &bounds);
    let cursor = world.spaces[space].handle.cursor::<Vec<u8>>(bounds).unwrap();
    let db = world.db.take().expect("open between operations");
    let other = db.clone();
    db.close().unwrap();
    let handle = &world.spaces[space].handle;
    assert!(matches!(handle.get(b"a"), Err(Error::Closed)));
    assert!(matches!(handle.put(b"a", b"b"), Err(Error::Closed)));
    assert!(matches!(other.sync(), Err(Error::Closed)));
    assert!(matches!(other.flush(), Err(Error::Closed)));
    // What was opened before goes on.
    scan::walk(world, cursor, &expected, None);
    let_go(world);
    world.spaces.iter_mut().for_each(|space| space.note_flushed());
}

/// Drops every handle, which closes the store too, and opens it again.
pub fn reopen_dropped(world: &mut World) {
    world.note("drop every handle and open again");
    drop_all(world);
    world.spaces.iter_mut().for_each(|space| space.note_flushed());
    open(world);
}

/// Drops the store. What is in the model stays, with handles that are good for nothing.
fn drop_all(world: &mut World) {
    let_go(world);
    world.db = None;
    // A closed stand-in, so that nothing holds the store.
    let stand_in = stand_in();
    for space in &mut world.spaces {
        space.handle = stand_in.keyspace(&space.name, space.options.clone()).unwrap();
    }
}

fn stand_in() -> Db {
    let env = umbel_sim::Sim::new(0).env();
    let options = Options { env, background_threads: 0, ..Options::default() };
    Db::open("/stand-in", options).unwrap()
}

/// Kills the process and opens the store again. On the real machine it is only dropped.
pub fn reopen_killed(world: &mut World) {
    let Some(sim) = world.sim.take() else { return reopen_dropped(world) };
    world.note("kill the process and open again");
    let image = sim.kill_image();
    world.env = image.env();
    world.sim = Some(image);
    drop_all(world);
    open_with(world, true);
}

fn open(world: &mut World) {
    open_with(world, false);
}

/// Opens the store and compares everything; after a crash keyspaces without a log may stand at
/// any of their flushes.
fn open_with(world: &mut World, after_crash: bool) {
    if world.random.percent(30) {
        look_read_only(world, after_crash);
    }
    if world.random.percent(50) {
        world.set = world.random.next() % settings::SETS;
    }
    let db = Db::open(&world.path, world.options()).unwrap();
    adopt(world, &db, after_crash);
    world.db = Some(db);
}

/// Takes the keyspaces of `db` as those of the world and compares all of them.
fn adopt(world: &mut World, db: &Db, after_crash: bool) {
    let names: Vec<String> = world.spaces.iter().map(|space| space.name.clone()).collect();
    assert_eq!(db.keyspaces(), names);
    for space in &mut world.spaces {
        space.handle = db.existing_keyspace(&space.name).unwrap().expect("it is listed");
        assert_eq!(space.handle.options(), space.options);
        space.gets = 0;
        if after_crash && !space.options.log {
            let found = check::contents(&space.handle);
            (space.map, space.marker) = settle(&space.history, &found, space.handle.marker());
            space.note_flushed();
        }
    }
    if !db.stats().keyspaces.is_empty() && db.sync().is_ok() {
        db.wait_for_compaction().unwrap();
        for space in &mut world.spaces {
            space.entries_at_open = check::entries_before(&space.handle.stats());
        }
    }
    check::everything(world);
}

/// The state of a keyspace without a log that a crash has left, which must be one it had.
fn settle(history: &History, found: &Map, marker: Option<Vec<u8>>) -> (Map, Option<Vec<u8>>) {
    let (mut map, mut set) = history.flushed.clone();
    let mut steps = history.steps.iter();
    loop {
        if map == *found && set == marker {
            return (map, set);
        }
        let Some((changes, step_marker)) = steps.next() else { break };
        changes.iter().for_each(|change| change.apply(&mut map));
        if step_marker.is_some() {
            set.clone_from(step_marker);
        }
    }
    panic!(
        "a keyspace without a log came back with {} keys and marker {marker:?}, a state it never \
         had since its last flush",
        found.len()
    );
}

/// Opens the store for reading only, compares everything and checks that no byte was changed.
fn look_read_only(world: &mut World, after_crash: bool) {
    world.note("look at it read-only");
    let before = bytes_of(&world.env, &world.path);
    let db = Db::open_read_only(&world.path, world.options()).unwrap();
    adopt(world, &db, after_crash);
    let space = &world.spaces[0].handle;
    assert!(matches!(space.put(b"a", b"b"), Err(Error::Invalid(_))));
    assert!(matches!(db.flush(), Err(Error::Invalid(_))));
    assert!(db.verify().unwrap().damage.is_empty());
    drop(db);
    drop_all(world);
    assert!(bytes_of(&world.env, &world.path) == before, "reading only changed the folder");
}

/// Every file of a folder but the lock.
fn bytes_of(env: &Env, folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in env.files.read_dir(folder).unwrap() {
        if !entry.is_directory && entry.name != "LOCK" {
            let file = env.files.open(&folder.join(&entry.name), umbel_env::Access::Read).unwrap();
            let mut bytes = vec![0; entry.len as usize];
            file.read_exact_at(&mut bytes, 0).unwrap();
            files.insert(entry.name, bytes);
        }
    }
    files
}

/// Copies the store, compares the copy and writes to it, which must not change the original.
pub fn checkpoint(world: &mut World) {
    world.copies += 1;
    if world.copies > 3 {
        return;
    }
    world.note("copy the store");
    let mut target = world.path.clone();
    target.set_extension(format!("copy{}", world.copies));
    world.db().checkpoint(&target).unwrap();
    world.spaces.iter_mut().for_each(|space| space.note_flushed());
    let options = Options { background_threads: 0, ..world.options() };
    let copy = Db::open(&target, options).unwrap();
    assert!(copy.verify().unwrap().damage.is_empty());
    for space in &world.spaces {
        let copied = copy.existing_keyspace(&space.name).unwrap().expect("it was copied");
        assert!(check::contents(&copied) == space.map, "the copy of '{}' differs", space.name);
        assert_eq!(copied.marker(), space.handle.marker());
        assert_eq!(copied.options(), space.options);
        copied.delete_range(b"", [0xff; 10]).unwrap();
        copied.compact(None, None).unwrap();
        let bounds = (Bound::Included(vec![0xff; 10]), Bound::Unbounded);
        let left = scan::within(&space.map, &bounds);
        assert_eq!(check::contents(&copied).len(), left.len());
    }
    copy.close().unwrap();
}
