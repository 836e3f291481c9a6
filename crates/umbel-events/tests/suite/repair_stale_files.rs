//! Repairs of stores that received files of another time, or of a diverged copy that was restored
//! from a backup.

use umbel_events::{CopyOptions, ExpectedVersion, RecordedEvent, RepairReport, Store, restore};
use umbel_sim::Sim;

use super::repair::{FOLDER, check, chunk, fill, repair_store, specimen, without_index};
use super::repair_swapped_files::{MANIFEST, last_chunk, readable_count};
use super::repair_unexpected_files::{files, put};
use super::scavenge;
use super::support::{all, append, append_large, options};

/// Replaces the directory `name` of one folder by that of another.
fn with_folder(sim: &Sim, name: &str, source: &Sim, from: &str) {
    let target = format!("{FOLDER}/{name}");
    files(sim, &target).into_iter().for_each(|(path, _)| sim.remove(path));
    for (path, bytes) in files(source, &format!("{from}/{name}")) {
        let file = path.file_name().expect("a name").to_string_lossy().into_owned();
        put(sim, format!("{target}/{file}"), &bytes);
    }
}

/// Checks that every event was written, and that each missing one is in a lost range or in a file
/// that the report names.
pub fn check_named(sim: &Sim, before: &[RecordedEvent], report: &RepairReport, what: &str) {
    let lost =
        report.chunks.iter().flat_map(|chunk| &chunk.lost).map(|range| (range.from, range.to));
    let unplaced = report.unplaced.iter().map(|file| (file.from, file.to));
    let ranges: Vec<_> = lost.chain(unplaced).collect();
    let store = Store::open(FOLDER, options(sim)).expect("opened");
    let after = all(&store);
    assert!(after.iter().all(|event| before.contains(event)), "{what}: made up");
    for event in before.iter().filter(|event| !after.contains(event)) {
        let is_named = ranges.iter().any(|(from, to)| (from.0..to.0).contains(&event.position));
        assert!(is_named, "{what}: {event:?} is in no range of {report}");
    }
    store.close().expect("closed");
    assert!(repair_store(sim).is_undamaged(), "{what}: repaired twice");
}

/// Regression: a chunk's file had the highest version as its name. The next number is 0, and the
/// rebuilt chunk was taken for the one that had been appended to. The whole chunk was lost, with
/// exit code 0.
#[test]
fn highest_file_version_does_not_wrap_to_zero() {
    let (sim, before) = specimen(90);
    for has_manifest in [true, false] {
        let what = format!("manifest: {has_manifest}");
        let named = sim.clone_disk();
        put(&named, "/events/log/00000002-18446744073709551615.chunk", &sim.read(chunk(2)));
        put(&named, "/events/log/18446744073709551615.chunk", &sim.read(chunk(1)));
        named.remove(chunk(2));
        without_index(&named);
        if !has_manifest {
            named.remove(MANIFEST);
        }
        let report = repair_store(&named);
        assert!(!report.has_loss(), "{what}: {report}");
        check(&named, &before, &report, &what);
        assert_eq!(readable_count(&named), before.len() + 1, "{what}");
    }
}

/// Regression: a scavenge had removed events at the end of a chunk, and all later chunks were lost.
/// When the repaired store was opened, the views counted these removed events. The next open was
/// refused, as if the log had been truncated.
#[test]
fn log_that_ends_in_scavenged_events_reopens() {
    let (sim, _) = specimen(91);
    let store = Store::open(FOLDER, options(&sim)).expect("opened");
    for stream in ["cart-2", "note"] {
        store.delete(stream, ExpectedVersion::Any).expect("deleted");
    }
    store.scavenge(&scavenge::all()).expect("scavenged");
    let before = all(&store);
    store.close().expect("closed");
    let scavenged = files(&sim, "/events/log");
    assert!(scavenged.iter().filter(|(_, bytes)| bytes.starts_with(b"UmbelPck")).count() > 2);
    for kept in 1..scavenged.len() {
        let cut = sim.clone_disk();
        scavenged[kept..].iter().for_each(|(path, _)| cut.remove(path));
        without_index(&cut);
        let report = repair_store(&cut);
        for time in 0..3 {
            let store = Store::open(FOLDER, options(&cut));
            let store = store.unwrap_or_else(|error| panic!("{kept} kept, {time}: {error}"));
            let verified = store.verify().expect("verified");
            assert!(verified.damage.is_empty() && verified.index.damage.is_empty(), "{kept} kept");
            store.close().expect("closed");
            assert!(repair_store(&cut).is_undamaged(), "{kept} kept, {time}");
        }
        check_named(&cut, &before, &report, &format!("{kept} kept"));
    }
}

/// Regression: an index from before a scavenge knows an event at the end of a chunk. The report
/// claimed the loss of that event, and of everything that the scavenge had removed.
#[test]
fn index_from_before_a_scavenge_reports_no_loss() {
    let (sim, _) = specimen(92);
    let old = sim.clone_disk();
    let store = Store::open(FOLDER, options(&sim)).expect("opened");
    append(&store, "cart-1", 6_000_000..6_000_004);
    store.delete("cart-1", ExpectedVersion::Any).expect("deleted");
    append_large(&store, "note", 5_000_000, 3000);
    store.scavenge(&scavenge::all()).expect("scavenged");
    let before = all(&store);
    store.close().expect("closed");
    with_folder(&sim, "index", &old, FOLDER);
    let harmed = sim.clone_disk();
    let report = repair_store(&sim);
    assert!(report.is_undamaged(), "{report}");
    assert_eq!(all(&Store::open(FOLDER, options(&sim)).expect("opened")), before);
    harmed.flip("/events/log/00000002-000001.chunk", 5000, 1);
    let report = repair_store(&harmed);
    check_named(&harmed, &before, &report, "one damaged event");
    let revisions: u64 = report.streams.iter().map(|lost| lost.last - lost.first + 1).sum();
    assert_eq!(
        revisions,
        (before.len() - readable_count(&harmed)) as u64,
        "and no other: {report}"
    );
}

/// A store, and on the same disk a copy of it that was restored from a backup in `/fork`. Both
/// diverged.
fn forked(seed: u64) -> (Sim, Vec<RecordedEvent>) {
    let (sim, _) = specimen(seed);
    let store = Store::open(FOLDER, options(&sim)).expect("opened");
    store.backup("/backup", CopyOptions::default()).expect("backed up");
    fill(&store, 1000..1200);
    let before = all(&store);
    store.close().expect("closed");
    restore(&sim.env(), "/backup".as_ref(), "/fork".as_ref(), CopyOptions::default())
        .expect("restored");
    let fork = Store::open("/fork", options(&sim)).expect("opened");
    for number in 0..60 {
        append_large(&fork, "cart-2", 7_000_000 + number, 2000);
    }
    fork.close().expect("closed");
    (sim, before)
}

/// Regression: the manifest of a diverged copy has this store's first chunks, and later ones with
/// other positions. The events of this store's later chunks were in no lost range, although the
/// index knew all of them, and the files could be read.
#[test]
fn manifest_of_diverged_copy_hides_no_chunk() {
    let (sim, before) = forked(93);
    let manifest = sim.read("/fork/CHUNKS");
    let shared = files(&sim, "/backup/log").len() as u64;
    assert!(last_chunk(&sim, &before) > shared, "both went on");
    for (has_index, missing) in
        [(true, None), (false, None), (true, Some(shared + 1)), (false, Some(shared + 2))]
    {
        let what = format!("index: {has_index}, missing: {missing:?}");
        let mixed = sim.clone_disk();
        mixed.replace(MANIFEST, &manifest);
        missing.into_iter().for_each(|id| mixed.remove(chunk(id)));
        if !has_index {
            without_index(&mixed);
        }
        let report = repair_store(&mixed);
        if has_index {
            let reason = report.manifest.as_deref().unwrap_or_default();
            assert!(reason.contains("another copy"), "{what}: {report}");
            assert_eq!(report.has_loss(), missing.is_some(), "{what}: {report}");
        } else {
            assert!(!report.unplaced.is_empty(), "{what}: {report}");
        }
        if missing.is_none() || has_index {
            check_named(&mixed, &before, &report, &what);
        }
    }
}
