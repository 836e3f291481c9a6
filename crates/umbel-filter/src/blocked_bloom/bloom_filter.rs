//! A filter that owns its lines, aligned to cache lines, for tables in memory.

use crate::bloom_variants::blocked_512::has;
use crate::bloom_variants::kind_view_trait::{CACHED_BYTES, probe_in_groups};
use crate::format::bloom_header::{BloomHeader, FilterError, decode, encode};
use crate::hash::keyed_hash::KEYED_HASH_KIND;
use crate::probe::cache_line::{LINE_BYTES, Line, fold_lines, line_of};
use crate::rate::blocked_rate::designed_rate;
use crate::simd::{Vectors, prefetch};
use std::fmt;

/// A blocked Bloom filter in memory, complete and unchanging.
#[derive(Clone)]
pub struct Bloom {
    header: BloomHeader,
    vectors: Vectors,
    lines: Box<[Line]>,
}

impl Bloom {
    /// Copies an encoded filter over the keyed hash into aligned memory.
    ///
    /// # Errors
    /// [`FilterError::Empty`] and [`FilterError::Unknown`] if the caller must answer "maybe" to
    /// every key; [`FilterError::Malformed`] if the bytes are damaged.
    pub fn decode(bytes: &[u8]) -> Result<Bloom, FilterError> {
        Bloom::decode_over(bytes, KEYED_HASH_KIND)
    }

    /// Decodes as [`Bloom::decode`] does a filter over the hash of the given number. A filter over
    /// another hash is [`FilterError::Unknown`], because probes by this hash would deny its keys.
    ///
    /// # Errors
    /// The errors of [`Bloom::decode`].
    pub fn decode_over(bytes: &[u8], hash_kind: u8) -> Result<Bloom, FilterError> {
        let (header, encoded) = decode(bytes, hash_kind)?;
        let lines = encoded.iter().map(|line| {
            let (words, _) = line.as_chunks::<8>();
            Line(std::array::from_fn(|word| u64::from_le_bytes(words[word])))
        });
        Ok(Bloom::from_lines(header, lines.collect()))
    }

    pub(crate) fn from_lines(header: BloomHeader, lines: Box<[Line]>) -> Bloom {
        Bloom { header, vectors: Vectors::of_this_processor(), lines }
    }

    /// Whether the key of `hash` may have been added; never false for an added key.
    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        let index = line_of(hash, self.lines.len() as u64);
        let Some(line) = self.lines.get(index as usize) else {
            return true;
        };
        has(self.vectors, line, hash, self.header.probes)
    }

    /// The line of 512 bits that [`Bloom::may_contain`] reads for `hash`, for callers that prefetch
    /// the line before they probe.
    #[inline]
    pub fn line(&self, hash: u64) -> Option<&[u64; 8]> {
        let index = line_of(hash, self.lines.len() as u64);
        self.lines.get(index as usize).map(|line| &line.0)
    }

    /// Probes all hashes together: `found[n]` becomes the answer for `hashes[n]`. Faster than
    /// single probes if the filter is larger than the caches.
    ///
    /// # Panics
    /// If `hashes` and `found` have different lengths.
    pub fn contains_batch(&self, hashes: &[u64], found: &mut [bool]) {
        assert_eq!(hashes.len(), found.len(), "one answer for each hash");
        let answer = |hashes: &[u64], found: &mut [bool]| {
            if self.vectors.lines_512(&self.lines, hashes, self.header.probes, found).is_none() {
                for (hash, found) in hashes.iter().zip(found) {
                    *found = self.may_contain(*hash);
                }
            }
        };
        if self.bytes() <= CACHED_BYTES {
            return answer(hashes, found);
        }
        let near = |hash| self.line(hash).into_iter().for_each(|[first, ..]| prefetch(first));
        probe_in_groups(hashes, found, near, answer);
    }

    /// Returns the filter with every `factor` adjacent lines joined into one. The result is equal
    /// to a filter built at that smaller size. `None` if `factor` does not divide the number of
    /// lines.
    pub fn fold(&self, factor: u64) -> Option<Bloom> {
        let lines = fold_lines(self.lines.iter().copied(), factor)?;
        Some(Bloom::from_lines(self.header, lines))
    }

    /// Returns the encoded filter, as [`Bloom::decode`] reads it.
    pub fn to_bytes(&self) -> Vec<u8> {
        encode(self.header, self.lines.iter().copied())
    }

    /// The words of the lines, one line after the other.
    pub fn words(&self) -> impl Iterator<Item = u64> {
        self.lines.iter().flat_map(|line| line.0)
    }

    /// The memory taken by the lines, in bytes.
    pub fn bytes(&self) -> usize {
        self.lines.len() * LINE_BYTES
    }

    /// Number of keys added.
    pub fn keys(&self) -> u64 {
        self.header.keys
    }

    /// Number of lines of 512 bits.
    pub fn lines(&self) -> u64 {
        self.lines.len() as u64
    }

    /// Number of bits each key sets.
    pub fn probes(&self) -> u32 {
        self.header.probes
    }

    /// Id of the store's seed of the hashes; 0 if the builder got no id.
    pub fn seed_id(&self) -> u32 {
        self.header.seed_id
    }

    /// Theoretical false-positive rate, see [`designed_rate`].
    pub fn designed_rate(&self) -> f64 {
        designed_rate(self.keys(), self.lines(), self.probes())
    }
}

impl fmt::Debug for Bloom {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Bloom").field("header", &self.header).finish_non_exhaustive()
    }
}
