//! Many cursors as one: [`MergeCursor`] over sources that overlap.
//!
//! INVARIANT: `order` holds exactly the children that are valid, sorted in the direction of travel
//! by what they stand on, so that `order[0]` is what the merge stands on. All others stand behind
//! it in that direction, or, where two children hold the same entry, on it. Keeping them sorted
//! means that a step costs one comparison for as long as the same child stays in front, which is
//! nearly always so in a store whose last level holds nine tenths of the keys; and that comparison
//! is one of two numbers, unless the first eight bytes of both keys are the same.

use std::cmp::Ordering;

use umbel_base::{Cursor, Result, SequenceNumber, ValueKind};

use super::beginning::{Beginning, key_head};
use super::walker::{Walker, cursor_of_walker};

/// A valid child, with the first bytes of the key it stands on: most comparisons end there and
/// never ask the child.
#[derive(Debug, Clone, Copy)]
struct Standing {
    /// Ascends in the direction of travel.
    head: u64,
    child: usize,
}

/// All entries of all children in internal order.
///
/// Children come newest source first. An entry that several children hold shows once, as the
/// earliest of them has it.
#[derive(Debug)]
pub struct MergeCursor<C = Box<dyn Cursor>> {
    children: Vec<C>,
    order: Vec<Standing>,
    backward: bool,
    /// Whether the first two in `order` stand on the same key.
    twins: bool,
    /// Whether the child in front knows how far it may stride. Never while travelling backward.
    is_limited: bool,
    /// What the first two in `order` both began with when heads last could not tell them apart.
    /// Empty when travelling backward.
    ///
    /// INVARIANT: it begins a key at or before the front.
    shared: Beginning,
    /// The key the merge stood on while the children are being moved away from it.
    turning_key: Vec<u8>,
}

impl<C> MergeCursor<C> {
    /// A merge of `children`, newest source first; not valid until the first seek.
    pub fn new(children: Vec<C>) -> Self {
        let order = Vec::with_capacity(children.len());
        let turning_key = Vec::new();
        let shared = Beginning::default();
        MergeCursor {
            children,
            order,
            backward: false,
            twins: false,
            is_limited: false,
            shared,
            turning_key,
        }
    }

    /// How many children there are.
    pub fn children(&self) -> usize {
        self.children.len()
    }

    /// Where a child that stands on `key` belongs, as far as a number can say.
    #[inline]
    fn head(&self, key: &[u8]) -> u64 {
        if self.backward { !key_head(key) } else { self.shared.head(key) }
    }

    /// Sees to it that heads tell the first two apart, where they do not.
    #[inline(never)]
    fn share<G: ?Sized>(&mut self)
    where
        C: Walker<G>,
    {
        let [front, second, ..] = self.order[..] else { return };
        if self.backward || front.head != second.head {
            return;
        }
        let [front, second] = [front, second].map(|standing| self.children[standing.child].key());
        self.shared.set(front, second);
        for at in 0..self.order.len() {
            self.order[at].head = self.head(self.children[self.order[at].child].key());
        }
    }

    /// How what two children stand on compares in the direction of travel, and whether the keys
    /// are the same.
    #[inline]
    fn compare<G: ?Sized>(&self, a: Standing, b: Standing) -> (Ordering, bool)
    where
        C: Walker<G>,
    {
        match a.head.cmp(&b.head) {
            Ordering::Equal => self.compare_keys(a, b),
            ordering => (ordering, false),
        }
    }

    #[inline(never)]
    fn compare_keys<G: ?Sized>(&self, a: Standing, b: Standing) -> (Ordering, bool)
    where
        C: Walker<G>,
    {
        let (a, b) = (&self.children[a.child], &self.children[b.child]);
        let keys = a.key().cmp(b.key());
        // Of one key the greater number comes first.
        let ordering = keys.then_with(|| b.sequence().cmp(&a.sequence()));
        let ordering = if self.backward { ordering.reverse() } else { ordering };
        (ordering, keys.is_eq())
    }

    /// Seeks every child with `seek` and sorts them for travel in the direction given.
    fn seek_all<G: ?Sized>(
        &mut self,
        backward: bool,
        mut seek: impl FnMut(usize, &mut C) -> Result<()>,
    ) -> Result<()>
    where
        C: Walker<G>,
    {
        self.order.clear();
        self.shared.clear();
        self.is_limited = false;
        self.backward = backward;
        for (index, child) in self.children.iter_mut().enumerate() {
            seek(index, child)?;
        }
        for child in (0..self.children.len()).rev() {
            if self.children[child].valid() {
                let head = self.head(self.children[child].key());
                self.order.insert(0, Standing { head, child });
                self.sink(head);
            }
        }
        self.share();
        Ok(())
    }

    /// Sorts in the first of `order`, which now stands on a key with this head; sees to `twins`.
    #[inline]
    fn sink<G: ?Sized>(&mut self, head: u64)
    where
        C: Walker<G>,
    {
        match self.order[..] {
            [ref mut front, second, ..] if head < second.head => {
                front.head = head;
                self.twins = false;
            }
            _ => self.sink_behind(head),
        }
    }

    #[inline(never)]
    fn sink_behind<G: ?Sized>(&mut self, head: u64)
    where
        C: Walker<G>,
    {
        let moved = Standing { head, child: self.order[0].child };
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
        self.see_to_twins();
    }

    #[inline]
    fn share_if_alike<G: ?Sized>(&mut self)
    where
        C: Walker<G>,
    {
        if let [front, second, ..] = self.order[..]
            && front.head == second.head
        {
            self.share();
        }
    }

    /// Finds out whether the first two stand on the same key.
    #[inline]
    fn see_to_twins<G: ?Sized>(&mut self)
    where
        C: Walker<G>,
    {
        self.twins = match self.order[..] {
            [front, second, ..] => self.compare(front, second).1,
            _ => false,
        };
    }

    /// Leaves the entry stood on and travels the other way: every child is put on its first entry
    /// beyond it in the new direction. It seeks instead of stepping because a memtable may have
    /// got entries since.
    #[inline(never)]
    fn turn<G: ?Sized>(&mut self, ground: &G) -> Result<()>
    where
        C: Walker<G>,
    {
        let current = self.order[0].child;
        let mut key = std::mem::take(&mut self.turning_key);
        key.clear();
        key.extend_from_slice(self.children[current].key());
        let sequence = self.children[current].sequence();
        let backward = !self.backward;
        let turned = self.seek_all(backward, |index, child| {
            if index != current {
                child.seek(ground, &key, sequence)?;
            }
            match (child.valid(), backward) {
                (true, true) => child.prev(ground),
                (false, true) => child.seek_to_last(ground),
                (true, false) if child.sequence() == sequence && child.key() == key => {
                    child.next(ground)
                }
                (_, false) => Ok(()),
            }
        });
        self.turning_key = key;
        turned
    }

    /// Moves the child in front one entry on and sorts it in again. Says whether the key that is
    /// then in front is the one that was, where `ASKED` and travelling forward.
    #[inline]
    fn step_front<G: ?Sized, const ASKED: bool>(&mut self, ground: &G) -> Result<bool>
    where
        C: Walker<G>,
    {
        self.is_limited = false;
        let child = self.order[0].child;
        let cursor = &mut self.children[child];
        let moved = if self.backward {
            if cursor.step_back() { Ok(false) } else { cursor.prev(ground).map(|()| false) }
        } else {
            match cursor.step() {
                Some(repeats) => Ok(repeats),
                None if ASKED => cursor.next_repeats(ground),
                None => cursor.next(ground).map(|()| false),
            }
        };
        let repeats = match moved {
            Ok(repeats) => repeats,
            Err(error) => {
                self.order.clear();
                return Err(error);
            }
        };
        let twins = self.twins;
        if !self.children[child].valid() {
            self.order.remove(0);
            self.see_to_twins();
            return Ok(twins);
        }
        let head = self.head(self.children[child].key());
        self.sink(head);
        self.share_if_alike();
        // The one behind it was compared with the key that was in front, before that was left.
        Ok(if self.order[0].child == child { repeats } else { twins })
    }

    /// Moves as `step_all` where the child in front can step by itself and nothing else has to be
    /// seen to. `None`, and nothing changed, elsewhere.
    #[inline]
    fn step_quickly<G: ?Sized>(&mut self) -> Option<bool>
    where
        C: Walker<G>,
    {
        if self.backward || self.twins {
            return None;
        }
        self.is_limited = false;
        let child = self.children.get_mut(self.order.first()?.child)?;
        let repeats = child.step()?;
        let head = self.shared.head(child.key());
        match &mut self.order[..] {
            [_, second, ..] if head >= second.head => Some(self.fall_behind(head, repeats)),
            order => {
                order.first_mut()?.head = head;
                Some(repeats)
            }
        }
    }

    /// Sorts in the first of `order`, which nearly certainly is not the first any more. No other
    /// stood on the key that it left.
    #[inline(never)]
    fn fall_behind<G: ?Sized>(&mut self, head: u64, repeats: bool) -> bool
    where
        C: Walker<G>,
    {
        let child = self.order[0].child;
        self.sink_behind(head);
        self.share_if_alike();
        repeats && self.order[0].child == child
    }

    /// Steps every child that stands on the same entry as the one in front, then that one.
    #[inline(never)]
    fn step_all<G: ?Sized, const ASKED: bool>(&mut self, ground: &G) -> Result<bool>
    where
        C: Walker<G>,
    {
        if self.twins {
            self.pass_twins(ground)?;
        }
        self.step_front::<G, ASKED>(ground)
    }

    /// Moves on every child that stands on the same entry as the one in front, but not that one.
    #[inline(never)]
    fn pass_twins<G: ?Sized>(&mut self, ground: &G) -> Result<()>
    where
        C: Walker<G>,
    {
        // They stand right behind the front. Each is brought to the front, stepped and sorted in
        // again; the old front then stands in front of them all again, having the least entry.
        while self.twins {
            let [front, second] = [0, 1].map(|at| self.children[self.order[at].child].sequence());
            if front != second {
                break;
            }
            self.order.swap(0, 1);
            self.step_front::<G, false>(ground)?;
        }
        Ok(())
    }

    /// Tells the child in front how far it may stride: up to what stands second.
    #[inline(never)]
    fn limit_front<G: ?Sized>(&mut self)
    where
        C: Walker<G>,
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

impl<G: ?Sized, C: Walker<G>> Walker<G> for MergeCursor<C> {
    fn seek_to_first(&mut self, ground: &G) -> Result<()> {
        self.seek_all(false, |_, child| child.seek_to_first(ground))
    }

    fn seek_to_last(&mut self, ground: &G) -> Result<()> {
        self.seek_all(true, |_, child| child.seek_to_last(ground))
    }

    fn seek(&mut self, ground: &G, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        // No child may be stepped from where it stood before, should one of these fail.
        self.order.clear();
        for child in &mut self.children {
            child.aim(ground, key, sequence)?;
        }
        for child in &mut self.children {
            child.approach(ground)?;
        }
        for child in &mut self.children {
            child.reach(ground, key, sequence)?;
        }
        self.seek_all(false, |_, child| child.seek_aimed(ground, key, sequence))?;
        if !self.order.is_empty() {
            self.front().expect();
        }
        Ok(())
    }

    fn seek_before(&mut self, ground: &G, key: &[u8]) -> Result<()> {
        self.seek_all(true, |_, child| child.seek_before(ground, key))
    }

    #[inline]
    fn next(&mut self, ground: &G) -> Result<()> {
        if self.backward {
            return self.turn(ground);
        }
        if self.step_quickly().is_some() {
            return Ok(());
        }
        self.step_all::<G, false>(ground).map(|_| ())
    }

    #[inline]
    fn next_repeats(&mut self, ground: &G) -> Result<bool> {
        if self.backward {
            self.turn(ground)?;
            return Ok(self.order.first().is_some_and(|_| self.front().key() == self.turning_key));
        }
        self.step_all::<G, true>(ground)
    }

    #[inline]
    fn step(&mut self) -> Option<bool> {
        self.step_quickly()
    }

    /// The head of the one in front falls behind by it; nobody asks for that before it is taken
    /// anew.
    #[inline]
    fn stride(&mut self, sequence: SequenceNumber) -> bool {
        if !self.is_limited {
            self.limit_front();
        }
        let front = self.order.first().and_then(|front| self.children.get_mut(front.child));
        self.is_limited && front.is_some_and(|front| front.stride(sequence))
    }

    #[inline]
    fn prev(&mut self, ground: &G) -> Result<()> {
        if !self.backward {
            return self.turn(ground);
        }
        self.step_all::<G, false>(ground).map(|_| ())
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

// A merge whose children hold what they walk over.
cursor_of_walker!(<C: Walker<()>> MergeCursor<C>);
