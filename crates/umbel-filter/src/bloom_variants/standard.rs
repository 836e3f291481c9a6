//! Kind 3: the textbook's Bloom filter, of any number of bits and probes.
//!
//! FORMAT: bit `b` is bit `b % 8` of byte `b / 8` of the payload; bits after the last are zero.
//! [`Probing`] defines the bits of a key.

use crate::bloom_formulas;
use crate::bloom_variants::kind_view_trait::{
    CACHED_BYTES, KindView, UNCACHED_BYTES, ones, probe_in_rounds, probe_in_two_rounds,
};
use crate::format::bloom_header::FilterError;
use crate::format::filter_header::{FilterHeader, malformed};
use crate::probe::probe_positions::{FIRST_ROUND_PROBES, Probing, three_rounds};
use crate::simd::{ProbeInput, VectorizedFilter, prefetch};
use std::ops::Range;

/// Number of hashes by which the prefetch of a hash's lines precedes its insert.
const GROUP: usize = 8;
/// The most probes of LevelDB's filters; with more probes LevelDB answers "maybe" to every key.
pub(crate) const LEVELDB_PROBES_MAX: u8 = 30;

/// A standard Bloom filter in borrowed bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StandardView<'a> {
    header: FilterHeader,
    probing: Probing,
    payload: &'a [u8],
}

impl<'a> StandardView<'a> {
    /// REQUIRES: the payload has the length in the header.
    ///
    /// # Errors
    /// [`FilterError::Unknown`] for an unknown probing. [`FilterError::Malformed`] if a filter with
    /// LevelDB's probing has more probes than LevelDB allows, or a number of bits that is not a
    /// multiple of 8.
    pub(crate) fn new(
        header: FilterHeader,
        payload: &'a [u8],
    ) -> Result<StandardView<'a>, FilterError> {
        let Some(probing) = Probing::from_number(header.detail) else {
            // A way to probe that a later release has, as good as a kind that is not known.
            let (kind, hash_kind) = (header.kind.number(), header.hash_kind);
            return Err(FilterError::Unknown { kind, version: 1, hash_kind });
        };
        if probing == Probing::LevelDb {
            if header.probes > LEVELDB_PROBES_MAX {
                return Err(malformed("a filter with LevelDB's probing has more than 30 probes"));
            }
            if !header.units.is_multiple_of(8) {
                return Err(malformed("a filter with LevelDB's probing has half a byte"));
            }
        }
        Ok(StandardView { header, probing, payload })
    }

    /// Returns the same filter over `payload`, which must be the same bytes at another address.
    pub(crate) fn over<'b>(&self, payload: &'b [u8]) -> StandardView<'b> {
        StandardView { header: self.header, probing: self.probing, payload }
    }

    /// Function that probes one hash: one for each probing, for filters below and from [`FAR`]
    /// bytes.
    pub(crate) fn vectorized(&self) -> VectorizedFilter<'a> {
        let is_far = self.payload.len() >= UNCACHED_BYTES;
        let ask: fn(&ProbeInput<'_>, u64) -> bool = match (self.probing, is_far) {
            (Probing::Multiplied, _) => |input, hash| ask(Probing::Multiplied, input, hash),
            (Probing::Enhanced, false) => |input, hash| ask(Probing::Enhanced, input, hash),
            (Probing::LevelDb, false) => |input, hash| ask(Probing::LevelDb, input, hash),
            (Probing::Enhanced, true) => {
                |input, hash| contains_key_uncached(Probing::Enhanced, input, hash)
            }
            (Probing::LevelDb, true) => {
                |input, hash| contains_key_uncached(Probing::LevelDb, input, hash)
            }
        };
        VectorizedFilter::portable(ask, self.input())
    }

    /// Inlined probe of one hash, for filters from [`FAR`] bytes on with the default probing, where
    /// that is faster.
    pub(crate) fn uncached(&self) -> Option<UncachedBloom<'a>> {
        let is_far = self.payload.len() >= UNCACHED_BYTES && self.probing == Probing::Multiplied;
        is_far.then(|| UncachedBloom(self.input()))
    }

    fn input(&self) -> ProbeInput<'a> {
        let (payload, FilterHeader { units, probes, .. }) = (self.payload, self.header);
        ProbeInput { payload, blocks: &[], bits: units, probes }
    }

    /// Whether the bits of these probes are all set; reads all bits, without a branch.
    #[inline(always)]
    fn all_set(&self, hash: u64, probes: Range<u8>) -> bool {
        let mut all = true;
        self.probing.for_each_position(hash, self.header.units, probes, |position| {
            all &= is_set(self.payload, position);
        });
        all
    }

    /// Prefetches the cache lines of these probes.
    #[inline(always)]
    fn prefetch(&self, hash: u64, probes: Range<u8>) {
        self.probing.for_each_position(hash, self.header.units, probes, |position| {
            if let Some(byte) = self.payload.get((position / 8) as usize) {
                prefetch(byte);
            }
        });
    }
}

impl KindView for StandardView<'_> {
    #[inline]
    fn contains(&self, hash: u64) -> bool {
        self.vectorized().contains(hash)
    }

    fn contains_batch(&self, hashes: &[u64], found: &mut [bool]) {
        let probes = self.header.probes;
        if self.payload.len() >= UNCACHED_BYTES {
            let near = |hash, probes| self.prefetch(hash, probes);
            let ask = |hash, probes| self.all_set(hash, probes);
            return probe_in_rounds(hashes, found, three_rounds(probes), near, ask);
        }
        let (ahead, input) = (probes.min(FIRST_ROUND_PROBES), self.input());
        let first = |hash| self.all_set(hash, 0..ahead);
        let rest = |hash| self.all_set(hash, ahead..probes);
        probe_in_two_rounds(hashes, found, first, rest, |hash| ask(self.probing, &input, hash));
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
            ones(self.payload),
        )
    }

    fn estimated_rate(&self) -> f64 {
        let set = ones(self.payload) as f64 / self.header.units as f64;
        set.powi(self.header.probes.into())
    }
}

#[inline(always)]
fn is_set(payload: &[u8], position: u64) -> bool {
    let byte = payload.get((position / 8) as usize);
    byte.is_none_or(|byte| byte >> (position % 8) & 1 == 1)
}

#[inline(always)]
fn ask(probing: Probing, input: &ProbeInput<'_>, hash: u64) -> bool {
    probing
        .all_positions(hash, input.bits, input.probes, |position| is_set(input.payload, position))
}

#[inline(always)]
fn contains_key_uncached(probing: Probing, input: &ProbeInput<'_>, hash: u64) -> bool {
    probing.all_positions_branching(hash, input.bits, input.probes, |position| {
        is_set(input.payload, position)
    })
}

/// A standard filter that is not cached. Probes of such a filter are inlined, so that more of them
/// are in flight at once. Half of all absent keys read only one line of the filter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UncachedBloom<'a>(ProbeInput<'a>);

impl UncachedBloom<'_> {
    /// Returns the same filter over `payload`, which must be the same bytes at another address.
    #[inline]
    pub(crate) fn over<'b>(&self, payload: &'b [u8]) -> UncachedBloom<'b> {
        UncachedBloom(ProbeInput { payload, blocks: &[], ..self.0 })
    }

    /// Whether the key of `hash` may have been added; never false for an added key.
    #[inline(always)]
    pub(crate) fn contains(&self, hash: u64) -> bool {
        contains_key_uncached(Probing::Multiplied, &self.0, hash)
    }
}

/// Sets the bits of all hashes in the payload of a filter with the header.
pub(crate) fn fill(header: &FilterHeader, probing: Probing, payload: &mut [u8], hashes: &[u64]) {
    let (bits, probes) = (header.units, header.probes);
    let is_large = payload.len() > CACHED_BYTES;
    for (at, hash) in hashes.iter().enumerate() {
        if is_large && let Some(later) = hashes.get(at + GROUP) {
            StandardView { header: *header, probing, payload }.prefetch(*later, 0..probes);
        }
        probing.for_each_position(*hash, bits, 0..probes, |position| {
            if let Some(byte) = payload.get_mut((position / 8) as usize) {
                *byte |= 1 << (position % 8);
            }
        });
    }
}
