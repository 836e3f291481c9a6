//! [`Lines`]: one filter in memory, which threads add to and ask at the same time.
//!
//! INVARIANT:
//! 1. Outside [`Lines::replace`], which heals, bits only go from 0 to 1. So inserts, pages that are
//!    read late, and pages read twice can meet in every order and end in the same filter.
//! 2. A line whose page is not in memory is never answered from: the page is read first, or the
//!    answer is "maybe". Who asks looks whether the page is there *before* he looks at the bits.
//!    The same holds for hashes of journals that wait to be added.
//! 3. A line that may lack a bit which it should have is all ones and in `damaged`.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use umbel_env::ProcessMark;

use crate::asking::{Asked, Asking, ask, ask_all};
use crate::line::{
    ALL_ONES, AtomicLine, LINE_BITS, LINE_WORDS, Line, Place, load, mask, ones, place, set,
    set_alone,
};
use crate::page::{PAGE_LINES, PageLines};
use crate::shape::Shape;
use crate::stored::Stored;
use crate::unread::Unread;
use crate::waiting::{PARTS, Sorted, Waiting};

/// How many lines are prefetched together.
pub(crate) const GROUP: usize = 16;
/// After how many more hashes an insert says again that there are so many.
const SAID_EVERY: u64 = 1024;
/// Most lines looked at to say how full a filter is.
const SAMPLE_LINES: u64 = 1 << 16;

/// A number that inserters change with each key, on cache lines of its own (the hardware fetches
/// them by twos), so that it takes nothing from the readers.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Apart(AtomicU64);

/// One filter in memory.
#[derive(Debug)]
pub(crate) struct Lines {
    shape: Shape,
    asking: Asking,
    /// The lines, behind `start` words that bring them to a boundary of cache lines.
    words: Vec<AtomicU64>,
    start: usize,
    /// Whether every page and every waiting hash is in memory.
    is_complete: AtomicBool,
    /// Whether a filter that is read piece by piece was put on huge pages.
    is_wished: AtomicBool,
    unread: Option<Unread>,
    /// Hashes of journals that are still to be added.
    waiting: OnceLock<Waiting>,
    damaged: Mutex<BTreeSet<u64>>,
    damaged_count: AtomicU64,
    /// Hashes that changed a bit.
    items: Apart,
    /// With how many of them an insert says so.
    says_at: AtomicU64,
    /// The file that holds it as it was at some moment.
    stored: Mutex<Option<Kept>>,
    /// The process that made it. A forked child may find any lock here held for ever.
    process: ProcessMark,
}

/// The file of a filter.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    /// What `CHECKPOINT` says of it.
    pub(crate) stored: Stored,
    /// Whether nothing was inserted after it was written, nor ever will be.
    pub(crate) is_final: bool,
}

/// Sets the bits of the hash that lies at `place` beside others who set some.
#[inline]
fn set_beside(line: &AtomicLine, place: Place, probes: u32) -> bool {
    set(line, &mask(place, probes))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Lines {
    /// An empty filter.
    pub(crate) fn new(shape: Shape) -> Lines {
        Lines::build(shape, 0, None)
    }

    /// The filter of a file of which no page was read yet.
    pub(crate) fn of_file(kept: Kept, unread: Unread) -> Lines {
        let lines = Lines::build(kept.stored.shape, kept.stored.items, Some(unread));
        *lock(&lines.stored) = Some(kept);
        lines
    }

    fn build(shape: Shape, items: u64, unread: Option<Unread>) -> Lines {
        let count = shape.lines as usize * LINE_WORDS;
        // Zeros that the system gives without touching them; the map compiles to nothing.
        let zeros = vec![0u64; count + LINE_WORDS];
        // One that is read as it is asked for must not have whole huge pages cleared for the first
        // answers.
        if unread.is_none() {
            umbel_arena::wish_for_huge_pages(&zeros);
        }
        let words: Vec<AtomicU64> = zeros.into_iter().map(AtomicU64::new).collect();
        // Where this cannot be said, which is allowed, a line lies on two cache lines.
        let start = words.as_ptr().align_offset(crate::line::LINE_BYTES);
        let start = if start < LINE_WORDS { start } else { 0 };
        Lines {
            shape,
            asking: Asking::new(shape.probes),
            words,
            start,
            is_complete: AtomicBool::new(unread.is_none()),
            is_wished: AtomicBool::new(unread.is_none()),
            unread,
            waiting: OnceLock::new(),
            damaged: Mutex::default(),
            damaged_count: AtomicU64::new(0),
            items: Apart(AtomicU64::new(items)),
            says_at: AtomicU64::new(shape.keys),
            stored: Mutex::new(None),
            process: ProcessMark::current(),
        }
    }

    /// Has the system give all its memory now, not as hashes come.
    ///
    /// REQUIRES: nobody else has it yet.
    pub(crate) fn touch(&self) {
        let first_of_pages = self.lines().iter().step_by(PAGE_LINES as usize);
        first_of_pages.for_each(|line| line[0].store(0, Ordering::Relaxed));
    }

    /// Where the first line lies.
    pub(crate) fn address(&self) -> usize {
        self.lines().as_ptr().addr()
    }

    /// Its size.
    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    /// How many hashes changed a bit: all different ones, but for a few that had theirs by chance,
    /// and those counted again because they came before their page was read.
    pub(crate) fn items(&self) -> u64 {
        self.items.0.load(Ordering::Relaxed).min(self.shape.items_max())
    }

    /// The file that holds it.
    pub(crate) fn kept(&self) -> Option<Kept> {
        lock(&self.stored).clone()
    }

    /// Notes the file that holds it.
    pub(crate) fn keep(&self, kept: Kept) {
        *lock(&self.stored) = Some(kept);
    }

    #[inline(always)]
    fn lines(&self) -> &[AtomicLine] {
        self.words[self.start..].as_chunks::<LINE_WORDS>().0
    }

    #[inline(always)]
    fn line(&self, number: u64) -> Option<&AtomicLine> {
        self.lines().get(number as usize)
    }

    /// Where a hash lies.
    #[inline(always)]
    pub(crate) fn place(&self, hash: u64) -> Place {
        place(hash, self.shape.lines)
    }

    /// Asks for the line of a hash before it is needed.
    #[inline(always)]
    pub(crate) fn prefetch(&self, place: Place) {
        umbel_arena::prefetch(self.lines(), place.line as usize);
    }

    /// Adds a hash. Returns how many there are then, where that changed a bit.
    #[inline]
    fn add(&self, hash: u64, set: impl Fn(&AtomicLine, Place, u32) -> bool) -> Option<u64> {
        let place = self.place(hash);
        let line = self.line(place.line)?;
        let is_changed = set(line, place, self.shape.probes);
        is_changed.then(|| self.items.0.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Adds a hash. Says, once in a while, that there are as many as it was made for, or as
    /// [`Lines::say_at`] said.
    #[inline]
    pub(crate) fn insert(&self, hash: u64) -> bool {
        self.says(self.add(hash, set_beside))
    }

    /// The same.
    ///
    /// REQUIRES: nobody else adds a hash of the same line, or replaces the line, at the same time.
    /// Pages that are read and hashes that wait may come in between.
    #[inline]
    pub(crate) fn insert_alone(&self, hash: u64) -> bool {
        // Acquire: what was read has its bits by now, and whoever reads a page once more adds none.
        match self.is_complete.load(Ordering::Acquire) {
            true => self.says(self.add(hash, set_alone)),
            false => self.insert(hash),
        }
    }

    /// Whether this is a number of hashes of which an insert speaks.
    #[inline]
    fn says(&self, items: Option<u64>) -> bool {
        let says_at = self.says_at.load(Ordering::Relaxed);
        let over = items.and_then(|items| items.checked_sub(says_at));
        over.is_some_and(|over| over.is_multiple_of(SAID_EVERY))
    }

    /// Has an insert say when there are so many hashes.
    pub(crate) fn say_at(&self, items: u64) {
        self.says_at.store(items, Ordering::Relaxed);
    }

    /// Adds many hashes, whose lines are fetched together. Returns how many changed a bit.
    pub(crate) fn insert_all(&self, hashes: &[u64]) -> u64 {
        let mut added = 0;
        for hashes in hashes.chunks(GROUP) {
            hashes.iter().for_each(|hash| self.prefetch(self.place(*hash)));
            added +=
                hashes.iter().filter(|hash| self.add(**hash, set_beside).is_some()).count() as u64;
        }
        added
    }

    /// Has hashes of journals that were [sorted in](Lines::sort_in) be added when their lines are
    /// asked for, or by [`Lines::read_some`].
    ///
    /// REQUIRES: nobody asks yet, and it is called once.
    pub(crate) fn let_wait(&self, hashes: Sorted) {
        let waiting = Waiting::new(hashes);
        self.is_complete.store(false, Ordering::Release);
        let _ = self.waiting.set(waiting);
        self.note_complete();
    }

    /// Puts a hash with those of its part.
    #[inline]
    pub(crate) fn sort_in(&self, hash: u64, sorted: &mut Sorted) {
        sorted.push(self.part(self.place(hash).line), hash);
    }

    /// The part in which hashes of a line wait.
    fn part(&self, line: u64) -> u64 {
        line * PARTS / self.shape.lines
    }

    fn is_waiting(&self) -> bool {
        self.waiting.get().is_some_and(|waiting| waiting.left() > 0)
    }

    /// Adds the hashes that wait in a part. Returns how many they were.
    fn add_part(&self, part: u64) -> u64 {
        let Some(waiting) = self.waiting.get() else { return 0 };
        let added = waiting.take(part, |hashes| {
            self.insert_all(hashes);
        });
        if added > 0 && waiting.left() == 0 {
            self.note_complete();
        }
        added
    }

    /// Adds about `most` of the hashes that wait. Says whether there were any.
    fn add_waiting(&self, most: u64) -> bool {
        let (mut added, mut parts) = (0, 0..PARTS);
        while self.is_waiting()
            && added < most
            && let Some(part) = parts.next()
        {
            added += self.add_part(part);
        }
        added > 0
    }

    /// Notes whether everything is in memory now.
    fn note_complete(&self) {
        // Of two who end the one and the other at the same time, one sees both.
        fence(Ordering::SeqCst);
        let is_read = self.unread.as_ref().is_none_or(|unread| unread.left() == 0);
        if is_read && !self.is_waiting() {
            self.is_complete.store(true, Ordering::Release);
        }
    }

    /// Whether a hash may have been added.
    #[inline(always)]
    pub(crate) fn may_contain(&self, hash: u64) -> bool {
        // Acquire: whoever sees that it is complete sees every page.
        if !self.is_complete.load(Ordering::Acquire) && !self.is_there(self.place(hash).line) {
            return true;
        }
        ask(self, hash)
    }

    /// As [`Lines::may_contain`] for up to [`GROUP`] hashes, all lines fetched first.
    pub(crate) fn may_contain_group(&self, hashes: &[u64], answers: &mut [bool]) {
        hashes.iter().for_each(|hash| self.prefetch(self.place(*hash)));
        if self.is_complete.load(Ordering::Acquire) {
            return ask_all(self, hashes, answers);
        }
        for (hash, answer) in hashes.iter().zip(answers) {
            *answer = self.may_contain(*hash);
        }
    }

    /// Whether a line is in memory with all it should have, after an attempt to bring it there.
    #[cold]
    fn is_there(&self, line: u64) -> bool {
        #[cfg(feature = "canary")]
        if umbel_base::canary::Switch::ExistenceUnreadMeansNo.is_on() {
            return true;
        }
        if !self.process.is_current() {
            return false;
        }
        if self.is_waiting() {
            self.add_part(self.part(line));
        }
        let page = line / PAGE_LINES;
        let Some(unread) = &self.unread else { return true };
        if unread.is_read(page) {
            return true;
        }
        let Some(lines) = unread.read(page) else { return false };
        self.take_page(unread, page, &lines);
        true
    }

    fn take_page(&self, unread: &Unread, number: u64, lines: &PageLines) {
        for (index, bits) in lines.iter().enumerate() {
            let at = number * PAGE_LINES + index as u64;
            let Some(line) = self.line(at) else { continue };
            match bits {
                Some(bits) => drop(set(line, bits)),
                None => {
                    // The bits first: a line in `damaged` says "maybe".
                    set(line, &ALL_ONES);
                    let mut damaged = lock(&self.damaged);
                    damaged.insert(at);
                    self.damaged_count.store(damaged.len() as u64, Ordering::Relaxed);
                }
            }
        }
        if unread.note_read(number) {
            self.note_complete();
        }
    }

    /// Whether every page and every waiting hash is in memory.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete.load(Ordering::Acquire)
    }

    /// Adds waiting hashes, about as many as `most` pages have lines, or else reads some of the
    /// pages that were not read yet, about `most`. A page that cannot be read is a damaged one.
    /// Says whether anything is left.
    pub(crate) fn read_some(&self, most: u64) -> bool {
        if !self.is_complete() && !self.is_wished.swap(true, Ordering::Relaxed) {
            umbel_arena::wish_for_huge_pages(&self.words);
        }
        if self.add_waiting(most.saturating_mul(PAGE_LINES)) {
            return !self.is_complete();
        }
        let Some(unread) = self.unread.as_ref().filter(|_| !self.is_complete()) else {
            return false;
        };
        const NOTHING: PageLines = [None; PAGE_LINES as usize];
        unread.read_some(most, |number, lines| {
            self.take_page(unread, number, &lines.unwrap_or(NOTHING));
        });
        !self.is_complete()
    }

    /// How many pages were not read yet.
    pub(crate) fn unread_pages(&self) -> u64 {
        self.unread.as_ref().map_or(0, Unread::left)
    }

    /// How many lines are all ones because they are damaged.
    pub(crate) fn damaged_count(&self) -> u64 {
        self.damaged_count.load(Ordering::Relaxed)
    }

    /// The lines that are all ones because they are damaged.
    pub(crate) fn damaged(&self) -> BTreeSet<u64> {
        lock(&self.damaged).clone()
    }

    /// Gives a damaged line the bits that it should have had.
    ///
    /// REQUIRES: nobody inserts at the same time, and `bits` has every hash of this line that was
    /// ever inserted and is not gone. Readers may ask: whatever mixture of the old and the new
    /// words they find has at least the new bits.
    pub(crate) fn replace(&self, number: u64, bits: &Line) {
        if let Some(line) = self.line(number) {
            line.iter().zip(bits).for_each(|(word, bits)| word.store(*bits, Ordering::Relaxed));
        }
        let mut damaged = lock(&self.damaged);
        damaged.remove(&number);
        self.damaged_count.store(damaged.len() as u64, Ordering::Relaxed);
    }

    /// A page as it is now. Bits set meanwhile may be in it or not.
    pub(crate) fn page(&self, number: u64) -> [Line; PAGE_LINES as usize] {
        std::array::from_fn(|index| {
            let line = self.line(number * PAGE_LINES + index as u64);
            line.map_or(ALL_ONES, load)
        })
    }

    /// The share of bits that are set, and the rate of false positives that follows from it, of up
    /// to 65,536 lines evenly spread. Lines not yet read count as they are in memory.
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

impl Asked for Lines {
    #[inline(always)]
    fn lines(&self) -> &[AtomicLine] {
        Lines::lines(self)
    }

    #[inline(always)]
    fn count(&self) -> u64 {
        self.shape.lines
    }

    #[inline(always)]
    fn asking(&self) -> &Asking {
        &self.asking
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_stand_on_cache_lines_and_keep_what_is_inserted() {
        let lines = Lines::new(Shape::growing(10_000));
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
        let lines = Lines::new(Shape::growing(100));
        let unread = Unread::new(None, 1, vec![7], false);
        lines.take_page(&unread, 0, &[None; PAGE_LINES as usize]);
        assert_eq!((lines.damaged_count(), unread.left()), (64, 0));
        let hash = 77 << 50;
        assert!(lines.may_contain(hash));
        lines.replace(lines.place(hash).line, &[0; LINE_WORDS]);
        assert!(!lines.may_contain(hash));
        assert_eq!(lines.damaged().len(), 63);
    }
}
