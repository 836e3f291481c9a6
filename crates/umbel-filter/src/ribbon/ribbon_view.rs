//! A ribbon filter read where its encoded bytes lie.

use super::KIND;
use super::parity::any_odd;
use super::place::{Row, mix, part_of};
use super::shape::{BLOCK, Columns, MOST_COLUMNS, Part, WHOLE};
use crate::ask::{FAR, IN_CACHE, ask_ahead};
use crate::encoding::FilterError;
use crate::header::malformed;
use crate::rate::with_hash_floor;
use crate::simd::{ByLanes, CompiledTwice, Lanes, Vectors, prefetch};
use crate::static_header::StaticHeader;

/// How many columns are asked at once.
const TOGETHER: usize = 8;

/// Calls a function of the number of columns that are asked first as a constant.
macro_rules! by_columns {
    ($view:expr, $always:expr, $first:ident => $ask:expr) => {
        match $view.columns.most() {
            0 => $always,
            1 => by_columns!(1, $first, $ask),
            2 => by_columns!(2, $first, $ask),
            3 => by_columns!(3, $first, $ask),
            4 => by_columns!(4, $first, $ask),
            5 => by_columns!(5, $first, $ask),
            6 => by_columns!(6, $first, $ask),
            7 => by_columns!(7, $first, $ask),
            _ => by_columns!(8, $first, $ask),
        }
    };
    ($number:literal, $first:ident, $ask:expr) => {{
        const $first: usize = $number;
        $ask
    }};
}

/// A homogeneous ribbon filter in borrowed bytes, at whatever address.
#[derive(Clone, Copy, Debug)]
pub struct RibbonView<'a> {
    header: StaticHeader,
    columns: Columns,
    vectors: Vectors,
    /// With what all columns of a row are asked at once, where no block has more than eight.
    lanes: Lanes,
    /// How many parts there are.
    count: usize,
    parts: &'a [[u8; Part::BYTES]],
    words: &'a [[u8; 8]],
}

impl<'a> RibbonView<'a> {
    /// Reads the header and checks that it fits the length. The parts are looked at when they are
    /// asked: one that is not inside the bytes says "maybe". Nothing is allocated.
    ///
    /// # Errors
    /// [`FilterError::Empty`] and [`FilterError::Unknown`] where every key is to be answered with
    /// "maybe"; [`FilterError::Malformed`] where the bytes contradict themselves.
    pub fn parse(bytes: &'a [u8]) -> Result<RibbonView<'a>, FilterError> {
        let (header, body) = StaticHeader::parse(bytes, KIND)?;
        let [all, reserved, a, b, c, d, e, f, g, h] = header.fields;
        let columns = Columns { all: u32::from(all), lower: u32::from_le_bytes([e, f, g, h]) };
        let count = u32::from_le_bytes([a, b, c, d]) as usize;
        if columns.all > MOST_COLUMNS || columns.lower > WHOLE {
            return Err(malformed("the filter's columns are more than 32, or more than whole"));
        }
        if header.small != 0 || reserved != 0 {
            return Err(malformed("the reserved bytes of the filter's header are not zero"));
        }
        let (body, behind) = body.as_chunks::<8>();
        if !behind.is_empty() || count == 0 || count > body.len() {
            return Err(malformed("the filter's number of parts does not fit its length"));
        }
        let (parts, words) = body.split_at(count);
        if !fits(header.units, columns, parts, words.len() as u64) {
            return Err(malformed("the filter's number of slots does not fit its length"));
        }
        let few = columns.most() as usize <= TOGETHER;
        Ok(RibbonView {
            header,
            columns,
            vectors: Vectors::of_this_processor(),
            lanes: if few { Lanes::of_this_processor() } else { Lanes::NONE },
            count,
            parts,
            words,
        })
    }

    /// The same filter over `body`, which must be the same bytes somewhere else.
    pub(crate) fn over<'b>(&self, body: &'b [u8]) -> RibbonView<'b> {
        let RibbonView { header, columns, vectors, lanes, count, .. } = *self;
        let (body, _) = body.as_chunks::<8>();
        let (parts, words) = body.split_at_checked(count).unwrap_or_default();
        RibbonView { header, columns, vectors, lanes, count, parts, words }
    }

    /// Whether the key of `hash` may have been added: never false for one that was.
    #[inline]
    pub fn contains(&self, hash: u64) -> bool {
        match self.lanes.run(One { view: self, hash }) {
            Some(found) => found,
            None => self.vectors.run(One { view: self, hash }),
        }
    }

    /// Asks for every hash at once: `found[n]` becomes the answer for `hashes[n]`. Where one of the
    /// two is shorter, what the other has more is left as it is. No question waits for another,
    /// so that their cache misses overlap, and the form of the filter is looked at only once.
    pub fn contains_batch(&self, hashes: &[u64], found: &mut [bool]) {
        if self.lanes.run(Many { view: self, hashes, found: &mut *found }).is_none() {
            self.vectors.run(Many { view: self, hashes, found });
        }
    }

    #[inline(always)]
    fn ask_all<const FIRST: usize, const COUNTS: bool>(&self, hashes: &[u64], found: &mut [bool]) {
        self.each(hashes, found, |meeting| self.answer::<FIRST, COUNTS, false>(meeting));
    }

    /// Answers with `end` for where the row of each hash meets the words. Of a filter that a core's
    /// own cache does not hold, the lines of later hashes are asked for meanwhile.
    #[inline(always)]
    fn each(&self, hashes: &[u64], found: &mut [bool], end: impl Fn(Option<Meeting>) -> bool) {
        if size_of_val(self.words) > IN_CACHE {
            let begin = |hash| {
                let meeting = self.meet(hash);
                if let Some(meeting) = &meeting {
                    meeting.prefetch(self.words);
                }
                meeting
            };
            return ask_ahead(hashes, found, begin, end);
        }
        for (hash, found) in hashes.iter().zip(found) {
            *found = end(self.meet(*hash));
        }
    }

    /// The answer with all columns asked at once: a lane is a column.
    ///
    /// REQUIRES: no block has more than eight columns.
    #[inline(always)]
    fn answer_by_lanes(
        &self,
        meeting: Option<Meeting>,
        odd: &impl Fn([&[[u8; 8]; TOGETHER]; 2], [u64; 2]) -> u32,
    ) -> bool {
        let Some(meeting) = meeting else {
            return true;
        };
        let Some(words) = meeting.eight_words(self.words) else {
            return self.answer_at_the_end(&meeting);
        };
        odd(words, [meeting.low, meeting.high]) & ((1 << meeting.columns) - 1) == 0
    }

    /// The answer for one of the last rows, behind which fewer than eight words lie.
    #[cold]
    fn answer_at_the_end(&self, meeting: &Meeting) -> bool {
        let sums = meeting.some_sums(self.words, 0, meeting.columns as usize);
        sums.is_none_or(|sums| !any_odd::<false>(sums))
    }

    /// Where the row of `hash` meets the words; `None` where that is not inside the bytes.
    #[inline(always)]
    fn meet(&self, hash: u64) -> Option<Meeting> {
        let (number, left) = part_of(mix(hash), self.parts.len() as u64);
        let part = Part::from_bytes(*self.parts.get(number)?);
        if part.blocks < 2 {
            return None;
        }
        let row = Row::of(left, part.blocks, part.seed);
        let (block, shift) = (row.start as u64 / BLOCK, row.start as u32);
        let upper_from = self.columns.upper_start(part.blocks);
        let first = part.first_word + self.columns.words_before(block, upper_from);
        // By the lowest six bits, the slot within the block.
        let low = row.bits.wrapping_shl(shift);
        Some(Meeting {
            first: usize::try_from(first).ok()?,
            columns: self.columns.all + u32::from(block >= upper_from),
            low,
            high: row.bits.rotate_left(shift) ^ low,
        })
    }

    /// `FIRST` is the number of columns that are asked first, all or eight; with `EARLY`, behind
    /// two others, which refuse three of four absent keys.
    #[inline(always)]
    fn answer<const FIRST: usize, const COUNTS: bool, const EARLY: bool>(
        &self,
        meeting: Option<Meeting>,
    ) -> bool {
        let Some(meeting) = meeting else {
            return true;
        };
        if EARLY
            && FIRST > 2
            && let Some(sums) = meeting.sums::<2>(self.words)
            && any_odd::<COUNTS>(sums)
        {
            return false;
        }
        let Some(mut sums) = meeting.sums::<FIRST>(self.words) else {
            return true;
        };
        // The last column is there in the upper blocks only.
        if FIRST as u32 > meeting.columns {
            sums[FIRST - 1] = 0;
        }
        if any_odd::<COUNTS>(sums) {
            return false;
        }
        FIRST < TOGETHER || self.ask_rest(&meeting)
    }

    /// Asks the columns behind the first eight.
    #[inline(never)]
    fn ask_rest(&self, meeting: &Meeting) -> bool {
        let columns = meeting.columns as usize;
        (TOGETHER..columns).step_by(TOGETHER).all(|column| {
            let count = TOGETHER.min(columns - column);
            meeting.some_sums(self.words, column, count).is_none_or(|sums| !any_odd::<false>(sums))
        })
    }

    /// How many hashes were added: different ones, or nearly.
    pub fn keys(&self) -> u64 {
        self.header.keys
    }

    /// How many slots there are.
    pub fn slots(&self) -> u64 {
        self.header.units
    }

    /// How many bits there are for each slot, on average.
    pub fn columns(&self) -> f64 {
        let upper = 1.0 - f64::from(self.columns.lower) / f64::from(WHOLE);
        f64::from(self.columns.all) + upper
    }

    /// The number of the hash function that the hashes come from.
    pub fn hash_kind(&self) -> u8 {
        self.header.hash_kind
    }

    /// Which of the store's seeds the hashes were made with; 0 where the builder was not told.
    pub fn seed_id(&self) -> u32 {
        self.header.seed_id
    }

    /// The share of absent keys that theory lets through: all parts are asked equally often, and
    /// in each a row passes with a chance of a half for each column. Looks at every part.
    pub fn designed_rate(&self) -> f64 {
        let rate = |part: &[u8; Part::BYTES]| match Part::from_bytes(*part).blocks {
            0 | 1 => 1.0,
            blocks => self.columns.rate(blocks),
        };
        let rate = self.parts.iter().map(rate).sum::<f64>() / self.parts.len() as f64;
        with_hash_floor(rate, self.keys(), self.header.hash_kind)
    }
}

/// One question.
struct One<'a> {
    view: &'a RibbonView<'a>,
    hash: u64,
}

impl CompiledTwice for One<'_> {
    type Answer = bool;

    #[inline(always)]
    fn run<const COUNTS: bool>(self) -> bool {
        let One { view, hash } = self;
        // Beside the lines of the other columns a wrong guess costs little.
        if size_of_val(view.words) >= FAR {
            by_columns!(view, true, FIRST => view.answer::<FIRST, COUNTS, true>(view.meet(hash)))
        } else {
            by_columns!(view, true, FIRST => view.answer::<FIRST, COUNTS, false>(view.meet(hash)))
        }
    }
}

impl ByLanes for One<'_> {
    type Answer = bool;

    #[inline(always)]
    fn run(self, odd: impl Fn([&[[u8; 8]; TOGETHER]; 2], [u64; 2]) -> u32) -> bool {
        self.view.answer_by_lanes(self.view.meet(self.hash), &odd)
    }
}

/// Many at once.
struct Many<'a> {
    view: &'a RibbonView<'a>,
    hashes: &'a [u64],
    found: &'a mut [bool],
}

impl CompiledTwice for Many<'_> {
    type Answer = ();

    #[inline(always)]
    fn run<const COUNTS: bool>(self) {
        let Many { view, hashes, found } = self;
        let always = |found: &mut [bool]| {
            found.iter_mut().zip(hashes).for_each(|(found, _)| *found = true);
        };
        by_columns!(view, always(found), FIRST => view.ask_all::<FIRST, COUNTS>(hashes, found));
    }
}

impl ByLanes for Many<'_> {
    type Answer = ();

    #[inline(always)]
    fn run(self, odd: impl Fn([&[[u8; 8]; TOGETHER]; 2], [u64; 2]) -> u32) {
        let Many { view, hashes, found } = self;
        view.each(hashes, found, |meeting| view.answer_by_lanes(meeting, &odd));
    }
}

/// Whether `words` words may be those of so many slots, and are to the word those that the last
/// part ends with.
fn fits(slots: u64, columns: Columns, parts: &[[u8; Part::BYTES]], words: u64) -> bool {
    let blocks = slots / BLOCK;
    let all = u64::from(columns.all);
    let [.., last] = parts else {
        return false;
    };
    let last = Part::from_bytes(*last);
    slots.is_multiple_of(BLOCK)
        && blocks.checked_mul(all).is_some_and(|least| least <= words)
        && blocks.checked_mul(all + 1).is_some_and(|most| most >= words)
        && last.blocks >= 2
        && last.first_word + columns.words(last.blocks) == words
}

/// A row, cut where the block it begins in ends, and where the words of its two blocks begin.
#[derive(Clone, Copy)]
struct Meeting {
    first: usize,
    /// How many columns the first block has: the words of the second lie behind these.
    columns: u32,
    low: u64,
    high: u64,
}

impl Meeting {
    /// Where the words of the second block begin.
    #[inline(always)]
    fn second(&self) -> usize {
        self.first.saturating_add(self.columns as usize)
    }

    /// The eight words from where the first block begins on, and those from where the second does.
    /// `None` where fewer than sixteen are left, or the first block has more than eight.
    #[inline(always)]
    fn eight_words<'w>(&self, words: &'w [[u8; 8]]) -> Option<[&'w [[u8; 8]; TOGETHER]; 2]> {
        let both = words.get(self.first..)?.first_chunk::<{ 2 * TOGETHER }>()?;
        let second = both.get(self.columns as usize..)?.first_chunk()?;
        Some([both.first_chunk()?, second])
    }

    /// Asks for the cache lines of the words.
    #[inline(always)]
    fn prefetch(&self, words: &[[u8; 8]]) {
        // Those of the second block lie behind those of the first, but for where the columns
        // change.
        let second = self.second();
        for word in [self.first, second, second.saturating_add(TOGETHER - 1)] {
            if let Some([byte, ..]) = words.get(word) {
                prefetch(byte);
            }
        }
    }

    /// The row and the first `COUNT` columns, combined by "and": words whose parities are the
    /// answers. `None` outside of `words`.
    #[inline(always)]
    fn sums<const COUNT: usize>(&self, words: &[[u8; 8]]) -> Option<[u64; TOGETHER]> {
        let first = words.get(self.first..)?.first_chunk::<COUNT>()?;
        let second = words.get(self.second()..)?.first_chunk::<COUNT>()?;
        Some(self.combine(first, second))
    }

    /// The same for `count` columns, no more than eight, from `column` on.
    fn some_sums(&self, words: &[[u8; 8]], column: usize, count: usize) -> Option<[u64; TOGETHER]> {
        let first = words.get(self.first.checked_add(column)?..)?.get(..count)?;
        let second = words.get(self.second().checked_add(column)?..)?.get(..count)?;
        Some(self.combine(first, second))
    }

    #[inline(always)]
    fn combine(&self, first: &[[u8; 8]], second: &[[u8; 8]]) -> [u64; TOGETHER] {
        let mut sums = [0; TOGETHER];
        for (sum, (first, second)) in sums.iter_mut().zip(first.iter().zip(second)) {
            *sum =
                (u64::from_le_bytes(*first) & self.low) ^ (u64::from_le_bytes(*second) & self.high);
        }
        sums
    }
}
