//! Opening a store: by two at once, in a folder whose name is new, by who may only read, with a
//! filter that is gone, after many short lives, after a table that may have been written.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use umbel_env::{Access, Env};
use umbel_events::{
    CopyOptions, Direction, Durability, Error, Expected, NewEvent, Position, RepairOptions,
    Revision, Store, StoreOptions, check_backup_folder, check_mistaken, is_backup, left_out,
    repair, restore, verify_backup,
};
use umbel_sim::{Fault, FaultKind, Mount, Sim, Survival, When};

use super::hooks::{Moment, hooked};
use super::support::{append, event, id, options, outline};

/// The bytes of every file below a folder.
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

/// The chunks of which something is read while a store is opened.
fn chunks_read(sim: &Sim) -> usize {
    let read = Arc::new(Mutex::new(BTreeSet::new()));
    let notes = Arc::clone(&read);
    let env = hooked(sim.env(), move |moment, path| {
        let is_chunk = path.extension().is_some_and(|extension| extension == "chunk");
        // One event alone is a look at the end, not a walk.
        if matches!(moment, Moment::Reading(bytes) if bytes > 8 << 10) && is_chunk {
            notes.lock().expect("nobody panicked").insert(path.to_path_buf());
        }
    });
    let store = Store::open("/events", StoreOptions { env, ..options(sim) }).expect("opened");
    drop(store);
    let read = read.lock().expect("nobody panicked");
    read.len()
}

/// Story: an empty path, as an unset variable gives one, was joined with the names of files, and so
/// meant the current folder: errors showed no path, and a backup or a store was made there.
#[test]
fn an_empty_path_is_refused_by_name_before_anything_is_made() {
    let sim = Sim::new(1);
    let (env, nowhere, place) = (sim.env(), Path::new(""), Path::new("/place"));
    let store = Store::open("/events", options(&sim)).expect("a new store");
    let plain = CopyOptions::default;
    let before = sim.calls();
    let answers: [(&str, umbel_events::Result<()>); 11] = [
        ("event store", Store::open("", options(&sim)).map(drop)),
        ("event store", Store::open_read_only("", options(&sim)).map(drop)),
        ("backup", store.backup("", plain()).map(drop)),
        ("backup", check_backup_folder(&env, place, nowhere)),
        ("event store", check_backup_folder(&env, nowhere, place)),
        ("backup", restore(&env, nowhere, place, plain()).map(drop)),
        ("restored store", restore(&env, place, nowhere, plain()).map(drop)),
        ("backup", verify_backup(&env, nowhere, plain()).map(drop)),
        ("backup", is_backup(&env, nowhere).map(drop)),
        ("event store", repair(&env, nowhere, RepairOptions::default()).map(drop)),
        ("event store", check_mistaken(&env, nowhere)),
    ];
    for (what, answer) in answers {
        let error = answer.expect_err("refused");
        assert!(matches!(error, Error::Invalid(_)), "{error:?}");
        let said = format!("the path of the {what} is empty; ");
        assert!(error.to_string().starts_with(&said), "{error}");
    }
    assert!(left_out(&env, nowhere).is_err());
    assert_eq!(sim.calls(), before, "the disk was not asked");
}

/// Somebody else makes the store, appends and goes away between the look whether there is one and
/// the lock: his events stay.
#[test]
fn who_comes_second_to_a_new_folder_opens_what_the_first_one_made() {
    let sim = Sim::new(3);
    let (plain, is_first) = (sim.env(), AtomicBool::new(true));
    let settings = options(&sim);
    let env = hooked(plain, move |moment, path| {
        let is_ours = path == Path::new("/events/LOCK") && moment == Moment::Locking;
        if is_ours && is_first.swap(false, Ordering::SeqCst) {
            let store = Store::open("/events", settings.clone()).expect("nobody has it yet");
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

/// Story: too little memory was found out when the index was opened, and left the folder of a store
/// that nobody had asked for in the end.
#[test]
fn a_store_that_cannot_be_opened_is_not_made() {
    let sim = Sim::new(4);
    let little = StoreOptions { memory_bytes: Some(1), ..options(&sim) };
    let refused = Store::open("/events", little).expect_err("too little").to_string();
    assert!(refused.contains("memory_bytes is 1, which is too small"), "{refused}");
    assert!(!sim.env().files.exists(Path::new("/events")).expect("looked"));
}

/// Story: the log of a store that had no event yet was taken for an empty folder, and a store made
/// in the other one. Later only the name of the folder above was looked at, and a store was made
/// further below and behind a link.
#[test]
fn no_store_is_made_in_the_folder_of_another() {
    let sim = Sim::new(5);
    let store = Store::open("/events", options(&sim)).expect("made");
    for folder in ["/events/log", "/events/index", "/events/mine", "/events/log/a/b"] {
        let refused = Store::open(folder, options(&sim)).expect_err("not here").to_string();
        let reason = if folder == "/events/index" { "key-value store" } else { "folders are its" };
        assert!(refused.contains(reason), "{folder}: {refused}");
    }
    append(&store, "s", 0..1);
    drop(store);
    let disk = tempfile::tempdir().expect("a folder");
    let (folder, link) = (disk.path().join("events"), disk.path().join("link"));
    let store = Store::open(&folder, StoreOptions::default()).expect("made");
    std::os::unix::fs::symlink(folder.join("log"), &link).expect("linked");
    for folder in [link.clone(), link.join("a"), link.join("../mine")] {
        let refused = Store::open(&folder, StoreOptions::default()).expect_err("not here");
        assert!(refused.to_string().contains("folders are its own"), "{folder:?}: {refused}");
    }
    assert!(!folder.join("log/a").exists() && !folder.join("mine").exists());
    store.close().expect("closed");
    Store::open(disk.path().join("beside"), StoreOptions::default())
        .expect("made")
        .close()
        .unwrap();
}

/// A store whose events were made durable is found again by its whole path, wherever whoever made
/// it died before.
#[test]
fn the_names_of_new_folders_survive_a_power_cut_with_what_is_in_them() {
    let folder = "/one/two/events";
    let synced = |sim: &Sim| StoreOptions { durability: Durability::Synced, ..options(sim) };
    let live = |sim: &Sim| {
        let Ok(store) = Store::open(folder, synced(sim)) else { return };
        let _ = store.append("a", Expected::NoStream, &[event(0)]);
    };
    let whole = Sim::new(5);
    live(&whole);
    for call in 0..whole.calls() {
        let sim = Sim::new(5);
        sim.crash_at(call, When::After);
        live(&sim);
        let killed = sim.kill_image();
        let store = Store::open(folder, synced(&killed)).expect("opened after the kill");
        store.append("b", Expected::NoStream, &[event(1)]).expect("appended");
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
fn who_may_only_read_changes_no_byte() {
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

/// A store that another process wrote to was called damaged where it was opened through a mount
/// that is read-only: the table of chunks was read before the process began another chunk, and the
/// chunks after it.
#[test]
fn a_writer_is_no_damage_to_one_who_may_only_read() {
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
            let env = hooked(sim.env(), move |moment, _| {
                let is_read = matches!(moment, Moment::Reading(_));
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

/// A filter that is gone is made anew of the index; the log is read no further than the index is
/// behind it.
#[test]
fn a_filter_that_is_gone_does_not_have_the_whole_log_read() {
    let sim = Sim::new(9);
    let store = Store::open("/events", options(&sim)).expect("a new store");
    // One event a chunk, and more of them than have ids that are known again.
    let data = vec![7; 40_000];
    for number in 0..600 {
        let stream = format!("s-{number}");
        let event = NewEvent::binary(id(number), "Large", &data);
        store.append(&stream, Expected::NoStream, &[event]).expect("appended");
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
    assert!(store.append("s-7", Expected::NoStream, &[event(1000)]).is_err());
}

/// Each life of a process that appends and is killed leaves a chunk: the index must not fall
/// behind by more than the last two.
#[test]
fn lives_that_end_with_a_kill_do_not_add_up() {
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

/// Positions jump over the rooms of chunks that were not used, which are 32 MiB by and by; what is
/// known again is said in bytes of events.
#[test]
fn a_retry_is_known_across_reopened_stores_however_large_their_chunks_are() {
    let sim = Sim::new(13);
    let settings = || StoreOptions { chunk_bytes: 32 << 20, ..options(&sim) };
    for life in 0..8 {
        let store = Store::open("/events", settings()).expect("opened");
        for before in 0..life {
            let events = [event(before * 2), event(before * 2 + 1)];
            let again = store.append("a", Expected::Any, &events).expect("answered");
            assert!(again.was_there, "life {life}: what life {before} appended");
            assert_eq!(again.first, Some(before * 2));
        }
        append(&store, "a", life * 2..life * 2 + 2);
        store.close().expect("closed");
    }
}

/// The table of chunks was renamed and then its folder could not be synced: whether the disk names
/// the new chunk, nobody knows. The store goes on or says why not, and opens again, also when the
/// disk is full right after that.
#[test]
fn a_table_that_may_have_been_written_leaves_a_store_that_opens() {
    let data = vec![7; 3000];
    for (nth, is_full) in (1..24).flat_map(|nth| [(nth, false), (nth, true)]) {
        let sim = Sim::new(nth);
        let store = Store::open("/events", options(&sim)).expect("a new store");
        sim.fail_site("sync_dir directory", nth, Fault { kind: FaultKind::Eio, sticky: false });
        let mut acknowledged = 0;
        let mut full = false;
        for number in 0..200 {
            let event = NewEvent::binary(id(number), "Large", &data);
            if store.append("a", Expected::Any, &[event]).is_ok() {
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
