//! [`Tails`]: what was given numbers in the views and is not in the index yet.
//!
//! A tail counts its numbers from 0. How many were given before it is not known here: whoever
//! appends looks at nothing but memory, and whoever reads or flushes adds what the index says.

use umbel_filter::{HashSecret, hash_key};

use crate::by_name::ByHash;
use crate::view_block::Block;
use crate::view_name::{ViewKind, begins_stream, category};

/// An event as it goes into the views.
#[derive(Debug, Clone, Copy)]
pub struct Placed<'a> {
    /// Its position.
    pub position: u64,
    /// Its revision.
    pub revision: u64,
    /// Its type.
    pub kind: &'a str,
}

/// What one view was given.
#[derive(Debug, Default)]
pub struct Tail {
    full: Vec<Block>,
    open: Block,
    /// How many numbers.
    pub numbers: u64,
    /// How many of them have no entry, because the event was gone.
    pub skipped: u64,
    /// The position of the first event that was given a number.
    pub first_position: u64,
    /// The position of the last one.
    pub last_position: u64,
}

impl Tail {
    #[inline]
    fn push(&mut self, position: u64) {
        if self.open.is_full() {
            self.full.push(std::mem::take(&mut self.open));
        }
        self.open.push(self.numbers, position);
        self.give(1, position);
    }

    fn skip(&mut self, count: u64, position: u64) {
        self.skipped += count;
        self.give(count, position);
    }

    #[inline]
    fn give(&mut self, count: u64, position: u64) {
        if self.numbers == 0 {
            self.first_position = position;
            #[cfg(feature = "canary")]
            if umbel_base::canary::Switch::ViewCountsTwice.is_on() {
                self.numbers = 1;
            }
        }
        self.numbers += count;
        self.last_position = position;
    }

    fn held_bytes(&self) -> usize {
        self.open.held_bytes() + self.full.capacity() * size_of::<Block>()
    }

    fn blocks(&self) -> impl DoubleEndedIterator<Item = &Block> {
        let open = std::iter::once(&self.open).filter(|block| !block.is_empty());
        self.full.iter().chain(open)
    }

    /// Every entry, in order.
    pub fn entries(&self) -> impl Iterator<Item = (u64, u64)> {
        self.blocks().flat_map(Block::entries)
    }

    /// As [`Block::take_page`].
    pub fn take_page(
        &self,
        base: u64,
        (from, backwards): (u64, bool),
        most: usize,
        found: &mut Vec<(u64, u64)>,
    ) {
        let take = |block: &Block, found: &mut Vec<_>| {
            block.take_page(base, (from, backwards), most, found);
            found.len() < most
        };
        if backwards {
            let mut before = self.blocks().rev().filter(|block| base + block.first <= from);
            while before.next().is_some_and(|block| take(block, found)) {}
        } else {
            let mut behind = self.blocks().filter(|block| base + block.last >= from);
            while behind.next().is_some_and(|block| take(block, found)) {}
        }
    }

    /// How many numbers were given up to the last event at `position` or before it.
    pub fn numbers_through(&self, position: u64) -> u64 {
        if self.last_position <= position {
            return self.numbers;
        }
        self.blocks().rev().find_map(|block| block.numbers_through(position)).unwrap_or(0)
    }
}

/// A view that was given something.
#[derive(Debug)]
pub struct Touched {
    /// Which kind of view it is.
    pub kind: ViewKind,
    /// Its category or type.
    pub name: Box<str>,
    /// What it was given.
    pub tail: Tail,
    /// Another one whose name has the same hash.
    same_hash: Option<usize>,
}

impl Touched {
    /// Whether it is this view. An empty name is not compared: it lies nowhere, and on processors
    /// that mask what they load of it, a comparison there takes as long as a cache miss or two.
    #[inline]
    fn is(&self, kind: ViewKind, name: &str) -> bool {
        let has_name = self.name.len() == name.len() && (name.is_empty() || *self.name == *name);
        self.kind == kind && has_name
    }
}

/// What a view takes besides the bytes of its name, with its place in the map.
const TOUCHED_BYTES: usize = size_of::<Touched>() + 64;

/// What was given numbers since one moment.
#[derive(Debug)]
pub struct Tails {
    /// Everything up to this position is in here or was given its numbers before.
    pub through: u64,
    /// Bytes of memory, about.
    pub bytes: usize,
    views: Vec<Touched>,
    by_hash: ByHash<usize>,
    /// The view of each kind that was given the last number of that kind.
    newest: [usize; 3],
}

impl Tails {
    /// Nothing, behind this position.
    pub fn new(through: u64) -> Tails {
        let (views, by_hash) = (Vec::new(), ByHash::default());
        Tails { through, bytes: 0, views, by_hash, newest: [0; 3] }
    }

    /// Whether nothing is in here.
    pub fn is_empty(&self) -> bool {
        self.views.is_empty()
    }

    /// The views that were given something.
    pub fn views(&self) -> impl Iterator<Item = &Touched> {
        self.views.iter()
    }

    /// Gives numbers to the events of a stream, and returns the last of them. REQUIRES: their
    /// positions are higher than those of all that came before, and grow.
    pub fn add<'a>(
        &mut self,
        secret: &HashSecret,
        stream: &str,
        events: impl Iterator<Item = Placed<'a>>,
    ) -> Option<Placed<'a>> {
        let category = category(stream);
        let mut last = None;
        for event in events {
            if let Some(category) = category {
                self.push(secret, ViewKind::Category, category, event.position);
            }
            self.push(secret, ViewKind::Type, event.kind, event.position);
            if begins_stream(stream, event.revision) {
                self.push(secret, ViewKind::Streams, "", event.position);
            }
            last = Some(event);
        }
        last
    }

    #[inline]
    fn push(&mut self, secret: &HashSecret, kind: ViewKind, name: &str, position: u64) {
        let index = self.touch(secret, kind, name);
        let tail = &mut self.views[index].tail;
        let before = tail.held_bytes();
        tail.push(position);
        self.bytes += tail.held_bytes().saturating_sub(before);
    }

    /// Gives numbers to events that are gone, the last of which stood at `position`.
    /// REQUIRES: as [`Tails::add`].
    pub fn skip(
        &mut self,
        secret: &HashSecret,
        (kind, name): (ViewKind, &str),
        count: u64,
        position: u64,
    ) {
        if count > 0 {
            let index = self.touch(secret, kind, name);
            self.views[index].tail.skip(count, position);
        }
    }

    /// What a view was given; `None` where that is nothing.
    pub fn tail(&self, secret: &HashSecret, kind: ViewKind, name: &str) -> Option<&Tail> {
        let index = self.find(hash(secret, kind, name), kind, name)?;
        Some(&self.views[index].tail)
    }

    #[inline]
    fn touch(&mut self, secret: &HashSecret, kind: ViewKind, name: &str) -> usize {
        let newest = &mut self.newest[usize::from(kind.number())];
        let is_same = |view: &&Touched| view.is(kind, name);
        if self.views.get(*newest).filter(is_same).is_some() {
            return *newest;
        }
        let hash = hash(secret, kind, name);
        let index = self.find(hash, kind, name).unwrap_or_else(|| self.insert(hash, kind, name));
        self.newest[usize::from(kind.number())] = index;
        index
    }

    fn find(&self, hash: u64, kind: ViewKind, name: &str) -> Option<usize> {
        let mut next = self.by_hash.get(&hash).copied();
        while let Some(index) = next {
            let view = &self.views[index];
            if view.is(kind, name) {
                return Some(index);
            }
            next = view.same_hash;
        }
        None
    }

    fn insert(&mut self, hash: u64, kind: ViewKind, name: &str) -> usize {
        let index = self.views.len();
        let same_hash = self.by_hash.insert(hash, index);
        self.views.push(Touched { kind, name: name.into(), tail: Tail::default(), same_hash });
        self.bytes += TOUCHED_BYTES + name.len();
        index
    }
}

fn hash(secret: &HashSecret, kind: ViewKind, name: &str) -> u64 {
    hash_key(secret, name.as_bytes()).wrapping_add(u64::from(kind.number()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view_block::BLOCK_ENTRIES;

    fn secret() -> HashSecret {
        HashSecret::from_seed([3; 16])
    }

    fn placed(position: u64, revision: u64, kind: &str) -> Placed<'_> {
        Placed { position, revision, kind }
    }

    fn entries(tails: &Tails, kind: ViewKind, name: &str) -> Vec<(u64, u64)> {
        let tail = tails.tail(&secret(), kind, name);
        tail.map_or_else(Vec::new, |tail| tail.entries().collect())
    }

    #[test]
    fn an_event_goes_into_each_of_its_views() {
        let mut tails = Tails::new(0);
        tails.add(&secret(), "cart-1", [placed(96, 0, "A"), placed(104, 1, "B")].into_iter());
        tails.add(&secret(), "A", [placed(112, 0, "A")].into_iter());
        tails.add(&secret(), "$$cart-1", [placed(120, 0, "$metadata")].into_iter());
        tails.add(&secret(), "cart-2", [placed(128, 0, "cart")].into_iter());
        use ViewKind::{Category, Streams, Type};
        assert_eq!(entries(&tails, Category, "cart"), [(0, 96), (1, 104), (2, 128)]);
        assert_eq!(entries(&tails, Type, "cart"), [(0, 128)], "a type is no category");
        assert_eq!(entries(&tails, Type, "A"), [(0, 96), (1, 112)]);
        assert_eq!(entries(&tails, Type, "$metadata"), [(0, 120)]);
        assert_eq!(entries(&tails, Streams, ""), [(0, 96), (1, 112), (2, 128)]);
        assert_eq!(entries(&tails, Category, "$$cart"), []);
        assert_eq!(tails.views().count(), 6);
    }

    #[test]
    fn names_with_one_hash_are_told_apart() {
        let mut tails = Tails::new(0);
        let (one, two) =
            (tails.insert(7, ViewKind::Type, "a"), tails.insert(7, ViewKind::Type, "b"));
        assert_eq!(tails.find(7, ViewKind::Type, "a"), Some(one));
        assert_eq!(tails.find(7, ViewKind::Type, "b"), Some(two));
        assert_eq!(tails.find(7, ViewKind::Category, "b"), None);
        assert_eq!(tails.find(8, ViewKind::Type, "b"), None);
    }

    #[test]
    fn a_long_tail_is_read_from_any_number_both_ways() {
        let mut tail = Tail::default();
        let count = 3 * BLOCK_ENTRIES as u64 + 5;
        (0..count).for_each(|number| tail.push(96 + 8 * number));
        tail.skip(4, 96 + 8 * count);
        tail.push(104 + 8 * count);
        assert_eq!((tail.numbers, tail.skipped), (count + 5, 4));
        let base = 1000;
        for from in [0, 1, 1023, 1024, 1025, count - 1, count, count + 3, count + 4, count + 5] {
            for most in [1, 300, 5000] {
                let all: Vec<u64> = (0..count).chain([count + 4]).collect();
                let mut found = Vec::new();
                tail.take_page(base, (base + from, false), most, &mut found);
                let wanted = all.iter().filter(|number| **number >= from).take(most);
                assert!(found.iter().map(|(number, _)| number - base).eq(wanted.copied()));
                found.clear();
                tail.take_page(base, (base + from, true), most, &mut found);
                let wanted = all.iter().rev().filter(|number| **number <= from).take(most);
                assert!(found.iter().map(|(number, _)| number - base).eq(wanted.copied()));
            }
        }
        assert_eq!(tail.numbers_through(95), 0);
        assert_eq!(tail.numbers_through(96 + 8 * 2000), 2001);
        assert_eq!(tail.numbers_through(96 + 8 * count), count, "those that are gone come last");
        assert_eq!(tail.numbers_through(u64::MAX), count + 5);
    }
}
