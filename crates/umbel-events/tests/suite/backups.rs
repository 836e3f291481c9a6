//! Backups hold all events, copy only new data, refuse invalid targets, and report all damage of
//! their files.

use std::path::{Path, PathBuf};

use umbel_events::{
    CopyOptions, Direction, Durability, Error, Position, Store, StoreOptions, is_backup, restore,
    verify_backup,
};
use umbel_sim::{Fault, FaultKind, Sim};

use super::support::{all, append, append_large, options, restored};

fn plain() -> CopyOptions<'static> {
    CopyOptions::default()
}

/// Bytes of all files of a folder.
pub fn bytes_in(sim: &Sim, folder: &str) -> u64 {
    let files = sim.files();
    files.iter().filter(|p| p.starts_with(folder)).map(|p| sim.read(p).len() as u64).sum()
}

#[test]
fn backup_contains_all_earlier_appends() {
    for durability in [Durability::Buffered, Durability::Synced] {
        let sim = Sim::new(1);
        let store = Store::open("/events", StoreOptions { durability, ..options(&sim) });
        let store = store.expect("a new store");
        let empty = store.backup("/backup", plain()).expect("of nothing");
        assert_eq!((empty.through, empty.files, empty.number), (Position::START, 0, 1));
        assert!(restored(&sim, "/backup").is_empty());
        for number in 0..30 {
            append_large(&store, ["a", "b"][number as usize % 2], number, 5000);
            let report = store.backup("/backup", plain()).expect("backed up");
            let events = all(&store);
            assert_eq!(events.last().map(|event| event.position), Some(report.through.0));
            assert_eq!(report.number, number + 2);
            if number % 7 == 0 {
                assert_eq!(restored(&sim, "/backup"), events, "{durability:?}, {number}");
            }
        }
        assert!(store.stats().expect("stats").chunks > 2, "it went on in other chunks");
        let checked = verify_backup(&sim.env(), "/backup".as_ref(), plain()).expect("checked");
        assert!(checked.damage.is_empty() && checked.files > 2, "{checked:?}");
    }
}

#[test]
fn later_backup_copies_only_new_files() {
    let sim = Sim::new(2);
    let store = Store::open("/events", options(&sim)).expect("a new store");
    (0..40).for_each(|number| append_large(&store, "a", number, 6000));
    let first = store.backup("/backup", plain()).expect("backed up");
    assert_eq!(first.copied_bytes, first.bytes);
    let again = store.backup("/backup", plain()).expect("backed up");
    assert_eq!((again.copied_bytes, again.copied_files, again.bytes), (0, 0, first.bytes));
    let calls = |sim: &Sim| {
        sim.sites().into_iter().filter(|(site, _)| site == "write *.chunk").map(|(_, n)| n).sum()
    };
    for round in 0..25 {
        let before: u64 = calls(&sim);
        append_large(&store, "b", 1000 + round, 6000);
        let wrote: u64 = calls(&sim);
        assert_eq!(wrote, before, "the store maps its chunks");
        let next = store.backup("/backup", plain()).expect("backed up");
        let grew = next.bytes - again.bytes;
        // One event is 6 KB; an ended chunk adds its end record, a new one its header.
        assert!(next.copied_bytes <= 6000 + 500, "{} of {grew}", next.copied_bytes);
        assert!(next.copied_files <= 2 && calls(&sim) - wrote <= 2, "{next:?}");
    }
    let last = store.backup("/backup", plain()).expect("backed up");
    assert_eq!(last.copied_bytes, 0);
    assert!(bytes_in(&sim, "/backup") < last.bytes + 4000, "nothing but the files and a manifest");
    store.close().expect("closed");
    let store = Store::open("/events", options(&sim)).expect("opened again");
    // The active chunk got its end record when the store was closed.
    let closed = store.backup("/backup", plain()).expect("backed up");
    assert!(closed.copied_bytes <= 64 && closed.through == last.through, "{closed:?}");
    assert_eq!(restored(&sim, "/backup"), all(&store));
}

#[test]
fn unrelated_directories_and_other_stores_are_rejected() {
    let sim = Sim::new(3);
    let store = Store::open("/events", options(&sim)).expect("a new store");
    append(&store, "a", 0..3);
    let other = Store::open("/other", options(&sim)).expect("another store");
    append(&other, "a", 0..3);
    store.backup("/backup", plain()).expect("backed up");
    sim.env().files.create_dir_all("/files".as_ref()).expect("a directory");
    sim.env().files.create("/files/letter".as_ref()).expect("a file");
    let refused = |store: &Store, target: &str, why: &str| {
        let before = sim.files();
        let message = store.backup(target, plain()).expect_err(target).to_string();
        assert!(message.contains(why), "{target}: {message}");
        assert_eq!(sim.files(), before, "nothing was written to {target}");
    };
    refused(&store, "/events", "the directory of the store itself");
    refused(&store, "/events/backup", "the directory of the store itself");
    refused(&store, "/other", "holds an event store");
    refused(&store, "/files", "holds 'letter', but no backup");
    refused(&other, "/backup", "a backup of another store");
    let held = sim.env().files.lock("/backup/LOCK".as_ref()).expect("the lock");
    let busy = store.backup("/backup", plain()).expect_err("another backup runs");
    assert!(
        matches!(&busy, Error::BackupInUse(directory) if directory == Path::new("/backup")),
        "{busy}"
    );
    drop(held);
    let message = Store::open("/backup", options(&sim)).expect_err("no store").to_string();
    assert!(message.contains("holds a backup") && message.contains("umbel restore"), "{message}");
    let env = sim.env();
    assert!(is_backup(&env, "/backup".as_ref()).expect("checked"));
    assert!(!is_backup(&env, "/events".as_ref()).expect("checked"));
    let message = verify_backup(&env, "/events".as_ref(), plain()).expect_err("no backup");
    assert!(message.to_string().contains("the directory holds an event store"), "{message}");
}

/// A store is restored from a backup, and the original and the restored store continue: neither
/// accepts the other's backup as a target. Each copy has an instance id, and a backup only accepts
/// the copy from which it was made.
#[test]
fn diverged_copies_are_distinguished() {
    let sim = Sim::new(4);
    let store = Store::open("/events", options(&sim)).expect("a new store");
    append(&store, "a", 0..3);
    store.backup("/early", plain()).expect("backed up");
    restore(&sim.env(), "/early".as_ref(), "/twin".as_ref(), plain()).expect("restored");
    (3..40).for_each(|number| append_large(&store, "a", number, 6000));
    store.backup("/late", plain()).expect("backed up");
    let twin = Store::open("/twin", options(&sim)).expect("the twin");
    let message = twin.backup("/late", plain()).expect_err("another copy").to_string();
    assert!(message.contains("another copy of this store"), "{message}");
    append(&twin, "a", 100..103);
    let message = twin.backup("/late", plain()).expect_err("another copy").to_string();
    assert!(message.contains("another copy of this store"), "{message}");
    // A server checks this at its start.
    let message = twin.check_backup_owner("/late").expect_err("another copy").to_string();
    assert!(message.contains("another copy of this store"), "{message}");
    store.check_backup_owner("/late").expect("its own backup");
    twin.check_backup_owner("/none").expect("no backup");
    assert_eq!(restored(&sim, "/late"), all(&store), "the backup is as it was");
    let message = twin.backup("/early", plain()).expect_err("the original's").to_string();
    assert!(message.contains("another copy of this store"), "{message}");
    twin.backup("/twins", plain()).expect("backed up");
    assert_eq!(restored(&sim, "/twins"), all(&twin));
    store.backup("/early", plain()).expect("backed up");
    assert_eq!(restored(&sim, "/early"), all(&store));
}

/// A store and its backup, of several chunks, one of them active at the backup.
fn specimen() -> Sim {
    let sim = Sim::new(5);
    let store = Store::open("/events", options(&sim)).expect("a new store");
    (0..25).for_each(|number| append_large(&store, "a", number, 6000));
    store.backup("/backup", plain()).expect("backed up");
    append(&store, "b", 100..103);
    store.backup("/backup", plain()).expect("backed up");
    store.close().expect("closed");
    sim
}

fn files_of(sim: &Sim, folder: &str) -> Vec<PathBuf> {
    sim.files().into_iter().filter(|p| p.starts_with(folder) && !p.ends_with("LOCK")).collect()
}

/// Whether a verification finds and names the damage, and a restore refuses the backup.
fn is_noticed(sim: &Sim, path: &Path) -> bool {
    let env = sim.env();
    let found = verify_backup(&env, "/backup".as_ref(), plain());
    let refused = restore(&env, "/backup".as_ref(), "/again".as_ref(), plain());
    let message = match (&found, &refused) {
        (Ok(report), Ok(_)) if report.damage.is_empty() => return false,
        (Ok(report), Err(refused)) if !report.damage.is_empty() => {
            assert_eq!(report.damage[0].to_string(), refused.to_string());
            refused.to_string()
        }
        (Err(error), Err(refused)) => {
            assert_eq!(error.to_string(), refused.to_string());
            refused.to_string()
        }
        both => panic!("{}: {both:?}", path.display()),
    };
    let shown = path.display().to_string();
    assert!(message.contains("corruption in") && message.contains(&shown), "{shown}: {message}");
    assert!(!sim.files().iter().any(|p| p.starts_with("/again")), "nothing was written");
    true
}

#[test]
fn damaged_backup_is_detected_before_restore() {
    let sim = specimen();
    let files = files_of(&sim, "/backup");
    assert!(files.len() >= 4, "{files:?}");
    assert!(!is_noticed(&sim.clone_disk(), "/backup/BACKUP".as_ref()), "undamaged");
    for path in &files {
        let len = sim.read(path).len() as u64;
        for offset in (0..len).step_by(if len > 5000 { 2003 } else { 7 }) {
            let damaged = sim.clone_disk();
            damaged.flip(path, offset, 1 << (offset % 8));
            assert!(is_noticed(&damaged, path), "{} at {offset}", path.display());
        }
        for len in [0, 1, len / 2, len - 1] {
            let cut = sim.clone_disk();
            cut.truncate(path, len);
            assert!(is_noticed(&cut, path), "{} cut to {len}", path.display());
        }
        if !path.ends_with("BACKUP") {
            let without = sim.clone_disk();
            without.remove(path);
            assert!(is_noticed(&without, path), "{} is missing", path.display());
        }
    }
    let swapped = sim.clone_disk();
    swapped.swap_files(&files[1], &files[2]);
    assert!(is_noticed(&swapped, &files[1]));
}

#[test]
fn damaged_log_fails_the_backup() {
    for (number, is_sealed) in [(1, true), (9, false)] {
        let sim = specimen();
        let chunks = files_of(&sim, "/events/log");
        let path = if is_sealed { chunks[number - 1].clone() } else { chunks[2].clone() };
        let store = Store::open("/events", options(&sim)).expect("opened");
        sim.flip(&path, 3000, 1);
        let message = store.backup("/fresh", plain()).expect_err("damaged").to_string();
        assert!(
            message.contains("corruption in") && message.contains(&*path.to_string_lossy()),
            "{message}"
        );
        let message =
            verify_backup(&sim.env(), "/fresh".as_ref(), plain()).expect_err("no backup yet");
        assert!(message.to_string().contains("is not complete"), "{message}");
        sim.flip(&path, 3000, 1);
        store.backup("/fresh", plain()).expect("restored");
        assert_eq!(restored(&sim, "/fresh"), all(&store));
    }
}

/// Story: a disk for backups that returned other bytes than were written raised the critical alert
/// for a damaged store, and the advice was to repair the healthy store.
#[test]
fn damage_of_the_copy_is_not_damage_of_the_store() {
    // The chunk of the first backup ends before the second backup, or goes on.
    for later in [1, 20] {
        let sim = Sim::new(8);
        let store = Store::open("/events", options(&sim)).expect("a new store");
        (0..3).for_each(|number| append_large(&store, "a", number, 6000));
        store.backup("/backup", plain()).expect("backed up");
        sim.flip("/backup/log/00000001.chunk", 3000, 1);
        (3..3 + later).for_each(|number| append_large(&store, "a", number, 6000));
        let error = store.backup("/backup", plain()).expect_err("the copy is damaged");
        let message = error.to_string();
        assert!(matches!(error, Error::Backup(_)), "{later}: {message}");
        assert!(message.contains("corruption in /backup/log/00000001.chunk"), "{later}: {message}");
        assert_eq!(store.stats().expect("stats").damage_errors, 0, "{later}: {message}");
        store.backup("/other", plain()).expect("backed up to another directory");
        assert_eq!(restored(&sim, "/other"), all(&store));
        sim.flip("/events/log/00000001.chunk", 3000, 1);
        let error = store.backup("/third", plain()).expect_err("the store is damaged");
        let message = error.to_string();
        assert!(message.contains("corruption in /events/log/00000001.chunk"), "{later}: {message}");
        assert_eq!(store.stats().expect("stats").damage_errors, 1, "{later}: {message}");
    }
}

/// If both files of a chunk are damaged, the damage of the store is more important.
#[test]
fn damage_of_the_store_is_reported_before_that_of_the_copy() {
    // The chunk of the first backup goes on, or ends before the second backup.
    for later in [1, 20] {
        let sim = Sim::new(10);
        let store = Store::open("/events", options(&sim)).expect("a new store");
        (0..3).for_each(|number| append_large(&store, "a", number, 6000));
        store.backup("/backup", plain()).expect("backed up");
        let copy = "/backup/log/00000001.chunk";
        let backed_up = sim.read(copy).len() as u64;
        (3..3 + later).for_each(|number| append_large(&store, "a", number, 6000));
        store.sync().expect("synced");
        sim.flip(copy, 3000, 1);
        // In an event that the first backup does not have.
        sim.flip("/events/log/00000001.chunk", backed_up + 1000, 1);
        let error = store.backup("/backup", plain()).expect_err("both are damaged");
        let message = error.to_string();
        assert!(matches!(error, Error::Store(_)), "{later}: {message}");
        assert!(message.contains("corruption in /events/log/00000001.chunk"), "{later}: {message}");
        assert_eq!(store.stats().expect("stats").damage_errors, 1, "{later}: {message}");
    }
}

/// Story: the last block of the store that a backup had was damaged. The next backup reported
/// another copy of the store, and did not count damage.
#[test]
fn damage_of_a_backed_up_block_is_no_other_copy_of_the_store() {
    // The chunk of the first backup goes on, or ends before the second backup.
    for later in [1, 20] {
        let sim = Sim::new(9);
        let store = Store::open("/events", options(&sim)).expect("a new store");
        (0..3).for_each(|number| append_large(&store, "a", number, 6000));
        store.backup("/backup", plain()).expect("backed up");
        let before = restored(&sim, "/backup");
        (3..3 + later).for_each(|number| append_large(&store, "a", number, 6000));
        store.sync().expect("synced");
        sim.flip("/events/log/00000001.chunk", 3000, 1);
        let error = store.backup("/backup", plain()).expect_err("the store is damaged");
        let message = error.to_string();
        assert!(matches!(error, Error::Store(_)), "{later}: {message}");
        assert!(message.contains("corruption in /events/log/00000001.chunk"), "{later}: {message}");
        assert_eq!(store.stats().expect("stats").damage_errors, 1, "{later}: {message}");
        assert_eq!(restored(&sim, "/backup"), before, "the backup is as it was");
        sim.flip("/events/log/00000001.chunk", 3000, 1);
        store.backup("/backup", plain()).expect("backed up");
        assert_eq!(restored(&sim, "/backup"), all(&store));
    }
}

#[test]
fn disk_full_keeps_the_previous_backup() {
    let sim = Sim::new(6);
    let store = Store::open("/events", options(&sim)).expect("a new store");
    (0..10).for_each(|number| append_large(&store, "a", number, 6000));
    store.backup("/backup", plain()).expect("backed up");
    let before = restored(&sim, "/backup");
    (10..60).for_each(|number| append_large(&store, "a", number, 6000));
    store.sync().expect("synced");
    let whole = |path: &PathBuf| (sim.read(path).len() as u64).next_multiple_of(4096);
    let used: u64 = sim.files().iter().map(whole).sum();
    for free in [0, 10_000, 70_000, 200_000] {
        sim.set_capacity(used + free);
        let error = store.backup("/backup", plain()).expect_err("disk full");
        let message = error.to_string();
        assert!(matches!(error, Error::BackupDisk(umbel::Error::DiskFull { .. })), "{message}");
        let advice =
            "in the backup, not in the store: free space on that disk, then run the backup";
        assert!(message.contains("/backup/") && message.contains(advice), "{message}");
        assert!(!message.contains("nothing acknowledged"), "{message}");
        sim.clear_capacity();
        assert_eq!(restored(&sim, "/backup"), before, "with {free} bytes free");
    }
    store.backup("/backup", plain()).expect("with free space");
    assert_eq!(restored(&sim, "/backup"), all(&store));
    assert_eq!(store.read_all(Position::START, Direction::Forwards).count(), 60);
}

#[test]
fn retry_of_failed_backup_reuses_intact_files() {
    let sites = ["create *.chunk", "write *.chunk", "sync *.chunk", "sync BACKUP.new", "rename"];
    for site in sites {
        let sim = Sim::new(7);
        let store = Store::open("/events", options(&sim)).expect("a new store");
        (0..30).for_each(|number| append_large(&store, "a", number, 6000));
        store.sync().expect("synced");
        // The directory is ready.
        sim.fail_site("create *.chunk", 1, Fault { kind: FaultKind::Eio, sticky: false });
        store.backup("/backup", plain()).expect_err("a fault");
        sim.fail_site(site, 3.min(nth(site)), Fault { kind: FaultKind::Eio, sticky: false });
        store.backup("/backup", plain()).expect_err(site);
        sim.heal();
        let report = store.backup("/backup", plain()).expect("backed up");
        assert!(
            site.contains("create") || report.copied_bytes < report.bytes,
            "{site}: {report:?}"
        );
        assert_eq!(restored(&sim, "/backup"), all(&store), "{site}");
    }
}

/// Returns the number of the call at this site that fails: a backup writes several chunk files, but
/// one manifest.
fn nth(site: &str) -> u64 {
    if site.ends_with("*.chunk") { 3 } else { 1 }
}
