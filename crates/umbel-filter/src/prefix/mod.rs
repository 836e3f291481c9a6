//! Filters over the beginnings of keys: is there any key that begins like this?
//!
//! A prefix filter is a filter of any kind over the hashes of prefixes, with the name of the rule
//! before it that cut them. Rules change over the life of a store; whoever asks with another rule
//! than the one that built a filter would be told "no" for keys that are there. So the name is in
//! the bytes, and another name means "maybe".

mod builder;
mod encoding;
mod extractor;
mod hasher;
mod laws;
mod rule;
mod view;

pub use builder::PrefixFilterBuilder;
pub use encoding::MAX_EXTRACTOR_NAME_BYTES;
pub use extractor::PrefixExtractor;
pub use hasher::PrefixHasher;
pub use laws::{BrokenLaw, check_laws};
pub use rule::{KeyPrefix, PrefixRuleError};
pub use view::{ParsedPrefix, PrefixFilterView};
