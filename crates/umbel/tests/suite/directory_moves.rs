//! Tests, on the real kernel, that a store stays in the directory that it opened. Each case runs in
//! a process of its own.
//!
//! Story of all these tests: after `Db::open("data")` the current directory changed, or a rename, a
//! link or a mount happened. After that, flush, put and close returned `Ok` while they overwrote
//! `CURRENT` of another store and removed its WAL.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use umbel::{Db, Durability, Error, KeyspaceOptions, Options};
use umbel_env::skipped_test::print_skipped;

use crate::suite::child_process;

const ENTRIES: u32 = 400;

fn options() -> Options {
    Options { memory_bytes: Some(16 << 20), ..Options::default() }
}

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

fn put(db: &Db, entries: std::ops::Range<u32>, word: &str) {
    let keyspace = db.keyspace("default", KeyspaceOptions::default()).unwrap();
    for number in entries {
        keyspace.put(key(number), word).unwrap();
    }
}

/// Creates another store and closes it.
fn other(path: &Path) {
    let db = Db::open(path, options()).unwrap();
    put(&db, 0..50, "other");
    db.keyspace("default", KeyspaceOptions::default()).unwrap().flush().unwrap();
    put(&db, 50..100, "other");
    db.close().unwrap();
}

/// Uses every kind of write, flush and compaction, so that each kind of file is created and
/// removed.
fn work(db: &Db, from: u32) {
    let keyspace = db.keyspace("default", KeyspaceOptions::default()).unwrap();
    put(db, from..from + ENTRIES, "own");
    keyspace.flush().unwrap();
    keyspace.put([0xff; 4], vec![7; 2 << 20]).unwrap();
    let mut batch = db.batch();
    batch.put(&keyspace, b"synced", b"yes");
    batch.commit(Durability::Synced).unwrap();
    db.keyspace("second", KeyspaceOptions::default()).unwrap().put(b"a", b"b").unwrap();
    keyspace.flush().unwrap();
    keyspace.compact(None, None).unwrap();
}

/// Opens a store that `work` wrote and checks all of it.
fn check(path: &Path, through: u32) {
    let db = Db::open(path, options()).unwrap();
    let keyspace = db.keyspace("default", KeyspaceOptions::default()).unwrap();
    for number in 0..through {
        assert_eq!(keyspace.get(key(number)).unwrap().as_deref(), Some(&b"own"[..]), "{number}");
    }
    assert_eq!(keyspace.get(b"synced").unwrap().as_deref(), Some(&b"yes"[..]));
    assert!(db.verify().unwrap().damage.is_empty());
    db.close().unwrap();
}

/// The bytes of every file in a directory, by its name.
fn bytes(path: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let files = entries.filter(|path| path.is_file());
    let name = |path: &Path| PathBuf::from(path.file_name().unwrap());
    files.map(|path| (name(&path), fs::read(&path).unwrap())).collect()
}

fn root() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn run(name: &str) {
    child_process::run(&format!("suite::directory_moves::{name}"), "go", "");
}

#[test]
fn current_directory_may_change_while_open() {
    run("child_changes_its_current_directory");
}

#[test]
#[ignore = "runs in a process of its own"]
fn child_changes_its_current_directory() {
    let Some(_) = child_process::argument() else { return };
    let root = root();
    let (here, there) = (root.path().join("here"), root.path().join("there"));
    fs::create_dir_all(&here).unwrap();
    fs::create_dir_all(&there).unwrap();
    other(&there.join("data"));
    let before = bytes(&there.join("data"));
    std::env::set_current_dir(&here).unwrap();
    let db = Db::open("data", options()).unwrap();
    put(&db, 0..10, "own");
    for (round, directory) in [&*there, Path::new("/")].into_iter().enumerate() {
        std::env::set_current_dir(directory).unwrap();
        work(&db, round as u32 * ENTRIES);
    }
    std::env::set_current_dir(&there).unwrap();
    // A target is relative to the current directory of its call.
    let report = db.checkpoint("copy").unwrap();
    assert!(report.files_linked > 0 && report.files_copied == 0, "{report:?}");
    assert!(!db.stats().directory.is_moved);
    db.close().unwrap();
    assert_eq!(bytes(&there.join("data")), before, "the other store was touched");
    check(&here.join("data"), 2 * ENTRIES);
    check(&there.join("copy"), 2 * ENTRIES);
}

#[test]
fn replacing_store_is_left_unchanged() {
    let root = root();
    let at = |name: &str| root.path().join(name);
    other(&at("restored"));
    let db = Db::open(at("data"), options()).unwrap();
    work(&db, 0);
    fs::rename(at("data"), at("data.bad")).unwrap();
    let stats = db.stats().directory;
    assert!(stats.is_moved && stats.path_now == Some(at("data.bad")), "{stats:?}");
    fs::rename(at("restored"), at("data")).unwrap();
    let before = bytes(&at("data"));
    work(&db, ENTRIES);
    assert!(db.stats().to_string().contains("leads elsewhere now"));
    // The store that replaced it is open at the same time.
    let restored = Db::open(at("data"), options()).unwrap();
    restored.close().unwrap();
    let before_close = bytes(&at("data"));
    db.close().unwrap();
    assert_eq!(bytes(&at("data")), before_close, "the store in its place was touched");
    assert!(before_close.len() >= before.len() - 1);
    check(&at("data.bad"), 2 * ENTRIES);
}

#[test]
fn symlink_on_path_may_be_redirected() {
    let root = root();
    let at = |name: &str| root.path().join(name);
    fs::create_dir_all(at("first")).unwrap();
    other(&at("second/data"));
    let before = bytes(&at("second/data"));
    for link in ["link", "first/data"] {
        let target = if link == "link" { at("first") } else { at("real") };
        fs::create_dir_all(&target).unwrap();
        std::os::unix::fs::symlink(&target, at(link)).unwrap();
        let path = if link == "link" { at("link/plain") } else { at("first/data") };
        let db = Db::open(&path, options()).unwrap();
        work(&db, 0);
        fs::remove_file(at(link)).unwrap();
        let elsewhere = if link == "link" { at("second") } else { at("second/data") };
        std::os::unix::fs::symlink(elsewhere, at(link)).unwrap();
        work(&db, ENTRIES);
        assert!(db.stats().directory.is_moved, "{link}");
        db.close().unwrap();
        assert_eq!(bytes(&at("second/data")), before, "{link}: the other store was touched");
        check(&if link == "link" { at("first/plain") } else { at("real") }, 2 * ENTRIES);
    }
}

#[test]
fn removed_directory_is_fatal() {
    let root = root();
    let path = root.path().join("data");
    let db = Db::open(&path, options()).unwrap();
    work(&db, 0);
    // A thread of the store may make a file meanwhile.
    while path.exists() {
        fs::remove_dir_all(&path).ok();
    }
    assert!(db.stats().directory.is_removed);
    let keyspace = db.keyspace("default", KeyspaceOptions::default()).unwrap();
    let _ = keyspace.put(b"late", b"write");
    let error = keyspace.flush().expect_err("nothing can be flushed");
    assert!(matches!(error, Error::Replaced { .. } | Error::Io { .. }), "{error}");
    keyspace.put(b"later", b"write").expect_err("the store is lost");
    db.close().expect_err("the store is lost");
    assert!(!path.exists(), "a store was made again");
}

#[test]
fn removed_lock_file_admits_no_second_writer() {
    let root = root();
    let db = Db::open(root.path().join("data"), options()).unwrap();
    fs::remove_file(root.path().join("data/LOCK")).unwrap();
    let refused = Db::open(root.path().join("data"), options()).expect_err("it is open");
    assert!(matches!(refused, Error::Locked(_)), "{refused}");
    work(&db, 0);
    db.close().unwrap();
    check(&root.path().join("data"), ENTRIES);
}

/// A snapshot of the directory, or another store, is copied over the open one.
#[test]
fn replaced_files_are_not_overwritten() {
    for source in ["own", "other"] {
        let root = root();
        let at = |name: &str| root.path().join(name);
        let db = Db::open(at("data"), options()).unwrap();
        work(&db, 0);
        match source {
            "own" => copy_over(&at("data"), &at("snapshot")),
            _ => other(&at("snapshot")),
        }
        work(&db, ENTRIES);
        copy_over(&at("snapshot"), &at("data"));
        let keyspace = db.keyspace("default", KeyspaceOptions::default()).unwrap();
        let _ = keyspace.put(b"late", b"write");
        let error = keyspace.flush().expect_err("the files are another state's");
        assert!(matches!(error, Error::Replaced { .. }), "{source}: {error}");
        assert!(error.to_string().contains("another program"), "{error}");
        db.close().expect_err("it is read-only");
        for (path, content) in bytes(&at("snapshot")) {
            let name = path.file_name().unwrap();
            // The mapped WAL shows the writes of the open handle.
            if path.extension().is_none_or(|extension| extension != "log") {
                let found = fs::read(at("data").join(name)).unwrap();
                assert!(found == content, "{source}: {} was changed", path.display());
            }
        }
    }
}

/// Copies the files of a directory into another one as `rsync` does: each is written under another
/// name and renamed over the existing one. Truncating a mapped WAL would kill the process.
fn copy_over(source: &Path, target: &Path) {
    fs::create_dir_all(target).unwrap();
    for (path, content) in bytes(source) {
        let name = path.file_name().unwrap();
        fs::write(target.join(".new"), content).unwrap();
        fs::rename(target.join(".new"), target.join(name)).unwrap();
    }
}

/// Runs a child under another program; `false` if that is not possible here.
fn below(program: &str, args: &[&str], name: &str, root: &Path) -> bool {
    let executable = std::env::current_exe().unwrap();
    let output = Command::new(program)
        .args(args)
        .arg(executable)
        .args(["--exact", &format!("suite::directory_moves::{name}")])
        .args(["--ignored", "--nocapture", "--test-threads=1"])
        .env(child_process::ARGUMENT, root)
        .output();
    let Ok(output) = output else {
        print_skipped(name, format!("there is no {program}"));
        return false;
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    if !text.contains("running 1 test") {
        print_skipped(name, format!("{program} cannot be used here: {}", complaint.trim()));
        return false;
    }
    assert!(output.status.success() && text.contains("1 passed"), "{text}{complaint}");
    true
}

#[test]
fn no_absolute_path_is_resolved_after_open() {
    let root = root();
    let trace = root.path().join("trace");
    let args = ["-f", "-y", "-e", "trace=%file", "-o", trace.to_str().unwrap()];
    if !below("strace", &args, "child_is_traced", root.path()) {
        return;
    }
    let text = fs::read_to_string(&trace).unwrap();
    let after = text.split_once("umbel-test-opened").expect("the open is marked").1;
    let during = after.split_once("umbel-test-closed").expect("the close is marked").0;
    assert!(during.contains("unlinkat(") && during.contains("openat("), "nothing was traced");
    // `-y` shows the path of a descriptor after its number: those are not resolved.
    let store = root.path().join("traced");
    let path = store.to_str().unwrap();
    for line in during.lines().filter(|line| line.contains("traced")) {
        let from_root = format!("\"{}", path.trim_start_matches('/'));
        let named = line.contains(&format!("\"{path}")) || line.contains(&from_root);
        let named = named || line.contains("AT_FDCWD");
        // `stats()` checks the target of the path, and nothing below it.
        let is_look =
            line.contains("newfstatat(AT_FDCWD") && line.contains(&format!("\"{path}\","));
        let named = named && !is_look;
        assert!(!named, "a path of the store is resolved: {line}");
    }
}

#[test]
#[ignore = "runs below strace"]
fn child_is_traced() {
    let Some(root) = child_process::argument() else { return };
    std::env::set_current_dir(&root).unwrap();
    let db = Db::open("traced", options()).unwrap();
    let _ = fs::metadata("/umbel-test-opened");
    work(&db, 0);
    work(&db, ENTRIES);
    let _ = db.stats();
    db.close().unwrap();
    let _ = fs::metadata("/umbel-test-closed");
}

fn shell(command: &str) {
    let output = Command::new("sh").args(["-c", command]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command}: {stderr}");
}

#[test]
fn open_store_survives_mounts_over_it() {
    let root = root();
    below("unshare", &["--mount"], "child_has_mounts", root.path());
}

#[test]
#[ignore = "runs in a mount namespace of its own"]
fn child_has_mounts() {
    let Some(root) = child_process::argument() else { return };
    let at = |name: &str| Path::new(&root).join(name);
    other(&at("other"));
    let before = bytes(&at("other"));
    let db = Db::open(at("data"), options()).unwrap();
    work(&db, 0);
    shell(&format!("mount --bind {0}/other {0}/data", root));
    assert!(db.stats().directory.is_moved);
    work(&db, ENTRIES);
    assert_eq!(bytes(&at("data")), before, "the mounted store was touched");
    shell(&format!("umount {root}/data"));
    assert!(!db.stats().directory.is_moved);
    // The directory becomes read-only: writes fail, and the handle reports the reason.
    shell(&format!("mount --bind {0}/other {0}/data && mount -o remount,ro,bind {0}/data", root));
    work(&db, 2 * ENTRIES);
    db.close().unwrap();
    shell(&format!("umount {root}/data"));
    check(&at("data"), 3 * ENTRIES);
    assert_eq!(bytes(&at("other")), before);
    unmount_and_remount(&root);
    copy_up(&root);
}

/// The disk of the parent directory is unmounted (lazily, since it is in use) and mounted again.
fn unmount_and_remount(root: &str) {
    shell(&format!(
        "truncate -s 64M {root}/image && mkfs.ext4 -q {root}/image && mkdir {root}/disk && \
         mount -o loop {root}/image {root}/disk"
    ));
    let path = Path::new(root).join("disk/data");
    let db = Db::open(&path, options()).unwrap();
    work(&db, 0);
    shell(&format!("umount --lazy {root}/disk"));
    assert!(db.stats().directory.is_moved);
    work(&db, ENTRIES);
    db.close().unwrap();
    shell(&format!("mount -o loop {0}/image {0}/disk", root));
    check(&path, 2 * ENTRIES);
    shell(&format!("umount {root}/disk"));
}

/// A store in the lower layer of an overlay, whose files are copied up while it is open.
fn copy_up(root: &str) {
    shell(&format!(
        "mkdir {root}/layers && mount -t tmpfs tmpfs {root}/layers && cd {root}/layers && \
         mkdir lower upper work merged"
    ));
    let layers = Path::new(root).join("layers");
    let db = Db::open(layers.join("lower/data"), options()).unwrap();
    work(&db, 0);
    db.close().unwrap();
    let before = bytes(&layers.join("lower/data"));
    shell(&format!(
        "cd {root}/layers && mount -t overlay overlay \
         -o lowerdir=lower,upperdir=upper,workdir=work merged"
    ));
    let db = Db::open(layers.join("merged/data"), options()).unwrap();
    shell(&format!(
        "chown -R nobody {0}/layers/merged/data; chmod -R a+r {0}/layers/merged/data",
        root
    ));
    work(&db, ENTRIES);
    db.close().unwrap();
    check(&layers.join("merged/data"), 2 * ENTRIES);
    assert_eq!(bytes(&layers.join("lower/data")), before, "the lower layer was changed");
}

/// Story: each read-only open leaked two descriptors, through a cycle of references between open
/// files and the object that explains missing files. A program that repeatedly opened the newest
/// state reached its limit of descriptors, and the disk could not be unmounted.
#[test]
#[cfg(target_os = "linux")]
fn closed_reader_holds_no_descriptor() {
    let root = root();
    let path = root.path().join("read");
    other(&path);
    let held = || {
        let descriptors = fs::read_dir("/proc/self/fd").unwrap().flatten();
        let targets = descriptors.filter_map(|entry| fs::read_link(entry.path()).ok());
        targets.filter(|target| target.starts_with(root.path())).count()
    };
    for is_closed in [true, false] {
        let db = Db::open_read_only(&path, options()).unwrap();
        let keyspace = db.existing_keyspace("default").unwrap().unwrap();
        assert!(keyspace.get(key(0)).unwrap().is_some());
        assert!(held() > 0);
        drop(keyspace);
        if is_closed {
            db.close().unwrap();
        } else {
            drop(db);
        }
        assert_eq!(held(), 0, "closed: {is_closed}");
    }
}

/// Story: a checkpoint could be made inside the directory of the store. A checkpoint with the name
/// of a file that the store makes blocked every write and the next open.
#[test]
fn checkpoint_inside_a_store_is_rejected() {
    let root = root();
    let (path, second) = (root.path().join("store"), root.path().join("second"));
    other(&second);
    let db = Db::open(&path, options()).unwrap();
    put(&db, 0..10, "own");
    for target in [path.join("CURRENT.new"), path.join("deep/er"), second.join("copy")] {
        let error = db.checkpoint(&target).unwrap_err().to_string();
        assert!(error.contains("lies in the directory of the store"), "{error}");
        assert!(!target.exists());
    }
    std::os::unix::fs::symlink(&path, root.path().join("link")).unwrap();
    db.checkpoint(root.path().join("link/copy")).unwrap_err();
    put(&db, 10..20, "own");
    db.close().unwrap();
}

/// The path of the current directory leads elsewhere after a mount over it. A store that resolved a
/// relative path by that path opened another store.
#[test]
#[ignore = "runs in a mount namespace of its own"]
fn child_below_a_mount() {
    let Some(argument) = std::env::var_os(child_process::ARGUMENT) else { return };
    let here = PathBuf::from(argument).join("here");
    fs::create_dir_all(&here).unwrap();
    std::env::set_current_dir(&here).unwrap();
    other(Path::new("store"));
    let mounted = Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&here).status();
    assert!(mounted.unwrap().success());
    let error = Db::open("store", options()).unwrap_err().to_string();
    assert!(error.contains("leads elsewhere now") && error.contains("absolute path"), "{error}");
    assert!(fs::read_dir(&here).unwrap().next().is_none(), "nothing is made on the mount");
}

#[test]
#[cfg(target_os = "linux")]
fn relative_path_below_a_mount_is_rejected() {
    let root = root();
    below("unshare", &["--mount"], "child_below_a_mount", root.path());
}
