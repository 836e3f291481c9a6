//! A node of the tree, and how readers read it while the writer may be changing it.
//!
//! A node holds up to [`WIDTH`] entries in internal order, as pointers into the arena. Beside
//! each is the **head** of its key: the eight bytes after the node's prefix, big-endian, so that
//! heads compare as keys do. An inner node has one child more than it has entries; entry `i` is the
//! first entry of the subtree under child `i + 1`. Every node covers the entries from its low fence
//! (included) to its high fence (not included). Fences are entries themselves. Entries are never
//! removed, so the entry after a leaf's last one **is** its high fence.
//!
//! Heads omit the common bytes of all keys of a node, see [`NodePrefix`]: the common prefix of both
//! fences costs nothing, and some more bytes are compared to a copy in the node.
//!
//! Protocol. One writer at a time; every field that can change is an atomic.
//! - The writer makes `version` odd, then a release fence, then its stores, then makes `version`
//!   even again with a release store ([`node_writer::NodeWriteGuard`]).
//! - A reader loads an even `version` with acquire, then the data, then an acquire fence, then
//!   `version` again. If it is the same, all data is consistent. Had one load seen a store
//!   of a later change, the fences would make that change's odd version visible to the last load.
//!   If not, the data is discarded. So a torn read is a retry and never undefined behaviour.
//! - Pointers are stored with release and loaded with acquire, because readers follow them before
//!   they have validated. A torn read still finds pointers that were stored whole. Their
//!   targets were written before and live as long as the tree.
//! - From parent to child: the child's version is read first, then the parent is validated. A
//!   split first enters the right half in the parent, then cuts the left one; in between both
//!   ways lead to the same entries. A reader that sees the child without its right half therefore
//!   finds the parent changed, and starts again.
//!
//! INVARIANT: whatever is stored in a node (entries, fences, children) lives in arenas that are
//! dropped only together with the node itself.

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

/// One node; inner where it has children.
#[repr(C, align(64))]
pub(crate) struct Node {
    /// Odd while the writer changes the node; never the same twice.
    version: AtomicU64,
    /// A packed [`Shape`].
    layout: AtomicU64,
    /// The entry before which no entry of this node stands; never changes. None: leftmost.
    low: Option<NonNull<EntryHeader>>,
    /// The entry before which all entries of this node stand. Null: rightmost.
    high: AtomicPtr<EntryHeader>,
    /// Never changes. None: a leaf.
    children: Option<NonNull<Children>>,
    /// The bridged bytes of the prefix, the upper half first.
    bridge: [AtomicU64; 2],
    /// Number of nodes that lie below on the way to an entry; zero for a leaf. Never changes.
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
    /// Bytes that all keys in the node share, and after which heads begin.
    len: usize,
    /// Number of these bytes that the node stores, to be compared with a searched key.
    bridged: usize,
    kind: PrefixKind,
}

/// Guarantor of the prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PrefixKind {
    /// Both fences have it up to the bridged bytes, and so does every key that is looked for in
    /// this node. The entries have the bridged bytes too, a key that is looked for need not.
    Fences = 0,
    /// The entries have it, a key that is looked for need not: it is compared to the first one.
    Entries = 1,
    /// All entries are versions of one key, `len` bytes long; heads are their sequence numbers,
    /// inverted. A key that is looked for is compared to the first one.
    OneKey = 2,
}

/// Maximum number of bytes kept in the node between the common prefix of the fences and the heads.
const BRIDGE_BYTES: usize = 16;

/// This number of entries with equal heads are fetched before they are compared.
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

/// The first `N` bytes of `bytes` as a big-endian number's bytes, filled up with zeros.
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

    /// The head of a position whose key has this prefix.
    #[inline]
    fn head(self, target: SeekKey<'_>) -> u64 {
        if self.kind == PrefixKind::OneKey {
            return !target.sequence;
        }
        u64::from_be_bytes(padded(target.key.get(self.len..).unwrap_or_default()))
    }

    /// The bridged bytes of a key, in the upper bytes of a number.
    #[inline]
    fn bridge(self, key: &[u8]) -> u128 {
        let start = self.len.saturating_sub(self.bridged);
        let all = u128::from_be_bytes(padded(key.get(start..).unwrap_or_default()));
        let below = BRIDGE_BYTES.saturating_sub(self.bridged) as u32;
        all & u128::MAX.checked_shl(8 * below).unwrap_or(0)
    }

    /// Order of `key` relative to the entries, whose bridged bytes are `bridge`: `Equal` if it has
    /// the prefix too.
    #[inline]
    fn cmp_bridge(self, key: &[u8], bridge: u128) -> cmp::Ordering {
        // A key that ends inside the bridge was filled up with zeros, and is less all the same.
        let at_end = if key.len() < self.len { cmp::Ordering::Less } else { cmp::Ordering::Equal };
        self.bridge(key).cmp(&bridge).then(at_end)
    }

    /// Order of `key` relative to the entries, of which `sample` is one; `Equal` if it has the
    /// prefix too. `None` where `sample` is too short, which only a torn read can see.
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

/// Entries that [`NodeReader::rank`] counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bound {
    /// Those before the target.
    Before,
    /// Those before the target and the target itself.
    UpTo,
}

/// A view of a node in one version. Results of its methods are valid only if
/// [`NodeReader::is_valid`] says so afterwards.
#[derive(Clone, Copy)]
pub(crate) struct NodeReader<'a> {
    node: &'a Node,
    version: u64,
    shape: NodeLayout,
}

impl Node {
    /// Puts an empty node into the arena.
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

    /// Prefetches the memory that a search of this child reads, all at once: the
    /// header and every line of heads. For a leaf, which is seldom cached, also the slots of
    /// the entries.
    #[inline]
    pub(crate) fn prefetch_child(&self, child: &Node) {
        let heads = 1 + WIDTH / 8;
        let lines = if self.level == 1 { heads + WIDTH / 8 } else { heads };
        let start = std::ptr::from_ref(child).cast::<u8>();
        (0..lines).for_each(|line| prefetch(start.wrapping_add(64 * line)));
    }

    /// The level, zero for a leaf.
    pub(crate) fn level(&self) -> u64 {
        self.level
    }

    /// Begins to read, once the writer is not changing this node.
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

/// The entry behind a pointer out of a node.
#[inline]
fn entry_in<'a>(slot: &'a AtomicPtr<EntryHeader>) -> Option<Entry<'a>> {
    let header = NonNull::new(slot.load(Ordering::Acquire))?;
    // SAFETY: a pointer that is not null was stored with release after its entry was written, and
    // the entry lives as long as the node whose slot this is.
    Some(unsafe { Entry::from_raw(header) })
}

impl<'a> NodeReader<'a> {
    /// Whether the node is still as it was when this reading began, so that all that was read
    /// since then belongs together.
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

    /// As [`Node::prefetch_child`].
    #[inline]
    pub(crate) fn prefetch_child(&self, child: &Node) {
        self.node.prefetch_child(child);
    }

    /// Number of entries the node has.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.shape.count
    }

    /// The entry at `index`; none after the last, or where the read is torn.
    #[inline]
    pub(crate) fn entry(&self, index: usize) -> Option<Entry<'a>> {
        if index >= self.shape.count {
            return None;
        }
        entry_in(&self.node.entries[index % WIDTH])
    }

    /// The entry at `index`, or, after the last, the high fence: the entry that follows.
    #[inline]
    pub(crate) fn entry_or_high(&self, index: usize) -> Option<Entry<'a>> {
        if index < self.shape.count { self.entry(index) } else { entry_in(&self.node.high) }
    }

    /// The child at `index`; none in a leaf, or where the read is torn.
    #[inline]
    pub(crate) fn child(&self, index: usize) -> Option<&'a Node> {
        let child = self.node.children()?.get(index)?.load(Ordering::Acquire);
        // SAFETY: null, or stored with release after the child was written; it lives in the same
        // arena as this node.
        unsafe { child.as_ref() }
    }

    /// Number of entries that stand before `target` (or at it). `None` only where the read is torn.
    ///
    /// REQUIRES: the target lies between the fences, ends included.
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

    /// Order of `key` relative to all entries by the node's prefix: `Equal` if it has it too.
    /// `None` only where the read is torn.
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

    /// Number of heads that are less than `head`: a binary search without a branch to mispredict.
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
