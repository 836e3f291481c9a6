//! Lookup of several keys at once, so that their cache misses overlap.
//!
//! A get waits for one cache line after the other: filter, index, slot, block, entry. A multi-get
//! runs each step for all keys of a group before the next step, and prefetches the memory that the
//! next step reads. So a group waits for memory about as long as one key does.

use std::cell::Cell;

use umbel_base::{BlobPointer, Result, SequenceNumber};
use umbel_table::{SearchState, SearchStep};

use crate::fs::blob_files::BlobFiles;
use crate::read::lookup::{Lookup, LookupResult, PointerCell, is_hidden_above, take_result};
use crate::state::keyspace_state::KeyspaceState;
use crate::state::store::Store;
use crate::super_version::SuperVersion;
use crate::thread_counters::{ProbeOutcome, ThreadReadCounters};
use crate::version::{LiveTable, OpenedTable, Version};

/// Number of keys of a group, at most as many as a [`KeySet`] has bits. The number is larger than
/// that of cache misses that a core can wait for at a time. It is small enough that prefetched
/// lines are still cached when they are read.
const GROUP_KEYS: usize = 32;

/// Looks up several keys in one consistent state, and calls `read` for each key with its index and
/// its value, `None` if absent. The calls are in any order.
#[inline]
pub fn multi_get_with<K: AsRef<[u8]>>(
    store: &Store,
    keyspace: &KeyspaceState,
    keys: &[K],
    at: Option<SequenceNumber>,
    read: impl FnMut(usize, Option<&[u8]>),
) -> Result<()> {
    match keyspace.existence.is_on() {
        true => multi_get_with_existence(store, keyspace, keys, at, read),
        false => multi_get_all(store, keyspace, keys, at, |_| KeySet::default(), read),
    }
}

/// Like [`multi_get_with`], but probes the existence filter first. The function is separate so that
/// keyspaces without an existence filter do not pay for the probe.
#[inline(never)]
fn multi_get_with_existence<K: AsRef<[u8]>>(
    store: &Store,
    keyspace: &KeyspaceState,
    keys: &[K],
    at: Option<SequenceNumber>,
    mut read: impl FnMut(usize, Option<&[u8]>),
) -> Result<()> {
    // Held, because a filter that is rebuilt meanwhile may lack keys that no reader can see.
    let held = at.is_none().then(|| SnapshotGuard { store, sequence: store.snapshots.acquire() });
    let at = at.or(held.as_ref().map(|held| held.sequence));
    let (mut denied, mut missing) = (0, 0);
    let deny = |hashes: &[u64]| {
        let mut may = [true; GROUP_KEYS];
        keyspace.existence.may_contain_batch(hashes, &mut may[..hashes.len()]);
        let mut places = KeySet::default();
        (0..hashes.len()).filter(|place| !may[*place]).for_each(|place| places.add(place));
        denied += places.0.count_ones() as usize;
        places
    };
    let looked_up = multi_get_all(store, keyspace, keys, at, deny, |index, value| {
        missing += usize::from(value.is_none());
        read(index, value);
    });
    keyspace.existence.note_false_positives(missing.saturating_sub(denied));
    looked_up
}

/// Keeps the state at a sequence number while it is read.
struct SnapshotGuard<'a> {
    store: &'a Store,
    sequence: SequenceNumber,
}

impl Drop for SnapshotGuard<'_> {
    fn drop(&mut self) {
        self.store.release(self.sequence);
    }
}

/// Like [`multi_get_with`]; `deny` gets the hashes of a group and returns the keys that are
/// certainly absent.
#[inline(always)]
fn multi_get_all<K: AsRef<[u8]>>(
    store: &Store,
    keyspace: &KeyspaceState,
    keys: &[K],
    at: Option<SequenceNumber>,
    mut deny: impl FnMut(&[u64]) -> KeySet,
    mut read: impl FnMut(usize, Option<&[u8]>),
) -> Result<()> {
    // The super version first, the number second: see the invariant of `SuperVersion`.
    let view = keyspace.super_version.load();
    let sequence = at.unwrap_or_else(|| store.snapshots.visible());
    let counters = keyspace.reads.for_thread();
    counters.count_gets(keys.len());
    let mut looked_up = Ok(());
    let mut counters = counters;
    for (number, keys) in keys.chunks(GROUP_KEYS).enumerate() {
        let mut group = KeyGroup {
            keys: [&[]; GROUP_KEYS],
            hashes: [0; GROUP_KEYS],
            heads: [0; GROUP_KEYS],
            next_source: [0; GROUP_KEYS],
            tables: [None; GROUP_KEYS],
            levels: [0; GROUP_KEYS],
            blocks: [0; GROUP_KEYS],
            skipped_tombstones: KeySet::default(),
            has_table_tombstones: !view.version.range_tombstone_index().is_empty(),
            sequence,
            counters,
            blobs: &store.context.blobs,
            read: |place: usize, value: Option<&[u8]>| read(number * GROUP_KEYS + place, value),
        };
        let mut all = group.begin(keyspace, &view, keys);
        // After the sequence number was read: a rejected key was not put up to that number.
        for place in deny(&group.hashes[..keys.len()]) {
            all.remove(place);
            group.deliver_value(place, None);
        }
        looked_up = group.look_up(&view, all);
        counters = group.counters;
        if looked_up.is_err() {
            break;
        }
    }
    counters.count_loads();
    looked_up
}

/// A set of key indexes in a group.
#[derive(Debug, Clone, Copy, Default)]
struct KeySet(u32);

impl KeySet {
    #[inline]
    fn is_empty(self) -> bool {
        self.0 == 0
    }

    #[inline]
    fn add(&mut self, place: usize) {
        self.0 |= 1 << place;
    }

    #[inline]
    fn remove(&mut self, place: usize) {
        self.0 &= !(1 << place);
    }
}

impl Iterator for KeySet {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        if self.is_empty() {
            return None;
        }
        let place = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        // Shows the compiler that it is a valid array index.
        Some(place % GROUP_KEYS)
    }
}

/// A group of keys that are looked up together. A key is identified by its index in the group.
struct KeyGroup<'a, F> {
    keys: [&'a [u8]; GROUP_KEYS],
    hashes: [u64; GROUP_KEYS],
    heads: [u64; GROUP_KEYS],
    /// For each key, the index of the first source that was not searched yet.
    next_source: [usize; GROUP_KEYS],
    /// For each key, the table that is searched for it.
    tables: [Option<&'a OpenedTable>; GROUP_KEYS],
    levels: [u8; GROUP_KEYS],
    blocks: [usize; GROUP_KEYS],
    /// Keys whose rejected sources have range tombstones that were not searched for them.
    skipped_tombstones: KeySet,
    /// Whether any table has range tombstones.
    has_table_tombstones: bool,
    sequence: SequenceNumber,
    counters: ThreadReadCounters<'a>,
    blobs: &'a BlobFiles,
    read: F,
}

impl<'a, F: FnMut(usize, Option<&[u8]>)> KeyGroup<'a, F> {
    fn begin<K: AsRef<[u8]>>(
        &mut self,
        keyspace: &KeyspaceState,
        view: &SuperVersion,
        keys: &'a [K],
    ) -> KeySet {
        let mut all = KeySet::default();
        for (place, key) in keys.iter().enumerate().take(GROUP_KEYS) {
            let key = key.as_ref();
            self.keys[place] = key;
            self.hashes[place] = keyspace.hash(key);
            self.heads[place] = view.version.head(key);
            all.add(place);
        }
        all
    }

    fn look_up(&mut self, view: &'a SuperVersion, mut waiting: KeySet) -> Result<()> {
        if !view.has_no_memtable_entries(self.sequence) {
            waiting = self.search_memtables(view, waiting)?;
        }
        // A key needs a second round only after a false positive of a table's filter.
        let mut is_first = true;
        while !waiting.is_empty() {
            let candidates = self.probe_filters(view, waiting, is_first)?;
            waiting = self.search(candidates)?;
            is_first = false;
        }
        Ok(())
    }

    /// Delivers the value of a key to the callback. Reads that the callback does itself are not
    /// counted in this lookup.
    #[inline]
    fn deliver_value(&mut self, key: usize, value: Option<&[u8]>) {
        self.counters.count_loads();
        (self.read)(key, value);
        self.counters.skip_loads();
    }

    /// Searches the memtables; returns the keys for which they have no entry.
    #[inline(never)]
    fn search_memtables(&mut self, view: &SuperVersion, waiting: KeySet) -> Result<KeySet> {
        let mut left = waiting;
        for place in waiting {
            let look = Lookup {
                key: self.keys[place],
                head: self.heads[place],
                hash: self.hashes[place],
                sequence: self.sequence,
                counters: self.counters,
                pointer: PointerCell::default(),
                has_skipped_tombstones: Cell::new(false),
            };
            let lend = |value: &[u8]| self.deliver_value(place, Some(value));
            match look.search_memtables(view, &mut Some(lend)) {
                None => {
                    if look.has_skipped_tombstones.get() {
                        self.skipped_tombstones.add(place);
                    }
                    continue;
                }
                Some(LookupResult::Value(())) => {}
                Some(LookupResult::Deleted) => self.deliver_value(place, None),
                Some(LookupResult::Pointer) => self.fetch(place, look.pointer.get())?,
            }
            left.remove(place);
        }
        Ok(left)
    }

    /// Reads the long value of a key and delivers it to the callback.
    #[cold]
    fn fetch(&mut self, place: usize, pointer: Option<BlobPointer>) -> Result<()> {
        let value = self.blobs.read(&self.blobs.require_pointer(pointer)?)?;
        self.deliver_value(place, Some(&value));
        Ok(())
    }

    /// Goes through the sources until each key has a table whose filter passes the key. Keys
    /// without such a table are delivered as absent.
    fn probe_filters(
        &mut self,
        view: &'a SuperVersion,
        mut waiting: KeySet,
        is_first: bool,
    ) -> Result<KeySet> {
        let mut candidates = KeySet::default();
        let version: &'a Version = &view.version;
        let newest = version.level0().len();
        for source in 0..version.sources() {
            let mut due = waiting;
            if !is_first {
                waiting
                    .filter(|&key| self.next_source[key] > source)
                    .for_each(|key| due.remove(key));
            }
            let maybe = match source.checked_sub(newest) {
                None => {
                    let table = &version.level0()[source];
                    let find = |key: &[u8], head| table.table_for(key, head);
                    self.probe_filter((view, 0), due, find, &mut waiting)?
                }
                Some(deeper) => {
                    let run = &version.deeper()[deeper];
                    let find = |key: &[u8], head| run.find(key, head);
                    self.probe_filter((view, run.level), due, find, &mut waiting)?
                }
            };
            for key in maybe {
                self.next_source[key] = source + 1;
                candidates.add(key);
                waiting.remove(key);
            }
            if waiting.is_empty() {
                break;
            }
        }
        waiting.for_each(|key| self.deliver_value(key, None));
        Ok(candidates)
    }

    /// Probes the filters of the tables that `find` returns, and returns the keys that pass. A key
    /// that passes and is hidden by a range tombstone of a newer source is delivered as absent and
    /// removed from `waiting`.
    #[inline]
    fn probe_filter(
        &mut self,
        (view, level): (&SuperVersion, usize),
        due: KeySet,
        find: impl Fn(&[u8], u64) -> Option<&'a LiveTable>,
        waiting: &mut KeySet,
    ) -> Result<KeySet> {
        let mut candidates = KeySet::default();
        for key in due {
            if let Some(file) = find(self.keys[key], self.heads[key]) {
                let table = file.open()?;
                table.prefetch_filter(self.hashes[key]);
                self.tables[key] = Some(table);
                candidates.add(key);
            }
        }
        let mut maybe = KeySet::default();
        let mut refused = 0;
        for key in candidates {
            let Some(table) = self.tables[key] else { continue };
            if table.may_contain(self.hashes[key]) {
                self.levels[key] = level as u8;
                maybe.add(key);
                continue;
            }
            refused += u64::from(table.has_filter());
        }
        self.counters.count(level, ProbeOutcome::FilterNegative, refused);
        let unsure = KeySet(maybe.0 & self.skipped_tombstones.0);
        if self.has_table_tombstones {
            self.note_skipped_tombstones(KeySet(candidates.0 & !maybe.0));
        }
        if !unsure.is_empty() {
            let hidden = self.deliver_hidden(view, unsure)?;
            (maybe.0, waiting.0) = (maybe.0 & !hidden.0, waiting.0 & !hidden.0);
        }
        Ok(maybe)
    }

    /// Notes the keys whose tables, which were rejected, have range tombstones.
    #[cold]
    fn note_skipped_tombstones(&mut self, rejected: KeySet) {
        for key in rejected {
            if self.tables[key].is_some_and(OpenedTable::has_tombstones) {
                self.skipped_tombstones.add(key);
            }
        }
    }

    /// Delivers as absent, and returns, the keys that a range tombstone of a source above their
    /// tables hides. For the others no tombstone is skipped any more.
    #[cold]
    fn deliver_hidden(&mut self, view: &SuperVersion, unsure: KeySet) -> Result<KeySet> {
        let mut hidden = KeySet::default();
        for key in unsure {
            self.skipped_tombstones.remove(key);
            let name = (self.keys[key], self.heads[key]);
            if let Some(table) = self.tables[key]
                && is_hidden_above(view, name, self.sequence, table)?
            {
                self.deliver_value(key, None);
                hidden.add(key);
            }
        }
        Ok(hidden)
    }

    /// Searches the candidates' tables step by step; returns the keys for which their tables have
    /// no entry.
    fn search(&mut self, candidates: KeySet) -> Result<KeySet> {
        let mut left = candidates;
        let mut located = KeySet::default();
        let mut searches = [SearchState::default(); GROUP_KEYS];
        for key in candidates {
            if let Some(table) = self.tables[key] {
                searches[key] = table.table().begin_lookup(self.keys[key]);
            }
        }
        let mut deeper = KeySet::default();
        for key in candidates {
            if let Some(table) = self.tables[key]
                && table.table().prefetch_index(searches[key], self.keys[key])
            {
                deeper.add(key);
            }
        }
        if !deeper.is_empty() {
            self.descend(deeper, &mut searches);
        }
        for key in candidates {
            let Some(table) = self.tables[key] else { continue };
            match table.table().locate_from(searches[key], self.keys[key], self.sequence) {
                Some(block) => {
                    table.table().prefetch_slot(block);
                    self.blocks[key] = block;
                    located.add(key);
                }
                None => {
                    if self.deliver(table, key, None)? {
                        left.remove(key);
                    }
                }
            }
        }
        let mut cached = KeySet::default();
        for key in located {
            if let Some(table) = self.tables[key]
                && table.table().prefetch_block(self.blocks[key])
            {
                cached.add(key);
            }
        }
        // All tables of a store share the structure that this enters.
        let first = { cached }.next().and_then(|key| self.tables[key]);
        let entered = first.map(|table| table.table().pin_slots());
        for key in cached {
            if let Some(table) = self.tables[key] {
                let block = self.blocks[key];
                table.table().prefetch_entry(block, self.keys[key], self.hashes[key]);
            }
        }
        self.deliver_all(cached, &mut left)?;
        drop(entered);
        cached.for_each(|key| located.remove(key));
        self.deliver_all(located, &mut left)?;
        Ok(left)
    }

    /// Descends the indexes to their lowest nodes, one level of nodes for all keys after the other.
    /// The index of keys with long shared parts has several levels of nodes. Which node to read is
    /// known only after the one above it was read.
    #[inline(never)]
    fn descend(&self, mut deeper: KeySet, searches: &mut [SearchState; GROUP_KEYS]) {
        while !deeper.is_empty() {
            let mut below = [SearchStep::Done; GROUP_KEYS];
            for key in deeper {
                if let Some(table) = self.tables[key] {
                    below[key] = table.table().descend(searches[key], self.keys[key]);
                }
            }
            let mut down = KeySet::default();
            for key in deeper {
                if let Some(table) = self.tables[key]
                    && let Some(search) = table.table().prefetch_step(below[key], self.keys[key])
                {
                    searches[key] = search;
                    down.add(key);
                }
            }
            deeper = KeySet::default();
            for key in down {
                if let Some(table) = self.tables[key]
                    && table.table().prefetch_index(searches[key], self.keys[key])
                {
                    deeper.add(key);
                }
            }
        }
    }

    /// Delivers the keys for which their tables have an entry, and removes these keys from `left`.
    #[inline]
    fn deliver_all(&mut self, keys: KeySet, left: &mut KeySet) -> Result<()> {
        for key in keys {
            if let Some(table) = self.tables[key]
                && self.deliver(table, key, Some(self.blocks[key]))?
            {
                left.remove(key);
            }
        }
        Ok(())
    }

    /// Delivers a key if the table has an entry of it in block `block`, and returns whether it has.
    #[inline]
    fn deliver(&mut self, open: &OpenedTable, key: usize, block: Option<usize>) -> Result<bool> {
        let table = open.table();
        let (name, hash, sequence) = (self.keys[key], self.hashes[key], self.sequence);
        let covering = table.covering(name, sequence);
        let mut lend = Some(|value: &[u8]| self.deliver_value(key, Some(value)));
        let aside = PointerCell::default();
        let found = match block {
            Some(block) => {
                table.get_in_block(block, name, hash, sequence, |sequence, kind, value| {
                    take_result(covering, sequence, kind, value, &mut lend, &aside)
                })?
            }
            None => None,
        };
        let answered = ProbeOutcome::of_search(found.is_some(), open.has_filter());
        self.counters.count(usize::from(self.levels[key]), answered, 1);
        match found {
            Some(LookupResult::Value(())) => return Ok(true),
            Some(LookupResult::Deleted) => {}
            Some(LookupResult::Pointer) => return self.fetch(key, aside.get()).map(|()| true),
            None if covering > 0 => {}
            None => {
                open.note_miss();
                return Ok(false);
            }
        }
        self.deliver_value(key, None);
        Ok(true)
    }
}
