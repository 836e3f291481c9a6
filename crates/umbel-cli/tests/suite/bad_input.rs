//! Invalid requests and damaged disks: one sentence, the right exit code, no panic.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use umbel_base::checksum::checksum;
use umbel_env::skipped_test::print_skipped;

use super::test_binary::{Fixture, Run, file_of, full_device, wait_until};

/// Every command that needs an existing store.
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
fn misspelled_arguments_get_suggestions() {
    let fixture = Fixture::new();
    fixture.bare(&["bech"]).fails(2, &["subcommand 'bech'", "similar subcommand exists: 'bench'"]);
    fixture
        .run(&["scan", "--prefx=a"])
        .fails(2, &["'--prefx'", "similar argument exists: '--prefix'"]);
    let other = fixture.bare(&["doctor", "--listen=x"]);
    other.fails(2, &["unexpected argument '--listen'"]);
    fixture.run(&["scan", "--limit=many"]).fails(2, &["`--limit <N>`", "`many` is not a whole"]);
    fixture.run(&["scan", "--limit", "-1"]).fails(2, &["--limit is -1, but must be 0 or more"]);
    // Story: the tip for these was to write `-- -1`, which was refused, too.
    for (command, option) in [
        (&["group", "create", "s", "g"][..], "--max-retries"),
        (&["group", "parked", "s", "g"], "--count"),
        (&["append", "x"], "--expected"),
        (&["delete", "--stream", "s"], "--expected"),
        (&["serve"], "--log-quota"),
    ] {
        let run = fixture.run(&[command, &[option, "-1"]].concat()).fails(2, &["-1"]);
        assert!(!run.stderr.contains("-- -1"), "{run:?}");
    }
    fixture.run(&["get", "-x"]).fails(2, &["'-x'", "use '-- -x'"]);
    fixture.run(&["get"]).fails(2, &["required arguments were not provided: <KEY>"]);
    fixture.run(&["get", "a", "b"]).fails(2, &["'b'", "see --help"]);
    fixture.run(&["get", "a", "--raw", "--hex"]).fails(2, &["cannot be used with '--hex'"]);
    // Regression: a flag that was given twice was reported as conflicting with itself.
    let twice = ["get", "a", "--raw", "--raw"];
    fixture.run(&twice).fails(2, &["'--raw' cannot be used multiple times"]);
    fixture.bare(&["--db"]).fails(2, &["--db"]);
    // Regression: the number was reported as an unknown command.
    fixture.bare(&["--wait", "5", "put", "a", "b"]).fails(2, &["write '--wait=5'"]);
}

/// Regression: the description of the command was reported as an error.
#[test]
fn command_without_its_subcommand_prints_help() {
    for (command, subcommand) in [("filter", "inspect"), ("lab", "compare")] {
        let Run { code, stderr, .. } = Fixture::new().bare(&[command]);
        assert_eq!(code, 2, "{stderr}");
        assert!(stderr.contains(&format!("Usage: umbel {command}")), "{stderr}");
        assert!(stderr.contains(subcommand) && !stderr.contains("--db"), "{stderr}");
    }
}

#[test]
fn missing_directory_is_rejected_and_not_created() {
    let fixture = Fixture::new();
    for arguments in NEED_A_STORE {
        fixture.run(arguments).fails(2, &["store does not exist", "--db"]);
        assert!(!fixture.store().exists(), "{arguments:?}");
    }
}

/// Story: an unset variable in a script makes an empty path. An empty path joined with a file name
/// means the current directory, in which no command may create anything.
#[test]
fn empty_path_is_rejected_and_creates_nothing() {
    let fixture = Fixture::new();
    let here = fixture.path("here");
    fs::create_dir(&here).unwrap();
    let run = |arguments: &[&str]| {
        Run::of(fixture.command().current_dir(&here).arg("--db").arg("data").args(arguments))
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
        let message = run(arguments).fails(2, &[]).stderr;
        let is_reported =
            ["a value is required for", "must name a file or a directory", "names no"];
        assert!(is_reported.iter().any(|part| message.contains(part)), "{arguments:?}: {message}");
    }
    for arguments in NEED_A_STORE.into_iter().chain([&["put", "a", "b"][..], &["append"]]) {
        let mut command = fixture.command();
        let run = Run::of(command.current_dir(&here).args(["--db", ""]).args(arguments));
        run.fails(2, &["--db is empty; name the directory"]);
    }
    assert_eq!(fs::read_dir(&here).unwrap().count(), 0);
}

#[test]
fn file_or_foreign_directory_is_rejected_as_store() {
    let fixture = Fixture::new();
    fs::write(fixture.store(), "text").unwrap();
    let creators: [&[&str]; 3] = [&["put", "a", "b"], &["import"], &["bench", "--num=10"]];
    for arguments in NEED_A_STORE.into_iter().chain(creators) {
        fixture.run(arguments).fails(2, &["is a file, but a store is a directory"]);
    }
    // Story: below a file, the text was only that of the operating system.
    let below = fixture.path("store/below");
    let below = below.to_str().unwrap();
    let remedy = ["is a file, so", "cannot be a directory", "the directory with --db DIR"];
    fixture.bare(&["read", "--all", "--db", below]).fails(2, &remedy);
    fixture.bare(&["put", "a", "b", "--db", below]).fails(2, &remedy);
    assert_eq!(fs::read(fixture.store()).unwrap(), b"text");
    fs::remove_file(fixture.store()).unwrap();
    fs::create_dir(fixture.store()).unwrap();
    fs::write(fixture.store().join("letter.txt"), "text").unwrap();
    for arguments in NEED_A_STORE {
        fixture.run(arguments).fails(2, &["is not a store", "letter.txt"]);
    }
    fixture.run(&["put", "a", "b"]).fails(2, &["is not a store", "letter.txt"]);
    assert_eq!(fs::read(fixture.store().join("letter.txt")).unwrap(), b"text");
}

#[test]
fn unreadable_directory_is_a_system_error() {
    let fixture = Fixture::with(&[("a", "1")]);
    fs::set_permissions(fixture.store(), fs::Permissions::from_mode(0o0)).unwrap();
    let is_refused = fs::read_dir(fixture.store()).is_err();
    let run = fixture.run(&["get", "a"]);
    let written = fixture.run(&["put", "b", "2"]);
    fs::set_permissions(fixture.store(), fs::Permissions::from_mode(0o700)).unwrap();
    if is_refused {
        run.fails(4, &["ermission denied"]);
        written.fails(4, &["ermission denied"]);
    } else {
        print_skipped("an unreadable directory", "root may read everything");
        run.writes("1\n");
    }
    // A path through a file cannot be opened, even by the superuser.
    let through = fixture.store().join("LOCK").join("deeper");
    let run = fixture.bare(&["stats", "--db", through.to_str().unwrap()]);
    run.fails(2, &["LOCK is a file, so ", "name the directory with --db DIR"]);
}

#[test]
fn second_process_gets_store_in_use_error() {
    let fixture = Fixture::new();
    let mut command = fixture.command();
    command.arg("import").arg("--db").arg(fixture.store());
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut holder = command.spawn().unwrap();
    // It holds the lock before it writes this file, and until its input ends.
    let current = fixture.store().join("CURRENT");
    wait_until("the first process has opened the store", || current.exists());
    let reads = ["get", "scan", "stats", "verify", "inspect"];
    let writing = NEED_A_STORE.into_iter().filter(|arguments| !reads.contains(&arguments[0]));
    for arguments in writing.chain([&["put", "b", "2"][..], &["import"]]) {
        let parts = ["is in use by another process", "end that process first"];
        fixture.run(arguments).fails(5, &parts);
    }
    // Readers work beside a writer, once it has created its keyspace.
    wait_until("the first process has a keyspace", || fixture.run(&["scan"]).code == 0);
    for arguments in [&["scan"][..], &["stats"], &["verify"], &["inspect"]] {
        fixture.run(arguments).succeeds();
    }
    holder.stdin.take().unwrap().write_all(b"line\n").unwrap();
    assert!(holder.wait().unwrap().success());
    fixture.run(&["get", "line"]).writes("1\n");
}

#[test]
fn oversized_key_is_rejected() {
    let fixture = Fixture::new();
    let key = "k".repeat(64 * 1024 + 1);
    fixture.run(&["put", &key, "v"]).fails(2, &["65537 bytes", "65536"]);
    let key = "k".repeat(64 * 1024);
    fixture.run(&["put", &key, "v"]).writes("");
    fixture.run(&["get", &key]).writes("v\n");
}

#[test]
fn oversized_value_is_rejected_not_truncated() {
    let fixture = Fixture::new();
    let file = fixture.path("large");
    // A hole takes no space on the disk.
    fs::File::create(&file).unwrap().set_len((256 << 20) + 1).unwrap();
    let run = fixture.run(&["put", "k", "--file", file.to_str().unwrap()]);
    run.fails(2, &["large is over the limit of a value, 268435456 bytes"]);
    assert!(!fixture.store().exists());
}

#[test]
fn flipped_byte_is_reported_with_file_and_offset() {
    let fixture = Fixture::with(&[("apple", "1"), ("banana", "2")]);
    fixture.run(&["compact"]).succeeds();
    let table = file_of(&fixture.store(), "table");
    let mut bytes = fs::read(&table).unwrap();
    let at = bytes.windows(6).position(|window| window == b"banana").unwrap();
    bytes[at] ^= 1;
    fs::write(&table, &bytes).unwrap();
    let name = table.file_name().unwrap().to_str().unwrap().to_string();
    let run = fixture.run(&["verify"]).fails(3, &["is damaged in 1 of 1 file;"]);
    assert!(run.text().contains(&name) && run.text().contains("at byte"), "{run:?}");
    let run = fixture.run(&["verify", "--json"]).fails(3, &["is damaged"]);
    assert_eq!(run.json()["whole"], false);
    fixture.run(&["get", "banana"]).fails(3, &[&name, "at byte"]);
}

#[test]
fn full_standard_output_is_reported() {
    // Standard output can be full as well: this device always is.
    let fixture = Fixture::with(&[("a", "1")]);
    let Some(full) = full_device() else { return };
    let mut command = fixture.command();
    command.args(["get", "a", "--db"]).arg(fixture.store()).stdout(full);
    let output = command.output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(4), "{error}");
    assert!(error.starts_with("umbel: could not write to standard output: No space"), "{error}");
}

/// Story: a full standard output failed a deletion with exit code 4, and the error did not say that
/// the stream was deleted.
#[test]
fn full_standard_output_after_a_change_says_what_was_done() {
    let fixture = Fixture::new();
    let event = "{\"stream\":\"cart\",\"type\":\"Opened\",\"data\":1}\n";
    fixture.feed(&["append"], event.as_bytes()).succeeds();
    for (arguments, done) in [
        (&["scavenge"][..], "the store was scavenged"),
        (&["metadata", "--stream", "cart", "--max-count", "9"], "the metadata was changed"),
        (&["delete", "--stream", "cart"], "the stream 'cart' was deleted"),
    ] {
        let Some(full) = full_device() else { return };
        let mut command = fixture.command();
        command.arg("--db").arg(fixture.store()).args(arguments).stdout(full);
        let sentence = format!("{done}, but the command could not write to standard output: No");
        Run::of(&mut command).fails(4, &[&sentence]);
    }
    assert_eq!(fixture.run(&["streams"]).succeeds().text(), "cart\tdeleted\n");
    let Some(full) = full_device() else { return };
    let mut command = fixture.command();
    command.args(["filter", "build", "-o"]).arg(fixture.path("filter")).stdout(full);
    Run::of(&mut command).fails(4, &["the filter was written, but the command could not write"]);
    let Some(full) = full_device() else { return };
    let mut command = fixture.command();
    command.arg("--db").arg(fixture.store()).arg("streams").stdout(full);
    Run::of(&mut command).fails(4, &["umbel: could not write to standard output: No"]);
}

/// Story: the warning did not say which deletions have a report, and that `--json` will be refused.
#[test]
fn json_without_effect_on_a_deletion_is_reported() {
    let fixture = Fixture::with(&[("a", "1")]);
    let run = fixture.run(&["delete", "a", "--json"]).succeeds();
    assert_eq!(run.text(), "");
    assert!(run.stderr.contains("--json has no effect on `delete` without --stream; a later"));
    assert!(run.stderr.trim_end().ends_with("release refuses it"), "{}", run.stderr);
}

#[test]
fn file_size_limit_is_an_error_not_a_signal() {
    let fixture = Fixture::with(&[("before", "1")]);
    // A log takes 64 MiB at once, which is over this limit: nothing can be written.
    fixture.run_limited(100, &["put", "more", "2"]).fails(4, &["could not", "File too large"]);
    fixture.run(&["scan"]).writes("before\t1\n");
}

#[test]
fn import_on_full_disk_reports_stored_keys() {
    let fixture = Fixture::with(&[("before", "1")]);
    let mut text: String = (1..=3500).map(|number| format!("key {number}\t{number}\n")).collect();
    text.push_str("large\t");
    text.push_str(&"x".repeat(90 << 20));
    text.push_str("\nlast\t1\n");
    let file = fixture.path("lines");
    fs::write(&file, &text).unwrap();
    let import = ["import", "--format=tsv", file.to_str().unwrap()];
    // A log of 64 MiB fits under 80 MiB, one with that value does not.
    let run = fixture.run_limited(80 << 11, &import);
    run.fails(4, &["the import of ", "lines stopped after 3,000 keys: ", "File too large"]);
    // The reported keys are there, and nothing of the failed batch.
    let keys = fixture.run(&["scan", "--prefix=key", "--keys-only"]).succeeds().text();
    assert_eq!(keys.lines().count(), 3000);
    fixture.run(&["get", "key 3000"]).writes("3000\n");
    fixture.run(&["get", "before"]).writes("1\n");
    fixture.run(&["get", "last"]).fails(1, &[]);
    fixture.run(&["verify"]).succeeds();
    fixture.run(&import).succeeds();
    fixture.run(&["get", "last"]).writes("1\n");
}

#[test]
fn limit_above_entry_count_returns_all_entries() {
    let fixture = Fixture::new();
    let raw = OsStr::from_bytes(b"k \xff'\"$0");
    let run = fixture.run_limited(1 << 20, &[OsStr::new("put"), raw, OsStr::new("")]);
    run.writes("");
    fixture.run_limited(1 << 20, &[OsStr::new("get"), raw]).writes("\n");
    fixture.run_limited(1 << 20, &["get", "none"]).fails(1, &["there is no key `none`"]);
}

#[test]
fn store_of_newer_version_is_rejected_unchanged() {
    let fixture = Fixture::with(&[("a", "1")]);
    let manifest = file_of(&fixture.store(), "manifest");
    let id = manifest.file_stem().unwrap().to_str().unwrap().parse().unwrap();
    // CURRENT is checked as a file whose id no file has.
    for (file, id) in [(fixture.store().join("CURRENT"), u64::MAX), (manifest, id)] {
        let before = fs::read(&file).unwrap();
        // FORMAT: magic[8] version:u32 ... checksum:u64 over the 56 bytes before it.
        let mut newer = before.clone();
        newer[8] += 1;
        let sum = checksum(id, 0, &newer[..56]);
        newer[56..64].copy_from_slice(&sum.to_le_bytes());
        fs::write(&file, &newer).unwrap();
        for arguments in NEED_A_STORE.into_iter().chain([&["put", "b", "2"][..]]) {
            let name = file.file_name().unwrap().to_str().unwrap();
            fixture.run(arguments).fails(2, &[name, "newer Umbel", "open the store with"]);
        }
        assert_eq!(fs::read(&file).unwrap(), newer);
        fs::write(&file, &before).unwrap();
    }
    fixture.run(&["get", "a"]).writes("1\n");
}

/// Regression: a `put` into the index of an event store, which is a key-value store, was accepted
/// and changed the index.
#[test]
fn store_inside_an_event_store_is_not_written() {
    let fixture = Fixture::new();
    fixture.feed(&["append"], br#"{"stream":"a","type":"T","data":1}"#).succeeds();
    let index = fixture.store().join("index");
    for directory in [index.clone(), fixture.store().join("log").join("new")] {
        let directory = directory.to_str().unwrap();
        let refused = fixture.bare(&["--db", directory, "put", "a", "b"]);
        refused.fails(2, &["is inside the event store", "outside that store"]);
    }
    fixture.bare(&["--db", index.to_str().unwrap(), "stats"]).succeeds();
}
