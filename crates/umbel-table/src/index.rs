//! The index in memory: which block can hold a key and a sequence number.
//!
//! Separators stand in nodes of 64. A node has the prefix that its separators share, the eight
//! bytes behind it of each (its heads), and every eighth head once more, so that a search reads two
//! cache lines of heads, without a branch on what it finds there. Heads follow each **node's** own
//! prefix, because real keys share long prefixes. Separators with equal heads are told apart by the
//! rest of the key. The last separators of 64 nodes form a node of the tier above.

use std::cmp::Ordering;

use umbel_base::limits::{KEY_BYTES_MAX, SEQUENCE_MAX};
use umbel_base::{Decoder, SequenceNumber};

use crate::format::{
    GROUP_ENTRIES_MAX, INLINE_PREFIX, PAYLOAD_BYTES_MAX, TRAILER_BYTES, common_prefix, head64,
    strip_inline,
};

const NODE: usize = GROUP_ENTRIES_MAX;

/// How many bytes of its prefix a node holds itself.
const NODE_PREFIX: usize = 56;

/// Up to 64 separators.
#[derive(Debug)]
#[repr(C, align(64))]
struct Node {
    /// The eighth head, the sixteenth, and so on: the last of each line but the eighth line. The
    /// largest number where there is none.
    samples: [u64; NODE / 8 - 1],
    prefix_len: u32,
    count: u32,
    /// The largest number where there is none.
    heads: [u64; NODE],
    /// The start of the prefix, all of it where it is not longer.
    prefix: [u8; NODE_PREFIX],
    /// Where all of the prefix stands in the tier's bytes.
    prefix_at: u32,
}

/// All nodes of one height.
#[derive(Debug, Default)]
struct Tier {
    nodes: Vec<Node>,
    /// Prefixes of nodes and suffixes of separators.
    bytes: Vec<u8>,
    /// For each separator, where its suffix starts and ends in `bytes`.
    suffixes: Vec<(u32, u32)>,
    /// The sequence number of each separator; empty where all are 0.
    sequences: Vec<SequenceNumber>,
}

/// A separator while the index is read.
struct Separator {
    key: Vec<u8>,
    sequence: SequenceNumber,
}

/// The index of a table.
#[derive(Debug)]
pub(crate) struct TableIndex {
    /// The lowest first; the last has one node. Empty where the table has no blocks.
    tiers: Vec<Tier>,
    /// Where each block starts in the file, and at the end where the last one ends.
    offsets: Vec<u64>,
    /// The last separator of each lowest node, whole, and where its last block ends.
    splits: Vec<(Vec<u8>, u64)>,
}

impl Tier {
    /// Appends a node. `None` where the tier would pass 4 GiB.
    fn push_node(&mut self, prefix: &[u8], suffixes: &[(&[u8], SequenceNumber)]) -> Option<()> {
        let mut node = Node {
            samples: [u64::MAX; NODE / 8 - 1],
            prefix_len: prefix.len() as u32,
            count: suffixes.len() as u32,
            heads: [u64::MAX; NODE],
            prefix: [0; NODE_PREFIX],
            prefix_at: u32::try_from(self.bytes.len()).ok()?,
        };
        node.prefix.iter_mut().zip(prefix).for_each(|(to, from)| *to = *from);
        self.bytes.extend_from_slice(prefix);
        for (index, (suffix, sequence)) in suffixes.iter().enumerate() {
            node.heads[index] = head64(suffix);
            let start = u32::try_from(self.bytes.len()).ok()?;
            self.bytes.extend_from_slice(suffix);
            let number = self.suffixes.len();
            self.suffixes.push((start, u32::try_from(self.bytes.len()).ok()?));
            if *sequence != 0 || !self.sequences.is_empty() {
                self.sequences.resize(number, 0);
                self.sequences.push(*sequence);
            }
        }
        for (sample, head) in node.samples.iter_mut().zip(node.heads.iter().skip(7).step_by(8)) {
            *sample = *head;
        }
        self.nodes.push(node);
        Some(())
    }

    /// The first separator of `node` at or behind (`key`, `sequence`), counted from the node's
    /// first. `None` where there is none.
    #[inline]
    fn find(&self, node: usize, key: &[u8], sequence: SequenceNumber) -> Option<usize> {
        let first = node * NODE;
        let node = self.nodes.get(node)?;
        let Some(rest) = self.strip(node, key) else {
            return (key < self.prefix_of(node)).then_some(0);
        };
        let head = head64(rest);
        let line: usize = node.samples.iter().map(|&sample| usize::from(sample < head)).sum();
        let heads = node.heads.as_chunks::<8>().0.get(line)?;
        let behind: usize = heads.iter().map(|&other| usize::from(other < head)).sum();
        let found = line * 8 + behind;
        if node.heads.get(found) != Some(&head) {
            return (found < node.count as usize).then_some(found);
        }
        self.find_among_equals(node, first, found, rest, sequence)
    }

    /// What of `key` follows the node's prefix; `None` where it does not start with it.
    #[inline]
    fn strip<'k>(&self, node: &Node, key: &'k [u8]) -> Option<&'k [u8]> {
        let len = node.prefix_len as usize;
        match node.prefix.first_chunk::<INLINE_PREFIX>() {
            Some(start) if len <= INLINE_PREFIX => strip_inline(key, start, len),
            _ => key.strip_prefix(self.prefix_of(node)),
        }
    }

    #[inline]
    fn prefix_of<'a>(&'a self, node: &'a Node) -> &'a [u8] {
        let (len, at) = (node.prefix_len as usize, node.prefix_at as usize);
        let whole = || self.bytes.get(at..at + len).unwrap_or_default();
        node.prefix.get(..len).unwrap_or_else(whole)
    }

    #[inline(never)]
    fn find_among_equals(
        &self,
        node: &Node,
        first: usize,
        found: usize,
        rest: &[u8],
        sequence: SequenceNumber,
    ) -> Option<usize> {
        let count = node.count as usize;
        let head = node.heads.get(found)?;
        let equals = node.heads[found..count.max(found)].partition_point(|other| other == head);
        let (mut low, mut high) = (found, found + equals);
        while low < high {
            let middle = (low + high) / 2;
            if self.compare(first + middle, rest, sequence) == Ordering::Less {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        (low < count).then_some(low)
    }

    /// How a separator stands to (`rest`, `sequence`) in internal order.
    fn compare(&self, separator: usize, rest: &[u8], sequence: SequenceNumber) -> Ordering {
        let (start, end) = self.suffixes.get(separator).copied().unwrap_or_default();
        let suffix = self.bytes.get(start as usize..end as usize).unwrap_or_default();
        let own = self.sequences.get(separator).copied().unwrap_or(0);
        suffix.cmp(rest).then_with(|| sequence.cmp(&own))
    }

    /// The tier over the last separators of the nodes below.
    fn above(lasts: &[Separator]) -> Option<Tier> {
        let mut tier = Tier::default();
        for node in lasts.chunks(NODE) {
            let (first, last) = (&node.first()?.key, &node.last()?.key);
            let shared = first.len().min(last.len());
            let shared = common_prefix(&first[..shared], &last[..shared]);
            let suffixes: Vec<(&[u8], SequenceNumber)> =
                node.iter().map(|item| (&item.key[shared..], item.sequence)).collect();
            tier.push_node(&first[..shared], &suffixes)?;
        }
        Some(tier)
    }

    fn memory_bytes(&self) -> usize {
        size_of_val(&self.nodes[..])
            + self.bytes.len()
            + size_of_val(&self.suffixes[..])
            + size_of_val(&self.sequences[..])
    }
}

impl TableIndex {
    /// Reads the payload of the index block of a table whose `blocks` data blocks stand one behind
    /// the other from `data_start` to `data_end`. The error is a reason in words.
    pub(crate) fn decode(
        payload: &[u8],
        blocks: u32,
        data_start: u64,
        data_end: u64,
    ) -> Result<TableIndex, &'static str> {
        const CUT: &str = "the index ends inside a node";
        let blocks = blocks as usize;
        if blocks > payload.len() {
            return Err("the index is too short for the number of blocks");
        }
        let mut decoder = Decoder::new(payload);
        let mut offsets = Vec::with_capacity(blocks + 1);
        offsets.push(data_start);
        let mut end = data_start;
        let mut leaves = Tier::default();
        let mut lasts: Vec<Separator> = Vec::new();
        let mut splits = Vec::new();
        while leaves.suffixes.len() < blocks {
            let count = (blocks - leaves.suffixes.len()).min(NODE);
            let prefix = decoder.bytes().ok_or(CUT)?;
            let mut suffixes: Vec<(&[u8], SequenceNumber)> = Vec::with_capacity(count);
            for _ in 0..count {
                let suffix = decoder.bytes().ok_or(CUT)?;
                let sequence = decoder.varint().ok_or(CUT)?;
                let len = decoder.varint().ok_or(CUT)?;
                if prefix.len() + suffix.len() > KEY_BYTES_MAX
                    || sequence > SEQUENCE_MAX
                    || len > PAYLOAD_BYTES_MAX as u64
                {
                    return Err("a separator or a block in the index is over the limit");
                }
                end += len + TRAILER_BYTES as u64;
                offsets.push(end);
                suffixes.push((suffix, sequence));
            }
            let last = lasts.last().map(|last| (last.key.as_slice(), last.sequence));
            check_order(last, prefix, &suffixes)?;
            leaves.push_node(prefix, &suffixes).ok_or("the index is over 4 GiB")?;
            let (suffix, sequence) = *suffixes.last().ok_or(CUT)?;
            let key = [prefix, suffix].concat();
            splits.push((key.clone(), end));
            lasts.push(Separator { key, sequence });
        }
        if !decoder.is_done() {
            return Err("the index goes on behind its last block");
        }
        if end != data_end {
            return Err("the blocks in the index do not end where the index starts");
        }
        let tiers = stack(leaves, lasts).ok_or("the index is over 4 GiB")?;
        Ok(TableIndex { tiers, offsets, splits })
    }

    /// How many blocks there are.
    pub(crate) fn blocks(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Where a block starts in the file, and how many bytes it takes with its trailer.
    pub(crate) fn extent(&self, block: usize) -> Option<(u64, usize)> {
        let start = *self.offsets.get(block)?;
        let end = *self.offsets.get(block + 1)?;
        Some((start, (end - start) as usize))
    }

    /// The only block that can hold the first entry at or behind (`key`, `sequence`), if that is
    /// an entry of `key`; else the block that holds that entry or the one before. `None` where the
    /// table ends before.
    #[inline]
    pub(crate) fn find(&self, key: &[u8], sequence: SequenceNumber) -> Option<usize> {
        let mut node = 0;
        let mut tiers = self.tiers.iter().rev();
        node = tiers.next()?.find(node, key, sequence)?;
        for tier in tiers {
            node = node * NODE + tier.find(node, key, sequence)?;
        }
        Some(node)
    }

    /// How the separator behind a block stands to (`key`, `sequence`).
    pub(crate) fn compare(
        &self,
        block: usize,
        key: &[u8],
        sequence: SequenceNumber,
    ) -> Option<Ordering> {
        let leaves = self.tiers.first()?;
        let prefix = leaves.prefix_of(leaves.nodes.get(block / NODE)?);
        Some(match key.strip_prefix(prefix) {
            Some(rest) => leaves.compare(block, rest, sequence),
            None => prefix.cmp(key),
        })
    }

    /// Keys that split the table, about every 64 blocks, each with the bytes of data before it.
    pub(crate) fn splits(&self) -> impl Iterator<Item = (&[u8], u64)> {
        self.splits.iter().map(|(key, end)| (key.as_slice(), *end))
    }

    /// How many bytes of memory the index takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let splits: usize = self.splits.iter().map(|(key, _)| key.len() + 32).sum();
        let tiers: usize = self.tiers.iter().map(Tier::memory_bytes).sum();
        splits + tiers + size_of_val(&self.offsets[..])
    }
}

/// Separators ascend in internal order, across nodes too.
fn check_order(
    before: Option<(&[u8], SequenceNumber)>,
    prefix: &[u8],
    suffixes: &[(&[u8], SequenceNumber)],
) -> Result<(), &'static str> {
    let ordered = suffixes.windows(2).all(|pair| {
        let order = pair[0].0.cmp(pair[1].0).then_with(|| pair[1].1.cmp(&pair[0].1));
        order == Ordering::Less
    });
    let joined = match (before, suffixes.first()) {
        (Some((key, sequence)), Some(first)) => {
            let order = key.cmp([prefix, first.0].concat().as_slice());
            order.then_with(|| first.1.cmp(&sequence)) == Ordering::Less
        }
        _ => true,
    };
    if ordered && joined { Ok(()) } else { Err("the separators of the index do not ascend") }
}

/// Builds the tiers over `leaves`, whose nodes end with `lasts`.
fn stack(leaves: Tier, mut lasts: Vec<Separator>) -> Option<Vec<Tier>> {
    if leaves.nodes.is_empty() {
        return Some(Vec::new());
    }
    let mut tiers = vec![leaves];
    while lasts.len() > 1 {
        let tier = Tier::above(&lasts)?;
        let count = lasts.len();
        let mut index = 0;
        lasts.retain(|_| {
            index += 1;
            index % NODE == 0 || index == count
        });
        tiers.push(tier);
    }
    Some(tiers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index_builder::IndexBuilder;

    fn build(separators: &[(Vec<u8>, u64)]) -> TableIndex {
        let mut builder = IndexBuilder::default();
        for (key, sequence) in separators {
            builder.add(key, *sequence, 87);
        }
        let end = 32 + 100 * separators.len() as u64;
        TableIndex::decode(&builder.finish(), separators.len() as u32, 32, end).unwrap()
    }

    fn check(separators: &[(Vec<u8>, u64)], probes: &[(Vec<u8>, u64)]) {
        let index = build(separators);
        assert_eq!(index.blocks(), separators.len());
        for (key, sequence) in probes.iter().chain(separators) {
            let expected = separators.iter().position(|(k, s)| (k, sequence) >= (key, s));
            assert_eq!(index.find(key, *sequence), expected, "{key:?} {sequence}");
            for block in [0, separators.len() / 2, separators.len() - 1] {
                let (k, s) = &separators[block];
                let order = k.cmp(key).then(sequence.cmp(s));
                assert_eq!(index.compare(block, key, *sequence), Some(order));
            }
        }
    }

    #[test]
    fn finds_what_a_walk_finds() {
        for count in [1usize, 2, 7, 8, 9, 63, 64, 65, 200, 4097] {
            let mut keys: Vec<(Vec<u8>, u64)> = (0..count as u64)
                .map(|i| match count % 3 {
                    0 => (format!("https://example.org/{:07}", i * 5).into_bytes(), 0),
                    1 => (i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().to_vec(), 0),
                    _ => (vec![0xff; 3 + i as usize / 9], 90 - (i % 9) * 10),
                })
                .collect();
            keys.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
            let step = count.div_ceil(50);
            let probes: Vec<_> = keys
                .iter()
                .step_by(step)
                .flat_map(|(key, sequence)| {
                    let longer = [key.as_slice(), b"\0"].concat();
                    let shorter = key[..key.len() - 1].to_vec();
                    [
                        (key.clone(), sequence + 1),
                        (key.clone(), sequence.saturating_sub(1)),
                        (longer, 3),
                        (shorter, 3),
                    ]
                })
                .chain([(Vec::new(), 0), (vec![0xff; 600], 0), (b"http".to_vec(), 1)])
                .collect();
            check(&keys, &probes);
        }
    }

    #[test]
    fn damaged_payloads_are_refused() {
        let mut builder = IndexBuilder::default();
        for i in 0..100u64 {
            builder.add(format!("k{i:03}").as_bytes(), 0, 87);
        }
        let payload = builder.finish();
        let end = 32 + 100 * 100;
        assert!(TableIndex::decode(&payload, 100, 32, end).is_ok());
        assert!(TableIndex::decode(&payload, 99, 32, end).is_err());
        assert!(TableIndex::decode(&payload, 100, 32, end + 1).is_err());
        assert!(TableIndex::decode(&payload, u32::MAX, 32, end).is_err());
        for cut in 0..payload.len() {
            assert!(TableIndex::decode(&payload[..cut], 100, 32, end).is_err());
        }
        for index in 0..payload.len() {
            let mut flipped = payload.clone();
            flipped[index] ^= 0xff;
            if let Ok(index) = TableIndex::decode(&flipped, 100, 32, end) {
                index.find(b"k050", 7);
            }
        }
    }
}
