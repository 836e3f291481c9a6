//! Stores whose directories an operator moves, replaces and removes between any two calls of the
//! file system: key-value stores and event stores, opened by relative and by absolute paths.
//!
//! Whatever the operator did: no file outside of the opened directory is touched, nothing
//! acknowledged is lost, no damage is reported where there is none, a read is right or an error,
//! and nothing is acknowledged that cannot be kept. Each script follows from its seed.

mod handle;
mod ledger;
mod life;
mod operator;
mod rig;
mod world;

#[cfg(feature = "canary")]
use umbel_base::canary::Switch;

use crate::history::Histories;

/// The planted file system that does not hold directories.
const HOLD: &str = "hold of the directory";
/// The planted file system that leaves relative paths relative.
const ABSOLUTE: &str = "absolute path";
/// The planted file system that does not hold subdirectories.
const SUBDIRECTORIES: &str = "hold of subdirectories";
/// The planted file system that locks the lock file alone.
const DIRECTORY_LOCK: &str = "lock of the directory";

/// How many scripts the campaign takes, and its small part.
pub const SCRIPTS: u64 = 10_000;
pub const SCRIPTS_SMALL: u64 = 300;

/// The campaign.
pub const CAMPAIGN: Histories = Histories {
    campaign: "directories",
    about: "the stores",
    history: life::script,
    left_out: &[HOLD, ABSOLUTE, SUBDIRECTORIES, DIRECTORY_LOCK],
    #[cfg(feature = "canary")]
    inside: &[
        Switch::OwnershipIgnored,
        Switch::EventsChunksNotOwned,
        Switch::RemovedDirectorySynced,
    ],
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::join;
    use crate::report::Tally;

    /// As the small part of the campaign, in the ordinary test.
    #[test]
    fn stores_keep_to_the_directory_they_opened() {
        let tally = Tally::new(CAMPAIGN.campaign);
        for number in 0..SCRIPTS_SMALL {
            let seed = join(1, number);
            if let Err(text) = life::script(seed, None, &tally) {
                panic!("--replay 'directories {seed}': {text}");
            }
        }
    }

    /// A file system with a planted mistake is found out.
    #[test]
    fn planted_mistakes_are_found() {
        let tally = Tally::new("planted");
        for left_out in CAMPAIGN.left_out {
            let found = |number| life::script(join(1, number), Some(left_out), &tally).is_err();
            assert!((0..1000).any(found), "nothing was wrong without the {left_out}");
        }
    }
}
