//! Computes the parities of eight words together. Without an instruction that counts bits, the
//! parity of one word takes a dozen steps; eight words, folded into each other, take seven steps
//! each.

/// The lowest bit of every byte.
const LANES: u64 = 0x0101_0101_0101_0101;

/// Whether any of `words` has an odd number of set bits. If the processor `COUNTS` bits, words are
/// tested one after the other.
#[inline(always)]
pub(super) fn any_odd<const COUNTS: bool>(words: [u64; 8]) -> bool {
    if COUNTS {
        words.into_iter().fold(0, |any, word| any | word.count_ones()) & 1 != 0
    } else {
        parities(words) != 0
    }
}

/// Bit `8 * n` is the parity of `words[n]`: whether an odd number of its bits is set.
#[inline(always)]
fn parities(words: [u64; 8]) -> u64 {
    let [a, b, c, d, e, f, g, h] = words;
    let even = join16(join32(a, e), join32(c, g));
    let odd = join16(join32(b, f), join32(d, h));
    low_parities(join8(even, odd))
}

/// The parity of each byte in its lowest bit.
#[inline(always)]
fn low_parities(bytes: u64) -> u64 {
    let bytes = bytes ^ bytes >> 4;
    let bytes = bytes ^ bytes >> 2;
    (bytes ^ bytes >> 1) & LANES
}

/// Joins two words into one, each half of which has the parity of one of them.
#[inline(always)]
fn join32(low: u64, high: u64) -> u64 {
    const LOW: u64 = 0xffff_ffff;
    (low & LOW | high << 32) ^ (low >> 32 | high & !LOW)
}

/// Joins two words so that every two bytes have the parity of four.
#[inline(always)]
fn join16(low: u64, high: u64) -> u64 {
    const LOW: u64 = 0x0000_ffff_0000_ffff;
    (low & LOW | (high & LOW) << 16) ^ (low >> 16 & LOW | high & !LOW)
}

/// Joins two words so that every byte has the parity of two.
#[inline(always)]
fn join8(low: u64, high: u64) -> u64 {
    const LOW: u64 = 0x00ff_00ff_00ff_00ff;
    (low & LOW | (high & LOW) << 8) ^ (low >> 8 & LOW | high & !LOW)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parities_are_those_of_the_words() {
        let mut state = 1u64;
        let mut draw = || {
            state = state.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23) ^ 0x55;
            state
        };
        for round in 0..2_000 {
            let sparse = |word: u64| if round % 3 == 0 { 1 << (word % 64) } else { word };
            let words: [u64; 8] = std::array::from_fn(|_| sparse(draw()));
            let eight = parities(words);
            assert_eq!(any_odd::<true>(words), eight != 0);
            assert_eq!(any_odd::<false>(words), eight != 0);
            for (index, word) in words.iter().enumerate() {
                assert_eq!(eight >> (8 * index) & 0xff, u64::from(word.count_ones() % 2));
            }
        }
    }
}
