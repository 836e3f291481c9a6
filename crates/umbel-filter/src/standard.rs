//! Kind 3: the textbook's Bloom filter, of any number of bits and probes.
//!
//! FORMAT: bit `b` is bit `b % 8` of byte `b / 8` of the payload; bits behind the last are zero.
//! How the bits of a key are found is in [`Probing`].

use crate::ask::{Ask, IN_CACHE, ask_in_rounds, ones};
use crate::encoding::FilterError;
use crate::formulas;
use crate::header::{FilterHeader, malformed};
use crate::probing::Probing;
use std::hint::black_box;
use std::ops::Range;

/// How many hashes are added together.
const GROUP: usize = 32;
/// How many probes are read first in a batch: three of four absent keys need no more.
const AHEAD: u8 = 2;
/// The most probes of LevelDB's filters; to its readers more mean "maybe" for every key.
pub(crate) const LEVELDB_MOST_PROBES: u8 = 30;

/// A standard Bloom filter in borrowed bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StandardView<'a> {
    header: FilterHeader,
    probing: Probing,
    payload: &'a [u8],
}

impl<'a> StandardView<'a> {
    /// REQUIRES: the payload has the length that the header says.
    ///
    /// # Errors
    /// [`FilterError::Unknown`] where its probing is, [`FilterError::Malformed`] where LevelDB's
    /// has more probes than LevelDB reads or a number of bits that makes no whole bytes.
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
            if header.probes > LEVELDB_MOST_PROBES {
                return Err(malformed("a filter with LevelDB's probing has more than 30 probes"));
            }
            if !header.units.is_multiple_of(8) {
                return Err(malformed("a filter with LevelDB's probing has half a byte"));
            }
        }
        Ok(StandardView { header, probing, payload })
    }

    /// The same filter over `payload`, which must be the same bytes somewhere else.
    pub(crate) fn over<'b>(&self, payload: &'b [u8]) -> StandardView<'b> {
        StandardView { header: self.header, probing: self.probing, payload }
    }

    #[inline(always)]
    fn is_set(&self, position: u64) -> bool {
        let byte = self.payload.get((position / 8) as usize);
        byte.is_none_or(|byte| byte >> (position % 8) & 1 == 1)
    }

    /// Whether these probes find their bits; reads all of them, without a branch.
    #[inline(always)]
    fn all_set(&self, hash: u64, probes: Range<u8>) -> bool {
        let mut all = true;
        self.probing.each(hash, self.header.units, probes, |position| all &= self.is_set(position));
        all
    }

    /// Reads the bytes of the first `probes` probes, so that they come from memory all at once.
    #[inline(always)]
    fn touch(&self, hash: u64, probes: u8) -> u8 {
        let mut all = 0;
        self.probing.each(hash, self.header.units, 0..probes, |position| {
            all ^= self.payload.get((position / 8) as usize).copied().unwrap_or_default();
        });
        all
    }
}

impl Ask for StandardView<'_> {
    #[inline]
    fn contains(&self, hash: u64) -> bool {
        let is_set = |position| self.is_set(position);
        self.probing.all(hash, self.header.units, 0..self.header.probes, is_set)
    }

    fn contains_batch(&self, hashes: &[u64], found: &mut [bool]) {
        let ahead = self.header.probes.min(AHEAD);
        let first = |hash| self.all_set(hash, 0..ahead);
        ask_in_rounds(hashes, found, first, |hash| self.all_set(hash, ahead..self.header.probes));
    }

    fn header(&self) -> FilterHeader {
        self.header
    }

    fn payload(&self) -> Option<&[u8]> {
        Some(self.payload)
    }

    fn estimated_keys(&self) -> f64 {
        formulas::cardinality(self.header.units, self.header.probes.into(), ones(self.payload))
    }

    fn estimated_rate(&self) -> f64 {
        let set = ones(self.payload) as f64 / self.header.units as f64;
        set.powi(self.header.probes.into())
    }
}

/// Sets the bits of all hashes in the payload of a filter with that header.
pub(crate) fn fill(header: &FilterHeader, probing: Probing, payload: &mut [u8], hashes: &[u64]) {
    let (bits, probes) = (header.units, header.probes);
    for hashes in hashes.chunks(GROUP) {
        if payload.len() > IN_CACHE {
            let view = StandardView { header: *header, probing, payload };
            black_box(hashes.iter().fold(0, |all, hash| all ^ view.touch(*hash, probes)));
        }
        for hash in hashes {
            probing.each(*hash, bits, 0..probes, |position| {
                if let Some(byte) = payload.get_mut((position / 8) as usize) {
                    *byte |= 1 << (position % 8);
                }
            });
        }
    }
}
