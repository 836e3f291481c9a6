//! [`HiddenRun`]: hidden entries that a cursor passes without a visible entry between them, and
//! [`SkipSpanSource`], which knows where runs of hidden entries end.

use umbel_base::SequenceNumber;

/// Number of hidden entries after which a cursor looks up a skip span. The lookup costs as much as
/// a few steps.
const FIRST_LOOKUP: u32 = 4;
/// Number of hidden entries between further lookups of a skip span.
const LOOKUP_INTERVAL: u32 = 64;
/// Smallest number of hidden entries for which a new skip span is recorded.
const RECORDED_MIN: u32 = 64;
/// Smallest number of hidden entries after a skip span for which the span is extended.
const EXTENDED_MIN: u32 = 16;

/// Known key ranges without visible keys, which a cursor skips and extends.
///
/// A range includes its start and excludes its end. The default methods know no range.
pub trait SkipSpanSource {
    /// Writes to `target` the end of the known empty range around `key`, for a reader at
    /// `sequence`. Returns `false` if no such range is known.
    fn skip_forward(&self, key: &[u8], sequence: SequenceNumber, target: &mut Vec<u8>) -> bool {
        let _ = (key, sequence, target);
        false
    }

    /// Like [`SkipSpanSource::skip_forward`], but writes the start of the range.
    fn skip_backward(&self, key: &[u8], sequence: SequenceNumber, target: &mut Vec<u8>) -> bool {
        let _ = (key, sequence, target);
        false
    }

    /// Adds `stepped` to the count of hidden entries that cursors stepped through.
    fn count_hidden(&self, stepped: u32) {
        let _ = stepped;
    }

    /// Records that a reader at `sequence` saw no key in `range`, after `stepped` hidden entries.
    fn record(&self, range: (&[u8], &[u8]), sequence: SequenceNumber, stepped: u32) {
        let _ = (range, sequence, stepped);
    }
}

/// A run of hidden entries without a visible entry between them.
#[derive(Debug, Default)]
pub struct HiddenRun {
    /// Number of hidden entries stepped through.
    stepped: u32,
    /// Number of hidden entries stepped through since the last skip.
    since_skip: u32,
    has_skipped: bool,
    /// Value of `stepped` at which the next lookup of a skip span is due.
    next_lookup: u32,
}

impl HiddenRun {
    /// Counts a hidden entry, and returns whether a lookup of a skip span is due.
    #[inline]
    pub fn step(&mut self) -> bool {
        self.stepped += 1;
        self.since_skip += 1;
        self.stepped >= self.next_lookup.max(FIRST_LOOKUP)
    }

    /// Whether the lookup that is due is the first one of the run.
    pub fn is_first_lookup(&self) -> bool {
        self.next_lookup == 0
    }

    /// Plans the next lookup of a skip span; `has_skipped` says whether the last lookup found one.
    pub fn finish_lookup(&mut self, has_skipped: bool) {
        let interval = if has_skipped { FIRST_LOOKUP } else { LOOKUP_INTERVAL };
        self.next_lookup = self.stepped + interval;
        if has_skipped {
            (self.since_skip, self.has_skipped) = (0, true);
        }
    }

    /// Whether the run had a lookup of a skip span, so that its end must be noted.
    #[inline]
    pub fn is_long(&self) -> bool {
        self.stepped >= FIRST_LOOKUP
    }

    /// Number of hidden entries stepped through.
    pub fn stepped(&self) -> u32 {
        self.stepped
    }

    /// Whether the run is long enough to record or extend a skip span.
    pub fn is_recorded(&self) -> bool {
        self.since_skip >= if self.has_skipped { EXTENDED_MIN } else { RECORDED_MIN }
    }
}
