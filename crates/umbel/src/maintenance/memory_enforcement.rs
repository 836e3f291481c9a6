//! Weighing what a store holds in memory against its budget, and what follows: how much is left to
//! the block cache, which readers of tables are closed, how large filters are kept.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use umbel_arena::ArenaBytes;
use umbel_base::limits::LEVELS;

use crate::keyspace_core::KeyspaceCore;
use crate::memory_budget::Holding;
use crate::residence::Needs;
use crate::shares::{CHUNK_BYTES, SEATS_SHARE};
use crate::store::Store;
use crate::version::TableFile;

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
    /// What of that lies in chunks of what stays, where no block can use it.
    spare_of_what_stays: u64,
    /// Readers of tables: indexes, filters, slots, range tombstones. And what is known of tables
    /// whether they are open or not, and the existence filters of keyspaces.
    pub tables: u64,
    /// The mapped log as far as it was touched.
    pub log: u64,
    /// Buffers of running compactions and flushes, about.
    pub compactions: u64,
    /// Open cursors, and blocks that are in memory only because cursors stand in them.
    pub cursors: u64,
}

impl Parts {
    /// Everything but the cached blocks and what is free between them.
    fn fixed(&self) -> u64 {
        self.counted() + self.spare_of_what_stays
    }

    fn counted(&self) -> u64 {
        let [held, cursors] = [self.memtables_held, self.cursors];
        self.memtables + held + self.tables + self.log + self.compactions + cursors
    }

    /// All parts together.
    pub fn total(&self) -> u64 {
        self.counted() + self.blocks + self.spare
    }
}

/// What the parts of `store` hold now; `log` is what the log holds.
pub fn parts(store: &Store, log: u64) -> Parts {
    let keyspaces = store.keyspaces();
    let [arena, stays] = store.cache.chunk_bytes();
    let spare = |arena: ArenaBytes| arena.held.saturating_sub(arena.used) as u64;
    let held = keyspaces.iter().map(|keyspace| keyspace.view.past().memtable_bytes);
    store.cache.note_cursors();
    Parts {
        memtables: keyspaces.iter().map(|keyspace| keyspace.memtable_bytes()).sum(),
        memtables_held: held.sum(),
        blocks: store.cache.held() + store.cache.held() / SEATS_SHARE,
        spare: spare(arena) + spare(stays),
        spare_of_what_stays: spare(stays),
        tables: store.budget.tables.load(Ordering::Relaxed)
            + store.budget.known.load(Ordering::Relaxed)
            + existence_bytes(&keyspaces),
        log,
        compactions: store.budget.compactions.load(Ordering::Relaxed),
        cursors: store.budget.cursors.bytes(),
    }
}

fn existence_bytes(keyspaces: &[Arc<KeyspaceCore>]) -> u64 {
    keyspaces.iter().map(|keyspace| keyspace.existence.memory_bytes()).sum()
}

/// Leaves to the cache what the other parts do not hold; what it has too much goes at once, but
/// chunks of the arena only with [`give_back`].
///
/// Where writes may come, what they are going to need is kept free from the start.
///
/// In a shared budget the other parts are those of all stores.
pub fn settle_cache(store: &Store, parts: &Parts) {
    if let Some(membership) = store.budget.membership() {
        publish(store, Some(parts.log));
        return membership.shared().settle_cache();
    }
    let (least, most) = store.budget.sizes.cache;
    let left = left_to_blocks(store, parts);
    let left = left - left / SEATS_SHARE;
    store.cache.set_capacity(left.max(least).min(most));
}

/// Publishes what `store` holds where it shares a budget; `log` is what its log holds, if known.
pub fn publish(store: &Store, log: Option<u64>) {
    let Some(membership) = store.budget.membership() else { return };
    membership.publish(|| {
        let mut holding = Holding {
            readers: store.budget.tables.load(Ordering::Relaxed),
            known: store.budget.known.load(Ordering::Relaxed),
            log,
            can_flush: !store.read_only && !store.poison.is_set(),
            ..Holding::default()
        };
        for keyspace in store.keyspaces() {
            holding.memtables += keyspace.memtable_bytes();
            holding.writable += keyspace.view.load().active.memtable.memory_bytes() as u64;
            holding.memtables_held += keyspace.view.past().memtable_bytes;
            holding.known += keyspace.existence.memory_bytes();
        }
        holding
    });
}

/// Gives back chunks that the cache has too many, and what the allocator keeps. Takes its time: it
/// looks at every cached block.
pub fn give_back(store: &Store) {
    let log = store.commit_lock().wal.mapped_bytes();
    if let Some(membership) = store.budget.membership() {
        publish(store, Some(log));
        membership.shared().give_back();
    } else {
        let parts = parts(store, log);
        let left = left_to_blocks(store, &parts);
        // The chunk that is filled, and the empty one that the arena keeps.
        let least = store.budget.sizes.cache.0 + CHUNK_BYTES;
        // What cursors stand in lies in these chunks, too, and was counted apart.
        store.cache.give_back(left.max(least) + store.budget.cursors.block_bytes());
        settle_cache(store, &parts);
    }
    if store.budget.is_time_to_trim(store.options.env.clock.now()) {
        store.options.env.resources.give_back_memory();
    }
}

/// The bytes of chunks that blocks may take.
fn left_to_blocks(store: &Store, parts: &Parts) -> u64 {
    let mut parts = *parts;
    if !store.read_only {
        let sizes = &store.budget.sizes;
        parts.memtables = parts.memtables.max(2 * sizes.buffers);
        parts.log = parts.log.max(sizes.segment);
        parts.compactions = parts.compactions.max(sizes.working);
    }
    let sizes = &store.budget.sizes;
    sizes.total.saturating_sub(parts.fixed() + CHUNK_BYTES + sizes.besides)
}

/// Decides what stays in memory of the tables of each level, by what was chosen of their filters.
pub fn decide(store: &Store) {
    let keyspaces = store.keyspaces();
    store.budget.existence.store(existence_bytes(&keyspaces), Ordering::Relaxed);
    let mut levels = [Needs::default(); LEVELS];
    let mut current = 0;
    for keyspace in &keyspaces {
        for (level, table) in keyspace.view.load().version.tables() {
            levels[level].add(&table.meta, table.choice());
            current += table.reader_bytes().unwrap_or(0);
            // Tables move to other levels as they are.
            table.set_level(level);
        }
    }
    let budget = &store.budget;
    // Readers of tables that were replaced, or closed while a cursor was at them, stay until the
    // cursors go.
    let past = budget.tables.load(Ordering::Relaxed).saturating_sub(current);
    budget.decide_residence(&levels, past);
    budget.closes_at(budget.readers_most(), 0);
}

/// Closes readers where they take too much, and leaves the rest to the blocks.
pub fn keep_within(store: &Store) {
    if store.budget.is_over() {
        close_readers(store);
    }
    // Whoever reads may have the commit lock; whoever has it weighs himself when he is done.
    let log = store.commit.try_lock().ok().map(|state| state.wal.mapped_bytes());
    if let Some(log) = log {
        settle_cache(store, &parts(store, log));
    }
}

/// Freezes the fullest memtables until what is left to write to takes `most` bytes. Answers whether
/// one was frozen. REQUIRES: the commit lock of `store`.
pub fn freeze_fullest(store: &Store, most: u64) -> bool {
    let mut keyspaces = store.keyspaces();
    let active =
        |keyspace: &Arc<KeyspaceCore>| keyspace.view.load().active.memtable.memory_bytes() as u64;
    keyspaces.retain(|keyspace| !keyspace.view.load().active.is_empty());
    keyspaces.sort_by_cached_key(|keyspace| std::cmp::Reverse(active(keyspace)));
    let mut left: u64 = keyspaces.iter().map(active).sum();
    let mut frozen = false;
    for keyspace in &keyspaces {
        if left <= most {
            break;
        }
        left -= active(keyspace);
        keyspace.view.freeze(&keyspace.options());
        frozen = true;
    }
    frozen
}

/// References of a table that its version has: in its level, and as point reads want it.
const OF_ONE_VERSION: usize = 2;

/// A reader that may be closed.
struct Candidate<'a> {
    keyspace: usize,
    /// Whether less of it would stay if it were opened now.
    is_heavier_than_planned: bool,
    /// Whether its whole level takes so little that nearly every read needs it.
    is_small_level: bool,
    table: &'a TableFile,
    bytes: u64,
    cached_bytes: u64,
}

/// What goes first: tables of which less would stay if they were opened now; tables of large
/// levels, of them those of which little is cached, which says that they were read seldom of late,
/// and of those the one that was opened first.
fn order(candidate: &Candidate<'_>) -> (bool, bool, u64, u64) {
    let read_of_late = candidate.cached_bytes / (64 << 10);
    let stays = !candidate.is_heavier_than_planned;
    (stays, candidate.is_small_level, read_of_late, candidate.table.opening_number())
}

/// Closes readers until a quarter of what they may hold is free again. They are gone when those
/// who read at this moment have done.
pub fn close_readers(store: &Store) {
    // Whoever comes meanwhile need not do it once more.
    let Ok(_one_at_a_time) = store.budget.closing.try_lock() else { return };
    if !store.budget.is_over() {
        return;
    }
    let (held, most) = (store.budget.tables.load(Ordering::Relaxed), store.budget.readers_most());
    let wanted = held.saturating_sub(most / 4 * 3);
    let keyspaces = store.keyspaces();
    let views: Vec<_> = keyspaces.iter().map(|keyspace| keyspace.view.hold()).collect();
    let mut candidates = Vec::new();
    for (keyspace, view) in views.iter().enumerate() {
        for tables in &view.version.levels {
            let level_bytes: u64 = tables.iter().filter_map(|table| table.reader_bytes()).sum();
            for table in tables.iter().filter(|table| !table.is_busy()) {
                let (Some(bytes), Some(reader)) = (table.reader_bytes(), table.opened()) else {
                    continue;
                };
                // What an older version has too stays with its cursors: closing it here would
                // only have it opened a second time.
                if Arc::strong_count(table) > OF_ONE_VERSION {
                    continue;
                }
                let cached_bytes = reader.table().slots().resident_bytes();
                let is_small_level = level_bytes <= most / 8;
                candidates.push(Candidate {
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
    store.budget.readers_closed.fetch_add(count as u64, Ordering::Relaxed);
    store.budget.closes_at(most, held.saturating_sub(freed));
}

fn close(keyspaces: &[Arc<KeyspaceCore>], closed: &[HashSet<u64>]) {
    for (keyspace, ids) in keyspaces.iter().zip(closed) {
        if !ids.is_empty() {
            keyspace.view.close_readers(ids);
        }
    }
}
