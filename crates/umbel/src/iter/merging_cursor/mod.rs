//! [`MergingCursor`]: one cursor over overlapping sources.
//!
//! INVARIANT: `order` holds exactly the valid children, sorted by their entries in the direction of
//! iteration. `order[0]` is on the merge's entry. The other children are after that entry in the
//! direction of iteration, or on the same entry.
//!
//! With this order a step costs one comparison while the same child stays in front. In a store
//! whose last level holds nine tenths of the keys, the last level's child stays in front nearly
//! always. A comparison compares two numbers, unless the first eight bytes of both keys are equal.

use std::cmp::Ordering;

use umbel_base::{Cursor, Result, SequenceNumber, ValueKind, key_head};

use crate::iter::context_cursor::{ContextCursor, impl_cursor};
use crate::iter::key_head_prefix::SharedPrefix;

/// A valid child, with the first bytes of its current key as a number. Most comparisons need only
/// these numbers and do not read the children.
#[derive(Debug, Clone, Copy)]
struct ChildPosition {
    /// Number of the first bytes of the child's key, which ascends in the direction of iteration.
    head: u64,
    child: usize,
}

/// Cursor over all entries of all children in internal order.
///
/// Children are ordered newest source first. An entry that several children hold appears once, from
/// the first of these children.
#[derive(Debug)]
pub struct MergingCursor<C = Box<dyn Cursor>> {
    children: Vec<C>,
    order: Vec<ChildPosition>,
    backward: bool,
    /// Whether the first two children in `order` are on the same key.
    is_front_tied: bool,
    /// Whether the child in front has a limit for `try_next_visible`; always `false` while
    /// iterating backward.
    is_limited: bool,
    /// Common prefix of the keys of the first two children in `order`, when their heads were last
    /// equal. Empty when iterating backward.
    ///
    /// INVARIANT: `shared_prefix` is a prefix of a key at or before the key in front.
    shared_prefix: SharedPrefix,
    /// Key of the merge's entry, kept here while a reversal moves the children.
    reversal_key: Vec<u8>,
    /// Number of entries passed over because an earlier child has the same entry.
    skipped_copies: u64,
}

impl<C> MergingCursor<C> {
    /// Creates a merge of `children`, newest source first; the cursor is not valid until the first
    /// seek.
    pub fn new(children: Vec<C>) -> Self {
        let order = Vec::with_capacity(children.len());
        let turning_key = Vec::new();
        let shared = SharedPrefix::default();
        MergingCursor {
            children,
            order,
            backward: false,
            is_front_tied: false,
            is_limited: false,
            shared_prefix: shared,
            reversal_key: turning_key,
            skipped_copies: 0,
        }
    }

    /// Number of children.
    pub fn children(&self) -> usize {
        self.children.len()
    }

    /// Number by which a child on `key` is sorted, made from the key's head.
    #[inline]
    fn head(&self, key: &[u8]) -> u64 {
        if self.backward { !key_head(key) } else { self.shared_prefix.head(key) }
    }

    /// Refreshes the shared prefix if the heads of the first two children in `order` are equal.
    #[inline(never)]
    fn extend_shared_prefix<G: ?Sized>(&mut self)
    where
        C: ContextCursor<G>,
    {
        let [front, second, ..] = self.order[..] else { return };
        if self.backward || front.head != second.head {
            return;
        }
        let [front, second] = [front, second].map(|standing| self.children[standing.child].key());
        self.shared_prefix.set(front, second);
        for at in 0..self.order.len() {
            self.order[at].head = self.head(self.children[self.order[at].child].key());
        }
    }

    /// Compares the entries of two children in the direction of iteration, and returns also whether
    /// their keys are equal.
    #[inline]
    fn compare<G: ?Sized>(&self, a: ChildPosition, b: ChildPosition) -> (Ordering, bool)
    where
        C: ContextCursor<G>,
    {
        match a.head.cmp(&b.head) {
            Ordering::Equal => self.compare_keys(a, b),
            ordering => (ordering, false),
        }
    }

    #[inline(never)]
    fn compare_keys<G: ?Sized>(&self, a: ChildPosition, b: ChildPosition) -> (Ordering, bool)
    where
        C: ContextCursor<G>,
    {
        let (a, b) = (&self.children[a.child], &self.children[b.child]);
        let keys = a.key().cmp(b.key());
        // Within one key the greater sequence number comes first.
        let ordering = keys.then_with(|| b.sequence().cmp(&a.sequence()));
        let ordering = if self.backward { ordering.reverse() } else { ordering };
        (ordering, keys.is_eq())
    }

    /// Seeks every child with `seek`, and sorts the children for the given direction.
    fn seek_all<G: ?Sized>(
        &mut self,
        backward: bool,
        mut seek: impl FnMut(usize, &mut C) -> Result<()>,
    ) -> Result<()>
    where
        C: ContextCursor<G>,
    {
        self.order.clear();
        self.shared_prefix.clear();
        self.is_limited = false;
        self.backward = backward;
        for (index, child) in self.children.iter_mut().enumerate() {
            seek(index, child)?;
        }
        for child in (0..self.children.len()).rev() {
            if self.children[child].valid() {
                let head = self.head(self.children[child].key());
                self.order.insert(0, ChildPosition { head, child });
                self.sift_down(head);
            }
        }
        self.extend_shared_prefix();
        Ok(())
    }

    /// Moves the first child of `order`, which is now on a key with this `head`, to its place in
    /// `order`. Updates `is_front_tied`.
    #[inline]
    fn sift_down<G: ?Sized>(&mut self, head: u64)
    where
        C: ContextCursor<G>,
    {
        match self.order[..] {
            [ref mut front, second, ..] if head < second.head => {
                front.head = head;
                self.is_front_tied = false;
            }
            _ => self.sift_down_after(head),
        }
    }

    #[inline(never)]
    fn sift_down_after<G: ?Sized>(&mut self, head: u64)
    where
        C: ContextCursor<G>,
    {
        let moved = ChildPosition { head, child: self.order[0].child };
        let mut place = 0;
        while let Some(&next) = self.order.get(place + 1) {
            let goes_before = match moved.head.cmp(&next.head) {
                Ordering::Equal => {
                    let ordering = self.compare_keys(moved, next).0;
                    ordering.then_with(|| moved.child.cmp(&next.child)).is_lt()
                }
                ordering => ordering.is_lt(),
            };
            if goes_before {
                break;
            }
            self.order[place] = next;
            place += 1;
        }
        self.order[place] = moved;
        self.update_tie();
    }

    #[inline]
    fn extend_shared_prefix_if_tied<G: ?Sized>(&mut self)
    where
        C: ContextCursor<G>,
    {
        if let [front, second, ..] = self.order[..]
            && front.head == second.head
        {
            self.extend_shared_prefix();
        }
    }

    /// Sets `is_front_tied` by comparing the keys of the first two children in `order`.
    #[inline]
    fn update_tie<G: ?Sized>(&mut self)
    where
        C: ContextCursor<G>,
    {
        self.is_front_tied = match self.order[..] {
            [front, second, ..] => self.compare(front, second).1,
            _ => false,
        };
    }

    /// Reverses the direction: every child moves to its first entry beyond the current one in the
    /// new direction. The children seek instead of stepping because a memtable can have got new
    /// entries meanwhile.
    #[inline(never)]
    fn reverse<G: ?Sized>(&mut self, context: &G) -> Result<()>
    where
        C: ContextCursor<G>,
    {
        let current = self.order[0].child;
        let mut key = std::mem::take(&mut self.reversal_key);
        key.clear();
        key.extend_from_slice(self.children[current].key());
        let sequence = self.children[current].sequence();
        let backward = !self.backward;
        let turned = self.seek_all(backward, |index, child| {
            if index != current {
                child.seek(context, &key, sequence)?;
            }
            match (child.valid(), backward) {
                (true, true) => child.prev(context),
                (false, true) => child.seek_to_last(context),
                (true, false) if child.sequence() == sequence && child.key() == key => {
                    child.next(context)
                }
                (_, false) => Ok(()),
            }
        });
        self.reversal_key = key;
        turned
    }

    /// Steps the child in front by one entry and sorts it again. With `REPORT_REPEATS`, going
    /// forward, returns whether the new key in front equals the previous one.
    #[inline]
    fn step_front<G: ?Sized, const REPORT_REPEATS: bool>(&mut self, context: &G) -> Result<bool>
    where
        C: ContextCursor<G>,
    {
        self.is_limited = false;
        let child = self.order[0].child;
        let cursor = &mut self.children[child];
        let moved = if self.backward {
            if cursor.try_prev() { Ok(false) } else { cursor.prev(context).map(|()| false) }
        } else {
            match cursor.try_next() {
                Some(repeats) => Ok(repeats),
                None if REPORT_REPEATS => cursor.next_repeats(context),
                None => cursor.next(context).map(|()| false),
            }
        };
        let repeats = match moved {
            Ok(repeats) => repeats,
            Err(error) => {
                self.order.clear();
                return Err(error);
            }
        };
        let was_tied = self.is_front_tied;
        if !self.children[child].valid() {
            self.order.remove(0);
            self.update_tie();
            return Ok(was_tied);
        }
        let head = self.head(self.children[child].key());
        self.sift_down(head);
        self.extend_shared_prefix_if_tied();
        // The second child was compared with the front key before the step.
        Ok(if self.order[0].child == child { repeats } else { was_tied })
    }

    /// Moves like `step_all` if the child in front can step with the data at hand and no other
    /// child must step. Otherwise returns `None` and changes nothing.
    #[inline]
    fn try_step_front<G: ?Sized>(&mut self) -> Option<bool>
    where
        C: ContextCursor<G>,
    {
        if self.backward || self.is_front_tied {
            return None;
        }
        self.is_limited = false;
        let child = self.children.get_mut(self.order.first()?.child)?;
        let repeats = child.try_next()?;
        let head = self.shared_prefix.head(child.key());
        match &mut self.order[..] {
            [_, second, ..] if head >= second.head => Some(self.demote_front(head, repeats)),
            order => {
                order.first_mut()?.head = head;
                Some(repeats)
            }
        }
    }

    /// Moves the first child of `order` to its place, most probably after another child. REQUIRES:
    /// no other child was on the key that the first child left.
    #[inline(never)]
    fn demote_front<G: ?Sized>(&mut self, head: u64, repeats: bool) -> bool
    where
        C: ContextCursor<G>,
    {
        let child = self.order[0].child;
        self.sift_down_after(head);
        self.extend_shared_prefix_if_tied();
        repeats && self.order[0].child == child
    }

    /// Steps every other child that is on the same entry as the child in front, then the child in
    /// front.
    #[inline(never)]
    fn step_all<G: ?Sized, const REPORT_REPEATS: bool>(&mut self, context: &G) -> Result<bool>
    where
        C: ContextCursor<G>,
    {
        if self.is_front_tied {
            self.skip_tied(context)?;
        }
        self.step_front::<G, REPORT_REPEATS>(context)
    }

    /// Steps every other child that is on the same entry as the child in front, but not the child
    /// in front.
    #[inline(never)]
    fn skip_tied<G: ?Sized>(&mut self, context: &G) -> Result<()>
    where
        C: ContextCursor<G>,
    {
        // They are right after the front. Each is brought to the front, stepped and sorted again.
        // Then the old front is first again, because it has the least entry.
        while self.is_front_tied {
            let [front, second] = [0, 1].map(|at| self.children[self.order[at].child].sequence());
            if front != second {
                break;
            }
            self.order.swap(0, 1);
            self.step_front::<G, false>(context)?;
            self.skipped_copies += 1;
        }
        Ok(())
    }

    /// Sets the limit of `try_next_visible` of the child in front: the second child's key.
    #[inline(never)]
    fn limit_front<G: ?Sized>(&mut self)
    where
        C: ContextCursor<G>,
    {
        if self.backward {
            return;
        }
        match self.order[..] {
            [] => return,
            [front] => self.children[front.child].set_limit(None),
            [front, second, ..] => {
                let pair = self.children.get_disjoint_mut([front.child, second.child]);
                let Ok([front, second]) = pair else { return };
                front.set_limit(Some(second.key()));
            }
        }
        self.is_limited = true;
    }

    #[inline]
    fn front(&self) -> &C {
        &self.children[self.order[0].child]
    }
}

impl<G: ?Sized, C: ContextCursor<G>> ContextCursor<G> for MergingCursor<C> {
    fn seek_to_first(&mut self, context: &G) -> Result<()> {
        self.seek_all(false, |_, child| child.seek_to_first(context))
    }

    fn seek_to_last(&mut self, context: &G) -> Result<()> {
        self.seek_all(true, |_, child| child.seek_to_last(context))
    }

    fn seek(&mut self, context: &G, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        // If a call fails, no child may be stepped from its old position.
        self.order.clear();
        for child in &mut self.children {
            child.begin_seek(context, key, sequence)?;
        }
        for child in &mut self.children {
            child.prefetch_seek(context)?;
        }
        for child in &mut self.children {
            child.narrow_seek(context, key, sequence)?;
        }
        self.seek_all(false, |_, child| child.finish_seek(context, key, sequence))?;
        if !self.order.is_empty() {
            self.front().prefetch_entries();
        }
        Ok(())
    }

    fn seek_before(&mut self, context: &G, key: &[u8]) -> Result<()> {
        self.seek_all(true, |_, child| child.seek_before(context, key))
    }

    #[inline]
    fn next(&mut self, context: &G) -> Result<()> {
        if self.backward {
            return self.reverse(context);
        }
        if self.try_step_front().is_some() {
            return Ok(());
        }
        self.step_all::<G, false>(context).map(|_| ())
    }

    #[inline]
    fn next_repeats(&mut self, context: &G) -> Result<bool> {
        if self.backward {
            self.reverse(context)?;
            return Ok(self.order.first().is_some_and(|_| self.front().key() == self.reversal_key));
        }
        self.step_all::<G, true>(context)
    }

    #[inline]
    fn try_next(&mut self) -> Option<bool> {
        self.try_step_front()
    }

    /// The step leaves the front child's head outdated; it is refreshed before the next call that
    /// reads it.
    #[inline]
    fn try_next_visible(&mut self, sequence: SequenceNumber) -> bool {
        if !self.is_limited {
            self.limit_front();
        }
        let front = self.order.first().and_then(|front| self.children.get_mut(front.child));
        self.is_limited && front.is_some_and(|front| front.try_next_visible(sequence))
    }

    #[inline]
    fn prev(&mut self, context: &G) -> Result<()> {
        if !self.backward {
            return self.reverse(context);
        }
        self.step_all::<G, false>(context).map(|_| ())
    }

    fn skipped_copies(&self) -> u64 {
        self.skipped_copies
    }

    fn release(&mut self) {
        self.order.clear();
        self.is_limited = false;
        for child in &mut self.children {
            child.release();
        }
    }

    #[inline]
    fn valid(&self) -> bool {
        !self.order.is_empty()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.front().key()
    }

    #[inline]
    fn sequence(&self) -> SequenceNumber {
        self.front().sequence()
    }

    #[inline]
    fn kind(&self) -> ValueKind {
        self.front().kind()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.front().value()
    }
}

// A merge whose children own their data.
impl_cursor!(<C: ContextCursor<()>> MergingCursor<C>);

#[cfg(test)]
mod tests;
