//! [`ResidentPrefixFilter`]: the prefix filter of a table, as it is kept in memory.

use umbel_filter::{KeyPrefix, ParsedPrefixFilter, PrefixFilterView, PrefixHasher};

/// Says of beginnings of keys whether a table may have keys with them.
#[derive(Debug)]
pub struct ResidentPrefixFilter {
    bytes: Box<[u8]>,
}

impl ResidentPrefixFilter {
    /// `None` for a filter that this build does not know, which means "maybe".
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

    /// Whether the table may have keys that begin with `start`: never false where it has. True
    /// where the keys that begin with it have no prefix in common, or the filter was made by
    /// another rule.
    pub fn may_contain_start(&self, rule: &KeyPrefix, hasher: &PrefixHasher, start: &[u8]) -> bool {
        self.view().is_none_or(|view| view.may_contain_start(rule, hasher, start))
    }

    /// Whether the table may have this key, by its prefix.
    pub(crate) fn may_contain_key(&self, hasher: &PrefixHasher, key: &[u8]) -> bool {
        self.view().is_none_or(|view| match view.extractor_name().parse::<KeyPrefix>() {
            Ok(rule) => view.may_contain_key(&rule, hasher, key),
            Err(_) => true,
        })
    }

    /// The name of the rule that cut the prefixes.
    pub fn rule(&self) -> &str {
        self.view().map_or("", |view| view.extractor_name())
    }

    /// Its bytes in memory.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }
}
