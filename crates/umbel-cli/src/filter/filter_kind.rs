//! The kinds of filters by the names of the command line.

use clap::ValueEnum;
use umbel_filter::FilterKind;

/// A kind of filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// The textbook's Bloom filter
    Bloom,
    /// A Bloom filter in cache lines of 512 bits: the default of the store
    Blocked,
    /// A Bloom filter in blocks of 256 bits
    Blocked256,
    /// The split-block filter of Apache Parquet, written as Parquet writes it
    Parquet,
    /// A binary fuse filter
    Fuse,
    /// A ribbon filter
    Ribbon,
    /// A Bloom filter that keys can be removed from
    Counting,
}

impl Kind {
    /// As the library calls it.
    pub fn of_library(self) -> FilterKind {
        match self {
            Kind::Bloom => FilterKind::Standard,
            Kind::Blocked => FilterKind::Blocked512,
            Kind::Blocked256 => FilterKind::Blocked256,
            Kind::Parquet => FilterKind::SplitBlock,
            Kind::Fuse => FilterKind::BinaryFuse,
            Kind::Ribbon => FilterKind::Ribbon,
            Kind::Counting => FilterKind::Counting,
        }
    }

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Bloom => "bloom",
            Kind::Blocked => "blocked",
            Kind::Blocked256 => "blocked256",
            Kind::Parquet => "parquet",
            Kind::Fuse => "fuse",
            Kind::Ribbon => "ribbon",
            Kind::Counting => "counting",
        }
    }
}
