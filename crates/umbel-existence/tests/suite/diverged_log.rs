//! Filters whose files are of another history than the user's log.

use std::path::Path;

use umbel_existence::{Coverage, ExistenceFilter};
use umbel_sim::Sim;

use super::fixture::{denied, insert, keys, machine, open, small};
use umbel_testing::existence_script::FOLDER;
use umbel_testing::existence_script::memory_hash_source::{Keys, settle};

fn of(position: u64, history: u64) -> Coverage {
    Coverage { position, history }
}

/// Opens the filter for a log that has these histories, and returns it with its coverage.
fn opened(sim: &Sim, log: &[Coverage]) -> (ExistenceFilter, Coverage) {
    let coverage = std::cell::Cell::new(Coverage::default());
    let is_ours = |covered: Coverage| {
        coverage.set(covered);
        log.contains(&covered)
    };
    let folder = Path::new(FOLDER);
    let opened = ExistenceFilter::open_checked(&sim.env(), folder, small(), &is_ours).unwrap();
    (opened, coverage.get())
}

/// Story: two copies of a store diverged. Each flushed its filter to the same position, and the
/// files of one replaced those of the other. The filter denied keys of that store.
#[test]
fn filter_of_another_history_is_rebuilt() {
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
        let (filter, coverage) = opened(&sim.clone_disk(), &[of(200, 8)]);
        assert_eq!((filter.covered(), filter.stats().lost, coverage), (200, None, of(200, 8)));
        assert_eq!(denied(&filter, 0..200), 0);
        // The log of the other copy has these positions, too.
        let (filter, coverage) = opened(&sim, &[of(100, 7), of(200, 9)]);
        assert_eq!((filter.covered(), coverage), (0, of(200, 8)), "by journal: {by_journal}");
        assert!(filter.stats().lost.unwrap().contains("another history"));
        assert_eq!(denied(&filter, 5000..5200), 0, "it denies nothing");
        settle(&filter, &keys(5000..5200)).unwrap();
        assert_eq!(denied(&filter, 5000..5200), 0);
        filter.flush(of(200, 9)).unwrap();
        drop(filter);
        let (filter, coverage) = opened(&sim, &[of(100, 7), of(200, 9)]);
        assert_eq!((filter.stats().lost, coverage), (None, of(200, 9)));
        assert_eq!(denied(&filter, 5000..5200), 0);
    }
}

/// The known history survives generations during flushes, and flushes that reach no
/// further position.
#[test]
fn every_write_keeps_the_history() {
    let sim = machine();
    let filter = open(&sim, small()).unwrap();
    settle(&filter, &Keys::default()).unwrap();
    filter.flush(100).unwrap();
    let coverage = |sim: &Sim| opened(sim, &[]).1;
    assert_eq!(coverage(&sim.clone_disk()), of(100, 0));
    filter.flush(of(100, 7)).unwrap();
    assert_eq!(coverage(&sim.clone_disk()), of(100, 7));
    filter.flush(50).unwrap();
    filter.checkpoint(of(60, 3)).unwrap();
    assert_eq!(coverage(&sim.clone_disk()), of(100, 7));
    insert(&filter, 0..400);
    filter.flush(of(200, 8)).unwrap();
    filter.rebuild();
    settle(&filter, &keys(0..400)).unwrap();
    assert_eq!(coverage(&sim.clone_disk()), of(200, 8));
    filter.truncate(of(120, 7)).unwrap();
    assert_eq!(coverage(&sim), of(120, 7));
}
