//! What the experiments of the articles about hashes share.

use crate::engine::Tunes;
use crate::experiment::Source;

/// The article.
pub const fn source(part: &'static str) -> Source {
    Source { name: "Which hash function makes the fastest Bloom filter?", part }
}

/// Only Umbel's own parts are measured.
pub fn wants_umbel(tunes: &Tunes) -> Option<&'static str> {
    (!tunes.spread).then_some("is not umbel, whose tables and filters are measured here")
}
