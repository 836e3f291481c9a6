//! Changes of nodes by the writer: inserting a slot, splitting a full child.
//!
//! REQUIRES, for all functions of this module: one thread at a time calls them, which the tree's
//! mutex ensures.

use super::{BRIDGE_BYTES, Node, NodeLayout, NodePrefix, NodeReader, PrefixKind, entry_in};
use crate::bump_arena::BumpArena;
use crate::entry::{Entry, SeekKey};
use crate::loom_atomics::{Ordering, WIDTH, fence};
use std::cmp;
use std::ptr::NonNull;

/// Number of bytes that a longer prefix must save, so that heads are rebuilt for it: half a head.
const PREFIX_GAIN: usize = 4;

/// Guard of a change of a node: while it exists, readers of the node wait or retry.
struct NodeWriteGuard<'a> {
    node: &'a Node,
    version: u64,
}

impl Drop for NodeWriteGuard<'_> {
    fn drop(&mut self) {
        self.node.version.store(self.version.wrapping_add(2), Ordering::Release);
    }
}

/// Length of the common prefix of two keys.
fn shared_bytes(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Returns the prefix for a node with the entries from `first` to `last`. The old prefix is kept if
/// it is still valid and a new one would save little, since heads then need not be rebuilt. A
/// prefix of the entries is shortened by some bytes that fit into a head, so that ascending numbers
/// do not make it invalid repeatedly.
fn plan_prefix(fences: usize, first: Entry<'_>, last: Entry<'_>, old: NodePrefix) -> NodePrefix {
    if first.key() == last.key() && first.sequence() != last.sequence() {
        return NodePrefix { len: first.key().len(), bridged: 0, kind: PrefixKind::OneKey };
    }
    let entries = shared_bytes(first.key(), last.key());
    let shorter = first.key().len().min(last.key().len());
    let useful = entries.min(shorter.saturating_sub(size_of::<u64>()));
    let best = if useful >= fences + PREFIX_GAIN { useful } else { fences };
    let keep = old.kind != PrefixKind::OneKey
        && old.len <= fences.max(entries)
        && old.len + PREFIX_GAIN > best;
    let len = if keep { old.len } else { best };
    let bridged = len.saturating_sub(fences);
    if bridged <= BRIDGE_BYTES {
        NodePrefix { len, bridged, kind: PrefixKind::Fences }
    } else {
        NodePrefix { len, bridged: 0, kind: PrefixKind::Entries }
    }
}

/// Returns the split point of a full node: the middle, or a border near it between groups of keys
/// with equal heads. The new nodes can then omit the common prefix of a group.
fn middle_of(heads: &[u64; WIDTH]) -> usize {
    let ties = heads.windows(2).filter(|pair| pair[0] == pair[1]).count();
    let middle = WIDTH / 2;
    if ties < WIDTH / 4 {
        return middle;
    }
    let shared = |at: &usize| (heads[at - 1] ^ heads[*at]).leading_zeros() / 8;
    (WIDTH / 4 + 1..WIDTH - WIDTH / 4)
        .min_by_key(|at| (shared(at), at.abs_diff(middle)))
        .unwrap_or(middle)
}

impl NodePrefix {
    /// Whether heads are the same with both prefixes.
    fn has_heads_of(self, other: NodePrefix) -> bool {
        let one_key = |prefix: NodePrefix| prefix.kind == PrefixKind::OneKey;
        self.len == other.len && one_key(self) == one_key(other)
    }
}

impl<'a> NodeReader<'a> {
    /// Returns the entry at `index`. REQUIRES: the caller is the writer, and `index < count`.
    fn own_entry(&self, index: usize) -> Entry<'a> {
        self.entry(index).expect("the writer never sees a torn node")
    }

    /// Returns the rank of `target`. REQUIRES: the caller is the writer.
    pub(crate) fn own_rank(&self, target: SeekKey<'_>, bound: super::Bound) -> usize {
        self.rank(target, bound).expect("the writer never sees a torn node")
    }

    /// Returns the child at `index`. REQUIRES: the caller is the writer, the node is inner and
    /// `index <= count`.
    pub(crate) fn own_child(&self, index: usize) -> &'a Node {
        self.child(index).expect("an inner node has one child more than entries")
    }

    /// Returns the heads of the entries in `range` after `prefix`, in the first items of the array.
    fn heads_after(&self, prefix: NodePrefix, range: std::ops::Range<usize>) -> [u64; WIDTH] {
        let mut heads = [0; WIDTH];
        for (head, index) in heads.iter_mut().zip(range) {
            *head = if prefix.has_heads_of(self.shape.prefix) {
                self.head(index)
            } else {
                prefix.head(self.own_entry(index).seek_key())
            };
        }
        heads
    }

    /// Returns the prefix of the node with `entry` inserted at `at`. The prefix is planned again
    /// for an entry without the present prefix, and occasionally while the node fills.
    fn prefix_with(&self, at: usize, entry: Entry<'_>) -> NodePrefix {
        let NodeLayout { count, prefix } = self.shape;
        let fits = self.cmp_prefix(entry.key()) == Some(cmp::Ordering::Equal);
        if count == 0 || (fits && !(count + 1).is_power_of_two()) {
            return prefix;
        }
        let first = if at == 0 { entry } else { self.own_entry(0) };
        let last = if at == count { entry } else { self.own_entry(count - 1) };
        plan_prefix(self.node.shared_by_fences(), first, last, prefix)
    }
}

impl Node {
    /// Whether the node is full, so that the next insert must split it.
    pub(crate) fn is_full(&self) -> bool {
        self.read().count() == WIDTH
    }

    fn change(&self) -> NodeWriteGuard<'_> {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        NodeWriteGuard { node: self, version }
    }

    /// Number of bytes that every key between the fences shares.
    fn shared_by_fences(&self) -> usize {
        // SAFETY: the low fence was written before this node was, and lives as long as it.
        let low = self.low.map(|low| unsafe { Entry::from_raw(low) });
        match (low, entry_in(&self.high)) {
            (Some(low), Some(high)) => shared_bytes(low.key(), high.key()),
            _ => 0,
        }
    }

    fn set_head(&self, index: usize, head: u64) {
        self.heads[index].store(head, Ordering::Relaxed);
    }

    fn set_entry(&self, index: usize, entry: Entry<'_>) {
        self.entries[index].store(entry.as_raw().as_ptr(), Ordering::Release);
    }

    /// Sets the number of entries and their prefix, which the key of entry `sample` has.
    fn set_shape(&self, count: usize, prefix: NodePrefix, sample: Entry<'_>) {
        if prefix.bridged > 0 {
            let bridge = prefix.bridge(sample.key());
            self.bridge[0].store((bridge >> 64) as u64, Ordering::Relaxed);
            self.bridge[1].store(bridge as u64, Ordering::Relaxed);
        }
        self.layout.store(NodeLayout { count, prefix }.pack(), Ordering::Relaxed);
    }

    /// Makes `child` the child at `index`. REQUIRES: this is an inner node and `index <= WIDTH`;
    /// `child` is in the same arena.
    pub(crate) fn set_child(&self, index: usize, child: NonNull<Node>) {
        if let Some(children) = self.children() {
            children[index].store(child.as_ptr(), Ordering::Release);
        }
    }

    /// Inserts `entry` before the entry at `at`; in an inner node, with the subtree `right` that
    /// starts with `entry`.
    ///
    /// REQUIRES: the node is not full, `at` is the rank of `entry`, and the entry is between the
    /// fences and exists as long as the node. `right` is given exactly in inner nodes.
    pub(crate) fn insert(&self, at: usize, entry: Entry<'_>, right: Option<NonNull<Node>>) {
        let reading = self.read();
        let NodeLayout { count, prefix: old } = reading.shape;
        let prefix = reading.prefix_with(at, entry);
        let heads = (!prefix.has_heads_of(old)).then(|| reading.heads_after(prefix, 0..count));
        let head = prefix.head(entry.seek_key());
        let _change = self.change();
        if let Some(heads) = heads {
            (0..count).for_each(|index| self.set_head(index, heads[index]));
        }
        for index in (at..count).rev() {
            self.set_head(index + 1, reading.head(index));
            let moved = self.entries[index].load(Ordering::Relaxed);
            self.entries[index + 1].store(moved, Ordering::Release);
        }
        if let (Some(children), Some(right)) = (self.children(), right) {
            for index in (at + 1..=count).rev() {
                let moved = children[index].load(Ordering::Relaxed);
                children[index + 1].store(moved, Ordering::Release);
            }
            children[at + 1].store(right.as_ptr(), Ordering::Release);
        }
        self.set_head(at, head);
        self.set_entry(at, entry);
        self.set_shape(count + 1, prefix, entry);
    }

    /// Splits the full child at `index` of this node in two, and returns the first entry of the
    /// right half. `at` is the position in the child of the next insert. If it is at an end of the
    /// child, as with ascending keys, the split leaves one half nearly full.
    ///
    /// REQUIRES: this node is inner and not full, its child at `index` is full.
    pub(crate) fn split_child(&self, index: usize, at: usize, arena: &mut BumpArena) -> Entry<'_> {
        let child = self.read().own_child(index);
        let reading = child.read();
        let NodeLayout { count, prefix: old } = reading.shape;
        let middle = match at {
            _ if at == count => count - 1,
            0 if child.low.is_none() => 1,
            _ => middle_of(&reading.heads_after(old, 0..count)),
        };
        let separator = reading.own_entry(middle);
        let first = if reading.is_leaf() { middle } else { middle + 1 };
        let right = self.build_right(reading, separator, first, arena);

        let left_fences = match child.low {
            // SAFETY: as in `shared_by_fences`.
            Some(low) => shared_bytes(unsafe { Entry::from_raw(low) }.key(), separator.key()),
            None => 0,
        };
        let left_last = reading.own_entry(middle - 1);
        let prefix = plan_prefix(left_fences, reading.own_entry(0), left_last, old);
        let heads = (!prefix.has_heads_of(old)).then(|| reading.heads_after(prefix, 0..middle));

        self.insert(index, separator, Some(right));
        let _change = child.change();
        child.high.store(separator.as_raw().as_ptr(), Ordering::Release);
        if let Some(heads) = heads {
            (0..middle).for_each(|index| child.set_head(index, heads[index]));
        }
        child.set_shape(middle, prefix, left_last);
        separator
    }

    /// Builds the right half of a split: a node with the entries from `first` on, which no other
    /// thread can reach yet.
    fn build_right(
        &self,
        left: NodeReader<'_>,
        separator: Entry<'_>,
        first: usize,
        arena: &mut BumpArena,
    ) -> NonNull<Node> {
        let count = left.count() - first;
        let high = entry_in(&left.node.high);
        let raw = Node::allocate(arena, Some(separator), high, left.node.level);
        // SAFETY: just written; the arena outlives this call.
        let right = unsafe { raw.as_ref() };
        let mut prefix = NodePrefix::NONE;
        if count > 0 {
            let (begin, last) = (left.own_entry(first), left.own_entry(left.count() - 1));
            prefix = plan_prefix(right.shared_by_fences(), begin, last, left.shape.prefix);
            let heads = left.heads_after(prefix, first..left.count());
            for (index, head) in heads.into_iter().enumerate().take(count) {
                right.set_head(index, head);
                right.set_entry(index, left.own_entry(first + index));
            }
        }
        if let (Some(from), Some(to)) = (left.node.children(), right.children()) {
            for (slot, child) in to.iter().zip(&from[first..=left.count()]) {
                slot.store(child.load(Ordering::Relaxed), Ordering::Release);
            }
        }
        right.set_shape(count, prefix, left.own_entry(left.count() - 1));
        raw
    }
}
