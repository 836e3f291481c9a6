//! Walks a table in both directions.

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

/// Bytes of a block that a seek reads before its entries: header, tags, offsets and heads of a
/// block of the usual size.
const SEARCHED_LINES: usize = 5;
/// The same and the first entries, for a cursor that comes from the block before.
const ENTERED_LINES: usize = 8;
/// Lines after an entry's key that are prefetched once the seek has found it;
/// earlier lines were prefetched when it was one of several candidates.
const PREFETCHED_LINES: (usize, usize) = (3, 14);
/// A caller that seeks will likely read this many entries.
const PREFETCHED_ENTRIES: usize = 10;

/// Cursor over a table that the caller passes to each call, so that a caller with cursors on many
/// tables need not hold each table for every cursor. Its methods are those of
/// [`umbel_base::Cursor`], with the same laws, and one more: `next` and `prev` get the table of the
/// last seek. A seek may get another one.
#[derive(Debug)]
pub struct ContextTableCursor {
    fill_cache: bool,
    block: Option<Block>,
    /// Table of `block` and of the blocks read ahead.
    table: u64,
    /// The number of `block`.
    number: usize,
    /// The block that `aim` looked up.
    seek_block: Option<usize>,
    /// Range that `reach` found in the block.
    seek_range: Option<SeekRange>,
    position: EntryPosition,
    /// Number of entries the group has that is stood in.
    group_entries: usize,
    /// Whether no two entries of that group have the same key.
    distinct: bool,
    /// The same number where strides may be made in that group; 0 where not.
    visible_entries: usize,
    /// Head limit after the group's prefix: no stride reaches an entry at or after it.
    limit: u64,
    /// No entry of the table is newer.
    newest: SequenceNumber,
    valid: bool,
    key: KeyBuffer,
    trailer: Trailer,
    value_at: usize,
    /// End of the value, where the next entry of the group starts.
    end: usize,
    readahead: ReadAhead,
}

/// Bytes of the file that were read ahead.
#[derive(Debug, Default)]
struct ReadAhead {
    offset: u64,
    bytes: Vec<u8>,
    /// Current index block, where the index is paged.
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

    /// Makes block `number` the current one. `false` where it does not exist.
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

    /// Reads a block past the cache, and others after it where the walk goes forwards.
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

    /// Stands on an entry of the current block.
    fn move_to(&mut self, place: EntryPosition) {
        if let Some(group) = self.block.as_ref().and_then(|block| block.view().group(place.group)) {
            self.move_within(&group, place);
        }
    }

    /// Stands on an entry of a group of the current block, copying the prefix of the group.
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

    /// Stands on the entry before a place of the current block.
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

    /// Moves to the next entry where it is in the same search group of the block. Returns whether
    /// its key is the same. Elsewhere returns `None` and does not move. REQUIRES: `valid()`.
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

    /// Says up to which key, and without it, strides may go; without one they may go anywhere.
    /// Holds until the next movement but a stride. REQUIRES: `valid()`.
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

    /// Moves to the next entry where it is a put of another key before the limit that a reader at
    /// `sequence` sees, and where its bytes are in memory. Elsewhere returns `false` and does not
    /// move.
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

    /// Moves to the previous entry where the same block has it. `false`, and nothing changed, where
    /// it has not. REQUIRES: `valid()`.
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
    /// prefetches its slot. Afterwards the cursor is not valid until `seek_aimed`. Before it, only
    /// `approach` may be called, and `reach` must be.
    pub fn begin_seek(&mut self, table: &Table, key: &[u8], sequence: SequenceNumber) {
        self.valid = false;
        self.seek_block = table.locate(key, sequence);
        if let Some(number) = self.seek_block {
            table.prefetch_slot(number);
        }
    }

    /// Prefetches the searched part of the block that `aim` looked up.
    #[inline]
    pub fn prefetch_seek(&self, table: &Table) {
        if let Some(number) = self.seek_block
            && !self.is_in(table, number)
        {
            table.slots().prefetch_lines(number, SEARCHED_LINES);
        }
    }

    /// Searches the block that `aim` looked up as far as that takes no entry, and prefetches the
    /// entries that come next. REQUIRES: what `aim` got.
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

    /// Enters the block that `aim` could not look up because the index is paged.
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

    /// The rest of the seek after `aim` and `reach`. REQUIRES: the same arguments.
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

    /// Prefetches the entries that a walk from here on reads first. REQUIRES: `valid()`.
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
