//! A prefix filter read where its encoded bytes lie.

use crate::filter::filter_view::FilterView;
use crate::format::bloom_header::FilterError;
use crate::prefix::prefix_builder::HASH_KIND_AT;
use crate::prefix::prefix_encoding::{PrefixHeader, decode};
use crate::prefix::prefix_extractor::PrefixExtractor;
use crate::prefix::prefix_hasher::PrefixHasher;

/// Result of parsing encoded bytes.
#[derive(Clone, Copy, Debug)]
pub enum ParsedPrefixFilter<'a> {
    /// A prefix filter to probe.
    Filter(PrefixFilterView<'a>),
    /// No filter, or one of an unknown version, or around one of an unknown kind: every prefix may
    /// be there.
    Maybe,
    /// Damaged bytes. To continue with "maybe" is safe, but report the damage.
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
    /// Reads the header and the inner filter's, and checks everything that can be checked without
    /// the keys.
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

    /// The inner filter, to be requested a [`PrefixHasher`]'s hashes.
    pub fn filter(&self) -> FilterView<'a> {
        self.filter
    }

    /// Whether any key that begins with `start` may have been added: never false if one was.
    ///
    /// True as well where the filter was built with another extractor or hash, and
    /// where the keys with this beginning have several prefixes.
    pub fn may_contain_start(
        &self,
        extractor: &impl PrefixExtractor,
        hasher: &PrefixHasher,
        start: &[u8],
    ) -> bool {
        self.probe(extractor, hasher, extractor.shared(start))
    }

    /// Whether `key` may have been added, by its prefix alone: never false if it was. True as well
    /// where the extractor or the hash is another one, and where the key has no prefix.
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
