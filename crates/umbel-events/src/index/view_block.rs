//! [`ViewBlock`]: a run of a view's entries, and [`ViewHead`]: the state of a view in the index.

use umbel_base::fail_point;
use umbel_base::{Decoder, varint};

/// Maximum entries of a block.
pub const BLOCK_ENTRIES: usize = 1024;
/// Alignment of the positions of events, in bytes.
const POSITION_UNIT_BYTES: u64 = 8;

/// A run of a view's entries, each with its number and the position of its event.
///
/// FORMAT: `docs/formats/event-index.md`. Numbers and positions grow from entry to entry.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ViewBlock {
    /// Number of the first entry.
    pub first: u64,
    /// Position of the first entry's event.
    pub first_position: u64,
    /// Number of the last entry.
    pub last: u64,
    /// Position of the last entry's event.
    pub last_position: u64,
    count: usize,
    /// Difference of each entry but the first to the one before it.
    deltas: Vec<u8>,
}

impl ViewBlock {
    /// Whether the block has no entry.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether the block has the maximum number of entries.
    pub fn is_full(&self) -> bool {
        self.count >= BLOCK_ENTRIES
    }

    /// Heap memory of the block, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.deltas.capacity()
    }

    /// Adds an entry. REQUIRES: number and position are higher than those of the last entry, and
    /// the block is not full.
    #[inline]
    pub fn push(&mut self, number: u64, position: u64) {
        if self.count == 0 {
            (self.first, self.first_position) = (number, position);
        } else {
            let step = (position - self.last_position) / POSITION_UNIT_BYTES;
            let skipped = number - self.last - 1;
            varint::put_u64(&mut self.deltas, step << 1 | u64::from(skipped > 0));
            if skipped > 0 {
                varint::put_u64(&mut self.deltas, skipped);
            }
        }
        (self.last, self.last_position) = (number, position);
        self.count += 1;
    }

    /// Returns the entries, in order.
    pub fn entries(&self) -> ViewBlockEntries<'_> {
        let next = (self.count > 0).then_some((self.first, self.first_position));
        ViewBlockEntries { next, decoder: Decoder::new(&self.deltas) }
    }

    /// Adds entries to `found`, from the number `from` on or, with `backwards`, down from it, until
    /// `found` has `limit` entries. `base` is added to all numbers of the block.
    pub fn read_page(
        &self,
        base: u64,
        (from, backwards): (u64, bool),
        limit: usize,
        found: &mut Vec<(u64, u64)>,
    ) {
        let entries = self.entries().map(|(number, position)| (base + number, position));
        let left = limit.saturating_sub(found.len());
        if !backwards {
            return found.extend(entries.filter(|(number, _)| *number >= from).take(left));
        }
        let before: Vec<_> = entries.take_while(|(number, _)| *number <= from).collect();
        found.extend(before.into_iter().rev().take(left));
    }

    /// Count of numbers up to the block's last entry at or before `position`; `None` without such
    /// an entry.
    pub fn count_through(&self, position: u64) -> Option<u64> {
        if self.last_position <= position && self.count > 0 {
            return Some(self.last + 1);
        }
        let before = self.entries().take_while(|(_, at)| *at <= position);
        before.last().map(|(number, _)| number + 1)
    }

    /// Appends the encoded block to `out`, with positions relative to `start`.
    pub fn encode(&self, start: u64, out: &mut Vec<u8>) {
        varint::put_u64(out, self.count as u64);
        varint::put_u64(out, self.first_position - start);
        out.extend_from_slice(&self.deltas);
    }

    /// Decodes the complete output of [`ViewBlock::encode`]; `None` where it is malformed.
    pub fn decode(first: u64, start: u64, bytes: &[u8]) -> Option<ViewBlock> {
        let mut decoder = Decoder::new(bytes);
        let count = decoder.varint_usize().filter(|count| (1..=BLOCK_ENTRIES).contains(count))?;
        let first_position = start.checked_add(decoder.varint()?)?;
        let steps = bytes[decoder.position()..].to_vec();
        let (mut last, mut last_position) = (first, first_position);
        for _ in 1..count {
            (last, last_position) = next_entry(&mut decoder, (last, last_position))?;
        }
        let block = ViewBlock { first, first_position, last, last_position, count, deltas: steps };
        (decoder.is_done() && last < u64::MAX).then_some(block)
    }
}

/// Returns the entry after `before`; `None` if no entry follows.
fn next_entry(decoder: &mut Decoder<'_>, before: (u64, u64)) -> Option<(u64, u64)> {
    let step = decoder.varint()?;
    let skipped = match step & 1 {
        0 => 0,
        _ => decoder.varint().filter(|skipped| *skipped > 0)?,
    };
    let bytes = (step >> 1).checked_mul(POSITION_UNIT_BYTES).filter(|bytes| *bytes > 0)?;
    let number = before.0.checked_add(1)?.checked_add(skipped)?;
    Some((number, before.1.checked_add(bytes)?))
}

/// Iterator over the numbers and positions of the entries of a block.
#[derive(Debug)]
pub struct ViewBlockEntries<'a> {
    next: Option<(u64, u64)>,
    decoder: Decoder<'a>,
}

impl Iterator for ViewBlockEntries<'_> {
    type Item = (u64, u64);

    #[inline]
    fn next(&mut self) -> Option<(u64, u64)> {
        let entry = self.next?;
        self.next = next_entry(&mut self.decoder, entry);
        Some(entry)
    }
}

/// State of a view in the index.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ViewHead {
    /// Position of the view's first event, which identifies the view's blocks in the index; 0
    /// before the view has an entry.
    pub start: u64,
    /// Count of numbers that the view gave to events.
    pub number_count: u64,
    /// Count of numbers that the view gave to events that were already removed.
    pub skipped: u64,
    /// Position of the last event that was given a number.
    pub last_position: u64,
    /// The view's last entries, which are not in a separate block yet.
    pub open_block: ViewBlock,
}

impl ViewHead {
    /// Returns the lowest number that is not in a separate block.
    pub fn first_open_number(&self) -> u64 {
        if self.open_block.is_empty() { self.number_count } else { self.open_block.first }
    }

    /// Adds an entry. Passes a block that becomes full to `full`, with the position that identifies
    /// the block.
    pub fn push(&mut self, number: u64, position: u64, full: &mut impl FnMut(u64, &ViewBlock)) {
        if self.start == 0 {
            self.start = position;
        }
        let (start, block) = (self.start, &mut self.open_block);
        fail_point!("view-block-drop-last-entry", block.count + 1 == BLOCK_ENTRIES, |_| {
            full(start, &std::mem::take(block))
        });
        if block.is_full() {
            full(start, &std::mem::take(block));
        }
        block.push(number, position);
    }

    /// Appends the encoded head to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        varint::put_u64(out, self.start);
        varint::put_u64(out, self.number_count);
        varint::put_u64(out, self.skipped);
        varint::put_u64(out, self.last_position - self.start);
        if !self.open_block.is_empty() {
            varint::put_u64(out, self.number_count - self.open_block.first);
            self.open_block.encode(self.start, out);
        }
    }

    /// Decodes the output of [`ViewHead::encode`]; `None` where it is malformed.
    pub fn decode(bytes: &[u8]) -> Option<ViewHead> {
        let mut decoder = Decoder::new(bytes);
        let (start, numbers) = (decoder.varint()?, decoder.varint()?);
        let skipped = decoder.varint().filter(|skipped| *skipped <= numbers)?;
        let last_position = start.checked_add(decoder.varint()?)?;
        if (start == 0) != (skipped == numbers) || numbers == 0 {
            return None;
        }
        let mut open = ViewBlock::default();
        if !decoder.is_done() {
            let first = numbers.checked_sub(decoder.varint()?)?;
            open = ViewBlock::decode(first, start, &bytes[decoder.position()..])?;
            if start == 0 || open.last >= numbers || open.last_position > last_position {
                return None;
            }
        }
        Some(ViewHead { start, number_count: numbers, skipped, last_position, open_block: open })
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
    if let Some(block) = ViewBlock::decode(7, 64, bytes) {
        let mut pushed = ViewBlock::default();
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
        fn decoding_arbitrary_bytes_does_not_panic(
            bytes: Vec<u8>,
            small in "[\\x00-\\x09]{0,40}",
        ) {
            fuzz(&bytes);
            fuzz(small.as_bytes());
        }
    }

    fn block(entries: &[(u64, u64)]) -> ViewBlock {
        let mut block = ViewBlock::default();
        entries.iter().for_each(|(number, position)| block.push(*number, *position));
        block
    }

    #[test]
    fn block_round_trips_with_gaps() {
        let entries = [(5, 96), (6, 104), (9, 70_000), (10, 70_008), (400, 1 << 40)];
        let block = block(&entries);
        assert!(block.entries().eq(entries));
        let mut bytes = Vec::new();
        block.encode(96, &mut bytes);
        assert_eq!(ViewBlock::decode(5, 96, &bytes), Some(block));
        for len in 0..bytes.len() {
            assert_eq!(ViewBlock::decode(5, 96, &bytes[..len]), None, "{len} bytes");
        }
        bytes.push(1);
        assert_eq!(ViewBlock::decode(5, 96, &bytes), None, "one byte more");
        assert_eq!(ViewBlock::decode(u64::MAX, 96, &[1, 0]), None, "numbers end");
        assert_eq!(ViewBlock::decode(0, 96, &[2, 0, 0]), None, "two at one position");
        assert_eq!(ViewBlock::decode(0, 96, &[2, 0, 3, 0]), None, "a gap of none");
    }

    #[test]
    fn dense_block_takes_one_byte_per_near_entry() {
        let mut block = ViewBlock::default();
        (0..BLOCK_ENTRIES as u64).for_each(|number| block.push(number, 96 + number * 120));
        assert!(block.is_full());
        let mut bytes = Vec::new();
        block.encode(96, &mut bytes);
        assert_eq!(bytes.len(), BLOCK_ENTRIES - 1 + 3);
        assert_eq!(ViewBlock::decode(0, 96, &bytes), Some(block));
    }

    #[test]
    fn pages_are_clipped_at_both_ends() {
        let block = block(&[(0, 8), (1, 16), (4, 24), (5, 32)]);
        let page = |from, backwards, limit| {
            let mut found = Vec::new();
            block.read_page(100, (from, backwards), limit, &mut found);
            found.iter().map(|(number, _)| *number).collect::<Vec<_>>()
        };
        assert_eq!(page(0, false, 9), [100, 101, 104, 105]);
        assert_eq!(page(102, false, 1), [104]);
        assert_eq!(page(103, true, 9), [101, 100]);
        assert_eq!(page(u64::MAX, true, 2), [105, 104]);
        assert!(page(99, true, 9).is_empty() && page(106, false, 9).is_empty());
        let through = |position| block.count_through(position);
        assert_eq!([7, 8, 23, 24, 99].map(through), [None, Some(1), Some(2), Some(5), Some(6)]);
    }

    #[test]
    fn view_head_round_trips() {
        let open = block(&[(2048, 9_600), (2050, 9_608)]);
        let full = ViewHead {
            start: 96,
            number_count: 2051,
            skipped: 1,
            last_position: 9_608,
            open_block: open,
        };
        let sealed = ViewHead { open_block: ViewBlock::default(), ..full.clone() };
        let ended =
            ViewHead { number_count: 2060, skipped: 10, last_position: 9_999, ..full.clone() };
        let only_gone =
            ViewHead { number_count: 3, skipped: 3, last_position: 200, ..ViewHead::default() };
        for head in [full.clone(), sealed, ended, only_gone] {
            let mut bytes = Vec::new();
            head.encode(&mut bytes);
            assert_eq!(ViewHead::decode(&bytes), Some(head));
            fuzz(&bytes);
        }
        let mut bytes = Vec::new();
        full.encode(&mut bytes);
        for len in 5..bytes.len() {
            let is_cut =
                ViewHead::decode(&bytes[..len]).is_none_or(|head| head.open_block.is_empty());
            assert!(is_cut, "{len} bytes");
        }
        for wrong in [
            ViewHead { number_count: 2050, ..full.clone() },
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
