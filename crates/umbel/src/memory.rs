//! What a reader of a keyspace looks at: memtables and a version, replaced as one.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::{ArcSwap, Guard};
use umbel_base::SequenceNumber;
use umbel_memtable::{Memtable, MemtableOptions};

use crate::options::KeyspaceOptions;
use crate::version::Version;

/// Range deletes of a memtable at which it is flushed. They are cut where they overlap, so a reader
/// pays for up to the square of their number until a flush has dropped what newer ones hide.
const RANGE_DELETES_MAX: usize = 256;

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

    /// Whether it holds `bytes_max` or too many range deletes.
    #[inline]
    pub fn is_full(&self, bytes_max: u64) -> bool {
        self.memtable.bytes() as u64 >= bytes_max
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
    pub fn set_marker(&self, marker: Vec<u8>) {
        *self.changing.marker.lock().unwrap_or_else(PoisonError::into_inner) = Some(marker);
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

/// The current view, read without a lock.
#[derive(Debug)]
pub struct CurrentView {
    view: ArcSwap<View>,
}

impl CurrentView {
    /// A keyspace with these tables and an empty memtable.
    pub fn new(options: &KeyspaceOptions, version: Version) -> CurrentView {
        let active = Arc::new(Buffer::new(options));
        let view = View { active, frozen: Vec::new(), version: Arc::new(version) };
        CurrentView { view: ArcSwap::from_pointee(view) }
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
        self.view.rcu(|view| {
            let mut frozen = Vec::with_capacity(view.frozen.len() + 1);
            frozen.push(Arc::clone(&view.active));
            frozen.extend(view.frozen.iter().cloned());
            let active = Arc::clone(&active);
            View { active, frozen, version: Arc::clone(&view.version) }
        });
    }

    /// Lets go of everything; readers keep what they hold. REQUIRES: the commit lock and the
    /// manifest lock.
    pub fn clear(&self, options: &KeyspaceOptions) {
        let (active, version) = (Arc::new(Buffer::new(options)), Arc::new(Version::default()));
        self.view.store(Arc::new(View { active, frozen: Vec::new(), version }));
    }

    /// Puts `version` in place and drops the memtables that are now in tables.
    /// REQUIRES: the manifest lock.
    pub fn install(&self, version: Version, flushed: &[Arc<Buffer>]) {
        let version = Arc::new(version);
        self.view.rcu(|view| {
            let mut frozen = view.frozen.clone();
            frozen.retain(|buffer| !flushed.iter().any(|done| Arc::ptr_eq(done, buffer)));
            let (active, version) = (Arc::clone(&view.active), Arc::clone(&version));
            View { active, frozen, version }
        });
    }
}
