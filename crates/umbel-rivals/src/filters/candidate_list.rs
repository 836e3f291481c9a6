//! Who takes part.

use crate::filters::contestant::Contestant;
use crate::filters::kinds;
use crate::filters::others::{
    Classic, Cuckoo, Fastbloom, FastbloomDefault, Fuse8, Fuse16, Growable, Quotient, Ribbon,
    ScalableCuckoo, SplitBlock, Xor,
};
use crate::filters::ours::{Blocked, BlockedView};

/// Those that are given hashes.
pub fn of_hashes() -> Vec<Contestant> {
    vec![
        Contestant::of_hashes::<Blocked>(),
        Contestant::of_hashes::<BlockedView>(),
        Contestant::of_hashes::<kinds::Blocked512>(),
        Contestant::of_hashes::<kinds::Blocked256>(),
        Contestant::of_hashes::<kinds::Standard>(),
        Contestant::of_hashes::<kinds::SplitBlock>(),
        Contestant::of_hashes::<kinds::Counting>(),
        Contestant::of_hashes::<kinds::Fuse>(),
        Contestant::of_hashes::<kinds::Ribbon>(),
        Contestant::of_hashes::<Fastbloom>(),
        Contestant::of_hashes::<SplitBlock>(),
        Contestant::of_hashes::<Fuse8>(),
        Contestant::of_hashes::<Fuse16>(),
        Contestant::of_hashes::<Xor>(),
        Contestant::of_hashes::<Ribbon>(),
        Contestant::of_hashes::<Quotient>(),
    ]
}

/// Those that are given keys: they hash them as their crate does, or else with xxh3.
pub fn of_keys() -> Vec<Contestant> {
    vec![
        Contestant::hashing::<Blocked>(),
        Contestant::hashing::<kinds::SplitBlock>(),
        Contestant::hashing::<kinds::Fuse>(),
        Contestant::hashing::<kinds::Ribbon>(),
        Contestant::of_keys::<FastbloomDefault>(),
        Contestant::hashing::<Fastbloom>(),
        Contestant::hashing::<SplitBlock>(),
        Contestant::hashing::<Fuse8>(),
        Contestant::hashing::<Ribbon>(),
        Contestant::hashing::<Quotient>(),
        Contestant::of_keys::<Classic>(),
        Contestant::of_keys::<Growable>(),
        Contestant::of_keys::<Cuckoo>(),
        Contestant::of_keys::<ScalableCuckoo>(),
    ]
}

/// The version of a crate that was compared, from the lock file.
pub fn version(package: &str) -> &'static str {
    let lock = include_str!("../../Cargo.lock");
    let name = format!("\nname = \"{package}\"\n");
    let behind = lock.split_once(&name).map_or("", |(_, behind)| behind);
    let line = behind.lines().next().and_then(|line| line.strip_prefix("version = \""));
    line.map_or("?", |line| line.trim_end_matches('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_crate_has_a_version() {
        for contestant in of_hashes().iter().chain(&of_keys()) {
            assert_ne!(version(contestant.package), "?", "{}", contestant.package);
        }
    }
}
