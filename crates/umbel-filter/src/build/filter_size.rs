//! Size of a filter.

/// Size of a filter, by bits per key or by rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FilterSize {
    /// That many bits for each key, above 0 and up to 1000; of a counting filter that many
    /// counters, which take 4 bits each.
    BitsPerKey(f64),
    /// Smallest size with this false positive rate, above 0 and below 1. Standard and
    /// counting filters use the textbook's formula ([`crate::bloom_formulas::bits`]), which is
    /// within 5 % of it. The others use the exact rate, which is not above it.
    Rate(f64),
}
