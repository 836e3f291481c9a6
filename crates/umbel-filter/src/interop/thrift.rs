//! The part of Thrift's compact protocol that the header of a Parquet Bloom filter needs.
//!
//! This code does not allocate, and checks every length against the rest of the input.

/// Maximum depth of nested structures.
const DEPTH: u32 = 16;

/// FORMAT: the numbers of the types in field headers.
pub(crate) const I32: u8 = 5;
pub(crate) const STRUCT: u8 = 12;

/// Reads values from the front of an input; methods return `None` if the input ends early or is
/// malformed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThriftReader<'a> {
    pub(crate) rest: &'a [u8],
}

impl ThriftReader<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*byte)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte & 127);
            if part << shift >> shift != part {
                return None;
            }
            value |= part << shift;
            if byte < 128 {
                return Some(value);
            }
        }
        None
    }

    /// Reads a zigzag number, whose lowest bit is its sign.
    pub(crate) fn signed(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// Reads the id and the type of the next field of a structure, after the field `last`;
    /// `Some(None)` at the structure's end.
    pub(crate) fn field(&mut self, last: i64) -> Option<Option<(i64, u8)>> {
        let byte = self.byte()?;
        if byte == 0 {
            return Some(None);
        }
        let id = match byte >> 4 {
            0 => self.signed()?,
            more => last.checked_add(i64::from(more))?,
        };
        Some(Some((id, byte & 15)))
    }

    /// Skips a value of a type.
    pub(crate) fn skip(&mut self, kind: u8) -> Option<()> {
        self.skip_within(kind, DEPTH)
    }

    fn skip_within(&mut self, kind: u8, depth: u32) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        match kind {
            // A truth value that is a field stands in the field's header.
            1 | 2 => {}
            3 => self.skip_bytes(1)?,
            4..=6 => {
                self.varint()?;
            }
            7 => self.skip_bytes(8)?,
            8 => {
                let length = self.varint()?;
                self.skip_bytes(length)?;
            }
            9 | 10 => {
                let head = self.byte()?;
                let count = if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) };
                self.skip_many(count, &[head & 15], depth)?;
            }
            11 => {
                let count = self.varint()?;
                if count > 0 {
                    let kinds = self.byte()?;
                    self.skip_many(count, &[kinds >> 4, kinds & 15], depth)?;
                }
            }
            STRUCT => {
                let mut last = 0;
                while let Some((id, kind)) = self.field(last)? {
                    self.skip_within(kind, depth)?;
                    last = id;
                }
            }
            _ => return None,
        }
        Some(())
    }

    /// Skips `count` elements, each with a value of each of `kinds`. Every value takes at least one
    /// byte, so that no count causes a long loop.
    fn skip_many(&mut self, count: u64, kinds: &[u8], depth: u32) -> Option<()> {
        for _ in 0..count {
            for kind in kinds {
                // A truth value that is an element is a byte of its own.
                let kind = if matches!(kind, 1 | 2) { 3 } else { *kind };
                self.skip_within(kind, depth)?;
            }
        }
        Some(())
    }

    fn skip_bytes(&mut self, count: u64) -> Option<()> {
        self.rest = self.rest.get(usize::try_from(count).ok()?..)?;
        Some(())
    }
}

/// Appends a zigzag number, whose lowest bit is its sign.
pub(crate) fn put_signed(bytes: &mut Vec<u8>, value: i64) {
    let mut left = (value << 1 ^ value >> 63) as u64;
    while left >= 128 {
        bytes.push(left as u8 | 128);
        left >>= 7;
    }
    bytes.push(left as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_trip() {
        for value in [0, 1, -1, 63, 64, -64, -65, 1 << 31, i64::MAX, i64::MIN] {
            let mut bytes = vec![];
            put_signed(&mut bytes, value);
            let mut reader = ThriftReader { rest: &bytes };
            assert_eq!((reader.signed(), reader.rest.len()), (Some(value), 0));
            let cut = bytes.len() - 1;
            assert_eq!(ThriftReader { rest: &bytes[..cut] }.signed(), None);
        }
        assert_eq!(ThriftReader { rest: &[255; 9] }.signed(), None);
        assert_eq!(
            ThriftReader { rest: &[255, 255, 255, 255, 255, 255, 255, 255, 255, 2] }.signed(),
            None
        );
    }

    #[test]
    fn every_type_is_skipped_and_false_lengths_are_refused() {
        for (kind, bytes) in [
            (1, &[][..]),
            (3, &[9][..]),
            (6, &[200, 1][..]),
            (7, &[0; 8][..]),
            (8, &[2, b'a', b'b'][..]),
            (9, &[0x21, 1, 0][..]),
            (10, &[0xf5, 1, 7][..]),
            (11, &[0][..]),
            (11, &[1, 0x58, 3, 1, b'x'][..]),
            (STRUCT, &[0x15, 4, 0x1c, 0, 0][..]),
            (STRUCT, &[0x05, 200, 1, 4, 0][..]),
        ] {
            let mut reader = ThriftReader { rest: bytes };
            assert_eq!((reader.skip(kind), reader.rest.len()), (Some(()), 0), "{kind}");
            for cut in 0..bytes.len() {
                assert_eq!(
                    ThriftReader { rest: &bytes[..cut] }.skip(kind),
                    None,
                    "{kind} to {cut}"
                );
            }
        }
        let huge = [255, 255, 255, 255, 255, 255, 255, 255, 127];
        for kind in [8, 11] {
            assert_eq!(ThriftReader { rest: &huge }.skip(kind), None);
        }
        assert_eq!(ThriftReader { rest: &[0xf3, 255, 255, 255, 255, 15] }.skip(9), None);
        assert_eq!(ThriftReader { rest: &[0x1c; 1000] }.skip(STRUCT), None);
        assert_eq!(ThriftReader { rest: &[0; 9] }.skip(13), None);
    }
}
