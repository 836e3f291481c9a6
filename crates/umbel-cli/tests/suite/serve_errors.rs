//! Rejected starts of `umbel serve`: errors, and files on disk.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use umbel_env::skipped_test::print_skipped;

use super::serve::Serving;
use super::test_binary::Fixture;

/// The bytes of all files below a directory.
fn contents(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files.extend(contents(&path)),
            false => drop(files.insert(path.clone(), std::fs::read(&path).unwrap())),
        }
    }
    files
}

/// Regression: the store was created, or opened and recovered, before the options were checked.
#[test]
fn refused_start_leaves_disk_unchanged() {
    let fixture = Fixture::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let free = ["serve", "--listen", "127.0.0.1:0"];
    let of_none = ["--certificate-file", "a.pem", "--certificate-private-key-file", "b"];
    let refused: [(i32, Vec<&str>); 4] = [
        (4, vec!["serve", "--insecure", "--listen", &address]),
        (2, [&free[..], &["--insecure", "--kv", "--kv-memory", "1"]].concat()),
        (2, [&free[..], &["--insecure", "--memory", "1"]].concat()),
        (2, [&free[..], &of_none].concat()),
    ];
    for (code, flags) in &refused {
        fixture.run(flags).fails(*code, &[]);
        assert!(!fixture.store().exists(), "{flags:?}");
    }
    // An open would recover it.
    fixture.append_and_kill(r#"{"stream":"cart-42","type":"Opened","data":{}}"#);
    let before = contents(&fixture.store());
    for (code, flags) in &refused {
        fixture.run(flags).fails(*code, &[]);
        assert!(contents(&fixture.store()) == before, "{flags:?}");
    }
    assert_eq!(Serving::start(&fixture, &["--kv"]).stop(Signal::TERM).0, Some(0));
}

/// Regression: the error was "memory_bytes is 1, which is too small", which names no flag.
#[test]
fn too_small_memory_is_reported_with_its_option() {
    let fixture = Fixture::new();
    let kv = ["serve", "--insecure", "--listen", "127.0.0.1:0", "--kv"];
    let flag = fixture.run(&[&kv[..], &["--kv-memory", "1"]].concat());
    flag.fails(2, &["--kv-memory is 1, which is too small: the least that works is "]);
    let flag = fixture.run(&[&kv[..], &["--memory=2"]].concat());
    flag.fails(2, &["--memory is 2, which is too small: the least that works is "]);
    let file = fixture.path("umbel.toml");
    std::fs::write(&file, "kv-memory = 3\n").unwrap();
    let message = fixture.run(&[&kv[..], &["--config", file.to_str().unwrap()]].concat());
    message.fails(2, &["`kv-memory` in ", "umbel.toml is 3, which is too small"]);
    let mut command = fixture.command();
    command.arg("--db").arg(fixture.store()).args(kv).env("UMBEL_MEMORY", "4");
    let message = String::from_utf8(command.output().unwrap().stderr).unwrap();
    assert!(message.contains("UMBEL_MEMORY is 4, which is too small"), "{message}");
    for command in [&["append"][..], &["put", "a", "b"]] {
        let run = fixture.run(&[command, &["--memory", "5"]].concat());
        run.fails(2, &["--memory is 5, which is too small: the least that works is "]);
    }
}

/// Story: the server did not start while the share for its backups was not permitted to be read. A
/// directory that no backup could use passed without a word.
#[test]
fn unusable_backup_directory_is_a_warning() {
    let fixture = Fixture::new();
    let (locked, foreign) = (fixture.path("locked"), fixture.path("foreign"));
    std::fs::create_dir(&locked).unwrap();
    let other = Fixture::new();
    other.append_and_kill(r#"{"stream":"cart-42","type":"Opened","data":{}}"#);
    other.run(&["backup", "--to", foreign.to_str().unwrap()]).succeeds();
    let notes = |directory: &Path| {
        let serving = Serving::start(&fixture, &["--backup-dir", directory.to_str().unwrap()]);
        let (code, _, notes) = serving.stop(Signal::INT);
        assert_eq!(code, Some(0), "{notes}");
        notes
    };
    let log = notes(&foreign);
    let warning = "backups into the backup directory will fail; name another one";
    assert!(log.contains(warning) && log.contains("holds a backup of another store"), "{log}");
    for mode in [0, 0o555] {
        std::fs::set_permissions(&locked, PermissionsExt::from_mode(mode)).unwrap();
        let is_root = std::fs::create_dir(locked.join("probe")).is_ok();
        let log = if is_root { String::new() } else { notes(&locked) };
        std::fs::set_permissions(&locked, PermissionsExt::from_mode(0o700)).unwrap();
        if is_root {
            print_skipped("a backup directory without permission", "root may write to it");
            return;
        }
        assert!(log.contains("the backup directory cannot be used"), "{mode:o}: {log}");
    }
}

/// Regression: an invalid backup directory was reported only by the first backup.
#[test]
fn invalid_backup_directory_is_rejected_at_start() {
    let fixture = Fixture::new();
    let (file, link) = (fixture.path("file"), fixture.path("link"));
    std::fs::write(&file, "no backup").unwrap();
    std::os::unix::fs::symlink(fixture.path(""), &link).unwrap();
    let inside = "lies in the directory of the store itself";
    let refused = [
        (file, 2, "is a file, but a backup is a directory; name another directory"),
        (fixture.path("file/below"), 2, "cannot be a directory; name another directory"),
        (fixture.path(""), 2, "but no backup; name an empty directory"),
        (fixture.store(), 2, inside),
        (fixture.store().join("backups"), 2, inside),
        (link.join("store/backups"), 2, inside),
    ];
    for (directory, code, why) in &refused {
        let directory = directory.to_str().unwrap();
        let serve = ["serve", "--insecure", "--listen", "127.0.0.1:0", "--backup-dir", directory];
        let served = fixture.run(&serve).fails(*code, &[why]);
        assert!(!fixture.store().exists(), "{directory}");
        fixture.append_and_kill(r#"{"stream":"cart-42","type":"Opened","data":{}}"#);
        let backup = fixture.run(&["backup", "--to", directory]).fails(*code, &[]);
        assert_eq!(backup.sentence(), served.sentence());
        std::fs::remove_dir_all(fixture.store()).unwrap();
    }
}
