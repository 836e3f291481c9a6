//! Picks the next compaction: pure functions over table metadata.
//!
//! Levels are sized from below: the last level holds nearly everything, and each level above it is
//! smaller by the level ratio. Going up from the last level, the first level whose share is at most
//! `level_bytes_base` is the base level. Level 0 is compacted into the base level, and the levels
//! between them stay empty. This sizing keeps space amplification near `1 + 1 / ratio` at every
//! size of the store.
//!
//! INVARIANTS of every pick:
//! 1. No pick skips overlapping tables: it passes no level that holds tables, and all tables of the
//!    target level that overlap the inputs are inputs too. For inputs from level 0, every table of
//!    level 0 that overlaps an input is an input. So a newer version of a key never gets below an
//!    older one.
//! 2. No input is busy: no running compaction reads it. The key ranges of the inputs touch one
//!    another without a gap. So a running compaction's outputs lie within the range of its busy
//!    inputs. A second compaction into the same keys of a level would need a busy table, and is not
//!    picked.
//! 3. Every pick moves bytes downward, or makes fewer tables of level 0, so picking ends.
//!    [`crate::compaction::bottommost_picker`] picks rewrites within the last level.
//! 4. Tables that are joined within level 0 are neighbours by age, and the output takes their place
//!    in it.

use std::cmp::Ordering;
use std::ops::Range;

use umbel_base::limits::LEVELS;

/// Tables of level 0 are joined, not compacted down, if they overlap more than this multiple of
/// their bytes. Joining writes each byte once more and halves the overlap per byte, so a multiple
/// near two writes fewest bytes. Three writes slightly more and leaves fewer tables to probe.
const JOINED_BELOW_TABLES: u64 = 3;

/// Tables of level 0 that running compactions do not read are joined once their number is this
/// multiple of the trigger. With fewer tables, level 0 waits for the running compactions.
const JOINED_WHILE_BLOCKED: usize = 2;

/// A compaction is not widened by neighbouring tables beyond this many full tables of input.
pub(super) const WIDENED_TABLES_MAX: u64 = 25;

/// The metadata of a table that picking needs.
#[derive(Debug, Clone, Copy)]
pub struct TableInfo<'a> {
    /// The table's id.
    pub id: u64,
    /// Bytes of the table's file.
    pub bytes: u64,
    /// Number of the table's entries, deletes included.
    pub entries: u64,
    /// Number of the table's deletes, range tombstones included.
    pub deletes: u64,
    /// First key of the table's entries and range tombstones.
    pub smallest: &'a [u8],
    /// Last key of the table's entries and range tombstones, or the first key after them.
    pub largest: &'a [u8],
    /// Whether `largest` is exclusive.
    pub largest_is_exclusive: bool,
    /// The least sequence number in the table.
    pub sequence_min: u64,
    /// The greatest sequence number in the table; 0 if every reader sees all its entries.
    pub sequence_max: u64,
    /// Ranges of snapshots, both ends included, for which the table was written with many older
    /// versions that no other readers see.
    pub retained_for: &'a [(u64, u64)],
    /// Whether a running compaction reads the table.
    pub busy: bool,
}

/// Sizes that control picking.
#[derive(Debug, Clone, Copy)]
pub struct PickOptions {
    /// Number of tables from which on level 0 is compacted.
    pub level0_tables: usize,
    /// Maximum bytes in the base level.
    pub level_bytes_base: u64,
    /// Size ratio of each level to the level above it.
    pub level_ratio: u32,
    /// Bytes of a full table.
    pub table_bytes: u64,
}

/// Current tables of a keyspace, as the pickers see them.
#[derive(Debug, Clone)]
pub struct PickerInput<'a> {
    /// The tables by level. Level 0 is ordered newest table first; the other levels are sorted by
    /// key without overlaps.
    pub levels: Vec<Vec<TableInfo<'a>>>,
    /// Sizes that control picking.
    pub options: PickOptions,
    /// For each level, the largest key of the table picked last. Among equally good tables the
    /// picker takes the next one after this key. A missing key counts as empty.
    pub cursors: Vec<&'a [u8]>,
}

/// A compaction to run.
#[derive(Debug, Clone, PartialEq)]
pub struct Pick {
    /// The source level.
    pub level: usize,
    /// The level of the outputs.
    pub target_level: usize,
    /// Inputs by level, upper level first, in the order of the picker input.
    pub inputs: Vec<(usize, Vec<u64>)>,
    /// Whether the one input can move to the target level unchanged.
    pub trivial_move: bool,
    /// Urgency of the compaction, at least 1; 0 for a manual compaction of a range.
    pub score: f64,
}

/// Next step of a manual compaction.
#[derive(Debug, Clone, PartialEq)]
pub enum RangePick {
    /// The level holds no key of the range any more.
    Done,
    /// Running compactions read the remaining tables of the range; pick again after one of them
    /// ends.
    Blocked,
    /// The compaction to run; pick again after it.
    Run(Pick),
}

/// A key range with the bounds of a table.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeySpan<'a> {
    smallest: &'a [u8],
    largest: &'a [u8],
    largest_is_exclusive: bool,
}

impl<'a> KeySpan<'a> {
    /// Whether the span ends at or after `key`.
    fn reaches(&self, key: &[u8]) -> bool {
        match self.largest.cmp(key) {
            Ordering::Less => false,
            Ordering::Equal => !self.largest_is_exclusive,
            Ordering::Greater => true,
        }
    }

    /// Whether part of the span lies in `start..end`, where `None` is an open end.
    pub(super) fn is_within(&self, start: Option<&[u8]>, end: Option<&[u8]>) -> bool {
        start.is_none_or(|start| self.reaches(start)) && end.is_none_or(|end| self.smallest < end)
    }

    pub(super) fn overlaps(&self, other: &KeySpan) -> bool {
        self.reaches(other.smallest) && other.reaches(self.smallest)
    }

    pub(super) fn union(self, other: KeySpan<'a>) -> KeySpan<'a> {
        let end = |span: &KeySpan<'a>| (span.largest, !span.largest_is_exclusive);
        let (largest, inclusive) = end(&self).max(end(&other));
        let smallest = self.smallest.min(other.smallest);
        KeySpan { smallest, largest, largest_is_exclusive: !inclusive }
    }
}

impl<'a> TableInfo<'a> {
    pub(super) fn span(&self) -> KeySpan<'a> {
        let (smallest, largest) = (self.smallest, self.largest);
        KeySpan { smallest, largest, largest_is_exclusive: self.largest_is_exclusive }
    }

    /// Whether the share of deletes is high enough that compacting the table soon frees space.
    pub(super) fn has_many_deletes(&self) -> bool {
        self.deletes > 0 && self.deletes.saturating_mul(4) >= self.entries
    }
}

/// Returns the index range of the `tables`, sorted and disjoint, that overlap `span`.
fn overlapping(tables: &[TableInfo], span: &KeySpan) -> Range<usize> {
    let start = tables.partition_point(|table| !table.span().reaches(span.smallest));
    let end = tables.partition_point(|table| span.reaches(table.smallest));
    start..end.max(start)
}

fn bytes_of(tables: &[TableInfo]) -> u64 {
    tables.iter().map(|table| table.bytes).sum()
}

/// Target sizes of the levels, and the level into which level 0 is compacted.
struct LevelShape {
    targets: [u64; LEVELS],
    bytes: [u64; LEVELS],
    base_level: usize,
}

impl<'a> PickerInput<'a> {
    pub(super) fn level(&self, level: usize) -> &[TableInfo<'a>] {
        self.levels.get(level).map_or(&[], Vec::as_slice)
    }

    fn shape(&self) -> LevelShape {
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
        LevelShape { targets, bytes, base_level }
    }

    /// Returns the level into which tables of `level` are compacted: the next level that holds
    /// tables or is allowed to.
    fn level_below(&self, shape: &LevelShape, level: usize) -> usize {
        let used = |&below: &usize| below >= shape.base_level || !self.level(below).is_empty();
        (level + 1..LEVELS).find(used).unwrap_or(LEVELS - 1)
    }

    /// Returns the urgency of `level`; a compaction of the level is due from 1 on.
    fn score(&self, shape: &LevelShape, level: usize) -> f64 {
        let idle = self.level(level).iter().filter(|table| !table.busy);
        if level == 0 {
            return idle.count() as f64 / self.options.level0_tables.max(1) as f64;
        }
        let bytes = idle.map(|table| table.bytes).sum::<u64>() as f64;
        match shape.targets[level] {
            // A level above the base level is to be emptied, but not before everything else.
            0 if bytes > 0.0 => 1.0 + bytes / self.options.level_bytes_base.max(1) as f64,
            0 => 0.0,
            target if bytes > target as f64 => bytes / target as f64,
            // A level of exactly its target size is not over it.
            target => (bytes / target as f64).min(0.999),
        }
    }

    /// Returns the tables of level `target` that overlap `span`. `None` if one of them is busy, or
    /// `span` lies in a gap into which a running compaction can write.
    fn find_idle_overlap(&self, target: usize, span: &KeySpan) -> Option<Range<usize>> {
        let tables = self.level(target);
        let overlap = overlapping(tables, span);
        let busy = tables[overlap.clone()].iter().any(|table| table.busy);
        // Neighbours in the last level may be joined into one table, with the gap between them.
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
        is_movable: impl Fn(&TableInfo) -> bool,
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

    /// Groups the tables of level 0 so that no two groups overlap, and returns each group with its
    /// span.
    fn level0_groups(&self) -> Vec<(Vec<usize>, KeySpan<'a>)> {
        let tables = self.level(0);
        let mut by_key: Vec<usize> = (0..tables.len()).collect();
        by_key.sort_by_key(|&index| tables[index].smallest);
        let mut groups: Vec<(Vec<usize>, KeySpan)> = Vec::new();
        for index in by_key {
            let span = tables[index].span();
            match groups.last_mut() {
                Some((group, whole)) if whole.overlaps(&span) => {
                    group.push(index);
                    *whole = whole.union(span);
                }
                _ => groups.push((vec![index], span)),
            }
        }
        for (group, _) in &mut groups {
            group.sort_unstable();
        }
        groups
    }

    /// Picks the best group of level 0 to compact into `target`, among those that `wanted` accepts.
    fn pick_level0(
        &self,
        target: usize,
        wanted: impl Fn(&KeySpan) -> bool,
        is_movable: impl Fn(&TableInfo) -> bool,
    ) -> Option<Pick> {
        let tables = self.level(0);
        let idle = |group: &[usize]| group.iter().all(|&index| !tables[index].busy);
        let (group, overlap) = self
            .level0_groups()
            .into_iter()
            .filter(|(group, span)| idle(group) && wanted(span))
            .filter_map(|(group, span)| Some((group, self.find_idle_overlap(target, &span)?)))
            // The largest group, and of equal ones the one with the oldest table.
            .max_by_key(|(group, _)| (group.len(), group.last().copied()))?;
        Some(self.finish((0, &group), (target, overlap), is_movable))
    }

    /// Returns a pick that joins small tables of level 0, if `down`, a pick from level 0, would
    /// rewrite too many bytes for its size.
    fn join_level0(&self, down: &Pick) -> Option<Pick> {
        let bytes = |(level, ids): &(usize, Vec<u64>)| {
            let tables = self.level(*level).iter().filter(|table| ids.contains(&table.id));
            tables.map(|table| table.bytes).sum::<u64>()
        };
        let met: u64 = down.inputs.iter().skip(1).map(bytes).sum();
        let brought = down.inputs.first().map_or(0, bytes);
        if met <= brought.saturating_mul(JOINED_BELOW_TABLES) {
            return None;
        }
        self.join_adjacent(down.score)
    }

    /// Returns a pick for the case that running compactions block level 0. The pick joins tables
    /// that they do not read, so that level 0 does not grow until writers stall.
    fn join_blocked(&self, score: f64) -> Option<Pick> {
        let many = self.options.level0_tables.max(1) * JOINED_WHILE_BLOCKED;
        let idle = self.level(0).iter().filter(|table| !table.busy).count();
        if idle < many { None } else { self.join_adjacent(score) }
    }

    /// Joins the longest run of neighbours in level 0 in which no table is much larger than all
    /// newer tables of the run together. This limit lets the number of rewrites of an entry grow
    /// only with the logarithm of the sizes.
    fn join_adjacent(&self, score: f64) -> Option<Pick> {
        let tables = self.level(0);
        let row_from = |start: usize| {
            let mut newer = 0u64;
            let joins = |table: &&TableInfo| {
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

    /// Picks the best table of `level` to compact into `target`. A table with many deletes comes
    /// first, then the table with the fewest bytes to rewrite in the target per own byte.
    fn pick_table(&self, level: usize, target: usize) -> Option<Pick> {
        let tables = self.level(level);
        let cursor = self.cursors.get(level).copied().unwrap_or_default();
        let ranked = tables.iter().enumerate().filter(|(_, table)| !table.busy);
        let ranked = ranked.filter_map(|(index, table)| {
            let overlap = self.find_idle_overlap(target, &table.span())?;
            let cost = u128::from(bytes_of(&self.level(target)[overlap.clone()])) * 1024
                / u128::from(table.bytes.max(1));
            let rank = (!table.has_many_deletes(), cost, table.smallest <= cursor, index);
            Some((rank, index, overlap))
        });
        let (_, index, overlap) = ranked.min_by_key(|(rank, _, _)| *rank)?;
        let upper: Vec<usize> = self.widened(level, index, target, &overlap).collect();
        let is_movable = |table: &TableInfo| !table.has_many_deletes();
        Some(self.finish((level, &upper), (target, overlap), is_movable))
    }

    /// Returns table `index` of `level` with the neighbours that overlap no further table of the
    /// target level. Moving these neighbours down costs no rewriting of other tables.
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
        let mut joins = |neighbour: &TableInfo| {
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

/// Target bytes of each level. Zero for level 0, where the number of tables decides, and for levels
/// that stay empty. The last level's target is its size, or the base size if that is larger.
pub fn level_targets(view: &PickerInput) -> [u64; LEVELS] {
    view.shape().targets
}

/// Approximate bytes that compactions have to read and write until no level is over its target.
/// Zero exactly if nothing would be picked although no table is busy.
pub fn debt_bytes(view: &PickerInput) -> u64 {
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
        // The bytes moved down meet their share of the level below.
        let met = u128::from(over) * u128::from(shape.bytes[below]) / u128::from(bytes);
        debt = debt.saturating_add(over).saturating_add(u64::try_from(met).unwrap_or(u64::MAX));
        incoming[below] = incoming[below].saturating_add(over);
    }
    debt
}

/// Picks the most urgent compaction that can run now. `None` if no level is due, or all tables of
/// the levels that are due are busy.
pub fn pick(view: &PickerInput) -> Option<Pick> {
    let shape = view.shape();
    let mut wanting: Vec<(f64, usize)> = (0..LEVELS - 1)
        .map(|level| (view.score(&shape, level), level))
        .filter(|(score, _)| *score >= 1.0)
        .collect();
    wanting.sort_by(|a, b| b.0.total_cmp(&a.0));
    wanting.into_iter().find_map(|(score, level)| {
        let target = view.level_below(&shape, level);
        let pick = match level {
            0 => view.pick_level0(target, |_| true, |table| !table.has_many_deletes()),
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

/// Picks the next step that moves everything in `start..end` from `level` to the level below,
/// regardless of sizes. A caller that calls it for each level from 0 on until `Done` moves the
/// range to the last level. A table with deletes is rewritten, never just moved, so that the
/// deletes can be dropped.
pub fn pick_range(
    view: &PickerInput,
    level: usize,
    start: Option<&[u8]>,
    end: Option<&[u8]>,
) -> RangePick {
    let within = |span: &KeySpan| span.is_within(start, end);
    let tables = view.level(level);
    if level + 1 >= LEVELS || !tables.iter().any(|table| within(&table.span())) {
        return RangePick::Done;
    }
    let target = view.level_below(&view.shape(), level);
    let is_movable = |table: &TableInfo| table.deletes == 0;
    let pick = if level == 0 {
        view.pick_level0(target, within, is_movable)
    } else {
        let idle = |(_, table): &(usize, &TableInfo)| !table.busy && within(&table.span());
        let with_overlap = |(index, table): (usize, &TableInfo)| {
            Some((index, view.find_idle_overlap(target, &table.span())?))
        };
        tables.iter().enumerate().filter(idle).find_map(with_overlap).map(|(index, overlap)| {
            let upper: Vec<usize> = view.widened(level, index, target, &overlap).collect();
            view.finish((level, &upper), (target, overlap), is_movable)
        })
    };
    pick.map_or(RangePick::Blocked, RangePick::Run)
}

#[cfg(test)]
mod tests;
