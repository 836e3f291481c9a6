//! A live table: its metadata from the manifest, its reader when first needed, its file's end.

use std::fmt::Debug;
use std::mem::discriminant;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use umbel_arena::Arena;
use umbel_base::{BlobPointer, Error, Result, SequenceNumber};
use umbel_filter::HashKind;
use umbel_table::{BlockCache, BlockSlots, FilterKeep, Table, TableMeta};

use super::open_table::OpenTable;
use crate::blobs::{BlobFile, Blobs};
use crate::budget::{Budget, WALKED};
use crate::cache::ClockCache;
use crate::counters;
use crate::descriptors::{Descriptors, PooledHandle};
use crate::filter_choice::Choice;
use crate::hashers::Hashers;
use crate::names;
use crate::obsolete::ObsoleteFiles;
use crate::poison::Poison;
use crate::residence::Residence;

/// What a table takes in the lists of the manifest, of the version and of one that is replaced, and
/// what the allocator adds to its pieces, about.
const LISTED_BYTES: u64 = 256;
/// What the file of an open table takes: handles, paths, its place in the pool, about.
const OPEN_FILE_BYTES: u64 = 704;

/// What every table of a store shares.
#[derive(Debug)]
pub struct TableContext {
    /// The store's folder.
    pub folder: PathBuf,
    /// The store's hashes.
    pub hashers: Hashers,
    /// The store's block cache.
    pub cache: Arc<ClockCache>,
    /// Set after a failed write: files are no longer removed.
    pub poison: Arc<Poison>,
    /// The tables' open files.
    pub descriptors: Arc<Descriptors>,
    /// The memory that readers may hold.
    pub budget: Arc<Budget>,
    /// Who is told when readers hold more than that.
    pub keeper: OnceLock<Weak<dyn Keeper>>,
    /// Counts the openings of readers.
    pub openings: AtomicU64,
    /// Files of replaced tables that somebody still reads, and their bytes.
    pub held_files: (AtomicU64, AtomicU64),
    /// The files of long values.
    pub blobs: Arc<Blobs>,
    /// Files that no edit names any more.
    pub obsolete: Arc<ObsoleteFiles>,
}

/// Who keeps the readers of a store's tables within their memory.
pub trait Keeper: Send + Sync + Debug {
    /// Closes readers. Called with any lock held but those under which nothing else is taken.
    fn close_readers(&self);

    /// Decides anew which filters are kept, and has the one of this table back if it is missed.
    /// Called while reading, perhaps with the commit lock held.
    fn advise_for(&self, table: u64);
}

/// The store's cache, as tables see it: notes who loads blocks.
#[derive(Debug)]
struct NotedCache(Arc<ClockCache>);

impl BlockCache for NotedCache {
    fn arena(&self) -> Arena {
        self.0.arena()
    }

    fn arena_of_what_stays(&self, arena: &Arena) -> Arena {
        self.0.arena_of_what_stays(arena)
    }

    fn loaded(&self, bytes: usize) -> bool {
        counters::note_load();
        self.0.loaded(bytes)
    }

    fn admit(&self, slots: &Arc<BlockSlots>, block: u32, bytes: usize) {
        self.0.admit(slots, block, bytes);
    }
}

/// A table of a version, with its reader once that was needed. The reader stays as long as this;
/// to close it, [`TableFile::unopened`] takes its place in the version.
#[derive(Debug)]
pub struct TableFile {
    /// What the manifest says of it, which holds it too.
    pub meta: Arc<TableMeta>,
    file: Arc<LiveFile>,
    reader: OnceLock<OpenTable>,
    /// What stays of it in memory is decided by its level, and which filter by what was chosen for
    /// it.
    level: AtomicUsize,
    choice: AtomicU8,
    opening: Mutex<()>,
    opening_number: AtomicU64,
}

/// The file of a table, whichever versions it is in and however often it was opened. Dropping the
/// last reference of one that was replaced removes it.
#[derive(Debug)]
struct LiveFile {
    id: u64,
    bytes: u64,
    /// What is counted as known of it, in bytes.
    known_bytes: u64,
    /// What keys of its keyspace are hashed with.
    hash: HashKind,
    context: Arc<TableContext>,
    obsolete: AtomicBool,
    busy: AtomicBool,
    /// What the table's entries point at.
    blobs: Vec<Arc<BlobFile>>,
    /// Ranges of states for whose readers alone it was written with many versions each.
    kept_for: OnceLock<Vec<(SequenceNumber, SequenceNumber)>>,
}

impl TableFile {
    /// A table the manifest names, or is to name, at this level, of a keyspace with this hash. Its
    /// file is opened when first read.
    pub fn new(
        meta: impl Into<Arc<TableMeta>>,
        level: usize,
        hash: HashKind,
        context: Arc<TableContext>,
    ) -> TableFile {
        let meta = meta.into();
        let blobs = meta.blobs.iter().map(|pointer| context.blobs.hold(pointer)).collect();
        let known_bytes = known_bytes(&meta);
        context.budget.known.fetch_add(known_bytes, Ordering::Relaxed);
        TableFile {
            file: Arc::new(LiveFile {
                id: meta.id,
                bytes: meta.file_bytes,
                known_bytes,
                hash,
                context,
                obsolete: AtomicBool::new(false),
                busy: AtomicBool::new(false),
                blobs,
                kept_for: OnceLock::new(),
            }),
            meta,
            reader: OnceLock::new(),
            level: AtomicUsize::new(level),
            choice: AtomicU8::default(),
            opening: Mutex::default(),
            opening_number: AtomicU64::new(0),
        }
    }

    /// The same table, of which it is known that it was written with many versions that only
    /// readers of states in one of these ranges need. Nobody knows when the store is opened again:
    /// there are no such readers.
    pub fn keeping_for(self, states: Vec<(SequenceNumber, SequenceNumber)>) -> TableFile {
        // It is new: nobody has said so before.
        let _ = self.file.kept_for.set(states);
        self
    }

    /// The ranges of states, both ends included, for whose readers it holds many versions each.
    pub fn kept_for(&self) -> &[(SequenceNumber, SequenceNumber)] {
        self.file.kept_for.get().map_or(&[], Vec::as_slice)
    }

    /// The hash of a key, as its keyspace makes it.
    pub fn hash(&self, key: &[u8]) -> u64 {
        self.file.context.hashers.of(self.file.hash).keys.hash(key)
    }

    /// The same table, not opened.
    pub fn unopened(&self) -> TableFile {
        self.with_reader(OnceLock::new(), 0)
    }

    fn with_reader(&self, reader: OnceLock<OpenTable>, opening_number: u64) -> TableFile {
        TableFile {
            meta: Arc::clone(&self.meta),
            file: Arc::clone(&self.file),
            reader,
            level: AtomicUsize::new(self.level.load(Ordering::Relaxed)),
            choice: AtomicU8::new(self.choice.load(Ordering::Relaxed)),
            opening: Mutex::default(),
            opening_number: AtomicU64::new(opening_number),
        }
    }

    /// The same table with the same reader, and the filter that it would be opened with now.
    /// `None` where it is not open, or has that filter, if only folded otherwise.
    pub fn refiltered(&self) -> Result<Option<TableFile>> {
        let keep = self.keep();
        let is_other = |open: &&OpenTable| {
            discriminant(&open.keep()) != discriminant(&keep)
                || open.was_let_go() != self.lets_go(keep)
        };
        let Some(open) = self.reader.get().filter(is_other) else { return Ok(None) };
        let open = self.with_filter(Arc::clone(open.table()), keep)?.with_prefixes_of(open);
        let number = self.opening_number.load(Ordering::Relaxed);
        Ok(Some(self.with_reader(OnceLock::from(open), number)))
    }

    /// The same table for one walk over all of it: where it is not open, and not all of it would
    /// stay in memory, with as little as can be.
    pub fn for_a_walk(self: &Arc<Self>) -> Arc<TableFile> {
        let residence = self.residence();
        if self.opened().is_some() || (!residence.paged && self.keep() == FilterKeep::default()) {
            return Arc::clone(self);
        }
        let walked = self.unopened();
        walked.set_level(WALKED);
        Arc::new(walked)
    }

    /// The reader and the filter, opened on first use.
    #[inline]
    pub fn open(&self) -> Result<&OpenTable> {
        match self.reader.get() {
            Some(open) => Ok(open),
            None => self.open_now(),
        }
    }

    /// The reader, opened on first use.
    #[inline]
    pub fn reader(&self) -> Result<&Arc<Table>> {
        self.open().map(OpenTable::table)
    }

    /// The reader and the filter, if they were needed before.
    pub fn opened(&self) -> Option<&OpenTable> {
        self.reader.get()
    }

    /// What its reader takes in memory, filter included; `None` where it is not open.
    pub fn reader_bytes(&self) -> Option<u64> {
        self.opened().map(|open| reader_bytes(open.table()) + open.all_filter_bytes())
    }

    /// When it was opened: the higher, the later.
    pub fn opening_number(&self) -> u64 {
        self.opening_number.load(Ordering::Relaxed)
    }

    #[cold]
    fn open_now(&self) -> Result<&OpenTable> {
        let reader = self.open_once()?;
        let context = &self.file.context;
        if context.budget.is_over_with_others()
            && let Some(keeper) = context.keeper.get().and_then(Weak::upgrade)
        {
            keeper.close_readers();
        }
        Ok(reader)
    }

    fn open_once(&self) -> Result<&OpenTable> {
        // Before the lock, which a forked child may find held for ever.
        self.file.context.descriptors.check_process(&self.file.path())?;
        let _one_at_a_time = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reader) = self.reader.get() {
            return Ok(reader);
        }
        let (context, path) = (&self.file.context, &self.file.path());
        let file = context.descriptors.open(path).map_err(|error| {
            if error.is_missing_file() {
                let reason = "the manifest names this table, but the file is missing";
                return Error::corruption(path, 0, reason);
            }
            error
        })?;
        let cache = Arc::new(NotedCache(Arc::clone(&context.cache)));
        let handle = Arc::new(PooledHandle(Arc::clone(&file)));
        let hasher = Some(context.hashers.of(self.file.hash));
        let paged = self.residence().paged;
        let mut table = Table::open_as(handle, &self.meta, hasher, cache, paged)?;
        table.set_ahead_bytes(context.budget.sizes.ahead as usize);
        file.count_pinned(reader_bytes(&table), &context.budget.tables);
        let mut open = self.with_filter(Arc::new(table), self.keep())?;
        if self.meta.prefix_filter_bytes > 0 && self.has_memory() {
            open = open.with_prefixes(context)?;
        }
        let number = context.openings.fetch_add(1, Ordering::Relaxed);
        self.opening_number.store(number, Ordering::Relaxed);
        Ok(self.reader.get_or_init(|| open))
    }

    /// What stays of it in memory if it is opened now.
    fn residence(&self) -> Residence {
        self.file.context.budget.residence(self.level.load(Ordering::Relaxed))
    }

    fn with_filter(&self, table: Arc<Table>, keep: FilterKeep) -> Result<OpenTable> {
        OpenTable::new(table, keep, self.lets_go(keep), &self.file.context)
    }

    /// Whether nothing is kept although there is memory for it.
    fn lets_go(&self, keep: FilterKeep) -> bool {
        keep == FilterKeep::Nothing && self.has_memory()
    }

    /// Whether there is memory for filters of its level.
    fn has_memory(&self) -> bool {
        self.residence().filter_factor != Residence::NO_FILTER
    }

    /// Which filter stays of it in memory if it is opened now.
    fn keep(&self) -> FilterKeep {
        self.choice().keep(&self.meta, self.residence().filter_factor)
    }

    /// Which filter is to be kept.
    pub fn choice(&self) -> Choice {
        Choice::from_u8(self.choice.load(Ordering::Relaxed))
    }

    /// Says which filter is to be kept.
    pub fn set_choice(&self, choice: Choice) {
        self.choice.store(choice as u8, Ordering::Relaxed);
    }

    /// Says at which level it is now.
    pub fn set_level(&self, level: usize) {
        if self.level.load(Ordering::Relaxed) != level {
            self.level.store(level, Ordering::Relaxed);
        }
    }

    /// Whether less of it would stay in memory if it were opened now.
    pub fn is_heavier_than_planned(&self) -> bool {
        let residence = self.residence();
        let factor = |keep| match keep {
            FilterKeep::Nothing => Residence::NO_FILTER,
            FilterKeep::Plain { factor } => factor,
            FilterKeep::Second => 1,
        };
        self.opened().is_some_and(|open| {
            // By what was asked for when it was opened: a filter that cannot be folded would be as
            // large when it is opened again.
            residence.paged && !open.table().is_paged()
                || open.has_filter() && factor(self.keep()) > factor(open.keep())
        })
    }

    /// Whether `key`, whose head is that of a bound, lies in its bounds. Apart, because few keys
    /// come here.
    #[cold]
    pub fn holds(&self, key: &[u8]) -> bool {
        key >= self.meta.smallest.as_slice() && self.reaches(key)
    }

    /// Whether its upper bound is at or behind `key`.
    #[inline]
    pub fn reaches(&self, key: &[u8]) -> bool {
        let largest = self.meta.largest.as_slice();
        if self.meta.largest_is_exclusive { key < largest } else { key <= largest }
    }

    /// Says that no later version needs it. REQUIRES: the manifest edit that removed it is durable,
    /// or none that names it is or can become so.
    pub fn mark_obsolete(&self) {
        if !self.file.obsolete.swap(true, Ordering::AcqRel) {
            let held = &self.file.context.held_files;
            held.0.fetch_add(1, Ordering::Relaxed);
            held.1.fetch_add(self.file.bytes, Ordering::Relaxed);
        }
    }

    /// The files that its entries point at.
    pub fn blobs(&self) -> &[Arc<BlobFile>] {
        &self.file.blobs
    }

    /// Whether a compaction works on it.
    pub fn is_busy(&self) -> bool {
        self.file.busy.load(Ordering::Acquire)
    }

    /// Says whether a compaction works on it.
    pub fn set_busy(&self, busy: bool) {
        self.file.busy.store(busy, Ordering::Release);
    }
}

impl LiveFile {
    /// Not kept: thousands of tables are open seldom, and removed once.
    fn path(&self) -> PathBuf {
        names::table(&self.context.folder, self.id)
    }
}

/// What a table takes that is in a version, whether it is open or not.
fn known_bytes(meta: &TableMeta) -> u64 {
    let keys = meta.smallest.capacity() + meta.largest.capacity();
    let blobs = meta.blobs.len() * (size_of::<BlobPointer>() + size_of::<Arc<BlobFile>>());
    let fixed = size_of::<TableMeta>() + size_of::<TableFile>() + size_of::<LiveFile>();
    (fixed + keys + blobs) as u64 + LISTED_BYTES
}

/// What the reader of a table takes.
fn reader_bytes(reader: &Table) -> u64 {
    reader.pinned_bytes() as u64 + OPEN_FILE_BYTES
}

impl Drop for LiveFile {
    fn drop(&mut self) {
        self.context.budget.known.fetch_sub(self.known_bytes, Ordering::Relaxed);
        if !self.obsolete.load(Ordering::Acquire) {
            return;
        }
        let held = &self.context.held_files;
        held.0.fetch_sub(1, Ordering::Relaxed);
        held.1.fetch_sub(self.bytes, Ordering::Relaxed);
        if !self.context.poison.is_set() {
            self.context.obsolete.remove(&self.path());
        }
    }
}
