//! Repairs of stores whose table, end or neighbours are not what they were, and of what somebody
//! made to be misread.

use umbel_events::{
    Direction, Error, Expected, NewEvent, RepairOptions, Revision, Store, left_out, repair,
};
use umbel_sim::Sim;

use super::repairs::{
    FOLDER, check, chunk, chunk_of, fill, fix, next_revision, specimen, without, without_filter,
    without_index,
};
use super::support::{all, append, append_large, event, id, options};

/// A stream that ended for good stays ended, and metadata that is lost is what it was before.
#[test]
fn lost_tombstones_and_metadata_leave_what_the_index_knows_of_them() {
    let sim = Sim::new(19);
    let store = Store::open(FOLDER, options(&sim)).expect("a new store");
    append(&store, "ended", 0..3);
    append(&store, "cart-1", 10..20);
    let metadata = |number, text: &'static str| {
        let event = NewEvent::json(id(number), "$metadata", text.as_bytes());
        store.append("$$cart-1", Expected::Any, &[event]).expect("metadata");
    };
    metadata(100, r#"{"$maxCount":5}"#);
    metadata(101, r#"{"$maxCount":2}"#);
    store.tombstone("ended", Expected::Any).expect("ended");
    append(&store, "cart-2", 20..22);
    let before = all(&store);
    store.close().expect("closed");
    let ending = before.iter().rfind(|event| event.stream == "ended").expect("a tombstone");
    let said = before.iter().rfind(|event| event.stream == "$$cart-1").expect("metadata");
    for event in [ending, said] {
        sim.flip(chunk(1), event.position + 20, 1);
    }
    let report = fix(&sim);
    let streams: Vec<_> = report.streams.iter().map(|lost| &lost.stream[..]).collect();
    assert_eq!(streams, ["$$cart-1", "ended"], "{report}");
    let store = Store::open(FOLDER, options(&sim)).expect("opened");
    let refused = store.append("ended", Expected::Any, &[event(200)]).expect_err("it ended");
    assert!(matches!(refused, Error::Deleted { .. }), "{refused}");
    let read = |stream: &str| store.read(stream, Revision::START, Direction::Forwards).count();
    assert_eq!((read("cart-1"), read("cart-2")), (5, 2));
    let verified = store.verify().expect("verified");
    assert!(verified.damage.is_empty(), "{:?}", verified.damage);
    store.delete("cart-1", Expected::Any).expect("deleted");
    assert_eq!(read("cart-1"), 0);
}

/// Chunks of two stores with the same id can have the same positions. The seal in the table tells
/// them apart where the file is whole, and the index where it is damaged, too.
#[test]
fn a_chunk_of_another_store_is_moved_aside() {
    let (sim, before) = specimen(7);
    let other = Sim::new(70);
    let store = Store::open(FOLDER, options(&other)).expect("a new store");
    append_large(&store, "first", 1, 60_000);
    fill(&store, 0..60);
    store.close().expect("closed");
    for (has_index, is_damaged) in [(true, false), (false, false), (true, true)] {
        let what = format!("another store's, index: {has_index}, damaged: {is_damaged}");
        let mixed = sim.clone_disk();
        mixed.replace(chunk(2), &other.read(chunk(2)));
        if !has_index {
            without_index(&mixed);
        }
        if is_damaged {
            mixed.flip(chunk(2), 5000, 1);
        }
        let report = fix(&mixed);
        assert!(mixed.has("/events/damaged-1/00000002.chunk"), "{what}");
        assert_eq!(report.chunks[0].events_saved, 0, "{what}: {report}");
        check(&mixed, &before, &report, &what);
    }
}

/// A store that was killed: nobody ended its last chunk, and the index lacks what came last.
#[test]
fn a_store_that_was_not_closed_is_repaired_as_well() {
    for seed in 0..30_u64 {
        let sim = Sim::new(100 + seed);
        let store = Store::open(FOLDER, options(&sim)).expect("a new store");
        fill(&store, 0..90);
        store.flush().expect("flushed");
        fill(&store, 90..100);
        store.sync().expect("synced");
        fill(&store, 100..140);
        store.sync().expect("synced");
        // Its record tells that everything before it was durable.
        append(&store, "cart-1", 1400..1401);
        let before = all(&store);
        let killed = sim.kill_image();
        let event = &before[before.len() - 2 - seed as usize * 3];
        let (id, start) = chunk_of(&killed, event.position);
        killed.flip(chunk(id), event.position - start + 80, 1);
        let refused = Store::open(FOLDER, options(&killed.clone_disk()));
        let report = fix(&killed);
        assert!(refused.is_err() || !report.is_whole(), "{seed}");
        let lost: u64 = report.bytes_lost();
        assert!(lost > 0 && lost < 3400, "{seed}: {report}");
        check(&killed, &before, &report, &format!("killed {seed}"));
    }
}

/// A chunk that was torn before it was ended, and events behind it that had been made durable.
#[test]
fn durable_events_behind_a_torn_chunk_are_saved() {
    let sim = Sim::new(15);
    let store = Store::open(FOLDER, options(&sim)).expect("a new store");
    fill(&store, 0..60);
    store.sync().expect("synced");
    let mut number = 60;
    let mut before = all(&store);
    while chunk_of(&sim, before[before.len() - 1].position).0 < 4 {
        fill(&store, number..number + 1);
        store.sync().expect("synced");
        number += 1;
        before = all(&store);
    }
    fill(&store, number..number + 3);
    store.sync().expect("synced");
    fill(&store, number + 3..number + 4);
    let before = all(&store);
    let killed = sim.kill_image();
    let len = killed.read(chunk(3)).len() as u64;
    // The end of the chunk before never reached the disk.
    for sector in (len * 3 / 4 / 512..len / 512).map(|sector| sector * 512) {
        killed.zero_sector(chunk(3), sector);
    }
    let refused = Store::open(FOLDER, options(&killed.clone_disk())).expect_err("damaged");
    let report = fix(&killed);
    assert!(!report.chunks.is_empty(), "{refused}: {report}");
    check(&killed, &before, &report, "behind a torn chunk");
    let after = all(&Store::open(FOLDER, options(&killed)).expect("opened"));
    let newest = &before[before.len() - 1];
    assert!(after.contains(newest), "{report}");
}

/// The chunk that was written lost its end, of which no record tells; the index does.
#[test]
fn a_chunk_that_was_cut_keeps_the_revisions_that_the_index_knows() {
    let sim = Sim::new(23);
    let store = Store::open(FOLDER, options(&sim)).expect("a new store");
    fill(&store, 0..30);
    store.flush().expect("flushed");
    let before = all(&store);
    let killed = sim.kill_image();
    let cut = before.len() - 8;
    let (id, start) = chunk_of(&killed, before[cut].position);
    killed.truncate(chunk(id), before[cut].position - start);
    let refused = Store::open(FOLDER, options(&killed.clone_disk())).expect_err("cut");
    assert!(refused.to_string().contains("the index holds events"), "{refused}");
    let report = fix(&killed);
    assert!(report.is_loss() && report.streams.iter().all(|lost| lost.is_certain), "{report}");
    check(&killed, &before, &report, "cut");
    let last = before.iter().rfind(|event| event.stream == "cart-1").expect("events");
    assert_eq!(next_revision(&killed, "cart-1"), last.revision + 1);
}

/// All of the log is an older copy, and the index is not.
#[test]
fn a_log_that_lost_its_end_keeps_the_revisions_that_the_index_knows() {
    let sim = Sim::new(17);
    let store = Store::open(FOLDER, options(&sim)).expect("a new store");
    fill(&store, 0..40);
    store.close().expect("closed");
    let older = sim.clone_disk();
    let store = Store::open(FOLDER, options(&sim)).expect("opened");
    fill(&store, 40..120);
    let before = all(&store);
    store.close().expect("closed");
    without(&sim, "/events/log");
    for path in older.files().iter().filter(|path| path.starts_with("/events/log")) {
        let file = sim.env().files.create(path).expect("made");
        file.write_all_at(&older.read(path), 0).expect("written");
        file.sync().expect("synced");
    }
    sim.env().files.sync_dir("/events/log".as_ref()).expect("synced");
    sim.replace("/events/CHUNKS", &older.read("/events/CHUNKS"));
    Store::open(FOLDER, options(&sim.clone_disk())).expect_err("ahead");
    let report = fix(&sim);
    assert!(report.is_loss() && report.streams.iter().all(|lost| lost.is_certain), "{report}");
    check(&sim, &before, &report, "an older log");
    let last = before.iter().rev().find(|event| event.stream == "note").expect("events");
    assert_eq!(next_revision(&sim, "note"), last.revision + 1);
}

#[test]
fn an_older_copy_of_the_table_is_noticed() {
    let sim = Sim::new(16);
    let store = Store::open(FOLDER, options(&sim)).expect("a new store");
    fill(&store, 0..40);
    store.close().expect("closed");
    let older = sim.read("/events/CHUNKS");
    let store = Store::open(FOLDER, options(&sim)).expect("opened");
    fill(&store, 40..120);
    let before = all(&store);
    store.close().expect("closed");
    sim.replace("/events/CHUNKS", &older);
    Store::open(FOLDER, options(&sim.clone_disk())).expect_err("an older copy");
    let report = fix(&sim);
    assert!(report.table.as_ref().is_some_and(|table| table.contains("older copy")), "{report}");
    assert_eq!(report.bytes_lost(), 0, "{report}");
    check(&sim, &before, &report, "an older table");
    let after = all(&Store::open(FOLDER, options(&sim)).expect("opened"));
    assert_eq!(after.len(), before.len() + 1);
}

#[test]
fn the_table_is_made_anew_from_the_chunks() {
    type Harm = fn(&Sim);
    let harms: [(&str, Harm); 4] = [
        ("missing", |sim| sim.remove("/events/CHUNKS")),
        ("flipped", |sim| sim.flip("/events/CHUNKS", 20, 1)),
        ("empty", |sim| sim.truncate("/events/CHUNKS", 0)),
        ("with the first event damaged", |sim| {
            sim.remove("/events/CHUNKS");
            sim.flip(chunk(2), 120, 1);
        }),
    ];
    let (sim, before) = specimen(8);
    for (name, harm) in harms {
        let damaged = sim.clone_disk();
        harm(&damaged);
        let report = fix(&damaged);
        assert!(report.table.is_some(), "{name}: {report}");
        check(&damaged, &before, &report, name);
        let lost = report.bytes_lost();
        assert_eq!(lost > 0, name.starts_with("with"), "{name}: {report}");
        assert!(lost < 4000, "{name}: {report}");
        // No position is given twice.
        let store = Store::open(FOLDER, options(&damaged)).expect("opened");
        let done = store.append("cart-1", Expected::Any, &[event(7)]).expect("appended");
        let last = before.last().expect("events").position;
        assert!(done.position.is_some_and(|at| at > last + (1 << 39)), "{name}: {done:?}");
    }
}

/// Only the table knows where a chunk ended. Without it, one that was cut, or had a hole of zeros,
/// was taken for one that ended there: what had stood behind was lost, and the repair said that
/// nothing was.
#[test]
fn a_chunk_that_was_cut_is_noticed_without_the_table() {
    let (sim, before) = specimen(11);
    for has_index in [true, false] {
        let damaged = sim.clone_disk();
        damaged.remove("/events/CHUNKS");
        damaged.truncate(chunk(2), 8192);
        if !has_index {
            without_index(&damaged);
        }
        let report = fix(&damaged);
        assert!(report.is_loss() && report.bytes_lost() > 4000, "{report}");
        check(&damaged, &before, &report, "cut");
    }
}

/// What somebody put into an event's data, made to look like an append, is not taken for one.
#[test]
fn the_image_of_an_append_in_the_data_of_an_event_is_not_believed() {
    let plain = Sim::new(12);
    let forger = Sim::new(13);
    // Learn what an append at the forged place would look like.
    let inner = 96 + 72 + 4 + 5 + 11;
    let inner = (inner as u64).next_multiple_of(8);
    let store = Store::open(FOLDER, options(&forger)).expect("a new store");
    append_large(&store, "pads", 1, (inner - 96 - 72 - 4 - 5 - 1) as usize);
    append_large(&store, "fake", 2, 100);
    store.close().expect("closed");
    let image = {
        let bytes = forger.read(chunk(1));
        let fake = all(&Store::open(FOLDER, options(&forger)).expect("opened"));
        let at = fake[1].position as usize - 32;
        (at, bytes[at..at + 32 + 72 + 4 + 5 + 1 + 100 + 10].to_vec())
    };
    let store = Store::open(FOLDER, options(&plain)).expect("a new store");
    let mut data = vec![0; image.0 - 96 - 72 - 4 - 5];
    data.extend_from_slice(&image.1);
    data.resize(3000, 7);
    let evil = NewEvent::binary(id(1), "Large", &data);
    store.append("evil", Expected::Any, &[evil]).expect("appended");
    append(&store, "cart-1", 20..24);
    let before = all(&store);
    store.close().expect("closed");
    let damaged = plain.clone_disk();
    // The record of the event that holds the image, and the event itself.
    damaged.flip(chunk(1), 64, 1);
    damaged.flip(chunk(1), 105, 64);
    without_index(&damaged);
    let report = fix(&damaged);
    check(&damaged, &before, &report, "a forged append");
    assert!(report.chunks[0].lost[0].unproven > 0, "the image is one of an append: {report}");
    let accepting = plain.clone_disk();
    accepting.flip(chunk(1), 64, 1);
    accepting.flip(chunk(1), 105, 64);
    without_index(&accepting);
    let options_ = RepairOptions { accept_unproven: true, ..RepairOptions::default() };
    repair(&accepting.env(), FOLDER.as_ref(), options_).expect("repaired");
    let store = Store::open(FOLDER, options(&accepting)).expect("opened");
    assert!(all(&store).iter().any(|event| event.stream == "fake"), "taken, as was asked for");
}

/// One bad byte in the chunk that was written when the process was killed: opening would leave out
/// all that stands behind, so it is said, kept aside, and can be taken back.
#[test]
fn what_stands_behind_damage_in_the_open_chunk_is_kept() {
    for (victim, is_table_lost) in [(0, false), (20, false), (20, true), (0, true)] {
        let what = format!("event {victim} damaged, table lost: {is_table_lost}");
        let sim = Sim::new(33);
        let store = Store::open(FOLDER, options(&sim)).expect("a new store");
        append(&store, "cart-1", 0..60);
        for number in 6..40 {
            append(&store, "cart-2", number * 10..number * 10 + 2);
        }
        let before = all(&store);
        let killed = sim.kill_image();
        let hit = &before[victim];
        assert_eq!(chunk_of(&killed, hit.position).0, 1, "one chunk");
        killed.flip(chunk(1), hit.position + 8, 1);
        let damaged = killed.read(chunk(1));
        let opened = killed.clone_disk();
        if is_table_lost {
            killed.remove("/events/CHUNKS");
            without_index(&killed);
        } else {
            let said = left_out(&killed.env(), FOLDER.as_ref()).expect("looked at");
            assert!(said.len() == 1 && said[0].contains("34 whole appends"), "{what}: {said:?}");
        }
        let accepting = killed.clone_disk();
        let report = fix(&killed);
        assert!(report.is_loss() && report.bytes_lost() < 9_000, "{what}: {report}");
        assert_eq!(killed.read("/events/damaged-1/00000001.chunk"), damaged, "{what}");
        check(&killed, &before, &report, &what);
        // Opened without a repair, the bytes stay where they are, or beside.
        let store = Store::open(FOLDER, options(&opened)).expect("opened");
        assert!(all(&store).is_empty(), "{what}: the first append was all before the damage");
        store.close().expect("closed");
        let is_kept = opened.files().iter().any(|path| opened.read(path) == damaged);
        assert!(is_kept, "{what}: {:?}", opened.files());
        // Taken back, all but what was hit is there.
        let options = RepairOptions { accept_unproven: true, ..RepairOptions::default() };
        let report = repair(&accepting.env(), FOLDER.as_ref(), options).expect("repaired");
        let saved: u64 = report.chunks.iter().map(|chunk| chunk.events_saved).sum();
        assert_eq!(saved, 68, "{what}: {report}");
        check(&accepting, &before, &report, &what);
    }
}

/// A chunk of which nothing but zeros is left is as good as missing, also where table and index
/// are gone with it.
#[test]
fn a_chunk_of_zeros_is_a_missing_one() {
    let (sim, before) = specimen(41);
    for (id, has_table) in [(2, true), (2, false)] {
        let zeroed = sim.clone_disk();
        let len = zeroed.read(chunk(id)).len();
        zeroed.replace(chunk(id), &vec![0; len]);
        if !has_table {
            zeroed.remove("/events/CHUNKS");
            without_index(&zeroed);
        }
        let what = format!("chunk {id}, table: {has_table}");
        let report = fix(&zeroed);
        assert!(report.is_loss() && report.bytes_lost() > 4000, "{what}: {report}");
        check(&zeroed, &before, &report, &what);
    }
}

/// Without table and index the existence filter tells up to where the log went; without that
/// nothing does. The report said so, and the exit code that nothing was lost.
#[test]
fn that_the_last_chunks_may_be_missing_is_said() {
    let (sim, before) = specimen(42);
    sim.remove("/events/CHUNKS");
    without_index(&sim);
    let whole = sim.clone_disk();
    let files = sim.files();
    let last = files.iter().rfind(|path| path.to_string_lossy().ends_with(".chunk"));
    sim.remove(last.expect("there are chunks"));
    for has_filter in [true, false] {
        let (whole, cut) = (whole.clone_disk(), sim.clone_disk());
        for disk in [&whole, &cut].into_iter().filter(|_| !has_filter) {
            without_filter(disk);
        }
        let (report, text) = (fix(&cut), "whether there were chunks behind the last");
        assert!(report.is_loss() && report.is_end_unknown != has_filter, "{report:?}");
        assert_eq!(report.to_string().contains(text), !has_filter, "{report}");
        if has_filter {
            check(&cut, &before, &report, "the existence filter knew of more");
        }
        let report = fix(&whole);
        assert_eq!((report.is_loss(), report.bytes_lost()), (!has_filter, 0), "{report}");
        check(&whole, &before, &report, "nothing is missing");
    }
}

/// A file that somebody made huge is not read to its end.
#[test]
fn a_file_that_is_too_long_for_a_chunk_is_said_to_be() {
    let sim = Sim::new(43);
    let store = Store::open(FOLDER, options(&sim)).expect("a new store");
    append(&store, "cart-1", 0..6);
    let before = all(&store);
    let killed = sim.kill_image();
    killed.extend(chunk(1), &vec![0; 129 << 20]);
    let refused = Store::open(FOLDER, options(&killed.clone_disk())).expect_err("too long");
    assert!(refused.to_string().contains("no chunk has more than"), "{refused}");
    let report = fix(&killed);
    assert!(report.chunks[0].reason.contains("no chunk has more than"), "{report}");
    check(&killed, &before, &report, "too long");
}
