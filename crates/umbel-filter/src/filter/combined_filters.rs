//! Filters made of filters: both sets of keys, the keys of both, and the same keys in less space.

use crate::bloom_variants::counter_array::{counter, saturating_sum, set_counter};
use crate::filter::filter_view::FilterView;
use crate::format::bloom_header::HEADER_BYTES;
use crate::format::filter_header::FilterHeader;
use crate::format::filter_kind::FilterKind;
use crate::probe::probe_positions::Probing;
use std::fmt;

/// Errors of combining two filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CombineError {
    /// One of them has no bits to combine: it is of a static kind, or
    /// answers "maybe" to every key.
    NotCombinable {
        /// Its kind, where that is known.
        kind: Option<FilterKind>,
    },
    /// They differ where they must not.
    Mismatch {
        /// Differing property: a plain noun.
        what: &'static str,
        /// The number of the first.
        left: u64,
        /// The number of the second.
        right: u64,
    },
    /// There is no memory for the result.
    NoMemory,
}

impl fmt::Display for CombineError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CombineError::NotCombinable { kind: Some(kind) } => {
                write!(formatter, "a {kind} filter cannot be joined with another")
            }
            CombineError::NotCombinable { kind: None } => {
                formatter.write_str("a filter that answers \"maybe\" cannot be joined with another")
            }
            CombineError::Mismatch { what, left, right } => write!(
                formatter,
                "the filters differ in their {what}, {left} and {right}, and cannot be joined"
            ),
            CombineError::NoMemory => formatter.write_str("there is no memory for the result"),
        }
    }
}

impl std::error::Error for CombineError {}

impl FilterView<'_> {
    /// Encodes the union of two filters: bit for bit the filter of that size with all
    /// keys. Its key count is the sum, which is an upper bound. In a counting filter each
    /// counter is the sum.
    ///
    /// # Errors
    /// [`CombineError::Mismatch`] where kind, size, probes, probing, the number of the hash or the
    /// id of its seed differ; [`CombineError::NotCombinable`] where the kind has no bits to join.
    /// An id of 0 is unknown: the caller ensures that the seeds are the same.
    pub fn union(&self, other: &FilterView<'_>) -> Result<Vec<u8>, CombineError> {
        let keys = self.keys().saturating_add(other.keys());
        self.combine(other, keys, saturating_sum, |left, right| left | right)
    }

    /// The encoded filter that lets through what both let through: all keys of both, and more than
    /// a filter built of these keys alone would. It says that it has the keys of the smaller, at
    /// most; only [`FilterView::estimated_rate`] knows its rate. Of a counting filter each counter
    /// is the smaller.
    ///
    /// # Errors
    /// As [`FilterView::union`].
    pub fn intersection(&self, other: &FilterView<'_>) -> Result<Vec<u8>, CombineError> {
        self.combine(other, self.keys().min(other.keys()), u8::min, |left, right| left & right)
    }

    fn combine(
        &self,
        other: &FilterView<'_>,
        keys: u64,
        counters: impl Fn(u8, u8) -> u8,
        bits: impl Fn(u8, u8) -> u8,
    ) -> Result<Vec<u8>, CombineError> {
        let not_joined = |kind| CombineError::NotCombinable { kind };
        let (left, left_payload) = self.parts().ok_or_else(|| not_joined(self.kind()))?;
        let (right, right_payload) = other.parts().ok_or_else(|| not_joined(other.kind()))?;
        check_equal(&left, &right)?;
        let header = FilterHeader { keys, ..left };
        let mut bytes = header.empty_filter().ok_or(CombineError::NoMemory)?;
        let pairs = left_payload.iter().zip(right_payload);
        for (byte, (left, right)) in bytes[HEADER_BYTES..].iter_mut().zip(pairs) {
            *byte = if header.kind == FilterKind::Counting {
                counters(left & 15, right & 15) | counters(left >> 4, right >> 4) << 4
            } else {
                bits(*left, *right)
            };
        }
        Ok(bytes)
    }

    /// Encodes the filter of the same keys in a `factor`-th of the units ([`FilterView::units`]):
    /// bit for bit the filter built at that size with the same probes. `None` where
    /// `factor` does not divide the units (with LevelDB's probing: the bytes), and for kinds that
    /// are not folded.
    pub fn fold(&self, factor: u64) -> Option<Vec<u8>> {
        let (header, payload) = self.parts()?;
        if factor == 0 || !header.units.is_multiple_of(factor) {
            return None;
        }
        let units = header.units / factor;
        let probing = Probing::from_number(header.detail)?;
        if probing == Probing::LevelDb && !units.is_multiple_of(8) {
            return None;
        }
        let mut bytes = FilterHeader { units, ..header }.empty_filter()?;
        let folded = &mut bytes[HEADER_BYTES..];
        match header.kind {
            FilterKind::Blocked512 => fold_blocks(payload, folded, 64, factor),
            FilterKind::Blocked256 | FilterKind::SplitBlock => {
                fold_blocks(payload, folded, 32, factor);
            }
            FilterKind::Standard if probing == Probing::LevelDb => {
                // The rest by the number of bits is chosen, and units divides it.
                fold_bits(payload, folded, |bit| bit % units);
            }
            FilterKind::Standard => fold_bits(payload, folded, |bit| bit / factor),
            FilterKind::Counting => {
                for at in 0..header.units {
                    let value = saturating_sum(counter(folded, at / factor), counter(payload, at));
                    set_counter(folded, at / factor, value);
                }
            }
            FilterKind::BinaryFuse | FilterKind::Ribbon => return None,
        }
        Some(bytes)
    }
}

fn check_equal(left: &FilterHeader, right: &FilterHeader) -> Result<(), CombineError> {
    let numbers = |header: &FilterHeader| {
        [
            ("kind", u64::from(header.kind.number())),
            ("hash", u64::from(header.hash_kind)),
            ("seed", u64::from(header.seed_id)),
            ("probes", u64::from(header.probes)),
            ("probing", u64::from(header.detail)),
            ("size", header.units),
        ]
    };
    for ((what, left), (_, right)) in numbers(left).into_iter().zip(numbers(right)) {
        if left != right {
            return Err(CombineError::Mismatch { what, left, right });
        }
    }
    Ok(())
}

/// Joins every `factor` neighbouring blocks of `block` bytes into one.
fn fold_blocks(payload: &[u8], folded: &mut [u8], block: usize, factor: u64) {
    // A factor beyond the memory's size divides no number of blocks in memory.
    let many = usize::try_from(factor).unwrap_or(usize::MAX).saturating_mul(block);
    for (folded, blocks) in folded.chunks_mut(block).zip(payload.chunks(many)) {
        for from in blocks.chunks(block) {
            folded.iter_mut().zip(from).for_each(|(byte, more)| *byte |= more);
        }
    }
}

/// Moves every set bit to where `to` says.
fn fold_bits(payload: &[u8], folded: &mut [u8], to: impl Fn(u64) -> u64) {
    for (at, byte) in payload.iter().enumerate() {
        let mut left = *byte;
        while left != 0 {
            let bit = to(at as u64 * 8 + u64::from(left.trailing_zeros()));
            if let Some(byte) = folded.get_mut((bit / 8) as usize) {
                *byte |= 1 << (bit % 8);
            }
            left &= left - 1;
        }
    }
}
