//! A fuse filter over encoded bytes, which are not copied.

use super::KIND;
use crate::bloom_variants::kind_view_trait::{CACHED_BYTES, probe_with_prefetch};
use crate::format::bloom_header::FilterError;
use crate::format::filter_header::malformed;
use crate::format::static_filter_header::StaticHeader;
use crate::fuse::fingerprint_packing::{bits_at, packed_bytes, prefetch_bits, used_bytes};
use crate::fuse::slot_layout::{
    FINGERPRINT_BITS, FuseArity, KEY_BITS, SEGMENT_LOG_MAX, SlotFinder, SlotLayout, fingerprint,
    key_of, mix, seed_of,
};
use crate::rate::blocked_rate::with_hash_floor;

/// A binary fuse filter in borrowed bytes, which need not be aligned.
#[derive(Clone, Copy, Debug)]
pub struct FuseView<'a> {
    header: StaticHeader,
    bits: u32,
    shape: SlotLayout,
    seed: u64,
    places: SlotFinder,
    slots: &'a [u8],
}

impl<'a> FuseView<'a> {
    /// Reads the header, and checks all that can be checked without the keys. Allocates no memory.
    ///
    /// # Errors
    /// [`FilterError::Empty`] and [`FilterError::Unknown`] if the caller must answer "maybe" to
    /// every key; [`FilterError::Malformed`] if fields of the bytes contradict each other.
    pub fn parse(bytes: &'a [u8]) -> Result<FuseView<'a>, FilterError> {
        let (header, slots) = StaticHeader::parse(bytes, KIND)?;
        let [a, b, c, d, arity, segment_log, rest @ ..] = header.fields;
        let attempt = u32::from_le_bytes([a, b, c, d]);
        let (bits, segment_log) = (u32::from(header.detail), u32::from(segment_log));
        if !FINGERPRINT_BITS.contains(&bits) {
            return Err(malformed("the filter's fingerprints do not have 4 to 16 bits"));
        }
        let Some(arity) = FuseArity::from_slots(arity) else {
            return Err(malformed("the fuse filter's header gives each key neither 3 nor 4 slots"));
        };
        if rest.iter().any(|&byte| byte != 0) {
            return Err(malformed("the reserved bytes of the filter's header are not zero"));
        }
        if segment_log > SEGMENT_LOG_MAX {
            return Err(malformed("the filter's segments are too long"));
        }
        let segments = header.units >> segment_log;
        if segments << segment_log != header.units || segments < u64::from(arity.slots()) {
            return Err(malformed("the filter's slots are not enough whole segments"));
        }
        if packed_bytes(header.units, bits) != Some(slots.len()) {
            return Err(malformed("the filter's number of slots does not fit its length"));
        }
        let used = used_bytes(header.units, bits).and_then(|used| usize::try_from(used).ok());
        let padding = used.and_then(|used| slots.get(used..)).unwrap_or_default();
        if padding.iter().any(|&byte| byte != 0) {
            return Err(malformed("the bytes after the filter's slots are not zero"));
        }
        let shape = SlotLayout { arity, segment_log, slots: header.units };
        let (seed, places) = (seed_of(attempt), SlotFinder::new(&shape));
        Ok(FuseView { header, bits, shape, seed, places, slots })
    }

    /// Returns the same filter over `slots`, which must be the same bytes at another address.
    pub(crate) fn over<'b>(&self, slots: &'b [u8]) -> FuseView<'b> {
        let FuseView { header, bits, shape, seed, places, slots: _ } = *self;
        FuseView { header, bits, shape, seed, places, slots }
    }

    /// Whether the key of `hash` may have been added; never false for an added key. Always inlined,
    /// because a call would take a fifth of the probe's time.
    #[inline(always)]
    pub fn contains(&self, hash: u64) -> bool {
        match (self.shape.arity, self.bits) {
            (FuseArity::Three, 8) => self.probe::<3, 8>(hash),
            (FuseArity::Three, 16) => self.probe::<3, 16>(hash),
            _ => self.contains_generic(hash),
        }
    }

    #[inline(never)]
    fn contains_generic(&self, hash: u64) -> bool {
        match self.shape.arity {
            FuseArity::Three => self.probe::<3, 0>(hash),
            FuseArity::Four => self.probe::<4, 0>(hash),
        }
    }

    /// Probes every hash in one call: `found[n]` becomes the answer for `hashes[n]`. If `hashes` is
    /// shorter, further elements of `found` are unchanged. Probes do not wait for each other: their
    /// cache misses overlap, and arity and width of the filter are determined only once.
    pub fn contains_batch(&self, hashes: &[u64], found: &mut [bool]) {
        match (self.shape.arity, self.bits) {
            (FuseArity::Three, 8) => self.probe_all::<3, 8>(hashes, found),
            (FuseArity::Three, 16) => self.probe_all::<3, 16>(hashes, found),
            (FuseArity::Three, _) => self.probe_all::<3, 0>(hashes, found),
            (FuseArity::Four, 8) => self.probe_all::<4, 8>(hashes, found),
            (FuseArity::Four, _) => self.probe_all::<4, 0>(hashes, found),
        }
    }

    // Each form is a function of its own, so that each has the registers to itself.
    #[inline(never)]
    fn probe_all<const ARITY: usize, const WIDTH: u32>(&self, hashes: &[u64], found: &mut [bool]) {
        if self.slots.len() > CACHED_BYTES {
            let begin = |hash| {
                let key = key_of(mix(hash, self.seed));
                let places = self.places.of::<ARITY>(key);
                for slot in places {
                    prefetch_bits::<WIDTH>(self.slots, slot, self.bits);
                }
                (fingerprint(key), places)
            };
            let end = |(print, places)| self.matches_fingerprint::<ARITY, WIDTH>(print, places);
            return probe_with_prefetch(hashes, found, begin, end);
        }
        for (hash, found) in hashes.iter().zip(found) {
            *found = self.probe::<ARITY, WIDTH>(*hash);
        }
    }

    /// REQUIRES: keys have `ARITY` slots. Fingerprints have `WIDTH` bits, unless `WIDTH` is 0.
    #[inline(always)]
    fn probe<const ARITY: usize, const WIDTH: u32>(&self, hash: u64) -> bool {
        let key = key_of(mix(hash, self.seed));
        self.matches_fingerprint::<ARITY, WIDTH>(fingerprint(key), self.places.of::<ARITY>(key))
    }

    /// Whether these slots have this fingerprint.
    #[inline(always)]
    fn matches_fingerprint<const ARITY: usize, const WIDTH: u32>(
        &self,
        print: u32,
        places: [usize; ARITY],
    ) -> bool {
        let mut all = print;
        for slot in places {
            let Some(bits) = bits_at::<WIDTH>(self.slots, slot, self.bits) else {
                return true;
            };
            all ^= bits;
        }
        let bits = if WIDTH == 0 { self.bits } else { WIDTH };
        all & ((1 << bits) - 1) == 0
    }

    /// Number of distinct hashes that were added.
    pub fn keys(&self) -> u64 {
        self.header.keys
    }

    /// Number of slots.
    pub fn slots(&self) -> u64 {
        self.shape.slots
    }

    /// Number of bits of a fingerprint.
    pub fn fingerprint_bits(&self) -> u32 {
        self.bits
    }

    /// Number of slots of a key.
    pub fn arity(&self) -> FuseArity {
        self.shape.arity
    }

    /// The number of the hash function of the hashes.
    pub fn hash_kind(&self) -> u8 {
        self.header.hash_kind
    }

    /// Id of the store's seed of the hashes; 0 if the builder got no id.
    pub fn seed_id(&self) -> u32 {
        self.header.seed_id
    }

    /// Theoretical false-positive rate: the share of absent keys whose fingerprint equals that of
    /// their slots by chance, or that share 59 bits with an added key.
    pub fn designed_rate(&self) -> f64 {
        let by_chance = (-f64::from(self.bits)).exp2();
        let same_key = -(-(self.keys() as f64) / f64::from(KEY_BITS).exp2()).exp_m1();
        let rate = by_chance + (1.0 - by_chance) * same_key;
        with_hash_floor(rate, self.keys(), self.header.hash_kind)
    }
}
