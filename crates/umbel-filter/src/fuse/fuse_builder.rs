//! Builds the encoded filter from all its hashes.

use super::KIND;
use crate::format::bloom_header::HEADER_BYTES;
use crate::format::static_filter_header::StaticHeader;
use crate::fuse::fingerprint_packing::{pack, packed_bytes};
use crate::fuse::peeling::solve;
use crate::fuse::slot_layout::{FINGERPRINT_BITS, FuseArity, SlotLayout, mix, seed_of};
use crate::radix_partition::scatter;
use std::fmt;

/// Default number of seeds that a build tries.
const ATTEMPTS: u32 = 64;
/// About this number of keys lie in one part while a filter is built: with their slots they take
/// half a megabyte or less.
const PARTITION_KEYS: usize = 1 << 14;
/// Maximum number of parts: one line of eight hashes for each still fits the L2 cache.
const PARTITIONS_MAX: usize = 1 << 11;

/// Collects hashes, and sizes and builds a fuse filter at the end.
///
/// Takes 8 bytes of memory for each hash while it collects. [`FuseBuilder::finish`] needs up to 26
/// bytes for each at its peak: the hashes, 8 bytes for their order, 9 for the slots. Later 2 bytes
/// for unpacked fingerprints and the filter itself replace these.
///
/// ```
/// use umbel_filter::{FuseBuilder, FuseView};
///
/// let mut builder = FuseBuilder::new(8);
/// (0..1000).for_each(|number| builder.add(number));
/// let bytes = builder.finish()?;
/// let filter = FuseView::parse(&bytes)?;
/// assert!((0..1000).all(|number| filter.contains(number)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct FuseBuilder {
    bits: u32,
    arity: FuseArity,
    attempts: u32,
    hash_kind: u8,
    seed_id: u32,
    hashes: Vec<u64>,
}

impl FuseBuilder {
    /// Creates a builder of a filter with fingerprints of `fingerprint_bits` bits, clamped to 4
    /// to 16. An absent key passes with a chance of `2^-fingerprint_bits`.
    pub fn new(fingerprint_bits: u32) -> FuseBuilder {
        FuseBuilder::from_hashes(fingerprint_bits, Vec::new())
    }

    /// Creates a builder as [`FuseBuilder::new`] does, with `hashes` already added.
    pub fn from_hashes(fingerprint_bits: u32, hashes: Vec<u64>) -> FuseBuilder {
        let header = StaticHeader::new(KIND);
        FuseBuilder {
            bits: fingerprint_bits.clamp(*FINGERPRINT_BITS.start(), *FINGERPRINT_BITS.end()),
            arity: FuseArity::Three,
            attempts: ATTEMPTS,
            hash_kind: header.hash_kind,
            seed_id: header.seed_id,
            hashes,
        }
    }

    /// Sets the number of slots of every key.
    pub fn with_arity(mut self, arity: FuseArity) -> FuseBuilder {
        self.arity = arity;
        self
    }

    /// Sets the id of the store's seed by which hashes are computed, for the filter's header.
    pub fn with_seed_id(mut self, seed_id: u32) -> FuseBuilder {
        self.seed_id = seed_id;
        self
    }

    /// Sets the number of the hash function for the filter's header; without a call it is the keyed
    /// hash. A reader that does not know the number answers "maybe" to every key.
    pub fn with_hash_kind(mut self, hash_kind: u8) -> FuseBuilder {
        self.hash_kind = hash_kind;
        self
    }

    /// Sets the largest number of seeds that a build tries, by default 64. Nine in ten builds of
    /// small filters and nearly all of large ones need one seed. Each seed takes as long as a whole
    /// build.
    pub fn with_attempts(mut self, attempts: u32) -> FuseBuilder {
        self.attempts = attempts;
        self
    }

    /// Adds a key by its hash. Equal hashes count once: consecutive ones are dropped at once,
    /// others when the filter is built.
    #[inline]
    pub fn add(&mut self, hash: u64) {
        if self.hashes.last() != Some(&hash) {
            self.hashes.push(hash);
        }
    }

    /// Number of hashes added.
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Whether no hash was added.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Number of bytes of the filter of `keys` different hashes if the first seed succeeds; each
    /// later seed can take 2 % more. `None` if there are too many keys.
    ///
    /// A key takes 1.125 fingerprints in filters of a million keys and more (1.075 with four
    /// slots), 1.28 (1.23) at ten thousand, about 1.41 (1.38) at a thousand and 1.9 (1.7) at a
    /// hundred, besides the 64 bytes of the header.
    pub fn expected_bytes(&self, keys: u64) -> Option<u64> {
        let packed = packed_bytes(SlotLayout::of(keys, self.arity, 0).slots, self.bits)?;
        Some((HEADER_BYTES + packed) as u64)
    }

    /// Builds and encodes the filter. The bytes depend on the set of the hashes, not on their
    /// order.
    ///
    /// # Errors
    /// [`PeelingError`], which contains the hashes, if no seed led to a filter. No seed succeeds
    /// only if the hashes were chosen to prevent it, if very few seeds were tried, or with more
    /// than 3 billion hashes.
    pub fn finish(self) -> Result<Vec<u8>, PeelingError> {
        match self.arity {
            FuseArity::Three => self.finish_with::<3>(),
            FuseArity::Four => self.finish_with::<4>(),
        }
    }

    fn finish_with<const ARITY: usize>(mut self) -> Result<Vec<u8>, PeelingError> {
        let mut are_different = false;
        let mut attempt = 0;
        while attempt < self.attempts {
            let shape = SlotLayout::of(self.hashes.len() as u64, self.arity, attempt);
            // Slots are numbered in 32 bits while the filter is built.
            if shape.slots > u64::from(u32::MAX) || packed_bytes(shape.slots, self.bits).is_none() {
                break;
            }
            let seed = seed_of(attempt);
            let parts = (self.hashes.len() / PARTITION_KEYS).min(PARTITIONS_MAX);
            let (mut mixed, _) = scatter(&self.hashes, parts, |hash| mix(hash, seed));
            if let Some(fingerprints) = solve::<ARITY>(&shape, &mut mixed) {
                drop(mixed);
                return Ok(self.encode(&shape, attempt, &fingerprints));
            }
            // Equal hashes cannot be taken apart. To look for them only now costs nothing where
            // there are none.
            if !are_different {
                let before = self.hashes.len();
                self.hashes.sort_unstable();
                self.hashes.dedup();
                are_different = true;
                if self.hashes.len() < before {
                    attempt = 0;
                    continue;
                }
            }
            attempt += 1;
        }
        Err(PeelingError { hashes: self.hashes })
    }

    fn encode(&self, shape: &SlotLayout, attempt: u32, fingerprints: &[u16]) -> Vec<u8> {
        let mut header = StaticHeader::new(KIND);
        header.detail = self.bits as u8;
        header.hash_kind = self.hash_kind;
        header.keys = self.hashes.len() as u64;
        header.units = shape.slots;
        header.seed_id = self.seed_id;
        header.fields[..4].copy_from_slice(&attempt.to_le_bytes());
        header.fields[4] = shape.arity.slots() as u8;
        header.fields[5] = shape.segment_log as u8;
        let payload = packed_bytes(shape.slots, self.bits).unwrap_or(0);
        let mut bytes = Vec::with_capacity(HEADER_BYTES + payload);
        bytes.extend_from_slice(&header.to_bytes());
        pack(fingerprints, self.bits, &mut bytes);
        bytes
    }
}

/// Error of a build for which no seed led to a filter: the hashes need another kind of filter.
#[derive(Clone, PartialEq, Eq)]
pub struct PeelingError {
    hashes: Vec<u64>,
}

impl PeelingError {
    /// Returns the added hashes, to build a filter of another kind.
    pub fn into_hashes(self) -> Vec<u64> {
        self.hashes
    }
}

impl fmt::Debug for PeelingError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "CannotPeel({} hashes)", self.hashes.len())
    }
}

impl fmt::Display for PeelingError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "no seed gives a fuse filter of these {} hashes: build another kind of filter",
            self.hashes.len()
        )
    }
}

impl std::error::Error for PeelingError {}
