//! What a user sees: one entry per key, as of one sequence number, without what was deleted.
//!
//! INVARIANT: travelling forward, the inner cursor stands on the entry shown, which is lent
//! straight from it. Travelling backward, the entry shown is kept in two reused buffers and the
//! inner cursor stands on the last entry of the keys before it: the newest version of a key comes
//! last on the way back, so only the step beyond it tells that it was the newest.
//!
//! While memory is tight a cursor parks where it was sought to: the entry shown is kept in the
//! buffers, and the inner cursor holds nothing until it is sought again.
//!
//! Stretches under a range tombstone are stepped through, not jumped over: an entry newer than
//! the tombstone may stand anywhere in them, in any source.

use std::ops::Bound;
use std::sync::Arc;

use umbel_base::{Cursor, Error, FragmentedTombstones, Result, SequenceNumber, ValueKind};

use super::bounds::{is_before_lower, is_behind_upper, put_successor};
use super::position::Position;
use super::tombstone_finder::TombstoneFinder;
use crate::cursor_memory::CursorMemory;

/// After so many hidden versions of one key a seek is cheaper than more steps.
const STEPS_MAX: u32 = 8;

/// What a cursor shows of the entry it stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown<'a> {
    /// It stands nowhere.
    Nothing,
    /// The value.
    Value(&'a [u8]),
    /// What points at the value.
    Pointer(&'a [u8]),
}

/// What to do with the versions of the key in the key buffer on the way forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Older {
    /// They were passed already.
    Passed,
    /// They are to be passed over.
    Skip,
}

/// A cursor over the keys and values that a reader at one sequence number sees within bounds.
pub struct VisibleCursor<C: Cursor> {
    inner: C,
    sequence: SequenceNumber,
    /// Whether each newest put of a key that can be reached by strides is one to show.
    may_stride: bool,
    tombstones: TombstoneFinder,
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
    position: Position,
    /// What failed, where `position` says so.
    failure: Option<Error>,
    key: Vec<u8>,
    value: Vec<u8>,
    /// The key of a run of versions that are too new.
    too_new_key: Vec<u8>,
    /// What the memory is counted in, and what says when to park.
    memory: Option<Arc<CursorMemory>>,
    /// Bytes that are counted there, and how many of these are those of the buffers.
    counted: u64,
    buffers_counted: u64,
}

impl<C: Cursor> Drop for VisibleCursor<C> {
    fn drop(&mut self) {
        if let Some(memory) = &self.memory {
            memory.subtract(self.counted);
        }
    }
}

impl<C: Cursor> VisibleCursor<C> {
    /// A view of `inner` as of `sequence`, within `lower` and `upper`. `tombstones` are those of
    /// every source that `inner` merges. Bounds the wrong way round hold nothing.
    #[inline]
    pub fn new(
        inner: C,
        sequence: SequenceNumber,
        tombstones: Option<Arc<FragmentedTombstones>>,
        lower: Bound<Vec<u8>>,
        upper: Bound<Vec<u8>>,
    ) -> Self {
        let tombstones = TombstoneFinder::new(tombstones);
        VisibleCursor {
            inner,
            sequence,
            may_stride: tombstones.are_none() && upper == Bound::Unbounded,
            tombstones,
            lower,
            upper,
            position: Position::Nowhere,
            failure: None,
            key: Vec::new(),
            value: Vec::new(),
            too_new_key: Vec::new(),
            memory: None,
            counted: 0,
            buffers_counted: 0,
        }
    }

    /// Counts `bytes` for the cursor until it is dropped, and parks it after each movement while
    /// `memory` is tight.
    #[inline]
    pub fn count_in(&mut self, memory: &Arc<CursorMemory>, bytes: u64) {
        memory.add(bytes);
        (self.memory, self.counted) = (Some(Arc::clone(memory)), bytes);
    }

    /// Moves to the first key.
    pub fn seek_to_first(&mut self) -> Result<()> {
        let sought = self.seek_to_lower_bound();
        self.settle_or_park(sought)
    }

    /// Moves to the last key.
    pub fn seek_to_last(&mut self) -> Result<()> {
        let sought = self.seek_to_upper_bound();
        self.settle_or_park(sought)
    }

    /// Moves to the first key not less than `key`.
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        let sought = if is_before_lower(key, &self.lower) {
            self.seek_to_lower_bound()
        } else {
            self.inner.seek(key, self.sequence).and_then(|()| self.find_forward(Older::Passed))
        };
        self.settle_or_park(sought)
    }

    /// Moves to the last key not greater than `key`.
    pub fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        let sought = if is_behind_upper(key, &self.upper) {
            self.seek_to_upper_bound()
        } else {
            self.seek_to_key_or_before(key)
        };
        self.settle_or_park(sought)
    }

    /// Releases the memory that it holds. It stands nowhere then.
    pub fn release(&mut self) {
        self.position = Position::Nowhere;
        self.failure = None;
        self.inner.release();
    }

    /// Moves to the next key. REQUIRES: `valid()`; elsewhere it stays, and repeats an error.
    #[inline]
    pub fn next(&mut self) -> Result<()> {
        if self.position == Position::Lent {
            if self.may_stride && self.inner.stride(self.sequence) {
                return Ok(());
            }
            return self.next_by_step();
        }
        self.next_slowly()
    }

    #[inline(never)]
    fn next_by_step(&mut self) -> Result<()> {
        if let Some(repeats) = self.inner.step() {
            if !repeats && self.shows_what_it_stands_on() {
                return Ok(());
            }
            return self.go_on(Ok(repeats));
        }
        self.next_slowly()
    }

    /// Whether the entry that the inner cursor stands on is quickly seen to be one to show, where
    /// no other version of its key was.
    #[inline]
    fn shows_what_it_stands_on(&self) -> bool {
        self.inner.sequence() <= self.sequence
            && self.inner.kind() == ValueKind::Put
            && self.tombstones.are_none()
            && (self.upper == Bound::Unbounded || !is_behind_upper(self.inner.key(), &self.upper))
    }

    #[inline(never)]
    fn next_slowly(&mut self) -> Result<()> {
        match self.position {
            Position::Lent | Position::LentPointer => {
                let moved = self.inner.next_repeats();
                self.go_on(moved)
            }
            Position::Buffered | Position::BufferedPointer => {
                let moved = self.next_from_buffers();
                self.settle(moved)
            }
            Position::Parked | Position::ParkedPointer => {
                let moved = self.next_from_buffers();
                self.settle_or_park(moved)
            }
            Position::Nowhere | Position::Failed => self.failure.clone().map_or(Ok(()), Err),
        }
    }

    /// Finds the next key to show, after a step away from the entry shown that tells whether the
    /// key repeats.
    #[inline(never)]
    fn go_on(&mut self, stepped: Result<bool>) -> Result<()> {
        let moved = stepped.and_then(|repeats| {
            if !repeats {
                return self.find_forward(Older::Passed);
            }
            self.key.clear();
            self.key.extend_from_slice(self.inner.key());
            self.find_forward(Older::Skip)
        });
        self.settle(moved)
    }

    /// Moves to the previous key. REQUIRES: `valid()`; elsewhere it stays, and repeats an error.
    #[inline]
    pub fn prev(&mut self) -> Result<()> {
        let moved = match self.position {
            Position::Lent | Position::LentPointer => self.prev_from_lent(),
            Position::Buffered | Position::BufferedPointer => self.find_backward(),
            Position::Parked | Position::ParkedPointer => {
                let moved = self.prev_from_parked();
                return self.settle_or_park(moved);
            }
            Position::Nowhere | Position::Failed => {
                return self.failure.clone().map_or(Ok(()), Err);
            }
        };
        self.settle(moved)
    }

    /// Whether the cursor stands on a key.
    #[inline]
    pub fn valid(&self) -> bool {
        !matches!(self.position, Position::Nowhere | Position::Failed)
    }

    /// The key; good until the cursor moves. REQUIRES: `valid()`.
    #[inline]
    pub fn key(&self) -> &[u8] {
        match self.position {
            Position::Lent | Position::LentPointer => self.inner.key(),
            _ => &self.key,
        }
    }

    /// Whether it stands on an entry that points at its value.
    #[inline]
    pub fn is_on_pointer(&self) -> bool {
        self.position.is_on_pointer()
    }

    /// The value, where it is quickly seen to be lent; good until the cursor moves.
    #[inline]
    pub fn lent(&self) -> Option<&[u8]> {
        if self.position == Position::Lent { Some(self.inner.value()) } else { None }
    }

    /// What it stands on; good until the cursor moves.
    pub fn shown(&self) -> Shown<'_> {
        match self.position {
            Position::Lent => Shown::Value(self.inner.value()),
            Position::Buffered | Position::Parked => Shown::Value(&self.value),
            Position::LentPointer => Shown::Pointer(self.inner.value()),
            Position::BufferedPointer | Position::ParkedPointer => Shown::Pointer(&self.value),
            Position::Nowhere | Position::Failed => Shown::Nothing,
        }
    }

    /// Remembers where a movement ended.
    #[inline]
    fn settle(&mut self, moved: Result<Position>) -> Result<()> {
        match moved {
            Ok(position) => {
                if self.position == Position::Failed {
                    self.failure = None;
                }
                self.position = position;
                Ok(())
            }
            Err(error) => {
                self.position = Position::Failed;
                self.failure = Some(error.clone());
                Err(error)
            }
        }
    }

    /// Remembers where a movement ended, and parks while memory is tight.
    #[inline]
    fn settle_or_park(&mut self, moved: Result<Position>) -> Result<()> {
        let is_tight = self.memory.as_ref().is_some_and(|memory| memory.is_tight());
        let settled = self.settle(moved);
        if is_tight && settled.is_ok() {
            self.park();
        }
        settled
    }

    /// Copies the entry shown, and releases the memory of the inner cursor.
    #[cold]
    fn park(&mut self) {
        if matches!(self.position, Position::Lent | Position::LentPointer) {
            self.key.clear();
            self.key.extend_from_slice(self.inner.key());
            self.buffer_value();
        }
        self.position = self.position.parked();
        self.inner.release();
        let bytes = (self.key.capacity() + self.value.capacity()) as u64;
        let more = bytes.saturating_sub(self.buffers_counted);
        if let Some(memory) = &self.memory {
            memory.add(more);
        }
        (self.counted, self.buffers_counted) = (self.counted + more, self.buffers_counted + more);
    }

    fn next_from_buffers(&mut self) -> Result<Position> {
        self.inner.seek(&self.key, 0)?;
        self.find_forward(Older::Skip)
    }

    fn prev_from_parked(&mut self) -> Result<Position> {
        self.inner.seek_before(&self.key)?;
        self.find_backward()
    }

    fn seek_to_lower_bound(&mut self) -> Result<Position> {
        let older = match &self.lower {
            Bound::Unbounded => {
                self.inner.seek_to_first()?;
                Older::Passed
            }
            Bound::Included(bound) => {
                self.inner.seek(bound, self.sequence)?;
                Older::Passed
            }
            Bound::Excluded(bound) => {
                self.inner.seek(bound, 0)?;
                self.key.clear();
                self.key.extend_from_slice(bound);
                Older::Skip
            }
        };
        self.find_forward(older)
    }

    fn seek_to_upper_bound(&mut self) -> Result<Position> {
        match &self.upper {
            Bound::Unbounded => self.inner.seek_to_last()?,
            Bound::Excluded(bound) => self.inner.seek_before(bound)?,
            Bound::Included(bound) => {
                put_successor(&mut self.key, bound);
                self.inner.seek_before(&self.key)?;
            }
        }
        self.find_backward()
    }

    fn seek_to_key_or_before(&mut self, key: &[u8]) -> Result<Position> {
        put_successor(&mut self.key, key);
        self.inner.seek_before(&self.key)?;
        self.find_backward()
    }

    fn prev_from_lent(&mut self) -> Result<Position> {
        self.key.clear();
        self.key.extend_from_slice(self.inner.key());
        self.inner.seek_before(&self.key)?;
        self.find_backward()
    }

    /// Finds the first key to show at or behind where the inner cursor stands.
    fn find_forward(&mut self, mut older: Older) -> Result<Position> {
        let mut steps = 0;
        while self.inner.valid() {
            if older == Older::Skip && self.inner.key() == self.key {
                steps += 1;
                if steps == STEPS_MAX {
                    self.inner.seek(&self.key, 0)?;
                } else {
                    self.inner.next()?;
                }
                continue;
            }
            if is_behind_upper(self.inner.key(), &self.upper) {
                return Ok(Position::Nowhere);
            }
            let sequence = self.inner.sequence();
            if sequence > self.sequence {
                self.pass_too_new()?;
                continue;
            }
            let key = self.inner.key();
            let kind = self.inner.kind();
            if kind != ValueKind::Delete && !self.tombstones.hides(key, sequence, self.sequence) {
                return Ok(match kind {
                    ValueKind::BlobPointer => Position::LentPointer,
                    _ => Position::Lent,
                });
            }
            // The newest visible version says "deleted", so all older ones are hidden too.
            self.key.clear();
            self.key.extend_from_slice(key);
            older = Older::Skip;
            steps = 0;
            self.inner.next()?;
        }
        Ok(Position::Nowhere)
    }

    /// Steps forward over versions newer than the reader; at most to the newest one it sees of
    /// the same key, or to the next key.
    fn pass_too_new(&mut self) -> Result<()> {
        // The first step is nearly always enough, and costs no copy of the key.
        self.inner.next()?;
        if !self.inner.valid() || self.inner.sequence() <= self.sequence {
            return Ok(());
        }
        self.too_new_key.clear();
        self.too_new_key.extend_from_slice(self.inner.key());
        for _ in 0..STEPS_MAX {
            self.inner.next()?;
            let stays = self.inner.valid()
                && self.inner.sequence() > self.sequence
                && self.inner.key() == self.too_new_key;
            if !stays {
                return Ok(());
            }
        }
        self.inner.seek(&self.too_new_key, self.sequence)
    }

    /// Finds the last key to show at or before where the inner cursor stands.
    fn find_backward(&mut self) -> Result<Position> {
        while self.inner.valid() {
            if is_before_lower(self.inner.key(), &self.lower) {
                return Ok(Position::Nowhere);
            }
            self.key.clear();
            self.key.extend_from_slice(self.inner.key());
            if let Some((sequence, kind)) = self.buffer_newest()?
                && kind != ValueKind::Delete
                && !self.tombstones.hides(&self.key, sequence, self.sequence)
            {
                return Ok(match kind {
                    ValueKind::BlobPointer => Position::BufferedPointer,
                    _ => Position::Buffered,
                });
            }
        }
        Ok(Position::Nowhere)
    }

    /// Walks back over all versions of the key in the key buffer, the oldest of which the inner
    /// cursor stands on, and buffers the newest that the reader sees.
    fn buffer_newest(&mut self) -> Result<Option<(SequenceNumber, ValueKind)>> {
        let mut newest = None;
        let mut steps = 0;
        while self.inner.valid() && self.inner.key() == self.key {
            let jumps = steps == STEPS_MAX;
            if jumps && self.inner.sequence() <= self.sequence {
                self.inner.seek(&self.key, self.sequence)?;
            }
            if self.inner.valid() && self.inner.sequence() <= self.sequence {
                newest = Some((self.inner.sequence(), self.inner.kind()));
                self.buffer_value();
            }
            if jumps {
                self.inner.seek_before(&self.key)?;
                break;
            }
            steps += 1;
            self.inner.prev()?;
        }
        Ok(newest)
    }

    #[inline]
    fn buffer_value(&mut self) {
        self.value.clear();
        self.value.extend_from_slice(self.inner.value());
    }
}
