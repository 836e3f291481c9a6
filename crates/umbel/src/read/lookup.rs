//! One key, looked up in one source after the other, newest first.

use std::cell::Cell;

use umbel_base::{BlobPointer, Result, SequenceNumber, ValueKind};

use crate::counters::{OwnCounters, TableAnswer};
use crate::memory::{Buffer, View};
use crate::version::{OpenTable, TableFile};

/// What the newest source that knows a key says of it.
#[derive(Debug)]
pub enum Answer<R> {
    /// It has a value; what the closure made of it.
    Value(R),
    /// It was deleted.
    Deleted,
    /// It has a value that lies in a file of its own. What points at it was put aside.
    Pointer,
}

/// Where what points at a value is put aside, so that answers stay small. `None` where nothing was,
/// or what was found points at nothing.
pub type Aside = Cell<Option<BlobPointer>>;

/// What is looked for, and how.
#[derive(Debug)]
pub struct Look<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Its head.
    pub head: u64,
    /// Its hash.
    pub hash: u64,
    /// Newer entries are not seen.
    pub sequence: SequenceNumber,
    /// Where it is counted.
    pub counters: OwnCounters<'a>,
    /// What points at the value, where that was found.
    pub aside: Aside,
}

/// Reads an entry that may lie below a range delete of number `covering`, 0 where there is none.
#[inline]
pub fn answer<R>(
    covering: SequenceNumber,
    sequence: SequenceNumber,
    kind: ValueKind,
    value: &[u8],
    read: &mut Option<impl FnOnce(&[u8]) -> R>,
    aside: &Aside,
) -> Answer<R> {
    if (covering > 0 && sequence < covering) || kind == ValueKind::Delete {
        return Answer::Deleted;
    }
    if kind == ValueKind::BlobPointer {
        put_aside(value, aside);
        return Answer::Pointer;
    }
    let read = read.take().expect("a key is found once");
    Answer::Value(read(value))
}

#[cold]
fn put_aside(value: &[u8], aside: &Aside) {
    aside.set(BlobPointer::decode(value));
}

impl Look<'_> {
    /// Hands the value of the key to `read`; where it lies in a file of its own, what points at it
    /// and `read` to `fetch`.
    #[inline]
    pub fn up<R, F: FnOnce(&[u8]) -> R>(
        &self,
        view: &View,
        read: F,
        fetch: impl FnOnce(Option<BlobPointer>, F) -> Result<R>,
    ) -> Result<Option<R>> {
        let read = Cell::new(Some(read));
        // Handed on until the one place that finds the key uses it. The loads are counted before
        // the value is lent: what is read then is counted by whoever reads it.
        let mut lend = Some(|value: &[u8]| {
            self.counters.count_loads();
            (read.take().expect("a value is lent once"))(value)
        });
        let deepest = self.ask_for_deepest(view);
        let found = match self.in_memory(view, &mut lend) {
            Some(found) => Ok(Some(found)),
            None => self.in_tables(view, deepest, &mut lend),
        };
        if let Ok(Some(Answer::Value(value))) = found {
            return Ok(Some(value));
        }
        self.counters.count_loads();
        match (found?, read.take()) {
            (Some(Answer::Pointer), Some(read)) => fetch(self.aside.get(), read).map(Some),
            _ => Ok(None),
        }
    }

    /// Looks in the memtables.
    #[inline]
    pub fn in_memory<R>(
        &self,
        view: &View,
        read: &mut Option<impl FnOnce(&[u8]) -> R>,
    ) -> Option<Answer<R>> {
        if !view.active.is_after(self.sequence)
            && let Some(found) = self.in_buffer(&view.active, read)
        {
            return Some(found);
        }
        if view.frozen.is_empty() { None } else { self.in_frozen(view, read) }
    }

    /// Apart from the active memtable: in a loop over both the compiler moves the work for the
    /// filter before the loop, and readers of empty memtables would pay for it.
    #[inline(never)]
    fn in_frozen<R>(
        &self,
        view: &View,
        read: &mut Option<impl FnOnce(&[u8]) -> R>,
    ) -> Option<Answer<R>> {
        let mut seen = view.frozen.iter().filter(|buffer| !buffer.is_after(self.sequence));
        seen.find_map(|buffer| self.in_buffer(buffer, read))
    }

    #[inline]
    fn in_buffer<R>(
        &self,
        buffer: &Buffer,
        read: &mut Option<impl FnOnce(&[u8]) -> R>,
    ) -> Option<Answer<R>> {
        let memtable = &buffer.memtable;
        let covering = memtable.covering(self.key, self.sequence).unwrap_or(0);
        if memtable.may_contain(self.hash) {
            if let Some(found) = memtable.get(self.key, self.sequence) {
                return Some(answer(
                    covering,
                    found.sequence,
                    found.kind,
                    found.value,
                    read,
                    &self.aside,
                ));
            }
        } else {
            self.counters.count_memtable_negative();
        }
        // Whatever lies further down is older than the range delete.
        (covering > 0).then_some(Answer::Deleted)
    }

    /// The table of the deepest level that may hold the key. Its filter, the one most likely to be
    /// far away, is asked for now, so that waiting for it overlaps with what comes before it.
    #[inline]
    fn ask_for_deepest<'v>(&self, view: &'v View) -> Option<&'v TableFile> {
        let file = view.version.deeper().last()?.find(self.key, self.head)?;
        if let Some(table) = file.opened() {
            table.prefetch_filter(self.hash);
        }
        Some(file)
    }

    #[inline]
    fn in_tables<R>(
        &self,
        view: &View,
        deepest: Option<&TableFile>,
        read: &mut Option<impl FnOnce(&[u8]) -> R>,
    ) -> Result<Option<Answer<R>>> {
        // Added up, because most of what level 0 says of a key is no.
        let mut refused = 0;
        let mut found = None;
        for table in view.version.newest() {
            if let Some(file) = table.if_it_holds(self.key, self.head) {
                let table = file.open()?;
                if self.is_refused(table) {
                    refused += 1;
                    continue;
                }
                found = self.search(0, table, read)?;
                if found.is_some() {
                    break;
                }
                table.note_miss();
            }
        }
        self.counters.count(0, TableAnswer::Refused, refused);
        if found.is_some() {
            return Ok(found);
        }
        let mut runs = view.version.deeper().iter();
        while let Some(run) = runs.next() {
            let is_deepest = runs.as_slice().is_empty();
            let file = if is_deepest { deepest } else { run.find(self.key, self.head) };
            if let Some(file) = file {
                let table = file.open()?;
                if self.is_refused(table) {
                    self.counters.count(run.level, TableAnswer::Refused, 1);
                    continue;
                }
                found = self.search(run.level, table, read)?;
                if found.is_some() {
                    break;
                }
                table.note_miss();
            }
        }
        Ok(found)
    }

    /// Whether the table says nothing of the key, and its filter says so.
    #[inline(always)]
    fn is_refused(&self, table: &OpenTable) -> bool {
        !table.has_tombstones() && !table.may_contain(self.hash)
    }

    /// What the table says of the key. A call of its own, so that the way past tables that refuse
    /// the key is short.
    #[inline(never)]
    fn search<R>(
        &self,
        level: usize,
        open: &OpenTable,
        read: &mut Option<impl FnOnce(&[u8]) -> R>,
    ) -> Result<Option<Answer<R>>> {
        let table = open.table();
        let covering = table.covering(self.key, self.sequence);
        let hidden = || (covering > 0).then_some(Answer::Deleted);
        if open.has_tombstones() && !open.may_contain(self.hash) {
            self.counters.count(level, TableAnswer::Refused, 1);
            return Ok(hidden());
        }
        let found =
            table.get_with(self.key, self.hash, self.sequence, |sequence, kind, value| {
                answer(covering, sequence, kind, value, read, &self.aside)
            })?;
        let answered = TableAnswer::of_search(found.is_some(), open.has_filter());
        self.counters.count(level, answered, 1);
        Ok(found.or_else(hidden))
    }
}
