//! Feature bits: features of a store that an older Umbel does not know.
//!
//! FORMAT: the feature bits are in the identity, the first edit of a manifest, and are checked
//! before any later edit. So an Umbel that does not know a feature refuses the store with a clear
//! error.

use crate::options::{ExistenceSize, KeyspaceOptions};

/// FORMAT: a keyspace has, or had, an existence filter.
const EXISTENCE: u64 = 1;
/// FORMAT: the manifest has an instance id.
pub const INSTANCE: u64 = 2;
/// FORMAT: the manifest records which open assigned which sequence numbers.
pub const OPENINGS: u64 = 4;
/// All features that this build of Umbel knows.
pub const KNOWN_FEATURES: u64 = EXISTENCE | INSTANCE | OPENINGS;

/// Returns the features that a keyspace with these options uses.
pub fn required_by(options: &KeyspaceOptions) -> u64 {
    if options.existence_filter == ExistenceSize::Off { 0 } else { EXISTENCE }
}
