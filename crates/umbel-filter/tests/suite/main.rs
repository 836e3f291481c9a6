//! Tests of umbel-filter from outside: promises to a store, and the statements of the format page.

mod adversarial_keys;
mod bloom_encoding;
mod bloom_oracle;
mod builder_and_view;
mod combined_filters;
mod concurrent_bloom;
mod damage;
mod filter_files;
mod fuse;
mod fuse_oracle;
mod golden_files;
mod golden_kinds;
mod hash_kinds;
mod hash_multisets;
mod hash_quality;
mod interop;
mod keyed_hash;
mod kind_oracle;
mod kind_rates;
mod kinds;
mod prefix_filters;
mod prefix_rules;
mod rate_campaign;
mod rates;
mod ribbon;
mod ribbon_oracle;

pub use hash_multisets::hash_shapes;

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
