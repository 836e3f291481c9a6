//! Kind 7: a Bloom filter of counters, which keys can be removed from.

use crate::ask::{Ask, IN_CACHE};
use crate::counters::{counter, set_counter, sum, used};
use crate::formulas;
use crate::header::FilterHeader;
use crate::kind::FilterKind;
use crate::probing::Probing;
use std::hint::black_box;

/// How many hashes are looked at together, and how many probes of each are read ahead.
const GROUP: usize = 32;
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
}

impl Ask for CountingView<'_> {
    #[inline]
    fn contains(&self, hash: u64) -> bool {
        let counts = |position| counter(self.payload, position) > 0;
        Probing::Multiplied.all(hash, self.header.units, self.header.probes, counts)
    }

    fn contains_batch(&self, hashes: &[u64], found: &mut [bool]) {
        if self.payload.len() <= IN_CACHE {
            for (hash, found) in hashes.iter().zip(found) {
                *found = self.contains(*hash);
            }
            return;
        }
        let ahead = self.header.probes.min(AHEAD);
        for (hashes, found) in hashes.chunks(GROUP).zip(found.chunks_mut(GROUP)) {
            let mut all = 0;
            for hash in hashes {
                Probing::Multiplied.each(*hash, self.header.units, ahead, |position| {
                    all ^= counter(self.payload, position);
                });
            }
            black_box(all);
            for (hash, found) in hashes.iter().zip(found) {
                *found = self.contains(*hash);
            }
        }
    }

    fn kind(&self) -> FilterKind {
        FilterKind::Counting
    }

    fn keys(&self) -> u64 {
        self.header.keys
    }

    fn units(&self) -> u64 {
        self.header.units
    }

    fn hash_kind(&self) -> u8 {
        self.header.hash_kind
    }

    fn seed_id(&self) -> u32 {
        self.header.seed_id
    }

    fn probes(&self) -> u32 {
        u32::from(self.header.probes)
    }

    fn estimated_keys(&self) -> f64 {
        formulas::cardinality(self.header.units, self.probes(), used(self.payload))
    }

    fn estimated_rate(&self) -> f64 {
        let set = used(self.payload) as f64 / self.header.units as f64;
        set.powi(self.probes() as i32)
    }

    fn parts(&self) -> Option<(FilterHeader, &[u8])> {
        Some((self.header, self.payload))
    }
}

/// Counts a key in the payload of a filter with that header.
pub(crate) fn count(header: &FilterHeader, payload: &mut [u8], hash: u64) {
    Probing::Multiplied.each(hash, header.units, header.probes, |position| {
        let value = sum(counter(payload, position), 1);
        set_counter(payload, position, value);
    });
}
