//! [`KeyspaceState`]: the state that all handles of a keyspace share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use umbel_base::ignore_poison::IgnorePoison;

use arc_swap::ArcSwap;
use umbel_base::limits::LEVELS;
use umbel_base::{Error, Result, SequenceNumber};
use umbel_env::OpenMark;
use umbel_filter::KeyHasher;

use crate::advisor::Advisor;
use crate::options::{KeyPrefix, KeyspaceOptions, OptionCaps};
use crate::state::keyspace_existence::KeyspaceExistence;
use crate::super_version::{MemtableBytes, SuperVersionCell};
use crate::thread_counters::{KeyspaceCounters, ReadCounters};
use crate::version::{PrefixCounters, Version};

/// A memtable is flushed when its entries point at long values of this multiple of the configured
/// memtable size. Only a flush deletes the files of overwritten long values. The factor applies to
/// the configured size, not the memory-limited one, because long values take no memory.
const BLOB_BYTES_FACTOR: u64 = 4;

/// A keyspace of an open store.
#[derive(Debug)]
pub struct KeyspaceState {
    /// Id of the keyspace.
    pub id: u32,
    /// Name of the keyspace.
    pub name: String,
    /// Hash function of the keyspace's keys.
    pub hasher: KeyHasher,
    /// The keyspace's memtables and tables.
    pub super_version: SuperVersionCell,
    /// The keyspace's existence filter, if it has one.
    pub existence: KeyspaceExistence,
    /// Counters of reads.
    pub reads: ReadCounters,
    /// The advisor, which decides which filters are built and kept in memory.
    pub advisor: Advisor,
    /// Counters of prefix filter probes by scans.
    pub prefixes: Arc<PrefixCounters>,
    has_prefix: AtomicBool,
    /// Counters of writes, flushes and compactions.
    pub counters: KeyspaceCounters,
    marker: Mutex<Option<Vec<u8>>>,
    /// The flush partner: a keyspace that is flushed whenever this one is.
    flush_partner: OnceLock<Weak<KeyspaceState>>,
    /// Whether the keyspace was dropped.
    pub dropped: AtomicBool,
    /// Whether the keyspace can be read: it is not dropped, its store is not closed, and this
    /// process opened the store. One load checks all three.
    pub open: OpenMark,
    /// For each level, the key at which the compaction picker continues.
    pick_cursors: Mutex<Vec<Vec<u8>>>,
    /// Delay of a writer in nanoseconds per byte, as the bits of an `f64`.
    delay_per_byte: AtomicU64,
    /// Accumulated delay of writers, in nanoseconds; a writer sleeps when it is long enough.
    pub delay_debt_ns: AtomicU64,
    /// Whether writers must wait for a flush or compaction.
    pub is_stalled: AtomicBool,
    uses_wal: AtomicBool,
    memtable_bytes_max: AtomicU64,
    blob_bytes_max: AtomicU64,
    caps: OptionCaps,
    /// The configured options, and the options reduced to what the memory budget allows.
    options: ArcSwap<(Arc<KeyspaceOptions>, Arc<KeyspaceOptions>)>,
}

impl KeyspaceState {
    /// Creates a keyspace with the tables of `version`. REQUIRES: `hasher` is of the kind that the
    /// options name. `caps` limits the options.
    pub fn new(
        id: u32,
        name: String,
        options: KeyspaceOptions,
        hasher: KeyHasher,
        caps: OptionCaps,
        version: Version,
    ) -> KeyspaceState {
        let within = options.within(&caps);
        let view = SuperVersionCell::new(&within, version);
        KeyspaceState {
            id,
            name,
            hasher,
            super_version: view,
            existence: KeyspaceExistence::default(),
            reads: ReadCounters::default(),
            advisor: Advisor::default(),
            prefixes: Arc::default(),
            has_prefix: AtomicBool::new(options.prefix.is_some()),
            counters: KeyspaceCounters::default(),
            marker: Mutex::default(),
            flush_partner: OnceLock::new(),
            dropped: AtomicBool::new(false),
            open: OpenMark::new(),
            pick_cursors: Mutex::new(vec![Vec::new(); LEVELS]),
            delay_per_byte: AtomicU64::new(0),
            delay_debt_ns: AtomicU64::new(0),
            is_stalled: AtomicBool::new(false),
            uses_wal: AtomicBool::new(options.log),
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

    /// Whether the keyspace's writes go to the WAL.
    #[inline]
    pub fn uses_wal(&self) -> bool {
        self.uses_wal.load(Ordering::Relaxed)
    }

    /// The rule that gives the keyspace's keys their prefixes, if it has one.
    #[inline]
    pub fn prefix(&self) -> Option<KeyPrefix> {
        let has_prefix = self.has_prefix.load(Ordering::Relaxed);
        if has_prefix { self.options().prefix.clone() } else { None }
    }

    /// Size of the active memtable at which it is frozen.
    #[inline]
    pub fn memtable_bytes_max(&self) -> MemtableBytes {
        MemtableBytes {
            memory: self.memtable_bytes_max.load(Ordering::Relaxed),
            blobs: self.blob_bytes_max.load(Ordering::Relaxed),
        }
    }

    /// Whether the keyspace's active memtable is full and must be frozen.
    pub fn has_full_memtable(&self) -> bool {
        self.super_version.load().active.is_full(self.memtable_bytes_max())
    }

    /// The keyspace's options, reduced to what the memory budget allows.
    pub fn options(&self) -> Arc<KeyspaceOptions> {
        Arc::clone(&self.options.load().1)
    }

    /// The keyspace's options for writing tables of level `level`, reduced to what the memory
    /// budget allows.
    pub fn options_of_level(&self, level: usize) -> Arc<KeyspaceOptions> {
        let options = self.options.load();
        let (given, within) = &**options;
        let table_bytes = given.table_bytes.min(self.caps.last_table_bytes);
        if level + 1 < LEVELS || table_bytes <= within.table_bytes {
            return Arc::clone(within);
        }
        Arc::new(KeyspaceOptions { table_bytes, ..(**within).clone() })
    }

    /// The keyspace's options as the caller set them.
    pub fn configured_options(&self) -> Arc<KeyspaceOptions> {
        Arc::clone(&self.options.load().0)
    }

    /// Replaces the keyspace's options.
    pub fn set_options(&self, options: KeyspaceOptions) {
        self.uses_wal.store(options.log, Ordering::Relaxed);
        self.has_prefix.store(options.prefix.is_some(), Ordering::Relaxed);
        let within = options.within(&self.caps);
        self.memtable_bytes_max.store(within.memtable_bytes, Ordering::Relaxed);
        let pointed_at = options.memtable_bytes * BLOB_BYTES_FACTOR;
        self.blob_bytes_max.store(pointed_at, Ordering::Relaxed);
        self.options.store(Arc::new((Arc::new(options), Arc::new(within))));
    }

    /// Delay of a writer for each byte that it writes, in nanoseconds.
    #[inline]
    pub fn delay_per_byte_ns(&self) -> f64 {
        f64::from_bits(self.delay_per_byte.load(Ordering::Relaxed))
    }

    /// Sets the delay of a writer for each byte that it writes, in nanoseconds.
    pub fn set_delay_per_byte_ns(&self, delay: f64) {
        self.delay_per_byte.store(delay.to_bits(), Ordering::Relaxed);
    }

    /// Makes `other` the flush partner, which is flushed whenever this keyspace is. Only the first
    /// call has an effect.
    pub fn flush_with(&self, other: &Arc<KeyspaceState>) {
        let _ = self.flush_partner.set(Arc::downgrade(other));
    }

    /// The flush partner: a keyspace that is flushed whenever this one is.
    pub fn flush_partner(&self) -> Option<Arc<KeyspaceState>> {
        let other = self.flush_partner.get()?.upgrade()?;
        (!other.dropped.load(Ordering::Acquire)).then_some(other)
    }

    /// Records a marker that the manifest holds.
    pub fn set_durable_marker(&self, marker: Vec<u8>) {
        *self.marker.lock().ignore_poison() = Some(marker);
    }

    /// The marker that the manifest holds.
    pub fn durable_marker(&self) -> Option<Vec<u8>> {
        self.marker.lock().ignore_poison().clone()
    }

    /// For each level, the key at which the compaction picker continues.
    pub fn pick_cursors(&self) -> Vec<Vec<u8>> {
        self.pick_cursors.lock().ignore_poison().clone()
    }

    /// Sets the key at which the compaction picker continues at a level.
    pub fn set_pick_cursor(&self, level: usize, key: Vec<u8>) {
        self.pick_cursors.lock().ignore_poison()[level] = key;
    }

    /// Returns an error if the keyspace was dropped.
    pub fn check_not_dropped(&self) -> Result<()> {
        if self.dropped.load(Ordering::Acquire) {
            return Err(Error::invalid(format!("keyspace '{}' was dropped", self.name)));
        }
        Ok(())
    }

    /// Whether the keyspace has writes that are not in tables yet.
    pub fn has_unflushed(&self) -> bool {
        let view = self.super_version.load();
        !view.frozen.is_empty() || !view.active.is_empty()
    }

    /// Sequence number of the keyspace's first write that is not in a table yet.
    pub fn first_unflushed(&self) -> Option<SequenceNumber> {
        let view = self.super_version.load();
        let oldest = view.frozen.last().unwrap_or(&view.active);
        let first = oldest.first_sequence().min(view.active.first_sequence());
        (first != u64::MAX).then_some(first)
    }

    /// Bytes of the keyspace's tables, without long values in files of their own.
    pub fn table_file_bytes(&self) -> u64 {
        self.super_version.load().version.file_bytes()
    }

    /// Bytes of the keyspace's memtables.
    pub fn memtable_bytes(&self) -> u64 {
        let view = self.super_version.load();
        let frozen: usize = view.frozen.iter().map(|buffer| buffer.memtable.memory_bytes()).sum();
        (frozen + view.active.memtable.memory_bytes()) as u64
    }
}
