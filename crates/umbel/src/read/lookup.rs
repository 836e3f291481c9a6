//! Lookup of one key: searches memtables and tables one after the other, newest first.
//!
//! A filter that rejects the key also spares the search of the source's range tombstones. Skipped
//! tombstones are searched once a filter passes the key, before that source is read. So range
//! deletes cost a lookup of an absent key nothing, and a deleted key costs no read of its table.

use std::cell::Cell;
use std::ptr;

use umbel_base::{BlobPointer, Result, SequenceNumber, ValueKind};
use umbel_table::Table;

use crate::super_version::{MemtableSlot, SuperVersion};
use crate::thread_counters::{ProbeOutcome, ThreadReadCounters};
use crate::version::{LiveTable, OpenedTable};

/// Result of a lookup, by the newest entry of the key.
#[derive(Debug)]
pub enum LookupResult<R> {
    /// The key has a value; the variant holds the closure's result for it.
    Value(R),
    /// The key was deleted.
    Deleted,
    /// The key has a long value, to which the pointer in the lookup's [`PointerCell`] points.
    Pointer,
}

/// Cell that takes the pointer to a long value, so that results stay small. `None` if no pointer
/// was found or the pointer is malformed.
pub type PointerCell = Cell<Option<BlobPointer>>;

/// A lookup: the key, the state to read, and counters.
#[derive(Debug)]
pub struct Lookup<'a> {
    /// The key to look up.
    pub key: &'a [u8],
    /// The head of the key.
    pub head: u64,
    /// The hash of the key.
    pub hash: u64,
    /// Sequence number of the state to read; newer entries are not visible.
    pub sequence: SequenceNumber,
    /// Counters of the reading thread.
    pub counters: ThreadReadCounters<'a>,
    /// Pointer to a long value that the lookup found.
    pub pointer: PointerCell,
    /// Whether a rejected source has range tombstones that were not searched for the key.
    pub has_skipped_tombstones: Cell<bool>,
}

/// Returns what the entry says. `covering` is the sequence number of the newest range tombstone
/// over the key; 0 without one.
#[inline]
pub fn take_result<R>(
    covering: SequenceNumber,
    sequence: SequenceNumber,
    kind: ValueKind,
    value: &[u8],
    read: &mut Option<impl FnOnce(&[u8]) -> R>,
    aside: &PointerCell,
) -> LookupResult<R> {
    if (covering > 0 && sequence < covering) || kind == ValueKind::Delete {
        return LookupResult::Deleted;
    }
    if kind == ValueKind::BlobPointer {
        store_pointer(value, aside);
        return LookupResult::Pointer;
    }
    let read = read.take().expect("a key is found once");
    LookupResult::Value(read(value))
}

#[cold]
fn store_pointer(value: &[u8], aside: &PointerCell) {
    aside.set(BlobPointer::decode(value));
}

impl Lookup<'_> {
    /// Passes the value of the key to `read`. For a long value, passes the pointer and `read` to
    /// `fetch`.
    #[inline]
    pub fn run<R, F: FnOnce(&[u8]) -> R>(
        &self,
        view: &SuperVersion,
        read: F,
        fetch: impl FnOnce(Option<BlobPointer>, F) -> Result<R>,
    ) -> Result<Option<R>> {
        let read = Cell::new(Some(read));
        // Passed on until one place finds the key and uses it. The blocks read are counted before
        // the value is lent, so that the callback's own reads are counted separately.
        let mut lend = Some(|value: &[u8]| {
            self.counters.count_loads();
            (read.take().expect("the value callback is called once"))(value)
        });
        let deepest = self.prefetch_deepest(view);
        let found = match self.search_memtables(view, &mut lend) {
            Some(found) => Ok(Some(found)),
            None => self.search_tables(view, deepest, &mut lend),
        };
        if let Ok(Some(LookupResult::Value(value))) = found {
            return Ok(Some(value));
        }
        self.counters.count_loads();
        match (found?, read.take()) {
            (Some(LookupResult::Pointer), Some(read)) => fetch(self.pointer.get(), read).map(Some),
            _ => Ok(None),
        }
    }

    /// Searches the memtables.
    #[inline]
    pub fn search_memtables<R>(
        &self,
        view: &SuperVersion,
        read: &mut Option<impl FnOnce(&[u8]) -> R>,
    ) -> Option<LookupResult<R>> {
        if !view.active.starts_after(self.sequence)
            && let Some(found) = self.search_memtable(view, &view.active, read)
        {
            return Some(found);
        }
        if view.frozen.is_empty() { None } else { self.search_frozen(view, read) }
    }

    /// Searches the frozen memtables. The active memtable is searched separately: in one loop over
    /// all memtables the compiler hoists the filter's work, and readers of empty memtables would
    /// pay for that work.
    #[inline(never)]
    fn search_frozen<R>(
        &self,
        view: &SuperVersion,
        read: &mut Option<impl FnOnce(&[u8]) -> R>,
    ) -> Option<LookupResult<R>> {
        let mut seen = view.frozen.iter().filter(|buffer| !buffer.starts_after(self.sequence));
        seen.find_map(|buffer| self.search_memtable(view, buffer, read))
    }

    #[inline]
    fn search_memtable<R>(
        &self,
        view: &SuperVersion,
        buffer: &MemtableSlot,
        read: &mut Option<impl FnOnce(&[u8]) -> R>,
    ) -> Option<LookupResult<R>> {
        let memtable = &buffer.memtable;
        if !memtable.may_contain(self.hash) {
            self.counters.count_memtable_negative();
            self.skip_tombstones(memtable.has_tombstones());
            return None;
        }
        let mut covering = 0;
        if memtable.has_tombstones() || self.has_skipped_tombstones.get() {
            covering = newest_tombstone(view, self.key, self.sequence, Some(buffer));
            self.has_skipped_tombstones.set(false);
        }
        if let Some(found) = memtable.get(self.key, self.sequence) {
            return Some(take_result(
                covering,
                found.sequence,
                found.kind,
                found.value,
                read,
                &self.pointer,
            ));
        }
        // All entries in older sources are older than the range tombstone.
        (covering > 0).then_some(LookupResult::Deleted)
    }

    /// Notes that a memtable was rejected, and whether it has range tombstones.
    #[inline(always)]
    fn skip_tombstones(&self, has_tombstones: bool) {
        if has_tombstones {
            self.has_skipped_tombstones.set(true);
        }
    }

    /// Notes that a table was rejected. Returns the number of filters that rejected the key: 0 if
    /// the table has range tombstones only, so that it needs no filter.
    #[inline(always)]
    fn note_rejection(&self, table: &OpenedTable) -> u64 {
        if table.has_tombstones() {
            self.has_skipped_tombstones.set(true);
            return u64::from(table.has_filter());
        }
        1
    }

    /// Returns the table of the deepest level that can hold the key, and prefetches its filter.
    /// This filter most likely misses the CPU caches, so the prefetch overlaps the wait with the
    /// search of newer tables.
    #[inline]
    fn prefetch_deepest<'v>(&self, view: &'v SuperVersion) -> Option<&'v LiveTable> {
        let file = view.version.deeper().last()?.find(self.key, self.head)?;
        if let Some(table) = file.opened() {
            table.prefetch_filter(self.hash);
        }
        Some(file)
    }

    #[inline]
    fn search_tables<R>(
        &self,
        view: &SuperVersion,
        deepest: Option<&LiveTable>,
        read: &mut Option<impl FnOnce(&[u8]) -> R>,
    ) -> Result<Option<LookupResult<R>>> {
        // Summed up, because most probes in level 0 reject the key.
        let mut refused = 0;
        let mut found = None;
        for table in view.version.level0() {
            if let Some(file) = table.table_for(self.key, self.head) {
                let table = file.open()?;
                if !table.may_contain(self.hash) {
                    refused += self.note_rejection(table);
                    continue;
                }
                found = self.search_table(view, 0, table, read)?;
                if found.is_some() {
                    break;
                }
                table.note_miss();
            }
        }
        self.counters.count(0, ProbeOutcome::FilterNegative, refused);
        if found.is_some() {
            return Ok(found);
        }
        let mut runs = view.version.deeper().iter();
        while let Some(run) = runs.next() {
            let is_deepest = runs.as_slice().is_empty();
            let file = if is_deepest { deepest } else { run.find(self.key, self.head) };
            if let Some(file) = file {
                let table = file.open()?;
                if !table.may_contain(self.hash) {
                    let refused = self.note_rejection(table);
                    self.counters.count(run.level, ProbeOutcome::FilterNegative, refused);
                    continue;
                }
                found = self.search_table(view, run.level, table, read)?;
                if found.is_some() {
                    break;
                }
                table.note_miss();
            }
        }
        Ok(found)
    }

    /// Searches the table for the key. The search is a separate function, so that the path for
    /// tables whose filter rejects the key stays short.
    #[inline(never)]
    fn search_table<R>(
        &self,
        view: &SuperVersion,
        level: usize,
        open: &OpenedTable,
        read: &mut Option<impl FnOnce(&[u8]) -> R>,
    ) -> Result<Option<LookupResult<R>>> {
        let table = open.table();
        let block = table.locate(self.key, self.sequence);
        let has_tombstones = self.has_skipped_tombstones.get() || open.has_tombstones();
        if has_tombstones && block.is_none_or(|number| !self.prefetch_entry(table, number)) {
            // The tombstones of this table are skipped, too.
            self.has_skipped_tombstones.set(true);
            let answered = ProbeOutcome::of_search(false, open.has_filter());
            self.counters.count(level, answered, 1);
            return Ok(None);
        }
        if self.has_skipped_tombstones.get() {
            // The entry, if it is in memory, is loaded meanwhile.
            if is_hidden_above(view, (self.key, self.head), self.sequence, open)? {
                return Ok(Some(LookupResult::Deleted));
            }
            self.has_skipped_tombstones.set(false);
        }
        let covering = table.covering(self.key, self.sequence);
        let found = match block {
            Some(number) => table.get_in_block(
                number,
                self.key,
                self.hash,
                self.sequence,
                |sequence, kind, value| {
                    take_result(covering, sequence, kind, value, read, &self.pointer)
                },
            )?,
            None => None,
        };
        let answered = ProbeOutcome::of_search(found.is_some(), open.has_filter());
        self.counters.count(level, answered, 1);
        Ok(found.or_else(|| (covering > 0).then_some(LookupResult::Deleted)))
    }

    /// Prefetches the memory of the entry that possibly has the key, in the block that
    /// [`Table::locate`] returned. Returns false if the block is in memory and has no such entry.
    fn prefetch_entry(&self, table: &Table, number: usize) -> bool {
        table.prefetch_block(number);
        table.prefetch_entry(number, self.key, self.hash)
    }
}

/// Returns the sequence number of the newest range tombstone over `key` that a reader at `sequence`
/// sees in memtables down to `last`, or in all memtables; 0 without one.
#[cold]
fn newest_tombstone(
    view: &SuperVersion,
    key: &[u8],
    sequence: SequenceNumber,
    last: Option<&MemtableSlot>,
) -> SequenceNumber {
    for buffer in view.memtables().filter(|buffer| !buffer.starts_after(sequence)) {
        // Tombstones of newer memtables are newer.
        if let Some(covering) = buffer.memtable.covering(key, sequence) {
            return covering;
        }
        if last.is_some_and(|last| ptr::eq(last, &**buffer)) {
            break;
        }
    }
    0
}

/// Whether a range tombstone of a source above the table `below` hides a key, given with its head,
/// from readers at `sequence`.
#[cold]
pub fn is_hidden_above(
    view: &SuperVersion,
    (key, head): (&[u8], u64),
    sequence: SequenceNumber,
    below: &OpenedTable,
) -> Result<bool> {
    if newest_tombstone(view, key, sequence, None) > 0 {
        return Ok(true);
    }
    for (_, table) in view.version.candidates(key, head) {
        let open = table.open()?;
        if ptr::eq(open, below) {
            break;
        }
        if open.table().covering(key, sequence) > 0 {
            return Ok(true);
        }
    }
    Ok(false)
}
