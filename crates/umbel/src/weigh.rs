//! Weighing what a store holds in memory against its budget, and what follows: how much is left to
//! the block cache, which readers of tables are closed, how large filters are kept.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use umbel_table::BlockCache;

use crate::budget::CHUNK_BYTES;
use crate::keyspace_core::KeyspaceCore;
use crate::store::Store;
use crate::version::{Keeper, TableFile};

/// Bytes of a block's slot in an open table, about.
const SLOT_BYTES: u64 = 16;
/// Bytes of a seat in the cache, for each byte of a block of 4 KiB: one in so many.
const SEATS_SHARE: u64 = 64;

/// What the parts of a store hold, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Parts {
    /// Memtables that take writes or wait to be flushed.
    pub memtables: u64,
    /// Memtables that were flushed, but that cursors still look at.
    pub memtables_held: u64,
    /// Cached blocks.
    pub blocks: u64,
    /// Taken for blocks and indexes, but free: pieces of chunks that go back as a whole only.
    pub spare: u64,
    /// Readers of tables: indexes, filters, slots, range tombstones.
    pub tables: u64,
    /// The mapped log as far as it was touched.
    pub log: u64,
    /// Buffers of running compactions and flushes, about.
    pub compactions: u64,
}

impl Parts {
    /// Everything but the cached blocks.
    fn fixed(&self) -> u64 {
        self.memtables + self.memtables_held + self.tables + self.log + self.compactions
    }

    /// All parts together.
    pub fn total(&self) -> u64 {
        self.fixed() + self.blocks + self.spare
    }
}

/// What the parts of `store` hold now; `log` is what the log holds.
pub fn parts(store: &Store, log: u64) -> Parts {
    let keyspaces = store.keyspaces();
    let arena = store.cache.arena().bytes();
    let held = keyspaces.iter().map(|keyspace| keyspace.view.past().memtable_bytes);
    Parts {
        memtables: keyspaces.iter().map(|keyspace| keyspace.memtable_bytes()).sum(),
        memtables_held: held.sum(),
        blocks: store.cache.held() + store.cache.held() / SEATS_SHARE,
        spare: arena.held.saturating_sub(arena.used) as u64,
        tables: store.budget.tables.load(Ordering::Relaxed),
        log,
        compactions: store.budget.compactions.load(Ordering::Relaxed),
    }
}

/// Leaves to the cache what the other parts do not hold; what it has too much goes at once.
///
/// Where writes may come, what they are going to need is kept free from the start: blocks that
/// leave the cache free pieces of chunks, and few whole chunks that could go to others.
pub fn settle_cache(store: &Store, parts: &Parts) {
    let (least, most) = store.budget.sizes.cache;
    let mut parts = *parts;
    if !store.read_only {
        let sizes = &store.budget.sizes;
        parts.memtables = parts.memtables.max(2 * sizes.buffers);
        parts.log = parts.log.max(sizes.segment);
        parts.compactions = parts.compactions.max(sizes.working);
    }
    let kept = parts.fixed() + parts.spare.max(CHUNK_BYTES);
    let left = store.budget.sizes.total.saturating_sub(kept);
    let left = left - left / SEATS_SHARE;
    store.cache.set_capacity(left.max(least).min(most));
}

/// After a flush or compaction: other tables, other needs.
pub fn after_work(store: &Store) {
    let (mut index_bytes, mut filter_bytes) = (0, 0);
    for keyspace in store.keyspaces() {
        for (_, table) in keyspace.view.load().version.tables() {
            index_bytes += table.meta.index_bytes + u64::from(table.meta.blocks) * SLOT_BYTES;
            filter_bytes += table.meta.filter_bytes;
        }
    }
    let budget = &store.budget;
    budget.decide_filters(index_bytes, filter_bytes);
    budget.close_at.store(budget.sizes.tables, Ordering::Relaxed);
    if budget.is_over() {
        store.close_readers();
    }
}

/// A reader that may be closed.
struct Candidate<'a> {
    keyspace: usize,
    /// Whether its whole level takes so little that nearly every read needs it.
    is_small_level: bool,
    table: &'a TableFile,
    bytes: u64,
    cached_bytes: u64,
}

/// What goes first: tables of large levels, of them those of which little is cached, which says
/// that they were read seldom of late, and of those the one that was opened first.
fn order(candidate: &Candidate<'_>) -> (bool, u64, u64) {
    let read_of_late = candidate.cached_bytes / (64 << 10);
    (candidate.is_small_level, read_of_late, candidate.table.opening_number())
}

impl Keeper for Store {
    /// Closes readers until a quarter of what they may hold is free again. They are gone when those
    /// who read at this moment have done.
    fn close_readers(&self) {
        // Whoever comes meanwhile need not do it once more.
        let Ok(_one_at_a_time) = self.budget.closing.try_lock() else { return };
        if !self.budget.is_over() {
            return;
        }
        let (held, most) = (self.budget.tables.load(Ordering::Relaxed), self.budget.sizes.tables);
        let wanted = held.saturating_sub(most / 4 * 3);
        let keyspaces = self.keyspaces();
        let views: Vec<_> = keyspaces.iter().map(|keyspace| keyspace.view.hold()).collect();
        let mut candidates = Vec::new();
        for (keyspace, view) in views.iter().enumerate() {
            for tables in &view.version.levels {
                let bytes = |table: &TableFile| {
                    table
                        .opened()
                        .map(|reader| (size_of::<TableFile>() + reader.pinned_bytes()) as u64)
                };
                let level_bytes: u64 = tables.iter().filter_map(|table| bytes(table)).sum();
                for table in tables.iter().filter(|table| !table.is_busy()) {
                    let (Some(bytes), Some(reader)) = (bytes(table), table.opened()) else {
                        continue;
                    };
                    let cached_bytes = reader.slots().resident_bytes();
                    let is_small_level = level_bytes <= most / 8;
                    candidates.push(Candidate {
                        keyspace,
                        is_small_level,
                        table,
                        bytes,
                        cached_bytes,
                    });
                }
            }
        }
        candidates.sort_by_cached_key(order);
        let mut closed = vec![HashSet::new(); keyspaces.len()];
        let mut freed = 0;
        for candidate in candidates.iter().take_while(|candidate| {
            let enough = freed >= wanted;
            freed += candidate.bytes;
            !enough
        }) {
            closed[candidate.keyspace].insert(candidate.table.meta.id);
        }
        close(&keyspaces, &closed);
        let count: usize = closed.iter().map(HashSet::len).sum();
        self.budget.readers_closed.fetch_add(count as u64, Ordering::Relaxed);
        // What cursors and compactions hold goes only with them: looking again at once is in vain.
        let left = held.saturating_sub(freed);
        self.budget.close_at.store(most.max(left + most / 8), Ordering::Relaxed);
    }
}

fn close(keyspaces: &[std::sync::Arc<KeyspaceCore>], closed: &[HashSet<u64>]) {
    for (keyspace, ids) in keyspaces.iter().zip(closed) {
        if !ids.is_empty() {
            keyspace.view.close_readers(ids);
        }
    }
}
