//! Reads a table with a paged index, of which only the top stays in memory.
//!
//! The in-memory index of such a table has no heads, and returns
//! [`crate::index::in_memory_index::PAGED_INDEX`] for every key. No slot has this number.

use umbel_arena::Allocation;
use umbel_base::{Error, Result, SequenceNumber};

use crate::block::Block;
use crate::format::{BlockKind, open_sealed, sealed_checksum};
use crate::index::in_memory_index::PAGED_INDEX;
use crate::index::index_block;
use crate::index::top_level_index::{INDEX_BLOCK_ENTRIES, IndexBlockHandle};
use crate::reader::table_reader::Table;

/// The index block of a paged index that a scan uses now.
#[derive(Debug, Default)]
pub(crate) struct CachedIndexBlock {
    /// Id of the table, and number of the index block.
    loaded: Option<(u64, usize)>,
    payload: Vec<u8>,
}

impl Table {
    /// Returns the block as [`crate::index::in_memory_index::TableIndex::find`] does, also with a
    /// paged index.
    pub(crate) fn find_block(&self, key: &[u8], sequence: SequenceNumber) -> Result<Option<usize>> {
        match self.index().find(key, sequence) {
            Some(PAGED_INDEX) => self.find_paged(key, sequence),
            found => Ok(found),
        }
    }

    /// Returns the block for a key, with a paged index.
    #[cold]
    pub(crate) fn find_paged(&self, key: &[u8], sequence: SequenceNumber) -> Result<Option<usize>> {
        let Some(place) = self.top().find(key, sequence) else { return Ok(None) };
        let part = self.index_block(&place)?;
        let found = index_block::find(&part, place.blocks, key, sequence)
            .map_err(|reason| self.corruption(place.offset, reason))?;
        Ok(found.map(|number| place.number * INDEX_BLOCK_ENTRIES + number))
    }

    /// Returns offset and length of a block in the file, with a paged index.
    #[cold]
    pub(crate) fn extent_paged(&self, block: usize) -> Result<Option<(u64, usize)>> {
        let Some(place) = self.top().handle(block / INDEX_BLOCK_ENTRIES) else { return Ok(None) };
        let part = self.index_block(&place)?;
        let found = index_block::extent(&part, place.blocks, block % INDEX_BLOCK_ENTRIES)
            .map_err(|reason| self.corruption(place.offset, reason))?;
        Ok(found.map(|(start, len)| (place.data.0 + start, len)))
    }

    /// Like [`Table::extent`], for a scan that does not use the cache: with a paged index the scan
    /// keeps the current index block itself.
    pub(crate) fn extent_uncached(
        &self,
        block: usize,
        walked: &mut CachedIndexBlock,
    ) -> Result<(u64, usize)> {
        if !self.is_paged() {
            return self.extent(block);
        }
        let (number, id) = (block / INDEX_BLOCK_ENTRIES, self.footer().file_id);
        let missing = || self.corruption(self.footer().index.offset, "a block is not in the index");
        let place = self.top().handle(number).ok_or_else(missing)?;
        if walked.loaded != Some((id, number)) {
            walked.loaded = None;
            let held =
                self.index_block_number(&place).and_then(|number| self.slots().paged_piece(number));
            walked.payload = match held {
                Some(piece) => piece.to_vec(),
                None => self.read_index_block(&place)?,
            };
            walked.loaded = Some((id, number));
        }
        let found = index_block::extent(&walked.payload, place.blocks, block % INDEX_BLOCK_ENTRIES)
            .map_err(|reason| self.corruption(place.offset, reason))?;
        let (start, len) = found.ok_or_else(missing)?;
        Ok((place.data.0 + start, len))
    }

    /// Returns the number under which an index block is cached. Index blocks are numbered after the
    /// data blocks.
    fn index_block_number(&self, place: &IndexBlockHandle) -> Option<u32> {
        u32::try_from(self.top().blocks() + place.number).ok()
    }

    /// Returns a cached block of a table with a paged index, which has no slots.
    pub(crate) fn paged_block(&self, block: usize) -> Option<Block> {
        self.slots().paged_piece(u32::try_from(block).ok()?).map(Block::from_piece)
    }

    /// Returns an index block, from memory or else read from the file and checked.
    fn index_block(&self, place: &IndexBlockHandle) -> Result<Allocation> {
        let number = self.index_block_number(place);
        if let Some(piece) = number.and_then(|number| self.slots().paged_piece(number)) {
            return Ok(piece);
        }
        let payload = self.read_index_block(place)?;
        let piece = self.slots().arena().store(&[&payload]);
        let Some(number) = number.filter(|_| self.cache().on_block_read(piece.memory_bytes()))
        else {
            return Ok(piece);
        };
        let (piece, was_empty, bytes) = self.slots().insert_paged(number, piece);
        if was_empty {
            self.cache().admit(self.slots(), number, bytes);
        }
        Ok(piece)
    }

    fn read_index_block(&self, place: &IndexBlockHandle) -> Result<Vec<u8>> {
        let (path, id) = (self.file().path(), self.footer().file_id);
        let refuse = |reason: &str| Error::corruption(path, place.offset, reason);
        let mut sealed = vec![0; place.len];
        self.file().read_exact_at(&mut sealed, place.offset)?;
        if sealed_checksum(&sealed) != place.checksum {
            return Err(refuse(
                "the part of the index is not the one that its top was written for",
            ));
        }
        let payload = open_sealed(path, id, place.offset, BlockKind::IndexPart, &sealed, 0)?;
        let last = self.top().last_separator(place.number);
        let data_len = place.data.1 - place.data.0;
        index_block::check(&payload, place.blocks, last, data_len).map_err(refuse)?;
        Ok(payload.into_owned())
    }

    /// Whether only the top of the index stays in memory.
    pub fn is_paged(&self) -> bool {
        self.index().is_paged()
    }
}
