//! What a reader of a keyspace looks at: memtables and a version, replaced as one.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use umbel_base::SequenceNumber;
use umbel_memtable::{Memtable, MemtableOptions};

use crate::blobs::BlobFile;
use crate::options::KeyspaceOptions;
use crate::version::{TableFile, Version};

/// Range deletes of a memtable at which it is flushed. They are cut where they overlap, so a reader
/// pays for up to the square of their number until a flush has dropped what newer ones hide.
const RANGE_DELETES_MAX: usize = 256;

/// How much a memtable may take before it is flushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferBytes {
    /// Bytes in memory.
    pub held: u64,
    /// Bytes of long values that its entries point at.
    pub pointed_at: u64,
}

/// A memtable with what a flush has to know of it.
#[derive(Debug)]
pub struct Buffer {
    /// The entries.
    pub memtable: Arc<Memtable>,
    /// The number of the first write in it; `u64::MAX` while there is none.
    first_sequence: AtomicU64,
    changing: Changing,
}

/// What of a [`Buffer`] changes with each write: apart from what each read needs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Changing {
    /// The number of the last write in it.
    last_sequence: AtomicU64,
    /// Range deletes in it.
    range_deletes: AtomicUsize,
    /// Bytes of the long values that its entries point at.
    blob_bytes: AtomicU64,
    /// The files of these.
    blobs: Mutex<Vec<Arc<BlobFile>>>,
    /// The last marker set on its keyspace while it was active.
    marker: Mutex<Option<Vec<u8>>>,
}

impl Buffer {
    /// An empty memtable for a keyspace with these options.
    pub fn new(options: &KeyspaceOptions) -> Buffer {
        let capacity_bytes = usize::try_from(options.memtable_bytes).unwrap_or(usize::MAX);
        let options = MemtableOptions { capacity_bytes, bloom_bits: options.bloom_bits };
        Buffer {
            memtable: Arc::new(Memtable::new(&options)),
            first_sequence: AtomicU64::new(u64::MAX),
            changing: Changing::default(),
        }
    }

    /// Notes a write with this number. REQUIRES: the commit lock.
    #[inline]
    pub fn note(&self, sequence: SequenceNumber) {
        if self.first_sequence.load(Ordering::Relaxed) == u64::MAX {
            self.first_sequence.store(sequence, Ordering::Release);
        }
        self.changing.last_sequence.store(sequence, Ordering::Release);
    }

    /// Notes a range delete. REQUIRES: the commit lock.
    pub fn note_range_delete(&self) {
        self.changing.range_deletes.fetch_add(1, Ordering::Relaxed);
    }

    /// Holds the file of a long value that an entry points at. REQUIRES: the commit lock, and that
    /// the entry is put in later.
    pub fn hold_blob(&self, blob: Arc<BlobFile>) {
        self.changing.blob_bytes.fetch_add(blob.pointer.value_bytes, Ordering::Relaxed);
        self.changing.blobs.lock().unwrap_or_else(PoisonError::into_inner).push(blob);
    }

    /// The files of long values that its entries point at.
    pub fn blobs(&self) -> Vec<Arc<BlobFile>> {
        self.changing.blobs.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether it holds or points at as much as `most` says, or has too many range deletes.
    #[inline]
    pub fn is_full(&self, most: BufferBytes) -> bool {
        self.memtable.bytes() as u64 >= most.held
            || self.changing.blob_bytes.load(Ordering::Relaxed) >= most.pointed_at
            || self.changing.range_deletes.load(Ordering::Relaxed) >= RANGE_DELETES_MAX
    }

    /// Whether a reader at `sequence` finds nothing in it.
    ///
    /// Whoever took `sequence` from the published number, or from the writer, sees the note of each
    /// write up to it.
    #[inline]
    pub fn is_after(&self, sequence: SequenceNumber) -> bool {
        self.first_sequence.load(Ordering::Acquire) > sequence
    }

    /// The number of the first write in it; `u64::MAX` where there is none.
    pub fn first_sequence(&self) -> SequenceNumber {
        self.first_sequence.load(Ordering::Acquire)
    }

    /// The number of the last write in it.
    pub fn last_sequence(&self) -> SequenceNumber {
        self.changing.last_sequence.load(Ordering::Acquire)
    }

    /// Sets the marker a flush of this memtable stores. REQUIRES: the commit lock.
    pub fn set_marker(&self, marker: &[u8]) {
        let mut held = self.changing.marker.lock().unwrap_or_else(PoisonError::into_inner);
        let held = held.get_or_insert_default();
        held.clear();
        held.extend_from_slice(marker);
    }

    /// The marker a flush of this memtable stores.
    pub fn marker(&self) -> Option<Vec<u8>> {
        self.changing.marker.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether a flush would have nothing to write down.
    pub fn is_empty(&self) -> bool {
        self.first_sequence() == u64::MAX && self.marker().is_none()
    }
}

/// What a keyspace consists of at one moment.
///
/// INVARIANT: a writer's record is in `active` or in something replaced into the view before it, so
/// that a reader who loads the view first and the visible sequence number second misses nothing
/// older than the view.
#[derive(Debug, Clone)]
pub struct View {
    /// Takes the writes.
    pub active: Arc<Buffer>,
    /// Full, waiting to be flushed, newest first.
    pub frozen: Vec<Arc<Buffer>>,
    /// The tables.
    pub version: Arc<Version>,
}

impl View {
    /// Whether a reader at `sequence` finds nothing in the memtables.
    #[inline]
    pub fn is_bare(&self, sequence: SequenceNumber) -> bool {
        self.active.is_after(sequence) && self.frozen.iter().all(|buffer| buffer.is_after(sequence))
    }
}

/// What readers hold on to of views that were replaced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Past {
    /// How often views that were replaced are held.
    pub holders: usize,
    /// Memory of memtables that only such views hold, in bytes.
    pub memtable_bytes: u64,
    /// For how long the oldest of them has been known to be held, by the clock given to
    /// [`CurrentView::note_time`].
    pub since: Option<Duration>,
}

/// A view that was replaced, and when it was first seen to be held nevertheless.
type PastView = (Weak<View>, Option<Duration>);

/// The current view, read without a lock.
#[derive(Debug)]
pub struct CurrentView {
    view: ArcSwap<View>,
    /// Views that were replaced and may still be held.
    past: Mutex<Vec<PastView>>,
}

impl CurrentView {
    /// A keyspace with these tables and an empty memtable.
    pub fn new(options: &KeyspaceOptions, version: Version) -> CurrentView {
        let active = Arc::new(Buffer::new(options));
        let view = View { active, frozen: Vec::new(), version: Arc::new(version) };
        CurrentView { view: ArcSwap::from_pointee(view), past: Mutex::default() }
    }

    /// The view for the length of a call.
    #[inline]
    pub fn load(&self) -> Guard<Arc<View>> {
        self.view.load()
    }

    /// The view for as long as an iterator needs it.
    pub fn hold(&self) -> Arc<View> {
        self.view.load_full()
    }

    /// Puts a new memtable in place of the active one, which waits to be flushed.
    /// REQUIRES: the commit lock.
    pub fn freeze(&self, options: &KeyspaceOptions) {
        let active = Arc::new(Buffer::new(options));
        let before = self.view.rcu(|view| {
            let mut frozen = Vec::with_capacity(view.frozen.len() + 1);
            frozen.push(Arc::clone(&view.active));
            frozen.extend(view.frozen.iter().cloned());
            let active = Arc::clone(&active);
            View { active, frozen, version: Arc::clone(&view.version) }
        });
        self.note_past(&before);
    }

    /// Puts tables without readers in the place of those with these ids. The readers go when those
    /// who hold the view of before have done.
    pub fn close_readers(&self, ids: &HashSet<u64>) {
        self.put_others(|table| ids.contains(&table.meta.id).then(|| Arc::new(table.unopened())));
    }

    /// Puts tables that are the same but for their filters in the place of those with these ids.
    pub fn refilter(&self, tables: &HashMap<u64, Arc<TableFile>>) {
        self.put_others(|table| tables.get(&table.meta.id).cloned());
    }

    fn put_others(&self, other: impl Fn(&Arc<TableFile>) -> Option<Arc<TableFile>>) {
        let before = self.view.rcu(|view| {
            let version = Arc::new(view.version.with_others(&other));
            View { active: Arc::clone(&view.active), frozen: view.frozen.clone(), version }
        });
        self.note_past(&before);
    }

    fn past_views(&self) -> MutexGuard<'_, Vec<PastView>> {
        self.past.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_past(&self, view: &Arc<View>) {
        let mut past = self.past_views();
        past.retain(|(view, _)| view.strong_count() > 0);
        past.push((Arc::downgrade(view), None));
    }

    /// Notes that views replaced by now are still held at `now`.
    pub fn note_time(&self, now: Duration) {
        let mut past = self.past_views();
        past.retain(|(view, _)| view.strong_count() > 0);
        past.iter_mut().for_each(|(_, since)| *since = Some(since.unwrap_or(now)));
    }

    /// What is held of views that were replaced.
    pub fn past(&self) -> Past {
        let known = self.past_views().clone();
        let mut past = Past::default();
        let mut held: Vec<Arc<Buffer>> = Vec::new();
        for (view, since) in &known {
            let Some(view) = view.upgrade() else { continue };
            // Not the one that looks at it here.
            past.holders += Arc::strong_count(&view) - 1;
            past.since = past.since.into_iter().chain(*since).min();
            held.extend(view.frozen.iter().chain([&view.active]).cloned());
        }
        if held.is_empty() {
            return past;
        }
        let current = self.hold();
        held.retain(|buffer| {
            !current.frozen.iter().chain([&current.active]).any(|b| Arc::ptr_eq(b, buffer))
        });
        held.sort_by_key(|buffer| Arc::as_ptr(buffer) as usize);
        held.dedup_by(|a, b| Arc::ptr_eq(a, b));
        past.memtable_bytes = held.iter().map(|buffer| buffer.memtable.memory_bytes() as u64).sum();
        past
    }

    /// Lets go of everything; readers keep what they hold. REQUIRES: the commit lock and the
    /// manifest lock.
    pub fn clear(&self, options: &KeyspaceOptions) {
        let (active, version) = (Arc::new(Buffer::new(options)), Arc::new(Version::default()));
        let before = self.view.swap(Arc::new(View { active, frozen: Vec::new(), version }));
        self.note_past(&before);
    }

    /// Puts `version` in place and drops the memtables that are now in tables.
    /// REQUIRES: the manifest lock.
    pub fn install(&self, version: Version, flushed: &[Arc<Buffer>]) {
        let version = Arc::new(version);
        let before = self.view.rcu(|view| {
            let mut frozen = view.frozen.clone();
            frozen.retain(|buffer| !flushed.iter().any(|done| Arc::ptr_eq(done, buffer)));
            let (active, version) = (Arc::clone(&view.active), Arc::clone(&version));
            View { active, frozen, version }
        });
        self.note_past(&before);
    }
}
