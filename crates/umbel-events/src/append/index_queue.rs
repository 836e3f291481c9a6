//! [`Queue`]: appends that are in the log and not in the index.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::changes::{Change, Changes};

/// How many groups that are done with are kept for others.
const SPARE: usize = 4;

/// Appends that are in the log and not in the index, one after the other.
#[derive(Debug, Default)]
pub struct Queued {
    /// The log must be durable below this position before anybody sees the last of them.
    pub end: u64,
    /// The position of their last event.
    pub position: u64,
    /// What they change in the index.
    pub changes: Changes,
}

/// Where a change stands in the queue. It is never given again.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    group: u64,
    change: usize,
}

/// All of them, in groups: whoever brings them into the index takes those that there are, and what
/// is appended meanwhile makes a group of its own.
#[derive(Debug, Default)]
pub struct Queue {
    taken: VecDeque<Arc<Queued>>,
    /// How many groups went before those.
    gone: u64,
    /// The group that the next append goes to. It counts where there are changes in it.
    pub open: Queued,
    spare: Vec<Queued>,
}

impl Queue {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.taken.is_empty() && self.open.changes.is_empty()
    }

    /// The groups, in order.
    pub fn groups(&self) -> impl DoubleEndedIterator<Item = &Queued> {
        let open = Some(&self.open).filter(|open| !open.changes.is_empty());
        self.taken.iter().map(|taken| &**taken).chain(open)
    }

    /// Where the next change will stand.
    pub fn next_place(&self) -> Place {
        let group = self.gone + self.taken.len() as u64;
        Place { group, change: self.open.changes.len() }
    }

    /// The stream of the change at this place, unless it is out of the queue.
    #[inline]
    pub fn stream(&self, place: Place) -> Option<&str> {
        let index = usize::try_from(place.group.checked_sub(self.gone)?).ok()?;
        let queued = if index == self.taken.len() { &self.open } else { self.taken.get(index)? };
        queued.changes.stream(place.change)
    }

    /// The changes from this place on, which is in the newest group.
    pub fn newest(&self, first: Place) -> impl Iterator<Item = (Place, Change<'_>)> {
        let places = (first.change..).map(move |change| Place { change, ..first });
        places.zip(self.open.changes.since(first.change))
    }

    /// Every group; they stay in the queue.
    pub fn take(&mut self) -> Vec<Arc<Queued>> {
        if !self.open.changes.is_empty() {
            let next = self.spare.pop().unwrap_or_default();
            self.taken.push_back(Arc::new(std::mem::replace(&mut self.open, next)));
        }
        self.taken.iter().cloned().collect()
    }

    /// Takes the first groups out of the queue, which were taken and are in the index.
    pub fn forget(&mut self, count: usize) {
        self.taken.drain(..count);
        self.gone += count as u64;
    }

    /// Keeps the memory of groups that are out of the queue, unless somebody has them still.
    pub fn reuse(&mut self, done: Vec<Arc<Queued>>) {
        for mut queued in done.into_iter().filter_map(Arc::into_inner) {
            if self.spare.len() < SPARE {
                queued.changes.clear();
                self.spare.push(queued);
            }
        }
    }
}
