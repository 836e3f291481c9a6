//! Scans: the cursor that lends, and the iterator that copies.

use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::sync::{Arc, OnceLock};

use umbel_base::{Error, Result, SequenceNumber};
use umbel_env::ProcessBound;
use umbel_filter::PrefixExtractor;

use crate::handle::Handle;
use crate::iter::mvcc::{Shown, VisibleCursor};
use crate::keyspace_core::KeyspaceCore;
use crate::memory::View;
use crate::snapshot::Snapshot;
use crate::sources::Bounds;
use crate::version::PrefixAsked;
use crate::view_cursor::{self, Reading, ViewCursor};

/// A cursor over the keys and values of a keyspace within bounds, as they were when it was made. It
/// lends what it stands on; see [`Iter`] for the copying convenience.
///
/// In a forked child seeks are refused; a step within what the cursor has in memory is right, and
/// one that would read a file is refused.
///
/// A fresh cursor stands nowhere: call [`DbCursor::seek_to_first`] or another seek first. After an
/// error it stays where it failed and answers with the error again until the next seek.
pub struct DbCursor {
    inner: ProcessBound<VisibleCursor<ViewCursor>>,
    /// The value stood on, where it lies in a file of its own and was asked for.
    fetched: OnceLock<Vec<u8>>,
    handle: Arc<Handle>,
    _snapshot: Option<Snapshot>,
}

impl DbCursor {
    pub(crate) fn new(
        handle: &Arc<Handle>,
        keyspace: &KeyspaceCore,
        bounds: Bounds,
        at: Option<&Snapshot>,
    ) -> Result<DbCursor> {
        handle.store.check_open()?;
        // The view first, the number second: see the invariant of `View`.
        let view = keyspace.view.hold();
        let present = || handle.store.snapshots.visible();
        let sequence = at.map_or_else(present, Snapshot::sequence);
        let asked = prefix_asked(handle, keyspace, &bounds);
        let reading = Reading { sequence, asked: asked.as_ref(), fill_cache: true };
        DbCursor::over(handle, view, bounds, reading, at.cloned())
    }

    /// As [`DbCursor::new`], in the present state, for whoever walks over much once.
    pub(crate) fn once(
        handle: &Arc<Handle>,
        keyspace: &KeyspaceCore,
        bounds: Bounds,
    ) -> Result<DbCursor> {
        handle.store.check_open()?;
        // The view first, the number second: see the invariant of `View`.
        let view = keyspace.view.hold();
        let sequence = handle.store.snapshots.visible();
        let reading = Reading { sequence, asked: None, fill_cache: false };
        DbCursor::over(handle, view, bounds, reading, None)
    }

    fn over(
        handle: &Arc<Handle>,
        view: Arc<View>,
        bounds: Bounds,
        reading: Reading<'_>,
        snapshot: Option<Snapshot>,
    ) -> Result<DbCursor> {
        let sequence = reading.sequence;
        let (merged, tombstones) = view_cursor::open(view, &bounds, reading)?;
        let ahead = if reading.fill_cache { 0 } else { handle.store.budget.sizes.ahead };
        let bytes = size_of::<DbCursor>() as u64 + merged.memory_bytes(ahead);
        let (lower, upper) = bounds;
        let mut inner = VisibleCursor::new(merged, sequence, tombstones, lower, upper);
        inner.count_in(handle.store.cache.cursors(), bytes);
        Ok(DbCursor {
            inner: ProcessBound::of(handle.store.open.process(), inner),
            fetched: OnceLock::new(),
            handle: Arc::clone(handle),
            _snapshot: snapshot,
        })
    }

    /// Moves to the first key within the bounds.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.handle.store.check_process()?;
        self.let_go();
        self.inner.seek_to_first()
    }

    /// Moves to the last key within the bounds.
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.handle.store.check_process()?;
        self.let_go();
        self.inner.seek_to_last()
    }

    /// Copies of the first key within the bounds and its value.
    pub(crate) fn into_first(mut self) -> Result<Option<Entry>> {
        self.seek_to_first()?;
        self.into_entry()
    }

    /// Copies of the last key within the bounds and its value.
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
        self.handle.store.check_process()?;
        self.let_go();
        self.inner.seek(key.as_ref())
    }

    /// Moves to the last key not greater than `key`.
    pub fn seek_for_prev(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.handle.store.check_process()?;
        self.let_go();
        self.inner.seek_for_prev(key.as_ref())
    }

    /// Moves to the next key. On a cursor that stands nowhere it does nothing; one that
    /// failed answers with its error again.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "it lends, which Iterator cannot")]
    pub fn next(&mut self) -> Result<()> {
        self.let_go();
        self.inner.next()
    }

    /// Moves to the previous key. On a cursor that stands nowhere it does nothing; one that
    /// failed answers with its error again.
    pub fn prev(&mut self) -> Result<()> {
        self.let_go();
        self.inner.prev()
    }

    /// Whether it stands on a key. `false` after the last key, before the first, and after an
    /// error.
    #[inline]
    pub fn valid(&self) -> bool {
        self.inner.valid()
    }

    /// The key it stands on; empty where it stands nowhere.
    #[inline]
    pub fn key(&self) -> &[u8] {
        if self.inner.valid() { self.inner.key() } else { &[] }
    }

    /// The value it stands on; empty where it stands nowhere. A value that lies in a file of its
    /// own is read when it is first asked for, and kept until the cursor moves.
    ///
    /// # Errors
    /// Only for such a value: `Corruption` that names its file, `Io` where it cannot be read,
    /// `Closed` after the store was closed.
    #[inline]
    pub fn value(&self) -> Result<&[u8]> {
        match self.inner.lent() {
            Some(value) => Ok(value),
            None => self.value_elsewhere(),
        }
    }

    #[inline(never)]
    fn value_elsewhere(&self) -> Result<&[u8]> {
        match self.inner.shown() {
            Shown::Value(value) => Ok(value),
            Shown::Nothing => Ok(&[]),
            Shown::Pointer(pointer) => self.fetch(pointer),
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

    /// As [`DbCursor::value`], for the caller to keep.
    fn owned_value(&mut self) -> Result<Vec<u8>> {
        match self.inner.shown() {
            Shown::Value(value) => Ok(value.to_vec()),
            Shown::Nothing => Ok(Vec::new()),
            Shown::Pointer(pointer) => match self.fetched.take() {
                Some(value) => Ok(value),
                None => self.handle.store.context.blobs.read_at(pointer),
            },
        }
    }

    /// Lets go of a value that was fetched, before the cursor moves.
    #[inline]
    fn let_go(&mut self) {
        if self.inner.is_on_pointer() {
            self.fetched = OnceLock::new();
        }
    }
}

impl Drop for DbCursor {
    fn drop(&mut self) {
        let cache = &self.handle.store.cache;
        if cache.cursors().is_tight() {
            // The others need not park for what this one held.
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

/// An iterator over copies of keys and values, from both ends. It ends after the first error.
#[derive(Debug)]
pub struct Iter {
    source: ProcessBound<Source>,
    front: End,
    back: End,
    /// Why there is nothing to iterate over; answered first.
    refused: Option<Error>,
    done: bool,
}

/// How an end is opened when it is first used.
#[derive(Debug)]
struct Source {
    handle: Arc<Handle>,
    // View and number are taken once, so that both ends see the same state, whenever they are
    // opened.
    view: Arc<View>,
    sequence: SequenceNumber,
    bounds: Bounds,
    snapshot: Option<Snapshot>,
    /// What prefix filters are asked, where all keys within the bounds begin alike.
    asked: Option<PrefixAsked>,
}

#[derive(Debug, Default)]
struct End {
    /// On the entry given last.
    cursor: Option<DbCursor>,
}

type Entry = (Vec<u8>, Vec<u8>);

impl Iter {
    pub(crate) fn new(
        handle: &Arc<Handle>,
        keyspace: &Arc<KeyspaceCore>,
        bounds: Bounds,
        at: Option<&Snapshot>,
    ) -> Iter {
        let refused = keyspace.check_not_dropped().err();
        // The view first, the number second: see the invariant of `View`.
        let view = keyspace.view.hold();
        let present = || handle.store.snapshots.visible();
        let sequence = at.map_or_else(present, Snapshot::sequence);
        let asked = prefix_asked(handle, keyspace, &bounds);
        let (handle, snapshot) = (Arc::clone(handle), at.cloned());
        let process = handle.store.open.process();
        let source = Source { handle, view, sequence, bounds, snapshot, asked };
        Iter {
            source: ProcessBound::of(process, source),
            front: End::default(),
            back: End::default(),
            refused,
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
        let stepped = match self.refused.take() {
            Some(refused) => Err(refused),
            None => self.step(forward),
        };
        self.done = !matches!(stepped, Ok(Some(_)));
        stepped.transpose()
    }
}

impl Source {
    fn open(&self) -> Result<DbCursor> {
        self.handle.store.check_open()?;
        let (view, bounds) = (Arc::clone(&self.view), self.bounds.clone());
        let (snapshot, asked) = (self.snapshot.clone(), self.asked.as_ref());
        let reading = Reading { sequence: self.sequence, asked, fill_cache: true };
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

/// What prefix filters are to be asked for a scan within `bounds`; `None` where keys have no
/// prefixes or those within the bounds do not begin alike.
fn prefix_asked(handle: &Handle, keyspace: &KeyspaceCore, bounds: &Bounds) -> Option<PrefixAsked> {
    let rule = keyspace.prefix()?;
    let hasher = handle.store.context.hashers.prefixes()?;
    let start = common_start(bounds)?;
    rule.shared(&start)?;
    let counters = Arc::clone(&keyspace.prefixes);
    Some(PrefixAsked { rule, hasher, start, counters })
}

/// What all keys within `bounds` begin with.
fn common_start(bounds: &Bounds) -> Option<Vec<u8>> {
    let (Bound::Included(from) | Bound::Excluded(from)) = &bounds.0 else { return None };
    if prefix_bounds(from).1 == bounds.1 {
        return Some(from.clone());
    }
    let (Bound::Included(to) | Bound::Excluded(to)) = &bounds.1 else { return None };
    // Where the one stands behind the other nothing lies within, and anything is true of it.
    let same = from.iter().zip(to).take_while(|(a, b)| a == b).count();
    Some(from[..same].to_vec())
}

/// Owned bounds out of whatever range the caller wrote.
pub fn owned_bounds<K: AsRef<[u8]>>(range: &impl RangeBounds<K>) -> Bounds {
    let own = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
    (own(range.start_bound()), own(range.end_bound()))
}

/// The bounds of the keys that begin with `prefix`.
pub fn prefix_bounds(prefix: &[u8]) -> Bounds {
    let mut behind = prefix.to_vec();
    // The last byte that can grow decides; without one nothing lies behind the prefix.
    while let Some(last) = behind.pop() {
        if last < u8::MAX {
            behind.push(last + 1);
            return (Bound::Included(prefix.to_vec()), Bound::Excluded(behind));
        }
    }
    (Bound::Included(prefix.to_vec()), Bound::Unbounded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_within_bounds_begin_with_their_common_start() {
        let start = |from: Bound<&[u8]>, to: Bound<&[u8]>| {
            common_start(&(from.map(<[u8]>::to_vec), to.map(<[u8]>::to_vec)))
        };
        let (from, to) = (Bound::Included(&b"user/7/a"[..]), Bound::Excluded(&b"user/7/k"[..]));
        assert_eq!(start(from, to).as_deref(), Some(&b"user/7/"[..]));
        assert_eq!(start(Bound::Unbounded, to), None);
        assert_eq!(start(from, Bound::Unbounded), None);
        for prefix in [&b"user/7/"[..], b"a\xff", b"\xff\xff"] {
            assert_eq!(common_start(&prefix_bounds(prefix)).as_deref(), Some(prefix));
        }
        assert_eq!(start(to, from).as_deref(), Some(&b"user/7/"[..]), "nothing lies within");
    }

    #[test]
    fn prefix_bounds_end_behind_the_prefix() {
        assert_eq!(prefix_bounds(b"ab").1, Bound::Excluded(b"ac".to_vec()));
        assert_eq!(prefix_bounds(b"a\xff").1, Bound::Excluded(b"b".to_vec()));
        assert_eq!(prefix_bounds(b"\xff\xff").1, Bound::Unbounded);
        assert_eq!(prefix_bounds(b"").1, Bound::Unbounded);
    }
}
