//! Directories as objects: held directories, changes by an operator, and their times.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use umbel_base::Error;
use umbel_env::{Access, DirectoryLocation, Env};
use umbel_sim::{Mount, Sim, Survival};

/// A machine with `/home/data` and `/other/data`, each with a file `name` that names the directory.
fn machine() -> Sim {
    let sim = Sim::new(1);
    for (directory, bytes) in [("/home/data", b"home!"), ("/other/data", b"other")] {
        sim.make_dir(directory);
        let file = sim.env().files.create(&Path::new(directory).join("name")).unwrap();
        file.write_all_at(bytes, 0).unwrap();
        file.sync().unwrap();
        sim.env().files.sync_dir(Path::new(directory)).unwrap();
    }
    sim
}

fn read(env: &Env, path: &str) -> Vec<u8> {
    let file = env.files.open(Path::new(path), Access::Read).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

fn number_of(error: Error) -> Option<i32> {
    match error {
        Error::Io { source, .. } => source.raw_os_error(),
        other => panic!("{other}"),
    }
}

#[test]
fn a_directory_keeps_its_identity_when_it_is_renamed() {
    let sim = machine();
    let (home, other) = (sim.identity("/home/data"), sim.identity("/other/data"));
    assert_ne!(home, other);
    assert_eq!(sim.env().files.identity(Path::new("/home/data")).unwrap(), home);
    sim.move_path("/home/data", "/home/old");
    sim.move_path("/other/data", "/home/data");
    assert_eq!((sim.identity("/home/old"), sim.identity("/home/data")), (home, other));
    assert_eq!(sim.path_of(home.unwrap()).as_deref(), Some(Path::new("/home/old")));
    sim.copy_tree("/home/old", "/home/copy");
    assert_ne!(sim.identity("/home/copy"), home);
    assert_eq!(sim.tree("/home/copy"), sim.tree_of(home.unwrap()));
}

#[test]
fn held_directory_survives_replacement_of_its_path() {
    let sim = machine();
    let env = sim.env().open_directory(Path::new("/home/data")).unwrap();
    assert_eq!(env.files.directory_location().unwrap(), DirectoryLocation::Unchanged);
    sim.move_path("/home/data", "/home/old");
    let path = Some("/home/old".into());
    assert_eq!(env.files.directory_location().unwrap(), DirectoryLocation::Moved { path });
    sim.move_path("/other/data", "/home/data");
    assert_eq!(read(&env, "/home/data/name"), b"home!");
    env.files.create(Path::new("/home/data/more")).unwrap();
    assert!(sim.identity("/home/old/more").is_some() && sim.identity("/home/data/more").is_none());
    env.files.rename(Path::new("/home/data/more"), Path::new("/home/data/name")).unwrap();
    assert_eq!(sim.read("/home/data/name"), b"other");
    assert_eq!(sim.read("/home/old/name"), b"");
}

#[test]
fn only_relative_paths_follow_the_current_directory() {
    let sim = machine();
    let env = sim.env();
    sim.set_current_dir("/home");
    assert_eq!(env.files.absolute(Path::new("data")).unwrap(), Path::new("/home/data"));
    assert_eq!(read(&env, "data/name"), b"home!");
    sim.set_current_dir("/other");
    assert_eq!(read(&env, "data/name"), b"other");
    assert_eq!(read(&env, "/home/data/name"), b"home!");
    // The current directory is an object, too.
    sim.move_path("/other", "/else");
    assert_eq!(read(&env, "data/name"), b"other");
    assert_eq!(env.files.absolute(Path::new("data")).unwrap(), Path::new("/else/data"));
    assert_eq!(read(&env, "/else/../home/data/name"), b"home!");
    sim.set_current_dir("../home/data");
    assert_eq!(read(&env, "name"), b"home!");
    assert_eq!(env.files.absolute(Path::new("../x")).unwrap(), Path::new("/home/data/../x"));
}

#[test]
fn mount_hides_a_directory_from_paths_only() {
    let sim = machine();
    let held = sim.env().open_directory(Path::new("/home/data")).unwrap();
    let home = sim.identity("/home/data").unwrap();
    sim.mount("/other/data", "/home/data", Mount::ReadWrite);
    assert_eq!(read(&sim.env(), "/home/data/name"), b"other");
    assert_eq!(read(&held, "/home/data/name"), b"home!");
    assert!(matches!(held.files.directory_location().unwrap(), DirectoryLocation::Moved { .. }));
    assert_eq!(sim.tree_of(home).into_values().collect::<Vec<_>>(), [b"home!".to_vec()]);
    assert_eq!(sim.path_of(home).as_deref(), Some(Path::new("/home/data")));
    sim.unmount("/home/data");
    assert_eq!(read(&sim.env(), "/home/data/name"), b"home!");
    assert_eq!(held.files.directory_location().unwrap(), DirectoryLocation::Unchanged);
    // A restart unmounts; the death of a process does not.
    sim.mount("/other/data", "/home/data", Mount::ReadWrite);
    assert_eq!(read(&sim.kill_image().env(), "/home/data/name"), b"other");
    let restarted = sim.crash_image(&Survival::All, 1);
    assert_eq!(read(&restarted.env(), "/home/data/name"), b"home!");
}

#[test]
fn read_only_mount_names_the_reason() {
    for (mount, number) in [(Mount::ReadOnly, 30), (Mount::WithoutPermission, 13)] {
        let sim = machine();
        sim.mount("/other/data", "/home/data", mount);
        for env in [sim.env(), sim.env().open_directory(Path::new("/home/data")).unwrap()] {
            let (old, new) = (Path::new("/home/data/name"), Path::new("/home/data/new"));
            let refused = [
                env.files.create(new).map(drop),
                env.files.open(old, Access::ReadWrite).map(drop),
                env.files.rename(old, new),
                env.files.remove_file(old),
                env.files.lock(new).map(drop),
            ];
            for error in refused {
                assert_eq!(number_of(error.unwrap_err()), Some(number));
            }
            assert_eq!(read(&env, "/home/data/name"), b"other");
        }
        assert_eq!(sim.tree("/other/data").len(), 1);
    }
}

#[test]
fn removed_directory_refuses_new_files() {
    let sim = machine();
    let env = sim.env().open_directory(Path::new("/home/data")).unwrap();
    let file = env.files.open(Path::new("/home/data/name"), Access::ReadWrite).unwrap();
    sim.remove_tree("/home/data");
    assert_eq!(env.files.directory_location().unwrap(), DirectoryLocation::Removed);
    assert!(env.files.is_removed().unwrap());
    // The open file is still there for its holder, as its bytes are.
    file.write_all_at(b"more", 5).unwrap();
    file.sync().unwrap();
    let (new, name) = (Path::new("/home/data/new"), Path::new("/home/data/name"));
    for error in [env.files.create(new).map(drop), env.files.lock(new).map(drop)] {
        assert_eq!(number_of(error.unwrap_err()), Some(2));
    }
    assert!(!env.files.exists(name).unwrap());
    // A directory that is made at the path later is another one.
    sim.make_dir("/home/data");
    assert_eq!(env.files.directory_location().unwrap(), DirectoryLocation::Removed);
    assert_eq!(number_of(env.files.create(new).unwrap_err()), Some(2));
    assert!(sim.tree("/home/data").is_empty());
}

#[test]
fn directory_lock_survives_removal_of_its_lock_file() {
    let sim = machine();
    let lock_file = Path::new("/home/data/LOCK");
    let lock =
        sim.env().open_directory(Path::new("/home/data")).unwrap().files.lock(lock_file).unwrap();
    sim.remove_tree(lock_file);
    let again = || sim.env().files.lock(lock_file);
    assert!(matches!(again(), Err(Error::Locked(_))));
    sim.move_path("/home/data", "/home/old");
    let by_new_path = sim.env().files.lock(Path::new("/home/old/LOCK"));
    assert!(matches!(by_new_path, Err(Error::Locked(_))));
    sim.move_path("/other/data", "/home/data");
    drop(again().expect("another directory has a lock of its own"));
    drop(lock);
    drop(sim.env().files.lock(Path::new("/home/old/LOCK")).unwrap());
}

#[test]
fn scheduled_move_precedes_its_call_once() {
    let sim = machine();
    let env = sim.env().open_directory(Path::new("/home/data")).unwrap();
    let made = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&made);
    sim.schedule_before_call(sim.calls() + 2, move |sim| {
        seen.store(sim.calls(), Ordering::Relaxed);
        // A move may make calls itself, and whatever a test may do.
        assert!(sim.env().files.exists(Path::new("/home/data")).unwrap());
        sim.move_path("/home/data", "/home/old");
    });
    let begun = sim.calls();
    assert!(env.files.exists(Path::new("/home/data/name")).unwrap());
    assert_eq!(made.load(Ordering::Relaxed), 0);
    assert_eq!(sim.path_of(sim.identity("/home/data").unwrap()).unwrap(), Path::new("/home/data"));
    assert!(matches!(env.files.directory_location().unwrap(), DirectoryLocation::Moved { .. }));
    assert_eq!(made.load(Ordering::Relaxed), begun + 1);
    assert_eq!(sim.calls(), begun + 3);
    // One whose call has passed comes before the next call, and one may be forgotten.
    sim.schedule_before_call(1, |sim| sim.make_dir("/late"));
    sim.schedule_before_call(sim.calls() + 2, |sim| sim.make_dir("/never"));
    assert!(sim.env().files.exists(Path::new("/late")).unwrap());
    assert_eq!(sim.clear_scheduled(), 1);
    assert!(!sim.env().files.exists(Path::new("/never")).unwrap());
}

#[test]
fn operator_moves_survive_power_loss() {
    let sim = machine();
    let home = sim.identity("/home/data").unwrap();
    let env = sim.env().open_directory(Path::new("/home/data")).unwrap();
    sim.move_path("/home/data", "/home/old");
    sim.move_path("/other/data", "/home/data");
    env.files.create(Path::new("/home/data/unsynced")).unwrap();
    for image in [sim.crash_image(&Survival::None, 1), sim.kill_image()] {
        assert_eq!(image.path_of(home).as_deref(), Some(Path::new("/home/old")));
        assert_eq!(image.read("/home/data/name"), b"other");
        assert_eq!(image.read("/home/old/name"), b"home!");
    }
    assert!(sim.crash_image(&Survival::None, 1).identity("/home/old/unsynced").is_none());
    assert!(sim.kill_image().identity("/home/old/unsynced").is_some());
}
