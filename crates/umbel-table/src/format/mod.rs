//! The format of table files: magic, versions, the trailer of every block, and the small encodings
//! inside blocks. `docs/formats/table.md` describes the format.

use std::borrow::Cow;
use std::path::Path;

use umbel_base::checksum::checksum;
use umbel_base::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use umbel_base::{Error, Result, varint};

use crate::compression::{Compression, unpack};

pub mod footer;
pub mod properties;
pub mod range_tombstone_block;
pub mod table_meta;

/// FORMAT: the first and the last eight bytes of a table file.
pub(crate) const MAGIC: [u8; 8] = *b"UMBELTBL";
/// FORMAT: the version that this build writes, which is also the newest that it reads.
pub const FORMAT_VERSION: u32 = 1;
/// FORMAT: bytes of the file's header: magic, version `u32`, zero `u32`, file id `u64`, checksum
/// `u64` of the 24 bytes before the checksum.
pub(crate) const HEADER_BYTES: usize = 32;
/// FORMAT: bytes of the trailer after each payload: tag byte, payload length `u32`, checksum `u64`
/// of tag, length and payload.
pub(crate) const TRAILER_BYTES: usize = 13;
/// FORMAT: maximum number of entries of a search group, and of blocks of an index block.
pub(crate) const GROUP_ENTRIES_MAX: usize = 64;
/// A group ends before its entries take more than these bytes, so that offsets of entries fit into
/// 16 bits. An entry that alone takes more bytes gets a group of its own.
pub(crate) const GROUP_BYTES_MAX: usize = 32 * 1024;
/// FORMAT: maximum bytes of an uncompressed payload of any block: one entry of the largest size and
/// its lengths.
pub(crate) const PAYLOAD_BYTES_MAX: usize = VALUE_BYTES_MAX + KEY_BYTES_MAX + 64;
/// FORMAT: number of bits by which a trailer's sequence number is shifted; the kind is in the bits
/// below.
pub(crate) const KIND_BITS: u32 = 4;

/// Feature bits: a reader refuses a table with a bit that it does not know.
pub(crate) mod feature {
    /// Some block is compressed with LZ4.
    pub(crate) const LZ4: u32 = 1;
    /// Some block is compressed with Zstandard.
    pub(crate) const ZSTD: u32 = 1 << 1;
    /// The table has a range tombstone block.
    pub(crate) const RANGE_TOMBSTONES: u32 = 1 << 2;
    /// Some entry is a blob pointer.
    pub(crate) const BLOB_POINTERS: u32 = 1 << 5;
    /// The table has a second filter after the plain one.
    pub(crate) const SECOND_FILTER: u32 = 1 << 6;
    /// The table has a prefix filter after the other filters.
    pub(crate) const PREFIX_FILTER: u32 = 1 << 7;
    /// All feature bits that this build can read. Bit 3 is reserved for merge operands, and bit 4
    /// for expiry.
    pub(crate) const KNOWN: u32 =
        LZ4 | ZSTD | RANGE_TOMBSTONES | BLOB_POINTERS | SECOND_FILTER | PREFIX_FILTER;
}

/// Kind of a block. FORMAT: the high four bits of a trailer's tag; the low four are the
/// compression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum BlockKind {
    Data = 1,
    Index = 2,
    Filter = 3,
    Tombstones = 4,
    Properties = 5,
    IndexPart = 6,
    SecondFilter = 7,
    PrefixFilter = 8,
}

/// The header of a table file.
pub(crate) fn header(file_id: u64) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    bytes[16..24].copy_from_slice(&file_id.to_le_bytes());
    let sum = checksum(file_id, 0, &bytes[..24]);
    bytes[24..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Appends the trailer to a payload that will be at `offset` of the file. Returns the checksum.
/// REQUIRES: `payload` is shorter than 4 GiB.
pub(crate) fn seal(
    payload: &mut Vec<u8>,
    file_id: u64,
    offset: u64,
    kind: BlockKind,
    compression: Compression,
) -> u64 {
    payload.extend_from_slice(&[0; TRAILER_BYTES]);
    seal_in_place(payload, file_id, offset, kind, compression)
}

/// Writes the trailer into the last bytes of `sealed`, after the payload. Returns the checksum.
/// REQUIRES: `sealed` is shorter than 4 GiB, and at least as long as a trailer.
pub(crate) fn seal_in_place(
    sealed: &mut [u8],
    file_id: u64,
    offset: u64,
    kind: BlockKind,
    compression: Compression,
) -> u64 {
    let len = sealed.len() - TRAILER_BYTES;
    sealed[len] = (kind as u8) << 4 | compression as u8;
    sealed[len + 1..len + 5].copy_from_slice(&(len as u32).to_le_bytes());
    let sum = checksum(file_id, offset, &sealed[..len + 5]);
    sealed[len + 5..].copy_from_slice(&sum.to_le_bytes());
    sum
}

/// Returns the checksum at the end of a block with trailer; 0 if the block is too short.
pub(crate) fn sealed_checksum(sealed: &[u8]) -> u64 {
    sealed.last_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// FORMAT: folds a block's checksum into the checksum over all data blocks, which starts with 0 and
/// takes the blocks in file order.
pub(crate) fn chain_checksum(chain: u64, offset: u64, block: u64) -> u64 {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&chain.to_le_bytes());
    bytes[8..].copy_from_slice(&block.to_le_bytes());
    checksum(chain, offset, &bytes)
}

/// Checks a block with trailer that was read at `offset`, and returns how its payload is
/// compressed.
pub(crate) fn check_sealed(
    path: &Path,
    file_id: u64,
    offset: u64,
    kind: BlockKind,
    sealed: &[u8],
) -> Result<Compression> {
    let refuse = |reason: &str| Err(Error::corruption(path, offset, reason));
    let Some((covered, sum)) = sealed.split_last_chunk::<8>() else {
        return refuse("a block is shorter than its trailer");
    };
    let Some((payload, tail)) = covered.split_last_chunk::<5>() else {
        return refuse("a block is shorter than its trailer");
    };
    if checksum(file_id, offset, covered) != u64::from_le_bytes(*sum) {
        return refuse("the checksum of the block that starts here does not match its bytes");
    }
    let [tag, len @ ..] = *tail;
    if u32::from_le_bytes(len) as usize != payload.len() {
        return refuse("the block that starts here has another length than is recorded for it");
    }
    if tag >> 4 != kind as u8 {
        return refuse("the block that starts here is not of the kind that belongs here");
    }
    let Some(compression) = Compression::from_u8(tag & 15) else {
        return refuse(
            "the block that starts here is compressed in a way this version cannot read",
        );
    };
    Ok(compression)
}

/// Checks a block as [`check_sealed`] does, and returns its uncompressed payload, borrowed if
/// possible. `limit` is the maximum uncompressed length.
pub(crate) fn open_sealed<'a>(
    path: &Path,
    file_id: u64,
    offset: u64,
    kind: BlockKind,
    sealed: &'a [u8],
    limit: usize,
) -> Result<Cow<'a, [u8]>> {
    let compression = check_sealed(path, file_id, offset, kind, sealed)?;
    let payload = &sealed[..sealed.len() - TRAILER_BYTES];
    if compression == Compression::None {
        return Ok(Cow::Borrowed(payload));
    }
    let unpacked = unpack(compression, payload, limit);
    unpacked.map(Cow::Owned).map_err(|reason| Error::corruption(path, offset, reason))
}

/// Returns the first four bytes of `suffix`, filled up with zeros, as a number that sorts like the
/// bytes.
#[inline]
pub(crate) fn head32(suffix: &[u8]) -> u32 {
    match suffix.first_chunk::<4>() {
        Some(bytes) => u32::from_be_bytes(*bytes),
        None => (head64(suffix) >> 32) as u32,
    }
}

/// Returns the first eight bytes of `suffix`, filled up with zeros, as a number that sorts like the
/// bytes.
#[inline]
pub(crate) fn head64(suffix: &[u8]) -> u64 {
    match suffix.first_chunk::<8>() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; 8];
            bytes.iter_mut().zip(suffix).for_each(|(to, from)| *to = *from);
            u64::from_be_bytes(bytes)
        }
    }
}

/// Number of bytes of a prefix that structures in memory hold inline, so that a comparison reads no
/// other cache line.
pub(crate) const INLINE_PREFIX: usize = 16;

/// Returns the rest of `key` after the first `len` bytes of `prefix`; `None` if `key` does not
/// start with them. REQUIRES: `len <= 16`.
#[inline(always)]
pub(crate) fn strip_inline<'k>(
    key: &'k [u8],
    prefix: &[u8; INLINE_PREFIX],
    len: usize,
) -> Option<&'k [u8]> {
    if len == 0 {
        return Some(key);
    }
    let Some(start) = key.first_chunk::<INLINE_PREFIX>() else {
        return key.strip_prefix(prefix.get(..len)?);
    };
    let ([key_low, key_high], [low, high]) = (halves(start), halves(prefix));
    // The shift leaves the bytes that count: all of one half, and the rest of the other.
    let equal = if len <= 8 {
        (key_low ^ low) << (64 - 8 * len) == 0
    } else {
        key_low == low && (key_high ^ high) << (128 - 8 * len) == 0
    };
    if equal { key.get(len..) } else { None }
}

#[inline(always)]
fn halves(bytes: &[u8; INLINE_PREFIX]) -> [u64; 2] {
    let number = u128::from_le_bytes(*bytes);
    [number as u64, (number >> 64) as u64]
}

/// Whether two byte strings are equal, without a call for the usual lengths of key suffixes.
#[inline(always)]
pub(crate) fn bytes_equal(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let (Some(a8), Some(b8)) = (a.first_chunk::<8>(), b.first_chunk::<8>()) else {
        return a == b;
    };
    if a.len() > 16 {
        return a == b;
    }
    // The first and the last eight bytes cover all of up to sixteen.
    a8 == b8 && a.last_chunk::<8>() == b.last_chunk::<8>()
}

/// Length of the common prefix of `a` and `b`.
#[inline]
pub(crate) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let words = a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0);
    let mut len = 0;
    for (a, b) in words {
        let differing = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        if differing != 0 {
            return len + (differing.trailing_zeros() / 8) as usize;
        }
        len += 8;
    }
    let rest = a[len..].iter().zip(&b[len..]);
    len + rest.take_while(|(a, b)| a == b).count()
}

/// Reads the varint at offset `at`, and returns its value and the offset of its end. Like
/// [`varint::get_u64`], but without a loop if the varint has up to eight bytes and eight bytes are
/// left.
#[inline(always)]
pub(crate) fn read_varint(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let tail = bytes.get(at..)?;
    let first = *tail.first()?;
    if first < 0x80 {
        return Some((u64::from(first), at + 1));
    }
    read_long_varint(tail).map(|(value, used)| (value, at + used))
}

#[inline]
fn read_long_varint(tail: &[u8]) -> Option<(u64, usize)> {
    match tail.first_chunk::<8>() {
        Some(word) if u64::from_le_bytes(*word) & VARINT_GOES_ON != VARINT_GOES_ON => {
            short_varint(u64::from_le_bytes(*word))
        }
        _ => varint::get_u64(tail),
    }
}

/// Mask of the bit in each byte that says that a varint continues.
const VARINT_GOES_ON: u64 = 0x8080_8080_8080_8080;

/// Returns value and length of a varint of up to eight bytes at the start of a little-endian word;
/// `None` if the varint is longer or not in its shortest form.
#[inline]
pub(crate) fn short_varint(word: u64) -> Option<(u64, usize)> {
    let ends = !word & VARINT_GOES_ON;
    if ends == 0 {
        return None;
    }
    let used = ends.trailing_zeros() / 8 + 1;
    let kept = word & (u64::MAX >> (64 - 8 * used));
    if used > 1 && kept >> (8 * (used - 1)) == 0 {
        return None;
    }
    let kept = kept & !VARINT_GOES_ON;
    let pairs = (kept & 0x007f_007f_007f_007f) | (kept & 0x7f00_7f00_7f00_7f00) >> 1;
    let fours = (pairs & 0x0000_3fff_0000_3fff) | (pairs & 0x3fff_0000_3fff_0000) >> 2;
    let value = (fours & 0x0000_0000_0fff_ffff) | (fours & 0x0fff_ffff_0000_0000) >> 4;
    Some((value, used as usize))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn varints_read_as_the_plain_reader_reads_them(
            bytes: Vec<u8>,
            value: u64,
            shift in 0u32..64,
        ) {
            let plain = |bytes: &[u8]| varint::get_u64(bytes);
            prop_assert_eq!(read_varint(&bytes, 0), plain(&bytes));
            let mut written = Vec::new();
            varint::put_u64(&mut written, value >> shift);
            prop_assert_eq!(read_varint(&written, 0), plain(&written));
            written.extend(bytes);
            prop_assert_eq!(read_varint(&written, 0), plain(&written));
        }

        #[test]
        fn stripping_and_comparing_are_as_for_any_slice(
            key in proptest::collection::vec(0u8..2, 0..40),
            other in proptest::collection::vec(0u8..2, 0..40),
            prefix: [bool; INLINE_PREFIX],
            len in 0..=INLINE_PREFIX,
        ) {
            prop_assert_eq!(bytes_equal(&key, &other), key == other);
            let mut copy = key.clone();
            prop_assert!(bytes_equal(&key, &copy));
            if let Some(last) = copy.last_mut() {
                *last ^= 1;
                prop_assert!(!bytes_equal(&key, &copy));
            }
            let mut prefix = prefix.map(u8::from);
            prop_assert_eq!(strip_inline(&key, &prefix, len), key.strip_prefix(&prefix[..len]));
            let shared = key.len().min(INLINE_PREFIX);
            prefix[..shared].copy_from_slice(&key[..shared]);
            prop_assert_eq!(strip_inline(&key, &prefix, len), key.strip_prefix(&prefix[..len]));
        }

        #[test]
        fn heads_and_prefixes_follow_the_order(
            a in proptest::collection::vec(0u8..3, 0..20),
            b in proptest::collection::vec(0u8..3, 0..20),
        ) {
            let shared = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
            prop_assert_eq!(common_prefix(&a, &b), shared);
            if a <= b {
                prop_assert!(head32(&a) <= head32(&b));
                prop_assert!(head64(&a) <= head64(&b));
            }
        }
    }

    #[test]
    fn a_sealed_block_opens_only_at_its_place() {
        let path = Path::new("1.table");
        let mut sealed = b"payload".to_vec();
        let sum = seal(&mut sealed, 9, 32, BlockKind::Data, Compression::None);
        assert_eq!(sealed_checksum(&sealed), sum);
        let open = |id, offset, kind, sealed: &[u8]| {
            open_sealed(path, id, offset, kind, sealed, 100).map(Cow::into_owned)
        };
        assert_eq!(open(9, 32, BlockKind::Data, &sealed).unwrap(), b"payload");
        assert!(open(8, 32, BlockKind::Data, &sealed).is_err());
        assert!(open(9, 33, BlockKind::Data, &sealed).is_err());
        assert!(open(9, 32, BlockKind::Index, &sealed).is_err());
        for cut in 0..sealed.len() {
            assert!(open(9, 32, BlockKind::Data, &sealed[..cut]).is_err());
        }
        for index in 0..sealed.len() {
            let mut flipped = sealed.clone();
            flipped[index] ^= 0x10;
            assert!(open(9, 32, BlockKind::Data, &flipped).is_err());
        }
    }
}
