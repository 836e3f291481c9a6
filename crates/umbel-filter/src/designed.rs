//! The share of absent keys that theory lets through, for every kind that has a header here.

use crate::blocked_256::Blocked256;
use crate::blocked_512::Blocked512;
use crate::header::FilterHeader;
use crate::kind::FilterKind;
use crate::layout::Layout;
use crate::probing::Probing;
use crate::rate::with_same_hash;
use crate::split_block::SplitBlock;
use crate::standard_rate::standard_rate;

/// The numbers of the hashes that are of 32 bits: murmur3-32 and LevelDB's.
const HASHES_OF_32_BITS: [u8; 2] = [5, 13];

/// The designed rate of a filter with that header.
pub(crate) fn designed_rate(header: &FilterHeader) -> f64 {
    let (keys, units, probes) = (header.keys, header.units, u32::from(header.probes));
    let rate = match header.kind {
        FilterKind::Blocked512 => Blocked512::designed_rate(keys, units, probes),
        FilterKind::Blocked256 => Blocked256::designed_rate(keys, units, probes),
        FilterKind::SplitBlock => SplitBlock::designed_rate(keys, units, probes),
        FilterKind::Standard | FilterKind::Counting => standard_rate(keys, units, probes),
        FilterKind::BinaryFuse | FilterKind::Ribbon => 1.0,
    };
    let narrow = header.kind == FilterKind::Standard
        && Probing::from_number(header.detail) == Some(Probing::LevelDb);
    if narrow || HASHES_OF_32_BITS.contains(&header.hash_kind) {
        with_same_hash(rate, keys, 32)
    } else {
        rate
    }
}
