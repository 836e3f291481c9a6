//! Seeds of parts of a campaign: derived from the campaign's seed, so that the seed decides the
//! whole campaign.

use umbel_sim::scramble;

/// Derives a seed from two numbers.
pub fn derive_seed(first: u64, second: u64) -> u64 {
    scramble(first.rotate_left(23) ^ scramble(second.wrapping_add(0x51_7C_C1_B7_27_22_0A_95)))
}

/// Derives a seed from a name.
pub fn seed_from_name(name: &str) -> u64 {
    name.bytes().fold(0xCBF2_9CE4_8422_2325, |seed, byte| derive_seed(seed, u64::from(byte)))
}
