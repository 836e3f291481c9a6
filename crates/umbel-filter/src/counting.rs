//! Kind 7: a Bloom filter of counters, which keys can be removed from.

use crate::ask::{Ask, ask_in_rounds};
use crate::counters::{counter, set_counter, sum, used};
use crate::formulas;
use crate::header::FilterHeader;
use crate::probing::Probing;
use std::ops::Range;

/// How many probes are read first in a batch.
const AHEAD: u8 = 2;

/// A counting Bloom filter in borrowed bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CountingView<'a> {
    header: FilterHeader,
    payload: &'a [u8],
}

impl<'a> CountingView<'a> {
    /// REQUIRES: the payload has the length that the header says.
    pub(crate) fn new(header: FilterHeader, payload: &'a [u8]) -> CountingView<'a> {
        CountingView { header, payload }
    }

    /// The same filter over `payload`, which must be the same bytes somewhere else.
    pub(crate) fn over<'b>(&self, payload: &'b [u8]) -> CountingView<'b> {
        CountingView::new(self.header, payload)
    }

    /// Whether the counters of these probes count; reads all of them, without a
    /// branch.
    #[inline(always)]
    fn all_count(&self, hash: u64, probes: Range<u8>) -> bool {
        let mut all = true;
        Probing::Multiplied.each(hash, self.header.units, probes, |position| {
            all &= counter(self.payload, position) > 0;
        });
        all
    }
}

impl Ask for CountingView<'_> {
    #[inline]
    fn contains(&self, hash: u64) -> bool {
        let counts = |position| counter(self.payload, position) > 0;
        Probing::Multiplied.all(hash, self.header.units, 0..self.header.probes, counts)
    }

    fn contains_batch(&self, hashes: &[u64], found: &mut [bool]) {
        let ahead = self.header.probes.min(AHEAD);
        let first = |hash| self.all_count(hash, 0..ahead);
        ask_in_rounds(hashes, found, first, |hash| self.all_count(hash, ahead..self.header.probes));
    }

    fn header(&self) -> FilterHeader {
        self.header
    }

    fn payload(&self) -> Option<&[u8]> {
        Some(self.payload)
    }

    fn estimated_keys(&self) -> f64 {
        formulas::cardinality(self.header.units, self.header.probes.into(), used(self.payload))
    }

    fn estimated_rate(&self) -> f64 {
        let set = used(self.payload) as f64 / self.header.units as f64;
        set.powi(self.header.probes.into())
    }
}

/// Counts a key in the payload of a filter with that header.
pub(crate) fn count(header: &FilterHeader, payload: &mut [u8], hash: u64) {
    Probing::Multiplied.each(hash, header.units, 0..header.probes, |position| {
        let value = sum(counter(payload, position), 1);
        set_counter(payload, position, value);
    });
}
