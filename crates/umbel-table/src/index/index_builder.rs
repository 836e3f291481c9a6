//! Builds the index region: index blocks for 64 data blocks each, and after them the top of the
//! index. The modules of their readers describe the bytes: [`crate::index::index_block`] and
//! [`crate::index::top_level_index`].
//!
//! Prefix and suffix of an item are a separator: a key at or after the block's last key and before
//! the next block's first key. Its sequence number is 0. If the next block continues with versions
//! of the same key, however, the separator is that key and the sequence number of the block's last
//! entry. Blocks follow each other without gaps, so that their lengths give their offsets.

use umbel_base::varint;

use crate::compression::Compression;
use crate::format::{BlockKind, TRAILER_BYTES, common_prefix, seal};
use crate::index::top_level_index::{INDEX_BLOCK_ENTRIES, put_entry};

#[derive(Debug, Clone, Copy)]
struct PendingSeparator {
    separator_len: usize,
    sequence: u64,
    payload_len: u64,
}

/// A complete index block.
#[derive(Debug)]
struct PendingIndexBlock {
    payload: Vec<u8>,
    last_separator: Vec<u8>,
    last_sequence: u64,
    data_len: u64,
}

/// The bytes of the index region.
#[derive(Debug)]
pub(crate) struct SealedIndex {
    pub(crate) bytes: Vec<u8>,
    /// Bytes of the top of the index, trailer included, at the end of the region.
    pub(crate) top_bytes: u32,
    /// The checksum in the trailer of the top of the index.
    pub(crate) checksum: u64,
}

/// Collects the separator and the length of each data block.
#[derive(Debug, Default)]
pub(crate) struct IndexBuilder {
    index_blocks: Vec<PendingIndexBlock>,
    /// Approximate bytes of the index blocks and their entries in the top.
    index_block_bytes: usize,
    /// The separators of the open index block, joined.
    pending_separators: Vec<u8>,
    pending_items: Vec<PendingSeparator>,
    prefix_len: usize,
    blocks: u32,
}

impl IndexBuilder {
    /// Number of data blocks added.
    pub(crate) fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Approximate bytes of the index region.
    pub(crate) fn bytes(&self) -> usize {
        self.index_block_bytes + self.pending_separators.len() + self.pending_items.len() * 4
    }

    /// Adds the next data block.
    pub(crate) fn add(&mut self, separator: &[u8], sequence: u64, payload_len: u64) {
        self.prefix_len = if self.pending_items.is_empty() {
            separator.len()
        } else {
            let shared = self.prefix_len.min(separator.len());
            common_prefix(&self.pending_separators[..shared], &separator[..shared])
        };
        self.pending_separators.extend_from_slice(separator);
        self.pending_items.push(PendingSeparator {
            separator_len: separator.len(),
            sequence,
            payload_len,
        });
        self.blocks += 1;
        if self.pending_items.len() == INDEX_BLOCK_ENTRIES {
            self.close_index_block();
        }
    }

    fn close_index_block(&mut self) {
        let Some(last) = self.pending_items.last().copied() else { return };
        let mut payload =
            Vec::with_capacity(self.pending_separators.len() + 4 * self.pending_items.len());
        varint::put_bytes(&mut payload, &self.pending_separators[..self.prefix_len]);
        let (mut at, mut data_len) = (0, 0);
        for item in self.pending_items.drain(..) {
            let end = at + item.separator_len;
            varint::put_bytes(&mut payload, &self.pending_separators[at + self.prefix_len..end]);
            varint::put_u64(&mut payload, item.sequence);
            varint::put_u64(&mut payload, item.payload_len);
            data_len += item.payload_len + TRAILER_BYTES as u64;
            at = end;
        }
        let last_separator = self.pending_separators[at - last.separator_len..].to_vec();
        self.index_block_bytes += payload.len() + last_separator.len() + 32;
        self.pending_separators.clear();
        let last_sequence = last.sequence;
        self.index_blocks.push(PendingIndexBlock {
            payload,
            last_separator,
            last_sequence,
            data_len,
        });
    }

    /// Returns the index region of table `file_id`, which is to be at `offset` of the file.
    pub(crate) fn finish(mut self, file_id: u64, offset: u64) -> SealedIndex {
        self.close_index_block();
        let mut bytes = Vec::with_capacity(self.index_block_bytes);
        let mut top = Vec::new();
        let mut sealed = |payload: &mut Vec<u8>, kind| {
            let at = offset + bytes.len() as u64;
            let sum = seal(payload, file_id, at, kind, Compression::None);
            bytes.extend_from_slice(payload);
            sum
        };
        for mut part in self.index_blocks {
            let sum = sealed(&mut part.payload, BlockKind::IndexPart);
            let separator = (part.last_separator.as_slice(), part.last_sequence);
            put_entry(&mut top, separator, part.data_len, part.payload.len() as u64, sum);
        }
        let checksum = sealed(&mut top, BlockKind::Index);
        SealedIndex { bytes, top_bytes: top.len() as u32, checksum }
    }
}

/// Writes into `out` the shortest key that is at or after `last` and before `next`.
/// REQUIRES: `last < next`.
pub(crate) fn shortest_separator(last: &[u8], next: &[u8], out: &mut Vec<u8>) {
    out.clear();
    let shared_max = last.len().min(next.len());
    let shared = common_prefix(&last[..shared_max], &next[..shared_max]);
    if next.len() > shared + 1 {
        out.extend_from_slice(&next[..=shared]);
        return;
    }
    // `next` is one byte longer than the common prefix: a key that starts with it is not before it.
    let step = last.get(shared).is_some_and(|&byte| next.get(shared) > Some(&(byte + 1)));
    let first_raised = if step { shared } else { shared + 1 };
    let raised = last.iter().skip(first_raised).position(|&byte| byte < u8::MAX);
    match raised.map(|offset| first_raised + offset) {
        Some(at) if at + 1 < last.len() => {
            out.extend_from_slice(&last[..=at]);
            out[at] += 1;
        }
        _ => out.extend_from_slice(last),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn separator(last: &[u8], next: &[u8]) -> Vec<u8> {
        let mut out = b"left over".to_vec();
        shortest_separator(last, next, &mut out);
        out
    }

    #[test]
    fn separators_are_short() {
        assert_eq!(separator(b"cart-4711", b"stream-1"), b"s");
        assert_eq!(separator(b"cart-4711", b"cart-4800"), b"cart-48");
        assert_eq!(separator(b"cart", b"cart-1"), b"cart-");
        assert_eq!(separator(b"cart", b"carta"), b"cart");
        assert_eq!(separator(b"ab", b"c"), b"b");
        assert_eq!(separator(b"ab99", b"b"), b"ac");
        assert_eq!(separator(b"a\xff\xff9", b"b"), b"a\xff\xff9");
        assert_eq!(separator(b"", b"\0"), b"");
    }

    proptest! {
        #[test]
        fn separators_separate(
            a in proptest::collection::vec(prop_oneof![0u8..3, 253u8..=255], 0..6),
            b in proptest::collection::vec(prop_oneof![0u8..3, 253u8..=255], 0..6),
        ) {
            prop_assume!(a != b);
            let (last, next) = if a < b { (a, b) } else { (b, a) };
            let between = separator(&last, &next);
            prop_assert!(last <= between && between < next, "{last:?} {between:?} {next:?}");
            prop_assert!(between.len() <= last.len().max(next.len()));
        }
    }
}
