//! Size of a filter.

/// Size of a filter, by bits per key or by rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FilterSize {
    /// Bits for each key, above 0 and up to 1000; in a counting filter, counters of 4 bits for each
    /// key.
    BitsPerKey(f64),
    /// The smallest size with this false-positive rate, above 0 and below 1. Standard and counting
    /// filters use the textbook's formula ([`crate::bloom_formulas::bits`]), whose rate is within 5
    /// % of the requested rate. All other kinds use their exact rate, which is not above the
    /// requested rate.
    Rate(f64),
}
