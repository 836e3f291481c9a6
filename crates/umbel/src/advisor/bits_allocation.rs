//! How many bits a second filter is to have, so that all filters together let as few absent keys
//! through as their memory allows: Monkey's optimum (Dayan, Athanassoulis, Idreos, SIGMOD 2017),
//! with counts of the absent keys that truly reach each level in the place of an even spread.
//!
//! With `b` bits a key a filter lets through about `2^(-b/alpha)` of the absent keys. The sum over
//! the levels of `absent * rate` is least, for a given sum of `keys * bits`, where each rate is
//! `lambda * alpha * keys / absent`; lambda is found by halving.

use umbel_filter::FilterKind;

/// A key in a level that is hardly asked gets a plain filter only; the least and most bits of a
/// blocked Bloom filter that are worth building another for.
const BLOCKED_BITS: (f64, f64) = (4.0, 24.0);
/// Fingerprints of a fuse filter.
const FUSE_BITS: (f64, f64) = (4.0, 16.0);
/// Bits for each bit of a fuse filter's fingerprint.
const FUSE_SPACE: f64 = 1.13;
/// What asking a filter of these kinds takes more than asking one of lines of 512 bits, in
/// instructions.
const FUSE_COST: f64 = 35.0;
const RIBBON_COST: f64 = 90.0;
/// A kind that takes longer to ask is worth it where it saves so many times as much.
const WORTH: f64 = 2.0;
/// How many more of the absent keys a plain filter of ten bits lets through than a fuse filter of
/// the same size, about.
const FUSE_SAVES: f64 = 0.006;
/// Steps in which lambda is halved.
const STEPS: usize = 80;
/// A second filter is worth writing where it is to have so many bits a key more or less. Little
/// less in the last level leaves much to the small ones above it.
const BITS_APART: f64 = 0.2;

/// A level, as it will be.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Load {
    /// Its keys.
    pub keys: f64,
    /// How often it was asked of late for keys that it does not have.
    pub absent: f64,
    /// Bits a key of its plain filters.
    pub plain_bits: f64,
    /// Whether there is no level below it.
    pub is_last: bool,
    /// Whether its tables live long, and a search in vain costs much: then it gets a kind that is
    /// smaller, but takes longer to build and to ask.
    pub is_dense: bool,
}

impl Load {
    /// Which kind it gets.
    pub fn kind(&self) -> FilterKind {
        if self.is_dense { FilterKind::BinaryFuse } else { FilterKind::Blocked512 }
    }

    fn alpha(&self) -> f64 {
        match self.kind() {
            FilterKind::BinaryFuse => FUSE_SPACE,
            _ => BLOCKED_SLOPE,
        }
    }

    /// The share of absent keys that so many bits a key let through, about.
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

/// Between one absent key in ten and one in a thousand let through, a filter of lines of 512 bits
/// takes about so many bits for each halving, and so many besides.
const BLOCKED_SLOPE: f64 = 1.683;
const BLOCKED_OFFSET: f64 = -1.28;

/// What asking a second filter of this kind takes more than asking a plain one, in instructions.
pub fn cost(kind: FilterKind) -> f64 {
    match kind {
        FilterKind::BinaryFuse => FUSE_COST,
        FilterKind::Ribbon => RIBBON_COST,
        _ => 0.0,
    }
}

/// Whether a dense kind saves more than it takes, where a search in vain costs `read_cost`
/// instructions.
pub fn dense_pays(read_cost: f64) -> bool {
    FUSE_SAVES * read_cost >= WORTH * FUSE_COST
}

/// The bits a key of each level for which the least of the absent keys pass, at most `memory` bits
/// in all. 0 where nobody asks.
pub fn optimum(levels: &[Load], memory: f64) -> Vec<f64> {
    let asked = |load: &Load| load.keys > 0.0 && load.absent > 0.0;
    let at = |lambda: f64| -> Vec<f64> {
        let bits = |load: &Load| {
            let rate = lambda * load.alpha() * load.keys / load.absent;
            load.bits(rate.clamp(1e-9, 1.0))
        };
        levels.iter().map(|load| if asked(load) { bits(load) } else { 0.0 }).collect()
    };
    let total = |bits: &[f64]| -> f64 {
        levels.iter().zip(bits).map(|(load, bits)| load.keys * bits).sum()
    };
    // In halvings: more of them are more bits.
    let (mut fits, mut too_many) = (-60.0f64, 120.0f64);
    for _ in 0..STEPS {
        let middle = (fits + too_many) / 2.0;
        let is_enough = total(&at((-middle).exp2())) <= memory;
        *(if is_enough { &mut fits } else { &mut too_many }) = middle;
    }
    at((-fits).exp2())
}

/// The second filter of a level's new tables, if one is worth it: its kind, and its bits a key.
pub fn second(load: &Load, bits: f64) -> Option<(FilterKind, f64)> {
    if bits <= 0.0 || load.plain_bits <= 0.0 {
        return None;
    }
    match load.kind() {
        FilterKind::BinaryFuse => {
            // Whole bits of fingerprint, and no more memory than was reckoned with.
            let fingerprint = (bits / FUSE_SPACE + 0.01).floor().max(FUSE_BITS.0);
            Some((FilterKind::BinaryFuse, fingerprint * FUSE_SPACE + 0.5))
        }
        kind => {
            let in_range = BLOCKED_BITS.0 < load.plain_bits && load.plain_bits < BLOCKED_BITS.1;
            let is_other = (bits - load.plain_bits).abs() >= BITS_APART;
            (in_range && is_other).then_some((kind, bits))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(keys: f64, absent: f64, is_dense: bool) -> Load {
        Load { keys, absent, plain_bits: 10.0, is_last: false, is_dense }
    }

    #[test]
    fn the_optimum_uses_the_memory_and_beats_the_same_bits_everywhere() {
        let mut levels = vec![load(4e6, 4e5, false), load(1e7, 1e5, false), load(1e8, 1e5, false)];
        let memory: f64 = levels.iter().map(|load| load.keys * 10.0).sum();
        let all = |levels: &[Load], bits: &[f64]| -> f64 {
            levels.iter().zip(bits).map(|(load, bits)| load.absent * load.rate(*bits)).sum()
        };
        let taken = |levels: &[Load], bits: &[f64]| -> f64 {
            levels.iter().zip(bits).map(|(load, bits)| load.keys * bits).sum()
        };
        let same = all(&levels, &[10.0; 3]);
        let bits = optimum(&levels, memory);
        assert!((taken(&levels, &bits) / memory - 1.0).abs() < 0.001, "{bits:?}");
        assert!(bits.is_sorted_by(|a, b| a > b), "{bits:?}");
        let blocked = all(&levels, &bits);
        assert!(blocked * 2.5 < same, "{bits:?}");
        levels[2].is_dense = true;
        let with_fuse = optimum(&levels, memory);
        assert!(taken(&levels, &with_fuse) <= memory * 1.001);
        assert!(all(&levels, &with_fuse) < blocked / 2.0, "{with_fuse:?}");
    }

    #[test]
    fn who_is_not_asked_gets_nothing_and_leaves_it_to_the_others() {
        let levels = [load(1e6, 1e5, false), load(1e7, 0.0, true)];
        let bits = optimum(&levels, 1.1e8);
        assert_eq!(bits[1], 0.0);
        assert_eq!(bits[0], BLOCKED_BITS.1);
        assert_eq!(second(&levels[1], bits[1]), None);
    }

    #[test]
    fn a_second_filter_is_built_where_it_differs() {
        let short = load(1e6, 1e5, false);
        assert_eq!(second(&short, 10.1), None);
        assert_eq!(second(&Load { plain_bits: 30.0, ..short }, 24.0), None, "worse, and no less");
        assert_eq!(second(&short, 14.0), Some((FilterKind::Blocked512, 14.0)));
        let long = load(1e6, 1e5, true);
        let (kind, bits) = second(&long, 10.0).unwrap();
        assert_eq!(kind, FilterKind::BinaryFuse);
        assert!((8.0 * FUSE_SPACE..10.0).contains(&bits), "{bits}");
        assert_eq!(second(&Load { plain_bits: 0.0, ..long }, 10.0), None);
    }
}
