//! How many columns a filter has, how many slots a part, and where its words lie.

/// FORMAT: slots in a block, one for each bit of a word.
pub(super) const BLOCK: u64 = 64;
/// The most columns that every block has.
pub(super) const MOST_COLUMNS: u32 = 32;
/// FORMAT: the share of blocks is in parts of this.
pub(super) const WHOLE: u32 = 1 << 16;
/// How many blocks a part has at most: they are counted in 16 bits.
pub(super) const MOST_BLOCKS: u64 = 0xffff;

/// The columns of the blocks of a filter: the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Columns {
    /// How many every block has.
    pub(super) all: u32,
    /// The share of a part's blocks, of [`WHOLE`], from the first on, that have no more than that;
    /// those behind have one more.
    pub(super) lower: u32,
}

impl Columns {
    /// The columns with which one of `1 / rate` absent keys passes. A rate that is no number or is
    /// not above 0 is taken as the lowest there is, 2^-32; one of more than a half as a half.
    pub(super) fn of(rate: f64) -> Columns {
        let lowest = (-f64::from(MOST_COLUMNS)).exp2();
        let rate = if rate >= lowest { rate.min(0.5) } else { lowest };
        let all = ((-rate.log2()).floor() as u32).min(MOST_COLUMNS);
        // With the upper share u of the blocks, 2^-all * (1 - u / 2) pass.
        let upper = 2.0 * (1.0 - rate * f64::from(all).exp2());
        let lower = (f64::from(WHOLE) * (1.0 - upper)).round() as u32;
        Columns { all, lower: lower.min(WHOLE) }
    }

    /// How many columns the widest block has that a row can begin in.
    pub(super) fn most(self) -> u32 {
        self.all + u32::from(self.lower < WHOLE)
    }

    /// FORMAT: the first of a part's blocks that has one more column; no block where all is lower.
    /// The last block in which no row begins does not count, and what is left is rounded down, so
    /// that not more keys pass than were asked for.
    #[inline(always)]
    pub(super) fn upper_from(self, blocks: u64) -> u64 {
        self.upper_start(blocks) + u64::from(self.lower / WHOLE)
    }

    /// The same, but for a part that has no such block: then it is the last, in which no row
    /// begins.
    #[inline(always)]
    pub(super) fn upper_start(self, blocks: u64) -> u64 {
        (blocks - 1) * u64::from(self.lower) / u64::from(WHOLE)
    }

    /// FORMAT: how many words of 64 bits the first `block` blocks of a part have.
    #[inline(always)]
    pub(super) fn words_before(self, block: u64, upper_from: u64) -> u64 {
        block * u64::from(self.all) + block.saturating_sub(upper_from)
    }

    /// How many words a part has.
    pub(super) fn words(self, blocks: u64) -> u64 {
        self.words_before(blocks, self.upper_from(blocks))
    }

    /// The share of absent keys that pass in a part.
    pub(super) fn rate(self, blocks: u64) -> f64 {
        let starts = (blocks - 1) as f64;
        let upper = (blocks - 1).saturating_sub(self.upper_from(blocks)) as f64 / starts;
        (-f64::from(self.all)).exp2() * (1.0 - upper / 2.0)
    }
}

/// What a filter has for each part.
///
/// FORMAT: as a number of 64 bits, the seed is in the lowest 8, the blocks in the next 16, and the
/// first word in the other 40.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// How many words of other parts come before.
    pub(super) first_word: u64,
    pub(super) blocks: u64,
    pub(super) seed: u8,
}

impl Part {
    pub(super) const BYTES: usize = 8;

    pub(super) fn to_bytes(self) -> [u8; Part::BYTES] {
        (self.first_word << 24 | self.blocks << 8 | u64::from(self.seed)).to_le_bytes()
    }

    #[inline(always)]
    pub(super) fn from_bytes(bytes: [u8; Part::BYTES]) -> Part {
        let number = u64::from_le_bytes(bytes);
        let blocks = number >> 8 & MOST_BLOCKS;
        Part { first_word: number >> 24, blocks, seed: number as u8 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_give_the_rate_asked_for() {
        let mut rate = 0.5;
        while rate > 2.4e-10 {
            let found = Columns::of(rate).rate(20_000);
            assert!((found / rate - 1.0).abs() < 0.001, "{found} for {rate}");
            rate *= 0.93;
        }
        assert_eq!(Columns::of(0.25), Columns { all: 2, lower: WHOLE });
        assert_eq!(Columns::of(0.25).most(), 2);
        assert_eq!(Columns::of(0.2).most(), 3);
        for rate in [0.9, 1.0, 7.0, f64::INFINITY] {
            assert_eq!(Columns::of(rate), Columns::of(0.5));
        }
        for rate in [f64::NAN, 0.0, -1.0, 1e-300, f64::NEG_INFINITY] {
            assert_eq!(Columns::of(rate), Columns { all: 32, lower: WHOLE });
        }
    }

    #[test]
    fn parts_are_read_as_they_were_written() {
        let part = Part { first_word: (1 << 40) - 2, blocks: 0xfffe, seed: 0xfd };
        assert_eq!(Part::from_bytes(part.to_bytes()), part);
    }
}
