//! Zipfian distribution of lookups over keys.

/// The skew.
const THETA: f64 = 0.99;

/// Returns the rank of a key among `num` keys, from 1 for the most frequent. The rank follows the
/// continuous distribution of this skew, for a uniformly distributed `draw` below 2^53. The caller
/// scatters the ranks over the keys.
pub fn rank(draw: u64, num: u64) -> u64 {
    let share = draw as f64 / (1u64 << 53) as f64;
    let whole = (num as f64).powf(1.0 - THETA) - 1.0;
    (share * whole + 1.0).powf(1.0 / (1.0 - THETA)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_in_range_and_low_ones_most_frequent() {
        let ranks = |part: u64| rank(part << 43, 1_000_000);
        assert_eq!((ranks(0), rank((1 << 53) - 1, 1_000_000)), (1, 999_999));
        assert!((0..1024).map(ranks).is_sorted());
        let first = (0..1024).filter(|part| ranks(*part) <= 100).count();
        assert!((300..400).contains(&first), "{first} of 1024 among the first hundred");
    }
}
