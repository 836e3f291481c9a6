//! Sorted keys by eight bytes of each: how many of them stand before a key.
//!
//! A node stands for neighbouring keys. It has their common prefix and, in one flat array, each
//! distinct head after it: the next eight bytes. Real keys with long common parts have equal
//! heads. For those, links say which key is the first of each head,
//! and which node has the others: their run gets a node of its own with a
//! longer prefix. Few keys, and keys that another eight bytes do not distinguish, are
//! compared in full. So a node above others has as many heads as nodes below,
//! however many keys there are, and stays in the nearest cache.
//!
//! Within a node a table gives the first head of each bucket, which is as wide as a power of
//! two. On evenly spread keys a bucket holds one or two, and a search reads one entry of the
//! table and eight heads, which are compared without a branch. Where keys are close
//! together, a larger bucket is first bisected, also without a branch on the result.
//! Few heads need no table.

use umbel_arena::{ArenaArray, prefetch, prefetch_lines};

use crate::format::{INLINE_PREFIX, head64, strip_inline};

/// Number of heads that are compared at once; as many stand after each node's, with the largest
/// number.
pub(crate) const COMPARED_HEADS: usize = 8;
/// Up to this number of heads have no bucket table. They are prefetched together
/// with their node, and a search then takes fewer dependent steps than through a table.
pub(crate) const UNBUCKETED_MAX: usize = 32;
/// Up to this number of heads are searched at once in the first stage, because they are likely
/// to be near; larger nodes are prefetched first.
const SMALL_MAX: usize = 16;
/// Heads of a cache line.
const LINE_HEADS: usize = 8;
/// Says of a node that all its heads differ, and of a link that there is no node below.
pub(crate) const NO_LINK: u32 = u32::MAX;

/// Place of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeadMatch {
    /// This number of keys stands before it; none has its head.
    After(usize),
    /// Compare with these keys: all before are less, all after are greater.
    Among(usize, usize),
}

/// In one cache line, with all data for the next step. Its prefix is the common part of its keys
/// after the prefix and the head of the node above, so that common bytes are stored once.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct HeadNode {
    /// The start of the prefix, all of it where it is not longer.
    pub(crate) prefix: [u8; INLINE_PREFIX],
    /// The least head.
    pub(crate) least: u64,
    pub(crate) prefix_len: u32,
    /// Offset of the whole prefix.
    pub(crate) prefix_at: u32,
    /// The number of its first key, and how many keys it has.
    pub(crate) first: u32,
    pub(crate) keys: u32,
    /// Number of heads it has, and where they stand.
    pub(crate) count: u32,
    pub(crate) heads_at: u32,
    /// Offset of the bucket table, and the number of its last bucket.
    pub(crate) buckets_at: u32,
    pub(crate) bucket_last: u32,
    /// Offset of the links, one for each head and one after them; [`NONE`] where all heads
    /// differ.
    pub(crate) links_at: u32,
    /// Number of bits a stretch of heads is wide.
    pub(crate) shift: u32,
}

/// Progress of a search for a key: one more than the number of the node, 0 for the root, and
/// the number of key bytes that it has passed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SearchState {
    below: u32,
    at: u32,
}

/// Next step below a node for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SearchStep {
    /// No key to compare.
    Done,
    /// A node.
    Node(SearchState),
    /// Keys to be compared with, from the first up to the second.
    Keys(usize, usize),
}

/// The number of the first key with a head, the node of the keys that have it, and where the heads
/// of that node stand.
pub(crate) type Link = [u32; 3];
/// Numbers of a link.
pub(crate) const LINK: usize = 3;

/// A link, read, and the first key of the next head.
#[derive(Debug, Clone, Copy)]
struct ChildLink {
    at: u32,
    below: u32,
    heads_at: u32,
    end: u32,
}

/// All nodes of a sorted list of keys.
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
    /// Bytes of memory that it takes.
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

    /// Second stage: prefetches the memory that the next step of the search reads. `way` is the
    /// result of [`KeyHeadTree::begin_search`] for the key. Returns whether a step may follow.
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

    /// Third stage, where there may be a node below: descends one node, and prefetches the
    /// memory of that node. Without a node below, returns the keys to compare, if any.
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

    /// The first part again, at the node that [`KeyHeadTree::descend`] went down to: prefetches
    /// what [`KeyHeadTree::prefetch`] reads of it.
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

    /// The node that a search has reached, and the part of the key before it.
    #[inline(always)]
    fn node_at<'k>(&self, way: SearchState, key: &'k [u8]) -> Option<(&HeadNode, &'k [u8])> {
        match way.below.checked_sub(1) {
            None => Some((&self.root, key)),
            Some(number) => Some((self.nodes.get(number as usize)?, key.get(way.at as usize..)?)),
        }
    }

    /// Position of `key` among the keys: the rest of a search, or all of it. `way` is the result of
    /// [`KeyHeadTree::begin_search`] for the key, or none. `hint` receives a near key as
    /// soon as one is known.
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

    /// The link of a head, and the first key of the next head.
    #[inline(always)]
    fn link_of_head(&self, node: &HeadNode, found: usize) -> Option<ChildLink> {
        let links = self.links.get(node.links_at as usize + LINK * found..)?;
        let &[at, below, heads_at] = links.first_chunk()?;
        // The last node's last link has none after it.
        let end = links.get(LINK).copied().unwrap_or(at);
        Some(ChildLink { at, below, heads_at, end })
    }

    /// Prefetches a node and its heads, where they need no table, so that waiting for them
    /// overlaps. `hint` learns of its keys then: the key that is found is one of them.
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

    /// Prefetches `count` heads, and the memory that is read after them.
    #[inline(always)]
    fn prefetch_heads(&self, at: u32, count: u32) {
        // They start anywhere in a line.
        let lines = (count as usize + COMPARED_HEADS) / LINE_HEADS + 1;
        prefetch_lines(&self.heads, at as usize, lines);
    }

    /// Rest of `key` after the node's prefix; `None` where it does not start with it.
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

    /// The number of the stretch of a node with a table that `head` is in.
    #[inline(always)]
    fn bucket_of(&self, node: &HeadNode, head: u64) -> usize {
        let stretch = head.saturating_sub(node.least) >> node.shift;
        node.buckets_at as usize + stretch.min(u64::from(node.bucket_last)) as usize
    }

    /// Number of heads of the node are less than `head`.
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
