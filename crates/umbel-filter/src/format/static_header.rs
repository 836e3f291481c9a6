//! The header of the filters that are built once from all their hashes: fuse and ribbon.
//!
//! FORMAT: the 64 bytes that every filter begins with; the ten bytes from 28 on are each kind's
//! own, see `docs/formats/filter-fuse.md` and `docs/formats/filter-ribbon.md`, then come zeros.

use crate::encoding::{FilterError, HEADER_BYTES, MAGIC, VERSION, u64_at};
use crate::hash::KEYED_HASH_KIND;
use crate::header::{kind_of, malformed};

/// Where the fields begin that differ from kind to kind.
const FIELDS_AT: usize = 28;

/// What the first 64 bytes say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StaticHeader {
    /// The kind of filter: 5 is fuse, 6 is ribbon.
    pub(crate) kind: u8,
    /// What the hashes were made with.
    pub(crate) hash_kind: u8,
    /// The byte that Bloom filters have their probes in.
    pub(crate) small: u8,
    /// How many different hashes the filter was made of.
    pub(crate) keys: u64,
    /// How many slots there are.
    pub(crate) units: u64,
    /// Which of the store's seeds the hashes were made with.
    pub(crate) seed_id: u32,
    /// What only this kind has.
    pub(crate) fields: [u8; StaticHeader::FIELDS],
}

impl StaticHeader {
    /// How many bytes a kind has for itself.
    pub(crate) const FIELDS: usize = 10;

    /// The header of a filter of `kind`, all else still to be said.
    pub(crate) fn new(kind: u8) -> StaticHeader {
        StaticHeader {
            kind,
            hash_kind: KEYED_HASH_KIND,
            small: 0,
            keys: 0,
            units: 0,
            seed_id: 0,
            fields: [0; StaticHeader::FIELDS],
        }
    }

    /// The header as it is written.
    pub(crate) fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..8].copy_from_slice(&[self.kind, VERSION, self.hash_kind, self.small]);
        bytes[8..16].copy_from_slice(&self.keys.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.units.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.seed_id.to_le_bytes());
        bytes[FIELDS_AT..FIELDS_AT + StaticHeader::FIELDS].copy_from_slice(&self.fields);
        bytes
    }

    /// Reads the header of a filter that must be of `expected` kind, and what follows it.
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
            small,
            keys: u64_at(head, 8),
            units: u64_at(head, 16),
            seed_id: u64_at(head, 24) as u32,
            fields: std::array::from_fn(|index| head[FIELDS_AT + index]),
        };
        Ok((header, body))
    }
}
