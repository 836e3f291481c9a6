//! Entries: sequence numbers, kinds and the internal order.

use std::cmp::Ordering;

/// Sequence number of a write. Each operation of a batch gets the next number, and no number is
/// reused.
pub type SequenceNumber = u64;

/// Kind of an entry. The numbers are stored on disk and never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ValueKind {
    /// Tombstone: the key is deleted.
    Delete = 0,
    /// The key has the value of this entry.
    Put = 1,
    /// The key has a value in a file of its own. The entry holds a pointer to this value, a
    /// [`crate::BlobPointer`].
    BlobPointer = 5,
}

/// FORMAT: readers refuse these reserved kinds: 2 range tombstone (stored in a block of its own), 3
/// merge operand, 4 put with expiry.
impl ValueKind {
    /// Returns the kind with this number; `None` if the number is unknown or only reserved.
    #[inline]
    pub fn from_u8(byte: u8) -> Option<ValueKind> {
        // Nearly every entry.
        if byte == ValueKind::Put as u8 {
            Some(ValueKind::Put)
        } else {
            ValueKind::from_rare_u8(byte)
        }
    }

    #[inline(never)]
    fn from_rare_u8(byte: u8) -> Option<ValueKind> {
        match byte {
            0 => Some(ValueKind::Delete),
            1 => Some(ValueKind::Put),
            5 => Some(ValueKind::BlobPointer),
            _ => None,
        }
    }
}

/// The internal order: keys by their bytes ascending, then sequence numbers **descending**, so
/// that the newest version of a key comes first.
#[inline]
pub fn cmp_internal(
    key_a: &[u8],
    sequence_a: SequenceNumber,
    key_b: &[u8],
    sequence_b: SequenceNumber,
) -> Ordering {
    key_a.cmp(key_b).then_with(|| sequence_b.cmp(&sequence_a))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_version_sorts_first() {
        assert_eq!(cmp_internal(b"a", 2, b"a", 1), Ordering::Less);
        assert_eq!(cmp_internal(b"a", 1, b"b", 9), Ordering::Less);
        assert_eq!(cmp_internal(b"a", 5, b"a", 5), Ordering::Equal);
    }

    #[test]
    fn reserved_kinds_are_refused() {
        for byte in (2..=255).filter(|&byte| byte != 5) {
            assert_eq!(ValueKind::from_u8(byte), None);
        }
        for kind in [ValueKind::Delete, ValueKind::Put, ValueKind::BlobPointer] {
            assert_eq!(ValueKind::from_u8(kind as u8), Some(kind));
        }
    }
}
