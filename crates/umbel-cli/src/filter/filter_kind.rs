//! Kinds of filters by their names on the command line.

use clap::ValueEnum;
use umbel_filter::FilterKind;

/// A kind of filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FilterKindName {
    /// Standard Bloom filter
    Bloom,
    /// Blocked Bloom filter with blocks of 512 bits, one cache line; the default of stores
    Blocked,
    /// Blocked Bloom filter with blocks of 256 bits
    Blocked256,
    /// Split block Bloom filter in the file format of Apache Parquet
    Parquet,
    /// Binary fuse filter
    Fuse,
    /// Ribbon filter
    Ribbon,
    /// Counting Bloom filter, from which keys can be removed
    Counting,
}

impl FilterKindName {
    /// Returns the kind of the library.
    pub fn to_library_kind(self) -> FilterKind {
        match self {
            FilterKindName::Bloom => FilterKind::Standard,
            FilterKindName::Blocked => FilterKind::Blocked512,
            FilterKindName::Blocked256 => FilterKind::Blocked256,
            FilterKindName::Parquet => FilterKind::SplitBlock,
            FilterKindName::Fuse => FilterKind::BinaryFuse,
            FilterKindName::Ribbon => FilterKind::Ribbon,
            FilterKindName::Counting => FilterKind::Counting,
        }
    }

    /// Returns the name of the kind on the command line.
    pub fn name(self) -> &'static str {
        match self {
            FilterKindName::Bloom => "bloom",
            FilterKindName::Blocked => "blocked",
            FilterKindName::Blocked256 => "blocked256",
            FilterKindName::Parquet => "parquet",
            FilterKindName::Fuse => "fuse",
            FilterKindName::Ribbon => "ribbon",
            FilterKindName::Counting => "counting",
        }
    }
}
