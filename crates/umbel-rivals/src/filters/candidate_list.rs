//! List of the filters that take part.

use crate::filters::candidate_filter::Candidate;
use crate::filters::third_party::{
    Classic, Cuckoo, Fastbloom, FastbloomDefault, Fuse8, Fuse16, Growable, Quotient, Ribbon,
    ScalableCuckoo, SplitBlock, Xor,
};
use crate::filters::umbel_blocked::{Blocked, BlockedView};
use crate::filters::umbel_kinds;

/// Lists the filters that get hashes.
pub fn hash_filters() -> Vec<Candidate> {
    vec![
        Candidate::of_hashes::<Blocked>(),
        Candidate::of_hashes::<BlockedView>(),
        Candidate::of_hashes::<umbel_kinds::Blocked512>(),
        Candidate::of_hashes::<umbel_kinds::Blocked256>(),
        Candidate::of_hashes::<umbel_kinds::Standard>(),
        Candidate::of_hashes::<umbel_kinds::SplitBlock>(),
        Candidate::of_hashes::<umbel_kinds::Counting>(),
        Candidate::of_hashes::<umbel_kinds::Fuse>(),
        Candidate::of_hashes::<umbel_kinds::Ribbon>(),
        Candidate::of_hashes::<Fastbloom>(),
        Candidate::of_hashes::<SplitBlock>(),
        Candidate::of_hashes::<Fuse8>(),
        Candidate::of_hashes::<Fuse16>(),
        Candidate::of_hashes::<Xor>(),
        Candidate::of_hashes::<Ribbon>(),
        Candidate::of_hashes::<Quotient>(),
    ]
}

/// Lists the filters that get keys; each hashes keys as its crate does, otherwise with xxh3.
pub fn key_filters() -> Vec<Candidate> {
    vec![
        Candidate::hashing::<Blocked>(),
        Candidate::hashing::<umbel_kinds::SplitBlock>(),
        Candidate::hashing::<umbel_kinds::Fuse>(),
        Candidate::hashing::<umbel_kinds::Ribbon>(),
        Candidate::of_keys::<FastbloomDefault>(),
        Candidate::hashing::<Fastbloom>(),
        Candidate::hashing::<SplitBlock>(),
        Candidate::hashing::<Fuse8>(),
        Candidate::hashing::<Ribbon>(),
        Candidate::hashing::<Quotient>(),
        Candidate::of_keys::<Classic>(),
        Candidate::of_keys::<Growable>(),
        Candidate::of_keys::<Cuckoo>(),
        Candidate::of_keys::<ScalableCuckoo>(),
    ]
}

/// Returns the version of a crate that is compared, from the lock file.
pub fn version(package: &str) -> &'static str {
    let lock = include_str!("../../Cargo.lock");
    let name = format!("\nname = \"{package}\"\n");
    let rest = lock.split_once(&name).map_or("", |(_, rest)| rest);
    let line = rest.lines().next().and_then(|line| line.strip_prefix("version = \""));
    line.map_or("?", |line| line.trim_end_matches('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_crate_has_a_version() {
        for candidate in hash_filters().iter().chain(&key_filters()) {
            assert_ne!(version(candidate.package), "?", "{}", candidate.package);
        }
    }
}
