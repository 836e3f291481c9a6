//! [`Version`]: the tables of one keyspace at one moment.

use std::sync::Arc;

use umbel_base::limits::LEVELS;
use umbel_base::{Error, Result};

use super::TableFile;

/// The tables of a keyspace, by level. Never changed, only replaced.
///
/// INVARIANT: level 0 stands newest first; every deeper level is sorted and its tables' bounds do
/// not overlap; for any key, what level n says is newer than what level n + 1 says.
#[derive(Debug, Default, Clone)]
pub struct Version {
    /// The levels, level 0 first.
    pub levels: [Vec<Arc<TableFile>>; LEVELS],
}

impl Version {
    /// The version after removing the tables with ids `removed` and adding `added` at their levels.
    /// New tables of level 0 are given oldest first and become the newest.
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
            if *level == 0 {
                next.levels[0].insert(0, Arc::clone(table));
                continue;
            }
            let tables = &mut next.levels[*level];
            let at = tables.partition_point(|t| t.meta.smallest < table.meta.smallest);
            tables.insert(at, Arc::clone(table));
        }
        next.check()?;
        Ok(next)
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

    /// The table of a level below level 0 that may hold `key`.
    #[inline]
    pub fn find(&self, level: usize, key: &[u8]) -> Option<&Arc<TableFile>> {
        let tables = &self.levels[level];
        let at = tables.partition_point(|table| !table.reaches(key));
        tables.get(at).filter(|table| key >= table.meta.smallest.as_slice())
    }

    /// Every table, level 0 first.
    pub fn tables(&self) -> impl Iterator<Item = (usize, &Arc<TableFile>)> {
        self.levels.iter().enumerate().flat_map(|(level, t)| t.iter().map(move |t| (level, t)))
    }
}
