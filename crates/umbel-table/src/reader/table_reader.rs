//! Reads a table file: point reads, and the loading of blocks for cursors.

use std::sync::Arc;

use umbel_arena::Arena;
use umbel_base::{Error, FragmentedTombstones, Result, SequenceNumber, ValueKind};
use umbel_env::File;
use umbel_filter::{KeyHasher, PrefixHasher};

use crate::block::Block;
use crate::block::block_search_data::SearchDataKind;
use crate::cache::block_slots::{BlockCache, BlockSlots, UnboundedCache};
use crate::format::footer::{Footer, Region, read_metadata_block};
use crate::format::properties::Properties;
use crate::format::range_tombstone_block::RangeTombstoneBlock;
use crate::format::table_meta::TableMeta;
use crate::format::{BlockKind, feature, open_sealed};
use crate::index::in_memory_index::{PAGED_INDEX, TableIndex};
use crate::index::index_loading::IndexRegion;
use crate::index::key_head_tree::{SearchState, SearchStep};
use crate::index::top_level_index::TopLevelIndex;
use crate::options::TableHasher;

/// An open table, which threads share. A read of a cached block takes no lock.
#[derive(Debug)]
pub struct Table {
    index: TableIndex,
    top_level_index: TopLevelIndex,
    slots: Arc<BlockSlots>,
    /// Arena of data that stays in memory while the table is open.
    pinned: Arena,
    /// Hash function of tags; without one, blocks are searched by key order.
    hasher: Option<KeyHasher>,
    /// Hash function of prefixes.
    prefixes: Option<PrefixHasher>,
    /// Whether the filters in the file can be probed with this hash function.
    filter_is_usable: bool,
    tombstones: Arc<FragmentedTombstones>,
    cache: Arc<dyn BlockCache>,
    file: Arc<dyn File>,
    footer: Footer,
    properties: Properties,
    /// The greatest sequence number in the table, kept in the cache line that point reads use.
    sequence_max: SequenceNumber,
    readahead_bytes: usize,
}

/// Default number of bytes that a forward scan reads at a time if it does not fill the cache.
const AHEAD_BYTES: usize = 256 * 1024;

impl Table {
    /// Opens the table that `meta` describes. Reads the footer, the index, the range tombstones and
    /// the properties, and keeps the first three in memory. [`Table::read_filter`] reads its
    /// filters.
    ///
    /// `hasher` makes the hashes passed to [`Table::get_with`] and to filters. If it is `None`,
    /// hashes are ignored and blocks are searched by key order. If its kind or seed id is not the
    /// table's, block loads make tags with `hasher`, but no filter is read.
    ///
    /// # Errors
    /// [`Error::Corruption`] if the file is damaged or is not the one that `meta` describes;
    /// [`Error::Invalid`] if a newer version wrote the file.
    pub fn open(
        file: Arc<dyn File>,
        meta: &TableMeta,
        hasher: Option<&TableHasher>,
        cache: Arc<dyn BlockCache>,
    ) -> Result<Table> {
        let meta = Arc::new(meta.clone());
        Table::open_as(file, &meta, hasher, cache, false)
    }

    /// Like [`Table::open`], but shares `meta`. With `paged`, only the top of the index stays in
    /// memory; index blocks are loaded as needed and cached like data blocks. Reads then take a
    /// lock and scan an index block.
    ///
    /// # Errors
    /// As [`Table::open`]; data that does not stay in memory is checked at each read.
    pub fn open_as(
        file: Arc<dyn File>,
        meta: &Arc<TableMeta>,
        hasher: Option<&TableHasher>,
        cache: Arc<dyn BlockCache>,
        paged: bool,
    ) -> Result<Table> {
        let file_bytes = file.len()?;
        if file_bytes != meta.file_bytes {
            let reason = format!(
                "the table has {file_bytes} bytes, but {} are recorded for it",
                meta.file_bytes
            );
            let at = file_bytes.min(meta.file_bytes);
            return Err(Error::corruption(file.path(), at, reason));
        }
        let (footer, checksum) = Footer::read(&*file, meta.id)?;
        let mut table = Table::assemble(file, footer, checksum, hasher, cache, paged)?;
        if *table.meta() != **meta {
            let reason = "the table is not the one that is recorded under its id: it was replaced";
            return Err(table.corruption(table.footer.properties.offset, reason));
        }
        table.properties.meta = Arc::clone(meta);
        Ok(table)
    }

    /// Opens table `id` without its metadata, for tools. Blocks are searched by key order, no
    /// filter is read, and every block that was read stays in memory.
    ///
    /// # Errors
    /// As [`Table::open`].
    pub fn open_standalone(file: Arc<dyn File>, id: u64) -> Result<Table> {
        let (footer, checksum) = Footer::read(&*file, id)?;
        Table::assemble(file, footer, checksum, None, Arc::new(UnboundedCache), false)
    }

    fn assemble(
        file: Arc<dyn File>,
        footer: Footer,
        footer_checksum: u64,
        hasher: Option<&TableHasher>,
        cache: Arc<dyn BlockCache>,
        paged: bool,
    ) -> Result<Table> {
        let part = |region: Region, kind| read_metadata_block(&*file, &footer, region, kind);
        let damaged = |region: Region| {
            let path = file.path();
            move |reason: &'static str| Error::corruption(path, region.offset, reason)
        };
        let payload = part(footer.properties, BlockKind::Properties)?;
        let mut properties = Properties::decode(&payload).map_err(damaged(footer.properties))?;
        complete_meta(Arc::make_mut(&mut properties.meta), &footer, footer_checksum);
        let meta = &properties.meta;
        let has = |feature| footer.features & feature != 0;
        let checksums = properties.filter_checksums;
        if !meta.is_plausible()
            || meta.entries != footer.entries
            || checksums.plain.is_some() != has(feature::SECOND_FILTER)
            || checksums.before_prefix.is_some() != has(feature::PREFIX_FILTER)
        {
            return Err(damaged(footer.properties)("the properties contradict the footer"));
        }
        let arena = cache.arena();
        let own = cache.pinned_arena(&arena);
        let region = IndexRegion::new(file.path(), &footer);
        let (top, index, slots) = if paged && footer.blocks > 0 {
            let index = TableIndex::paged(&own, footer.blocks as usize);
            (region.read_top(&*file)?, index, BlockSlots::paged(&own, arena))
        } else {
            let (top, index) = region.read_all(&*file, &own)?;
            let slots = BlockSlots::new(&own, arena, index.blocks());
            (top, index, slots)
        };
        let tombstones = read_tombstones(&*file, &footer, meta.range_tombstones)?;
        let tombstones = Arc::new(FragmentedTombstones::new(tombstones.iter()));
        let usable = |hasher: &TableHasher| {
            hasher.kind() == footer.hash_kind && hasher.seed_id == footer.seed_id
        };
        Ok(Table {
            slots: Arc::new(slots),
            pinned: own,
            index,
            top_level_index: top,
            filter_is_usable: hasher.is_some_and(usable),
            hasher: hasher.map(|hasher| hasher.keys),
            prefixes: hasher.and_then(|hasher| hasher.prefixes),
            tombstones,
            cache,
            footer,
            sequence_max: properties.meta.sequence_max,
            properties,
            file,
            readahead_bytes: AHEAD_BYTES,
        })
    }

    /// Returns the metadata of the table.
    pub fn meta(&self) -> &TableMeta {
        &self.properties.meta
    }

    /// Returns the options with which the table was written.
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// Sets how many bytes a forward scan reads at a time if it does not fill the cache.
    pub fn set_readahead_bytes(&mut self, bytes: usize) {
        self.readahead_bytes = bytes;
    }

    pub(crate) fn readahead_bytes(&self) -> usize {
        self.readahead_bytes
    }

    /// Whether the filters in the file can be probed.
    pub(crate) fn filter_is_usable(&self) -> bool {
        self.filter_is_usable
    }

    /// Arena of data that stays in memory while the table is open.
    pub(crate) fn pinned_arena(&self) -> &Arena {
        &self.pinned
    }

    pub(crate) fn prefixes(&self) -> Option<PrefixHasher> {
        self.prefixes
    }

    pub(crate) fn hasher(&self) -> Option<&KeyHasher> {
        self.hasher.as_ref()
    }

    /// Lends sequence number, kind and value of the newest version of `key` that is not newer than
    /// `sequence` to `read`. Returns `None` if there is no such version. Range tombstones are not
    /// applied, and the filter is not probed.
    ///
    /// `hash` is the key's hash, made with the hasher with which the table was opened.
    ///
    /// # Errors
    /// [`Error::Corruption`] if the block of the key is damaged; the file's error if the block
    /// cannot be read.
    #[inline]
    pub fn get_with<R>(
        &self,
        key: &[u8],
        hash: u64,
        sequence: SequenceNumber,
        read: impl FnOnce(SequenceNumber, ValueKind, &[u8]) -> R,
    ) -> Result<Option<R>> {
        match self.locate(key, sequence) {
            Some(number) => self.get_in_block(number, key, hash, sequence, read),
            None => Ok(None),
        }
    }

    // A get in stages, so that a batch of gets overlaps the misses of each stage: prefetch the
    // memory of the next stage for every key of the batch before the first of them needs it. Every
    // stage is optional; `get_in` is right without them.

    /// Returns the number of the only block that can hold the newest version of `key` that is not
    /// newer than `sequence`. `None` if the table ends before `key`.
    #[inline]
    pub fn locate(&self, key: &[u8], sequence: SequenceNumber) -> Option<usize> {
        self.locate_from(SearchState::default(), key, sequence)
    }

    /// First stage of a lookup: prefetches the memory that [`Table::prefetch_index`] reads.
    #[inline]
    pub fn begin_lookup(&self, key: &[u8]) -> SearchState {
        self.index.begin_search(key)
    }

    /// Prefetches the memory that the next step of [`Table::locate_from`] reads. `way` is the
    /// result of [`Table::begin_lookup`]. Returns whether a step with [`Table::descend`] is
    /// possible.
    #[inline]
    pub fn prefetch_index(&self, way: SearchState, key: &[u8]) -> bool {
        self.index.prefetch(way, key, |near| self.slots.prefetch(near))
    }

    /// Goes one step down in the index, and prefetches the memory that [`Table::prefetch_step`]
    /// reads.
    #[inline]
    pub fn descend(&self, way: SearchState, key: &[u8]) -> SearchStep {
        self.index.descend(way, key)
    }

    /// Continues after [`Table::descend`] returned `below`: prefetches the memory that
    /// [`Table::prefetch_index`] reads at the next node, or the separator to compare. Returns the
    /// state at the next node, if any.
    #[inline]
    pub fn prefetch_step(&self, below: SearchStep, key: &[u8]) -> Option<SearchState> {
        match below {
            SearchStep::Done => None,
            SearchStep::Keys(low, high) => {
                self.index.prefetch_separator(low, high);
                None
            }
            SearchStep::Node(way) => {
                self.index.prefetch_node(way, key);
                Some(way)
            }
        }
    }

    /// Like [`Table::locate`], but continues from the result of [`Table::begin_lookup`] for the
    /// key.
    #[inline]
    pub fn locate_from(
        &self,
        way: SearchState,
        key: &[u8],
        sequence: SequenceNumber,
    ) -> Option<usize> {
        self.index.find_from(way, key, sequence, |near| self.slots.prefetch(near))
    }

    /// Prefetches the slot of the block that [`Table::locate`] returned.
    #[inline]
    pub fn prefetch_slot(&self, number: usize) {
        self.slots.prefetch(number);
    }

    /// Reads the slot of a block and, if the block is cached, prefetches the part that a point read
    /// needs first: header, tags and offsets. Returns whether the block is cached.
    #[inline]
    pub fn prefetch_block(&self, number: usize) -> bool {
        self.slots.prefetch_block(number)
    }

    /// If the block is cached, checks its tags and prefetches the entry that possibly has `key`.
    /// `hash` is the key's hash. Returns false if the tags show that the block has no entry of the
    /// key.
    #[inline]
    pub fn prefetch_entry(&self, number: usize, key: &[u8], hash: u64) -> bool {
        self.slots.read().peek(number).is_none_or(|block| block.prefetch_entry(key, hash))
    }

    /// Like [`Table::get_with`], with the block already found: `number` is the result of
    /// [`Table::locate`] for the same key and sequence number.
    ///
    /// # Errors
    /// As [`Table::get_with`].
    #[inline]
    pub fn get_in_block<R>(
        &self,
        number: usize,
        key: &[u8],
        hash: u64,
        sequence: SequenceNumber,
        read: impl FnOnce(SequenceNumber, ValueKind, &[u8]) -> R,
    ) -> Result<Option<R>> {
        // Where no entry is too new, the sequence numbers of the entries need no check.
        let too_new = self.sequence_max > sequence;
        let sequence = if too_new { sequence } else { SequenceNumber::MAX };
        let reading = self.slots.read();
        let loaded;
        let found = if let Some(block) = reading.get(number) {
            block.find(key, hash, sequence)
        } else {
            // A read of the file is slow: no memory that other readers released waits for it.
            drop(reading);
            let Some(block) = self.load_for_lookup(number, key, sequence)? else { return Ok(None) };
            loaded = block;
            loaded.view().find(key, hash, sequence)
        };
        // In one place, so that it is always inlined.
        Ok(found.map(|found| read(found.trailer.sequence(), found.trailer.kind(), found.value)))
    }

    /// Enters an epoch for a batch of gets. Until the result is dropped, gets of cached blocks are
    /// cheaper, and no evicted memory is freed. So the caller should not read from files meanwhile.
    pub fn pin_slots(&self) -> impl Sized + '_ {
        self.slots.read()
    }

    /// Loads the block that `locate` returned and that is not in its slot. Returns `None` if a
    /// paged index says that the table ends before the key.
    #[cold]
    fn load_for_lookup(
        &self,
        number: usize,
        key: &[u8],
        sequence: SequenceNumber,
    ) -> Result<Option<Block>> {
        let number =
            if number == PAGED_INDEX { self.find_paged(key, sequence)? } else { Some(number) };
        number.map(|number| self.load(number)).transpose()
    }

    /// Reads a block into its slot and notifies the cache.
    #[cold]
    pub(crate) fn load(&self, number: usize) -> Result<Block> {
        if let Some(block) = self.paged_block(number) {
            return Ok(block);
        }
        self.slots.count_miss();
        let block = self.read_block(number, SearchDataKind::Full(self.hasher.as_ref()))?;
        if !self.cache.on_block_read(block.memory_bytes()) {
            return Ok(block);
        }
        let (block, taken) = self.slots.put(number, block);
        if let Some(bytes) = taken {
            self.cache.admit(&self.slots, number as u32, bytes);
        }
        Ok(block)
    }

    fn read_block(&self, number: usize, derive: SearchDataKind<'_>) -> Result<Block> {
        let (offset, len) = self.extent(number)?;
        let mut sealed = vec![0; len];
        self.file.read_exact_at(&mut sealed, offset)?;
        self.parse_block(offset, &sealed, derive)
    }

    /// Returns the offset at which a block starts, and its bytes with trailer.
    pub(crate) fn extent(&self, number: usize) -> Result<(u64, usize)> {
        let extent = match self.index.extent(number) {
            None if self.is_paged() => self.extent_paged(number)?,
            extent => extent,
        };
        extent
            .ok_or_else(|| self.corruption(self.footer.index.offset, "a block is not in the index"))
    }

    /// Checks and parses a block's bytes, which were read at `offset` of the file.
    pub(crate) fn parse_block(
        &self,
        offset: u64,
        sealed: impl AsRef<[u8]>,
        derive: SearchDataKind<'_>,
    ) -> Result<Block> {
        let limit = self.footer.payload_bytes_max as usize;
        let (path, id) = (self.file.path(), self.footer.file_id);
        let payload = open_sealed(path, id, offset, BlockKind::Data, sealed.as_ref(), limit)?;
        Block::parse(self.slots.arena(), &payload, derive)
            .map_err(|reason| self.corruption(offset, reason))
    }

    pub(crate) fn corruption(&self, offset: u64, reason: &str) -> Error {
        Error::corruption(self.file.path(), offset, reason)
    }

    /// Whether the table has range tombstones: without them, callers can skip
    /// [`Table::tombstones`].
    #[inline]
    pub fn has_tombstones(&self) -> bool {
        !self.tombstones.is_empty()
    }

    /// Returns the sequence number of the newest range tombstone over `key` that is not newer than
    /// `sequence`; 0 if no such tombstone exists.
    #[inline]
    pub fn covering(&self, key: &[u8], sequence: SequenceNumber) -> SequenceNumber {
        if self.tombstones.is_empty() {
            return 0;
        }
        self.tombstones.covering(key, sequence).unwrap_or(0)
    }

    /// Returns the table's range tombstones, cut where they overlap.
    pub fn tombstones(&self) -> &Arc<FragmentedTombstones> {
        &self.tombstones
    }

    /// Reads the range tombstones as they were written. Only a rewrite of the table needs them, so
    /// they do not stay in memory.
    ///
    /// # Errors
    /// [`Error::Corruption`] if the tombstones are damaged; the file's error if they cannot be
    /// read.
    pub fn read_tombstones(&self) -> Result<RangeTombstoneBlock> {
        read_tombstones(&*self.file, &self.footer, self.meta().range_tombstones)
    }

    /// Returns ascending keys that split the table into ranges of about 64 blocks, each with the
    /// number of data bytes at or before the key. Compactions are divided at these keys.
    pub fn block_separators(&self) -> impl Iterator<Item = (&[u8], u64)> {
        let start = self.footer.data.offset;
        self.top_level_index.splits().map(move |(key, end)| (key, end - start))
    }

    /// Returns the slots of the table's blocks.
    pub fn slots(&self) -> &Arc<BlockSlots> {
        &self.slots
    }

    /// Number of bytes that stay in memory while the table is open: index, range tombstones and
    /// slots, but neither filters nor cached blocks.
    pub fn pinned_bytes(&self) -> usize {
        let fragments = self.tombstones.memory_bytes();
        let slots = size_of::<BlockSlots>() + self.slots.memory_bytes();
        let index = self.index.memory_bytes() + self.top_level_index.memory_bytes();
        size_of::<Table>() + index + slots + fragments
    }

    pub(crate) fn index(&self) -> &TableIndex {
        &self.index
    }

    pub(crate) fn top(&self) -> &TopLevelIndex {
        &self.top_level_index
    }

    pub(crate) fn cache(&self) -> &dyn BlockCache {
        &*self.cache
    }

    pub(crate) fn footer(&self) -> &Footer {
        &self.footer
    }

    pub(crate) fn file(&self) -> &dyn File {
        &*self.file
    }
}

/// Reads and checks the range tombstones. `count` is their number according to the properties.
fn read_tombstones(file: &dyn File, footer: &Footer, count: u64) -> Result<RangeTombstoneBlock> {
    let region = footer.tombstones;
    let damaged = |reason: &'static str| Error::corruption(file.path(), region.offset, reason);
    let payload = read_metadata_block(file, footer, region, BlockKind::Tombstones)?;
    let tombstones = match payload.is_empty() {
        true => RangeTombstoneBlock::default(),
        false => RangeTombstoneBlock::parse(payload).map_err(damaged)?,
    };
    if tombstones.len() as u64 != count {
        return Err(damaged("the table has more or fewer range tombstones than recorded"));
    }
    Ok(tombstones)
}

/// Fills in the metadata fields that are in the footer.
fn complete_meta(meta: &mut TableMeta, footer: &Footer, footer_checksum: u64) {
    meta.id = footer.file_id;
    meta.file_bytes = footer.file_bytes;
    meta.filter_bytes = footer.filter.len;
    meta.index_bytes = footer.index.len;
    meta.blocks = footer.blocks;
    meta.footer_checksum = footer_checksum;
}
