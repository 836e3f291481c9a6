//! The cursor over a memtable.

use crate::entry::{Entry, SeekKey};
use crate::memtable::Memtable;
use crate::node::Bound;
use crate::tree::TreePosition;
use std::sync::Arc;
use umbel_base::{Cursor, Result, SequenceNumber, ValueKind};

/// Cursor over a memtable in internal order, concurrent with the writer. The cursor sees entries
/// inserted before its creation, and possibly later ones, whose sequence numbers a reader ignores.
/// The cursor's methods never fail.
pub struct MemtableCursor {
    /// INVARIANT: the position is in `memtable`, and its lifetime is not really `'static`, but that
    /// of the memtable, which this cursor keeps alive.
    position: Option<TreePosition<'static>>,
    memtable: Arc<Memtable>,
}

impl Memtable {
    /// Creates a cursor, which keeps the memtable alive and is not valid before its first `seek*`.
    pub fn cursor(self: &Arc<Self>) -> MemtableCursor {
        MemtableCursor { position: None, memtable: Arc::clone(self) }
    }
}

impl MemtableCursor {
    /// Moves to a random entry, which `random`, a number with random bits, selects. The entries are
    /// about equally probable.
    pub fn seek_to_sample(&mut self, random: u64) {
        let _ = self.move_to(|memtable| memtable.tree().sample(random));
    }

    fn move_to(
        &mut self,
        seek: impl for<'a> FnOnce(&'a Memtable) -> Option<TreePosition<'a>>,
    ) -> Result<()> {
        let memtable: *const Memtable = Arc::as_ptr(&self.memtable);
        // SAFETY: the `Arc` keeps the memtable at its address as long as this cursor lives. So the
        // borrow, which is extended to `'static`, is valid as long as `place` is: `place` is
        // dropped with the cursor, and borrows of the cursor bound the slices that it lends
        // (`entry` below).
        self.position = seek(unsafe { &*memtable });
        Ok(())
    }

    /// Returns the current entry, which is lent no longer than the cursor exists.
    #[inline]
    fn entry(&self) -> Entry<'_> {
        self.position.as_ref().expect("the caller reads a valid cursor only").entry()
    }
}

impl Cursor for MemtableCursor {
    fn seek_to_first(&mut self) -> Result<()> {
        self.seek(b"", SequenceNumber::MAX)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.move_to(|memtable| memtable.tree().last())
    }

    fn seek(&mut self, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        let target = SeekKey { key, sequence };
        self.move_to(|memtable| memtable.tree().seek(target, Bound::Before))
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        let target = SeekKey { key, sequence: SequenceNumber::MAX };
        self.move_to(|memtable| memtable.tree().seek_before(target))
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        let place = self.position.expect("the caller moves a valid cursor only");
        self.move_to(|memtable| memtable.tree().next(place))
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        let place = self.position.expect("the caller moves a valid cursor only");
        self.move_to(|memtable| memtable.tree().prev(place))
    }

    #[inline]
    fn valid(&self) -> bool {
        self.position.is_some()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.entry().key()
    }

    #[inline]
    fn sequence(&self) -> SequenceNumber {
        self.entry().sequence()
    }

    #[inline]
    fn kind(&self) -> ValueKind {
        self.entry().kind()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.entry().value()
    }
}
