//! Entries as they are stored in a block.

use umbel_base::{SequenceNumber, ValueKind};

use crate::format::{KIND_BITS, read_varint, short_varint};

/// An entry, borrowed from its block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    /// The key after the group's prefix.
    pub(crate) suffix: &'a [u8],
    pub(crate) sequence: SequenceNumber,
    pub(crate) kind: ValueKind,
    pub(crate) value: &'a [u8],
    /// Offset at which the value starts in the body.
    pub(crate) value_at: usize,
}

/// The three numbers with which an entry starts, and the offset at which they end.
type Lengths = (u64, u64, u64, usize);

/// Reads the entry that starts at offset `at`. Returns `None` if the entry overruns the body or its
/// kind is unknown.
#[inline]
pub(crate) fn read_entry(body: &[u8], at: usize) -> Option<Entry<'_>> {
    let lengths = short_lengths(body, at).or_else(|| long_lengths(body, at));
    let (suffix_len, value_len, trailer, suffix_at) = lengths?;
    let value_at = suffix_at.checked_add(usize::try_from(suffix_len).ok()?)?;
    let suffix = body.get(suffix_at..value_at)?;
    let end = value_at.checked_add(usize::try_from(value_len).ok()?)?;
    let value = body.get(value_at..end)?;
    let kind = ValueKind::from_u8((trailer & ((1 << KIND_BITS) - 1)) as u8)?;
    Some(Entry { suffix, sequence: trailer >> KIND_BITS, kind, value, value_at })
}

/// Reads the lengths of an entry of the common form: a suffix below 128 bytes, a value below 16
/// KiB, a trailer of up to eight bytes. One bounds check suffices for this form.
#[inline]
fn short_lengths(body: &[u8], at: usize) -> Option<Lengths> {
    let start = body.get(at..)?.first_chunk::<11>()?;
    if start[0] >= 0x80 {
        return None;
    }
    let (value_len, used, word) = if start[1] < 0x80 {
        (u64::from(start[1]), 2, start[2..].first_chunk::<8>()?)
    } else if (1..0x80).contains(&start[2]) {
        let low = u64::from(start[1] & 0x7f);
        (low | u64::from(start[2]) << 7, 3, start[3..].first_chunk::<8>()?)
    } else {
        return None;
    };
    let (trailer, len) = short_varint(u64::from_le_bytes(*word))?;
    Some((u64::from(start[0]), value_len, trailer, at + used + len))
}

#[inline(never)]
fn long_lengths(body: &[u8], at: usize) -> Option<Lengths> {
    let (suffix_len, at) = read_varint(body, at)?;
    let (value_len, at) = read_varint(body, at)?;
    let (trailer, at) = read_varint(body, at)?;
    Some((suffix_len, value_len, trailer, at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use umbel_base::varint::put_u64;

    proptest! {
        #[test]
        fn fast_and_slow_decoders_agree(
            numbers: [u64; 3],
            shifts in [0u32..64, 0u32..64, 0u32..64],
            tail: Vec<u8>,
            noise: Vec<u8>,
        ) {
            let mut body = vec![0xff];
            numbers.iter().zip(shifts).for_each(|(number, by)| put_u64(&mut body, number >> by));
            body.extend(tail);
            let short = short_lengths(&body, 1);
            prop_assert!(short.is_none() || short == long_lengths(&body, 1));
            let likely = numbers[0] >> shifts[0] < 128
                && numbers[1] >> shifts[1] < 1 << 14
                && numbers[2] >> shifts[2] < 1 << 56
                && body.len() >= 12;
            prop_assert_eq!(short.is_some(), likely);
            let short = short_lengths(&noise, 0);
            prop_assert!(short.is_none() || short == long_lengths(&noise, 0));
        }
    }
}
