//! The filter of a table, as it is in memory.

use umbel_arena::{Arena, ArenaArray, prefetch};
use umbel_filter::{Bloom, BloomProbe, Filter, FilterError, FilterKind, designed_rate};

/// Selects the filter of a table that is kept in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterResidency {
    /// No filter.
    Nothing,
    /// The plain filter, which every table written with `bloom_bits` has. The filter is folded by
    /// `factor` or the next larger divisor up to twice `factor`; without such a divisor it is not
    /// folded. Only filters of 512-bit blocks can be folded. A filter of another kind is kept in
    /// full if `factor` is 1, otherwise not at all.
    Plain {
        /// Factor by which the filter in memory is smaller than on disk.
        factor: u64,
    },
    /// The second filter; the plain filter, not folded, if there is no second one.
    Second,
}

impl Default for FilterResidency {
    /// The plain filter, not folded.
    fn default() -> FilterResidency {
        FilterResidency::Plain { factor: 1 }
    }
}

/// A filter of a table in memory.
#[derive(Debug)]
pub struct ResidentFilter(FilterStorage);

#[derive(Debug)]
enum FilterStorage {
    /// The usual kind, 512-bit blocks, which is probed without an indirection.
    Blocked(ArenaLines),
    Other(Filter),
}

/// A filter of 512-bit blocks in the arena, whose huge pages save TLB misses: each probe reads
/// another page.
#[derive(Debug)]
struct ArenaLines {
    /// Some unused words, by which each 512-bit block is aligned to a cache line, and then the
    /// blocks.
    words: ArenaArray<u64>,
    probe: BloomProbe,
    keys: u64,
}

/// Number of words between the start of a cache line and the bytes of an allocation of the arena.
const WORDS_BEFORE: usize = 6;

impl ArenaLines {
    fn new(arena: &Arena, filter: &Bloom) -> ArenaLines {
        let before = [0; WORDS_BEFORE].into_iter();
        let words: Vec<u64> = before.chain(filter.words()).collect();
        ArenaLines {
            words: ArenaArray::new(arena, &words),
            probe: BloomProbe::new(filter.lines(), filter.probes()),
            keys: filter.keys(),
        }
    }

    #[inline(always)]
    fn line(&self, hash: u64) -> Option<&[u64; 8]> {
        let at = WORDS_BEFORE + 8 * self.probe.line_of(hash) as usize;
        self.words.get(at..)?.first_chunk()
    }
}

impl ResidentFilter {
    /// Decodes a filter. Returns `None` for a kind that this build does not know, or a hash other
    /// than the table's; such a filter rejects no key.
    ///
    /// `factor` is the requested fold factor. A filter of 512-bit blocks is folded by `factor` or
    /// the next larger divisor up to twice `factor`; without such a divisor it is not folded.
    /// Filters of other kinds cannot be folded, and are not kept unless `factor` is 1.
    pub(crate) fn decode(
        arena: &Arena,
        payload: &[u8],
        hash_kind: u8,
        factor: u64,
    ) -> Result<Option<ResidentFilter>, &'static str> {
        let form = match Bloom::decode_over(payload, hash_kind) {
            Ok(lines) => {
                Some(FilterStorage::Blocked(ArenaLines::new(arena, &folded(lines, factor))))
            }
            Err(FilterError::Unknown { .. }) => match Filter::decode(payload) {
                Ok(filter) => {
                    let is_asked = filter.view().hash_kind() == hash_kind && factor <= 1;
                    is_asked.then_some(FilterStorage::Other(filter))
                }
                Err(FilterError::Malformed { reason }) => return Err(reason),
                Err(_) => None,
            },
            Err(FilterError::Malformed { reason }) => return Err(reason),
            Err(_) => None,
        };
        Ok(form.map(ResidentFilter))
    }

    /// Whether the filter passes the key with this hash; `false` proves that the table lacks the
    /// key.
    #[inline(always)]
    pub fn may_contain(&self, hash: u64) -> bool {
        match &self.0 {
            FilterStorage::Blocked(lines) => {
                lines.line(hash).is_none_or(|line| lines.probe.has(line, hash))
            }
            FilterStorage::Other(filter) => probe(filter, hash),
        }
    }

    /// Prefetches the cache line that [`ResidentFilter::may_contain`] reads for `hash`.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        if let FilterStorage::Blocked(lines) = &self.0
            && let Some(line) = lines.line(hash)
        {
            prefetch(line, 0);
        }
    }

    /// Bytes of the filter in memory.
    pub fn bytes(&self) -> usize {
        match &self.0 {
            FilterStorage::Blocked(lines) => lines.words.memory_bytes(),
            FilterStorage::Other(filter) => filter.bytes().len(),
        }
    }

    /// Designed false-positive rate of the filter.
    pub fn designed_rate(&self) -> f64 {
        match &self.0 {
            FilterStorage::Blocked(ArenaLines { keys, probe, .. }) => {
                designed_rate(*keys, probe.lines(), probe.probes())
            }
            FilterStorage::Other(filter) => filter.view().designed_rate(),
        }
    }

    /// Kind of the filter.
    pub fn kind(&self) -> FilterKind {
        match &self.0 {
            FilterStorage::Blocked(_) => FilterKind::Blocked512,
            FilterStorage::Other(filter) => filter.view().kind().unwrap_or_default(),
        }
    }
}

/// Returns the filter folded by `factor` or the next larger divisor of its length up to twice
/// `factor`; unchanged if there is no such divisor.
fn folded(filter: Bloom, factor: u64) -> Bloom {
    let mut factors = factor..=factor.saturating_mul(2);
    let smaller = if factor > 1 { factors.find_map(|factor| filter.fold(factor)) } else { None };
    smaller.unwrap_or(filter)
}

/// Probes a filter of any other kind. The function is separate, so that the path of the usual kind
/// stays short.
#[inline(never)]
fn probe(filter: &Filter, hash: u64) -> bool {
    filter.contains(hash)
}

#[cfg(test)]
mod tests {
    use super::*;
    use umbel_filter::{BloomBuilder, HashKind};

    fn encoded(keys: u64) -> Vec<u8> {
        let mut builder = BloomBuilder::new(10);
        (0..keys).for_each(|key| builder.add(key.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        builder.finish()
    }

    #[test]
    fn every_line_is_a_cache_line_and_equals_the_filter() {
        for keys in [1, 60, 5000, 200_000] {
            let bytes = encoded(keys);
            let bloom = Bloom::decode(&bytes).unwrap();
            let filter = ResidentFilter::decode(&Arena::new(), &bytes, HashKind::Keyed.number(), 1);
            let filter = filter.unwrap().unwrap();
            let FilterStorage::Blocked(lines) = &filter.0 else { panic!("the usual kind") };
            for hash in (0..2000u64).map(|n| (n * 7).wrapping_mul(0x9e37_79b9_7f4a_7c15)) {
                assert_eq!(filter.may_contain(hash), bloom.may_contain(hash));
                assert_eq!(lines.line(hash), bloom.line(hash));
                assert_eq!(lines.line(hash).unwrap().as_ptr().addr() % 64, 0);
            }
            assert_eq!(filter.designed_rate(), bloom.designed_rate());
        }
    }

    /// Story: a filter over SipHash claimed to be over the keyed hash. A caller that trusted the
    /// claim would have rejected present keys.
    #[test]
    fn lines_name_their_hash() {
        let (arena, siphash) = (Arena::new(), HashKind::SipHash13.number());
        let mut builder = BloomBuilder::new(10).with_hash_kind(siphash);
        builder.add(7);
        let bytes = builder.finish();
        assert_eq!(bytes[6], siphash);
        let filter = ResidentFilter::decode(&arena, &bytes, siphash, 1).unwrap().unwrap();
        assert!(matches!(filter.0, FilterStorage::Blocked(_)) && filter.may_contain(7));
        let keyed = ResidentFilter::decode(&arena, &bytes, HashKind::Keyed.number(), 1);
        assert!(keyed.unwrap().is_none());
        assert!(Bloom::decode(&bytes).is_err_and(|error| error.means_maybe()));
    }

    #[test]
    fn other_hash_or_unknown_kind_answers_maybe() {
        let arena = Arena::new();
        let mut bytes = encoded(100);
        assert!(
            ResidentFilter::decode(&arena, &bytes, HashKind::Xxh64.number(), 1).unwrap().is_none()
        );
        assert!(
            ResidentFilter::decode(&arena, &[], HashKind::Keyed.number(), 1).unwrap().is_none()
        );
        bytes[4] = 200;
        assert!(
            ResidentFilter::decode(&arena, &bytes, HashKind::Keyed.number(), 1).unwrap().is_none()
        );
        bytes[0] = 0;
        assert!(ResidentFilter::decode(&arena, &bytes, HashKind::Keyed.number(), 1).is_err());
    }
}
