//! Reading a table of whose index only the top stays in memory.
//!
//! Everything here is behind a miss of the usual way: the index in memory has no heads and says of
//! every key [`crate::index::PAGED`], for which there is no slot.

use umbel_arena::Piece;
use umbel_base::{Error, Result, SequenceNumber};

use crate::block::Block;
use crate::format::{BlockKind, open_sealed, sealed_checksum};
use crate::index::PAGED;
use crate::index_part;
use crate::index_top::{PART_BLOCKS, PartPlace};
use crate::reader::Table;

/// The part of a paged index that a walk is in.
#[derive(Debug, Default)]
pub(crate) struct WalkedPart {
    /// The id of the table and the number of the part.
    of: Option<(u64, usize)>,
    payload: Vec<u8>,
}

impl Table {
    /// The block that [`crate::index::TableIndex::find`] speaks of, whether the index is paged or
    /// not.
    pub(crate) fn find_block(&self, key: &[u8], sequence: SequenceNumber) -> Result<Option<usize>> {
        match self.index().find(key, sequence) {
            Some(PAGED) => self.find_paged(key, sequence),
            found => Ok(found),
        }
    }

    /// The same where it is paged.
    #[cold]
    pub(crate) fn find_paged(&self, key: &[u8], sequence: SequenceNumber) -> Result<Option<usize>> {
        let Some(place) = self.top().find(key, sequence) else { return Ok(None) };
        let part = self.index_part(&place)?;
        let found = index_part::find(&part, place.blocks, key, sequence)
            .map_err(|reason| self.corruption(place.offset, reason))?;
        Ok(found.map(|number| place.number * PART_BLOCKS + number))
    }

    /// Where a block stands in the file.
    #[cold]
    pub(crate) fn extent_paged(&self, block: usize) -> Result<Option<(u64, usize)>> {
        let Some(place) = self.top().part(block / PART_BLOCKS) else { return Ok(None) };
        let part = self.index_part(&place)?;
        let found = index_part::extent(&part, place.blocks, block % PART_BLOCKS)
            .map_err(|reason| self.corruption(place.offset, reason))?;
        Ok(found.map(|(start, len)| (place.data.0 + start, len)))
    }

    /// [`Table::extent`] for a walk that leaves the cache alone: where the index is paged, the walk
    /// itself keeps the part that it is in.
    pub(crate) fn extent_in_walk(
        &self,
        block: usize,
        walked: &mut WalkedPart,
    ) -> Result<(u64, usize)> {
        if !self.is_paged() {
            return self.extent(block);
        }
        let (number, id) = (block / PART_BLOCKS, self.footer().file_id);
        let missing = || self.corruption(self.footer().index.offset, "a block is not in the index");
        let place = self.top().part(number).ok_or_else(missing)?;
        if walked.of != Some((id, number)) {
            walked.of = None;
            let held = self.part_number(&place).and_then(|number| self.slots().held(number));
            walked.payload = match held {
                Some(piece) => piece.to_vec(),
                None => self.read_index_part(&place)?,
            };
            walked.of = Some((id, number));
        }
        let found = index_part::extent(&walked.payload, place.blocks, block % PART_BLOCKS)
            .map_err(|reason| self.corruption(place.offset, reason))?;
        let (start, len) = found.ok_or_else(missing)?;
        Ok((place.data.0 + start, len))
    }

    /// Under which number a part of the index stands among the pieces. Parts are numbered behind
    /// the blocks.
    fn part_number(&self, place: &PartPlace) -> Option<u32> {
        u32::try_from(self.top().blocks() + place.number).ok()
    }

    /// A block that is in memory, though there is no slot for it.
    pub(crate) fn held_block(&self, block: usize) -> Option<Block> {
        self.slots().held(u32::try_from(block).ok()?).map(Block::from_piece)
    }

    /// A part of the index, from memory or from the file, checked.
    fn index_part(&self, place: &PartPlace) -> Result<Piece> {
        let number = self.part_number(place);
        if let Some(piece) = number.and_then(|number| self.slots().held(number)) {
            return Ok(piece);
        }
        let payload = self.read_index_part(place)?;
        let piece = self.slots().arena().store(&[&payload]);
        let Some(number) = number.filter(|_| self.cache().loaded(piece.memory_bytes())) else {
            return Ok(piece);
        };
        let (piece, was_empty, bytes) = self.slots().keep(number, piece);
        if was_empty {
            self.cache().admit(self.slots(), number, bytes);
        }
        Ok(piece)
    }

    fn read_index_part(&self, place: &PartPlace) -> Result<Vec<u8>> {
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
        index_part::check(&payload, place.blocks, last, data_len).map_err(refuse)?;
        Ok(payload.into_owned())
    }

    /// Whether only the top of the index stays in memory.
    pub fn is_paged(&self) -> bool {
        self.index().is_paged()
    }
}
