//! The directories campaign: an operator moves, replaces and removes the directories of stores
//! between any two calls of the file system. The stores are key-value stores and event stores,
//! opened by relative and by absolute paths.
//!
//! Whatever the operator does, these properties hold:
//!
//! - No file outside of the opened directory is touched.
//! - Nothing acknowledged is lost.
//! - No damage is reported for an intact store.
//! - A read returns right data or an error.
//! - No write is acknowledged that a later crash could lose.
//!
//! Each script follows from its seed.

mod allowed_states;
mod directory_model;
mod directory_script;
mod faulty_file_system;
mod operator_moves;
mod store_under_test;

use crate::support::failpoint_list;
use crate::support::seeded_campaign::SeededCampaign;

/// Planted file system that does not hold directories.
const HOLD: &str = "hold of the directory";
/// Planted file system that leaves relative paths relative.
const ABSOLUTE: &str = "absolute path";
/// Planted file system that does not hold subdirectories.
const SUBDIRECTORIES: &str = "hold of subdirectories";
/// Planted file system that locks the lock file alone.
const DIRECTORY_LOCK: &str = "lock of the directory";

/// Default number of scripts.
pub const SCRIPTS: u64 = 10_000;
pub const SCRIPTS_SMALL: u64 = 300;

/// The campaign.
pub const CAMPAIGN: SeededCampaign = SeededCampaign {
    campaign: "directories",
    subject: "the stores",
    script: directory_script::run_script,
    omitted_calls: &[HOLD, ABSOLUTE, SUBDIRECTORIES, DIRECTORY_LOCK],
    failpoints: &failpoint_list::DIRECTORIES,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::campaign_tally::CampaignTally;
    use crate::support::derived_seed::derive_seed;

    /// The small part of the campaign runs [`SCRIPTS_SMALL`] scripts.
    #[test]
    fn stores_keep_to_the_directory_they_opened() {
        let tally = CampaignTally::new(CAMPAIGN.campaign);
        for number in 0..SCRIPTS_SMALL / 10 {
            let seed = derive_seed(1, number);
            if let Err(text) = directory_script::run_script(seed, None, &tally) {
                panic!("--replay 'directories {seed}': {text}");
            }
        }
    }

    /// Checks that the campaign detects each file system with a planted fault.
    #[test]
    fn planted_faults_are_found() {
        let tally = CampaignTally::new("planted");
        for left_out in CAMPAIGN.omitted_calls {
            let found = |number| {
                directory_script::run_script(derive_seed(1, number), Some(left_out), &tally)
                    .is_err()
            };
            assert!((0..1000).any(found), "no seed noticed the missing {left_out}");
        }
    }
}
