//! The top of the index: one entry for each index block, with the last separator of that index
//! block.
//!
//! FORMAT: `payload := entry*`, `entry := separator bytes, sequence varint, data_len varint,
//! part_len varint, checksum u64`, one for each index block in order. `separator` and `sequence`
//! are the index block's last separator. `data_len` and `part_len` are the bytes of its data blocks
//! and of itself, with trailers. `checksum` is the one in its trailer.

use std::cmp::Ordering;

use umbel_base::limits::{KEY_BYTES_MAX, SEQUENCE_MAX};
use umbel_base::{Decoder, SequenceNumber, varint};

use crate::format::GROUP_ENTRIES_MAX;

/// Number of data blocks of each index block except the last one.
pub(crate) const INDEX_BLOCK_ENTRIES: usize = GROUP_ENTRIES_MAX;

/// An index block, as the top of the index describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IndexBlockHandle {
    /// Number of the index block.
    pub(crate) number: usize,
    /// Offset of the index block in the file.
    pub(crate) offset: u64,
    /// Bytes of the index block, trailer included.
    pub(crate) len: usize,
    /// Checksum in the trailer of the index block.
    pub(crate) checksum: u64,
    /// Number of data blocks of the index block.
    pub(crate) blocks: usize,
    /// Offset at which the first of these data blocks starts in the file, and offset at which the
    /// last one ends.
    pub(crate) data: (u64, u64),
}

#[derive(Debug)]
struct TopLevelEntry {
    key_end: u32,
    sequence: SequenceNumber,
    data_end: u64,
    index_block_end: u64,
    checksum: u64,
}

/// The top of a table's index.
#[derive(Debug)]
pub(crate) struct TopLevelIndex {
    keys: Vec<u8>,
    entries: Vec<TopLevelEntry>,
    blocks: usize,
    data_start: u64,
    index_blocks_start: u64,
}

/// Appends the entry of an index block.
pub(crate) fn put_entry(
    payload: &mut Vec<u8>,
    (separator, sequence): (&[u8], SequenceNumber),
    data_len: u64,
    part_len: u64,
    checksum: u64,
) {
    varint::put_bytes(payload, separator);
    [sequence, data_len, part_len].into_iter().for_each(|number| varint::put_u64(payload, number));
    payload.extend_from_slice(&checksum.to_le_bytes());
}

impl TopLevelIndex {
    /// Reads the payload of the top of the index. The table has `blocks` data blocks in the range
    /// `data` of the file, and its index blocks are in the range `parts`. The error is a reason in
    /// words.
    pub(crate) fn decode(
        payload: &[u8],
        blocks: u32,
        data: (u64, u64),
        parts: (u64, u64),
    ) -> Result<TopLevelIndex, &'static str> {
        const CUT: &str = "the top of the index ends inside an entry";
        let blocks = blocks as usize;
        let count = blocks.div_ceil(INDEX_BLOCK_ENTRIES);
        // The least that an entry takes.
        if count > payload.len() / 12 {
            return Err("the top of the index is too short for the number of blocks");
        }
        let mut top = TopLevelIndex {
            keys: Vec::with_capacity(payload.len().saturating_sub(count * 12)),
            entries: Vec::with_capacity(count),
            blocks,
            data_start: data.0,
            index_blocks_start: parts.0,
        };
        let (mut data_end, mut part_end) = (data.0, parts.0);
        let mut decoder = Decoder::new(payload);
        for number in 0..count {
            let key = decoder.bytes().ok_or(CUT)?;
            let sequence = decoder.varint().ok_or(CUT)?;
            let data_len = decoder.varint().ok_or(CUT)?;
            let part_len = decoder.varint().ok_or(CUT)?;
            let checksum = decoder.u64().ok_or(CUT)?;
            let ends = data_end.checked_add(data_len).zip(part_end.checked_add(part_len));
            let Some(ends) =
                ends.filter(|_| key.len() <= KEY_BYTES_MAX && sequence <= SEQUENCE_MAX)
            else {
                return Err("a separator or a length in the top of the index is over the limit");
            };
            (data_end, part_end) = ends;
            if let Some(before) = number.checked_sub(1)
                && top.compare(before, key, sequence) != Ordering::Less
            {
                return Err("the separators in the top of the index do not ascend");
            }
            top.keys.extend_from_slice(key);
            let key_end = u32::try_from(top.keys.len()).map_err(|_| "the index is over 4 GiB")?;
            top.entries.push(TopLevelEntry {
                key_end,
                sequence,
                data_end,
                index_block_end: part_end,
                checksum,
            });
        }
        if !decoder.is_done() {
            return Err("the top of the index has bytes after its last entry");
        }
        if data_end != data.1 || part_end != parts.1 {
            return Err("the parts of the index do not fill the space between data and top");
        }
        top.keys.shrink_to_fit();
        Ok(top)
    }

    /// Number of data blocks.
    pub(crate) fn blocks(&self) -> usize {
        self.blocks
    }

    /// Number of index blocks.
    pub(crate) fn index_blocks(&self) -> usize {
        self.entries.len()
    }

    fn key(&self, part: usize) -> &[u8] {
        let end = |entry: &TopLevelEntry| entry.key_end as usize;
        let start = part.checked_sub(1).and_then(|before| self.entries.get(before)).map_or(0, end);
        self.keys.get(start..self.entries.get(part).map_or(start, end)).unwrap_or_default()
    }

    /// Order of the last separator of an index block relative to (`key`, `sequence`) in internal
    /// order.
    fn compare(&self, part: usize, key: &[u8], sequence: SequenceNumber) -> Ordering {
        let own = self.entries.get(part).map_or(0, |entry| entry.sequence);
        self.key(part).cmp(key).then_with(|| sequence.cmp(&own))
    }

    /// Returns the last separator of an index block.
    pub(crate) fn last_separator(&self, part: usize) -> (&[u8], SequenceNumber) {
        (self.key(part), self.entries.get(part).map_or(0, |entry| entry.sequence))
    }

    /// Returns the description of an index block; `None` if there is no such block.
    pub(crate) fn handle(&self, number: usize) -> Option<IndexBlockHandle> {
        let entry = self.entries.get(number)?;
        let before = number.checked_sub(1).and_then(|before| self.entries.get(before));
        let offset = before.map_or(self.index_blocks_start, |before| before.index_block_end);
        let data_start = before.map_or(self.data_start, |before| before.data_end);
        Some(IndexBlockHandle {
            number,
            offset,
            len: usize::try_from(entry.index_block_end - offset).ok()?,
            checksum: entry.checksum,
            blocks: (self.blocks - number * INDEX_BLOCK_ENTRIES).min(INDEX_BLOCK_ENTRIES),
            data: (data_start, entry.data_end),
        })
    }

    /// Returns the index block with the first separator at or after (`key`, `sequence`).
    pub(crate) fn find(&self, key: &[u8], sequence: SequenceNumber) -> Option<IndexBlockHandle> {
        let (mut low, mut high) = (0, self.entries.len());
        while low < high {
            let middle = (low + high) / 2;
            if self.compare(middle, key, sequence) == Ordering::Less {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        self.handle(low)
    }

    /// Returns the last separator of each index block, with the offset at which its data ends in
    /// the file.
    pub(crate) fn splits(&self) -> impl Iterator<Item = (&[u8], u64)> {
        self.entries.iter().enumerate().map(|(part, entry)| (self.key(part), entry.data_end))
    }

    /// Bytes of the top of the index in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.keys.capacity() + self.entries.capacity() * size_of::<TopLevelEntry>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(parts: u64) -> Vec<u8> {
        let mut payload = Vec::new();
        for part in 0..parts {
            put_entry(&mut payload, (format!("k{part:03}").as_bytes(), 0), 6400, 50, part);
        }
        payload
    }

    #[test]
    fn finds_the_part_and_its_location() {
        let data = (32, 32 + 3 * 6400);
        let top = TopLevelIndex::decode(&payload(3), 130, data, (data.1, data.1 + 150)).unwrap();
        assert_eq!((top.blocks(), top.index_blocks()), (130, 3));
        let found = |key: &str| top.find(key.as_bytes(), 7).map(|part| part.number);
        assert_eq!([found(""), found("k000"), found("k000x")], [Some(0), Some(0), Some(1)]);
        assert_eq!([found("k002"), found("k0020")], [Some(2), None]);
        let place = top.handle(2).unwrap();
        assert_eq!((place.offset, place.len, place.blocks), (data.1 + 100, 50, 2));
        assert_eq!((place.data, place.checksum), ((32 + 2 * 6400, data.1), 2));
        assert_eq!(top.handle(3), None);
        assert_eq!(top.splits().last(), Some((&b"k002"[..], data.1)));
    }

    #[test]
    fn damaged_top_levels_are_refused() {
        let (data, parts) = ((32, 32 + 3 * 6400), (19_232, 19_382));
        let sound = payload(3);
        assert!(TopLevelIndex::decode(&sound, 130, data, parts).is_ok());
        for blocks in [0, 128, 193, u32::MAX] {
            assert!(TopLevelIndex::decode(&sound, blocks, data, parts).is_err(), "{blocks}");
        }
        assert!(TopLevelIndex::decode(&sound, 130, (31, data.1), parts).is_err());
        assert!(TopLevelIndex::decode(&sound, 130, data, (parts.0, parts.1 + 1)).is_err());
        for cut in 0..sound.len() {
            assert!(TopLevelIndex::decode(&sound[..cut], 130, data, parts).is_err());
        }
        for at in 0..sound.len() {
            let mut flipped = sound.clone();
            flipped[at] ^= 0xff;
            if let Ok(top) = TopLevelIndex::decode(&flipped, 130, data, parts) {
                assert!(top.find(b"k001", 7).is_none_or(|part| part.offset >= parts.0));
            }
        }
    }
}
