//! [`PendingHeads`]: heads of streams with appends that are not in the index.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use crate::append::index_queue::{IndexQueue, QueuePosition, QueuedAppends};
use crate::index::index_changes::StreamChange;
use crate::index::stream_head::StreamHead;
use crate::primitives::prehashed_map::{PrehashedMap, PrehashedNameMap};

/// Heads of streams with appends that are not in the index. The names are not copied: the queue
/// holds them.
///
/// INVARIANT: a stream is in `by_hash`, with the place of its newest append, or in
/// `hash_collisions`, where another stream with its hash was in `by_hash` first.
#[derive(Debug, Default)]
pub struct PendingHeads {
    by_hash: PrehashedMap<(PendingStream, QueuePosition)>,
    hash_collisions: PrehashedNameMap<PendingStream>,
}

#[derive(Debug, Clone, Copy)]
struct PendingStream {
    head: StreamHead,
    pending_appends: usize,
}

impl PendingStream {
    fn update(&mut self, head: StreamHead) {
        self.head = head;
        self.pending_appends += 1;
    }
}

impl PendingHeads {
    /// Returns the head of the stream whose name has this hash.
    #[inline]
    pub fn head(&self, queue: &IndexQueue, hash: u64, stream: &str) -> Option<StreamHead> {
        match self.by_hash.get(&hash) {
            Some((ahead, place)) if queue.stream(*place) == Some(stream) => Some(ahead.head),
            _ => self.hash_collisions.get(hash, stream).map(|ahead| ahead.head),
        }
    }

    /// Records the newest changes of the queue, from this place on.
    pub fn record_open_changes(&mut self, queue: &IndexQueue, first: QueuePosition) {
        for (place, change) in queue.open_changes_from(first) {
            let StreamChange { hash, stream, head, .. } = change;
            if let Some(other) = self.hash_collisions.get_mut(hash, stream) {
                other.update(head);
                continue;
            }
            match self.by_hash.entry(hash) {
                Entry::Vacant(vacant) => {
                    vacant.insert((PendingStream { head, pending_appends: 1 }, place));
                }
                Entry::Occupied(held) if queue.stream(held.get().1) == Some(stream) => {
                    let (ahead, at) = held.into_mut();
                    ahead.update(head);
                    *at = place;
                }
                Entry::Occupied(_) => {
                    self.hash_collisions.insert(
                        hash,
                        stream,
                        PendingStream { head, pending_appends: 1 },
                    );
                }
            }
        }
    }

    /// Removes appends that are in the index, here and from the queue.
    ///
    /// REQUIRES: they are the first in the queue.
    pub fn remove_indexed(&mut self, queue: &mut IndexQueue, done: &[Arc<QueuedAppends>]) {
        for StreamChange { hash, stream, .. } in
            done.iter().flat_map(|queued| queued.changes.iter())
        {
            if let Some(other) = self.hash_collisions.get_mut(hash, stream) {
                other.pending_appends -= 1;
                if other.pending_appends == 0 {
                    self.hash_collisions.remove(hash, stream);
                }
            } else if let Entry::Occupied(mut held) = self.by_hash.entry(hash)
                && queue.stream(held.get().1) == Some(stream)
            {
                held.get_mut().0.pending_appends -= 1;
                if held.get().0.pending_appends == 0 {
                    held.remove();
                }
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
            let first = queue.take_groups();
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
            let second = queue.take_groups();
            append(&mut ahead, &mut queue, (7, order[0]), 136);
            assert_eq!(at(&ahead, &queue, order[0]), Some(136));
            assert_eq!(at(&ahead, &queue, order[1]), Some(128));
            forget(&mut ahead, &mut queue, second);
            assert_eq!(at(&ahead, &queue, order[0]), Some(136));
            assert_eq!(at(&ahead, &queue, order[1]), None);
            let third = queue.take_groups();
            forget(&mut ahead, &mut queue, third);
            assert!(ahead.by_hash.is_empty() && queue.is_empty());
            assert_eq!(at(&ahead, &queue, order[0]), None);
        }
    }
}
