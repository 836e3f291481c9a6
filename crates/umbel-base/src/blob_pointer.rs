//! [`BlobPointer`]: the pointer to a value in a file of its own.

use crate::{Decoder, limits};

/// Location, length and checksum of a long value. An entry of kind `BlobPointer` holds this pointer
/// in place of the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlobPointer {
    /// Id of the file that holds the value.
    pub id: u64,
    /// Length of the value in bytes.
    pub value_bytes: u64,
    /// Checksum in the file's header, which covers the checksums of all chunks. Another value of
    /// the same length has the same checksum only by accident.
    pub checksum: u64,
}

impl BlobPointer {
    /// FORMAT: number of bytes of a pointer: id, length and checksum, each a little-endian `u64`.
    pub const BYTES: usize = 24;

    /// Returns the pointer's bytes.
    pub fn encode(&self) -> [u8; BlobPointer::BYTES] {
        let mut bytes = [0; BlobPointer::BYTES];
        bytes[..8].copy_from_slice(&self.id.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.value_bytes.to_le_bytes());
        bytes[16..].copy_from_slice(&self.checksum.to_le_bytes());
        bytes
    }

    /// Decodes a pointer from all of `bytes`. Returns `None` if no writer produces these bytes.
    pub fn decode(bytes: &[u8]) -> Option<BlobPointer> {
        let mut decoder = Decoder::new(bytes);
        let (id, value_bytes) = (decoder.u64()?, decoder.u64()?);
        let pointer = BlobPointer { id, value_bytes, checksum: decoder.u64()? };
        (decoder.is_done() && pointer.is_plausible()).then_some(pointer)
    }

    /// Whether the pointer's numbers are within the limits.
    pub fn is_plausible(&self) -> bool {
        let bytes_max = limits::VALUE_BYTES_MAX as u64;
        (1..=u64::MAX >> 1).contains(&self.id) && (1..=bytes_max).contains(&self.value_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointer_round_trips_and_malformed_bytes_are_refused() {
        let pointer = BlobPointer { id: 7, value_bytes: 1 << 20, checksum: u64::MAX };
        let bytes = pointer.encode();
        assert_eq!(BlobPointer::decode(&bytes), Some(pointer));
        for cut in 0..bytes.len() {
            assert_eq!(BlobPointer::decode(&bytes[..cut]), None);
        }
        assert_eq!(BlobPointer::decode(&[&bytes[..], &[0]].concat()), None);
        let over = limits::VALUE_BYTES_MAX as u64 + 1;
        for wrong in [
            BlobPointer { id: 0, ..pointer },
            BlobPointer { id: 1 << 63, ..pointer },
            BlobPointer { value_bytes: 0, ..pointer },
            BlobPointer { value_bytes: over, ..pointer },
        ] {
            assert_eq!(BlobPointer::decode(&wrong.encode()), None);
        }
    }
}
