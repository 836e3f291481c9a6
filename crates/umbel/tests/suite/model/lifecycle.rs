//! Operations on the store as a whole: close, crash, open, checkpoint.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;

use umbel::{Db, Env, Error, Options};

use super::check;
use super::oracle::{CrashStates, Map, ModelStore};
use super::scan;
use crate::suite::option_sets;

/// Drops all handles that keep the store open, except the `Db`.
fn drop_readers(model: &mut ModelStore) {
    model.iters.clear();
    model.snapshots.clear();
}

/// Closes the store while handles and a cursor still exist, and opens it again.
pub fn reopen_closed(model: &mut ModelStore) {
    model.note("close and open again");
    close(model);
    open(model);
}

fn close(model: &mut ModelStore) {
    let space = model.any_space();
    let bounds = scan::any_bounds(model, space);
    let expected = scan::within(&model.spaces[space].map, &bounds);
    let cursor = model.spaces[space].handle.cursor::<Vec<u8>>(bounds).unwrap();
    let db = model.db.take().expect("open between operations");
    let other = db.clone();
    db.close().unwrap();
    let handle = &model.spaces[space].handle;
    assert!(matches!(handle.get(b"a"), Err(Error::Closed)));
    assert!(matches!(handle.put(b"a", b"b"), Err(Error::Closed)));
    assert!(matches!(other.sync(), Err(Error::Closed)));
    assert!(matches!(other.flush(), Err(Error::Closed)));
    // Cursors opened before continue.
    scan::check_cursor(model, cursor, &expected, None);
    drop_readers(model);
    model.spaces.iter_mut().for_each(|space| space.note_flushed());
}

/// Drops every handle, which closes the store, and opens the store again.
pub fn reopen_dropped(model: &mut ModelStore) {
    model.note("drop every handle and open again");
    drop_all(model);
    model.spaces.iter_mut().for_each(|space| space.note_flushed());
    open(model);
}

/// Drops the store. The model stays, with handles that no longer work.
fn drop_all(model: &mut ModelStore) {
    drop_readers(model);
    model.db = None;
    // A closed stand-in, so that no handle keeps the store open.
    let placeholder = placeholder();
    for space in &mut model.spaces {
        space.handle = placeholder.keyspace(&space.name, space.options.clone()).unwrap();
    }
}

fn placeholder() -> Db {
    let env = umbel_sim::Sim::new(0).env();
    let options = Options { env, background_threads: 0, ..Options::default() };
    Db::open("/stand-in", options).unwrap()
}

/// Kills the process and opens the store again. On the real machine the store is only dropped.
pub fn reopen_killed(model: &mut ModelStore) {
    let Some(sim) = model.sim.take() else { return reopen_dropped(model) };
    model.note("kill the process and open again");
    let image = sim.kill_image();
    model.env = image.env();
    model.sim = Some(image);
    drop_all(model);
    open_with(model, true);
}

fn open(model: &mut ModelStore) {
    open_with(model, false);
}

/// Opens the store and compares everything; after a crash keyspaces without WAL may have the state
/// of any of their flushes.
fn open_with(model: &mut ModelStore, after_crash: bool) {
    if model.random.percent(30) {
        check_read_only(model, after_crash);
    }
    if model.random.percent(50) {
        model.set = model.random.next() % option_sets::SETS;
    }
    let db = Db::open(&model.path, model.options()).unwrap();
    adopt(model, &db, after_crash);
    model.db = Some(db);
}

/// Adopts the keyspaces of `db` as those of the model and compares all of them.
fn adopt(model: &mut ModelStore, db: &Db, after_crash: bool) {
    let names: Vec<String> = model.spaces.iter().map(|space| space.name.clone()).collect();
    assert_eq!(db.keyspaces(), names);
    for space in &mut model.spaces {
        space.handle = db.existing_keyspace(&space.name).unwrap().expect("it is listed");
        assert_eq!(space.handle.options(), space.options);
        space.gets = 0;
        if after_crash && !space.options.log {
            let found = check::contents(&space.handle);
            (space.map, space.marker) = settle(&space.crash_states, &found, space.handle.marker());
            space.note_flushed();
        }
    }
    if !db.stats().keyspaces.is_empty() && db.sync().is_ok() {
        db.wait_for_compaction().unwrap();
        for space in &mut model.spaces {
            space.entries_at_open = check::entries_before(&space.handle.stats());
        }
    }
    check::everything(model);
}

/// Determines the state of a keyspace without a WAL after a crash, which must be one of its earlier
/// states.
fn settle(
    crash_states: &CrashStates,
    found: &Map,
    marker: Option<Vec<u8>>,
) -> (Map, Option<Vec<u8>>) {
    let (mut map, mut set) = crash_states.flushed.clone();
    let mut steps = crash_states.steps.iter();
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

/// Opens the store read-only, compares everything and checks that no byte was changed.
fn check_read_only(model: &mut ModelStore, after_crash: bool) {
    model.note("check it read-only");
    let before = bytes_of(&model.env, &model.path);
    let db = Db::open_read_only(&model.path, model.options()).unwrap();
    adopt(model, &db, after_crash);
    let space = &model.spaces[0].handle;
    assert!(matches!(space.put(b"a", b"b"), Err(Error::Invalid(_))));
    assert!(matches!(db.flush(), Err(Error::Invalid(_))));
    assert!(db.verify().unwrap().damage.is_empty());
    drop(db);
    drop_all(model);
    assert!(bytes_of(&model.env, &model.path) == before, "reading only changed the folder");
}

/// Returns the bytes of every file of a directory except the lock file.
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

/// Makes a checkpoint, compares its content and writes to it; the writes must not change the
/// original store.
pub fn checkpoint(model: &mut ModelStore) {
    model.copies += 1;
    if model.copies > 3 {
        return;
    }
    model.note("copy the store");
    let mut target = model.path.clone();
    target.set_extension(format!("copy{}", model.copies));
    model.db().checkpoint(&target).unwrap();
    model.spaces.iter_mut().for_each(|space| space.note_flushed());
    let options = Options { background_threads: 0, ..model.options() };
    let copy = Db::open(&target, options).unwrap();
    assert!(copy.verify().unwrap().damage.is_empty());
    for space in &model.spaces {
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
