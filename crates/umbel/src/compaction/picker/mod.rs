//! Which tables to compact next: pure functions over facts about the tables.
//!
//! Levels are sized from below: the last level holds nearly everything, each level above it may
//! hold a part smaller by the level ratio, up to the first level whose share is no more than
//! `level_bytes_base`. That is the base level, into which level 0 is compacted; levels above it
//! stay empty. So what is stored twice stays near one part in the ratio at every size of the store.
//!
//! INVARIANTS of every pick:
//! 1. Whatever lies in the way is taken along: no pick passes a level that holds tables, and all
//!    tables of the target level that overlap the inputs are inputs too. From level 0, every table
//!    that overlaps an input is an input. So versions of a key never swap places.
//! 2. No input is busy. The key ranges of the inputs touch one another without a gap, so what a
//!    running compaction will write lies within what its busy inputs cover, and whoever would
//!    write into the same keys of the same level meets a busy table.
//! 3. Every pick moves bytes downward, or makes fewer tables of level 0, so picking ends. What is
//!    written again within the last level is picked in [`super::last`].
//! 4. Tables of level 0 that are joined there are neighbours by age; what comes of them takes their
//!    place.

use std::cmp::Ordering;
use std::ops::Range;

use umbel_base::limits::LEVELS;

/// Level 0 is joined rather than brought down where it would meet more than so many times its
/// bytes. Joining until there is twice as much writes each byte once more and saves half of what it
/// meets, so what is written is least near two; a little more keeps fewer tables to ask.
const JOINED_BELOW: u64 = 3;

/// Level 0 is joined while its way down is taken by running compactions where it has grown to so
/// many times the number of tables that bring it down: before that it is worth waiting for.
const JOINED_WHILE_BLOCKED: usize = 2;

/// A compaction is not widened for free neighbours beyond this many full tables of input.
pub(super) const WIDENED_TABLES_MAX: u64 = 25;

/// What picking needs to know about one table.
#[derive(Debug, Clone, Copy)]
pub struct TableFact<'a> {
    /// The table's id.
    pub id: u64,
    /// Its size.
    pub bytes: u64,
    /// Its entries, deletes included.
    pub entries: u64,
    /// Its deletes, range tombstones included.
    pub deletes: u64,
    /// The first key it says something about, range tombstones included.
    pub smallest: &'a [u8],
    /// The last key it says something about, or the first behind.
    pub largest: &'a [u8],
    /// Whether `largest` is the first key behind.
    pub largest_is_exclusive: bool,
    /// The least sequence number in it.
    pub sequence_min: u64,
    /// The greatest sequence number in it; 0 where every reader sees all of it.
    pub sequence_max: u64,
    /// Ranges of states, both ends included, for whose readers alone it was written with many older
    /// versions each.
    pub kept_for: &'a [(u64, u64)],
    /// Whether a running compaction reads it.
    pub busy: bool,
}

/// The sizes that steer picking.
#[derive(Debug, Clone, Copy)]
pub struct PickOptions {
    /// Level 0 is compacted from this many tables on.
    pub level0_tables: usize,
    /// Most bytes in the base level.
    pub level_bytes_base: u64,
    /// How many times larger each level is than the one above.
    pub level_ratio: u32,
    /// Bytes of a full table.
    pub table_bytes: u64,
}

/// The tables of a keyspace as they stand.
#[derive(Debug, Clone)]
pub struct LevelsView<'a> {
    /// Level 0 newest table first; the others sorted by key, no two tables overlapping.
    pub levels: Vec<Vec<TableFact<'a>>>,
    /// The sizes to keep to.
    pub options: PickOptions,
    /// For each level the largest key of the table picked last; among equally good tables the next
    /// behind it is taken. Missing ones count as empty.
    pub cursors: Vec<&'a [u8]>,
}

/// A compaction to run.
#[derive(Debug, Clone, PartialEq)]
pub struct Pick {
    /// The level to relieve.
    pub level: usize,
    /// Where the outputs go.
    pub target_level: usize,
    /// The inputs by level, upper level first, in the order of the view.
    pub inputs: Vec<(usize, Vec<u64>)>,
    /// Whether the one input can be put into the target level as it is.
    pub trivial_move: bool,
    /// How urgent it is: 1 is where compacting starts. 0 for a range asked for by hand.
    pub score: f64,
}

/// The next step of a compaction asked for by hand.
#[derive(Debug, Clone, PartialEq)]
pub enum RangePick {
    /// Nothing of the range is left in the level.
    Done,
    /// Running compactions hold what is left; ask again after one of them ended.
    Blocked,
    /// Run this, then ask again.
    Run(Pick),
}

/// A stretch of keys with the bounds of a table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span<'a> {
    smallest: &'a [u8],
    largest: &'a [u8],
    largest_is_exclusive: bool,
}

impl<'a> Span<'a> {
    /// Whether the span ends at or behind `key`.
    fn reaches(&self, key: &[u8]) -> bool {
        match self.largest.cmp(key) {
            Ordering::Less => false,
            Ordering::Equal => !self.largest_is_exclusive,
            Ordering::Greater => true,
        }
    }

    /// Whether some of it lies in `start..end`, where `None` is an open end.
    pub(super) fn is_within(&self, start: Option<&[u8]>, end: Option<&[u8]>) -> bool {
        start.is_none_or(|start| self.reaches(start)) && end.is_none_or(|end| self.smallest < end)
    }

    pub(super) fn overlaps(&self, other: &Span) -> bool {
        self.reaches(other.smallest) && other.reaches(self.smallest)
    }

    pub(super) fn joined(self, other: Span<'a>) -> Span<'a> {
        let end = |span: &Span<'a>| (span.largest, !span.largest_is_exclusive);
        let (largest, inclusive) = end(&self).max(end(&other));
        let smallest = self.smallest.min(other.smallest);
        Span { smallest, largest, largest_is_exclusive: !inclusive }
    }
}

impl<'a> TableFact<'a> {
    pub(super) fn span(&self) -> Span<'a> {
        let (smallest, largest) = (self.smallest, self.largest);
        Span { smallest, largest, largest_is_exclusive: self.largest_is_exclusive }
    }

    /// Whether so much of the table is deletes that sinking it soon frees space.
    pub(super) fn is_rich_in_deletes(&self) -> bool {
        self.deletes > 0 && self.deletes.saturating_mul(4) >= self.entries
    }
}

/// Those of `tables`, which are sorted and disjoint, that overlap `span`.
fn overlapping(tables: &[TableFact], span: &Span) -> Range<usize> {
    let start = tables.partition_point(|table| !table.span().reaches(span.smallest));
    let end = tables.partition_point(|table| span.reaches(table.smallest));
    start..end.max(start)
}

fn bytes_of(tables: &[TableFact]) -> u64 {
    tables.iter().map(|table| table.bytes).sum()
}

/// How large each level may be, and where level 0 goes.
struct Shape {
    targets: [u64; LEVELS],
    bytes: [u64; LEVELS],
    base_level: usize,
}

impl<'a> LevelsView<'a> {
    pub(super) fn level(&self, level: usize) -> &[TableFact<'a>] {
        self.levels.get(level).map_or(&[], Vec::as_slice)
    }

    fn shape(&self) -> Shape {
        let mut bytes = [0; LEVELS];
        for (level, bytes) in bytes.iter_mut().enumerate() {
            *bytes = bytes_of(self.level(level));
        }
        let options = &self.options;
        let ratio = u64::from(options.level_ratio.max(2));
        let mut base_level = LEVELS - 1;
        let mut share = bytes[1..].iter().copied().max().unwrap_or(0);
        let mut targets = [0; LEVELS];
        targets[base_level] = share.max(options.level_bytes_base);
        while base_level > 1 && share > options.level_bytes_base {
            base_level -= 1;
            share /= ratio;
            targets[base_level] = share;
        }
        Shape { targets, bytes, base_level }
    }

    /// Where the tables of `level` go: the next level that holds tables or may hold some.
    fn level_below(&self, shape: &Shape, level: usize) -> usize {
        let used = |&below: &usize| below >= shape.base_level || !self.level(below).is_empty();
        (level + 1..LEVELS).find(used).unwrap_or(LEVELS - 1)
    }

    /// How urgently `level` wants relief; at 1 and above it does.
    fn score(&self, shape: &Shape, level: usize) -> f64 {
        let idle = self.level(level).iter().filter(|table| !table.busy);
        if level == 0 {
            return idle.count() as f64 / self.options.level0_tables.max(1) as f64;
        }
        let bytes = idle.map(|table| table.bytes).sum::<u64>() as f64;
        match shape.targets[level] {
            // A level above the base level is to be emptied, but not before all else.
            0 if bytes > 0.0 => 1.0 + bytes / self.options.level_bytes_base.max(1) as f64,
            0 => 0.0,
            target if bytes > target as f64 => bytes / target as f64,
            // At the target to the byte is not over it.
            target => (bytes / target as f64).min(0.999),
        }
    }

    /// The overlap of `span` in `target`, unless a busy table is among it or it lies in a gap that
    /// a running compaction may write into.
    fn idle_overlap(&self, target: usize, span: &Span) -> Option<Range<usize>> {
        let tables = self.level(target);
        let overlap = overlapping(tables, span);
        let busy = tables[overlap.clone()].iter().any(|table| table.busy);
        // Neighbours in the last level may be written into one table, with the gap between them.
        let before = overlap.start.checked_sub(1).and_then(|index| tables.get(index));
        let gap = overlap.is_empty() && target == LEVELS - 1;
        let taken = gap
            && before.is_some_and(|table| table.busy)
            && tables.get(overlap.end).is_some_and(|table| table.busy);
        (!busy && !taken).then_some(overlap)
    }

    fn finish(
        &self,
        (level, upper): (usize, &[usize]),
        (target_level, lower): (usize, Range<usize>),
        is_movable: impl Fn(&TableFact) -> bool,
    ) -> Pick {
        let tables = self.level(level);
        let trivial_move = upper.len() == 1 && lower.is_empty() && is_movable(&tables[upper[0]]);
        let mut inputs = vec![(level, upper.iter().map(|&index| tables[index].id).collect())];
        if !lower.is_empty() {
            let lower = &self.level(target_level)[lower];
            inputs.push((target_level, lower.iter().map(|table| table.id).collect()));
        }
        Pick { level, target_level, inputs, trivial_move, score: 0.0 }
    }

    /// The tables of level 0 in groups that no other table overlaps, each with its span.
    fn level0_groups(&self) -> Vec<(Vec<usize>, Span<'a>)> {
        let tables = self.level(0);
        let mut by_key: Vec<usize> = (0..tables.len()).collect();
        by_key.sort_by_key(|&index| tables[index].smallest);
        let mut groups: Vec<(Vec<usize>, Span)> = Vec::new();
        for index in by_key {
            let span = tables[index].span();
            match groups.last_mut() {
                Some((group, whole)) if whole.overlaps(&span) => {
                    group.push(index);
                    *whole = whole.joined(span);
                }
                _ => groups.push((vec![index], span)),
            }
        }
        for (group, _) in &mut groups {
            group.sort_unstable();
        }
        groups
    }

    /// The best group of level 0 to compact into `target`, among those that `wanted` accepts.
    fn pick_level0(
        &self,
        target: usize,
        wanted: impl Fn(&Span) -> bool,
        is_movable: impl Fn(&TableFact) -> bool,
    ) -> Option<Pick> {
        let tables = self.level(0);
        let idle = |group: &[usize]| group.iter().all(|&index| !tables[index].busy);
        let (group, overlap) = self
            .level0_groups()
            .into_iter()
            .filter(|(group, span)| idle(group) && wanted(span))
            .filter_map(|(group, span)| Some((group, self.idle_overlap(target, &span)?)))
            // The group that relieves most, and of equal ones the one with the oldest table.
            .max_by_key(|(group, _)| (group.len(), group.last().copied()))?;
        Some(self.finish((0, &group), (target, overlap), is_movable))
    }

    /// What to do instead of `down`, a pick of level 0 that costs too much for what it brings:
    /// small tables become one, until there is enough of them.
    fn join_level0(&self, down: &Pick) -> Option<Pick> {
        let bytes = |(level, ids): &(usize, Vec<u64>)| {
            let tables = self.level(*level).iter().filter(|table| ids.contains(&table.id));
            tables.map(|table| table.bytes).sum::<u64>()
        };
        let met: u64 = down.inputs.iter().skip(1).map(bytes).sum();
        let brought = down.inputs.first().map_or(0, bytes);
        if met <= brought.saturating_mul(JOINED_BELOW) {
            return None;
        }
        self.join_row(down.score)
    }

    /// What to do where running compactions are in the way of all of level 0, so that it does not
    /// grow until writers have to wait: the tables that they do not read are joined.
    fn join_blocked(&self, score: f64) -> Option<Pick> {
        let many = self.options.level0_tables.max(1) * JOINED_WHILE_BLOCKED;
        let idle = self.level(0).iter().filter(|table| !table.busy).count();
        if idle < many { None } else { self.join_row(score) }
    }

    /// Joins the longest row of neighbours in level 0 of which none is much larger than all newer
    /// ones together, so that an entry is written again a number of times that grows with the
    /// logarithm of the sizes only.
    fn join_row(&self, score: f64) -> Option<Pick> {
        let tables = self.level(0);
        let row_from = |start: usize| {
            let mut newer = 0u64;
            let joins = |table: &&TableFact| {
                let fits = newer == 0 || table.bytes <= newer.saturating_mul(2);
                newer = newer.saturating_add(table.bytes).max(1);
                !table.busy && fits
            };
            &tables[start..start + tables[start..].iter().take_while(joins).count()]
        };
        let rows = (0..tables.len()).map(row_from);
        let row = rows.filter(|row| row.len() > 1).max_by_key(|row| row.len())?;
        let inputs = vec![(0, row.iter().map(|table| table.id).collect())];
        Some(Pick { level: 0, target_level: 0, inputs, trivial_move: false, score })
    }

    /// The best table of `level` to compact into `target`: one rich in deletes before others, then
    /// the one that costs least rewriting in the target for each byte it brings.
    fn pick_table(&self, level: usize, target: usize) -> Option<Pick> {
        let tables = self.level(level);
        let cursor = self.cursors.get(level).copied().unwrap_or_default();
        let ranked = tables.iter().enumerate().filter(|(_, table)| !table.busy);
        let ranked = ranked.filter_map(|(index, table)| {
            let overlap = self.idle_overlap(target, &table.span())?;
            let cost = u128::from(bytes_of(&self.level(target)[overlap.clone()])) * 1024
                / u128::from(table.bytes.max(1));
            let rank = (!table.is_rich_in_deletes(), cost, table.smallest <= cursor, index);
            Some((rank, index, overlap))
        });
        let (_, index, overlap) = ranked.min_by_key(|(rank, _, _)| *rank)?;
        let upper: Vec<usize> = self.widened(level, index, target, &overlap).collect();
        let is_movable = |table: &TableFact| !table.is_rich_in_deletes();
        Some(self.finish((level, &upper), (target, overlap), is_movable))
    }

    /// Table `index` of `level` with those neighbours that can join without a further table of the
    /// target level: they come down at no cost beyond their own.
    fn widened(
        &self,
        level: usize,
        index: usize,
        target: usize,
        overlap: &Range<usize>,
    ) -> Range<usize> {
        let tables = self.level(level);
        let limit = self.options.table_bytes.saturating_mul(WIDENED_TABLES_MAX);
        let mut bytes = bytes_of(&self.level(target)[overlap.clone()]) + tables[index].bytes;
        let mut joins = |neighbour: &TableFact| {
            let own = overlapping(self.level(target), &neighbour.span());
            let free = !own.is_empty() && own.start >= overlap.start && own.end <= overlap.end;
            let fits = !neighbour.busy && bytes.saturating_add(neighbour.bytes) <= limit;
            if free && fits {
                bytes += neighbour.bytes;
            }
            free && fits
        };
        let (mut start, mut end) = (index, index + 1);
        while start > 0 && joins(&tables[start - 1]) {
            start -= 1;
        }
        while end < tables.len() && joins(&tables[end]) {
            end += 1;
        }
        start..end
    }
}

/// The bytes each level may hold. Zero for level 0, which counts tables, and for levels that are
/// to stay empty; the last level's is what it holds, or the base size where it holds less.
pub fn level_targets(view: &LevelsView) -> [u64; LEVELS] {
    view.shape().targets
}

/// About how many bytes compactions have to read and write until no level is over its target.
/// Zero exactly where nothing would be picked were no table busy.
pub fn debt_bytes(view: &LevelsView) -> u64 {
    let shape = view.shape();
    let mut incoming = [0u64; LEVELS];
    let mut debt = 0u64;
    if view.level(0).len() >= view.options.level0_tables.max(1) {
        let below = view.level_below(&shape, 0);
        incoming[below] = shape.bytes[0];
        debt = shape.bytes[0].saturating_add(shape.bytes[below]);
    }
    for level in 1..LEVELS - 1 {
        let bytes = shape.bytes[level].saturating_add(incoming[level]);
        let over = bytes.saturating_sub(shape.targets[level]);
        if over == 0 {
            continue;
        }
        let below = view.level_below(&shape, level);
        // What comes down meets its share of the level below.
        let met = u128::from(over) * u128::from(shape.bytes[below]) / u128::from(bytes);
        debt = debt.saturating_add(over).saturating_add(u64::try_from(met).unwrap_or(u64::MAX));
        incoming[below] = incoming[below].saturating_add(over);
    }
    debt
}

/// The most urgent compaction that can run now; `None` where no level wants relief or all that
/// could give it is busy.
pub fn pick(view: &LevelsView) -> Option<Pick> {
    let shape = view.shape();
    let mut wanting: Vec<(f64, usize)> = (0..LEVELS - 1)
        .map(|level| (view.score(&shape, level), level))
        .filter(|(score, _)| *score >= 1.0)
        .collect();
    wanting.sort_by(|a, b| b.0.total_cmp(&a.0));
    wanting.into_iter().find_map(|(score, level)| {
        let target = view.level_below(&shape, level);
        let pick = match level {
            0 => view.pick_level0(target, |_| true, |table| !table.is_rich_in_deletes()),
            _ => view.pick_table(level, target),
        };
        let pick = match pick {
            None if level == 0 => return view.join_blocked(score),
            pick => Pick { score, ..pick? },
        };
        let joined = if level == 0 { view.join_level0(&pick) } else { None };
        Some(joined.unwrap_or(pick))
    })
}

/// The next step of bringing everything in `start..end` from `level` to the level below, whatever
/// the sizes. Asked for each level from 0 on until `Done`, it brings the range to the last level.
/// A table with deletes is rewritten, never just moved, so that they can go.
pub fn pick_range(
    view: &LevelsView,
    level: usize,
    start: Option<&[u8]>,
    end: Option<&[u8]>,
) -> RangePick {
    let within = |span: &Span| span.is_within(start, end);
    let tables = view.level(level);
    if level + 1 >= LEVELS || !tables.iter().any(|table| within(&table.span())) {
        return RangePick::Done;
    }
    let target = view.level_below(&view.shape(), level);
    let is_movable = |table: &TableFact| table.deletes == 0;
    let pick = if level == 0 {
        view.pick_level0(target, within, is_movable)
    } else {
        let idle = |(_, table): &(usize, &TableFact)| !table.busy && within(&table.span());
        let with_overlap = |(index, table): (usize, &TableFact)| {
            Some((index, view.idle_overlap(target, &table.span())?))
        };
        tables.iter().enumerate().filter(idle).find_map(with_overlap).map(|(index, overlap)| {
            let upper: Vec<usize> = view.widened(level, index, target, &overlap).collect();
            view.finish((level, &upper), (target, overlap), is_movable)
        })
    };
    pick.map_or(RangePick::Blocked, RangePick::Run)
}

#[cfg(test)]
#[path = "pick_tests.rs"]
mod tests;
