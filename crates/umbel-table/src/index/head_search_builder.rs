//! Makes the nodes of [`Heads`] from sorted keys.

use umbel_arena::{Arena, Fixed, Piece};

use crate::format::{INLINE_PREFIX, common_prefix};
use crate::heads::{Heads, LINK, LOOK, Link, NONE, Node, TABLELESS_MAX};

/// So many keys with equal heads are worth a node of their own.
const RUN_MIN: usize = 5;
/// Nodes below nodes; keys that are equal for longer are compared whole.
const DEPTH_MAX: usize = 16;

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
        node.links_at = u32::try_from(LINK * links_at).ok()?;
        let starts = firsts.iter().map(|first| first.1).chain([end]);
        for start in starts {
            self.links.push([u32::try_from(start).ok()?, NONE, 0]);
        }
        for at in 0..firsts.len() {
            let [from, to] = [at, at + 1].map(|at| self.links[links_at + at][0] as usize);
            if to - from >= RUN_MIN && depth < DEPTH_MAX && self.goes_on(from, to, skip) {
                let child = self.node(from, to, depth + 1, skip + 8)?;
                let below = u32::try_from(self.nodes.len()).ok()?;
                self.links[links_at + at][1..].copy_from_slice(&[below, child.heads_at]);
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
    use crate::heads::{Below, Position, Way};
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
        let position = heads.find_from(Way::default(), probe, |_| ());
        let mut way = heads.way(probe);
        let mut below = heads.prefetch(way, probe, |hint| assert!(hint <= keys.len()));
        assert_eq!(heads.find_from(way, probe, |hint| assert!(hint <= keys.len())), position);
        // One node after the other, as a batch goes down.
        while below {
            match heads.below(way, probe) {
                Below::Node(next) => way = next,
                Below::Keys(low, high) => {
                    assert_eq!(Position::Among(low, high), position);
                    break;
                }
                Below::Nothing => break,
            }
            heads.prefetch_node(way, probe);
            below = heads.prefetch(way, probe, |hint| assert!(hint <= keys.len()));
            assert_eq!(heads.find_from(way, probe, |hint| assert!(hint <= keys.len())), position);
        }
        match position {
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
        let find = |key: &[u8]| heads.find_from(Way::default(), key, |_| ());
        assert!(heads.nodes.len() > 10_000, "{}", heads.nodes.len());
        assert!(heads.memory_bytes() < 8 << 20, "{}", heads.memory_bytes());
        for (number, own) in suffixes.iter().enumerate().step_by(997) {
            let key = [&shared[..], own].concat();
            assert_eq!(find(&key), Position::Among(number, number + 1));
            let before = find(&key[..key.len() - 1]);
            assert_eq!(before, Position::Behind(number / 6 * 6));
            let longer = find(&[&key[..], b"x"].concat());
            assert_eq!(longer, Position::Behind(number + 1));
        }
        assert_eq!(find(&shared), Position::Behind(0));
        assert_eq!(find(b"q"), Position::Behind(1 << 16));
    }
}
