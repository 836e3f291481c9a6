//! Many cursors as one: [`MergeCursor`] over sources that overlap, [`ConcatCursor`] over the
//! tables of one level, which do not.
//!
//! INVARIANT of the merge: `order` holds exactly the children that are valid, sorted in the
//! direction of travel by what they stand on, so that `order[0]` is what the merge stands on. All
//! others stand behind it in that direction, or, where two children hold the same entry, on it.
//! Keeping them sorted means that a step costs one comparison for as long as the same child stays
//! in front, which is nearly always so in a store whose last level holds nine tenths of the keys.

use std::cmp::Ordering;

use umbel_base::{Cursor, Result, SequenceNumber, ValueKind, cmp_internal};

/// A valid child, with the first bytes of the key it stands on: most comparisons end there and
/// never ask the child.
#[derive(Debug, Clone, Copy)]
struct Standing {
    head: u64,
    child: usize,
}

/// All entries of all children in internal order.
///
/// Children come newest source first. An entry that several children hold shows once, as the
/// earliest of them has it.
pub struct MergeCursor<C: Cursor + ?Sized = dyn Cursor> {
    children: Vec<Box<C>>,
    order: Vec<Standing>,
    backward: bool,
    /// Whether two children were ever seen on the same entry since the last seek; as long as not,
    /// a step need not look for more.
    ties: bool,
    /// The key the merge stood on while the children are being moved away from it.
    turning_key: Vec<u8>,
}

/// The first eight bytes as a number that sorts like the key; what is missing counts as zero.
#[inline]
fn key_head(key: &[u8]) -> u64 {
    match key.first_chunk::<8>() {
        Some(chunk) => u64::from_be_bytes(*chunk),
        None => {
            let mut chunk = [0; 8];
            chunk[..key.len()].copy_from_slice(key);
            u64::from_be_bytes(chunk)
        }
    }
}

impl<C: Cursor + ?Sized> MergeCursor<C> {
    /// A merge of `children`, newest source first; not valid until the first seek.
    pub fn new(children: Vec<Box<C>>) -> Self {
        let order = Vec::with_capacity(children.len());
        MergeCursor { children, order, backward: false, ties: false, turning_key: Vec::new() }
    }

    /// How what two children stand on compares in the direction of travel.
    #[inline]
    fn compare(&self, a: Standing, b: Standing) -> Ordering {
        let ordering = a.head.cmp(&b.head).then_with(|| {
            let (a, b) = (&self.children[a.child], &self.children[b.child]);
            cmp_internal(a.key(), a.sequence(), b.key(), b.sequence())
        });
        if self.backward { ordering.reverse() } else { ordering }
    }

    /// Whether `a` belongs before `b` in `order`; takes note of ties.
    #[inline]
    fn goes_before(&mut self, a: Standing, b: Standing) -> bool {
        match self.compare(a, b) {
            Ordering::Less => true,
            Ordering::Greater => false,
            Ordering::Equal => {
                self.ties = true;
                a.child < b.child
            }
        }
    }

    /// The place for `standing` in `order[from..]`.
    fn place(&mut self, standing: Standing, from: usize) -> usize {
        let (mut low, mut high) = (from, self.order.len());
        while low < high {
            let middle = low.midpoint(high);
            if self.goes_before(standing, self.order[middle]) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    }

    /// Seeks every child with `seek` and sorts them for travel in the direction given.
    fn seek_all(
        &mut self,
        backward: bool,
        mut seek: impl FnMut(usize, &mut C) -> Result<()>,
    ) -> Result<()> {
        self.order.clear();
        self.backward = backward;
        self.ties = false;
        for (index, child) in self.children.iter_mut().enumerate() {
            seek(index, child)?;
        }
        for child in 0..self.children.len() {
            if self.children[child].valid() {
                let standing = Standing { head: key_head(self.children[child].key()), child };
                let place = self.place(standing, 0);
                self.order.insert(place, standing);
            }
        }
        Ok(())
    }

    /// Leaves the entry stood on and travels the other way: every child is put on its first entry
    /// beyond it in the new direction. It seeks instead of stepping because a memtable may have
    /// got entries since.
    fn turn(&mut self) -> Result<()> {
        let current = self.order[0].child;
        let mut key = std::mem::take(&mut self.turning_key);
        key.clear();
        key.extend_from_slice(self.children[current].key());
        let sequence = self.children[current].sequence();
        let backward = !self.backward;
        let turned = self.seek_all(backward, |index, child| {
            if index != current {
                child.seek(&key, sequence)?;
            }
            match (child.valid(), backward) {
                (true, true) => child.prev(),
                (false, true) => child.seek_to_last(),
                (true, false) if child.sequence() == sequence && child.key() == key => child.next(),
                (_, false) => Ok(()),
            }
        });
        self.turning_key = key;
        turned
    }

    /// Moves the child in front one entry on and sorts it in again.
    #[inline]
    fn step_front(&mut self) -> Result<()> {
        let child = self.order[0].child;
        let cursor = &mut self.children[child];
        let moved = if self.backward { cursor.prev() } else { cursor.next() };
        if let Err(error) = moved {
            self.order.clear();
            return Err(error);
        }
        if !cursor.valid() {
            self.order.remove(0);
            return Ok(());
        }
        if self.order.len() == 1 {
            return Ok(());
        }
        let standing = Standing { head: key_head(cursor.key()), child };
        self.order[0] = standing;
        if !self.goes_before(standing, self.order[1]) {
            let place = self.place(standing, 2);
            self.order[..place].rotate_left(1);
        }
        Ok(())
    }

    /// Steps every child that stands on the same entry as the one in front, then that one.
    #[inline]
    fn step(&mut self) -> Result<()> {
        if !self.ties {
            return self.step_front();
        }
        // The twins stand right behind the front. Each is brought to the front, stepped and sorted
        // in again; the old front then stands in front of them all again, having the least entry.
        while self.order.len() > 1 && self.compare(self.order[0], self.order[1]).is_eq() {
            self.order.swap(0, 1);
            self.step_front()?;
        }
        self.step_front()
    }
}

impl<C: Cursor + ?Sized> Cursor for MergeCursor<C> {
    fn seek_to_first(&mut self) -> Result<()> {
        self.seek_all(false, |_, child| child.seek_to_first())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.seek_all(true, |_, child| child.seek_to_last())
    }

    fn seek(&mut self, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        self.seek_all(false, |_, child| child.seek(key, sequence))
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.seek_all(true, |_, child| child.seek_before(key))
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        if self.backward { self.turn() } else { self.step() }
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        if self.backward { self.step() } else { self.turn() }
    }

    #[inline]
    fn valid(&self) -> bool {
        !self.order.is_empty()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.children[self.order[0].child].key()
    }

    #[inline]
    fn sequence(&self) -> SequenceNumber {
        self.children[self.order[0].child].sequence()
    }

    #[inline]
    fn kind(&self) -> ValueKind {
        self.children[self.order[0].child].kind()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.children[self.order[0].child].value()
    }
}

/// A sorted list of tables of which no two overlap.
pub trait Run: Send {
    /// What walks one table.
    type Cursor: Cursor;
    /// How many tables there are.
    fn len(&self) -> usize;
    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The first table whose upper bound reaches `key`; `len()` where none does.
    fn find(&self, key: &[u8]) -> usize;
    /// The last table whose lower bound is less than `key`.
    fn find_before(&self, key: &[u8]) -> Option<usize>;
    /// A cursor over table `index`. REQUIRES: `index < len()`.
    fn open(&self, index: usize) -> Result<Self::Cursor>;
}

/// All entries of a [`Run`] in internal order. One table is open at a time; tables that hold only
/// range tombstones are passed over.
pub struct ConcatCursor<R: Run> {
    run: R,
    /// The table stood in and its cursor. The cursor is valid exactly where the whole is.
    table: Option<(usize, R::Cursor)>,
}

impl<R: Run> ConcatCursor<R> {
    /// A cursor over `run`; not valid, and nothing opened, until the first seek.
    pub fn new(run: R) -> Self {
        ConcatCursor { run, table: None }
    }

    /// The cursor of table `index`, the one at hand where it is the same.
    fn open(&mut self, index: usize) -> Result<&mut R::Cursor> {
        let kept = self.table.take().filter(|(opened, _)| *opened == index);
        let table = match kept {
            Some(table) => table,
            None => (index, self.run.open(index)?),
        };
        Ok(&mut self.table.insert(table).1)
    }

    /// Goes on to the tables behind for as long as there is nothing at hand.
    fn skip_forward(&mut self) -> Result<()> {
        while let Some((index, cursor)) = &self.table
            && !cursor.valid()
            && index + 1 < self.run.len()
        {
            let index = index + 1;
            self.open(index)?.seek_to_first()?;
        }
        Ok(())
    }

    /// Goes back to the tables before for as long as there is nothing at hand.
    fn skip_backward(&mut self) -> Result<()> {
        while let Some((index, cursor)) = &self.table
            && !cursor.valid()
            && *index > 0
        {
            let index = index - 1;
            self.open(index)?.seek_to_last()?;
        }
        Ok(())
    }

    fn opened(&self) -> &R::Cursor {
        &self.table.as_ref().expect("REQUIRES: the cursor is valid").1
    }
}

impl<R: Run> Cursor for ConcatCursor<R> {
    fn seek_to_first(&mut self) -> Result<()> {
        if self.run.is_empty() {
            return Ok(());
        }
        self.open(0)?.seek_to_first()?;
        self.skip_forward()
    }

    fn seek_to_last(&mut self) -> Result<()> {
        let Some(last) = self.run.len().checked_sub(1) else {
            return Ok(());
        };
        self.open(last)?.seek_to_last()?;
        self.skip_backward()
    }

    fn seek(&mut self, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        let index = self.run.find(key);
        if index >= self.run.len() {
            self.table = None;
            return Ok(());
        }
        self.open(index)?.seek(key, sequence)?;
        self.skip_forward()
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        let Some(index) = self.run.find_before(key) else {
            self.table = None;
            return Ok(());
        };
        self.open(index)?.seek_before(key)?;
        self.skip_backward()
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        if let Some((_, cursor)) = &mut self.table {
            cursor.next()?;
            if cursor.valid() {
                return Ok(());
            }
        }
        self.skip_forward()
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        if let Some((_, cursor)) = &mut self.table {
            cursor.prev()?;
            if cursor.valid() {
                return Ok(());
            }
        }
        self.skip_backward()
    }

    #[inline]
    fn valid(&self) -> bool {
        self.table.as_ref().is_some_and(|(_, cursor)| cursor.valid())
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.opened().key()
    }

    #[inline]
    fn sequence(&self) -> SequenceNumber {
        self.opened().sequence()
    }

    #[inline]
    fn kind(&self) -> ValueKind {
        self.opened().kind()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.opened().value()
    }
}
