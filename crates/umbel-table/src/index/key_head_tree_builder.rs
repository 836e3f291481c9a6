//! Builds a [`KeyHeadTree`] from sorted keys.

use umbel_arena::{Allocation, Arena, ArenaArray};

use crate::format::{INLINE_PREFIX, common_prefix};
use crate::index::key_head_tree::{
    COMPARED_HEADS, HeadNode, KeyHeadTree, LINK, Link, NO_LINK, UNBUCKETED_MAX,
};

/// Number of keys with equal heads from which on they get a node of their own.
const RUN_MIN: usize = 5;
/// Maximum depth of the tree; keys that are equal for longer are compared in full.
const DEPTH_MAX: usize = 16;

/// A key in two parts, as in the file: the common prefix of its index block, and the rest.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SplitKey<'a>(pub(crate) &'a [u8], pub(crate) &'a [u8]);

impl<'a> SplitKey<'a> {
    /// Returns the bytes after the first `at` bytes, in two parts.
    fn tail(&self, at: usize) -> [&'a [u8]; 2] {
        let own = at.saturating_sub(self.0.len());
        [self.0.get(at..).unwrap_or_default(), self.1.get(own..).unwrap_or_default()]
    }

    fn tail_bytes(&self, at: usize) -> impl Iterator<Item = u8> {
        let [shared, own] = self.tail(at);
        shared.iter().chain(own).copied()
    }

    /// Returns how many bytes two keys share after the first `at` bytes, which are equal.
    fn shared(&self, other: &SplitKey<'_>, at: usize) -> usize {
        let ([shared, own], [other_shared, other_own]) = (self.tail(at), other.tail(at));
        let alike = common_prefix(shared, other_shared);
        if alike < shared.len().min(other_shared.len()) {
            return alike;
        }
        if shared.len() == other_shared.len() {
            return alike + common_prefix(own, other_own);
        }
        alike + self.shared_bytewise(other, at + alike)
    }

    fn shared_bytewise(&self, other: &SplitKey<'_>, at: usize) -> usize {
        let pairs = self.tail_bytes(at).zip(other.tail_bytes(at));
        pairs.take_while(|(own, other)| own == other).count()
    }

    /// Returns the head of the bytes after the first `at` bytes.
    fn head(&self, at: usize) -> u64 {
        let mut bytes = [0; 8];
        bytes.iter_mut().zip(self.tail_bytes(at)).for_each(|(to, from)| *to = from);
        u64::from_be_bytes(bytes)
    }
}

impl KeyHeadTree {
    /// Builds the tree of sorted keys. Returns `None` without keys, or if the tree exceeds an arena
    /// allocation or 32-bit offsets.
    pub(crate) fn new(arena: &Arena, keys: &[SplitKey<'_>]) -> Option<KeyHeadTree> {
        if keys.is_empty() {
            return None;
        }
        let mut builder = HeadTreeBuilder { keys, ..HeadTreeBuilder::default() };
        let root = builder.node(0, keys.len(), 0, 0)?;
        let lengths = [
            size_of_val(&*builder.heads),
            size_of_val(&*builder.buckets),
            size_of_val(&*builder.links),
            builder.prefixes.len(),
        ];
        if lengths.into_iter().any(|bytes| bytes >= Allocation::BYTES_MAX) {
            return None;
        }
        Some(KeyHeadTree {
            root,
            nodes: builder.nodes,
            heads: ArenaArray::new(arena, &builder.heads),
            buckets: ArenaArray::new(arena, &builder.buckets),
            links: ArenaArray::new(arena, builder.links.as_flattened()),
            prefixes: ArenaArray::new(arena, &builder.prefixes),
        })
    }
}

#[derive(Default)]
struct HeadTreeBuilder<'a> {
    keys: &'a [SplitKey<'a>],
    nodes: Vec<HeadNode>,
    heads: Vec<u64>,
    buckets: Vec<u32>,
    links: Vec<Link>,
    prefixes: Vec<u8>,
}

impl HeadTreeBuilder<'_> {
    /// Builds the node of the keys from `start` to `end`. REQUIRES: there is at least one key, and
    /// the keys share the first `skip` bytes.
    fn node(&mut self, start: usize, end: usize, depth: usize, skip: usize) -> Option<HeadNode> {
        let keys = self.keys.get(start..end)?;
        let (first, last) = (*keys.first()?, *keys.last()?);
        let prefix_len = first.shared(&last, skip);
        let mut prefix = [0; INLINE_PREFIX];
        let shared = first.tail_bytes(skip).take(prefix_len);
        prefix.iter_mut().zip(shared).for_each(|(to, from)| *to = from);
        let prefix_at = u32::try_from(self.prefixes.len()).ok()?;
        self.prefixes.extend(first.tail_bytes(skip).take(prefix_len));
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
        self.heads.extend_from_slice(&[u64::MAX; COMPARED_HEADS]);
        let mut node = HeadNode {
            prefix,
            least: firsts.first()?.0,
            prefix_len: u32::try_from(prefix_len).ok()?,
            prefix_at,
            first: u32::try_from(start).ok()?,
            keys: u32::try_from(end - start).ok()?,
            count: u32::try_from(count).ok()?,
            heads_at,
            buckets_at: u32::try_from(self.buckets.len()).ok()?,
            bucket_last: 0,
            links_at: NO_LINK,
            shift: 0,
        };
        if count > UNBUCKETED_MAX {
            self.add_buckets(&mut node, &firsts)?;
        }
        if count < end - start {
            self.link(&mut node, &firsts, end, depth, skip)?;
        }
        Some(node)
    }

    /// Builds the bucket table of a node.
    fn add_buckets(&mut self, node: &mut HeadNode, firsts: &[(u64, usize)]) -> Option<()> {
        let span = firsts.last()?.0 - node.least;
        node.shift = shift_for(span, firsts.len());
        node.bucket_last = u32::try_from(span >> node.shift).ok()?;
        let mut at = 0;
        for stretch in 0..=u64::from(node.bucket_last) {
            self.buckets.push(u32::try_from(at).ok()?);
            let rest = firsts[at..].iter();
            at += rest.take_while(|first| (first.0 - node.least) >> node.shift == stretch).count();
        }
        self.buckets.push(u32::try_from(at).ok()?);
        Some(())
    }

    /// Builds a node's links and its child nodes.
    fn link(
        &mut self,
        node: &mut HeadNode,
        firsts: &[(u64, usize)],
        end: usize,
        depth: usize,
        skip: usize,
    ) -> Option<()> {
        let links_at = self.links.len();
        node.links_at = u32::try_from(LINK * links_at).ok()?;
        let starts = firsts.iter().map(|first| first.1).chain([end]);
        for start in starts {
            self.links.push([u32::try_from(start).ok()?, NO_LINK, 0]);
        }
        for at in 0..firsts.len() {
            let [from, to] = [at, at + 1].map(|at| self.links[links_at + at][0] as usize);
            if to - from >= RUN_MIN && depth < DEPTH_MAX && self.shares_whole_head(from, to, skip) {
                let child = self.node(from, to, depth + 1, skip + 8)?;
                let below = u32::try_from(self.nodes.len()).ok()?;
                self.links[links_at + at][1..].copy_from_slice(&[below, child.heads_at]);
                self.nodes.push(child);
            }
        }
        Some(())
    }

    /// Whether the keys of a run share all bytes of the head, so that a child node for them has
    /// other heads.
    fn shares_whole_head(&self, from: usize, to: usize, skip: usize) -> bool {
        self.keys[from].shared(&self.keys[to - 1], skip) >= 8
    }
}

/// Returns the width of buckets, in bits, with which a node has about as many buckets as heads.
fn shift_for(span: u64, count: usize) -> u32 {
    let wanted = count.next_power_of_two().ilog2();
    (u64::BITS - span.leading_zeros()).saturating_sub(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::key_head_tree::{HeadMatch, SearchState, SearchStep};
    use proptest::prelude::*;

    fn check(keys: &[&[u8]], probe: &[u8]) {
        let joined: Vec<SplitKey<'_>> = keys
            .iter()
            .enumerate()
            .map(|(number, key)| {
                let (prefix, suffix) = key.split_at(key.len() * (number % 3) / 2);
                SplitKey(prefix, suffix)
            })
            .collect();
        let heads = KeyHeadTree::new(&Arena::new(), &joined).unwrap();
        let before = keys.partition_point(|key| *key < probe);
        let position = heads.find_from(SearchState::default(), probe, |_| ());
        let mut way = heads.begin_search(probe);
        let mut below = heads.prefetch(way, probe, |hint| assert!(hint <= keys.len()));
        assert_eq!(heads.find_from(way, probe, |hint| assert!(hint <= keys.len())), position);
        // One node after the other, as a batch goes down.
        while below {
            match heads.descend(way, probe) {
                SearchStep::Node(next) => way = next,
                SearchStep::Keys(low, high) => {
                    assert_eq!(HeadMatch::Among(low, high), position);
                    break;
                }
                SearchStep::Done => break,
            }
            heads.prefetch_node(way, probe);
            below = heads.prefetch(way, probe, |hint| assert!(hint <= keys.len()));
            assert_eq!(heads.find_from(way, probe, |hint| assert!(hint <= keys.len())), position);
        }
        match position {
            HeadMatch::After(found) => {
                assert_eq!(found, before, "{probe:?}");
                assert!(!keys.contains(&probe));
            }
            HeadMatch::Among(low, high) => {
                assert!(low <= before && before <= high && low < high, "{probe:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn rank_equals_a_linear_count(
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
        fn path_like_keys_have_the_same_rank(
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
    fn keys_growing_by_heads_keep_the_node_count_bounded() {
        let all = vec![3u8; 8 * 300];
        let keys: Vec<&[u8]> = (0..300).map(|n| &all[..8 * n]).collect();
        let joined: Vec<SplitKey<'_>> = keys.iter().map(|key| SplitKey(&[], key)).collect();
        let heads = KeyHeadTree::new(&Arena::new(), &joined).unwrap();
        assert!((1..=DEPTH_MAX).contains(&heads.nodes.len()));
        for key in &keys {
            check(&keys, key);
        }
    }
    /// Story: each node had a copy of the common bytes of its keys. With prefixes of 60 KiB the
    /// copies took most of a gigabyte in this test, and in a larger table more than 32 bits can
    /// address. In such a table every lookup was a miss.
    #[test]
    fn shared_prefix_is_stored_once() {
        let shared = vec![b'p'; 60 << 10];
        let suffixes: Vec<[u8; 16]> = (0..1 << 16u32)
            .map(|number| {
                // Ten thousand runs of equal heads, each with a node of its own.
                let [a, b, c, d] = u32::to_be_bytes(number / 6);
                [a, b, c, d, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 1 + (number % 6) as u8]
            })
            .collect();
        let joined: Vec<SplitKey<'_>> = suffixes.iter().map(|own| SplitKey(&shared, own)).collect();
        let heads = KeyHeadTree::new(&Arena::new(), &joined).unwrap();
        let find = |key: &[u8]| heads.find_from(SearchState::default(), key, |_| ());
        assert!(heads.nodes.len() > 10_000, "{}", heads.nodes.len());
        assert!(heads.memory_bytes() < 8 << 20, "{}", heads.memory_bytes());
        for (number, own) in suffixes.iter().enumerate().step_by(997) {
            let key = [&shared[..], own].concat();
            assert_eq!(find(&key), HeadMatch::Among(number, number + 1));
            let before = find(&key[..key.len() - 1]);
            assert_eq!(before, HeadMatch::After(number / 6 * 6));
            let longer = find(&[&key[..], b"x"].concat());
            assert_eq!(longer, HeadMatch::After(number + 1));
        }
        assert_eq!(find(&shared), HeadMatch::After(0));
        assert_eq!(find(b"q"), HeadMatch::After(1 << 16));
    }
}
