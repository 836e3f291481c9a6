//! Kind 7: a Bloom filter of counters, from which keys can be removed.

use crate::bloom_formulas;
use crate::bloom_variants::counter_array::{
    counter, nonzero_counters, saturating_sum, set_counter,
};
use crate::bloom_variants::kind_view_trait::{
    KindView, UNCACHED_BYTES, probe_in_rounds, probe_in_two_rounds,
};
use crate::format::filter_header::FilterHeader;
use crate::probe::probe_positions::{FIRST_ROUND_PROBES, Probing, three_rounds};
use crate::simd::prefetch;
use std::ops::Range;

/// A counting Bloom filter in borrowed bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CountingView<'a> {
    header: FilterHeader,
    payload: &'a [u8],
}

impl<'a> CountingView<'a> {
    /// REQUIRES: the payload has the length in the header.
    pub(crate) fn new(header: FilterHeader, payload: &'a [u8]) -> CountingView<'a> {
        CountingView { header, payload }
    }

    /// Returns the same filter over `payload`, which must be the same bytes at another address.
    pub(crate) fn over<'b>(&self, payload: &'b [u8]) -> CountingView<'b> {
        CountingView::new(self.header, payload)
    }

    /// Whether the counters of these probes are all above 0; reads all counters, without a branch.
    #[inline(always)]
    fn all_nonzero(&self, hash: u64, probes: Range<u8>) -> bool {
        let mut all = true;
        Probing::Multiplied.for_each_position(hash, self.header.units, probes, |position| {
            all &= counter(self.payload, position) > 0;
        });
        all
    }

    /// Prefetches the cache lines of these probes.
    #[inline(always)]
    fn prefetch(&self, hash: u64, probes: Range<u8>) {
        Probing::Multiplied.for_each_position(hash, self.header.units, probes, |position| {
            if let Some(byte) = self.payload.get((position / 2) as usize) {
                prefetch(byte);
            }
        });
    }
}

impl KindView for CountingView<'_> {
    #[inline]
    fn contains(&self, hash: u64) -> bool {
        contains_key(&self.header, self.payload, hash)
    }

    fn contains_batch(&self, hashes: &[u64], found: &mut [bool]) {
        let probes = self.header.probes;
        if self.payload.len() >= UNCACHED_BYTES {
            let near = |hash, probes| self.prefetch(hash, probes);
            let ask = |hash, probes| self.all_nonzero(hash, probes);
            return probe_in_rounds(hashes, found, three_rounds(probes), near, ask);
        }
        let ahead = probes.min(FIRST_ROUND_PROBES);
        let first = |hash| self.all_nonzero(hash, 0..ahead);
        let rest = |hash| self.all_nonzero(hash, ahead..probes);
        probe_in_two_rounds(hashes, found, first, rest, |hash| {
            contains_key(&self.header, self.payload, hash)
        });
    }

    fn header(&self) -> FilterHeader {
        self.header
    }

    fn payload(&self) -> Option<&[u8]> {
        Some(self.payload)
    }

    fn estimated_keys(&self) -> f64 {
        bloom_formulas::cardinality(
            self.header.units,
            self.header.probes.into(),
            nonzero_counters(self.payload),
        )
    }

    fn estimated_rate(&self) -> f64 {
        let set = nonzero_counters(self.payload) as f64 / self.header.units as f64;
        set.powi(self.header.probes.into())
    }
}

/// Whether all counters of a hash are above 0 in the payload of a filter with the header.
#[inline(always)]
pub(crate) fn contains_key(header: &FilterHeader, payload: &[u8], hash: u64) -> bool {
    let counts = |position| counter(payload, position) > 0;
    if payload.len() < UNCACHED_BYTES {
        Probing::Multiplied.all_positions(hash, header.units, header.probes, counts)
    } else {
        Probing::Multiplied.all_positions_branching(hash, header.units, header.probes, counts)
    }
}

/// Adds a key to the counters in the payload of a filter with the header.
pub(crate) fn add_key(header: &FilterHeader, payload: &mut [u8], hash: u64) {
    Probing::Multiplied.for_each_position(hash, header.units, 0..header.probes, |position| {
        let value = saturating_sum(counter(payload, position), 1);
        set_counter(payload, position, value);
    });
}
