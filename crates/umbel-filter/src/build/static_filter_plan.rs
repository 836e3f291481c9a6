//! Plans and builds static filters, which are built once from all their keys.

use crate::build::build_error::BuildError;
use crate::build::filter_size::FilterSize;
use crate::format::bloom_header::HEADER_BYTES;
use crate::format::filter_kind::FilterKind;
use crate::fuse::{FuseBuilder, PeelingError};
use crate::ribbon::RibbonBuilder;

/// The fewest and the most bits of a fuse filter's fingerprint.
const FINGERPRINT_BITS: std::ops::RangeInclusive<u32> = 4..=16;
/// The lowest rate of a ribbon filter is 1/2 to the power of this.
const RIBBON_HALVINGS_MAX: f64 = 32.0;
/// The most keys of a fuse filter, whose slots are numbered in 32 bits while it is built.
const FUSE_KEYS_MAX: u64 = 3_000_000_000;
/// The most keys of a ribbon filter, whose parts have as many blocks as 16 bits count.
const RIBBON_KEYS_MAX: u64 = 60_000_000_000;
/// Number of halvings of the step in the search for a ribbon filter's rate.
const STEPS: u32 = 40;

/// Size and parameters that follow from the options.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StaticPlan {
    /// A fuse filter with fingerprints of this number of bits.
    Fuse { bits: u32 },
    /// A ribbon filter with this rate.
    Ribbon { rate: f64 },
}

/// Plans a filter of a static kind for `keys` keys. REQUIRES: the size was checked.
pub(crate) fn plan(
    kind: FilterKind,
    size: FilterSize,
    keys: u64,
) -> Result<StaticPlan, BuildError> {
    let (keys_max, least_bits) = match kind {
        FilterKind::BinaryFuse => (FUSE_KEYS_MAX, u64::from(*FINGERPRINT_BITS.start())),
        _ => (RIBBON_KEYS_MAX, 1),
    };
    if keys > keys_max {
        return Err(BuildError::TooLarge { bits: keys.saturating_mul(least_bits) });
    }
    match kind {
        FilterKind::BinaryFuse => fuse(size, keys),
        _ => ribbon(size, keys),
    }
}

/// The lowest rate of a static kind.
pub(crate) fn lowest_rate(kind: FilterKind) -> f64 {
    let halvings = match kind {
        FilterKind::BinaryFuse => f64::from(*FINGERPRINT_BITS.end()),
        _ => RIBBON_HALVINGS_MAX,
    };
    (-halvings).exp2()
}

fn fuse(size: FilterSize, keys: u64) -> Result<StaticPlan, BuildError> {
    let (bits_min, bits_max) = (*FINGERPRINT_BITS.start(), *FINGERPRINT_BITS.end());
    let bits = match size {
        FilterSize::Rate(given) => {
            let bits = (-given.log2()).ceil();
            (bits as u32).clamp(bits_min, bits_max)
        }
        FilterSize::BitsPerKey(given) => {
            let fits = |bits: &u32| StaticPlan::Fuse { bits: *bits }.bits_per_key(keys) <= given;
            FINGERPRINT_BITS.rev().find(fits).unwrap_or(bits_min)
        }
    };
    Ok(StaticPlan::Fuse { bits })
}

fn ribbon(size: FilterSize, keys: u64) -> Result<StaticPlan, BuildError> {
    let at = |halvings: f64| StaticPlan::Ribbon { rate: (-halvings).exp2() };
    match size {
        FilterSize::Rate(given) => Ok(StaticPlan::Ribbon { rate: given.min(0.5) }),
        FilterSize::BitsPerKey(given) => {
            let (mut fits, mut too_many) = (1.0, RIBBON_HALVINGS_MAX);
            if at(too_many).bits_per_key(keys) <= given {
                return Ok(at(too_many));
            }
            for _ in 0..STEPS {
                let middle = (fits + too_many) / 2.0;
                let is_enough = at(middle).bits_per_key(keys) <= given;
                *(if is_enough { &mut fits } else { &mut too_many }) = middle;
            }
            Ok(at(fits))
        }
    }
}

impl StaticPlan {
    /// Approximate number of bytes of the filter of `keys` keys.
    pub(crate) fn expected_bytes(self, keys: u64) -> u64 {
        match self {
            StaticPlan::Fuse { bits } => {
                FuseBuilder::new(bits).expected_bytes(keys).unwrap_or(u64::MAX)
            }
            StaticPlan::Ribbon { rate } => RibbonBuilder::new(rate).expected_bytes(keys),
        }
    }

    fn bits_per_key(self, keys: u64) -> f64 {
        let bytes = self.expected_bytes(keys).saturating_sub(HEADER_BYTES as u64);
        bytes as f64 * 8.0 / keys.max(1) as f64
    }

    /// Theoretical false-positive rate.
    pub(crate) fn rate(self) -> f64 {
        match self {
            StaticPlan::Fuse { bits } => (-f64::from(bits)).exp2(),
            StaticPlan::Ribbon { rate } => rate,
        }
    }

    /// Builds and encodes the filter of the keys with these hashes.
    pub(crate) fn build(self, hashes: Vec<u64>, hash_kind: u8, seed_id: u32) -> Vec<u8> {
        let ribbon = |hashes| {
            RibbonBuilder::from_hashes(self.rate(), hashes)
                .with_hash_kind(hash_kind)
                .with_seed_id(seed_id)
                .finish()
        };
        match self {
            StaticPlan::Fuse { bits } => FuseBuilder::from_hashes(bits, hashes)
                .with_hash_kind(hash_kind)
                .with_seed_id(seed_id)
                .finish()
                .unwrap_or_else(|error: PeelingError| ribbon(error.into_hashes())),
            StaticPlan::Ribbon { .. } => ribbon(hashes),
        }
    }
}
