//! Unsigned LEB128 varints: seven bits a byte, least significant first, at most ten bytes.

/// Appends `value` to `out`.
#[inline]
pub fn put_u64(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends the length of `bytes` as a varint, then `bytes`.
#[inline]
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_u64(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Number of bytes that [`put_u64`] appends for `value`.
#[inline]
pub fn len_u64(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

/// Reads a varint at the start of `bytes`, and returns its value and its length.
///
/// Returns `None` if the bytes end within the varint, it is longer than ten bytes or exceeds 64
/// bits, or it is not in its shortest form. So every value has exactly one encoding.
#[inline]
pub fn get_u64(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    if first < 0x80 {
        return Some((u64::from(first), 1));
    }
    let mut value = u64::from(first & 0x7f);
    for (index, &byte) in bytes.iter().enumerate().take(10).skip(1) {
        let part = u64::from(byte & 0x7f);
        if index == 9 && part > 1 {
            return None;
        }
        value |= part << (7 * index);
        if byte < 0x80 {
            return (byte != 0).then_some((value, index + 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn values_round_trip(value: u64, shift in 0u32..64, tail: Vec<u8>) {
            let value = value >> shift;
            let mut bytes = Vec::new();
            put_u64(&mut bytes, value);
            prop_assert_eq!(bytes.len(), len_u64(value));
            let len = bytes.len();
            for cut in 0..len {
                prop_assert_eq!(get_u64(&bytes[..cut]), None);
            }
            bytes.extend(tail);
            prop_assert_eq!(get_u64(&bytes), Some((value, len)));
        }

        #[test]
        fn each_value_has_one_encoding(bytes: Vec<u8>) {
            if let Some((value, used)) = get_u64(&bytes) {
                let mut again = Vec::new();
                put_u64(&mut again, value);
                prop_assert_eq!(&again[..], &bytes[..used]);
            }
        }
    }

    #[test]
    fn overlong_encoding_is_refused() {
        assert_eq!(get_u64(&[0x80, 0x00]), None);
        assert_eq!(get_u64(&[0xff; 11]), None);
        assert_eq!(get_u64(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02]), None);
    }
}
