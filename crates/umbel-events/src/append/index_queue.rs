//! [`IndexQueue`]: appends that are in the log but not in the index.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::index::index_changes::{IndexChanges, StreamChange};

/// Maximum number of indexed groups whose memory is kept for reuse.
const SPARE_GROUPS_MAX: usize = 4;

/// Consecutive appends that are in the log but not in the index.
#[derive(Debug, Default)]
pub struct QueuedAppends {
    /// Position after the last record. The log must be durable below this position before the last
    /// append becomes visible.
    pub end: u64,
    /// Position of the last event of these appends.
    pub position: u64,
    /// Index changes of these appends.
    pub changes: IndexChanges,
}

/// Place of a change in the queue, which is never reused.
#[derive(Debug, Clone, Copy)]
pub struct QueuePosition {
    group: u64,
    change: usize,
}

/// All queued appends, in groups. An indexing thread takes all groups in the queue; appends that
/// arrive meanwhile form a new group.
#[derive(Debug, Default)]
pub struct IndexQueue {
    taken: VecDeque<Arc<QueuedAppends>>,
    /// Number of groups that were removed from the queue so far.
    removed_groups: u64,
    /// Group that the next append joins. The open group is part of the queue once it has changes.
    pub open_group: QueuedAppends,
    spare: Vec<QueuedAppends>,
    /// Number of changes that were looked up.
    #[cfg(test)]
    pub looked_up: std::cell::Cell<u64>,
}

impl IndexQueue {
    /// Whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.taken.is_empty() && self.open_group.changes.is_empty()
    }

    /// Returns the groups, in order.
    pub fn groups(&self) -> impl DoubleEndedIterator<Item = &QueuedAppends> {
        let open = Some(&self.open_group).filter(|open| !open.changes.is_empty());
        self.taken.iter().map(|taken| &**taken).chain(open)
    }

    /// Place of the next change.
    pub fn next_position(&self) -> QueuePosition {
        let group = self.removed_groups + self.taken.len() as u64;
        QueuePosition { group, change: self.open_group.changes.len() }
    }

    /// Stream of the change at this place, unless it was removed from the queue.
    #[inline]
    pub fn stream(&self, place: QueuePosition) -> Option<&str> {
        self.group(place)?.changes.stream(place.change)
    }

    /// Change at this place, unless it was removed from the queue.
    pub fn change(&self, place: QueuePosition) -> Option<StreamChange<'_>> {
        #[cfg(test)]
        self.looked_up.set(self.looked_up.get() + 1);
        self.group(place)?.changes.get(place.change)
    }

    #[inline]
    fn group(&self, place: QueuePosition) -> Option<&QueuedAppends> {
        let index = usize::try_from(place.group.checked_sub(self.removed_groups)?).ok()?;
        if index == self.taken.len() {
            return Some(&self.open_group);
        }
        self.taken.get(index).map(|taken| &**taken)
    }

    /// Changes from the place `first` on. REQUIRES: `first` is in the open group.
    pub fn open_changes_from(
        &self,
        first: QueuePosition,
    ) -> impl Iterator<Item = (QueuePosition, StreamChange<'_>)> {
        let places = (first.change..).map(move |change| QueuePosition { change, ..first });
        places.zip(self.open_group.changes.changes_from(first.change))
    }

    /// Ends the open group: the next append begins another one.
    pub fn end_group(&mut self) {
        if !self.open_group.changes.is_empty() {
            let next = self.spare.pop().unwrap_or_default();
            self.taken.push_back(Arc::new(std::mem::replace(&mut self.open_group, next)));
        }
    }

    /// Returns the groups that end at or before the position `end`; the groups stay in the queue.
    pub fn take_groups(&mut self, end: u64) -> Vec<Arc<QueuedAppends>> {
        self.end_group();
        let count = self.taken.partition_point(|group| group.end <= end);
        self.taken.iter().take(count).cloned().collect()
    }

    /// Removes the first groups of the queue after they were indexed.
    pub fn remove_groups(&mut self, count: usize) {
        self.taken.drain(..count);
        self.removed_groups += count as u64;
    }

    /// Reuses the memory of removed groups, unless another thread still uses them.
    pub fn reuse_groups(&mut self, done: Vec<Arc<QueuedAppends>>) {
        for mut queued in done.into_iter().filter_map(Arc::into_inner) {
            if self.spare.len() < SPARE_GROUPS_MAX {
                queued.changes.clear();
                self.spare.push(queued);
            }
        }
    }
}
