//! Sorted keys by eight bytes of each: how many of them stand before a key.
//!
//! A node stands for neighbouring keys. It has the prefix they share and, in one flat array, each
//! different head that they have behind it: the next eight bytes. Where keys have equal heads,
//! which real keys with long common parts bring about, links say for each head which key is its
//! first, and which node has the others: the run of them gets a node of its own with its own,
//! longer prefix. Few keys, and keys that are no longer told apart by another eight bytes, are left
//! to be compared whole. A node above others so has as many heads as it has nodes below, however
//! many keys there are, and stays in the nearest cache.
//!
//! Within a node a table says for each stretch of heads, as wide as a power of two, where they
//! begin. On evenly spread keys a stretch holds one or two, and a search reads one entry of the
//! table and eight heads, all of which are compared without a branch. Where keys lie close
//! together, stretches that hold more are first cut by halves, without a branch on the outcome
//! either. Few heads need no table.

use umbel_arena::{Fixed, prefetch, prefetch_lines};

use crate::format::{INLINE_PREFIX, head64, strip_inline};

/// How many heads are compared at once; as many stand behind each node's, with the largest number.
pub(crate) const LOOK: usize = 8;
/// Up to so many heads have no table of stretches: they are asked for all at once, together with
/// their node, and then it takes fewer steps in a row to find one than through a table.
pub(crate) const TABLELESS_MAX: usize = 32;
/// Up to so many heads the first part of a search looks at at once, because they are likely to be
/// near; larger nodes are asked for first.
const SMALL_MAX: usize = 16;
/// Heads of a cache line.
const LINE_HEADS: usize = 8;
/// Says of a node that all its heads differ, and of a link that there is no node below.
pub(crate) const NONE: u32 = u32::MAX;

/// Where a key stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Position {
    /// So many keys stand before it; none has its head.
    Behind(usize),
    /// It is to be compared with these keys: all before are less, all behind are greater.
    Among(usize, usize),
}

/// In one cache line, with all that says where to look next. Its prefix is what its keys share
/// behind the prefix and the head of the node above, so that what they share is there once.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Node {
    /// The start of the prefix, all of it where it is not longer.
    pub(crate) prefix: [u8; INLINE_PREFIX],
    /// The least head.
    pub(crate) least: u64,
    pub(crate) prefix_len: u32,
    /// Where all of the prefix stands.
    pub(crate) prefix_at: u32,
    /// The number of its first key, and how many keys it has.
    pub(crate) first: u32,
    pub(crate) keys: u32,
    /// How many heads it has, and where they stand.
    pub(crate) count: u32,
    pub(crate) heads_at: u32,
    /// Where the table of stretches stands, and the number of its last stretch.
    pub(crate) stretches_at: u32,
    pub(crate) stretch_last: u32,
    /// Where its links stand, one for each head and one behind; [`NONE`] where all heads differ.
    pub(crate) links_at: u32,
    /// How many bits a stretch of heads is wide.
    pub(crate) shift: u32,
}

/// How far a search for a key has come: one more than the number of the node, 0 for the root, and
/// how many bytes of the key it has gone past.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Way {
    below: u32,
    at: u32,
}

/// What stands below a node for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Below {
    /// Nothing that has to be looked at.
    Nothing,
    /// A node.
    Node(Way),
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
struct Links {
    at: u32,
    below: u32,
    heads_at: u32,
    end: u32,
}

/// All nodes of a sorted list of keys.
#[derive(Debug)]
pub(crate) struct Heads {
    pub(crate) root: Node,
    pub(crate) nodes: Vec<Node>,
    pub(crate) heads: Fixed<u64>,
    pub(crate) stretches: Fixed<u32>,
    pub(crate) links: Fixed<u32>,
    pub(crate) prefixes: Fixed<u8>,
}

impl Heads {
    /// How many bytes of memory it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let tables = self.stretches.memory_bytes() + self.links.memory_bytes();
        let heads = self.heads.memory_bytes() + self.prefixes.memory_bytes();
        heads + tables + size_of_val(&*self.nodes)
    }

    /// The first part of a search for those who search in many places: goes on as far as nodes
    /// are small, and asks for the memory that [`Heads::prefetch`] reads.
    #[inline]
    pub(crate) fn way(&self, key: &[u8]) -> Way {
        let mut way = Way::default();
        loop {
            let Some((node, key)) = self.at(way, key) else { return way };
            let Some(rest) = self.strip(node, key) else { return way };
            let head = head64(rest);
            if node.count as usize > TABLELESS_MAX {
                prefetch(&self.stretches, self.stretch(node, head));
                return way;
            }
            if node.count as usize > SMALL_MAX {
                self.prefetch_heads(node.heads_at, node.count);
                return way;
            }
            let found = self.before(node, head, |_| ());
            let is_equal = found < node.count as usize
                && self.heads.get(node.heads_at as usize + found) == Some(&head);
            if node.links_at == NONE || !is_equal || rest.len() < 8 {
                return way;
            }
            match self.links_from(node, found) {
                Some(links) if (links.below as usize) < self.nodes.len() => {
                    way.at += node.prefix_len + 8;
                    way.below = links.below + 1;
                }
                _ => return way,
            }
        }
    }

    /// The second part: asks for the memory that the next step of the search reads. `way` is what
    /// [`Heads::way`] gave for the key. Says whether there may be a step below.
    #[inline]
    pub(crate) fn prefetch(&self, way: Way, key: &[u8], hint: impl Fn(usize)) -> bool {
        let Some((node, key)) = self.at(way, key) else { return false };
        let Some(rest) = self.strip(node, key) else { return false };
        if node.count as usize > TABLELESS_MAX
            && let Some(&low) = self.stretches.get(self.stretch(node, head64(rest)))
        {
            prefetch(&self.heads, node.heads_at as usize + low as usize);
            if node.links_at == NONE {
                hint(node.first as usize + low as usize);
            } else {
                prefetch(&self.links, node.links_at as usize + LINK * low as usize);
            }
        }
        node.links_at != NONE
    }

    /// The third part, where there may be a step below: goes one node down, and asks for the memory
    /// of that node. Where there is none to go down to, gives the keys to compare, if any.
    #[inline]
    pub(crate) fn below(&self, way: Way, key: &[u8]) -> Below {
        let Some((node, key)) = self.at(way, key) else { return Below::Nothing };
        let Some(rest) = self.strip(node, key) else { return Below::Nothing };
        let head = head64(rest);
        let found = self.before(node, head, |_| ());
        if found >= node.count as usize
            || self.heads.get(node.heads_at as usize + found) != Some(&head)
        {
            return Below::Nothing;
        }
        match self.links_from(node, found) {
            Some(links) if (links.below as usize) < self.nodes.len() && rest.len() >= 8 => {
                self.prefetch_child(&links, |_| ());
                Below::Node(Way { below: links.below + 1, at: way.at + node.prefix_len + 8 })
            }
            Some(Links { at, end, .. }) if end > at => Below::Keys(at as usize, end as usize),
            _ => Below::Nothing,
        }
    }

    /// The first part again, at the node that [`Heads::below`] went down to: asks for what
    /// [`Heads::prefetch`] reads of it.
    #[inline]
    pub(crate) fn prefetch_node(&self, way: Way, key: &[u8]) {
        let Some((node, key)) = self.at(way, key) else { return };
        if node.count as usize <= TABLELESS_MAX {
            // Its heads were asked for with it where it has no more keys than heads at most.
            if node.keys as usize > TABLELESS_MAX {
                self.prefetch_heads(node.heads_at, node.count);
            }
            prefetch(&self.links, node.links_at as usize);
        } else if let Some(rest) = self.strip(node, key) {
            prefetch(&self.stretches, self.stretch(node, head64(rest)));
        }
    }

    /// The node that a way has come to, and what of the key is before it.
    #[inline(always)]
    fn at<'k>(&self, way: Way, key: &'k [u8]) -> Option<(&Node, &'k [u8])> {
        match way.below.checked_sub(1) {
            None => Some((&self.root, key)),
            Some(number) => Some((self.nodes.get(number as usize)?, key.get(way.at as usize..)?)),
        }
    }

    /// Where `key` stands among the keys: the rest of a search, or all of it. `way` is what
    /// [`Heads::way`] gave for the key, or none. `hint` is told of a key near to it as soon as one
    /// is known, where it soon is.
    #[inline]
    pub(crate) fn find_from(&self, way: Way, key: &[u8], hint: impl Fn(usize)) -> Position {
        let (mut node, mut key) = self.at(way, key).unwrap_or((&self.root, key));
        loop {
            let first = node.first as usize;
            let Some(rest) = self.strip(node, key) else {
                let behind = if key < self.prefix_of(node) { 0 } else { node.keys };
                return Position::Behind(first + behind as usize);
            };
            let head = head64(rest);
            let found = self.before(node, head, &hint);
            let is_equal = found < node.count as usize
                && self.heads.get(node.heads_at as usize + found) == Some(&head);
            if node.links_at == NONE {
                let at = first + found;
                return if is_equal { Position::Among(at, at + 1) } else { Position::Behind(at) };
            }
            let Some(links) = self.links_from(node, found) else {
                return Position::Among(first, first + node.keys as usize);
            };
            let (at, end) = (links.at as usize, links.end as usize);
            if !is_equal {
                return Position::Behind(at);
            }
            let Some(child) = self.nodes.get(links.below as usize) else {
                return Position::Among(at, end);
            };
            // Keys below go on behind the head: one that ends in it stands before them.
            let Some(behind) = rest.get(8..) else { return Position::Behind(at) };
            self.prefetch_child(&links, &hint);
            (node, key) = (child, behind);
        }
    }

    /// The link of a head, and the first key of the next head.
    #[inline(always)]
    fn links_from(&self, node: &Node, found: usize) -> Option<Links> {
        let links = self.links.get(node.links_at as usize + LINK * found..)?;
        let &[at, below, heads_at] = links.first_chunk()?;
        // The last node's last link has none behind.
        let end = links.get(LINK).copied().unwrap_or(at);
        Some(Links { at, below, heads_at, end })
    }

    /// Asks for a node and for its heads, where they need no table, so that waiting for them
    /// overlaps. `hint` is told of its keys then: whoever is found is one of them.
    #[inline(always)]
    fn prefetch_child(&self, links: &Links, hint: impl Fn(usize)) {
        prefetch(&self.nodes, links.below as usize);
        let (at, keys) = (links.at as usize, (links.end - links.at) as usize);
        if keys <= TABLELESS_MAX {
            self.prefetch_heads(links.heads_at, keys as u32);
            for line in 0..3 {
                hint(at + keys.min(LINE_HEADS * line));
            }
        }
    }

    /// Asks for `count` heads, and for what is read behind them.
    #[inline(always)]
    fn prefetch_heads(&self, at: u32, count: u32) {
        // They start anywhere in a line.
        let lines = (count as usize + LOOK) / LINE_HEADS + 1;
        prefetch_lines(&self.heads, at as usize, lines);
    }

    /// What of `key` follows the node's prefix; `None` where it does not start with it.
    #[inline(always)]
    fn strip<'k>(&self, node: &Node, key: &'k [u8]) -> Option<&'k [u8]> {
        if node.prefix_len as usize <= INLINE_PREFIX {
            return strip_inline(key, &node.prefix, node.prefix_len as usize);
        }
        key.strip_prefix(self.prefix_of(node))
    }

    #[inline]
    fn prefix_of(&self, node: &Node) -> &[u8] {
        let start = node.prefix_at as usize;
        self.prefixes.get(start..start + node.prefix_len as usize).unwrap_or_default()
    }

    /// The number of the stretch of a node with a table that `head` is in.
    #[inline(always)]
    fn stretch(&self, node: &Node, head: u64) -> usize {
        let stretch = head.saturating_sub(node.least) >> node.shift;
        node.stretches_at as usize + stretch.min(u64::from(node.stretch_last)) as usize
    }

    /// How many heads of the node are less than `head`.
    #[inline(always)]
    fn before(&self, node: &Node, head: u64, hint: impl Fn(usize)) -> usize {
        let heads_at = node.heads_at as usize;
        let (mut base, mut left) = (heads_at, node.count as usize);
        if left > TABLELESS_MAX {
            let bounds = self.stretches.get(self.stretch(node, head)..);
            let Some([low, high]) = bounds.and_then(|rest| rest.first_chunk()) else { return left };
            if node.links_at == NONE {
                hint(node.first as usize + *low as usize);
            } else {
                prefetch(&self.links, node.links_at as usize + LINK * *low as usize);
            }
            base += *low as usize;
            left = (high - low) as usize;
        }
        while left > LOOK {
            let half = left / 2;
            let less = self.heads.get(base + half).is_some_and(|&other| other < head);
            base += if less { half } else { 0 };
            left -= half;
        }
        let some = self.heads.get(base..).and_then(|rest| rest.first_chunk::<LOOK>());
        let Some(some) = some else { return node.count as usize };
        let less: usize = some.iter().map(|&other| usize::from(other < head)).sum();
        base + less - heads_at
    }
}
