//! Slots and fingerprint of a key, and the number of slots of a filter.

/// The fewest and the most bits of a fingerprint.
pub(super) const FINGERPRINT_BITS: std::ops::RangeInclusive<u32> = 4..=16;
/// FORMAT: logarithm of the largest number of slots in a segment; for more slots the hash has too
/// few bits.
pub(super) const SEGMENT_LOG_MAX: u32 = 18;

/// Number of bits of a mixed hash that distinguish keys. The other five bits stay free, so that a
/// builder can store a count and a key in one word.
pub(super) const KEY_BITS: u32 = 59;

/// FORMAT: three odd constants, from the golden ratio and the square roots of 3 and 7.
const MULTIPLIERS: [u64; 3] = [0x9e37_79b9_7f4a_7c15, 0xbb67_ae85_84ca_a73b, 0xa54f_f53a_5f1d_36f1];

/// Number of slots of a key, each in another segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FuseArity {
    /// Three slots a key: a large filter has 1.125 slots for each key, and is the fastest to probe
    /// and build.
    #[default]
    Three,
    /// Four slots a key: a large filter has 1.075 slots for each key, and a probe has one more
    /// cache miss.
    Four,
}

impl FuseArity {
    /// Returns the number of slots.
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

/// FORMAT: mixes a hash with the seed of an attempt. Only the upper [`KEY_BITS`] bits of the result
/// are used.
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

/// FORMAT: the product whose bits give fingerprint and slots of a key.
#[inline(always)]
fn product(key: u64) -> u64 {
    key.wrapping_mul(MULTIPLIERS[1])
}

/// FORMAT: sixteen bits of a key that do not affect its slots; a fingerprint is the lowest of these
/// bits.
#[inline(always)]
pub(super) fn fingerprint(key: u64) -> u32 {
    (product(key) >> 48) as u32
}

/// Layout of the slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotLayout {
    pub(super) arity: FuseArity,
    /// Logarithm of the number of slots in a segment.
    pub(super) segment_log: u32,
    /// Number of slots: whole segments, at least one for each slot of a key.
    pub(super) slots: u64,
}

impl SlotLayout {
    /// The layout for `keys` keys; every attempt after the first few has more slots than the
    /// previous one.
    ///
    /// Length of segments and share of slots that Graf and Lemire found to peel nearly
    /// always. Deviation: a small filter has shorter segments instead of far too many slots.
    pub(super) fn of(keys: u64, arity: FuseArity, attempt: u32) -> SlotLayout {
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
        let segment_log = (log.max(1.0) as u32).min(fits).clamp(1, SEGMENT_LOG_MAX);
        let segment = 1u64 << segment_log;
        let segments = wanted.div_ceil(segment).max(u64::from(arity.slots()));
        SlotLayout { arity, segment_log, slots: segments.saturating_mul(segment) }
    }
}

/// Finds the slots of keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotFinder {
    /// Number of slots among which keys have their first slots: all but the last segments.
    spread: u64,
    segment_log: u32,
    /// Number of slots in a segment.
    segment: u64,
}

impl SlotFinder {
    pub(super) fn new(shape: &SlotLayout) -> SlotFinder {
        let segment_log = shape.segment_log;
        let reserved = u64::from(shape.arity.slots() - 1) << segment_log;
        SlotFinder { spread: shape.slots - reserved, segment_log, segment: 1 << segment_log }
    }

    /// FORMAT: the slots of a key, in consecutive segments.
    ///
    /// The first slot is the key's share of the spread, which ascends with the key. In the
    /// following segments, other bits of the key are combined with the same position.
    ///
    /// REQUIRES: `ARITY` is that of the layout.
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

    /// Index of `slot` among the slots of a key.
    #[inline(always)]
    pub(super) fn number(&self, slots: &[usize], slot: usize) -> usize {
        (slot >> self.segment_log) - (slots[0] >> self.segment_log)
    }
}
