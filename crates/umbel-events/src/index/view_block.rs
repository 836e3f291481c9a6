//! [`Block`]: a run of a view's entries, and [`ViewHead`]: what is kept of each view.

use umbel_base::{Decoder, varint};

/// Most entries of a block.
pub const BLOCK_ENTRIES: usize = 1024;
/// Positions are multiples of so many bytes.
const STEP_BYTES: u64 = 8;

/// A run of a view's entries: the number of each and the position of its event.
///
/// FORMAT: `docs/formats/event-index.md`. Numbers and positions grow from entry to entry.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Block {
    /// The number of the first entry.
    pub first: u64,
    /// The position of the first entry's event.
    pub first_position: u64,
    /// The number of the last entry.
    pub last: u64,
    /// The position of the last entry's event.
    pub last_position: u64,
    count: usize,
    /// What each entry but the first adds to the one before it.
    steps: Vec<u8>,
}

impl Block {
    /// Whether it has no entry.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether it has as many entries as it may.
    pub fn is_full(&self) -> bool {
        self.count >= BLOCK_ENTRIES
    }

    /// Bytes of memory it takes besides itself.
    pub fn held_bytes(&self) -> usize {
        self.steps.capacity()
    }

    /// Adds an entry. REQUIRES: number and position are higher than those of the last one, and the
    /// block is not full.
    #[inline]
    pub fn push(&mut self, number: u64, position: u64) {
        if self.count == 0 {
            (self.first, self.first_position) = (number, position);
        } else {
            let step = (position - self.last_position) / STEP_BYTES;
            let skipped = number - self.last - 1;
            varint::put_u64(&mut self.steps, step << 1 | u64::from(skipped > 0));
            if skipped > 0 {
                varint::put_u64(&mut self.steps, skipped);
            }
        }
        (self.last, self.last_position) = (number, position);
        self.count += 1;
    }

    /// The same block, or with a planted bug what is left of it.
    #[cfg(feature = "canary")]
    pub fn planted(self) -> Block {
        if !umbel_base::canary::Switch::ViewBlockShort.is_on() {
            return self;
        }
        let mut shorter = Block::default();
        let entries = self.entries().take(self.count - 1);
        entries.for_each(|(number, position)| shorter.push(number, position));
        shorter
    }

    /// The entries, in order.
    pub fn entries(&self) -> Entries<'_> {
        let next = (self.count > 0).then_some((self.first, self.first_position));
        Entries { next, decoder: Decoder::new(&self.steps) }
    }

    /// Adds to `found` the entries from the number `from` on, or with `backwards` those up to it,
    /// the last one first, until there are `most`. All numbers are higher by `base` than here.
    pub fn take_page(
        &self,
        base: u64,
        (from, backwards): (u64, bool),
        most: usize,
        found: &mut Vec<(u64, u64)>,
    ) {
        let entries = self.entries().map(|(number, position)| (base + number, position));
        let left = most.saturating_sub(found.len());
        if !backwards {
            return found.extend(entries.filter(|(number, _)| *number >= from).take(left));
        }
        let before: Vec<_> = entries.take_while(|(number, _)| *number <= from).collect();
        found.extend(before.into_iter().rev().take(left));
    }

    /// How many numbers were given up to the last of its entries that stands at `position` or
    /// before it; `None` where none does.
    pub fn numbers_through(&self, position: u64) -> Option<u64> {
        if self.last_position <= position && self.count > 0 {
            return Some(self.last + 1);
        }
        let before = self.entries().take_while(|(_, at)| *at <= position);
        before.last().map(|(number, _)| number + 1)
    }

    /// Writes it as bytes behind what is in `out`, its positions counted from `start`.
    pub fn encode(&self, start: u64, out: &mut Vec<u8>) {
        varint::put_u64(out, self.count as u64);
        varint::put_u64(out, self.first_position - start);
        out.extend_from_slice(&self.steps);
    }

    /// Reads all of what [`Block::encode`] wrote; `None` where it is malformed.
    pub fn decode(first: u64, start: u64, bytes: &[u8]) -> Option<Block> {
        let mut decoder = Decoder::new(bytes);
        let count = decoder.varint_usize().filter(|count| (1..=BLOCK_ENTRIES).contains(count))?;
        let first_position = start.checked_add(decoder.varint()?)?;
        let steps = bytes[decoder.position()..].to_vec();
        let (mut last, mut last_position) = (first, first_position);
        for _ in 1..count {
            (last, last_position) = next_entry(&mut decoder, (last, last_position))?;
        }
        let block = Block { first, first_position, last, last_position, count, steps };
        (decoder.is_done() && last < u64::MAX).then_some(block)
    }
}

/// The entry behind `before`; `None` where the bytes say of none.
fn next_entry(decoder: &mut Decoder<'_>, before: (u64, u64)) -> Option<(u64, u64)> {
    let step = decoder.varint()?;
    let skipped = match step & 1 {
        0 => 0,
        _ => decoder.varint().filter(|skipped| *skipped > 0)?,
    };
    let bytes = (step >> 1).checked_mul(STEP_BYTES).filter(|bytes| *bytes > 0)?;
    let number = before.0.checked_add(1)?.checked_add(skipped)?;
    Some((number, before.1.checked_add(bytes)?))
}

/// The entries of a block: number and position of each.
#[derive(Debug)]
pub struct Entries<'a> {
    next: Option<(u64, u64)>,
    decoder: Decoder<'a>,
}

impl Iterator for Entries<'_> {
    type Item = (u64, u64);

    #[inline]
    fn next(&mut self) -> Option<(u64, u64)> {
        let entry = self.next?;
        self.next = next_entry(&mut self.decoder, entry);
        Some(entry)
    }
}

/// What is kept of a view.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ViewHead {
    /// The position of its first entry's event, by which the index knows its blocks; 0 before it
    /// has an entry.
    pub start: u64,
    /// How many numbers were given.
    pub numbers: u64,
    /// How many of them were given to events that were gone by then.
    pub skipped: u64,
    /// The position of the last event that was given a number.
    pub last_position: u64,
    /// The last entries, which are in no block of their own yet.
    pub open: Block,
}

impl ViewHead {
    /// All entries with lower numbers than this are in blocks of their own.
    pub fn open_from(&self) -> u64 {
        if self.open.is_empty() { self.numbers } else { self.open.first }
    }

    /// Writes the head as bytes behind what is in `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        varint::put_u64(out, self.start);
        varint::put_u64(out, self.numbers);
        varint::put_u64(out, self.skipped);
        varint::put_u64(out, self.last_position - self.start);
        if !self.open.is_empty() {
            varint::put_u64(out, self.numbers - self.open.first);
            self.open.encode(self.start, out);
        }
    }

    /// Reads what [`ViewHead::encode`] wrote; `None` where it is malformed.
    pub fn decode(bytes: &[u8]) -> Option<ViewHead> {
        let mut decoder = Decoder::new(bytes);
        let (start, numbers) = (decoder.varint()?, decoder.varint()?);
        let skipped = decoder.varint().filter(|skipped| *skipped <= numbers)?;
        let last_position = start.checked_add(decoder.varint()?)?;
        if (start == 0) != (skipped == numbers) || numbers == 0 {
            return None;
        }
        let mut open = Block::default();
        if !decoder.is_done() {
            let first = numbers.checked_sub(decoder.varint()?)?;
            open = Block::decode(first, start, &bytes[decoder.position()..])?;
            if start == 0 || open.last >= numbers || open.last_position > last_position {
                return None;
            }
        }
        Some(ViewHead { start, numbers, skipped, last_position, open })
    }
}

/// Decodes a head and a block and, where they are well formed, encodes them again.
pub fn fuzz(bytes: &[u8]) {
    let mut again = Vec::new();
    if let Some(head) = ViewHead::decode(bytes) {
        head.encode(&mut again);
        assert_eq!(ViewHead::decode(&again), Some(head));
    }
    again.clear();
    if let Some(block) = Block::decode(7, 64, bytes) {
        let mut pushed = Block::default();
        block.entries().for_each(|(number, position)| pushed.push(number, position));
        assert_eq!(pushed, block);
        block.encode(64, &mut again);
        assert_eq!(again, bytes);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_are_decoded_or_not_and_never_panic(
            bytes: Vec<u8>,
            small in "[\\x00-\\x09]{0,40}",
        ) {
            fuzz(&bytes);
            fuzz(small.as_bytes());
        }
    }

    fn block(entries: &[(u64, u64)]) -> Block {
        let mut block = Block::default();
        entries.iter().for_each(|(number, position)| block.push(*number, *position));
        block
    }

    #[test]
    fn a_block_comes_back_with_its_gaps() {
        let entries = [(5, 96), (6, 104), (9, 70_000), (10, 70_008), (400, 1 << 40)];
        let block = block(&entries);
        assert!(block.entries().eq(entries));
        let mut bytes = Vec::new();
        block.encode(96, &mut bytes);
        assert_eq!(Block::decode(5, 96, &bytes), Some(block));
        for len in 0..bytes.len() {
            assert_eq!(Block::decode(5, 96, &bytes[..len]), None, "{len} bytes");
        }
        bytes.push(1);
        assert_eq!(Block::decode(5, 96, &bytes), None, "one byte more");
        assert_eq!(Block::decode(u64::MAX, 96, &[1, 0]), None, "numbers end");
        assert_eq!(Block::decode(0, 96, &[2, 0, 0]), None, "two at one position");
        assert_eq!(Block::decode(0, 96, &[2, 0, 3, 0]), None, "a gap of none");
    }

    #[test]
    fn a_dense_block_takes_a_byte_for_each_entry_nearby() {
        let mut block = Block::default();
        (0..BLOCK_ENTRIES as u64).for_each(|number| block.push(number, 96 + number * 120));
        assert!(block.is_full());
        let mut bytes = Vec::new();
        block.encode(96, &mut bytes);
        assert_eq!(bytes.len(), BLOCK_ENTRIES - 1 + 3);
        assert_eq!(Block::decode(0, 96, &bytes), Some(block));
    }

    #[test]
    fn pages_are_cut_at_both_ends() {
        let block = block(&[(0, 8), (1, 16), (4, 24), (5, 32)]);
        let page = |from, backwards, most| {
            let mut found = Vec::new();
            block.take_page(100, (from, backwards), most, &mut found);
            found.iter().map(|(number, _)| *number).collect::<Vec<_>>()
        };
        assert_eq!(page(0, false, 9), [100, 101, 104, 105]);
        assert_eq!(page(102, false, 1), [104]);
        assert_eq!(page(103, true, 9), [101, 100]);
        assert_eq!(page(u64::MAX, true, 2), [105, 104]);
        assert!(page(99, true, 9).is_empty() && page(106, false, 9).is_empty());
        let through = |position| block.numbers_through(position);
        assert_eq!([7, 8, 23, 24, 99].map(through), [None, Some(1), Some(2), Some(5), Some(6)]);
    }

    #[test]
    fn a_head_comes_back() {
        let open = block(&[(2048, 9_600), (2050, 9_608)]);
        let full = ViewHead { start: 96, numbers: 2051, skipped: 1, last_position: 9_608, open };
        let sealed = ViewHead { open: Block::default(), ..full.clone() };
        let ended = ViewHead { numbers: 2060, skipped: 10, last_position: 9_999, ..full.clone() };
        let only_gone =
            ViewHead { numbers: 3, skipped: 3, last_position: 200, ..ViewHead::default() };
        for head in [full.clone(), sealed, ended, only_gone] {
            let mut bytes = Vec::new();
            head.encode(&mut bytes);
            assert_eq!(ViewHead::decode(&bytes), Some(head));
            fuzz(&bytes);
        }
        let mut bytes = Vec::new();
        full.encode(&mut bytes);
        for len in 5..bytes.len() {
            let is_cut = ViewHead::decode(&bytes[..len]).is_none_or(|head| head.open.is_empty());
            assert!(is_cut, "{len} bytes");
        }
        for wrong in [
            ViewHead { numbers: 2050, ..full.clone() },
            ViewHead { last_position: 9_600, ..full.clone() },
            ViewHead { skipped: 2051, ..full.clone() },
            ViewHead { start: 0, ..full },
            ViewHead::default(),
        ] {
            bytes.clear();
            wrong.encode(&mut bytes);
            assert_eq!(ViewHead::decode(&bytes), None, "{wrong:?}");
        }
    }
}
