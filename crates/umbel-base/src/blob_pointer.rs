//! [`BlobPointer`]: what stands for a value that lies in a file of its own.

use crate::{Decoder, limits};

/// Where a long value lies, and what it must be. In an entry of kind `BlobPointer` it stands in
/// place of the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlobPointer {
    /// The id of the file that holds the value.
    pub id: u64,
    /// The value's length in bytes.
    pub value_bytes: u64,
    /// The checksum in the file's header, which covers the checksums of all of its chunks: no
    /// other value of this length fits it but by accident.
    pub checksum: u64,
}

impl BlobPointer {
    /// FORMAT: bytes of a pointer: id, length and checksum, each a little-endian `u64`.
    pub const BYTES: usize = 24;

    /// The pointer's bytes.
    pub fn encode(&self) -> [u8; BlobPointer::BYTES] {
        let mut bytes = [0; BlobPointer::BYTES];
        bytes[..8].copy_from_slice(&self.id.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.value_bytes.to_le_bytes());
        bytes[16..].copy_from_slice(&self.checksum.to_le_bytes());
        bytes
    }

    /// Reads a pointer that fills `bytes`. `None` where they are no pointer that is ever written.
    pub fn decode(bytes: &[u8]) -> Option<BlobPointer> {
        let mut decoder = Decoder::new(bytes);
        let (id, value_bytes) = (decoder.u64()?, decoder.u64()?);
        let pointer = BlobPointer { id, value_bytes, checksum: decoder.u64()? };
        (decoder.is_done() && pointer.is_plausible()).then_some(pointer)
    }

    /// Whether its numbers are within the limits.
    pub fn is_plausible(&self) -> bool {
        let most = limits::VALUE_BYTES_MAX as u64;
        (1..=u64::MAX >> 1).contains(&self.id) && (1..=most).contains(&self.value_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_comes_back_and_what_is_none_is_refused() {
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
