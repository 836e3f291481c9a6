//! The header of an encoded filter, and the errors of reading it.
//!
//! FORMAT: 64 bytes, little-endian, then the lines; see `docs/formats/filter.md`. A filter has no
//! checksum: the table's block with the filter has one, bound to the block's place.

use crate::probe::cache_line::{LINE_BYTES, Line, MAX_PROBES};
use std::fmt;

/// FORMAT: number of bytes before the first line. A header is as long as a line, so that lines stay
/// aligned.
pub const HEADER_BYTES: usize = 64;

/// FORMAT: magic number of every filter.
pub(crate) const MAGIC: [u8; 4] = *b"uFLT";
/// A Bloom filter in lines of 512 bits.
const KIND_BLOCKED_BLOOM: u8 = 1;
/// FORMAT: the version of every kind so far.
pub(crate) const VERSION: u8 = 1;

/// Errors of reading a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FilterError {
    /// There are no bytes, which stands for no filter.
    Empty,
    /// A filter of a kind or version, or over a hash, that this build does not know.
    Unknown {
        /// The kind of filter.
        kind: u8,
        /// The version of that kind's format.
        version: u8,
        /// The number of the hash over which the filter is made.
        hash_kind: u8,
    },
    /// Fields of the bytes contradict each other: the bytes are damaged or are no filter.
    Malformed {
        /// A plain sentence without its full stop.
        reason: &'static str,
    },
}

impl FilterError {
    /// Whether the bytes are undamaged but the caller must answer "maybe" to every key.
    pub fn means_maybe(&self) -> bool {
        !matches!(self, FilterError::Malformed { .. })
    }
}

impl fmt::Display for FilterError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FilterError::Empty => formatter.write_str("there is no filter"),
            FilterError::Unknown { kind, version, hash_kind } => write!(
                formatter,
                "the filter is of kind {kind}, version {version}, over hash {hash_kind}, which \
                 this build does not know"
            ),
            FilterError::Malformed { reason } => formatter.write_str(reason),
        }
    }
}

impl std::error::Error for FilterError {}

/// Fields of a header besides the number of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BloomHeader {
    pub(crate) probes: u32,
    pub(crate) keys: u64,
    pub(crate) hash_kind: u8,
    pub(crate) seed_id: u32,
}

/// Reads and checks a whole encoded filter over the hash `wanted`.
pub(crate) fn decode(
    bytes: &[u8],
    wanted: u8,
) -> Result<(BloomHeader, &[[u8; LINE_BYTES]]), FilterError> {
    let malformed = |reason| Err(FilterError::Malformed { reason });
    if bytes.is_empty() {
        return Err(FilterError::Empty);
    }
    let Some((head, body)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return malformed("the filter is shorter than its header");
    };
    if head[..4] != MAGIC {
        return malformed("the filter does not begin with its magic number");
    }
    let [kind, version, hash_kind, probes] = [head[4], head[5], head[6], head[7]];
    if (kind, version, hash_kind) != (KIND_BLOCKED_BLOOM, VERSION, wanted) {
        return Err(FilterError::Unknown { kind, version, hash_kind });
    }
    if !(1..=MAX_PROBES).contains(&u32::from(probes)) {
        return malformed("the number of probes of the filter is not between 1 and 24");
    }
    if head[28..].iter().any(|&byte| byte != 0) {
        return malformed("the reserved bytes of the filter's header are not zero");
    }
    let (lines, rest) = body.as_chunks::<LINE_BYTES>();
    if !rest.is_empty() || u64_at(head, 16) != lines.len() as u64 {
        return malformed("the filter's number of lines does not fit its length");
    }
    if lines.is_empty() {
        return malformed("the filter has no lines");
    }
    let seed_id = u64_at(head, 24) as u32;
    let keys = u64_at(head, 8);
    Ok((BloomHeader { probes: u32::from(probes), keys, hash_kind, seed_id }, lines))
}

/// Encodes the filter of these lines.
pub(crate) fn encode(header: BloomHeader, lines: impl ExactSizeIterator<Item = Line>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + lines.len() * LINE_BYTES);
    put_header(&mut bytes, header, lines.len() as u64);
    for line in lines {
        bytes.extend(line.0.iter().flat_map(|word| word.to_le_bytes()));
    }
    bytes
}

/// Appends the header of a filter that has `lines` lines.
pub(crate) fn put_header(bytes: &mut Vec<u8>, header: BloomHeader, lines: u64) {
    bytes.extend_from_slice(&MAGIC);
    bytes.extend([KIND_BLOCKED_BLOOM, VERSION, header.hash_kind, header.probes as u8]);
    bytes.extend_from_slice(&header.keys.to_le_bytes());
    bytes.extend_from_slice(&lines.to_le_bytes());
    bytes.extend_from_slice(&header.seed_id.to_le_bytes());
    bytes.extend_from_slice(&[0; HEADER_BYTES - 28]);
}

/// Reads the number in the eight bytes of a header from `at` on.
pub(crate) fn u64_at(head: &[u8; HEADER_BYTES], at: usize) -> u64 {
    let mut eight = [0; 8];
    eight.copy_from_slice(&head[at..at + 8]);
    u64::from_le_bytes(eight)
}
