//! Filters as LevelDB stores them: the bits, and after them one byte with the number of probes.
//!
//! LevelDB's filters are standard Bloom filters with [`Probing::LevelDb`] over LevelDB's 32-bit
//! hash, widened by [`crate::widen_hash`].

use crate::bloom_variants::standard::LEVELDB_PROBES_MAX;
use crate::filter::filter_view::FilterView;
use crate::format::bloom_header::{FilterError, HEADER_BYTES, VERSION};
use crate::format::filter_header::{FilterHeader, malformed};
use crate::format::filter_kind::FilterKind;
use crate::probe::probe_positions::Probing;

/// The number of LevelDB's hash.
const LEVELDB_HASH_KIND: u8 = 13;

/// The seed of LevelDB's filters, for [`crate::KeyHasher::new`] with [`crate::HashKind::LevelDb`]:
/// with any other seed, probes of LevelDB's filters deny added keys.
pub const LEVELDB_SEED: [u8; 16] = [0x34, 0x1d, 0x9f, 0xbc, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Encodes a filter as a filter block of LevelDB; `None` unless it is a standard Bloom filter with
/// LevelDB's probing over LevelDB's hash.
///
/// The filter's hashes must have been made with [`LEVELDB_SEED`], which a filter does not record.
/// With whole bits per key, the result is bit for bit LevelDB's own filter of the same keys.
pub fn to_leveldb(filter: &FilterView<'_>) -> Option<Vec<u8>> {
    let (header, payload) = filter.parts()?;
    let is_leveldb = header.kind == FilterKind::Standard
        && header.hash_kind == LEVELDB_HASH_KIND
        && Probing::from_number(header.detail) == Some(Probing::LevelDb);
    is_leveldb.then(|| [payload, &[header.probes]].concat())
}

/// Converts LevelDB's filter of one block to an encoded filter. LevelDB does not store the number
/// of keys, so that number is estimated from the set bits. Probes need hashes made with
/// [`LEVELDB_SEED`].
///
/// # Errors
/// [`FilterError::Malformed`] for less than two bytes; [`FilterError::Unknown`] for 0 or more than
/// 30 probes, with which LevelDB answers "maybe" to every key.
pub fn from_leveldb(bytes: &[u8]) -> Result<Vec<u8>, FilterError> {
    let Some((&probes, payload)) = bytes.split_last().filter(|(_, bits)| !bits.is_empty()) else {
        return Err(malformed("a filter of LevelDB has at least two bytes"));
    };
    let (kind, hash_kind) = (FilterKind::Standard, LEVELDB_HASH_KIND);
    if !(1..=LEVELDB_PROBES_MAX).contains(&probes) {
        return Err(FilterError::Unknown { kind: kind.number(), version: VERSION, hash_kind });
    }
    let header = FilterHeader {
        kind,
        hash_kind,
        probes,
        keys: 0,
        units: payload.len() as u64 * 8,
        seed_id: 0,
        detail: Probing::LevelDb.number(),
    };
    // A full filter estimates infinitely many keys: the conversion saturates.
    let keys = FilterView::from_parts(header, payload)?.estimated_keys().round() as u64;
    let mut filter = Vec::with_capacity(HEADER_BYTES + payload.len());
    filter.extend_from_slice(&FilterHeader { keys, ..header }.to_bytes());
    filter.extend_from_slice(payload);
    Ok(filter)
}
