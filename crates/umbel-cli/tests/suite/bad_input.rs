//! Whatever is wrong with the request or the disk: one sentence, the right exit code, no panic.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use umbel_base::checksum::checksum;

use super::harness::{Ground, Run, file_of, wait_until};

/// Every command that needs a store that exists.
const NEED_A_STORE: [&[&str]; 8] = [
    &["get", "a"],
    &["delete", "a"],
    &["scan"],
    &["stats"],
    &["verify"],
    &["inspect"],
    &["compact"],
    &["checkpoint", "copy"],
];

#[test]
fn typos_are_answered_with_what_was_meant() {
    let ground = Ground::new();
    ground.bare(&["bech"]).fails(2, &["no command `bech`", "did you mean `bench`?"]);
    ground.run(&["scan", "--prefx=a"]).fails(2, &["`--prefx`", "did you mean `--prefix`?"]);
    let other = ground.bare(&["doctor", "--listen=x"]);
    other.fails(2, &["no flag or argument `--listen` here", "--help says what is"]);
    ground.run(&["scan", "--limit=many"]).fails(2, &["`--limit <N>`", "`many` is not a whole"]);
    ground.run(&["scan", "--limit", "-1"]).fails(2, &["--limit is -1, but must be 0 or more"]);
    ground.run(&["get", "-x"]).fails(2, &["`-x`", "write `--` in front of it"]);
    ground.run(&["get"]).fails(2, &["is missing"]);
    ground.run(&["get", "a", "b"]).fails(2, &["`b`"]);
    ground.run(&["get", "a", "--raw", "--hex"]).fails(2, &["do not go together"]);
    // Story: of a flag that was given twice it was said that it does not go together with itself.
    let twice = ["get", "a", "--raw", "--raw"];
    ground.run(&twice).fails(2, &["`--raw` is given twice"]);
    ground.bare(&["--db"]).fails(2, &["--db"]);
}

#[test]
fn a_missing_folder_is_refused_and_not_made() {
    let ground = Ground::new();
    for arguments in NEED_A_STORE {
        ground.run(arguments).fails(2, &["there is no folder", "store", "--db"]);
        assert!(!ground.store().exists(), "{arguments:?}");
    }
}

/// Story: an unset variable in a script makes an empty path. Joined with the name of a file it
/// means the current folder, where nothing may be made of it.
#[test]
fn an_empty_path_is_refused_and_nothing_is_made_in_the_current_folder() {
    let ground = Ground::new();
    let here = ground.path("here");
    fs::create_dir(&here).unwrap();
    let run = |arguments: &[&str]| {
        Run::of(ground.command().current_dir(&here).arg("--db").arg("data").args(arguments))
    };
    let with_path: [&[&str]; 19] = [
        &["checkpoint", ""],
        &["import", ""],
        &["put", "a", "--file", ""],
        &["inspect", ""],
        &["append", ""],
        &["import-events", ""],
        &["import-events", "--from", ""],
        &["backup", "--to", ""],
        &["restore", "--from", ""],
        &["serve", "--config", ""],
        &["serve", "--insecure", "--backup-dir", ""],
        &["serve", "--insecure", "--certificate-file", ""],
        &["filter", "build", "--output", ""],
        &["filter", "check", ""],
        &["filter", "inspect", ""],
        &["lab", "report", "--out", ""],
        &["lab", "all", "--out", ""],
        &["lab", "all", "--stores", ""],
        &["lab", "compare", "", "a"],
    ];
    for arguments in with_path {
        let said = run(arguments).fails(2, &[]).stderr;
        let is_said = ["not empty", "must name a file or a folder", "names no"];
        assert!(is_said.iter().any(|part| said.contains(part)), "{arguments:?}: {said}");
    }
    for arguments in NEED_A_STORE.into_iter().chain([&["put", "a", "b"][..], &["append"]]) {
        let mut command = ground.command();
        let run = Run::of(command.current_dir(&here).args(["--db", ""]).args(arguments));
        run.fails(2, &["--db is empty; which store?"]);
    }
    assert_eq!(fs::read_dir(&here).unwrap().count(), 0);
}

#[test]
fn a_file_or_a_folder_of_something_else_is_no_store() {
    let ground = Ground::new();
    fs::write(ground.store(), "text").unwrap();
    let creators: [&[&str]; 3] = [&["put", "a", "b"], &["import"], &["bench", "--num=10"]];
    for arguments in NEED_A_STORE.into_iter().chain(creators) {
        ground.run(arguments).fails(2, &["is a file, but a store is a folder"]);
    }
    assert_eq!(fs::read(ground.store()).unwrap(), b"text");
    fs::remove_file(ground.store()).unwrap();
    fs::create_dir(ground.store()).unwrap();
    fs::write(ground.store().join("letter.txt"), "text").unwrap();
    for arguments in NEED_A_STORE {
        ground.run(arguments).fails(2, &["is not a store", "letter.txt"]);
    }
    ground.run(&["put", "a", "b"]).fails(2, &["is not a store", "letter.txt"]);
    assert_eq!(fs::read(ground.store().join("letter.txt")).unwrap(), b"text");
}

#[test]
fn an_unreadable_folder_is_the_system_s_refusal() {
    let ground = Ground::with(&[("a", "1")]);
    fs::set_permissions(ground.store(), fs::Permissions::from_mode(0o0)).unwrap();
    let is_refused = fs::read_dir(ground.store()).is_err();
    let run = ground.run(&["get", "a"]);
    let written = ground.run(&["put", "b", "2"]);
    fs::set_permissions(ground.store(), fs::Permissions::from_mode(0o700)).unwrap();
    if is_refused {
        run.fails(4, &["ermission denied"]);
        written.fails(4, &["ermission denied"]);
    } else {
        // The superuser may read everything.
        run.writes("1\n");
    }
    // A path through a file cannot be opened by anybody.
    let through = ground.store().join("LOCK").join("deeper");
    let run = ground.bare(&["stats", "--db", through.to_str().unwrap()]);
    run.fails(4, &["could not open", "ot a directory"]);
}

#[test]
fn a_second_process_is_told_that_the_store_is_in_use() {
    let ground = Ground::new();
    let mut command = ground.command();
    command.arg("import").arg("--db").arg(ground.store());
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut holder = command.spawn().unwrap();
    // It holds the lock before it writes this file, and until its input ends.
    let current = ground.store().join("CURRENT");
    wait_until("the first process has opened the store", || current.exists());
    let reads = ["get", "scan", "stats", "verify", "inspect"];
    let writing = NEED_A_STORE.into_iter().filter(|arguments| !reads.contains(&arguments[0]));
    for arguments in writing.chain([&["put", "b", "2"][..], &["import"]]) {
        let parts = ["is in use by another process", "close that one first"];
        ground.run(arguments).fails(5, &parts);
    }
    // Reading goes on beside a writer.
    for arguments in [&["scan"][..], &["stats"], &["verify"], &["inspect"]] {
        ground.run(arguments).succeeds();
    }
    holder.stdin.take().unwrap().write_all(b"line\n").unwrap();
    assert!(holder.wait().unwrap().success());
    ground.run(&["get", "line"]).writes("1\n");
}

#[test]
fn a_key_over_the_limit_is_refused() {
    let ground = Ground::new();
    let key = "k".repeat(64 * 1024 + 1);
    ground.run(&["put", &key, "v"]).fails(2, &["65537 bytes", "65536"]);
    let key = "k".repeat(64 * 1024);
    ground.run(&["put", &key, "v"]).writes("");
    ground.run(&["get", &key]).writes("v\n");
}

#[test]
fn a_value_over_the_limit_is_refused_and_not_cut() {
    let ground = Ground::new();
    let file = ground.path("large");
    // A hole takes no space on the disk.
    fs::File::create(&file).unwrap().set_len((256 << 20) + 1).unwrap();
    let run = ground.run(&["put", "k", "--file", file.to_str().unwrap()]);
    run.fails(2, &["large is over the limit of a value, 268435456 bytes"]);
    assert!(!ground.store().exists());
}

#[test]
fn a_flipped_byte_is_named_with_file_and_offset() {
    let ground = Ground::with(&[("apple", "1"), ("banana", "2")]);
    ground.run(&["compact"]).succeeds();
    let table = file_of(&ground.store(), "table");
    let mut bytes = fs::read(&table).unwrap();
    let at = bytes.windows(6).position(|window| window == b"banana").unwrap();
    bytes[at] ^= 1;
    fs::write(&table, &bytes).unwrap();
    let name = table.file_name().unwrap().to_str().unwrap().to_string();
    let run = ground.run(&["verify"]).fails(3, &["is damaged in 1 of 1 files"]);
    assert!(run.text().contains(&name) && run.text().contains("at byte"), "{run:?}");
    let run = ground.run(&["verify", "--json"]).fails(3, &["is damaged"]);
    assert_eq!(run.json()["whole"], false);
    ground.run(&["get", "banana"]).fails(3, &[&name, "at byte"]);
}

#[test]
fn a_full_disk_is_said_with_what_to_do() {
    // Standard output can be full as well: this device always is.
    let ground = Ground::with(&[("a", "1")]);
    let Ok(full) = fs::OpenOptions::new().write(true).open("/dev/full") else { return };
    let mut command = ground.command();
    command.args(["get", "a", "--db"]).arg(ground.store()).stdout(full);
    let output = command.output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(4), "{error}");
    assert!(error.starts_with("umbel: could not write to standard output: No space"), "{error}");
}

#[test]
fn a_file_size_limit_is_an_error_and_no_signal() {
    let ground = Ground::with(&[("before", "1")]);
    // A log takes 64 MiB at once, which is over this limit: nothing can be written.
    ground.run_limited(100, &["put", "more", "2"]).fails(4, &["could not", "File too large"]);
    ground.run(&["scan"]).writes("before\t1\n");
}

#[test]
fn an_import_that_finds_no_more_room_says_how_far_it_came() {
    let ground = Ground::with(&[("before", "1")]);
    let mut text: String = (1..=3500).map(|number| format!("key {number}\t{number}\n")).collect();
    text.push_str("large\t");
    text.push_str(&"x".repeat(90 << 20));
    text.push_str("\nlast\t1\n");
    let file = ground.path("lines");
    fs::write(&file, &text).unwrap();
    let import = ["import", "--format=tsv", file.to_str().unwrap()];
    // A log of 64 MiB fits under 80 MiB, one with that value does not.
    let run = ground.run_limited(80 << 11, &import);
    run.fails(4, &["the import of ", "lines stopped after 3,000 keys: ", "File too large"]);
    // What it said it had imported is there, and nothing of the batch that failed.
    let keys = ground.run(&["scan", "--prefix=key", "--keys-only"]).succeeds().text();
    assert_eq!(keys.lines().count(), 3000);
    ground.run(&["get", "key 3000"]).writes("3000\n");
    ground.run(&["get", "before"]).writes("1\n");
    ground.run(&["get", "last"]).fails(1, &[]);
    ground.run(&["verify"]).succeeds();
    ground.run(&import).succeeds();
    ground.run(&["get", "last"]).writes("1\n");
}

#[test]
fn a_limit_that_is_not_reached_changes_nothing() {
    let ground = Ground::new();
    let raw = OsStr::from_bytes(b"k \xff'\"$0");
    let run = ground.run_limited(1 << 20, &[OsStr::new("put"), raw, OsStr::new("")]);
    run.writes("");
    ground.run_limited(1 << 20, &[OsStr::new("get"), raw]).writes("\n");
    ground.run_limited(1 << 20, &["get", "none"]).fails(1, &["there is no key `none`"]);
}

#[test]
fn a_store_of_a_newer_umbel_is_refused_and_not_touched() {
    let ground = Ground::with(&[("a", "1")]);
    let manifest = file_of(&ground.store(), "manifest");
    let id = manifest.file_stem().unwrap().to_str().unwrap().parse().unwrap();
    // CURRENT is checked as a file whose id no file has.
    for (file, id) in [(ground.store().join("CURRENT"), u64::MAX), (manifest, id)] {
        let before = fs::read(&file).unwrap();
        // FORMAT: magic[8] version:u32 ... checksum:u64 over the 56 bytes before it.
        let mut newer = before.clone();
        newer[8] += 1;
        let sum = checksum(id, 0, &newer[..56]);
        newer[56..64].copy_from_slice(&sum.to_le_bytes());
        fs::write(&file, &newer).unwrap();
        for arguments in NEED_A_STORE.into_iter().chain([&["put", "b", "2"][..]]) {
            let name = file.file_name().unwrap().to_str().unwrap();
            ground.run(arguments).fails(2, &[name, "newer Umbel", "open the store with"]);
        }
        assert_eq!(fs::read(&file).unwrap(), newer);
        fs::write(&file, &before).unwrap();
    }
    ground.run(&["get", "a"]).writes("1\n");
}

/// The index of an event store is a store of keys and values: a `put` into it was taken, and
/// changed what the event store had written.
#[test]
fn a_store_inside_an_event_store_is_not_written() {
    let ground = Ground::new();
    ground.feed(&["append"], br#"{"stream":"a","type":"T","data":1}"#).succeeds();
    let index = ground.store().join("index");
    for folder in [index.clone(), ground.store().join("log").join("new")] {
        let folder = folder.to_str().unwrap();
        let refused = ground.bare(&["--db", folder, "put", "a", "b"]);
        refused.fails(2, &["lies in the folder of the event store", "outside of it"]);
    }
    ground.bare(&["--db", index.to_str().unwrap(), "stats"]).succeeds();
}
