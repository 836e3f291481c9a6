//! Extractors of key prefixes.

/// A rule that says which beginning of a key is its prefix.
///
/// The laws, which [`crate::check_laws`] tries on sample keys:
///
/// 1. The prefix of a key is a beginning of the key, and depends on the key's bytes alone.
/// 2. Keys of one prefix are adjacent in the order of their bytes: of three keys in order, if
///    the outer two have one prefix, the middle one has it too.
/// 3. If [`PrefixExtractor::shared`] has an answer for some bytes, every key that begins with
///    these bytes has that very prefix. Otherwise a filter would deny keys that are there.
/// 4. The name identifies the rule: it is 1 to 255 bytes long, and two rules of one name cut every
///    key alike, in this version of a program and in all others.
pub trait PrefixExtractor {
    /// Name of the rule, which filters store.
    fn name(&self) -> &str;

    /// The prefix of `key`; `None` where it has none. Such a key is in no prefix filter.
    fn prefix<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]>;

    /// Prefix of all keys that begin with `start`; `None` where they may have several
    /// or none. `None` is always correct: the filter is then not probed.
    fn shared<'k>(&self, start: &'k [u8]) -> Option<&'k [u8]> {
        let _ = start;
        None
    }
}
