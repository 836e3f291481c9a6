//! Search in sorted keys by eight bytes of each, which finds how many of them are before a key.
//!
//! A node represents neighbouring keys. A node has the common prefix of its keys and, in one flat
//! array, their distinct heads: the eight bytes after the prefix. Keys with long common parts can
//! have equal heads. For such keys links give the first key of each head, and a child node with a
//! longer prefix for a run of keys with one head. Short runs, and keys that another eight bytes do
//! not distinguish, are compared in full. So a node with children has only as many heads as it has
//! children, for any number of keys, and stays in the nearest CPU cache.
//!
//! Within a node a bucket table gives the first head of each bucket; the width of buckets is a
//! power of two. With evenly spread keys a bucket has one or two heads, and a search reads one
//! table entry and eight heads, which are compared without a branch. With clustered keys a larger
//! bucket is first bisected, also without a branch. A node with few heads has no table.

use umbel_arena::{ArenaArray, prefetch, prefetch_lines};

use crate::format::{INLINE_PREFIX, head64, strip_inline};

/// Number of heads that are compared at once. The heads of each node are followed by as many heads
/// with the largest number.
pub(crate) const COMPARED_HEADS: usize = 8;
/// A node with up to this number of heads has no bucket table. Its heads are prefetched together
/// with the node, and a search takes fewer dependent steps than through a table.
pub(crate) const UNBUCKETED_MAX: usize = 32;
/// The first stage searches a node with up to this number of heads at once, because its heads are
/// probably in a near cache. Larger nodes are prefetched first.
const SMALL_MAX: usize = 16;
/// Number of heads in a cache line.
const LINE_HEADS: usize = 8;
/// Value that says that all heads of a node differ, or that a link has no child node.
pub(crate) const NO_LINK: u32 = u32::MAX;

/// Position of a key among the sorted keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeadMatch {
    /// This number of keys is before the key, and no key has the same head.
    After(usize),
    /// The key must be compared with the keys of this range: all keys before the range are less,
    /// and all after it greater.
    Among(usize, usize),
}

/// A node, in one cache line with all data for the next step. Its prefix is the common part of its
/// keys after the prefix and the head of the parent node, so that common bytes are stored once.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct HeadNode {
    /// The start of the prefix, or the whole prefix if it fits.
    pub(crate) prefix: [u8; INLINE_PREFIX],
    /// The least head of the node.
    pub(crate) least: u64,
    pub(crate) prefix_len: u32,
    /// Offset of the whole prefix in the bytes of the tree.
    pub(crate) prefix_at: u32,
    /// Number of the node's first key.
    pub(crate) first: u32,
    pub(crate) keys: u32,
    /// Number of heads of the node.
    pub(crate) count: u32,
    pub(crate) heads_at: u32,
    /// Offset of the node's bucket table.
    pub(crate) buckets_at: u32,
    pub(crate) bucket_last: u32,
    /// Offset of the node's links, one for each head and one after them; [`NO_LINK`] if all heads
    /// differ.
    pub(crate) links_at: u32,
    /// Width of a bucket of heads, in bits.
    pub(crate) shift: u32,
}

/// Progress of a search for a key: the number of the node plus one, 0 for the root, and the number
/// of key bytes that the search has passed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SearchState {
    below: u32,
    at: u32,
}

/// Next step of a search for a key, after a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SearchStep {
    /// There is no key to compare.
    Done,
    /// The search continues in this node.
    Node(SearchState),
    /// The key must be compared with the keys from the first number up to the second.
    Keys(usize, usize),
}

/// A link of a head: the number of the first key with the head, the node of the keys with the head,
/// and the offset of that node's heads.
pub(crate) type Link = [u32; 3];
/// Number of `u32` in a link.
pub(crate) const LINK: usize = 3;

/// A decoded link, and the number of the first key of the next head.
#[derive(Debug, Clone, Copy)]
struct ChildLink {
    at: u32,
    below: u32,
    heads_at: u32,
    end: u32,
}

/// The tree of nodes over a sorted list of keys.
#[derive(Debug)]
pub(crate) struct KeyHeadTree {
    pub(crate) root: HeadNode,
    pub(crate) nodes: Vec<HeadNode>,
    pub(crate) heads: ArenaArray<u64>,
    pub(crate) buckets: ArenaArray<u32>,
    pub(crate) links: ArenaArray<u32>,
    pub(crate) prefixes: ArenaArray<u8>,
}

impl KeyHeadTree {
    /// Bytes of the tree in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        let tables = self.buckets.memory_bytes() + self.links.memory_bytes();
        let heads = self.heads.memory_bytes() + self.prefixes.memory_bytes();
        heads + tables + size_of_val(&*self.nodes)
    }

    /// First stage of a search, for callers that search in many trees: continues while nodes
    /// are small, and prefetches the memory that [`KeyHeadTree::prefetch`] reads.
    #[inline]
    pub(crate) fn begin_search(&self, key: &[u8]) -> SearchState {
        let mut way = SearchState::default();
        loop {
            let Some((node, key)) = self.node_at(way, key) else { return way };
            let Some(rest) = self.strip(node, key) else { return way };
            let head = head64(rest);
            if node.count as usize > UNBUCKETED_MAX {
                prefetch(&self.buckets, self.bucket_of(node, head));
                return way;
            }
            if node.count as usize > SMALL_MAX {
                self.prefetch_heads(node.heads_at, node.count);
                return way;
            }
            let found = self.count_heads_below(node, head, |_| ());
            let is_equal = found < node.count as usize
                && self.heads.get(node.heads_at as usize + found) == Some(&head);
            if node.links_at == NO_LINK || !is_equal || rest.len() < 8 {
                return way;
            }
            match self.link_of_head(node, found) {
                Some(links) if (links.below as usize) < self.nodes.len() => {
                    way.at += node.prefix_len + 8;
                    way.below = links.below + 1;
                }
                _ => return way,
            }
        }
    }

    /// Second stage of a search: prefetches the memory that the next step reads. `way` is the
    /// result of [`KeyHeadTree::begin_search`] for the key. Returns whether a step with
    /// [`KeyHeadTree::descend`] is possible.
    #[inline]
    pub(crate) fn prefetch(&self, way: SearchState, key: &[u8], hint: impl Fn(usize)) -> bool {
        let Some((node, key)) = self.node_at(way, key) else { return false };
        let Some(rest) = self.strip(node, key) else { return false };
        if node.count as usize > UNBUCKETED_MAX
            && let Some(&low) = self.buckets.get(self.bucket_of(node, head64(rest)))
        {
            prefetch(&self.heads, node.heads_at as usize + low as usize);
            if node.links_at == NO_LINK {
                hint(node.first as usize + low as usize);
            } else {
                prefetch(&self.links, node.links_at as usize + LINK * low as usize);
            }
        }
        node.links_at != NO_LINK
    }

    /// Third stage of a search, if a child node is possible: descends to the child node and
    /// prefetches its memory. Without a child node, returns the keys to compare, if any.
    #[inline]
    pub(crate) fn descend(&self, way: SearchState, key: &[u8]) -> SearchStep {
        let Some((node, key)) = self.node_at(way, key) else { return SearchStep::Done };
        let Some(rest) = self.strip(node, key) else { return SearchStep::Done };
        let head = head64(rest);
        let found = self.count_heads_below(node, head, |_| ());
        if found >= node.count as usize
            || self.heads.get(node.heads_at as usize + found) != Some(&head)
        {
            return SearchStep::Done;
        }
        match self.link_of_head(node, found) {
            Some(links) if (links.below as usize) < self.nodes.len() && rest.len() >= 8 => {
                self.prefetch_child(&links, |_| ());
                SearchStep::Node(SearchState {
                    below: links.below + 1,
                    at: way.at + node.prefix_len + 8,
                })
            }
            Some(ChildLink { at, end, .. }) if end > at => {
                SearchStep::Keys(at as usize, end as usize)
            }
            _ => SearchStep::Done,
        }
    }

    /// First stage again, at the node to which [`KeyHeadTree::descend`] went: prefetches the memory
    /// that [`KeyHeadTree::prefetch`] reads of this node.
    #[inline]
    pub(crate) fn prefetch_node(&self, way: SearchState, key: &[u8]) {
        let Some((node, key)) = self.node_at(way, key) else { return };
        if node.count as usize <= UNBUCKETED_MAX {
            // Its heads were requested with it where it has no more keys than heads at most.
            if node.keys as usize > UNBUCKETED_MAX {
                self.prefetch_heads(node.heads_at, node.count);
            }
            prefetch(&self.links, node.links_at as usize);
        } else if let Some(rest) = self.strip(node, key) {
            prefetch(&self.buckets, self.bucket_of(node, head64(rest)));
        }
    }

    /// Returns the node that a search has reached, and the rest of the key.
    #[inline(always)]
    fn node_at<'k>(&self, way: SearchState, key: &'k [u8]) -> Option<(&HeadNode, &'k [u8])> {
        match way.below.checked_sub(1) {
            None => Some((&self.root, key)),
            Some(number) => Some((self.nodes.get(number as usize)?, key.get(way.at as usize..)?)),
        }
    }

    /// Returns the position of `key` among the keys. `way` is the result of
    /// [`KeyHeadTree::begin_search`] for the key, or the default for a whole search. `hint` is
    /// called with the number of a near key as soon as one is known.
    #[inline]
    pub(crate) fn find_from(
        &self,
        way: SearchState,
        key: &[u8],
        hint: impl Fn(usize),
    ) -> HeadMatch {
        let (mut node, mut key) = self.node_at(way, key).unwrap_or((&self.root, key));
        loop {
            let first = node.first as usize;
            let Some(rest) = self.strip(node, key) else {
                let before = if key < self.prefix_of(node) { 0 } else { node.keys };
                return HeadMatch::After(first + before as usize);
            };
            let head = head64(rest);
            let found = self.count_heads_below(node, head, &hint);
            let is_equal = found < node.count as usize
                && self.heads.get(node.heads_at as usize + found) == Some(&head);
            if node.links_at == NO_LINK {
                let at = first + found;
                return if is_equal { HeadMatch::Among(at, at + 1) } else { HeadMatch::After(at) };
            }
            let Some(links) = self.link_of_head(node, found) else {
                return HeadMatch::Among(first, first + node.keys as usize);
            };
            let (at, end) = (links.at as usize, links.end as usize);
            if !is_equal {
                return HeadMatch::After(at);
            }
            let Some(child) = self.nodes.get(links.below as usize) else {
                return HeadMatch::Among(at, end);
            };
            // Keys below continue after the head: a key that ends in it comes before them.
            let Some(after) = rest.get(8..) else { return HeadMatch::After(at) };
            self.prefetch_child(&links, &hint);
            (node, key) = (child, after);
        }
    }

    /// Returns the link of a head, and the number of the first key of the next head.
    #[inline(always)]
    fn link_of_head(&self, node: &HeadNode, found: usize) -> Option<ChildLink> {
        let links = self.links.get(node.links_at as usize + LINK * found..)?;
        let &[at, below, heads_at] = links.first_chunk()?;
        // The last node's last link has none after it.
        let end = links.get(LINK).copied().unwrap_or(at);
        Some(ChildLink { at, below, heads_at, end })
    }

    /// Prefetches a node and, if it has no bucket table, its heads, so that the memory waits
    /// overlap. `hint` is then called with one of the node's keys, among which the result is.
    #[inline(always)]
    fn prefetch_child(&self, links: &ChildLink, hint: impl Fn(usize)) {
        prefetch(&self.nodes, links.below as usize);
        let (at, keys) = (links.at as usize, (links.end - links.at) as usize);
        if keys <= UNBUCKETED_MAX {
            self.prefetch_heads(links.heads_at, keys as u32);
            for line in 0..3 {
                hint(at + keys.min(LINE_HEADS * line));
            }
        }
    }

    /// Prefetches `count` heads, and the memory after them that a comparison reads.
    #[inline(always)]
    fn prefetch_heads(&self, at: u32, count: u32) {
        // They start anywhere in a line.
        let lines = (count as usize + COMPARED_HEADS) / LINE_HEADS + 1;
        prefetch_lines(&self.heads, at as usize, lines);
    }

    /// Returns the rest of `key` after the node's prefix; `None` if `key` does not start with the
    /// prefix.
    #[inline(always)]
    fn strip<'k>(&self, node: &HeadNode, key: &'k [u8]) -> Option<&'k [u8]> {
        if node.prefix_len as usize <= INLINE_PREFIX {
            return strip_inline(key, &node.prefix, node.prefix_len as usize);
        }
        key.strip_prefix(self.prefix_of(node))
    }

    #[inline]
    fn prefix_of(&self, node: &HeadNode) -> &[u8] {
        let start = node.prefix_at as usize;
        self.prefixes.get(start..start + node.prefix_len as usize).unwrap_or_default()
    }

    /// Returns the number of the bucket of `head`, in a node with a bucket table.
    #[inline(always)]
    fn bucket_of(&self, node: &HeadNode, head: u64) -> usize {
        let stretch = head.saturating_sub(node.least) >> node.shift;
        node.buckets_at as usize + stretch.min(u64::from(node.bucket_last)) as usize
    }

    /// Returns the number of heads of the node that are less than `head`.
    #[inline(always)]
    fn count_heads_below(&self, node: &HeadNode, head: u64, hint: impl Fn(usize)) -> usize {
        let heads_at = node.heads_at as usize;
        let (mut base, mut left) = (heads_at, node.count as usize);
        if left > UNBUCKETED_MAX {
            let bounds = self.buckets.get(self.bucket_of(node, head)..);
            let Some([low, high]) = bounds.and_then(|rest| rest.first_chunk()) else { return left };
            if node.links_at == NO_LINK {
                hint(node.first as usize + *low as usize);
            } else {
                prefetch(&self.links, node.links_at as usize + LINK * *low as usize);
            }
            base += *low as usize;
            left = (high - low) as usize;
        }
        while left > COMPARED_HEADS {
            let half = left / 2;
            let less = self.heads.get(base + half).is_some_and(|&other| other < head);
            base += if less { half } else { 0 };
            left -= half;
        }
        let some = self.heads.get(base..).and_then(|rest| rest.first_chunk::<COMPARED_HEADS>());
        let Some(some) = some else { return node.count as usize };
        let less: usize = some.iter().map(|&other| usize::from(other < head)).sum();
        base + less - heads_at
    }
}
