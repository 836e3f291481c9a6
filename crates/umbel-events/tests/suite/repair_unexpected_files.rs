//! Repairs of stores into which somebody put what is another store's, or what nobody expects.

use std::path::{Path, PathBuf};

use umbel_base::checksum::checksum;
use umbel_events::{Expected, LostRange, Store, repair};
use umbel_sim::{Sim, When};

use super::repairs::{FOLDER, check, chunk, fill, fix, specimen, without_index};
use super::scavenging;
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

/// A whole store lost its index to a file `REPAIR` that came from another store, or that somebody
/// wrote: any that named an earlier table than the store's was believed.
#[test]
fn a_marker_of_another_store_or_another_time_moves_nothing() {
    let (sim, _) = specimen(50);
    let table = sim.read("/events/CHUNKS");
    // After the magic and the version; the generation, after the instance id, is one byte here.
    let (own, generation) = (checksum(0, 0, &table[9..25]), u64::from(table[41]));
    assert!((2..128).contains(&generation), "{generation}");
    let other = own ^ 1;
    for (generation, seed) in
        [(0, other), (generation - 1, other), (0, own), (generation, own), (u64::MAX, own)]
    {
        let what = format!("generation {generation}, own seed: {}", seed == own);
        let planted = sim.clone_disk();
        put(&planted, MARKER, format!("umbel repair 1 {generation} {seed} 1 1\n").as_bytes());
        let report = fix(&planted);
        assert!(report.is_whole() && report.folder.is_none(), "{what}: {report:?}");
        assert!(!planted.has(MARKER), "{what}");
        assert_eq!(files(&planted, FOLDER), files(&sim, FOLDER), "{what}");
    }
    let interrupted = sim.clone_disk();
    let line = format!("umbel repair 1 {} {own} 0 0\n", generation - 1);
    put(&interrupted, MARKER, line.as_bytes());
    assert!(fix(&interrupted).is_resumed, "the one that was going to publish this table is");
}

/// A folder `damaged-007` or a file `damaged-3` kept every repair from being done.
#[test]
fn whatever_has_the_name_of_a_folder_for_what_is_damaged_is_let_be() {
    let (sim, before) = specimen(51);
    sim.flip(chunk(1), 20_000, 1);
    sim.env().files.create_dir_all("/events/damaged-007".as_ref()).expect("made");
    put(&sim, "/events/damaged-3", b"notes");
    let report = fix(&sim);
    assert_eq!(report.folder.as_deref(), Some("damaged-4"));
    assert_eq!(sim.read("/events/damaged-3"), b"notes");
    check(&sim, &before, &report, "numbers that are taken");
}

/// A repair that was killed when its table was published, and whose marker was lost or removed: a
/// repair said that there is nothing to do, while the store could not be opened.
#[test]
fn a_repair_without_its_marker_is_brought_to_its_end() {
    let (sim, before) = specimen(52);
    sim.flip(chunk(1), 20_000, 1);
    sim.remove(chunk(3));
    let (calls, whole) = {
        let done = sim.clone_disk();
        let begun = done.calls();
        let report = fix(&done);
        (done.calls() - begun, report)
    };
    let mut found = 0;
    for call in 1..=calls {
        let killed = sim.clone_disk();
        killed.crash_at(killed.calls() + call, When::After);
        let _ = repair(&killed.env(), FOLDER.as_ref(), Default::default());
        let image = killed.kill_image();
        if !image.has(MARKER) {
            continue;
        }
        let is_published = image.read("/events/CHUNKS") != sim.read("/events/CHUNKS");
        image.remove(MARKER);
        without_index(&image);
        let folders = image.env().files;
        if folders.exists("/events/index".as_ref()).expect("looked for") {
            folders.remove_dir("/events/index".as_ref()).expect("removed");
        }
        let what = format!("call {call}, published: {is_published}");
        let report = fix(&image);
        found += u64::from(is_published && !report.is_whole());
        check(&image, &before, &whole, &what);
    }
    assert!(found > 0, "the damaged chunk was there yet, and told what was left to do");
}

/// An index that came from another store was believed: events were denied because it did not know
/// them, losses were named that never were, and where nothing else was damaged a repair said that
/// there is nothing to do.
#[test]
fn the_index_of_another_store_is_moved_aside() {
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
        let report = fix(&mixed);
        let reason = report.index.as_deref().unwrap_or_default();
        assert!(reason.contains("another store"), "{report:?}");
        assert_eq!(report.is_loss(), is_damaged, "{report}");
        assert!(report.bytes_lost() < 4_000, "{report}");
        assert!(mixed.has("/events/damaged-1/index/CURRENT"), "it is kept");
        check(&mixed, &before, &report, &format!("damaged: {is_damaged}"));
    }
}

/// A table that was older than a scavenge names files which that removed: a repair gave up all of
/// these chunks and moved the files aside that had taken their places.
#[test]
fn a_table_from_before_a_scavenge_costs_nothing() {
    let (sim, _) = specimen(56);
    let older = sim.read("/events/CHUNKS");
    let store = Store::open(FOLDER, options(&sim)).expect("opened");
    store.delete("cart-2", Expected::Any).expect("deleted");
    let done = store.scavenge(&scavenging::all()).expect("scavenged");
    assert!(done.chunks_packed > 2, "{done:?}");
    let before = all(&store);
    store.close().expect("closed");
    sim.replace("/events/CHUNKS", &older);
    for has_index in [true, false] {
        let mixed = sim.clone_disk();
        if !has_index {
            without_index(&mixed);
        }
        let report = fix(&mixed);
        assert!(report.table.as_ref().is_some_and(|t| t.contains("older copy")), "{report}");
        assert!(!report.is_loss(), "index: {has_index}: {report}");
        let after = all(&Store::open(FOLDER, options(&mixed)).expect("opened"));
        assert_eq!(after, before, "index: {has_index}");
    }
}

/// Without the table the room of a chunk was as long as its file: a file that had got longer pushed
/// the next chunk out, and all of its events were gone with exit code 0.
#[test]
fn a_chunk_whose_file_got_longer_does_not_push_the_next_one_out() {
    let (sim, before) = specimen(55);
    for (bytes, has_index) in [(0, true), (0, false), (0xa5, true), (0xa5, false)] {
        let what = format!("{bytes:#x}, index: {has_index}");
        let longer = sim.clone_disk();
        longer.remove("/events/CHUNKS");
        longer.extend(chunk(2), &vec![bytes; 100_000]);
        if !has_index {
            without_index(&longer);
        }
        let report = fix(&longer);
        assert!(report.strangers.is_empty() && !report.is_loss(), "{what}: {report}");
        check(&longer, &before, &report, &what);
        let after = all(&Store::open(FOLDER, options(&longer)).expect("opened"));
        assert_eq!(after.len(), before.len() + 1, "{what}");
    }
}

/// Of a packed chunk without its header the first event that could be read told where the chunk
/// began: what had stood before it was lost and stood in no range.
#[test]
fn what_stood_before_the_first_event_that_is_left_is_named() {
    let (sim, _) = specimen(57);
    let store = Store::open(FOLDER, options(&sim)).expect("opened");
    store.delete("cart-2", Expected::Any).expect("deleted");
    store.scavenge(&scavenging::all()).expect("scavenged");
    let before = all(&store);
    store.close().expect("closed");
    sim.remove("/events/CHUNKS");
    // Its header, and its first event.
    let packed = "/events/log/00000002-000001.chunk";
    sim.flip(packed, 30, 1);
    sim.flip(packed, 70, 1);
    let report = fix(&sim);
    let after = all(&Store::open(FOLDER, options(&sim)).expect("opened"));
    let lost: Vec<_> = before.iter().filter(|event| !after.contains(event)).collect();
    assert!((1..5).contains(&lost.len()), "{lost:?}");
    let ranges: Vec<_> = report.chunks.iter().flat_map(|chunk| &chunk.lost).collect();
    for event in lost {
        let is_in = |range: &&LostRange| (range.from.0..range.to.0).contains(&event.position);
        assert!(ranges.iter().copied().any(|range| is_in(&range)), "{event:?}: {report}");
    }
}

/// Two chunks of a store that was not closed were in each other's place, and the index was lost: no
/// event was saved, and yet nothing was said to be lost.
#[test]
fn chunks_in_the_wrong_place_are_a_loss() {
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
    let report = fix(&killed);
    assert!(report.is_loss(), "{report:?}");
    check(&killed, &before, &report, "swapped");
}
