//! Repairs of stores into which chunks or the table of another store were put.

use std::path::PathBuf;

use umbel_events::{Expected, RecordedEvent, Store};
use umbel_sim::Sim;

use super::repairs::{FOLDER, check, chunk, chunk_of, fill, fix, without_filter, without_index};
use super::repairs_copies::check_named;
use super::repairs_exchanged::{TABLE, killed_at, last_chunk, left};
use super::repairs_misled::{files, put};
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
    scavenged(&other, "note").close().expect("closed");
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

/// A store with one stream in chunks of so many events each, which all differ from those with
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

/// The store, open, after a stream was deleted and scavenged.
fn scavenged(sim: &Sim, stream: &str) -> Store {
    let store = Store::open(FOLDER, options(sim)).expect("opened");
    store.delete(stream, Expected::Any).expect("deleted");
    store.scavenge(&scavenging::all()).expect("scavenged");
    store
}

/// Of a chunk of another store and its own that contradicted it, the own one went, wherever the
/// other stood; and of two the second stayed, so that the store did not pass `verify`.
#[test]
fn chunks_of_another_store_go_and_not_those_that_fit() {
    let (sim, before) = one_stream(9, 1500, 200);
    let (other, _) = one_stream(10, 3000, 64);
    let last = last_chunk(&sim, &before);
    assert!(last > 6, "{last}");
    let mut own_lost = 0;
    for theirs in [&[1][..], &[2], &[4], &[2, 4], &[3, 5], &[2, 3], &[3, 4], &[4, 5], &[2, 3, 5]] {
        let what = format!("{theirs:?} of {last}");
        let mixed = sim.clone_disk();
        theirs.iter().for_each(|id| mixed.replace(chunk(*id), &other.read(chunk(*id))));
        mixed.remove(TABLE);
        without_index(&mixed);
        let report = fix(&mixed);
        assert!(report.is_loss(), "{what}: {report}");
        let store = Store::open(FOLDER, options(&mixed)).expect("opened");
        let after = all(&store);
        assert!(after.iter().all(|event| before.contains(event)), "{what}: made up: {report}");
        let is_theirs = |event: &&RecordedEvent| theirs.contains(&chunk_of(&sim, event.position).0);
        own_lost += before.len() - before.iter().filter(is_theirs).count() - after.len();
        let verified = store.verify().expect("verified");
        assert!(verified.damage.is_empty(), "{what}: {:?}", verified.damage);
    }
    assert_eq!(own_lost, 0, "nothing of its own");
}

/// A store that was killed once has a chunk that nobody ended, which was taken for the last one.
#[test]
fn a_chunk_that_nobody_ended_need_not_be_the_last_one() {
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
        cut.remove(TABLE);
        without_index(&cut);
        ids(&cut).into_iter().skip(1).for_each(|id| cut.remove(chunk(id)));
        if !has_filter {
            without_filter(&cut);
        }
        let report = fix(&cut);
        assert!(report.is_loss() && report.is_end_unknown != has_filter, "{has_filter}: {report}");
        assert!(left(&cut) < before.len() / 2);
        if has_filter {
            check_named(&cut, &before, &report, "the filter tells");
        }
    }
}

/// The last chunk that is left was written anew by a scavenge. Whether that took what the existence
/// filter covers behind it, or chunks are gone, nothing tells.
#[test]
fn an_end_behind_a_scavenged_chunk_is_unknown() {
    let sim = with_a_secret(13);
    let store = scavenged(&sim, "secret");
    for number in 1000..1900 {
        append_large(&store, "order-1", number, 200);
    }
    store.close().expect("closed");
    ids(&sim).into_iter().for_each(|id| sim.remove(chunk(id)));
    sim.remove(TABLE);
    without_index(&sim);
    let report = fix(&sim);
    assert!(report.is_loss() && report.is_end_unknown, "{report}");
}

/// Of a scavenge that was not over both files of a chunk were there, and without the table the
/// older one was looked at: the index had forgotten the first of its events, and both went.
#[test]
fn a_leftover_of_a_scavenge_costs_no_event() {
    let single = |sim: &Sim, gone: std::ops::Range<u64>| {
        let store = Store::open(FOLDER, options(sim)).expect("opened");
        for number in 0..900 {
            let stream = match gone.contains(&number) {
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
    sim.remove(TABLE);
    put(&sim, chunk(3), &old);
    let report = fix(&sim);
    let after = all(&Store::open(FOLDER, options(&sim)).expect("opened"));
    assert!(before.iter().all(|event| after.contains(event)), "{report}");
}

/// A leftover of a scavenge beside the damaged file that it wrote: the table is right, and nothing
/// that was scavenged is brought back.
#[test]
fn a_leftover_of_a_scavenge_brings_nothing_back() {
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
    let report = fix(&sim);
    let after = all(&Store::open(FOLDER, options(&sim)).expect("opened"));
    assert!(after.iter().all(|event| before.contains(event)), "{report}");
    assert!(after.len() > before.len() / 2, "{report}");
}

/// An older table, the last chunk gone, and no index: the existence filter of this store tells.
#[test]
fn the_existence_filter_tells_of_an_end_that_an_older_table_does_not_know() {
    let sim = Sim::new(12);
    let store = Store::open(FOLDER, options(&sim)).expect("opened");
    fill(&store, 0..30);
    store.close().expect("closed");
    let table = sim.read(TABLE);
    let store = Store::open(FOLDER, options(&sim)).expect("opened");
    fill(&store, 100..115);
    let before = all(&store);
    store.close().expect("closed");
    sim.replace(TABLE, &table);
    without_index(&sim);
    let last = *ids(&sim).last().expect("chunks");
    for is_gone in [true, false] {
        let cut = sim.clone_disk();
        match is_gone {
            true => cut.remove(chunk(last)),
            false => cut.replace(chunk(last), &vec![7; 5000]),
        }
        let report = fix(&cut);
        assert!(report.is_loss() && left(&cut) < before.len(), "gone: {is_gone}: {report}");
        check_named(&cut, &before, &report, &format!("gone: {is_gone}"));
    }
}
