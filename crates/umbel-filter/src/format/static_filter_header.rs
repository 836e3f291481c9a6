//! The header of static filters, which are built once from all their hashes: fuse and ribbon.
//!
//! FORMAT: the first 64 bytes of every static filter. The ten bytes from 28 on depend on the kind:
//! see `docs/formats/filter-fuse.md` and `docs/formats/filter-ribbon.md`. Zeros follow.

use crate::format::bloom_header::{FilterError, HEADER_BYTES, MAGIC, VERSION, u64_at};
use crate::format::filter_header::{kind_of, malformed};
use crate::hash::keyed_hash::KEYED_HASH_KIND;

/// Offset of the fields that depend on the kind.
const FIELDS_AT: usize = 28;

/// Fields of the first 64 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StaticHeader {
    /// The kind of filter: 5 is fuse, 6 is ribbon.
    pub(crate) kind: u8,
    /// Hash function of the hashes.
    pub(crate) hash_kind: u8,
    /// The byte at the offset where Bloom filters have their number of probes.
    pub(crate) detail: u8,
    /// Number of distinct hashes in the filter.
    pub(crate) keys: u64,
    /// Number of slots.
    pub(crate) units: u64,
    /// Id of the store's seed of the hashes.
    pub(crate) seed_id: u32,
    /// Fields of this kind only.
    pub(crate) fields: [u8; StaticHeader::FIELDS],
}

impl StaticHeader {
    /// Number of bytes whose meaning depends on the kind.
    pub(crate) const FIELDS: usize = 10;

    /// Makes a header of `kind` with all other fields 0.
    pub(crate) fn new(kind: u8) -> StaticHeader {
        StaticHeader {
            kind,
            hash_kind: KEYED_HASH_KIND,
            detail: 0,
            keys: 0,
            units: 0,
            seed_id: 0,
            fields: [0; StaticHeader::FIELDS],
        }
    }

    /// Encodes the header.
    pub(crate) fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..8].copy_from_slice(&[self.kind, VERSION, self.hash_kind, self.detail]);
        bytes[8..16].copy_from_slice(&self.keys.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.units.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.seed_id.to_le_bytes());
        bytes[FIELDS_AT..FIELDS_AT + StaticHeader::FIELDS].copy_from_slice(&self.fields);
        bytes
    }

    /// Reads the header of a filter that must be of `expected` kind, and the bytes after it.
    pub(crate) fn parse(bytes: &[u8], expected: u8) -> Result<(StaticHeader, &[u8]), FilterError> {
        let kind = kind_of(bytes)?.number();
        let Some((head, body)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Err(malformed("the filter is shorter than its header"));
        };
        let [hash_kind, small] = [head[6], head[7]];
        if kind != expected {
            return Err(FilterError::Unknown { kind, version: VERSION, hash_kind });
        }
        if head[FIELDS_AT + StaticHeader::FIELDS..].iter().any(|&byte| byte != 0) {
            return Err(malformed("the reserved bytes of the filter's header are not zero"));
        }
        let header = StaticHeader {
            kind,
            hash_kind,
            detail: small,
            keys: u64_at(head, 8),
            units: u64_at(head, 16),
            seed_id: u64_at(head, 24) as u32,
            fields: std::array::from_fn(|index| head[FIELDS_AT + index]),
        };
        Ok((header, body))
    }
}
