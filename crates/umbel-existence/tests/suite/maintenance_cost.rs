//! Cost of maintenance for callers that wait for it, and descriptions of a filter by its files.

use std::path::Path;

use umbel_existence::{
    ExistenceFilter, ExistenceOptions, ExistenceSize, ExistenceStats, StepProgress,
};
use umbel_sim::{Fault, FaultKind, Sim, Survival};

use super::fixture::{denied, insert, keys, machine, open, small, stocked};
use umbel_testing::existence_script::FOLDER;
use umbel_testing::existence_script::file_damage::files;
use umbel_testing::existence_script::memory_hash_source::{Keys, settle};

/// Story: the first flush of a filter wrote all of it, and so did the one after a failed sync, on
/// the thread that was to free a memtable.
#[test]
fn brief_flush_leaves_the_checkpoint_to_steps() {
    let sim = machine();
    let options = ExistenceOptions { size: ExistenceSize::Fixed { bytes: 1 << 16 }, ..small() };
    let filter = open(&sim, options).unwrap();
    insert(&filter, 0..100);
    assert!(!filter.flush_journal_only(100).unwrap());
    let stats = filter.stats();
    assert_eq!((stats.bytes_written, stats.covered, stats.lag_items), (0, 0, 100));
    let step_bytes_max = 3 * 4096;
    let mut written = 0;
    while filter.step(&keys(0..100)).unwrap() == StepProgress::More {
        let now = filter.stats().bytes_written;
        assert!(now - written <= step_bytes_max, "{} bytes in one step", now - written);
        written = now;
    }
    assert!(filter.flush_journal_only(100).unwrap());
    assert_eq!((filter.covered(), filter.lag_items()), (100, 0));
    // A journal whose sync failed is not continued: the same again.
    sim.fail_site("sync *.journal", 1, Fault { kind: FaultKind::Eio, sticky: false });
    insert(&filter, 100..150);
    filter.flush_journal_only(150).unwrap_err();
    insert(&filter, 150..160);
    assert!(!filter.flush_journal_only(160).unwrap());
    assert_eq!((filter.covered(), filter.lag_items()), (100, 60));
    settle(&filter, &keys(0..160)).unwrap();
    assert!(filter.flush_journal_only(160).unwrap());
    let again = open(&sim.crash_image(&Survival::None, 1), options).unwrap();
    assert_eq!((again.covered(), again.stats().lost), (160, None));
    settle(&again, &keys(0..160)).unwrap();
    assert_eq!(denied(&again, 0..160), 0);
    let none = open(&machine(), off()).unwrap();
    assert!(none.flush_journal_only(1).unwrap() && none.load().is_none());
}

fn off() -> ExistenceOptions {
    ExistenceOptions { size: ExistenceSize::Off, ..small() }
}

/// Story: hashes inserted during a repair of damaged lines were kept until the end of the walk, and
/// counted nowhere.
#[test]
fn healing_memory_is_counted_and_bounded() {
    let options = ExistenceOptions { size: ExistenceSize::Fixed { bytes: 16_384 }, ..small() };
    let sim = stocked(options);
    let path = files(&sim).into_iter().find(|path| path.ends_with("000004.filter")).unwrap();
    sim.zero_sector(&path, 4096);
    let filter = open(&sim, options).unwrap();
    let source = keys(0..5000);
    let heals = |filter: &ExistenceFilter| filter.stats().damaged_lines > 0;
    while !heals(&filter) {
        assert_eq!(filter.step(&source).unwrap(), StepProgress::More);
    }
    let memory_max = filter.memory_bytes();
    assert!(memory_max > 16_384 + 8 * 64, "{memory_max}");
    let (mut count, mut steps, mut counted) = (300, 0, 0);
    while heals(&filter) {
        let before = filter.memory_bytes();
        insert(&filter, count..count + 100);
        // Once for the journal, and once for the lines.
        counted += u64::from(filter.memory_bytes() - before == 2 * 8 * 100);
        count += 100;
        assert_eq!(filter.step(&source).unwrap(), StepProgress::More);
        assert!(filter.flush_journal_only(count).unwrap());
        // Steps that write a new generation leave it to the next ones.
        assert!(filter.memory_bytes() <= memory_max + 16_000, "{}", filter.memory_bytes());
        steps += 1;
    }
    assert!(steps > 50 && counted > 50, "{steps} steps, {counted} counted");
    assert_eq!(denied(&filter, 0..300), 0);
    assert_eq!(denied(&filter, 300..count), 0);
    settle(&filter, &source).unwrap();
    assert_eq!((filter.memory_bytes(), filter.stats().healed_lines), (16_384, 8));
}

fn described(sim: &Sim, options: ExistenceOptions) -> ExistenceStats {
    let before: Vec<_> = sim.files();
    let stats =
        ExistenceFilter::describe(&sim.env(), Path::new(FOLDER), &options, &|_| true).unwrap();
    assert_eq!(sim.files(), before);
    stats
}

#[test]
fn inspection_matches_open_and_changes_no_file() {
    let growing = ExistenceOptions { size: ExistenceSize::Growing { first_keys: 100 }, ..small() };
    for options in [small(), growing] {
        let sim = stocked(options);
        let description = described(&sim, options);
        let filter = open(&sim, options).unwrap();
        let found = filter.stats();
        assert_eq!((description.covered, description.lost.clone()), (300, None));
        assert_eq!(description.state(), found.state(), "{description:?}");
        assert_eq!(description.memory_bytes, found.memory_bytes);
        assert_eq!(description.designed_items, found.designed_items);
        assert_eq!(description.designed_rate, found.designed_rate);
        settle(&filter, &keys(0..300)).unwrap();
        let found = filter.stats();
        assert!(
            description.items.abs_diff(300) <= 3 && found.items.abs_diff(300) <= 3,
            "{description:?}"
        );
    }
    let sim = stocked(small());
    let (description, filter) = (described(&sim, small()), open(&sim, small()).unwrap());
    settle(&filter, &keys(0..300)).unwrap();
    let found = filter.stats();
    assert!(
        (description.fill - found.fill).abs() < 0.02,
        "{} and {}",
        description.fill,
        found.fill
    );
    assert!(
        (description.estimated_rate - found.estimated_rate).abs() < 0.002,
        "{description:?} {found:?}"
    );
}

#[test]
fn inspection_names_the_rebuild_reason() {
    let nothing = described(&machine(), small());
    assert_eq!(nothing.lost.as_deref(), Some("it has no files yet"));
    assert_eq!((nothing.state(), nothing.items), ("being made", 0));
    assert_eq!(described(&machine(), off()).state(), "off");
    let sim = stocked(small());
    let lost = |options: ExistenceOptions| described(&sim, options).lost.unwrap();
    let other = ExistenceOptions { hash: 9, ..small() };
    assert!(lost(other).contains("another hash"));
    let later = ExistenceOptions { covered_min: 301, ..small() };
    assert!(lost(later).contains("it covers the log up to 300"));
    let path = files(&sim).into_iter().find(|path| path.ends_with("000004.filter")).unwrap();
    sim.remove(&path);
    assert!(lost(small()).contains("is missing"));
    let checkpoint = files(&sim).into_iter().find(|path| path.ends_with("CHECKPOINT")).unwrap();
    sim.flip(&checkpoint, 20, 1);
    assert!(lost(small()).contains("checksum"));
}

/// During growth the description names both filters, with the counts of the second one.
#[test]
fn inspection_reports_growth() {
    let options = ExistenceOptions { size: ExistenceSize::Growing { first_keys: 300 }, ..small() };
    let sim = machine();
    let filter = open(&sim, options).unwrap();
    settle(&filter, &Keys::default()).unwrap();
    insert(&filter, 0..400);
    let source = keys(0..400);
    while !filter.stats().is_filling {
        assert_eq!(filter.step(&source).unwrap(), StepProgress::More);
    }
    assert_eq!(filter.stats().state(), "growing");
    assert!(filter.load().is_none());
    filter.checkpoint(400).unwrap();
    let description = described(&sim.kill_image(), options);
    assert_eq!((description.state(), description.covered), ("growing", 400));
    assert_eq!((description.designed_items, description.is_filling), (300, true));
    assert!(description.designed_items_next > Some(300), "{description:?}");
    settle(&filter, &source).unwrap();
    let (items, designed) = filter.load().unwrap();
    assert!(items.abs_diff(400) < 5 && designed >= 600, "{items} of {designed}");
    filter.rebuild();
    while !filter.stats().is_filling {
        assert_eq!(filter.step(&source).unwrap(), StepProgress::More);
    }
    assert_eq!(filter.stats().state(), "rebuilding");
}
