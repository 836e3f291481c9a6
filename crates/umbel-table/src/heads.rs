//! Sorted keys by eight bytes of each: how many of them stand before a key.
//!
//! A node stands for neighbouring keys. It has the prefix they share and of each the eight bytes
//! behind it, its head, in one flat array. Where heads are equal, which real keys with long common
//! parts bring about, the run of them gets a node of its own with its own, longer prefix; few keys,
//! and keys that are no longer told apart by another eight bytes, are left to be compared whole.
//!
//! Within a node a table says for each stretch of heads, as wide as a power of two, where they
//! begin. On evenly spread keys a stretch holds one or two, and a search reads one entry of the
//! table and eight heads, all of which are compared without a branch. Where keys lie close
//! together, stretches that hold more are first cut by halves, without a branch on the outcome
//! either.

use umbel_arena::{Arena, Fixed};

use crate::format::{INLINE_PREFIX, head64, strip_inline};

/// How many heads are compared at once; as many stand behind each node's, with the largest number.
const LOOK: usize = 8;
/// So many keys with equal heads are worth a node of their own.
const RUN_MIN: usize = 5;
/// Nodes below nodes; keys that are equal for longer are compared whole.
const DEPTH_MAX: usize = 16;

/// Where a key stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Position {
    /// So many keys stand before it; none has its head.
    Behind(usize),
    /// It is to be compared with these keys: all before are less, all behind are greater.
    Among(usize, usize),
}

/// A key in two parts, as it stands in the file: what its node shares, and the rest.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Joined<'a>(pub(crate) &'a [u8], pub(crate) &'a [u8]);

impl Joined<'_> {
    fn bytes(&self) -> impl Iterator<Item = u8> {
        self.0.iter().chain(self.1).copied()
    }

    /// How many bytes it shares with another key at the start.
    fn shared(&self, other: &Joined<'_>) -> usize {
        self.bytes().zip(other.bytes()).take_while(|(own, other)| own == other).count()
    }

    /// The head behind the first `at` bytes, as of a whole key.
    fn head(&self, at: usize) -> u64 {
        let mut bytes = [0; 8];
        bytes.iter_mut().zip(self.bytes().skip(at)).for_each(|(to, from)| *to = from);
        u64::from_be_bytes(bytes)
    }
}

#[derive(Debug)]
struct Node {
    /// The start of the prefix, all of it where it is not longer.
    prefix: [u8; INLINE_PREFIX],
    prefix_len: usize,
    /// Where all of the prefix stands.
    prefix_at: usize,
    /// The number of its first key, and how many it has.
    first: usize,
    count: usize,
    heads_at: usize,
    /// The least head, and how many bits a stretch of heads is wide.
    least: u64,
    shift: u32,
    /// Where the table of stretches stands, and the number of its last stretch.
    stretches_at: usize,
    stretch_last: u64,
    /// Runs of equal heads that have a node, as (first head, node), in order.
    runs: Box<[(u32, u32)]>,
}

/// All nodes of a sorted list of keys.
#[derive(Debug)]
pub(crate) struct Heads {
    root: Node,
    nodes: Vec<Node>,
    heads: Fixed<u64>,
    stretches: Fixed<u32>,
    prefixes: Fixed<u8>,
}

impl Heads {
    /// Reads the heads of sorted keys; `None` where there are none, or more bytes than 32 bits
    /// can number.
    pub(crate) fn new(arena: &Arena, keys: &[Joined<'_>]) -> Option<Heads> {
        if keys.is_empty() {
            return None;
        }
        let mut builder = Builder { keys, ..Builder::default() };
        let root = builder.node(0, keys.len(), 0)?;
        Some(Heads {
            root,
            nodes: builder.nodes,
            heads: Fixed::new(arena, &builder.heads),
            stretches: Fixed::new(arena, &builder.stretches),
            prefixes: Fixed::new(arena, &builder.prefixes),
        })
    }

    /// How many bytes of memory it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let runs: usize = self.nodes.iter().map(|node| size_of_val(&*node.runs)).sum();
        let arrays = self.heads.memory_bytes() + self.stretches.memory_bytes();
        arrays + self.prefixes.memory_bytes() + size_of_val(&*self.nodes) + runs
    }

    /// Where `key` stands among the keys.
    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> Position {
        let mut node = &self.root;
        loop {
            let Some(rest) = self.strip(node, key) else {
                let behind = if key < self.prefix_of(node) { 0 } else { node.count };
                return Position::Behind(node.first + behind);
            };
            let head = head64(rest);
            let found = self.before(node, head);
            if found >= node.count || self.heads.get(node.heads_at + found) != Some(&head) {
                return Position::Behind(node.first + found);
            }
            match self.child(node, found) {
                Some(child) => node = child,
                None => return self.run(node, found, head),
            }
        }
    }

    /// What of `key` follows the node's prefix; `None` where it does not start with it.
    #[inline(always)]
    fn strip<'k>(&self, node: &Node, key: &'k [u8]) -> Option<&'k [u8]> {
        if node.prefix_len <= INLINE_PREFIX {
            return strip_inline(key, &node.prefix, node.prefix_len);
        }
        key.strip_prefix(self.prefix_of(node))
    }

    #[inline]
    fn prefix_of(&self, node: &Node) -> &[u8] {
        let end = node.prefix_at + node.prefix_len;
        self.prefixes.get(node.prefix_at..end).unwrap_or_default()
    }

    /// How many heads of the node are less than `head`.
    #[inline(always)]
    fn before(&self, node: &Node, head: u64) -> usize {
        let stretch = (head.saturating_sub(node.least) >> node.shift).min(node.stretch_last);
        let at = node.stretches_at + stretch as usize;
        let bounds = self.stretches.get(at..).and_then(|rest| rest.first_chunk::<2>());
        let Some([low, high]) = bounds else { return node.count };
        let mut base = node.heads_at + *low as usize;
        let mut left = (high - low) as usize;
        while left > LOOK {
            let half = left / 2;
            let less = self.heads.get(base + half).is_some_and(|&other| other < head);
            base += if less { half } else { 0 };
            left -= half;
        }
        let some = self.heads.get(base..).and_then(|rest| rest.first_chunk::<LOOK>());
        let Some(some) = some else { return node.count };
        let less: usize = some.iter().map(|&other| usize::from(other < head)).sum();
        base + less - node.heads_at
    }

    #[inline(never)]
    fn child(&self, node: &Node, found: usize) -> Option<&Node> {
        let at = node.runs.binary_search_by_key(&(found as u32), |run| run.0).ok()?;
        self.nodes.get(node.runs.get(at)?.1 as usize)
    }

    #[inline(never)]
    fn run(&self, node: &Node, found: usize, head: u64) -> Position {
        let heads = self.heads.get(node.heads_at + found..node.heads_at + node.count);
        let equal = heads.unwrap_or_default().partition_point(|other| *other == head);
        Position::Among(node.first + found, node.first + found + equal)
    }
}

#[derive(Default)]
struct Builder<'a> {
    keys: &'a [Joined<'a>],
    nodes: Vec<Node>,
    heads: Vec<u64>,
    stretches: Vec<u32>,
    prefixes: Vec<u8>,
}

impl Builder<'_> {
    /// Makes the node of the keys from `start` to `end`, of which there is one at least.
    fn node(&mut self, start: usize, end: usize, depth: usize) -> Option<Node> {
        let keys = self.keys.get(start..end)?;
        let (first, last) = (*keys.first()?, *keys.last()?);
        let prefix_len = first.shared(&last);
        let mut prefix = [0; INLINE_PREFIX];
        let shared = first.bytes().take(prefix_len);
        prefix.iter_mut().zip(shared).for_each(|(to, from)| *to = from);
        let prefix_at = self.prefixes.len();
        self.prefixes.extend(first.bytes().take(prefix_len));
        let heads: Vec<u64> = keys.iter().map(|key| key.head(prefix_len)).collect();
        let heads_at = self.heads.len();
        self.heads.extend_from_slice(&heads);
        self.heads.extend_from_slice(&[u64::MAX; LOOK]);
        let (least, greatest) = (*heads.first()?, *heads.last()?);
        let shift = shift_for(greatest - least, heads.len());
        let stretch_last = (greatest - least) >> shift;
        let stretches_at = self.stretches.len();
        let mut at = 0;
        for stretch in 0..=stretch_last {
            self.stretches.push(u32::try_from(at).ok()?);
            at += heads[at..].iter().take_while(|&head| (head - least) >> shift == stretch).count();
        }
        self.stretches.push(u32::try_from(at).ok()?);
        let mut runs = Vec::new();
        let mut at = 0;
        while at < heads.len() {
            let run = heads[at..].iter().take_while(|&head| *head == heads[at]).count();
            let (from, to) = (start + at, start + at + run);
            if run >= RUN_MIN && depth < DEPTH_MAX && self.goes_on(from, to, prefix_len) {
                let child = self.node(from, to, depth + 1)?;
                runs.push((at as u32, u32::try_from(self.nodes.len()).ok()?));
                self.nodes.push(child);
            }
            at += run;
        }
        Some(Node {
            prefix,
            prefix_len,
            prefix_at,
            first: start,
            count: heads.len(),
            heads_at,
            least,
            shift,
            stretches_at,
            stretch_last,
            runs: runs.into(),
        })
    }

    /// Whether the keys of a run share the whole head: a node of theirs then has other heads.
    fn goes_on(&self, from: usize, to: usize, prefix_len: usize) -> bool {
        self.keys[from].shared(&self.keys[to - 1]) >= prefix_len + 8
    }
}

/// The width of stretches, in bits, with which there are about as many of them as heads.
fn shift_for(span: u64, count: usize) -> u32 {
    let wanted = count.next_power_of_two().ilog2();
    (u64::BITS - span.leading_zeros()).saturating_sub(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(keys: &[&[u8]], probe: &[u8]) {
        let joined: Vec<Joined<'_>> = keys
            .iter()
            .enumerate()
            .map(|(number, key)| {
                let (prefix, suffix) = key.split_at(key.len() * (number % 3) / 2);
                Joined(prefix, suffix)
            })
            .collect();
        let heads = Heads::new(&Arena::new(), &joined).unwrap();
        let before = keys.partition_point(|key| *key < probe);
        match heads.find(probe) {
            Position::Behind(found) => {
                assert_eq!(found, before, "{probe:?}");
                assert!(!keys.contains(&probe));
            }
            Position::Among(low, high) => {
                assert!(low <= before && before <= high && low < high, "{probe:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn as_many_stand_before_as_a_walk_counts(
            mut keys in proptest::collection::vec(
                proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(255)], 0..24),
                1..120,
            ),
            probe in proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(255)], 0..24),
            prefix in 0usize..40,
        ) {
            keys.iter_mut().for_each(|key| drop(key.splice(0..0, vec![7; prefix])));
            keys.sort_unstable();
            let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            check(&keys, &probe);
            check(&keys, &[vec![7; prefix], probe].concat());
            check(&keys, &vec![7; prefix / 2]);
            for key in keys.iter().step_by(7) {
                check(&keys, key);
            }
        }
    }

    #[test]
    fn keys_that_grow_by_heads_do_not_make_nodes_without_end() {
        let all = vec![3u8; 8 * 300];
        let keys: Vec<&[u8]> = (0..300).map(|n| &all[..8 * n]).collect();
        let joined: Vec<Joined<'_>> = keys.iter().map(|key| Joined(&[], key)).collect();
        let heads = Heads::new(&Arena::new(), &joined).unwrap();
        assert!((1..=DEPTH_MAX).contains(&heads.nodes.len()));
        for key in &keys {
            check(&keys, key);
        }
    }
}
