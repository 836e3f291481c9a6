//! Seeded numbers (SplitMix64): every campaign is a function of its seed.

/// Pseudo-random numbers of a seed.
#[derive(Debug, Clone)]
pub struct Random {
    state: u64,
}

impl Random {
    /// Creates the numbers of this seed.
    pub fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    /// Returns the next number.
    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        scramble(self.state)
    }

    /// Returns a number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Returns `true` once in `times`.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times.max(1)) == 0
    }

    /// Returns random bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(count + 8);
        while bytes.len() < count {
            bytes.extend(self.next().to_le_bytes());
        }
        bytes.truncate(count);
        bytes
    }
}

fn scramble(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

/// Derives a seed from two numbers.
pub fn derive_seed(first: u64, second: u64) -> u64 {
    scramble(first.rotate_left(23) ^ scramble(second.wrapping_add(0x51_7C_C1_B7_27_22_0A_95)))
}

/// Derives a seed from a name.
pub fn seed_from_name(name: &str) -> u64 {
    name.bytes().fold(0xCBF2_9CE4_8422_2325, |seed, byte| derive_seed(seed, u64::from(byte)))
}
