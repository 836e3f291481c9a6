//! Repairs of stores whose chunks, table or index were exchanged for others, or in which a name is
//! all that is left of a chunk.

use std::time::Duration;

use umbel_events::{Expected, NewEvent, RecordedEvent, RepairOptions, Store, left_out, repair};
use umbel_sim::{Fault, FaultKind, Sim, When};

use super::repairs::{FOLDER, check, chunk, chunk_of, fill, fix, specimen, without_index};
use super::repairs_misled::{files, put};
use super::scavenging;
use super::support::{all, append, append_large, id, options};

pub const TABLE: &str = "/events/CHUNKS";

fn without_both(sim: &Sim) {
    sim.remove(TABLE);
    without_index(sim);
}

fn exchange(sim: &Sim, one: u64, other: u64) {
    let (first, second) = (sim.read(chunk(one)), sim.read(chunk(other)));
    sim.replace(chunk(one), &second);
    sim.replace(chunk(other), &first);
}

/// The id of the last chunk with events.
pub fn last_chunk(sim: &Sim, before: &[RecordedEvent]) -> u64 {
    chunk_of(sim, before.last().expect("events").position).0
}

/// How many events are left.
pub fn left(sim: &Sim) -> usize {
    all(&Store::open(FOLDER, options(sim)).expect("opened")).len()
}

/// Two chunks had each other's names, and table and index were lost: both were said to belong to no
/// chunk, though all of their events could be read, and their positions stood in no range.
#[test]
fn chunks_that_were_exchanged_are_put_where_they_belong() {
    let (sim, before) = specimen(60);
    let last = last_chunk(&sim, &before);
    for (one, other) in [(1, last), (2, 3), (1, 2)] {
        for has_table in [true, false] {
            let what = format!("chunks {one} and {other}, table: {has_table}");
            let mixed = sim.clone_disk();
            exchange(&mixed, one, other);
            without_index(&mixed);
            if !has_table {
                mixed.remove(TABLE);
            }
            let report = fix(&mixed);
            assert!(!report.is_loss(), "{what}: {report}");
            check(&mixed, &before, &report, &what);
            assert_eq!(left(&mixed), before.len() + 1, "{what}");
        }
    }
}

/// A chunk of another store with the same id and the same positions, under a name that is not its
/// own, is not taken for one of this store's, and is not passed over in silence.
#[test]
fn a_misnamed_chunk_of_another_store_is_not_believed() {
    let (sim, before) = specimen(61);
    let other = Sim::new(62);
    let store = Store::open(FOLDER, options(&other)).expect("a new store");
    append_large(&store, "first", 1, 7_000);
    fill(&store, 0..150);
    store.close().expect("closed");
    sim.remove(chunk(2));
    put(&sim, chunk(39), &other.read(chunk(2)));
    without_both(&sim);
    let report = fix(&sim);
    assert!(report.is_loss(), "{report}");
    check(&sim, &before, &report, "another store's");
}

/// One bad bit in a header made it say another id: a file is only taken for another chunk where the
/// header's checksum says so, too.
#[test]
fn a_damaged_header_costs_no_event() {
    let (sim, before) = specimen(80);
    let last = last_chunk(&sim, &before);
    for (id, at) in [1, 2, last].into_iter().flat_map(|id| (0..64).map(move |at| (id, at))) {
        let what = format!("chunk {id}, byte {at}");
        let harmed = sim.clone_disk();
        harmed.flip(chunk(id), at, 1);
        without_both(&harmed);
        fix(&harmed);
        assert_eq!(left(&harmed), before.len(), "{what}");
    }
}

/// A chunk of another store that contradicts nothing, since it has other streams, is not taken
/// either, unless somebody asks for it.
#[test]
fn a_misnamed_chunk_in_which_no_stream_goes_on_is_not_proven() {
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
    let report = fix(&sim);
    assert!(report.is_loss(), "{report}");
    check(&sim, &before, &report, "another store's");
    let accept = RepairOptions { accept_unproven: true, ..RepairOptions::default() };
    repair(&accepting.env(), FOLDER.as_ref(), accept).expect("repaired");
    let after = all(&Store::open(FOLDER, options(&accepting)).expect("opened"));
    assert!(after.iter().any(|event| event.stream == "else"), "taken, as was asked for");
}

/// The chunk's file from before a scavenge, under another name: it has more events than the damaged
/// one that the scavenge wrote, and would bring back what that took.
#[test]
fn a_misnamed_file_from_before_a_scavenge_brings_nothing_back() {
    let (sim, _) = specimen(76);
    let older = sim.read(chunk(2));
    let store = Store::open(FOLDER, options(&sim)).expect("opened");
    store.delete("cart-2", Expected::Any).expect("deleted");
    store.scavenge(&scavenging::all()).expect("scavenged");
    let before = all(&store);
    store.close().expect("closed");
    sim.flip("/events/log/00000002-000001.chunk", 5000, 1);
    put(&sim, chunk(39), &older);
    without_both(&sim);
    let report = fix(&sim);
    assert!(report.is_loss(), "{report}");
    let after = all(&Store::open(FOLDER, options(&sim)).expect("opened"));
    assert!(after.iter().all(|event| before.contains(event)), "what was scavenged is back");
    assert!(after.len() + 10 > before.len(), "{report}");
}

/// The last chunk's file was overwritten with another chunk, or with zeros, or cut to its header,
/// and table and index were lost: the name was all that told of its events, and nobody looked.
#[test]
fn a_last_chunk_of_which_only_the_name_is_left_is_a_loss() {
    let (sim, before) = specimen(63);
    let last = last_chunk(&sim, &before);
    let own = sim.read(chunk(last));
    let blank = [&own[..64], &[0; 4096][..]].concat();
    for (what, bytes, is_loss) in [
        ("another chunk", sim.read(chunk(1)), true),
        ("zeros", vec![0; own.len()], true),
        ("cut to its header", own[..64].to_vec(), true),
        ("empty", Vec::new(), true),
        ("nobody has appended to it", blank, false),
    ] {
        let harmed = sim.clone_disk();
        harmed.replace(chunk(last), &bytes);
        without_both(&harmed);
        let report = fix(&harmed);
        assert_eq!(report.is_loss(), is_loss, "{what}: {report}");
        if is_loss {
            check(&harmed, &before, &report, what);
        }
    }
}

/// The table of another store, beside an index that is damaged: chunks that it did not know and
/// that held nothing of their own were passed over, and so was one that was cut.
#[test]
fn the_table_of_another_store_hides_no_loss() {
    let (sim, before) = specimen(64);
    let last = last_chunk(&sim, &before);
    let other = Sim::new(65);
    let store = Store::open(FOLDER, options(&other)).expect("a new store");
    append(&store, "first", 0..3);
    store.close().expect("closed");
    for (id, has_index) in [(last, false), (last - 1, true), (last - 1, false)] {
        let what = format!("chunk {id}, index: {has_index}");
        let mixed = sim.clone_disk();
        mixed.replace(TABLE, &other.read(TABLE));
        mixed.replace(chunk(id), &sim.read(chunk(1))[..if id == last { 20_000 } else { 64 }]);
        if !has_index {
            without_index(&mixed);
        }
        let report = fix(&mixed);
        assert!(report.table.is_some() && report.is_loss(), "{what}: {report}");
        check(&mixed, &before, &report, &what);
    }
}

/// Chunks that are whole and others than the table says, each of them: the table is another's.
#[test]
fn a_table_that_names_none_of_the_chunks_that_are_there_is_anothers() {
    let (sim, before) = specimen(66);
    let other = Sim::new(67);
    let store = Store::open(FOLDER, options(&other)).expect("a new store");
    append_large(&store, "first", 1, 7_000);
    fill(&store, 0..220);
    store.close().expect("closed");
    for has_index in [true, false] {
        let mixed = sim.clone_disk();
        mixed.replace(TABLE, &other.read(TABLE));
        if !has_index {
            without_index(&mixed);
        }
        let report = fix(&mixed);
        let what = format!("index: {has_index}");
        assert!(report.table.as_ref().is_some_and(|t| t.contains("another store's")), "{report}");
        assert!(!report.is_loss(), "{what}: {report}");
        check(&mixed, &before, &report, &what);
        assert_eq!(left(&mixed), before.len() + 1, "{what}");
    }
}

/// A missing chunk behind one whose file had got longer: its first positions were taken for room
/// of the longer one, and what had stood there was in no range.
#[test]
fn what_is_lost_behind_a_longer_file_is_named_from_its_beginning() {
    let (sim, before) = specimen(68);
    for has_index in [true, false] {
        let what = format!("index: {has_index}");
        let harmed = sim.clone_disk();
        harmed.extend(chunk(1), &[0xa5; 100]);
        harmed.extend(chunk(1), &[0xa5; 5000]);
        harmed.replace(chunk(2), &[0xa5; 100]);
        harmed.remove(TABLE);
        if !has_index {
            without_index(&harmed);
        }
        let report = fix(&harmed);
        assert!(report.is_loss(), "{what}: {report}");
        check(&harmed, &before, &report, &what);
    }
}

/// Two damages in a chunk that nobody ended, the second in its last event: the range ended with
/// the last append that looked whole, and what had stood behind was in none.
#[test]
fn a_damaged_last_event_behind_another_damage_is_named() {
    for is_table_lost in [false, true] {
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
        if is_table_lost {
            killed.remove(TABLE);
        }
        let report = fix(&killed);
        check(&killed, &before, &report, &format!("table lost: {is_table_lost}"));
        let last = before.last().expect("events").position;
        let ranges = report.chunks.iter().flat_map(|chunk| &chunk.lost);
        let named = ranges.filter(|range| (range.from.0..range.to.0).contains(&last)).count();
        assert_eq!(named, 1, "{report}");
    }
}

/// The chunk that was written last and the one that was made for later had each other's names, and
/// one bad bit made the header of the blank one unreadable: what held nothing was left out, and
/// nobody looked for what it had held.
#[test]
fn the_open_chunk_is_found_under_the_name_of_the_next_one() {
    let (killed, id) = with_a_chunk_made_for_later();
    let before = all(&Store::open(FOLDER, options(&killed.clone_disk())).expect("opened"));
    for at in [None, Some(4)] {
        let mixed = killed.clone_disk();
        if let Some(at) = at {
            mixed.flip(chunk(id), at, 1);
        }
        exchange(&mixed, id - 1, id);
        without_index(&mixed);
        let report = fix(&mixed);
        check(&mixed, &before, &report, &format!("{at:?}"));
        let named = report.chunks.iter().filter(|chunk| chunk.id + 1 == id);
        assert!(named.clone().count() > 0, "{at:?}: {report}");
    }
}

/// The last events of a packed chunk were lost, and table and index with them: the range ended with
/// the last event that was left.
#[test]
fn the_lost_end_of_a_packed_chunk_is_named() {
    let (sim, _) = specimen(85);
    let store = Store::open(FOLDER, options(&sim)).expect("opened");
    store.delete("cart-2", Expected::Any).expect("deleted");
    store.scavenge(&scavenging::all()).expect("scavenged");
    let before = all(&store);
    store.close().expect("closed");
    let packed = files(&sim, "/events/log");
    let (path, bytes) = packed.iter().rfind(|(_, b)| b.starts_with(b"UmbelPck")).expect("one");
    for (gone, _) in packed.iter().filter(|(other, _)| other > path) {
        sim.remove(gone);
    }
    sim.truncate(path, bytes.len() as u64 * 2 / 3);
    without_both(&sim);
    let report = fix(&sim);
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

/// The chunk that was written when the process was killed lost its end, or all of it: where the
/// index knew its events they stood in no range, and without an index nothing was said.
#[test]
fn an_open_chunk_that_was_cut_is_named() {
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
        let said = left_out(&cut.env(), FOLDER.as_ref()).expect("looked at");
        assert_eq!(said.is_empty(), has_index, "{what}: who opens it has to know: {said:?}");
        let report = fix(&cut);
        assert!(report.is_loss(), "{what}: {report:?}");
        check(&cut, &before, &report, &what);
    }
}

/// Chunks of which a scavenge had left nothing were said to belong to no chunk where the table was
/// lost, and all of their room was lost with them.
#[test]
fn empty_packed_chunks_are_no_loss_without_the_table() {
    let sim = Sim::new(72);
    let store = Store::open(FOLDER, options(&sim)).expect("a new store");
    append(&store, "cart-1", 0..10);
    for number in 0..120 {
        append_large(&store, "note", 100 + number, 3000);
    }
    append(&store, "cart-1", 10..20);
    store.delete("note", Expected::Any).expect("deleted");
    store.scavenge(&scavenging::all()).expect("scavenged");
    let before = all(&store);
    store.close().expect("closed");
    let packed = files(&sim, "/events/log");
    let empty = packed.iter().filter(|(_, bytes)| bytes.starts_with(b"UmbelPck"));
    assert!(empty.filter(|(_, bytes)| bytes.len() < 200).count() > 1, "empty ones");
    for has_index in [true, false] {
        let lost = sim.clone_disk();
        lost.remove(TABLE);
        if !has_index {
            without_index(&lost);
        }
        let report = fix(&lost);
        let what = format!("index: {has_index}");
        assert!(!report.is_loss() && report.strangers.is_empty(), "{what}: {report}");
        let after = all(&Store::open(FOLDER, options(&lost)).expect("opened"));
        assert_eq!(after, before, "{what}");
        assert!(fix(&lost).is_whole(), "{what}");
    }
}

/// A store that was killed at this call while it appended.
pub fn killed_at(call: u64) -> Sim {
    let data = vec![7; 3000];
    let sim = Sim::new(73);
    let store = Store::open(FOLDER, options(&sim)).expect("a new store");
    sim.crash_at(sim.calls() + call, When::After);
    let mut number = 0;
    while !sim.is_dead() && number < 100 {
        let event = NewEvent::binary(id(number), "Large", &data);
        let _ = store.append("note", Expected::Any, &[event]);
        number += 1;
    }
    drop(store);
    sim.kill_image()
}

/// A store that was killed when it had made the chunk that comes next, with that chunk's id.
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

/// One bad bit in the header of a chunk that was made for later does not make it one of which only
/// the name is left.
#[test]
fn a_damaged_header_of_a_chunk_without_events_is_no_loss() {
    let (killed, id) = with_a_chunk_made_for_later();
    let before = all(&Store::open(FOLDER, options(&killed.clone_disk())).expect("opened"));
    assert!(before.len() > 10, "{}", before.len());
    for (at, has_table) in [(1, true), (16, true), (60, true), (1, false), (60, false)] {
        let what = format!("byte {at}, table: {has_table}");
        let harmed = killed.clone_disk();
        harmed.flip(chunk(id), at, 1);
        if !has_table {
            without_both(&harmed);
        }
        let report = fix(&harmed);
        // Without table and index nothing tells whether there were more.
        let is_told = report.bytes_lost() == 0 && report.unplaced.is_empty();
        assert!(is_told && report.is_loss() != has_table, "{what}: {report}");
        check(&harmed, &before, &report, &what);
    }
}

/// A file where the folder of the existence filter should be kept the store from being opened, and
/// the repair said that there was nothing to do.
#[test]
fn a_file_in_the_place_of_the_existence_filter_is_moved_aside() {
    let (sim, before) = specimen(74);
    for (path, _) in files(&sim, "/events/existence") {
        sim.remove(path);
    }
    let disk = sim.env().files;
    if disk.exists("/events/existence".as_ref()).expect("looked for") {
        disk.remove_dir("/events/existence".as_ref()).expect("removed");
    }
    put(&sim, "/events/existence", b"notes");
    assert!(Store::open(FOLDER, options(&sim.clone_disk())).is_err(), "it cannot be opened");
    let report = fix(&sim);
    assert!(report.existence.is_some() && !report.is_loss(), "{report}");
    assert_eq!(sim.read("/events/damaged-1/existence"), b"notes");
    check(&sim, &before, &report, "a file");
}

/// To look at a store that nobody may write to was refused, since the file `LOCK` could not be
/// made, though nothing was to be written.
#[test]
fn a_folder_that_nobody_may_write_to_is_opened_for_reading() {
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
