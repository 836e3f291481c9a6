//! The oracle of all kinds: builders and readers written once more from `docs/formats/filter.md`,
//! bit by bit and slowly.

use umbel_filter::{FilterKind, FilterOptions, Probing};

const MULTIPLIERS: [u128; 4] =
    [0x9e3779b97f4a7c15, 0xbb67ae8584caa73b, 0xa54ff53a5f1d36f1, 0x9b05688c2b3e6c1f];
const SALTS: [u32; 8] = [
    0x47b6137b, 0x44974d91, 0x8824ad5b, 0xa2b7289d, 0x705495c7, 0x2df1424b, 0x9efc4947, 0x5c6bfb31,
];

/// Parameters of a filter, without its bits.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub kind: FilterKind,
    pub probing: Probing,
    pub units: u64,
    pub probes: u32,
}

impl Shape {
    /// Reads it from an encoded filter.
    pub fn of(bytes: &[u8]) -> Shape {
        Shape {
            kind: FilterKind::from_number(bytes[4]).expect("a known kind"),
            probing: Probing::from_number(bytes[28]).expect("a known probing"),
            units: u64::from_le_bytes(bytes[16..24].try_into().expect("eight bytes")),
            probes: u32::from(bytes[7]),
        }
    }

    /// The bits, or counters, of `hash`, as their numbers in the whole payload.
    pub fn positions(&self, hash: u64) -> Vec<u64> {
        let high = |number: u64, by: u64| (u128::from(number) * u128::from(by) / (1 << 64)) as u64;
        let remix = |by: u128| {
            let product = u128::from(hash) * by;
            (product / (1 << 64)) as u64 ^ product as u64
        };
        let mut found = vec![];
        for probe in 0..self.probes {
            found.push(match (self.kind, self.probing) {
                (FilterKind::Blocked512, _) => {
                    let position =
                        remix(MULTIPLIERS[probe as usize / 7]) >> (9 * (probe % 7)) & 511;
                    high(hash, self.units) * 512 + position
                }
                (FilterKind::Blocked256, _) => {
                    let position =
                        remix(MULTIPLIERS[probe as usize / 8]) >> (8 * (probe % 8)) & 255;
                    high(hash, self.units) * 256 + position
                }
                (FilterKind::SplitBlock, _) => {
                    let block = u128::from(hash >> 32) * u128::from(self.units) / (1 << 32);
                    let bit = (hash as u32).wrapping_mul(SALTS[probe as usize]) >> 27;
                    block as u64 * 256 + u64::from(probe) * 32 + u64::from(bit)
                }
                (_, Probing::LevelDb) => {
                    let narrow = narrow(hash);
                    let step = narrow.rotate_right(17);
                    u64::from(narrow.wrapping_add(step.wrapping_mul(probe))) % self.units
                }
                (_, Probing::Multiplied) => {
                    let by = 0x9e3779b97f4a7c15u64.wrapping_pow(probe + 1);
                    high(hash.wrapping_mul(by), self.units)
                }
                _ => {
                    let (step, more) = (remix(MULTIPLIERS[0]), remix(MULTIPLIERS[1]));
                    let pairs = u64::from(probe * probe.saturating_sub(1) / 2);
                    let number = hash
                        .wrapping_add(step.wrapping_mul(u64::from(probe)))
                        .wrapping_add(more.wrapping_mul(pairs));
                    high(number, self.units)
                }
            });
        }
        found
    }

    /// The payload that holds these hashes.
    pub fn build(&self, hashes: &[u64]) -> Vec<u8> {
        let per_byte = if self.kind == FilterKind::Counting { 2 } else { 8 };
        let units = match self.kind {
            FilterKind::Blocked512 => self.units * 512,
            FilterKind::Blocked256 | FilterKind::SplitBlock => self.units * 256,
            _ => self.units,
        };
        let mut counts = vec![0u8; units as usize];
        for hash in hashes {
            for position in self.positions(*hash) {
                let count_max = if per_byte == 2 { 15 } else { 1 };
                counts[position as usize] = (counts[position as usize] + 1).min(count_max);
            }
        }
        let bytes = counts.chunks(per_byte).map(|counts| {
            let bits = 8 / per_byte;
            counts.iter().enumerate().fold(0, |byte, (at, count)| byte | count << (at * bits))
        });
        bytes.collect()
    }

    /// Whether a filter with that payload lets `hash` through.
    pub fn contains(&self, payload: &[u8], hash: u64) -> bool {
        self.positions(hash).into_iter().all(|position| match self.kind {
            FilterKind::Counting => payload[position as usize / 2] >> (position % 2 * 4) & 15 != 0,
            _ => payload[position as usize / 8] >> (position % 8) & 1 != 0,
        })
    }
}

/// The 32 bits whose widening the hash is.
fn narrow(hash: u64) -> u32 {
    // The multiplicative inverses modulo 2^64, by Newton's iteration.
    let inverse = |number: u64| {
        (0..6).fold(number, |guess, _| {
            guess.wrapping_mul(2u64.wrapping_sub(number.wrapping_mul(guess)))
        })
    };
    let mut state = hash ^ hash >> 33;
    for number in [0xc4ceb9fe1a85ec53, 0xff51afd7ed558ccd] {
        state = state.wrapping_mul(inverse(number));
        state ^= state >> 33;
    }
    state as u32
}

/// Options for every kind that a `FilterBuilder` builds, with every way to probe.
pub fn every_kind() -> Vec<FilterOptions> {
    let kinds = [
        (FilterKind::Blocked512, Probing::Multiplied),
        (FilterKind::Blocked256, Probing::Multiplied),
        (FilterKind::Standard, Probing::Enhanced),
        (FilterKind::Standard, Probing::Multiplied),
        (FilterKind::Standard, Probing::LevelDb),
        (FilterKind::SplitBlock, Probing::Multiplied),
        (FilterKind::Counting, Probing::Multiplied),
    ];
    let options = |(kind, probing)| FilterOptions { kind, probing, ..FilterOptions::default() };
    kinds.map(options).to_vec()
}
