//! An index block: a part of the index as it is in the file. A paged index scans an index block
//! instead of searching the whole index in memory.
//!
//! FORMAT: `payload := prefix bytes, item * count`, `item := suffix bytes, sequence varint,
//! payload_len varint`. An index block has 64 items; the last one has the remaining items.

use std::cmp::Ordering;

use umbel_base::limits::{KEY_BYTES_MAX, SEQUENCE_MAX};
use umbel_base::{Decoder, SequenceNumber};

use crate::format::{PAYLOAD_BYTES_MAX, TRAILER_BYTES};

/// A separator, and the length of its block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IndexEntry<'a> {
    pub(crate) suffix: &'a [u8],
    pub(crate) sequence: SequenceNumber,
    /// Bytes of the data block, trailer included.
    pub(crate) block_len: u64,
}

/// Iterator over the items of an index block.
#[derive(Debug)]
pub(crate) struct IndexEntries<'a> {
    /// Common prefix of all separators.
    pub(crate) prefix: &'a [u8],
    decoder: Decoder<'a>,
    left: usize,
}

impl<'a> IndexEntries<'a> {
    const CUT: &'static str = "the index ends inside a part";

    /// Returns an iterator over the `count` items of `payload`.
    pub(crate) fn new(payload: &'a [u8], count: usize) -> Result<IndexEntries<'a>, &'static str> {
        let mut decoder = Decoder::new(payload);
        let prefix = decoder.bytes().ok_or(IndexEntries::CUT)?;
        Ok(IndexEntries { prefix, decoder, left: count })
    }

    /// Returns the next item; `None` after the last one. Bytes after the last item are an error.
    pub(crate) fn next(&mut self) -> Result<Option<IndexEntry<'a>>, &'static str> {
        if self.left == 0 {
            let is_done = self.decoder.is_done();
            return if is_done {
                Ok(None)
            } else {
                Err("a part of the index has bytes after its end")
            };
        }
        self.left -= 1;
        let suffix = self.decoder.bytes().ok_or(IndexEntries::CUT)?;
        let sequence = self.decoder.varint().ok_or(IndexEntries::CUT)?;
        let len = self.decoder.varint().ok_or(IndexEntries::CUT)?;
        if self.prefix.len() + suffix.len() > KEY_BYTES_MAX
            || sequence > SEQUENCE_MAX
            || len > PAYLOAD_BYTES_MAX as u64
        {
            return Err("a separator or a block in the index is over the limit");
        }
        Ok(Some(IndexEntry { suffix, sequence, block_len: len + TRAILER_BYTES as u64 }))
    }
}

/// Returns the number, within its index block, of the first data block whose separator is at or
/// after (`key`, `sequence`). `None` if all separators are before.
pub(crate) fn find(
    payload: &[u8],
    count: usize,
    key: &[u8],
    sequence: SequenceNumber,
) -> Result<Option<usize>, &'static str> {
    let mut items = IndexEntries::new(payload, count)?;
    let shared = items.prefix.len().min(key.len());
    let before = items.prefix.cmp(&key[..shared]);
    let rest = &key[shared..];
    for number in 0..count {
        let Some(item) = items.next()? else { return Ok(None) };
        let order = before.then_with(|| item.suffix.cmp(rest));
        if order.then_with(|| sequence.cmp(&item.sequence)) != Ordering::Less {
            return Ok(Some(number));
        }
    }
    Ok(None)
}

/// Returns the extent of a data block of an index block: its offset from the start of the first
/// data block, and its length.
pub(crate) fn extent(
    payload: &[u8],
    count: usize,
    number: usize,
) -> Result<Option<(u64, usize)>, &'static str> {
    let mut items = IndexEntries::new(payload, count)?;
    let mut start = 0;
    for _ in 0..number {
        let Some(item) = items.next()? else { return Ok(None) };
        start += item.block_len;
    }
    Ok(items.next()?.map(|item| (start, item.block_len as usize)))
}

/// Checks an index block: its separators ascend in internal order, the last one is `last`, and its
/// data blocks take `data_len` bytes.
pub(crate) fn check(
    payload: &[u8],
    count: usize,
    last: (&[u8], SequenceNumber),
    data_len: u64,
) -> Result<(), &'static str> {
    let mut items = IndexEntries::new(payload, count)?;
    let prefix = items.prefix;
    let mut before: Option<IndexEntry<'_>> = None;
    let mut sum = 0;
    while let Some(item) = items.next()? {
        let ascends = before.is_none_or(|before| {
            let order = before.suffix.cmp(item.suffix);
            order.then_with(|| item.sequence.cmp(&before.sequence)) == Ordering::Less
        });
        if !ascends {
            return Err("the separators of the index do not ascend");
        }
        sum += item.block_len;
        before = Some(item);
    }
    let reaches = before.is_some_and(|item| {
        let rest = last.0.strip_prefix(prefix);
        rest == Some(item.suffix) && item.sequence == last.1
    });
    if reaches && sum == data_len {
        Ok(())
    } else {
        Err("an index block's last separator or data length differs from the top-level index")
    }
}
