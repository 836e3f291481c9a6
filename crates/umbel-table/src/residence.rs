//! How much of a table's index and filter stays in memory.

/// What stays in memory while a table is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Residence {
    /// Whether only the top of the index stays, its parts being loaded as needed and kept as blocks
    /// are. Reads then take a lock and search a part by walking it.
    pub paged: bool,
    /// How many times smaller the filter is kept than it is on disk: folded by this factor, or the
    /// next larger one up to twice that which divides it; whole where none does.
    /// [`Residence::NO_FILTER`]: not at all.
    pub filter_factor: u64,
}

impl Residence {
    /// A factor that means that the filter is not kept.
    pub const NO_FILTER: u64 = u64::MAX;
}

impl Default for Residence {
    /// The whole index and the whole filter.
    fn default() -> Residence {
        Residence { paged: false, filter_factor: 1 }
    }
}
