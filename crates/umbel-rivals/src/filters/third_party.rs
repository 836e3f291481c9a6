//! Filters of other crates, with 10 bits for each key if the crate has that option. Other filters
//! get a rate of 1 %, which a Bloom filter has with 10 bits, or have fixed settings of their crate.

use std::collections::hash_map::DefaultHasher;

use bloomfilter::Bloom as ClassicBloom;
use cuckoofilter::CuckooFilter;
use fastbloom::BloomFilter;
use growable_bloom_filter::GrowableBloom;
use pleat::filter::RibbonFilter;
use scalable_cuckoo_filter::ScalableCuckooFilter;
use umbel_lab::engine::Result;
use xorf::{BinaryFuse8, BinaryFuse16, Filter as _, Xor8};

use crate::filters::candidate_filter::{HashFilter, KeyFilter};
use crate::filters::filter_keys::Key;
use crate::filters::umbel_blocked::BITS_PER_KEY;

/// False-positive rate that is requested of filters that are sized by rate.
const RATE: f64 = 0.01;
/// Upper bound on the keys for which the size of a growable filter is measured by serializing it.
const MEASURED_SIZE_KEYS_MAX: usize = 1_000_000;

fn fastbloom(keys: usize) -> BloomFilter {
    let filter = BloomFilter::with_num_bits(BITS_PER_KEY * keys).seed(&1);
    filter.expected_items(keys)
}

pub struct Fastbloom(BloomFilter);

impl HashFilter for Fastbloom {
    const NAME: &'static str = "fastbloom";
    const PACKAGE: &'static str = "fastbloom";

    type Probe<'a> = &'a BloomFilter;

    fn build(hashes: &[u64]) -> Result<Fastbloom> {
        let mut filter = fastbloom(hashes.len());
        hashes.iter().for_each(|hash| _ = filter.insert_hash(*hash));
        Ok(Fastbloom(filter))
    }

    fn bits(&self) -> Option<u64> {
        Some(self.0.num_bits() as u64)
    }

    fn probe(&self) -> &BloomFilter {
        &self.0
    }

    #[inline(always)]
    fn contains(probe: &&BloomFilter, hash: u64) -> bool {
        probe.contains_hash(hash)
    }
}

/// Bloom filter of fastbloom with default settings.
pub struct FastbloomDefault(BloomFilter);

impl KeyFilter for FastbloomDefault {
    const NAME: &'static str = "fastbloom, default";
    const PACKAGE: &'static str = "fastbloom";
    const HASH: &'static str = "its SipHash-1-3";

    fn build(keys: &[Key]) -> Result<FastbloomDefault> {
        let mut filter = fastbloom(keys.len());
        keys.iter().for_each(|key| _ = filter.insert(&key[..]));
        Ok(FastbloomDefault(filter))
    }

    fn bits(&self) -> Option<u64> {
        Some(self.0.num_bits() as u64)
    }

    #[inline(always)]
    fn contains(&self, key: &[u8]) -> bool {
        self.0.contains(key)
    }
}

pub struct SplitBlock(sbbf_rs_safe::Filter);

impl HashFilter for SplitBlock {
    const NAME: &'static str = "sbbf-rs-safe";
    const PACKAGE: &'static str = "sbbf-rs-safe";

    type Probe<'a> = &'a sbbf_rs_safe::Filter;

    fn build(hashes: &[u64]) -> Result<SplitBlock> {
        let mut filter = sbbf_rs_safe::Filter::new(BITS_PER_KEY, hashes.len());
        hashes.iter().for_each(|hash| _ = filter.insert_hash(*hash));
        Ok(SplitBlock(filter))
    }

    fn bits(&self) -> Option<u64> {
        Some(self.0.as_bytes().len() as u64 * 8)
    }

    fn probe(&self) -> &sbbf_rs_safe::Filter {
        &self.0
    }

    #[inline(always)]
    fn contains(probe: &&sbbf_rs_safe::Filter, hash: u64) -> bool {
        probe.contains_hash(hash)
    }
}

pub struct Fuse8(BinaryFuse8);

impl HashFilter for Fuse8 {
    const NAME: &'static str = "xorf `BinaryFuse8`";
    const PACKAGE: &'static str = "xorf";

    type Probe<'a> = &'a BinaryFuse8;

    fn build(hashes: &[u64]) -> Result<Fuse8> {
        Ok(Fuse8(BinaryFuse8::try_from(hashes)?))
    }

    fn bits(&self) -> Option<u64> {
        Some(self.0.fingerprints.len() as u64 * 8)
    }

    fn probe(&self) -> &BinaryFuse8 {
        &self.0
    }

    #[inline(always)]
    fn contains(probe: &&BinaryFuse8, hash: u64) -> bool {
        probe.contains(&hash)
    }
}

pub struct Fuse16(BinaryFuse16);

impl HashFilter for Fuse16 {
    const NAME: &'static str = "xorf `BinaryFuse16`";
    const PACKAGE: &'static str = "xorf";

    type Probe<'a> = &'a BinaryFuse16;

    fn build(hashes: &[u64]) -> Result<Fuse16> {
        Ok(Fuse16(BinaryFuse16::try_from(hashes)?))
    }

    fn bits(&self) -> Option<u64> {
        Some(self.0.fingerprints.len() as u64 * 16)
    }

    fn probe(&self) -> &BinaryFuse16 {
        &self.0
    }

    #[inline(always)]
    fn contains(probe: &&BinaryFuse16, hash: u64) -> bool {
        probe.contains(&hash)
    }
}

pub struct Xor(Xor8);

impl HashFilter for Xor {
    const NAME: &'static str = "xorf `Xor8`";
    const PACKAGE: &'static str = "xorf";

    type Probe<'a> = &'a Xor8;

    fn build(hashes: &[u64]) -> Result<Xor> {
        Ok(Xor(Xor8::from(hashes)))
    }

    fn bits(&self) -> Option<u64> {
        Some(self.0.fingerprints.len() as u64 * 8)
    }

    fn probe(&self) -> &Xor8 {
        &self.0
    }

    #[inline(always)]
    fn contains(probe: &&Xor8, hash: u64) -> bool {
        probe.contains(&hash)
    }
}

/// Homogeneous ribbon with seven bits for a result, built by the fast method.
pub struct Ribbon(RibbonFilter);

impl HashFilter for Ribbon {
    const NAME: &'static str = "pleat `RibbonFilter`";
    const PACKAGE: &'static str = "pleat";

    type Probe<'a> = &'a RibbonFilter;

    fn build(hashes: &[u64]) -> Result<Ribbon> {
        Ok(Ribbon(RibbonFilter::from_keys_pleated(hashes)))
    }

    fn bits(&self) -> Option<u64> {
        Some(self.0.size_bytes() as u64 * 8)
    }

    fn probe(&self) -> &RibbonFilter {
        &self.0
    }

    #[inline(always)]
    fn contains(probe: &&RibbonFilter, hash: u64) -> bool {
        probe.contains(hash)
    }

    fn batch(&self, hashes: &[u64], found: &mut [bool]) -> bool {
        self.0.contains_batch(hashes, found);
        true
    }
}

pub struct Quotient(qfilter::Filter);

impl HashFilter for Quotient {
    const NAME: &'static str = "qfilter";
    const PACKAGE: &'static str = "qfilter";

    type Probe<'a> = &'a qfilter::Filter;

    fn build(hashes: &[u64]) -> Result<Quotient> {
        let failed = |error| format!("qfilter: {error:?}");
        let mut filter = qfilter::Filter::new(hashes.len() as u64, RATE).map_err(failed)?;
        for hash in hashes {
            filter.insert_fingerprint(false, *hash).map_err(failed)?;
        }
        Ok(Quotient(filter))
    }

    fn bits(&self) -> Option<u64> {
        Some(self.0.memory_usage() as u64 * 8)
    }

    fn probe(&self) -> &qfilter::Filter {
        &self.0
    }

    #[inline(always)]
    fn contains(probe: &&qfilter::Filter, hash: u64) -> bool {
        probe.contains_fingerprint(hash)
    }
}

pub struct Classic(ClassicBloom<[u8]>);

impl KeyFilter for Classic {
    const NAME: &'static str = "bloomfilter";
    const PACKAGE: &'static str = "bloomfilter";
    const HASH: &'static str = "its SipHash-1-3, twice";

    fn build(keys: &[Key]) -> Result<Classic> {
        let bytes = (BITS_PER_KEY * keys.len()).div_ceil(8);
        let mut filter = ClassicBloom::new(bytes, keys.len())?;
        keys.iter().for_each(|key| filter.set(&key[..]));
        Ok(Classic(filter))
    }

    fn bits(&self) -> Option<u64> {
        Some(self.0.len())
    }

    #[inline(always)]
    fn contains(&self, key: &[u8]) -> bool {
        self.0.check(key)
    }
}

pub struct Growable(GrowableBloom);

impl KeyFilter for Growable {
    const NAME: &'static str = "growable-bloom-filter";
    const PACKAGE: &'static str = "growable-bloom-filter";
    const HASH: &'static str = "its xxh3";

    fn build(keys: &[Key]) -> Result<Growable> {
        let mut filter = GrowableBloom::new(RATE, keys.len());
        keys.iter().for_each(|key| _ = filter.insert(&key[..]));
        Ok(Growable(filter))
    }

    fn bits(&self) -> Option<u64> {
        if self.0.len() > MEASURED_SIZE_KEYS_MAX {
            return None;
        }
        buffers(&serde_json::to_value(&self.0).ok()?)
    }

    #[inline(always)]
    fn contains(&self, key: &[u8]) -> bool {
        self.0.contains(key)
    }
}

/// Bits of all byte lists in a serialized filter that does not report its size.
fn buffers(value: &serde_json::Value) -> Option<u64> {
    let sum = |one: u64, other: u64| one + other;
    match value {
        serde_json::Value::Object(fields) => fields.values().filter_map(buffers).reduce(sum),
        serde_json::Value::Array(values) if values.first()?.is_u64() => {
            Some(values.len() as u64 * 8)
        }
        serde_json::Value::Array(values) => values.iter().filter_map(buffers).reduce(sum),
        _ => None,
    }
}

pub struct Cuckoo(CuckooFilter<DefaultHasher>);

impl KeyFilter for Cuckoo {
    const NAME: &'static str = "cuckoofilter";
    const PACKAGE: &'static str = "cuckoofilter";
    const HASH: &'static str = "its SipHash-1-3";

    fn build(keys: &[Key]) -> Result<Cuckoo> {
        let mut filter = CuckooFilter::with_capacity(keys.len());
        for key in keys {
            filter.add(&key[..]).map_err(|error| format!("cuckoofilter: {error}"))?;
        }
        Ok(Cuckoo(filter))
    }

    fn bits(&self) -> Option<u64> {
        Some(self.0.memory_usage() as u64 * 8)
    }

    #[inline(always)]
    fn contains(&self, key: &[u8]) -> bool {
        self.0.contains(key)
    }
}

pub struct ScalableCuckoo(ScalableCuckooFilter<[u8]>);

impl KeyFilter for ScalableCuckoo {
    const NAME: &'static str = "scalable_cuckoo_filter";
    const PACKAGE: &'static str = "scalable_cuckoo_filter";
    const HASH: &'static str = "its SipHash-1-3";

    fn build(keys: &[Key]) -> Result<ScalableCuckoo> {
        let mut filter = ScalableCuckooFilter::new(keys.len(), RATE);
        keys.iter().for_each(|key| filter.insert(&key[..]));
        Ok(ScalableCuckoo(filter))
    }

    fn bits(&self) -> Option<u64> {
        Some(self.0.bits())
    }

    #[inline(always)]
    fn contains(&self, key: &[u8]) -> bool {
        self.0.contains(key)
    }
}
