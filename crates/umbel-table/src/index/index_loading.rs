//! Reads the index region of a table file: index blocks, and after them the top of the index.

use std::path::Path;

use umbel_arena::Arena;
use umbel_base::{Error, Result};
use umbel_env::File;

use crate::format::footer::Footer;
use crate::format::{BlockKind, open_sealed, sealed_checksum};
use crate::index::in_memory_index::{IndexData, TableIndex};
use crate::index::index_block;
use crate::index::top_level_index::TopLevelIndex;

/// The index region, and the values that its content must match.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IndexRegion<'a> {
    pub(crate) path: &'a Path,
    pub(crate) file_id: u64,
    /// Offsets at which the data region starts and ends in the file.
    pub(crate) data: (u64, u64),
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// Bytes of the top of the index, trailer included, at the end of the region.
    pub(crate) top_bytes: u64,
    /// The checksum in the trailer of the top of the index.
    pub(crate) checksum: u64,
    pub(crate) blocks: u32,
}

impl<'a> IndexRegion<'a> {
    /// Returns the index region that a footer describes. REQUIRES: the footer was checked.
    pub(crate) fn new(path: &'a Path, footer: &Footer) -> IndexRegion<'a> {
        IndexRegion {
            path,
            file_id: footer.file_id,
            data: (footer.data.offset, footer.data.offset + footer.data.len),
            offset: footer.index.offset,
            len: footer.index.len,
            top_bytes: u64::from(footer.top_level_index_bytes),
            checksum: footer.index.checksum,
            blocks: footer.blocks,
        }
    }

    fn top_at(&self) -> u64 {
        self.offset + self.len.saturating_sub(self.top_bytes)
    }

    fn read(&self, file: &dyn File, offset: u64, len: u64) -> Result<Vec<u8>> {
        let reason = "the index is longer than the address space of this machine";
        let len = usize::try_from(len).map_err(|_| self.refuse(offset, reason))?;
        let mut bytes = vec![0; len];
        file.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }

    fn refuse(&self, offset: u64, reason: &str) -> Error {
        Error::corruption(self.path, offset, reason)
    }

    /// Reads only the top of the index.
    pub(crate) fn read_top(&self, file: &dyn File) -> Result<TopLevelIndex> {
        self.top(&self.read(file, self.top_at(), self.top_bytes)?)
    }

    /// Reads the top of the index and all index blocks.
    pub(crate) fn read_all(
        &self,
        file: &dyn File,
        arena: &Arena,
    ) -> Result<(TopLevelIndex, TableIndex)> {
        let bytes = self.read(file, self.offset, self.len)?;
        let top_at = (self.top_at() - self.offset) as usize;
        let top = self.top(bytes.get(top_at..).unwrap_or_default())?;
        let index = self.index(arena, &top, &bytes)?;
        Ok((top, index))
    }

    /// Checks and parses the bytes of the top of the index.
    pub(crate) fn top(&self, sealed: &[u8]) -> Result<TopLevelIndex> {
        let at = self.top_at();
        if sealed_checksum(sealed) != self.checksum {
            let reason = "the top of the index is not the one that the footer was written for";
            return Err(self.refuse(at, reason));
        }
        let payload = open_sealed(self.path, self.file_id, at, BlockKind::Index, sealed, 0)?;
        let parts = (self.offset, at);
        TopLevelIndex::decode(&payload, self.blocks, self.data, parts)
            .map_err(|reason| self.refuse(at, reason))
    }

    /// Checks and parses the index blocks, which are at the start of `bytes`.
    pub(crate) fn index(
        &self,
        arena: &Arena,
        top: &TopLevelIndex,
        bytes: &[u8],
    ) -> Result<TableIndex> {
        let mut gathered = IndexData::new(self.data.0);
        for place in (0..top.index_blocks()).filter_map(|number| top.handle(number)) {
            let refuse = |reason: &str| self.refuse(place.offset, reason);
            let start = (place.offset - self.offset) as usize;
            let sealed = bytes.get(start..start + place.len).unwrap_or_default();
            if sealed_checksum(sealed) != place.checksum {
                let reason = "the part of the index is not the one that its top was written for";
                return Err(refuse(reason));
            }
            let (id, kind) = (self.file_id, BlockKind::IndexPart);
            let payload = open_sealed(self.path, id, place.offset, kind, sealed, 0)?;
            let last = top.last_separator(place.number);
            let data_len = place.data.1 - place.data.0;
            index_block::check(&payload, place.blocks, last, data_len).map_err(refuse)?;
            gathered.add_block(&payload, place.blocks).map_err(refuse)?;
        }
        TableIndex::new(arena, gathered).map_err(|reason| self.refuse(self.offset, reason))
    }
}
