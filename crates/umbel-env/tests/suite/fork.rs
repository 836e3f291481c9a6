//! Tests that a forked child changes no file and no lock that its parent opened.

use std::os::unix::fs::symlink;
use std::path::Path;

use umbel_base::Error;
use umbel_env::test_processes::{fork, fork_without_handlers, in_forked_child, in_own_process};
use umbel_env::{Access, Env};

fn is_forked<T>(result: umbel_base::Result<T>) -> bool {
    matches!(result, Err(Error::Forked(_)))
}

/// Story: a child dropped its copy of the lock, and unlocked its parent's lock. A third process
/// opened the store at the same time.
#[test]
fn a_child_that_drops_a_lock_leaves_it_locked() {
    in_own_process("suite::fork::a_child_that_drops_a_lock_leaves_it_locked", || {
        let folder = tempfile::tempdir().unwrap();
        let (env, path) = (Env::system(), folder.path().join("LOCK"));
        let mut lock = Some(env.files.lock(&path).unwrap());
        for without_handlers in [false, true] {
            let work = || {
                drop(lock.take());
                assert!(matches!(env.files.lock(&path), Err(Error::Locked(_))));
            };
            match without_handlers {
                false => in_forked_child(work),
                true => fork_without_handlers(work).wait(),
            }
            assert!(matches!(env.files.lock(&path), Err(Error::Locked(_))));
            in_forked_child(|| assert!(matches!(env.files.lock(&path), Err(Error::Locked(_)))));
        }
        drop(lock);
        drop(env.files.lock(&path).unwrap());
    });
}

/// Story: the child inherited the list of locks of its parent, and was refused a store that no
/// process had open any more.
#[test]
fn child_takes_a_lock_that_its_parent_released() {
    in_own_process("suite::fork::child_takes_a_lock_that_its_parent_released", || {
        let folder = tempfile::tempdir().unwrap();
        let (env, path) = (Env::system(), folder.path().join("LOCK"));
        let lock = std::cell::Cell::new(Some(env.files.lock(&path).unwrap()));
        let (given_up, mut go) = std::io::pipe().unwrap();
        let child = fork(|| {
            std::io::Read::read_exact(&mut &given_up, &mut [0]).unwrap();
            let own = env.files.lock(&path).unwrap();
            // The copy of the parent's must not take this one along.
            drop(lock.take());
            assert!(matches!(env.files.lock(&path), Err(Error::Locked(_))));
            drop(own);
        });
        drop(lock.take());
        std::io::Write::write_all(&mut go, &[1]).unwrap();
        child.wait();
        drop(env.files.lock(&path).unwrap());
    });
}

/// Story: a child that lived longer than its parent kept the store locked until the child ended,
/// too.
#[test]
fn child_does_not_keep_locks_of_a_dead_parent() {
    in_own_process("suite::fork::child_does_not_keep_locks_of_a_dead_parent", || {
        let folder = tempfile::tempdir().unwrap();
        let (env, path) = (Env::system(), folder.path().join("LOCK"));
        let (is_over, over) = std::io::pipe().unwrap();
        let over = std::cell::Cell::new(Some(over));
        in_forked_child(|| {
            drop(over.take());
            let _lock = env.files.lock(&path).unwrap();
            // It lives until the test ends, and must not be waited for.
            fork(|| drop(std::io::Read::read(&mut &is_over, &mut [0])));
        });
        drop(env.files.lock(&path).expect("its holder has died"));
        drop(over);
    });
}

/// Story: a store was identified by its path, so that one process could open it twice by two paths.
#[test]
fn a_directory_by_another_path_is_the_same_one() {
    let folder = tempfile::tempdir().unwrap();
    let env = Env::system();
    let (first, moved) = (folder.path().join("first"), folder.path().join("moved"));
    std::fs::create_dir(&first).unwrap();
    symlink(&first, folder.path().join("link")).unwrap();
    let lock = env.files.lock(&first.join("LOCK")).unwrap();
    let refused = |path: &Path| matches!(env.files.lock(&path.join("LOCK")), Err(Error::Locked(_)));
    assert!(refused(&folder.path().join("link")));
    assert!(refused(&first.join("../first/.")));
    std::fs::rename(&first, &moved).unwrap();
    assert!(refused(&moved));
    // A hard link of the lock file in another directory is the same file.
    std::fs::create_dir(&first).unwrap();
    std::fs::hard_link(moved.join("LOCK"), first.join("LOCK")).unwrap();
    assert!(refused(&first));
    std::fs::remove_file(first.join("LOCK")).unwrap();
    drop(env.files.lock(&first.join("LOCK")).expect("it is another directory"));
    drop(lock);
    drop(env.files.lock(&moved.join("LOCK")).unwrap());
}

/// Story: a child wrote into its parent's log through the descriptor and the mapping that it
/// inherited.
#[test]
fn a_child_changes_no_file_of_its_parent() {
    in_own_process("suite::fork::a_child_changes_no_file_of_its_parent", || {
        let folder = tempfile::tempdir().unwrap();
        let (env, path) = (Env::system().fork_guarded(), folder.path().join("file"));
        let file = env.files.create(&path).unwrap();
        file.write_all_at(b"parent", 0).unwrap();
        file.preallocate(4096).unwrap();
        let mut mapping = file.map(4096).unwrap();
        in_forked_child(|| {
            assert!(is_forked(file.write_all_at(b"child", 0)));
            assert!(is_forked(file.set_len(0)));
            assert!(is_forked(file.preallocate(8192)));
            assert!(is_forked(file.sync()));
            assert!(is_forked(file.read_at(&mut [0; 8], 0)));
            assert!(is_forked(file.map(4096)));
            if let Some(mapping) = &mut mapping {
                assert!(is_forked(mapping.write_at(b"child", 0)));
            }
            let (files, other) = (&env.files, folder.path().join("other"));
            assert!(is_forked(files.create(&other)));
            assert!(is_forked(files.open(&path, Access::ReadWrite)));
            assert!(is_forked(files.rename(&path, &other)));
            assert!(is_forked(files.hard_link(&path, &**files, &other)));
            assert!(is_forked(files.remove_file(&path)));
            assert!(is_forked(files.remove_dir(folder.path())));
            assert!(is_forked(files.create_dir_all(&other)));
            assert!(is_forked(files.sync_dir(folder.path())));
            assert!(is_forked(files.lock(&path)));
            // Files that the child opens belong to the child.
            let own = env.fork_guarded();
            assert!(is_forked(own.files.create(&other)));
            Env::system().files.create(&other).unwrap().sync().unwrap();
        });
        let mut bytes = [0; 6];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"parent");
        assert!(env.files.exists(&folder.path().join("other")).unwrap());
    });
}

/// Story: a child waited for a thread that only its parent has.
#[test]
fn a_child_does_not_wait_for_threads_of_its_parent() {
    in_own_process("suite::fork::a_child_does_not_wait_for_threads_of_its_parent", || {
        let (end, wait) = std::sync::mpsc::channel::<()>();
        let work = move || assert!(wait.recv().is_err());
        let thread = Env::system().threads.spawn("waits", Box::new(work)).unwrap();
        let mut thread = Some(thread);
        in_forked_child(|| assert!(!thread.take().unwrap().join()));
        drop(end);
        assert!(thread.unwrap().join());
    });
}
