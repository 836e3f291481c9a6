//! Filters of which the files are of another history than the user's log.

use std::path::Path;

use umbel_existence::{Covered, ExistenceFilter};
use umbel_sim::Sim;

use super::history::FOLDER;
use super::keys::{Keys, settle};
use super::stage::{denied, insert, keys, machine, open, small};

fn of(position: u64, history: u64) -> Covered {
    Covered { position, history }
}

/// Opens the filter for a log that has these histories, and tells what it said that it covers.
fn opened(sim: &Sim, log: &[Covered]) -> (ExistenceFilter, Covered) {
    let asked = std::cell::Cell::new(Covered::default());
    let is_ours = |covered: Covered| {
        asked.set(covered);
        log.contains(&covered)
    };
    let folder = Path::new(FOLDER);
    let opened = ExistenceFilter::open_checked(&sim.env(), folder, small(), &is_ours).unwrap();
    (opened, asked.get())
}

/// Two copies of a store went on apart. Each flushed its filter to the same position, and the files
/// of one were put in the place of those of the other: its keys were denied.
#[test]
fn a_filter_of_another_history_is_made_anew() {
    for by_journal in [false, true] {
        let sim = machine();
        let filter = open(&sim, small()).unwrap();
        settle(&filter, &Keys::default()).unwrap();
        insert(&filter, 0..100);
        filter.checkpoint(of(100, 7)).unwrap();
        insert(&filter, 100..200);
        match by_journal {
            true => filter.flush(of(200, 8)).unwrap(),
            false => filter.checkpoint(of(200, 8)).unwrap(),
        }
        drop(filter);
        let (filter, asked) = opened(&sim.clone_disk(), &[of(200, 8)]);
        assert_eq!((filter.covered(), filter.stats().lost, asked), (200, None, of(200, 8)));
        assert_eq!(denied(&filter, 0..200), 0);
        // The log of the other copy has these positions, too.
        let (filter, asked) = opened(&sim, &[of(100, 7), of(200, 9)]);
        assert_eq!((filter.covered(), asked), (0, of(200, 8)), "by journal: {by_journal}");
        assert!(filter.stats().lost.unwrap().contains("another history"));
        assert_eq!(denied(&filter, 5000..5200), 0, "it denies nothing");
        settle(&filter, &keys(5000..5200)).unwrap();
        assert_eq!(denied(&filter, 5000..5200), 0);
        filter.flush(of(200, 9)).unwrap();
        drop(filter);
        let (filter, asked) = opened(&sim, &[of(100, 7), of(200, 9)]);
        assert_eq!((filter.stats().lost, asked), (None, of(200, 9)));
        assert_eq!(denied(&filter, 5000..5200), 0);
    }
}

/// What is known of the history stays through generations that go on beside flushes, and where a
/// flush comes to no further position.
#[test]
fn the_history_is_kept_by_whatever_is_written() {
    let sim = machine();
    let filter = open(&sim, small()).unwrap();
    settle(&filter, &Keys::default()).unwrap();
    filter.flush(100).unwrap();
    let asked = |sim: &Sim| opened(sim, &[]).1;
    assert_eq!(asked(&sim.clone_disk()), of(100, 0));
    filter.flush(of(100, 7)).unwrap();
    assert_eq!(asked(&sim.clone_disk()), of(100, 7));
    filter.flush(50).unwrap();
    filter.checkpoint(of(60, 3)).unwrap();
    assert_eq!(asked(&sim.clone_disk()), of(100, 7));
    insert(&filter, 0..400);
    filter.flush(of(200, 8)).unwrap();
    filter.rebuild();
    settle(&filter, &keys(0..400)).unwrap();
    assert_eq!(asked(&sim.clone_disk()), of(200, 8));
    filter.truncate(of(120, 7)).unwrap();
    assert_eq!(asked(&sim), of(120, 7));
}
