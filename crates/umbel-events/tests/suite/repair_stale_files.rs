//! Repairs of stores into which somebody put what is of another time, or of another copy of the
//! store: one that was restored from a backup and went on.

use umbel_events::{CopyOptions, Expected, RecordedEvent, RepairReport, Store, restore};
use umbel_sim::Sim;

use super::repairs::{FOLDER, check, chunk, fill, fix, specimen, without_index};
use super::repairs_exchanged::{TABLE, last_chunk, left};
use super::repairs_misled::{files, put};
use super::scavenging;
use super::support::{all, append, append_large, options};

/// The folder `name` of one folder instead of that of another.
fn with_folder(sim: &Sim, name: &str, source: &Sim, from: &str) {
    let target = format!("{FOLDER}/{name}");
    files(sim, &target).into_iter().for_each(|(path, _)| sim.remove(path));
    for (path, bytes) in files(source, &format!("{from}/{name}")) {
        let file = path.file_name().expect("a name").to_string_lossy().into_owned();
        put(sim, format!("{target}/{file}"), &bytes);
    }
}

/// Checks that no event is given that nobody wrote, and that each that is missing is in a range
/// that is lost, or in a file that the report names.
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
    assert!(fix(sim).is_whole(), "{what}: repaired twice");
}

/// A chunk's file was called as its highest version: the number behind that is 0, and the chunk
/// that was written anew was taken for the one that had been appended to. All of it was lost, with
/// exit code 0.
#[test]
fn the_highest_version_is_no_reason_to_begin_again() {
    let (sim, before) = specimen(90);
    for has_table in [true, false] {
        let what = format!("table: {has_table}");
        let named = sim.clone_disk();
        put(&named, "/events/log/00000002-18446744073709551615.chunk", &sim.read(chunk(2)));
        put(&named, "/events/log/18446744073709551615.chunk", &sim.read(chunk(1)));
        named.remove(chunk(2));
        without_index(&named);
        if !has_table {
            named.remove(TABLE);
        }
        let report = fix(&named);
        assert!(!report.is_loss(), "{what}: {report}");
        check(&named, &before, &report, &what);
        assert_eq!(left(&named), before.len() + 1, "{what}");
    }
}

/// The chunks behind one were lost that a scavenge had written anew, at whose end it had taken
/// events. The views were told of these when the repaired store was opened, and opening it again
/// was refused, as if the log had been cut.
#[test]
fn a_log_that_ends_with_what_was_scavenged_is_opened_again_and_again() {
    let (sim, _) = specimen(91);
    let store = Store::open(FOLDER, options(&sim)).expect("opened");
    for stream in ["cart-2", "note"] {
        store.delete(stream, Expected::Any).expect("deleted");
    }
    store.scavenge(&scavenging::all()).expect("scavenged");
    let before = all(&store);
    store.close().expect("closed");
    let packed = files(&sim, "/events/log");
    assert!(packed.iter().filter(|(_, bytes)| bytes.starts_with(b"UmbelPck")).count() > 2);
    for kept in 1..packed.len() {
        let cut = sim.clone_disk();
        packed[kept..].iter().for_each(|(path, _)| cut.remove(path));
        without_index(&cut);
        let report = fix(&cut);
        for time in 0..3 {
            let store = Store::open(FOLDER, options(&cut));
            let store = store.unwrap_or_else(|error| panic!("{kept} kept, {time}: {error}"));
            let verified = store.verify().expect("verified");
            assert!(verified.damage.is_empty() && verified.index.damage.is_empty(), "{kept} kept");
            store.close().expect("closed");
            assert!(fix(&cut).is_whole(), "{kept} kept, {time}");
        }
        check_named(&cut, &before, &report, &format!("{kept} kept"));
    }
}

/// The index of an hour ago, from before a scavenge: it knows that an event stood at the end of a
/// chunk, which was said to have lost that, and everything that the scavenge had taken.
#[test]
fn an_index_from_before_a_scavenge_is_no_loss() {
    let (sim, _) = specimen(92);
    let old = sim.clone_disk();
    let store = Store::open(FOLDER, options(&sim)).expect("opened");
    append(&store, "cart-1", 6_000_000..6_000_004);
    store.delete("cart-1", Expected::Any).expect("deleted");
    append_large(&store, "note", 5_000_000, 3000);
    store.scavenge(&scavenging::all()).expect("scavenged");
    let before = all(&store);
    store.close().expect("closed");
    with_folder(&sim, "index", &old, FOLDER);
    let harmed = sim.clone_disk();
    let report = fix(&sim);
    assert!(report.is_whole(), "{report}");
    assert_eq!(all(&Store::open(FOLDER, options(&sim)).expect("opened")), before);
    harmed.flip("/events/log/00000002-000001.chunk", 5000, 1);
    let report = fix(&harmed);
    check_named(&harmed, &before, &report, "one damaged event");
    let revisions: u64 = report.streams.iter().map(|lost| lost.last - lost.first + 1).sum();
    assert_eq!(revisions, (before.len() - left(&harmed)) as u64, "and no other: {report}");
}

/// A store, and on the same disk a copy of it that was restored from a backup in `/fork`. Both went
/// on.
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

/// The table of a copy that went on elsewhere: its first chunks are this store's, and its later
/// ones have other positions. What stood in this store's was in no range, although the index knew
/// all of it, and the files could be read.
#[test]
fn the_table_of_another_copy_hides_no_chunk() {
    let (sim, before) = forked(93);
    let table = sim.read("/fork/CHUNKS");
    let shared = files(&sim, "/backup/log").len() as u64;
    assert!(last_chunk(&sim, &before) > shared, "both went on");
    for (has_index, gone) in
        [(true, None), (false, None), (true, Some(shared + 1)), (false, Some(shared + 2))]
    {
        let what = format!("index: {has_index}, gone: {gone:?}");
        let mixed = sim.clone_disk();
        mixed.replace(TABLE, &table);
        gone.into_iter().for_each(|id| mixed.remove(chunk(id)));
        if !has_index {
            without_index(&mixed);
        }
        let report = fix(&mixed);
        if has_index {
            let reason = report.table.as_deref().unwrap_or_default();
            assert!(reason.contains("another copy"), "{what}: {report}");
            assert_eq!(report.is_loss(), gone.is_some(), "{what}: {report}");
        } else {
            assert!(!report.unplaced.is_empty(), "{what}: {report}");
        }
        if gone.is_none() || has_index {
            check_named(&mixed, &before, &report, &what);
        }
    }
}
