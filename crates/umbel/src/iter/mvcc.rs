//! What a user sees: one entry per key, as of one sequence number, without what was deleted.
//!
//! INVARIANT: travelling forward, the inner cursor stands on the entry shown, which is lent
//! straight from it. Travelling backward, the entry shown is kept in two reused buffers and the
//! inner cursor stands on the last entry of the keys before it: the newest version of a key comes
//! last on the way back, so only the step beyond it tells that it was the newest.
//!
//! Stretches under a range tombstone are stepped through, not jumped over: an entry newer than
//! the tombstone may stand anywhere in them, in any source.

use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

use umbel_base::{Cursor, Error, FragmentedTombstones, Result, SequenceNumber, ValueKind};

/// After so many hidden versions of one key a seek is cheaper than more steps.
const STEPS_MAX: u32 = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Position {
    /// On no entry: never sought, or passed an end.
    Nowhere,
    /// A source failed; stays so until the next seek.
    Failed,
    /// On the entry the inner cursor stands on.
    Lent,
    /// The same, where what stands there points at the value. Apart, so that the quick way on needs
    /// no further question.
    LentPointer,
    /// On the entry in the buffers; the inner cursor stands before all versions of its key.
    Buffered,
    /// The same, where what stands there points at the value.
    BufferedPointer,
}

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
}

impl<C: Cursor> VisibleCursor<C> {
    /// A view of `inner` as of `sequence`, within `lower` and `upper`. `tombstones` are those of
    /// every source that `inner` merges. Bounds the wrong way round hold nothing.
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
        }
    }

    /// Moves to the first key.
    pub fn seek_to_first(&mut self) -> Result<()> {
        let sought = self.seek_to_lower_bound();
        self.settle(sought)
    }

    /// Moves to the last key.
    pub fn seek_to_last(&mut self) -> Result<()> {
        let sought = self.seek_to_upper_bound();
        self.settle(sought)
    }

    /// Moves to the first key not less than `key`.
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        let sought = if is_before_lower(key, &self.lower) {
            self.seek_to_lower_bound()
        } else {
            self.inner.seek(key, self.sequence).and_then(|()| self.find_forward(Older::Passed))
        };
        self.settle(sought)
    }

    /// Moves to the last key not greater than `key`.
    pub fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        let sought = if is_behind_upper(key, &self.upper) {
            self.seek_to_upper_bound()
        } else {
            self.seek_to_key_or_before(key)
        };
        self.settle(sought)
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
                let sought = self.inner.seek(&self.key, 0);
                let moved = sought.and_then(|()| self.find_forward(Older::Skip));
                self.settle(moved)
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
        matches!(self.position, Position::LentPointer | Position::BufferedPointer)
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
            Position::Buffered => Shown::Value(&self.value),
            Position::LentPointer => Shown::Pointer(self.inner.value()),
            Position::BufferedPointer => Shown::Pointer(&self.value),
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

/// Puts into `buffer` the least key greater than `key`.
fn put_successor(buffer: &mut Vec<u8>, key: &[u8]) {
    buffer.clear();
    buffer.extend_from_slice(key);
    buffer.push(0);
}

#[inline]
fn is_before_lower(key: &[u8], lower: &Bound<Vec<u8>>) -> bool {
    match lower {
        Bound::Unbounded => false,
        Bound::Included(bound) => key < bound.as_slice(),
        Bound::Excluded(bound) => key <= bound.as_slice(),
    }
}

#[inline]
fn is_behind_upper(key: &[u8], upper: &Bound<Vec<u8>>) -> bool {
    match upper {
        Bound::Unbounded => false,
        Bound::Included(bound) => key > bound.as_slice(),
        Bound::Excluded(bound) => key >= bound.as_slice(),
    }
}

/// Range tombstones with a memory of where the last key stood among them, so that neighbouring
/// keys need no search.
#[derive(Debug)]
struct TombstoneFinder {
    /// `None` where there are none.
    tombstones: Option<Arc<FragmentedTombstones>>,
    /// How many fragments start at or before the key asked for last.
    behind: usize,
}

impl TombstoneFinder {
    fn new(tombstones: Option<Arc<FragmentedTombstones>>) -> Self {
        let tombstones = tombstones.filter(|tombstones| !tombstones.is_empty());
        TombstoneFinder { tombstones, behind: 0 }
    }

    #[inline]
    fn are_none(&self) -> bool {
        self.tombstones.is_none()
    }

    /// Whether a tombstone that a reader at `reader` sees hides version `sequence` of `key`.
    #[inline]
    fn hides(&mut self, key: &[u8], sequence: SequenceNumber, reader: SequenceNumber) -> bool {
        !self.are_none() && self.search(key, sequence, reader)
    }

    fn search(&mut self, key: &[u8], sequence: SequenceNumber, reader: SequenceNumber) -> bool {
        let fragments = self.tombstones.as_ref().map_or(&[][..], |all| all.fragments());
        let starts_by = |index: usize| match fragments.get(index) {
            Some(fragment) => fragment.start.as_slice().cmp(key) != Ordering::Greater,
            None => false,
        };
        let remembered =
            (self.behind == 0 || starts_by(self.behind - 1)) && !starts_by(self.behind);
        if !remembered {
            self.behind = fragments.partition_point(|f| f.start.as_slice() <= key);
        }
        let Some(fragment) = self.behind.checked_sub(1).map(|index| &fragments[index]) else {
            return false;
        };
        key < fragment.end.as_slice()
            && fragment.newest_at(reader).is_some_and(|tombstone| tombstone > sequence)
    }
}
