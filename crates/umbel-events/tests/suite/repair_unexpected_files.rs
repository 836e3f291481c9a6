//! Repairs of stores that received files of another store, or unexpected files.

use std::path::{Path, PathBuf};

use umbel_base::checksum::checksum;
use umbel_events::{ExpectedVersion, LostRange, Store, repair};
use umbel_sim::{CrashSide, Sim};

use super::repair::{FOLDER, check, chunk, fill, repair_store, specimen, without_index};
use super::scavenge;
use super::support::{all, append_large, options};

const MARKER: &str = "/events/REPAIR";

/// The files below a folder with their bytes.
pub fn files(sim: &Sim, folder: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let files = sim.files();
    let files = files.iter().filter(|path| path.starts_with(folder));
    files.map(|path| (path.clone(), sim.read(path))).collect()
}

pub fn put(sim: &Sim, path: impl AsRef<Path>, bytes: &[u8]) {
    let path = path.as_ref();
    let files = sim.env().files;
    let file = files.create(path).expect("made");
    file.write_all_at(bytes, 0).expect("written");
    file.sync().expect("synced");
    files.sync_dir(path.parent().expect("a folder")).expect("synced");
}

/// Regression: a whole store lost its index to a forged file `REPAIR`, or to one of another store.
/// A repair trusted any `REPAIR` file that named an earlier manifest than the store's.
#[test]
fn foreign_or_stale_repair_marker_moves_no_file() {
    let (sim, _) = specimen(50);
    let manifest = sim.read("/events/CHUNKS");
    // After the magic and the version; the generation, after the instance id, is one byte here.
    let (own, generation) = (checksum(0, 0, &manifest[9..25]), u64::from(manifest[41]));
    assert!((2..128).contains(&generation), "{generation}");
    let other = own ^ 1;
    for (generation, seed) in
        [(0, other), (generation - 1, other), (0, own), (generation, own), (u64::MAX, own)]
    {
        let what = format!("generation {generation}, own seed: {}", seed == own);
        let planted = sim.clone_disk();
        put(&planted, MARKER, format!("umbel repair 1 {generation} {seed} 1 1\n").as_bytes());
        let report = repair_store(&planted);
        assert!(report.is_undamaged() && report.folder.is_none(), "{what}: {report:?}");
        assert!(!planted.has(MARKER), "{what}");
        assert_eq!(files(&planted, FOLDER), files(&sim, FOLDER), "{what}");
    }
    let interrupted = sim.clone_disk();
    let line = format!("umbel repair 1 {} {own} 0 0\n", generation - 1);
    put(&interrupted, MARKER, line.as_bytes());
    assert!(
        repair_store(&interrupted).is_resumed,
        "the repair that was to publish this manifest resumes"
    );
}

/// Regression: a directory `damaged-007` or a file `damaged-3` kept every repair from running.
#[test]
fn existing_damaged_directories_do_not_block_repair() {
    let (sim, before) = specimen(51);
    sim.flip(chunk(1), 20_000, 1);
    sim.env().files.create_dir_all("/events/damaged-007".as_ref()).expect("made");
    put(&sim, "/events/damaged-3", b"notes");
    let report = repair_store(&sim);
    assert_eq!(report.folder.as_deref(), Some("damaged-4"));
    assert_eq!(sim.read("/events/damaged-3"), b"notes");
    check(&sim, &before, &report, "numbers that are taken");
}

/// Regression: a repair was killed after it published its manifest, and its marker was lost or
/// removed. Another repair reported nothing to do, while the store could not be opened.
#[test]
fn repair_completes_without_its_marker() {
    let (sim, before) = specimen(52);
    sim.flip(chunk(1), 20_000, 1);
    sim.remove(chunk(3));
    let (calls, whole) = {
        let done = sim.clone_disk();
        let begun = done.calls();
        let report = repair_store(&done);
        (done.calls() - begun, report)
    };
    let mut found = 0;
    for call in 1..=calls {
        let killed = sim.clone_disk();
        killed.crash_at(killed.calls() + call, CrashSide::After);
        let _ = repair(&killed.env(), FOLDER.as_ref(), Default::default());
        let image = killed.kill_image();
        if !image.has(MARKER) {
            continue;
        }
        let is_published = image.read("/events/CHUNKS") != sim.read("/events/CHUNKS");
        image.remove(MARKER);
        without_index(&image);
        let folders = image.env().files;
        if folders.exists("/events/index".as_ref()).expect("searched") {
            folders.remove_dir("/events/index".as_ref()).expect("removed");
        }
        let what = format!("call {call}, published: {is_published}");
        let report = repair_store(&image);
        found += u64::from(is_published && !report.is_undamaged());
        check(&image, &before, &whole, &what);
    }
    assert!(found > 0, "the damaged chunk still existed and showed the unfinished work");
}

/// Regression: an index of another store was trusted. The repair rejected events that this index
/// did not know, and reported false losses. If nothing else was damaged, a repair reported nothing
/// to do.
#[test]
fn foreign_index_is_moved_aside() {
    let (sim, before) = specimen(53);
    let other = Sim::new(54);
    let store = Store::open(FOLDER, options(&other)).expect("a new store");
    append_large(&store, "first", 1, 7_000);
    fill(&store, 0..150);
    store.close().expect("closed");
    for (path, _) in files(&sim, "/events/index") {
        sim.remove(path);
    }
    for (path, bytes) in files(&other, "/events/index") {
        put(&sim, path, &bytes);
    }
    for is_damaged in [false, true] {
        let mixed = sim.clone_disk();
        if is_damaged {
            mixed.flip(chunk(1), 20_000, 1);
        }
        let report = repair_store(&mixed);
        let reason = report.index.as_deref().unwrap_or_default();
        assert!(reason.contains("another store"), "{report:?}");
        assert_eq!(report.has_loss(), is_damaged, "{report}");
        assert!(report.bytes_lost() < 4_000, "{report}");
        assert!(mixed.has("/events/damaged-1/index/CURRENT"), "it is kept");
        check(&mixed, &before, &report, &format!("damaged: {is_damaged}"));
    }
}

/// Regression: a manifest older than a scavenge names files that the scavenge removed. A repair
/// gave up all of these chunks and moved aside the files that had replaced them.
#[test]
fn manifest_from_before_a_scavenge_loses_no_event() {
    let (sim, _) = specimen(56);
    let older = sim.read("/events/CHUNKS");
    let store = Store::open(FOLDER, options(&sim)).expect("opened");
    store.delete("cart-2", ExpectedVersion::Any).expect("deleted");
    let done = store.scavenge(&scavenge::all()).expect("scavenged");
    assert!(done.chunks_rewritten > 2, "{done:?}");
    let before = all(&store);
    store.close().expect("closed");
    sim.replace("/events/CHUNKS", &older);
    for has_index in [true, false] {
        let mixed = sim.clone_disk();
        if !has_index {
            without_index(&mixed);
        }
        let report = repair_store(&mixed);
        assert!(report.manifest.as_ref().is_some_and(|t| t.contains("older copy")), "{report}");
        assert!(!report.has_loss(), "index: {has_index}: {report}");
        let after = all(&Store::open(FOLDER, options(&mixed)).expect("opened"));
        assert_eq!(after, before, "index: {has_index}");
    }
}

/// Regression: without the manifest the capacity of a chunk was the length of its file. A file that
/// had grown displaced the next chunk, and all events of that chunk were lost with exit code 0.
#[test]
fn overlong_chunk_file_does_not_displace_the_next() {
    let (sim, before) = specimen(55);
    for (bytes, has_index) in [(0, true), (0, false), (0xa5, true), (0xa5, false)] {
        let what = format!("{bytes:#x}, index: {has_index}");
        let longer = sim.clone_disk();
        longer.remove("/events/CHUNKS");
        longer.extend(chunk(2), &vec![bytes; 100_000]);
        if !has_index {
            without_index(&longer);
        }
        let report = repair_store(&longer);
        assert!(report.unrelated_files.is_empty() && !report.has_loss(), "{what}: {report}");
        check(&longer, &before, &report, &what);
        let after = all(&Store::open(FOLDER, options(&longer)).expect("opened"));
        assert_eq!(after.len(), before.len() + 1, "{what}");
    }
}

/// Regression: for a scavenged chunk without its header, the first readable event decided where the
/// chunk began. Lost events before that event were in no lost range.
#[test]
fn loss_before_the_first_readable_event_is_reported() {
    let (sim, _) = specimen(57);
    let store = Store::open(FOLDER, options(&sim)).expect("opened");
    store.delete("cart-2", ExpectedVersion::Any).expect("deleted");
    store.scavenge(&scavenge::all()).expect("scavenged");
    let before = all(&store);
    store.close().expect("closed");
    sim.remove("/events/CHUNKS");
    // Its header, and its first event.
    let scavenged = "/events/log/00000002-000001.chunk";
    sim.flip(scavenged, 30, 1);
    sim.flip(scavenged, 70, 1);
    let report = repair_store(&sim);
    let after = all(&Store::open(FOLDER, options(&sim)).expect("opened"));
    let lost: Vec<_> = before.iter().filter(|event| !after.contains(event)).collect();
    assert!((1..5).contains(&lost.len()), "{lost:?}");
    let ranges: Vec<_> = report.chunks.iter().flat_map(|chunk| &chunk.lost).collect();
    for event in lost {
        let is_in = |range: &&LostRange| (range.from.0..range.to.0).contains(&event.position);
        assert!(ranges.iter().copied().any(|range| is_in(&range)), "{event:?}: {report}");
    }
}

/// Regression: two chunks of a store that was not closed were exchanged, and the index was lost. No
/// event was salvaged, and yet no loss was reported.
#[test]
fn swapped_chunks_without_index_are_reported_as_loss() {
    let sim = Sim::new(58);
    let store = Store::open(FOLDER, options(&sim)).expect("a new store");
    fill(&store, 0..140);
    let before = all(&store);
    let killed = sim.kill_image();
    let chunks = files(&killed, "/events/log");
    let [.., (one, held), (other, holds)] = &chunks[..] else { panic!("two chunks") };
    killed.replace(one, holds);
    killed.replace(other, held);
    without_index(&killed);
    let report = repair_store(&killed);
    assert!(report.has_loss(), "{report:?}");
    check(&killed, &before, &report, "swapped");
}
