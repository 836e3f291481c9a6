//! Common interface of the views of all kinds of filters.

use crate::format::filter_header::FilterHeader;
use std::ops::Range;

/// Up to this number of bytes a filter is assumed to be in a cache of the core's own, where
/// prefetches cost more than they gain. The limit is low in unit tests, so that they test all
/// paths.
pub(crate) const CACHED_BYTES: usize = if cfg!(test) { 4 << 10 } else { 1 << 20 };
/// From this number of bytes on a filter is assumed to be in no cache, so that waiting for its
/// memory takes longer than a mispredicted branch.
pub(crate) const UNCACHED_BYTES: usize = if cfg!(test) { 64 << 10 } else { 16 << 20 };

/// A filter over borrowed bytes.
pub(crate) trait KindView {
    /// Whether the key of `hash` may have been added.
    fn contains(&self, hash: u64) -> bool;

    /// Probes as many hashes as both slices have elements.
    fn contains_batch(&self, hashes: &[u64], found: &mut [bool]);

    /// Header of the filter.
    fn header(&self) -> FilterHeader;

    /// The bits of the filter; `None` for kinds that can be neither joined nor folded.
    fn payload(&self) -> Option<&[u8]> {
        None
    }

    /// Number of keys, estimated from the set bits, or the number of added keys for kinds without
    /// such an estimate.
    fn estimated_keys(&self) -> f64 {
        self.header().keys as f64
    }

    /// Theoretical false-positive rate, for kinds with headers of their own.
    fn theoretical_rate(&self) -> f64 {
        1.0
    }

    /// False-positive rate computed from the set bits, or the theoretical rate for kinds without
    /// such a computation.
    fn estimated_rate(&self) -> f64 {
        self.theoretical_rate()
    }
}

/// Number of set bits of `bytes`.
pub(crate) fn ones(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let of_words = words.iter().map(|word| u64::from(u64::from_le_bytes(*word).count_ones()));
    let of_rest = rest.iter().map(|byte| u64::from(byte.count_ones()));
    of_words.chain(of_rest).sum()
}

/// Number of hashes in a group: more than the number of cache misses that a core keeps in
/// flight.
pub(crate) const GROUP: usize = 32;

/// Probes a cached filter, in which a hash's positions are spread over the whole filter, one group
/// of hashes at a time.
///
/// If the last group's keys were mostly absent, a group is probed in two rounds, without a branch
/// on the result of the first. `first` tests the first probes, and `rest` the other probes. If the
/// last group's keys were mostly present, keys are probed one by one with `ask`, since branches are
/// then predictable.
#[inline(always)]
pub(crate) fn probe_in_two_rounds(
    hashes: &[u64],
    found: &mut [bool],
    first: impl Fn(u64) -> bool,
    rest: impl Fn(u64) -> bool,
    ask: impl Fn(u64) -> bool,
) {
    let mut mostly_there = false;
    for (hashes, found) in hashes.chunks(GROUP).zip(found.chunks_mut(GROUP)) {
        let mut left = [0; GROUP];
        let mut count = 0;
        if mostly_there {
            for (hash, found) in hashes.iter().zip(&mut *found) {
                *found = ask(*hash);
                count += usize::from(*found);
            }
        } else {
            for (index, (hash, found)) in hashes.iter().zip(&mut *found).enumerate() {
                *found = first(*hash);
                left[count] = index;
                count += usize::from(*found);
            }
            for index in &left[..count] {
                found[*index] = rest(hashes[*index]);
            }
        }
        mostly_there = count > GROUP / 4 * 3;
    }
}

/// Number of hashes in a round. A round waits once for memory, so it has more hashes than a core
/// has misses in flight.
const ROUND: usize = 128;

/// Probes an uncached filter in rounds: `near` prefetches the
/// lines of a round's probes, for all hashes of the round, before `ask` reads them.
#[inline(always)]
pub(crate) fn probe_in_rounds<const ROUNDS: usize>(
    hashes: &[u64],
    found: &mut [bool],
    rounds: [Range<u8>; ROUNDS],
    near: impl Fn(u64, Range<u8>),
    ask: impl Fn(u64, Range<u8>) -> bool,
) {
    for (hashes, found) in hashes.chunks(ROUND).zip(found.chunks_mut(ROUND)) {
        let mut left: [usize; ROUND] = std::array::from_fn(|index| index);
        let mut count = hashes.len().min(found.len());
        for probes in &rounds {
            left[..count].iter().for_each(|index| near(hashes[*index], probes.clone()));
            let mut passed = 0;
            for at in 0..count {
                let index = left[at];
                found[index] = ask(hashes[index], probes.clone());
                left[passed] = index;
                passed += usize::from(found[index]);
            }
            count = passed;
        }
    }
}

/// Probes hashes in groups. `near` prefetches the memory of a hash while the group before is
/// probed.
#[inline(always)]
pub(crate) fn probe_in_groups(
    hashes: &[u64],
    found: &mut [bool],
    near: impl Fn(u64),
    answer: impl Fn(&[u64], &mut [bool]),
) {
    let mut ahead = hashes.chunks(GROUP);
    let mut near_next = || ahead.next().into_iter().flatten().for_each(|hash| near(*hash));
    near_next();
    for (hashes, found) in hashes.chunks(GROUP).zip(found.chunks_mut(GROUP)) {
        near_next();
        answer(hashes, found);
    }
}

/// Probes hashes whose positions do not depend on memory. `begin` computes a hash's positions and
/// prefetches their cache lines. `end` reads these lines, [`GROUP`] hashes later.
#[inline(always)]
pub(crate) fn probe_with_prefetch<S: Copy>(
    hashes: &[u64],
    found: &mut [bool],
    begin: impl Fn(u64) -> S,
    end: impl Fn(S) -> bool,
) {
    let Some(first) = hashes.first() else { return };
    let mut begun = [begin(*first); GROUP];
    for (begun, hash) in begun.iter_mut().zip(hashes).skip(1) {
        *begun = begin(*hash);
    }
    let last = hashes.len().saturating_sub(GROUP);
    for (at, hash) in hashes.iter().skip(GROUP).enumerate() {
        let begun = &mut begun[at % GROUP];
        if let Some(found) = found.get_mut(at) {
            *found = end(*begun);
        }
        *begun = begin(*hash);
    }
    for (at, found) in found.iter_mut().enumerate().take(hashes.len()).skip(last) {
        *found = end(begun[at % GROUP]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocked_bloom::bloom_filter::Bloom;
    use crate::build::filter_builder::FilterBuilder;
    use crate::build::filter_options::FilterOptions;
    use crate::build::filter_size::FilterSize;
    use crate::filter::filter_view::FilterView;
    use crate::format::filter_kind::FilterKind;
    use crate::probe::probe_positions::Probing;

    fn numbers(mut state: u64) -> impl Iterator<Item = u64> {
        std::iter::repeat_with(move || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb)
        })
    }

    /// Compares all ways to probe, from an unaligned address.
    fn ask(options: FilterOptions, hashes: &[u64]) -> usize {
        let built = FilterBuilder::from_hashes(options, hashes.to_vec());
        let bytes = built.and_then(FilterBuilder::finish).expect("good options");
        let shifted: Vec<u8> = [0].into_iter().chain(bytes.iter().copied()).collect();
        let view = FilterView::parse_known(&bytes).expect("it was built just now");
        let elsewhere = FilterView::parse_known(&shifted[1..]).expect("it was built just now");
        for length in [0, 1, GROUP - 1, GROUP, GROUP + 1, ROUND + 1, 5_000] {
            let absent: Vec<u64> = numbers(2 << 40).take(length).collect();
            let both = hashes.iter().zip(&absent).flat_map(|(there, absent)| [there, absent]);
            let mixed: Vec<u64> = both.copied().collect();
            for probed in [absent, mixed] {
                let mut found = vec![false; probed.len()];
                view.contains_batch(&probed, &mut found);
                let single: Vec<bool> = probed.iter().map(|hash| view.contains(*hash)).collect();
                assert!(found == single, "{options:?} {length}");
                elsewhere.contains_batch(&probed, &mut found);
                assert!(found == single, "{options:?} {length}");
                if let Ok(bloom) = Bloom::decode(&bytes) {
                    bloom.contains_batch(&probed, &mut found);
                    let of_bloom = probed.iter().map(|hash| bloom.may_contain(*hash));
                    assert!(found == single && of_bloom.eq(single), "{options:?} {length}");
                }
            }
        }
        let mut found = vec![false; hashes.len()];
        view.contains_batch(hashes, &mut found);
        assert!(found.iter().all(|found| *found), "{options:?}");
        let queries = 100_000;
        let passed = numbers(3 << 40).take(queries).filter(|hash| view.contains(*hash)).count();
        let (passed, expected) = (passed as f64, view.designed_rate() * queries as f64);
        // LevelDB's probing lets more through than theory.
        let more = if options.probing == Probing::LevelDb { 2.0 } else { 1.0 };
        let bound = more * (expected + 6.0 * expected.sqrt() + expected / 10.0 + 6.0);
        assert!(passed < bound, "{options:?}: {passed} of {expected}");
        bytes.len()
    }

    /// Filters in the core's cache, in another cache and in none are probed in different ways,
    /// single and in batches. All agree, deny no key, and have the rate of the theory.
    #[test]
    fn single_and_batch_probes_agree() {
        for (keys, least) in [(300, 0), (20_000, CACHED_BYTES), (90_000, UNCACHED_BYTES + 64)] {
            let hashes: Vec<u64> = numbers(1).take(keys).collect();
            for kind in FilterKind::ALL {
                let bytes = ask(FilterOptions { kind, ..FilterOptions::default() }, &hashes);
                assert!(bytes > least && (keys > 300 || bytes <= CACHED_BYTES), "{kind} {bytes}");
            }
            for probing in [Probing::Multiplied, Probing::Enhanced, Probing::LevelDb] {
                for probes in [1, 2, 3, 4, 5, 30] {
                    let (kind, probes) = (FilterKind::Standard, Some(probes));
                    ask(
                        FilterOptions { kind, probing, probes, ..FilterOptions::default() },
                        &hashes,
                    );
                }
            }
            for probes in [1, 7, 8, 9, 15, 24] {
                for kind in [FilterKind::Blocked512, FilterKind::Blocked256, FilterKind::Counting] {
                    let probes = Some(probes);
                    ask(FilterOptions { kind, probes, ..FilterOptions::default() }, &hashes);
                }
            }
            for rate in [0.45, 0.2, 0.125, 0.0055, 0.0039, 0.0001] {
                let (kind, size) = (FilterKind::Ribbon, FilterSize::Rate(rate));
                ask(FilterOptions { kind, size, ..FilterOptions::default() }, &hashes);
            }
        }
    }
}
