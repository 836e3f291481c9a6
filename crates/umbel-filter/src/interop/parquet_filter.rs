//! Split block filters as Apache Parquet stores them: a Thrift header, then the blocks.
//!
//! Parquet hashes the plain encoding of a value (of byte arrays without their length) with XXH64
//! and the seed 0: hash kind 3. Parquet's specification gives the size `-8n / ln(1 - p^(1/8))` bits
//! for a rate. That formula assumes equally many keys in each block, and so gives 1.5 % for a
//! requested 1 %. [`crate::FilterSize::Rate`] counts the real distribution over the blocks.

use crate::filter::filter_view::FilterView;
use crate::format::bloom_header::HEADER_BYTES;
use crate::format::filter_header::FilterHeader;
use crate::format::filter_kind::FilterKind;
use crate::interop::thrift::{I32, STRUCT, ThriftReader, put_signed};
use crate::probe::split_block_lanes::{BLOCK_BYTES, LANES};
use std::fmt;

/// The number of XXH64, the only hash that Parquet's filters have.
pub const PARQUET_HASH_KIND: u8 = 3;

/// Errors of converting a filter of Parquet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParquetError {
    /// The filter is not a split block filter.
    Kind {
        /// The kind of the filter, if known.
        kind: Option<FilterKind>,
    },
    /// The filter is not over Parquet's hash.
    HashKind {
        /// The number of the hash.
        hash_kind: u8,
    },
    /// The blocks have more bytes than the header's 31-bit number allows.
    TooLarge,
    /// The header is truncated or not Thrift.
    Header,
    /// The header names an unknown algorithm, hash or compression: the caller must answer "maybe"
    /// to every key.
    Unknown,
    /// The header's number of bytes is not a multiple of a block, or exceeds the bytes that follow.
    Length {
        /// Length in the header.
        given: i64,
        /// Number of bytes after the header.
        left: usize,
    },
}

impl fmt::Display for ParquetError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParquetError::Kind { kind: Some(kind) } => {
                write!(formatter, "a {kind} filter has no Parquet form, only a split-block one has")
            }
            ParquetError::Kind { kind: None } => {
                formatter.write_str("an empty filter has no Parquet form")
            }
            ParquetError::HashKind { hash_kind } => {
                write!(
                    formatter,
                    "a Parquet filter needs hash 3 (XXH64), but this filter has hash {hash_kind}"
                )
            }
            ParquetError::TooLarge => {
                formatter.write_str("Parquet's filters have less than 2^31 bytes")
            }
            ParquetError::Header => {
                formatter.write_str("the header of the Parquet Bloom filter is damaged")
            }
            ParquetError::Unknown => formatter.write_str(
                "the Parquet Bloom filter has an unknown algorithm, hash or compression",
            ),
            ParquetError::Length { given, left } => write!(
                formatter,
                "the header of the Parquet Bloom filter names {given} bytes, but must name a \
                 multiple of 32 up to the {left} bytes that follow"
            ),
        }
    }
}

impl std::error::Error for ParquetError {}

/// FORMAT: the fields 2, 3 and 4 of the header, algorithm BLOCK, hash XXHASH, compression
/// UNCOMPRESSED, each a union with an empty structure as its field 1; then the header's end.
const CHOICES: [u8; 13] = [0x1c, 0x1c, 0, 0, 0x1c, 0x1c, 0, 0, 0x1c, 0x1c, 0, 0, 0];

/// Encodes a filter as in a Parquet file: header and blocks.
///
/// # Errors
/// [`ParquetError::Kind`], [`ParquetError::HashKind`] and [`ParquetError::TooLarge`] if Parquet has
/// no such filter.
pub fn to_parquet(filter: &FilterView<'_>) -> Result<Vec<u8>, ParquetError> {
    let kind = filter.kind();
    let not_split = ParquetError::Kind { kind };
    let (header, payload) = filter.parts().ok_or(not_split)?;
    if header.kind != FilterKind::SplitBlock {
        return Err(not_split);
    }
    if header.hash_kind != PARQUET_HASH_KIND {
        return Err(ParquetError::HashKind { hash_kind: header.hash_kind });
    }
    let length = i32::try_from(payload.len()).map_err(|_| ParquetError::TooLarge)?;
    let mut bytes = Vec::with_capacity(payload.len() + 32);
    bytes.push(0x10 | I32);
    put_signed(&mut bytes, i64::from(length));
    bytes.extend_from_slice(&CHOICES);
    bytes.extend_from_slice(payload);
    Ok(bytes)
}

/// Converts the Parquet Bloom filter at the beginning of `bytes`. Returns the encoded filter and
/// the number of bytes read. Parquet does not store the number of keys, so that number is estimated
/// from the set bits.
///
/// # Errors
/// [`ParquetError`] for malformed bytes. No memory is allocated before the length of `bytes` was
/// checked.
pub fn from_parquet(bytes: &[u8]) -> Result<(Vec<u8>, usize), ParquetError> {
    let mut reader = ThriftReader { rest: bytes };
    let length = read_header(&mut reader)?;
    let left = reader.rest.len();
    let wrong = ParquetError::Length { given: length, left };
    let whole = usize::try_from(length).map_err(|_| wrong)?;
    if whole == 0 || !whole.is_multiple_of(BLOCK_BYTES) {
        return Err(wrong);
    }
    let payload = reader.rest.get(..whole).ok_or(wrong)?;
    let header = FilterHeader {
        kind: FilterKind::SplitBlock,
        hash_kind: PARQUET_HASH_KIND,
        probes: LANES as u8,
        keys: 0,
        units: (whole / BLOCK_BYTES) as u64,
        seed_id: 0,
        detail: 0,
    };
    let view = FilterView::from_parts(header, payload).map_err(|_| ParquetError::Header)?;
    let keys = view.estimated_keys().round() as u64;
    let mut filter = Vec::with_capacity(HEADER_BYTES + whole);
    filter.extend_from_slice(&FilterHeader { keys, ..header }.to_bytes());
    filter.extend_from_slice(payload);
    Ok((filter, bytes.len() - left + whole))
}

/// Reads the Thrift header. Returns the payload's number of bytes.
fn read_header(reader: &mut ThriftReader<'_>) -> Result<i64, ParquetError> {
    let mut length = None;
    let mut chosen = [false; 3];
    let mut last = 0;
    while let Some((id, kind)) = reader.field(last).ok_or(ParquetError::Header)? {
        match (id, kind) {
            (1, I32) => length = Some(reader.signed().ok_or(ParquetError::Header)?),
            (2..=4, STRUCT) => {
                chosen[id as usize - 2] = is_first_choice(reader).ok_or(ParquetError::Header)?;
            }
            // The numbers of fields that must be there, with other types.
            (1..=4, _) => return Err(ParquetError::Header),
            _ => reader.skip(kind).ok_or(ParquetError::Header)?,
        }
        last = id;
    }
    let length = length.ok_or(ParquetError::Header)?;
    if chosen == [true; 3] { Ok(length) } else { Err(ParquetError::Unknown) }
}

/// Whether a union has its first alternative, the only one that Parquet defines so far.
fn is_first_choice(reader: &mut ThriftReader<'_>) -> Option<bool> {
    let mut is_first = false;
    let mut last = 0;
    while let Some((id, kind)) = reader.field(last)? {
        is_first |= (id, kind) == (1, STRUCT);
        reader.skip(kind)?;
        last = id;
    }
    Some(is_first)
}
