//! Repairs of stores into which somebody put what is another store's, or what nobody expects.

use std::path::{Path, PathBuf};

use umbel_base::checksum::checksum;
use umbel_sim::Sim;

use super::repairs::{FOLDER, check, chunk, fix, specimen};

const MARKER: &str = "/events/REPAIR";

/// The files below a folder with their bytes.
fn files(sim: &Sim, folder: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let files = sim.files();
    let files = files.iter().filter(|path| path.starts_with(folder));
    files.map(|path| (path.clone(), sim.read(path))).collect()
}

fn put(sim: &Sim, path: impl AsRef<Path>, bytes: &[u8]) {
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
    // Behind the magic and the version; the generation is a number of one byte here.
    let (own, generation) = (checksum(0, 0, &table[9..25]), u64::from(table[25]));
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
