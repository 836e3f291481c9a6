//! Options of a filter, their checks and the resulting sizes.

use crate::bloom_formulas;
use crate::bloom_variants::blocked_256;
use crate::bloom_variants::blocked_512;
use crate::bloom_variants::theoretical_rate::theoretical_rate;
use crate::build::build_error::BuildError;
use crate::build::filter_size::FilterSize;
use crate::build::static_filter_plan;
use crate::format::filter_header::{FilterHeader, HASH_KINDS, MAX_FILTER_BITS};
use crate::format::filter_kind::FilterKind;
use crate::hash::keyed_hash::KEYED_HASH_KIND;
use crate::probe::probe_positions::Probing;
use crate::probe::split_block_lanes::LANES;

/// The most bits per key.
const BITS_PER_KEY_MAX: f64 = 1000.0;
/// The fewest bits, or counters, of a standard or counting filter, also of LevelDB's. In smaller
/// filters the positions of different keys coincide too often.
const BITS_MIN: u64 = 64;
/// Tolerance of the rate from the textbook's formula, which rounds.
const RATE_TOLERANCE: f64 = 1.05;

/// Options of a filter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FilterOptions {
    /// Kind of filter; [`FilterKind::Blocked512`] by default.
    pub kind: FilterKind,
    /// Size of the filter; 10 bits per key by default.
    pub size: FilterSize,
    /// Number of bits of each key, instead of the best number. Blocked filters allow 1 to 24,
    /// standard and counting filters 1 to 255 (1 to 30 with LevelDB's probing), split block filters
    /// 8.
    pub probes: Option<u32>,
    /// Probing of a standard filter; other kinds have only one.
    pub probing: Probing,
    /// The number of the hash by which keys are added, 1 to 13. The builder only stores it in the
    /// filter's header.
    pub hash_kind: u8,
    /// Id of the store's seed of the hashes. The builder only stores it in the filter's header.
    pub seed_id: u32,
}

impl Default for FilterOptions {
    fn default() -> FilterOptions {
        FilterOptions {
            kind: FilterKind::default(),
            size: FilterSize::BitsPerKey(10.0),
            probes: None,
            probing: Probing::default(),
            hash_kind: KEYED_HASH_KIND,
            seed_id: 0,
        }
    }
}

impl FilterOptions {
    /// Checks that a filter can be built with these options for some keys.
    ///
    /// # Errors
    /// Invalid option, with the permitted values.
    pub fn check(&self) -> Result<(), BuildError> {
        if self.kind.is_static() && self.probes.is_some() {
            return Err(BuildError::NoProbes { kind: self.kind });
        }
        match self.size {
            FilterSize::BitsPerKey(given) if !(given > 0.0 && given <= BITS_PER_KEY_MAX) => {
                return Err(BuildError::BitsPerKey { given });
            }
            FilterSize::Rate(given) if !(given > 0.0 && given < 1.0) => {
                return Err(BuildError::Rate { given });
            }
            FilterSize::BitsPerKey(_) | FilterSize::Rate(_) => {}
        }
        if let FilterSize::Rate(given) = self.size
            && self.kind.is_static()
            && given < static_filter_plan::lowest_rate(self.kind)
        {
            let lowest = static_filter_plan::lowest_rate(self.kind);
            return Err(BuildError::RateOutOfReach { given, lowest });
        }
        if self.probing != Probing::default() && self.kind != FilterKind::Standard {
            return Err(BuildError::Probing { kind: self.kind });
        }
        let (least, most) = match self.kind.most_probes() {
            Some(_) if self.probing == Probing::LevelDb => (1, 30),
            Some(most) => (1, most),
            None => (LANES as u32, LANES as u32),
        };
        if let Some(given) = self.probes.filter(|given| !(least..=most).contains(given)) {
            return Err(BuildError::Probes { given, kind: self.kind, least, most });
        }
        if !(1..=HASH_KINDS).contains(&self.hash_kind) {
            return Err(BuildError::HashKind { given: self.hash_kind });
        }
        Ok(())
    }

    /// Number of bytes of a filter of `keys` keys, including its header of 64 bytes.
    ///
    /// # Errors
    /// The errors of [`FilterOptions::check`], and [`BuildError::RateOutOfReach`] and
    /// [`BuildError::TooLarge`].
    pub fn bytes_for(&self, keys: u64) -> Result<u64, BuildError> {
        if self.kind.is_static() {
            self.check()?;
            return static_filter_plan::plan(self.kind, self.size, keys)
                .map(|made| made.expected_bytes(keys));
        }
        let header = self.header(keys)?;
        let payload = header.payload_bytes().unwrap_or(u64::MAX);
        Ok(payload.saturating_add(crate::format::bloom_header::HEADER_BYTES as u64))
    }

    /// Returns the header of a filter of `keys` keys. The kind must not be static.
    pub(crate) fn header(&self, keys: u64) -> Result<FilterHeader, BuildError> {
        self.check()?;
        let header = match self.size {
            FilterSize::BitsPerKey(bits) => {
                // The quotient is never below the smallest float, and the conversion saturates at
                // the largest number.
                let bits = (keys as f64 * bits).ceil() as u64;
                self.with_units(keys, self.units_for(bits))
            }
            FilterSize::Rate(rate) => self.header_for_rate(keys, rate)?,
        };
        let bits = header.units.saturating_mul(self.unit_bits());
        if bits > MAX_FILTER_BITS {
            return Err(BuildError::TooLarge { bits });
        }
        Ok(header)
    }

    /// Number of bits of a unit of the payload; for a counting filter, the number of counters.
    fn unit_bits(&self) -> u64 {
        match self.kind {
            FilterKind::Blocked512 => 512,
            FilterKind::Blocked256 | FilterKind::SplitBlock => 256,
            _ => 1,
        }
    }

    /// Number of units that have at least this number of bits.
    fn units_for(&self, bits: u64) -> u64 {
        match self.kind {
            FilterKind::Standard if self.probing == Probing::LevelDb => {
                bits.max(BITS_MIN).checked_next_multiple_of(8).unwrap_or(bits)
            }
            FilterKind::Standard | FilterKind::Counting => bits.max(BITS_MIN),
            _ => bits.div_ceil(self.unit_bits()).max(1),
        }
    }

    fn with_units(&self, keys: u64, units: u64) -> FilterHeader {
        // Uses the requested size, not the size rounded up to whole lines. The tables are for the
        // requested size, and older filters did the same.
        let bits_per_key = match self.size {
            FilterSize::BitsPerKey(bits) => bits,
            FilterSize::Rate(_) => units as f64 * self.unit_bits() as f64 / keys.max(1) as f64,
        };
        let probes = self.probes.unwrap_or_else(|| self.best_probes(bits_per_key));
        FilterHeader {
            kind: self.kind,
            hash_kind: self.hash_kind,
            probes: probes as u8,
            keys,
            units,
            seed_id: self.seed_id,
            detail: self.probing.number(),
        }
    }

    fn best_probes(&self, bits_per_key: f64) -> u32 {
        match self.kind {
            FilterKind::Blocked512 => blocked_512::best_probes(bits_per_key),
            FilterKind::Blocked256 => blocked_256::best_probes(bits_per_key),
            FilterKind::SplitBlock => LANES as u32,
            _ if self.probing == Probing::LevelDb => bloom_formulas::leveldb_probes(bits_per_key),
            _ => bloom_formulas::probes_at(bits_per_key),
        }
    }

    /// Returns the header of the smallest filter that reaches `rate`.
    fn header_for_rate(&self, keys: u64, rate: f64) -> Result<FilterHeader, BuildError> {
        let reaches = |units, rate| theoretical_rate(&self.with_units(keys, units)) <= rate;
        let by_formula = matches!(self.kind, FilterKind::Standard | FilterKind::Counting)
            && self.probes.is_none()
            && self.probing != Probing::LevelDb;
        if by_formula {
            let units = self.units_for(bloom_formulas::bits(keys, rate));
            // Near 1 a twentieth more would be all there are.
            if reaches(units, (rate * RATE_TOLERANCE).min(f64::midpoint(rate, 1.0))) {
                return Ok(self.with_units(keys, units));
            }
        }
        let bits_max = (keys as f64 * BITS_PER_KEY_MAX) as u64;
        let mut enough = self.units_for(bits_max.min(MAX_FILTER_BITS));
        if !reaches(enough, rate) {
            if bits_max > MAX_FILTER_BITS {
                return Err(BuildError::TooLarge { bits: bloom_formulas::bits(keys, rate) });
            }
            let lowest = theoretical_rate(&self.with_units(keys, enough));
            return Err(BuildError::RateOutOfReach { given: rate, lowest });
        }
        let mut too_few = 0;
        while enough - too_few > 1 {
            let units = too_few + (enough - too_few) / 2;
            *(if reaches(units, rate) { &mut enough } else { &mut too_few }) = units;
        }
        Ok(self.with_units(keys, self.units_for(enough * self.unit_bits())))
    }
}
