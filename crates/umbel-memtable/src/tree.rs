//! The tree: searches from the root to a leaf, by concurrent readers and by the writer.
//!
//! The node module describes the protocol. The root pointer acts as the parent of the root node: a
//! new root is published before the old root is split. A reader that has read the root node's
//! version checks that the node is still the root.

use crate::bump_arena::BumpArena;
use crate::entry::{Entry, SeekKey, write_entry};
use crate::growing_filter::FilterGrowth;
use crate::loom_atomics::{AtomicPtr, Ordering, pause};
use crate::node::{Bound, Node, NodeReader};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::AtomicUsize;
use std::sync::{Mutex, MutexGuard};
use umbel_base::ignore_poison::IgnorePoison;
use umbel_base::{SequenceNumber, ValueKind};

/// Number of entries that are prefetched ahead of a cursor: about as many steps as fit into one
/// memory latency.
const PREFETCH_DISTANCE: usize = 8;

/// An ordered map of entries. Entries that it lends are valid as long as the borrow of the tree.
pub(crate) struct Tree {
    /// The root node, in the writer's node arena; null until the first insert.
    root: AtomicPtr<Node>,
    side: WriterSide,
}

/// State that the writer changes with each insert. It is in cache lines of its own: otherwise each
/// insert would invalidate the readers' copy of the root, since the hardware fetches lines in
/// pairs.
#[repr(align(128))]
struct WriterSide {
    /// Lock of the one writer.
    state: Mutex<WriterState>,
    /// Bytes of the arenas in use.
    bytes: AtomicUsize,
    /// Bytes of memory that the arenas have taken.
    memory_bytes: AtomicUsize,
    /// Number of entries.
    entries: AtomicUsize,
}

/// State that only the writer uses.
#[derive(Default)]
struct WriterState {
    arenas: Arenas,
    growth: FilterGrowth,
}

/// Arenas of entries and nodes. The arenas are separate, so that the nodes, which are visited more
/// often, share few pages.
#[derive(Default)]
struct Arenas {
    entries: BumpArena,
    nodes: BumpArena,
}

/// The right to write to the tree, as long as this value exists.
pub(crate) struct TreeWriter<'a> {
    tree: &'a Tree,
    state: MutexGuard<'a, WriterState>,
}

/// An entry, and its position in the tree when it was last read.
#[derive(Clone, Copy)]
pub(crate) struct TreePosition<'a> {
    leaf: NodeReader<'a>,
    index: usize,
    entry: Entry<'a>,
}

impl<'a> TreePosition<'a> {
    /// Returns the entry.
    #[inline]
    pub(crate) fn entry(&self) -> Entry<'a> {
        self.entry
    }
}

impl Tree {
    /// Creates a tree without entries, which takes no memory besides the value itself.
    pub(crate) fn new() -> Tree {
        let side = WriterSide {
            state: Mutex::default(),
            bytes: AtomicUsize::new(0),
            memory_bytes: AtomicUsize::new(0),
            entries: AtomicUsize::new(0),
        };
        Tree { root: AtomicPtr::new(null_mut()), side }
    }

    /// Number of entries.
    pub(crate) fn entries(&self) -> usize {
        self.side.entries.load(Ordering::Acquire)
    }

    /// Bytes that entries and nodes take; 0 without entries.
    pub(crate) fn bytes(&self) -> usize {
        self.side.bytes.load(Ordering::Relaxed)
    }

    /// Bytes that the arenas have taken, their free space included.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.side.memory_bytes.load(Ordering::Relaxed)
    }

    /// Waits until no other thread writes, and returns the right to write.
    pub(crate) fn writer(&self) -> TreeWriter<'_> {
        // A writer that panicked did so over a limit, before it had touched the tree.
        let state = self.side.state.lock().ignore_poison();
        TreeWriter { tree: self, state }
    }

    /// Returns the root node; `None` before the first insert.
    #[inline]
    fn root(&self) -> Option<&Node> {
        // SAFETY: null, or stored with release after the node was written; the arena that it leads
        // into lives as long as the tree.
        unsafe { self.root.load(Ordering::Acquire).as_ref() }
    }

    /// Returns the leaf to which `child_of` leads, which chooses a child in each inner node. `None`
    /// before the first insert.
    #[inline]
    fn leaf(&self, child_of: impl Fn(&NodeReader<'_>) -> Option<usize>) -> Option<NodeReader<'_>> {
        loop {
            if let Some(leaf) = self.try_leaf(self.root()?, &child_of) {
                return Some(leaf);
            }
            pause(0);
        }
    }

    /// Searches the leaf once, from the root on; returns `None` if a change by the writer
    /// interfered.
    #[inline]
    fn try_leaf<'a>(
        &'a self,
        root: &'a Node,
        child_of: &impl Fn(&NodeReader<'_>) -> Option<usize>,
    ) -> Option<NodeReader<'a>> {
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

    /// Returns the first entry at or after `target`.
    #[inline]
    pub(crate) fn find(&self, target: SeekKey<'_>) -> Option<Entry<'_>> {
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

    /// Returns the position of the first entry that `bound` does not count: after `target`, or with
    /// [`Bound::Before`] at or after `target`.
    pub(crate) fn seek(&self, target: SeekKey<'_>, bound: Bound) -> Option<TreePosition<'_>> {
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
                return Some(TreePosition { leaf, index, entry });
            }
            // The entry is the first of the next leaf: go there.
            (target, bound) = (entry.seek_key(), Bound::Before);
        }
    }

    /// Returns the position of the last entry before `target`.
    pub(crate) fn seek_before(&self, target: SeekKey<'_>) -> Option<TreePosition<'_>> {
        loop {
            let leaf = self.leaf(|node| node.rank(target, Bound::Before))?;
            let rank = leaf.rank(target, Bound::Before);
            if let Some(found) = rank.and_then(|rank| Tree::position_before(leaf, rank)) {
                return found;
            }
            pause(0);
        }
    }

    /// Returns the position of the last entry.
    pub(crate) fn last(&self) -> Option<TreePosition<'_>> {
        loop {
            let leaf = self.leaf(|node| Some(node.count()))?;
            if let Some(found) = Tree::position_before(leaf, leaf.count()) {
                return found;
            }
            pause(0);
        }
    }

    /// Returns the position of a random entry, which `random` selects. The entries are about
    /// equally probable, since nodes have about equally many.
    pub(crate) fn sample(&self, random: u64) -> Option<TreePosition<'_>> {
        let select = |level: u64, count: usize| {
            let mixed = (random ^ level).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            ((u128::from(mixed) * count as u128) >> 64) as usize
        };
        loop {
            let leaf = self.leaf(|node| Some(select(node.level(), node.count() + 1)))?;
            let rank = select(0, leaf.count()) + 1;
            if let Some(found) = Tree::position_before(leaf, rank) {
                return found;
            }
            pause(0);
        }
    }

    /// Returns the position before `rank` in a leaf. The inner `None` means that there is none,
    /// which is possible only in the first leaf, since every other leaf begins with its low fence.
    /// The outer `None` means that the caller must try again.
    fn position_before(leaf: NodeReader<'_>, rank: usize) -> Option<Option<TreePosition<'_>>> {
        let index = rank.checked_sub(1);
        let entry = index.and_then(|index| leaf.entry(index));
        if !leaf.is_valid() {
            return None;
        }
        Some(index.zip(entry).map(|(index, entry)| TreePosition { leaf, index, entry }))
    }

    /// Returns the position after `place`.
    #[inline]
    pub(crate) fn next<'a>(&'a self, place: TreePosition<'a>) -> Option<TreePosition<'a>> {
        let TreePosition { leaf, index, .. } = place;
        if let Some(later) = leaf.entry_or_high(index + PREFETCH_DISTANCE) {
            later.prefetch();
        }
        if let Some(entry) = leaf.entry(index + 1)
            && leaf.is_valid()
        {
            return Some(TreePosition { leaf, index: index + 1, entry });
        }
        let place = self.seek(place.entry.seek_key(), Bound::UpTo)?;
        (1..PREFETCH_DISTANCE)
            .filter_map(|ahead| place.leaf.entry(place.index + ahead))
            .for_each(Entry::prefetch);
        Some(place)
    }

    /// Returns the position before `place`.
    #[inline]
    pub(crate) fn prev<'a>(&'a self, place: TreePosition<'a>) -> Option<TreePosition<'a>> {
        let TreePosition { leaf, index, .. } = place;
        if let Some(before) = index.checked_sub(1)
            && let Some(entry) = leaf.entry(before)
            && leaf.is_valid()
        {
            return Some(TreePosition { leaf, index: before, entry });
        }
        self.seek_before(place.entry.seek_key())
    }
}

impl<'a> TreeWriter<'a> {
    /// Returns the writer's state of the memtable's filter.
    pub(crate) fn growth(&mut self) -> &mut FilterGrowth {
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
        let target = entry.seek_key();
        let leaf = self.tree.leaf_with_space(target, nodes);
        let at = leaf.read().own_rank(target, Bound::Before);
        leaf.insert(at, entry, None);
        let side = &self.tree.side;
        side.bytes.store(entries.used() + nodes.used(), Ordering::Relaxed);
        side.memory_bytes.store(entries.reserved() + nodes.reserved(), Ordering::Relaxed);
        side.entries.store(side.entries.load(Ordering::Relaxed) + 1, Ordering::Release);
    }
}

impl Tree {
    /// Returns the leaf for `target`, with space for an entry. Every full node on the path is
    /// split, so that a parent always has space for the entry of a split child. REQUIRES: the
    /// caller is the writer.
    fn leaf_with_space(&self, target: SeekKey<'_>, nodes: &mut BumpArena) -> &Node {
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
                if separator.cmp_suffix(0, target).is_lt() {
                    child = node.read().own_child(index + 1);
                }
            }
            node = child;
        }
    }

    /// Creates a node without fences, which no other thread can reach yet.
    fn new_root(&self, nodes: &mut BumpArena, level: u64) -> &Node {
        // SAFETY: just written; the arena lives as long as the tree.
        unsafe { Node::allocate(nodes, None, None, level).as_ref() }
    }
}
