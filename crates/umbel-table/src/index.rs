//! The index in memory: which block can hold a key and a sequence number.
//!
//! Every block has a separator behind it. Most searches are answered by the separators' heads alone
//! (see [`crate::heads`]); a key that they do not tell apart from a separator is compared with it
//! whole, and with its sequence number.

use std::cmp::Ordering;

use umbel_arena::{Arena, Fixed};
use umbel_base::limits::{KEY_BYTES_MAX, SEQUENCE_MAX};
use umbel_base::{Decoder, SequenceNumber};

use crate::format::{GROUP_ENTRIES_MAX, PAYLOAD_BYTES_MAX, TRAILER_BYTES};
use crate::heads::{Heads, Position, Way};
use crate::heads_builder::Joined;

/// Separators that stand together with one prefix in the file.
const NODE: usize = GROUP_ENTRIES_MAX;

/// The index of a table.
#[derive(Debug)]
pub(crate) struct TableIndex {
    /// `None` where the table has no blocks.
    heads: Option<Heads>,
    /// Where each block starts in the file, and at the end where the last one ends.
    offsets: Fixed<u64>,
    separators: Separators,
    /// The last separator of each node of the file, whole, and where its last block ends.
    splits: Vec<(Vec<u8>, u64)>,
}

/// The separators whole, each as the prefix of its node and its own suffix.
#[derive(Debug)]
struct Separators {
    bytes: Fixed<u8>,
    /// For each node where its prefix starts, and where it ends.
    prefixes: Fixed<u32>,
    /// For each separator where its suffix starts, and where it ends.
    suffixes: Fixed<u32>,
    /// The sequence number of each separator; empty where all are 0.
    sequences: Fixed<u64>,
}

/// What of the separators is read from the file, before it goes to the arena.
#[derive(Default)]
struct Gathered {
    bytes: Vec<u8>,
    prefixes: Vec<u32>,
    suffixes: Vec<u32>,
    sequences: Vec<u64>,
    offsets: Vec<u64>,
    splits: Vec<(Vec<u8>, u64)>,
}

impl Separators {
    fn sequence(&self, separator: usize) -> SequenceNumber {
        self.sequences.get(separator).copied().unwrap_or(0)
    }

    fn slice(&self, ends: &[u32], at: usize) -> &[u8] {
        let Some([start, end]) = ends.get(at..).and_then(|rest| rest.first_chunk()) else {
            return &[];
        };
        self.bytes.get(*start as usize..*end as usize).unwrap_or_default()
    }

    /// How a separator stands to (`key`, `sequence`) in internal order.
    fn compare(&self, separator: usize, key: &[u8], sequence: SequenceNumber) -> Ordering {
        let prefix = self.slice(&self.prefixes, 2 * (separator / NODE));
        let suffix = self.slice(&self.suffixes, 2 * separator);
        let shared = prefix.len().min(key.len());
        let order = prefix.cmp(&key[..shared]).then_with(|| suffix.cmp(&key[shared..]));
        order.then_with(|| sequence.cmp(&self.sequence(separator)))
    }

    fn memory_bytes(&self) -> usize {
        let numbers = self.prefixes.memory_bytes() + self.suffixes.memory_bytes();
        self.bytes.memory_bytes() + numbers + self.sequences.memory_bytes()
    }
}

impl Gathered {
    const TOO_LONG: &str = "the index is over 4 GiB";

    /// Takes a node of `count` items off the decoder.
    fn node(&mut self, decoder: &mut Decoder<'_>, count: usize) -> Result<(), &'static str> {
        const CUT: &str = "the index ends inside a node";
        let prefix = decoder.bytes().ok_or(CUT)?;
        let mut end = self.offsets.last().copied().unwrap_or(0);
        let mut items: Vec<(&[u8], SequenceNumber)> = Vec::with_capacity(count);
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
            self.offsets.push(end);
            items.push((suffix, sequence));
        }
        let before = self
            .splits
            .last()
            .map(|(key, _)| (key.as_slice(), self.sequences.last().copied().unwrap_or(0)));
        check_order(before, prefix, &items)?;
        let range = self.push(prefix)?;
        self.prefixes.extend(range);
        for (suffix, sequence) in &items {
            let range = self.push(suffix)?;
            self.suffixes.extend(range);
            self.sequences.push(*sequence);
        }
        let (suffix, _) = *items.last().ok_or(CUT)?;
        self.splits.push(([prefix, suffix].concat(), end));
        Ok(())
    }

    fn push(&mut self, bytes: &[u8]) -> Result<[u32; 2], &'static str> {
        let start = u32::try_from(self.bytes.len()).map_err(|_| Gathered::TOO_LONG)?;
        self.bytes.extend_from_slice(bytes);
        let end = u32::try_from(self.bytes.len()).map_err(|_| Gathered::TOO_LONG)?;
        Ok([start, end])
    }

    fn keys(&self) -> Vec<Joined<'_>> {
        let slice = |range: Option<&[u32; 2]>| {
            let [start, end] = range.copied().unwrap_or_default();
            self.bytes.get(start as usize..end as usize).unwrap_or_default()
        };
        let prefixes = self.prefixes.as_chunks().0;
        let suffixes = self.suffixes.as_chunks().0.iter().enumerate();
        suffixes.map(|(at, own)| Joined(slice(prefixes.get(at / NODE)), slice(Some(own)))).collect()
    }
}

impl TableIndex {
    /// Reads the payload of the index block of a table whose `blocks` data blocks stand one behind
    /// the other from `data_start` to `data_end`. The error is a reason in words.
    pub(crate) fn decode(
        arena: &Arena,
        payload: &[u8],
        blocks: u32,
        data_start: u64,
        data_end: u64,
    ) -> Result<TableIndex, &'static str> {
        let blocks = blocks as usize;
        // A quarter of a piece's limit, for the arrays that are longer than the payload.
        if payload.len() > 1 << 30 {
            return Err(Gathered::TOO_LONG);
        }
        if blocks > payload.len() / 3 {
            return Err("the index is too short for the number of blocks");
        }
        let mut decoder = Decoder::new(payload);
        let mut gathered = Gathered { offsets: vec![data_start], ..Gathered::default() };
        let mut read = 0;
        while read < blocks {
            let count = (blocks - read).min(NODE);
            gathered.node(&mut decoder, count)?;
            read += count;
        }
        if !decoder.is_done() {
            return Err("the index goes on behind its last block");
        }
        if gathered.offsets.last() != Some(&data_end) {
            return Err("the blocks in the index do not end where the index starts");
        }
        if gathered.sequences.iter().all(|&sequence| sequence == 0) {
            gathered.sequences.clear();
        }
        let heads = Heads::new(arena, &gathered.keys());
        if heads.is_none() && blocks > 0 {
            return Err(Gathered::TOO_LONG);
        }
        Ok(TableIndex {
            heads,
            offsets: Fixed::new(arena, &gathered.offsets),
            separators: Separators {
                bytes: Fixed::new(arena, &gathered.bytes),
                prefixes: Fixed::new(arena, &gathered.prefixes),
                suffixes: Fixed::new(arena, &gathered.suffixes),
                sequences: Fixed::new(arena, &gathered.sequences),
            },
            splits: gathered.splits,
        })
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
        self.find_from(Way::default(), key, sequence, |_| ())
    }

    /// The first part of a search; see [`Heads::way`].
    #[inline]
    pub(crate) fn way(&self, key: &[u8]) -> Way {
        self.heads.as_ref().map_or(Way::default(), |heads| heads.way(key))
    }

    /// The second part of a search; see [`Heads::prefetch`].
    #[inline]
    pub(crate) fn prefetch(&self, way: Way, key: &[u8], hint: impl Fn(usize)) {
        if let Some(heads) = &self.heads {
            heads.prefetch(way, key, hint);
        }
    }

    /// As [`TableIndex::find`], from what [`TableIndex::way`] gave. `hint` may be told early of a
    /// block near to the one that is found.
    #[inline]
    pub(crate) fn find_from(
        &self,
        way: Way,
        key: &[u8],
        sequence: SequenceNumber,
        hint: impl Fn(usize),
    ) -> Option<usize> {
        let found = match self.heads.as_ref()?.find_from(way, key, hint) {
            Position::Behind(found) => found,
            Position::Among(low, high) => self.find_among(low, high, key, sequence),
        };
        (found < self.blocks()).then_some(found)
    }

    #[inline(never)]
    fn find_among(
        &self,
        mut low: usize,
        mut high: usize,
        key: &[u8],
        sequence: SequenceNumber,
    ) -> usize {
        while low < high {
            let middle = (low + high) / 2;
            if self.separators.compare(middle, key, sequence) == Ordering::Less {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// How the separator behind a block stands to (`key`, `sequence`).
    pub(crate) fn compare(
        &self,
        block: usize,
        key: &[u8],
        sequence: SequenceNumber,
    ) -> Option<Ordering> {
        (block < self.blocks()).then(|| self.separators.compare(block, key, sequence))
    }

    /// Keys that split the table, about every 64 blocks, each with the bytes of data before it.
    pub(crate) fn splits(&self) -> impl Iterator<Item = (&[u8], u64)> {
        self.splits.iter().map(|(key, end)| (key.as_slice(), *end))
    }

    /// How many bytes of memory the index takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let splits: usize = self.splits.iter().map(|(key, _)| key.len() + 32).sum();
        let heads = self.heads.as_ref().map_or(0, Heads::memory_bytes);
        splits + heads + self.separators.memory_bytes() + self.offsets.memory_bytes()
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
        TableIndex::decode(&Arena::new(), &builder.finish(), separators.len() as u32, 32, end)
            .unwrap()
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
        assert!(TableIndex::decode(&Arena::new(), &payload, 100, 32, end).is_ok());
        assert!(TableIndex::decode(&Arena::new(), &payload, 99, 32, end).is_err());
        assert!(TableIndex::decode(&Arena::new(), &payload, 100, 32, end + 1).is_err());
        assert!(TableIndex::decode(&Arena::new(), &payload, u32::MAX, 32, end).is_err());
        for cut in 0..payload.len() {
            assert!(TableIndex::decode(&Arena::new(), &payload[..cut], 100, 32, end).is_err());
        }
        for index in 0..payload.len() {
            let mut flipped = payload.clone();
            flipped[index] ^= 0xff;
            if let Ok(index) = TableIndex::decode(&Arena::new(), &flipped, 100, 32, end) {
                index.find(b"k050", 7);
            }
        }
    }
}
