//! How large a filter is to be.

/// How much room a filter is given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FilterSize {
    /// That many bits for each key, above 0 and up to 1000; of a counting filter that many
    /// counters, which take 4 bits each.
    BitsPerKey(f64),
    /// The least that reaches that false positive rate, above 0 and below 1: for standard and
    /// counting filters by the textbook's formula ([`crate::formulas::bits`]), which comes within
    /// 5 % of it; for the others by the exact rate, which is not above it.
    Rate(f64),
}
