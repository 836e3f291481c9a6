//! A live table: its metadata from the manifest, its table reader if open, and the removal of its
//! file.

use std::fmt::Debug;
use std::mem::discriminant;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use umbel_base::ignore_poison::IgnorePoison;

use umbel_arena::Arena;
use umbel_base::{BlobPointer, Error, Result, SequenceNumber};
use umbel_filter::HashKind;
use umbel_table::{BlockCache, BlockSlots, FilterResidency, Table, TableMeta};

use super::table_context::TableContext;
use crate::cache::block_cache::ClockCache;
use crate::fs::blob_files::BlobFile;
use crate::fs::file_cache::CachedFileHandle;
use crate::fs::filenames;
use crate::store_budget::SEQUENTIAL_READ;
use crate::store_budget::filter_selection::FilterSelection;
use crate::store_budget::residency::Residency;
use crate::thread_counters;
use crate::version::opened_table::OpenedTable;

/// Approximate bytes of a table in the lists of the manifest, the version and a replaced version,
/// with allocator overhead.
const METADATA_OVERHEAD: u64 = 256;
/// Approximate bytes of memory for the file of an open table: handles, paths, its entry in the file
/// cache.
const OPEN_FILE_BYTES: u64 = 704;

/// The store's block cache as tables use it, which counts the loads of blocks.
#[derive(Debug)]
struct CountingCache(Arc<ClockCache>);

impl BlockCache for CountingCache {
    fn arena(&self) -> Arena {
        self.0.arena()
    }

    fn pinned_arena(&self, arena: &Arena) -> Arena {
        self.0.pinned_arena(arena)
    }

    fn on_block_read(&self, bytes: usize) -> bool {
        thread_counters::note_load();
        self.0.on_block_read(bytes)
    }

    fn admit(&self, slots: &Arc<BlockSlots>, block: u32, bytes: usize) {
        self.0.admit(slots, block, bytes);
    }
}

/// A table of a version, with its table reader if it was opened. The reader is open until the
/// `LiveTable` is dropped; to close a reader, the version replaces the table by
/// [`LiveTable::unopened`].
#[derive(Debug)]
pub struct LiveTable {
    /// The table's record in the manifest, shared with the manifest's state.
    pub meta: Arc<TableMeta>,
    file: Arc<LiveFile>,
    reader: OnceLock<OpenedTable>,
    /// Level of the table, which decides its residency.
    level: AtomicUsize,
    selection: AtomicU8,
    opening: Mutex<()>,
    opening_number: AtomicU64,
}

/// The file of a table, shared by all versions. Dropping the last reference to the file of a
/// replaced table removes the file.
#[derive(Debug)]
struct LiveFile {
    id: u64,
    bytes: u64,
    /// Bytes counted for the table's metadata.
    metadata_bytes: u64,
    /// Hash function of the keys of the table's keyspace.
    hash: HashKind,
    context: Arc<TableContext>,
    obsolete: AtomicBool,
    busy: AtomicBool,
    /// The files of long values that the table's entries point at.
    blobs: Vec<Arc<BlobFile>>,
    /// Ranges of snapshots for which alone the table holds many older versions.
    retained_for: OnceLock<Vec<(SequenceNumber, SequenceNumber)>>,
}

impl LiveTable {
    /// Creates a table that the manifest names, or will name, at level `level`, in a keyspace with
    /// this hash function. The first read opens the table's file.
    pub fn new(
        meta: impl Into<Arc<TableMeta>>,
        level: usize,
        hash: HashKind,
        context: Arc<TableContext>,
    ) -> LiveTable {
        let meta = meta.into();
        let blobs = meta.blobs.iter().map(|pointer| context.blobs.acquire(pointer)).collect();
        let known_bytes = metadata_bytes(&meta);
        context.budget.table_metadata.fetch_add(known_bytes, Ordering::Relaxed);
        LiveTable {
            file: Arc::new(LiveFile {
                id: meta.id,
                bytes: meta.file_bytes,
                metadata_bytes: known_bytes,
                hash,
                context,
                obsolete: AtomicBool::new(false),
                busy: AtomicBool::new(false),
                blobs,
                retained_for: OnceLock::new(),
            }),
            meta,
            reader: OnceLock::new(),
            level: AtomicUsize::new(level),
            selection: AtomicU8::default(),
            opening: Mutex::default(),
            opening_number: AtomicU64::new(0),
        }
    }

    /// Returns the same table, marked as holding many older versions for the snapshots in each of
    /// these ranges alone. The mark is lost when the store is closed, since the snapshots end then,
    /// too.
    pub fn retaining_for(self, states: Vec<(SequenceNumber, SequenceNumber)>) -> LiveTable {
        // The table is new, so no ranges were set before.
        let _ = self.file.retained_for.set(states);
        self
    }

    /// Returns the ranges of snapshots, both ends included, for which alone the table holds many
    /// older versions.
    pub fn retained_for(&self) -> &[(SequenceNumber, SequenceNumber)] {
        self.file.retained_for.get().map_or(&[], Vec::as_slice)
    }

    /// Returns the hash of a key, by the keyspace's hash function.
    pub fn hash(&self, key: &[u8]) -> u64 {
        self.file.context.hashers.of(self.file.hash).keys.hash(key)
    }

    /// Returns the same table without an open table reader.
    pub fn unopened(&self) -> LiveTable {
        self.with_reader(OnceLock::new(), 0)
    }

    fn with_reader(&self, reader: OnceLock<OpenedTable>, opening_number: u64) -> LiveTable {
        LiveTable {
            meta: Arc::clone(&self.meta),
            file: Arc::clone(&self.file),
            reader,
            level: AtomicUsize::new(self.level.load(Ordering::Relaxed)),
            selection: AtomicU8::new(self.selection.load(Ordering::Relaxed)),
            opening: Mutex::default(),
            opening_number: AtomicU64::new(opening_number),
        }
    }

    /// Returns the same table with the same table reader, and with the filter with which it would
    /// be opened now. `None` if the table is not open, or already has that filter, possibly with
    /// another fold factor.
    pub fn refiltered(&self) -> Result<Option<LiveTable>> {
        let keep = self.keep();
        let is_other = |open: &&OpenedTable| {
            discriminant(&open.keep()) != discriminant(&keep)
                || open.is_filter_omitted() != self.omits_filter(keep)
        };
        let Some(open) = self.reader.get().filter(is_other) else { return Ok(None) };
        let open = self.with_filter(Arc::clone(open.table()), keep)?.with_prefixes_of(open);
        let number = self.opening_number.load(Ordering::Relaxed);
        Ok(Some(self.with_reader(OnceLock::from(open), number)))
    }

    /// Returns the same table for one scan of the whole table. If the table is not open and would
    /// not be fully resident, the copy keeps as little in memory as possible.
    pub fn for_sequential_read(self: &Arc<Self>) -> Arc<LiveTable> {
        let residency = self.residency();
        if self.opened().is_some()
            || (!residency.paged && self.keep() == FilterResidency::default())
        {
            return Arc::clone(self);
        }
        let sequential = self.unopened();
        sequential.set_level(SEQUENTIAL_READ);
        Arc::new(sequential)
    }

    /// Returns the table reader and the filter, which the first use opens.
    #[inline]
    pub fn open(&self) -> Result<&OpenedTable> {
        match self.reader.get() {
            Some(open) => Ok(open),
            None => self.open_now(),
        }
    }

    /// Returns the table reader, which the first use opens.
    #[inline]
    pub fn reader(&self) -> Result<&Arc<Table>> {
        self.open().map(OpenedTable::table)
    }

    /// Returns the table reader and the filter, if they are open.
    pub fn opened(&self) -> Option<&OpenedTable> {
        self.reader.get()
    }

    /// Bytes of the table reader, filter included; `None` if the table is not open.
    pub fn reader_bytes(&self) -> Option<u64> {
        self.opened().map(|open| reader_bytes(open.table()) + open.all_filter_bytes())
    }

    /// Number of the opening of the table reader; a later opening has a higher number.
    pub fn opening_number(&self) -> u64 {
        self.opening_number.load(Ordering::Relaxed)
    }

    #[cold]
    fn open_now(&self) -> Result<&OpenedTable> {
        let reader = self.open_once()?;
        let context = &self.file.context;
        if context.budget.exceeds_shared_readers_max()
            && let Some(keeper) = context.owner.get().and_then(Weak::upgrade)
        {
            keeper.close_readers();
        }
        Ok(reader)
    }

    fn open_once(&self) -> Result<&OpenedTable> {
        // Before the lock, which a forked child may find locked forever.
        self.file.context.file_cache.check_process(&self.file.path())?;
        let _one_at_a_time = self.opening.lock().ignore_poison();
        if let Some(reader) = self.reader.get() {
            return Ok(reader);
        }
        let (context, path) = (&self.file.context, &self.file.path());
        let file = context.file_cache.open(path).map_err(|error| {
            if error.is_missing_file() {
                let reason = "the manifest names this table, but the file is missing";
                return Error::corruption(path, 0, reason);
            }
            error
        })?;
        let cache = Arc::new(CountingCache(Arc::clone(&context.cache)));
        let handle = Arc::new(CachedFileHandle(Arc::clone(&file)));
        let hasher = Some(context.hashers.of(self.file.hash));
        let paged = self.residency().paged;
        let mut table = Table::open_as(handle, &self.meta, hasher, cache, paged)?;
        table.set_readahead_bytes(context.budget.sizes.readahead as usize);
        file.count_pinned(reader_bytes(&table), &context.budget.tables);
        let mut open = self.with_filter(Arc::new(table), self.keep())?;
        if self.meta.prefix_filter_bytes > 0 && self.has_memory() {
            open = open.with_prefixes(context)?;
        }
        let number = context.openings.fetch_add(1, Ordering::Relaxed);
        self.opening_number.store(number, Ordering::Relaxed);
        Ok(self.reader.get_or_init(|| open))
    }

    /// The residency with which the table would be opened now.
    fn residency(&self) -> Residency {
        self.file.context.budget.residency(self.level.load(Ordering::Relaxed))
    }

    fn with_filter(&self, table: Arc<Table>, keep: FilterResidency) -> Result<OpenedTable> {
        OpenedTable::new(table, keep, self.omits_filter(keep), &self.file.context)
    }

    /// Whether no filter is kept in memory although there is memory for it.
    fn omits_filter(&self, keep: FilterResidency) -> bool {
        keep == FilterResidency::Nothing && self.has_memory()
    }

    /// Whether there is memory for filters of the table's level.
    fn has_memory(&self) -> bool {
        self.residency().filter_factor != Residency::NO_FILTER
    }

    /// The filter residency with which the table would be opened now.
    fn keep(&self) -> FilterResidency {
        self.selection().keep(&self.meta, self.residency().filter_factor)
    }

    /// Returns the filter of the table that should be kept in memory.
    pub fn selection(&self) -> FilterSelection {
        FilterSelection::from_u8(self.selection.load(Ordering::Relaxed))
    }

    /// Sets the filter of the table that should be kept in memory.
    pub fn set_selection(&self, choice: FilterSelection) {
        self.selection.store(choice as u8, Ordering::Relaxed);
    }

    /// Sets the current level of the table.
    pub fn set_level(&self, level: usize) {
        if self.level.load(Ordering::Relaxed) != level {
            self.level.store(level, Ordering::Relaxed);
        }
    }

    /// Whether less of the table would be in memory if it were opened now.
    pub fn is_heavier_than_planned(&self) -> bool {
        let residency = self.residency();
        let factor = |keep| match keep {
            FilterResidency::Nothing => Residency::NO_FILTER,
            FilterResidency::Plain { factor } => factor,
            FilterResidency::Second => 1,
        };
        self.opened().is_some_and(|open| {
            // By the residency planned when it was opened: a filter that cannot be folded would be
            // as large after a reopen.
            residency.paged && !open.table().is_paged()
                || open.has_filter() && factor(self.keep()) > factor(open.keep())
        })
    }

    /// Whether `key`, whose head equals that of a bound, is within the table's bounds. The function
    /// is separate, because few keys need it.
    #[cold]
    pub fn spans_key(&self, key: &[u8]) -> bool {
        key >= self.meta.smallest.as_slice() && self.reaches(key)
    }

    /// Whether the table's upper bound is at or after `key`.
    #[inline]
    pub fn reaches(&self, key: &[u8]) -> bool {
        let largest = self.meta.largest.as_slice();
        if self.meta.largest_is_exclusive { key < largest } else { key <= largest }
    }

    /// Marks the table obsolete, since no later version needs it. REQUIRES: the edit that removes
    /// the table is durable, or no edit that adds it is or can become durable.
    pub fn mark_obsolete(&self) {
        if !self.file.obsolete.swap(true, Ordering::AcqRel) {
            let held = &self.file.context.retired_files;
            held.0.fetch_add(1, Ordering::Relaxed);
            held.1.fetch_add(self.file.bytes, Ordering::Relaxed);
        }
    }

    /// Returns the files of long values that the table's entries point at.
    pub fn blobs(&self) -> &[Arc<BlobFile>] {
        &self.file.blobs
    }

    /// Whether a running compaction reads the table.
    pub fn is_busy(&self) -> bool {
        self.file.busy.load(Ordering::Acquire)
    }

    /// Sets whether a running compaction reads the table.
    pub fn set_busy(&self, busy: bool) {
        self.file.busy.store(busy, Ordering::Release);
    }
}

impl LiveFile {
    /// Returns the path of the file. It is not stored, since a store can have thousands of tables
    /// and paths are needed rarely.
    fn path(&self) -> PathBuf {
        filenames::table(&self.context.folder, self.id)
    }
}

/// Bytes of memory of a table in a version, open or not.
fn metadata_bytes(meta: &TableMeta) -> u64 {
    let keys = meta.smallest.capacity() + meta.largest.capacity();
    let blobs = meta.blobs.len() * (size_of::<BlobPointer>() + size_of::<Arc<BlobFile>>());
    let fixed = size_of::<TableMeta>() + size_of::<LiveTable>() + size_of::<LiveFile>();
    (fixed + keys + blobs) as u64 + METADATA_OVERHEAD
}

/// Bytes of memory of a table reader.
fn reader_bytes(reader: &Table) -> u64 {
    reader.pinned_bytes() as u64 + OPEN_FILE_BYTES
}

impl Drop for LiveFile {
    fn drop(&mut self) {
        self.context.budget.table_metadata.fetch_sub(self.metadata_bytes, Ordering::Relaxed);
        if !self.obsolete.load(Ordering::Acquire) {
            return;
        }
        let held = &self.context.retired_files;
        held.0.fetch_sub(1, Ordering::Relaxed);
        held.1.fetch_sub(self.bytes, Ordering::Relaxed);
        if !self.context.fatal_error.is_set() {
            self.context.obsolete.remove(&self.path());
        }
    }
}
