//! Repairs of stores with an unexpected manifest, end or neighbors, and of forged contents.

use umbel_events::{
    Direction, Error, ExpectedVersion, NewEvent, RepairOptions, Revision, Store, find_unrecovered,
    repair,
};
use umbel_sim::Sim;

use super::repair::{
    FOLDER, check, chunk, chunk_of, fill, next_revision, repair_store, specimen, without,
    without_filter, without_index,
};
use super::support::{all, append, append_large, event, id, options};

/// A tombstoned stream stays tombstoned, and lost metadata falls back to the previous metadata.
#[test]
fn lost_tombstones_and_metadata_keep_indexed_state() {
    let sim = Sim::new(19);
    let store = Store::open(FOLDER, options(&sim)).expect("a new store");
    append(&store, "ended", 0..3);
    append(&store, "cart-1", 10..20);
    let metadata = |number, text: &'static str| {
        let event = NewEvent::json(id(number), "$metadata", text.as_bytes());
        store.append("$$cart-1", ExpectedVersion::Any, &[event]).expect("metadata");
    };
    metadata(100, r#"{"$maxCount":5}"#);
    metadata(101, r#"{"$maxCount":2}"#);
    store.tombstone("ended", ExpectedVersion::Any).expect("ended");
    append(&store, "cart-2", 20..22);
    let before = all(&store);
    store.close().expect("closed");
    let ending = before.iter().rfind(|event| event.stream == "ended").expect("a tombstone");
    let metadata_event = before.iter().rfind(|event| event.stream == "$$cart-1").expect("metadata");
    for event in [ending, metadata_event] {
        sim.flip(chunk(1), event.position + 20, 1);
    }
    let report = repair_store(&sim);
    let streams: Vec<_> = report.streams.iter().map(|lost| &lost.stream[..]).collect();
    assert_eq!(streams, ["$$cart-1", "ended"], "{report}");
    let store = Store::open(FOLDER, options(&sim)).expect("opened");
    let refused = store.append("ended", ExpectedVersion::Any, &[event(200)]).expect_err("it ended");
    assert!(matches!(refused, Error::StreamDeleted { .. }), "{refused}");
    let read = |stream: &str| store.read(stream, Revision::START, Direction::Forwards).count();
    assert_eq!((read("cart-1"), read("cart-2")), (5, 2));
    let verified = store.verify().expect("verified");
    assert!(verified.damage.is_empty(), "{:?}", verified.damage);
    store.delete("cart-1", ExpectedVersion::Any).expect("deleted");
    assert_eq!(read("cart-1"), 0);
}

/// Chunks of two stores with the same id can have the same positions. The seal in the manifest
/// distinguishes whole files, and the index also damaged ones.
#[test]
fn chunk_of_another_store_is_moved_aside() {
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
        let report = repair_store(&mixed);
        assert!(mixed.has("/events/damaged-1/00000002.chunk"), "{what}");
        assert_eq!(report.chunks[0].events_saved, 0, "{what}: {report}");
        check(&mixed, &before, &report, &what);
    }
}

/// A killed store: its last chunk has no recorded end, and the index lacks the last events.
#[test]
fn unclosed_store_is_repaired() {
    for seed in 0..30_u64 {
        let sim = Sim::new(100 + seed);
        let store = Store::open(FOLDER, options(&sim)).expect("a new store");
        fill(&store, 0..90);
        store.flush().expect("flushed");
        fill(&store, 90..100);
        store.sync().expect("synced");
        fill(&store, 100..140);
        store.sync().expect("synced");
        // Its record shows that everything before it was durable.
        append(&store, "cart-1", 1400..1401);
        let before = all(&store);
        let killed = sim.kill_image();
        let event = &before[before.len() - 2 - seed as usize * 3];
        let (id, start) = chunk_of(&killed, event.position);
        killed.flip(chunk(id), event.position - start + 80, 1);
        let refused = Store::open(FOLDER, options(&killed.clone_disk()));
        let report = repair_store(&killed);
        assert!(refused.is_err() || !report.is_undamaged(), "{seed}");
        let lost: u64 = report.bytes_lost();
        assert!(lost > 0 && lost < 3400, "{seed}: {report}");
        check(&killed, &before, &report, &format!("killed {seed}"));
    }
}

/// A chunk was torn before its end, but later events had been made durable: the repair salvages
/// these events.
#[test]
fn durable_events_after_a_torn_chunk_are_salvaged() {
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
    // The end of the previous chunk never reached the disk.
    for sector in (len * 3 / 4 / 512..len / 512).map(|sector| sector * 512) {
        killed.zero_sector(chunk(3), sector);
    }
    let refused = Store::open(FOLDER, options(&killed.clone_disk())).expect_err("damaged");
    let report = repair_store(&killed);
    assert!(!report.chunks.is_empty(), "{refused}: {report}");
    check(&killed, &before, &report, "after a torn chunk");
    let after = all(&Store::open(FOLDER, options(&killed)).expect("opened"));
    let newest = &before[before.len() - 1];
    assert!(after.contains(newest), "{report}");
}

/// The active chunk lost its end, which only the index shows.
#[test]
fn truncated_chunk_keeps_indexed_revisions() {
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
    let report = repair_store(&killed);
    assert!(report.has_loss() && report.streams.iter().all(|lost| lost.is_certain), "{report}");
    check(&killed, &before, &report, "cut");
    let last = before.iter().rfind(|event| event.stream == "cart-1").expect("events");
    assert_eq!(next_revision(&killed, "cart-1"), last.revision + 1);
}

/// The whole log is an older copy, but the index is not.
#[test]
fn truncated_log_keeps_indexed_revisions() {
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
    let report = repair_store(&sim);
    assert!(report.has_loss() && report.streams.iter().all(|lost| lost.is_certain), "{report}");
    check(&sim, &before, &report, "an older log");
    let last = before.iter().rev().find(|event| event.stream == "note").expect("events");
    assert_eq!(next_revision(&sim, "note"), last.revision + 1);
}

#[test]
fn older_chunk_manifest_is_detected() {
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
    let report = repair_store(&sim);
    assert!(
        report.manifest.as_ref().is_some_and(|manifest| manifest.contains("older copy")),
        "{report}"
    );
    assert_eq!(report.bytes_lost(), 0, "{report}");
    check(&sim, &before, &report, "an older manifest");
    let after = all(&Store::open(FOLDER, options(&sim)).expect("opened"));
    assert_eq!(after.len(), before.len() + 1);
}

#[test]
fn chunk_manifest_is_rebuilt_from_chunks() {
    type Harm = fn(&Sim);
    let damages: [(&str, Harm); 4] = [
        ("missing", |sim| sim.remove("/events/CHUNKS")),
        ("flipped", |sim| sim.flip("/events/CHUNKS", 20, 1)),
        ("empty", |sim| sim.truncate("/events/CHUNKS", 0)),
        ("with the first event damaged", |sim| {
            sim.remove("/events/CHUNKS");
            sim.flip(chunk(2), 120, 1);
        }),
    ];
    let (sim, before) = specimen(8);
    for (name, damage_fn) in damages {
        let damaged = sim.clone_disk();
        damage_fn(&damaged);
        let report = repair_store(&damaged);
        assert!(report.manifest.is_some(), "{name}: {report}");
        check(&damaged, &before, &report, name);
        let lost = report.bytes_lost();
        assert_eq!(lost > 0, name.starts_with("with"), "{name}: {report}");
        assert!(lost < 4000, "{name}: {report}");
        // No position is assigned twice.
        let store = Store::open(FOLDER, options(&damaged)).expect("opened");
        let done = store.append("cart-1", ExpectedVersion::Any, &[event(7)]).expect("appended");
        let last = before.last().expect("events").position;
        assert!(done.position.is_some_and(|at| at > last + (1 << 39)), "{name}: {done:?}");
    }
}

/// Regression: only the manifest knows where a chunk ended. Without the manifest, a chunk that was
/// truncated or had a hole of zeros was assumed to end at that place. Later events were lost, and
/// the repair reported no loss.
#[test]
fn truncated_chunk_is_detected_without_manifest() {
    let (sim, before) = specimen(11);
    for has_index in [true, false] {
        let damaged = sim.clone_disk();
        damaged.remove("/events/CHUNKS");
        damaged.truncate(chunk(2), 8192);
        if !has_index {
            without_index(&damaged);
        }
        let report = repair_store(&damaged);
        assert!(report.has_loss() && report.bytes_lost() > 4000, "{report}");
        check(&damaged, &before, &report, "cut");
    }
}

/// Event data that a client forged to look like an append is not salvaged as an append.
#[test]
fn forged_append_in_event_data_is_rejected() {
    let plain = Sim::new(12);
    let forger = Sim::new(13);
    // Finds what an append at the forged offset would look like.
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
    store.append("evil", ExpectedVersion::Any, &[evil]).expect("appended");
    append(&store, "cart-1", 20..24);
    let before = all(&store);
    store.close().expect("closed");
    let damaged = plain.clone_disk();
    // The record of the event that holds the image, and the event itself.
    damaged.flip(chunk(1), 64, 1);
    damaged.flip(chunk(1), 105, 64);
    without_index(&damaged);
    let report = repair_store(&damaged);
    check(&damaged, &before, &report, "a forged append");
    assert!(report.chunks[0].lost[0].unproven > 0, "the image is one of an append: {report}");
    let accepting = plain.clone_disk();
    accepting.flip(chunk(1), 64, 1);
    accepting.flip(chunk(1), 105, 64);
    without_index(&accepting);
    let options_ = RepairOptions { accept_unproven: true, ..RepairOptions::default() };
    repair(&accepting.env(), FOLDER.as_ref(), options_).expect("repaired");
    let store = Store::open(FOLDER, options(&accepting)).expect("opened");
    assert!(all(&store).iter().any(|event| event.stream == "fake"), "accepted, as requested");
}

/// One bad byte in the chunk that was active at the kill: the open would skip everything after it.
/// So the repair reports these appends and keeps a copy of the chunk, from which they can be
/// restored.
#[test]
fn appends_after_damage_in_the_active_chunk_are_kept() {
    for (victim, is_manifest_lost) in [(0, false), (20, false), (20, true), (0, true)] {
        let what = format!("event {victim} damaged, manifest lost: {is_manifest_lost}");
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
        if is_manifest_lost {
            killed.remove("/events/CHUNKS");
            without_index(&killed);
        } else {
            let sentences = find_unrecovered(&killed.env(), FOLDER.as_ref()).expect("examined");
            assert!(
                sentences.len() == 1 && sentences[0].contains("34 whole appends"),
                "{what}: {sentences:?}"
            );
        }
        let accepting = killed.clone_disk();
        let report = repair_store(&killed);
        assert!(report.has_loss() && report.bytes_lost() < 9_000, "{what}: {report}");
        assert_eq!(killed.read("/events/damaged-1/00000001.chunk"), damaged, "{what}");
        check(&killed, &before, &report, &what);
        // An open without a repair leaves the bytes in place or beside.
        let store = Store::open(FOLDER, options(&opened)).expect("opened");
        assert!(all(&store).is_empty(), "{what}: the first append was all before the damage");
        store.close().expect("closed");
        let is_kept = opened.files().iter().any(|path| opened.read(path) == damaged);
        assert!(is_kept, "{what}: {:?}", opened.files());
        // After the restore everything but the damaged event is there.
        let options = RepairOptions { accept_unproven: true, ..RepairOptions::default() };
        let report = repair(&accepting.env(), FOLDER.as_ref(), options).expect("repaired");
        let saved: u64 = report.chunks.iter().map(|chunk| chunk.events_saved).sum();
        assert_eq!(saved, 68, "{what}: {report}");
        check(&accepting, &before, &report, &what);
    }
}

/// A chunk with only zeros counts as missing, also without the manifest and the index.
#[test]
fn zeroed_chunk_counts_as_missing() {
    let (sim, before) = specimen(41);
    for (id, has_manifest) in [(2, true), (2, false)] {
        let zeroed = sim.clone_disk();
        let len = zeroed.read(chunk(id)).len();
        zeroed.replace(chunk(id), &vec![0; len]);
        if !has_manifest {
            zeroed.remove("/events/CHUNKS");
            without_index(&zeroed);
        }
        let what = format!("chunk {id}, manifest: {has_manifest}");
        let report = repair_store(&zeroed);
        assert!(report.has_loss() && report.bytes_lost() > 4000, "{what}: {report}");
        check(&zeroed, &before, &report, &what);
    }
}

/// Regression: without manifest, index and existence filter, nothing shows how far the log reached.
/// The report said that chunks may be missing, but the exit code meant that nothing was lost.
#[test]
fn possibly_missing_last_chunks_are_reported() {
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
        let (report, text) =
            (repair_store(&cut), "not known whether chunks followed the last chunk");
        assert!(report.has_loss() && report.is_end_unknown != has_filter, "{report:?}");
        assert_eq!(report.to_string().contains(text), !has_filter, "{report}");
        if has_filter {
            check(&cut, &before, &report, "the existence filter knew of more");
        }
        let report = repair_store(&whole);
        assert_eq!((report.has_loss(), report.bytes_lost()), (!has_filter, 0), "{report}");
        check(&whole, &before, &report, "nothing is missing");
    }
}

/// A file of a forged huge size is not read to its end.
#[test]
fn overlong_chunk_file_is_reported() {
    let sim = Sim::new(43);
    let store = Store::open(FOLDER, options(&sim)).expect("a new store");
    append(&store, "cart-1", 0..6);
    let before = all(&store);
    let killed = sim.kill_image();
    killed.extend(chunk(1), &vec![0; 129 << 20]);
    let refused = Store::open(FOLDER, options(&killed.clone_disk())).expect_err("too long");
    assert!(refused.to_string().contains("no chunk has more than"), "{refused}");
    let report = repair_store(&killed);
    assert!(report.chunks[0].reason.contains("no chunk has more than"), "{report}");
    check(&killed, &before, &report, "too long");
}
