//! Reads a table once, from a key to its end, for compactions.
//!
//! The reader checks a block's checksum and then reads the block in place. No search data is
//! derived, only the current key is copied, and the cache is not used.

use umbel_base::limits::{KEY_BYTES_MAX, SEQUENCE_MAX, VALUE_BYTES_MAX};
use umbel_base::{Result, SequenceNumber, ValueKind, cmp_internal};

use crate::block::entry_layout::{EntryLayout, read_long, read_short};
use crate::compression::{Compression, unpack};
use crate::cursor::key_buffer::KeyBuffer;
use crate::format::{
    BlockKind, GROUP_ENTRIES_MAX, TRAILER_BYTES, bytes_equal, check_sealed, read_varint,
};
use crate::reader::paged_index::CachedIndexBlock;
use crate::reader::table_reader::Table;

const CUT: &str = "a data block ends inside a group or an entry, or holds what no version wrote";

/// Whether value and sequence number of an entry of unusual lengths are within the limits. Entries
/// of usual lengths are too short to exceed a limit.
fn is_within_limits(parts: &EntryLayout) -> bool {
    parts.value_len <= VALUE_BYTES_MAX && parts.trailer.sequence() <= SEQUENCE_MAX
}

/// A forward reader of a table that the caller passes to each call. REQUIRES: `next` gets the table
/// of the last seek.
#[derive(Debug, Default)]
pub struct SequentialReader {
    /// Bytes of the file that were read ahead, from `readahead_offset` on.
    readahead: Vec<u8>,
    readahead_offset: u64,
    /// Id of the table whose blocks are in `readahead`.
    table: u64,
    /// Whether only the block of a seek is read.
    reads_single_blocks: bool,
    /// The current block, decompressed, if it is compressed in the file.
    unpacked: Vec<u8>,
    is_unpacked: bool,
    /// Number of the current block.
    number: usize,
    end: usize,
    /// Offset of the next entry, or of the next group.
    at: usize,
    /// Number of entries of the group after the current entry.
    remaining: usize,
    /// Maximum length of the suffixes of the group's keys.
    suffix_max: usize,
    valid: bool,
    key: KeyBuffer,
    sequence: SequenceNumber,
    kind: Option<ValueKind>,
    value_at: usize,
    /// Current index block, if the index is paged.
    index_block: CachedIndexBlock,
}

impl SequentialReader {
    /// Creates a reader for lookups of single keys, which reads nothing ahead.
    pub fn for_lookups() -> SequentialReader {
        SequentialReader { reads_single_blocks: true, ..SequentialReader::default() }
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        if self.is_unpacked { &self.unpacked } else { &self.readahead }
    }

    /// Makes block `number` the current one; its first group comes next. Returns `false` if the
    /// block does not exist.
    fn enter_block(&mut self, table: &Table, number: usize) -> Result<bool> {
        self.valid = false;
        self.remaining = 0;
        let id = table.footer().file_id;
        if self.table != id {
            self.readahead.clear();
            self.table = id;
        }
        if number >= table.index().blocks() {
            return Ok(false);
        }
        let (offset, len) = table.extent_uncached(number, &mut self.index_block)?;
        let start = self.read(table, offset, len)?;
        let sealed = self.readahead.get(start..start + len).unwrap_or_default();
        let path = table.file().path();
        let compression = check_sealed(path, id, offset, BlockKind::Data, sealed)?;
        self.end = start + sealed.len().saturating_sub(TRAILER_BYTES);
        self.at = start;
        self.is_unpacked = compression != Compression::None;
        if self.is_unpacked {
            let packed = self.readahead.get(start..self.end).unwrap_or_default();
            let limit = table.footer().payload_bytes_max as usize;
            let unpacked = unpack(compression, packed, limit);
            self.unpacked = unpacked.map_err(|reason| table.corruption(offset, reason))?;
            (self.at, self.end) = (0, self.unpacked.len());
        }
        self.number = number;
        Ok(true)
    }

    /// Reads the block at `offset` unless it was read ahead, and returns its position in
    /// `readahead`.
    fn read(&mut self, table: &Table, offset: u64, len: usize) -> Result<usize> {
        if let Some(start) = offset.checked_sub(self.readahead_offset).map(|start| start as usize)
            && start.checked_add(len).is_some_and(|end| end <= self.readahead.len())
        {
            return Ok(start);
        }
        let data = table.footer().data;
        let left = (data.offset + data.len).saturating_sub(offset);
        let ahead = if self.reads_single_blocks { 0 } else { table.readahead_bytes() as u64 };
        let wanted = left.min(ahead).max(len as u64) as usize;
        self.readahead.resize(wanted, 0);
        self.readahead_offset = offset;
        if let Err(error) = table.file().read_exact_at(&mut self.readahead, offset) {
            self.readahead.clear();
            return Err(error);
        }
        Ok(0)
    }

    /// Starts the group at offset `at`.
    fn start_group(&mut self) -> Option<()> {
        let bytes = if self.is_unpacked { &self.unpacked } else { &self.readahead };
        let bytes = bytes.get(..self.end)?;
        let count = usize::from(*bytes.get(self.at)?);
        let (prefix_len, prefix_at) = read_varint(bytes, self.at + 1)?;
        let prefix_len = usize::try_from(prefix_len).ok().filter(|&len| len <= KEY_BYTES_MAX)?;
        let prefix = bytes.get(prefix_at..prefix_at + prefix_len)?;
        if !(1..=GROUP_ENTRIES_MAX).contains(&count) {
            return None;
        }
        self.key.start_group(prefix);
        self.remaining = count;
        self.suffix_max = KEY_BYTES_MAX - prefix_len;
        self.at = prefix_at + prefix_len;
        Some(())
    }

    /// Moves to the next entry of the same group, and returns whether its key equals that of the
    /// previous entry. At the end of the group returns `None` and does not move.
    #[inline]
    pub fn try_next(&mut self) -> Option<bool> {
        if self.remaining == 0 {
            return None;
        }
        let bytes = if self.is_unpacked { &self.unpacked } else { &self.readahead };
        let around = bytes.get(self.at..self.end)?;
        let EntryLayout { suffix_at, suffix_len, value_len, trailer } =
            read_short(around).or_else(|| read_long(around).filter(is_within_limits))?;
        let kind = trailer.known_kind()?;
        if suffix_len > self.suffix_max || suffix_at + suffix_len + value_len > around.len() {
            return None;
        }
        let around = around.get(suffix_at..)?;
        let suffix = around.get(..suffix_len)?;
        let repeats = bytes_equal(suffix, self.key.suffix());
        self.key.set_suffix(suffix, around);
        self.remaining -= 1;
        self.sequence = trailer.sequence();
        self.kind = Some(kind);
        self.value_at = self.at + suffix_at + suffix_len;
        self.at = self.value_at + value_len;
        Some(repeats)
    }

    /// Moves to the next entry, in this group, the next group or the next block.
    fn advance(&mut self, table: &Table) -> Result<()> {
        self.valid = false;
        while self.remaining == 0 {
            let is_cut = self.at < self.end && self.start_group().is_none();
            if is_cut {
                return Err(self.corruption(table));
            }
            if self.remaining == 0 && !self.enter_block(table, self.number + 1)? {
                return Ok(());
            }
        }
        if self.try_next().is_none() {
            return Err(self.corruption(table));
        }
        self.valid = true;
        Ok(())
    }

    #[cold]
    fn corruption(&self, table: &Table) -> umbel_base::Error {
        let offset = table.extent(self.number).map_or(0, |(offset, _)| offset);
        table.corruption(offset, CUT)
    }

    /// Moves to the first entry.
    pub fn seek_to_first(&mut self, table: &Table) -> Result<()> {
        if self.enter_block(table, 0)? { self.advance(table) } else { Ok(()) }
    }

    /// Moves to the first entry at or after (`key`, `sequence`) in internal order.
    pub fn seek(&mut self, table: &Table, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        self.valid = false;
        let Some(number) = table.find_block(key, sequence)? else { return Ok(()) };
        if !self.enter_block(table, number)? {
            return Ok(());
        }
        self.advance(table)?;
        while self.valid && cmp_internal(self.key(), self.sequence, key, sequence).is_lt() {
            self.next(table)?;
        }
        Ok(())
    }

    /// Moves to the next entry. REQUIRES: `valid()`.
    #[inline]
    pub fn next(&mut self, table: &Table) -> Result<()> {
        match self.try_next() {
            Some(_) => Ok(()),
            None => self.advance(table),
        }
    }

    /// Like [`SequentialReader::next`], but returns whether the next entry has the same key.
    /// REQUIRES: `valid()`.
    #[inline]
    pub fn next_repeats(&mut self, table: &Table) -> Result<bool> {
        match self.try_next() {
            Some(repeats) => Ok(repeats),
            None => {
                let left = self.key.clone();
                self.advance(table)?;
                Ok(self.valid && self.key.key() == left.key())
            }
        }
    }

    /// Whether the reader is on an entry.
    #[inline]
    pub fn valid(&self) -> bool {
        self.valid
    }

    /// Key of the current entry.
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.key.key()
    }

    /// Sequence number of the current entry.
    #[inline]
    pub fn sequence(&self) -> SequenceNumber {
        self.sequence
    }

    /// Kind of the current entry.
    #[inline]
    pub fn kind(&self) -> ValueKind {
        self.kind.unwrap_or(ValueKind::Delete)
    }

    /// Value of the current entry.
    #[inline]
    pub fn value(&self) -> &[u8] {
        self.bytes().get(self.value_at..self.at).unwrap_or_default()
    }
}
