//! A live table: its metadata from the manifest, its reader when first needed, its file's end.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use umbel_arena::Arena;
use umbel_base::{Error, Result};
use umbel_env::{Access, FileSystem};
use umbel_table::{BlockCache, BlockSlots, KeyHasher, Table, TableMeta};

use super::head::{Heads, head};
use crate::cache::ClockCache;
use crate::counters;
use crate::names;
use crate::poison::Poison;

/// What every table of a store shares.
#[derive(Debug)]
pub struct TableContext {
    /// The store's folder.
    pub folder: PathBuf,
    /// The file system it lies on.
    pub files: Arc<dyn FileSystem>,
    /// The store's keyed hash.
    pub hasher: KeyHasher,
    /// The store's block cache.
    pub cache: Arc<ClockCache>,
    /// Set after a failed write: files are no longer removed.
    pub poison: Arc<Poison>,
    /// Set once the store was closed: its folder may belong to another handle since.
    pub ended: AtomicBool,
}

/// The store's cache, as tables see it: notes who loads blocks.
#[derive(Debug)]
struct NotedCache(Arc<ClockCache>);

impl BlockCache for NotedCache {
    fn arena(&self) -> Arena {
        self.0.arena()
    }

    fn admit(&self, slots: &Arc<BlockSlots>, block: u32, bytes: usize) {
        counters::note_load();
        self.0.admit(slots, block, bytes);
    }
}

/// A table of a version. Dropping the last reference of one that was replaced removes its file.
#[derive(Debug)]
pub struct TableFile {
    /// What the manifest says of it.
    pub meta: TableMeta,
    heads: Heads,
    context: Arc<TableContext>,
    reader: OnceLock<Arc<Table>>,
    opening: Mutex<()>,
    obsolete: AtomicBool,
    busy: AtomicBool,
}

impl TableFile {
    /// A table the manifest names. Its file is opened when first read.
    pub fn new(meta: TableMeta, context: Arc<TableContext>) -> TableFile {
        TableFile {
            heads: Heads { smallest: head(&meta.smallest), largest: head(&meta.largest) },
            meta,
            context,
            reader: OnceLock::new(),
            opening: Mutex::default(),
            obsolete: AtomicBool::new(false),
            busy: AtomicBool::new(false),
        }
    }

    /// Where its file lies.
    pub fn path(&self) -> PathBuf {
        names::table(&self.context.folder, self.meta.id)
    }

    /// The reader, opened on first use.
    #[inline]
    pub fn reader(&self) -> Result<&Arc<Table>> {
        match self.reader.get() {
            Some(reader) => Ok(reader),
            None => self.open(),
        }
    }

    /// The reader, if it was needed before.
    pub fn opened(&self) -> Option<&Arc<Table>> {
        self.reader.get()
    }

    #[cold]
    fn open(&self) -> Result<&Arc<Table>> {
        let _one_at_a_time = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reader) = self.reader.get() {
            return Ok(reader);
        }
        let context = &self.context;
        if context.ended.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        let path = self.path();
        let file = context.files.open(&path, Access::Read).map_err(|error| {
            if error.is_missing_file() {
                let reason = "the manifest names this table, but the file is missing";
                return Error::corruption(&path, 0, reason);
            }
            error
        })?;
        let cache = Arc::new(NotedCache(Arc::clone(&context.cache)));
        let table = Table::open(file, &self.meta, Some(&context.hasher), cache)?;
        Ok(self.reader.get_or_init(|| Arc::new(table)))
    }

    /// The heads of its bounds.
    pub fn heads(&self) -> Heads {
        self.heads
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

    /// Says that no later version needs it. REQUIRES: the manifest edit that removed it is durable.
    pub fn mark_obsolete(&self) {
        self.obsolete.store(true, Ordering::Release);
    }

    /// Whether a compaction works on it.
    pub fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire)
    }

    /// Says whether a compaction works on it.
    pub fn set_busy(&self, busy: bool) {
        self.busy.store(busy, Ordering::Release);
    }
}

impl Drop for TableFile {
    fn drop(&mut self) {
        if self.obsolete.load(Ordering::Acquire) && !self.context.poison.is_set() {
            // A file that stays is found and removed at the next open.
            let _ = self.context.files.remove_file(&self.path());
        }
    }
}
