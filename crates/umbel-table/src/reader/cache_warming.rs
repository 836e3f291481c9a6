//! Cache warming for tables that replace others: samples the keys of cached blocks, and loads
//! blocks before a reader requests them.

use umbel_base::Result;

use crate::block::BlockView;
use crate::block::block_search_data::SearchDataKind;
use crate::reader::table_reader::Table;

/// Counts of the blocks that were loaded before a reader requested them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheWarming {
    /// Number of blocks loaded.
    pub blocks: u64,
    /// Bytes of the loaded blocks in memory.
    pub bytes: u64,
}

/// Number of entries that are sampled of a block.
const SAMPLE_ENTRIES: usize = 4;

impl Table {
    /// Calls `each` with the keys of up to four entries of every cached block, evenly spread over
    /// the block. For a table with a paged index, which has no list of its cached blocks, calls
    /// nothing.
    pub fn sample_cached(&self, mut each: impl FnMut(&[u8])) {
        if self.slots().resident_bytes() == 0 {
            return;
        }
        let mut key = Vec::new();
        for number in 0..self.slots().len() {
            // Entered again for each block, so that no memory waits for all of them.
            let reading = self.slots().read();
            if let Some(block) = reading.peek(number) {
                sample_block(block, &mut key, &mut each);
            }
        }
    }

    /// Returns the number of the block for `key`; `None` if there is no such block or the index is
    /// paged.
    pub fn block_of(&self, key: &[u8]) -> Option<u32> {
        let number = self.locate(key, umbel_base::limits::SEQUENCE_MAX)?;
        u32::try_from(number).ok().filter(|_| !self.is_paged() && number < self.slots().len())
    }

    /// Loads blocks into the cache. `blocks` are ascending block numbers; blocks that are adjacent
    /// in the file are read together. The result does not count blocks that were cached already.
    ///
    /// # Errors
    /// As [`Table::get_with`]. Blocks before the damaged one are loaded nevertheless.
    pub fn warm(&self, blocks: &[u32]) -> Result<CacheWarming> {
        let mut warmed = CacheWarming::default();
        let mut rest = blocks;
        while let [first, ..] = *rest {
            let (start, len) = self.extent(first as usize)?;
            let mut end = start + len as u64;
            let mut count = 1;
            for (next, number) in rest.iter().zip(first..).skip(1) {
                let (offset, len) = self.extent(number as usize)?;
                let joins = *next == number && offset == end;
                if !joins || end + len as u64 - start > self.readahead_bytes() as u64 {
                    break;
                }
                end += len as u64;
                count += 1;
            }
            let loaded = self.warm_adjacent(start, (end - start) as usize, first, count)?;
            warmed.blocks += loaded.blocks;
            warmed.bytes += loaded.bytes;
            rest = &rest[count as usize..];
        }
        Ok(warmed)
    }

    fn warm_adjacent(
        &self,
        start: u64,
        len: usize,
        first: u32,
        count: u32,
    ) -> Result<CacheWarming> {
        let mut sealed = vec![0; len];
        self.file().read_exact_at(&mut sealed, start)?;
        let mut warmed = CacheWarming::default();
        for number in first..first + count {
            let (offset, len) = self.extent(number as usize)?;
            let at = (offset - start) as usize;
            let sealed = sealed.get(at..at + len).unwrap_or_default();
            let block = self.parse_block(offset, sealed, SearchDataKind::Full(self.hasher()))?;
            if !self.cache().on_block_read(block.memory_bytes()) {
                continue;
            }
            if let (_, Some(taken)) = self.slots().put(number as usize, block) {
                self.cache().admit(self.slots(), number, taken);
                warmed.blocks += 1;
                warmed.bytes += taken as u64;
            }
        }
        Ok(warmed)
    }
}

fn sample_block(block: BlockView<'_>, key: &mut Vec<u8>, each: &mut impl FnMut(&[u8])) {
    let groups = block.counts().0;
    let of_each = SAMPLE_ENTRIES.div_ceil(groups.clamp(1, SAMPLE_ENTRIES));
    for number in
        (0..SAMPLE_ENTRIES.min(groups)).map(|part| part * groups / SAMPLE_ENTRIES.min(groups))
    {
        let Some(group) = block.group(number) else { return };
        let wanted = of_each.min(group.count);
        for entry in (0..wanted).map(|part| part * group.count / wanted) {
            let Some(entry) = block.entry_of(&group, entry) else { return };
            key.clear();
            key.extend_from_slice(block.prefix_of(&group));
            key.extend_from_slice(entry.suffix);
            each(key);
        }
    }
}
