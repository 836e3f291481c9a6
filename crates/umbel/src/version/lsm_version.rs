//! [`Version`]: the tables of one keyspace at one moment.

use std::cmp::Ordering;
use std::sync::Arc;

use umbel_base::limits::LEVELS;
use umbel_base::{Error, Result};
use umbel_table::TableMeta;

use super::TableFile;
use super::head::{Common, Heads, Place};

/// The tables of a keyspace, by level. Never changed, only replaced.
///
/// INVARIANT: level 0 stands newest first; every deeper level is sorted and its tables' bounds do
/// not overlap; for any key, what level n says is newer than what level n + 1 says.
#[derive(Debug, Default, Clone)]
pub struct Version {
    /// The levels, level 0 first.
    pub levels: [Vec<Arc<TableFile>>; LEVELS],
    /// The same tables as point reads want them.
    near: Near,
    /// Whether some table has range tombstones.
    range_tombstones: bool,
}

/// The tables with what decides nearly always which of them holds a key, so that a point read
/// touches no table but those it asks.
#[derive(Debug, Default, Clone)]
struct Near {
    /// What heads leave out.
    common: Common,
    newest: Vec<NearTable>,
    deeper: Vec<NearLevel>,
}

impl Near {
    fn new(levels: &[Vec<Arc<TableFile>>; LEVELS]) -> Near {
        let deeper = levels.iter().enumerate().skip(1).filter(|(_, tables)| !tables.is_empty());
        let bounds = levels
            .iter()
            .flatten()
            .flat_map(|table| [table.meta.smallest.as_slice(), table.meta.largest.as_slice()]);
        let common = Common::of(bounds);
        let near_table = |table: &Arc<TableFile>| NearTable::new(table, &common);
        let near_level = |(level, tables): (usize, &Vec<Arc<TableFile>>)| NearLevel {
            level,
            largest: tables.iter().map(|table| common.head(&table.meta.largest)).collect(),
            tables: tables.iter().map(near_table).collect(),
        };
        let newest = levels[0].iter().map(near_table).collect();
        let deeper = deeper.map(near_level).collect();
        Near { common, newest, deeper }
    }
}

/// A table with the heads of its bounds.
#[derive(Debug, Clone)]
pub struct NearTable {
    heads: Heads,
    table: Arc<TableFile>,
}

impl NearTable {
    fn new(table: &Arc<TableFile>, common: &Common) -> NearTable {
        let TableMeta { smallest, largest, .. } = &*table.meta;
        let heads = Heads { smallest: common.head(smallest), largest: common.head(largest) };
        NearTable { heads, table: Arc::clone(table) }
    }

    /// The table, where it may hold `key`, which has this head.
    #[inline]
    pub fn if_it_holds(&self, key: &[u8], head: u64) -> Option<&TableFile> {
        let holds = match self.heads.place(head) {
            Place::Inside => true,
            Place::Outside => false,
            Place::OnBound => self.table.holds(key),
        };
        holds.then_some(&*self.table)
    }

    /// The table.
    #[inline]
    pub fn table(&self) -> &TableFile {
        &self.table
    }

    /// Whether the table's upper bound is at or behind `key`, which has this head.
    #[inline]
    pub fn reaches(&self, key: &[u8], head: u64) -> bool {
        match head.cmp(&self.heads.largest) {
            Ordering::Less => true,
            Ordering::Greater => false,
            Ordering::Equal => self.table.reaches(key),
        }
    }
}

/// A deeper level that has tables.
#[derive(Debug, Clone)]
pub struct NearLevel {
    /// Its number.
    pub level: usize,
    /// The heads of the tables' upper bounds.
    largest: Vec<u64>,
    tables: Vec<NearTable>,
}

impl NearLevel {
    /// The only table that may hold `key`, which has this head.
    #[inline]
    pub fn find(&self, key: &[u8], head: u64) -> Option<&TableFile> {
        self.tables.get(self.first_reaching(key, head))?.if_it_holds(key, head)
    }

    /// The number of the first table whose upper bound is at or behind `key`, which begins with
    /// `head`; that of tables where there is none.
    #[inline]
    pub fn first_reaching(&self, key: &[u8], head: u64) -> usize {
        let at = self.largest.partition_point(|&largest| largest < head);
        if self.largest.get(at).is_some_and(|&largest| largest == head) {
            return at + self.behind_alike(at, key, head);
        }
        at
    }

    /// Its tables in order.
    #[inline]
    pub fn tables(&self) -> &[NearTable] {
        &self.tables
    }

    /// How many of the tables from `at` on end with this head and before `key`: only whole keys
    /// can tell.
    #[cold]
    fn behind_alike(&self, at: usize, key: &[u8], head: u64) -> usize {
        let alike = self.largest[at..].partition_point(|&largest| largest == head);
        self.tables[at..at + alike].partition_point(|near| !near.table.reaches(key))
    }
}

impl Version {
    /// The version after removing the tables with ids `removed` and adding `added` at their levels.
    /// Tables of level 0 take their place by their sequence numbers.
    ///
    /// An error where the result would break an invariant or a removed table is not there: then
    /// nothing may be installed.
    pub fn apply(
        &self,
        removed: &[(usize, u64)],
        added: &[(usize, Arc<TableFile>)],
    ) -> Result<Version> {
        let mut next = self.clone();
        for &(level, id) in removed {
            let tables = &mut next.levels[level];
            let before = tables.len();
            tables.retain(|table| table.meta.id != id);
            if tables.len() + 1 != before {
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
        next.near = Near::new(&next.levels);
        let has_some = |(_, table): (_, &Arc<TableFile>)| table.meta.range_tombstones > 0;
        let range_tombstones = next.tables().any(has_some);
        next.range_tombstones = range_tombstones;
        Ok(next)
    }

    /// The same tables, of which those that `other` gives another place for take it.
    pub fn with_others(
        &self,
        other: impl Fn(&Arc<TableFile>) -> Option<Arc<TableFile>>,
    ) -> Version {
        let mut next = self.clone();
        for table in next.levels.iter_mut().flatten() {
            if let Some(other) = other(table) {
                *table = other;
            }
        }
        next.near = Near::new(&next.levels);
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

    /// The head of a key, as the tables want it: that of what is behind what all bounds begin with.
    #[inline]
    pub fn head(&self, key: &[u8]) -> u64 {
        self.near.common.head(key)
    }

    /// The tables of level 0, newest first.
    #[inline]
    pub fn newest(&self) -> &[NearTable] {
        &self.near.newest
    }

    /// The deeper levels that have tables, newest first.
    #[inline]
    pub fn deeper(&self) -> &[NearLevel] {
        &self.near.deeper
    }

    /// How many sources a point read has to ask at most: the tables of level 0 and the deeper
    /// levels that have tables.
    #[inline]
    pub fn sources(&self) -> usize {
        self.near.newest.len() + self.near.deeper.len()
    }

    /// The only table of a source that may hold `key`, which has this head, and its level.
    /// What a source says is newer than what the ones behind it say.
    #[inline]
    fn source(&self, number: usize, key: &[u8], head: u64) -> Option<(usize, &TableFile)> {
        if let Some(newest) = self.near.newest.get(number) {
            return newest.if_it_holds(key, head).map(|table| (0, table));
        }
        let deeper = self.near.deeper.get(number - self.near.newest.len())?;
        deeper.find(key, head).map(|table| (deeper.level, table))
    }

    /// The tables that may hold `key`, which has this head, newest first, and their levels.
    pub fn holding(&self, key: &[u8], head: u64) -> impl Iterator<Item = (usize, &TableFile)> {
        (0..self.sources()).filter_map(move |number| self.source(number, key, head))
    }

    /// Whether some table has range tombstones.
    #[inline]
    pub fn has_range_tombstones(&self) -> bool {
        self.range_tombstones
    }

    /// Every table, level 0 first.
    pub fn tables(&self) -> impl Iterator<Item = (usize, &Arc<TableFile>)> {
        self.levels.iter().enumerate().flat_map(|(level, t)| t.iter().map(move |t| (level, t)))
    }
}
