//! A prefix filter over encoded bytes, which are not copied.

use crate::filter::filter_view::FilterView;
use crate::format::bloom_header::FilterError;
use crate::prefix::prefix_builder::HASH_KIND_AT;
use crate::prefix::prefix_encoding::{PrefixHeader, decode};
use crate::prefix::prefix_extractor::PrefixExtractor;
use crate::prefix::prefix_hasher::PrefixHasher;

/// Result of parsing encoded bytes.
#[derive(Clone, Copy, Debug)]
pub enum ParsedPrefixFilter<'a> {
    /// The bytes are a prefix filter that can be probed.
    Filter(PrefixFilterView<'a>),
    /// The bytes are no filter, or version or inner filter are unknown: every answer is "maybe".
    Maybe,
    /// The bytes are damaged. A caller can safely answer "maybe" to every key, but should report
    /// the damage.
    Malformed(FilterError),
}

/// A prefix filter in borrowed bytes.
#[derive(Clone, Copy, Debug)]
pub struct PrefixFilterView<'a> {
    name: &'a str,
    inner: &'a [u8],
    filter: FilterView<'a>,
}

impl<'a> PrefixFilterView<'a> {
    /// Reads the headers of the prefix filter and of its inner filter, and checks all that can be
    /// checked without the keys.
    pub fn parse(bytes: &'a [u8]) -> ParsedPrefixFilter<'a> {
        match decode(bytes) {
            Ok(PrefixHeader::Version1 { name, inner }) => match FilterView::parse_known(inner) {
                Ok(filter) => ParsedPrefixFilter::Filter(PrefixFilterView { name, inner, filter }),
                Err(error) if error.means_maybe() => ParsedPrefixFilter::Maybe,
                Err(error) => ParsedPrefixFilter::Malformed(error),
            },
            Ok(PrefixHeader::NewerVersion) => ParsedPrefixFilter::Maybe,
            Err(error) if error.means_maybe() => ParsedPrefixFilter::Maybe,
            Err(error) => ParsedPrefixFilter::Malformed(error),
        }
    }

    /// The name of the extractor that cut the prefixes.
    pub fn extractor_name(&self) -> &'a str {
        self.name
    }

    /// The bytes of the inner filter.
    pub fn inner(&self) -> &'a [u8] {
        self.inner
    }

    /// The inner filter, which callers probe with hashes by a [`PrefixHasher`].
    pub fn filter(&self) -> FilterView<'a> {
        self.filter
    }

    /// Whether a key that begins with `start` may have been added; never false if one was added.
    ///
    /// Also true if the filter was built with another extractor or hash, or if keys with this
    /// beginning have no common prefix.
    pub fn may_contain_start(
        &self,
        extractor: &impl PrefixExtractor,
        hasher: &PrefixHasher,
        start: &[u8],
    ) -> bool {
        self.probe(extractor, hasher, extractor.shared(start))
    }

    /// Whether `key` may have been added, by its prefix alone; never false for an added key. Also
    /// true if the filter was built with another extractor or hash, or if the key has no prefix.
    pub fn may_contain_key(
        &self,
        extractor: &impl PrefixExtractor,
        hasher: &PrefixHasher,
        key: &[u8],
    ) -> bool {
        self.probe(extractor, hasher, extractor.prefix(key))
    }

    fn probe(
        &self,
        extractor: &impl PrefixExtractor,
        hasher: &PrefixHasher,
        prefix: Option<&[u8]>,
    ) -> bool {
        let Some(prefix) = prefix else {
            return true;
        };
        let same_hash = self.inner.get(HASH_KIND_AT) == Some(&hasher.kind().number());
        if !same_hash || extractor.name() != self.name {
            return true;
        }
        self.filter.contains(hasher.hash(prefix))
    }
}
