//! [`UnflushedViews`]: numbered entries of views that are not in the index yet.
//!
//! Unflushed entries count their numbers from 0: an append reads only memory, so the count of
//! earlier numbers is not known. A read or flush adds the count from the index.

use umbel_base::fail_point;
use umbel_filter::{HashSecret, hash_key};

use crate::index::view_block::ViewBlock;
use crate::primitives::prehashed_map::PrehashedMap;
use crate::types::view_kind::{ViewKind, begins_stream, category};

/// An event as an entry of views.
#[derive(Debug, Clone, Copy)]
pub struct IndexedEvent<'a> {
    /// Position of the event.
    pub position: u64,
    /// Revision of the event.
    pub revision: u64,
    /// Type of the event.
    pub kind: &'a str,
}

/// Unflushed entries of one view.
#[derive(Debug, Default)]
pub struct UnflushedEntries {
    full_blocks: Vec<ViewBlock>,
    open_block: ViewBlock,
    /// Count of numbers that the view gave to events.
    pub number_count: u64,
    /// Count of numbers without an entry, because the event was removed.
    pub skipped: u64,
    /// Position of the first event that was given a number.
    pub first_position: u64,
    /// Position of the last event that was given a number.
    pub last_position: u64,
}

impl UnflushedEntries {
    #[inline]
    fn push(&mut self, position: u64) {
        if self.open_block.is_full() {
            self.full_blocks.push(std::mem::take(&mut self.open_block));
        }
        self.open_block.push(self.number_count, position);
        self.assign_numbers(1, position);
    }

    fn skip(&mut self, count: u64, position: u64) {
        self.skipped += count;
        self.assign_numbers(count, position);
    }

    #[inline]
    fn assign_numbers(&mut self, count: u64, position: u64) {
        if self.number_count == 0 {
            self.first_position = position;
        }
        self.number_count = self.number_count_with(count);
        self.last_position = position;
    }

    /// Returns the count of numbers after `added` more.
    #[inline]
    fn number_count_with(&self, added: u64) -> u64 {
        fail_point!("view-count-first-entry-twice", self.number_count == 0, |_| added + 1);
        self.number_count + added
    }

    fn memory_bytes(&self) -> usize {
        self.open_block.memory_bytes() + self.full_blocks.capacity() * size_of::<ViewBlock>()
    }

    fn blocks(&self) -> impl Iterator<Item = &ViewBlock> {
        let open = std::iter::once(&self.open_block).filter(|block| !block.is_empty());
        self.full_blocks.iter().chain(open)
    }

    /// Returns every entry, in order.
    pub fn entries(&self) -> impl Iterator<Item = (u64, u64)> {
        self.blocks().flat_map(ViewBlock::entries)
    }

    /// Reads entries like [`ViewBlock::read_page`](super::view_block::ViewBlock::read_page).
    pub fn read_page(
        &self,
        base: u64,
        (from, backwards): (u64, bool),
        limit: usize,
        found: &mut Vec<(u64, u64)>,
    ) {
        let take = |block: &ViewBlock, found: &mut Vec<_>| {
            block.read_page(base, (from, backwards), limit, found);
            found.len() < limit
        };
        let open = Some(&self.open_block).filter(|block| !block.is_empty());
        if backwards {
            let count = self.blocks_before(|block| base + block.first <= from);
            let open = open.filter(|block| base + block.first <= from);
            let mut before = open.into_iter().chain(self.full_blocks[..count].iter().rev());
            while before.next().is_some_and(|block| take(block, found)) {}
        } else {
            let count = self.blocks_before(|block| base + block.last < from);
            let open = open.filter(|block| base + block.last >= from);
            let mut after = self.full_blocks[count..].iter().chain(open);
            while after.next().is_some_and(|block| take(block, found)) {}
        }
    }

    /// Number of full blocks before the first one that does not fulfil this; no later one does.
    fn blocks_before(&self, is_before: impl Fn(&ViewBlock) -> bool) -> usize {
        self.full_blocks.partition_point(|block| {
            #[cfg(test)]
            tests::VISITED.with(|visited| visited.set(visited.get() + 1));
            is_before(block)
        })
    }

    /// Count of numbers up to the last event at or before `position`.
    pub fn count_through(&self, position: u64) -> u64 {
        if self.last_position <= position {
            return self.number_count;
        }
        let count = self.blocks_before(|block| block.first_position <= position);
        let last = self.full_blocks[..count].last();
        self.open_block
            .count_through(position)
            .or_else(|| last?.count_through(position))
            .unwrap_or(0)
    }
}

/// A view with unflushed entries.
#[derive(Debug)]
pub struct UnflushedView {
    /// Kind of the view.
    pub kind: ViewKind,
    /// Category or type of the view.
    pub name: Box<str>,
    /// Unflushed entries of the view.
    pub entries: UnflushedEntries,
    /// Another view whose name has the same hash.
    same_hash: Option<usize>,
}

impl UnflushedView {
    /// Whether this view has this kind and name. An empty name is not compared, since its pointer
    /// is dangling. On processors with masked loads, comparing a dangling pointer takes as long as
    /// a cache miss or two.
    #[inline]
    fn matches(&self, kind: ViewKind, name: &str) -> bool {
        let has_name = self.name.len() == name.len() && (name.is_empty() || *self.name == *name);
        self.kind == kind && has_name
    }
}

/// Memory of an unflushed view, including its place in the map, but without the bytes of its name.
const VIEW_OVERHEAD_BYTES: usize = size_of::<UnflushedView>() + 64;

/// Numbered entries of all views since one moment.
#[derive(Debug)]
pub struct UnflushedViews {
    /// Every event up to this position is in this set or got its numbers before.
    pub through: u64,
    /// Approximate bytes of memory.
    pub bytes: usize,
    views: Vec<UnflushedView>,
    by_hash: PrehashedMap<usize>,
    /// View of each kind that was given the last number of that kind.
    newest_views: [usize; 3],
}

impl UnflushedViews {
    /// Creates an empty set, for events after this position.
    pub fn new(through: u64) -> UnflushedViews {
        let (views, by_hash) = (Vec::new(), PrehashedMap::default());
        UnflushedViews { through, bytes: 0, views, by_hash, newest_views: [0; 3] }
    }

    /// Whether no view has entries.
    pub fn is_empty(&self) -> bool {
        self.views.is_empty()
    }

    /// Returns the views that have entries.
    pub fn views(&self) -> impl Iterator<Item = &UnflushedView> {
        self.views.iter()
    }

    /// Numbers the events of a stream, and returns the last event. REQUIRES: the positions of the
    /// events are ascending, and higher than all positions added before.
    pub fn add<'a>(
        &mut self,
        secret: &HashSecret,
        stream: &str,
        events: impl Iterator<Item = IndexedEvent<'a>>,
    ) -> Option<IndexedEvent<'a>> {
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
        let index = self.find_or_insert(secret, kind, name);
        let tail = &mut self.views[index].entries;
        let before = tail.memory_bytes();
        tail.push(position);
        self.bytes += tail.memory_bytes().saturating_sub(before);
    }

    /// Numbers removed events, the last of which was at `position`. REQUIRES: the same as
    /// [`UnflushedViews::add`].
    pub fn skip(
        &mut self,
        secret: &HashSecret,
        (kind, name): (ViewKind, &str),
        count: u64,
        position: u64,
    ) {
        if count > 0 {
            let index = self.find_or_insert(secret, kind, name);
            self.views[index].entries.skip(count, position);
        }
    }

    /// Returns the entries of a view; `None` without entries.
    pub fn entries_of(
        &self,
        secret: &HashSecret,
        kind: ViewKind,
        name: &str,
    ) -> Option<&UnflushedEntries> {
        let index = self.find(view_hash(secret, kind, name), kind, name)?;
        Some(&self.views[index].entries)
    }

    #[inline]
    fn find_or_insert(&mut self, secret: &HashSecret, kind: ViewKind, name: &str) -> usize {
        let newest = &mut self.newest_views[usize::from(kind.to_number())];
        let is_same = |view: &&UnflushedView| view.matches(kind, name);
        if self.views.get(*newest).filter(is_same).is_some() {
            return *newest;
        }
        let hash = view_hash(secret, kind, name);
        let index = self.find(hash, kind, name).unwrap_or_else(|| self.insert(hash, kind, name));
        self.newest_views[usize::from(kind.to_number())] = index;
        index
    }

    fn find(&self, hash: u64, kind: ViewKind, name: &str) -> Option<usize> {
        let mut next = self.by_hash.get(&hash).copied();
        while let Some(index) = next {
            let view = &self.views[index];
            if view.matches(kind, name) {
                return Some(index);
            }
            next = view.same_hash;
        }
        None
    }

    fn insert(&mut self, hash: u64, kind: ViewKind, name: &str) -> usize {
        let index = self.views.len();
        let same_hash = self.by_hash.insert(hash, index);
        self.views.push(UnflushedView {
            kind,
            name: name.into(),
            entries: UnflushedEntries::default(),
            same_hash,
        });
        self.bytes += VIEW_OVERHEAD_BYTES + name.len();
        index
    }
}

fn view_hash(secret: &HashSecret, kind: ViewKind, name: &str) -> u64 {
    hash_key(secret, name.as_bytes()).wrapping_add(u64::from(kind.to_number()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::view_block::BLOCK_ENTRIES;

    thread_local! {
        /// Number of blocks that searches looked at.
        pub static VISITED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    }

    fn secret() -> HashSecret {
        HashSecret::from_seed([3; 16])
    }

    fn placed(position: u64, revision: u64, kind: &str) -> IndexedEvent<'_> {
        IndexedEvent { position, revision, kind }
    }

    fn entries(tails: &UnflushedViews, kind: ViewKind, name: &str) -> Vec<(u64, u64)> {
        let tail = tails.entries_of(&secret(), kind, name);
        tail.map_or_else(Vec::new, |tail| tail.entries().collect())
    }

    #[test]
    fn event_enters_each_of_its_views() {
        let mut tails = UnflushedViews::new(0);
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
    fn names_with_equal_hashes_are_distinct() {
        let mut tails = UnflushedViews::new(0);
        let (one, two) =
            (tails.insert(7, ViewKind::Type, "a"), tails.insert(7, ViewKind::Type, "b"));
        assert_eq!(tails.find(7, ViewKind::Type, "a"), Some(one));
        assert_eq!(tails.find(7, ViewKind::Type, "b"), Some(two));
        assert_eq!(tails.find(7, ViewKind::Category, "b"), None);
        assert_eq!(tails.find(8, ViewKind::Type, "b"), None);
    }

    #[test]
    fn long_tail_is_readable_from_any_number_in_both_directions() {
        let mut tail = UnflushedEntries::default();
        let count = 3 * BLOCK_ENTRIES as u64 + 5;
        (0..count).for_each(|number| tail.push(96 + 8 * number));
        tail.skip(4, 96 + 8 * count);
        tail.push(104 + 8 * count);
        assert_eq!((tail.number_count, tail.skipped), (count + 5, 4));
        let base = 1000;
        for from in [0, 1, 1023, 1024, 1025, count - 1, count, count + 3, count + 4, count + 5] {
            for limit in [1, 300, 5000] {
                let all: Vec<u64> = (0..count).chain([count + 4]).collect();
                let mut found = Vec::new();
                tail.read_page(base, (base + from, false), limit, &mut found);
                let wanted = all.iter().filter(|number| **number >= from).take(limit);
                assert!(found.iter().map(|(number, _)| number - base).eq(wanted.copied()));
                found.clear();
                tail.read_page(base, (base + from, true), limit, &mut found);
                let wanted = all.iter().rev().filter(|number| **number <= from).take(limit);
                assert!(found.iter().map(|(number, _)| number - base).eq(wanted.copied()));
            }
        }
        assert_eq!(tail.count_through(95), 0);
        assert_eq!(tail.count_through(96 + 8 * 2000), 2001);
        assert_eq!(tail.count_through(96 + 8 * count), count, "those that are gone come last");
        assert_eq!(tail.count_through(u64::MAX), count + 5);
    }

    /// Regression: each page of a view looked at all blocks before it, under the lock that each
    /// append needs. So a read of the whole view was quadratic.
    #[test]
    fn page_of_a_long_tail_is_found_by_a_binary_search() {
        let mut tail = UnflushedEntries::default();
        let (blocks, page) = (500, 100);
        let count = blocks * BLOCK_ENTRIES as u64 + 5;
        (0..count).for_each(|number| tail.push(96 + 8 * number));
        VISITED.with(|visited| visited.set(0));
        for backwards in [false, true] {
            let (mut read, mut found) = (0, Vec::new());
            while read < count {
                let from = if backwards { count - 1 - read } else { read };
                found.clear();
                tail.read_page(0, (from, backwards), page, &mut found);
                assert_eq!(found.first().map(|(number, _)| *number), Some(from));
                assert_eq!(tail.count_through(96 + 8 * from), from + 1);
                read += found.len() as u64;
            }
        }
        let pages = 2 * count.div_ceil(page as u64);
        let visited = VISITED.with(std::cell::Cell::get) as u64;
        assert!(visited <= 2 * 10 * pages, "{visited} blocks for {pages} pages");
    }
}
