//! The tree: the way from the root to a leaf, for readers beside the writer and for the writer.
//!
//! The node module has the protocol. The root pointer plays the parent of the root node: a new
//! root is published before the old one is split, and a reader that has read the root node's
//! version looks whether it still is the root.

use crate::arena::Arena;
use crate::entry::{Entry, Target, write_entry};
use crate::filter::Growth;
use crate::node::{Bound, Node, Reading};
use crate::sync::{AtomicPtr, Ordering, pause};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::AtomicUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};
use umbel_base::{SequenceNumber, ValueKind};

/// How many entries ahead of a cursor are fetched: about a memory latency's worth of steps.
const PREFETCH_DISTANCE: usize = 8;

/// An ordered map of entries. Whatever it lends lives as long as the borrow of the tree.
pub(crate) struct Tree {
    /// Null until the first insert; leads into `side`'s node arena.
    root: AtomicPtr<Node>,
    side: WriterSide,
}

/// What the writer changes with each insert. On lines of its own (the hardware fetches them by
/// twos), or else each insert would take the root from the readers.
#[repr(align(128))]
struct WriterSide {
    /// Whoever holds it is the one writer.
    state: Mutex<State>,
    /// Bytes of the arenas in use.
    bytes: AtomicUsize,
    /// Bytes the arenas have taken.
    memory_bytes: AtomicUsize,
    /// How many entries there are.
    entries: AtomicUsize,
}

/// What only the writer may touch.
#[derive(Default)]
struct State {
    arenas: Arenas,
    growth: Growth,
}

/// Where entries and nodes live. Apart, so that the nodes, which are visited more often, share
/// few pages.
#[derive(Default)]
struct Arenas {
    entries: Arena,
    nodes: Arena,
}

/// The right to write, while it lives.
pub(crate) struct Writer<'a> {
    tree: &'a Tree,
    state: MutexGuard<'a, State>,
}

/// An entry, and where in the tree it was when last seen.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    leaf: Reading<'a>,
    index: usize,
    entry: Entry<'a>,
}

impl<'a> Place<'a> {
    /// The entry.
    #[inline]
    pub(crate) fn entry(&self) -> Entry<'a> {
        self.entry
    }
}

impl Tree {
    /// A tree without entries, which takes no memory but its own.
    pub(crate) fn new() -> Tree {
        let side = WriterSide {
            state: Mutex::default(),
            bytes: AtomicUsize::new(0),
            memory_bytes: AtomicUsize::new(0),
            entries: AtomicUsize::new(0),
        };
        Tree { root: AtomicPtr::new(null_mut()), side }
    }

    /// How many entries there are.
    pub(crate) fn entries(&self) -> usize {
        self.side.entries.load(Ordering::Acquire)
    }

    /// Bytes that entries and nodes take; none while there are no entries.
    pub(crate) fn bytes(&self) -> usize {
        self.side.bytes.load(Ordering::Relaxed)
    }

    /// Bytes that the arenas have taken, what they keep for the next entries included.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.side.memory_bytes.load(Ordering::Relaxed)
    }

    /// Waits until no other thread writes.
    pub(crate) fn writer(&self) -> Writer<'_> {
        // A writer that panicked did so over a limit, before it had touched the tree.
        let state = self.side.state.lock().unwrap_or_else(PoisonError::into_inner);
        Writer { tree: self, state }
    }

    /// The root; none before the first insert.
    #[inline]
    fn root(&self) -> Option<&Node> {
        // SAFETY: null, or stored with release after the node was written; the arena that it leads
        // into lives as long as the tree.
        unsafe { self.root.load(Ordering::Acquire).as_ref() }
    }

    /// The leaf that `child_of` leads to, which chooses a child in each inner node. None before
    /// the first insert.
    #[inline]
    fn leaf(&self, child_of: impl Fn(&Reading<'_>) -> Option<usize>) -> Option<Reading<'_>> {
        loop {
            if let Some(leaf) = self.try_leaf(self.root()?, &child_of) {
                return Some(leaf);
            }
            pause(0);
        }
    }

    /// As `leaf`, from the root on; `None` where the writer got in between.
    #[inline]
    fn try_leaf<'a>(
        &'a self,
        root: &'a Node,
        child_of: &impl Fn(&Reading<'_>) -> Option<usize>,
    ) -> Option<Reading<'a>> {
        let mut reading = root.read();
        if !self.root().is_some_and(|now| std::ptr::eq(root, now)) {
            return None;
        }
        while !reading.is_leaf() {
            let child = reading.child(child_of(&reading)?)?;
            reading.prefetch_child(child);
            let child = child.read();
            if !reading.is_valid() {
                return None;
            }
            reading = child;
        }
        Some(reading)
    }

    /// The first entry at or behind `target`.
    #[inline]
    pub(crate) fn find(&self, target: Target<'_>) -> Option<Entry<'_>> {
        loop {
            let leaf = self.leaf(|node| node.rank(target, Bound::UpTo))?;
            if let Some(index) = leaf.rank(target, Bound::Before) {
                let entry = leaf.entry_or_high(index);
                if leaf.is_valid() {
                    return entry;
                }
            }
            pause(0);
        }
    }

    /// The place of the first entry behind `target`, or also at it with [`Bound::Before`]: of the
    /// first that `bound` does not count.
    pub(crate) fn seek(&self, target: Target<'_>, bound: Bound) -> Option<Place<'_>> {
        let (mut target, mut bound) = (target, bound);
        loop {
            let leaf = self.leaf(|node| node.rank(target, Bound::UpTo))?;
            let index = leaf.rank(target, bound);
            let entry = index.and_then(|index| leaf.entry_or_high(index));
            let Some(index) = index.filter(|_| leaf.is_valid()) else {
                pause(0);
                continue;
            };
            let entry = entry?;
            if index < leaf.count() {
                return Some(Place { leaf, index, entry });
            }
            // The entry is the first of the next leaf: go there.
            (target, bound) = (entry.target(), Bound::Before);
        }
    }

    /// The place of the last entry before `target`.
    pub(crate) fn seek_before(&self, target: Target<'_>) -> Option<Place<'_>> {
        loop {
            let leaf = self.leaf(|node| node.rank(target, Bound::Before))?;
            let rank = leaf.rank(target, Bound::Before);
            if let Some(found) = rank.and_then(|rank| Tree::place_before(leaf, rank)) {
                return found;
            }
            pause(0);
        }
    }

    /// The place of the last entry.
    pub(crate) fn last(&self) -> Option<Place<'_>> {
        loop {
            let leaf = self.leaf(|node| Some(node.count()))?;
            if let Some(found) = Tree::place_before(leaf, leaf.count()) {
                return found;
            }
            pause(0);
        }
    }

    /// The place before `rank` in a leaf, which is none only in the first leaf: every other one
    /// begins with its low fence. The outer `None` asks to try again.
    fn place_before(leaf: Reading<'_>, rank: usize) -> Option<Option<Place<'_>>> {
        let index = rank.checked_sub(1);
        let entry = index.and_then(|index| leaf.entry(index));
        if !leaf.is_valid() {
            return None;
        }
        Some(index.zip(entry).map(|(index, entry)| Place { leaf, index, entry }))
    }

    /// The place behind `place`.
    #[inline]
    pub(crate) fn next<'a>(&'a self, place: Place<'a>) -> Option<Place<'a>> {
        let Place { leaf, index, .. } = place;
        if let Some(later) = leaf.entry_or_high(index + PREFETCH_DISTANCE) {
            later.prefetch();
        }
        if let Some(entry) = leaf.entry(index + 1)
            && leaf.is_valid()
        {
            return Some(Place { leaf, index: index + 1, entry });
        }
        let place = self.seek(place.entry.target(), Bound::UpTo)?;
        (1..PREFETCH_DISTANCE)
            .filter_map(|ahead| place.leaf.entry(place.index + ahead))
            .for_each(Entry::prefetch);
        Some(place)
    }

    /// The place before `place`.
    #[inline]
    pub(crate) fn prev<'a>(&'a self, place: Place<'a>) -> Option<Place<'a>> {
        let Place { leaf, index, .. } = place;
        if let Some(before) = index.checked_sub(1)
            && let Some(entry) = leaf.entry(before)
            && leaf.is_valid()
        {
            return Some(Place { leaf, index: before, entry });
        }
        self.seek_before(place.entry.target())
    }
}

impl<'a> Writer<'a> {
    /// What the writer of the memtable's filter keeps.
    pub(crate) fn growth(&mut self) -> &mut Growth {
        &mut self.state.growth
    }

    /// Inserts an entry.
    ///
    /// REQUIRES: (`key`, `sequence`) is not in the tree.
    pub(crate) fn insert(
        &mut self,
        key: &[u8],
        sequence: SequenceNumber,
        kind: ValueKind,
        value: &[u8],
    ) {
        let Arenas { entries, nodes } = &mut self.state.arenas;
        let raw = write_entry(entries, key, sequence, kind, value);
        // SAFETY: just written; the arena lives as long as the tree.
        let entry = unsafe { Entry::from_raw(raw) };
        let target = entry.target();
        let leaf = self.tree.leaf_with_room(target, nodes);
        let at = leaf.read().own_rank(target, Bound::Before);
        leaf.insert(at, entry, None);
        let side = &self.tree.side;
        side.bytes.store(entries.used() + nodes.used(), Ordering::Relaxed);
        side.memory_bytes.store(entries.reserved() + nodes.reserved(), Ordering::Relaxed);
        side.entries.store(side.entries.load(Ordering::Relaxed) + 1, Ordering::Release);
    }
}

impl Tree {
    /// The leaf `target` belongs to. Every full node on the way is split, so that a parent always
    /// has room for what a split of its child hands up. REQUIRES: the caller is the writer.
    fn leaf_with_room(&self, target: Target<'_>, nodes: &mut Arena) -> &Node {
        let mut node = match self.root() {
            Some(root) if !root.is_full() => root,
            Some(root) => {
                let new = self.new_root(nodes, root.level() + 1);
                new.set_child(0, root.into());
                self.root.store(NonNull::from(new).as_ptr(), Ordering::Release);
                new
            }
            None => {
                let new = self.new_root(nodes, 0);
                self.root.store(NonNull::from(new).as_ptr(), Ordering::Release);
                new
            }
        };
        loop {
            let reading = node.read();
            if reading.is_leaf() {
                return node;
            }
            let index = reading.own_rank(target, Bound::UpTo);
            let mut child = reading.own_child(index);
            node.prefetch_child(child);
            if child.is_full() {
                let at = child.read().own_rank(target, Bound::UpTo);
                let separator = node.split_child(index, at, nodes);
                if separator.cmp_behind(0, target).is_lt() {
                    child = node.read().own_child(index + 1);
                }
            }
            node = child;
        }
    }

    /// A node without fences that nobody knows yet.
    fn new_root(&self, nodes: &mut Arena, level: u64) -> &Node {
        // SAFETY: just written; the arena lives as long as the tree.
        unsafe { Node::allocate(nodes, None, None, level).as_ref() }
    }
}
