//! The memtable's cursor.

use crate::entry::{Entry, Target};
use crate::memtable::Memtable;
use crate::node::Bound;
use crate::tree::Place;
use std::sync::Arc;
use umbel_base::{Cursor, Result, SequenceNumber, ValueKind};

/// Walks a memtable in internal order, beside the writer. It sees entries inserted after it was
/// made, and those inserted later between its entry and the next; a reader ignores the sequence
/// numbers behind its own. Its methods never fail.
pub struct MemtableCursor {
    /// INVARIANT: it belongs to `memtable`. Its lifetime is the memtable's, which this cursor keeps
    /// alive, and not really `'static`.
    place: Option<Place<'static>>,
    memtable: Arc<Memtable>,
}

impl Memtable {
    /// A cursor, which keeps the memtable alive. It is not valid before its first `seek*`.
    pub fn cursor(self: &Arc<Self>) -> MemtableCursor {
        MemtableCursor { place: None, memtable: Arc::clone(self) }
    }
}

impl MemtableCursor {
    fn stand(
        &mut self,
        seek: impl for<'a> FnOnce(&'a Memtable) -> Option<Place<'a>>,
    ) -> Result<()> {
        let memtable: *const Memtable = Arc::as_ptr(&self.memtable);
        // SAFETY: the `Arc` keeps the memtable where it is as long as this cursor lives, so the
        // borrow, which is stretched to `'static`, is good as long as `place` is: `place` is
        // dropped with the cursor, and what the cursor lends is bounded by a borrow of the cursor
        // (`entry` below).
        self.place = seek(unsafe { &*memtable });
        Ok(())
    }

    /// The current entry, lent no longer than the cursor.
    #[inline]
    fn entry(&self) -> Entry<'_> {
        self.place.as_ref().expect("the caller asks a valid cursor only").entry()
    }
}

impl Cursor for MemtableCursor {
    fn seek_to_first(&mut self) -> Result<()> {
        self.seek(b"", SequenceNumber::MAX)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.stand(|memtable| memtable.tree().last())
    }

    fn seek(&mut self, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        let target = Target { key, sequence };
        self.stand(|memtable| memtable.tree().seek(target, Bound::Before))
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        let target = Target { key, sequence: SequenceNumber::MAX };
        self.stand(|memtable| memtable.tree().seek_before(target))
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        let place = self.place.expect("the caller moves a valid cursor only");
        self.stand(|memtable| memtable.tree().next(place))
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        let place = self.place.expect("the caller moves a valid cursor only");
        self.stand(|memtable| memtable.tree().prev(place))
    }

    #[inline]
    fn valid(&self) -> bool {
        self.place.is_some()
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
