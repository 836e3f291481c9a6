//! Several keys at once, so that their misses overlap.
//!
//! A get waits for one line of memory after the other: filter, index, slot, block, entry. Here
//! each step is done for all keys of a group before the next one is, and asks ahead for what the
//! next step reads, so that the group waits about as long as one key does.

use umbel_base::{BlobPointer, Result, SequenceNumber};
use umbel_table::{Below, Way};

use super::look::{Answer, Aside, Look, answer};
use crate::blobs::Blobs;
use crate::counters::{OwnCounters, TableAnswer};
use crate::keyspace_core::KeyspaceCore;
use crate::memory::View;
use crate::store::Store;
use crate::version::{OpenTable, TableFile, Version};

/// Keys of a group, at most as many as a [`Places`] has bits: more than a core can wait for at a
/// time, few enough that what was asked for first is still there when it is needed.
const GROUP: usize = 32;

/// Looks up several keys in one consistent state and hands each value, with the index of its key,
/// to `read`; `None` where there is none. The order of the calls is not that of the keys.
#[inline]
pub fn multi_get_with<K: AsRef<[u8]>>(
    store: &Store,
    keyspace: &KeyspaceCore,
    keys: &[K],
    at: Option<SequenceNumber>,
    read: impl FnMut(usize, Option<&[u8]>),
) -> Result<()> {
    match keyspace.existence.is_on() {
        true => multi_get_asking(store, keyspace, keys, at, read),
        false => multi_get_all(store, keyspace, keys, at, |_| Places::default(), read),
    }
}

/// As [`multi_get_with`], after the existence filter was asked. Apart, so that others do not pay
/// for it.
#[inline(never)]
fn multi_get_asking<K: AsRef<[u8]>>(
    store: &Store,
    keyspace: &KeyspaceCore,
    keys: &[K],
    at: Option<SequenceNumber>,
    mut read: impl FnMut(usize, Option<&[u8]>),
) -> Result<()> {
    // Held, because a filter that is made anew meanwhile need not have what nobody can see.
    let held = at.is_none().then(|| Held { store, sequence: store.snapshots.hold() });
    let at = at.or(held.as_ref().map(|held| held.sequence));
    let (mut denied, mut missing) = (0, 0);
    let deny = |hashes: &[u64]| {
        let mut may = [true; GROUP];
        keyspace.existence.may_contain_batch(hashes, &mut may[..hashes.len()]);
        let mut places = Places::default();
        (0..hashes.len()).filter(|place| !may[*place]).for_each(|place| places.add(place));
        denied += places.0.count_ones() as usize;
        places
    };
    let looked_up = multi_get_all(store, keyspace, keys, at, deny, |index, value| {
        missing += usize::from(value.is_none());
        read(index, value);
    });
    keyspace.existence.note_in_vain(missing.saturating_sub(denied));
    looked_up
}

/// Holds a state for as long as it is looked at.
struct Held<'a> {
    store: &'a Store,
    sequence: SequenceNumber,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.store.release(self.sequence);
    }
}

/// As [`multi_get_with`]; the keys of a group whose hashes `deny` names are not there.
#[inline(always)]
fn multi_get_all<K: AsRef<[u8]>>(
    store: &Store,
    keyspace: &KeyspaceCore,
    keys: &[K],
    at: Option<SequenceNumber>,
    mut deny: impl FnMut(&[u64]) -> Places,
    mut read: impl FnMut(usize, Option<&[u8]>),
) -> Result<()> {
    // The view first, the number second: see the invariant of `View`.
    let view = keyspace.view.load();
    let sequence = at.unwrap_or_else(|| store.snapshots.visible());
    let counters = keyspace.reads.own();
    counters.count_gets(keys.len());
    let mut looked_up = Ok(());
    let mut counters = counters;
    for (number, keys) in keys.chunks(GROUP).enumerate() {
        let mut group = Group {
            keys: [&[]; GROUP],
            hashes: [0; GROUP],
            heads: [0; GROUP],
            from: [0; GROUP],
            tables: [None; GROUP],
            levels: [0; GROUP],
            blocks: [0; GROUP],
            sequence,
            counters,
            blobs: &store.context.blobs,
            read: |place: usize, value: Option<&[u8]>| read(number * GROUP + place, value),
        };
        let mut all = group.take(keyspace, &view, keys);
        // After the number that is looked at was read: who is denied was not put up to there.
        for place in deny(&group.hashes[..keys.len()]) {
            all.remove(place);
            group.lend(place, None);
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

/// A set of places in a group.
#[derive(Debug, Clone, Copy, Default)]
struct Places(u32);

impl Places {
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

impl Iterator for Places {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        if self.is_empty() {
            return None;
        }
        let place = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        // Says to the compiler that it is a place of an array.
        Some(place % GROUP)
    }
}

/// Keys that are looked up together. They are named by their places in the group.
struct Group<'a, F> {
    keys: [&'a [u8]; GROUP],
    hashes: [u64; GROUP],
    heads: [u64; GROUP],
    /// The first source that a key was not looked for in.
    from: [usize; GROUP],
    /// The table that is asked for a key, its level, and the block that may have it.
    tables: [Option<&'a OpenTable>; GROUP],
    levels: [u8; GROUP],
    blocks: [usize; GROUP],
    sequence: SequenceNumber,
    counters: OwnCounters<'a>,
    blobs: &'a Blobs,
    read: F,
}

impl<'a, F: FnMut(usize, Option<&[u8]>)> Group<'a, F> {
    fn take<K: AsRef<[u8]>>(
        &mut self,
        keyspace: &KeyspaceCore,
        view: &View,
        keys: &'a [K],
    ) -> Places {
        let mut all = Places::default();
        for (place, key) in keys.iter().enumerate().take(GROUP) {
            let key = key.as_ref();
            self.keys[place] = key;
            self.hashes[place] = keyspace.hash(key);
            self.heads[place] = view.version.head(key);
            all.add(place);
        }
        all
    }

    fn look_up(&mut self, view: &'a View, mut waiting: Places) -> Result<()> {
        if !view.is_bare(self.sequence) {
            waiting = self.in_memory(view, waiting)?;
        }
        // A key needs a second round only after the filter of a table was wrong.
        let mut is_first = true;
        while !waiting.is_empty() {
            let candidates = self.ask_filters(&view.version, waiting, is_first)?;
            waiting = self.search(candidates)?;
            is_first = false;
        }
        Ok(())
    }

    /// Hands out what a key has. What whoever gets it reads on his own is not counted here.
    #[inline]
    fn lend(&mut self, key: usize, value: Option<&[u8]>) {
        self.counters.count_loads();
        (self.read)(key, value);
        self.counters.skip_loads();
    }

    /// Looks in the memtables; gives the keys they know nothing of.
    #[inline(never)]
    fn in_memory(&mut self, view: &View, waiting: Places) -> Result<Places> {
        let mut left = waiting;
        for place in waiting {
            let look = Look {
                key: self.keys[place],
                head: self.heads[place],
                hash: self.hashes[place],
                sequence: self.sequence,
                counters: self.counters,
                aside: Aside::default(),
            };
            let lend = |value: &[u8]| self.lend(place, Some(value));
            match look.in_memory(view, &mut Some(lend)) {
                None => continue,
                Some(Answer::Value(())) => {}
                Some(Answer::Deleted) => self.lend(place, None),
                Some(Answer::Pointer) => self.fetch(place, look.aside.get())?,
            }
            left.remove(place);
        }
        Ok(left)
    }

    /// Hands out a value that lies in a file of its own.
    #[cold]
    fn fetch(&mut self, place: usize, pointer: Option<BlobPointer>) -> Result<()> {
        let value = self.blobs.read(&self.blobs.found(pointer)?)?;
        self.lend(place, Some(&value));
        Ok(())
    }

    /// Goes through the sources until each key has a table whose filter does not refuse it;
    /// answers the keys that have none.
    fn ask_filters(
        &mut self,
        version: &'a Version,
        mut waiting: Places,
        is_first: bool,
    ) -> Result<Places> {
        let mut candidates = Places::default();
        let newest = version.newest().len();
        for source in 0..version.sources() {
            let mut due = waiting;
            if !is_first {
                waiting.filter(|&key| self.from[key] > source).for_each(|key| due.remove(key));
            }
            let maybe = match source.checked_sub(newest) {
                None => {
                    let table = &version.newest()[source];
                    let find = |key: &[u8], head| table.if_it_holds(key, head);
                    self.ask(0, due, find, &mut waiting)?
                }
                Some(deeper) => {
                    let run = &version.deeper()[deeper];
                    let find = |key: &[u8], head| run.find(key, head);
                    self.ask(run.level, due, find, &mut waiting)?
                }
            };
            for key in maybe {
                self.from[key] = source + 1;
                candidates.add(key);
                waiting.remove(key);
            }
            if waiting.is_empty() {
                break;
            }
        }
        waiting.for_each(|key| self.lend(key, None));
        Ok(candidates)
    }

    /// Asks the filters of the tables that `find` names; gives the keys that they do not refuse.
    /// Answers those that a refusing table's range deletes hide, which no longer wait.
    #[inline]
    fn ask(
        &mut self,
        level: usize,
        due: Places,
        find: impl Fn(&[u8], u64) -> Option<&'a TableFile>,
        waiting: &mut Places,
    ) -> Result<Places> {
        let mut asked = Places::default();
        for key in due {
            if let Some(file) = find(self.keys[key], self.heads[key]) {
                let table = file.open()?;
                table.prefetch_filter(self.hashes[key]);
                self.tables[key] = Some(table);
                asked.add(key);
            }
        }
        let mut maybe = Places::default();
        let mut refused = 0;
        for key in asked {
            let Some(table) = self.tables[key] else { continue };
            if table.may_contain(self.hashes[key]) {
                self.levels[key] = level as u8;
                maybe.add(key);
                continue;
            }
            refused += 1;
            if table.table().covering(self.keys[key], self.sequence) > 0 {
                self.lend(key, None);
                waiting.remove(key);
            }
        }
        self.counters.count(level, TableAnswer::Refused, refused);
        Ok(maybe)
    }

    /// Searches the tables step by step; gives the keys that they do not have.
    fn search(&mut self, candidates: Places) -> Result<Places> {
        let mut left = candidates;
        let mut located = Places::default();
        let mut ways = [Way::default(); GROUP];
        for key in candidates {
            if let Some(table) = self.tables[key] {
                ways[key] = table.table().way(self.keys[key]);
            }
        }
        let mut deeper = Places::default();
        for key in candidates {
            if let Some(table) = self.tables[key]
                && table.table().prefetch_index(ways[key], self.keys[key])
            {
                deeper.add(key);
            }
        }
        if !deeper.is_empty() {
            self.go_down(deeper, &mut ways);
        }
        for key in candidates {
            let Some(table) = self.tables[key] else { continue };
            match table.table().locate_from(ways[key], self.keys[key], self.sequence) {
                Some(block) => {
                    table.table().prefetch_slot(block);
                    self.blocks[key] = block;
                    located.add(key);
                }
                None => {
                    if self.hand_out(table, key, None)? {
                        left.remove(key);
                    }
                }
            }
        }
        let mut cached = Places::default();
        for key in located {
            if let Some(table) = self.tables[key]
                && table.table().prefetch_block(self.blocks[key])
            {
                cached.add(key);
            }
        }
        // All tables of a store share what this enters.
        let first = { cached }.next().and_then(|key| self.tables[key]);
        let entered = first.map(|table| table.table().enter());
        for key in cached {
            if let Some(table) = self.tables[key] {
                let block = self.blocks[key];
                table.table().prefetch_entry(block, self.keys[key], self.hashes[key]);
            }
        }
        self.hand_out_all(cached, &mut left)?;
        drop(entered);
        cached.for_each(|key| located.remove(key));
        self.hand_out_all(located, &mut left)?;
        Ok(left)
    }

    /// Goes down the indexes, as far as they have nodes below, one node of every key after the
    /// other: where keys share long parts there are several, and each waits for the one above it.
    #[inline(never)]
    fn go_down(&self, mut deeper: Places, ways: &mut [Way; GROUP]) {
        while !deeper.is_empty() {
            let mut below = [Below::Nothing; GROUP];
            for key in deeper {
                if let Some(table) = self.tables[key] {
                    below[key] = table.table().below(ways[key], self.keys[key]);
                }
            }
            let mut down = Places::default();
            for key in deeper {
                if let Some(table) = self.tables[key]
                    && let Some(way) = table.table().prefetch_below(below[key], self.keys[key])
                {
                    ways[key] = way;
                    down.add(key);
                }
            }
            deeper = Places::default();
            for key in down {
                if let Some(table) = self.tables[key]
                    && table.table().prefetch_index(ways[key], self.keys[key])
                {
                    deeper.add(key);
                }
            }
        }
    }

    /// Takes out of `left` what the tables decide.
    #[inline]
    fn hand_out_all(&mut self, keys: Places, left: &mut Places) -> Result<()> {
        for key in keys {
            if let Some(table) = self.tables[key]
                && self.hand_out(table, key, Some(self.blocks[key]))?
            {
                left.remove(key);
            }
        }
        Ok(())
    }

    /// Whether the table, in that block, decides what the key is.
    #[inline]
    fn hand_out(&mut self, open: &OpenTable, key: usize, block: Option<usize>) -> Result<bool> {
        let table = open.table();
        let (name, hash, sequence) = (self.keys[key], self.hashes[key], self.sequence);
        let covering = table.covering(name, sequence);
        let mut lend = Some(|value: &[u8]| self.lend(key, Some(value)));
        let aside = Aside::default();
        let found = match block {
            Some(block) => table.get_in(block, name, hash, sequence, |sequence, kind, value| {
                answer(covering, sequence, kind, value, &mut lend, &aside)
            })?,
            None => None,
        };
        let answered = TableAnswer::of_search(found.is_some(), open.has_filter());
        self.counters.count(usize::from(self.levels[key]), answered, 1);
        match found {
            Some(Answer::Value(())) => return Ok(true),
            Some(Answer::Deleted) => {}
            Some(Answer::Pointer) => return self.fetch(key, aside.get()).map(|()| true),
            None if covering > 0 => {}
            None => {
                open.note_miss();
                return Ok(false);
            }
        }
        self.lend(key, None);
        Ok(true)
    }
}
