//! A node of the tree, and the protocol by which readers read a node while the writer changes it.
//!
//! A node has up to [`WIDTH`] entries in internal order, as pointers into the arena. With each
//! entry is the **head** of its key: the eight bytes after the node's prefix, big-endian, so that
//! heads sort like keys. An inner node has one child more than it has entries; entry `i` is the
//! first entry of the subtree under child `i + 1`. Every node covers the entries from its low fence
//! (inclusive) to its high fence (exclusive). Fences are entries themselves. Entries are never
//! removed, so the entry after a leaf's last entry **is** the leaf's high fence.
//!
//! Heads omit the common bytes of all keys of a node, see [`NodePrefix`]. The common prefix of both
//! fences need not be compared; a few more common bytes are compared with a copy in the node.
//!
//! Protocol. One writer at a time; every field that can change is an atomic.
//! - The writer makes `version` odd, then a release fence, then its stores, then makes `version`
//!   even again with a release store ([`node_writer::NodeWriteGuard`]).
//! - A reader loads an even `version` with acquire, then the data, then an acquire fence, then
//!   `version` again. If the version is the same, all data is consistent. Had one load seen a store
//!   of a later change, the fences would make that change's odd version visible to the last load.
//!   If the version differs, the data is discarded. So a torn read is a retry and never undefined
//!   behavior.
//! - Pointers are stored with release and loaded with acquire, because readers follow pointers
//!   before they validate the version. A torn read still finds pointers that were stored whole. The
//!   pointers' targets were written before and exist as long as the tree.
//! - From parent to child: the child's version is read first, then the parent is validated. A split
//!   first adds the right half to the parent, then truncates the left half; in between both paths
//!   lead to the same entries. A reader that sees the child without its right half therefore finds
//!   the parent changed, and starts again.
//!
//! INVARIANT: entries, fences and children of a node are in arenas that are dropped only together
//! with the node itself.

mod node_writer;

use crate::bump_arena::BumpArena;
use crate::entry::{Entry, EntryHeader, SeekKey, prefetch};
use crate::loom_atomics::{AtomicPtr, AtomicU64, Ordering, WIDTH, fence, pause};
use std::alloc::Layout;
use std::array;
use std::cmp;
use std::ptr::{NonNull, null_mut};

/// The children of an inner node.
type Children = [AtomicPtr<Node>; WIDTH + 1];

/// A node of the tree, which is an inner node if it has children.
#[repr(C, align(64))]
pub(crate) struct Node {
    /// Version, which is odd while the writer changes the node, and never repeats.
    version: AtomicU64,
    /// A packed [`Shape`].
    layout: AtomicU64,
    /// The low fence: no entry of this node is before it. Never changes; `None` for the leftmost
    /// nodes.
    low: Option<NonNull<EntryHeader>>,
    /// The high fence: all entries of this node are before it. Null for the rightmost nodes.
    high: AtomicPtr<EntryHeader>,
    /// The children; `None` for a leaf. Never changes.
    children: Option<NonNull<Children>>,
    /// The bridged bytes of the prefix, the upper half first.
    bridge: [AtomicU64; 2],
    /// Number of nodes below this one on the path to an entry; zero for a leaf. Never changes.
    level: u64,
    heads: [AtomicU64; WIDTH],
    entries: [AtomicPtr<EntryHeader>; WIDTH],
}

// SAFETY: what changes is atomic; the pointers lead to nodes, for which the same holds, and to
// entries, which are `Sync`. The arenas that own the memory are `Send`.
unsafe impl Send for Node {}
// SAFETY: as above.
unsafe impl Sync for Node {}

/// Common prefix of the keys in a node, from which its heads follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NodePrefix {
    /// Number of bytes that all keys in the node share, after which heads begin.
    len: usize,
    /// Number of the shared bytes that the node stores, to be compared with a searched key.
    bridged: usize,
    kind: PrefixKind,
}

/// Kind of a node's prefix: says which keys are known to have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PrefixKind {
    /// Both fences, and so all keys searched in this node, have the prefix up to the bridged bytes.
    /// The entries also have the bridged bytes, which a searched key need not have.
    Fences = 0,
    /// Only the entries have the prefix; a searched key is compared with the first entry.
    Entries = 1,
    /// All entries are versions of one key, which is `len` bytes long; heads are their inverted
    /// sequence numbers. A searched key is compared with the first entry.
    OneKey = 2,
}

/// Maximum number of bytes kept in the node between the common prefix of the fences and the heads.
const BRIDGE_BYTES: usize = 16;

/// Up to this number of entries with equal heads are prefetched before they are compared.
const FETCHED_MAX: usize = 16;

/// Number of entries and prefix of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NodeLayout {
    count: usize,
    prefix: NodePrefix,
}

impl NodeLayout {
    const EMPTY: NodeLayout = NodeLayout { count: 0, prefix: NodePrefix::NONE };

    fn pack(self) -> u64 {
        let NodePrefix { len, bridged, kind } = self.prefix;
        (len as u64) << 32 | (bridged as u64) << 24 | (kind as u64) << 16 | self.count as u64
    }

    #[inline]
    fn unpack(packed: u64) -> NodeLayout {
        let kind = match packed >> 16 & 3 {
            0 => PrefixKind::Fences,
            1 => PrefixKind::Entries,
            _ => PrefixKind::OneKey,
        };
        let (len, bridged) = ((packed >> 32) as usize, (packed >> 24 & 0xff) as usize);
        NodeLayout { count: (packed & 0xffff) as usize, prefix: NodePrefix { len, bridged, kind } }
    }
}

/// Returns the first `N` bytes of `bytes`, filled up with zeros, as the bytes of a big-endian
/// number.
#[inline]
fn padded<const N: usize>(bytes: &[u8]) -> [u8; N] {
    if let Some(first) = bytes.first_chunk() {
        return *first;
    }
    let mut padded = [0; N];
    padded[..bytes.len()].copy_from_slice(bytes);
    padded
}

impl NodePrefix {
    const NONE: NodePrefix = NodePrefix { len: 0, bridged: 0, kind: PrefixKind::Fences };

    /// Returns the head of a position whose key has this prefix.
    #[inline]
    fn head(self, target: SeekKey<'_>) -> u64 {
        if self.kind == PrefixKind::OneKey {
            return !target.sequence;
        }
        u64::from_be_bytes(padded(target.key.get(self.len..).unwrap_or_default()))
    }

    /// Returns the bridged bytes of a key, in the upper bytes of a number.
    #[inline]
    fn bridge(self, key: &[u8]) -> u128 {
        let start = self.len.saturating_sub(self.bridged);
        let all = u128::from_be_bytes(padded(key.get(start..).unwrap_or_default()));
        let below = BRIDGE_BYTES.saturating_sub(self.bridged) as u32;
        all & u128::MAX.checked_shl(8 * below).unwrap_or(0)
    }

    /// Order of `key` relative to the entries, whose bridged bytes are `bridge`; `Equal` if `key`
    /// has the prefix, too.
    #[inline]
    fn cmp_bridge(self, key: &[u8], bridge: u128) -> cmp::Ordering {
        // A key that ends inside the bridge was filled up with zeros, and is less all the same.
        let at_end = if key.len() < self.len { cmp::Ordering::Less } else { cmp::Ordering::Equal };
        self.bridge(key).cmp(&bridge).then(at_end)
    }

    /// Order of `key` relative to the entries, of which `sample` is the key of one; `Equal` if
    /// `key` has the prefix, too. `None` if `sample` is too short, which only a torn read can see.
    #[inline]
    fn cmp_sample(self, key: &[u8], sample: &[u8]) -> Option<cmp::Ordering> {
        let prefix = sample.get(..self.len)?;
        let (start, rest) = key.split_at(self.len.min(key.len()));
        let at_end = match self.kind {
            PrefixKind::OneKey if !rest.is_empty() => cmp::Ordering::Greater,
            _ => cmp::Ordering::Equal,
        };
        Some(start.cmp(prefix).then(at_end))
    }
}

/// Says which entries [`NodeReader::rank`] counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bound {
    /// The entries before the target.
    Before,
    /// The entries before the target, and the target itself.
    UpTo,
}

/// A view of one version of a node. Results of its methods are valid only if
/// [`NodeReader::is_valid`] returns `true` afterwards.
#[derive(Clone, Copy)]
pub(crate) struct NodeReader<'a> {
    node: &'a Node,
    version: u64,
    shape: NodeLayout,
}

impl Node {
    /// Allocates an empty node in the arena.
    pub(crate) fn allocate(
        arena: &mut BumpArena,
        low: Option<Entry<'_>>,
        high: Option<Entry<'_>>,
        level: u64,
    ) -> NonNull<Node> {
        let children = (level > 0).then(|| {
            let piece = arena.allocate(Layout::new::<Children>()).cast::<Children>();
            // SAFETY: the piece is ours and has the layout of the written type.
            unsafe { piece.write(array::from_fn(|_| AtomicPtr::new(null_mut()))) };
            piece
        });
        let piece = arena.allocate(Layout::new::<Node>()).cast::<Node>();
        let node = Node {
            version: AtomicU64::new(0),
            layout: AtomicU64::new(NodeLayout::EMPTY.pack()),
            low: low.map(Entry::as_raw),
            high: AtomicPtr::new(high.map_or(null_mut(), |high| high.as_raw().as_ptr())),
            children,
            bridge: array::from_fn(|_| AtomicU64::new(0)),
            level,
            heads: array::from_fn(|_| AtomicU64::new(0)),
            entries: array::from_fn(|_| AtomicPtr::new(null_mut())),
        };
        // SAFETY: the piece is ours and has the layout of the written type.
        unsafe { piece.write(node) };
        piece
    }

    /// Prefetches the memory that a search of `child` reads, all at once: the header and every
    /// cache line of heads. For a leaf, which is seldom cached, also the pointers to the entries.
    #[inline]
    pub(crate) fn prefetch_child(&self, child: &Node) {
        let heads = 1 + WIDTH / 8;
        let lines = if self.level == 1 { heads + WIDTH / 8 } else { heads };
        let start = std::ptr::from_ref(child).cast::<u8>();
        (0..lines).for_each(|line| prefetch(start.wrapping_add(64 * line)));
    }

    /// Returns the level of the node; zero for a leaf.
    pub(crate) fn level(&self) -> u64 {
        self.level
    }

    /// Waits until the writer is not changing this node, and begins to read it.
    #[inline]
    pub(crate) fn read(&self) -> NodeReader<'_> {
        let mut tries = 0;
        loop {
            let version = self.version.load(Ordering::Acquire);
            if version & 1 == 0 {
                let shape = NodeLayout::unpack(self.layout.load(Ordering::Relaxed));
                return NodeReader { node: self, version, shape };
            }
            pause(tries);
            tries = tries.saturating_add(1);
        }
    }

    #[inline]
    fn children(&self) -> Option<&Children> {
        // SAFETY: the children were allocated and written before the node was, in the same arena.
        self.children.map(|children| unsafe { children.as_ref() })
    }
}

/// Returns the entry behind a pointer in a node.
#[inline]
fn entry_in<'a>(slot: &'a AtomicPtr<EntryHeader>) -> Option<Entry<'a>> {
    let header = NonNull::new(slot.load(Ordering::Acquire))?;
    // SAFETY: a pointer that is not null was stored with release after its entry was written, and
    // the entry lives as long as the node whose slot this is.
    Some(unsafe { Entry::from_raw(header) })
}

impl<'a> NodeReader<'a> {
    /// Whether the node is unchanged since this reader began, so that all data read since then is
    /// consistent.
    #[inline]
    pub(crate) fn is_valid(&self) -> bool {
        fence(Ordering::Acquire);
        self.node.version.load(Ordering::Relaxed) == self.version
    }

    /// Whether the node has no children.
    #[inline]
    pub(crate) fn is_leaf(&self) -> bool {
        self.node.children.is_none()
    }

    /// Returns the level of the node; zero for a leaf.
    pub(crate) fn level(&self) -> u64 {
        self.node.level
    }

    /// Calls [`Node::prefetch_child`].
    #[inline]
    pub(crate) fn prefetch_child(&self, child: &Node) {
        self.node.prefetch_child(child);
    }

    /// Number of entries of the node.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.shape.count
    }

    /// Returns the entry at `index`; `None` after the last entry, or if the read is torn.
    #[inline]
    pub(crate) fn entry(&self, index: usize) -> Option<Entry<'a>> {
        if index >= self.shape.count {
            return None;
        }
        entry_in(&self.node.entries[index % WIDTH])
    }

    /// Returns the entry at `index`; after the last entry the high fence, which is the following
    /// entry.
    #[inline]
    pub(crate) fn entry_or_high(&self, index: usize) -> Option<Entry<'a>> {
        if index < self.shape.count { self.entry(index) } else { entry_in(&self.node.high) }
    }

    /// Returns the child at `index`; `None` in a leaf, or if the read is torn.
    #[inline]
    pub(crate) fn child(&self, index: usize) -> Option<&'a Node> {
        let child = self.node.children()?.get(index)?.load(Ordering::Acquire);
        // SAFETY: null, or stored with release after the child was written; it lives in the same
        // arena as this node.
        unsafe { child.as_ref() }
    }

    /// Number of entries before `target`, or also at `target`, depending on `bound`. `None` only if
    /// the read is torn.
    ///
    /// REQUIRES: the target is between the fences, ends included.
    #[inline]
    pub(crate) fn rank(&self, target: SeekKey<'_>, bound: Bound) -> Option<usize> {
        let NodeLayout { count, prefix } = self.shape;
        match self.cmp_prefix(target.key)? {
            cmp::Ordering::Less => return Some(0),
            cmp::Ordering::Greater => return Some(count),
            cmp::Ordering::Equal => {}
        }
        let head = prefix.head(target);
        let mut low = self.heads_below(head);
        if low == count || self.head(low) != head {
            return Some(low);
        }
        let mut high = low + 1;
        while high < count && self.head(high) == head {
            high += 1;
        }
        let mut fetched = false;
        while low < high {
            // Rather all that may be compared from memory at once than one after the other.
            if !fetched && (2..=FETCHED_MAX).contains(&(high - low)) {
                fetched = true;
                (low..high).filter_map(|at| self.entry(at)).for_each(|e| e.prefetch_at(prefix.len));
            }
            let middle = low + (high - low) / 2;
            match self.entry(middle)?.cmp_suffix(prefix.len, target) {
                cmp::Ordering::Less => low = middle + 1,
                cmp::Ordering::Equal if bound == Bound::UpTo => low = middle + 1,
                _ => high = middle,
            }
        }
        Some(low)
    }

    /// Order of `key` relative to all entries by the node's prefix; `Equal` if `key` has the
    /// prefix, too. `None` only if the read is torn.
    #[inline]
    fn cmp_prefix(&self, key: &[u8]) -> Option<cmp::Ordering> {
        let prefix = self.shape.prefix;
        if prefix.kind != PrefixKind::Fences {
            return prefix.cmp_sample(key, self.entry(0)?.key());
        }
        if prefix.bridged == 0 {
            return Some(cmp::Ordering::Equal);
        }
        let [upper, lower] = &self.node.bridge;
        let upper = u128::from(upper.load(Ordering::Relaxed));
        let bridge = upper << 64 | u128::from(lower.load(Ordering::Relaxed));
        Some(prefix.cmp_bridge(key, bridge))
    }

    #[inline]
    fn head(&self, index: usize) -> u64 {
        self.node.heads[index % WIDTH].load(Ordering::Relaxed)
    }

    /// Number of heads that are less than `head`, by a binary search without branches that can be
    /// mispredicted.
    #[inline]
    fn heads_below(&self, head: u64) -> usize {
        let mut size = self.shape.count;
        let mut base = 0;
        while size > 1 {
            let half = size / 2;
            let less = self.head(base + half - 1) < head;
            base = std::hint::select_unpredictable(less, base + half, base);
            size -= half;
        }
        base + usize::from(size == 1 && self.head(base) < head)
    }
}
