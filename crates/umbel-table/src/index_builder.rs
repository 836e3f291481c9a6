//! Builds the payload of the index block.
//!
//! FORMAT: `payload := node*`, `node := prefix_len varint, prefix, item * (64, fewer in the last)`,
//! `item := suffix_len varint, suffix, sequence varint, payload_len varint`. Prefix and suffix are
//! a key at or behind the block's last one and before the next block's first; where the next block
//! goes on with versions of the same key, the separator is that key and the sequence number of the
//! block's last entry, else the number is 0. Blocks stand one behind the other, so that their
//! lengths say where each starts.

use umbel_base::varint;

use crate::format::{GROUP_ENTRIES_MAX, common_prefix};

#[derive(Debug, Clone, Copy)]
struct Item {
    separator_len: usize,
    sequence: u64,
    payload_len: u64,
}

/// Gathers one separator and length per block.
#[derive(Debug, Default)]
pub(crate) struct IndexBuilder {
    payload: Vec<u8>,
    /// The separators of the open node, joined.
    gathered: Vec<u8>,
    items: Vec<Item>,
    prefix_len: usize,
    blocks: u32,
}

impl IndexBuilder {
    /// How many blocks were added.
    pub(crate) fn blocks(&self) -> u32 {
        self.blocks
    }

    /// About how many bytes the payload takes.
    pub(crate) fn bytes(&self) -> usize {
        self.payload.len() + self.gathered.len() + self.items.len() * 4
    }

    /// Adds the next block.
    pub(crate) fn add(&mut self, separator: &[u8], sequence: u64, payload_len: u64) {
        self.prefix_len = if self.items.is_empty() {
            separator.len()
        } else {
            let shared = self.prefix_len.min(separator.len());
            common_prefix(&self.gathered[..shared], &separator[..shared])
        };
        self.gathered.extend_from_slice(separator);
        self.items.push(Item { separator_len: separator.len(), sequence, payload_len });
        self.blocks += 1;
        if self.items.len() == GROUP_ENTRIES_MAX {
            self.close_node();
        }
    }

    fn close_node(&mut self) {
        if self.items.is_empty() {
            return;
        }
        varint::put_bytes(&mut self.payload, &self.gathered[..self.prefix_len]);
        let mut at = 0;
        for item in self.items.drain(..) {
            let end = at + item.separator_len;
            varint::put_bytes(&mut self.payload, &self.gathered[at + self.prefix_len..end]);
            varint::put_u64(&mut self.payload, item.sequence);
            varint::put_u64(&mut self.payload, item.payload_len);
            at = end;
        }
        self.gathered.clear();
    }

    /// The payload.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.close_node();
        self.payload
    }
}

/// Writes into `out` the shortest key that is at or behind `last` and before `next`.
/// REQUIRES: `last < next`.
pub(crate) fn shortest_separator(last: &[u8], next: &[u8], out: &mut Vec<u8>) {
    out.clear();
    let shared_max = last.len().min(next.len());
    let shared = common_prefix(&last[..shared_max], &next[..shared_max]);
    if next.len() > shared + 1 {
        out.extend_from_slice(&next[..=shared]);
        return;
    }
    // `next` is one byte longer than what is shared: what starts with it is not before it.
    let step = last.get(shared).is_some_and(|&byte| next.get(shared) > Some(&(byte + 1)));
    let first_raised = if step { shared } else { shared + 1 };
    let raised = last.iter().skip(first_raised).position(|&byte| byte < u8::MAX);
    match raised.map(|behind| first_raised + behind) {
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
