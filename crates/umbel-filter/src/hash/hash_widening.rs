//! Widens hashes of 32 bits to the 64 bits that filters take.
//!
//! FORMAT: filters of 32-bit hashes (murmur3-32, LevelDB's) are made of widened hashes.

/// Widens a 32-bit hash, LevelDB's or murmur3's, to the 64 bits that filters take. Different hashes
/// stay different.
///
/// The 32 bits are repeated in both halves. The result goes through the finish of MurmurHash3 for
/// 64 bits, so that its highest bits, which choose a line, depend on all 32 bits.
#[inline]
pub fn widen_hash(hash: u32) -> u64 {
    let twice = u64::from(hash) << 32 | u64::from(hash);
    let state = (twice ^ twice >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let state = (state ^ state >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    state ^ state >> 33
}

/// Returns the 32-bit hash of a widened one; for any other hash, 32 bits that depend on all its
/// bits.
#[inline]
pub(crate) fn narrow_hash(hash: u64) -> u32 {
    // The steps of the finish in reverse: a shift by 33 undoes itself, and each multiplier has an
    // inverse among the numbers of 64 bits.
    let state = (hash ^ hash >> 33).wrapping_mul(0x9cb4_b2f8_1293_37db);
    let state = (state ^ state >> 33).wrapping_mul(0x4f74_430c_22a5_4005);
    (state ^ state >> 33) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrowing_undoes_widening() {
        let inverses = [
            (0xff51_afd7_ed55_8ccd_u64, 0x4f74_430c_22a5_4005_u64),
            (0xc4ce_b9fe_1a85_ec53, 0x9cb4_b2f8_1293_37db),
        ];
        assert!(inverses.iter().all(|(number, inverse)| number.wrapping_mul(*inverse) == 1));
        for number in (0..=u32::MAX).step_by(65_521).chain([1, u32::MAX]) {
            assert_eq!(narrow_hash(widen_hash(number)), number);
        }
        assert_eq!(widen_hash(1), 0x0ad0_f115_abd5_e507);
    }
}
