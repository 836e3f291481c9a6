//! Walks a table in both directions.

use umbel_arena::prefetch;
use umbel_base::{Result, SequenceNumber, ValueKind};

use crate::block::{Block, Group, Place};
use crate::format::{head64, same};
use crate::key_buffer::KeyBuffer;
use crate::narrow::{Narrowed, narrow, place_among};
use crate::paged::WalkedPart;
use crate::parts::{Trailer, read_any, read_usual};
use crate::reader::Table;
use crate::section::{Derive, packed};

/// What a seek reads of a block before its entries: header, tags, offsets and heads of a block of
/// the usual size.
const SEARCHED_LINES: usize = 5;
/// The same and the first entries, for whoever comes from the block before.
const ENTERED_LINES: usize = 8;
/// Lines behind an entry's key that are asked for once it is known to be the one a seek ends on;
/// those before were asked for when it was one of several.
const EXPECTED_LINES: (usize, usize) = (3, 14);
/// Whoever seeks will likely read this many entries.
const ENTRIES_AHEAD: usize = 10;

/// Walks a table that is handed to it with each movement, so that whoever walks many tables need
/// not hold each one for every walk. Its methods are those of [`umbel_base::Cursor`], with the same
/// laws, and one more: `next` and `prev` get the table that the last seek got. A seek may get
/// another one.
#[derive(Debug)]
pub struct TableWalk {
    fill_cache: bool,
    block: Option<Block>,
    /// The table of `block` and of what was read ahead.
    table: u64,
    /// The number of `block`.
    number: usize,
    /// The block that `aim` looked up.
    aimed: Option<usize>,
    /// What `reach` found out about the place in it.
    narrowed: Option<Narrowed>,
    place: Place,
    /// How many entries the group has that is stood in.
    group_entries: usize,
    /// Whether no two entries of that group have the same key.
    distinct: bool,
    /// The same number where strides may be made in that group; 0 where not.
    strides: usize,
    /// What stands at or behind this head, behind the group's prefix, no stride reaches.
    limit: u64,
    /// No entry of the table is newer.
    newest: SequenceNumber,
    valid: bool,
    key: KeyBuffer,
    trailer: Trailer,
    value_at: usize,
    /// Where the value ends and the next entry of the group starts.
    end: usize,
    ahead: Ahead,
}

/// Bytes of the file that were read ahead.
#[derive(Debug, Default)]
struct Ahead {
    offset: u64,
    bytes: Vec<u8>,
    /// Where the index is paged.
    part: Option<Box<WalkedPart>>,
}

impl TableWalk {
    /// A walk, not yet on an entry. Where `fill_cache` is false it uses blocks that are in the
    /// cache and adds none, and reads ahead when it goes forwards: for compaction and backup.
    pub fn new(fill_cache: bool) -> TableWalk {
        TableWalk {
            fill_cache,
            block: None,
            table: 0,
            number: 0,
            aimed: None,
            narrowed: None,
            place: Place::default(),
            group_entries: 0,
            distinct: false,
            strides: 0,
            limit: 0,
            newest: 0,
            valid: false,
            key: KeyBuffer::default(),
            trailer: Trailer::default(),
            value_at: 0,
            end: 0,
            ahead: Ahead::default(),
        }
    }

    /// Makes block `number` the current one. `false` where there is none.
    fn enter(&mut self, table: &Table, number: usize) -> Result<bool> {
        self.valid = false;
        if self.is_in(table, number) {
            return Ok(true);
        }
        let id = table.footer().file_id;
        let stays = self.table == id;
        let walks = self.block.take().is_some() && stays && number == self.number + 1;
        if !stays {
            self.ahead = Ahead::default();
            self.table = id;
            self.newest = table.meta().sequence_max;
        }
        if number >= table.index().blocks() {
            return Ok(false);
        }
        self.block = Some(match table.slots().get(number) {
            Some(block) => block,
            None if self.fill_cache => table.load(number)?,
            None => self.read(table, number, walks)?,
        });
        self.number = number;
        Ok(true)
    }

    /// Reads a block past the cache, and others behind it where the walk goes forwards.
    fn read(&mut self, table: &Table, number: usize, walks: bool) -> Result<Block> {
        let ahead = &mut self.ahead;
        let (offset, len) = table.extent_in_walk(number, ahead.part.get_or_insert_default())?;
        let held = offset.checked_sub(ahead.offset).map(|skip| skip as usize);
        let held = held.and_then(|skip| ahead.bytes.get(skip..skip.checked_add(len)?));
        if let Some(sealed) = held {
            return table.parse_block(offset, sealed, Derive::Offsets);
        }
        let most = table.ahead_bytes();
        if !walks || len >= most {
            let mut sealed = vec![0; len];
            table.file().read_exact_at(&mut sealed, offset)?;
            return table.parse_block(offset, sealed, Derive::Offsets);
        }
        let data = table.footer().data;
        let left = data.offset + data.len - offset;
        ahead.bytes.resize(left.min(most as u64) as usize, 0);
        ahead.offset = offset;
        if let Err(error) = table.file().read_exact_at(&mut ahead.bytes, offset) {
            ahead.bytes.clear();
            return Err(error);
        }
        table.parse_block(offset, &ahead.bytes[..len], Derive::Offsets)
    }

    /// Stands on an entry of the current block.
    fn stand(&mut self, place: Place) {
        if let Some(group) = self.block.as_ref().and_then(|block| block.view().group(place.group)) {
            self.stand_in(&group, place);
        }
    }

    /// Stands on an entry of a group of the current block, copying the prefix of the group.
    #[inline]
    fn stand_in(&mut self, group: &Group, place: Place) {
        let Some(block) = self.block.as_ref() else { return };
        let view = block.view();
        let Some(at) = view.start_of(group, place.entry) else { return };
        let start = view.bytes.get(at..).unwrap_or_default();
        let Some(read) = read_usual(start).or_else(|| read_any(start)) else { return };
        let around = start.get(read.suffix_at..).unwrap_or_default();
        let Some(suffix) = around.get(..read.suffix_len) else { return };
        self.key.start_group(view.prefix_of(group));
        self.key.set_suffix(suffix, around);
        self.place = place;
        self.group_entries = group.count;
        self.distinct = group.packed & packed::DISTINCT != 0;
        self.strides = 0;
        self.trailer = read.trailer;
        self.value_at = at + read.suffix_at + read.suffix_len;
        self.end = self.value_at + read.value_len;
        self.valid = true;
    }

    fn stand_on_first_of(&mut self, table: &Table, number: usize) -> Result<()> {
        if self.enter(table, number)? {
            self.stand(Place::default());
        }
        Ok(())
    }

    fn stand_on_last_of(&mut self, table: &Table, number: usize) -> Result<()> {
        if self.enter(table, number)?
            && let Some(last) = self.block.as_ref().map(Block::last)
        {
            self.stand(last);
        }
        Ok(())
    }

    /// Stands on the entry before a place of the current block.
    fn stand_before(&mut self, table: &Table, place: Place) -> Result<()> {
        self.place = place;
        if !self.step_back() {
            self.valid = false;
            if self.number > 0 {
                self.stand_on_last_of(table, self.number - 1)?;
            }
        }
        Ok(())
    }

    /// Moves to the next entry where the same search group of the block has it: says whether its
    /// key is the one left. `None`, and nothing changed, where it has not. REQUIRES: `valid()`.
    #[inline]
    pub fn step(&mut self) -> Option<bool> {
        let next = self.place.entry + 1;
        if next >= self.group_entries {
            return None;
        }
        let around = self.block.as_ref()?.behind(self.end);
        let read = read_usual(around).or_else(|| read_any(around))?;
        let around = around.get(read.suffix_at..)?;
        let suffix = around.get(..read.suffix_len)?;
        let repeats = !self.distinct && same(suffix, self.key.suffix());
        self.key.set_suffix(suffix, around);
        self.place.entry = next;
        self.trailer = read.trailer;
        self.value_at = self.end + read.suffix_at + read.suffix_len;
        self.end = self.value_at + read.value_len;
        Some(repeats)
    }

    /// Says up to which key, and without it, strides may go; without one they may go anywhere.
    /// Holds until the next movement but a stride. REQUIRES: `valid()`.
    pub fn set_limit(&mut self, key: Option<&[u8]>) {
        self.strides = 0;
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
        self.strides = self.group_entries;
    }

    /// Moves to the next entry where it is a put of another key before the limit that a reader at
    /// `sequence` sees, and the move takes nothing but what is at hand. `false`, and nothing
    /// changed, elsewhere.
    #[inline]
    pub fn stride(&mut self, sequence: SequenceNumber) -> bool {
        let next = self.place.entry + 1;
        if next >= self.strides {
            return false;
        }
        let Some(block) = self.block.as_ref() else { return false };
        let around = block.behind(self.end);
        let Some(read) = read_usual(around) else { return false };
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
        self.place.entry = next;
        self.trailer = read.trailer;
        self.value_at = self.end + read.suffix_at + read.suffix_len;
        self.end = self.value_at + read.value_len;
        true
    }

    /// Moves to the previous entry where the same block has it. `false`, and nothing changed, where
    /// it has not. REQUIRES: `valid()`.
    pub fn step_back(&mut self) -> bool {
        let Place { group, entry } = self.place;
        if let Some(entry) = entry.checked_sub(1) {
            self.stand(Place { group, entry });
        } else if let Some(group) = group.checked_sub(1) {
            let entries = self.block.as_ref().map_or(0, |block| block.group_entries(group));
            self.stand(Place { group, entry: entries.saturating_sub(1) });
        } else {
            return false;
        }
        true
    }

    /// As [`umbel_base::Cursor::seek_to_first`].
    pub fn seek_to_first(&mut self, table: &Table) -> Result<()> {
        self.stand_on_first_of(table, 0)
    }

    /// As [`umbel_base::Cursor::seek_to_last`].
    pub fn seek_to_last(&mut self, table: &Table) -> Result<()> {
        self.valid = false;
        match table.index().blocks().checked_sub(1) {
            Some(last) => self.stand_on_last_of(table, last),
            None => Ok(()),
        }
    }

    /// As [`umbel_base::Cursor::seek`].
    pub fn seek(&mut self, table: &Table, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        self.aim(table, key, sequence);
        self.reach(table, key, sequence)?;
        self.seek_aimed(table, key, sequence)
    }

    /// The first part of a seek, for those who seek in many tables: looks up the block and asks
    /// for its slot. Afterwards the walk is not valid until `seek_aimed`, before which nothing else
    /// but `approach` may, and `reach` must be called.
    pub fn aim(&mut self, table: &Table, key: &[u8], sequence: SequenceNumber) {
        self.valid = false;
        self.aimed = table.locate(key, sequence);
        if let Some(number) = self.aimed {
            table.prefetch_slot(number);
        }
    }

    /// Asks for what is searched of the block that `aim` looked up.
    #[inline]
    pub fn approach(&self, table: &Table) {
        if let Some(number) = self.aimed
            && !self.is_in(table, number)
        {
            table.slots().prefetch_lines(number, SEARCHED_LINES);
        }
    }

    /// Searches the block that `aim` looked up as far as that takes no entry, and asks for the
    /// entries that come next. REQUIRES: what `aim` got.
    pub fn reach(&mut self, table: &Table, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        let Some(number) = self.aimed else { return Ok(()) };
        if !self.enter(table, number)? && !self.enter_paged(table, key, sequence)? {
            return Ok(());
        }
        let number = self.number;
        self.narrowed = self.block.as_ref().and_then(|block| narrow(block, key, sequence));
        if self.narrowed.as_ref().is_none_or(|found| found.left() < ENTRIES_AHEAD)
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
            self.aimed = table.find_paged(key, sequence)?;
        }
        match self.aimed {
            Some(number) => self.enter(table, number),
            None => Ok(false),
        }
    }

    /// The rest of the seek that `aim` and `reach` began. REQUIRES: what they got.
    pub fn seek_aimed(
        &mut self,
        table: &Table,
        key: &[u8],
        sequence: SequenceNumber,
    ) -> Result<()> {
        let Some(number) = self.aimed.take() else { return Ok(()) };
        let narrowed = self.narrowed.take();
        if let (Some(block), Some(narrowed)) = (&self.block, narrowed)
            && let Some(place) = place_among(block, &narrowed, key, sequence)
        {
            self.stand_in(&narrowed.group, place);
            return Ok(());
        }
        self.stand_on_first_of(table, number + 1)
    }

    /// Asks for the entries that a walk from here on reads first. REQUIRES: `valid()`.
    #[inline]
    pub fn expect(&self) {
        if let Some(block) = &self.block {
            let behind = block.behind(self.value_at);
            (EXPECTED_LINES.0..EXPECTED_LINES.1).for_each(|line| prefetch(behind, 64 * line));
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
        if !self.enter(table, number)? {
            return Ok(());
        }
        match self.block.as_ref().and_then(|block| block.lower_bound(key, newest)) {
            Some(place) => self.stand_before(table, place),
            None => self.stand_on_last_of(table, number),
        }
    }

    /// As [`umbel_base::Cursor::next`].
    #[inline]
    pub fn next(&mut self, table: &Table) -> Result<()> {
        match self.step() {
            Some(_) => Ok(()),
            None => self.next_group(table),
        }
    }

    /// As [`umbel_base::Cursor::next_repeats`].
    #[inline]
    pub fn next_repeats(&mut self, table: &Table) -> Result<bool> {
        match self.step() {
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
        let group = self.place.group + 1;
        if self.block.as_ref().is_some_and(|block| group < block.groups()) {
            self.stand(Place { group, entry: 0 });
            return Ok(());
        }
        let number = self.number + 1;
        self.stand_on_first_of(table, number)?;
        // Whoever walked to here will likely walk on.
        if self.fill_cache && number + 1 < table.index().blocks() {
            table.slots().prefetch_lines(number + 1, ENTERED_LINES);
            table.prefetch_slot(number + 2);
        }
        Ok(())
    }

    /// As [`umbel_base::Cursor::prev`].
    pub fn prev(&mut self, table: &Table) -> Result<()> {
        self.stand_before(table, self.place)
    }

    /// As [`umbel_base::Cursor::release`].
    pub fn release(&mut self) {
        self.valid = false;
        self.block = None;
        (self.aimed, self.narrowed) = (None, None);
        self.strides = 0;
        self.ahead = Ahead::default();
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
