//! [`LevelCursor`]: one cursor over the tables of a level, which do not overlap.

use umbel_base::{Result, SequenceNumber, ValueKind};

use crate::iter::context_cursor::{ContextCursor, impl_cursor};

/// Sorted list of tables without overlaps, accessed through a context.
pub trait SortedRun<Context: ?Sized>: Send {
    /// Context of a cursor over one table.
    type Table: ?Sized;
    /// Number of tables.
    fn len(&self) -> usize;
    /// Index of the first table whose upper bound is at or after `key`; `len()` if there is no such
    /// table.
    fn find(&self, context: &Context, key: &[u8]) -> usize;
    /// Index of the last table whose lower bound is less than `key`; `None` if there is no such
    /// table.
    fn find_before(&self, context: &Context, key: &[u8]) -> Option<usize>;
    /// Returns table `index`. REQUIRES: `index < len()`.
    fn table<'a>(&'a self, context: &'a Context, index: usize) -> Result<&'a Self::Table>;
}

/// Cursor over all entries of a [`SortedRun`] in internal order. The cursor reads one table at a
/// time, and skips tables that hold only range tombstones.
#[derive(Debug)]
pub struct LevelCursor<R, W> {
    run: R,
    cursor: W,
    /// Index of the table that `cursor` reads.
    index: usize,
    /// Whether this cursor is on the current entry of `cursor`.
    is_positioned: bool,
}

impl<R, W> LevelCursor<R, W> {
    /// Creates a cursor over `run` that reads each table with `cursor`. Until the first seek the
    /// new cursor is not valid and opens no table.
    pub fn over(run: R, cursor: W) -> Self {
        LevelCursor { run, cursor, index: 0, is_positioned: false }
    }
}

impl<R, W> LevelCursor<R, W> {
    /// Enters table `index` and positions the table's cursor by `seek`.
    fn enter_table<Context: ?Sized>(
        &mut self,
        context: &Context,
        index: usize,
        seek: impl FnOnce(&mut W, &<R as SortedRun<Context>>::Table) -> Result<()>,
    ) -> Result<()>
    where
        R: SortedRun<Context>,
        W: ContextCursor<<R as SortedRun<Context>>::Table>,
    {
        self.is_positioned = false;
        self.index = index;
        seek(&mut self.cursor, self.run.table(context, index)?)?;
        self.is_positioned = self.cursor.valid();
        Ok(())
    }

    /// Moves to the following tables until the cursor is on an entry.
    fn skip_forward<Context: ?Sized>(&mut self, context: &Context) -> Result<()>
    where
        R: SortedRun<Context>,
        W: ContextCursor<<R as SortedRun<Context>>::Table>,
    {
        while !self.is_positioned && self.index + 1 < self.run.len() {
            self.enter_table(context, self.index + 1, |cursor, table| cursor.seek_to_first(table))?;
        }
        Ok(())
    }

    /// Moves to the preceding tables until the cursor is on an entry.
    fn skip_backward<Context: ?Sized>(&mut self, context: &Context) -> Result<()>
    where
        R: SortedRun<Context>,
        W: ContextCursor<<R as SortedRun<Context>>::Table>,
    {
        while !self.is_positioned && self.index > 0 {
            self.enter_table(context, self.index - 1, |cursor, table| cursor.seek_to_last(table))?;
        }
        Ok(())
    }

    /// Steps the current table's cursor; at the table's end, moves to the following tables until
    /// the cursor is on an entry.
    #[inline(never)]
    fn skip_empty<Context: ?Sized>(&mut self, context: &Context) -> Result<()>
    where
        R: SortedRun<Context>,
        W: ContextCursor<<R as SortedRun<Context>>::Table>,
    {
        self.enter_table(context, self.index, |cursor, table| cursor.next(table))?;
        self.skip_forward(context)
    }
}

impl<Context: ?Sized, R: SortedRun<Context>, W: ContextCursor<R::Table>> ContextCursor<Context>
    for LevelCursor<R, W>
{
    fn seek_to_first(&mut self, context: &Context) -> Result<()> {
        self.is_positioned = false;
        if self.run.len() == 0 {
            return Ok(());
        }
        self.enter_table(context, 0, |cursor, table| cursor.seek_to_first(table))?;
        self.skip_forward(context)
    }

    fn seek_to_last(&mut self, context: &Context) -> Result<()> {
        self.is_positioned = false;
        let Some(last) = self.run.len().checked_sub(1) else { return Ok(()) };
        self.enter_table(context, last, |cursor, table| cursor.seek_to_last(table))?;
        self.skip_backward(context)
    }

    fn seek(&mut self, context: &Context, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        self.begin_seek(context, key, sequence)?;
        self.narrow_seek(context, key, sequence)?;
        self.finish_seek(context, key, sequence)
    }

    fn begin_seek(
        &mut self,
        context: &Context,
        key: &[u8],
        sequence: SequenceNumber,
    ) -> Result<()> {
        self.is_positioned = false;
        self.index = self.run.find(context, key);
        if self.index < self.run.len() {
            self.cursor.begin_seek(self.run.table(context, self.index)?, key, sequence)?;
        }
        Ok(())
    }

    fn prefetch_seek(&mut self, context: &Context) -> Result<()> {
        if self.index < self.run.len() {
            self.cursor.prefetch_seek(self.run.table(context, self.index)?)?;
        }
        Ok(())
    }

    fn narrow_seek(
        &mut self,
        context: &Context,
        key: &[u8],
        sequence: SequenceNumber,
    ) -> Result<()> {
        if self.index < self.run.len() {
            self.cursor.narrow_seek(self.run.table(context, self.index)?, key, sequence)?;
        }
        Ok(())
    }

    fn finish_seek(
        &mut self,
        context: &Context,
        key: &[u8],
        sequence: SequenceNumber,
    ) -> Result<()> {
        if self.index < self.run.len() {
            self.enter_table(context, self.index, |cursor, table| {
                cursor.finish_seek(table, key, sequence)
            })?;
            self.skip_forward(context)?;
        }
        Ok(())
    }

    #[inline]
    fn prefetch_entries(&self) {
        self.cursor.prefetch_entries();
    }

    fn seek_before(&mut self, context: &Context, key: &[u8]) -> Result<()> {
        self.is_positioned = false;
        let Some(index) = self.run.find_before(context, key) else { return Ok(()) };
        self.enter_table(context, index, |cursor, table| cursor.seek_before(table, key))?;
        self.skip_backward(context)
    }

    #[inline]
    fn next(&mut self, context: &Context) -> Result<()> {
        if self.cursor.try_next().is_some() { Ok(()) } else { self.skip_empty(context) }
    }

    #[inline]
    fn next_repeats(&mut self, context: &Context) -> Result<bool> {
        if let Some(repeats) = self.cursor.try_next() {
            return Ok(repeats);
        }
        let mut repeats = false;
        self.enter_table(context, self.index, |cursor, table| {
            repeats = cursor.next_repeats(table)?;
            Ok(())
        })?;
        // No key is in two tables.
        self.skip_forward(context)?;
        Ok(repeats)
    }

    #[inline]
    fn prev(&mut self, context: &Context) -> Result<()> {
        if self.cursor.try_prev() {
            return Ok(());
        }
        self.enter_table(context, self.index, |cursor, table| cursor.prev(table))?;
        self.skip_backward(context)
    }

    #[inline]
    fn try_next(&mut self) -> Option<bool> {
        self.cursor.try_next()
    }

    #[inline]
    fn set_limit(&mut self, key: Option<&[u8]>) {
        self.cursor.set_limit(key);
    }

    #[inline]
    fn try_next_visible(&mut self, sequence: SequenceNumber) -> bool {
        self.cursor.try_next_visible(sequence)
    }

    #[inline]
    fn try_prev(&mut self) -> bool {
        self.cursor.try_prev()
    }

    fn release(&mut self) {
        self.is_positioned = false;
        self.cursor.release();
    }

    #[inline]
    fn valid(&self) -> bool {
        self.is_positioned
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.cursor.key()
    }

    #[inline]
    fn sequence(&self) -> SequenceNumber {
        self.cursor.sequence()
    }

    #[inline]
    fn kind(&self) -> ValueKind {
        self.cursor.kind()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.cursor.value()
    }
}

// A run that owns its tables.
impl_cursor!(<R: SortedRun<()>, W: ContextCursor<R::Table>> LevelCursor<R, W>);
