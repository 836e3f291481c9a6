//! Shared parts of the experiments of the articles about hashes.

use crate::engine::TunableSettings;
use crate::experiment::ArticleSource;

/// The article.
pub const fn source(part: &'static str) -> ArticleSource {
    ArticleSource { name: "Which hash function makes the fastest Bloom filter?", part }
}

/// Rejects other engines: only Umbel's own parts are measured.
pub fn wants_umbel(tunes: &TunableSettings) -> Option<&'static str> {
    (!tunes.spread).then_some("is not umbel, whose tables and filters are measured here")
}
