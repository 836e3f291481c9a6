//! A cursor over a table in both directions, which borrows the table for each call.

use umbel_arena::prefetch;
use umbel_base::{Result, SequenceNumber, ValueKind};

use crate::block::block_search_data::{SearchDataKind, packed};
use crate::block::block_seek::{SeekRange, find_in_range, narrow_range};
use crate::block::entry_layout::{Trailer, read_long, read_short};
use crate::block::{Block, EntryPosition, SearchGroup};
use crate::cursor::key_buffer::KeyBuffer;
use crate::format::{bytes_equal, head64};
use crate::reader::paged_index::CachedIndexBlock;
use crate::reader::table_reader::Table;

/// Number of cache lines of a block that a seek reads before its entries: header, tags, offsets and
/// heads of a block of the usual size.
const SEARCHED_LINES: usize = 5;
/// Number of cache lines that a cursor reads first when it comes from the block before: those of a
/// seek, and the first entries.
const ENTERED_LINES: usize = 8;
/// Range of an entry's cache lines that are prefetched when the seek has found the entry. The lines
/// before them were prefetched when the entry was one of several candidates.
const PREFETCHED_LINES: (usize, usize) = (3, 14);
/// Number of entries that a caller probably reads after a seek.
const PREFETCHED_ENTRIES: usize = 10;

/// Cursor over a table that the caller passes to each call. So a caller with cursors on many tables
/// need not reference each table in each cursor. The methods are those of [`umbel_base::Cursor`],
/// with the same laws. REQUIRES: `next` and `prev` get the table of the last seek; a seek can get
/// another table.
#[derive(Debug)]
pub struct ContextTableCursor {
    fill_cache: bool,
    block: Option<Block>,
    /// Table of `block` and of the blocks read ahead.
    table: u64,
    /// Number of the current block.
    number: usize,
    /// Number of the block that `begin_seek` looked up.
    seek_block: Option<usize>,
    /// Range that `narrow_seek` found in the block.
    seek_range: Option<SeekRange>,
    position: EntryPosition,
    /// Number of entries of the current group.
    group_entries: usize,
    /// Whether no two entries of the current group have the same key.
    distinct: bool,
    /// Number of entries of the current group if `try_next_visible` can move in it; otherwise 0.
    visible_entries: usize,
    /// Head after the group's prefix at or after which `try_next_visible` moves to no entry.
    limit: u64,
    /// Greatest sequence number in the table.
    newest: SequenceNumber,
    valid: bool,
    key: KeyBuffer,
    trailer: Trailer,
    value_at: usize,
    /// Offset of the end of the value, where the next entry of the group starts.
    end: usize,
    readahead: ReadAhead,
}

/// Bytes of the table's file that were read ahead.
#[derive(Debug, Default)]
struct ReadAhead {
    offset: u64,
    bytes: Vec<u8>,
    /// Current index block, if the index is paged.
    index_block: Option<Box<CachedIndexBlock>>,
}

impl ContextTableCursor {
    /// A cursor that is not at an entry yet. Without `fill_cache` it uses cached blocks
    /// but adds none, and reads ahead when it moves forwards: for compaction and backup.
    pub fn new(fill_cache: bool) -> ContextTableCursor {
        ContextTableCursor {
            fill_cache,
            block: None,
            table: 0,
            number: 0,
            seek_block: None,
            seek_range: None,
            position: EntryPosition::default(),
            group_entries: 0,
            distinct: false,
            visible_entries: 0,
            limit: 0,
            newest: 0,
            valid: false,
            key: KeyBuffer::default(),
            trailer: Trailer::default(),
            value_at: 0,
            end: 0,
            readahead: ReadAhead::default(),
        }
    }

    /// Makes block `number` the current one. Returns `false` if the block does not exist.
    fn enter_block(&mut self, table: &Table, number: usize) -> Result<bool> {
        self.valid = false;
        if self.is_in(table, number) {
            return Ok(true);
        }
        let id = table.footer().file_id;
        let stays = self.table == id;
        let walks = self.block.take().is_some() && stays && number == self.number + 1;
        if !stays {
            self.readahead = ReadAhead::default();
            self.table = id;
            self.newest = table.meta().sequence_max;
        }
        if number >= table.index().blocks() {
            return Ok(false);
        }
        self.block = Some(match table.slots().get(number) {
            Some(block) => block,
            None if self.fill_cache => table.load(number)?,
            None => self.read_uncached(table, number, walks)?,
        });
        self.number = number;
        Ok(true)
    }

    /// Reads a block past the cache. If the cursor moves forward, also reads the blocks after it.
    fn read_uncached(&mut self, table: &Table, number: usize, walks: bool) -> Result<Block> {
        let ahead = &mut self.readahead;
        let (offset, len) =
            table.extent_uncached(number, ahead.index_block.get_or_insert_default())?;
        let held = offset.checked_sub(ahead.offset).map(|skip| skip as usize);
        let held = held.and_then(|skip| ahead.bytes.get(skip..skip.checked_add(len)?));
        if let Some(sealed) = held {
            return table.parse_block(offset, sealed, SearchDataKind::Offsets);
        }
        let readahead_max = table.readahead_bytes();
        if !walks || len >= readahead_max {
            let mut sealed = vec![0; len];
            table.file().read_exact_at(&mut sealed, offset)?;
            return table.parse_block(offset, sealed, SearchDataKind::Offsets);
        }
        let data = table.footer().data;
        let left = data.offset + data.len - offset;
        ahead.bytes.resize(left.min(readahead_max as u64) as usize, 0);
        ahead.offset = offset;
        if let Err(error) = table.file().read_exact_at(&mut ahead.bytes, offset) {
            ahead.bytes.clear();
            return Err(error);
        }
        table.parse_block(offset, &ahead.bytes[..len], SearchDataKind::Offsets)
    }

    /// Moves to an entry of the current block.
    fn move_to(&mut self, place: EntryPosition) {
        if let Some(group) = self.block.as_ref().and_then(|block| block.view().group(place.group)) {
            self.move_within(&group, place);
        }
    }

    /// Moves to an entry of a group of the current block, and copies the prefix of the group.
    #[inline]
    fn move_within(&mut self, group: &SearchGroup, place: EntryPosition) {
        let Some(block) = self.block.as_ref() else { return };
        let view = block.view();
        let Some(at) = view.start_of(group, place.entry) else { return };
        let start = view.bytes.get(at..).unwrap_or_default();
        let Some(read) = read_short(start).or_else(|| read_long(start)) else { return };
        let around = start.get(read.suffix_at..).unwrap_or_default();
        let Some(suffix) = around.get(..read.suffix_len) else { return };
        self.key.start_group(view.prefix_of(group));
        self.key.set_suffix(suffix, around);
        self.position = place;
        self.group_entries = group.count;
        self.distinct = group.packed & packed::DISTINCT != 0;
        self.visible_entries = 0;
        self.trailer = read.trailer;
        self.value_at = at + read.suffix_at + read.suffix_len;
        self.end = self.value_at + read.value_len;
        self.valid = true;
    }

    fn move_to_first_of_block(&mut self, table: &Table, number: usize) -> Result<()> {
        if self.enter_block(table, number)? {
            self.move_to(EntryPosition::default());
        }
        Ok(())
    }

    fn move_to_last_of_block(&mut self, table: &Table, number: usize) -> Result<()> {
        if self.enter_block(table, number)?
            && let Some(last) = self.block.as_ref().map(Block::last)
        {
            self.move_to(last);
        }
        Ok(())
    }

    /// Moves to the entry before a position in the current block.
    fn move_before(&mut self, table: &Table, place: EntryPosition) -> Result<()> {
        self.position = place;
        if !self.try_prev() {
            self.valid = false;
            if self.number > 0 {
                self.move_to_last_of_block(table, self.number - 1)?;
            }
        }
        Ok(())
    }

    /// Moves to the next entry if it is in the same group of the block, and returns whether its key
    /// is the same. Otherwise returns `None` and does not move. REQUIRES: `valid()`.
    #[inline]
    pub fn try_next(&mut self) -> Option<bool> {
        let next = self.position.entry + 1;
        if next >= self.group_entries {
            return None;
        }
        let around = self.block.as_ref()?.bytes_from(self.end);
        let read = read_short(around).or_else(|| read_long(around))?;
        let around = around.get(read.suffix_at..)?;
        let suffix = around.get(..read.suffix_len)?;
        let repeats = !self.distinct && bytes_equal(suffix, self.key.suffix());
        self.key.set_suffix(suffix, around);
        self.position.entry = next;
        self.trailer = read.trailer;
        self.value_at = self.end + read.suffix_at + read.suffix_len;
        self.end = self.value_at + read.value_len;
        Some(repeats)
    }

    /// Sets the key before which `try_next_visible` stops; `None` sets no limit. The limit holds
    /// until the next movement other than `try_next_visible`. REQUIRES: `valid()`.
    pub fn set_limit(&mut self, key: Option<&[u8]>) {
        self.visible_entries = 0;
        if !self.distinct {
            return;
        }
        let prefix = self.key.prefix();
        self.limit = match key.map(|key| (key, key.strip_prefix(prefix))) {
            Some((_, Some(suffix))) => head64(suffix),
            // Before all that the group has.
            Some((key, None)) if key < prefix => return,
            _ => u64::MAX,
        };
        self.visible_entries = self.group_entries;
    }

    /// Moves to the next entry if it is in memory and is a put of another key before the limit that
    /// a reader at `sequence` sees. Otherwise returns `false` and does not move.
    #[inline]
    pub fn try_next_visible(&mut self, sequence: SequenceNumber) -> bool {
        let next = self.position.entry + 1;
        if next >= self.visible_entries {
            return false;
        }
        let Some(block) = self.block.as_ref() else { return false };
        let around = block.bytes_from(self.end);
        let Some(read) = read_short(around) else { return false };
        let Some(moved) = around.get(read.suffix_at..).and_then(|rest| rest.first_chunk()) else {
            return false;
        };
        if KeyBuffer::head_of_moved(moved, read.suffix_len) >= self.limit
            || !read.trailer.is_put()
            || (self.newest > sequence && read.trailer.sequence() > sequence)
            || !self.key.move_suffix(moved, read.suffix_len)
        {
            return false;
        }
        self.position.entry = next;
        self.trailer = read.trailer;
        self.value_at = self.end + read.suffix_at + read.suffix_len;
        self.end = self.value_at + read.value_len;
        true
    }

    /// Moves to the previous entry if it is in the same block. Otherwise returns `false` and does
    /// not move. REQUIRES: `valid()`.
    pub fn try_prev(&mut self) -> bool {
        let EntryPosition { group, entry } = self.position;
        if let Some(entry) = entry.checked_sub(1) {
            self.move_to(EntryPosition { group, entry });
        } else if let Some(group) = group.checked_sub(1) {
            let entries = self.block.as_ref().map_or(0, |block| block.group_entries(group));
            self.move_to(EntryPosition { group, entry: entries.saturating_sub(1) });
        } else {
            return false;
        }
        true
    }

    /// As [`umbel_base::Cursor::seek_to_first`].
    pub fn seek_to_first(&mut self, table: &Table) -> Result<()> {
        self.move_to_first_of_block(table, 0)
    }

    /// As [`umbel_base::Cursor::seek_to_last`].
    pub fn seek_to_last(&mut self, table: &Table) -> Result<()> {
        self.valid = false;
        match table.index().blocks().checked_sub(1) {
            Some(last) => self.move_to_last_of_block(table, last),
            None => Ok(()),
        }
    }

    /// As [`umbel_base::Cursor::seek`].
    pub fn seek(&mut self, table: &Table, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        self.begin_seek(table, key, sequence);
        self.narrow_seek(table, key, sequence)?;
        self.finish_seek(table, key, sequence)
    }

    /// First stage of a seek, for callers that seek in many tables: looks up the block and
    /// prefetches its slot. Afterwards the cursor is not valid until `finish_seek`. REQUIRES:
    /// before `finish_seek` the caller calls `narrow_seek`, and nothing else except
    /// `prefetch_seek`.
    pub fn begin_seek(&mut self, table: &Table, key: &[u8], sequence: SequenceNumber) {
        self.valid = false;
        self.seek_block = table.locate(key, sequence);
        if let Some(number) = self.seek_block {
            table.prefetch_slot(number);
        }
    }

    /// Prefetches the part that `narrow_seek` reads of the block that `begin_seek` looked up.
    #[inline]
    pub fn prefetch_seek(&self, table: &Table) {
        if let Some(number) = self.seek_block
            && !self.is_in(table, number)
        {
            table.slots().prefetch_lines(number, SEARCHED_LINES);
        }
    }

    /// Searches the block that `begin_seek` looked up as far as possible without reading an entry,
    /// and prefetches the entries that `finish_seek` reads. REQUIRES: the arguments of
    /// `begin_seek`.
    pub fn narrow_seek(
        &mut self,
        table: &Table,
        key: &[u8],
        sequence: SequenceNumber,
    ) -> Result<()> {
        let Some(number) = self.seek_block else { return Ok(()) };
        if !self.enter_block(table, number)? && !self.enter_paged(table, key, sequence)? {
            return Ok(());
        }
        let number = self.number;
        self.seek_range = self.block.as_ref().and_then(|block| narrow_range(block, key, sequence));
        if self.seek_range.as_ref().is_none_or(|found| found.remaining() < PREFETCHED_ENTRIES)
            && self.fill_cache
        {
            table.slots().prefetch_lines(number + 1, ENTERED_LINES);
        }
        Ok(())
    }

    /// Enters the block that `begin_seek` could not look up because the index is paged.
    #[cold]
    fn enter_paged(&mut self, table: &Table, key: &[u8], sequence: SequenceNumber) -> Result<bool> {
        if table.is_paged() {
            self.seek_block = table.find_paged(key, sequence)?;
        }
        match self.seek_block {
            Some(number) => self.enter_block(table, number),
            None => Ok(false),
        }
    }

    /// Last stage of a seek, after `begin_seek` and `narrow_seek`: moves to the target. REQUIRES:
    /// the arguments of `begin_seek`.
    pub fn finish_seek(
        &mut self,
        table: &Table,
        key: &[u8],
        sequence: SequenceNumber,
    ) -> Result<()> {
        let Some(number) = self.seek_block.take() else { return Ok(()) };
        let narrowed = self.seek_range.take();
        if let (Some(block), Some(narrowed)) = (&self.block, narrowed)
            && let Some(place) = find_in_range(block, &narrowed, key, sequence)
        {
            self.move_within(&narrowed.group, place);
            return Ok(());
        }
        self.move_to_first_of_block(table, number + 1)
    }

    /// Prefetches the entries that an iteration from the current entry reads first. REQUIRES:
    /// `valid()`.
    #[inline]
    pub fn prefetch_entries(&self) {
        if let Some(block) = &self.block {
            let after = block.bytes_from(self.value_at);
            (PREFETCHED_LINES.0..PREFETCHED_LINES.1).for_each(|line| prefetch(after, 64 * line));
        }
    }

    /// Whether block `number` of `table` is the current one.
    fn is_in(&self, table: &Table, number: usize) -> bool {
        self.block.is_some() && self.number == number && self.table == table.footer().file_id
    }

    /// As [`umbel_base::Cursor::seek_before`].
    pub fn seek_before(&mut self, table: &Table, key: &[u8]) -> Result<()> {
        self.valid = false;
        let newest = SequenceNumber::MAX;
        let Some(number) = table.find_block(key, newest)? else {
            return self.seek_to_last(table);
        };
        if !self.enter_block(table, number)? {
            return Ok(());
        }
        match self.block.as_ref().and_then(|block| block.lower_bound(key, newest)) {
            Some(place) => self.move_before(table, place),
            None => self.move_to_last_of_block(table, number),
        }
    }

    /// As [`umbel_base::Cursor::next`].
    #[inline]
    pub fn next(&mut self, table: &Table) -> Result<()> {
        match self.try_next() {
            Some(_) => Ok(()),
            None => self.next_group(table),
        }
    }

    /// As [`umbel_base::Cursor::next_repeats`].
    #[inline]
    pub fn next_repeats(&mut self, table: &Table) -> Result<bool> {
        match self.try_next() {
            Some(repeats) => Ok(repeats),
            None => {
                let left = self.key.clone();
                self.next_group(table)?;
                Ok(self.valid && self.key.key() == left.key())
            }
        }
    }

    /// Moves to the first entry of the next group, or of the next block.
    fn next_group(&mut self, table: &Table) -> Result<()> {
        let group = self.position.group + 1;
        if self.block.as_ref().is_some_and(|block| group < block.groups()) {
            self.move_to(EntryPosition { group, entry: 0 });
            return Ok(());
        }
        let number = self.number + 1;
        self.move_to_first_of_block(table, number)?;
        // A caller that walked to here will likely walk on.
        if self.fill_cache && number + 1 < table.index().blocks() {
            table.slots().prefetch_lines(number + 1, ENTERED_LINES);
            table.prefetch_slot(number + 2);
        }
        Ok(())
    }

    /// As [`umbel_base::Cursor::prev`].
    pub fn prev(&mut self, table: &Table) -> Result<()> {
        self.move_before(table, self.position)
    }

    /// As [`umbel_base::Cursor::release`].
    pub fn release(&mut self) {
        self.valid = false;
        self.block = None;
        (self.seek_block, self.seek_range) = (None, None);
        self.visible_entries = 0;
        self.readahead = ReadAhead::default();
    }

    /// As [`umbel_base::Cursor::valid`].
    #[inline]
    pub fn valid(&self) -> bool {
        self.valid
    }

    /// As [`umbel_base::Cursor::key`].
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.key.key()
    }

    /// As [`umbel_base::Cursor::sequence`].
    #[inline]
    pub fn sequence(&self) -> SequenceNumber {
        self.trailer.sequence()
    }

    /// As [`umbel_base::Cursor::kind`].
    #[inline]
    pub fn kind(&self) -> ValueKind {
        self.trailer.kind()
    }

    /// As [`umbel_base::Cursor::value`].
    #[inline]
    pub fn value(&self) -> &[u8] {
        let block = self.block.as_ref();
        block.map_or(&[], |block| block.bytes(self.value_at, self.end))
    }
}
