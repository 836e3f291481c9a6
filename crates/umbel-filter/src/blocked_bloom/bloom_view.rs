//! A filter over encoded bytes, which are neither copied nor aligned.

use crate::bloom_variants::blocked_512::has;
use crate::format::bloom_header::{BloomHeader, FilterError, decode};
use crate::hash::keyed_hash::KEYED_HASH_KIND;
use crate::probe::cache_line::{LINE_BYTES, Words, line_of};
use crate::rate::blocked_rate::designed_rate;
use crate::simd::Vectors;

/// Result of parsing encoded bytes.
#[derive(Clone, Copy, Debug)]
pub enum ParsedBloom<'a> {
    /// The bytes are a filter that can be probed.
    Bloom(BloomView<'a>),
    /// The bytes are no filter, or a filter of an unknown kind, version or hash: every answer is
    /// "maybe".
    Maybe,
    /// The bytes are damaged. A caller can safely answer "maybe" to every key, but should report
    /// the damage.
    Malformed(FilterError),
}

impl Words for [u8; LINE_BYTES] {
    #[inline(always)]
    fn word(&self, index: usize) -> u64 {
        let (words, _) = self.as_chunks::<8>();
        u64::from_le_bytes(words[index])
    }
}

/// A blocked Bloom filter in borrowed bytes.
#[derive(Clone, Copy, Debug)]
pub struct BloomView<'a> {
    header: BloomHeader,
    vectors: Vectors,
    lines: &'a [[u8; LINE_BYTES]],
}

impl<'a> BloomView<'a> {
    /// Reads the header, and checks all that can be checked without the keys.
    pub fn parse(bytes: &'a [u8]) -> ParsedBloom<'a> {
        match decode(bytes, KEYED_HASH_KIND) {
            Ok((header, lines)) => {
                let vectors = Vectors::of_this_processor();
                ParsedBloom::Bloom(BloomView { header, vectors, lines })
            }
            Err(error) if error.means_maybe() => ParsedBloom::Maybe,
            Err(error) => ParsedBloom::Malformed(error),
        }
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
