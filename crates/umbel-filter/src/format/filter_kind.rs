//! The kinds of filters, by number and by name.

use std::fmt;

/// Kind of filter: the meaning of its bits, and the bits that a key sets.
///
/// FORMAT: the number is the fifth byte of every filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
#[repr(u8)]
pub enum FilterKind {
    /// A Bloom filter in lines of 512 bits: one cache miss for each key, however large it is.
    #[default]
    Blocked512 = 1,
    /// A Bloom filter in blocks of 256 bits: faster in cache, larger below a rate of 3 %.
    Blocked256 = 2,
    /// The textbook's Bloom filter: the smallest that keys can be added to, a cache miss for each
    /// probe.
    Standard = 3,
    /// Blocks of eight words of 32 bits, one bit in each, as Apache Parquet stores them.
    SplitBlock = 4,
    /// A binary fuse filter: smaller than any Bloom filter, built once from all keys.
    BinaryFuse = 5,
    /// A homogeneous ribbon filter: the smallest, built once from all keys, slower to probe.
    Ribbon = 6,
    /// A Bloom filter of counters of 4 bits, which keys can be removed from.
    Counting = 7,
}

impl FilterKind {
    /// Every kind, by number.
    pub const ALL: [FilterKind; 7] = [
        FilterKind::Blocked512,
        FilterKind::Blocked256,
        FilterKind::Standard,
        FilterKind::SplitBlock,
        FilterKind::BinaryFuse,
        FilterKind::Ribbon,
        FilterKind::Counting,
    ];

    /// The number in a filter's header.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The kind of that number; `None` for one that this version does not know.
    pub fn from_number(number: u8) -> Option<FilterKind> {
        FilterKind::ALL.into_iter().find(|kind| kind.number() == number)
    }

    /// The name in options and reports.
    pub fn name(self) -> &'static str {
        match self {
            FilterKind::Blocked512 => "blocked-512",
            FilterKind::Blocked256 => "blocked-256",
            FilterKind::Standard => "standard",
            FilterKind::SplitBlock => "split-block",
            FilterKind::BinaryFuse => "binary-fuse",
            FilterKind::Ribbon => "ribbon",
            FilterKind::Counting => "counting",
        }
    }

    /// Whether it is built once from all its keys, which then can neither be more nor fewer.
    pub fn is_static(self) -> bool {
        matches!(self, FilterKind::BinaryFuse | FilterKind::Ribbon)
    }

    /// The most probes a key has; `None` where the kind does not let them be chosen.
    pub fn most_probes(self) -> Option<u32> {
        match self {
            FilterKind::Blocked512 | FilterKind::Blocked256 => Some(24),
            FilterKind::Standard | FilterKind::Counting => Some(255),
            FilterKind::SplitBlock | FilterKind::BinaryFuse | FilterKind::Ribbon => None,
        }
    }
}

impl fmt::Display for FilterKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}
