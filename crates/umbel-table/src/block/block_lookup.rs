//! Point reads in a block: by the tags, where it has them.

use std::cmp::Ordering;

use umbel_arena::{equal_in_line, prefetch_lines};
use umbel_base::SequenceNumber;

use crate::block::{Group, View};
use crate::format::{GROUP_ENTRIES_MAX, head32, same};
use crate::parts::{Parts, Trailer, read_any, read_usual};
use crate::section::packed;
use crate::tags::tag;

/// Up to this many groups a point read looks at the tags of each rather than search for its own.
const GROUPS_BY_TAG_MAX: usize = 4;
/// From so many equal tags on, which only versions of one key bring about, a point read searches
/// by halves.
const VERSIONS_BY_TAG_MAX: u32 = 8;
/// Lines of an entry that a point read asks for: a key and a value of a hundred bytes.
const ENTRY_LINES: usize = 3;
/// Lines of a block of the usual size that have its tags and offsets.
const HEADER_LINES: usize = 3;

/// What a point read finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found<'a> {
    pub(crate) trailer: Trailer,
    pub(crate) value: &'a [u8],
}

impl<'a> View<'a> {
    /// One bit for each entry of a tagged group whose tag is the hash's.
    #[inline(always)]
    fn candidates(self, group: &Group, hash: u64) -> u64 {
        let tags = self.bytes.get(group.tags_at..).and_then(|bytes| bytes.first_chunk());
        let Some(tags) = tags else { return 0 };
        equal_in_line(tags, tag(hash))
            & (u64::MAX >> (GROUP_ENTRIES_MAX - group.count.clamp(1, 64)))
    }

    /// The newest version of `key` in this block that is not newer than `sequence`. `hash` is the
    /// key's, by the hash the block was loaded with.
    #[inline]
    pub(crate) fn find(self, key: &[u8], hash: u64, sequence: SequenceNumber) -> Option<Found<'a>> {
        // Asked for before the first one says where in them to look.
        prefetch_lines(self.bytes, 64, HEADER_LINES - 1);
        let group = self.group_at(0)?;
        if group.packed & (packed::TAGGED | packed::MORE) == packed::TAGGED {
            return self.find_in(&group, key, hash, sequence);
        }
        self.find_in_groups(&group, key, hash, sequence)
    }

    #[inline(always)]
    fn find_in(
        self,
        group: &Group,
        key: &[u8],
        hash: u64,
        sequence: SequenceNumber,
    ) -> Option<Found<'a>> {
        let mut candidates = self.candidates(group, hash);
        if candidates == 0 {
            return None;
        }
        let suffix = self.strip(group, key)?;
        loop {
            let start = self.start_of(group, candidates.trailing_zeros() as usize)?;
            // The value is read next, and where it stands is not known before the entry is.
            prefetch_lines(self.bytes, start + 64, ENTRY_LINES - 1);
            let found = self.found_at(start, suffix, sequence);
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

    /// The entry at `start`, where it is one of `suffix` and not newer than `sequence`.
    #[inline(always)]
    fn found_at(self, start: usize, suffix: &[u8], sequence: SequenceNumber) -> Option<Found<'a>> {
        let bytes = self.bytes.get(start..)?;
        let parts = read_usual(bytes).or_else(|| read_any(bytes))?;
        let value_at = parts.suffix_at + parts.suffix_len;
        let Parts { trailer, .. } = parts;
        if !same(bytes.get(parts.suffix_at..value_at)?, suffix)
            || (sequence != SequenceNumber::MAX && trailer.sequence() > sequence)
        {
            return None;
        }
        let value = bytes.get(value_at..value_at + parts.value_len)?;
        Some(Found { trailer, value })
    }

    #[inline(never)]
    fn find_version(
        self,
        group: &Group,
        suffix: &[u8],
        sequence: SequenceNumber,
    ) -> Option<Found<'a>> {
        let start = self.start_of(group, self.lower_bound_in(group, suffix, sequence))?;
        self.found_at(start, suffix, sequence)
    }

    #[inline(never)]
    fn find_in_groups(
        self,
        first: &Group,
        key: &[u8],
        hash: u64,
        sequence: SequenceNumber,
    ) -> Option<Found<'a>> {
        let groups = self.tail().0;
        if first.packed & packed::TAGGED != 0 && groups <= GROUPS_BY_TAG_MAX {
            let mut groups = (0..groups).filter_map(|number| self.group(number));
            return groups.find_map(|group| self.find_in(&group, key, hash, sequence));
        }
        let group = self.group(self.group_of(key, sequence))?;
        if group.packed & packed::TAGGED != 0 {
            return self.find_in(&group, key, hash, sequence);
        }
        self.find_version(&group, self.strip(&group, key)?, sequence)
    }

    /// Asks for the lines of the entry that the key of `hash` may be, by the tags.
    #[inline]
    pub(crate) fn prefetch_entry(self, key: &[u8], hash: u64) {
        let Some(mut group) = self.group_at(0) else { return };
        if group.packed & packed::TAGGED == 0 {
            return;
        }
        if group.packed & packed::MORE != 0 {
            let number = self.group_of(key, SequenceNumber::MAX);
            let Some(own) = self.group(number) else { return };
            group = own;
        }
        let candidates = self.candidates(&group, hash);
        if let Some(start) = self.start_of(&group, candidates.trailing_zeros() as usize) {
            prefetch_lines(self.bytes, start, ENTRY_LINES);
        }
    }

    /// The number of entries of the group that stand before (`suffix`, `sequence`).
    fn lower_bound_in(self, group: &Group, suffix: &[u8], sequence: SequenceNumber) -> usize {
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
