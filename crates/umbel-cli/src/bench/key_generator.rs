//! Random numbers, and keys made of numbers.
//!
//! This file does not use the generator of tests (`umbel_sim::Random`): committed results depend on
//! the sequence here, and each operation of a benchmark draws from it.

use super::bench_settings::Settings;
use crate::bench::bench_flags::KeyFormat;

/// Blackman and Vigna's random generator xoroshiro128+: two words of state, no multiplication,
/// about a nanosecond for a number.
#[derive(Debug, Clone)]
pub struct Random {
    low: u64,
    high: u64,
}

impl Random {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Random {
        let mut state = seed;
        Random { low: split_mix(&mut state), high: split_mix(&mut state) | 1 }
    }

    /// The next number.
    #[inline]
    pub fn next(&mut self) -> u64 {
        let (low, mut high) = (self.low, self.high);
        let number = low.wrapping_add(high);
        high ^= low;
        self.low = low.rotate_left(24) ^ high ^ (high << 16);
        self.high = high.rotate_left(37);
        number
    }

    /// A number below `bound`. REQUIRES: `bound > 0`.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

/// Steele, Lea and Flood's SplitMix64, which turns similar seeds into unrelated states.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut word = *state;
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Generates keys, always in the same buffer.
#[derive(Debug, Clone)]
pub struct KeyGenerator {
    format: KeyFormat,
    prefix: usize,
    size: usize,
    buffer: Vec<u8>,
}

impl KeyGenerator {
    /// Creates a generator of the keys that the fill benchmarks write.
    pub fn new(settings: &Settings) -> KeyGenerator {
        let size = settings.key_size;
        let prefix = settings.key_prefix;
        let mut buffer = vec![b'0'; size];
        buffer[..prefix].fill(b'a');
        KeyGenerator { format: settings.key_format, prefix, size, buffer }
    }

    /// Creates a generator of absent keys between the written keys: a RocksDB key has one more `0`,
    /// a LevelDB key lacks its last digit. The `readmissing` benchmarks of both engines look up
    /// such keys.
    pub fn missing_key(settings: &Settings) -> KeyGenerator {
        let mut keys = KeyGenerator::new(settings);
        match settings.key_format {
            KeyFormat::Rocksdb => keys.buffer.push(b'0'),
            KeyFormat::Leveldb => keys.buffer.truncate(keys.size - 1),
        }
        keys
    }

    /// The key of a number.
    #[inline]
    pub fn key(&mut self, number: u64) -> &[u8] {
        match self.format {
            KeyFormat::Rocksdb => {
                let bytes = number.to_be_bytes();
                let count = (self.size - self.prefix).min(bytes.len());
                self.buffer[self.prefix..self.prefix + count]
                    .copy_from_slice(&bytes[bytes.len() - count..]);
            }
            KeyFormat::Leveldb => self.write_decimal(number),
        }
        &self.buffer
    }

    /// Writes decimal digits from the right, without the digit of a missing last byte.
    fn write_decimal(&mut self, number: u64) {
        let mut rest = number;
        for index in (self.prefix..self.size).rev() {
            let digit = b'0' + (rest % 10) as u8;
            rest /= 10;
            if let Some(byte) = self.buffer.get_mut(index) {
                *byte = digit;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::bench_settings::testing::settings;

    #[test]
    fn rocksdb_keys_are_big_endian_and_padded() {
        let settings = settings(&["--key_size=12", "--key_prefix=1"]);
        let mut keys = KeyGenerator::new(&settings);
        assert_eq!(keys.key(0x0102_0304), b"a\0\0\0\0\x01\x02\x03\x04000");
        assert_eq!(keys.key(5), b"a\0\0\0\0\0\0\0\x05000");
        let mut missing = KeyGenerator::missing_key(&settings);
        assert_eq!(missing.key(5), b"a\0\0\0\0\0\0\0\x050000");
    }

    #[test]
    fn short_rocksdb_key_keeps_the_low_bytes() {
        let settings = settings(&["--key_size=2"]);
        assert_eq!(KeyGenerator::new(&settings).key(0x0102_0304), b"\x03\x04");
    }

    #[test]
    fn leveldb_keys_are_sixteen_digits() {
        let settings = settings(&["--key_format=leveldb", "--key_prefix=2"]);
        assert_eq!(KeyGenerator::new(&settings).key(123), b"aa0000000000000123");
        assert_eq!(KeyGenerator::missing_key(&settings).key(123), b"aa000000000000012");
    }

    #[test]
    fn random_numbers_are_even_and_repeatable() {
        let mut random = Random::new(7);
        let mut counts = [0u32; 10];
        for _ in 0..100_000 {
            counts[random.below(10) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (9_600..10_400).contains(count)), "{counts:?}");
        assert_eq!(Random::new(7).next(), Random::new(7).next());
        assert_ne!(Random::new(7).next(), Random::new(8).next());
    }
}
