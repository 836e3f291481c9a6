//! Union and intersection of two filters, and folding of a filter to less space.

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
    /// One of the filters has no bits to combine: its kind is static, or it answers "maybe" to
    /// every key.
    NotCombinable {
        /// The kind of that filter, if known.
        kind: Option<FilterKind>,
    },
    /// The filters differ in a property in which they must agree.
    Mismatch {
        /// The differing property, as a noun.
        what: &'static str,
        /// The property's value in the first filter.
        left: u64,
        /// The property's value in the second filter.
        right: u64,
    },
    /// Memory for the result could not be allocated.
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
    /// Encodes the union of two filters: bit for bit the filter of the same size with the keys of
    /// both. The number of keys in the union's header is the sum, which is an upper bound. In a
    /// counting filter each counter is the sum of the two counters.
    ///
    /// # Errors
    /// [`CombineError::Mismatch`] if kind, size, probes, probing, number of the hash or id of its
    /// seed differ; [`CombineError::NotCombinable`] if the kind has no bits to join. An id of 0 is
    /// unknown: the caller then must ensure that the seeds are equal.
    pub fn union(&self, other: &FilterView<'_>) -> Result<Vec<u8>, CombineError> {
        let keys = self.keys().saturating_add(other.keys());
        self.combine(other, keys, saturating_sum, |left, right| left | right)
    }

    /// Encodes the intersection of two filters: it passes keys that both filters pass. The
    /// intersection's false-positive rate is higher than that of a filter built of the common keys;
    /// [`FilterView::estimated_rate`] returns it. The number of keys in its header is that of the
    /// smaller filter, an upper bound. In a counting filter each counter is the smaller of the two
    /// counters.
    ///
    /// # Errors
    /// The errors of [`FilterView::union`].
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
    /// bit for bit the filter built at that size with the same probes. `None` if `factor` does not
    /// divide the units (with LevelDB's probing: the bytes), and for kinds that cannot be folded.
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

/// Joins every `factor` adjacent blocks of `block` bytes into one.
fn fold_blocks(payload: &[u8], folded: &mut [u8], block: usize, factor: u64) {
    // A factor beyond the memory's size divides no number of blocks in memory.
    let many = usize::try_from(factor).unwrap_or(usize::MAX).saturating_mul(block);
    for (folded, blocks) in folded.chunks_mut(block).zip(payload.chunks(many)) {
        for from in blocks.chunks(block) {
            folded.iter_mut().zip(from).for_each(|(byte, more)| *byte |= more);
        }
    }
}

/// Sets in the result, for every set bit, the bit that `to` returns.
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
