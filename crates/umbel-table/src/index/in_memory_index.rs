//! The index in memory, which finds the block that can hold a key at a sequence number.
//!
//! Every block has a separator after it. Most searches need only the separators' heads (see
//! [`crate::index::key_head_tree`]). If heads do not distinguish a key from a separator, the whole
//! key and the sequence number are compared.

use std::cmp::Ordering;

use umbel_arena::{Arena, ArenaArray, prefetch};
use umbel_base::SequenceNumber;

use crate::index::index_block::{IndexEntries, IndexEntry};
use crate::index::key_head_tree::{HeadMatch, KeyHeadTree, SearchState, SearchStep};
use crate::index::key_head_tree_builder::SplitKey;
use crate::index::top_level_index::INDEX_BLOCK_ENTRIES;

/// Result of [`TableIndex::find`] if the index is paged, after which the caller uses the fallible
/// lookup. No table has a block of this number.
pub(crate) const PAGED_INDEX: usize = usize::MAX;

/// The index of a table in memory.
#[derive(Debug)]
pub(crate) struct TableIndex {
    /// Heads of the separators; `None` if the table has no blocks or the index is paged.
    heads: Option<KeyHeadTree>,
    blocks: usize,
    /// Offset at which each block starts in the file, and last the offset at which the last block
    /// ends. Empty if the index is paged.
    offsets: ArenaArray<u64>,
    separators: Separators,
}

/// The whole separators, each as the prefix of its index block and its own suffix.
#[derive(Debug)]
struct Separators {
    bytes: ArenaArray<u8>,
    /// For each index block, the offset at which its prefix starts, and last the end.
    prefixes: ArenaArray<u32>,
    /// For each separator, the offset at which its suffix starts, and last the end.
    suffixes: ArenaArray<u32>,
    /// Sequence number of each separator; empty if all are 0.
    sequences: ArenaArray<u64>,
}

/// Separators read from the file, before they are copied to the arena.
#[derive(Default)]
pub(crate) struct IndexData {
    bytes: Vec<u8>,
    prefixes: Vec<u32>,
    suffixes: Vec<u32>,
    sequences: Vec<u64>,
    offsets: Vec<u64>,
}

impl Separators {
    fn new(arena: &Arena, gathered: &IndexData) -> Separators {
        Separators {
            bytes: ArenaArray::new(arena, &gathered.bytes),
            prefixes: ArenaArray::new(arena, &gathered.prefixes),
            suffixes: ArenaArray::new(arena, &gathered.suffixes),
            sequences: ArenaArray::new(arena, &gathered.sequences),
        }
    }

    fn sequence(&self, separator: usize) -> SequenceNumber {
        self.sequences.get(separator).copied().unwrap_or(0)
    }

    fn slice(&self, ends: &[u32], at: usize) -> &[u8] {
        let Some([start, end]) = ends.get(at..).and_then(|rest| rest.first_chunk()) else {
            return &[];
        };
        self.bytes.get(*start as usize..*end as usize).unwrap_or_default()
    }

    /// Order of a separator relative to (`key`, `sequence`) in internal order.
    fn compare(&self, separator: usize, key: &[u8], sequence: SequenceNumber) -> Ordering {
        let prefix = self.slice(&self.prefixes, 2 * (separator / INDEX_BLOCK_ENTRIES));
        let suffix = self.slice(&self.suffixes, 2 * separator);
        let shared = prefix.len().min(key.len());
        let order = prefix.cmp(&key[..shared]).then_with(|| suffix.cmp(&key[shared..]));
        order.then_with(|| sequence.cmp(&self.sequence(separator)))
    }

    /// Prefetches the offsets of a separator.
    #[inline]
    fn prefetch_place(&self, separator: usize) {
        prefetch(&self.prefixes, 2 * (separator / INDEX_BLOCK_ENTRIES));
        prefetch(&self.suffixes, 2 * separator);
    }

    /// Prefetches a separator.
    #[inline]
    fn prefetch(&self, separator: usize) {
        let places = [
            self.prefixes.get(2 * (separator / INDEX_BLOCK_ENTRIES)),
            self.suffixes.get(2 * separator),
        ];
        for start in places.into_iter().flatten() {
            prefetch(&self.bytes, *start as usize);
        }
    }

    fn memory_bytes(&self) -> usize {
        let numbers = self.prefixes.memory_bytes() + self.suffixes.memory_bytes();
        self.bytes.memory_bytes() + numbers + self.sequences.memory_bytes()
    }
}

impl IndexData {
    const TOO_LONG: &str = "the index is over 4 GiB";

    /// Creates empty index data of a table whose blocks start at `data_start`.
    pub(crate) fn new(data_start: u64) -> IndexData {
        IndexData { offsets: vec![data_start], ..IndexData::default() }
    }

    /// Adds the next index block, of `count` blocks. REQUIRES: the separators of this index block
    /// ascend and end where the top of the index says.
    pub(crate) fn add_block(&mut self, payload: &[u8], count: usize) -> Result<(), &'static str> {
        let mut items = IndexEntries::new(payload, count)?;
        let prefix = items.prefix;
        let range = self.push(prefix)?;
        self.prefixes.extend(range);
        let mut end = self.offsets.last().copied().unwrap_or(0);
        let mut is_first = true;
        while let Some(item) = items.next()? {
            // The top's separators ascend, and each part ends with its own.
            if is_first && !self.is_after_last(prefix, &item) {
                return Err("the separators of the index do not ascend");
            }
            is_first = false;
            end += item.block_len;
            self.offsets.push(end);
            let range = self.push(item.suffix)?;
            self.suffixes.extend(range);
            self.sequences.push(item.sequence);
        }
        Ok(())
    }

    /// Whether an item is after all items of the index blocks before its own.
    fn is_after_last(&self, prefix: &[u8], item: &IndexEntry<'_>) -> bool {
        let Some(&sequence) = self.sequences.last() else { return true };
        // The prefix of the new part is there already.
        let prefixes = self.prefixes.as_chunks().0;
        let before = prefixes.len().checked_sub(2).and_then(|before| prefixes.get(before));
        let last = [self.slice(before), self.slice(self.suffixes.as_chunks().0.last())].concat();
        let order = last.cmp(&[prefix, item.suffix].concat());
        order.then_with(|| item.sequence.cmp(&sequence)) == Ordering::Less
    }

    fn push(&mut self, bytes: &[u8]) -> Result<[u32; 2], &'static str> {
        let start = u32::try_from(self.bytes.len()).map_err(|_| IndexData::TOO_LONG)?;
        self.bytes.extend_from_slice(bytes);
        let end = u32::try_from(self.bytes.len()).map_err(|_| IndexData::TOO_LONG)?;
        Ok([start, end])
    }

    fn slice(&self, range: Option<&[u32; 2]>) -> &[u8] {
        let [start, end] = range.copied().unwrap_or_default();
        self.bytes.get(start as usize..end as usize).unwrap_or_default()
    }

    fn keys(&self) -> Vec<SplitKey<'_>> {
        let prefixes = self.prefixes.as_chunks().0;
        let suffixes = self.suffixes.as_chunks().0.iter().enumerate();
        let joined = |(at, own)| {
            SplitKey(self.slice(prefixes.get(at / INDEX_BLOCK_ENTRIES)), self.slice(Some(own)))
        };
        suffixes.map(joined).collect()
    }
}

impl TableIndex {
    /// Creates the index from all index blocks. The error is a reason in words.
    pub(crate) fn new(arena: &Arena, mut gathered: IndexData) -> Result<TableIndex, &'static str> {
        // A quarter of a piece's limit, for the arrays that are longer than the bytes.
        if gathered.bytes.len() > 1 << 30 || gathered.offsets.len() > 1 << 28 {
            return Err(IndexData::TOO_LONG);
        }
        if gathered.sequences.iter().all(|&sequence| sequence == 0) {
            gathered.sequences.clear();
        }
        let blocks = gathered.offsets.len() - 1;
        let heads = KeyHeadTree::new(arena, &gathered.keys());
        if heads.is_none() && blocks > 0 {
            return Err(IndexData::TOO_LONG);
        }
        Ok(TableIndex {
            heads,
            blocks,
            offsets: ArenaArray::new(arena, &gathered.offsets),
            separators: Separators::new(arena, &gathered),
        })
    }

    /// Creates the placeholder of a paged index, for a table of `blocks` blocks.
    pub(crate) fn paged(arena: &Arena, blocks: usize) -> TableIndex {
        TableIndex {
            heads: None,
            blocks,
            offsets: ArenaArray::new(arena, &[]),
            separators: Separators::new(arena, &IndexData::default()),
        }
    }

    /// Whether only the top of the index is in memory.
    pub(crate) fn is_paged(&self) -> bool {
        self.heads.is_none() && self.blocks > 0
    }

    /// Number of data blocks of the table.
    pub(crate) fn blocks(&self) -> usize {
        self.blocks
    }

    /// Returns the offset at which a block starts in the file, and its bytes with trailer. `None`
    /// if there is no such block, or the index is paged.
    pub(crate) fn extent(&self, block: usize) -> Option<(u64, usize)> {
        let start = *self.offsets.get(block)?;
        let end = *self.offsets.get(block + 1)?;
        Some((start, (end - start) as usize))
    }

    /// Returns the block to search for the first entry at or after (`key`, `sequence`). If that is
    /// an entry of `key`, it is in this block; otherwise it is in this block or first in the next.
    /// `None` if the table ends before `key`, [`PAGED_INDEX`] if the index is paged.
    #[inline]
    pub(crate) fn find(&self, key: &[u8], sequence: SequenceNumber) -> Option<usize> {
        self.find_from(SearchState::default(), key, sequence, |_| ())
    }

    /// First stage of a search; see [`KeyHeadTree::begin_search`].
    #[inline]
    pub(crate) fn begin_search(&self, key: &[u8]) -> SearchState {
        self.heads.as_ref().map_or(SearchState::default(), |heads| heads.begin_search(key))
    }

    /// Second stage of a search; see [`KeyHeadTree::prefetch`].
    #[inline]
    pub(crate) fn prefetch(&self, way: SearchState, key: &[u8], hint: impl Fn(usize)) -> bool {
        self.heads.as_ref().is_some_and(|heads| heads.prefetch(way, key, hint))
    }

    /// Third stage of a search, if the second stage returned `true`; see [`KeyHeadTree::descend`].
    /// Prefetches the offsets of the first separator that is to be compared, if any.
    #[inline]
    pub(crate) fn descend(&self, way: SearchState, key: &[u8]) -> SearchStep {
        let Some(heads) = &self.heads else { return SearchStep::Done };
        let below = heads.descend(way, key);
        if let SearchStep::Keys(low, high) = below {
            self.separators.prefetch_place((low + high) / 2);
        }
        below
    }

    /// First stage of a search again, for the node one level down; see
    /// [`KeyHeadTree::prefetch_node`].
    #[inline]
    pub(crate) fn prefetch_node(&self, way: SearchState, key: &[u8]) {
        if let Some(heads) = &self.heads {
            heads.prefetch_node(way, key);
        }
    }

    /// Prefetches the separator that a search among the separators `low..high` compares first.
    #[inline]
    pub(crate) fn prefetch_separator(&self, low: usize, high: usize) {
        self.separators.prefetch((low + high) / 2);
    }

    /// Like [`TableIndex::find`], but continues from the result of [`TableIndex::begin_search`].
    /// `hint` may be called early with a block near the result.
    #[inline]
    pub(crate) fn find_from(
        &self,
        way: SearchState,
        key: &[u8],
        sequence: SequenceNumber,
        hint: impl Fn(usize),
    ) -> Option<usize> {
        let Some(heads) = &self.heads else { return self.find_without_heads() };
        let found = match heads.find_from(way, key, hint) {
            HeadMatch::After(found) => found,
            HeadMatch::Among(low, high) => self.find_among(low, high, key, sequence),
        };
        (found < self.blocks()).then_some(found)
    }

    #[cold]
    fn find_without_heads(&self) -> Option<usize> {
        self.is_paged().then_some(PAGED_INDEX)
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

    /// Order of the separator after a block relative to (`key`, `sequence`).
    pub(crate) fn compare(
        &self,
        block: usize,
        key: &[u8],
        sequence: SequenceNumber,
    ) -> Option<Ordering> {
        (block < self.blocks()).then(|| self.separators.compare(block, key, sequence))
    }

    /// Bytes of the index in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        let heads = self.heads.as_ref().map_or(0, KeyHeadTree::memory_bytes);
        heads + self.separators.memory_bytes() + self.offsets.memory_bytes()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::format::sealed_checksum;
    use crate::index::index_builder::IndexBuilder;
    use crate::index::index_loading::IndexRegion;

    fn build(separators: &[(Vec<u8>, u64)]) -> TableIndex {
        let mut builder = IndexBuilder::default();
        for (key, sequence) in separators {
            builder.add(key, *sequence, 87);
        }
        let end = 32 + 100 * separators.len() as u64;
        let sealed = builder.finish(1, end);
        read(&sealed.bytes, sealed.top_bytes, separators.len() as u32, end).unwrap()
    }

    /// Reads an index region like a table that keeps the whole index in memory.
    fn read(bytes: &[u8], top_bytes: u32, blocks: u32, end: u64) -> umbel_base::Result<TableIndex> {
        let len = bytes.len() as u64;
        let region = IndexRegion {
            path: Path::new("1.table"),
            file_id: 1,
            data: (32, end),
            offset: end,
            len,
            top_bytes: u64::from(top_bytes),
            checksum: sealed_checksum(bytes),
            blocks,
        };
        let top = region.top(&bytes[bytes.len().saturating_sub(top_bytes as usize)..])?;
        region.index(&Arena::new(), &top, bytes)
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
    fn seek_equals_a_scan() {
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
    fn damaged_bytes_are_refused() {
        let mut builder = IndexBuilder::default();
        for i in 0..100u64 {
            builder.add(format!("k{i:03}").as_bytes(), 0, 87);
        }
        let end = 32 + 100 * 100;
        let sealed = builder.finish(1, end);
        let (bytes, top) = (sealed.bytes, sealed.top_bytes);
        assert!(read(&bytes, top, 100, end).is_ok());
        for blocks in [0, 1, 64, 99, 128, u32::MAX] {
            assert!(read(&bytes, top, blocks, end).is_err(), "{blocks}");
        }
        assert!(read(&bytes, top, 100, end + 1).is_err());
        for cut in 0..bytes.len() {
            assert!(read(&bytes[..cut], top.min(cut as u32), 100, end).is_err());
        }
        for index in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[index] ^= 0xff;
            assert!(read(&flipped, top, 100, end).is_err(), "byte {index}");
        }
    }
}
