//! Repairs of stores that received chunks or the manifest of another store.

use std::path::PathBuf;

use umbel_events::{ExpectedVersion, RecordedEvent, Store};
use umbel_sim::Sim;

use super::repair::{
    FOLDER, check, chunk, chunk_of, fill, repair_store, without_filter, without_index,
};
use super::repair_stale_files::check_named;
use super::repair_swapped_files::{MANIFEST, killed_at, last_chunk, readable_count};
use super::repair_unexpected_files::{files, put};
use super::scavenge;
use super::support::{all, append_large, options};

/// A store that was opened this many times, with this many appends each time.
fn reopened(seed: u64, runs: u64, appends: u64) -> (Sim, Vec<RecordedEvent>) {
    let sim = Sim::new(seed);
    let mut before = Vec::new();
    for run in 0..runs {
        let store = Store::open(FOLDER, options(&sim)).expect("opened");
        append_large(&store, "cart-1", 5_000_000 + run * 10, 900 + (seed % 10) as usize * 700);
        fill(&store, run * 100..run * 100 + appends);
        before = all(&store);
        store.close().expect("closed");
    }
    (sim, before)
}

/// A store that was killed after it created a chunk and before an append to it, and then continued:
/// its ids have a gap.
fn with_a_gap() -> (Sim, Vec<RecordedEvent>, u64) {
    for call in 1..500 {
        let sim = killed_at(call);
        let store = Store::open(FOLDER, options(&sim)).expect("opened");
        fill(&store, 100..220);
        let before = all(&store);
        store.close().expect("closed");
        let own = ids(&sim);
        if let Some(free) = (2..own[own.len() - 1]).find(|id| !own.contains(id)) {
            return (sim, before, free);
        }
    }
    panic!("no kill leaves a gap");
}

/// Ids of the existing chunks.
fn ids(sim: &Sim) -> Vec<u64> {
    (1..60).filter(|id| sim.has(chunk(*id))).collect()
}

/// Regression: a manifest of another store skips chunk ids that this store has. The files with
/// these ids were not examined, though the index knew all of their events, and no lost range named
/// the events.
#[test]
fn chunk_skipped_by_a_foreign_manifest_is_found() {
    let (sim, before) = reopened(101, 3, 90);
    let (other, _, passed_over) = with_a_gap();
    assert!(sim.has(chunk(passed_over)), "{passed_over}");
    scavenged(&other, "note").close().expect("closed");
    for (renamed, has_index) in [(false, true), (true, true), (false, false)] {
        let what = format!("renamed: {renamed}, index: {has_index}");
        let mixed = sim.clone_disk();
        mixed.replace(MANIFEST, &other.read(MANIFEST));
        if renamed {
            let bytes = sim.read(chunk(passed_over));
            mixed.remove(chunk(passed_over));
            put(&mixed, chunk(50), &bytes);
        }
        if !has_index {
            without_index(&mixed);
        }
        let report = repair_store(&mixed);
        assert!(report.manifest.is_some() || report.has_loss(), "{what}: {report}");
        check_named(&mixed, &before, &report, &what);
        if has_index {
            assert_eq!(readable_count(&mixed), before.len(), "{what}: {report}");
        }
    }
}

/// The manifest is another store's, and a chunk that it skips is missing. Only the index knows of
/// the chunk. Regression: the missing chunk's events were in no lost range.
#[test]
fn missing_chunk_skipped_by_a_foreign_manifest_is_reported() {
    let (sim, before) = reopened(101, 3, 90);
    let (other, _, _) = with_a_gap();
    for id in ids(&sim) {
        let what = format!("chunk {id}");
        let mixed = sim.clone_disk();
        mixed.replace(MANIFEST, &other.read(MANIFEST));
        mixed.remove(chunk(id));
        let report = repair_store(&mixed);
        assert!(report.has_loss(), "{what}: {report}");
        check_named(&mixed, &before, &report, &what);
    }
}

/// Regression: without the manifest a chunk of another store was adopted if an id was free and its
/// positions fitted. Index and streams were ignored. The store did not pass `verify` after its
/// repair.
#[test]
fn foreign_chunk_does_not_fill_an_id_gap() {
    let (sim, before, free) = with_a_gap();
    let mut tried = 0;
    for seed in [103, 104, 105, 106, 108] {
        let (other, _) = reopened(seed, 2, 90);
        if !other.has(chunk(free)) {
            continue;
        }
        for has_index in [true, false] {
            let what = format!("seed {seed}, index: {has_index}");
            let mixed = sim.clone_disk();
            put(&mixed, chunk(free), &other.read(chunk(free)));
            mixed.remove(MANIFEST);
            if !has_index {
                without_index(&mixed);
            }
            let report = repair_store(&mixed);
            check(&mixed, &before, &report, &what);
            assert_eq!(readable_count(&mixed), before.len() + 1, "{what}: {report}");
            assert!(mixed.has(format!("{FOLDER}/damaged-1/{free:08}.chunk")), "{what}");
            tried += 1;
        }
    }
    assert!(tried > 3, "{tried}");
}

/// Regression: a file that is no chunk of this store had the name of the next chunk. The store
/// could not be opened, and the repair reported nothing to do.
#[test]
fn foreign_file_at_the_next_chunks_name_is_moved_aside() {
    let (sim, before) = reopened(109, 1, 40);
    let next = last_chunk(&sim, &before) + 1;
    let next = (next..next + 4).find(|id| !sim.has(chunk(*id))).expect("free");
    let (other, _) = reopened(104, 6, 90);
    let foreign = *ids(&other).last().expect("chunks");
    // A power cut leaves a new file without a header.
    let files = [("another id", other.read(chunk(foreign)), true), ("none", vec![7; 300], false)];
    for (what, bytes, is_in_the_way) in files {
        for has_index in [true, false] {
            let what = format!("{what}, index: {has_index}");
            let mixed = sim.clone_disk();
            (next..next + 3).for_each(|id| put(&mixed, chunk(id), &bytes));
            if !has_index {
                without_index(&mixed);
            }
            let refused = Store::open(FOLDER, options(&mixed.clone_disk()));
            assert_eq!(refused.is_err(), is_in_the_way, "{what}");
            let report = repair_store(&mixed);
            assert_eq!(report.unrelated_files.is_empty(), !is_in_the_way, "{what}: {report}");
            assert!(!report.has_loss(), "{what}: {report}");
            check(&mixed, &before, &report, &what);
        }
    }
}

/// The end of the last chunk was truncated, and manifest and index were lost. The existence filter
/// shows how far the log reached, and every lost event is in a range.
#[test]
fn existence_filter_reveals_a_truncated_end() {
    let (sim, before) = reopened(110, 1, 60);
    let last = last_chunk(&sim, &before);
    let bytes = sim.read(chunk(last));
    sim.remove(MANIFEST);
    without_index(&sim);
    for eighths in 1..8 {
        let what = format!("{eighths} of eight parts are left");
        let harmed = sim.clone_disk();
        harmed.truncate(chunk(last), bytes.len() as u64 * eighths / 8);
        let report = repair_store(&harmed);
        if readable_count(&harmed) < before.len() {
            assert!(report.has_loss() && !report.is_end_unknown, "{what}: {report:?}");
        }
        check(&harmed, &before, &report, &what);
    }
}

/// A store with one stream in chunks of this many events each, which all differ from those with
/// events of another size.
fn one_stream(seed: u64, events: u64, bytes: usize) -> (Sim, Vec<RecordedEvent>) {
    let sim = Sim::new(seed);
    let store = Store::open(FOLDER, options(&sim)).expect("opened");
    for number in 0..events {
        append_large(&store, "cart-1", number, bytes);
    }
    let before = all(&store);
    store.close().expect("closed");
    (sim, before)
}

/// A store with a stream in each chunk that is to be deleted.
fn with_a_secret(seed: u64) -> Sim {
    let sim = Sim::new(seed);
    let store = Store::open(FOLDER, options(&sim)).expect("opened");
    for number in 0..600 {
        append_large(&store, if number % 4 == 0 { "secret" } else { "cart-1" }, number, 200);
    }
    store.close().expect("closed");
    sim
}

/// The open store, after a stream was deleted and scavenged.
fn scavenged(sim: &Sim, stream: &str) -> Store {
    let store = Store::open(FOLDER, options(sim)).expect("opened");
    store.delete(stream, ExpectedVersion::Any).expect("deleted");
    store.scavenge(&scavenge::all()).expect("scavenged");
    store
}

/// Regression: if a chunk of another store contradicted this store's own chunk, the own chunk was
/// removed, wherever the other was. Of two foreign chunks the second stayed, so that the store did
/// not pass `verify`.
#[test]
fn foreign_chunks_are_removed_and_own_ones_kept() {
    let (sim, before) = one_stream(9, 1500, 200);
    let (other, _) = one_stream(10, 3000, 64);
    let last = last_chunk(&sim, &before);
    assert!(last > 6, "{last}");
    let mut own_lost = 0;
    for foreign in [&[1][..], &[2], &[4], &[2, 4], &[3, 5], &[2, 3], &[3, 4], &[4, 5], &[2, 3, 5]] {
        let what = format!("{foreign:?} of {last}");
        let mixed = sim.clone_disk();
        foreign.iter().for_each(|id| mixed.replace(chunk(*id), &other.read(chunk(*id))));
        mixed.remove(MANIFEST);
        without_index(&mixed);
        let report = repair_store(&mixed);
        assert!(report.has_loss(), "{what}: {report}");
        let store = Store::open(FOLDER, options(&mixed)).expect("opened");
        let after = all(&store);
        assert!(after.iter().all(|event| before.contains(event)), "{what}: made up: {report}");
        let is_foreign =
            |event: &&RecordedEvent| foreign.contains(&chunk_of(&sim, event.position).0);
        own_lost += before.len() - before.iter().filter(is_foreign).count() - after.len();
        let verified = store.verify().expect("verified");
        assert!(verified.damage.is_empty(), "{what}: {:?}", verified.damage);
    }
    assert_eq!(own_lost, 0, "nothing of its own");
}

/// Regression: a store that was killed once has a chunk without a recorded end, which was taken for
/// the last one.
#[test]
fn chunk_without_end_record_need_not_be_last() {
    let sim = Sim::new(7);
    let store = Store::open(FOLDER, options(&sim)).expect("a new store");
    fill(&store, 0..10);
    store.flush().expect("flushed");
    let killed = sim.kill_image();
    drop(store);
    let store = Store::open(FOLDER, options(&killed)).expect("opened");
    fill(&store, 100..300);
    let before = all(&store);
    store.close().expect("closed");
    for has_filter in [true, false] {
        let cut = killed.clone_disk();
        cut.remove(MANIFEST);
        without_index(&cut);
        ids(&cut).into_iter().skip(1).for_each(|id| cut.remove(chunk(id)));
        if !has_filter {
            without_filter(&cut);
        }
        let report = repair_store(&cut);
        assert!(report.has_loss() && report.is_end_unknown != has_filter, "{has_filter}: {report}");
        assert!(readable_count(&cut) < before.len() / 2);
        if has_filter {
            check_named(&cut, &before, &report, "the filter knows");
        }
    }
}

/// A scavenge rewrote the last remaining chunk. Nothing shows whether it removed what the existence
/// filter covers after the chunk, or whether chunks are missing.
#[test]
fn log_end_after_a_scavenged_chunk_is_unknown() {
    let sim = with_a_secret(13);
    let store = scavenged(&sim, "secret");
    for number in 1000..1900 {
        append_large(&store, "order-1", number, 200);
    }
    store.close().expect("closed");
    ids(&sim).into_iter().for_each(|id| sim.remove(chunk(id)));
    sim.remove(MANIFEST);
    without_index(&sim);
    let report = repair_store(&sim);
    assert!(report.has_loss() && report.is_end_unknown, "{report}");
}

/// Regression: an unfinished scavenge left both files of a chunk, and without the manifest the
/// older one was examined. The index had deleted the first of its events, and both files were
/// removed.
#[test]
fn unfinished_scavenge_loses_no_event() {
    let single = |sim: &Sim, removed: std::ops::Range<u64>| {
        let store = Store::open(FOLDER, options(sim)).expect("opened");
        for number in 0..900 {
            let stream = match removed.contains(&number) {
                true => "gone-0000".to_string(),
                false => format!("ones-{number:04}"),
            };
            append_large(&store, &stream, number, 200);
        }
        let events = all(&store);
        store.close().expect("closed");
        events
    };
    let events = single(&Sim::new(8), 0..0);
    let third = events.iter().position(|event| event.position >= 2 * 65536).expect("chunk 3");
    let sim = Sim::new(8);
    single(&sim, third as u64..third as u64 + 80);
    let old = sim.read(chunk(3));
    let store = scavenged(&sim, "gone-0000");
    let before = all(&store);
    store.close().expect("closed");
    sim.remove(MANIFEST);
    put(&sim, chunk(3), &old);
    let report = repair_store(&sim);
    let after = all(&Store::open(FOLDER, options(&sim)).expect("opened"));
    assert!(before.iter().all(|event| after.contains(event)), "{report}");
}

/// The file that a scavenge wrote is damaged, and the file that it replaced still exists. The
/// manifest is right, and the repair restores no scavenged event.
#[test]
fn unfinished_scavenge_restores_no_removed_event() {
    let sim = with_a_secret(11);
    let last = *ids(&sim).last().expect("chunks");
    let old = sim.read(chunk(last));
    let store = scavenged(&sim, "secret");
    let before = all(&store);
    store.close().expect("closed");
    let from = PathBuf::from(format!("{FOLDER}/log/{last:08}"));
    let newer = files(&sim, "/events/log").into_iter().filter(|(path, _)| *path > from);
    let newer: Vec<_> = newer.collect();
    assert!(newer.len() > 1, "{newer:?}");
    newer.iter().for_each(|(path, bytes)| sim.flip(path, bytes.len() as u64 / 2, 1));
    put(&sim, chunk(last), &old);
    let report = repair_store(&sim);
    let after = all(&Store::open(FOLDER, options(&sim)).expect("opened"));
    assert!(after.iter().all(|event| before.contains(event)), "{report}");
    assert!(after.len() > before.len() / 2, "{report}");
}

/// An older manifest, a missing last chunk, and no index: the existence filter of this store shows
/// the loss.
#[test]
fn existence_filter_reveals_an_end_missing_in_old_manifest() {
    let sim = Sim::new(12);
    let store = Store::open(FOLDER, options(&sim)).expect("opened");
    fill(&store, 0..30);
    store.close().expect("closed");
    let manifest = sim.read(MANIFEST);
    let store = Store::open(FOLDER, options(&sim)).expect("opened");
    fill(&store, 100..115);
    let before = all(&store);
    store.close().expect("closed");
    sim.replace(MANIFEST, &manifest);
    without_index(&sim);
    let last = *ids(&sim).last().expect("chunks");
    for is_removed in [true, false] {
        let cut = sim.clone_disk();
        match is_removed {
            true => cut.remove(chunk(last)),
            false => cut.replace(chunk(last), &vec![7; 5000]),
        }
        let report = repair_store(&cut);
        assert!(
            report.has_loss() && readable_count(&cut) < before.len(),
            "removed: {is_removed}: {report}"
        );
        check_named(&cut, &before, &report, &format!("removed: {is_removed}"));
    }
}
