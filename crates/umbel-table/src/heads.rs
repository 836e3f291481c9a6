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

use umbel_arena::{Arena, Fixed, Piece};

use crate::format::{INLINE_PREFIX, common_prefix, head64, strip_inline};

/// How many heads are compared at once; as many stand behind each node's, with the largest number.
const LOOK: usize = 8;
/// Up to so many heads have no table of stretches.
const TABLELESS_MAX: usize = 16;
/// So many keys with equal heads are worth a node of their own.
const RUN_MIN: usize = 5;
/// Nodes below nodes; keys that are equal for longer are compared whole.
const DEPTH_MAX: usize = 16;
/// Says of a node that all its heads differ, and of a link that there is no node below.
const NONE: u32 = u32::MAX;

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

impl<'a> Joined<'a> {
    /// What stands behind the first `at` bytes, in two parts.
    fn behind(&self, at: usize) -> [&'a [u8]; 2] {
        let own = at.saturating_sub(self.0.len());
        [self.0.get(at..).unwrap_or_default(), self.1.get(own..).unwrap_or_default()]
    }

    fn bytes_behind(&self, at: usize) -> impl Iterator<Item = u8> {
        let [shared, own] = self.behind(at);
        shared.iter().chain(own).copied()
    }

    /// How many bytes two keys that begin with the same `at` bytes share behind these.
    fn shared(&self, other: &Joined<'_>, at: usize) -> usize {
        let ([shared, own], [other_shared, other_own]) = (self.behind(at), other.behind(at));
        let alike = common_prefix(shared, other_shared);
        if alike < shared.len().min(other_shared.len()) {
            return alike;
        }
        if shared.len() == other_shared.len() {
            return alike + common_prefix(own, other_own);
        }
        alike + self.shared_slowly(other, at + alike)
    }

    fn shared_slowly(&self, other: &Joined<'_>, at: usize) -> usize {
        let pairs = self.bytes_behind(at).zip(other.bytes_behind(at));
        pairs.take_while(|(own, other)| own == other).count()
    }

    /// The head behind the first `at` bytes, as of a whole key.
    fn head(&self, at: usize) -> u64 {
        let mut bytes = [0; 8];
        bytes.iter_mut().zip(self.bytes_behind(at)).for_each(|(to, from)| *to = from);
        u64::from_be_bytes(bytes)
    }
}

/// In one cache line, with all that says where to look next. Its prefix is what its keys share
/// behind the prefix and the head of the node above, so that what they share is there once.
#[derive(Debug)]
#[repr(align(64))]
struct Node {
    /// The start of the prefix, all of it where it is not longer.
    prefix: [u8; INLINE_PREFIX],
    /// The least head.
    least: u64,
    prefix_len: u32,
    /// Where all of the prefix stands.
    prefix_at: u32,
    /// The number of its first key, and how many keys it has.
    first: u32,
    keys: u32,
    /// How many heads it has, and where they stand.
    count: u32,
    heads_at: u32,
    /// Where the table of stretches stands, and the number of its last stretch.
    stretches_at: u32,
    stretch_last: u32,
    /// Where its links stand, one for each head and one behind; [`NONE`] where all heads differ.
    links_at: u32,
    /// How many bits a stretch of heads is wide.
    shift: u32,
}

/// The number of the first key with a head, and the node of the keys that have it.
type Link = [u32; 2];

/// All nodes of a sorted list of keys.
#[derive(Debug)]
pub(crate) struct Heads {
    root: Node,
    nodes: Vec<Node>,
    heads: Fixed<u64>,
    stretches: Fixed<u32>,
    links: Fixed<u32>,
    prefixes: Fixed<u8>,
}

impl Heads {
    /// Reads the heads of sorted keys; `None` where there are none, or more bytes than a piece
    /// holds or 32 bits can number.
    pub(crate) fn new(arena: &Arena, keys: &[Joined<'_>]) -> Option<Heads> {
        if keys.is_empty() {
            return None;
        }
        let mut builder = Builder { keys, ..Builder::default() };
        let root = builder.node(0, keys.len(), 0, 0)?;
        let most = [
            size_of_val(&*builder.heads),
            size_of_val(&*builder.stretches),
            size_of_val(&*builder.links),
            builder.prefixes.len(),
        ];
        if most.into_iter().any(|bytes| bytes >= Piece::BYTES_MAX) {
            return None;
        }
        Some(Heads {
            root,
            nodes: builder.nodes,
            heads: Fixed::new(arena, &builder.heads),
            stretches: Fixed::new(arena, &builder.stretches),
            links: Fixed::new(arena, builder.links.as_flattened()),
            prefixes: Fixed::new(arena, &builder.prefixes),
        })
    }

    /// How many bytes of memory it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let tables = self.stretches.memory_bytes() + self.links.memory_bytes();
        let heads = self.heads.memory_bytes() + self.prefixes.memory_bytes();
        heads + tables + size_of_val(&*self.nodes)
    }

    /// Where `key` stands among the keys.
    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> Position {
        let (mut node, mut key) = (&self.root, key);
        loop {
            let first = node.first as usize;
            let Some(rest) = self.strip(node, key) else {
                let behind = if key < self.prefix_of(node) { 0 } else { node.keys };
                return Position::Behind(first + behind as usize);
            };
            let head = head64(rest);
            let found = self.before(node, head);
            let is_equal = found < node.count as usize
                && self.heads.get(node.heads_at as usize + found) == Some(&head);
            if node.links_at == NONE {
                let at = first + found;
                return if is_equal { Position::Among(at, at + 1) } else { Position::Behind(at) };
            }
            let Some([at, below, end]) = self.links_from(node, found) else {
                return Position::Among(first, first + node.keys as usize);
            };
            if !is_equal {
                return Position::Behind(at as usize);
            }
            let Some(child) = self.nodes.get(below as usize) else {
                return Position::Among(at as usize, end as usize);
            };
            // Keys below go on behind the head: one that ends in it stands before them.
            let Some(behind) = rest.get(8..) else { return Position::Behind(at as usize) };
            (node, key) = (child, behind);
        }
    }

    /// The link of a head, and the first key of the next head.
    #[inline(always)]
    fn links_from(&self, node: &Node, found: usize) -> Option<[u32; 3]> {
        let links = self.links.get(node.links_at as usize + 2 * found..)?;
        match links {
            [at, below, end, ..] => Some([*at, *below, *end]),
            // The last node's last link has none behind.
            [at, below] => Some([*at, *below, *at]),
            _ => None,
        }
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

    /// How many heads of the node are less than `head`.
    #[inline(always)]
    fn before(&self, node: &Node, head: u64) -> usize {
        let heads_at = node.heads_at as usize;
        let (mut base, mut left) = (heads_at, node.count as usize);
        if left > TABLELESS_MAX {
            let stretch = head.saturating_sub(node.least) >> node.shift;
            let stretch = stretch.min(u64::from(node.stretch_last)) as usize;
            let bounds = self.stretches.get(node.stretches_at as usize + stretch..);
            let Some([low, high]) = bounds.and_then(|rest| rest.first_chunk()) else { return left };
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

#[derive(Default)]
struct Builder<'a> {
    keys: &'a [Joined<'a>],
    nodes: Vec<Node>,
    heads: Vec<u64>,
    stretches: Vec<u32>,
    links: Vec<Link>,
    prefixes: Vec<u8>,
}

impl Builder<'_> {
    /// Makes the node of the keys from `start` to `end`, of which there is one at least, and which
    /// share the first `skip` bytes.
    fn node(&mut self, start: usize, end: usize, depth: usize, skip: usize) -> Option<Node> {
        let keys = self.keys.get(start..end)?;
        let (first, last) = (*keys.first()?, *keys.last()?);
        let prefix_len = first.shared(&last, skip);
        let mut prefix = [0; INLINE_PREFIX];
        let shared = first.bytes_behind(skip).take(prefix_len);
        prefix.iter_mut().zip(shared).for_each(|(to, from)| *to = from);
        let prefix_at = u32::try_from(self.prefixes.len()).ok()?;
        self.prefixes.extend(first.bytes_behind(skip).take(prefix_len));
        let skip = skip + prefix_len;
        // Each head once, with the number of its first key.
        let mut firsts: Vec<(u64, usize)> = Vec::new();
        for (number, key) in (start..end).zip(keys) {
            let head = key.head(skip);
            if firsts.last().is_none_or(|last| last.0 != head) {
                firsts.push((head, number));
            }
        }
        let count = firsts.len();
        let heads_at = u32::try_from(self.heads.len()).ok()?;
        self.heads.extend(firsts.iter().map(|first| first.0));
        self.heads.extend_from_slice(&[u64::MAX; LOOK]);
        let mut node = Node {
            prefix,
            least: firsts.first()?.0,
            prefix_len: u32::try_from(prefix_len).ok()?,
            prefix_at,
            first: u32::try_from(start).ok()?,
            keys: u32::try_from(end - start).ok()?,
            count: u32::try_from(count).ok()?,
            heads_at,
            stretches_at: u32::try_from(self.stretches.len()).ok()?,
            stretch_last: 0,
            links_at: NONE,
            shift: 0,
        };
        if count > TABLELESS_MAX {
            self.table(&mut node, &firsts)?;
        }
        if count < end - start {
            self.link(&mut node, &firsts, end, depth, skip)?;
        }
        Some(node)
    }

    /// Makes the table of a node's stretches.
    fn table(&mut self, node: &mut Node, firsts: &[(u64, usize)]) -> Option<()> {
        let span = firsts.last()?.0 - node.least;
        node.shift = shift_for(span, firsts.len());
        node.stretch_last = u32::try_from(span >> node.shift).ok()?;
        let mut at = 0;
        for stretch in 0..=u64::from(node.stretch_last) {
            self.stretches.push(u32::try_from(at).ok()?);
            let rest = firsts[at..].iter();
            at += rest.take_while(|first| (first.0 - node.least) >> node.shift == stretch).count();
        }
        self.stretches.push(u32::try_from(at).ok()?);
        Some(())
    }

    /// Makes a node's links, and the nodes below.
    fn link(
        &mut self,
        node: &mut Node,
        firsts: &[(u64, usize)],
        end: usize,
        depth: usize,
        skip: usize,
    ) -> Option<()> {
        let links_at = self.links.len();
        node.links_at = u32::try_from(2 * links_at).ok()?;
        let starts = firsts.iter().map(|first| first.1).chain([end]);
        for start in starts {
            self.links.push([u32::try_from(start).ok()?, NONE]);
        }
        for at in 0..firsts.len() {
            let [from, to] = [at, at + 1].map(|at| self.links[links_at + at][0] as usize);
            if to - from >= RUN_MIN && depth < DEPTH_MAX && self.goes_on(from, to, skip) {
                let child = self.node(from, to, depth + 1, skip + 8)?;
                self.links[links_at + at][1] = u32::try_from(self.nodes.len()).ok()?;
                self.nodes.push(child);
            }
        }
        Some(())
    }

    /// Whether the keys of a run share the whole head: a node of theirs then has other heads.
    fn goes_on(&self, from: usize, to: usize, skip: usize) -> bool {
        self.keys[from].shared(&self.keys[to - 1], skip) >= 8
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

    proptest! {
        #[test]
        fn files_in_folders_are_counted_alike(
            names in proptest::collection::vec((0u32..40, 0u32..60, 0usize..30), 1..400),
            probes in proptest::collection::vec((0u32..42, 0u32..62, 0usize..30), 1..12),
        ) {
            let key = |&(folder, file, cut): &(u32, u32, usize)| {
                let mut key = format!("archive/{folder:03}/folder/document-{file:04}").into_bytes();
                key.truncate(key.len() - cut % 30 / 8);
                key
            };
            let mut keys: Vec<Vec<u8>> = names.iter().map(key).collect();
            keys.sort_unstable();
            let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            let own = keys.iter().step_by(23).map(|key| key.to_vec());
            for probe in own.chain(probes.iter().map(key)) {
                check(&keys, &probe);
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
    /// Each node had a copy of all that its keys share: with prefixes of 60 KiB that was most of a
    /// gigabyte here, more than 32 bits can number in a larger table, and then every look-up said
    /// that the key was not there.
    #[test]
    fn what_many_keys_share_is_there_once() {
        let shared = vec![b'p'; 60 << 10];
        let suffixes: Vec<[u8; 16]> = (0..1 << 16u32)
            .map(|number| {
                // Ten thousand runs of equal heads, each with a node of its own.
                let [a, b, c, d] = u32::to_be_bytes(number / 6);
                [a, b, c, d, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 1 + (number % 6) as u8]
            })
            .collect();
        let joined: Vec<Joined<'_>> = suffixes.iter().map(|own| Joined(&shared, own)).collect();
        let heads = Heads::new(&Arena::new(), &joined).unwrap();
        assert!(heads.nodes.len() > 10_000, "{}", heads.nodes.len());
        assert!(heads.memory_bytes() < 8 << 20, "{}", heads.memory_bytes());
        for (number, own) in suffixes.iter().enumerate().step_by(997) {
            let key = [&shared[..], own].concat();
            assert_eq!(heads.find(&key), Position::Among(number, number + 1));
            let before = heads.find(&key[..key.len() - 1]);
            assert_eq!(before, Position::Behind(number / 6 * 6));
            let longer = heads.find(&[&key[..], b"x"].concat());
            assert_eq!(longer, Position::Behind(number + 1));
        }
        assert_eq!(heads.find(&shared), Position::Behind(0));
        assert_eq!(heads.find(b"q"), Position::Behind(1 << 16));
    }
}
