//! [`KeyspaceCore`]: what every handle of a keyspace shares.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use arc_swap::ArcSwap;
use umbel_base::limits::LEVELS;
use umbel_base::{Error, Result, SequenceNumber};
use umbel_env::OpenMark;
use umbel_filter::KeyHasher;

use crate::advisor::Advisor;
use crate::counters::{KeyspaceCounters, ReadCounters};
use crate::existence::ExistenceSlot;
use crate::memory::{BufferBytes, CurrentView};
use crate::options::{Caps, KeyPrefix, KeyspaceOptions};
use crate::version::{PrefixCounters, Version};

/// How many times the bytes asked for a memtable its entries may point at before it is flushed:
/// values that were put and put again are rid of their files by a flush, and keep the disk until
/// then. By what was asked for, not by what the memory allows, because they take none.
const BLOB_BYTES_FACTOR: u64 = 4;

/// A keyspace of an open store.
#[derive(Debug)]
pub struct KeyspaceCore {
    /// Its id.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// What its keys are hashed with.
    pub hasher: KeyHasher,
    /// Its memtables and tables.
    pub view: CurrentView,
    /// Its existence filter, where it has one.
    pub existence: ExistenceSlot,
    /// What reads did.
    pub reads: ReadCounters,
    /// Which filters are kept and built.
    pub advisor: Advisor,
    /// How often scans asked prefix filters.
    pub prefixes: Arc<PrefixCounters>,
    has_prefix: AtomicBool,
    /// What writes, flushes and compactions did.
    pub counters: KeyspaceCounters,
    marker: Mutex<Option<Vec<u8>>>,
    /// What is flushed whenever this is.
    flushed_with: OnceLock<Weak<KeyspaceCore>>,
    /// Set once it was dropped.
    pub dropped: AtomicBool,
    /// Whether it can be read: it was not dropped, its store not closed, and this is the process
    /// that opened it. One look for three questions.
    pub open: OpenMark,
    /// Where the compaction picker went on last, per level.
    pick_cursors: Mutex<Vec<Vec<u8>>>,
    /// Nanoseconds a writer is held back per byte, as the bits of an `f64`.
    delay_per_byte: AtomicU64,
    /// Delay that writers owe, in nanoseconds, until it is worth waiting for.
    pub owed_ns: AtomicU64,
    /// Whether writers must wait for background work.
    pub stopped: AtomicBool,
    logs: AtomicBool,
    memtable_bytes_max: AtomicU64,
    blob_bytes_max: AtomicU64,
    caps: Caps,
    /// As given, and as far as the memory allows them.
    options: ArcSwap<(Arc<KeyspaceOptions>, Arc<KeyspaceOptions>)>,
}

impl KeyspaceCore {
    /// A keyspace with these tables, whose keys are hashed with `hasher`, which is of the kind that
    /// the options name. Its sizes stay within `caps`.
    pub fn new(
        id: u32,
        name: String,
        options: KeyspaceOptions,
        hasher: KeyHasher,
        caps: Caps,
        version: Version,
    ) -> KeyspaceCore {
        let within = options.within(&caps);
        let view = CurrentView::new(&within, version);
        KeyspaceCore {
            id,
            name,
            hasher,
            view,
            existence: ExistenceSlot::default(),
            reads: ReadCounters::default(),
            advisor: Advisor::default(),
            prefixes: Arc::default(),
            has_prefix: AtomicBool::new(options.prefix.is_some()),
            counters: KeyspaceCounters::default(),
            marker: Mutex::default(),
            flushed_with: OnceLock::new(),
            dropped: AtomicBool::new(false),
            open: OpenMark::new(),
            pick_cursors: Mutex::new(vec![Vec::new(); LEVELS]),
            delay_per_byte: AtomicU64::new(0),
            owed_ns: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            logs: AtomicBool::new(options.log),
            memtable_bytes_max: AtomicU64::new(within.memtable_bytes),
            blob_bytes_max: AtomicU64::new(options.memtable_bytes * BLOB_BYTES_FACTOR),
            caps,
            options: ArcSwap::from_pointee((Arc::new(options), Arc::new(within))),
        }
    }

    /// The hash of `key`.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash(key)
    }

    /// Whether its writes go to the write-ahead log.
    #[inline]
    pub fn logs(&self) -> bool {
        self.logs.load(Ordering::Relaxed)
    }

    /// The rule by which its keys have prefixes, where there is one.
    #[inline]
    pub fn prefix(&self) -> Option<KeyPrefix> {
        let has_prefix = self.has_prefix.load(Ordering::Relaxed);
        if has_prefix { self.options().prefix.clone() } else { None }
    }

    /// How much its memtable may take before it is frozen.
    #[inline]
    pub fn buffer_bytes_max(&self) -> BufferBytes {
        BufferBytes {
            held: self.memtable_bytes_max.load(Ordering::Relaxed),
            pointed_at: self.blob_bytes_max.load(Ordering::Relaxed),
        }
    }

    /// Its options as far as the memory allows them: what counts for what is done.
    pub fn options(&self) -> Arc<KeyspaceOptions> {
        Arc::clone(&self.options.load().1)
    }

    /// Its options for writing tables of this level, as far as the memory allows them.
    pub fn options_of_level(&self, level: usize) -> Arc<KeyspaceOptions> {
        let options = self.options.load();
        let (given, within) = &**options;
        let table_bytes = given.table_bytes.min(self.caps.last_table_bytes);
        if level + 1 < LEVELS || table_bytes <= within.table_bytes {
            return Arc::clone(within);
        }
        Arc::new(KeyspaceOptions { table_bytes, ..(**within).clone() })
    }

    /// Its options as they were given.
    pub fn options_given(&self) -> Arc<KeyspaceOptions> {
        Arc::clone(&self.options.load().0)
    }

    /// Replaces its options.
    pub fn set_options(&self, options: KeyspaceOptions) {
        self.logs.store(options.log, Ordering::Relaxed);
        self.has_prefix.store(options.prefix.is_some(), Ordering::Relaxed);
        let within = options.within(&self.caps);
        self.memtable_bytes_max.store(within.memtable_bytes, Ordering::Relaxed);
        let pointed_at = options.memtable_bytes * BLOB_BYTES_FACTOR;
        self.blob_bytes_max.store(pointed_at, Ordering::Relaxed);
        self.options.store(Arc::new((Arc::new(options), Arc::new(within))));
    }

    /// How long a writer is held back per byte, in nanoseconds.
    #[inline]
    pub fn delay_per_byte_ns(&self) -> f64 {
        f64::from_bits(self.delay_per_byte.load(Ordering::Relaxed))
    }

    /// Sets how long a writer is held back per byte, in nanoseconds.
    pub fn set_delay_per_byte_ns(&self, delay: f64) {
        self.delay_per_byte.store(delay.to_bits(), Ordering::Relaxed);
    }

    /// From now on `other` is flushed whenever this is. The first one stays.
    pub fn flush_with(&self, other: &Arc<KeyspaceCore>) {
        let _ = self.flushed_with.set(Arc::downgrade(other));
    }

    /// What is flushed whenever this is.
    pub fn flushed_with(&self) -> Option<Arc<KeyspaceCore>> {
        let other = self.flushed_with.get()?.upgrade()?;
        (!other.dropped.load(Ordering::Acquire)).then_some(other)
    }

    /// Notes a marker the manifest holds.
    pub fn set_durable_marker(&self, marker: Vec<u8>) {
        *self.marker.lock().unwrap_or_else(PoisonError::into_inner) = Some(marker);
    }

    /// The marker the manifest holds.
    pub fn durable_marker(&self) -> Option<Vec<u8>> {
        self.marker.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Where the compaction picker went on last, per level.
    pub fn pick_cursors(&self) -> Vec<Vec<u8>> {
        self.pick_cursors.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes where the compaction picker goes on at a level.
    pub fn set_pick_cursor(&self, level: usize, key: Vec<u8>) {
        self.pick_cursors.lock().unwrap_or_else(PoisonError::into_inner)[level] = key;
    }

    /// An error where the keyspace was dropped.
    pub fn check_not_dropped(&self) -> Result<()> {
        if self.dropped.load(Ordering::Acquire) {
            return Err(Error::invalid(format!("keyspace '{}' was dropped", self.name)));
        }
        Ok(())
    }

    /// Whether it holds writes that are in no table.
    pub fn has_unflushed(&self) -> bool {
        let view = self.view.load();
        !view.frozen.is_empty() || !view.active.is_empty()
    }

    /// The number of its first write that is in no table.
    pub fn first_unflushed(&self) -> Option<SequenceNumber> {
        let view = self.view.load();
        let oldest = view.frozen.last().unwrap_or(&view.active);
        let first = oldest.first_sequence().min(view.active.first_sequence());
        (first != u64::MAX).then_some(first)
    }

    /// Bytes of its memtables.
    pub fn memtable_bytes(&self) -> u64 {
        let view = self.view.load();
        let frozen: usize = view.frozen.iter().map(|buffer| buffer.memtable.memory_bytes()).sum();
        (frozen + view.active.memtable.memory_bytes()) as u64
    }
}
