//! Backups of a store that is scavenged between them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use umbel_events::{
    CopyOptions, Error, ExpectedVersion, Store, StoreOptions, restore, verify_backup,
};
use umbel_sim::Sim;

use super::file_system_hooks::{FileCall, with_hook};
use super::scavenge::{all, append_each, everything, streams};
use super::support::options;

#[test]
fn scavenged_chunks_survive_backup_and_restore() {
    let sim = Sim::new(31);
    let store = Store::open("/events", options(&sim)).expect("a new store");
    for (number, stream) in ["gone-1", "kept-1", "gone-2", "kept-2"].into_iter().enumerate() {
        let first = number as u64 * 100;
        append_each(&store, stream, first..first + 100, 900);
    }
    let env = sim.env();
    let copy = CopyOptions::default;
    store.backup("/backup", copy()).expect("a first backup");
    for stream in ["gone-1", "gone-2"] {
        store.delete(stream, ExpectedVersion::Any).expect("deleted");
    }
    append_each(&store, "kept-1", 1000..1100, 900);
    let scavenged = store.scavenge(&all()).expect("scavenged");
    assert!(scavenged.events_removed > 150 && scavenged.chunks_rewritten > 1, "{scavenged:?}");
    let second = store.backup("/backup", copy()).expect("a second backup");
    assert!(second.copied_bytes < second.bytes, "what was not scavenged was there");
    let third = store.backup("/backup", copy()).expect("a third backup");
    assert_eq!(third.copied_bytes, 0, "nothing is new");
    let checked = verify_backup(&env, "/backup".as_ref(), copy()).expect("read");
    assert!(checked.damage.is_empty(), "{:?}", checked.damage);
    restore(&env, "/backup".as_ref(), "/restored".as_ref(), copy()).expect("restored");
    let restored = Store::open("/restored", options(&sim)).expect("opened");
    assert_eq!(everything(&restored), everything(&store));
    assert_eq!(streams(&restored), streams(&store));
    let report = restored.verify().expect("verified");
    assert!(report.damage.is_empty(), "{:?}", report.damage);
}

/// Regression: bytes were written after the ends of files in the directory of the backup. A
/// scavenged chunk is only whole with its exact length: `verify` and `restore` refused the backup.
/// Later backups only looked for files that are too short, and never removed the extra bytes.
#[test]
fn next_backup_truncates_an_overlong_file() {
    let sim = Sim::new(32);
    let store = Store::open("/events", options(&sim)).expect("a new store");
    append_each(&store, "gone", 0..100, 900);
    append_each(&store, "kept", 100..200, 900);
    store.delete("gone", ExpectedVersion::Any).expect("deleted");
    store.scavenge(&all()).expect("scavenged");
    append_each(&store, "kept", 200..300, 900);
    let env = sim.env();
    let copy = CopyOptions::default;
    store.backup("/backup", copy()).expect("a first backup");
    let files = sim.files().into_iter().filter(|path| path.starts_with("/backup/log"));
    let files: Vec<_> = files.map(|path| (sim.read(&path).len(), path)).collect();
    assert!(files.iter().any(|(_, path)| path.to_string_lossy().contains("-000001.chunk")));
    files.iter().for_each(|(_, path)| sim.extend(path, &[7; 5000]));
    let longer = verify_backup(&env, "/backup".as_ref(), copy()).expect("read");
    assert!(!longer.damage.is_empty(), "a scavenged chunk needs its exact length");
    let second = store.backup("/backup", copy()).expect("a second backup");
    assert_eq!(second.copied_bytes, 0, "nothing is new");
    for (len, path) in &files {
        assert_eq!(sim.read(path).len(), *len, "{}", path.display());
    }
    let checked = verify_backup(&env, "/backup".as_ref(), copy()).expect("read");
    assert!(checked.damage.is_empty(), "{:?}", checked.damage);
    restore(&env, "/backup".as_ref(), "/restored".as_ref(), copy()).expect("restored");
    let restored = Store::open("/restored", options(&sim)).expect("opened");
    assert_eq!(everything(&restored), everything(&store));
}

/// Bytes after the end of a chunk of the store are not backed up.
#[test]
fn overlong_chunk_is_backed_up_to_its_recorded_length() {
    let sim = Sim::new(33);
    let store = Store::open("/events", options(&sim)).expect("a new store");
    append_each(&store, "kept", 0..200, 900);
    let wanted = everything(&store);
    sim.extend("/events/log/00000001.chunk", &[7; 5000]);
    let env = sim.env();
    let backup = store.backup("/backup", CopyOptions::default()).expect("backed up");
    let files = sim.files().into_iter().filter(|path| path.starts_with("/backup/log"));
    assert_eq!(files.map(|path| sim.read(path).len() as u64).sum::<u64>(), backup.bytes);
    let checked = verify_backup(&env, "/backup".as_ref(), CopyOptions::default()).expect("read");
    assert!(checked.damage.is_empty(), "{:?}", checked.damage);
    restore(&env, "/backup".as_ref(), "/restored".as_ref(), CopyOptions::default())
        .expect("restored");
    let restored = Store::open("/restored", options(&sim)).expect("opened");
    assert_eq!(everything(&restored), wanted);
}

/// Whether the file is one of a scavenged chunk in this directory.
fn is_scavenged_chunk(path: &Path, directory: &str) -> bool {
    path.starts_with(directory) && path.to_string_lossy().ends_with("-000001.chunk")
}

/// A scavenged chunk has no records to verify, but a checksum in the chunk manifest.
#[test]
fn damage_of_a_scavenged_chunk_is_attributed_to_the_store_or_the_copy() {
    let sim = Sim::new(34);
    let is_target_damaged = Arc::new(AtomicBool::new(true));
    let (disk, damages_target) = (sim.clone(), Arc::clone(&is_target_damaged));
    let env = with_hook(sim.env(), move |call, path| {
        let is_copy = call == FileCall::Synced && is_scavenged_chunk(path, "/backup");
        if is_copy && damages_target.load(Ordering::SeqCst) {
            disk.flip(path, 1, 1);
        }
    });
    let store = Store::open("/events", StoreOptions { env, ..options(&sim) }).expect("a new store");
    append_each(&store, "gone", 0..100, 900);
    append_each(&store, "kept", 100..200, 900);
    store.delete("gone", ExpectedVersion::Any).expect("deleted");
    store.scavenge(&all()).expect("scavenged");
    let files = sim.files().into_iter();
    let source: PathBuf =
        files.filter(|path| is_scavenged_chunk(path, "/events")).min().expect("a scavenged chunk");
    let copy = Path::new("/backup/log").join(source.file_name().expect("a name"));
    let fails = |damaged: &Path, count: u64| {
        let error = store.backup("/backup", CopyOptions::default()).expect_err("damaged");
        let message = error.to_string();
        let wanted = format!("corruption in {} at", damaged.display());
        assert!(message.contains(&wanted), "{wanted}: {message}");
        assert_eq!(matches!(error, Error::Backup(_)), damaged == copy, "{message}");
        assert_eq!(store.stats().expect("stats").damage_errors, count, "{message}");
    };
    fails(&copy, 0);
    sim.flip(&source, 0, 1);
    // Both are damaged.
    fails(&source, 1);
    is_target_damaged.store(false, Ordering::SeqCst);
    fails(&source, 2);
    sim.flip(&source, 0, 1);
    store.backup("/backup", CopyOptions::default()).expect("backed up");
    let checked = verify_backup(&sim.env(), "/backup".as_ref(), CopyOptions::default());
    assert!(checked.expect("read").damage.is_empty());
}
