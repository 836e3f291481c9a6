//! [`Version`]: the tables of one keyspace at one moment.

use std::array;
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Weak};

use umbel_base::limits::LEVELS;
use umbel_base::{CommonPrefix, Error, Result};
use umbel_table::TableMeta;

use super::LiveTable;
use crate::version::table_bound_heads::{BoundMatch, KeyHeadRange};

/// The tables of a keyspace, by level. A version never changes; edits replace it.
///
/// INVARIANT: level 0 is sorted newest first. Every deeper level is sorted by key, and its tables'
/// bounds do not overlap. For any key, entries in level n are newer than entries in level n + 1, or
/// are copied there by a compaction that has not ended.
#[derive(Debug, Default, Clone)]
pub struct Version {
    /// The levels, level 0 first.
    pub levels: [Vec<Arc<LiveTable>>; LEVELS],
    /// The tables in the layout for point reads.
    point_index: PointIndex,
    /// The tables that have range tombstones, in the same layout.
    range_tombstone_index: PointIndex,
    /// The identity of the set of tables.
    content: Arc<()>,
}

/// The tables with the heads of their bounds, by which the table of a key is nearly always found.
/// So a point read touches only the tables that it probes.
#[derive(Debug, Default, Clone)]
pub struct PointIndex {
    /// The common prefix of all bounds, which heads skip.
    prefix: CommonPrefix,
    level0: Vec<TableBounds>,
    deeper: Vec<LevelBounds>,
}

impl PointIndex {
    fn of_range_tombstones(levels: &[Vec<Arc<LiveTable>>; LEVELS]) -> PointIndex {
        let has_tombstones = |table: &&Arc<LiveTable>| table.meta.range_tombstones > 0;
        PointIndex::new(&array::from_fn(|level| {
            levels[level].iter().filter(has_tombstones).cloned().collect()
        }))
    }

    fn new(levels: &[Vec<Arc<LiveTable>>; LEVELS]) -> PointIndex {
        let deeper = levels.iter().enumerate().skip(1).filter(|(_, tables)| !tables.is_empty());
        let bounds = levels
            .iter()
            .flatten()
            .flat_map(|table| [table.meta.smallest.as_slice(), table.meta.largest.as_slice()]);
        let common = CommonPrefix::of(bounds);
        let near_table = |table: &Arc<LiveTable>| TableBounds::new(table, &common);
        let near_level = |(level, tables): (usize, &Vec<Arc<LiveTable>>)| LevelBounds {
            level,
            largest: tables.iter().map(|table| common.head(&table.meta.largest)).collect(),
            tables: tables.iter().map(near_table).collect(),
        };
        let newest = levels[0].iter().map(near_table).collect();
        let deeper = deeper.map(near_level).collect();
        PointIndex { prefix: common, level0: newest, deeper }
    }

    /// Returns the head of a key, which is made of the bytes after the common prefix of all bounds.
    #[inline]
    pub fn head(&self, key: &[u8]) -> u64 {
        self.prefix.head(key)
    }

    /// Whether no table is in the index.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.level0.is_empty() && self.deeper.is_empty()
    }

    /// Returns the tables of level 0, newest first.
    #[inline]
    pub fn level0(&self) -> &[TableBounds] {
        &self.level0
    }

    /// Returns the levels below level 0 that have tables, newest first.
    #[inline]
    pub fn deeper(&self) -> &[LevelBounds] {
        &self.deeper
    }

    /// Returns the tables that can hold `key`, newest first.
    pub fn candidates<'a>(&'a self, key: &'a [u8]) -> impl Iterator<Item = &'a LiveTable> {
        let head = self.head(key);
        let level0 = self.level0.iter().filter_map(move |near| near.table_for(key, head));
        level0.chain(self.deeper.iter().filter_map(move |level| level.find(key, head)))
    }
}

/// A table with the heads of its bounds.
#[derive(Debug, Clone)]
pub struct TableBounds {
    heads: KeyHeadRange,
    table: Arc<LiveTable>,
}

impl TableBounds {
    fn new(table: &Arc<LiveTable>, common: &CommonPrefix) -> TableBounds {
        let TableMeta { smallest, largest, .. } = &*table.meta;
        let heads = KeyHeadRange { smallest: common.head(smallest), largest: common.head(largest) };
        TableBounds { heads, table: Arc::clone(table) }
    }

    /// Returns the table if it can hold `key`, whose head is `head`.
    #[inline]
    pub fn table_for(&self, key: &[u8], head: u64) -> Option<&LiveTable> {
        let holds = match self.heads.locate(head) {
            BoundMatch::InRange => true,
            BoundMatch::OutOfRange => false,
            BoundMatch::OnBound => self.table.spans_key(key),
        };
        holds.then_some(&*self.table)
    }

    /// Returns the table.
    #[inline]
    pub fn table(&self) -> &LiveTable {
        &self.table
    }

    /// Whether the table's upper bound is at or after `key`, whose head is `head`.
    #[inline]
    pub fn reaches(&self, key: &[u8], head: u64) -> bool {
        match head.cmp(&self.heads.largest) {
            Ordering::Less => true,
            Ordering::Greater => false,
            Ordering::Equal => self.table.reaches(key),
        }
    }
}

/// A level below level 0 that has tables.
#[derive(Debug, Clone)]
pub struct LevelBounds {
    /// Number of the level.
    pub level: usize,
    /// The heads of the tables' upper bounds.
    largest: Vec<u64>,
    tables: Vec<TableBounds>,
}

impl LevelBounds {
    /// Returns the only table of the level that can hold `key`, whose head is `head`.
    #[inline]
    pub fn find(&self, key: &[u8], head: u64) -> Option<&LiveTable> {
        self.tables.get(self.first_reaching(key, head))?.table_for(key, head)
    }

    /// Returns the index of the first table whose upper bound is at or after `key`, whose head is
    /// `head`. Without such a table, returns the number of tables.
    #[inline]
    pub fn first_reaching(&self, key: &[u8], head: u64) -> usize {
        let at = self.largest.partition_point(|&largest| largest < head);
        if self.largest.get(at).is_some_and(|&largest| largest == head) {
            return at + self.resolve_tie(at, key, head);
        }
        at
    }

    /// Returns the level's tables, in key order.
    #[inline]
    pub fn tables(&self) -> &[TableBounds] {
        &self.tables
    }

    /// Returns the number of tables from index `at` on whose upper bound has head `head` and is
    /// before `key`. Only a comparison of whole keys decides this.
    #[cold]
    fn resolve_tie(&self, at: usize, key: &[u8], head: u64) -> usize {
        let same_heads = self.largest[at..].partition_point(|&largest| largest == head);
        self.tables[at..at + same_heads].partition_point(|near| !near.table.reaches(key))
    }
}

impl Version {
    /// The identity of the set of tables. A version with [replaced](Version::with_replacements)
    /// tables keeps the identity, because their entries are the same.
    pub fn content(&self) -> Weak<()> {
        Arc::downgrade(&self.content)
    }

    /// Returns the version without the tables with ids `removed`, and with the tables `added` at
    /// their levels. Tables of level 0 are ordered by their sequence numbers.
    ///
    /// Returns an error if the result would break an invariant or a removed table does not exist.
    /// The caller must then install nothing.
    pub fn apply(
        &self,
        removed: &[(usize, u64)],
        added: &[(usize, Arc<LiveTable>)],
    ) -> Result<Version> {
        let mut next = self.clone();
        let mut removed_by_level: BTreeMap<usize, HashSet<u64>> = BTreeMap::new();
        for &(level, id) in removed {
            if !removed_by_level.entry(level).or_default().insert(id) {
                let message = format!("internal: table {id} is removed twice");
                return Err(Error::invalid(message));
            }
        }
        for (level, mut ids) in removed_by_level {
            next.levels[level].retain(|table| !ids.remove(&table.meta.id));
            if let Some(id) = ids.into_iter().min() {
                let message = format!("internal: table {id} is not in level {level}");
                return Err(Error::invalid(message));
            }
        }
        for (level, table) in added {
            let tables = &mut next.levels[*level];
            let at = if *level == 0 {
                tables.partition_point(|t| t.meta.sequence_max > table.meta.sequence_max)
            } else {
                tables.partition_point(|t| t.meta.smallest < table.meta.smallest)
            };
            tables.insert(at, Arc::clone(table));
        }
        next.check()?;
        next.content = Arc::default();
        next.point_index = PointIndex::new(&next.levels);
        next.range_tombstone_index = PointIndex::of_range_tombstones(&next.levels);
        Ok(next)
    }

    /// Returns a version of the same tables, in which each table for which `other` returns a
    /// replacement is replaced.
    pub fn with_replacements(
        &self,
        other: impl Fn(&Arc<LiveTable>) -> Option<Arc<LiveTable>>,
    ) -> Version {
        let mut next = self.clone();
        for table in next.levels.iter_mut().flatten() {
            if let Some(other) = other(table) {
                *table = other;
            }
        }
        next.point_index = PointIndex::new(&next.levels);
        next.range_tombstone_index = PointIndex::of_range_tombstones(&next.levels);
        next
    }

    fn check(&self) -> Result<()> {
        for (number, tables) in self.levels.iter().enumerate().skip(1) {
            for pair in tables.windows(2) {
                if pair[0].reaches(&pair[1].meta.smallest) {
                    return Err(Error::invalid(format!(
                        "internal: tables {} and {} of level {number} overlap",
                        pair[0].meta.id, pair[1].meta.id
                    )));
                }
            }
        }
        for pair in self.levels[0].windows(2) {
            if pair[0].meta.sequence_min < pair[1].meta.sequence_max {
                return Err(Error::invalid(format!(
                    "internal: table {} of level 0 is not newer than table {}",
                    pair[0].meta.id, pair[1].meta.id
                )));
            }
        }
        Ok(())
    }

    /// Returns the head of a key for the point index, which is made of the bytes after the common
    /// prefix of all bounds.
    #[inline]
    pub fn head(&self, key: &[u8]) -> u64 {
        self.point_index.prefix.head(key)
    }

    /// Returns the tables of level 0, newest first.
    #[inline]
    pub fn level0(&self) -> &[TableBounds] {
        &self.point_index.level0
    }

    /// Returns the levels below level 0 that have tables, newest first.
    #[inline]
    pub fn deeper(&self) -> &[LevelBounds] {
        &self.point_index.deeper
    }

    /// Maximum number of sources that a point read searches: each table of level 0, and each deeper
    /// level that has tables.
    #[inline]
    pub fn sources(&self) -> usize {
        self.point_index.level0.len() + self.point_index.deeper.len()
    }

    /// Returns the only table of source `number` that can hold `key`, whose head is `head`, and the
    /// table's level. Entries of a source are newer than those of sources with higher numbers, or
    /// have copies there.
    #[inline]
    fn source(&self, number: usize, key: &[u8], head: u64) -> Option<(usize, &LiveTable)> {
        if let Some(newest) = self.point_index.level0.get(number) {
            return newest.table_for(key, head).map(|table| (0, table));
        }
        let deeper = self.point_index.deeper.get(number - self.point_index.level0.len())?;
        deeper.find(key, head).map(|table| (deeper.level, table))
    }

    /// Returns the tables that can hold `key`, whose head is `head`, and their levels, newest
    /// first.
    pub fn candidates(&self, key: &[u8], head: u64) -> impl Iterator<Item = (usize, &LiveTable)> {
        (0..self.sources()).filter_map(move |number| self.source(number, key, head))
    }

    /// Returns the point index of the tables that have range tombstones.
    #[inline]
    pub fn range_tombstone_index(&self) -> &PointIndex {
        &self.range_tombstone_index
    }

    /// Bytes of all tables, without long values in files of their own.
    pub fn file_bytes(&self) -> u64 {
        self.tables().map(|(_, table)| table.meta.file_bytes).sum()
    }

    /// Returns every table with its level, level 0 first.
    pub fn tables(&self) -> impl Iterator<Item = (usize, &Arc<LiveTable>)> {
        self.levels.iter().enumerate().flat_map(|(level, t)| t.iter().map(move |t| (level, t)))
    }
}
