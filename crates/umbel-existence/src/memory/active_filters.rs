//! What answers: the filters that are asked, and the hashes that no file has yet.
//!
//! Readers take no lock: they load the view, and ask one line of each filter in it.
//!
//! Inserters lock one of several shards, and do everything under it: look which filter new hashes
//! go to, set the bits, remember the hash. Whoever changes the view locks *all* shards for the
//! moment of the change. A shard has the hashes with the same first bits, which are all that lie in
//! its part of the lines, however many these are; so nobody else inserts into a line meanwhile.
//!
//! INVARIANT:
//! 1. A change of the view is never in the middle of an insert. A hash inserted before it is in the
//!    old view's filter, one inserted after it in the new view's.
//! 2. A hash whose insert has returned is in a shard's `pending`, or was taken from there by
//!    [`Memory::drain`]. So a flush that drains misses no hash that was inserted before it began.
//! 3. Every hash is remembered, also one whose bits were all set: they may be set in memory alone,
//!    by the walk over the source or because the line is damaged, and be gone after a crash.
//! 4. With a second filter the first one gets no more hashes; and a hash that is in neither the
//!    second nor later than it came is handed out by the walk that fills the second.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::{ArcSwap, Cache};

use crate::line::{LINE_WORDS, Line, mask};
use crate::lines::{GROUP, Lines};
use crate::prefetcher::Prefetcher;
use crate::waiting::Sorted;

/// How many shards there are; a power of two.
const SHARDS: usize = 16;
/// How many damaged lines are remade while inserts wait.
const REMADE_AT_ONCE: usize = 1024;

/// The shard of a hash. Lines are chosen by the first bits too, and their number is a multiple of
/// 64, so that each has its hashes in one shard.
fn shard_of(hash: u64) -> usize {
    (hash >> (u64::BITS - SHARDS.ilog2())) as usize
}

/// The filters that are asked.
#[derive(Debug, Clone)]
pub(crate) struct View {
    /// `None`: everything is "maybe" until the second one is filled.
    pub(crate) first: Option<Arc<Lines>>,
    /// The one that is being filled; new hashes go to it.
    pub(crate) second: Option<Arc<Lines>>,
}

impl View {
    /// Whether a hash may have been added.
    #[inline(always)]
    pub(crate) fn may_contain(&self, hash: u64) -> bool {
        let Some(first) = &self.first else { return true };
        first.may_contain(hash) || self.second.is_some() && self.second_may_contain(hash)
    }

    /// A call of its own, for most of the time there is no second one.
    #[inline(never)]
    fn second_may_contain(&self, hash: u64) -> bool {
        self.second.as_ref().is_some_and(|second| second.may_contain(hash))
    }

    /// The filter that new hashes go to.
    pub(crate) fn target(&self) -> Option<&Arc<Lines>> {
        #[cfg(feature = "canary")]
        if umbel_base::canary::Switch::ExistenceInsertsIntoOld.is_on() && self.first.is_some() {
            return self.first.as_ref();
        }
        self.second.as_ref().or(self.first.as_ref())
    }
}

/// Hashes that no file has yet.
#[derive(Debug)]
struct Shard {
    /// The filter that the view has new hashes go to: who inserts need not load the view, which
    /// takes locked instructions.
    target: Option<Arc<Lines>>,
    /// Whether nobody but inserters adds to it.
    is_alone: bool,
    pending: Vec<u64>,
    /// While damaged lines are remade: what was inserted since that began.
    watched: Option<Vec<u64>>,
}

impl Shard {
    /// Adds a hash to the filter that new ones go to, and remembers it.
    #[inline]
    fn insert(&mut self, hash: u64) -> bool {
        let wants_step = self.target.as_ref().is_some_and(|target| match self.is_alone {
            true => target.insert_alone(hash),
            false => target.insert(hash),
        });
        if let Some(watched) = &mut self.watched {
            watched.push(hash);
        }
        self.pending.push(hash);
        wants_step
    }

    /// Takes what was inserted since this was done last.
    fn take_watched(&mut self) -> Vec<u64> {
        let watched = self.watched.as_mut().map(std::mem::take).unwrap_or_default();
        #[cfg(feature = "canary")]
        if umbel_base::canary::Switch::ExistenceHealForgetsInserts.is_on() {
            return Vec::new();
        }
        watched
    }
}

/// The filters that are asked, and the hashes that no file has yet.
#[derive(Debug)]
pub(crate) struct Memory {
    view: Arc<ArcSwap<View>>,
    prefetcher: Prefetcher,
    shards: Vec<Mutex<Shard>>,
}

impl Memory {
    pub(crate) fn new(view: View) -> Memory {
        let shard = || Shard {
            target: view.target().cloned(),
            is_alone: view.second.is_none(),
            pending: Vec::new(),
            watched: None,
        };
        let shards = (0..SHARDS).map(|_| Mutex::new(shard())).collect();
        let prefetcher = Prefetcher::default();
        prefetcher.point_at(view.first.as_deref(), view.second.as_deref());
        Memory { shards, prefetcher, view: Arc::new(ArcSwap::from_pointee(view)) }
    }

    fn lock(&self, shard: usize) -> MutexGuard<'_, Shard> {
        // Nothing panics between the two changes of a shard.
        self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every shard, in one order, so that two who want all do not wait for each other.
    fn lock_all(&self) -> Vec<MutexGuard<'_, Shard>> {
        (0..SHARDS).map(|shard| self.lock(shard)).collect()
    }

    /// The filters that are asked.
    pub(crate) fn view(&self) -> Arc<View> {
        self.view.load_full()
    }

    /// Adds a hash. Says, once in a while, that there are so many that a filter which grows should
    /// begin to, or go on.
    pub(crate) fn insert(&self, hash: u64) -> bool {
        self.lock(shard_of(hash)).insert(hash)
    }

    /// Adds many hashes as [`Memory::insert`] does; their lines are fetched together.
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

    /// Adds hashes that files have, sorted by the filter that new ones go to; more than `at_once`
    /// not now, but when their lines are asked for.
    ///
    /// REQUIRES: nobody else uses the memory yet.
    pub(crate) fn insert_stored(&self, hashes: Sorted, at_once: usize) {
        let view = self.view.load();
        let Some(target) = view.target() else { return };
        if hashes.count() > at_once as u64 {
            return target.let_wait(hashes);
        }
        for part in hashes.parts() {
            target.insert_all(part);
        }
    }

    /// Answers "maybe" to everything from now on. Takes no lock.
    pub(crate) fn forget_all(&self) {
        self.view.store(Arc::new(View { first: None, second: None }));
    }

    /// Has the lines of a hash fetched.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        self.prefetcher.prefetch(hash);
    }

    /// Whether a hash may have been added.
    #[inline]
    pub(crate) fn may_contain(&self, hash: u64) -> bool {
        self.view.load().may_contain(hash)
    }

    /// The view, to be looked at by one who keeps what he saw last.
    pub(crate) fn watched_view(&self) -> Cache<Arc<ArcSwap<View>>, Arc<View>> {
        Cache::new(Arc::clone(&self.view))
    }

    /// As [`Memory::may_contain`] for each hash.
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

    /// Moves what no file has to `output`.
    pub(crate) fn drain(&self, output: &mut Vec<u64>) {
        for shard in 0..SHARDS {
            #[cfg(feature = "canary")]
            if umbel_base::canary::Switch::ExistenceCoversTooMuch.is_on() && shard == 3 {
                continue;
            }
            output.append(&mut self.lock(shard).pending);
        }
    }

    /// How many hashes no file has, but for those that were drained.
    pub(crate) fn pending(&self) -> u64 {
        (0..SHARDS).map(|shard| self.lock(shard).pending.len() as u64).sum()
    }

    /// How many hashes it holds: those, and those inserted while damaged lines are remade.
    pub(crate) fn held(&self) -> u64 {
        let held = |shard: &Shard| shard.pending.len() + shard.watched.as_ref().map_or(0, Vec::len);
        (0..SHARDS).map(|shard| held(&self.lock(shard)) as u64).sum()
    }

    /// Begins a second filter, to which new hashes go from here on. One that is there is dropped.
    ///
    /// REQUIRES: the walk that fills it begins afterwards, at the source's start. If a second one
    /// is there, there is no first one: what it has the new one will get from the walk.
    pub(crate) fn begin_second(&self, second: Lines) {
        let shards = self.lock_all();
        let first = self.view.load().first.clone();
        self.change(shards, View { first, second: Some(Arc::new(second)) });
    }

    /// Changes the view, for who asks and for who inserts.
    fn change(&self, mut shards: Vec<MutexGuard<'_, Shard>>, view: View) {
        for shard in &mut shards {
            shard.target = view.target().cloned();
            shard.is_alone = view.second.is_none();
        }
        self.prefetcher.point_at(view.first.as_deref(), view.second.as_deref());
        self.view.store(Arc::new(view));
    }

    /// Makes the second filter the first. Says whether there was one.
    ///
    /// REQUIRES: the source was walked through since the second one was begun.
    pub(crate) fn promote(&self) -> bool {
        let shards = self.lock_all();
        let second = self.view.load().second.clone();
        let found = second.is_some();
        if found {
            self.change(shards, View { first: second, second: None });
        }
        found
    }

    /// From now on remembers inserted hashes for [`Memory::heal`].
    pub(crate) fn watch(&self) {
        self.lock_all().iter_mut().for_each(|shard| shard.watched = Some(Vec::new()));
    }

    /// Adds to `remade`, lines of `lines` that are remade, what was inserted since
    /// [`Memory::watch`] or the last call. Called now and then it keeps little to be remembered,
    /// and little to be added while inserts wait.
    pub(crate) fn add_watched(&self, remade: &mut BTreeMap<u64, Line>, lines: &Lines) {
        for shard in 0..SHARDS {
            let watched = self.lock(shard).take_watched();
            watched.into_iter().for_each(|hash| add_to(remade, lines, hash));
        }
    }

    /// Gives damaged lines of the first filter the bits they should have had: those in `remade`,
    /// and those of every hash inserted since [`Memory::watch`]. Inserts wait for a part of it at
    /// most.
    ///
    /// REQUIRES: the source was walked through since, and `remade` has the bits of what it handed
    /// out; there is no second filter.
    pub(crate) fn heal(&self, mut remade: BTreeMap<u64, Line>) {
        let view = self.view();
        let Some(first) = &view.first else { return };
        while !self.heal_some(&mut remade, first, REMADE_AT_ONCE) {}
    }

    /// As [`Memory::heal`] for up to `most` lines, which leave `remade`. Says whether those were
    /// the last ones; inserts are remembered until then.
    ///
    /// A line that was given its bits takes those of later inserts by itself; of one that is still
    /// to be given them every insert is in `remade` or remembered.
    fn heal_some(&self, remade: &mut BTreeMap<u64, Line>, first: &Lines, most: usize) -> bool {
        self.add_watched(remade, first);
        let mut shards = self.lock_all();
        for shard in &mut shards {
            shard.take_watched().into_iter().for_each(|hash| add_to(remade, first, hash));
        }
        for (number, bits) in (0..most).map_while(|_| remade.pop_first()) {
            first.replace(number, &bits);
        }
        let is_over = remade.is_empty();
        if is_over {
            shards.iter_mut().for_each(|shard| shard.watched = None);
        }
        is_over
    }
}

/// Adds a hash to its line, if that is one of those that are remade.
pub(crate) fn add_to(remade: &mut BTreeMap<u64, Line>, lines: &Lines, hash: u64) {
    let place = lines.place(hash);
    if let Some(line) = remade.get_mut(&place.line) {
        let mask = mask(place, lines.shape().probes);
        (0..LINE_WORDS).for_each(|word| line[word] |= mask[word]);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::shape::Shape;

    fn hash_of(number: u64) -> u64 {
        umbel_base::checksum::checksum(7, number, b"key")
    }

    #[test]
    fn a_line_has_its_hashes_in_one_shard_whatever_the_number_of_lines() {
        for keys in [1, 5_000, 100_000, 3_000_000, 70_000_001] {
            let shape = Shape::growing(keys);
            let shard_of_line = |line: u64| (line * SHARDS as u64 / shape.lines) as usize;
            for number in 0..20_000 {
                // Also those at the borders of shards.
                let border = (number % SHARDS as u64) << 60;
                for hash in [hash_of(number), border + number, border.wrapping_sub(1 + number)] {
                    let line = crate::line::place(hash, shape.lines).line;
                    assert_eq!(shard_of(hash), shard_of_line(line), "{hash:x}, {line}");
                }
            }
        }
    }

    /// Inserters set bits without locked instructions: two in one line would lose some. Of as few
    /// lines as there can be two threads often want the same.
    #[test]
    fn inserters_beside_each_other_lose_no_bit() {
        const EACH: usize = 600;
        for round in 0..300 {
            let first = Arc::new(Lines::new(Shape::growing(1)));
            let memory = Memory::new(View { first: Some(first), second: None });
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

    /// Story: lines were remade all at once, with everything that had been inserted during the
    /// walk, while every insert waited.
    #[test]
    fn lines_are_remade_a_part_at_a_time_and_have_what_is_inserted_in_between() {
        let first = Arc::new(Lines::new(Shape::growing(10_000)));
        let memory = Memory::new(View { first: Some(Arc::clone(&first)), second: None });
        let numbers = 0..first.shape().lines;
        memory.watch();
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
        assert_eq!((memory.held(), memory.pending()), (1000, 500));
        memory.add_watched(&mut remade, &first);
        assert_eq!((memory.held(), memory.pending()), (500, 500));
        insert(10);
        let mut left = remade.len();
        while !memory.heal_some(&mut remade, &first, 50) {
            assert_eq!(left - remade.len(), 50);
            left = remade.len();
            let count = insert(7);
            assert!((0..count).all(|number| memory.may_contain(hash_of(number))), "{parts}");
            parts += 1;
        }
        assert!(parts > 3, "{parts}");
        let count = insert(1);
        assert_eq!(memory.held(), count, "nothing is watched any more");
        // As if they all had been inserted into an empty filter.
        let fresh = Lines::new(first.shape());
        fresh.insert_all(&(0..count).map(hash_of).collect::<Vec<_>>());
        for page in 0..first.shape().pages() {
            assert_eq!(first.page(page), fresh.page(page));
        }
    }
}
