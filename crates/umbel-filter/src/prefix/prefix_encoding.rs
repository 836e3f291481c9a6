//! The bytes of a prefix filter before its inner filter.
//!
//! FORMAT: 8 bytes, the name, zeros up to a multiple of 64, then the inner filter; see
//! `docs/formats/filter-prefix.md`.

use crate::format::bloom_header::{FilterError, HEADER_BYTES};

const MAGIC: [u8; 4] = *b"uPFX";
const VERSION: u8 = 1;
/// Number of bytes before the name.
const FIXED_BYTES: usize = 8;
/// The longest name of an extractor that a filter can contain, in bytes.
pub const MAX_EXTRACTOR_NAME_BYTES: usize = 255;

/// Header of a prefix filter, before any byte of the inner filter is read.
pub(super) enum PrefixHeader<'a> {
    Version1 { name: &'a str, inner: &'a [u8] },
    NewerVersion,
}

/// Encodes a prefix filter.
///
/// REQUIRES: `name` has 1 to [`MAX_EXTRACTOR_NAME_BYTES`] bytes.
pub(super) fn encode(name: &str, inner: &[u8]) -> Vec<u8> {
    let head = head_bytes(name.len());
    let mut bytes = Vec::with_capacity(head + inner.len());
    bytes.extend_from_slice(&MAGIC);
    bytes.extend([VERSION, name.len() as u8, 0, 0]);
    bytes.extend_from_slice(name.as_bytes());
    bytes.resize(head, 0);
    bytes.extend_from_slice(inner);
    bytes
}

/// Reads and checks the header before the inner filter.
pub(super) fn decode(bytes: &[u8]) -> Result<PrefixHeader<'_>, FilterError> {
    let malformed = |reason| Err(FilterError::Malformed { reason });
    if bytes.is_empty() {
        return Err(FilterError::Empty);
    }
    let Some((fixed, rest)) = bytes.split_first_chunk::<FIXED_BYTES>() else {
        return malformed("the prefix filter is shorter than its header");
    };
    if fixed[..4] != MAGIC {
        return malformed("the prefix filter does not begin with its magic number");
    }
    if fixed[4] != VERSION {
        return Ok(PrefixHeader::NewerVersion);
    }
    if fixed[5] == 0 || fixed[6..] != [0; 2] {
        return malformed("the prefix filter's header contradicts itself");
    }
    let length = usize::from(fixed[5]);
    let padded = head_bytes(length) - FIXED_BYTES;
    let Some((head, inner)) = rest.split_at_checked(padded) else {
        return malformed("the prefix filter is shorter than its header");
    };
    let (name, padding) = head.split_at(length);
    if padding.iter().any(|&byte| byte != 0) {
        return malformed("the bytes after the extractor's name are not zero");
    }
    let Ok(name) = std::str::from_utf8(name) else {
        return malformed("the extractor's name is not UTF-8");
    };
    Ok(PrefixHeader::Version1 { name, inner })
}

/// Offset of the inner filter: a multiple of 64, so that its lines are as aligned as the prefix
/// filter.
fn head_bytes(name: usize) -> usize {
    (FIXED_BYTES + name).next_multiple_of(HEADER_BYTES)
}
