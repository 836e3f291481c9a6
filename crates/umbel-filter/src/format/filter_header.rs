//! The header that all kinds of filters share, and the check of a filter's length against it.
//!
//! FORMAT: 64 bytes, little-endian, then the payload; see `docs/formats/filter.md`. The module
//! `bloom_header` also writes and reads kind 1, with the same bytes.

use crate::format::bloom_header::{FilterError, HEADER_BYTES, MAGIC, VERSION, u64_at};
use crate::format::filter_kind::FilterKind;

/// The most bits, or counters, that a filter has: 2^40, which is 128 GiB of bits.
pub const MAX_FILTER_BITS: u64 = 1 << 40;

/// Highest number of a hash kind; the lowest is 1. The meaning of other numbers is unknown.
pub(crate) const HASH_KINDS: u8 = 13;

/// Offset of the byte whose meaning depends on the kind.
const DETAIL_AT: usize = 28;

/// Fields of the first 64 bytes of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FilterHeader {
    pub(crate) kind: FilterKind,
    /// Number of the hash, which the filter does not interpret.
    pub(crate) hash_kind: u8,
    /// Number of bits, or counters, of each key.
    pub(crate) probes: u8,
    pub(crate) keys: u64,
    /// Lines, blocks, bits or counters.
    pub(crate) units: u64,
    pub(crate) seed_id: u32,
    /// Field that depends on the kind: the probing of a standard Bloom filter, else 0.
    pub(crate) detail: u8,
}

impl FilterHeader {
    /// Number of bytes of the payload; `None` if it overflows.
    pub(crate) fn payload_bytes(&self) -> Option<u64> {
        match self.kind {
            FilterKind::Blocked512 => self.units.checked_mul(64),
            FilterKind::Blocked256 | FilterKind::SplitBlock => self.units.checked_mul(32),
            FilterKind::Standard => Some(self.units.div_ceil(8)),
            FilterKind::Counting => Some(self.units.div_ceil(2)),
            FilterKind::BinaryFuse | FilterKind::Ribbon => None,
        }
    }

    /// Number of unused bits of the payload's last byte, which must be zero.
    fn spare_bits(&self) -> u32 {
        match self.kind {
            FilterKind::Standard => (self.units.wrapping_neg() % 8) as u32,
            FilterKind::Counting => (self.units % 2 * 4) as u32,
            _ => 0,
        }
    }

    /// Maximum number of units that a choice can reach.
    fn most_units(&self) -> u64 {
        if self.kind == FilterKind::SplitBlock { 1 << 32 } else { MAX_FILTER_BITS }
    }

    fn probes_fit(&self) -> bool {
        match self.kind.most_probes() {
            Some(probes_max) => (1..=probes_max).contains(&u32::from(self.probes)),
            None => self.kind != FilterKind::SplitBlock || self.probes == 8,
        }
    }

    /// Encodes the header.
    pub(crate) fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..8].copy_from_slice(&[self.kind.number(), VERSION, self.hash_kind, self.probes]);
        bytes[8..16].copy_from_slice(&self.keys.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.units.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.seed_id.to_le_bytes());
        bytes[DETAIL_AT] = self.detail;
        bytes
    }

    /// Encodes the header, followed by zeros for the payload; `None` if the allocation fails.
    pub(crate) fn empty_filter(self) -> Option<Vec<u8>> {
        let length = usize::try_from(self.payload_bytes()?).ok()?.checked_add(HEADER_BYTES)?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(length).ok()?;
        bytes.extend_from_slice(&self.to_bytes());
        bytes.resize(length, 0);
        Some(bytes)
    }
}

/// Kind of filter that the bytes hold.
///
/// # Errors
/// [`FilterError::Empty`] and [`FilterError::Unknown`] if the caller must answer "maybe" to every
/// key; [`FilterError::Malformed`] if the bytes are not a filter.
pub(crate) fn kind_of(bytes: &[u8]) -> Result<FilterKind, FilterError> {
    if bytes.is_empty() {
        return Err(FilterError::Empty);
    }
    let Some((head, _)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return Err(malformed("the filter is shorter than its header"));
    };
    if head[..4] != MAGIC {
        return Err(malformed("the filter does not begin with its magic number"));
    }
    let [kind, version, hash_kind] = [head[4], head[5], head[6]];
    match FilterKind::from_number(kind) {
        Some(known) if version == VERSION && (1..=HASH_KINDS).contains(&hash_kind) => Ok(known),
        _ => Err(FilterError::Unknown { kind, version, hash_kind }),
    }
}

/// Reads and checks the header of a filter and the length of its payload. Returns header and
/// payload. Kinds with headers of their own are [`FilterError::Unknown`].
pub(crate) fn parse(bytes: &[u8]) -> Result<(FilterHeader, &[u8]), FilterError> {
    let kind = kind_of(bytes)?;
    let Some((head, payload)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return Err(malformed("the filter is shorter than its header"));
    };
    let header = FilterHeader {
        kind,
        hash_kind: head[6],
        probes: head[7],
        keys: u64_at(head, 8),
        units: u64_at(head, 16),
        seed_id: u64_at(head, 24) as u32,
        detail: head[DETAIL_AT],
    };
    if matches!(kind, FilterKind::BinaryFuse | FilterKind::Ribbon) {
        let (kind, hash_kind) = (kind.number(), header.hash_kind);
        return Err(FilterError::Unknown { kind, version: VERSION, hash_kind });
    }
    if !header.probes_fit() {
        return Err(malformed("the filter's number of probes is not one that its kind has"));
    }
    let zeros_from = DETAIL_AT + usize::from(kind == FilterKind::Standard);
    if head[zeros_from..].iter().any(|&byte| byte != 0) {
        return Err(malformed("the reserved bytes of the filter's header are not zero"));
    }
    if header.units == 0 {
        return Err(malformed("the filter has no lines"));
    }
    if header.units > header.most_units() || header.payload_bytes() != Some(payload.len() as u64) {
        return Err(malformed("the filter's number of lines does not fit its length"));
    }
    let last = payload.last().copied().unwrap_or_default();
    if u32::from(last).leading_zeros() - 24 < header.spare_bits() {
        return Err(malformed("bits after the filter's last one are set"));
    }
    Ok((header, payload))
}

/// Makes the error for bytes that contradict each other.
pub(crate) fn malformed(reason: &'static str) -> FilterError {
    FilterError::Malformed { reason }
}
