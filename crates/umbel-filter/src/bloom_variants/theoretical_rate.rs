//! The theoretical false-positive rate of every kind with the common header.

use crate::bloom_variants::block_layout::BlockLayout;
use crate::bloom_variants::blocked_256::Blocked256;
use crate::bloom_variants::blocked_512::Blocked512;
use crate::bloom_variants::split_block::SplitBlock;
use crate::format::filter_header::FilterHeader;
use crate::format::filter_kind::FilterKind;
use crate::probe::probe_positions::Probing;
use crate::rate::blocked_rate::{with_hash_floor, with_same_hash};
use crate::rate::standard_rate::standard_rate;

/// Returns the designed rate of a filter with the header.
pub(crate) fn theoretical_rate(header: &FilterHeader) -> f64 {
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
    if narrow {
        with_same_hash(rate, keys, 32)
    } else {
        with_hash_floor(rate, keys, header.hash_kind)
    }
}
