//! The active filters: filters that are probed, and hashes that are in no file yet.
//!
//! Readers take no lock: they load the current pair of filters (the view), and probe one line of
//! each filter.
//!
//! An inserter locks one of several shards. Under the shard's lock it finds the filter for new
//! hashes, sets the bits and remembers the hash. A thread that changes the view locks *all* shards
//! meanwhile. A shard has all hashes with the same first bits, which are all hashes of its range of
//! lines for any number of lines. So two threads never insert into a line at the same time.
//!
//! INVARIANT:
//! 1. The view never changes during an insert. A hash inserted before a change is in the filter of
//!    the old view, a hash inserted after a change in that of the new view.
//! 2. A hash whose insert has returned is in a shard's `pending`, or was taken from `pending` by
//!    [`ActiveFilters::drain`]. So a flush that drains misses no hash that was inserted before it
//!    began.
//! 3. Every inserted hash is remembered, even if all of its bits were set. These bits can be set in
//!    memory only, by a walk over the source or because the line is damaged, and be lost in a
//!    crash.
//! 4. While there is a second filter, the first gets no more hashes. The walk that fills the second
//!    filter returns every hash that the second filter lacks.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use umbel_base::fail_point;
use umbel_base::ignore_poison::IgnorePoison;

use arc_swap::{ArcSwap, Cache};

use crate::layout::cache_line::{LINE_WORDS, Line, mask};
use crate::memory::blocked_filter::{BlockedFilter, GROUP};
use crate::memory::journal_hashes::PartitionedHashes;
use crate::memory::prefetcher::Prefetcher;

/// Number of shards; a power of two.
const SHARDS: usize = 16;
/// Number of damaged lines that are repaired while inserts wait.
const REPAIRED_PER_LOCK: usize = 1024;

/// The shard of a hash. A hash's first bits also choose its line, and the number of lines is a
/// multiple of 64. So all hashes of a line are in one shard.
fn shard_of(hash: u64) -> usize {
    (hash >> (u64::BITS - SHARDS.ilog2())) as usize
}

/// The filters that are probed.
#[derive(Debug, Clone)]
pub(crate) struct FilterPair {
    /// The filter that is probed first. If `None`, every answer is "maybe" until the second filter
    /// is filled.
    pub(crate) first: Option<Arc<BlockedFilter>>,
    /// The filter that is being filled, to which new hashes go.
    pub(crate) second: Option<Arc<BlockedFilter>>,
}

impl FilterPair {
    /// Whether a hash may have been added.
    #[inline(always)]
    pub(crate) fn may_contain(&self, hash: u64) -> bool {
        let Some(first) = &self.first else { return true };
        first.may_contain(hash) || self.second.is_some() && self.second_may_contain(hash)
    }

    /// Probes the second filter. A function of its own, since most of the time there is no second
    /// filter.
    #[inline(never)]
    fn second_may_contain(&self, hash: u64) -> bool {
        self.second.as_ref().is_some_and(|second| second.may_contain(hash))
    }

    /// The filter that new hashes go to.
    pub(crate) fn target(&self) -> Option<&Arc<BlockedFilter>> {
        fail_point!("existence-insert-into-old-filter", self.first.is_some(), |_| {
            self.first.as_ref()
        });
        self.second.as_ref().or(self.first.as_ref())
    }
}

/// Hashes of one shard that are in no file yet.
#[derive(Debug)]
struct PendingShard {
    /// The view's filter for new hashes, so that an inserter need not load the view, which takes
    /// locked instructions.
    target: Option<Arc<BlockedFilter>>,
    /// Whether only inserters set bits of `target`.
    is_unshared: bool,
    pending: Vec<u64>,
    /// Hashes inserted since the repair of damaged lines began; `None` without a repair.
    watched_inserts: Option<Vec<u64>>,
}

impl PendingShard {
    /// Adds a hash to the filter for new hashes, and remembers the hash.
    #[inline]
    fn insert(&mut self, hash: u64) -> bool {
        let wants_step = self.target.as_ref().is_some_and(|target| match self.is_unshared {
            true => target.insert_unshared(hash),
            false => target.insert(hash),
        });
        if let Some(watched) = &mut self.watched_inserts {
            watched.push(hash);
        }
        self.pending.push(hash);
        wants_step
    }

    /// Takes the watched hashes that were inserted since the last call.
    fn take_watched_inserts(&mut self) -> Vec<u64> {
        let watched = self.watched_inserts.as_mut().map(std::mem::take).unwrap_or_default();
        fail_point!("existence-repair-forget-inserts", |_| Vec::new());
        watched
    }
}

/// The filters that are probed, and hashes that are in no file yet.
#[derive(Debug)]
pub(crate) struct ActiveFilters {
    view: Arc<ArcSwap<FilterPair>>,
    prefetcher: Prefetcher,
    shards: Vec<Mutex<PendingShard>>,
}

impl ActiveFilters {
    pub(crate) fn new(view: FilterPair) -> ActiveFilters {
        let shard = || PendingShard {
            target: view.target().cloned(),
            is_unshared: view.second.is_none(),
            pending: Vec::new(),
            watched_inserts: None,
        };
        let shards = (0..SHARDS).map(|_| Mutex::new(shard())).collect();
        let prefetcher = Prefetcher::default();
        prefetcher.point_at(view.first.as_deref(), view.second.as_deref());
        ActiveFilters { shards, prefetcher, view: Arc::new(ArcSwap::from_pointee(view)) }
    }

    fn lock(&self, shard: usize) -> MutexGuard<'_, PendingShard> {
        // Nothing panics between the two changes of a shard.
        self.shards[shard].lock().ignore_poison()
    }

    /// Locks every shard, always in the same order, so that two threads that lock all shards cannot
    /// deadlock.
    fn lock_all(&self) -> Vec<MutexGuard<'_, PendingShard>> {
        (0..SHARDS).map(|shard| self.lock(shard)).collect()
    }

    /// The filters that are probed.
    pub(crate) fn view(&self) -> Arc<FilterPair> {
        self.view.load_full()
    }

    /// Adds a hash. Returns `true`, only at intervals, if a growing filter has enough hashes to
    /// start or continue its growth.
    pub(crate) fn insert(&self, hash: u64) -> bool {
        self.lock(shard_of(hash)).insert(hash)
    }

    /// Adds many hashes as [`ActiveFilters::insert`] does; the lines of all hashes are fetched
    /// together.
    pub(crate) fn insert_batch(&self, hashes: &[u64]) -> bool {
        let mut wants_step = false;
        for hashes in hashes.chunks(GROUP) {
            if hashes.len() > 1 {
                hashes.iter().for_each(|hash| self.prefetcher.prefetch_target(*hash));
            }
            for hash in hashes {
                wants_step |= self.insert(*hash);
            }
        }
        wants_step
    }

    /// Adds hashes from journals, sorted for the filter for new hashes. If there are more than
    /// `at_once`, a hash is added when its line is first requested.
    ///
    /// REQUIRES: no other thread uses the memory yet.
    pub(crate) fn insert_recovered(&self, hashes: PartitionedHashes, at_once: usize) {
        let view = self.view.load();
        let Some(target) = view.target() else { return };
        if hashes.count() > at_once as u64 {
            return target.defer(hashes);
        }
        for part in hashes.parts() {
            target.insert_all(part);
        }
    }

    /// From now on answers "maybe" to every hash. Takes no lock.
    pub(crate) fn answer_maybe(&self) {
        self.view.store(Arc::new(FilterPair { first: None, second: None }));
    }

    /// Prefetches the lines of a hash.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        self.prefetcher.prefetch(hash);
    }

    /// Whether a hash may have been added.
    #[inline]
    pub(crate) fn may_contain(&self, hash: u64) -> bool {
        self.view.load().may_contain(hash)
    }

    /// Loads the current view into `view`, for a thread that keeps the view of its last probe.
    pub(crate) fn cached_view(&self) -> Cache<Arc<ArcSwap<FilterPair>>, Arc<FilterPair>> {
        Cache::new(Arc::clone(&self.view))
    }

    /// Calls [`ActiveFilters::may_contain`] for each hash.
    pub(crate) fn may_contain_batch(&self, hashes: &[u64], answers: &mut [bool]) {
        let view = self.view.load();
        let Some(first) = &view.first else {
            answers.fill(true);
            return;
        };
        for (hashes, answers) in hashes.chunks(GROUP).zip(answers.chunks_mut(GROUP)) {
            first.may_contain_group(hashes, answers);
            if let Some(second) = &view.second {
                let mut too = [false; GROUP];
                second.may_contain_group(hashes, &mut too);
                answers.iter_mut().zip(too).for_each(|(answer, too)| *answer |= too);
            }
        }
    }

    /// Moves the hashes that are in no file yet to `output`.
    pub(crate) fn drain(&self, output: &mut Vec<u64>) {
        for shard in 0..SHARDS {
            self.drain_shard(shard, output);
        }
    }

    fn drain_shard(&self, shard: usize, output: &mut Vec<u64>) {
        fail_point!("existence-cover-unflushed-hashes", shard == 3, |_| ());
        output.append(&mut self.lock(shard).pending);
    }

    /// Number of hashes that are in no file yet and were not drained.
    pub(crate) fn pending(&self) -> u64 {
        (0..SHARDS).map(|shard| self.lock(shard).pending.len() as u64).sum()
    }

    /// Number of buffered hashes, including those inserted during a repair of damaged lines.
    pub(crate) fn buffered(&self) -> u64 {
        let held = |shard: &PendingShard| {
            shard.pending.len() + shard.watched_inserts.as_ref().map_or(0, Vec::len)
        };
        (0..SHARDS).map(|shard| held(&self.lock(shard)) as u64).sum()
    }

    /// Begins a second filter, to which new hashes go from now on. An existing second filter is
    /// dropped.
    ///
    /// REQUIRES: the walk that fills the new filter begins after this call, at the source's start.
    /// If a second filter exists, there is no first filter, so that the walk returns all keys of
    /// the dropped filter.
    pub(crate) fn begin_next_filter(&self, second: BlockedFilter) {
        let shards = self.lock_all();
        let first = self.view.load().first.clone();
        self.change(shards, FilterPair { first, second: Some(Arc::new(second)) });
    }

    /// Changes the view, for readers and for inserters.
    fn change(&self, mut shards: Vec<MutexGuard<'_, PendingShard>>, view: FilterPair) {
        for shard in &mut shards {
            shard.target = view.target().cloned();
            shard.is_unshared = view.second.is_none();
        }
        self.prefetcher.point_at(view.first.as_deref(), view.second.as_deref());
        self.view.store(Arc::new(view));
    }

    /// Makes the second filter the first. Returns whether there was a second filter.
    ///
    /// REQUIRES: a walk over the whole source has ended that began after the second filter.
    pub(crate) fn promote(&self) -> bool {
        let shards = self.lock_all();
        let second = self.view.load().second.clone();
        let found = second.is_some();
        if found {
            self.change(shards, FilterPair { first: second, second: None });
        }
        found
    }

    /// Begins to remember inserted hashes for [`ActiveFilters::repair`].
    pub(crate) fn watch_inserts(&self) {
        self.lock_all().iter_mut().for_each(|shard| shard.watched_inserts = Some(Vec::new()));
    }

    /// Adds the hashes inserted since [`ActiveFilters::watch_inserts`] or the last call to
    /// `remade`, the rebuilt lines of the filter `lines`. Frequent calls keep the memory for these
    /// hashes and the waits of inserters small.
    pub(crate) fn add_watched(&self, remade: &mut BTreeMap<u64, Line>, lines: &BlockedFilter) {
        for shard in 0..SHARDS {
            let watched = self.lock(shard).take_watched_inserts();
            watched.into_iter().for_each(|hash| add_to(remade, lines, hash));
        }
    }

    /// Replaces damaged lines of the first filter by those in `remade`, with the bits of every hash
    /// inserted since [`ActiveFilters::watch_inserts`]. Inserters wait for a part of the repair at
    /// most.
    ///
    /// REQUIRES: a walk over the whole source has ended since then, and `remade` has the bits of
    /// all its hashes. There is no second filter.
    pub(crate) fn repair(&self, mut remade: BTreeMap<u64, Line>) {
        let view = self.view();
        let Some(first) = &view.first else { return };
        while !self.repair_some(&mut remade, first, REPAIRED_PER_LOCK) {}
    }

    /// Repairs up to `lines_max` lines as [`ActiveFilters::repair`] does, and removes them from
    /// `remade`. Returns whether `remade` is empty; until then inserts are remembered.
    ///
    /// Later inserts set bits of a repaired line directly. Every insert into a line that is not
    /// repaired yet is in `remade` or remembered.
    fn repair_some(
        &self,
        remade: &mut BTreeMap<u64, Line>,
        first: &BlockedFilter,
        lines_max: usize,
    ) -> bool {
        self.add_watched(remade, first);
        let mut shards = self.lock_all();
        for shard in &mut shards {
            shard.take_watched_inserts().into_iter().for_each(|hash| add_to(remade, first, hash));
        }
        for (number, bits) in (0..lines_max).map_while(|_| remade.pop_first()) {
            first.replace(number, &bits);
        }
        let is_over = remade.is_empty();
        if is_over {
            shards.iter_mut().for_each(|shard| shard.watched_inserts = None);
        }
        is_over
    }
}

/// Adds a hash to its line if the line is under repair.
pub(crate) fn add_to(remade: &mut BTreeMap<u64, Line>, lines: &BlockedFilter, hash: u64) {
    let place = lines.locate(hash);
    if let Some(line) = remade.get_mut(&place.line) {
        let mask = mask(place, lines.shape().probes);
        (0..LINE_WORDS).for_each(|word| line[word] |= mask[word]);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::layout::filter_sizing::FilterDimensions;

    fn hash_of(number: u64) -> u64 {
        umbel_base::checksum::checksum(7, number, b"key")
    }

    #[test]
    fn hashes_of_a_line_are_in_one_shard() {
        for keys in [1, 5_000, 100_000, 3_000_000, 70_000_001] {
            let shape = FilterDimensions::growing(keys);
            let shard_of_line = |line: u64| (line * SHARDS as u64 / shape.lines) as usize;
            for number in 0..20_000 {
                // Also those at the borders of shards.
                let border = (number % SHARDS as u64) << 60;
                for hash in [hash_of(number), border + number, border.wrapping_sub(1 + number)] {
                    let line = crate::layout::cache_line::locate(hash, shape.lines).line;
                    assert_eq!(shard_of(hash), shard_of_line(line), "{hash:x}, {line}");
                }
            }
        }
    }

    /// Inserters set bits without locked instructions: two in one line would lose some. Of as few
    /// lines as there can be two threads often want the same.
    #[test]
    fn concurrent_inserts_lose_no_bit() {
        const EACH: usize = 600;
        for round in 0..300 {
            let first = Arc::new(BlockedFilter::new(FilterDimensions::growing(1)));
            let memory = ActiveFilters::new(FilterPair { first: Some(first), second: None });
            let hashes: Vec<u64> =
                (0..2 * EACH as u64).map(|number| hash_of(number + round * 1_000_000)).collect();
            let waiting = AtomicUsize::new(2);
            std::thread::scope(|scope| {
                for (thread, hashes) in hashes.chunks(EACH).enumerate() {
                    let (memory, waiting) = (&memory, &waiting);
                    scope.spawn(move || {
                        waiting.fetch_sub(1, Ordering::AcqRel);
                        while waiting.load(Ordering::Acquire) > 0 {
                            std::hint::spin_loop();
                        }
                        match thread {
                            0 => _ = memory.insert_batch(hashes),
                            _ => hashes.iter().for_each(|hash| _ = memory.insert(*hash)),
                        }
                    });
                }
            });
            assert!(hashes.iter().all(|hash| memory.may_contain(*hash)), "round {round}");
            assert_eq!(memory.pending(), hashes.len() as u64);
        }
    }

    /// Story: all lines were repaired at once, with everything that had been inserted during the
    /// walk, while every insert waited.
    #[test]
    fn stepwise_rebuild_keeps_concurrent_inserts() {
        let first = Arc::new(BlockedFilter::new(FilterDimensions::growing(10_000)));
        let memory =
            ActiveFilters::new(FilterPair { first: Some(Arc::clone(&first)), second: None });
        let numbers = 0..first.shape().lines;
        memory.watch_inserts();
        let mut remade: BTreeMap<u64, Line> =
            numbers.map(|number| (number, [0; LINE_WORDS])).collect();
        let (mut inserted, mut parts) = (0..10_000, 1);
        let mut insert = |count| {
            for number in inserted.by_ref().take(count) {
                memory.insert(hash_of(number));
            }
            inserted.start
        };
        insert(500);
        assert_eq!((memory.buffered(), memory.pending()), (1000, 500));
        memory.add_watched(&mut remade, &first);
        assert_eq!((memory.buffered(), memory.pending()), (500, 500));
        insert(10);
        let mut left = remade.len();
        while !memory.repair_some(&mut remade, &first, 50) {
            assert_eq!(left - remade.len(), 50);
            left = remade.len();
            let count = insert(7);
            assert!((0..count).all(|number| memory.may_contain(hash_of(number))), "{parts}");
            parts += 1;
        }
        assert!(parts > 3, "{parts}");
        let count = insert(1);
        assert_eq!(memory.buffered(), count, "nothing is watched any more");
        // As if they all had been inserted into an empty filter.
        let fresh = BlockedFilter::new(first.shape());
        fresh.insert_all(&(0..count).map(hash_of).collect::<Vec<_>>());
        for page in 0..first.shape().pages() {
            assert_eq!(first.page(page), fresh.page(page));
        }
    }
}
