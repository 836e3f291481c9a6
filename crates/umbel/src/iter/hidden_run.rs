//! [`HiddenRun`]: deleted entries that a cursor passes without a visible one between them, and
//! [`SkipSpanSource`], which knows where such runs end.

use umbel_base::SequenceNumber;

/// Number of hidden entries after which a cursor looks for a skip span. A lookup costs as much as
/// a few steps.
const FIRST_LOOKUP: u32 = 4;
/// Number of hidden entries between further lookups.
const LOOKUP_INTERVAL: u32 = 64;
/// Smallest number of entries stepped through that is worth a skip span.
const RECORDED_MIN: u32 = 64;
/// The same after a span, which they extend.
const EXTENDED_MIN: u32 = 16;

/// Known key ranges without visible keys, which a cursor skips and extends.
///
/// A range includes its start and excludes its end. The defaults know no range.
pub trait SkipSpanSource {
    /// Writes to `target` the end of the known empty range around `key`, for a reader at
    /// `sequence`. Returns `false` where none is known.
    fn skip_forward(&self, key: &[u8], sequence: SequenceNumber, target: &mut Vec<u8>) -> bool {
        let _ = (key, sequence, target);
        false
    }

    /// Like [`SkipSpanSource::skip_forward`], with the start of the range.
    fn skip_backward(&self, key: &[u8], sequence: SequenceNumber, target: &mut Vec<u8>) -> bool {
        let _ = (key, sequence, target);
        false
    }

    /// Counts hidden entries that a cursor stepped through.
    fn count_hidden(&self, stepped: u32) {
        let _ = stepped;
    }

    /// Records that a reader at `sequence` saw no key in `range`, after `stepped` hidden entries.
    fn record(&self, range: (&[u8], &[u8]), sequence: SequenceNumber, stepped: u32) {
        let _ = (range, sequence, stepped);
    }
}

/// A run of hidden entries, from the first lookup on.
#[derive(Debug, Default)]
pub struct HiddenRun {
    /// Hidden entries stepped through.
    stepped: u32,
    /// Those since the last skip.
    since_skip: u32,
    has_skipped: bool,
    /// Value of `stepped` at the next lookup.
    next_lookup: u32,
}

impl HiddenRun {
    /// Counts a hidden entry. Returns whether a lookup is due.
    #[inline]
    pub fn step(&mut self) -> bool {
        self.stepped += 1;
        self.since_skip += 1;
        self.stepped >= self.next_lookup.max(FIRST_LOOKUP)
    }

    /// Whether no lookup came before.
    pub fn is_first_lookup(&self) -> bool {
        self.next_lookup == 0
    }

    /// Plans the next lookup, after one that found a range or did not.
    pub fn finish_lookup(&mut self, has_skipped: bool) {
        let interval = if has_skipped { FIRST_LOOKUP } else { LOOKUP_INTERVAL };
        self.next_lookup = self.stepped + interval;
        if has_skipped {
            (self.since_skip, self.has_skipped) = (0, true);
        }
    }

    /// Whether a lookup came, after which the run's end is to be noted.
    #[inline]
    pub fn is_long(&self) -> bool {
        self.stepped >= FIRST_LOOKUP
    }

    /// Hidden entries stepped through.
    pub fn stepped(&self) -> u32 {
        self.stepped
    }

    /// Whether the run is worth a skip span.
    pub fn is_recorded(&self) -> bool {
        self.since_skip >= if self.has_skipped { EXTENDED_MIN } else { RECORDED_MIN }
    }
}
