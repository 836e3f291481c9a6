//! [`Ahead`]: the heads of streams with appends that are not in the index.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use crate::by_name::{ByHash, ByName};
use crate::changes::Change;
use crate::head::Head;
use crate::queued::{Place, Queue, Queued};

/// The heads of streams with appends that are not in the index. Their names are not copied: they
/// stand in the queue.
///
/// INVARIANT: a stream is in `by_hash`, with the place of its newest append, or in `others`, where
/// another one with the same hash was in `by_hash` when it came.
#[derive(Debug, Default)]
pub struct Ahead {
    by_hash: ByHash<(Stream, Place)>,
    others: ByName<Stream>,
}

#[derive(Debug, Clone, Copy)]
struct Stream {
    head: Head,
    appends: usize,
}

impl Stream {
    fn goes_on(&mut self, head: Head) {
        self.head = head;
        self.appends += 1;
    }
}

impl Ahead {
    /// The head of the stream whose name has this hash.
    #[inline]
    pub fn head(&self, queue: &Queue, hash: u64, stream: &str) -> Option<Head> {
        match self.by_hash.get(&hash) {
            Some((ahead, place)) if queue.stream(*place) == Some(stream) => Some(ahead.head),
            _ => self.others.get(hash, stream).map(|ahead| ahead.head),
        }
    }

    /// Notes the newest in the queue, from this place on.
    pub fn go_on(&mut self, queue: &Queue, first: Place) {
        for (place, change) in queue.newest(first) {
            let Change { hash, stream, head, .. } = change;
            if let Some(other) = self.others.get_mut(hash, stream) {
                other.goes_on(head);
                continue;
            }
            match self.by_hash.entry(hash) {
                Entry::Vacant(vacant) => {
                    vacant.insert((Stream { head, appends: 1 }, place));
                }
                Entry::Occupied(held) if queue.stream(held.get().1) == Some(stream) => {
                    let (ahead, at) = held.into_mut();
                    ahead.goes_on(head);
                    *at = place;
                }
                Entry::Occupied(_) => {
                    self.others.insert(hash, stream, Stream { head, appends: 1 });
                }
            }
        }
    }

    /// Forgets appends that are in the index.
    ///
    /// REQUIRES: they are the first in the queue, and there still.
    pub fn forget(&mut self, queue: &Queue, done: &[Arc<Queued>]) {
        for Change { hash, stream, .. } in done.iter().flat_map(|queued| queued.changes.iter()) {
            if let Some(other) = self.others.get_mut(hash, stream) {
                other.appends -= 1;
                if other.appends == 0 {
                    self.others.remove(hash, stream);
                }
            } else if let Entry::Occupied(mut held) = self.by_hash.entry(hash)
                && queue.stream(held.get().1) == Some(stream)
            {
                held.get_mut().0.appends -= 1;
                if held.get().0.appends == 0 {
                    held.remove();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(position: u64) -> Head {
        Head {
            id: 1,
            last_revision: 0,
            last_position: position,
            is_tombstoned: false,
            settings: None,
        }
    }

    fn append(ahead: &mut Ahead, queue: &mut Queue, (hash, stream): (u64, &str), position: u64) {
        let first = queue.next_place();
        queue.open.changes.begin(stream, hash).finish(head(position), false);
        ahead.go_on(queue, first);
    }

    fn forget(ahead: &mut Ahead, queue: &mut Queue, done: Vec<Arc<Queued>>) {
        ahead.forget(queue, &done);
        queue.forget(done.len());
        queue.reuse(done);
    }

    #[test]
    fn names_with_one_hash_are_told_apart_whichever_goes_first() {
        for order in [["a", "b"], ["b", "a"]] {
            let (mut ahead, mut queue) = (Ahead::default(), Queue::default());
            let at = |ahead: &Ahead, queue: &Queue, stream| {
                ahead.head(queue, 7, stream).map(|head| head.last_position)
            };
            append(&mut ahead, &mut queue, (7, order[0]), 96);
            let first = queue.take();
            append(&mut ahead, &mut queue, (7, order[1]), 104);
            append(&mut ahead, &mut queue, (9, "c"), 112);
            assert_eq!(at(&ahead, &queue, order[0]), Some(96));
            assert_eq!(at(&ahead, &queue, order[1]), Some(104));
            assert_eq!((at(&ahead, &queue, "c"), at(&ahead, &queue, "")), (None, None));
            forget(&mut ahead, &mut queue, first);
            assert_eq!(at(&ahead, &queue, order[0]), None);
            assert_eq!(at(&ahead, &queue, order[1]), Some(104));
            // The first comes back, and both go on.
            append(&mut ahead, &mut queue, (7, order[0]), 120);
            append(&mut ahead, &mut queue, (7, order[1]), 128);
            let second = queue.take();
            append(&mut ahead, &mut queue, (7, order[0]), 136);
            assert_eq!(at(&ahead, &queue, order[0]), Some(136));
            assert_eq!(at(&ahead, &queue, order[1]), Some(128));
            forget(&mut ahead, &mut queue, second);
            assert_eq!(at(&ahead, &queue, order[0]), Some(136));
            assert_eq!(at(&ahead, &queue, order[1]), None);
            let third = queue.take();
            forget(&mut ahead, &mut queue, third);
            assert!(ahead.by_hash.is_empty() && queue.is_empty());
            assert_eq!(at(&ahead, &queue, order[0]), None);
        }
    }
}
