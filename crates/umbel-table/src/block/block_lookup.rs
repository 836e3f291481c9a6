//! Point reads in a block, which use the block's tags if it has any.

use std::cmp::Ordering;

use umbel_arena::{equal_in_line, prefetch_lines};
use umbel_base::SequenceNumber;

use crate::block::block_search_data::packed;
use crate::block::block_search_data::tag;
use crate::block::entry_layout::{EntryLayout, Trailer, read_long, read_short};
use crate::block::{BlockView, SearchGroup};
use crate::format::{GROUP_ENTRIES_MAX, bytes_equal, head32};

/// In a block of up to this many groups, a point read checks the tags of every group instead of
/// searching for the key's group.
const GROUPS_BY_TAG_MAX: usize = 4;
/// From this number of equal tags on, a point read uses binary search. Only many versions of one
/// key give that many equal tags.
const VERSIONS_BY_TAG_MAX: u32 = 8;
/// Number of cache lines of an entry that a point read prefetches: enough for a key and a value of
/// a hundred bytes.
const ENTRY_LINES: usize = 3;
/// Number of cache lines with the tags and offsets of a block of the usual size.
const HEADER_LINES: usize = 3;

/// Result of a point read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockHit<'a> {
    pub(crate) trailer: Trailer,
    pub(crate) value: &'a [u8],
}

impl<'a> BlockView<'a> {
    /// Returns a mask with one bit for each entry of a tagged group whose tag equals the tag of
    /// `hash`.
    #[inline(always)]
    fn candidates(self, group: &SearchGroup, hash: u64) -> u64 {
        let tags = self.bytes.get(group.tags_at..).and_then(|bytes| bytes.first_chunk());
        let Some(tags) = tags else { return 0 };
        equal_in_line(tags, tag(hash))
            & (u64::MAX >> (GROUP_ENTRIES_MAX - group.count.clamp(1, 64)))
    }

    /// Returns the newest version of `key` in this block that is not newer than `sequence`. `hash`
    /// is the key's hash, by the hash function with which the block was loaded.
    #[inline]
    pub(crate) fn find(
        self,
        key: &[u8],
        hash: u64,
        sequence: SequenceNumber,
    ) -> Option<BlockHit<'a>> {
        // Requested before the first one says where in them to look.
        prefetch_lines(self.bytes, 64, HEADER_LINES - 1);
        let group = self.group_at(0)?;
        if group.packed & (packed::TAGGED | packed::MORE) == packed::TAGGED {
            return self.find_in_group(&group, key, hash, sequence);
        }
        self.find_in_groups(&group, key, hash, sequence)
    }

    #[inline(always)]
    fn find_in_group(
        self,
        group: &SearchGroup,
        key: &[u8],
        hash: u64,
        sequence: SequenceNumber,
    ) -> Option<BlockHit<'a>> {
        let mut candidates = self.candidates(group, hash);
        if candidates == 0 {
            return None;
        }
        let suffix = self.strip_prefix(group, key)?;
        loop {
            let start = self.start_of(group, candidates.trailing_zeros() as usize)?;
            // The value is read next, and where it stands is not known before the entry is.
            prefetch_lines(self.bytes, start + 64, ENTRY_LINES - 1);
            let found = self.hit_at(start, suffix, sequence);
            if found.is_some() {
                return found;
            }
            candidates &= candidates - 1;
            if candidates == 0 {
                return None;
            }
            if candidates.count_ones() >= VERSIONS_BY_TAG_MAX {
                return self.find_version(group, suffix, sequence);
            }
        }
    }

    /// Returns the entry at `start` if its key is `suffix` and it is not newer than `sequence`.
    #[inline(always)]
    fn hit_at(self, start: usize, suffix: &[u8], sequence: SequenceNumber) -> Option<BlockHit<'a>> {
        let bytes = self.bytes.get(start..)?;
        let parts = read_short(bytes).or_else(|| read_long(bytes))?;
        let value_at = parts.suffix_at + parts.suffix_len;
        let EntryLayout { trailer, .. } = parts;
        if !bytes_equal(bytes.get(parts.suffix_at..value_at)?, suffix)
            || (sequence != SequenceNumber::MAX && trailer.sequence() > sequence)
        {
            return None;
        }
        let value = bytes.get(value_at..value_at + parts.value_len)?;
        Some(BlockHit { trailer, value })
    }

    #[inline(never)]
    fn find_version(
        self,
        group: &SearchGroup,
        suffix: &[u8],
        sequence: SequenceNumber,
    ) -> Option<BlockHit<'a>> {
        let start = self.start_of(group, self.lower_bound_in(group, suffix, sequence))?;
        self.hit_at(start, suffix, sequence)
    }

    #[inline(never)]
    fn find_in_groups(
        self,
        first: &SearchGroup,
        key: &[u8],
        hash: u64,
        sequence: SequenceNumber,
    ) -> Option<BlockHit<'a>> {
        let groups = self.counts().0;
        if first.packed & packed::TAGGED != 0 && groups <= GROUPS_BY_TAG_MAX {
            let mut groups = (0..groups).filter_map(|number| self.group(number));
            return groups.find_map(|group| self.find_in_group(&group, key, hash, sequence));
        }
        let group = self.group(self.find_group(key, sequence))?;
        if group.packed & packed::TAGGED != 0 {
            return self.find_in_group(&group, key, hash, sequence);
        }
        self.find_version(&group, self.strip_prefix(&group, key)?, sequence)
    }

    /// Prefetches the cache lines of the entry that possibly has the key, according to the tags.
    /// Returns false if the tags show that the block has no entry of the key.
    #[inline]
    pub(crate) fn prefetch_entry(self, key: &[u8], hash: u64) -> bool {
        let Some(mut group) = self.group_at(0) else { return true };
        if group.packed & packed::TAGGED == 0 {
            return true;
        }
        let has_more = group.packed & packed::MORE != 0;
        if has_more {
            let number = self.find_group(key, SequenceNumber::MAX);
            let Some(own) = self.group(number) else { return true };
            group = own;
        }
        let candidates = self.candidates(&group, hash);
        if let Some(start) = self.start_of(&group, candidates.trailing_zeros() as usize) {
            prefetch_lines(self.bytes, start, ENTRY_LINES);
        }
        // Older entries of the key are possibly in later groups.
        has_more || candidates != 0
    }

    /// Returns the number of entries of the group that are before (`suffix`, `sequence`).
    fn lower_bound_in(self, group: &SearchGroup, suffix: &[u8], sequence: SequenceNumber) -> usize {
        let (mut low, mut high) = (0, group.count);
        if group.packed & packed::HEADED != 0 {
            let wanted = head32(suffix);
            let heads = self.heads_of(group).as_chunks::<4>().0.iter();
            let (less, equal) = heads.fold((0u32, 0u32), |(less, equal), head| {
                let head = u32::from_le_bytes(*head);
                (less + u32::from(head < wanted), equal + u32::from(head == wanted))
            });
            low = less as usize;
            high = low + equal as usize;
        }
        while low < high {
            let middle = (low + high) / 2;
            let before = self.entry_of(group, middle).is_some_and(|entry| {
                let order = entry.suffix.cmp(suffix);
                order.then_with(|| sequence.cmp(&entry.sequence)) == Ordering::Less
            });
            if before {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}
