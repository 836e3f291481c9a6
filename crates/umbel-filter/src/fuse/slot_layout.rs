//! Where the slots of a key lie, what its fingerprint is, and how many slots there should be.

/// The fewest and the most bits of a fingerprint.
pub(super) const FINGERPRINT_BITS: std::ops::RangeInclusive<u32> = 4..=16;
/// FORMAT: segments of more slots than two to this power are refused: their slots would need more
/// bits of the hash than there are for them.
pub(super) const MOST_SEGMENT_LOG: u32 = 18;

/// How many bits of a mixed hash tell keys apart. The other five stay free, so that a builder can
/// count and remember things beside a key in one word.
pub(super) const KEY_BITS: u32 = 59;

/// FORMAT: three odd constants, from the golden ratio and the square roots of 3 and 7.
const MULTIPLIERS: [u64; 3] = [0x9e37_79b9_7f4a_7c15, 0xbb67_ae85_84ca_a73b, 0xa54f_f53a_5f1d_36f1];

/// In how many segments a key has a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FuseArity {
    /// Three slots: 1.125 slots for each key in large filters. The fastest to ask and to build.
    #[default]
    Three,
    /// Four slots: 1.075 for each key, one more cache miss for each question.
    Four,
}

impl FuseArity {
    /// The number itself.
    pub fn slots(self) -> u32 {
        match self {
            FuseArity::Three => 3,
            FuseArity::Four => 4,
        }
    }

    pub(super) fn from_slots(slots: u8) -> Option<FuseArity> {
        match slots {
            3 => Some(FuseArity::Three),
            4 => Some(FuseArity::Four),
            _ => None,
        }
    }
}

/// FORMAT: the seed of an attempt to build a filter.
#[inline(always)]
pub(super) fn seed_of(attempt: u32) -> u64 {
    MULTIPLIERS[2].wrapping_mul(u64::from(attempt) + 1)
}

/// FORMAT: the hash, mixed anew for each attempt to build a filter, as all that follows sees it:
/// the upper [`KEY_BITS`] bits count.
#[inline(always)]
pub(super) fn mix(hash: u64, seed: u64) -> u64 {
    let first = (hash ^ seed).wrapping_mul(MULTIPLIERS[0]);
    (first ^ first >> 32).wrapping_mul(MULTIPLIERS[1])
}

/// The key of a mixed hash, less than two to the power of [`KEY_BITS`].
#[inline(always)]
pub(super) fn key_of(mixed: u64) -> u64 {
    mixed >> (u64::BITS - KEY_BITS)
}

/// FORMAT: the product that fingerprint and slots of a key are taken from.
#[inline(always)]
fn product(key: u64) -> u64 {
    key.wrapping_mul(MULTIPLIERS[1])
}

/// FORMAT: sixteen bits of a key that its slots say nothing about; a fingerprint is the lowest.
#[inline(always)]
pub(super) fn fingerprint(key: u64) -> u32 {
    (product(key) >> 48) as u32
}

/// How the slots lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) arity: FuseArity,
    /// The slots of a segment are two to this power.
    pub(super) segment_log: u32,
    /// All slots, a whole number of segments, at least one for each slot of a key.
    pub(super) slots: u64,
}

impl Shape {
    /// The shape for `keys` keys; every attempt behind the first few has more slots than the one
    /// before.
    ///
    /// Length of segments and share of slots are those that Graf and Lemire found to peel nearly
    /// always, but that a small filter has shorter segments rather than many slots too many.
    pub(super) fn of(keys: u64, arity: FuseArity, attempt: u32) -> Shape {
        let count = keys.max(2) as f64;
        let (share, log) = match arity {
            FuseArity::Three => (
                (0.875 + 0.25 * 1e6f64.ln() / count.ln()).max(1.125),
                count.ln() / 3.33f64.ln() + 2.25,
            ),
            FuseArity::Four => (
                (0.77 + 0.305 * 6e5f64.ln() / count.ln()).max(1.075),
                count.ln() / 2.91f64.ln() - 0.5,
            ),
        };
        let share = share * (1.0 + 0.02 * f64::from(attempt.saturating_sub(3)));
        let wanted = (count * share).ceil() as u64;
        let fits = (wanted / u64::from(arity.slots())).max(1).ilog2();
        let segment_log = (log.max(1.0) as u32).min(fits).clamp(1, MOST_SEGMENT_LOG);
        let segment = 1u64 << segment_log;
        let segments = wanted.div_ceil(segment).max(u64::from(arity.slots()));
        Shape { arity, segment_log, slots: segments.saturating_mul(segment) }
    }
}

/// Finds the slots of keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    /// Over how many slots the first slots of keys are spread: all but the last segments.
    spread: u64,
    segment_log: u32,
    /// The slots of a segment.
    segment: u64,
}

impl Places {
    pub(super) fn new(shape: &Shape) -> Places {
        let segment_log = shape.segment_log;
        let behind = u64::from(shape.arity.slots() - 1) << segment_log;
        Places { spread: shape.slots - behind, segment_log, segment: 1 << segment_log }
    }

    /// FORMAT: the slots of a key, in ascending segments that are neighbours.
    ///
    /// The first is the key's share of the spread, which ascends with the key. In the segments
    /// behind, other bits of the key are combined with the same place.
    ///
    /// REQUIRES: `ARITY` is that of the shape.
    #[inline(always)]
    pub(super) fn of<const ARITY: usize>(&self, key: u64) -> [usize; ARITY] {
        let share = u128::from(key << (u64::BITS - KEY_BITS)) * u128::from(self.spread);
        let first = (share >> 64) as u64;
        let bits = [0, product(key) >> 30, product(key) >> 12, key];
        std::array::from_fn(|index| match index {
            0 => first as usize,
            _ => {
                let segments_on = first + index as u64 * self.segment;
                (segments_on ^ bits[index] & (self.segment - 1)) as usize
            }
        })
    }

    /// Which of a key's slots `slot` is.
    #[inline(always)]
    pub(super) fn number(&self, slots: &[usize], slot: usize) -> usize {
        (slot >> self.segment_log) - (slots[0] >> self.segment_log)
    }
}
