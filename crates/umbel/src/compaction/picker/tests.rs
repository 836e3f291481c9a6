//! Tests of picking on a model store that keeps every version, so that lost, duplicated or
//! misordered versions show.

use std::collections::BTreeMap;

use proptest::prelude::*;
use umbel_base::limits::LEVELS;

use super::*;
use crate::compaction::bottommost_picker::{
    BottommostPick, LAST_LEVEL, RewriteReason, pick_in_range,
};

/// Entries of a table: sequence numbers by key. A range tombstone is modelled as an entry of every
/// key in its range.
#[derive(Debug, Clone)]
struct Table {
    id: u64,
    items: BTreeMap<u8, Vec<u64>>,
    /// End of a range tombstone that ends the table.
    exclusive_end: Option<u8>,
    deletes: u64,
    busy: bool,
}

impl Table {
    fn entries(&self) -> u64 {
        self.items.values().map(|versions| versions.len() as u64).sum()
    }

    fn bounds(&self) -> (Vec<u8>, Vec<u8>) {
        let first = *self.items.first_key_value().unwrap().0;
        let last = *self.items.last_key_value().unwrap().0;
        (vec![first], vec![self.exclusive_end.unwrap_or(last)])
    }

    fn fact<'a>(&self, smallest: &'a [u8], largest: &'a [u8]) -> TableInfo<'a> {
        TableInfo {
            id: self.id,
            bytes: self.entries() * 50,
            entries: self.entries(),
            deletes: self.deletes,
            smallest,
            largest,
            largest_is_exclusive: self.exclusive_end.is_some(),
            sequence_min: 1,
            sequence_max: 1,
            retained_for: &[],
            busy: self.busy,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Flush {
    first: u8,
    step: u8,
    count: u8,
    is_range: bool,
    deletes: u8,
}

struct Store {
    levels: Vec<Vec<Table>>,
    running: Vec<Pick>,
    next_id: u64,
    next_sequence: u64,
    written: BTreeMap<u8, Vec<u64>>,
    options: PickOptions,
    cursors: Vec<Vec<u8>>,
}

impl Store {
    fn new(options: PickOptions) -> Store {
        Store {
            levels: vec![Vec::new(); LEVELS],
            running: Vec::new(),
            next_id: 1,
            next_sequence: 1,
            written: BTreeMap::new(),
            options,
            cursors: vec![Vec::new(); LEVELS],
        }
    }

    fn with_view<R>(&self, read: impl FnOnce(&PickerInput) -> R) -> R {
        let bounds: Vec<Vec<(Vec<u8>, Vec<u8>)>> =
            self.levels.iter().map(|level| level.iter().map(Table::bounds).collect()).collect();
        let mut levels = Vec::new();
        for (tables, bounds) in self.levels.iter().zip(&bounds) {
            let facts = tables.iter().zip(bounds);
            levels.push(facts.map(|(table, (a, b))| table.fact(a, b)).collect());
        }
        let cursors = self.cursors.iter().map(Vec::as_slice).collect();
        read(&PickerInput { levels, options: self.options, cursors })
    }

    fn flush(&mut self, flush: Flush) {
        let mut items = BTreeMap::new();
        let step = if flush.is_range { 1 } else { flush.step };
        for number in 0..flush.count {
            let key = flush.first.saturating_add(number.saturating_mul(step)).min(250);
            if let std::collections::btree_map::Entry::Vacant(slot) = items.entry(key) {
                slot.insert(vec![self.next_sequence]);
                self.written.entry(key).or_default().push(self.next_sequence);
                self.next_sequence += 1;
            }
        }
        let last = *items.last_key_value().unwrap().0;
        let table = Table {
            id: self.next_id,
            deletes: u64::from(flush.deletes).min(items.len() as u64),
            items,
            exclusive_end: flush.is_range.then_some(last + 1),
            busy: false,
        };
        self.next_id += 1;
        self.levels[0].insert(0, table);
    }

    fn start(&mut self, pick: Pick) {
        let stays = [0, LAST_LEVEL].contains(&pick.level) && !pick.trivial_move;
        assert!(pick.level < pick.target_level || pick.level == pick.target_level && stays);
        assert!(pick.target_level < LEVELS);
        for level in pick.level + 1..pick.target_level {
            assert!(self.levels[level].is_empty(), "passes level {level}");
        }
        for (level, ids) in &pick.inputs {
            assert!(!ids.is_empty());
            for table in &mut self.levels[*level] {
                if ids.contains(&table.id) {
                    assert!(!table.busy, "an input is busy");
                    table.busy = true;
                }
            }
        }
        if pick.trivial_move {
            assert_eq!((pick.inputs.len(), pick.inputs[0].1.len()), (1, 1));
        }
        self.running.push(pick);
    }

    fn take_inputs(&mut self, pick: &Pick) -> Vec<Table> {
        let mut taken = Vec::new();
        for (level, ids) in &pick.inputs {
            let before = taken.len();
            taken.extend(self.levels[*level].extract_if(.., |table| ids.contains(&table.id)));
            assert_eq!(taken.len() - before, ids.len(), "an input is not in the level named");
        }
        taken
    }

    /// Ends a running compaction: its outputs, cut at the maximum size, become tables.
    fn finish(&mut self, index: usize) {
        let pick = self.running.swap_remove(index);
        let age = self.levels[0].iter().position(|table| pick.inputs[0].1.contains(&table.id));
        let taken = self.take_inputs(&pick);
        if let Some(last) = taken[0].items.last_key_value() {
            self.cursors[pick.level] = vec![*last.0];
        }
        if pick.trivial_move {
            self.levels[pick.target_level]
                .extend(taken.into_iter().map(|table| Table { busy: false, ..table }));
        } else {
            let mut merged: BTreeMap<u8, Vec<u64>> = BTreeMap::new();
            let ends: Vec<u8> = taken.iter().filter_map(|table| table.exclusive_end).collect();
            let deletes: u64 = taken.iter().map(|table| table.deletes).sum();
            for (key, versions) in taken.into_iter().flat_map(|table| table.items) {
                merged.entry(key).or_default().extend(versions);
            }
            while !merged.is_empty() {
                let mut items = BTreeMap::new();
                let mut bytes = 0;
                while (bytes < self.options.table_bytes || pick.target_level == 0)
                    && let Some((key, mut versions)) = merged.pop_first()
                {
                    versions.sort_unstable_by(|a, b| b.cmp(a));
                    bytes += 50 * versions.len() as u64;
                    items.insert(key, versions);
                }
                // A table that ends where a tombstone does, or is cut within one, ends exclusively.
                let last = *items.last_key_value().unwrap().0;
                let exclusive_end = ends.contains(&(last + 1)).then_some(last + 1);
                let deletes = if pick.target_level == LEVELS - 1 { 0 } else { deletes };
                let deletes = deletes.min(items.len() as u64);
                let id = self.next_id;
                self.next_id += 1;
                let table = Table { id, items, exclusive_end, deletes, busy: false };
                match age.filter(|_| pick.target_level == 0) {
                    Some(age) => self.levels[0].insert(age, table),
                    None => self.levels[pick.target_level].push(table),
                }
            }
        }
        if pick.target_level > 0 {
            self.levels[pick.target_level]
                .sort_by_key(|table| *table.items.first_key_value().unwrap().0);
        }
        self.check();
    }

    /// Checks that levels are disjoint, and that reading from the top finds exactly the writes,
    /// newest first.
    fn check(&self) {
        self.with_view(|view| {
            for level in &view.levels[1..] {
                for pair in level.windows(2) {
                    assert!(!pair[0].span().overlaps(&pair[1].span()), "a level overlaps itself");
                    assert!(pair[0].smallest < pair[1].smallest);
                }
            }
        });
        let mut read: BTreeMap<u8, Vec<u64>> = BTreeMap::new();
        for table in self.levels.iter().flatten() {
            for (key, versions) in &table.items {
                read.entry(*key).or_default().extend(versions);
            }
        }
        for (key, versions) in &self.written {
            let newest_first: Vec<u64> = versions.iter().rev().copied().collect();
            assert_eq!(read.get(key), Some(&newest_first), "versions of key {key}");
        }
    }

    fn finish_all(&mut self) {
        while !self.running.is_empty() {
            self.finish(0);
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Flush(Flush),
    Pick,
    Range(u8, u8, u8),
    Last(bool, u8, u8),
    Finish(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let flush = (0u8..200, 1u8..9, 1u8..20, prop::bool::weighted(0.2), 0u8..20).prop_map(
        |(first, step, count, is_range, deletes)| {
            Step::Flush(Flush { first, step, count, is_range, deletes: deletes.saturating_sub(12) })
        },
    );
    prop_oneof![
        4 => flush,
        5 => Just(Step::Pick),
        1 => (0u8..7, 0u8..250, 1u8..100)
            .prop_map(|(level, start, width)| Step::Range(level, start, width)),
        1 => (any::<bool>(), 0u8..250, 1u8..100)
            .prop_map(|(small, start, width)| Step::Last(small, start, width)),
        4 => (0usize..8).prop_map(Step::Finish),
    ]
}

fn take_step(store: &mut Store, step: Step) {
    match step {
        Step::Flush(flush) => store.flush(flush),
        Step::Pick => {
            if let Some(pick) = store.with_view(pick) {
                assert!(pick.score >= 1.0);
                store.start(pick);
            }
        }
        Step::Range(level, start, n) => {
            let (start, end) = ([start], [start.saturating_add(n)]);
            let query =
                |view: &PickerInput| pick_range(view, usize::from(level), Some(&start), Some(&end));
            if let RangePick::Run(pick) = store.with_view(query) {
                store.start(pick);
            }
        }
        Step::Last(small, start, n) => {
            let (start, end) = ([start], [start.saturating_add(n)]);
            let range = (Some(&start[..]), Some(&end[..]));
            let wanted = if small { RewriteReason::Small } else { RewriteReason::Stale(&[1]) };
            let query = |view: &PickerInput| pick_in_range(view, wanted, range, &None);
            if let BottommostPick::Run(pick) = store.with_view(query) {
                store.start(pick);
            }
        }
        Step::Finish(index) => {
            if !store.running.is_empty() {
                store.finish(index % store.running.len());
            }
        }
    }
}

const SMALL: PickOptions =
    PickOptions { level0_tables: 3, level_bytes_base: 2_000, level_ratio: 3, table_bytes: 500 };

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn picks_keep_the_order_of_versions(
        steps in proptest::collection::vec(step(), 1..160),
        base in prop::sample::select(vec![200u64, 600, 2_000, 100_000]),
    ) {
        let mut store = Store::new(PickOptions { level_bytes_base: base, ..SMALL });
        steps.into_iter().for_each(|step| take_step(&mut store, step));
        store.finish_all();
        store.check();

        // Without further writes, picking ends, and then no level is over its target.
        let mut picks = 0;
        while let Some(pick) = store.with_view(pick) {
            prop_assert!(store.with_view(debt_bytes) > 0);
            store.start(pick);
            store.finish_all();
            picks += 1;
            prop_assert!(picks < 1_000, "picking does not end");
        }
        prop_assert_eq!(store.with_view(debt_bytes), 0);
        prop_assert!(store.levels[0].len() < SMALL.level0_tables);
        let targets = store.with_view(level_targets);
        for (level, target) in targets.iter().enumerate().skip(1) {
            let bytes: u64 = store.levels[level].iter().map(|table| table.entries() * 50).sum();
            prop_assert!(bytes <= *target, "level {} holds {} of {}", level, bytes, target);
        }

        // A manual compaction moves everything to the last level.
        for level in 0..LEVELS {
            loop {
                match store.with_view(|view| pick_range(view, level, None, None)) {
                    RangePick::Done => break,
                    RangePick::Blocked => prop_assert!(false, "blocked with nothing running"),
                    RangePick::Run(pick) => {
                        store.start(pick);
                        store.finish_all();
                    }
                }
            }
        }
        prop_assert!(store.levels[..LEVELS - 1].iter().all(Vec::is_empty));
    }

    #[test]
    fn targets_shrink_by_the_ratio_up_to_the_base(sizes in prop::array::uniform6(0u64..1 << 40)) {
        let facts = |bytes: u64| TableInfo {
            id: 1, bytes, entries: 1, deletes: 0, smallest: b"a", largest: b"b",
            largest_is_exclusive: false, sequence_min: 0, sequence_max: 0, retained_for: &[],
            busy: false,
        };
        let mut levels = vec![Vec::new()];
        levels.extend(sizes.iter().map(|&bytes| vec![facts(bytes)]));
        let options = PickOptions {
            level0_tables: 4, level_bytes_base: 256 << 20, level_ratio: 10, table_bytes: 64 << 20,
        };
        let view = PickerInput { levels, options, cursors: Vec::new() };
        let targets = level_targets(&view);
        let largest = sizes.iter().copied().max().unwrap_or(0);
        prop_assert_eq!(targets[LEVELS - 1], largest.max(options.level_bytes_base));
        let above: u64 = targets[..LEVELS - 1].iter().sum();
        prop_assert!(above <= largest / 9 + 1, "more than a ninth is above the last level");
        let used: Vec<u64> = targets[1..LEVELS - 1].iter().copied().filter(|t| *t > 0).collect();
        if let Some(base) = used.first() {
            let base_max = options.level_bytes_base;
            prop_assert!((base_max / 10..=base_max).contains(base));
        }
        prop_assert!(used.windows(2).all(|pair| pair[1] / 10 == pair[0]));
    }
}

fn fact<'a>(id: u64, bytes: u64, smallest: &'a [u8], largest: &'a [u8]) -> TableInfo<'a> {
    TableInfo {
        id,
        bytes,
        entries: 100,
        deletes: 0,
        smallest,
        largest,
        largest_is_exclusive: false,
        sequence_min: 0,
        sequence_max: 0,
        retained_for: &[],
        busy: false,
    }
}

fn view<'a>(levels: Vec<Vec<TableInfo<'a>>>) -> PickerInput<'a> {
    PickerInput { levels, options: SMALL, cursors: Vec::new() }
}

#[test]
fn tables_touching_at_exclusive_end_do_not_overlap() {
    let upper = TableInfo { largest_is_exclusive: true, ..fact(1, 9, b"a", b"m") };
    let mut levels = vec![Vec::new(); LEVELS];
    levels[5] = vec![upper];
    levels[6] = vec![fact(2, 9_000, b"m", b"z")];
    // Level 5 may hold 3,000 bytes; a manual compaction of a range moves down regardless.
    let RangePick::Run(pick) = pick_range(&view(levels.clone()), 5, None, None) else {
        panic!("nothing picked")
    };
    assert!(pick.trivial_move);
    levels[5][0].largest_is_exclusive = false;
    let RangePick::Run(pick) = pick_range(&view(levels), 5, None, None) else {
        panic!("nothing picked")
    };
    assert_eq!(pick.inputs, [(5, vec![1]), (6, vec![2])]);
}

#[test]
fn single_table_moves_unless_rich_in_deletes() {
    let level0 = vec![fact(3, 9, b"a", b"b"), fact(2, 9, b"c", b"d"), fact(1, 9, b"e", b"f")];
    let moved = pick(&view(vec![level0.clone()])).unwrap();
    assert!(moved.trivial_move);
    assert_eq!((moved.target_level, &moved.inputs), (6, &vec![(0, vec![1])]));
    let rich = level0.iter().map(|table| TableInfo { deletes: 30, ..*table }).collect();
    assert!(!pick(&view(vec![rich])).unwrap().trivial_move);
}

#[test]
fn busy_table_in_range_blocks_the_pick() {
    let level0: Vec<_> = (1..4).rev().map(|id| fact(id, 9, b"a", b"m")).collect();
    let mut levels = vec![Vec::new(); LEVELS];
    levels[0] = level0;
    levels[6] = vec![TableInfo { busy: true, ..fact(9, 50, b"k", b"p") }];
    assert_eq!(pick(&view(levels.clone())), None);
    assert_eq!(pick_range(&view(levels.clone()), 0, None, None), RangePick::Blocked);
    assert_eq!(pick_range(&view(levels.clone()), 0, Some(b"n"), None), RangePick::Done);
    levels[6][0].busy = false;
    let picked = pick(&view(levels)).unwrap();
    assert_eq!(picked.inputs, [(0, vec![3, 2, 1]), (6, vec![9])]);
}

#[test]
fn cheapest_table_is_first_unless_one_is_rich_in_deletes() {
    let mut levels = vec![Vec::new(); LEVELS];
    levels[5] = vec![fact(1, 3_000, b"a", b"c"), fact(2, 3_000, b"d", b"f")];
    levels[6] = vec![fact(3, 9_000, b"a", b"b"), fact(4, 500, b"e", b"f")];
    assert_eq!(pick(&view(levels.clone())).unwrap().inputs, [(5, vec![2]), (6, vec![4])]);
    levels[5][0].deletes = 60;
    assert_eq!(pick(&view(levels)).unwrap().inputs, [(5, vec![1]), (6, vec![3])]);
}

#[test]
fn level_above_base_is_emptied_into_the_next() {
    // The store was large once: the rest in levels 3 and 5 belongs to the last level now.
    let mut levels = vec![Vec::new(); LEVELS];
    levels[3] = vec![fact(1, 50, b"a", b"c")];
    levels[5] = vec![fact(2, 50, b"b", b"d")];
    levels[6] = vec![fact(3, 900, b"a", b"z")];
    let picked = pick(&view(levels.clone())).unwrap();
    assert_eq!((picked.level, picked.target_level), (3, 5));
    assert_eq!(picked.inputs, [(3, vec![1]), (5, vec![2])]);
    assert!(debt_bytes(&view(levels.clone())) > 0);
    levels[3].clear();
    let picked = pick(&view(levels)).unwrap();
    assert_eq!(picked.inputs, [(5, vec![2]), (6, vec![3])]);
}

#[test]
fn small_level_0_tables_are_joined_before_large_level() {
    let sized = |id, bytes| TableInfo { bytes, ..fact(id, bytes, b"a", b"z") };
    let mut levels = vec![Vec::new(); LEVELS];
    levels[0] = vec![sized(3, 50), sized(2, 60), sized(1, 400)];
    levels[6] = vec![sized(9, 90_000)];
    let options = PickOptions { level_bytes_base: 1 << 20, ..SMALL };
    let view = |levels| PickerInput { options, ..view(levels) };
    let joined = pick(&view(levels.clone())).unwrap();
    assert_eq!((joined.target_level, joined.inputs), (0, vec![(0, vec![3, 2])]));
    assert!(joined.score >= 1.0);
    // Enough of them are compacted down.
    levels[0] = vec![sized(3, 11_000), sized(2, 12_000), sized(1, 8_000)];
    let down = pick(&view(levels.clone())).unwrap();
    assert_eq!((down.target_level, down.inputs.len()), (6, 2));
    // Tables without overlap are moved, however small.
    levels[0] =
        vec![fact(3, 10, b"z3", b"z4"), fact(2, 10, b"z5", b"z6"), fact(1, 10, b"z7", b"z8")];
    assert!(pick(&view(levels)).unwrap().trivial_move);
}

/// Level 0 grew without a limit while a running compaction's inputs blocked it.
#[test]
fn blocked_level_0_is_joined_within_itself() {
    let mut levels = vec![Vec::new(); LEVELS];
    levels[0] = (2..8).rev().map(|id| fact(id, 9, b"a", b"m")).collect();
    levels[0].push(TableInfo { busy: true, ..fact(1, 9, b"a", b"m") });
    levels[6] = vec![TableInfo { busy: true, ..fact(9, 50, b"k", b"p") }];
    let joined = pick(&view(levels.clone())).unwrap();
    assert_eq!((joined.target_level, joined.inputs), (0, vec![(0, vec![7, 6, 5, 4, 3, 2])]));
    // The tables between them keep their place.
    levels[0][3].busy = true;
    levels[0].insert(0, fact(8, 9, b"a", b"m"));
    let joined = pick(&view(levels.clone())).unwrap();
    assert_eq!(joined.inputs, [(0, vec![8, 7, 6, 5])]);
    // A few tables wait for the running compaction.
    levels[0].drain(..2);
    assert_eq!(pick(&view(levels)), None);
}
