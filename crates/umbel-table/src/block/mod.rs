//! A data block in memory, laid out for searches in one allocation of the arena.
//!
//! ```text
//! section * groups | payload | 0 * padding | start of each section u32 | groups u32 | entries u32
//! section: base u32 | packed u32 | prefix | tag * count | offset u16 * count | head u32 * count
//! ```
//!
//! The payload is the same as on disk. The load of a block derives a section for each group, which
//! precedes the payload. The section has the group's prefix, a tag (a byte of the hash) and the
//! head of each key, and the offset of each entry. A block of the usual size has one group. All
//! data that a point read needs before it reads the entry is in two neighbouring cache lines.
//!
//! INVARIANT: [`Block::parse`] has checked every length and offset. Reads still use checked slices,
//! and find nothing if such a check fails.

use std::cmp::Ordering;

use umbel_arena::{Allocation, Arena};
use umbel_base::SequenceNumber;

use crate::block::block_search_data::{
    BlockSearchData, SECTION_HEADER_BYTES, SECTION_PREFIX_MAX, SearchDataKind, TAIL_BYTES,
    TOO_LONG, build_search_data, packed,
};
use crate::block::entry::{Entry, read_entry};
use crate::format::{INLINE_PREFIX, strip_inline};

pub mod block_builder;
pub mod block_lookup;
pub mod block_search_data;
pub mod block_seek;
pub mod entry;
pub mod entry_layout;

/// A data block, checked and ready for searches. A clone is another reference to the same block.
#[derive(Debug, Clone)]
pub struct Block {
    piece: Allocation,
}

/// A view of a block that another owner keeps in memory.
#[derive(Clone, Copy)]
pub(crate) struct BlockView<'a> {
    pub(crate) bytes: &'a [u8],
}

/// Header of a section, which describes its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SearchGroup {
    at: usize,
    base: usize,
    prefix_len: usize,
    pub(crate) count: usize,
    pub(crate) packed: u32,
    pub(crate) tags_at: usize,
}

/// Position of an entry: its group, and its number in the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct EntryPosition {
    pub(crate) group: usize,
    pub(crate) entry: usize,
}

impl Block {
    /// Checks a payload, and builds the block with its search data in an allocation of `arena`. The
    /// error is a reason in words.
    pub(crate) fn parse(
        arena: &Arena,
        body: &[u8],
        derive: SearchDataKind<'_>,
    ) -> Result<Block, &'static str> {
        let BlockSearchData { sections, padding, directory } = build_search_data(body, derive)?;
        if sections.len() + body.len() + padding.len() + directory.len() >= Allocation::BYTES_MAX {
            return Err(TOO_LONG);
        }
        Ok(Block { piece: arena.store(&[&sections, body, padding, &directory]) })
    }

    /// Returns the block in the allocation `piece`. REQUIRES: `piece` came from
    /// [`Block::into_piece`].
    pub(crate) fn from_piece(piece: Allocation) -> Block {
        Block { piece }
    }

    /// Returns the allocation of the block, for a slot.
    pub(crate) fn into_piece(self) -> Allocation {
        self.piece
    }

    /// Returns a view of the block for searches.
    #[inline]
    pub(crate) fn view(&self) -> BlockView<'_> {
        BlockView { bytes: &self.piece }
    }

    /// Bytes of memory that the block takes.
    pub fn memory_bytes(&self) -> usize {
        self.piece.memory_bytes()
    }

    /// Number of entries in the block.
    pub fn entries(&self) -> usize {
        self.view().counts().1
    }

    pub(crate) fn groups(&self) -> usize {
        self.view().counts().0
    }

    pub(crate) fn group_entries(&self, group: usize) -> usize {
        self.view().group(group).map_or(0, |group| group.count)
    }

    /// The prefix of a group's keys.
    pub(crate) fn prefix(&self, group: usize) -> &[u8] {
        let view = self.view();
        view.group(group).map_or(&[], |group| view.prefix_of(&group))
    }

    /// Returns the entry at a position; `None` if the block has no such position.
    pub(crate) fn entry(&self, place: EntryPosition) -> Option<Entry<'_>> {
        let view = self.view();
        view.entry_of(&view.group(place.group)?, place.entry)
    }

    /// Returns the bytes of the block from offset `at` on.
    #[inline]
    pub(crate) fn bytes_from(&self, at: usize) -> &[u8] {
        self.piece.get(at..).unwrap_or_default()
    }

    /// Returns the bytes of the block from `start` to `end`.
    #[inline]
    pub(crate) fn bytes(&self, start: usize, end: usize) -> &[u8] {
        self.piece.get(start..end).unwrap_or_default()
    }

    /// Returns the position of the block's last entry.
    pub(crate) fn last(&self) -> EntryPosition {
        let group = self.groups().saturating_sub(1);
        EntryPosition { group, entry: self.group_entries(group).saturating_sub(1) }
    }
}

impl<'a> BlockView<'a> {
    /// Returns a view of the block in the bytes of an allocation that came from
    /// [`Block::into_piece`].
    #[inline]
    pub(crate) fn new(bytes: &'a [u8]) -> BlockView<'a> {
        BlockView { bytes }
    }

    /// Returns the number of groups and the number of entries.
    pub(crate) fn counts(self) -> (usize, usize) {
        let Some(tail) = self.bytes.last_chunk::<TAIL_BYTES>() else { return (0, 0) };
        let [[a, b, c, d], [e, f, g, h]] = [0, 4].map(|at| [0, 1, 2, 3].map(|i| tail[at + i]));
        (u32::from_le_bytes([a, b, c, d]) as usize, u32::from_le_bytes([e, f, g, h]) as usize)
    }

    /// Returns a group by its number.
    pub(crate) fn group(self, number: usize) -> Option<SearchGroup> {
        if number == 0 {
            return self.group_at(0);
        }
        let groups = self.counts().0;
        // A search for a key after the last one names the group after the last.
        if number >= groups {
            return None;
        }
        let directory = self.bytes.len() - TAIL_BYTES - 4 * groups;
        let start = self.bytes.get(directory + 4 * number..)?.first_chunk::<4>()?;
        self.group_at(u32::from_le_bytes(*start) as usize)
    }

    #[inline(always)]
    pub(crate) fn group_at(self, at: usize) -> Option<SearchGroup> {
        let head =
            u64::from_le_bytes(*self.bytes.get(at..)?.first_chunk::<SECTION_HEADER_BYTES>()?);
        let packed = (head >> 32) as u32;
        let prefix_len = (packed & packed::PREFIX_LEN) as usize;
        let inline = if prefix_len <= SECTION_PREFIX_MAX { prefix_len } else { 0 };
        let count = (packed >> packed::COUNT_AT & packed::COUNT) as usize;
        let tags_at = at + SECTION_HEADER_BYTES + inline;
        Some(SearchGroup { at, base: head as u32 as usize, prefix_len, count, packed, tags_at })
    }

    #[inline]
    pub(crate) fn prefix_of(self, group: &SearchGroup) -> &'a [u8] {
        let start = group.at + SECTION_HEADER_BYTES;
        let start = if group.prefix_len <= SECTION_PREFIX_MAX {
            start
        } else {
            group.base.saturating_sub(group.prefix_len)
        };
        self.bytes.get(start..start + group.prefix_len).unwrap_or_default()
    }

    /// Returns the rest of `key` after the group's prefix; `None` if `key` does not start with the
    /// prefix.
    #[inline(always)]
    pub(crate) fn strip_prefix<'k>(self, group: &SearchGroup, key: &'k [u8]) -> Option<&'k [u8]> {
        if group.prefix_len <= INLINE_PREFIX {
            let prefix = self.bytes.get(group.at + SECTION_HEADER_BYTES..)?.first_chunk()?;
            return strip_inline(key, prefix, group.prefix_len);
        }
        key.strip_prefix(self.prefix_of(group))
    }

    #[inline(always)]
    pub(crate) fn entry_of(self, group: &SearchGroup, entry: usize) -> Option<Entry<'a>> {
        read_entry(self.bytes, self.start_of(group, entry)?)
    }

    /// Returns the offset at which an entry starts.
    #[inline(always)]
    pub(crate) fn start_of(self, group: &SearchGroup, entry: usize) -> Option<usize> {
        if entry >= group.count {
            return None;
        }
        let tags = if group.packed & packed::TAGGED != 0 { group.count } else { 0 };
        let at = group.tags_at + tags + 2 * entry;
        let offset = u16::from_le_bytes(*self.bytes.get(at..)?.first_chunk::<2>()?);
        Some(group.base + usize::from(offset))
    }

    /// Returns the first group whose last entry is at or after (`key`, `sequence`); the number of
    /// groups if no such group exists.
    pub(crate) fn find_group(self, key: &[u8], sequence: SequenceNumber) -> usize {
        let (mut low, mut high) = (0, self.counts().0);
        while low < high {
            let middle = (low + high) / 2;
            let before = self.group(middle).is_some_and(|group| {
                let Some(last) = self.entry_of(&group, group.count.saturating_sub(1)) else {
                    return false;
                };
                let prefix = self.prefix_of(&group);
                let shared = prefix.len().min(key.len());
                let order = prefix
                    .cmp(&key[..shared])
                    .then_with(|| last.suffix.cmp(key.get(prefix.len()..).unwrap_or_default()))
                    .then_with(|| sequence.cmp(&last.sequence));
                order == Ordering::Less
            });
            if before {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Returns the heads of a group, if the block has heads.
    pub(crate) fn heads_of(self, group: &SearchGroup) -> &'a [u8] {
        let tags = if group.packed & packed::TAGGED != 0 { group.count } else { 0 };
        let start = group.tags_at + tags + 2 * group.count;
        self.bytes.get(start..start + 4 * group.count).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use umbel_base::ValueKind;
    use umbel_filter::{HashSecret, KeyHasher};

    use crate::block::block_builder::BlockBuilder;

    fn build(entries: &[(&[u8], u64, &[u8])]) -> Vec<u8> {
        let mut builder = BlockBuilder::default();
        for (key, sequence, value) in entries {
            builder.add(key, *sequence, ValueKind::Put, value);
        }
        builder.payload()
    }

    fn parse(body: &[u8], derive: SearchDataKind<'_>) -> Result<Block, &'static str> {
        Block::parse(&Arena::new(), body, derive)
    }

    #[test]
    fn point_read_header_fits_two_cache_lines() {
        let hasher = KeyHasher::keyed(HashSecret::from_seed([3; 16]));
        let keys: Vec<[u8; 16]> = (0..33u128).map(|i| (i << 100).to_be_bytes()).collect();
        let entries: Vec<_> = keys.iter().map(|key| (key.as_slice(), 5, &[1u8; 100][..])).collect();
        let block = parse(&build(&entries), SearchDataKind::Full(Some(&hasher))).unwrap();
        let group = block.view().group_at(0).unwrap();
        // In front of a piece's bytes stand sixteen of its own.
        assert!(16 + group.tags_at + 3 * group.count <= 128);
        assert_eq!(group.count, 33);
    }

    #[test]
    fn tiny_blocks_and_long_prefixes_are_searched_alike() {
        let hasher = KeyHasher::keyed(HashSecret::from_seed([3; 16]));
        for len in [0usize, 1, 15, 16, 17, 63, 64, 65, 200, 65_535] {
            let keys: Vec<Vec<u8>> = (0..3u8).map(|i| [vec![9; len], vec![i]].concat()).collect();
            for count in 1..=3 {
                let entries: Vec<_> =
                    keys[..count].iter().map(|key| (key.as_slice(), 5, &key[len..])).collect();
                let block = parse(&build(&entries), SearchDataKind::Full(Some(&hasher))).unwrap();
                for (number, key) in keys.iter().enumerate() {
                    let found = block.view().find(key, hasher.hash(key), 9);
                    let may_be = block.view().prefetch_entry(key, hasher.hash(key));
                    let expected = (number < count).then_some(&key[len..]);
                    assert_eq!(found.map(|entry| entry.value), expected, "{len} {count}");
                    assert!(may_be || expected.is_none(), "{len} {count}");
                }
                assert!(block.view().find(&keys[0][..len], 7, 9).is_none());
            }
        }
    }

    #[test]
    fn every_search_agrees() {
        let hasher = KeyHasher::keyed(HashSecret::from_seed([3; 16]));
        let keys: Vec<Vec<u8>> = (0..700u32).map(|i| format!("path/{:05}", i * 3).into()).collect();
        let entries: Vec<_> = keys.iter().map(|key| (key.as_slice(), 5, &key[5..])).collect();
        for count in [1, 2, 63, 64, 65, 200, 700] {
            let body = build(&entries[..count]);
            let derived = [
                SearchDataKind::Offsets,
                SearchDataKind::Full(None),
                SearchDataKind::Full(Some(&hasher)),
            ];
            for derive in derived {
                let block = parse(&body, derive).unwrap();
                assert_eq!(block.entries(), count);
                for (key, _, value) in &entries {
                    let there = *key <= entries[count - 1].0;
                    let found = block.view().find(key, hasher.hash(key), 9);
                    assert_eq!(found.map(|entry| entry.value), there.then_some(*value));
                    assert_eq!(block.view().find(key, hasher.hash(key), 4), None);
                    assert!(block.view().prefetch_entry(key, hasher.hash(key)) || !there);
                    let bound = block.lower_bound(key, 4).and_then(|place| block.entry(place));
                    assert!(bound.is_none_or(|entry| entry.value > *value));
                }
                assert_eq!(block.view().find(b"path/", hasher.hash(b"path/"), 9), None);
                assert_eq!(block.lower_bound(b"", 9), Some(EntryPosition::default()));
                assert_eq!(block.lower_bound(b"q", 9), None);
            }
        }
    }

    #[test]
    fn cut_and_flipped_payloads_never_panic() {
        let hasher = KeyHasher::keyed(HashSecret::from_seed([3; 16]));
        let body = build(&[(b"apple", 1 << 40, b"1"), (b"apple", 3, b"2"), (b"apricot", 4, b"3")]);
        for cut in 0..body.len() {
            assert!(parse(&body[..cut], SearchDataKind::Full(Some(&hasher))).is_err());
        }
        for index in 0..body.len() {
            for flip in 1..=255u8 {
                let mut flipped = body.clone();
                flipped[index] ^= flip;
                if let Ok(block) = parse(&flipped, SearchDataKind::Full(Some(&hasher))) {
                    block.view().find(b"apple", hasher.hash(b"apple"), 9);
                    block.lower_bound(b"apple", 9);
                }
            }
        }
    }
}
