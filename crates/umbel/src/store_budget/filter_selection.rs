//! [`FilterSelection`]: which filter of a table is kept in memory, if the memory suffices.

use umbel_table::{FilterResidency, TableMeta};

/// Fold factor that means that the filter is not kept in memory.
pub const NO_FILTER: u64 = u64::MAX;

/// Selects the filter of a table that is kept in memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum FilterSelection {
    /// The plain filter, as a store without an advisor keeps it.
    #[default]
    Plain = 0,
    /// No filter, since its savings are not worth its memory.
    Nothing = 1,
    /// The second filter, if the table has one.
    Second = 2,
}

impl FilterSelection {
    /// Returns the selection with this number.
    pub fn from_u8(number: u8) -> FilterSelection {
        match number {
            1 => FilterSelection::Nothing,
            2 => FilterSelection::Second,
            _ => FilterSelection::Plain,
        }
    }

    /// Returns the residency for the table of `meta`, if the memory suffices for a plain filter
    /// folded by `factor`.
    pub fn keep(self, meta: &TableMeta, factor: u64) -> FilterResidency {
        if meta.plain_filter_bytes() == 0 {
            return FilterResidency::default();
        }
        match self {
            _ if factor == NO_FILTER => FilterResidency::Nothing,
            FilterSelection::Nothing => FilterResidency::Nothing,
            FilterSelection::Second if factor == 1 && meta.second_filter.is_some() => {
                FilterResidency::Second
            }
            FilterSelection::Second | FilterSelection::Plain => FilterResidency::Plain { factor },
        }
    }

    /// Memory of the selected filter of the table of `meta`, in bytes.
    pub fn bytes(self, meta: &TableMeta) -> u64 {
        match self.keep(meta, 1) {
            FilterResidency::Nothing => 0,
            FilterResidency::Second => meta.second_filter_bytes(),
            FilterResidency::Plain { .. } => meta.plain_filter_bytes(),
        }
    }
}
