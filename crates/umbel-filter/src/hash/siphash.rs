//! SipHash (Aumasson and Bernstein, INDOCRYPT 2012). SipHash with 2 and 4 rounds is the
//! pseudorandom function that derives secrets from a seed; with 1 and 3 rounds it is a hash of
//! keys.

/// The 64-bit SipHash-2-4 of `message` under `key`.
pub(crate) fn siphash_2_4(key: [u8; 16], message: [u8; 16]) -> u64 {
    siphash::<2, 4>(u128::from_le_bytes(key), &message)
}

/// The 64-bit SipHash-1-3 of `message` under `key`, whose low half comes first.
pub(crate) fn siphash_1_3(key: u128, message: &[u8]) -> u64 {
    siphash::<1, 3>(key, message)
}

fn siphash<const EACH: u32, const LAST: u32>(key: u128, message: &[u8]) -> u64 {
    let (k0, k1) = (key as u64, (key >> 64) as u64);
    let mut state = [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    let (blocks, rest) = message.as_chunks::<8>();
    // The closing block holds the rest and, in its highest byte, the message's length.
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    last[7] = message.len() as u8;
    for block in blocks.iter().chain([&last]) {
        let block = u64::from_le_bytes(*block);
        state[3] ^= block;
        (0..EACH).for_each(|_| round(&mut state));
        state[0] ^= block;
    }
    state[2] ^= 0xff;
    (0..LAST).for_each(|_| round(&mut state));
    state[0] ^ state[1] ^ state[2] ^ state[3]
}

#[inline(always)]
fn round(state: &mut [u64; 4]) {
    let [mut v0, mut v1, mut v2, mut v3] = *state;
    v0 = v0.wrapping_add(v1);
    v1 = v1.rotate_left(13) ^ v0;
    v0 = v0.rotate_left(32);
    v2 = v2.wrapping_add(v3);
    v3 = v3.rotate_left(16) ^ v2;
    v0 = v0.wrapping_add(v3);
    v3 = v3.rotate_left(21) ^ v0;
    v2 = v2.wrapping_add(v1);
    v1 = v1.rotate_left(17) ^ v2;
    v2 = v2.rotate_left(32);
    *state = [v0, v1, v2, v3];
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::hash::Hasher;

    /// From the table published with SipHash: the key counts 0..16 and so does the message.
    #[test]
    fn published_vector_matches() {
        let counting: [u8; 16] = std::array::from_fn(|index| index as u8);
        assert_eq!(siphash_2_4(counting, counting), 0x3f2a_cc7f_57c2_9bdb);
    }

    proptest! {
        #[test]
        fn another_implementation_agrees(
            key: u128,
            message in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let (k0, k1) = (key as u64, (key >> 64) as u64);
            let mut other = siphasher::sip::SipHasher13::new_with_keys(k0, k1);
            other.write(&message);
            prop_assert_eq!(siphash_1_3(key, &message), other.finish());
        }
    }
}
