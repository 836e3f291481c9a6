//! [`BlockedFilter`]: one filter in memory, in which threads insert and probe concurrently.
//!
//! INVARIANT:
//! 1. Except in [`BlockedFilter::replace`], which repairs lines, bits only change from 0 to 1. So
//!    inserts and reads of pages, even repeated ones, give the same filter in every order.
//! 2. No answer uses a line whose page is not in memory: the page is read first, or the answer is
//!    "maybe". A reader checks for the page *before* it reads the bits. A reader also checks for
//!    hashes of journals that wait to be added.
//! 3. A line that can lack a bit of an inserted hash is all ones and in `damaged`.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Mutex, OnceLock};
use umbel_base::fail_point;
use umbel_base::ignore_poison::IgnorePoison;

use umbel_env::ProcessMark;

use crate::layout::cache_line::{
    ALL_ONES, AtomicLine, LINE_BITS, LINE_WORDS, Line, LinePosition, load, locate, mask, ones, set,
    set_unshared,
};
use crate::layout::file_meta::FilterFileMeta;
use crate::layout::filter_page::{PAGE_LINES, PageLines};
use crate::layout::filter_sizing::FilterDimensions;
use crate::memory::journal_hashes::{DeferredInserts, PARTITIONS, PartitionedHashes};
use crate::memory::lazy_pages::LazyPages;
use crate::memory::line_probe::{ProbeTarget, Prober, probe, probe_all};
use crate::memory::uncounted_inserts::UncountedInserts;

/// Number of lines that are prefetched together.
pub(crate) const GROUP: usize = 16;
/// Number of hashes after which an insert reports again that the filter is full.
const REPORT_INTERVAL: u64 = 1024;
/// Maximum number of lines that are sampled to estimate the share of set bits.
const SAMPLE_LINES: u64 = 1 << 16;

/// A number that inserters change with each key. The number is on two cache lines of its own (the
/// hardware fetches lines in pairs), so that its changes invalidate no line that readers use.
#[derive(Debug, Default)]
#[repr(align(128))]
struct PaddedCounter(AtomicU64);

/// One filter in memory.
#[derive(Debug)]
pub(crate) struct BlockedFilter {
    shape: FilterDimensions,
    prober: Prober,
    /// The lines, after `start` words that align the lines to cache lines.
    words: Vec<AtomicU64>,
    start: usize,
    /// Whether all pages are read and all deferred hashes are added.
    is_complete: AtomicBool,
    /// Whether the system was requested to put a lazily read filter on huge pages.
    asked_huge_pages: AtomicBool,
    lazy_pages: Option<LazyPages>,
    /// Hashes of journals that are not added to the lines yet.
    deferred: OnceLock<DeferredInserts>,
    damaged: Mutex<BTreeSet<u64>>,
    damaged_count: AtomicU64,
    /// Hashes inserted into unread pages, which `items` does not count yet.
    uncounted: UncountedInserts,
    /// Number of hashes that changed a bit.
    items: PaddedCounter,
    /// Number of `items` at which an insert reports that the filter is full.
    report_at: AtomicU64,
    /// The file that has the filter's state of some moment.
    file_state: Mutex<Option<FilterFileState>>,
    /// The process that created the filter. In a forked child any lock in the filter can be locked
    /// forever.
    process: ProcessMark,
}

/// The file of a filter.
#[derive(Debug, Clone)]
pub(crate) struct FilterFileState {
    /// The file's metadata in `CHECKPOINT`.
    pub(crate) meta: FilterFileMeta,
    /// Whether no hash was inserted after the file was written, and none will be.
    pub(crate) is_final: bool,
}

impl FilterFileState {
    /// Whether the file has all hashes of its filter. With `is_final` the filter gets no more
    /// hashes.
    pub(crate) fn is_unchanged(&self, is_final: bool) -> bool {
        fail_point!("existence-keep-stale-filter-file", |_| true);
        self.is_final && is_final
    }
}

/// Sets the bits of the hash at `place`, concurrently with other threads.
#[inline]
fn set_shared(line: &AtomicLine, place: LinePosition, probes: u32) -> bool {
    set(line, &mask(place, probes))
}

impl BlockedFilter {
    /// Creates an empty filter.
    pub(crate) fn new(shape: FilterDimensions) -> BlockedFilter {
        BlockedFilter::build(shape, 0, None)
    }

    /// Creates the filter of a file without reading a page.
    pub(crate) fn from_file(kept: FilterFileState, unread: LazyPages) -> BlockedFilter {
        let lines = BlockedFilter::build(kept.meta.dimensions, kept.meta.items, Some(unread));
        *lines.file_state.lock().ignore_poison() = Some(kept);
        lines
    }

    fn build(shape: FilterDimensions, items: u64, unread: Option<LazyPages>) -> BlockedFilter {
        let count = shape.lines as usize * LINE_WORDS;
        // Zeros that the system gives without touching them; the map compiles to nothing.
        let zeros = vec![0u64; count + LINE_WORDS];
        // One that is read as it is requested must not have whole huge pages cleared for the first
        // answers.
        if unread.is_none() {
            umbel_arena::advise_huge_pages(&zeros);
        }
        let words: Vec<AtomicU64> = zeros.into_iter().map(AtomicU64::new).collect();
        // Where this cannot be said, which is allowed, a line lies on two cache lines.
        let start = words.as_ptr().align_offset(crate::layout::cache_line::LINE_BYTES);
        let start = if start < LINE_WORDS { start } else { 0 };
        BlockedFilter {
            shape,
            prober: Prober::new(shape.probes),
            words,
            start,
            is_complete: AtomicBool::new(unread.is_none()),
            asked_huge_pages: AtomicBool::new(unread.is_none()),
            lazy_pages: unread,
            deferred: OnceLock::new(),
            damaged: Mutex::default(),
            damaged_count: AtomicU64::new(0),
            uncounted: UncountedInserts::default(),
            items: PaddedCounter(AtomicU64::new(items)),
            report_at: AtomicU64::new(shape.keys),
            file_state: Mutex::new(None),
            process: ProcessMark::current(),
        }
    }

    /// Touches all memory of the filter now, so that inserts do not wait for the system to clear
    /// pages.
    ///
    /// REQUIRES: no other thread has the filter yet.
    pub(crate) fn prefault(&self) {
        let first_of_pages = self.lines().iter().step_by(PAGE_LINES as usize);
        first_of_pages.for_each(|line| line[0].store(0, Ordering::Relaxed));
    }

    /// Address of the first line.
    pub(crate) fn address(&self) -> usize {
        self.lines().as_ptr().addr()
    }

    /// Size of the filter.
    pub(crate) fn shape(&self) -> FilterDimensions {
        self.shape
    }

    /// Number of hashes that changed a bit: all different hashes, except a few whose bits were all
    /// set by others. A hash inserted before its page is read counts when the page is read.
    pub(crate) fn items(&self) -> u64 {
        self.items.0.load(Ordering::Relaxed).min(self.shape.items_max())
    }

    /// The file of the filter.
    pub(crate) fn file_state(&self) -> Option<FilterFileState> {
        self.file_state.lock().ignore_poison().clone()
    }

    /// Sets the file of the filter.
    pub(crate) fn set_file_state(&self, kept: FilterFileState) {
        *self.file_state.lock().ignore_poison() = Some(kept);
    }

    #[inline(always)]
    fn lines(&self) -> &[AtomicLine] {
        self.words[self.start..].as_chunks::<LINE_WORDS>().0
    }

    #[inline(always)]
    fn line(&self, number: u64) -> Option<&AtomicLine> {
        self.lines().get(number as usize)
    }

    /// Position of a hash.
    #[inline(always)]
    pub(crate) fn locate(&self, hash: u64) -> LinePosition {
        locate(hash, self.shape.lines)
    }

    /// Prefetches the line of a hash before it is needed.
    #[inline(always)]
    pub(crate) fn prefetch(&self, place: LinePosition) {
        umbel_arena::prefetch(self.lines(), place.line as usize);
    }

    /// Adds a hash with `set`, or with [`set_shared`] while pages are read. Returns the new number
    /// of hashes if the hash changed a bit of a page that is in memory.
    #[inline]
    fn add(&self, hash: u64, set: impl Fn(&AtomicLine, LinePosition, u32) -> bool) -> Option<u64> {
        let place = self.locate(hash);
        let line = self.line(place.line)?;
        // Acquire: if complete, read pages have their bits by now, and a caller that reads a page
        // once more adds none.
        let is_complete = self.is_complete.load(Ordering::Acquire);
        if !is_complete && self.add_to_unread(line, place) {
            return None;
        }
        let is_changed = match is_complete {
            true => set(line, place, self.shape.probes),
            false => set_shared(line, place, self.shape.probes),
        };
        is_changed.then(|| self.items.0.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Adds a hash to a line whose page is not read yet; the read of the page counts the hash.
    /// Returns `false`, without a change, if the page is in memory.
    #[cold]
    fn add_to_unread(&self, line: &AtomicLine, place: LinePosition) -> bool {
        let Some(unread) = &self.lazy_pages else { return false };
        let page = place.line / PAGE_LINES;
        if unread.is_read(page) {
            return false;
        }
        let mut uncounted = self.uncounted.lock();
        // Another thread may have read the page meanwhile, and then has counted its hashes.
        if unread.is_read(page) {
            return false;
        }
        if set_shared(line, place, self.shape.probes) {
            uncounted.push(place);
        }
        true
    }

    /// Adds a hash. Returns `true`, only at intervals, if the filter has as many hashes as it was
    /// made for, or as [`BlockedFilter::set_report_at`] set.
    #[inline]
    pub(crate) fn insert(&self, hash: u64) -> bool {
        self.reports_at(self.add(hash, set_shared))
    }

    /// Adds a hash as [`BlockedFilter::insert`] does, but without locked instructions.
    ///
    /// REQUIRES: no other thread adds a hash to the same line, or replaces the line, at the same
    /// time. Reads of pages and of deferred hashes may run concurrently.
    #[inline]
    pub(crate) fn insert_unshared(&self, hash: u64) -> bool {
        self.reports_at(self.add(hash, set_unshared))
    }

    /// Whether an insert reports this number of hashes.
    #[inline]
    fn reports_at(&self, items: Option<u64>) -> bool {
        let says_at = self.report_at.load(Ordering::Relaxed);
        let over = items.and_then(|items| items.checked_sub(says_at));
        over.is_some_and(|over| over.is_multiple_of(REPORT_INTERVAL))
    }

    /// Makes an insert report when the filter has `items` hashes.
    pub(crate) fn set_report_at(&self, items: u64) {
        self.report_at.store(items, Ordering::Relaxed);
    }

    /// Adds many hashes; their lines are fetched together. Returns the number of hashes that
    /// changed a bit.
    pub(crate) fn insert_all(&self, hashes: &[u64]) -> u64 {
        let mut added = 0;
        for hashes in hashes.chunks(GROUP) {
            hashes.iter().for_each(|hash| self.prefetch(self.locate(*hash)));
            added +=
                hashes.iter().filter(|hash| self.add(**hash, set_shared).is_some()).count() as u64;
        }
        added
    }

    /// Defers hashes of journals that were [sorted in](Lines::sort_in). A deferred hash is added
    /// when its line is first requested, or by [`BlockedFilter::read_some`].
    ///
    /// REQUIRES: the method is called at most once, before the first probe.
    pub(crate) fn defer(&self, hashes: PartitionedHashes) {
        let waiting = DeferredInserts::new(hashes);
        self.is_complete.store(false, Ordering::Release);
        let _ = self.deferred.set(waiting);
        self.note_complete();
    }

    /// Adds a hash to the deferred hashes of its part.
    #[inline]
    pub(crate) fn partition(&self, hash: u64, sorted: &mut PartitionedHashes) {
        sorted.push(self.part(self.locate(hash).line), hash);
    }

    /// The part of the deferred hashes to which a line belongs.
    fn part(&self, line: u64) -> u64 {
        line * PARTITIONS / self.shape.lines
    }

    fn has_deferred(&self) -> bool {
        self.deferred.get().is_some_and(|waiting| waiting.left() > 0)
    }

    /// Adds the deferred hashes of a part to their lines. Returns their number.
    fn add_part(&self, part: u64) -> u64 {
        let Some(waiting) = self.deferred.get() else { return 0 };
        let added = waiting.take(part, |hashes| {
            self.insert_all(hashes);
        });
        if added > 0 && waiting.left() == 0 {
            self.note_complete();
        }
        added
    }

    /// Adds about `hashes_max` of the deferred hashes. Returns whether there were deferred hashes.
    fn add_deferred(&self, hashes_max: u64) -> bool {
        let (mut added, mut parts) = (0, 0..PARTITIONS);
        while self.has_deferred()
            && added < hashes_max
            && let Some(part) = parts.next()
        {
            added += self.add_part(part);
        }
        added > 0
    }

    /// Updates `is_complete`.
    fn note_complete(&self) {
        // Of two threads that end the one and the other at the same time, one sees both.
        fence(Ordering::SeqCst);
        let is_read = self.lazy_pages.as_ref().is_none_or(|unread| unread.left() == 0);
        if is_read && !self.has_deferred() {
            self.is_complete.store(true, Ordering::Release);
        }
    }

    /// Whether a hash may have been added.
    #[inline(always)]
    pub(crate) fn may_contain(&self, hash: u64) -> bool {
        // Acquire: a thread that sees that it is complete sees every page.
        if !self.is_complete.load(Ordering::Acquire) && !self.is_loaded(self.locate(hash).line) {
            return true;
        }
        probe(self, hash)
    }

    /// Calls [`BlockedFilter::may_contain`] for up to [`GROUP`] hashes, after prefetching all their
    /// lines.
    pub(crate) fn may_contain_group(&self, hashes: &[u64], answers: &mut [bool]) {
        hashes.iter().for_each(|hash| self.prefetch(self.locate(*hash)));
        if self.is_complete.load(Ordering::Acquire) {
            return probe_all(self, hashes, answers);
        }
        for (hash, answer) in hashes.iter().zip(answers) {
            *answer = self.may_contain(*hash);
        }
    }

    /// Reads the page and the deferred hashes of a line if necessary. Returns whether the line is
    /// then complete in memory.
    #[cold]
    fn is_loaded(&self, line: u64) -> bool {
        fail_point!("existence-unread-page-is-empty", |_| true);
        if !self.process.is_current() {
            return false;
        }
        if self.has_deferred() {
            self.add_part(self.part(line));
        }
        let page = line / PAGE_LINES;
        let Some(unread) = &self.lazy_pages else { return true };
        if unread.is_read(page) {
            return true;
        }
        let Some(lines) = unread.read(page) else { return false };
        self.take_page(unread, page, &lines);
        true
    }

    fn take_page(&self, unread: &LazyPages, number: u64, lines: &PageLines) {
        let mut uncounted = self.uncounted.lock();
        if unread.is_read(number) {
            return;
        }
        let added = uncounted.take_new(number, lines, self.shape.probes);
        self.items.0.fetch_add(added, Ordering::Relaxed);
        for (index, bits) in lines.iter().enumerate() {
            let at = number * PAGE_LINES + index as u64;
            let Some(line) = self.line(at) else { continue };
            match bits {
                Some(bits) => drop(set(line, bits)),
                None => {
                    // The bits first: a line in `damaged` says "maybe".
                    set(line, &ALL_ONES);
                    let mut damaged = self.damaged.lock().ignore_poison();
                    damaged.insert(at);
                    self.damaged_count.store(damaged.len() as u64, Ordering::Relaxed);
                }
            }
        }
        if unread.note_read(number) {
            self.note_complete();
        }
    }

    /// Whether all pages are read and all deferred hashes are added.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete.load(Ordering::Acquire)
    }

    /// Adds about as many deferred hashes as `pages_max` pages have lines. If there are none, it
    /// reads about `pages_max` unread pages instead. All lines of a page that cannot be read are
    /// damaged. Returns whether work is left.
    pub(crate) fn read_some(&self, pages_max: u64) -> bool {
        if !self.is_complete() && !self.asked_huge_pages.swap(true, Ordering::Relaxed) {
            umbel_arena::advise_huge_pages(&self.words);
        }
        if self.add_deferred(pages_max.saturating_mul(PAGE_LINES)) {
            return !self.is_complete();
        }
        let Some(unread) = self.lazy_pages.as_ref().filter(|_| !self.is_complete()) else {
            return false;
        };
        const NOTHING: PageLines = [None; PAGE_LINES as usize];
        unread.read_some(pages_max, |number, lines| {
            self.take_page(unread, number, &lines.unwrap_or(NOTHING));
        });
        !self.is_complete()
    }

    /// Bytes of memory of the hashes that wait to be counted.
    pub(crate) fn uncounted_bytes(&self) -> u64 {
        self.uncounted.bytes()
    }

    /// Number of pages not read yet.
    pub(crate) fn unread_pages(&self) -> u64 {
        self.lazy_pages.as_ref().map_or(0, LazyPages::left)
    }

    /// Number of damaged lines, which are all ones.
    pub(crate) fn damaged_count(&self) -> u64 {
        self.damaged_count.load(Ordering::Relaxed)
    }

    /// Numbers of the damaged lines, which are all ones.
    pub(crate) fn damaged(&self) -> BTreeSet<u64> {
        self.damaged.lock().ignore_poison().clone()
    }

    /// Replaces a damaged line by its rebuilt bits.
    ///
    /// REQUIRES: no thread inserts at the same time, and `bits` has every hash of this line that
    /// was ever inserted and not deleted. Readers may probe: any mixture of old and
    /// new words has at least the new bits.
    pub(crate) fn replace(&self, number: u64, bits: &Line) {
        if let Some(line) = self.line(number) {
            line.iter().zip(bits).for_each(|(word, bits)| word.store(*bits, Ordering::Relaxed));
        }
        let mut damaged = self.damaged.lock().ignore_poison();
        damaged.remove(&number);
        self.damaged_count.store(damaged.len() as u64, Ordering::Relaxed);
    }

    /// Copies the current lines of a page. Bits that are set during the copy may be missing.
    pub(crate) fn page(&self, number: u64) -> [Line; PAGE_LINES as usize] {
        std::array::from_fn(|index| {
            let line = self.line(number * PAGE_LINES + index as u64);
            line.map_or(ALL_ONES, load)
        })
    }

    /// The share of set bits and the resulting false-positive rate, by a sample of up to 65,536
    /// evenly spread lines. Lines of unread pages count as they are in memory.
    pub(crate) fn fill(&self) -> (f64, f64) {
        let lines = self.lines();
        let count = self.shape.lines.min(lines.len() as u64).max(1);
        let stride = count.div_ceil(SAMPLE_LINES).max(1) as usize;
        let (mut set, mut rate, mut seen) = (0.0, 0.0, 0.0);
        for line in lines[..count as usize].iter().step_by(stride) {
            let share = f64::from(ones(&load(line))) / LINE_BITS as f64;
            set += share;
            rate += share.powi(self.shape.probes as i32);
            seen += 1.0;
        }
        (set / seen, rate / seen)
    }
}

impl ProbeTarget for BlockedFilter {
    #[inline(always)]
    fn lines(&self) -> &[AtomicLine] {
        BlockedFilter::lines(self)
    }

    #[inline(always)]
    fn count(&self) -> u64 {
        self.shape.lines
    }

    #[inline(always)]
    fn prober(&self) -> &Prober {
        &self.prober
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cache_aligned_and_keep_inserts() {
        let lines = BlockedFilter::new(FilterDimensions::growing(10_000));
        assert!(lines.lines().as_ptr().addr().is_multiple_of(64));
        assert!(lines.lines().len() as u64 >= lines.shape().lines);
        let hash = |number: u64| umbel_base::checksum::checksum(7, number, b"key");
        let full = (0..10_000).filter(|number| lines.insert(hash(*number))).count();
        assert_eq!(full, 0, "a few changed no bit");
        assert!((9_900..=10_000).contains(&lines.items()), "{}", lines.items());
        let (fill, rate) = lines.fill();
        assert!((0.3..0.6).contains(&fill), "{fill}");
        let designed = lines.shape().designed_rate();
        assert!((rate / designed - 1.0).abs() < 0.1, "{rate} for {designed}");
        let full = (10_000..12_100).filter(|number| lines.insert(hash(*number))).count();
        assert!((2..=3).contains(&full), "{full}");
        assert!((0..12_100).all(|number| lines.may_contain(hash(number))));
    }

    #[test]
    fn a_damaged_line_is_all_ones_until_it_is_replaced() {
        let lines = BlockedFilter::new(FilterDimensions::growing(100));
        let unread = LazyPages::new(None, 1, vec![7], false);
        lines.take_page(&unread, 0, &[None; PAGE_LINES as usize]);
        assert_eq!((lines.damaged_count(), unread.left()), (64, 0));
        let hash = 77 << 50;
        assert!(lines.may_contain(hash));
        lines.replace(lines.locate(hash).line, &[0; LINE_WORDS]);
        assert!(!lines.may_contain(hash));
        assert_eq!(lines.damaged().len(), 63);
    }
}
