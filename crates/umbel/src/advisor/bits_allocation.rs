//! Sizes of second filters, chosen so that all filters together pass as few absent keys as their
//! memory allows. The sizes are Monkey's optimum (Dayan, Athanassoulis, Idreos, SIGMOD 2017). Where
//! Monkey assumes evenly spread lookups, this code uses counts of the absent keys that reach each
//! level.
//!
//! With `b` bits per key a filter passes about `2^(-b/alpha)` of the absent keys. The sum over the
//! levels of `absent * rate` is least, for a given sum of `keys * bits`, where each rate is `lambda
//! * alpha * keys / absent`. Bisection finds lambda.

use umbel_filter::FilterKind;

/// Smallest and largest number of bits per key for which a second blocked Bloom filter is built. A
/// level that is rarely probed gets no second filter.
const BLOCKED_BITS: (f64, f64) = (4.0, 24.0);
/// Smallest and largest number of fingerprint bits of a fuse filter.
const FUSE_BITS: (f64, f64) = (4.0, 16.0);
/// Bits of memory for each bit of a fuse filter's fingerprint.
const FUSE_SPACE: f64 = 1.13;
/// Extra cost of a probe of a fuse filter over a probe of 512-bit blocks, in instructions.
const FUSE_COST: f64 = 35.0;
const RIBBON_COST: f64 = 90.0;
/// A filter kind with a more expensive probe pays off where it saves at least this multiple of its
/// extra cost.
const COST_RATIO_MIN: f64 = 2.0;
/// Approximate difference of the false-positive rates of a plain filter of ten bits per key and a
/// fuse filter of the same size.
const FUSE_SAVES: f64 = 0.006;
/// Bisection steps for lambda.
const BISECTION_STEPS: usize = 80;
/// Smallest difference in bits per key that makes a second filter worth writing. A small decrease
/// in the last level frees much memory for the small levels above it.
const BITS_DIFFERENCE_MIN: f64 = 0.2;

/// Predicted state of a level.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LevelLoad {
    /// Number of keys of the level.
    pub keys: f64,
    /// Number of recent lookups of keys that the level lacks.
    pub absent_reads: f64,
    /// Bits per key of the level's plain filters.
    pub plain_bits: f64,
    /// Whether the level is the last one.
    pub is_last: bool,
    /// Whether the level gets a smaller filter kind that takes longer to build and to probe. Such a
    /// kind suits tables that live long and false positives that are expensive.
    pub is_dense: bool,
}

impl LevelLoad {
    /// Filter kind of the level.
    pub fn kind(&self) -> FilterKind {
        if self.is_dense { FilterKind::BinaryFuse } else { FilterKind::Blocked512 }
    }

    fn alpha(&self) -> f64 {
        match self.kind() {
            FilterKind::BinaryFuse => FUSE_SPACE,
            _ => BLOCKED_SLOPE,
        }
    }

    /// Approximate false-positive rate with `bits` bits per key.
    pub fn rate(&self, bits: f64) -> f64 {
        let halvings = match self.kind() {
            FilterKind::BinaryFuse => bits / FUSE_SPACE,
            _ => (bits - BLOCKED_OFFSET) / BLOCKED_SLOPE,
        };
        if bits > 0.0 { (-halvings).exp2() } else { 1.0 }
    }

    fn bits(&self, rate: f64) -> f64 {
        let halvings = -rate.log2();
        match self.kind() {
            FilterKind::BinaryFuse => halvings.clamp(FUSE_BITS.0, FUSE_BITS.1) * FUSE_SPACE,
            _ => (halvings * BLOCKED_SLOPE + BLOCKED_OFFSET).clamp(BLOCKED_BITS.0, BLOCKED_BITS.1),
        }
    }
}

/// Bits per halving of the false-positive rate, and constant offset, of a filter of 512-bit blocks.
/// The slope and the offset hold for rates between one in ten and one in a thousand.
const BLOCKED_SLOPE: f64 = 1.683;
const BLOCKED_OFFSET: f64 = -1.28;

/// Extra cost of a probe of a second filter of this kind over a probe of a plain filter, in
/// instructions.
pub fn probe_cost(kind: FilterKind) -> f64 {
    match kind {
        FilterKind::BinaryFuse => FUSE_COST,
        FilterKind::Ribbon => RIBBON_COST,
        _ => 0.0,
    }
}

/// Whether a fuse filter saves enough false reads to pay for its expensive probes, if a false
/// positive costs `read_cost` instructions.
pub fn dense_filter_pays(read_cost: f64) -> bool {
    FUSE_SAVES * read_cost >= COST_RATIO_MIN * FUSE_COST
}

/// Bits per key for each level with which the filters pass the fewest absent keys, within `memory`
/// bits in total. A level without lookups gets 0.
pub fn allocate_bits(levels: &[LevelLoad], memory: f64) -> Vec<f64> {
    let is_probed = |load: &LevelLoad| load.keys > 0.0 && load.absent_reads > 0.0;
    let at = |lambda: f64| -> Vec<f64> {
        let bits = |load: &LevelLoad| {
            let rate = lambda * load.alpha() * load.keys / load.absent_reads;
            load.bits(rate.clamp(1e-9, 1.0))
        };
        levels.iter().map(|load| if is_probed(load) { bits(load) } else { 0.0 }).collect()
    };
    let total = |bits: &[f64]| -> f64 {
        levels.iter().zip(bits).map(|(load, bits)| load.keys * bits).sum()
    };
    // In halvings of the rate: more halvings take more bits.
    let (mut fits, mut too_many) = (-60.0f64, 120.0f64);
    for _ in 0..BISECTION_STEPS {
        let middle = (fits + too_many) / 2.0;
        let is_enough = total(&at((-middle).exp2())) <= memory;
        *(if is_enough { &mut fits } else { &mut too_many }) = middle;
    }
    at((-fits).exp2())
}

/// Kind and bits per key of the second filter for a level's new tables; `None` if no second filter
/// pays off.
pub fn second_filter_bits(load: &LevelLoad, bits: f64) -> Option<(FilterKind, f64)> {
    if bits <= 0.0 || load.plain_bits <= 0.0 {
        return None;
    }
    match load.kind() {
        FilterKind::BinaryFuse => {
            // Whole bits of fingerprint, within the memory that was planned.
            let fingerprint = (bits / FUSE_SPACE + 0.01).floor().max(FUSE_BITS.0);
            Some((FilterKind::BinaryFuse, fingerprint * FUSE_SPACE + 0.5))
        }
        kind => {
            let in_range = BLOCKED_BITS.0 < load.plain_bits && load.plain_bits < BLOCKED_BITS.1;
            let is_other = (bits - load.plain_bits).abs() >= BITS_DIFFERENCE_MIN;
            (in_range && is_other).then_some((kind, bits))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(keys: f64, absent: f64, is_dense: bool) -> LevelLoad {
        LevelLoad { keys, absent_reads: absent, plain_bits: 10.0, is_last: false, is_dense }
    }

    #[test]
    fn optimum_beats_uniform_bits() {
        let mut levels = vec![load(4e6, 4e5, false), load(1e7, 1e5, false), load(1e8, 1e5, false)];
        let memory: f64 = levels.iter().map(|load| load.keys * 10.0).sum();
        let all = |levels: &[LevelLoad], bits: &[f64]| -> f64 {
            levels.iter().zip(bits).map(|(load, bits)| load.absent_reads * load.rate(*bits)).sum()
        };
        let taken = |levels: &[LevelLoad], bits: &[f64]| -> f64 {
            levels.iter().zip(bits).map(|(load, bits)| load.keys * bits).sum()
        };
        let same = all(&levels, &[10.0; 3]);
        let bits = allocate_bits(&levels, memory);
        assert!((taken(&levels, &bits) / memory - 1.0).abs() < 0.001, "{bits:?}");
        assert!(bits.is_sorted_by(|a, b| a > b), "{bits:?}");
        let blocked = all(&levels, &bits);
        assert!(blocked * 2.5 < same, "{bits:?}");
        levels[2].is_dense = true;
        let with_fuse = allocate_bits(&levels, memory);
        assert!(taken(&levels, &with_fuse) <= memory * 1.001);
        assert!(all(&levels, &with_fuse) < blocked / 2.0, "{with_fuse:?}");
    }

    #[test]
    fn unprobed_filter_gets_no_bits() {
        let levels = [load(1e6, 1e5, false), load(1e7, 0.0, true)];
        let bits = allocate_bits(&levels, 1.1e8);
        assert_eq!(bits[1], 0.0);
        assert_eq!(bits[0], BLOCKED_BITS.1);
        assert_eq!(second_filter_bits(&levels[1], bits[1]), None);
    }

    #[test]
    fn second_filter_is_built_only_if_bits_differ() {
        let short = load(1e6, 1e5, false);
        assert_eq!(second_filter_bits(&short, 10.1), None);
        assert_eq!(
            second_filter_bits(&LevelLoad { plain_bits: 30.0, ..short }, 24.0),
            None,
            "worse, and no less"
        );
        assert_eq!(second_filter_bits(&short, 14.0), Some((FilterKind::Blocked512, 14.0)));
        let long = load(1e6, 1e5, true);
        let (kind, bits) = second_filter_bits(&long, 10.0).unwrap();
        assert_eq!(kind, FilterKind::BinaryFuse);
        assert!((8.0 * FUSE_SPACE..10.0).contains(&bits), "{bits}");
        assert_eq!(second_filter_bits(&LevelLoad { plain_bits: 0.0, ..long }, 10.0), None);
    }
}
