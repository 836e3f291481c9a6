//! The kinds of filters, by number and by name.

use std::fmt;

/// Kind of filter: the meaning of its bits, and the bits that a key sets.
///
/// FORMAT: the number is the fifth byte of every filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
#[repr(u8)]
pub enum FilterKind {
    /// A Bloom filter in lines of 512 bits: one cache miss for each probe, at any size.
    #[default]
    Blocked512 = 1,
    /// A Bloom filter in blocks of 256 bits: faster in cache than lines of 512, but larger for
    /// rates below 3 %.
    Blocked256 = 2,
    /// The textbook's Bloom filter: the smallest to which keys can be added, with a cache miss for
    /// each bit of a key.
    Standard = 3,
    /// Blocks of eight words of 32 bits, one bit in each, as Apache Parquet stores them.
    SplitBlock = 4,
    /// A binary fuse filter: smaller than any Bloom filter, built once from all keys.
    BinaryFuse = 5,
    /// A homogeneous ribbon filter: the smallest of all kinds, built once from all keys, slower to
    /// probe.
    Ribbon = 6,
    /// A Bloom filter of counters of 4 bits, from which keys can be removed.
    Counting = 7,
}

impl FilterKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [FilterKind; 7] = [
        FilterKind::Blocked512,
        FilterKind::Blocked256,
        FilterKind::Standard,
        FilterKind::SplitBlock,
        FilterKind::BinaryFuse,
        FilterKind::Ribbon,
        FilterKind::Counting,
    ];

    /// The kind's number in a filter's header.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The kind with a number; `None` for a number that this build does not know.
    pub fn from_number(number: u8) -> Option<FilterKind> {
        FilterKind::ALL.into_iter().find(|kind| kind.number() == number)
    }

    /// The kind's name in options and reports.
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

    /// Whether a filter of this kind is built once from all its keys, and keys can be neither added
    /// nor removed later.
    pub fn is_static(self) -> bool {
        matches!(self, FilterKind::BinaryFuse | FilterKind::Ribbon)
    }

    /// The most probes of a key; `None` if the kind has a fixed number or none.
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
