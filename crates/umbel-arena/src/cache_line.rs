//! Compares all bytes of a cache line at once.

/// Returns a mask with one bit for each byte of `line` that equals `byte`; the lowest bit is for
/// the first byte.
#[inline(always)]
pub fn equal_in_line(line: &[u8; 64], byte: u8) -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        by_vectors(line, byte)
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        by_words(line, byte)
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn by_vectors(line: &[u8; 64], byte: u8) -> u64 {
    use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi8};
    let sixteens = line.as_chunks::<16>().0;
    let bits = |sixteen: &[u8; 16]| {
        // SAFETY: SSE2 is part of every x86-64, and the load reads the sixteen bytes of `sixteen`,
        // however they are aligned.
        let bits = unsafe {
            let some = _mm_loadu_si128(sixteen.as_ptr().cast());
            _mm_movemask_epi8(_mm_cmpeq_epi8(some, _mm_set1_epi8(byte as i8)))
        };
        u64::from(bits as u16)
    };
    sixteens.iter().rev().fold(0, |mask, sixteen| mask << 16 | bits(sixteen))
}

/// Computes the mask without vector instructions: each byte of a word keeps another bit, so that
/// adding the bytes joins their bits.
#[cfg(any(test, not(target_arch = "x86_64")))]
fn by_words(line: &[u8; 64], byte: u8) -> u64 {
    let equal = line.map(|other| if other == byte { u8::MAX } else { 0 });
    equal.as_chunks::<8>().0.iter().enumerate().fold(0, |mask, (index, word)| {
        let bits = u64::from_le_bytes(*word) & 0x8040_2010_0804_0201;
        mask | (bits.wrapping_mul(0x0101_0101_0101_0101) >> 56) << (8 * index)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vector_and_portable_search_agree() {
        let mut line = [9u8; 64];
        let places = [0, 7, 8, 15, 16, 31, 32, 47, 48, 63];
        places.into_iter().for_each(|at: usize| line[at] = 200);
        let expected = places.iter().fold(0, |mask, at| mask | 1u64 << at);
        assert_eq!(equal_in_line(&line, 200), expected);
        assert_eq!(equal_in_line(&line, 9), !expected);
        let line: [u8; 64] = std::array::from_fn(|at| (at * at % 61) as u8);
        for byte in 0..=255 {
            assert_eq!(equal_in_line(&line, byte), by_words(&line, byte));
        }
    }
}
