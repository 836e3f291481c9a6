//! What of the tables' indexes and filters stays in memory, level by level.
//!
//! As long as all of it fits into its share, all of it stays. Past that the levels are served from
//! the newest down, each with the best that the rest leaves room for: nearly every read asks the
//! small upper levels, and the last level, which holds most of the data, takes most of the memory.

use umbel_base::limits::LEVELS;
use umbel_table::TableMeta;

use crate::filter_choice::{Choice, NO_FILTER};

/// What stays in memory of a table while it is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Residence {
    /// Whether only the top of the index stays.
    pub paged: bool,
    /// How many times smaller a filter is kept than it is on disk. [`Residence::NO_FILTER`]: it is
    /// not kept at all.
    pub filter_factor: u64,
}

impl Residence {
    /// A factor that means that the filter is not kept.
    pub const NO_FILTER: u64 = NO_FILTER;
}

impl Default for Residence {
    /// The whole index and the whole filter.
    fn default() -> Residence {
        Residence { paged: false, filter_factor: 1 }
    }
}

/// What a block takes in memory besides its part of the index in the file: head, stretch, offset,
/// bounds of the separator, slot.
const BLOCK_BYTES: u64 = 40;
/// What an open table takes besides, about.
const TABLE_BYTES: u64 = 2048;
/// What the top of the index takes of each block, about.
const TOP_BYTES: u64 = 1;

/// What may stay, the best first.
const CHOICES: [Residence; 7] = [
    Residence { paged: false, filter_factor: 1 },
    Residence { paged: false, filter_factor: 2 },
    Residence { paged: true, filter_factor: 1 },
    Residence { paged: true, filter_factor: 2 },
    // Beyond four times smaller the usual filter says "maybe" to nearly everything.
    Residence { paged: true, filter_factor: 3 },
    Residence { paged: true, filter_factor: 4 },
    LEAST,
];
const LEAST: Residence = Residence { paged: true, filter_factor: Residence::NO_FILTER };

/// What the tables of a level would take, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Needs {
    /// Readers with the whole index, without filters.
    pub whole: u64,
    /// Readers with the top of the index, without filters.
    pub paged: u64,
    /// The filters that were chosen, as they are on disk.
    pub filters: u64,
}

impl Needs {
    /// Adds a table of which that filter is to be kept.
    pub fn add(&mut self, meta: &TableMeta, choice: Choice) {
        let blocks = u64::from(meta.blocks);
        self.whole += meta.index_bytes + blocks * BLOCK_BYTES + TABLE_BYTES;
        self.paged += blocks * TOP_BYTES + TABLE_BYTES;
        // Where there is not room for all of it, it is the plain one that is folded.
        let plain = if choice == Choice::Second { meta.plain_filter_bytes() } else { 0 };
        self.filters += choice.bytes(meta).max(plain) + meta.prefix_filter_bytes;
    }

    fn bytes(&self, residence: Residence) -> u64 {
        let filters = match residence.filter_factor {
            Residence::NO_FILTER => 0,
            factor => self.filters / factor.max(1),
        };
        filters + if residence.paged { self.paged } else { self.whole }
    }
}

/// What stays of each level where all readers may take `most` bytes.
pub fn plan(levels: &[Needs; LEVELS], most: u64) -> [Residence; LEVELS] {
    let all: u64 = levels.iter().map(|needs| needs.bytes(Residence::default())).sum();
    // While a compaction runs, the tables it replaces are open beside those it writes.
    if all <= most / 8 * 7 {
        return [Residence::default(); LEVELS];
    }
    // Where parts come and go they do so through the cache, which needs the room more.
    let mut left = most / 4 * 3;
    let mut least: u64 = levels.iter().map(|needs| needs.bytes(LEAST)).sum();
    levels.map(|needs| {
        least -= needs.bytes(LEAST);
        let room = left.saturating_sub(least);
        let fits = |choice: &Residence| needs.bytes(*choice) <= room;
        let chosen = CHOICES.into_iter().find(fits).unwrap_or(LEAST);
        left = left.saturating_sub(needs.bytes(chosen));
        chosen
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEBIBYTE: u64 = 1 << 20;

    fn needs(whole: u64, paged: u64, filters: u64) -> Needs {
        Needs { whole: whole << 20, paged: paged << 20, filters: filters << 20 }
    }

    fn two(upper: Needs, last: Needs, most: u64) -> [Residence; 2] {
        let mut levels = [Needs::default(); LEVELS];
        (levels[2], levels[LEVELS - 1]) = (upper, last);
        let planned = plan(&levels, most * MEBIBYTE);
        let bytes: u64 = levels.iter().zip(planned).map(|(needs, kept)| needs.bytes(kept)).sum();
        assert!(bytes <= most * MEBIBYTE, "{planned:?}");
        [planned[2], planned[LEVELS - 1]]
    }

    #[test]
    fn the_last_level_gives_up_first() {
        let whole = Residence::default();
        let upper = needs(10, 1, 12);
        let planned = |last, most| two(upper, last, most);
        assert_eq!(planned(needs(60, 2, 60), 200), [whole, whole]);
        let halved = Residence { paged: false, filter_factor: 2 };
        assert_eq!(planned(needs(60, 2, 60), 160), [whole, halved]);
        let paged = |filter_factor| Residence { paged: true, filter_factor };
        assert_eq!(planned(needs(60, 2, 60), 120), [whole, paged(1)]);
        assert_eq!(planned(needs(60, 2, 60), 80), [whole, paged(2)]);
        assert_eq!(planned(needs(60, 2, 60), 56), [whole, paged(4)]);
        assert_eq!(planned(needs(60, 2, 60), 40), [whole, LEAST]);
        assert_eq!(planned(needs(60, 2, 60), 28), [halved, LEAST]);
        assert_eq!(two(upper, needs(60, 2, 60), 4), [LEAST, LEAST]);
    }
}
