//! Kind 3: the textbook's Bloom filter, of any number of bits and probes.
//!
//! FORMAT: bit `b` is bit `b % 8` of byte `b / 8` of the payload; bits behind the last are zero.
//! How the bits of a key are found is in [`Probing`].

use crate::ask::{Ask, FAR, IN_CACHE, ask_in_rounds, ask_in_two_rounds, ones};
use crate::encoding::FilterError;
use crate::formulas;
use crate::header::{FilterHeader, malformed};
use crate::probing::{AHEAD, Probing, three_rounds};
use crate::simd::{Asked, Whole, prefetch};
use std::ops::Range;

/// How many hashes ahead the lines of a hash that is added are asked for.
const GROUP: usize = 8;
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

    /// What asks for one hash: a function for each probing, in a filter that is near or far.
    pub(crate) fn whole(&self) -> Whole<'a> {
        let is_far = self.payload.len() >= FAR;
        let ask: fn(&Asked<'_>, u64) -> bool = match (self.probing, is_far) {
            (Probing::Multiplied, _) => |asked, hash| ask(Probing::Multiplied, asked, hash),
            (Probing::Enhanced, false) => |asked, hash| ask(Probing::Enhanced, asked, hash),
            (Probing::LevelDb, false) => |asked, hash| ask(Probing::LevelDb, asked, hash),
            (Probing::Enhanced, true) => |asked, hash| ask_far(Probing::Enhanced, asked, hash),
            (Probing::LevelDb, true) => |asked, hash| ask_far(Probing::LevelDb, asked, hash),
        };
        Whole::portable(ask, self.asked())
    }

    /// What asks for one hash without a call, where that is faster: in a filter that is [`FAR`],
    /// and has the default probing.
    pub(crate) fn far(&self) -> Option<FarBloom<'a>> {
        let is_far = self.payload.len() >= FAR && self.probing == Probing::Multiplied;
        is_far.then(|| FarBloom(self.asked()))
    }

    fn asked(&self) -> Asked<'a> {
        let (payload, FilterHeader { units, probes, .. }) = (self.payload, self.header);
        Asked { payload, blocks: &[], bits: units, probes }
    }

    /// Whether these probes find their bits; reads all of them, without a branch.
    #[inline(always)]
    fn all_set(&self, hash: u64, probes: Range<u8>) -> bool {
        let mut all = true;
        self.probing.each(hash, self.header.units, probes, |position| {
            all &= is_set(self.payload, position);
        });
        all
    }

    /// Asks for the cache lines of these probes.
    #[inline(always)]
    fn prefetch(&self, hash: u64, probes: Range<u8>) {
        self.probing.each(hash, self.header.units, probes, |position| {
            if let Some(byte) = self.payload.get((position / 8) as usize) {
                prefetch(byte);
            }
        });
    }
}

impl Ask for StandardView<'_> {
    #[inline]
    fn contains(&self, hash: u64) -> bool {
        self.whole().contains(hash)
    }

    fn contains_batch(&self, hashes: &[u64], found: &mut [bool]) {
        let probes = self.header.probes;
        if self.payload.len() >= FAR {
            let near = |hash, probes| self.prefetch(hash, probes);
            let ask = |hash, probes| self.all_set(hash, probes);
            return ask_in_rounds(hashes, found, three_rounds(probes), near, ask);
        }
        let (ahead, asked) = (probes.min(AHEAD), self.asked());
        let first = |hash| self.all_set(hash, 0..ahead);
        let rest = |hash| self.all_set(hash, ahead..probes);
        ask_in_two_rounds(hashes, found, first, rest, |hash| ask(self.probing, &asked, hash));
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

#[inline(always)]
fn is_set(payload: &[u8], position: u64) -> bool {
    let byte = payload.get((position / 8) as usize);
    byte.is_none_or(|byte| byte >> (position % 8) & 1 == 1)
}

#[inline(always)]
fn ask(probing: Probing, asked: &Asked<'_>, hash: u64) -> bool {
    probing.all(hash, asked.bits, asked.probes, |position| is_set(asked.payload, position))
}

#[inline(always)]
fn ask_far(probing: Probing, asked: &Asked<'_>, hash: u64) -> bool {
    probing.one_by_one(hash, asked.bits, asked.probes, |position| is_set(asked.payload, position))
}

/// A standard filter that is in no cache. It is asked without a call, which half of all absent keys
/// would pay for with one line of the filter: so many more hashes are under way at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FarBloom<'a>(Asked<'a>);

impl FarBloom<'_> {
    /// The same filter over `payload`, which must be the same bytes somewhere else.
    #[inline]
    pub(crate) fn over<'b>(&self, payload: &'b [u8]) -> FarBloom<'b> {
        FarBloom(Asked { payload, blocks: &[], ..self.0 })
    }

    /// Whether the key of `hash` may have been added.
    #[inline(always)]
    pub(crate) fn contains(&self, hash: u64) -> bool {
        ask_far(Probing::Multiplied, &self.0, hash)
    }
}

/// Sets the bits of all hashes in the payload of a filter with that header.
pub(crate) fn fill(header: &FilterHeader, probing: Probing, payload: &mut [u8], hashes: &[u64]) {
    let (bits, probes) = (header.units, header.probes);
    let is_large = payload.len() > IN_CACHE;
    for (at, hash) in hashes.iter().enumerate() {
        if is_large && let Some(later) = hashes.get(at + GROUP) {
            StandardView { header: *header, probing, payload }.prefetch(*later, 0..probes);
        }
        probing.each(*hash, bits, 0..probes, |position| {
            if let Some(byte) = payload.get_mut((position / 8) as usize) {
                *byte |= 1 << (position % 8);
            }
        });
    }
}
