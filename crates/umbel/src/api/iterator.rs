//! Scans: a cursor that lends entries, and an iterator that copies entries.

use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::sync::{Arc, OnceLock};

use umbel_base::{Error, Result, SequenceNumber};
use umbel_env::ProcessOwned;
use umbel_filter::PrefixExtractor;

use crate::api::db_handle::DbHandle;
use crate::api::snapshot::Snapshot;
use crate::iter::mvcc_cursor::{VisibleCursor, VisibleValue};
use crate::state::keyspace_state::KeyspaceState;
use crate::super_version::SuperVersion;
use crate::super_version::sorted_runs::KeyBounds;
use crate::super_version::super_version_cursor::{self, ReadParams, SuperVersionCursor};
use crate::version::PrefixProbe;

/// Cursor over the keys and values of a keyspace within bounds, in the state of the keyspace at the
/// cursor's creation. The cursor lends its current entry; [`Iter`] copies entries and is more
/// convenient.
///
/// In a forked child seeks fail. There a step that needs only the cursor's memory returns the right
/// entry, and a step that would read a file fails.
///
/// A new cursor has no position: call [`DbCursor::seek_to_first`] or another seek first. After an
/// error the cursor does not move, and returns the same error until the next seek.
pub struct DbCursor {
    inner: ProcessOwned<VisibleCursor<SuperVersionCursor>>,
    /// The current value, if it is in a file of its own and was read.
    fetched: OnceLock<Vec<u8>>,
    handle: Arc<DbHandle>,
    _snapshot: Option<Snapshot>,
}

impl DbCursor {
    pub(crate) fn new(
        handle: &Arc<DbHandle>,
        keyspace: &KeyspaceState,
        bounds: KeyBounds,
        at: Option<&Snapshot>,
    ) -> Result<DbCursor> {
        handle.store.check_open()?;
        let (view, sequence) = state_at(handle, keyspace, at);
        let probe = prefix_probe(handle, keyspace, &bounds);
        let reading = ReadParams { sequence, prefix_probe: probe.as_ref(), fill_cache: true };
        DbCursor::over(handle, view, bounds, reading, at.cloned())
    }

    /// Like [`DbCursor::new`] in the present state, but for one scan of many entries, whose blocks
    /// are not cached.
    pub(crate) fn new_uncached(
        handle: &Arc<DbHandle>,
        keyspace: &KeyspaceState,
        bounds: KeyBounds,
    ) -> Result<DbCursor> {
        handle.store.check_open()?;
        let (view, sequence) = state_at(handle, keyspace, None);
        let reading = ReadParams { sequence, prefix_probe: None, fill_cache: false };
        DbCursor::over(handle, view, bounds, reading, None)
    }

    fn over(
        handle: &Arc<DbHandle>,
        view: Arc<SuperVersion>,
        bounds: KeyBounds,
        reading: ReadParams<'_>,
        snapshot: Option<Snapshot>,
    ) -> Result<DbCursor> {
        let sequence = reading.sequence;
        let (merged, has_tombstones) = super_version_cursor::open(view, &bounds, reading)?;
        let ahead = if reading.fill_cache { 0 } else { handle.store.budget.sizes.readahead };
        let bytes = size_of::<DbCursor>() as u64 + merged.memory_bytes(ahead);
        let (lower, upper) = bounds;
        let mut inner = VisibleCursor::new(merged, sequence, has_tombstones, lower, upper);
        inner.count_memory(handle.store.cache.cursors(), bytes);
        Ok(DbCursor {
            inner: ProcessOwned::of(handle.store.open.process(), inner),
            fetched: OnceLock::new(),
            handle: Arc::clone(handle),
            _snapshot: snapshot,
        })
    }

    /// Moves to the first key within the bounds.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.seek_with(|inner| inner.seek_to_first())
    }

    /// Moves to the last key within the bounds.
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.seek_with(|inner| inner.seek_to_last())
    }

    /// Returns copies of the first key within the bounds and its value.
    pub(crate) fn into_first(mut self) -> Result<Option<Entry>> {
        self.seek_to_first()?;
        self.into_entry()
    }

    /// Returns copies of the last key within the bounds and its value.
    pub(crate) fn into_last(mut self) -> Result<Option<Entry>> {
        self.seek_to_last()?;
        self.into_entry()
    }

    fn into_entry(mut self) -> Result<Option<Entry>> {
        if !self.valid() {
            return Ok(None);
        }
        let key = self.key().to_vec();
        Ok(Some((key, self.owned_value()?)))
    }

    /// Moves to the first key not less than `key`.
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.seek_with(|inner| inner.seek(key.as_ref()))
    }

    /// Moves to the last key not greater than `key`.
    pub fn seek_for_prev(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.seek_with(|inner| inner.seek_for_prev(key.as_ref()))
    }

    /// Moves to the next key. A cursor without a position does nothing; a cursor that failed
    /// returns its error again.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "it lends, which Iterator cannot")]
    pub fn next(&mut self) -> Result<()> {
        self.release();
        self.inner.next()
    }

    /// Moves to the previous key. A cursor without a position does nothing; a cursor that failed
    /// returns its error again.
    pub fn prev(&mut self) -> Result<()> {
        self.release();
        self.inner.prev()
    }

    /// Whether the cursor is on a key. `false` after the last key, before the first key, and after
    /// an error.
    #[inline]
    pub fn valid(&self) -> bool {
        self.inner.valid()
    }

    /// Current key; empty if the cursor has no position.
    #[inline]
    pub fn key(&self) -> &[u8] {
        if self.inner.valid() { self.inner.key() } else { &[] }
    }

    /// Current value; empty if the cursor has no position. A value in a file of its own is read by
    /// the first call, and kept until the cursor moves.
    ///
    /// # Errors
    /// Only for a value in a file of its own: `Corruption` with the file's name, `Io` if the file
    /// cannot be read, `Closed` after the store was closed.
    #[inline]
    pub fn value(&self) -> Result<&[u8]> {
        match self.inner.lent() {
            Some(value) => Ok(value),
            None => self.blob_value(),
        }
    }

    #[inline(never)]
    fn blob_value(&self) -> Result<&[u8]> {
        match self.inner.shown() {
            VisibleValue::Value(value) => Ok(value),
            VisibleValue::Unpositioned => Ok(&[]),
            VisibleValue::Pointer(pointer) => self.fetch(pointer),
        }
    }

    #[cold]
    fn fetch(&self, pointer: &[u8]) -> Result<&[u8]> {
        if let Some(value) = self.fetched.get() {
            return Ok(value);
        }
        let value = self.handle.store.context.blobs.read_at(pointer)?;
        Ok(self.fetched.get_or_init(|| value))
    }

    /// Like [`DbCursor::value`], but returns an owned copy.
    fn owned_value(&mut self) -> Result<Vec<u8>> {
        match self.inner.shown() {
            VisibleValue::Value(value) => Ok(value.to_vec()),
            VisibleValue::Unpositioned => Ok(Vec::new()),
            VisibleValue::Pointer(pointer) => match self.fetched.take() {
                Some(value) => Ok(value),
                None => self.handle.store.context.blobs.read_at(pointer),
            },
        }
    }

    /// Moves the cursor by a seek; fails in a forked child.
    #[inline]
    fn seek_with(
        &mut self,
        seek: impl FnOnce(&mut VisibleCursor<SuperVersionCursor>) -> Result<()>,
    ) -> Result<()> {
        self.handle.store.check_process()?;
        self.release();
        let moved = seek(&mut self.inner);
        self.arm_skip_spans();
        moved
    }

    /// Arms the skip spans for the run of hidden entries that the last movement recorded, unless a
    /// writer holds the lock.
    #[inline]
    fn arm_skip_spans(&mut self) {
        if self.inner.take_recorded_run() {
            self.handle.store.arm_skip_spans(self.inner.inner().skip_spans());
        }
    }

    /// Drops the current value if it was read from a file, before the cursor moves.
    #[inline]
    fn release(&mut self) {
        if self.inner.is_blob_pointer() {
            self.fetched = OnceLock::new();
        }
    }
}

impl Drop for DbCursor {
    fn drop(&mut self) {
        if !self.handle.store.open.is_forked() {
            self.arm_skip_spans();
        }
        let cache = &self.handle.store.cache;
        if cache.cursors().is_tight() {
            // The memory of this cursor no longer makes others park.
            self.inner.release();
            cache.note_cursors();
        }
    }
}

impl fmt::Debug for DbCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DbCursor").field("valid", &self.valid()).finish_non_exhaustive()
    }
}

/// The super version and the sequence number for a read at `snapshot`, or of the present state
/// without a snapshot.
fn state_at(
    handle: &DbHandle,
    keyspace: &KeyspaceState,
    at: Option<&Snapshot>,
) -> (Arc<SuperVersion>, SequenceNumber) {
    match at {
        Some(snapshot) => (keyspace.super_version.acquire(), snapshot.sequence()),
        None => keyspace.super_version.acquire_present(|| handle.store.snapshots.visible()),
    }
}

/// Iterator over copies of keys and values, from both ends. After the first error the iterator
/// ends.
#[derive(Debug)]
pub struct Iter {
    source: ProcessOwned<IterSource>,
    front: IterEnd,
    back: IterEnd,
    /// Error of the iterator's creation, which the first call of `next` or `next_back` returns.
    error: Option<Error>,
    done: bool,
}

/// Data from which each end of the iterator opens its cursor at its first use.
#[derive(Debug)]
struct IterSource {
    handle: Arc<DbHandle>,
    // Super version and sequence number are taken once, so that both ends see the same state
    // whenever they are opened.
    super_version: Arc<SuperVersion>,
    sequence: SequenceNumber,
    bounds: KeyBounds,
    snapshot: Option<Snapshot>,
    /// Probe of prefix filters, if all keys within the bounds share a prefix.
    prefix_probe: Option<PrefixProbe>,
}

#[derive(Debug, Default)]
struct IterEnd {
    /// Cursor on the entry that this end of the iterator returned last.
    cursor: Option<DbCursor>,
}

type Entry = (Vec<u8>, Vec<u8>);

impl Iter {
    pub(crate) fn new(
        handle: &Arc<DbHandle>,
        keyspace: &Arc<KeyspaceState>,
        bounds: KeyBounds,
        at: Option<&Snapshot>,
    ) -> Iter {
        let refused = keyspace.check_not_dropped().err();
        let (view, sequence) = state_at(handle, keyspace, at);
        let probe = prefix_probe(handle, keyspace, &bounds);
        let (handle, snapshot) = (Arc::clone(handle), at.cloned());
        let process = handle.store.open.process();
        let source = IterSource {
            handle,
            super_version: view,
            sequence,
            bounds,
            snapshot,
            prefix_probe: probe,
        };
        Iter {
            source: ProcessOwned::of(process, source),
            front: IterEnd::default(),
            back: IterEnd::default(),
            error: refused,
            done: false,
        }
    }

    fn step(&mut self, forward: bool) -> Result<Option<Entry>> {
        let (end, other) = match forward {
            true => (&mut self.front, &self.back),
            false => (&mut self.back, &self.front),
        };
        let cursor = match &mut end.cursor {
            Some(cursor) => {
                if forward {
                    cursor.next()?
                } else {
                    cursor.prev()?
                }
                cursor
            }
            None => {
                let cursor = end.cursor.insert(self.source.open()?);
                if forward {
                    cursor.seek_to_first()?
                } else {
                    cursor.seek_to_last()?
                }
                cursor
            }
        };
        if !cursor.valid() {
            return Ok(None);
        }
        let met = other.cursor.as_ref().is_some_and(|other| match forward {
            true => cursor.key() >= other.key(),
            false => cursor.key() <= other.key(),
        });
        if met {
            return Ok(None);
        }
        Ok(Some((cursor.key().to_vec(), cursor.owned_value()?)))
    }

    fn advance(&mut self, forward: bool) -> Option<Result<Entry>> {
        if self.done {
            return None;
        }
        let stepped = match self.error.take() {
            Some(refused) => Err(refused),
            None => self.step(forward),
        };
        self.done = !matches!(stepped, Ok(Some(_)));
        stepped.transpose()
    }
}

impl IterSource {
    fn open(&self) -> Result<DbCursor> {
        self.handle.store.check_open()?;
        let (view, bounds) = (Arc::clone(&self.super_version), self.bounds.clone());
        let (snapshot, probe) = (self.snapshot.clone(), self.prefix_probe.as_ref());
        let reading = ReadParams { sequence: self.sequence, prefix_probe: probe, fill_cache: true };
        DbCursor::over(&self.handle, view, bounds, reading, snapshot)
    }
}

impl Iterator for Iter {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        self.advance(true)
    }
}

impl DoubleEndedIterator for Iter {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.advance(false)
    }
}

/// Probe of prefix filters for a scan within `bounds`. `None` if the keyspace has no prefixes, or
/// the keys within `bounds` do not share a prefix.
fn prefix_probe(
    handle: &DbHandle,
    keyspace: &KeyspaceState,
    bounds: &KeyBounds,
) -> Option<PrefixProbe> {
    let rule = keyspace.prefix()?;
    let hasher = handle.store.context.hashers.prefixes()?;
    let start = common_prefix(bounds)?;
    rule.shared(&start)?;
    let counters = Arc::clone(&keyspace.prefixes);
    Some(PrefixProbe { rule, hasher, start, counters })
}

/// Common prefix of all keys within `bounds`.
fn common_prefix(bounds: &KeyBounds) -> Option<Vec<u8>> {
    let (Bound::Included(from) | Bound::Excluded(from)) = &bounds.0 else { return None };
    if prefix_bounds(from).1 == bounds.1 {
        return Some(from.clone());
    }
    let (Bound::Included(to) | Bound::Excluded(to)) = &bounds.1 else { return None };
    // Where the start is after the end the range is empty, and any prefix is right.
    let same = from.iter().zip(to).take_while(|(a, b)| a == b).count();
    Some(from[..same].to_vec())
}

/// Converts a caller's range to owned bounds.
pub fn owned_bounds<K: AsRef<[u8]>>(range: &impl RangeBounds<K>) -> KeyBounds {
    let own = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
    (own(range.start_bound()), own(range.end_bound()))
}

/// Bounds of the keys that begin with `prefix`.
pub fn prefix_bounds(prefix: &[u8]) -> KeyBounds {
    let mut end = prefix.to_vec();
    // The last byte that can grow decides. Without one, no key sorts after the prefix's keys.
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return (Bound::Included(prefix.to_vec()), Bound::Excluded(end));
        }
    }
    (Bound::Included(prefix.to_vec()), Bound::Unbounded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_in_bounds_have_their_common_prefix() {
        let start = |from: Bound<&[u8]>, to: Bound<&[u8]>| {
            common_prefix(&(from.map(<[u8]>::to_vec), to.map(<[u8]>::to_vec)))
        };
        let (from, to) = (Bound::Included(&b"user/7/a"[..]), Bound::Excluded(&b"user/7/k"[..]));
        assert_eq!(start(from, to).as_deref(), Some(&b"user/7/"[..]));
        assert_eq!(start(Bound::Unbounded, to), None);
        assert_eq!(start(from, Bound::Unbounded), None);
        for prefix in [&b"user/7/"[..], b"a\xff", b"\xff\xff"] {
            assert_eq!(common_prefix(&prefix_bounds(prefix)).as_deref(), Some(prefix));
        }
        assert_eq!(start(to, from).as_deref(), Some(&b"user/7/"[..]), "the range is empty");
    }

    #[test]
    fn prefix_bounds_end_after_the_prefix() {
        assert_eq!(prefix_bounds(b"ab").1, Bound::Excluded(b"ac".to_vec()));
        assert_eq!(prefix_bounds(b"a\xff").1, Bound::Excluded(b"b".to_vec()));
        assert_eq!(prefix_bounds(b"\xff\xff").1, Bound::Unbounded);
        assert_eq!(prefix_bounds(b"").1, Bound::Unbounded);
    }
}
