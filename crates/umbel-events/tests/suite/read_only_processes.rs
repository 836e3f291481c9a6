//! Processes that read an event store beside one that writes to it.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use umbel_env::{Access, Env};
use umbel_events::{Direction, Error, Position, RepairOptions, Store, StoreOptions, repair};

use super::readers::{Writer, check};
use super::support::append;

/// Set in the process that reads: the store, the file with the round that was acknowledged, and how
/// often to open.
const TOLD: &str = "UMBEL_EVENTS_TEST_TOLD";
const NAME: &str = "suite::readers_processes::reads_beside_a_process_that_writes";

fn settings() -> StoreOptions {
    StoreOptions { chunk_bytes: 64 << 10, memory_bytes: Some(8 << 20), ..StoreOptions::default() }
}

/// Runs the reader in a process of its own, after these commands of the shell, whose mounts that
/// process alone sees.
fn run(store: &Path, acknowledged: &Path, opens: u64, mount: Option<&str>) {
    let mut command = match mount {
        Some(_) => Command::new("unshare"),
        None => Command::new("sh"),
    };
    if mount.is_some() {
        command.args(["--mount", "sh"]);
    }
    let before = mount.map(|mount| format!("{mount} || exit 1")).unwrap_or_default();
    let output = command
        .arg("-c")
        .arg(format!("{before}\nexec \"$0\" --exact \"$1\" --ignored --nocapture"))
        .arg(std::env::current_exe().expect("this program"))
        .arg(NAME)
        .env(TOLD, format!("{}|{}|{opens}", store.display(), acknowledged.display()))
        .output()
        .expect("it ran");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{complaint}");
    assert!(text.contains("1 passed"), "{NAME} does not exist: {text}");
}

/// The reader of the test below: opens the store often, beside the process that writes.
#[test]
#[ignore = "run by another test, in a process of its own"]
fn reads_beside_a_process_that_writes() {
    let Ok(told) = std::env::var(TOLD) else { return };
    let told: Vec<&str> = told.split('|').collect();
    let [store, acknowledged, opens] = told[..] else { panic!("{told:?}") };
    let opens: u64 = opens.parse().expect("a number");
    let env = Env::system();
    let acknowledged = || {
        let mut bytes = [0; 8];
        let file = env.files.open(Path::new(acknowledged), Access::Read).expect("opened");
        file.read_exact_at(&mut bytes, 0).expect("read");
        u64::from_le_bytes(bytes)
    };
    let (first, mut opened) = (acknowledged(), 0);
    // As often as is asked for, and until the writer did much meanwhile, however slow the disk.
    while opened < opens || acknowledged() < first + opens {
        let before = acknowledged();
        opened += 1;
        assert!(opened < 100 * opens, "the writer stands still");
        match Store::open_read_only(store, settings()).and_then(|store| check(&store, before)) {
            Ok(_) => {}
            Err(Error::Store(umbel::Error::Stale { path, .. })) => {
                panic!("a reader that pins is never out of date: {}", path.display())
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// A process that appends, flushes, scavenges and opens again without a pause, and one that opens
/// the store for reading often and verifies it each time, at its path and through a mount that is
/// read-only: each open was refused, as the store was not closed or another process had it open.
#[test]
fn a_process_reads_beside_one_that_writes() {
    let root = tempfile::tempdir().expect("a folder");
    let (path, acknowledged) = (root.path().join("events"), root.path().join("acknowledged"));
    let env = Env::system();
    let file = env.files.create(&acknowledged).expect("created");
    file.write_all_at(&0u64.to_le_bytes(), 0).expect("written");
    let writer = Arc::new(Writer::open(&path, settings(), 1).expect("a new store"));
    let is_over = Arc::new(AtomicBool::new(false));
    let (steps, ends) = (Arc::clone(&writer), Arc::clone(&is_over));
    let work = move || {
        while !ends.load(Ordering::Relaxed) {
            steps.step();
            file.write_all_at(&steps.acknowledged().to_le_bytes(), 0).expect("written");
        }
    };
    let thread = env.threads.spawn("writer", Box::new(work)).expect("started");
    run(&path, &acknowledged, 40, None);
    let mounted = root.path().join("mounted");
    env.files.create_dir_all(&mounted).expect("created");
    let mount = format!(
        "mount --bind '{0}' '{1}' && mount -o remount,ro,bind '{1}'",
        path.display(),
        mounted.display()
    );
    let can_mount = Command::new("unshare").args(["--mount", "sh", "-c", &mount]).output();
    match can_mount.is_ok_and(|output| output.status.success()) {
        true => run(&mounted, &acknowledged, 40, Some(&mount)),
        false => println!("skipped: this user may not mount"),
    }
    is_over.store(true, Ordering::Relaxed);
    assert!(thread.join());
}

/// Each read-only open of an event store, and each repair, left descriptors of the index for good.
#[test]
#[cfg(target_os = "linux")]
fn a_reader_that_was_closed_holds_no_descriptor() {
    let root = tempfile::tempdir().expect("a folder");
    let path = root.path().join("events");
    let store = Store::open(&path, settings()).expect("a new store");
    append(&store, "a", 1..10);
    store.close().expect("closed");
    let held = || {
        let descriptors = std::fs::read_dir("/proc/self/fd").expect("listed").flatten();
        let targets = descriptors.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        targets.filter(|target| target.starts_with(root.path())).count()
    };
    let reader = Store::open_read_only(&path, settings()).expect("opened for reading");
    assert!(held() > 0);
    reader.verify().expect("verified");
    reader.close().expect("closed");
    assert_eq!(held(), 0);
    let options = RepairOptions::default();
    repair(&Env::system(), &path, options).expect("repaired");
    assert_eq!(held(), 0);
}

/// Without its folder `log` an event store was said to have lost nothing, and neither `verify` nor
/// `repair` went on: a look for a file in a missing folder failed where it should have found none.
#[test]
fn a_store_without_its_log_is_damaged_and_repaired() {
    let root = tempfile::tempdir().expect("a folder");
    let path = root.path().join("events");
    let store = Store::open(&path, settings()).expect("a new store");
    append(&store, "a", 1..10);
    store.close().expect("closed");
    std::fs::remove_dir_all(path.join("log")).expect("removed");
    let error = Store::open(&path, settings()).map(drop).expect_err("it is damaged");
    assert!(error.to_string().contains("this part of the event log is missing"), "{error}");
    let options = RepairOptions::default();
    let report = repair(&Env::system(), &path, options).expect("repaired");
    assert!(report.is_loss(), "{report}");
    let store = Store::open(&path, settings()).expect("it opens");
    append(&store, "b", 20..21);
    assert!(store.verify().expect("verified").damage.is_empty());
}

/// A hard-linked copy of an open store has a lock of its own where `LOCK` was not linked. An open
/// of the copy cut the chunk that both have, under the mapping of the store: its next append ended
/// the process by SIGBUS.
#[test]
#[cfg(unix)]
fn an_open_of_a_hard_linked_copy_cuts_no_chunk_of_the_store() {
    let root = tempfile::tempdir().expect("a folder");
    let (path, copy) = (root.path().join("events"), root.path().join("copy"));
    let settings = || StoreOptions { chunk_bytes: 4 << 20, ..settings() };
    let store = Store::open(&path, settings()).expect("a new store");
    append(&store, "a", 1..10);
    store.flush().expect("flushed");
    for folder in ["", "log", "index"] {
        std::fs::create_dir_all(copy.join(folder)).expect("a folder");
        for entry in std::fs::read_dir(path.join(folder)).expect("listed").flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_file()) && entry.file_name() != "LOCK" {
                let target = copy.join(folder).join(entry.file_name());
                std::fs::hard_link(entry.path(), target).expect("linked");
            }
        }
    }
    let other = Store::open(&copy, settings()).expect("opened");
    append(&other, "b", 20..25);
    other.close().expect("closed");
    append(&store, "a", 10..2000);
    // Of the copy it says what stands behind the end that the copy knows.
    assert!(store.verify().expect("verified").damage.is_empty());
    store.close().expect("closed");
    for (path, events) in [(&path, 1999), (&copy, 9 + 5)] {
        let store = Store::open(path, settings()).expect("opened");
        let all = store.read_all(Position::START, Direction::Forwards);
        assert_eq!(all.count(), events);
    }
}
