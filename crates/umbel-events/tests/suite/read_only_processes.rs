//! Processes that read an event store beside one that writes to it.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use umbel_env::skipped_test::print_skipped;
use umbel_env::{Access, Env};
use umbel_events::{Direction, Error, Position, RepairOptions, Store, StoreOptions, repair};

use super::read_only_handles::{Writer, check};
use super::support::append;

/// Set in the reading process: the store, the file with the acknowledged round, and the number of
/// opens.
const CHILD_ARGUMENTS_VARIABLE: &str = "UMBEL_EVENTS_TEST_TOLD";
const NAME: &str = "suite::read_only_processes::read_only_child_process";

fn settings() -> StoreOptions {
    StoreOptions { chunk_bytes: 64 << 10, memory_bytes: Some(8 << 20), ..StoreOptions::default() }
}

/// Runs the reader in its own process, after these shell commands, whose mounts only that process
/// sees.
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
        .env(
            CHILD_ARGUMENTS_VARIABLE,
            format!("{}|{}|{opens}", store.display(), acknowledged.display()),
        )
        .output()
        .expect("it ran");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{complaint}");
    assert!(text.contains("1 passed"), "{NAME} does not exist: {text}");
}

/// Reader process of the test of this file: opens the store often, beside the writing process.
#[test]
#[ignore = "run by another test, in a process of its own"]
fn read_only_child_process() {
    let Ok(arguments) = std::env::var(CHILD_ARGUMENTS_VARIABLE) else { return };
    let arguments: Vec<&str> = arguments.split('|').collect();
    let [store, acknowledged, opens] = arguments[..] else { panic!("{arguments:?}") };
    let opens: u64 = opens.parse().expect("a number");
    let env = Env::system();
    let acknowledged = || {
        let mut bytes = [0; 8];
        let file = env.files.open(Path::new(acknowledged), Access::Read).expect("opened");
        file.read_exact_at(&mut bytes, 0).expect("read");
        u64::from_le_bytes(bytes)
    };
    let (first, mut opened) = (acknowledged(), 0);
    // Until the requested number of opens, and until the writer made enough progress, however slow
    // the disk is.
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

/// A process appends, flushes, scavenges and opens again without a pause. Another process often
/// opens the store for reading and verifies it each time, at its path and through a read-only
/// mount. Regression: each open was refused, since the store was not closed or another process had
/// it open.
#[test]
fn reader_process_verifies_beside_a_writer_process() {
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
        false => print_skipped("readers of a read-only mount", "this user may not mount"),
    }
    is_over.store(true, Ordering::Relaxed);
    assert!(thread.join());
}

/// Regression: each read-only open of an event store, and each repair, leaked descriptors of the
/// index.
#[test]
#[cfg(target_os = "linux")]
fn closed_reader_keeps_no_descriptor() {
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

/// Regression: without its directory `log`, an event store was reported without losses, and both
/// `verify` and `repair` failed. A lookup of a file in a missing directory failed instead of
/// reporting that no such file exists.
#[test]
fn missing_log_directory_is_damage_and_repairable() {
    let root = tempfile::tempdir().expect("a folder");
    let path = root.path().join("events");
    let store = Store::open(&path, settings()).expect("a new store");
    append(&store, "a", 1..10);
    store.close().expect("closed");
    std::fs::remove_dir_all(path.join("log")).expect("removed");
    let error = Store::open(&path, settings()).map(drop).expect_err("it is damaged");
    assert!(error.to_string().contains("this chunk of the event log is missing"), "{error}");
    let options = RepairOptions::default();
    let report = repair(&Env::system(), &path, options).expect("repaired");
    assert!(report.has_loss(), "{report}");
    let store = Store::open(&path, settings()).expect("it opens");
    append(&store, "b", 20..21);
    assert!(store.verify().expect("verified").damage.is_empty());
}

/// Regression: a hard-linked copy of an open store has its own lock if `LOCK` was not linked. An
/// open of the copy truncated the chunk file that both share and that the store had mapped. The
/// store's next append ended the process by SIGBUS.
#[test]
#[cfg(unix)]
fn open_of_hard_linked_copy_truncates_no_shared_chunk() {
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
    // For the copy it reports the bytes after the end that the copy knows.
    assert!(store.verify().expect("verified").damage.is_empty());
    store.close().expect("closed");
    for (path, events) in [(&path, 1999), (&copy, 9 + 5)] {
        let store = Store::open(path, settings()).expect("opened");
        let all = store.read_all(Position::START, Direction::Forwards);
        assert_eq!(all.count(), events);
    }
}
