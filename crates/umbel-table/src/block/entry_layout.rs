//! Layout of an entry: the offsets that a step to the next entry needs.

use umbel_base::{SequenceNumber, ValueKind};

use crate::block::entry::{Entry, read_entry};
use crate::format::KIND_BITS;

/// Offsets of the parts of an entry, from its start.
pub(crate) struct EntryLayout {
    pub(crate) suffix_at: usize,
    pub(crate) suffix_len: usize,
    pub(crate) value_len: usize,
    pub(crate) trailer: Trailer,
}

/// The sequence number and kind of an entry, decoded when they are requested, since most steps read
/// only the kind.
///
/// INVARIANT: a trailer has one of two forms, and its lowest bits are the kind in both. One form is
/// a varint of up to eight bytes, followed by zeros, so that the highest bit is clear. The other
/// form is [`Trailer::DECODED`] and the number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Trailer(u64);

impl Trailer {
    const DECODED: u64 = 1 << 63;
    const KIND: u64 = (1 << KIND_BITS) - 1;

    pub(crate) fn new(sequence: SequenceNumber, kind: ValueKind) -> Trailer {
        Trailer(Trailer::DECODED | sequence << KIND_BITS | kind as u64)
    }

    /// Whether the entry has a value, which follows its key.
    #[inline(always)]
    pub(crate) fn is_put(self) -> bool {
        self.0 & Trailer::KIND == ValueKind::Put as u64
    }

    /// Returns the kind of the entry; `None` if the kind is unknown.
    #[inline]
    pub(crate) fn known_kind(self) -> Option<ValueKind> {
        ValueKind::from_u8((self.0 & Trailer::KIND) as u8)
    }

    /// Returns the kind of the entry. Blocks with an unknown kind are refused when they are loaded.
    #[inline]
    pub(crate) fn kind(self) -> ValueKind {
        self.known_kind().unwrap_or(ValueKind::Delete)
    }

    #[inline]
    pub(crate) fn sequence(self) -> SequenceNumber {
        if self.0 & Trailer::DECODED != 0 {
            return (self.0 & !Trailer::DECODED) >> KIND_BITS;
        }
        let kept = self.0 & 0x7f7f_7f7f_7f7f_7f7f;
        let pairs = (kept & 0x007f_007f_007f_007f) | (kept & 0x7f00_7f00_7f00_7f00) >> 1;
        let fours = (pairs & 0x0000_3fff_0000_3fff) | (pairs & 0x3fff_0000_3fff_0000) >> 2;
        ((fours & 0x0000_0000_0fff_ffff) | (fours & 0x0fff_ffff_0000_0000) >> 4) >> KIND_BITS
    }
}

/// Reads the entry at the start of `bytes` if it has the usual lengths: a suffix below 128 bytes, a
/// value below 16 KiB, a trailer of up to eight bytes. The load of the block has checked the entry,
/// so only bounds are checked.
#[inline(always)]
pub(crate) fn read_short(bytes: &[u8]) -> Option<EntryLayout> {
    let start = bytes.first_chunk::<11>()?;
    let [suffix_len, low, high, ..] = *start;
    let (value_len, trailer_at, trailer) = match low < 0x80 {
        true => (usize::from(low), 2, start[2..].first_chunk::<8>()?),
        false => {
            (usize::from(low & 0x7f) | usize::from(high) << 7, 3, start[3..].first_chunk::<8>()?)
        }
    };
    let trailer = u64::from_le_bytes(*trailer);
    let ends = !trailer & 0x8080_8080_8080_8080;
    if suffix_len >= 0x80 || (low >= 0x80 && high >= 0x80) || ends == 0 {
        return None;
    }
    // The lowest of the bits that end a byte says how many bytes there are.
    let used = (ends.trailing_zeros() / 8 + 1) as usize;
    Some(EntryLayout {
        suffix_at: trailer_at + used,
        suffix_len: usize::from(suffix_len),
        value_len,
        trailer: Trailer(trailer & (ends ^ (ends - 1))),
    })
}

/// Reads an entry of any lengths at the start of `bytes`.
#[inline(never)]
pub(crate) fn read_long(bytes: &[u8]) -> Option<EntryLayout> {
    let Entry { suffix, sequence, kind, value, value_at } = read_entry(bytes, 0)?;
    let suffix_at = value_at - suffix.len();
    let trailer = Trailer::new(sequence, kind);
    Some(EntryLayout { suffix_at, suffix_len: suffix.len(), value_len: value.len(), trailer })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use umbel_base::varint::put_u64;

    proptest! {
        #[test]
        fn common_and_general_decoders_agree(
            lens in [0usize..300, 0usize..40_000],
            small: bool,
            sequence: u64,
            shift in 8u32..64,
            put: bool,
            extra in 0usize..20,
        ) {
            let [suffix_len, value_len] = lens.map(|len| if small { len % 120 } else { len });
            let mut bytes = Vec::new();
            put_u64(&mut bytes, suffix_len as u64);
            put_u64(&mut bytes, value_len as u64);
            let trailer = sequence >> shift << KIND_BITS | u64::from(put);
            put_u64(&mut bytes, trailer);
            let suffix_at = bytes.len();
            bytes.resize(suffix_at + suffix_len + value_len + extra, 7);
            let any = read_long(&bytes).unwrap();
            for read in read_short(&bytes).into_iter().chain([any]) {
                let lens = (read.suffix_at, read.suffix_len, read.value_len);
                prop_assert_eq!(lens, (suffix_at, suffix_len, value_len));
                prop_assert_eq!(read.trailer.sequence(), trailer >> KIND_BITS);
                prop_assert_eq!(read.trailer.kind() == ValueKind::Put, put);
                prop_assert_eq!(read.trailer.is_put(), put);
            }
            let usual = suffix_len < 128 && value_len < 1 << 14 && trailer < 1 << 56;
            prop_assert_eq!(read_short(&bytes).is_some(), usual && bytes.len() > 10);
        }
    }
}
