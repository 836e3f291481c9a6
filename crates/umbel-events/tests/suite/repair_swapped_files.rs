//! Repairs of stores whose chunks, manifest or index were exchanged, or in which only the name of a
//! chunk is left.

use std::time::Duration;

use umbel_events::{
    ExpectedVersion, NewEvent, RecordedEvent, RepairOptions, Store, find_unrecovered, repair,
};
use umbel_sim::{CrashSide, Fault, FaultKind, Sim};

use super::repair::{FOLDER, check, chunk, chunk_of, fill, repair_store, specimen, without_index};
use super::repair_unexpected_files::{files, put};
use super::scavenge;
use super::support::{all, append, append_large, id, options};

pub const MANIFEST: &str = "/events/CHUNKS";

fn without_both(sim: &Sim) {
    sim.remove(MANIFEST);
    without_index(sim);
}

fn exchange(sim: &Sim, one: u64, other: u64) {
    let (first, second) = (sim.read(chunk(one)), sim.read(chunk(other)));
    sim.replace(chunk(one), &second);
    sim.replace(chunk(other), &first);
}

/// Id of the last chunk with events.
pub fn last_chunk(sim: &Sim, before: &[RecordedEvent]) -> u64 {
    chunk_of(sim, before.last().expect("events").position).0
}

/// Number of remaining events.
pub fn readable_count(sim: &Sim) -> usize {
    all(&Store::open(FOLDER, options(sim)).expect("opened")).len()
}

/// Regression: two chunks had each other's names, and manifest and index were lost. The report said
/// that both belong to no chunk, though all of their events could be read, and their positions were
/// in no lost range.
#[test]
fn swapped_chunks_are_renamed_back() {
    let (sim, before) = specimen(60);
    let last = last_chunk(&sim, &before);
    for (one, other) in [(1, last), (2, 3), (1, 2)] {
        for has_manifest in [true, false] {
            let what = format!("chunks {one} and {other}, manifest: {has_manifest}");
            let mixed = sim.clone_disk();
            exchange(&mixed, one, other);
            without_index(&mixed);
            if !has_manifest {
                mixed.remove(MANIFEST);
            }
            let report = repair_store(&mixed);
            assert!(!report.has_loss(), "{what}: {report}");
            check(&mixed, &before, &report, &what);
            assert_eq!(readable_count(&mixed), before.len() + 1, "{what}");
        }
    }
}

/// A misnamed chunk of another store, with the same id and the same positions, is not taken for a
/// chunk of this store. The report names such a chunk.
#[test]
fn misnamed_foreign_chunk_is_rejected() {
    let (sim, before) = specimen(61);
    let other = Sim::new(62);
    let store = Store::open(FOLDER, options(&other)).expect("a new store");
    append_large(&store, "first", 1, 7_000);
    fill(&store, 0..150);
    store.close().expect("closed");
    sim.remove(chunk(2));
    put(&sim, chunk(39), &other.read(chunk(2)));
    without_both(&sim);
    let report = repair_store(&sim);
    assert!(report.has_loss(), "{report}");
    check(&sim, &before, &report, "another store's");
}

/// Regression: one bad bit in a header changed its id. A file is only taken for another chunk if
/// the header's checksum agrees.
#[test]
fn damaged_header_loses_no_event() {
    let (sim, before) = specimen(80);
    let last = last_chunk(&sim, &before);
    for (id, at) in [1, 2, last].into_iter().flat_map(|id| (0..64).map(move |at| (id, at))) {
        let what = format!("chunk {id}, byte {at}");
        let harmed = sim.clone_disk();
        harmed.flip(chunk(id), at, 1);
        without_both(&harmed);
        repair_store(&harmed);
        assert_eq!(readable_count(&harmed), before.len(), "{what}");
    }
}

/// A chunk of another store without contradictions, because it has other streams, is not adopted
/// either, unless the operator requests it.
#[test]
fn misnamed_chunk_without_continued_stream_is_unproven() {
    let (sim, before) = specimen(81);
    let last = last_chunk(&sim, &before);
    let other = Sim::new(82);
    other.advance(Duration::from_secs(86_400));
    let store = Store::open(FOLDER, options(&other)).expect("a new store");
    for number in 0..400 {
        append_large(&store, "else", number, 700 + (number % 7) as usize * 300);
    }
    sim.replace(chunk(last), &[]);
    put(&sim, chunk(39), &other.kill_image().read(chunk(last)));
    without_both(&sim);
    let accepting = sim.clone_disk();
    let report = repair_store(&sim);
    assert!(report.has_loss(), "{report}");
    check(&sim, &before, &report, "another store's");
    let accept = RepairOptions { accept_unproven: true, ..RepairOptions::default() };
    repair(&accepting.env(), FOLDER.as_ref(), accept).expect("repaired");
    let after = all(&Store::open(FOLDER, options(&accepting)).expect("opened"));
    assert!(after.iter().any(|event| event.stream == "else"), "accepted, as requested");
}

/// A misnamed file of a chunk is from before a scavenge. The misnamed file has more events than the
/// damaged file that the scavenge wrote, but would restore removed events.
#[test]
fn misnamed_prescavenge_file_restores_no_removed_event() {
    let (sim, _) = specimen(76);
    let older = sim.read(chunk(2));
    let store = Store::open(FOLDER, options(&sim)).expect("opened");
    store.delete("cart-2", ExpectedVersion::Any).expect("deleted");
    store.scavenge(&scavenge::all()).expect("scavenged");
    let before = all(&store);
    store.close().expect("closed");
    sim.flip("/events/log/00000002-000001.chunk", 5000, 1);
    put(&sim, chunk(39), &older);
    without_both(&sim);
    let report = repair_store(&sim);
    assert!(report.has_loss(), "{report}");
    let after = all(&Store::open(FOLDER, options(&sim)).expect("opened"));
    assert!(after.iter().all(|event| before.contains(event)), "what was scavenged is back");
    assert!(after.len() + 10 > before.len(), "{report}");
}

/// Regression: the last chunk's file was overwritten with another chunk, or with zeros, or
/// truncated to its header, and manifest and index were lost. Only the file name was evidence of
/// the chunk's events, and the repair ignored it.
#[test]
fn overwritten_last_chunk_is_reported_as_loss() {
    let (sim, before) = specimen(63);
    let last = last_chunk(&sim, &before);
    let own = sim.read(chunk(last));
    let blank = [&own[..64], &[0; 4096][..]].concat();
    for (what, bytes, is_loss) in [
        ("another chunk", sim.read(chunk(1)), true),
        ("zeros", vec![0; own.len()], true),
        ("cut to its header", own[..64].to_vec(), true),
        ("empty", Vec::new(), true),
        ("no event was appended to it", blank, false),
    ] {
        let harmed = sim.clone_disk();
        harmed.replace(chunk(last), &bytes);
        without_both(&harmed);
        let report = repair_store(&harmed);
        assert_eq!(report.has_loss(), is_loss, "{what}: {report}");
        if is_loss {
            check(&harmed, &before, &report, what);
        }
    }
}

/// Regression: a store had the manifest of another store and a damaged index. The repair skipped
/// chunks that the manifest did not name and that held no events, and also a truncated chunk.
#[test]
fn foreign_manifest_hides_no_loss() {
    let (sim, before) = specimen(64);
    let last = last_chunk(&sim, &before);
    let other = Sim::new(65);
    let store = Store::open(FOLDER, options(&other)).expect("a new store");
    append(&store, "first", 0..3);
    store.close().expect("closed");
    for (id, has_index) in [(last, false), (last - 1, true), (last - 1, false)] {
        let what = format!("chunk {id}, index: {has_index}");
        let mixed = sim.clone_disk();
        mixed.replace(MANIFEST, &other.read(MANIFEST));
        mixed.replace(chunk(id), &sim.read(chunk(1))[..if id == last { 20_000 } else { 64 }]);
        if !has_index {
            without_index(&mixed);
        }
        let report = repair_store(&mixed);
        assert!(report.manifest.is_some() && report.has_loss(), "{what}: {report}");
        check(&mixed, &before, &report, &what);
    }
}

/// All chunks are whole and differ from the manifest: the manifest is another store's.
#[test]
fn manifest_that_matches_no_chunk_is_foreign() {
    let (sim, before) = specimen(66);
    let other = Sim::new(67);
    let store = Store::open(FOLDER, options(&other)).expect("a new store");
    append_large(&store, "first", 1, 7_000);
    fill(&store, 0..220);
    store.close().expect("closed");
    for has_index in [true, false] {
        let mixed = sim.clone_disk();
        mixed.replace(MANIFEST, &other.read(MANIFEST));
        if !has_index {
            without_index(&mixed);
        }
        let report = repair_store(&mixed);
        let what = format!("index: {has_index}");
        assert!(
            report.manifest.as_ref().is_some_and(|t| t.contains("belongs to another store")),
            "{report}"
        );
        assert!(!report.has_loss(), "{what}: {report}");
        check(&mixed, &before, &report, &what);
        assert_eq!(readable_count(&mixed), before.len() + 1, "{what}");
    }
}

/// Regression: a chunk was missing after a chunk whose file had grown. The missing chunk's first
/// positions were counted as capacity of the longer chunk, so that events at these positions were
/// in no lost range.
#[test]
fn loss_after_an_overlong_file_is_reported_from_its_start() {
    let (sim, before) = specimen(68);
    for has_index in [true, false] {
        let what = format!("index: {has_index}");
        let harmed = sim.clone_disk();
        harmed.extend(chunk(1), &[0xa5; 100]);
        harmed.extend(chunk(1), &[0xa5; 5000]);
        harmed.replace(chunk(2), &[0xa5; 100]);
        harmed.remove(MANIFEST);
        if !has_index {
            without_index(&harmed);
        }
        let report = repair_store(&harmed);
        assert!(report.has_loss(), "{what}: {report}");
        check(&harmed, &before, &report, &what);
    }
}

/// Regression: a chunk without a recorded end was damaged twice, the second time in its last event.
/// The lost range ended with the last append that looked whole, and later events were in no lost
/// range.
#[test]
fn damaged_last_event_after_other_damage_is_reported() {
    for is_manifest_lost in [false, true] {
        let sim = Sim::new(69);
        let store = Store::open(FOLDER, options(&sim)).expect("a new store");
        fill(&store, 0..12);
        let before = all(&store);
        let killed = sim.kill_image();
        assert_eq!(last_chunk(&killed, &before), 1, "one chunk");
        for hit in [4, before.len() - 1] {
            killed.flip(chunk(1), before[hit].position + 80, 1);
        }
        without_index(&killed);
        if is_manifest_lost {
            killed.remove(MANIFEST);
        }
        let report = repair_store(&killed);
        check(&killed, &before, &report, &format!("manifest lost: {is_manifest_lost}"));
        let last = before.last().expect("events").position;
        let ranges = report.chunks.iter().flat_map(|chunk| &chunk.lost);
        let named = ranges.filter(|range| (range.from.0..range.to.0).contains(&last)).count();
        assert_eq!(named, 1, "{report}");
    }
}

/// Regression: the active chunk and the prepared, empty chunk had each other's names, and one bad
/// bit made the empty chunk's header unreadable. The empty file was skipped, and the repair did not
/// search for the events of the active chunk, whose name that file had.
#[test]
fn active_chunk_is_found_under_the_next_chunks_name() {
    let (killed, id) = with_a_chunk_made_for_later();
    let before = all(&Store::open(FOLDER, options(&killed.clone_disk())).expect("opened"));
    for at in [None, Some(4)] {
        let mixed = killed.clone_disk();
        if let Some(at) = at {
            mixed.flip(chunk(id), at, 1);
        }
        exchange(&mixed, id - 1, id);
        without_index(&mixed);
        let report = repair_store(&mixed);
        check(&mixed, &before, &report, &format!("{at:?}"));
        let named = report.chunks.iter().filter(|chunk| chunk.id + 1 == id);
        assert!(named.clone().count() > 0, "{at:?}: {report}");
    }
}

/// Regression: the last events of a scavenged chunk were lost, with the manifest and the index. The
/// lost range ended with the last remaining event.
#[test]
fn lost_end_of_a_scavenged_chunk_is_reported() {
    let (sim, _) = specimen(85);
    let store = Store::open(FOLDER, options(&sim)).expect("opened");
    store.delete("cart-2", ExpectedVersion::Any).expect("deleted");
    store.scavenge(&scavenge::all()).expect("scavenged");
    let before = all(&store);
    store.close().expect("closed");
    let scavenged = files(&sim, "/events/log");
    let (path, bytes) = scavenged.iter().rfind(|(_, b)| b.starts_with(b"UmbelPck")).expect("one");
    for (later, _) in scavenged.iter().filter(|(other, _)| other > path) {
        sim.remove(later);
    }
    sim.truncate(path, bytes.len() as u64 * 2 / 3);
    without_both(&sim);
    let report = repair_store(&sim);
    let range = report.chunks.last().and_then(|chunk| chunk.lost.last()).expect("a range");
    let after = all(&Store::open(FOLDER, options(&sim)).expect("opened"));
    let newest = after.last().expect("events").position;
    let lost = before.iter().filter(|event| event.position > newest);
    let lost: Vec<_> = lost.filter(|event| event.position < newest + 60_000).collect();
    assert!(lost.len() > 3, "{report}");
    for event in lost {
        assert!((range.from.0..range.to.0).contains(&event.position), "{event:?}: {report}");
    }
}

/// Regression: the chunk that was active at the kill lost its end, or all of it. If the index knew
/// the lost events, they were in no lost range, and without an index nothing was reported.
#[test]
fn truncated_active_chunk_is_reported() {
    let sim = Sim::new(79);
    let store = Store::open(FOLDER, options(&sim)).expect("a new store");
    fill(&store, 0..90);
    store.flush().expect("flushed");
    let before = all(&store);
    let killed = sim.kill_image();
    let last = last_chunk(&killed, &before);
    assert!(last > 1, "chunk {last}");
    for (bytes, has_index) in [(0, true), (0, false), (64, false), (200, true), (200, false)] {
        let what = format!("{bytes} bytes left, index: {has_index}");
        let cut = killed.clone_disk();
        cut.truncate(chunk(last), bytes);
        if !has_index {
            without_index(&cut);
        }
        let sentences = find_unrecovered(&cut.env(), FOLDER.as_ref()).expect("examined");
        assert_eq!(
            sentences.is_empty(),
            has_index,
            "{what}: the open must report it: {sentences:?}"
        );
        let report = repair_store(&cut);
        assert!(report.has_loss(), "{what}: {report:?}");
        check(&cut, &before, &report, &what);
    }
}

/// Regression: if the manifest was lost, emptied chunks of a scavenge were reported as belonging to
/// no chunk. The chunks' whole capacity was reported as lost.
#[test]
fn empty_scavenged_chunks_without_manifest_are_no_loss() {
    let sim = Sim::new(72);
    let store = Store::open(FOLDER, options(&sim)).expect("a new store");
    append(&store, "cart-1", 0..10);
    for number in 0..120 {
        append_large(&store, "note", 100 + number, 3000);
    }
    append(&store, "cart-1", 10..20);
    store.delete("note", ExpectedVersion::Any).expect("deleted");
    store.scavenge(&scavenge::all()).expect("scavenged");
    let before = all(&store);
    store.close().expect("closed");
    let scavenged = files(&sim, "/events/log");
    let empty = scavenged.iter().filter(|(_, bytes)| bytes.starts_with(b"UmbelPck"));
    assert!(empty.filter(|(_, bytes)| bytes.len() < 200).count() > 1, "empty ones");
    for has_index in [true, false] {
        let lost = sim.clone_disk();
        lost.remove(MANIFEST);
        if !has_index {
            without_index(&lost);
        }
        let report = repair_store(&lost);
        let what = format!("index: {has_index}");
        assert!(!report.has_loss() && report.unrelated_files.is_empty(), "{what}: {report}");
        let after = all(&Store::open(FOLDER, options(&lost)).expect("opened"));
        assert_eq!(after, before, "{what}");
        assert!(repair_store(&lost).is_undamaged(), "{what}");
    }
}

/// A store that was killed at this call while it appended.
pub fn killed_at(call: u64) -> Sim {
    let data = vec![7; 3000];
    let sim = Sim::new(73);
    let store = Store::open(FOLDER, options(&sim)).expect("a new store");
    sim.crash_at(sim.calls() + call, CrashSide::After);
    let mut number = 0;
    while !sim.is_dead() && number < 100 {
        let event = NewEvent::binary(id(number), "Large", &data);
        let _ = store.append("note", ExpectedVersion::Any, &[event]);
        number += 1;
    }
    drop(store);
    sim.kill_image()
}

/// A store that was killed after it had created the next chunk, and the id of that chunk.
fn with_a_chunk_made_for_later() -> (Sim, u64) {
    for call in 1..2000 {
        let killed = killed_at(call);
        let Some(last) = (2..9).rev().find(|id| killed.has(chunk(*id))) else { continue };
        let made = killed.read(chunk(last));
        let is_blank = made.len() > 4096 && made[64..].iter().all(|byte| *byte == 0);
        if is_blank && made[0] != 0 {
            return (killed, last);
        }
    }
    panic!("no chunk was made before it was appended to");
}

/// One bad bit in the header of a prepared chunk does not make it a chunk of which only the name is
/// left.
#[test]
fn damaged_header_of_an_empty_chunk_is_no_loss() {
    let (killed, id) = with_a_chunk_made_for_later();
    let before = all(&Store::open(FOLDER, options(&killed.clone_disk())).expect("opened"));
    assert!(before.len() > 10, "{}", before.len());
    for (at, has_manifest) in [(1, true), (16, true), (60, true), (1, false), (60, false)] {
        let what = format!("byte {at}, manifest: {has_manifest}");
        let harmed = killed.clone_disk();
        harmed.flip(chunk(id), at, 1);
        if !has_manifest {
            without_both(&harmed);
        }
        let report = repair_store(&harmed);
        // Without manifest and index nothing shows whether there were more.
        let is_reported = report.bytes_lost() == 0 && report.unplaced.is_empty();
        assert!(is_reported && report.has_loss() != has_manifest, "{what}: {report}");
        check(&harmed, &before, &report, &what);
    }
}

/// Regression: a file at the place of the existence filter's directory kept the store from opening,
/// and the repair reported nothing to do.
#[test]
fn file_at_the_existence_filter_path_is_moved_aside() {
    let (sim, before) = specimen(74);
    for (path, _) in files(&sim, "/events/existence") {
        sim.remove(path);
    }
    let disk = sim.env().files;
    if disk.exists("/events/existence".as_ref()).expect("searched") {
        disk.remove_dir("/events/existence".as_ref()).expect("removed");
    }
    put(&sim, "/events/existence", b"notes");
    assert!(Store::open(FOLDER, options(&sim.clone_disk())).is_err(), "it cannot be opened");
    let report = repair_store(&sim);
    assert!(report.existence.is_some() && !report.has_loss(), "{report}");
    assert_eq!(sim.read("/events/damaged-1/existence"), b"notes");
    check(&sim, &before, &report, "a file");
}

/// Regression: a read-only check of a store without write access was refused, although it writes
/// nothing. The file `LOCK` could not be created.
#[test]
fn read_only_directory_opens_for_reading() {
    let (sim, before) = specimen(75);
    let refuse = Fault { kind: FaultKind::Eacces, sticky: true };
    sim.fail_site("lock", 1, refuse);
    let refused = Store::open(FOLDER, options(&sim)).map(drop).expect_err("it cannot be locked");
    assert!(refused.to_string().contains("LOCK"), "{refused}");
    let store = Store::open_read_only(FOLDER, options(&sim)).expect("opened");
    assert_eq!(all(&store), before);
    let verified = store.verify().expect("verified");
    assert!(verified.damage.is_empty(), "{:?}", verified.damage);
}
