//! Fingerprints of 4 to 16 bits, one after the other without gaps.
//!
//! FORMAT: fingerprint `n` of `b` bits is in the bits from `n * b` on, the lowest bit first; bit
//! `m` is bit `m % 8` of byte `m / 8`.

use crate::simd::prefetch;

/// Number of bytes of one read.
const READ: usize = 4;

/// FORMAT: the bytes for `slots` fingerprints of `bits` bits. The bytes are padded so that a read
/// of four bytes at any fingerprint stays inside, and to a multiple of eight. `None` where that
/// exceeds the limit.
pub(super) fn packed_bytes(slots: u64, bits: u32) -> Option<usize> {
    let used = used_bytes(slots, bits)?;
    used.checked_add(READ as u64 - 1)?.checked_next_multiple_of(8)?.try_into().ok()
}

/// Number of bytes with bits of fingerprints, without padding.
pub(super) fn used_bytes(slots: u64, bits: u32) -> Option<u64> {
    Some(slots.checked_mul(u64::from(bits))?.div_ceil(8))
}

/// Appends the lowest `bits` bits of each fingerprint, and the padding.
pub(super) fn pack(fingerprints: &[u16], bits: u32, bytes: &mut Vec<u8>) {
    let padded = bytes.len() + packed_bytes(fingerprints.len() as u64, bits).unwrap_or(0);
    match bits {
        8 => bytes.extend(fingerprints.iter().map(|print| *print as u8)),
        16 => bytes.extend(fingerprints.iter().flat_map(|print| print.to_le_bytes())),
        _ => pack_bits(fingerprints, bits, bytes),
    }
    bytes.resize(padded.max(bytes.len()), 0);
}

/// Eight fingerprints at a time are a whole number of bytes.
fn pack_bits(fingerprints: &[u16], bits: u32, bytes: &mut Vec<u8>) {
    let mask = (1u128 << bits) - 1;
    for eight in fingerprints.chunks(8) {
        let joined =
            eight.iter().rev().fold(0u128, |all, print| all << bits | u128::from(*print) & mask);
        let used = (eight.len() * bits as usize).div_ceil(8);
        bytes.extend_from_slice(&joined.to_le_bytes()[..used]);
    }
}

/// The bits from fingerprint `index` on, at least `bits` of them, those after it too; `None`
/// outside of the bytes. `WIDTH` is `bits`, or 0 where that is not known to the compiler; whole
/// bytes take fewer steps.
#[inline(always)]
pub(super) fn bits_at<const WIDTH: u32>(bytes: &[u8], index: usize, bits: u32) -> Option<u32> {
    match WIDTH {
        8 => bytes.get(index).map(|byte| u32::from(*byte)),
        16 => bytes.as_chunks::<2>().0.get(index).map(|two| u32::from(u16::from_le_bytes(*two))),
        _ => {
            let bit = index as u64 * u64::from(bits);
            let from = usize::try_from(bit / 8).ok()?;
            let four = bytes.get(from..from.checked_add(READ)?)?;
            Some(u32::from_le_bytes(four.try_into().ok()?) >> (bit % 8))
        }
    }
}

/// Prefetches the cache line in which fingerprint `index` begins.
#[inline(always)]
pub(super) fn prefetch_bits<const WIDTH: u32>(bytes: &[u8], index: usize, bits: u32) {
    let from = match WIDTH {
        8 => index,
        16 => 2 * index,
        _ => (index as u64 * u64::from(bits) / 8) as usize,
    };
    if let Some(byte) = bytes.get(from) {
        prefetch(byte);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_fingerprints_equal_single_bits() {
        for bits in 4..=16u32 {
            for count in [0u64, 1, 2, 7, 8, 9, 100] {
                let prints: Vec<u16> = (0..count).map(|at| (at * 40_503 + 77) as u16).collect();
                let mut bytes = vec![9; 3];
                pack(&prints, bits, &mut bytes);
                let packed = &bytes[3..];
                assert_eq!(Some(packed.len()), packed_bytes(count, bits));
                for (index, print) in prints.iter().enumerate() {
                    let naive = (0..bits).fold(0, |all, bit| {
                        let at = index as u32 * bits + bit;
                        all | u32::from(packed[at as usize / 8] >> (at % 8) & 1) << bit
                    });
                    let mask = (1 << bits) - 1;
                    assert_eq!(naive, u32::from(*print) & mask);
                    let mut reads = vec![bits_at::<0>(packed, index, bits)];
                    match bits {
                        8 => reads.push(bits_at::<8>(packed, index, bits)),
                        16 => reads.push(bits_at::<16>(packed, index, bits)),
                        _ => {}
                    }
                    for read in reads {
                        assert_eq!(read.map(|read| read & mask), Some(naive));
                    }
                }
                let used = (count as u32 * bits).div_ceil(8) as usize;
                assert!(packed[used..].iter().all(|byte| *byte == 0));
            }
        }
    }

    #[test]
    fn impossible_sizes_are_refused() {
        assert_eq!(packed_bytes(u64::MAX, 16), None);
        assert_eq!(packed_bytes(0, 4), Some(8));
        assert_eq!(packed_bytes(10, 4), Some(8));
        assert_eq!(packed_bytes(12, 4), Some(16));
    }
}
