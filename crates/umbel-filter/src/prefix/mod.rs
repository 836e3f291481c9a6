//! Filters of key prefixes, which answer whether any key begins with some bytes.
//!
//! A prefix filter is a filter of any kind over the hashes of prefixes, preceded by the name of the
//! rule that cut them. An operator can change a store's rule. A reader that probes with another
//! rule than that of the build would get "no" for present keys. So the filter contains the rule's
//! name, and answers "maybe" to a reader with another rule.

mod prefix_builder;
mod prefix_encoding;
mod prefix_extractor;
mod prefix_extractor_laws;
mod prefix_hasher;
mod prefix_rule;
mod prefix_view;

pub use prefix_builder::PrefixFilterBuilder;
pub use prefix_encoding::MAX_EXTRACTOR_NAME_BYTES;
pub use prefix_extractor::PrefixExtractor;
pub use prefix_extractor_laws::{LawViolation, check_laws};
pub use prefix_hasher::PrefixHasher;
pub use prefix_rule::{KeyPrefix, PrefixRuleError};
pub use prefix_view::{ParsedPrefixFilter, PrefixFilterView};
