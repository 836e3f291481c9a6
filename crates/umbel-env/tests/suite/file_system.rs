//! Tests of files, directories and the lock.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use umbel_base::Error;
use umbel_env::skipped_test::print_skipped;
use umbel_env::{
    Access, AlignedBuffer, AtomicFile, DIRECT_ALIGNMENT, Env, FileSystem, OwnershipCheck,
    OwnershipCheckedFiles,
};

#[test]
fn path_is_resolved_as_far_as_it_exists() {
    let files = Env::system().files;
    let folder = tempfile::tempdir().unwrap();
    let real = folder.path().canonicalize().unwrap();
    std::fs::create_dir(real.join("there")).unwrap();
    std::os::unix::fs::symlink(real.join("there"), real.join("link")).unwrap();
    let below = |path: &str| files.resolved(&real.join(path));
    assert_eq!(below("link/../there"), real.join("there"));
    assert_eq!(below("link/a/b"), real.join("there/a/b"));
    let here = std::env::current_dir().unwrap().canonicalize().unwrap();
    for path in [".", ""] {
        assert_eq!(files.resolved(Path::new(path)), here);
    }
    assert_eq!(files.resolved(Path::new("missing")), here.join("missing"));
}

#[test]
fn writable_directories_are_recognised() {
    let files = Env::system().files;
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("file"), "").unwrap();
    std::fs::create_dir(at("there")).unwrap();
    std::os::unix::fs::symlink(at("there"), at("link")).unwrap();
    std::os::unix::fs::symlink(at("missing"), at("dangling")).unwrap();
    for name in ["there", "link"] {
        files.check_writable(&at(name)).unwrap();
    }
    let refused = [("file", 20), ("file/below", 20), ("missing", 2), ("dangling", 2)];
    for (name, number) in refused {
        let error = files.check_writable(&at(name)).unwrap_err().to_string();
        assert!(error.contains(&format!("(os error {number})")), "{name}: {error}");
    }
    // Neither listing nor writing is permitted in the first one, and no writing in the second.
    let mut is_root = false;
    for (mode, is_writable) in [(0o100, false), (0o555, false), (0o300, true)] {
        std::fs::set_permissions(at("there"), PermissionsExt::from_mode(mode)).unwrap();
        let can_create = std::fs::create_dir(at("there/probe")).is_ok();
        if can_create {
            std::fs::remove_dir(at("there/probe")).unwrap();
        }
        let checked = files.check_writable(&at("there"));
        assert_eq!(checked.is_ok(), can_create, "{mode:o}: {checked:?}");
        match can_create {
            true if !is_writable => is_root = true,
            _ => assert_eq!(can_create, is_writable, "{mode:o}"),
        }
    }
    if is_root {
        print_skipped("a directory without write permission", "root may write to it");
    }
    let held = files.open_directory(folder.path()).unwrap();
    held.check_writable(&at("there")).unwrap();
    std::fs::set_permissions(at("there"), PermissionsExt::from_mode(0o700)).unwrap();
}

#[test]
fn a_file_is_created_once_with_mode_0600() {
    let folder = tempfile::tempdir().unwrap();
    let env = Env::system();
    let path = folder.path().join("a");
    let file = env.files.create(&path).unwrap();
    file.write_all_at(b"hello", 3).unwrap();
    file.sync().unwrap();
    assert_eq!(file.len().unwrap(), 8);
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let again = env.files.create(&path).unwrap_err();
    let text = again.to_string();
    assert_eq!(text, format!("could not create {}: File exists (os error 17)", path.display()));
}

#[test]
fn reads_stop_at_the_end_and_exact_reads_fail_there() {
    let folder = tempfile::tempdir().unwrap();
    let env = Env::system();
    let path = folder.path().join("a");
    let file = env.files.create(&path).unwrap();
    file.write_all_at(b"0123456789", 0).unwrap();
    let mut buffer = [0; 8];
    assert_eq!(file.read_at(&mut buffer, 6).unwrap(), 4);
    assert_eq!(&buffer[..4], b"6789");
    assert_eq!(file.read_at(&mut buffer, 1000).unwrap(), 0);
    match file.read_exact_at(&mut buffer, 6).unwrap_err() {
        Error::Corruption { file, offset, reason } => {
            assert_eq!((file, offset), (path, 10));
            assert_eq!(reason, "the file ends here, 4 more bytes were expected");
        }
        other => panic!("{other}"),
    }
    file.set_len(2).unwrap();
    file.sync().unwrap();
    assert_eq!(file.len().unwrap(), 2);
    assert!(!file.is_empty().unwrap());
}

#[test]
fn preallocation_adds_zeros_and_never_truncates() {
    let folder = tempfile::tempdir().unwrap();
    let env = Env::system();
    let file = env.files.create(&folder.path().join("a")).unwrap();
    file.write_all_at(b"abc", 0).unwrap();
    file.preallocate(100_000).unwrap();
    file.preallocate(10).unwrap();
    file.preallocate(0).unwrap();
    assert_eq!(file.len().unwrap(), 100_000);
    let mut buffer = vec![1; 100_000];
    file.read_exact_at(&mut buffer, 0).unwrap();
    assert_eq!(&buffer[..3], b"abc");
    assert!(buffer[3..].iter().all(|byte| *byte == 0));
    file.sync().unwrap();
}

#[test]
fn write_through_a_read_handle_names_the_operation() {
    let folder = tempfile::tempdir().unwrap();
    let env = Env::system();
    let path = folder.path().join("a");
    env.files.create(&path).unwrap();
    let file = env.files.open(&path, Access::Read).unwrap();
    let text = file.write_all_at(b"abcd", 16).unwrap_err().to_string();
    let shown = path.display();
    assert_eq!(
        text,
        format!("could not write 4 bytes at 16 of {shown}: Bad file descriptor (os error 9)")
    );
}

#[test]
fn links_pipes_and_directories_are_not_opened() {
    let folder = tempfile::tempdir().unwrap();
    let env = Env::system();
    let real = folder.path().join("real");
    env.files.create(&real).unwrap();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&real, &link).unwrap();
    let text = env.files.open(&link, Access::Read).unwrap_err().to_string();
    let shown = link.display();
    let reason = "it is a symbolic link, which is not followed";
    assert_eq!(text, format!("could not open for reading {shown}: {reason}"));
    assert!(env.files.lock(&link).is_err());
    assert!(env.files.exists(&link).unwrap());
    let text = env.files.open(folder.path(), Access::Read).unwrap_err().to_string();
    let shown = folder.path().display();
    assert_eq!(text, format!("could not open for reading {shown}: it is not a regular file"));
}

#[test]
fn missing_files_are_recognised() {
    let folder = tempfile::tempdir().unwrap();
    let env = Env::system();
    let path = folder.path().join("missing");
    assert!(env.files.open(&path, Access::ReadWrite).unwrap_err().is_missing_file());
    assert!(env.files.remove_file(&path).unwrap_err().is_missing_file());
    assert!(env.files.read_dir(&path).unwrap_err().is_missing_file());
    assert!(env.files.sync_dir(&path).unwrap_err().is_missing_file());
    let target = folder.path().join("target");
    let error = env.files.rename(&path, &target).unwrap_err();
    assert!(error.is_missing_file());
    assert!(error.to_string().contains("target"), "{error}");
    assert!(!env.files.exists(&path).unwrap());
}

#[test]
fn names_are_listed_renamed_linked_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let env = Env::system();
    let at = |name: &str| folder.path().join("x/y").join(name);
    env.files.create_dir_all(&at("sub")).unwrap();
    env.files.create_dir_all(&at("sub")).unwrap();
    let mode = std::fs::metadata(folder.path().join("x")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    env.files.create(&at("b")).unwrap().write_all_at(b"bb", 0).unwrap();
    env.files.create(&at("a")).unwrap().write_all_at(b"a", 0).unwrap();
    env.files.hard_link(&at("b"), &*env.files, &at("c")).unwrap();
    assert!(env.files.hard_link(&at("b"), &*env.files, &at("a")).is_err());
    env.files.rename(&at("b"), &at("a")).unwrap();
    env.files.sync_dir(&folder.path().join("x/y")).unwrap();
    let entries = env.files.read_dir(&folder.path().join("x/y")).unwrap();
    let seen: Vec<_> = entries.iter().map(|e| (e.name.as_str(), e.len, e.is_directory)).collect();
    assert_eq!(seen, [("a", 2, false), ("c", 2, false), ("sub", 0, true)]);
    env.files.remove_file(&at("a")).unwrap();
    assert!(!env.files.exists(&at("a")).unwrap());
    assert!(env.files.exists(&at("sub")).unwrap());
}

#[test]
fn a_second_lock_is_refused_until_the_first_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let env = Env::system();
    let path = folder.path().join("LOCK");
    let first = env.files.lock(&path).unwrap();
    let second = Env::system().files.lock(&path).unwrap_err();
    assert!(matches!(&second, Error::Locked(at) if at == folder.path()));
    assert_eq!(
        second.to_string(),
        format!(
            "the store in {} is in use by another process or handle; close that one first",
            folder.path().display()
        )
    );
    // Another spelling of the same folder is the same lock.
    let spelled = folder.path().join(".").join("LOCK");
    assert!(matches!(env.files.lock(&spelled), Err(Error::Locked(_))));
    drop(first);
    env.files.lock(&path).unwrap();
}

#[test]
fn a_lock_of_another_open_file_is_seen_too() {
    let folder = tempfile::tempdir().unwrap();
    let env = Env::system();
    let path = folder.path().join("LOCK");
    let other = std::fs::File::create(&path).unwrap();
    other.lock().unwrap();
    assert!(matches!(env.files.lock(&path), Err(Error::Locked(_))));
    // The failed attempt left nothing in the registry.
    drop(other);
    env.files.lock(&path).unwrap();
}

/// Writes three times with direct writes, if the file system allows them, with every other kind of
/// access in between.
fn write_directly(folder: &Path) -> bool {
    let env = Env::system();
    let file = env.files.create(&folder.join("direct")).unwrap();
    let mut piece = AlignedBuffer::new(2 * DIRECT_ALIGNMENT);
    piece.fill(&[7; 2 * DIRECT_ALIGNMENT]);
    let allowed = file.write_direct(piece.bytes(), 0).unwrap();
    let end = piece.len() as u64;
    file.preallocate(16 * end).unwrap();
    assert_eq!(file.write_direct(piece.bytes(), end).unwrap(), allowed);
    // An unaligned write is refused, and writes nothing.
    assert!(!file.write_direct(&piece.bytes()[1..], 0).unwrap());
    assert!(!file.write_direct(piece.bytes(), 1).unwrap());
    file.write_all_at(b"not aligned", 2 * end + 3).unwrap();
    let mut read = [0; 11];
    file.read_exact_at(&mut read, 2 * end + 3).unwrap();
    assert_eq!(&read, b"not aligned");
    assert_eq!(file.write_direct(piece.bytes(), 4 * end).unwrap(), allowed);
    file.set_len(5 * end - 5).unwrap();
    file.sync().unwrap();
    let bytes = std::fs::read(folder.join("direct")).unwrap();
    assert_eq!(bytes.len() as u64, 5 * end - 5);
    let sevens = bytes.iter().filter(|byte| **byte == 7).count() as u64;
    assert_eq!(sevens, if allowed { 3 * end - 5 } else { 0 });
    allowed
}

#[test]
fn direct_io_is_used_or_reported_as_off() {
    let folder = tempfile::tempdir().unwrap();
    write_directly(folder.path());
    // A file system in memory, which in most kernels refuses.
    if let Ok(folder) = tempfile::tempdir_in("/dev/shm") {
        write_directly(folder.path());
    }
}

#[test]
fn only_an_empty_directory_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let env = Env::system();
    let path = folder.path().join("a");
    env.files.create_dir_all(&path).unwrap();
    let file = path.join("b");
    env.files.create(&file).unwrap();
    assert!(env.files.remove_dir(&path).is_err(), "there is a file in it");
    assert!(env.files.remove_dir(&file).is_err(), "a file is no directory");
    env.files.remove_file(&file).unwrap();
    env.files.remove_dir(&path).unwrap();
    assert!(!env.files.exists(&path).unwrap());
    assert!(env.files.remove_dir(&path).unwrap_err().is_missing_file());
}

/// Story: a thread that checked a root file while another thread replaced it could mistake the old
/// file, or the new one, for that of another program. The store was read-only from then on.
#[test]
fn root_file_replace_refuses_a_foreign_file() {
    let folder = tempfile::tempdir().unwrap();
    let held = Env::system().open_directory(folder.path()).unwrap().files;
    let (path, new) = (folder.path().join("ROOT"), folder.path().join("ROOT.new"));
    let root = Arc::new(AtomicFile::new(Arc::clone(&held), path.clone()));
    let own = OwnershipCheckedFiles::new(held, Arc::<AtomicFile>::clone(&root));
    let replace = |number: u32| {
        if own.exists(&new).unwrap() {
            own.remove_file(&new).unwrap();
        }
        let file = own.create(&new).unwrap();
        file.write_all_at(&number.to_le_bytes(), 0).unwrap();
        root.replace(&own, &new, file).unwrap();
    };
    replace(0);
    std::thread::scope(|scope| {
        let checked = scope.spawn(|| (0..8_000).try_for_each(|_| OwnershipCheck::check(&*root)));
        (1..150).for_each(replace);
        checked.join().unwrap().unwrap();
    });
    std::fs::write(folder.path().join("other"), 7u32.to_le_bytes()).unwrap();
    std::fs::rename(folder.path().join("other"), &path).unwrap();
    assert!(matches!(root.check(), Err(Error::Replaced { .. })));
    let file = own.create(&folder.path().join("next")).unwrap();
    let error = root.replace(&own, &folder.path().join("next"), file).unwrap_err();
    assert!(error.to_string().contains("another file has its name"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), 7u32.to_le_bytes());
}

/// A file that another program put into a writer's directory does not belong to the writer.
#[test]
fn foreign_files_are_not_changed() {
    let folder = tempfile::tempdir().unwrap();
    let held = Env::system().open_directory(folder.path()).unwrap().files;
    let root = Arc::new(AtomicFile::new(Arc::clone(&held), folder.path().join("ROOT")));
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("found"), b"found").unwrap();
    let own = OwnershipCheckedFiles::new(held, root);
    own.read_dir(folder.path()).unwrap();
    for name in ["made", "replaced"] {
        own.create(&at(name)).unwrap();
    }
    std::fs::write(at("aside"), b"other").unwrap();
    std::fs::rename(at("aside"), at("replaced")).unwrap();
    std::fs::write(at("unknown"), b"other").unwrap();
    for name in ["replaced", "unknown"] {
        let path = at(name);
        let refused = [
            own.remove_file(&path),
            own.rename(&path, &at("renamed")),
            own.open(&path, Access::ReadWrite).map(drop),
        ];
        for refused in refused {
            assert!(matches!(refused, Err(Error::Replaced { .. })), "{name}: {refused:?}");
        }
        own.open(&path, Access::Read).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"other");
    }
    assert!(matches!(own.check_named(&at("replaced")), Err(Error::Replaced { .. })));
    own.check_named(&at("made")).unwrap();
    own.rename(&at("made"), &at("renamed")).unwrap();
    own.check_named(&at("renamed")).unwrap();
    for name in ["renamed", "found"] {
        own.remove_file(&at(name)).unwrap();
    }
    assert!(matches!(own.check_named(&at("found")), Err(Error::Replaced { .. })));
}

#[test]
fn time_of_a_file_is_that_of_its_last_change() {
    let directory = tempfile::tempdir().unwrap();
    let env = Env::system();
    let path = directory.path().join("a");
    let file = env.files.create(&path).unwrap();
    let created = file.modified_micros().unwrap();
    assert!(created.abs_diff(env.clock.wall_micros()) < 60_000_000);
    env.threads.pause(std::time::Duration::from_millis(30));
    env.files.hard_link(&path, &*env.files, &directory.path().join("b")).unwrap();
    assert_eq!(file.modified_micros().unwrap(), created);
    file.write_all_at(b"x", 0).unwrap();
    let written = file.modified_micros().unwrap();
    assert!(written > created);
    std::os::unix::fs::symlink(&path, directory.path().join("c")).unwrap();
    env.files.create_dir_all(&directory.path().join("d")).unwrap();
    let entries = env.files.read_dir(directory.path()).unwrap();
    let kinds: Vec<_> = entries.iter().map(|e| (e.is_file, e.is_directory)).collect();
    assert_eq!(kinds, [(true, false), (true, false), (false, false), (false, true)]);
    assert_eq!((entries[0].modified_micros, entries[1].modified_micros), (written, written));
}
