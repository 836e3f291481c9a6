//! Extractors of key prefixes.

/// A rule that determines the prefix of a key.
///
/// Extractors must obey these laws, which [`crate::check_laws`] checks on sample keys:
///
/// 1. The prefix of a key is a beginning of the key, and depends on the key's bytes alone.
/// 2. Keys of one prefix are adjacent in the order of their bytes: of three keys in order, if
///    the outer two have one prefix, the middle one has it too.
/// 3. If [`PrefixExtractor::shared`] returns a prefix for some bytes, every key that begins with
///    these bytes has that prefix. Otherwise a filter would deny present keys.
/// 4. The name identifies the rule: it is 1 to 255 bytes long, and rules of the same name cut every
///    key alike, in all versions of a program.
pub trait PrefixExtractor {
    /// Name of the rule, which filters store.
    fn name(&self) -> &str;

    /// The prefix of `key`, or `None` for a key without prefix, which is in no prefix filter.
    fn prefix<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]>;

    /// The common prefix of all keys that begin with `start`; `None` if they can have different
    /// prefixes or none. `None` is always correct, since the filter is then not probed.
    fn shared<'k>(&self, start: &'k [u8]) -> Option<&'k [u8]> {
        let _ = start;
        None
    }
}
