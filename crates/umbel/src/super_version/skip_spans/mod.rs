//! [`SkipSpans`]: key ranges of a keyspace without visible keys, recorded by cursors that stepped
//! through the hidden entries in them. Later cursors skip these ranges, so that a queue's first
//! element stays cheap to find after many deletes.
//!
//! A span is proven at a sequence number if the state at that number has no key in the span, nor
//! has a later put. So a proven span is empty for every reader from that number on. A put's key is
//! cut out of the span before the put becomes visible.
//!
//! Spans come in three steps.
//! 1. A cursor records a range without visible keys. The range is not proven yet: a put after the
//!    cursor's sequence number can have a key in it.
//! 2. A thread with the commit lock arms the span: from then on puts cut their keys out of it. If
//!    no write followed the cursor's sequence number, the span is proven.
//! 3. Otherwise the span is proven by the next cursor that passes all of it, at the sequence number
//!    of the arming or a later one.
//!
//! Spans are kept in memory only, up to [`SPANS_MAX`] and [`KEY_BYTES_MAX`]. Beyond these limits
//! the spans with the fewest hidden entries are dropped.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};

use umbel_base::ignore_poison::IgnorePoison;
use umbel_base::{SequenceNumber, ValueKind, fail_point};

/// Maximum number of spans of a keyspace.
pub const SPANS_MAX: usize = 1024;
/// Maximum bytes of the keys that bound a keyspace's spans.
pub const KEY_BYTES_MAX: usize = 128 << 10;
/// After this number of puts without a skip between them all spans are dropped, since each put has
/// to search the spans.
const UNUSED_PUTS_MAX: u32 = 1 << 16;
/// Maximum number of recorded ranges that wait to be armed.
const PENDING_MAX: usize = 16;
/// Maximum length of a key that bounds a span.
const SPAN_KEY_BYTES_MAX: usize = 1 << 10;

/// Flag: the keyspace has armed spans.
const HAS_SPANS: u8 = 1;
/// Flag: recorded ranges wait to be armed.
const HAS_PENDING: u8 = 2;

/// Key ranges of a keyspace without visible keys, which cursors skip.
#[derive(Debug, Default)]
pub struct SkipSpans {
    flags: AtomicU8,
    /// Number of hidden entries that cursors stepped through in long runs.
    hidden_passed: AtomicU64,
    /// Memory of the spans, about.
    memory_bytes: AtomicU64,
    set: Mutex<SpanSet>,
}

/// State of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SpanState {
    /// Since this sequence number, puts cut their keys out of the span.
    Armed(SequenceNumber),
    /// The span is empty for readers from this sequence number on.
    Proven(SequenceNumber),
}

#[derive(Debug, Clone)]
struct Span {
    end: Vec<u8>,
    state: SpanState,
    /// Number of hidden entries in the span that a cursor stepped through.
    hidden: u32,
}

impl Span {
    /// Whether the span is proven for a reader at `sequence`.
    fn is_empty_at(&self, sequence: SequenceNumber) -> bool {
        matches!(self.state, SpanState::Proven(at) if at <= sequence)
    }
}

/// A recorded range that waits to be armed.
#[derive(Debug, Clone)]
struct PendingRange {
    start: Vec<u8>,
    end: Vec<u8>,
    sequence: SequenceNumber,
    hidden: u32,
}

/// Spans by start, without overlaps.
#[derive(Debug, Clone, Default)]
struct SpanSet {
    spans: BTreeMap<Vec<u8>, Span>,
    key_bytes: usize,
    pending: Vec<PendingRange>,
    /// Number of puts since a cursor last skipped a span.
    unused_puts: u32,
}

impl SkipSpans {
    fn lock(&self) -> MutexGuard<'_, SpanSet> {
        self.set.lock().ignore_poison()
    }

    /// Locks the spans, unless another thread has locked them. Readers never wait for the lock.
    fn try_lock(&self) -> Option<MutexGuard<'_, SpanSet>> {
        match self.set.try_lock() {
            Ok(set) => Some(set),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    #[inline]
    fn has(&self, flag: u8) -> bool {
        self.flags.load(Ordering::Relaxed) & flag != 0
    }

    fn update_flags(&self, set: &SpanSet) {
        let spans = if set.spans.is_empty() { 0 } else { HAS_SPANS };
        let pending = if set.pending.is_empty() { 0 } else { HAS_PENDING };
        self.flags.store(spans | pending, Ordering::Relaxed);
        let bytes = set.key_bytes + set.spans.len() * size_of::<(Vec<u8>, Span)>();
        self.memory_bytes.store(bytes as u64, Ordering::Relaxed);
    }

    /// Memory of the spans, about.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes.load(Ordering::Relaxed)
    }

    /// Whether writes must be passed to [`SkipSpans::note_write`].
    ///
    /// Threads arm spans under the commit lock, so the next writer sees the flag. A writer that
    /// does not see a recorded range yet leaves it to the next writer.
    #[inline]
    pub fn is_active(&self) -> bool {
        self.flags.load(Ordering::Relaxed) != 0
    }

    /// Arms recorded ranges, and cuts the key of a put out of the spans. REQUIRES: the caller holds
    /// the commit lock, and the write is not visible yet.
    #[cold]
    pub fn note_write(&self, key: &[u8], kind: ValueKind, sequence: SequenceNumber) {
        let is_put = kind != ValueKind::Delete;
        if !is_put && !self.has(HAS_PENDING) {
            return;
        }
        let mut set = self.lock();
        set.arm(sequence.saturating_sub(1));
        fail_point!("skip-spans-ignore-puts", |_| ());
        if is_put {
            set.cut(key);
            set.drop_unused();
        }
        self.update_flags(&set);
    }

    /// Arms recorded ranges. `last` is the sequence number of the last write. REQUIRES: the caller
    /// holds the commit lock.
    pub fn arm(&self, last: SequenceNumber) {
        if !self.has(HAS_PENDING) {
            return;
        }
        let Some(mut set) = self.try_lock() else { return };
        set.arm(last);
        self.update_flags(&set);
    }

    /// Writes to `target` the end of the proven spans around `key`, for a reader at `sequence`.
    pub fn skip_forward(&self, key: &[u8], sequence: SequenceNumber, target: &mut Vec<u8>) -> bool {
        if !self.has(HAS_SPANS) {
            return false;
        }
        self.try_lock()
            .is_some_and(|mut set| set.note_use(|set| set.skip_forward(key, sequence, target)))
    }

    /// Writes to `target` the start of the proven spans around `key`, for a reader at `sequence`.
    pub fn skip_backward(
        &self,
        key: &[u8],
        sequence: SequenceNumber,
        target: &mut Vec<u8>,
    ) -> bool {
        if !self.has(HAS_SPANS) {
            return false;
        }
        self.try_lock()
            .is_some_and(|mut set| set.note_use(|set| set.skip_backward(key, sequence, target)))
    }

    /// Records that a reader at `sequence` saw no key from `start` (inclusive) to `end`
    /// (exclusive), after it stepped through `hidden` hidden entries.
    pub fn record(&self, (start, end): (&[u8], &[u8]), sequence: SequenceNumber, hidden: u32) {
        let Some(mut set) = self.try_lock() else { return };
        set.record((start, end), sequence, hidden);
        self.update_flags(&set);
    }

    /// Adds `stepped` to the count of hidden entries that cursors stepped through.
    pub fn count_hidden(&self, stepped: u32) {
        self.hidden_passed.fetch_add(u64::from(stepped), Ordering::Relaxed);
    }

    /// Number of hidden entries that cursors stepped through in long runs.
    pub fn hidden_passed(&self) -> u64 {
        self.hidden_passed.load(Ordering::Relaxed)
    }

    /// Returns the number of spans, and the bytes of their keys.
    pub fn counts(&self) -> (usize, usize) {
        let set = self.lock();
        (set.spans.len(), set.key_bytes)
    }
}

impl SpanSet {
    fn insert(&mut self, start: Vec<u8>, span: Span) {
        self.key_bytes += start.len() + span.end.len();
        self.spans.insert(start, span);
    }

    fn remove(&mut self, start: &[u8]) -> Option<(Vec<u8>, Span)> {
        let (start, span) = self.spans.remove_entry(start)?;
        self.key_bytes -= start.len() + span.end.len();
        Some((start, span))
    }

    /// Counts a put, and drops all spans after many puts without a skip.
    fn drop_unused(&mut self) {
        self.unused_puts += 1;
        if self.unused_puts > UNUSED_PUTS_MAX {
            *self = SpanSet::default();
        }
    }

    /// Calls `skip`, and notes that a cursor used a span if `skip` found one.
    fn note_use(&mut self, skip: impl FnOnce(&SpanSet) -> bool) -> bool {
        let is_used = skip(self);
        if is_used {
            self.unused_puts = 0;
        }
        is_used
    }

    /// Returns the span that contains `key`.
    fn containing(&self, key: &[u8]) -> Option<(&Vec<u8>, &Span)> {
        let before = (Bound::Unbounded, Bound::Included(key));
        let (start, span) = self.spans.range::<[u8], _>(before).next_back()?;
        (key < span.end.as_slice()).then_some((start, span))
    }

    /// Divides the span that contains `key` into two at `key`.
    fn split_at(&mut self, key: &[u8]) {
        let Some((start, _)) = self.containing(key).filter(|(start, _)| start.as_slice() < key)
        else {
            return;
        };
        let start = start.clone();
        let Some((start, mut span)) = self.remove(&start) else { return };
        let hidden = span.hidden / 2;
        let end = std::mem::replace(&mut span.end, key.to_vec());
        self.insert(key.to_vec(), Span { end, hidden, ..span });
        self.insert(start, Span { hidden, ..span });
    }

    /// Takes `key` out of the span that contains it.
    fn cut(&mut self, key: &[u8]) {
        if self.containing(key).is_none() {
            return;
        }
        let start = shortened_end(key);
        self.split_at(start);
        let end = shortened_start(&[key, &[0]].concat()).map(Cow::into_owned);
        if let Some(end) = &end {
            self.split_at(end);
        }
        let end = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let cut = self.spans.range::<[u8], _>((Bound::Included(start), end));
        for start in cut.map(|(start, _)| start.clone()).collect::<Vec<_>>() {
            self.remove(&start);
        }
    }

    /// Returns the parts of a range that no span covers.
    fn gaps(&self, start: &[u8], end: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut gaps = Vec::new();
        let mut at = match self.containing(start) {
            Some((_, span)) => span.end.clone(),
            None => start.to_vec(),
        };
        while at.as_slice() < end {
            let next =
                self.spans.range::<[u8], _>((Bound::Included(&at[..]), Bound::Excluded(end)));
            let (gap_end, resume) = match next.into_iter().next() {
                Some((start, span)) => (start.clone(), span.end.clone()),
                None => (end.to_vec(), end.to_vec()),
            };
            if at < gap_end {
                gaps.push((at, gap_end));
            }
            at = resume;
        }
        gaps
    }

    fn record(&mut self, (start, end): (&[u8], &[u8]), sequence: SequenceNumber, hidden: u32) {
        let (Some(start), end) = (shortened_start(start), shortened_end(end)) else { return };
        let start = &*start;
        if start >= end {
            return;
        }
        self.split_at(start);
        self.split_at(end);
        for (_, span) in
            self.spans.range_mut::<[u8], _>((Bound::Included(start), Bound::Excluded(end)))
        {
            if matches!(span.state, SpanState::Armed(armed) if armed <= sequence) {
                span.state = SpanState::Proven(sequence);
            }
        }
        for (start, end) in self.gaps(start, end) {
            if self.pending.len() < PENDING_MAX {
                self.pending.push(PendingRange { start, end, sequence, hidden });
            }
        }
        self.join(start, end, sequence);
        self.evict();
    }

    fn arm(&mut self, last: SequenceNumber) {
        for range in std::mem::take(&mut self.pending) {
            let state = if range.sequence == last {
                SpanState::Proven(last)
            } else {
                SpanState::Armed(last)
            };
            for (start, end) in self.gaps(&range.start, &range.end) {
                self.insert(start, Span { end, state, hidden: range.hidden });
            }
            self.join(&range.start, &range.end, last);
        }
        self.evict();
    }

    /// Joins adjacent spans around a range.
    fn join(&mut self, start: &[u8], end: &[u8], sequence: SequenceNumber) {
        let before = self.spans.range::<[u8], _>((Bound::Unbounded, Bound::Excluded(start)));
        let first = before.into_iter().next_back().map_or(start, |(start, _)| start).to_vec();
        let around = (Bound::Included(&first[..]), Bound::Included(end));
        let starts: Vec<Vec<u8>> =
            self.spans.range::<[u8], _>(around).map(|(start, _)| start.clone()).collect();
        let mut left: Option<Vec<u8>> = None;
        for start in starts {
            let joined = left.as_ref().and_then(|left| {
                let (before, span) = (self.spans.get(left)?, self.spans.get(&start)?);
                let state = joined_state(before, span, sequence)?;
                (before.end == start).then_some(state)
            });
            let (Some(state), Some(left)) = (joined, left.as_ref()) else {
                left = Some(start);
                continue;
            };
            let (Some((_, span)), Some((left, before))) = (self.remove(&start), self.remove(left))
            else {
                continue;
            };
            let hidden = before.hidden.saturating_add(span.hidden);
            self.insert(left, Span { end: span.end, state, hidden });
        }
    }

    /// Drops the half of the spans with fewer hidden entries, if there are too many spans.
    fn evict(&mut self) {
        while self.spans.len() > SPANS_MAX || self.key_bytes > KEY_BYTES_MAX {
            let mut counts: Vec<u32> = self.spans.values().map(|span| span.hidden).collect();
            let mut dropped = counts.len().div_ceil(2);
            let median = *counts.select_nth_unstable(dropped - 1).1;
            self.spans.retain(|_, span| {
                let drops = span.hidden <= median && dropped > 0;
                dropped -= usize::from(drops);
                !drops
            });
            self.key_bytes =
                self.spans.iter().map(|(start, span)| start.len() + span.end.len()).sum();
        }
    }

    fn skip_forward(&self, key: &[u8], sequence: SequenceNumber, target: &mut Vec<u8>) -> bool {
        let Some((_, first)) = self.containing(key).filter(|(_, span)| span.is_empty_at(sequence))
        else {
            return false;
        };
        let mut end = &first.end;
        while let Some(next) = self.spans.get(end).filter(|span| span.is_empty_at(sequence)) {
            end = &next.end;
        }
        target.clear();
        target.extend_from_slice(end);
        true
    }

    fn skip_backward(&self, key: &[u8], sequence: SequenceNumber, target: &mut Vec<u8>) -> bool {
        let Some((mut start, _)) =
            self.containing(key).filter(|(_, span)| span.is_empty_at(sequence))
        else {
            return false;
        };
        let before = self.spans.range::<[u8], _>((Bound::Unbounded, Bound::Excluded(&start[..])));
        for (earlier, span) in before.rev() {
            if span.end != *start || !span.is_empty_at(sequence) {
                break;
            }
            start = earlier;
        }
        target.clear();
        target.extend_from_slice(start);
        true
    }
}

/// Returns the least key of [`SPAN_KEY_BYTES_MAX`] bytes at most that is not below `start`. `None`
/// if there is no such key.
fn shortened_start(start: &[u8]) -> Option<Cow<'_, [u8]>> {
    let Some(prefix) = start.get(..SPAN_KEY_BYTES_MAX).filter(|prefix| prefix.len() < start.len())
    else {
        return Some(Cow::Borrowed(start));
    };
    let last = prefix.iter().rposition(|&byte| byte < u8::MAX)?;
    let mut next = prefix[..=last].to_vec();
    next[last] += 1;
    Some(Cow::Owned(next))
}

/// Returns the greatest key of [`SPAN_KEY_BYTES_MAX`] bytes at most that is not above `end`, or a
/// lesser one.
fn shortened_end(end: &[u8]) -> &[u8] {
    &end[..end.len().min(SPAN_KEY_BYTES_MAX)]
}

/// Returns the state of two adjacent spans joined into one; `None` if they stay apart.
///
/// A joined span has no more hidden entries than writes came since it was proven. So the sizes of
/// adjacent spans grow geometrically with their age. A reader that began some writes ago steps
/// through at most as many hidden entries as writes came meanwhile.
fn joined_state(a: &Span, b: &Span, now: SequenceNumber) -> Option<SpanState> {
    if a.state == b.state {
        return Some(a.state);
    }
    let (SpanState::Proven(first), SpanState::Proven(second)) = (a.state, b.state) else {
        return None;
    };
    let at = first.max(second);
    let hidden = u64::from(a.hidden) + u64::from(b.hidden);
    (hidden <= now.saturating_sub(at)).then_some(SpanState::Proven(at))
}

#[cfg(test)]
mod tests;
