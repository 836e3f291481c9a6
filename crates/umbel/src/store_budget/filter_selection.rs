//! [`Choice`]: which of a table's filters is kept in memory, where there is memory for one.

use umbel_table::{FilterKeep, TableMeta};

/// Stands for how many times smaller a filter is kept: it is not kept at all.
pub const NO_FILTER: u64 = u64::MAX;

/// Which filter of a table is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Choice {
    /// The plain one, as a store without an advisor keeps it.
    #[default]
    Plain = 0,
    /// None: what it would save is not worth its memory.
    Nothing = 1,
    /// The second one, where the table has one.
    Second = 2,
}

impl Choice {
    /// The choice of this number.
    pub fn from_u8(number: u8) -> Choice {
        match number {
            1 => Choice::Nothing,
            2 => Choice::Second,
            _ => Choice::Plain,
        }
    }

    /// What it means for the table of `meta`, where there is memory for a plain filter folded by
    /// `factor`.
    pub fn keep(self, meta: &TableMeta, factor: u64) -> FilterKeep {
        if meta.plain_filter_bytes() == 0 {
            return FilterKeep::default();
        }
        match self {
            _ if factor == NO_FILTER => FilterKeep::Nothing,
            Choice::Nothing => FilterKeep::Nothing,
            Choice::Second if factor == 1 && meta.second_filter.is_some() => FilterKeep::Second,
            Choice::Second | Choice::Plain => FilterKeep::Plain { factor },
        }
    }

    /// Bytes that it takes of the table of `meta`.
    pub fn bytes(self, meta: &TableMeta) -> u64 {
        match self.keep(meta, 1) {
            FilterKeep::Nothing => 0,
            FilterKeep::Second => meta.second_filter_bytes(),
            FilterKeep::Plain { .. } => meta.plain_filter_bytes(),
        }
    }
}
