//! [`ConcatCursor`]: the tables of one level, which do not overlap, as one.

use umbel_base::{Result, SequenceNumber, ValueKind};

use super::walker::{Walker, cursor_of_walker};

/// A sorted list of tables of which no two overlap, found on a ground.
pub trait Run<Ground: ?Sized>: Send {
    /// The ground of a walk over one table.
    type Table: ?Sized;
    /// How many tables there are.
    fn len(&self) -> usize;
    /// The first table whose upper bound reaches `key`; `len()` where none does.
    fn find(&self, ground: &Ground, key: &[u8]) -> usize;
    /// The last table whose lower bound is less than `key`.
    fn find_before(&self, ground: &Ground, key: &[u8]) -> Option<usize>;
    /// Table `index`. REQUIRES: `index < len()`.
    fn table<'a>(&'a self, ground: &'a Ground, index: usize) -> Result<&'a Self::Table>;
}

/// All entries of a [`Run`] in internal order. It walks in one table at a time; tables that hold
/// only range tombstones are passed over.
#[derive(Debug)]
pub struct ConcatCursor<R, W> {
    run: R,
    walk: W,
    /// The table that `walk` was put on last.
    index: usize,
    /// Whether it stands on the entry that `walk` stands on.
    stands: bool,
}

impl<R, W> ConcatCursor<R, W> {
    /// A cursor over `run` that walks in each table with `walk`; not valid, and no table asked for,
    /// until the first seek.
    pub fn over(run: R, walk: W) -> Self {
        ConcatCursor { run, walk, index: 0, stands: false }
    }
}

impl<R, W> ConcatCursor<R, W> {
    /// Puts the walk on table `index` by `seek`.
    fn enter<Ground: ?Sized>(
        &mut self,
        ground: &Ground,
        index: usize,
        seek: impl FnOnce(&mut W, &<R as Run<Ground>>::Table) -> Result<()>,
    ) -> Result<()>
    where
        R: Run<Ground>,
        W: Walker<<R as Run<Ground>>::Table>,
    {
        self.stands = false;
        self.index = index;
        seek(&mut self.walk, self.run.table(ground, index)?)?;
        self.stands = self.walk.valid();
        Ok(())
    }

    /// Goes on to the tables behind until there is something at hand.
    fn skip_forward<Ground: ?Sized>(&mut self, ground: &Ground) -> Result<()>
    where
        R: Run<Ground>,
        W: Walker<<R as Run<Ground>>::Table>,
    {
        while !self.stands && self.index + 1 < self.run.len() {
            self.enter(ground, self.index + 1, |walk, table| walk.seek_to_first(table))?;
        }
        Ok(())
    }

    /// Goes back to the tables before until there is something at hand.
    fn skip_backward<Ground: ?Sized>(&mut self, ground: &Ground) -> Result<()>
    where
        R: Run<Ground>,
        W: Walker<<R as Run<Ground>>::Table>,
    {
        while !self.stands && self.index > 0 {
            self.enter(ground, self.index - 1, |walk, table| walk.seek_to_last(table))?;
        }
        Ok(())
    }

    /// Moves on where the walk alone could not.
    #[inline(never)]
    fn go_on<Ground: ?Sized>(&mut self, ground: &Ground) -> Result<()>
    where
        R: Run<Ground>,
        W: Walker<<R as Run<Ground>>::Table>,
    {
        self.enter(ground, self.index, |walk, table| walk.next(table))?;
        self.skip_forward(ground)
    }
}

impl<Ground: ?Sized, R: Run<Ground>, W: Walker<R::Table>> Walker<Ground> for ConcatCursor<R, W> {
    fn seek_to_first(&mut self, ground: &Ground) -> Result<()> {
        self.stands = false;
        if self.run.len() == 0 {
            return Ok(());
        }
        self.enter(ground, 0, |walk, table| walk.seek_to_first(table))?;
        self.skip_forward(ground)
    }

    fn seek_to_last(&mut self, ground: &Ground) -> Result<()> {
        self.stands = false;
        let Some(last) = self.run.len().checked_sub(1) else { return Ok(()) };
        self.enter(ground, last, |walk, table| walk.seek_to_last(table))?;
        self.skip_backward(ground)
    }

    fn seek(&mut self, ground: &Ground, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        self.aim(ground, key, sequence)?;
        self.reach(ground, key, sequence)?;
        self.seek_aimed(ground, key, sequence)
    }

    fn aim(&mut self, ground: &Ground, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        self.stands = false;
        self.index = self.run.find(ground, key);
        if self.index < self.run.len() {
            self.walk.aim(self.run.table(ground, self.index)?, key, sequence)?;
        }
        Ok(())
    }

    fn approach(&mut self, ground: &Ground) -> Result<()> {
        if self.index < self.run.len() {
            self.walk.approach(self.run.table(ground, self.index)?)?;
        }
        Ok(())
    }

    fn reach(&mut self, ground: &Ground, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        if self.index < self.run.len() {
            self.walk.reach(self.run.table(ground, self.index)?, key, sequence)?;
        }
        Ok(())
    }

    fn seek_aimed(&mut self, ground: &Ground, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        if self.index < self.run.len() {
            self.enter(ground, self.index, |walk, table| walk.seek_aimed(table, key, sequence))?;
            self.skip_forward(ground)?;
        }
        Ok(())
    }

    #[inline]
    fn expect(&self) {
        self.walk.expect();
    }

    fn seek_before(&mut self, ground: &Ground, key: &[u8]) -> Result<()> {
        self.stands = false;
        let Some(index) = self.run.find_before(ground, key) else { return Ok(()) };
        self.enter(ground, index, |walk, table| walk.seek_before(table, key))?;
        self.skip_backward(ground)
    }

    #[inline]
    fn next(&mut self, ground: &Ground) -> Result<()> {
        if self.walk.step().is_some() { Ok(()) } else { self.go_on(ground) }
    }

    #[inline]
    fn next_repeats(&mut self, ground: &Ground) -> Result<bool> {
        if let Some(repeats) = self.walk.step() {
            return Ok(repeats);
        }
        let mut repeats = false;
        self.enter(ground, self.index, |walk, table| {
            repeats = walk.next_repeats(table)?;
            Ok(())
        })?;
        // No key stands in two tables.
        self.skip_forward(ground)?;
        Ok(repeats)
    }

    #[inline]
    fn prev(&mut self, ground: &Ground) -> Result<()> {
        if self.walk.step_back() {
            return Ok(());
        }
        self.enter(ground, self.index, |walk, table| walk.prev(table))?;
        self.skip_backward(ground)
    }

    #[inline]
    fn step(&mut self) -> Option<bool> {
        self.walk.step()
    }

    #[inline]
    fn set_limit(&mut self, key: Option<&[u8]>) {
        self.walk.set_limit(key);
    }

    #[inline]
    fn stride(&mut self, sequence: SequenceNumber) -> bool {
        self.walk.stride(sequence)
    }

    #[inline]
    fn step_back(&mut self) -> bool {
        self.walk.step_back()
    }

    fn release(&mut self) {
        self.stands = false;
        self.walk.release();
    }

    #[inline]
    fn valid(&self) -> bool {
        self.stands
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.walk.key()
    }

    #[inline]
    fn sequence(&self) -> SequenceNumber {
        self.walk.sequence()
    }

    #[inline]
    fn kind(&self) -> ValueKind {
        self.walk.kind()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.walk.value()
    }
}

// A run that holds its tables itself.
cursor_of_walker!(<R: Run<()>, W: Walker<R::Table>> ConcatCursor<R, W>);
