//! The tests of umbel-filter from outside: what a store relies on, and what the format page says.

#[path = "suite/campaign.rs"]
mod campaign;
#[path = "suite/combined.rs"]
mod combined;
#[path = "suite/concurrent.rs"]
mod concurrent;
#[path = "suite/damage.rs"]
mod damage;
#[path = "suite/encoded.rs"]
mod encoded;
#[path = "suite/exchange.rs"]
mod exchange;
#[path = "suite/files.rs"]
mod files;
#[path = "suite/fuse.rs"]
mod fuse;
#[path = "suite/golden.rs"]
mod golden;
#[path = "suite/golden_kinds.rs"]
mod golden_kinds;
#[path = "suite/hash_kinds.rs"]
mod hash_kinds;
#[path = "suite/hashing.rs"]
mod hashing;
#[path = "suite/hostile.rs"]
mod hostile;
#[path = "suite/kind_rates.rs"]
mod kind_rates;
#[path = "suite/kinds.rs"]
mod kinds;
#[path = "suite/naive.rs"]
mod naive;
#[path = "suite/naive_fuse.rs"]
mod naive_fuse;
#[path = "suite/naive_ribbon.rs"]
mod naive_ribbon;
#[path = "suite/one_contract.rs"]
mod one_contract;
#[path = "suite/oracle.rs"]
mod oracle;
#[path = "suite/prefix_rules.rs"]
mod prefix_rules;
#[path = "suite/prefixes.rs"]
mod prefixes;
#[path = "suite/quality.rs"]
mod quality;
#[path = "suite/rates.rs"]
mod rates;
#[path = "suite/ribbon.rs"]
mod ribbon;
#[path = "suite/shapes.rs"]
mod shapes;

pub use shapes::hash_shapes;

/// A generator of evenly spread 64-bit numbers, as good as hashes, the same in every run.
pub struct Numbers(pub u64);

impl Numbers {
    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

/// The encoded filter of these hashes.
pub fn build(hashes: impl IntoIterator<Item = u64>, bits_per_key: i32) -> Vec<u8> {
    let mut builder = umbel_filter::BloomBuilder::new(bits_per_key);
    hashes.into_iter().for_each(|hash| builder.add(hash));
    builder.finish()
}
