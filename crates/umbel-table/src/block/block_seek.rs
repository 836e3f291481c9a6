//! The search for the first entry at or behind a key, in two parts: what heads say of its place,
//! and the entries themselves. Who seeks in many tables does the first part in all of them and
//! asks for the entries, so that the waiting for them overlaps.

use std::cmp::Ordering;

use umbel_arena::prefetch_lines;
use umbel_base::SequenceNumber;

use crate::block::{Block, Group, Place, View};
use crate::format::head32;
use crate::section::packed;

/// So many lines of the entry that a seek goes to are asked for.
const LINES: usize = 4;

/// What heads say of a place: all entries of the group before `low` stand before it, none from
/// `high` on does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Narrowed {
    number: usize,
    pub(crate) group: Group,
    low: usize,
    high: usize,
}

impl Narrowed {
    /// How many entries of the group may stand at the place or behind it, at most.
    #[inline]
    pub(crate) fn left(&self) -> usize {
        self.group.count - self.low
    }
}

/// Finds out without reading an entry, in a block of one group, where the first entry at or behind
/// (`key`, `sequence`) stands, and asks for what is read next. `None` where all stand before.
#[inline]
pub(crate) fn narrow(block: &Block, key: &[u8], sequence: SequenceNumber) -> Option<Narrowed> {
    let view = block.view();
    let mut group = view.group_at(0)?;
    let mut number = 0;
    // Of a single group the last entry, which is far from the others, need not be read.
    if group.packed & packed::MORE != 0 {
        number = view.group_of(key, sequence);
        group = if number < block.groups() { view.group(number)? } else { return None };
    }
    let (low, high) = match view.strip(&group, key) {
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
    Some(Narrowed { number, group, low, high })
}

/// Where the entries stand whose heads are that of `suffix`, among which it has its place.
#[inline]
fn equal_heads(view: View<'_>, group: &Group, suffix: &[u8]) -> (usize, usize) {
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

/// The first entry at or behind (`key`, `sequence`). `None` where all of its group stand before.
/// REQUIRES: what [`narrow`] got and gave.
#[inline]
pub(crate) fn place_among(
    block: &Block,
    narrowed: &Narrowed,
    key: &[u8],
    sequence: SequenceNumber,
) -> Option<Place> {
    let Narrowed { number, ref group, mut low, mut high } = *narrowed;
    if low < high {
        let view = block.view();
        let suffix = view.strip(group, key)?;
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
    (low < group.count).then_some(Place { group: number, entry: low })
}

impl Block {
    /// The first entry at or behind (`key`, `sequence`). `None` where all stand before.
    pub(crate) fn lower_bound(&self, key: &[u8], sequence: SequenceNumber) -> Option<Place> {
        place_among(self, &narrow(self, key, sequence)?, key, sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use umbel_arena::Arena;
    use umbel_base::{ValueKind, cmp_internal};

    use crate::block_builder::BlockBuilder;
    use crate::section::Derive;

    proptest! {
        #[test]
        fn in_two_parts_it_finds_what_a_walk_finds(
            keys in proptest::collection::btree_set(
                proptest::collection::vec(0u8..3, 0..9), 1..200,
            ),
            long: bool,
            headed: bool,
            wanted in proptest::collection::vec(
                (proptest::collection::vec(0u8..3, 0..9), 0u64..9), 1..20,
            ),
        ) {
            let whole = |key: &Vec<u8>| [&vec![1; if long { 70 } else { 0 }], &key[..]].concat();
            let mut builder = BlockBuilder::default();
            for key in &keys {
                builder.add(&whole(key), 7, ValueKind::Put, b"value");
                builder.add(&whole(key), 3, ValueKind::Put, b"old");
            }
            let derive = if headed { Derive::All(None) } else { Derive::Offsets };
            let block = Block::parse(&Arena::new(), &builder.payload(), derive).unwrap();
            for (key, sequence) in wanted {
                for key in [whole(&key), key] {
                    let parts = narrow(&block, &key, sequence)
                        .and_then(|narrowed| place_among(&block, &narrowed, &key, sequence));
                    let places = (0..block.groups()).flat_map(|group| {
                        let entries = 0..block.group_entries(group);
                        entries.map(move |entry| Place { group, entry })
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
