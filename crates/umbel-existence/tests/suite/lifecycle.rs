//! Lifecycle of the filter: creation, growth, resize, rebuild, removal.

use std::path::Path;

use umbel_base::Error;
use umbel_existence::{ExistenceFilter, ExistenceOptions, ExistenceSize, HashSource, StepProgress};
use umbel_sim::Survival;

use super::fixture::{denied, insert, keys, machine, open, small, stocked};
use umbel_testing::existence_script::FOLDER;
use umbel_testing::existence_script::file_damage::files;
use umbel_testing::existence_script::memory_hash_source::{Keys, hash_of, settle};

#[test]
fn filter_answers_maybe_until_the_rebuild_ends() {
    let sim = machine();
    let filter = open(&sim, small()).unwrap();
    assert_eq!((filter.covered(), denied(&filter, 0..100)), (0, 0));
    let stats = filter.stats();
    assert!(stats.is_on && !stats.is_answering && stats.is_filling && stats.lost.is_some());
    assert_eq!(stats.estimated_rate, 1.0);
    settle(&filter, &keys(0..500)).unwrap();
    assert_eq!(denied(&filter, 0..500), 0);
    assert_eq!(denied(&filter, 500..1000), 500);
    let stats = filter.stats();
    assert!(stats.is_answering && !stats.is_filling);
    assert_eq!((stats.items, stats.rebuilds, stats.growths), (500, 1, 0));
}

/// Story: a filter that is off removes its files, and one without a folder looked for them in the
/// current one.
#[test]
fn empty_path_is_refused_for_every_size() {
    let sim = machine();
    for size in [ExistenceSize::Off, ExistenceSize::Fixed { bytes: 8192 }] {
        let options = ExistenceOptions { size, ..small() };
        let error = ExistenceFilter::open(&sim.env(), Path::new(""), options).unwrap_err();
        assert!(matches!(error, Error::Invalid(_)), "{error:?}");
        assert!(error.to_string().contains("the path of the existence filter is empty"), "{error}");
    }
}

#[test]
fn new_filter_is_sized_by_the_source_estimate() {
    let sim = machine();
    let filter = open(&sim, small()).unwrap();
    insert(&filter, 4_990..5_000);
    settle(&filter, &keys(0..5_000)).unwrap();
    let stats = filter.stats();
    assert_eq!((stats.designed_items, stats.growths), (8_000, 0));
    assert_eq!(denied(&filter, 0..5_000), 0);
}

#[test]
fn flushed_keys_survive_power_loss() {
    let sim = stocked(small());
    let large = ExistenceOptions { step_bytes: 1 << 20, ..small() };
    let again = open(&sim.crash_image(&Survival::None, 1), large).unwrap();
    assert_eq!(again.covered(), 300);
    assert_eq!(again.stats().unread_pages, 1, "no page is read at the open");
    assert_eq!(denied(&again, 300..400), 100);
    assert_eq!(denied(&again, 0..300), 0);
    assert_eq!(again.stats().unread_pages, 0);
    assert_eq!(again.stats().lost, None);
}

#[test]
fn long_journal_is_replayed_on_request_in_steps() {
    let sim = stocked(small());
    // A hundred hashes in the journal, more than are added at once.
    let filter = open(&sim, small()).unwrap();
    let items = filter.stats().items;
    assert_eq!((denied(&filter, 200..201), denied(&filter, 400..401)), (0, 1));
    let items_added = filter.stats().items;
    assert!(items_added < 300, "one key adds its own part only: {items}, then {items_added}");
    assert_eq!((denied(&filter, 0..300), denied(&filter, 400..500)), (0, 100));
    filter.insert(hash_of(300));
    drop(filter);
    let filter = open(&sim, small()).unwrap();
    let mut steps = 0;
    while filter.stats().items < 300 {
        filter.insert(hash_of(150));
        filter.step(&keys(0..300)).unwrap();
        steps += 1;
    }
    assert_eq!(steps, 3, "64 a step, then the page that counts them");
    assert_eq!((denied(&filter, 0..300), denied(&filter, 400..500)), (0, 100));
    drop(filter);
    // A generation begun at once waits for them.
    let filter = open(&sim, small()).unwrap();
    filter.checkpoint(300).unwrap();
    let again = open(&sim.crash_image(&Survival::None, 1), small()).unwrap();
    assert_eq!((denied(&again, 0..300), denied(&again, 400..500)), (0, 100));
}

#[test]
fn reader_sees_every_filter_change() {
    let sim = machine();
    let options = ExistenceOptions { size: ExistenceSize::Growing { first_keys: 50 }, ..small() };
    let filter = open(&sim, options).unwrap();
    let mut reader = filter.reader();
    assert!(reader.may_contain(hash_of(1 << 40)));
    settle(&filter, &Keys::default()).unwrap();
    for number in 0..500 {
        assert!(!reader.may_contain(hash_of(number)), "{number}");
        filter.insert(hash_of(number));
        assert!(reader.may_contain(hash_of(number)), "{number}");
        filter.step(&keys(0..number + 1)).unwrap();
        assert!(reader.may_contain(hash_of(number)), "{number}");
    }
    assert!(filter.stats().growths > 2);
    let off = open(&sim, ExistenceOptions { size: ExistenceSize::Off, ..small() }).unwrap();
    assert!(off.reader().may_contain(7));
}

#[test]
fn growth_continues_after_restart() {
    let sim = machine();
    let options =
        ExistenceOptions { size: ExistenceSize::Growing { first_keys: 2_000 }, ..small() };
    let mut filter = open(&sim, options).unwrap();
    settle(&filter, &Keys::default()).unwrap();
    let (mut growths, mut restarts) = (0, 0);
    for round in 1..=60u64 {
        insert(&filter, (round - 1) * 1000..round * 1000);
        filter.flush(round * 1000).unwrap();
        // A few steps only, so that restarts meet it half way.
        for _ in 0..25 {
            filter.step(&keys(0..round * 1000)).unwrap();
        }
        if round % 7 == 0 {
            growths += filter.stats().growths;
            restarts += u64::from(filter.stats().is_filling);
            drop(filter);
            filter = open(&sim, options).unwrap();
            assert_eq!(filter.covered(), round * 1000);
        }
        assert_eq!(denied(&filter, 0..round * 1000), 0, "round {round}");
    }
    settle(&filter, &keys(0..60_000)).unwrap();
    assert!(growths + filter.stats().growths >= 3 && restarts >= 2, "{growths} {restarts}");
    let stats = filter.stats();
    assert!(stats.designed_items > 60_000, "{stats:?}");
    assert!(stats.estimated_rate < stats.designed_rate * 1.2, "{stats:?}");
}

/// A filter that grows at 65,536 keys, and the keys that it was given.
struct Grown {
    filter: ExistenceFilter,
    source: Keys,
    count: u64,
}

impl Grown {
    fn begin() -> Grown {
        let size = ExistenceSize::Growing { first_keys: 1 << 16 };
        let options = ExistenceOptions { size, step_bytes: 1 << 16, ..small() };
        let (filter, source) = (open(&machine(), options).unwrap(), Keys::default());
        settle(&filter, &source).unwrap();
        Grown { filter, source, count: 0 }
    }

    /// Inserts `more` keys. Returns the total number.
    fn add(&mut self, more: u64) -> u64 {
        let added = self.count..self.count + more;
        added.clone().for_each(|number| self.source.put(hash_of(number)));
        insert(&self.filter, added);
        self.count += more;
        self.count
    }

    /// Steps while there is more to do. Returns the number of steps and the result of the last.
    fn go(&self) -> (u64, StepProgress) {
        let mut steps = (0..).map(|done| (done, self.filter.step(&self.source).unwrap()));
        steps.find(|(_, progress)| *progress != StepProgress::More).unwrap()
    }
}

#[test]
fn growth_keeps_pace_with_inserts() {
    let mut grown = Grown::begin();
    grown.add(65_400);
    assert!(!grown.filter.wants_step());
    assert_eq!(grown.go(), (0, StepProgress::Idle));
    while !grown.filter.wants_step() {
        assert!(grown.add(1) < 65_536 + 1_000);
    }
    // It begins, takes a thousand hashes, and is ahead of inserts, of which there were none.
    assert_eq!(grown.go(), (1, StepProgress::Ahead));
    assert!(!grown.filter.wants_step());
    grown.add(100);
    assert!(!grown.filter.wants_step(), "it is ahead of a hundred, too");
    grown.add(8092);
    assert!(grown.filter.wants_step());
    let (steps, progress) = grown.go();
    assert_eq!(progress, StepProgress::Ahead);
    assert!((30..=40).contains(&steps), "half of 72 steps, as of the room: {steps}");
    assert!(grown.filter.stats().is_filling);
    grown.add(8192 + 2048);
    assert_eq!(grown.go().1, StepProgress::Idle);
    let stats = grown.filter.stats();
    assert_eq!((stats.is_filling, stats.growths, stats.designed_items), (false, 1, 1 << 17));
    assert_eq!(denied(&grown.filter, 0..grown.count), 0);
    assert!(denied(&grown.filter, grown.count..grown.count + 1000) > 980);
}

/// Story: where a filter began to grow while its store compacted, appends had neither processor and
/// were slower than without a filter.
#[test]
fn growth_yields_while_there_is_time() {
    let mut grown = Grown::begin();
    while !grown.filter.wants_step() {
        grown.add(1);
    }
    grown.source.be_busy(true);
    // It begins, and takes nothing.
    assert_eq!(grown.go(), (1, StepProgress::Yielded));
    for _ in 0..3 {
        grown.add(4000);
        assert!(!grown.filter.wants_step(), "it looks again after 4,096");
        grown.add(96);
        assert!(grown.filter.wants_step());
        assert_eq!(grown.go(), (0, StepProgress::Yielded));
    }
    // Without other work it catches up: 12,288 inserts are three quarters of the room.
    grown.source.be_busy(false);
    let (steps, progress) = grown.go();
    assert_eq!(progress, StepProgress::Ahead);
    assert!((50..=58).contains(&steps), "of 72 steps: {steps}");
    // With work that does not end it is done after twice as many inserts.
    grown.source.be_busy(true);
    while grown.add(4096) < (1 << 16) + (1 << 15) {
        grown.go();
        assert!(grown.filter.stats().is_filling, "{}", grown.count);
    }
    while grown.filter.stats().is_filling {
        assert!(grown.add(1) < (1 << 16) + (1 << 15) + 4096);
        grown.go();
    }
    assert_eq!((grown.filter.stats().growths, denied(&grown.filter, 0..grown.count)), (1, 0));
    // A rebuild does not wait for inserts. It is the second one: at first there was no filter.
    grown.filter.rebuild();
    assert_eq!(grown.go().1, StepProgress::Idle);
    assert_eq!((grown.filter.stats().rebuilds, denied(&grown.filter, 0..grown.count)), (2, 0));
}

/// Story: the walk measured its pace by inserts. With other work that never ended, and without
/// inserts, it never completed.
#[test]
fn growth_yields_for_limited_time_without_inserts() {
    let mut grown = Grown::begin();
    while !grown.filter.wants_step() {
        grown.add(1);
    }
    grown.source.be_busy(true);
    let mut steps = 0;
    while steps == 0 || grown.filter.stats().is_filling {
        grown.go();
        steps += 1;
        assert!(steps < 100_000, "it never ends");
    }
    assert!(steps > 500, "it made way: {steps}");
    assert_eq!(denied(&grown.filter, 0..grown.count), 0);
}

#[test]
fn growth_ends_by_steps_without_inserts() {
    let size = ExistenceSize::Growing { first_keys: 1 << 12 };
    let filter = open(&machine(), ExistenceOptions { size, ..small() }).unwrap();
    settle(&filter, &Keys::default()).unwrap();
    insert(&filter, 0..4500);
    settle(&filter, &keys(0..4500)).unwrap();
    assert_eq!((filter.stats().designed_items, filter.stats().is_filling), (1 << 13, false));
    // A requested rebuild does not wait for inserts either.
    insert(&filter, 4500..9000);
    let source = keys(0..9000);
    while filter.step(&source).unwrap() != StepProgress::Ahead {}
    filter.rebuild();
    assert_eq!(filter.step(&source).unwrap(), StepProgress::More);
    while filter.step(&source).unwrap() == StepProgress::More {}
    let stats = filter.stats();
    assert_eq!((stats.growths, stats.rebuilds, stats.is_filling), (2, 2, false));
    assert_eq!(denied(&filter, 0..9000), 0);
}

#[test]
fn resize_completes_while_the_old_filter_answers() {
    let mut sim = stocked(small());
    let sizes = [
        ExistenceSize::Fixed { bytes: 8192 },
        ExistenceSize::Fixed { bytes: 40_960 },
        ExistenceSize::Growing { first_keys: 4_000 },
        ExistenceSize::Growing { first_keys: 100 },
    ];
    for (size, bytes) in sizes.into_iter().zip([8192, 40_960, 8192, 8192]) {
        let options = ExistenceOptions { size, step_bytes: 1 << 20, ..small() };
        let filter = open(&sim, options).unwrap();
        assert_eq!((filter.covered(), denied(&filter, 400..500)), (300, 100), "{size:?}");
        while filter.step(&keys(0..300)).unwrap() == StepProgress::More {
            assert_eq!(denied(&filter, 0..300), 0, "{size:?}");
        }
        assert_eq!(filter.stats().memory_bytes, bytes, "{size:?}");
        assert_eq!((denied(&filter, 0..300), denied(&filter, 400..500)), (0, 100), "{size:?}");
        drop(filter);
        sim = sim.crash_image(&Survival::None, 1);
    }
}

#[test]
fn other_hash_or_store_is_a_full_rebuild() {
    for options in
        [ExistenceOptions { hash: 4, ..small() }, ExistenceOptions { store: 9, ..small() }]
    {
        let sim = stocked(small());
        let filter = open(&sim, options).unwrap();
        assert_eq!((filter.covered(), denied(&filter, 0..1000)), (0, 0));
        // Other hashes of the same keys.
        settle(&filter, &keys(1000..1300)).unwrap();
        assert_eq!((denied(&filter, 1000..1300), denied(&filter, 0..300)), (0, 300));
        drop(filter);
        assert_eq!(open(&sim, options).unwrap().stats().lost, None);
    }
}

#[test]
fn wrong_coverage_is_a_full_rebuild() {
    let covers = open(&stocked(small()), small()).unwrap().covered();
    for (covered_min, covered_max) in [(covers, covers), (0, u64::MAX)] {
        let options = ExistenceOptions { covered_min, covered_max, ..small() };
        assert_eq!(open(&stocked(small()), options).unwrap().stats().lost, None);
    }
    for (covered_min, covered_max) in [(covers + 1, u64::MAX), (0, covers - 1), (u64::MAX, 0)] {
        let sim = stocked(small());
        let options = ExistenceOptions { covered_min, covered_max, ..small() };
        let filter = open(&sim, options).unwrap();
        assert_eq!((filter.covered(), denied(&filter, 0..1000)), (0, 0));
        assert!(filter.stats().lost.unwrap().contains("covers the log up to"));
        settle(&filter, &keys(0..300)).unwrap();
        assert_eq!(denied(&filter, 0..300), 0);
        assert_eq!(filter.lag_items(), 0);
        assert_eq!(filter.memory_bytes(), filter.stats().memory_bytes);
    }
}

#[test]
fn rebuild_drops_deleted_keys() {
    let sim = stocked(small());
    let filter = open(&sim, small()).unwrap();
    let left = keys(100..300);
    settle(&filter, &left).unwrap();
    assert_eq!(denied(&filter, 0..100), 0);
    filter.rebuild();
    filter.step(&left).unwrap();
    // Keys inserted meanwhile stay, wherever the walk is.
    left.put(hash_of(300));
    filter.insert(hash_of(300));
    settle(&filter, &left).unwrap();
    assert_eq!((denied(&filter, 0..100), denied(&filter, 100..301)), (100, 0));
    assert_eq!(filter.stats().rebuilds, 1);
}

#[test]
fn disabled_filter_removes_only_its_files() {
    let sim = stocked(small());
    let strange = Path::new(FOLDER).join("000009.filter");
    let other = Path::new(FOLDER).join("notes.txt");
    for path in [&strange, &other] {
        sim.env().files.create(path).unwrap();
        sim.replace(path, b"of another user");
    }
    let off = ExistenceOptions { size: ExistenceSize::Off, ..small() };
    let filter = open(&sim, off).unwrap();
    assert_eq!(files(&sim), [strange, other]);
    assert_eq!((filter.covered(), denied(&filter, 0..1000)), (u64::MAX, 0));
    filter.insert(1);
    filter.flush(5).unwrap();
    filter.checkpoint(5).unwrap();
    filter.truncate(0).unwrap();
    filter.rebuild();
    filter.note_false_positive();
    assert_eq!(filter.step(&Keys::default()).unwrap(), StepProgress::Idle);
    assert!(!filter.stats().is_on);
    let mut answers = [false; 3];
    filter.may_contain_batch(&[1, 2, 3], &mut answers);
    assert_eq!(answers, [true; 3]);
    // Without a folder there is nothing to do.
    ExistenceFilter::open(&sim.env(), Path::new("/store/none"), off).unwrap();
    assert!(!sim.env().files.exists(Path::new("/store/none")).unwrap());
}

#[test]
fn truncated_log_revokes_the_coverage() {
    let sim = stocked(small());
    let filter = open(&sim, small()).unwrap();
    assert_eq!(filter.covered(), 300);
    filter.truncate(400).unwrap();
    assert_eq!(filter.covered(), 300);
    filter.truncate(220).unwrap();
    assert_eq!(filter.covered(), 220);
    let crashed = sim.crash_image(&Survival::None, 1);
    // New keys at the positions 221 to 300, inserted and not flushed.
    let again = open(&crashed, small()).unwrap();
    assert_eq!(again.covered(), 220);
    insert(&again, 1000..1080);
    drop(again);
    assert_eq!(open(&crashed, small()).unwrap().covered(), 220);
}

#[test]
fn stats_match_the_filter() {
    let sim = machine();
    let filter = open(&sim, small()).unwrap();
    settle(&filter, &Keys::default()).unwrap();
    insert(&filter, 0..70);
    assert_eq!(filter.stats().lag_items, 70);
    let before = filter.stats();
    filter.flush(70).unwrap();
    let stats = filter.stats();
    assert_eq!((stats.lag_items, stats.covered, stats.items), (0, 70, 70));
    assert_eq!(stats.flushes, before.flushes + 1);
    assert_eq!(stats.bytes_written, before.bytes_written + 24 + 70 * 8);
    filter.flush(70).unwrap();
    assert_eq!(filter.stats().bytes_written, stats.bytes_written, "there is nothing to write");
    assert_eq!(denied(&filter, 0..70) + denied(&filter, 70..100), 30);
    filter.note_false_positive();
    let stats = filter.stats();
    assert_eq!((stats.denied, stats.maybe, stats.false_positives), (30, 70, 1));
    assert_eq!(stats.measured_rate, Some(1.0 / 31.0));
    assert!(stats.fill > 0.0 && stats.estimated_rate > 0.0 && stats.designed_rate < 0.01);
}

#[test]
fn options_out_of_range_are_named() {
    let sim = machine();
    for (size, step_bytes, says) in [
        (ExistenceSize::Fixed { bytes: 4095 }, 4096, "4095"),
        (ExistenceSize::Fixed { bytes: u64::MAX }, 4096, "must be 4096"),
        (ExistenceSize::Growing { first_keys: 0 }, 4096, "0 keys"),
        (ExistenceSize::Growing { first_keys: u64::MAX }, 4096, "choose fewer keys"),
        (ExistenceSize::Fixed { bytes: 4096 }, 4095, "step_bytes is 4095"),
    ] {
        let refused = open(&sim, ExistenceOptions { size, step_bytes, ..small() });
        let Err(Error::Invalid(message)) = refused else { panic!("{size:?} was taken") };
        assert!(message.contains(says), "{message}");
    }
}

/// A source whose cursor is too long, and one that fails.
struct Bad(bool);

impl HashSource for Bad {
    fn hashes(
        &self,
        _after: Option<&[u8]>,
        _most: usize,
        _output: &mut Vec<u64>,
    ) -> umbel_base::Result<Option<Vec<u8>>> {
        if self.0 { Ok(Some(vec![0; 65_537])) } else { Err(Error::Closed) }
    }
}

#[test]
fn source_error_is_returned_and_changes_nothing() {
    let sim = machine();
    let filter = open(&sim, small()).unwrap();
    insert(&filter, 0..10);
    assert!(matches!(filter.step(&Bad(true)), Err(Error::Invalid(_))));
    assert!(matches!(filter.step(&Bad(false)), Err(Error::Closed)));
    assert_eq!(denied(&filter, 0..100), 0);
    settle(&filter, &keys(0..10)).unwrap();
    assert_eq!((denied(&filter, 0..10), denied(&filter, 10..100)), (0, 90));
}

/// Story: a restored store was stopped and started. Its journal repeated every hash of the filter
/// file, and these were inserted before their pages were read: 2,339 streams counted 4,671.
#[test]
fn hash_inserted_before_its_page_is_read_counts_once() {
    let options =
        ExistenceOptions { size: ExistenceSize::Growing { first_keys: 20_000 }, ..small() };
    let sim = machine();
    let filter = open(&sim, options).unwrap();
    settle(&filter, &Keys::default()).unwrap();
    insert(&filter, 0..10_000);
    filter.checkpoint(10_000).unwrap();
    // The same keys once more, as a replay of a log does, and a hundred new ones.
    insert(&filter, 0..10_100);
    filter.flush(10_100).unwrap();
    let items = filter.stats().items;
    assert!(items.abs_diff(10_100) < 10, "{items}");
    drop(filter);
    for (step_bytes, what) in [(4096, "deferred"), (1 << 20, "added at the open")] {
        let options = ExistenceOptions { step_bytes, ..options };
        let filter = open(&sim, options).unwrap();
        assert!(filter.stats().unread_pages > 1, "{what}");
        // Before its page is read, in its page, and twice.
        insert(&filter, 10_000..10_050);
        insert(&filter, 10_000..10_050);
        assert_eq!(denied(&filter, 0..300), 0, "{what}");
        insert(&filter, 10_100..10_200);
        let (items, designed) = filter.load().unwrap();
        assert!(items <= 10_200 && designed == 20_000, "{what}: {items} of {designed}");
        settle(&filter, &keys(0..10_200)).unwrap();
        let stats = filter.stats();
        assert!(stats.items.abs_diff(10_200) < 15, "{what}: {}", stats.items);
        assert_eq!((stats.growths, stats.unread_pages), (0, 0), "{what}");
        assert_eq!(denied(&filter, 0..10_200), 0, "{what}");
    }
}

/// Threads insert into pages while others read the same pages.
#[test]
fn concurrent_inserts_into_unread_pages_count_once() {
    let options =
        ExistenceOptions { size: ExistenceSize::Growing { first_keys: 40_000 }, ..small() };
    let sim = machine();
    let filter = open(&sim, options).unwrap();
    settle(&filter, &Keys::default()).unwrap();
    insert(&filter, 0..20_000);
    filter.checkpoint(20_000).unwrap();
    let items = filter.stats().items;
    drop(filter);
    for round in 0..10 {
        let filter = open(&sim, options).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| insert(&filter, 0..10_000));
            scope.spawn(|| insert(&filter, 10_000..20_000));
            scope.spawn(|| assert_eq!(denied(&filter, 0..20_000), 0, "round {round}"));
            scope.spawn(|| settle(&filter, &keys(0..20_000)).unwrap());
        });
        let stats = filter.stats();
        assert_eq!((stats.unread_pages, stats.items), (0, items), "round {round}");
    }
}
