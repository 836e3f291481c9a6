//! Cursor over the visible entries of a reader at one sequence number: one entry per key, without
//! deleted keys.
//!
//! INVARIANT: after a forward movement the inner cursor is on the current entry, and lends it.
//! After a backward movement the current entry is in two reused buffers, and the inner cursor is on
//! the last entry of the preceding key. Going backward, the newest version of a key comes last, so
//! only the step beyond a version shows that it is the newest.
//!
//! While memory is tight a cursor parks after each movement: it keeps its current entry in the
//! buffers, and its inner cursor holds no blocks until the next seek.
//!
//! A cursor steps through a key range under a range tombstone, since any source can hold entries
//! newer than the tombstone there. A long run of hidden entries becomes a skip span, which later
//! cursors skip.

use std::ops::Bound;
use std::sync::Arc;

use umbel_base::{Cursor, Error, Result, SequenceNumber, ValueKind};

use crate::cache::cursor_memory::CursorMemory;
use crate::iter::cursor_position::CursorPosition;
use crate::iter::hidden_run::{HiddenRun, SkipSpanSource};
use crate::iter::key_bounds::{is_before_lower, is_past_upper, put_successor};
use crate::iter::range_tombstone_finder::{RangeTombstoneFinder, RangeTombstoneSource};

/// Number of hidden versions of one key after which a seek is cheaper than more steps.
const STEPS_MAX: u32 = 8;

/// Value of a cursor's current entry, or a pointer to the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VisibleValue<'a> {
    /// The cursor is on no entry.
    Unpositioned,
    /// The value itself.
    Value(&'a [u8]),
    /// Pointer to the value, which is in a file of its own.
    Pointer(&'a [u8]),
}

/// Whether the versions of the key in the key buffer are still to be passed, when moving forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OlderVersions {
    /// All versions of the key were passed already.
    Skipped,
    /// Versions of the key are still to be passed.
    Pending,
}

/// Cursor over the keys and values that a reader at one sequence number sees within bounds.
pub struct VisibleCursor<C: Cursor + SkipSpanSource + RangeTombstoneSource> {
    inner: C,
    sequence: SequenceNumber,
    /// Whether the newest version of every key that `try_next_visible` reaches is visible if it is
    /// a put.
    may_try_next_visible: bool,
    tombstones: RangeTombstoneFinder,
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
    position: CursorPosition,
    /// The error, if `position` is `Failed`.
    failure: Option<Error>,
    key: Vec<u8>,
    value: Vec<u8>,
    /// Key whose versions newer than the reader are being skipped.
    too_new_key: Vec<u8>,
    /// First key of a long run of hidden entries in the direction of the movement.
    run_start: Vec<u8>,
    /// Key at the end of a skip span, or scratch space.
    skip_target: Vec<u8>,
    /// Whether a run of hidden entries was recorded since [`VisibleCursor::take_recorded_run`].
    has_recorded_run: bool,
    /// Counter of the memory of cursors, which also says when cursors must park.
    memory: Option<Arc<CursorMemory>>,
    /// Bytes of this cursor counted in `memory`, and how many of them are for the buffers.
    counted_bytes: u64,
    counted_buffer_bytes: u64,
}

impl<C: Cursor + SkipSpanSource + RangeTombstoneSource> Drop for VisibleCursor<C> {
    fn drop(&mut self) {
        if let Some(memory) = &self.memory {
            memory.subtract(self.counted_bytes);
        }
    }
}

impl<C: Cursor + SkipSpanSource + RangeTombstoneSource> VisibleCursor<C> {
    /// Creates a cursor over `inner` at `sequence`, within `lower` and `upper`. `has_tombstones`
    /// says whether `inner` can have range tombstones within the bounds. If `lower` is after
    /// `upper`, the cursor has no entries.
    #[inline]
    pub fn new(
        inner: C,
        sequence: SequenceNumber,
        has_tombstones: bool,
        lower: Bound<Vec<u8>>,
        upper: Bound<Vec<u8>>,
    ) -> Self {
        let tombstones = RangeTombstoneFinder::new(!has_tombstones);
        VisibleCursor {
            inner,
            sequence,
            may_try_next_visible: tombstones.is_empty() && upper == Bound::Unbounded,
            tombstones,
            lower,
            upper,
            position: CursorPosition::Unpositioned,
            failure: None,
            key: Vec::new(),
            value: Vec::new(),
            too_new_key: Vec::new(),
            run_start: Vec::new(),
            skip_target: Vec::new(),
            has_recorded_run: false,
            memory: None,
            counted_bytes: 0,
            counted_buffer_bytes: 0,
        }
    }

    /// Counts `bytes` in `memory` for the cursor until it is dropped. From now on the cursor parks
    /// after each movement while `memory` is tight.
    #[inline]
    pub fn count_memory(&mut self, memory: &Arc<CursorMemory>, bytes: u64) {
        memory.add(bytes);
        (self.memory, self.counted_bytes) = (Some(Arc::clone(memory)), bytes);
    }

    /// Moves to the first key.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.tombstones.note_seek();
        let result = self.seek_to_lower_bound();
        self.set_position_or_park(result)
    }

    /// Moves to the last key.
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.tombstones.note_seek();
        let result = self.seek_to_upper_bound();
        self.set_position_or_park(result)
    }

    /// Moves to the first key not less than `key`.
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.tombstones.note_seek();
        let result = if is_before_lower(key, &self.lower) {
            self.seek_to_lower_bound()
        } else {
            self.inner
                .seek(key, self.sequence)
                .and_then(|()| self.find_forward(OlderVersions::Skipped))
        };
        self.set_position_or_park(result)
    }

    /// Moves to the last key not greater than `key`.
    pub fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        self.tombstones.note_seek();
        let result = if is_past_upper(key, &self.upper) {
            self.seek_to_upper_bound()
        } else {
            self.seek_to_key_or_before(key)
        };
        self.set_position_or_park(result)
    }

    /// Releases the cursor's memory; afterwards the cursor is on no entry.
    pub fn release(&mut self) {
        self.position = CursorPosition::Unpositioned;
        self.failure = None;
        self.inner.release();
    }

    /// Moves to the next key. Without `valid()` the cursor does not move, and returns the error
    /// again if it failed.
    #[inline]
    pub fn next(&mut self) -> Result<()> {
        if self.position == CursorPosition::Lent {
            if self.may_try_next_visible && self.inner.try_next_visible(self.sequence) {
                return Ok(());
            }
            return self.try_next();
        }
        self.next_slowly()
    }

    #[inline(never)]
    fn try_next(&mut self) -> Result<()> {
        if let Some(repeats) = self.inner.try_next() {
            if !repeats && self.is_inner_visible() {
                return Ok(());
            }
            return self.finish_step(Ok(repeats));
        }
        self.next_slowly()
    }

    /// Whether a fast check finds the inner cursor's entry visible. REQUIRES: no other version of
    /// its key came before.
    #[inline]
    fn is_inner_visible(&self) -> bool {
        self.inner.sequence() <= self.sequence
            && self.inner.kind() == ValueKind::Put
            && self.tombstones.is_empty()
            && (self.upper == Bound::Unbounded || !is_past_upper(self.inner.key(), &self.upper))
    }

    #[inline(never)]
    fn next_slowly(&mut self) -> Result<()> {
        match self.position {
            CursorPosition::Lent | CursorPosition::LentPointer => {
                let moved = self.inner.next_repeats();
                self.finish_step(moved)
            }
            CursorPosition::Buffered | CursorPosition::BufferedPointer => {
                let moved = self.next_from_buffers();
                self.set_position(moved)
            }
            CursorPosition::Parked | CursorPosition::ParkedPointer => {
                let moved = self.next_from_buffers();
                self.set_position_or_park(moved)
            }
            CursorPosition::Unpositioned | CursorPosition::Failed => {
                self.failure.clone().map_or(Ok(()), Err)
            }
        }
    }

    /// Finds the next visible key after a step of the inner cursor. `stepped` says whether the step
    /// reached another version of the same key.
    #[inline(never)]
    fn finish_step(&mut self, stepped: Result<bool>) -> Result<()> {
        let moved = stepped.and_then(|repeats| {
            if !repeats {
                return self.find_forward(OlderVersions::Skipped);
            }
            self.key.clear();
            self.key.extend_from_slice(self.inner.key());
            self.find_forward(OlderVersions::Pending)
        });
        self.set_position(moved)
    }

    /// Moves to the previous key. Without `valid()` the cursor does not move, and returns the error
    /// again if it failed.
    #[inline]
    pub fn prev(&mut self) -> Result<()> {
        let moved = match self.position {
            CursorPosition::Lent | CursorPosition::LentPointer => self.prev_from_lent(),
            CursorPosition::Buffered | CursorPosition::BufferedPointer => self.find_backward(),
            CursorPosition::Parked | CursorPosition::ParkedPointer => {
                let moved = self.prev_from_parked();
                return self.set_position_or_park(moved);
            }
            CursorPosition::Unpositioned | CursorPosition::Failed => {
                return self.failure.clone().map_or(Ok(()), Err);
            }
        };
        self.set_position(moved)
    }

    /// Returns the inner cursor, which is over all versions.
    pub fn inner(&self) -> &C {
        &self.inner
    }

    /// Whether the cursor recorded a run of hidden entries since the last call.
    #[inline]
    pub fn take_recorded_run(&mut self) -> bool {
        std::mem::take(&mut self.has_recorded_run)
    }

    /// Whether the cursor is on a key.
    #[inline]
    pub fn valid(&self) -> bool {
        !matches!(self.position, CursorPosition::Unpositioned | CursorPosition::Failed)
    }

    /// Current key; valid until the cursor moves. REQUIRES: `valid()`.
    #[inline]
    pub fn key(&self) -> &[u8] {
        match self.position {
            CursorPosition::Lent | CursorPosition::LentPointer => self.inner.key(),
            _ => &self.key,
        }
    }

    /// Whether the cursor is on an entry that points at its value.
    #[inline]
    pub fn is_blob_pointer(&self) -> bool {
        self.position.is_blob_pointer()
    }

    /// Current value if a fast check finds that the inner cursor lends it, else `None`; valid until
    /// the cursor moves.
    #[inline]
    pub fn lent(&self) -> Option<&[u8]> {
        if self.position == CursorPosition::Lent { Some(self.inner.value()) } else { None }
    }

    /// Value or pointer of the current entry; valid until the cursor moves.
    pub fn shown(&self) -> VisibleValue<'_> {
        match self.position {
            CursorPosition::Lent => VisibleValue::Value(self.inner.value()),
            CursorPosition::Buffered | CursorPosition::Parked => VisibleValue::Value(&self.value),
            CursorPosition::LentPointer => VisibleValue::Pointer(self.inner.value()),
            CursorPosition::BufferedPointer | CursorPosition::ParkedPointer => {
                VisibleValue::Pointer(&self.value)
            }
            CursorPosition::Unpositioned | CursorPosition::Failed => VisibleValue::Unpositioned,
        }
    }

    /// Stores the position that a movement returned.
    #[inline]
    fn set_position(&mut self, moved: Result<CursorPosition>) -> Result<()> {
        match moved {
            Ok(position) => {
                if self.position == CursorPosition::Failed {
                    self.failure = None;
                }
                self.position = position;
                Ok(())
            }
            Err(error) => {
                self.position = CursorPosition::Failed;
                self.failure = Some(error.clone());
                Err(error)
            }
        }
    }

    /// Stores the position that a movement returned, and parks the cursor while memory is tight.
    #[inline]
    fn set_position_or_park(&mut self, moved: Result<CursorPosition>) -> Result<()> {
        let is_tight = self.memory.as_ref().is_some_and(|memory| memory.is_tight());
        let settled = self.set_position(moved);
        if is_tight && settled.is_ok() {
            self.park();
        }
        settled
    }

    /// Copies the current entry, and releases the memory of the inner cursor.
    #[cold]
    fn park(&mut self) {
        if matches!(self.position, CursorPosition::Lent | CursorPosition::LentPointer) {
            self.key.clear();
            self.key.extend_from_slice(self.inner.key());
            self.buffer_value();
        }
        self.position = self.position.parked();
        self.inner.release();
        let bytes = (self.key.capacity() + self.value.capacity()) as u64;
        let more = bytes.saturating_sub(self.counted_buffer_bytes);
        if let Some(memory) = &self.memory {
            memory.add(more);
        }
        (self.counted_bytes, self.counted_buffer_bytes) =
            (self.counted_bytes + more, self.counted_buffer_bytes + more);
    }

    fn next_from_buffers(&mut self) -> Result<CursorPosition> {
        self.inner.seek(&self.key, 0)?;
        self.find_forward(OlderVersions::Pending)
    }

    fn prev_from_parked(&mut self) -> Result<CursorPosition> {
        self.inner.seek_before(&self.key)?;
        self.find_backward()
    }

    fn seek_to_lower_bound(&mut self) -> Result<CursorPosition> {
        let older = match &self.lower {
            Bound::Unbounded => {
                self.inner.seek_to_first()?;
                OlderVersions::Skipped
            }
            Bound::Included(bound) => {
                self.inner.seek(bound, self.sequence)?;
                OlderVersions::Skipped
            }
            Bound::Excluded(bound) => {
                self.inner.seek(bound, 0)?;
                self.key.clear();
                self.key.extend_from_slice(bound);
                OlderVersions::Pending
            }
        };
        self.find_forward(older)
    }

    fn seek_to_upper_bound(&mut self) -> Result<CursorPosition> {
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

    fn seek_to_key_or_before(&mut self, key: &[u8]) -> Result<CursorPosition> {
        put_successor(&mut self.key, key);
        self.inner.seek_before(&self.key)?;
        self.find_backward()
    }

    fn prev_from_lent(&mut self) -> Result<CursorPosition> {
        self.key.clear();
        self.key.extend_from_slice(self.inner.key());
        self.inner.seek_before(&self.key)?;
        self.find_backward()
    }

    /// Finds the first visible key at or after the inner cursor's position.
    fn find_forward(&mut self, older: OlderVersions) -> Result<CursorPosition> {
        let mut run = HiddenRun::default();
        let found = self.pass_hidden_forward(older, &mut run)?;
        if run.is_long() {
            self.finish_run_forward(&run);
        }
        Ok(found)
    }

    #[inline]
    fn pass_hidden_forward(
        &mut self,
        mut older: OlderVersions,
        run: &mut HiddenRun,
    ) -> Result<CursorPosition> {
        let mut steps = 0;
        while self.inner.valid() {
            if older == OlderVersions::Pending && self.inner.key() == self.key {
                steps += 1;
                if steps == STEPS_MAX {
                    self.inner.seek(&self.key, 0)?;
                } else {
                    self.inner.next()?;
                }
                continue;
            }
            if is_past_upper(self.inner.key(), &self.upper) {
                return Ok(CursorPosition::Unpositioned);
            }
            let sequence = self.inner.sequence();
            if sequence > self.sequence {
                self.skip_too_new()?;
                continue;
            }
            let key = self.inner.key();
            let kind = self.inner.kind();
            let (source, bounds) = (&self.inner, (&self.lower, &self.upper));
            let entry = (key, sequence);
            if kind != ValueKind::Delete
                && !self.tombstones.hides(source, bounds, entry, self.sequence)?
            {
                return Ok(match kind {
                    ValueKind::BlobPointer => CursorPosition::LentPointer,
                    _ => CursorPosition::Lent,
                });
            }
            // The newest visible version is a delete, so all older ones are hidden too.
            self.key.clear();
            self.key.extend_from_slice(key);
            older = OlderVersions::Pending;
            steps = 0;
            if run.step() && self.skip_forward(run)? {
                older = OlderVersions::Skipped;
                continue;
            }
            self.inner.next()?;
        }
        Ok(CursorPosition::Unpositioned)
    }

    /// Moves beyond the known empty range around the hidden key in the key buffer.
    #[cold]
    fn skip_forward(&mut self, run: &mut HiddenRun) -> Result<bool> {
        if run.is_first_lookup() {
            self.run_start.clone_from(&self.key);
        }
        let skips = self.inner.skip_forward(&self.key, self.sequence, &mut self.skip_target);
        run.finish_lookup(skips);
        if skips {
            self.inner.seek(&self.skip_target, self.sequence)?;
        }
        Ok(skips)
    }

    /// Notes the run of hidden entries that ends with the key in the key buffer.
    #[cold]
    fn finish_run_forward(&mut self, run: &HiddenRun) {
        self.inner.count_hidden(run.stepped());
        if run.is_recorded() {
            put_successor(&mut self.skip_target, &self.key);
            self.inner.record((&self.run_start, &self.skip_target), self.sequence, run.stepped());
            self.has_recorded_run = true;
        }
    }

    /// Steps forward over versions newer than the reader. Stops at the newest visible version of
    /// the same key, or at the next key.
    fn skip_too_new(&mut self) -> Result<()> {
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

    /// Finds the last visible key at or before the inner cursor's position.
    fn find_backward(&mut self) -> Result<CursorPosition> {
        let mut run = HiddenRun::default();
        let found = self.pass_hidden_backward(&mut run)?;
        if run.is_long() {
            self.finish_run_backward(&run, found);
        }
        Ok(found)
    }

    fn pass_hidden_backward(&mut self, run: &mut HiddenRun) -> Result<CursorPosition> {
        while self.inner.valid() {
            if is_before_lower(self.inner.key(), &self.lower) {
                return Ok(CursorPosition::Unpositioned);
            }
            self.key.clear();
            self.key.extend_from_slice(self.inner.key());
            let newest = self.buffer_newest()?;
            if let Some((sequence, kind)) = newest
                && kind != ValueKind::Delete
                && !self.tombstones.hides(
                    &self.inner,
                    (&self.lower, &self.upper),
                    (&self.key, sequence),
                    self.sequence,
                )?
            {
                return Ok(match kind {
                    ValueKind::BlobPointer => CursorPosition::BufferedPointer,
                    _ => CursorPosition::Buffered,
                });
            }
            // A key with newer versions alone is not deleted.
            if newest.is_some() && run.step() {
                self.skip_backward(run)?;
            }
        }
        Ok(CursorPosition::Unpositioned)
    }

    /// Moves before the known empty range around the hidden key in the key buffer.
    #[cold]
    fn skip_backward(&mut self, run: &mut HiddenRun) -> Result<()> {
        if run.is_first_lookup() {
            put_successor(&mut self.run_start, &self.key);
        }
        let skips = self.inner.skip_backward(&self.key, self.sequence, &mut self.skip_target);
        run.finish_lookup(skips);
        if skips {
            self.inner.seek_before(&self.skip_target)?;
        }
        Ok(())
    }

    /// Notes the run of hidden entries that ends a backward movement. A visible key in the key
    /// buffer is before the run; a hidden one is its first key.
    #[cold]
    fn finish_run_backward(&mut self, run: &HiddenRun, found: CursorPosition) {
        self.inner.count_hidden(run.stepped());
        if !run.is_recorded() {
            return;
        }
        match found {
            CursorPosition::Unpositioned => self.skip_target.clone_from(&self.key),
            _ => put_successor(&mut self.skip_target, &self.key),
        }
        self.inner.record((&self.skip_target, &self.run_start), self.sequence, run.stepped());
        self.has_recorded_run = true;
    }

    /// Moves back over all versions of the key in the key buffer, from the oldest on, and buffers
    /// the newest that the reader sees.
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

#[cfg(test)]
mod tests;
