//! A ribbon filter over encoded bytes, which are not copied.

use super::KIND;
use super::parity::any_odd;
use crate::bloom_variants::kind_view_trait::{CACHED_BYTES, UNCACHED_BYTES, probe_with_prefetch};
use crate::format::bloom_header::FilterError;
use crate::format::filter_header::malformed;
use crate::format::static_filter_header::StaticHeader;
use crate::rate::blocked_rate::with_hash_floor;
use crate::ribbon::column_layout::{
    BLOCK, COLUMNS_MAX, ColumnLayout, PartEntry, SHARE_DENOMINATOR,
};
use crate::ribbon::row_hash::{Row, mix, part_of};
use crate::simd::{MultiversionCode, Vectors, WideLaneCode, WideLanes, prefetch};

/// Number of columns that are probed at once.
const TOGETHER: usize = 8;

/// Calls a function of the number of columns that are probed first as a constant.
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

/// A homogeneous ribbon filter in borrowed bytes, which need not be aligned.
#[derive(Clone, Copy, Debug)]
pub struct RibbonView<'a> {
    header: StaticHeader,
    columns: ColumnLayout,
    vectors: Vectors,
    /// Vector instructions that probe all columns of a row at once, if no block has more than eight
    /// columns.
    lanes: WideLanes,
    /// Number of parts.
    count: usize,
    parts: &'a [[u8; PartEntry::BYTES]],
    words: &'a [[u8; 8]],
}

impl<'a> RibbonView<'a> {
    /// Reads the header and checks it against the length. Each probe checks its part: a part
    /// outside the bytes answers "maybe". Allocates no memory.
    ///
    /// # Errors
    /// [`FilterError::Empty`] and [`FilterError::Unknown`] if the caller must answer "maybe" to
    /// every key; [`FilterError::Malformed`] if fields of the bytes contradict each other.
    pub fn parse(bytes: &'a [u8]) -> Result<RibbonView<'a>, FilterError> {
        let (header, body) = StaticHeader::parse(bytes, KIND)?;
        let [all, reserved, a, b, c, d, e, f, g, h] = header.fields;
        let columns = ColumnLayout { all: u32::from(all), lower: u32::from_le_bytes([e, f, g, h]) };
        let count = u32::from_le_bytes([a, b, c, d]) as usize;
        if columns.all > COLUMNS_MAX || columns.lower > SHARE_DENOMINATOR {
            return Err(malformed(
                "the filter's number of columns is over 32, or its share over 1",
            ));
        }
        if header.detail != 0 || reserved != 0 {
            return Err(malformed("the reserved bytes of the filter's header are not zero"));
        }
        let (body, rest) = body.as_chunks::<8>();
        if !rest.is_empty() || count == 0 || count > body.len() {
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
            lanes: if few { WideLanes::of_this_processor() } else { WideLanes::NONE },
            count,
            parts,
            words,
        })
    }

    /// Returns the same filter over `body`, which must be the same bytes at another address.
    pub(crate) fn over<'b>(&self, body: &'b [u8]) -> RibbonView<'b> {
        let RibbonView { header, columns, vectors, lanes, count, .. } = *self;
        let (body, _) = body.as_chunks::<8>();
        let (parts, words) = body.split_at_checked(count).unwrap_or_default();
        RibbonView { header, columns, vectors, lanes, count, parts, words }
    }

    /// Whether the key of `hash` may have been added; never false for an added key.
    #[inline]
    pub fn contains(&self, hash: u64) -> bool {
        match self.lanes.run(SingleProbe { view: self, hash }) {
            Some(found) => found,
            None => self.vectors.run(SingleProbe { view: self, hash }),
        }
    }

    /// Probes every hash in one call: `found[n]` becomes the answer for `hashes[n]`. If `hashes` is
    /// shorter, further elements of `found` are unchanged. Probes do not wait for each other, so
    /// that their cache misses overlap, and the number of columns is determined only once.
    pub fn contains_batch(&self, hashes: &[u64], found: &mut [bool]) {
        if self.lanes.run(BatchProbe { view: self, hashes, found: &mut *found }).is_none() {
            self.vectors.run(BatchProbe { view: self, hashes, found });
        }
    }

    #[inline(always)]
    fn probe_all<const FIRST: usize, const COUNTS: bool>(
        &self,
        hashes: &[u64],
        found: &mut [bool],
    ) {
        self.probe_each(hashes, found, |meeting| self.answer::<FIRST, COUNTS, false>(meeting));
    }

    /// Locates the row of each hash, and calls `end` for the answer. If the filter exceeds a core's
    /// own cache, lines of later hashes are prefetched meanwhile.
    #[inline(always)]
    fn probe_each(
        &self,
        hashes: &[u64],
        found: &mut [bool],
        end: impl Fn(Option<RowSpan>) -> bool,
    ) {
        if size_of_val(self.words) > CACHED_BYTES {
            let begin = |hash| {
                let meeting = self.locate(hash);
                if let Some(meeting) = &meeting {
                    meeting.prefetch(self.words);
                }
                meeting
            };
            return probe_with_prefetch(hashes, found, begin, end);
        }
        for (hash, found) in hashes.iter().zip(found) {
            *found = end(self.locate(*hash));
        }
    }

    /// Probes all columns at once: a lane is a column.
    ///
    /// REQUIRES: no block has more than eight columns.
    #[inline(always)]
    fn answer_wide(
        &self,
        meeting: Option<RowSpan>,
        odd: &impl Fn([&[[u8; 8]; TOGETHER]; 2], [u64; 2]) -> u32,
    ) -> bool {
        let Some(meeting) = meeting else {
            return true;
        };
        let Some(words) = meeting.eight_words(self.words) else {
            return self.answer_last_rows(&meeting);
        };
        odd(words, [meeting.low, meeting.high]) & ((1 << meeting.columns) - 1) == 0
    }

    /// Probes one of the last rows, after which there are fewer than eight words.
    #[cold]
    fn answer_last_rows(&self, meeting: &RowSpan) -> bool {
        let sums = meeting.some_sums(self.words, 0, meeting.columns as usize);
        sums.is_none_or(|sums| !any_odd::<false>(sums))
    }

    /// Location of the row of `hash` in the words; `None` if it is not inside the bytes.
    #[inline(always)]
    fn locate(&self, hash: u64) -> Option<RowSpan> {
        let (number, left) = part_of(mix(hash), self.parts.len() as u64);
        let part = PartEntry::from_bytes(*self.parts.get(number)?);
        if part.blocks < 2 {
            return None;
        }
        let row = Row::of(left, part.blocks, part.seed);
        let (block, shift) = (row.start as u64 / BLOCK, row.start as u32);
        let upper_from = self.columns.upper_start(part.blocks);
        let first = part.first_word + self.columns.words_before(block, upper_from);
        // By the lowest six bits, the slot within the block.
        let low = row.bits.wrapping_shl(shift);
        Some(RowSpan {
            first: usize::try_from(first).ok()?,
            columns: self.columns.all + u32::from(block >= upper_from),
            low,
            high: row.bits.rotate_left(shift) ^ low,
        })
    }

    /// Probes a row. `FIRST` is the number of columns that are probed first, all or eight. With
    /// `EARLY`, two columns are probed before these, which refuse three of four absent keys.
    #[inline(always)]
    fn answer<const FIRST: usize, const COUNTS: bool, const EARLY: bool>(
        &self,
        meeting: Option<RowSpan>,
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
        FIRST < TOGETHER || self.probe_rest(&meeting)
    }

    /// Probes the columns after the first eight.
    #[inline(never)]
    fn probe_rest(&self, meeting: &RowSpan) -> bool {
        let columns = meeting.columns as usize;
        (TOGETHER..columns).step_by(TOGETHER).all(|column| {
            let count = TOGETHER.min(columns - column);
            meeting.some_sums(self.words, column, count).is_none_or(|sums| !any_odd::<false>(sums))
        })
    }

    /// Approximate number of different hashes added.
    pub fn keys(&self) -> u64 {
        self.header.keys
    }

    /// Number of slots.
    pub fn slots(&self) -> u64 {
        self.header.units
    }

    /// Number of bits for each slot, on average.
    pub fn columns(&self) -> f64 {
        let upper = 1.0 - f64::from(self.columns.lower) / f64::from(SHARE_DENOMINATOR);
        f64::from(self.columns.all) + upper
    }

    /// The number of the hash function of the hashes.
    pub fn hash_kind(&self) -> u8 {
        self.header.hash_kind
    }

    /// Id of the store's seed of the hashes; 0 if the builder got no id.
    pub fn seed_id(&self) -> u32 {
        self.header.seed_id
    }

    /// Theoretical false-positive rate. All parts are probed equally often, and a row passes each
    /// column with a probability of a half. Reads every part.
    pub fn designed_rate(&self) -> f64 {
        let rate = |part: &[u8; PartEntry::BYTES]| match PartEntry::from_bytes(*part).blocks {
            0 | 1 => 1.0,
            blocks => self.columns.rate(blocks),
        };
        let rate = self.parts.iter().map(rate).sum::<f64>() / self.parts.len() as f64;
        with_hash_floor(rate, self.keys(), self.header.hash_kind)
    }
}

/// A probe of one hash.
struct SingleProbe<'a> {
    view: &'a RibbonView<'a>,
    hash: u64,
}

impl MultiversionCode for SingleProbe<'_> {
    type Answer = bool;

    #[inline(always)]
    fn run<const COUNTS: bool>(self) -> bool {
        let SingleProbe { view, hash } = self;
        // Beside the lines of the other columns a wrong guess costs little.
        if size_of_val(view.words) >= UNCACHED_BYTES {
            by_columns!(view, true, FIRST => view.answer::<FIRST, COUNTS, true>(view.locate(hash)))
        } else {
            by_columns!(view, true, FIRST => view.answer::<FIRST, COUNTS, false>(view.locate(hash)))
        }
    }
}

impl WideLaneCode for SingleProbe<'_> {
    type Answer = bool;

    #[inline(always)]
    fn run(self, odd: impl Fn([&[[u8; 8]; TOGETHER]; 2], [u64; 2]) -> u32) -> bool {
        self.view.answer_wide(self.view.locate(self.hash), &odd)
    }
}

/// Many at once.
struct BatchProbe<'a> {
    view: &'a RibbonView<'a>,
    hashes: &'a [u64],
    found: &'a mut [bool],
}

impl MultiversionCode for BatchProbe<'_> {
    type Answer = ();

    #[inline(always)]
    fn run<const COUNTS: bool>(self) {
        let BatchProbe { view, hashes, found } = self;
        let always = |found: &mut [bool]| {
            found.iter_mut().zip(hashes).for_each(|(found, _)| *found = true);
        };
        by_columns!(view, always(found), FIRST => view.probe_all::<FIRST, COUNTS>(hashes, found));
    }
}

impl WideLaneCode for BatchProbe<'_> {
    type Answer = ();

    #[inline(always)]
    fn run(self, odd: impl Fn([&[[u8; 8]; TOGETHER]; 2], [u64; 2]) -> u32) {
        let BatchProbe { view, hashes, found } = self;
        view.probe_each(hashes, found, |meeting| view.answer_wide(meeting, &odd));
    }
}

/// Whether `words` words can contain this number of slots, and the last part ends with them.
fn fits(slots: u64, columns: ColumnLayout, parts: &[[u8; PartEntry::BYTES]], words: u64) -> bool {
    let blocks = slots / BLOCK;
    let all = u64::from(columns.all);
    let [.., last] = parts else {
        return false;
    };
    let last = PartEntry::from_bytes(*last);
    slots.is_multiple_of(BLOCK)
        && blocks.checked_mul(all).is_some_and(|least| least <= words)
        && blocks.checked_mul(all + 1).is_some_and(|words_max| words_max >= words)
        && last.blocks >= 2
        && last.first_word + columns.words(last.blocks) == words
}

/// A row, split at the end of its first block, and the offsets of the words of its two blocks.
#[derive(Clone, Copy)]
struct RowSpan {
    first: usize,
    /// Number of columns of the first block, whose words are followed by those of the second.
    columns: u32,
    low: u64,
    high: u64,
}

impl RowSpan {
    /// Index of the first word of the second block.
    #[inline(always)]
    fn second(&self) -> usize {
        self.first.saturating_add(self.columns as usize)
    }

    /// Returns eight words from the start of the first block and eight from the start of the
    /// second. `None` if fewer than sixteen words are left, or the first block has more than eight
    /// columns.
    #[inline(always)]
    fn eight_words<'w>(&self, words: &'w [[u8; 8]]) -> Option<[&'w [[u8; 8]; TOGETHER]; 2]> {
        let both = words.get(self.first..)?.first_chunk::<{ 2 * TOGETHER }>()?;
        let second = both.get(self.columns as usize..)?.first_chunk()?;
        Some([both.first_chunk()?, second])
    }

    /// Prefetches the cache lines of the row's words.
    #[inline(always)]
    fn prefetch(&self, words: &[[u8; 8]]) {
        // Those of the second block lie after those of the first, but for where the columns
        // change.
        let second = self.second();
        for word in [self.first, second, second.saturating_add(TOGETHER - 1)] {
            if let Some([byte, ..]) = words.get(word) {
                prefetch(byte);
            }
        }
    }

    /// Combines the row and the first `COUNT` columns by "and", to words whose parities are the
    /// answers. `None` outside of `words`.
    #[inline(always)]
    fn sums<const COUNT: usize>(&self, words: &[[u8; 8]]) -> Option<[u64; TOGETHER]> {
        let first = words.get(self.first..)?.first_chunk::<COUNT>()?;
        let second = words.get(self.second()..)?.first_chunk::<COUNT>()?;
        Some(self.combine(first, second))
    }

    /// Combines the row and `count` columns, at most eight, from `column` on by "and".
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
