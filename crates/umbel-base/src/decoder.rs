//! A decoder of untrusted bytes, which checks every step and never panics.

use crate::varint;

/// Reads fields one after the other from a byte slice. Every method returns `None` if the bytes end
/// too early or are malformed; [`Decoder::position`] then says where.
#[derive(Debug, Clone)]
pub struct Decoder<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Decoder<'a> {
    /// Creates a decoder at the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Decoder<'a> {
        Decoder { bytes, position: 0 }
    }

    /// Number of bytes read.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Number of bytes that are left.
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.position
    }

    /// Whether all bytes were read.
    pub fn is_done(&self) -> bool {
        self.remaining() == 0
    }

    /// Reads `len` bytes.
    #[inline]
    pub fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let end = self.position.checked_add(len)?;
        let taken = self.bytes.get(self.position..end)?;
        self.position = end;
        Some(taken)
    }

    /// Reads an array of `N` bytes.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    /// Reads one byte.
    #[inline]
    pub fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// Reads a little-endian `u16`.
    #[inline]
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    /// Reads a little-endian `u32`.
    #[inline]
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// Reads a little-endian `u64`.
    #[inline]
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads a varint.
    #[inline]
    pub fn varint(&mut self) -> Option<u64> {
        let (value, used) = varint::get_u64(self.bytes.get(self.position..)?)?;
        self.position += used;
        Some(value)
    }

    /// Reads a varint that must fit into a `usize`.
    #[inline]
    pub fn varint_usize(&mut self) -> Option<usize> {
        usize::try_from(self.varint()?).ok()
    }

    /// Reads a length as a varint, and then as many bytes.
    #[inline]
    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.varint_usize()?;
        self.take(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn takes_fields_in_order_and_refuses_to_overrun() {
        let mut bytes = vec![7, 1, 2, 3, 4];
        varint::put_bytes(&mut bytes, b"key");
        let mut decoder = Decoder::new(&bytes);
        assert_eq!(decoder.u8(), Some(7));
        assert_eq!(decoder.u32(), Some(0x0403_0201));
        assert_eq!(decoder.bytes(), Some(&b"key"[..]));
        assert!(decoder.is_done());
        assert_eq!(decoder.u8(), None);
        assert_eq!(decoder.take(usize::MAX), None);
        assert_eq!(decoder.position(), bytes.len());
    }

    proptest! {
        #[test]
        fn any_bytes_never_panic(bytes: Vec<u8>, steps: Vec<u8>) {
            let mut decoder = Decoder::new(&bytes);
            for step in steps {
                match step % 5 {
                    0 => drop(decoder.u16()),
                    1 => drop(decoder.u64()),
                    2 => drop(decoder.varint()),
                    3 => drop(decoder.bytes()),
                    _ => drop(decoder.take(step.into())),
                }
                prop_assert!(decoder.position() <= bytes.len());
            }
        }
    }
}
