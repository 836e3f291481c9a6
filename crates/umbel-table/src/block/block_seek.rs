//! The search for the first entry at or after a key, in two parts. The first part compares heads
//! and leaves a range of entries; the second part reads these entries. A caller that seeks in many
//! tables does the first part in all of them and prefetches the entries, so that the cache misses
//! overlap.

use std::cmp::Ordering;

use umbel_arena::prefetch_lines;
use umbel_base::SequenceNumber;

use crate::block::block_search_data::packed;
use crate::block::{Block, BlockView, EntryPosition, SearchGroup};
use crate::format::head32;

/// Number of cache lines that are prefetched of the entry at a seek target.
const LINES: usize = 4;

/// Range in which a search by heads leaves the position of a key. Entries of the group before `low`
/// are before the key, and entries from `high` on are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SeekRange {
    number: usize,
    pub(crate) group: SearchGroup,
    low: usize,
    high: usize,
}

impl SeekRange {
    /// Maximum number of entries of the group that can be at or after the key.
    #[inline]
    pub(crate) fn remaining(&self) -> usize {
        self.group.count - self.low
    }
}

/// Finds the range of the first entry at or after (`key`, `sequence`) in a block of one group,
/// without reading an entry. Prefetches the entries that the second part reads. Returns `None` if
/// all entries are before the key.
#[inline]
pub(crate) fn narrow_range(
    block: &Block,
    key: &[u8],
    sequence: SequenceNumber,
) -> Option<SeekRange> {
    let view = block.view();
    let mut group = view.group_at(0)?;
    let mut number = 0;
    // Of a single group the last entry, which is far from the others, need not be read.
    if group.packed & packed::MORE != 0 {
        number = view.find_group(key, sequence);
        group = if number < block.groups() { view.group(number)? } else { return None };
    }
    let (low, high) = match view.strip_prefix(&group, key) {
        Some(suffix) => equal_heads(view, &group, suffix),
        None if view.prefix_of(&group) < key => (group.count, group.count),
        None => (0, 0),
    };
    let ask = |entry: usize, lines: usize| {
        if let Some(start) = view.start_of(&group, entry) {
            prefetch_lines(view.bytes, start, lines);
        }
    };
    ask(low, LINES);
    if high - low > 1 {
        // Those that a search by halves reads first.
        let middle = (low + high) / 2;
        [middle, (low + middle) / 2, (middle + high) / 2].into_iter().for_each(|at| ask(at, 1));
    }
    Some(SeekRange { number, group, low, high })
}

/// Returns the range of entries whose heads equal the head of `suffix`. The position of `suffix` is
/// in or directly after this range.
#[inline]
fn equal_heads(view: BlockView<'_>, group: &SearchGroup, suffix: &[u8]) -> (usize, usize) {
    if group.packed & packed::HEADED == 0 {
        return (0, group.count);
    }
    let wanted = head32(suffix);
    let heads = view.heads_of(group).as_chunks::<4>().0.iter();
    let (less, equal) = heads.fold((0u32, 0u32), |(less, equal), head| {
        let head = u32::from_le_bytes(*head);
        (less + u32::from(head < wanted), equal + u32::from(head == wanted))
    });
    (less as usize, (less + equal) as usize)
}

/// Returns the first entry at or after (`key`, `sequence`); `None` if all entries of its group are
/// before.
/// REQUIRES: the arguments and the result of [`narrow_range`].
#[inline]
pub(crate) fn find_in_range(
    block: &Block,
    narrowed: &SeekRange,
    key: &[u8],
    sequence: SequenceNumber,
) -> Option<EntryPosition> {
    let SeekRange { number, ref group, mut low, mut high } = *narrowed;
    if low < high {
        let view = block.view();
        let suffix = view.strip_prefix(group, key)?;
        while low < high {
            let middle = (low + high) / 2;
            let before = view.entry_of(group, middle).is_some_and(|entry| {
                let order = entry.suffix.cmp(suffix);
                order.then_with(|| sequence.cmp(&entry.sequence)) == Ordering::Less
            });
            if before {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
    }
    (low < group.count).then_some(EntryPosition { group: number, entry: low })
}

impl Block {
    /// Returns the first entry at or after (`key`, `sequence`); `None` if all entries are before.
    pub(crate) fn lower_bound(
        &self,
        key: &[u8],
        sequence: SequenceNumber,
    ) -> Option<EntryPosition> {
        find_in_range(self, &narrow_range(self, key, sequence)?, key, sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use umbel_arena::Arena;
    use umbel_base::{ValueKind, cmp_internal};

    use crate::block::block_builder::BlockBuilder;
    use crate::block::block_search_data::SearchDataKind;

    proptest! {
        #[test]
        fn two_part_seek_equals_a_scan(
            keys in proptest::collection::btree_set(
                proptest::collection::vec(0u8..3, 0..9), 1..200,
            ),
            long: bool,
            headed: bool,
            wanted in proptest::collection::vec(
                (proptest::collection::vec(0u8..3, 0..9), 0u64..9), 1..20,
            ),
        ) {
            let long_key = |key: &Vec<u8>| [&vec![1; if long { 70 } else { 0 }], &key[..]].concat();
            let mut builder = BlockBuilder::default();
            for key in &keys {
                builder.add(&long_key(key), 7, ValueKind::Put, b"value");
                builder.add(&long_key(key), 3, ValueKind::Put, b"old");
            }
            let derive = if headed { SearchDataKind::Full(None) } else { SearchDataKind::Offsets };
            let block = Block::parse(&Arena::new(), &builder.payload(), derive).unwrap();
            for (key, sequence) in wanted {
                for key in [long_key(&key), key] {
                    let parts = narrow_range(&block, &key, sequence)
                        .and_then(|narrowed| find_in_range(&block, &narrowed, &key, sequence));
                    let places = (0..block.groups()).flat_map(|group| {
                        let entries = 0..block.group_entries(group);
                        entries.map(move |entry| EntryPosition { group, entry })
                    });
                    let mut walked = places.filter(|&place| {
                        let entry = block.entry(place).unwrap();
                        let own = [block.prefix(place.group), entry.suffix].concat();
                        cmp_internal(&own, entry.sequence, &key, sequence).is_ge()
                    });
                    prop_assert_eq!(parts, walked.next());
                    prop_assert_eq!(parts, block.lower_bound(&key, sequence));
                }
            }
        }
    }
}
