//! Tests of the open: two threads at once, new folders, read-only users, a missing filter, many
//! short process lives, and a manifest write with an unknown result.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use umbel_env::{Access, Env};
use umbel_events::{
    CopyOptions, Direction, Durability, Error, ExpectedVersion, NewEvent, Position, RepairOptions,
    Revision, ScavengeOptions, Store, StoreOptions, check_backup_target, check_folder_kind,
    find_unrecovered, is_backup, repair, restore, verify_backup,
};
use umbel_sim::{CrashSide, Fault, FaultKind, Mount, Sim, Survival};

use super::file_system_hooks::{FileCall, with_hook};
use super::support::{append, append_large, event, id, options, outline};

/// Bytes of every file below a folder.
fn files(env: &Env, folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in env.files.read_dir(folder).expect("listed") {
        let path = folder.join(&entry.name);
        if entry.is_directory {
            found.extend(files(env, &path));
            continue;
        }
        let file = env.files.open(&path, Access::Read).expect("opened");
        let mut bytes = vec![0; file.len().expect("a length") as usize];
        file.read_exact_at(&mut bytes, 0).expect("read");
        found.insert(path, bytes);
    }
    found
}

/// Number of chunks that an open reads.
fn chunks_read(sim: &Sim) -> usize {
    let read = Arc::new(Mutex::new(BTreeSet::new()));
    let notes = Arc::clone(&read);
    let env = with_hook(sim.env(), move |moment, path| {
        let is_chunk = path.extension().is_some_and(|extension| extension == "chunk");
        // A read of a single event is a check of the end, not a scan.
        if matches!(moment, FileCall::Reading(bytes) if bytes > 8 << 10) && is_chunk {
            notes.lock().expect("the lock is not poisoned").insert(path.to_path_buf());
        }
    });
    let store = Store::open("/events", StoreOptions { env, ..options(sim) }).expect("opened");
    drop(store);
    let read = read.lock().expect("the lock is not poisoned");
    read.len()
}

/// Regression: an empty path, for example from an unset variable, was joined with the names of
/// files. So the empty path meant the current folder: errors showed no path, and a backup or a
/// store was created in that folder.
#[test]
fn empty_path_is_rejected_before_files_are_created() {
    let sim = Sim::new(1);
    let (env, nowhere, place) = (sim.env(), Path::new(""), Path::new("/place"));
    let store = Store::open("/events", options(&sim)).expect("a new store");
    let plain = CopyOptions::default;
    let before = sim.calls();
    let results: [(&str, umbel_events::Result<()>); 11] = [
        ("event store", Store::open("", options(&sim)).map(drop)),
        ("event store", Store::open_read_only("", options(&sim)).map(drop)),
        ("backup", store.backup("", plain()).map(drop)),
        ("backup", check_backup_target(&env, place, nowhere)),
        ("event store", check_backup_target(&env, nowhere, place)),
        ("backup", restore(&env, nowhere, place, plain()).map(drop)),
        ("restored store", restore(&env, place, nowhere, plain()).map(drop)),
        ("backup", verify_backup(&env, nowhere, plain()).map(drop)),
        ("backup", is_backup(&env, nowhere).map(drop)),
        ("event store", repair(&env, nowhere, RepairOptions::default()).map(drop)),
        ("event store", check_folder_kind(&env, nowhere)),
    ];
    for (what, result) in results {
        let error = result.expect_err("refused");
        assert!(matches!(error, Error::Invalid(_)), "{error:?}");
        let message = format!("the path of the {what} is empty; ");
        assert!(error.to_string().starts_with(&message), "{error}");
    }
    assert!(find_unrecovered(&env, nowhere).is_err());
    assert_eq!(sim.calls(), before, "no file-system call was made");
}

/// Between this process's check for a store and its lock, another process creates the store,
/// appends and closes it. These events stay.
#[test]
fn second_creator_opens_the_first_creators_store() {
    let sim = Sim::new(3);
    let (plain, is_first) = (sim.env(), AtomicBool::new(true));
    let settings = options(&sim);
    let env = with_hook(plain, move |moment, path| {
        let is_ours = path == Path::new("/events/LOCK") && moment == FileCall::Locking;
        if is_ours && is_first.swap(false, Ordering::SeqCst) {
            let store =
                Store::open("/events", settings.clone()).expect("no other process has it open");
            append(&store, "a", 0..3);
            store.close().expect("closed");
        }
    });
    let store = Store::open("/events", StoreOptions { env, ..options(&sim) }).expect("opened");
    assert_eq!(outline(store.read("a", Revision::START, Direction::Forwards)).len(), 3);
    append(&store, "a", 3..4);
    store.close().expect("closed");
    let store = Store::open("/events", options(&sim)).expect("opened again");
    assert_eq!(outline(store.read("a", Revision::START, Direction::Forwards)).len(), 4);
}

/// Regression: an open detected too little memory only at the open of the index, and left the
/// folder of a store that was never used.
#[test]
fn failed_open_creates_no_store() {
    let sim = Sim::new(4);
    let little = StoreOptions { memory_bytes: Some(1), ..options(&sim) };
    let refused = Store::open("/events", little).expect_err("too little").to_string();
    assert!(refused.contains("memory_bytes is 1, which is too small"), "{refused}");
    assert!(!sim.env().files.exists(Path::new("/events")).expect("checked"));
}

/// Regression: the log of a store without events was taken for an empty folder, and a store was
/// created in it. Later only the name of the parent folder was checked, and a store was created
/// further below and through a link.
#[test]
fn store_inside_another_store_is_rejected() {
    let sim = Sim::new(5);
    let store = Store::open("/events", options(&sim)).expect("made");
    for folder in ["/events/log", "/events/index", "/events/mine", "/events/log/a/b"] {
        let refused = Store::open(folder, options(&sim)).expect_err("not here").to_string();
        let reason =
            if folder == "/events/index" { "key-value store" } else { "hold no other directories" };
        assert!(refused.contains(reason), "{folder}: {refused}");
    }
    append(&store, "s", 0..1);
    drop(store);
    let disk = tempfile::tempdir().expect("a directory");
    let (folder, link) = (disk.path().join("events"), disk.path().join("link"));
    let store = Store::open(&folder, StoreOptions::default()).expect("made");
    std::os::unix::fs::symlink(folder.join("log"), &link).expect("linked");
    for folder in [link.clone(), link.join("a"), link.join("../mine")] {
        let refused = Store::open(&folder, StoreOptions::default()).expect_err("not here");
        assert!(refused.to_string().contains("hold no other directories"), "{folder:?}: {refused}");
    }
    assert!(!folder.join("log/a").exists() && !folder.join("mine").exists());
    store.close().expect("closed");
    Store::open(disk.path().join("beside"), StoreOptions::default())
        .expect("made")
        .close()
        .unwrap();
}

/// A store whose events were synced is found again by its whole path, even if an earlier creator of
/// it died at any step.
#[test]
fn new_directories_survive_power_loss() {
    let folder = "/one/two/events";
    let synced = |sim: &Sim| StoreOptions { durability: Durability::Synced, ..options(sim) };
    let live = |sim: &Sim| {
        let Ok(store) = Store::open(folder, synced(sim)) else { return };
        let _ = store.append("a", ExpectedVersion::NoStream, &[event(0)]);
    };
    let whole = Sim::new(5);
    live(&whole);
    for call in 0..whole.calls() {
        let sim = Sim::new(5);
        sim.crash_at(call, CrashSide::After);
        live(&sim);
        let killed = sim.kill_image();
        let store = Store::open(folder, synced(&killed)).expect("opened after the kill");
        store.append("b", ExpectedVersion::NoStream, &[event(1)]).expect("appended");
        std::mem::forget(store);
        killed.crash_now();
        let cut = killed.crash_image(&Survival::None, call);
        let settings = StoreOptions { create_if_missing: false, ..synced(&cut) };
        let store = Store::open(folder, settings).unwrap_or_else(|error| {
            panic!("killed at {call}, then cut: {error}");
        });
        let read = outline(store.read("b", Revision::START, Direction::Forwards));
        assert_eq!(read, [(0, id(1))], "killed at {call}");
    }
}

#[test]
fn read_only_open_changes_no_byte() {
    let sim = Sim::new(7);
    let store = Store::open("/events", options(&sim)).expect("a new store");
    append(&store, "a", 0..50);
    store.close().expect("closed");
    let (env, folder) = (sim.env(), Path::new("/events"));
    let before = files(&env, folder);
    assert!(before.keys().any(|path| path.starts_with("/events/existence")));
    let store = Store::open_read_only(folder, options(&sim)).expect("opened");
    assert_eq!(outline(store.read("a", Revision::START, Direction::Forwards)).len(), 50);
    assert_eq!(outline(store.read("b", Revision::START, Direction::Forwards)), []);
    store.close().expect("closed");
    assert!(files(&env, folder) == before, "some file changed");
}

/// Regression: a store that another process wrote to was reported as damaged when it was opened
/// through a read-only mount. The chunk manifest was read before the writer began another chunk,
/// and the chunks after that.
#[test]
fn concurrent_writer_is_no_damage_to_read_only_open() {
    for mount in [Mount::ReadOnly, Mount::WithoutPermission] {
        for at in 0.. {
            let sim = Sim::new(11);
            let small = StoreOptions { chunk_bytes: 64 << 10, ..options(&sim) };
            let store = Store::open("/events", small.clone()).expect("a new store");
            append(&store, "a", 0..50);
            store.close().expect("closed");
            let writer = Store::open("/events", small).expect("opened");
            sim.make_dir("/mounted");
            sim.mount("/events", "/mounted", mount);
            let calls = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&calls);
            let env = with_hook(sim.env(), move |moment, _| {
                let is_read = matches!(moment, FileCall::Reading(_));
                if is_read && counted.fetch_add(1, Ordering::Relaxed) == at {
                    append(&writer, "a", 100..500);
                }
            });
            let settings = StoreOptions { env, create_if_missing: false, ..options(&sim) };
            let store = Store::open_read_only("/mounted", settings)
                .unwrap_or_else(|error| panic!("at {at}: {error}"));
            let events = outline(store.read("a", Revision::START, Direction::Forwards));
            assert!(events.len() >= 50, "at {at}: {}", events.len());
            if calls.load(Ordering::Relaxed) <= at {
                break;
            }
        }
    }
}

/// A missing filter is rebuilt from the index; the log is read only after the index's marker.
#[test]
fn missing_filter_is_rebuilt_without_a_full_log_scan() {
    let sim = Sim::new(9);
    let store = Store::open("/events", options(&sim)).expect("a new store");
    // One event per chunk, and more of them than there are remembered ids.
    let data = vec![7; 40_000];
    for number in 0..600 {
        let stream = format!("s-{number}");
        let event = NewEvent::binary(id(number), "Large", &data);
        store.append(&stream, ExpectedVersion::NoStream, &[event]).expect("appended");
    }
    assert!(store.stats().expect("stats").chunks >= 600);
    store.close().expect("closed");
    let env = sim.env();
    let folder = Path::new("/events/existence");
    for entry in env.files.read_dir(folder).expect("listed") {
        env.files.remove_file(&folder.join(entry.name)).expect("removed");
    }
    let read = chunks_read(&sim);
    assert!(read < 450, "{read} chunks were read, and the ids of the newest events stand in 420");
    let store = Store::open("/events", options(&sim)).expect("opened again");
    for number in 0..600 {
        let stream = format!("s-{number}");
        let read = outline(store.read(&stream, Revision::START, Direction::Forwards));
        assert_eq!(read, [(0, id(number))]);
    }
    assert!(store.append("s-7", ExpectedVersion::NoStream, &[event(1000)]).is_err());
}

/// Each process that appends and is killed leaves a chunk. The index must not lack more than the
/// events of the last two chunks.
#[test]
fn killed_processes_leave_bounded_catch_up() {
    let mut sim = Sim::new(11);
    for life in 0..12 {
        let store = Store::open("/events", options(&sim)).expect("opened");
        append(&store, "a", life * 5..life * 5 + 5);
        let (position, through) = {
            let stats = store.stats().expect("stats");
            (stats.position, stats.indexed_through)
        };
        // Chunks have 64 KiB here.
        assert!(position - through <= 2 * (64 << 10), "life {life}: {position} and {through}");
        std::mem::forget(store);
        sim.crash_now();
        sim = sim.kill_image();
    }
    let store = Store::open("/events", options(&sim)).expect("opened");
    assert_eq!(outline(store.read("a", Revision::START, Direction::Forwards)).len(), 60);
}

/// Positions skip the unused capacity of chunks, which grows up to 32 MiB. The window for retries
/// is defined in bytes of events.
#[test]
fn retry_is_recognized_after_reopens_with_large_chunks() {
    let sim = Sim::new(13);
    let settings = || StoreOptions { chunk_bytes: 32 << 20, ..options(&sim) };
    for life in 0..8 {
        let store = Store::open("/events", settings()).expect("opened");
        for before in 0..life {
            let events = [event(before * 2), event(before * 2 + 1)];
            let again = store.append("a", ExpectedVersion::Any, &events).expect("answered");
            assert!(again.is_retry, "life {life}: what life {before} appended");
            assert_eq!(again.first, Some(before * 2));
        }
        append(&store, "a", life * 2..life * 2 + 2);
        store.close().expect("closed");
    }
}

/// The chunk manifest was renamed and then its directory could not be synced. So whether the
/// manifest on disk names the new chunk is unknown. The store continues or reports why it cannot,
/// and opens again, even if the disk becomes full right after the failure.
#[test]
fn store_opens_after_uncertain_manifest_write() {
    let data = vec![7; 3000];
    for (nth, is_full) in (1..24).flat_map(|nth| [(nth, false), (nth, true)]) {
        let sim = Sim::new(nth);
        let store = Store::open("/events", options(&sim)).expect("a new store");
        sim.fail_site("sync_dir directory", nth, Fault { kind: FaultKind::Eio, sticky: false });
        let mut acknowledged = 0;
        let mut full = false;
        for number in 0..200 {
            let event = NewEvent::binary(id(number), "Large", &data);
            if store.append("a", ExpectedVersion::Any, &[event]).is_ok() {
                acknowledged += 1;
            }
            if is_full && !full && sim.faults_fired() > 0 {
                sim.set_capacity(1);
                full = true;
            }
        }
        sim.clear_capacity();
        std::mem::forget(store);
        sim.crash_now();
        let sim = sim.kill_image();
        let store = Store::open("/events", options(&sim))
            .unwrap_or_else(|error| panic!("sync {nth}, full {is_full}: {error}"));
        let read = outline(store.read("a", Revision::START, Direction::Forwards));
        assert!(read.len() >= acknowledged, "{} of {acknowledged}", read.len());
        let all = store.read_all(Position::START, Direction::Forwards);
        assert_eq!(all.count(), read.len());
    }
}

/// Story: an operator who started a server after a power cut found no line in the log that said
/// what the start had recovered.
#[test]
fn open_after_crash_reports_its_work() {
    let sim = Sim::new(1);
    let store = Store::open("/events", options(&sim)).expect("a new store");
    assert_eq!(store.crash_recovery(), None, "a new store");
    append(&store, "a", 0..3);
    let sim = sim.kill_image();
    // The beginning of an append that the process could not complete.
    let env = sim.env();
    let chunks = env.files.read_dir(Path::new("/events/log")).expect("listed");
    let chunk = chunks.iter().find(|entry| entry.name.ends_with(".chunk")).expect("a chunk");
    let path = Path::new("/events/log").join(&chunk.name);
    let file = env.files.open(&path, Access::ReadWrite).expect("opened");
    let mut bytes = vec![0; file.len().expect("a length") as usize];
    file.read_exact_at(&mut bytes, 0).expect("read");
    let last = bytes.iter().rposition(|byte| *byte != 0).expect("events") as u64;
    file.write_all_at(&[0x55; 3], last + 100).expect("written");
    let store = Store::open("/events", options(&sim)).expect("opened");
    let report = store.crash_recovery().expect("a report").clone();
    assert_eq!((report.chunks, report.events_indexed), (1, 3));
    assert!((90..=103).contains(&report.bytes_cut), "{report:?}");
    assert!(report.files_left_out.is_empty(), "{report:?}");
    store.close().expect("closed");
    let store = Store::open("/events", options(&sim)).expect("opened");
    assert_eq!(store.crash_recovery(), None, "the store was closed");
}

/// The sizes of the chunks, which a server reads once for all consumer groups, give the same bytes
/// as a walk through the chunks.
#[test]
fn chunk_sizes_give_the_bytes_between_all_positions() {
    let sim = Sim::new(3);
    let mut positions = vec![Position::START, Position(1), Position::END];
    let store = Store::open("/events", options(&sim)).expect("open");
    let empty = store.log_bytes().between(Position::START, Position::END);
    assert_eq!(empty, store.log_bytes_between(Position::START, Position::END));
    store.close().expect("closed");
    for start in 0..4 {
        let store = Store::open("/events", options(&sim)).expect("open");
        for number in 0..12 {
            append_large(&store, &format!("s-{number}"), start * 12 + number, 9000);
            let newest = store.visible_position();
            positions.extend([newest, Position(newest.0 + 1), Position(newest.0 - 1)]);
        }
        if start == 1 {
            store.delete("s-3", ExpectedVersion::Any).expect("deleted");
            store.scavenge(&ScavengeOptions::default()).expect("scavenged");
        }
        store.close().expect("closed");
    }
    let store = Store::open("/events", options(&sim)).expect("open");
    let stats = store.stats().expect("stats");
    assert!(stats.chunks > 4 && stats.scavenged_chunks > 0, "{stats:?}");
    let log = store.log_bytes();
    for after in &positions {
        for through in &positions {
            let walked = store.log_bytes_between(*after, *through);
            assert_eq!(log.between(*after, *through), walked, "{after:?} to {through:?}");
        }
    }
}

/// Story: a store of 17 MiB had a lag of 465 MB after a dozen starts, each of which moves positions
/// on to a new chunk.
#[test]
fn bytes_between_positions_do_not_count_the_gaps_of_starts() {
    let sim = Sim::new(1);
    let mut last = Position::START;
    for number in 0..12 {
        let store = Store::open("/events", options(&sim)).expect("open");
        append(&store, "a", number..number + 1);
        let newest = store.visible_position();
        let added = store.log_bytes_between(last, newest);
        assert!(added > 0 && added < 4 << 10, "{added} at start {number}");
        let total = store.log_bytes_between(Position::START, newest);
        assert!(total <= store.stats().expect("stats").log_bytes, "{total}");
        assert!(number == 0 || newest.0 - last.0 > 32 << 10, "{newest:?} after {last:?}");
        assert_eq!(store.log_bytes_between(newest, newest), 0);
        assert_eq!(store.log_bytes_between(newest, last), 0);
        last = newest;
        store.close().expect("closed");
    }
}
