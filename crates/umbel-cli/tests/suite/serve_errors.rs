//! `umbel serve` where it is refused: what is said, and what is left behind.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use super::harness::Ground;
use super::serve::Serving;

/// The bytes of all files below a folder.
fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files.extend(contents(&path)),
            false => drop(files.insert(path.clone(), std::fs::read(&path).unwrap())),
        }
    }
    files
}

/// Story: the store was made, or one that was there opened and brought in order, before anybody
/// looked whether it could be served at all.
#[test]
fn a_start_that_is_refused_makes_no_store_and_changes_none() {
    let ground = Ground::new();
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
        ground.run(flags).fails(*code, &[]);
        assert!(!ground.store().exists(), "{flags:?}");
    }
    // Who opens it brings it in order.
    ground.append_and_kill(r#"{"stream":"cart-42","type":"Opened","data":{}}"#);
    let before = contents(&ground.store());
    for (code, flags) in &refused {
        ground.run(flags).fails(*code, &[]);
        assert!(contents(&ground.store()) == before, "{flags:?}");
    }
    assert_eq!(Serving::start(&ground, &["--kv"]).stop(Signal::TERM).0, Some(0));
}

/// Story: "memory_bytes is 1, which is too small" was said, which no flag is called.
#[test]
fn too_little_memory_is_told_by_the_name_that_it_was_given_by() {
    let ground = Ground::new();
    let kv = ["serve", "--insecure", "--listen", "127.0.0.1:0", "--kv"];
    let flag = ground.run(&[&kv[..], &["--kv-memory", "1"]].concat());
    flag.fails(2, &["--kv-memory is 1, which is too small: the least that works is "]);
    let flag = ground.run(&[&kv[..], &["--memory=2"]].concat());
    flag.fails(2, &["--memory is 2, which is too small: the least that works is "]);
    let file = ground.path("umbel.toml");
    std::fs::write(&file, "kv-memory = 3\n").unwrap();
    let said = ground.run(&[&kv[..], &["--config", file.to_str().unwrap()]].concat());
    said.fails(2, &["`kv-memory` in ", "umbel.toml is 3, which is too small"]);
    let mut command = ground.command();
    command.arg("--db").arg(ground.store()).args(kv).env("UMBEL_MEMORY", "4");
    let said = String::from_utf8(command.output().unwrap().stderr).unwrap();
    assert!(said.contains("UMBEL_MEMORY is 4, which is too small"), "{said}");
    for command in [&["append"][..], &["put", "a", "b"]] {
        let run = ground.run(&[command, &["--memory", "5"]].concat());
        run.fails(2, &["--memory is 5, which is too small: the least that works is "]);
    }
}

/// Story: a folder for backups into which none can go was found out by the first backup.
#[test]
fn a_folder_that_no_backup_can_go_to_is_refused_at_the_start() {
    let ground = Ground::new();
    let (file, link) = (ground.path("file"), ground.path("link"));
    std::fs::write(&file, "no backup").unwrap();
    std::os::unix::fs::symlink(ground.path(""), &link).unwrap();
    let inside = "lies in the folder of the store itself";
    let refused = [
        (file, 4, "Not a directory"),
        (ground.path(""), 2, "but no backup; name an empty folder"),
        (ground.store(), 2, inside),
        (ground.store().join("backups"), 2, inside),
        (link.join("store/backups"), 2, inside),
    ];
    for (folder, code, why) in &refused {
        let folder = folder.to_str().unwrap();
        let serve = ["serve", "--insecure", "--listen", "127.0.0.1:0", "--backup-dir", folder];
        let said = ground.run(&serve).fails(*code, &[why]).stderr;
        assert!(!ground.store().exists(), "{folder}");
        ground.append_and_kill(r#"{"stream":"cart-42","type":"Opened","data":{}}"#);
        assert_eq!(ground.run(&["backup", "--to", folder]).fails(*code, &[]).stderr, said);
        std::fs::remove_dir_all(ground.store()).unwrap();
    }
}
