//! Enforces a store's memory budget: sizes the block cache, closes table readers, and decides which
//! parts of filters and indexes stay in memory.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use umbel_arena::ArenaUsage;
use umbel_base::limits::LEVELS;

use crate::shared_budget::MemberUsage;
use crate::shared_budget::memory_use_limits::{CACHE_ENTRIES_SHARE, CHUNK_BYTES};
use crate::state::keyspace_state::KeyspaceState;
use crate::state::store::Store;
use crate::store_budget::residency::LevelDemand;
use crate::version::LiveTable;

/// Bytes of memory that a store uses, by use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryUsage {
    /// Bytes of memtables that take writes or wait for a flush.
    pub memtables: u64,
    /// Bytes of flushed memtables that cursors still read.
    pub memtables_held: u64,
    /// Bytes of cached blocks.
    pub blocks: u64,
    /// Bytes allocated for blocks and indexes that are free now. These bytes are pieces of chunks,
    /// which are freed only as a whole.
    pub spare: u64,
    /// The part of `spare` that is in chunks for pinned data, which blocks cannot use.
    pinned_spare: u64,
    /// Bytes of open table readers (indexes, filters, block slots, range tombstones), of the
    /// metadata of all tables, and of the keyspaces' existence filters.
    pub tables: u64,
    /// Bytes of the mapped WAL that are in memory.
    pub log: u64,
    /// Approximate bytes of the buffers of running compactions and flushes.
    pub compactions: u64,
    /// Bytes of open cursors, and of blocks that are in memory only because a cursor is in them.
    pub cursors: u64,
}

impl MemoryUsage {
    /// Sum of all uses except the cached blocks and the free space between blocks.
    fn fixed_bytes(&self) -> u64 {
        self.counted_bytes() + self.pinned_spare
    }

    fn counted_bytes(&self) -> u64 {
        let [held, cursors] = [self.memtables_held, self.cursors];
        self.memtables + held + self.tables + self.log + self.compactions + cursors
    }

    /// Sum of all uses.
    pub fn total(&self) -> u64 {
        self.counted_bytes() + self.blocks + self.spare
    }
}

/// Measures the memory of `store`; `log` is the memory of its WAL.
pub fn measure(store: &Store, log: u64) -> MemoryUsage {
    let keyspaces = store.keyspaces();
    let [arena, stays] = store.cache.chunk_bytes();
    let spare = |arena: ArenaUsage| arena.reserved.saturating_sub(arena.used) as u64;
    let held =
        keyspaces.iter().map(|keyspace| keyspace.super_version.retired_stats().memtable_bytes);
    store.cache.note_cursors();
    MemoryUsage {
        memtables: keyspaces.iter().map(|keyspace| keyspace.memtable_bytes()).sum(),
        memtables_held: held.sum(),
        blocks: store.cache.held_bytes() + store.cache.held_bytes() / CACHE_ENTRIES_SHARE,
        spare: spare(arena) + spare(stays),
        pinned_spare: spare(stays),
        tables: store.budget.tables.load(Ordering::Relaxed)
            + store.budget.table_metadata.load(Ordering::Relaxed)
            + existence_bytes(&keyspaces),
        log,
        compactions: store.budget.compactions.load(Ordering::Relaxed),
        cursors: store.budget.cursors.bytes() + skip_span_bytes(&keyspaces),
    }
}

fn skip_span_bytes(keyspaces: &[Arc<KeyspaceState>]) -> u64 {
    keyspaces.iter().map(|it| it.super_version.load().skip_spans.memory_bytes()).sum()
}

fn existence_bytes(keyspaces: &[Arc<KeyspaceState>]) -> u64 {
    keyspaces.iter().map(|keyspace| keyspace.existence.memory_bytes()).sum()
}

/// Resizes the block cache to the bytes that the other uses leave. The cache evicts excess blocks
/// at once; their chunks of the arena are freed only by [`release_memory`].
///
/// In a store that can write, the memory for writes is kept free from the start.
///
/// With a shared budget the other uses are those of all its stores.
pub fn resize_cache(store: &Store, parts: &MemoryUsage) {
    if let Some(membership) = store.budget.membership() {
        publish(store, Some(parts.log));
        return membership.shared().resize_cache();
    }
    let (least, limit) = store.budget.sizes.cache;
    let left = block_bytes_available(store, parts);
    let left = left - left / CACHE_ENTRIES_SHARE;
    store.cache.set_capacity(left.max(least).min(limit));
}

/// Publishes the memory use of `store` to the shared budget, if it has one. `log` is the memory of
/// its WAL, if known.
pub fn publish(store: &Store, log: Option<u64>) {
    let Some(membership) = store.budget.membership() else { return };
    membership.publish(|| {
        let mut holding = MemberUsage {
            readers: store.budget.tables.load(Ordering::Relaxed),
            known: store.budget.table_metadata.load(Ordering::Relaxed),
            log,
            can_flush: !store.read_only && !store.fatal_error.is_set(),
            ..MemberUsage::default()
        };
        for keyspace in store.keyspaces() {
            holding.memtables += keyspace.memtable_bytes();
            holding.writable += keyspace.super_version.load().active.memtable.memory_bytes() as u64;
            holding.memtables_held += keyspace.super_version.retired_stats().memtable_bytes;
            holding.known += keyspace.existence.memory_bytes();
            holding.known += keyspace.super_version.load().skip_spans.memory_bytes();
        }
        holding
    });
}

/// Frees the block cache's excess chunks, and free memory of the allocator. The call is slow,
/// because it checks every cached block.
pub fn release_memory(store: &Store) {
    let log = store.commit_lock().wal.mapped_bytes();
    if let Some(membership) = store.budget.membership() {
        publish(store, Some(log));
        membership.shared().release_memory();
    } else {
        let parts = measure(store, log);
        let left = block_bytes_available(store, &parts);
        // The chunk that is filled, and the empty one that the arena keeps.
        let least = store.budget.sizes.cache.0 + CHUNK_BYTES;
        // Blocks with cursors are in these chunks, too, and were counted separately.
        store.cache.release_chunks(left.max(least) + store.budget.cursors.block_bytes());
        resize_cache(store, &parts);
    }
    if store.budget.is_time_to_trim(store.options.env.clock.now()) {
        store.options.env.resources.trim_memory();
    }
}

/// Bytes of chunks that blocks of the cache can take within the budget.
fn block_bytes_available(store: &Store, parts: &MemoryUsage) -> u64 {
    let mut parts = *parts;
    if !store.read_only {
        let sizes = &store.budget.sizes;
        parts.memtables = parts.memtables.max(2 * sizes.buffers);
        parts.log = parts.log.max(sizes.segment);
        parts.compactions = parts.compactions.max(sizes.job_buffers);
    }
    let sizes = &store.budget.sizes;
    sizes.total.saturating_sub(parts.fixed_bytes() + CHUNK_BYTES + sizes.overhead)
}

/// Decides, by the filter selections, which parts of each level's tables stay in memory.
pub fn plan_residency(store: &Store) {
    let keyspaces = store.keyspaces();
    store.budget.existence.store(existence_bytes(&keyspaces), Ordering::Relaxed);
    let mut levels = [LevelDemand::default(); LEVELS];
    let mut current = 0;
    for keyspace in &keyspaces {
        for (level, table) in keyspace.super_version.load().version.tables() {
            levels[level].add(&table.meta, table.selection());
            current += table.reader_bytes().unwrap_or(0);
            // Tables may have moved to other levels.
            table.set_level(level);
        }
    }
    let budget = &store.budget;
    // Readers of replaced tables, or of tables closed under a cursor, stay until the cursors end.
    let past = budget.tables.load(Ordering::Relaxed).saturating_sub(current);
    budget.plan_residency(&levels, past);
    budget.set_close_threshold(budget.readers_max(), 0);
}

/// Closes table readers if they take too much memory, and gives the block cache the remaining
/// memory.
pub fn enforce_budget(store: &Store) {
    if store.budget.exceeds_readers_max() {
        close_readers(store);
    }
    // A reader may have the commit lock; a thread with that lock checks the budget itself when it
    // is done.
    let log = store.commit.try_lock().ok().map(|state| state.wal.mapped_bytes());
    if let Some(log) = log {
        resize_cache(store, &measure(store, log));
    }
}

/// Freezes the fullest memtables until the active memtables take at most `limit` bytes. Returns
/// whether a memtable was frozen.
/// REQUIRES: the caller holds the commit lock of `store`.
pub fn freeze_fullest(store: &Store, limit: u64) -> bool {
    let mut keyspaces = store.keyspaces();
    let active = |keyspace: &Arc<KeyspaceState>| {
        keyspace.super_version.load().active.memtable.memory_bytes() as u64
    };
    keyspaces.retain(|keyspace| !keyspace.super_version.load().active.is_empty());
    keyspaces.sort_by_cached_key(|keyspace| std::cmp::Reverse(active(keyspace)));
    let mut left: u64 = keyspaces.iter().map(active).sum();
    let mut frozen = false;
    for keyspace in &keyspaces {
        if left <= limit {
            break;
        }
        left -= active(keyspace);
        keyspace.super_version.freeze(&keyspace.options());
        frozen = true;
    }
    frozen
}

/// Number of references to a table from its version: one in its level, and one in the lists for
/// point reads.
const REFERENCES_PER_VERSION: usize = 2;

/// A table reader that can be closed.
struct CloseCandidate<'a> {
    keyspace: usize,
    /// Whether the reader would take less memory if it were opened now.
    is_heavier_than_planned: bool,
    /// Whether the table's level is so small that nearly every read needs it.
    is_small_level: bool,
    table: &'a LiveTable,
    bytes: u64,
    cached_bytes: u64,
}

/// Sort key of the order in which table readers are closed. Readers that would take less memory if
/// they were opened now come first. Next in the order are tables of large levels, before those of
/// small levels. In each group tables with few cached blocks, which were rarely read recently, come
/// first; among equals, the one opened first.
fn close_order(candidate: &CloseCandidate<'_>) -> (bool, bool, u64, u64) {
    let recently_read = candidate.cached_bytes / (64 << 10);
    let stays = !candidate.is_heavier_than_planned;
    (stays, candidate.is_small_level, recently_read, candidate.table.opening_number())
}

/// Closes table readers until a quarter of their memory limit is free again. The memory of a closed
/// reader is freed when current reads end.
pub fn close_readers(store: &Store) {
    // A concurrent caller need not do it again.
    let Ok(_one_at_a_time) = store.budget.close_lock.try_lock() else { return };
    if !store.budget.exceeds_readers_max() {
        return;
    }
    let (held, limit) = (store.budget.tables.load(Ordering::Relaxed), store.budget.readers_max());
    let wanted = held.saturating_sub(limit / 4 * 3);
    let keyspaces = store.keyspaces();
    let views: Vec<_> = keyspaces.iter().map(|keyspace| keyspace.super_version.acquire()).collect();
    let mut candidates = Vec::new();
    for (keyspace, view) in views.iter().enumerate() {
        for tables in &view.version.levels {
            let level_bytes: u64 = tables.iter().filter_map(|table| table.reader_bytes()).sum();
            for table in tables.iter().filter(|table| !table.is_busy()) {
                let (Some(bytes), Some(reader)) = (table.reader_bytes(), table.opened()) else {
                    continue;
                };
                // A table in an older version too stays with its cursors: closing it here would
                // only make it open twice.
                if Arc::strong_count(table) > REFERENCES_PER_VERSION {
                    continue;
                }
                let cached_bytes = reader.table().slots().resident_bytes();
                let is_small_level = level_bytes <= limit / 8;
                candidates.push(CloseCandidate {
                    keyspace,
                    is_heavier_than_planned: table.is_heavier_than_planned(),
                    is_small_level,
                    table,
                    bytes,
                    cached_bytes,
                });
            }
        }
    }
    candidates.sort_by_cached_key(close_order);
    let mut closed = vec![HashSet::new(); keyspaces.len()];
    let mut freed = 0;
    for candidate in candidates.iter().take_while(|candidate| {
        let enough = freed >= wanted;
        freed += candidate.bytes;
        !enough
    }) {
        closed[candidate.keyspace].insert(candidate.table.meta.id);
    }
    close_tables(&keyspaces, &closed);
    let count: usize = closed.iter().map(HashSet::len).sum();
    store.budget.readers_closed.fetch_add(count as u64, Ordering::Relaxed);
    store.budget.set_close_threshold(limit, held.saturating_sub(freed));
}

fn close_tables(keyspaces: &[Arc<KeyspaceState>], closed: &[HashSet<u64>]) {
    for (keyspace, ids) in keyspaces.iter().zip(closed) {
        if !ids.is_empty() {
            keyspace.super_version.close_readers(ids);
        }
    }
}
