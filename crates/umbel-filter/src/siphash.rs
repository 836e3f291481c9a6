//! SipHash-2-4 over a message of 16 bytes: the pseudorandom function that makes secrets of a seed.
//!
//! Only [`crate::HashSecret`] uses it, nine times per store; it is small and slow on purpose.

/// The 64-bit SipHash-2-4 of `message` under `key`.
pub(crate) fn siphash_2_4(key: [u8; 16], message: [u8; 16]) -> u64 {
    let [k0, k1] = words(key);
    let mut state = [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    // The closing block holds the message's length, 16, in its highest byte and no more bytes.
    for block in words(message).into_iter().chain([16 << 56]) {
        state[3] ^= block;
        round(&mut state);
        round(&mut state);
        state[0] ^= block;
    }
    state[2] ^= 0xff;
    for _ in 0..4 {
        round(&mut state);
    }
    state[0] ^ state[1] ^ state[2] ^ state[3]
}

fn words(bytes: [u8; 16]) -> [u64; 2] {
    let both = u128::from_le_bytes(bytes);
    [both as u64, (both >> 64) as u64]
}

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

    /// From the table published with SipHash: the key counts 0..16 and so does the message.
    #[test]
    fn the_published_vector_comes_out() {
        let counting: [u8; 16] = std::array::from_fn(|index| index as u8);
        assert_eq!(siphash_2_4(counting, counting), 0x3f2a_cc7f_57c2_9bdb);
    }
}
