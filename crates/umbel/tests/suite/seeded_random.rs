//! Random numbers that a seed decides, so that every run can be replayed.

/// A small generator (SplitMix64), good enough to choose operations, not to keep secrets.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The generator of a seed. Neighbouring seeds give unrelated sequences.
    pub fn new(seed: u64) -> Random {
        let mut random = Random(seed ^ 0x5bd1_e995_9d1c_a3f7);
        random.next();
        Random(random.next())
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`, which is not 0.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    /// `true` with a probability of `chance` percent.
    pub fn percent(&mut self, chance: usize) -> bool {
        self.below(100) < chance
    }

    /// One of `choices`.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// `count` bytes that do not compress.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(count + 8);
        while bytes.len() < count {
            bytes.extend(self.next().to_le_bytes());
        }
        bytes.truncate(count);
        bytes
    }

    /// A value like those of applications: mostly small, occasionally empty or large, half of them
    /// compressible.
    pub fn value(&mut self) -> Vec<u8> {
        let len = match self.below(200) {
            0..20 => 0,
            20..140 => self.below(24),
            140..185 => self.below(200),
            185..198 => self.below(3000),
            _ => self.below(40_000),
        };
        if self.percent(50) {
            return self.bytes(len);
        }
        let word = self.bytes(4);
        word.iter().copied().cycle().take(len).collect()
    }
}
