//! Checks the laws of extractors on sample keys, for tests of a caller's own extractor.

use crate::prefix::prefix_encoding::MAX_EXTRACTOR_NAME_BYTES;
use crate::prefix::prefix_extractor::PrefixExtractor;
use std::collections::BTreeSet;
use std::fmt;

/// A broken law of [`PrefixExtractor`], and the key that breaks it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LawViolation {
    /// Number of the law, 1 to 4.
    pub law: u8,
    /// The law as a plain sentence without its full stop.
    pub sentence: &'static str,
    /// A key, or the beginning of a key, that breaks the law.
    pub key: Vec<u8>,
}

impl fmt::Display for LawViolation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "law {} of prefix extractors is broken: ", self.law)?;
        write!(
            formatter,
            "{}, but not for {:?}",
            self.sentence,
            self.key.escape_ascii().to_string()
        )
    }
}

impl std::error::Error for LawViolation {}

/// Checks the laws for `keys`, and for all beginnings of these keys as `start`.
///
/// Good samples have keys that are shorter than a prefix, keys with a common beginning, and keys
/// without a prefix. The time is proportional to the bytes of all keys times the number of keys
/// with a common beginning.
///
/// # Errors
/// The first law that is broken.
pub fn check_laws(extractor: &impl PrefixExtractor, keys: &[&[u8]]) -> Result<(), LawViolation> {
    let name = extractor.name();
    if !(1..=MAX_EXTRACTOR_NAME_BYTES).contains(&name.len()) || extractor.name() != name {
        return violation(4, "the name is 1 to 255 bytes and always the same", name.as_bytes());
    }
    let mut keys = keys.to_vec();
    keys.sort_unstable();
    keys.dedup();
    for key in &keys {
        let prefix = extractor.prefix(key);
        // Elsewhere in memory, with other bytes around it, the key must be cut alike.
        let copy = [&[0xa5], *key, &[0x5a]].concat();
        if prefix.is_some_and(|prefix| !key.starts_with(prefix))
            || extractor.prefix(&copy[1..=key.len()]) != prefix
        {
            return violation(1, "a prefix is a beginning of its key and depends on it alone", key);
        }
    }
    check_contiguity(extractor, &keys)?;
    for key in &keys {
        for end in 0..=key.len() {
            check_shared(extractor, &keys, &key[..end])?;
        }
    }
    Ok(())
}

/// Checks law 2: keys with the same prefix are adjacent.
fn check_contiguity(extractor: &impl PrefixExtractor, keys: &[&[u8]]) -> Result<(), LawViolation> {
    let mut done: BTreeSet<&[u8]> = BTreeSet::new();
    let mut previous = None;
    for key in keys {
        let prefix = extractor.prefix(key);
        if prefix != previous {
            if prefix.is_some_and(|prefix| done.contains(prefix)) {
                return violation(2, "keys of one prefix stand together", key);
            }
            done.extend(prefix);
        }
        previous = prefix;
    }
    Ok(())
}

/// Checks law 3 for one beginning.
fn check_shared(
    extractor: &impl PrefixExtractor,
    keys: &[&[u8]],
    start: &[u8],
) -> Result<(), LawViolation> {
    let Some(shared) = extractor.shared(start) else {
        return Ok(());
    };
    let first = keys.partition_point(|key| *key < start);
    for key in keys[first..].iter().take_while(|key| key.starts_with(start)) {
        if extractor.prefix(key) != Some(shared) {
            return violation(3, "all keys that begin alike have the shared prefix", start);
        }
    }
    Ok(())
}

fn violation(law: u8, sentence: &'static str, key: &[u8]) -> Result<(), LawViolation> {
    Err(LawViolation { law, sentence, key: key.to_vec() })
}
