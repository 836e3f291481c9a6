//! Size, capacity and false-positive rate of a filter.

use umbel_filter::rate_in_cells;

use crate::layout::cache_line::{LINE_BITS, LINE_BYTES, PROBES_RANGE};
use crate::layout::filter_page::PAGE_LINES;

/// Bits per key of a filter of a fixed size at its design load, as in the published design, which
/// has one byte for each key.
const FIXED_BITS_PER_KEY: u64 = 8;
/// Bits per key of a growing filter when it begins to grow; at all other times it has more bits per
/// key.
const GROWING_BITS_PER_KEY: u64 = 10;
/// The best number of probes for these bits per key.
const FIXED_PROBES: u32 = 5;
const GROWING_PROBES: u32 = 6;
/// The longest filter: 2^40 bytes.
pub(crate) const LINES_MAX: u64 = 1 << 34;

/// The size of a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FilterDimensions {
    /// Number of lines: whole pages, at least one.
    pub(crate) lines: u64,
    /// Number of bits a key sets.
    pub(crate) probes: u32,
    /// Number of keys for which the filter was made.
    pub(crate) keys: u64,
}

impl FilterDimensions {
    /// The size of a filter of `bytes` bytes, rounded down to whole pages, that never grows.
    pub(crate) fn fixed(bytes: u64) -> FilterDimensions {
        let lines = whole_pages(bytes / LINE_BYTES as u64, u64::div_euclid);
        FilterDimensions {
            lines,
            probes: FIXED_PROBES,
            keys: lines * LINE_BITS / FIXED_BITS_PER_KEY,
        }
    }

    /// The size of a filter that grows after `keys` keys.
    pub(crate) fn growing(keys: u64) -> FilterDimensions {
        let bits = keys.max(1).saturating_mul(GROWING_BITS_PER_KEY);
        let lines = whole_pages(bits.div_ceil(LINE_BITS), u64::div_ceil);
        FilterDimensions { lines, probes: GROWING_PROBES, keys: keys.max(1) }
    }

    /// Whether the numbers, which were read from a file, are in their ranges.
    pub(crate) fn is_sound(&self) -> bool {
        (1..=LINES_MAX).contains(&self.lines)
            && self.lines.is_multiple_of(PAGE_LINES)
            && PROBES_RANGE.contains(&self.probes)
            && self.keys > 0
    }

    /// Number of pages of the filter.
    pub(crate) fn pages(&self) -> u64 {
        self.lines / PAGE_LINES
    }

    /// Number of bytes of the filter's lines.
    pub(crate) fn bytes(&self) -> u64 {
        self.lines * LINE_BYTES as u64
    }

    /// Largest number of hashes that can have changed a bit.
    pub(crate) fn items_max(&self) -> u64 {
        self.lines * LINE_BITS
    }

    /// The false-positive rate with as many keys as the filter was made for.
    pub(crate) fn designed_rate(&self) -> f64 {
        false_positive_rate(self.keys, self.lines, self.probes)
    }
}

fn whole_pages(lines: u64, round: fn(u64, u64) -> u64) -> u64 {
    (round(lines, PAGE_LINES) * PAGE_LINES).clamp(PAGE_LINES, LINES_MAX)
}

/// Share of absent keys that pass a filter of `lines` lines with `keys` keys: the rate of a blocked
/// filter with 480 bits a block.
pub fn false_positive_rate(keys: u64, lines: u64, probes: u32) -> f64 {
    rate_in_cells(LINE_BITS as u32, keys, lines, probes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_whole_pages() {
        assert_eq!(FilterDimensions::fixed(0).lines, 64);
        assert_eq!(FilterDimensions::fixed(8191).bytes(), 4096);
        let published = FilterDimensions::fixed(256_000_000);
        assert_eq!((published.bytes(), published.keys), (256_000_000, 240_000_000));
        let growing = FilterDimensions::growing(1 << 20);
        assert!(growing.lines * LINE_BITS >= 10 << 20 && growing.keys == 1 << 20);
        assert!(
            FilterDimensions::growing(u64::MAX).is_sound()
                && FilterDimensions::growing(0).is_sound()
        );
        let odd = FilterDimensions { lines: 65, ..growing };
        assert!(growing.is_sound() && !odd.is_sound());
        assert!(
            ![1, 9].into_iter().any(|probes| FilterDimensions { probes, ..growing }.is_sound())
        );
    }

    #[test]
    fn probe_count_is_near_the_optimum() {
        for shape in [FilterDimensions::fixed(1 << 24), FilterDimensions::growing(1 << 24)] {
            let rates =
                PROBES_RANGE.map(|probes| false_positive_rate(shape.keys, shape.lines, probes));
            let best = rates.fold(1.0, f64::min);
            assert!(shape.designed_rate() <= best * 1.03, "{shape:?}: {best}");
        }
    }

    #[test]
    fn rate_at_the_limits_is_exact() {
        assert_eq!(
            (
                false_positive_rate(5, 0, 6),
                false_positive_rate(5, 64, 0),
                false_positive_rate(0, 64, 6)
            ),
            (1.0, 1.0, 0.0)
        );
        assert!(false_positive_rate(1 << 50, 64, 6) > 0.999_999);
        assert!(false_positive_rate(1, 1 << 30, 6) < 1e-9);
    }

    /// One line, one throw: the textbook's formula.
    #[test]
    fn one_probe_is_the_share_of_bits_set() {
        let share = 1.0 - (1.0 - 1.0 / 480.0f64).powi(300);
        assert!((false_positive_rate(300, 1, 1) - share).abs() < 1e-12);
    }
}
