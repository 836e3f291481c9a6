//! Number of columns of a filter, and blocks and words of its parts.

/// FORMAT: slots in a block, one for each bit of a word.
pub(super) const BLOCK: u64 = 64;
/// The most columns that every block has.
pub(super) const COLUMNS_MAX: u32 = 32;
/// FORMAT: denominator of the share of blocks.
pub(super) const SHARE_DENOMINATOR: u32 = 1 << 16;
/// Maximum number of blocks of a part, which is stored in 16 bits.
pub(super) const BLOCKS_MAX: u64 = 0xffff;

/// Numbers of columns of the blocks of a filter, which determine its rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ColumnLayout {
    /// Number of columns that every block has.
    pub(super) all: u32,
    /// The share of a part's first blocks, in [`WHOLE`]ths, with `all` columns; later blocks have
    /// one column more.
    pub(super) lower: u32,
}

impl ColumnLayout {
    /// Chooses columns by which a share `rate` of absent keys passes. A rate of NaN, or not above
    /// 0, is clamped to the lowest rate, 2^-32; a rate above a half is clamped to a half.
    pub(super) fn of(rate: f64) -> ColumnLayout {
        let lowest = (-f64::from(COLUMNS_MAX)).exp2();
        let rate = if rate >= lowest { rate.min(0.5) } else { lowest };
        let all = ((-rate.log2()).floor() as u32).min(COLUMNS_MAX);
        // With the upper share u of the blocks, 2^-all * (1 - u / 2) pass.
        let upper = 2.0 * (1.0 - rate * f64::from(all).exp2());
        let lower = (f64::from(SHARE_DENOMINATOR) * (1.0 - upper)).round() as u32;
        ColumnLayout { all, lower: lower.min(SHARE_DENOMINATOR) }
    }

    /// Number of columns of the widest block in which a row can begin.
    pub(super) fn most(self) -> u32 {
        self.all + u32::from(self.lower < SHARE_DENOMINATOR)
    }

    /// FORMAT: number of a part's first block with one more column; the number of blocks if all
    /// blocks have `all` columns. The last block, in which no row begins, does not count. The share
    /// is rounded down, so that no more absent keys pass than requested.
    #[inline(always)]
    pub(super) fn upper_from(self, blocks: u64) -> u64 {
        self.upper_start(blocks) + u64::from(self.lower / SHARE_DENOMINATOR)
    }

    /// Number of a part's first block with one more column, or of the last block if there is no
    /// such block.
    #[inline(always)]
    pub(super) fn upper_start(self, blocks: u64) -> u64 {
        (blocks - 1) * u64::from(self.lower) / u64::from(SHARE_DENOMINATOR)
    }

    /// FORMAT: number of 64-bit words of the first `block` blocks of a part.
    #[inline(always)]
    pub(super) fn words_before(self, block: u64, upper_from: u64) -> u64 {
        block * u64::from(self.all) + block.saturating_sub(upper_from)
    }

    /// Number of words of a part.
    pub(super) fn words(self, blocks: u64) -> u64 {
        self.words_before(blocks, self.upper_from(blocks))
    }

    /// The false-positive rate of a part.
    pub(super) fn rate(self, blocks: u64) -> f64 {
        let starts = (blocks - 1) as f64;
        let upper = (blocks - 1).saturating_sub(self.upper_from(blocks)) as f64 / starts;
        (-f64::from(self.all)).exp2() * (1.0 - upper / 2.0)
    }
}

/// Entry of the table of parts.
///
/// FORMAT: as a number of 64 bits, the seed is in the lowest 8, the blocks in the next 16, and the
/// first word in the other 40.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PartEntry {
    /// Number of words of earlier parts.
    pub(super) first_word: u64,
    pub(super) blocks: u64,
    pub(super) seed: u8,
}

impl PartEntry {
    pub(super) const BYTES: usize = 8;

    pub(super) fn to_bytes(self) -> [u8; PartEntry::BYTES] {
        (self.first_word << 24 | self.blocks << 8 | u64::from(self.seed)).to_le_bytes()
    }

    #[inline(always)]
    pub(super) fn from_bytes(bytes: [u8; PartEntry::BYTES]) -> PartEntry {
        let number = u64::from_le_bytes(bytes);
        let blocks = number >> 8 & BLOCKS_MAX;
        PartEntry { first_word: number >> 24, blocks, seed: number as u8 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_give_the_requested_rate() {
        let mut rate = 0.5;
        while rate > 2.4e-10 {
            let found = ColumnLayout::of(rate).rate(20_000);
            assert!((found / rate - 1.0).abs() < 0.001, "{found} for {rate}");
            rate *= 0.93;
        }
        assert_eq!(ColumnLayout::of(0.25), ColumnLayout { all: 2, lower: SHARE_DENOMINATOR });
        assert_eq!(ColumnLayout::of(0.25).most(), 2);
        assert_eq!(ColumnLayout::of(0.2).most(), 3);
        for rate in [0.9, 1.0, 7.0, f64::INFINITY] {
            assert_eq!(ColumnLayout::of(rate), ColumnLayout::of(0.5));
        }
        for rate in [f64::NAN, 0.0, -1.0, 1e-300, f64::NEG_INFINITY] {
            assert_eq!(ColumnLayout::of(rate), ColumnLayout { all: 32, lower: SHARE_DENOMINATOR });
        }
    }

    #[test]
    fn parts_are_read_as_they_were_written() {
        let part = PartEntry { first_word: (1 << 40) - 2, blocks: 0xfffe, seed: 0xfd };
        assert_eq!(PartEntry::from_bytes(part.to_bytes()), part);
    }
}
