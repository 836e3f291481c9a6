//! Residency of the tables' indexes and filters in memory, level by level.
//!
//! While all indexes and filters fit into their share of the budget, all stay in memory. Otherwise
//! memory is given to the levels from level 0 down, each with the best residency that the remaining
//! memory allows. Nearly every read probes the small upper levels; the last level holds most of the
//! data and needs most of the memory.

use umbel_base::limits::LEVELS;
use umbel_table::TableMeta;

use crate::store_budget::filter_selection::{FilterSelection, NO_FILTER};

/// Says which parts of an open table's index and filter stay in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Residency {
    /// Whether only the top of the index stays in memory.
    pub paged: bool,
    /// Factor by which the filter in memory is folded, relative to the file.
    /// [`Residency::NO_FILTER`]: no filter is kept in memory.
    pub filter_factor: u64,
}

impl Residency {
    /// Fold factor that means that the filter is not kept in memory.
    pub const NO_FILTER: u64 = NO_FILTER;
}

impl Default for Residency {
    /// The residency with the whole index and the whole filter in memory.
    fn default() -> Residency {
        Residency { paged: false, filter_factor: 1 }
    }
}

/// Bytes of memory for each block besides its part of the index in the file: head, stretch, offset,
/// bounds of the separator, slot.
const BLOCK_BYTES: u64 = 40;
/// Approximate bytes of further memory of an open table.
const TABLE_BYTES: u64 = 2048;
/// Approximate bytes of the top of the index for each block.
const TOP_BYTES: u64 = 1;

/// Possible residencies, the best first.
const STEPS: [Residency; 7] = [
    Residency { paged: false, filter_factor: 1 },
    Residency { paged: false, filter_factor: 2 },
    Residency { paged: true, filter_factor: 1 },
    Residency { paged: true, filter_factor: 2 },
    // Folded by 4 or more, the default filter passes nearly every key.
    Residency { paged: true, filter_factor: 3 },
    Residency { paged: true, filter_factor: 4 },
    MINIMUM,
];
const MINIMUM: Residency = Residency { paged: true, filter_factor: Residency::NO_FILTER };

/// Memory that the tables of a level would take, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LevelDemand {
    /// Bytes of table readers with the whole index in memory, without filters.
    pub unpaged: u64,
    /// Bytes of table readers with only the top of the index in memory, without filters.
    pub paged: u64,
    /// Bytes of the selected filters, as large as they are on disk.
    pub filters: u64,
}

impl LevelDemand {
    /// Adds a table whose selected filter is `choice`.
    pub fn add(&mut self, meta: &TableMeta, choice: FilterSelection) {
        let blocks = u64::from(meta.blocks);
        self.unpaged += meta.index_bytes + blocks * BLOCK_BYTES + TABLE_BYTES;
        self.paged += blocks * TOP_BYTES + TABLE_BYTES;
        // If memory does not suffice for all of it, the plain filter is the one that is folded.
        let plain = if choice == FilterSelection::Second { meta.plain_filter_bytes() } else { 0 };
        self.filters += choice.bytes(meta).max(plain) + meta.prefix_filter_bytes;
    }

    fn bytes(&self, residency: Residency) -> u64 {
        let filters = match residency.filter_factor {
            Residency::NO_FILTER => 0,
            factor => self.filters / factor.max(1),
        };
        filters + if residency.paged { self.paged } else { self.unpaged }
    }
}

/// Returns the residency of each level's tables if all table readers may use `limit` bytes.
pub fn plan(levels: &[LevelDemand; LEVELS], limit: u64) -> [Residency; LEVELS] {
    let all: u64 = levels.iter().map(|needs| needs.bytes(Residency::default())).sum();
    // While a compaction runs, the tables it replaces are open beside those it writes.
    if all <= limit / 8 * 7 {
        return [Residency::default(); LEVELS];
    }
    // Parts that are loaded and evicted go through the cache, which needs the memory more.
    let mut left = limit / 4 * 3;
    let mut least: u64 = levels.iter().map(|needs| needs.bytes(MINIMUM)).sum();
    levels.map(|needs| {
        least -= needs.bytes(MINIMUM);
        let available = left.saturating_sub(least);
        let fits = |choice: &Residency| needs.bytes(*choice) <= available;
        let chosen = STEPS.into_iter().find(fits).unwrap_or(MINIMUM);
        left = left.saturating_sub(needs.bytes(chosen));
        chosen
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEBIBYTE: u64 = 1 << 20;

    fn needs(unpaged: u64, paged: u64, filters: u64) -> LevelDemand {
        LevelDemand { unpaged: unpaged << 20, paged: paged << 20, filters: filters << 20 }
    }

    fn two(upper: LevelDemand, last: LevelDemand, limit: u64) -> [Residency; 2] {
        let mut levels = [LevelDemand::default(); LEVELS];
        (levels[2], levels[LEVELS - 1]) = (upper, last);
        let planned = plan(&levels, limit * MEBIBYTE);
        let bytes: u64 = levels.iter().zip(planned).map(|(needs, kept)| needs.bytes(kept)).sum();
        assert!(bytes <= limit * MEBIBYTE, "{planned:?}");
        [planned[2], planned[LEVELS - 1]]
    }

    #[test]
    fn last_level_loses_residency_first() {
        let unpaged = Residency::default();
        let upper = needs(10, 1, 12);
        let planned = |last, limit| two(upper, last, limit);
        assert_eq!(planned(needs(60, 2, 60), 200), [unpaged, unpaged]);
        let halved = Residency { paged: false, filter_factor: 2 };
        assert_eq!(planned(needs(60, 2, 60), 160), [unpaged, halved]);
        let paged = |filter_factor| Residency { paged: true, filter_factor };
        assert_eq!(planned(needs(60, 2, 60), 120), [unpaged, paged(1)]);
        assert_eq!(planned(needs(60, 2, 60), 80), [unpaged, paged(2)]);
        assert_eq!(planned(needs(60, 2, 60), 56), [unpaged, paged(4)]);
        assert_eq!(planned(needs(60, 2, 60), 40), [unpaged, MINIMUM]);
        assert_eq!(planned(needs(60, 2, 60), 28), [halved, MINIMUM]);
        assert_eq!(two(upper, needs(60, 2, 60), 4), [MINIMUM, MINIMUM]);
    }
}
