//! Fixture of the tests: a machine, a small filter on it, and a check for false negatives.

use std::path::Path;

use umbel_base::Result;
use umbel_existence::{ExistenceFilter, ExistenceOptions, ExistenceSize};
use umbel_sim::Sim;

use umbel_testing::existence_script::FOLDER;
use umbel_testing::existence_script::memory_hash_source::{Keys, hash_of, settle};

/// Options of a filter of one page.
pub fn small() -> ExistenceOptions {
    ExistenceOptions {
        size: ExistenceSize::Growing { first_keys: 1000 },
        hash: 3,
        store: 8,
        step_bytes: 4096,
        ..ExistenceOptions::default()
    }
}

/// A machine with an empty disk.
pub fn machine() -> Sim {
    let sim = Sim::new(1);
    sim.env().files.create_dir_all(Path::new("/store")).unwrap();
    sim.env().files.sync_dir(Path::new("/")).unwrap();
    sim
}

/// Opens the filter.
pub fn open(sim: &Sim, options: ExistenceOptions) -> Result<ExistenceFilter> {
    ExistenceFilter::open(&sim.env(), Path::new(FOLDER), options)
}

/// A source of the keys with these numbers.
pub fn keys(numbers: std::ops::Range<u64>) -> Keys {
    Keys::of(numbers.map(hash_of))
}

/// Inserts the keys with these numbers.
pub fn insert(filter: &ExistenceFilter, numbers: std::ops::Range<u64>) {
    numbers.for_each(|number| filter.insert(hash_of(number)));
}

/// Number of keys with these numbers that the filter denies.
pub fn denied(filter: &ExistenceFilter, numbers: std::ops::Range<u64>) -> usize {
    numbers.filter(|number| !filter.may_contain(hash_of(*number))).count()
}

/// A machine with a settled filter: keys 0 to 200 in the filter file, 200 to 300 in the journal,
/// key `n` at position `n + 1`.
pub fn stocked(options: ExistenceOptions) -> Sim {
    let sim = machine();
    let filter = open(&sim, options).unwrap();
    settle(&filter, &Keys::default()).unwrap();
    insert(&filter, 0..200);
    filter.checkpoint(200).unwrap();
    insert(&filter, 200..250);
    filter.flush(250).unwrap();
    insert(&filter, 250..300);
    filter.flush(300).unwrap();
    sim
}

/// Opens the filter, inserts the keys 0 to `count` of a log again, and probes all of them; runs all
/// steps, and probes again.
pub fn assert_none_denied(sim: &Sim, options: ExistenceOptions, count: u64, what: &str) {
    // Large enough steps that the open itself adds the hashes of the journals: "maybe" proves
    // nothing.
    let options = ExistenceOptions { step_bytes: 1 << 17, ..options };
    let filter = open(sim, options).unwrap_or_else(|error| panic!("{what}: {error}"));
    let covered = filter.covered();
    assert!(covered <= count, "{what}: {covered} is covered");
    insert(&filter, covered..count);
    assert_eq!(denied(&filter, 0..count), 0, "{what}: {:?}", filter.stats());
    settle(&filter, &keys(0..count)).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(denied(&filter, 0..count), 0, "{what}, settled: {:?}", filter.stats());
    let stats = filter.stats();
    assert_eq!((stats.damaged_lines, stats.is_filling), (0, false), "{what}");
    assert!(denied(&filter, 1 << 40..(1 << 40) + 100) > 90, "{what}: it denies nothing any more");
}
