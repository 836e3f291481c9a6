//! What a view of every kind of filter can do, so that all are asked in one way.

use crate::header::FilterHeader;

/// Up to so many bytes a filter is thought to be in a cache of the core's own, where reading ahead
/// costs more than it gains.
pub(crate) const IN_CACHE: usize = 256 << 10;

/// A filter over borrowed bytes.
pub(crate) trait Ask {
    /// Whether the key of `hash` may have been added.
    fn contains(&self, hash: u64) -> bool;

    /// As many answers as there are both hashes and places for answers.
    fn contains_batch(&self, hashes: &[u64], found: &mut [bool]);

    /// What the filter says of itself.
    fn header(&self) -> FilterHeader;

    /// The bits; `None` of kinds that are neither joined nor folded.
    fn payload(&self) -> Option<&[u8]> {
        None
    }

    /// How many keys the set bits speak of; where they speak of none, as many as were added.
    fn estimated_keys(&self) -> f64 {
        self.header().keys as f64
    }

    /// The share of absent keys that theory lets through, of kinds with headers of their own.
    fn own_rate(&self) -> f64 {
        1.0
    }

    /// The share of absent keys that these very bits let through; where that cannot be seen, what
    /// theory says.
    fn estimated_rate(&self) -> f64 {
        self.own_rate()
    }
}

/// How many bits of `bytes` are set.
pub(crate) fn ones(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let of_words = words.iter().map(|word| u64::from(u64::from_le_bytes(*word).count_ones()));
    let of_rest = rest.iter().map(|byte| u64::from(byte.count_ones()));
    of_words.chain(of_rest).sum()
}

/// How many hashes are looked at together: as many cache misses as a core keeps under way, and
/// more.
const GROUP: usize = 32;

/// Answers for hashes whose probes lie all over a filter, in two rounds without a branch that
/// depends on what was read: `first` says whether the first probes find their bits, which refuses
/// three of four absent keys, and `rest` whether the others do, where they do. So the misses of
/// one round overlap.
#[inline(always)]
pub(crate) fn ask_in_rounds(
    hashes: &[u64],
    found: &mut [bool],
    first: impl Fn(u64) -> bool,
    rest: impl Fn(u64) -> bool,
) {
    for (hashes, found) in hashes.chunks(GROUP).zip(found.chunks_mut(GROUP)) {
        let mut left = [0; GROUP];
        let mut count = 0;
        for (index, (hash, found)) in hashes.iter().zip(&mut *found).enumerate() {
            *found = first(*hash);
            left[count] = index;
            count += usize::from(*found);
        }
        for index in &left[..count] {
            found[*index] = rest(hashes[*index]);
        }
    }
}
