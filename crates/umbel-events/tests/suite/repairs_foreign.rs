//! Repairs of stores into which chunks or the table of another store were put.

use umbel_events::{Expected, RecordedEvent, Store};
use umbel_sim::Sim;

use super::repairs::{FOLDER, check, chunk, fill, fix, without_index};
use super::repairs_copies::check_named;
use super::repairs_exchanged::{TABLE, killed_at, last_chunk, left};
use super::repairs_misled::put;
use super::scavenging;
use super::support::{all, append_large, options};

/// A store that was opened so many times, and took so many appends each time.
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

/// One that was killed when it had made a chunk and not yet appended to it, and went on: its ids
/// have a gap.
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

/// The ids of the chunks that are there.
fn ids(sim: &Sim) -> Vec<u64> {
    (1..60).filter(|id| sim.has(chunk(*id))).collect()
}

/// A table of another store passes over ids that this one has: their files were looked at no more,
/// though the index knew all of their events, and these stood in no range.
#[test]
fn a_chunk_that_another_stores_table_passes_over_is_found() {
    let (sim, before) = reopened(101, 3, 90);
    let (other, _, passed_over) = with_a_gap();
    assert!(sim.has(chunk(passed_over)), "{passed_over}");
    let store = Store::open(FOLDER, options(&other)).expect("opened");
    store.delete("note", Expected::Any).expect("deleted");
    store.scavenge(&scavenging::all()).expect("scavenged");
    store.close().expect("closed");
    for (renamed, has_index) in [(false, true), (true, true), (false, false)] {
        let what = format!("renamed: {renamed}, index: {has_index}");
        let mixed = sim.clone_disk();
        mixed.replace(TABLE, &other.read(TABLE));
        if renamed {
            let bytes = sim.read(chunk(passed_over));
            mixed.remove(chunk(passed_over));
            put(&mixed, chunk(50), &bytes);
        }
        if !has_index {
            without_index(&mixed);
        }
        let report = fix(&mixed);
        assert!(report.table.is_some() || report.is_loss(), "{what}: {report}");
        check_named(&mixed, &before, &report, &what);
        if has_index {
            assert_eq!(left(&mixed), before.len(), "{what}: {report}");
        }
    }
}

/// The table is another store's, and a chunk that it passes over is gone: the index alone knows
/// that there was something, and its events were in no range.
#[test]
fn a_missing_chunk_that_another_stores_table_passes_over_is_named() {
    let (sim, before) = reopened(101, 3, 90);
    let (other, _, _) = with_a_gap();
    for id in ids(&sim) {
        let what = format!("chunk {id}");
        let mixed = sim.clone_disk();
        mixed.replace(TABLE, &other.read(TABLE));
        mixed.remove(chunk(id));
        let report = fix(&mixed);
        assert!(report.is_loss(), "{what}: {report}");
        check_named(&mixed, &before, &report, &what);
    }
}

/// Without the table a chunk of another store was taken in where an id was free and its positions
/// fitted, whatever index and streams said; the store did not pass `verify` after its repair.
#[test]
fn a_chunk_of_another_store_does_not_fill_a_gap_between_ids() {
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
            mixed.remove(TABLE);
            if !has_index {
                without_index(&mixed);
            }
            let report = fix(&mixed);
            check(&mixed, &before, &report, &what);
            assert_eq!(left(&mixed), before.len() + 1, "{what}: {report}");
            assert!(mixed.has(format!("{FOLDER}/damaged-1/{free:08}.chunk")), "{what}");
            tried += 1;
        }
    }
    assert!(tried > 3, "{tried}");
}

/// A file that is no chunk of this store stood where the next chunk belongs: the store could not be
/// opened, and the repair said that there was nothing to do.
#[test]
fn a_file_in_the_place_of_the_next_chunk_is_moved_aside() {
    let (sim, before) = reopened(109, 1, 40);
    let next = last_chunk(&sim, &before) + 1;
    let next = (next..next + 4).find(|id| !sim.has(chunk(*id))).expect("free");
    let (other, _) = reopened(104, 6, 90);
    let theirs = *ids(&other).last().expect("chunks");
    // What has no header is what a power cut leaves of a new file.
    let files = [("another id", other.read(chunk(theirs)), true), ("none", vec![7; 300], false)];
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
            let report = fix(&mixed);
            assert_eq!(report.strangers.is_empty(), !is_in_the_way, "{what}: {report}");
            assert!(!report.is_loss(), "{what}: {report}");
            check(&mixed, &before, &report, &what);
        }
    }
}

/// The end of the last chunk was cut, and table and index were lost: the existence filter tells up
/// to where the log went, and every lost event is in a range.
#[test]
fn the_existence_filter_tells_of_an_end_that_was_cut() {
    let (sim, before) = reopened(110, 1, 60);
    let last = last_chunk(&sim, &before);
    let bytes = sim.read(chunk(last));
    sim.remove(TABLE);
    without_index(&sim);
    for eighths in 1..8 {
        let what = format!("{eighths} of eight parts are left");
        let harmed = sim.clone_disk();
        harmed.truncate(chunk(last), bytes.len() as u64 * eighths / 8);
        let report = fix(&harmed);
        if left(&harmed) < before.len() {
            assert!(report.is_loss() && !report.is_end_unknown, "{what}: {report:?}");
        }
        check(&harmed, &before, &report, &what);
    }
}
