//! [`ResidentPrefixFilter`]: the prefix filter of a table, as it is in memory.

use umbel_filter::{KeyPrefix, ParsedPrefixFilter, PrefixFilterView, PrefixHasher};

/// Prefix filter in memory, which tells whether a table can have keys with a given start.
#[derive(Debug)]
pub struct ResidentPrefixFilter {
    bytes: Box<[u8]>,
}

impl ResidentPrefixFilter {
    /// Decodes a prefix filter. Returns `None` for a filter that this build does not know; such a
    /// filter rejects no prefix.
    pub(crate) fn decode(payload: Vec<u8>) -> Result<Option<ResidentPrefixFilter>, &'static str> {
        match PrefixFilterView::parse(&payload) {
            ParsedPrefixFilter::Filter(_) => {
                Ok(Some(ResidentPrefixFilter { bytes: payload.into() }))
            }
            ParsedPrefixFilter::Maybe => Ok(None),
            ParsedPrefixFilter::Malformed(_) => Err("the prefix filter is malformed"),
        }
    }

    fn view(&self) -> Option<PrefixFilterView<'_>> {
        match PrefixFilterView::parse(&self.bytes) {
            ParsedPrefixFilter::Filter(view) => Some(view),
            _ => None,
        }
    }

    /// Whether the table possibly has keys that begin with `start`; `false` proves that it has
    /// none. Always `true` if keys that begin with `start` have different prefixes, or the filter
    /// was made by another rule.
    pub fn may_contain_start(&self, rule: &KeyPrefix, hasher: &PrefixHasher, start: &[u8]) -> bool {
        self.view().is_none_or(|view| view.may_contain_start(rule, hasher, start))
    }

    /// Whether the filter passes the prefix of this key.
    pub(crate) fn may_contain_key(&self, hasher: &PrefixHasher, key: &[u8]) -> bool {
        self.view().is_none_or(|view| match view.extractor_name().parse::<KeyPrefix>() {
            Ok(rule) => view.may_contain_key(&rule, hasher, key),
            Err(_) => true,
        })
    }

    /// Name of the rule that gave keys their prefixes when the filter was made.
    pub fn rule(&self) -> &str {
        self.view().map_or("", |view| view.extractor_name())
    }

    /// Bytes of the prefix filter in memory.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }
}
