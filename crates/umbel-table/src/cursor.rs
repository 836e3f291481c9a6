//! Walks a table in both directions.

use std::sync::Arc;

use umbel_base::{Cursor, Result, SequenceNumber, ValueKind};

use crate::block::{Block, Derive, Place};
use crate::entry::Entry;
use crate::reader::Table;

/// A cursor that does not fill the cache and walks forwards reads pieces of this size.
const AHEAD_BYTES: usize = 256 * 1024;

/// A cursor over a table's entries; see [`Cursor`] for its laws. It keeps the table and the block
/// it stands in.
#[derive(Debug)]
pub struct TableCursor {
    table: Arc<Table>,
    fill_cache: bool,
    block: Option<Arc<Block>>,
    /// The number of `block`.
    number: usize,
    place: Place,
    valid: bool,
    /// The prefix of the group, and behind it the suffix of the entry.
    key: Vec<u8>,
    prefix_len: usize,
    sequence: SequenceNumber,
    kind: ValueKind,
    value_at: usize,
    value_len: usize,
    ahead: Ahead,
}

/// Bytes of the file that were read ahead.
#[derive(Debug, Default)]
struct Ahead {
    offset: u64,
    bytes: Vec<u8>,
}

impl Table {
    /// A cursor, not yet on an entry. Where `fill_cache` is false it uses blocks that are in the
    /// cache and adds none, and reads ahead when it walks forwards: for compaction and backup.
    pub fn cursor(self: &Arc<Self>, fill_cache: bool) -> TableCursor {
        TableCursor {
            table: Arc::clone(self),
            fill_cache,
            block: None,
            number: 0,
            place: Place::default(),
            valid: false,
            key: Vec::new(),
            prefix_len: 0,
            sequence: 0,
            kind: ValueKind::Delete,
            value_at: 0,
            value_len: 0,
            ahead: Ahead::default(),
        }
    }
}

impl TableCursor {
    /// Makes block `number` the current one. `false` where there is none.
    fn enter(&mut self, number: usize) -> Result<bool> {
        self.valid = false;
        if self.block.is_some() && self.number == number {
            return Ok(true);
        }
        let walks = self.block.take().is_some() && number == self.number + 1;
        if number >= self.table.index().blocks() {
            return Ok(false);
        }
        let cached = self.table.slots().get(number).and_then(|cached| cached.clone());
        self.block = Some(match cached {
            Some(block) => block,
            None if self.fill_cache => self.table.load(number)?,
            None => Arc::new(self.read(number, walks)?),
        });
        self.number = number;
        Ok(true)
    }

    /// Reads a block past the cache, and others behind it where the cursor walks forwards.
    fn read(&mut self, number: usize, walks: bool) -> Result<Block> {
        let table = &self.table;
        let (offset, len) = table.extent(number)?;
        let ahead = &mut self.ahead;
        let held = offset.checked_sub(ahead.offset).map(|skip| skip as usize);
        let held = held.and_then(|skip| ahead.bytes.get(skip..skip.checked_add(len)?));
        if let Some(sealed) = held {
            return table.parse_block(offset, sealed.to_vec(), Derive::Offsets);
        }
        if !walks || len >= AHEAD_BYTES {
            let mut sealed = vec![0; len];
            table.file().read_exact_at(&mut sealed, offset)?;
            return table.parse_block(offset, sealed, Derive::Offsets);
        }
        let data = table.footer().data;
        let left = data.offset + data.len - offset;
        ahead.bytes.resize(left.min(AHEAD_BYTES as u64) as usize, 0);
        ahead.offset = offset;
        if let Err(error) = table.file().read_exact_at(&mut ahead.bytes, offset) {
            ahead.bytes.clear();
            return Err(error);
        }
        table.parse_block(offset, ahead.bytes[..len].to_vec(), Derive::Offsets)
    }

    /// Stands on an entry of the current block, copying the prefix of its group.
    fn stand(&mut self, place: Place) {
        let Some(block) = self.block.as_deref() else { return };
        let Some(entry) = block.entry(place) else { return };
        let prefix = block.prefix(place.group);
        self.key.clear();
        self.key.extend_from_slice(prefix);
        self.key.extend_from_slice(entry.suffix);
        self.prefix_len = prefix.len();
        self.place = place;
        let (sequence, kind) = (entry.sequence, entry.kind);
        let (value_at, value_len) = (entry.value_at, entry.value.len());
        self.remember(sequence, kind, value_at, value_len);
    }

    #[inline]
    fn remember(
        &mut self,
        sequence: SequenceNumber,
        kind: ValueKind,
        value_at: usize,
        value_len: usize,
    ) {
        self.sequence = sequence;
        self.kind = kind;
        self.value_at = value_at;
        self.value_len = value_len;
        self.valid = true;
    }

    fn stand_on_first_of(&mut self, number: usize) -> Result<()> {
        if self.enter(number)? {
            self.stand(Place::default());
        }
        Ok(())
    }

    fn stand_on_last_of(&mut self, number: usize) -> Result<()> {
        if self.enter(number)?
            && let Some(last) = self.block.as_deref().map(Block::last)
        {
            self.stand(last);
        }
        Ok(())
    }

    /// Stands on the entry before a place of the current block.
    fn stand_before(&mut self, place: Place) -> Result<()> {
        self.valid = false;
        if place.entry > 0 {
            self.stand(Place { entry: place.entry - 1, ..place });
        } else if place.group > 0 {
            let group = place.group - 1;
            let entries = self.block.as_deref().map_or(0, |block| block.group_entries(group));
            self.stand(Place { group, entry: entries.saturating_sub(1) });
        } else if self.number > 0 {
            self.stand_on_last_of(self.number - 1)?;
        }
        Ok(())
    }

    /// The next entry of the same group, which starts where this one ends.
    #[inline]
    fn step(&mut self) -> bool {
        let Some(block) = self.block.as_deref() else { return false };
        let next = self.place.entry + 1;
        if next >= block.group_entries(self.place.group) {
            return false;
        }
        let Some(entry) = block.entry_at(self.value_at + self.value_len) else { return false };
        let Entry { suffix, sequence, kind, value, value_at } = entry;
        self.key.truncate(self.prefix_len);
        self.key.extend_from_slice(suffix);
        self.place.entry = next;
        let value_len = value.len();
        self.remember(sequence, kind, value_at, value_len);
        true
    }
}

impl Cursor for TableCursor {
    fn seek_to_first(&mut self) -> Result<()> {
        self.stand_on_first_of(0)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.valid = false;
        match self.table.index().blocks().checked_sub(1) {
            Some(last) => self.stand_on_last_of(last),
            None => Ok(()),
        }
    }

    fn seek(&mut self, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        self.valid = false;
        let Some(number) = self.table.index().find(key, sequence) else { return Ok(()) };
        if !self.enter(number)? {
            return Ok(());
        }
        match self.block.as_deref().and_then(|block| block.lower_bound(key, sequence)) {
            Some(place) => self.stand(place),
            None => self.stand_on_first_of(number + 1)?,
        }
        Ok(())
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.valid = false;
        let newest = SequenceNumber::MAX;
        let Some(number) = self.table.index().find(key, newest) else {
            return self.seek_to_last();
        };
        if !self.enter(number)? {
            return Ok(());
        }
        match self.block.as_deref().and_then(|block| block.lower_bound(key, newest)) {
            Some(place) => self.stand_before(place),
            None => self.stand_on_last_of(number),
        }
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        if self.step() {
            return Ok(());
        }
        let group = self.place.group + 1;
        if self.block.as_deref().is_some_and(|block| group < block.groups()) {
            self.stand(Place { group, entry: 0 });
            return Ok(());
        }
        self.stand_on_first_of(self.number + 1)
    }

    fn prev(&mut self) -> Result<()> {
        self.stand_before(self.place)
    }

    #[inline]
    fn valid(&self) -> bool {
        self.valid
    }

    #[inline]
    fn key(&self) -> &[u8] {
        &self.key
    }

    #[inline]
    fn sequence(&self) -> SequenceNumber {
        self.sequence
    }

    #[inline]
    fn kind(&self) -> ValueKind {
        self.kind
    }

    #[inline]
    fn value(&self) -> &[u8] {
        let block = self.block.as_deref();
        block.map_or(&[], |block| block.bytes(self.value_at, self.value_len))
    }
}
