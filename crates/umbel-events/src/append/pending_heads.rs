//! [`PendingHeads`]: heads of streams with appends that are not in the index.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use crate::append::index_queue::{IndexQueue, QueuePosition, QueuedAppends};
use crate::index::index_changes::StreamChange;
use crate::index::stream_head::StreamHead;
use crate::primitives::prehashed_map::{PrehashedMap, PrehashedNameMap};

/// Heads of streams with appends that are not in the index. The names of the streams are not
/// copied: the queue holds the names.
///
/// INVARIANT: a stream is in `by_hash`, with the place of its newest append. A stream whose hash
/// another stream in `by_hash` has is in `hash_collisions` instead.
#[derive(Debug, Default)]
pub struct PendingHeads {
    by_hash: PrehashedMap<PendingStream>,
    hash_collisions: PrehashedNameMap<PendingStream>,
}

#[derive(Debug)]
struct PendingStream {
    head: StreamHead,
    /// Place of its newest append.
    newest: QueuePosition,
    /// Places of its earlier appends, in order. They take no memory for a stream with one append.
    earlier: VecDeque<QueuePosition>,
}

impl PendingStream {
    fn new(head: StreamHead, newest: QueuePosition) -> PendingStream {
        PendingStream { head, newest, earlier: VecDeque::new() }
    }

    fn update(&mut self, head: StreamHead, place: QueuePosition) {
        self.head = head;
        self.earlier.push_back(std::mem::replace(&mut self.newest, place));
    }

    /// Removes its oldest append. Returns whether that was the only one.
    fn remove_oldest(&mut self) -> bool {
        self.earlier.pop_front().is_none()
    }

    /// Returns the last append whose entries begin at or before this revision.
    fn place_of(&self, queue: &IndexQueue, revision: u64) -> Option<QueuePosition> {
        let begins_before = |place: &QueuePosition| {
            let entries = queue.change(*place).map_or(&[][..], |change| change.entries);
            // Only the first append of a stream can have none.
            entries.first().is_none_or(|(first, _)| *first <= revision)
        };
        if begins_before(&self.newest) {
            return Some(self.newest);
        }
        let next_index = self.earlier.partition_point(begins_before);
        self.earlier.get(next_index.checked_sub(1)?).copied()
    }
}

impl PendingHeads {
    /// Returns the head of the stream whose name has this hash.
    #[inline]
    pub fn head(&self, queue: &IndexQueue, hash: u64, stream: &str) -> Option<StreamHead> {
        self.pending(queue, hash, stream).map(|ahead| ahead.head)
    }

    #[inline]
    fn pending(&self, queue: &IndexQueue, hash: u64, stream: &str) -> Option<&PendingStream> {
        match self.by_hash.get(&hash) {
            Some(ahead) if queue.stream(ahead.newest) == Some(stream) => Some(ahead),
            _ => self.hash_collisions.get(hash, stream),
        }
    }

    /// Returns the position of the stream's event with this revision, if an append in the queue has
    /// it and it is not the stream's last event.
    pub fn position(
        &self,
        queue: &IndexQueue,
        hash: u64,
        stream: &str,
        revision: u64,
    ) -> Option<u64> {
        let place = self.pending(queue, hash, stream)?.place_of(queue, revision)?;
        // In order of revisions, with up to 100,000 entries of one append.
        let entries = queue.change(place)?.entries;
        let index = entries.binary_search_by_key(&revision, |(queued, _)| *queued).ok()?;
        Some(entries[index].1)
    }

    /// Records the newest changes of the queue, from the place `first` on.
    pub fn record_open_changes(&mut self, queue: &IndexQueue, first: QueuePosition) {
        for (place, change) in queue.open_changes_from(first) {
            let StreamChange { hash, stream, head, .. } = change;
            if let Some(other) = self.hash_collisions.get_mut(hash, stream) {
                other.update(head, place);
                continue;
            }
            match self.by_hash.entry(hash) {
                Entry::Vacant(vacant) => {
                    vacant.insert(PendingStream::new(head, place));
                }
                Entry::Occupied(held) if queue.stream(held.get().newest) == Some(stream) => {
                    held.into_mut().update(head, place);
                }
                Entry::Occupied(_) => {
                    self.hash_collisions.insert(hash, stream, PendingStream::new(head, place));
                }
            }
        }
    }

    /// Removes appends that are in the index, here and from the queue.
    ///
    /// REQUIRES: these appends are the first in the queue.
    pub fn remove_indexed(&mut self, queue: &mut IndexQueue, done: &[Arc<QueuedAppends>]) {
        for StreamChange { hash, stream, .. } in
            done.iter().flat_map(|queued| queued.changes.iter())
        {
            if let Some(other) = self.hash_collisions.get_mut(hash, stream) {
                if other.remove_oldest() {
                    self.hash_collisions.remove(hash, stream);
                }
            } else if let Entry::Occupied(mut held) = self.by_hash.entry(hash)
                && queue.stream(held.get().newest) == Some(stream)
                && held.get_mut().remove_oldest()
            {
                held.remove();
            }
        }
        queue.remove_groups(done.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(position: u64) -> StreamHead {
        StreamHead {
            id: 1,
            last_revision: 0,
            last_position: position,
            is_tombstoned: false,
            retention: None,
        }
    }

    fn append(
        ahead: &mut PendingHeads,
        queue: &mut IndexQueue,
        (hash, stream): (u64, &str),
        position: u64,
    ) {
        let first = queue.next_position();
        queue.open_group.changes.begin(stream, hash).finish(head(position), false);
        ahead.record_open_changes(queue, first);
    }

    fn forget(ahead: &mut PendingHeads, queue: &mut IndexQueue, done: Vec<Arc<QueuedAppends>>) {
        ahead.remove_indexed(queue, &done);
        queue.reuse_groups(done);
    }

    #[test]
    fn names_with_equal_hashes_are_distinct_in_any_order() {
        for order in [["a", "b"], ["b", "a"]] {
            let (mut ahead, mut queue) = (PendingHeads::default(), IndexQueue::default());
            let at = |ahead: &PendingHeads, queue: &IndexQueue, stream| {
                ahead.head(queue, 7, stream).map(|head| head.last_position)
            };
            append(&mut ahead, &mut queue, (7, order[0]), 96);
            let first = queue.take_groups(u64::MAX);
            append(&mut ahead, &mut queue, (7, order[1]), 104);
            append(&mut ahead, &mut queue, (9, "c"), 112);
            assert_eq!(at(&ahead, &queue, order[0]), Some(96));
            assert_eq!(at(&ahead, &queue, order[1]), Some(104));
            assert_eq!((at(&ahead, &queue, "c"), at(&ahead, &queue, "")), (None, None));
            forget(&mut ahead, &mut queue, first);
            assert_eq!(at(&ahead, &queue, order[0]), None);
            assert_eq!(at(&ahead, &queue, order[1]), Some(104));
            // The first stream returns, and both continue.
            append(&mut ahead, &mut queue, (7, order[0]), 120);
            append(&mut ahead, &mut queue, (7, order[1]), 128);
            let second = queue.take_groups(u64::MAX);
            append(&mut ahead, &mut queue, (7, order[0]), 136);
            assert_eq!(at(&ahead, &queue, order[0]), Some(136));
            assert_eq!(at(&ahead, &queue, order[1]), Some(128));
            forget(&mut ahead, &mut queue, second);
            assert_eq!(at(&ahead, &queue, order[0]), Some(136));
            assert_eq!(at(&ahead, &queue, order[1]), None);
            let third = queue.take_groups(u64::MAX);
            forget(&mut ahead, &mut queue, third);
            assert!(ahead.by_hash.is_empty() && queue.is_empty());
            assert_eq!(at(&ahead, &queue, order[0]), None);
        }
    }

    /// Regression: each event of a retry searched all queued appends. A retry of 100,000 events
    /// compared the name of its stream with that of each queued append, 100,000 times.
    #[test]
    fn queued_event_is_found_by_a_binary_search() {
        let (mut ahead, mut queue) = (PendingHeads::default(), IndexQueue::default());
        let (appends, events) = (1000_u64, 5_u64);
        for number in 0..appends {
            for other in 0..20 {
                let name = format!("other-{number}-{other}");
                append(&mut ahead, &mut queue, (1000 + number * 20 + other, &name), 8);
            }
            let first = queue.next_position();
            let mut change = queue.open_group.changes.begin("a", 7);
            // An append adds the last event before it, and all of its own but the last.
            let revisions = (number * events).saturating_sub(1)..(number + 1) * events - 1;
            revisions.for_each(|revision| change.add_entry(revision, 96 + revision * 8));
            change.finish(head(96), number == 0);
            ahead.record_open_changes(&queue, first);
            if number % 100 == 99 {
                queue.take_groups(u64::MAX);
            }
        }
        let before = queue.looked_up.get();
        let last = appends * events - 1;
        for revision in 0..last {
            let found = ahead.position(&queue, 7, "a", revision);
            assert_eq!(found, Some(96 + revision * 8), "{revision}");
        }
        assert_eq!(ahead.position(&queue, 7, "a", last), None, "the head has it");
        assert_eq!(ahead.position(&queue, 7, "b", 3), None);
        let looked_up = queue.looked_up.get() - before;
        assert!(looked_up <= 13 * (last + 2), "{looked_up} changes for {last} events");
        let done = queue.take_groups(u64::MAX);
        forget(&mut ahead, &mut queue, done);
        assert_eq!(ahead.position(&queue, 7, "a", 0), None);
        assert!(ahead.by_hash.is_empty() && queue.is_empty());
    }
}
