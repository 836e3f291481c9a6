//! Feature bits: what a store uses that an older Umbel does not know.
//!
//! FORMAT: they stand in the identity, the first edit of a manifest, and are looked at before
//! anything behind it is, so that whoever does not know one refuses in words.

use umbel_base::{Decoder, Error, Result};

use super::edit::Edit;
use crate::options::{ExistenceSize, KeyspaceOptions};

/// FORMAT: a keyspace has, or had, an existence filter.
const EXISTENCE: u64 = 1;
/// FORMAT: the manifest says which copy of the store it is of.
pub const INSTANCE: u64 = 2;
/// FORMAT: the manifest says which opens gave which sequence numbers.
pub const OPENINGS: u64 = 4;
/// All that this build knows.
const KNOWN: u64 = EXISTENCE | INSTANCE | OPENINGS;

/// The features that a keyspace with these options uses.
pub fn of(options: &KeyspaceOptions) -> u64 {
    if options.existence_filter == ExistenceSize::Off { 0 } else { EXISTENCE }
}

/// An error where a manifest whose first record is `payload` uses features that are not known.
pub fn check(payload: &[u8]) -> Result<()> {
    match Edit::decode(&mut Decoder::new(payload)) {
        Some(Edit::Identity(identity)) if identity.features & !KNOWN != 0 => {
            Err(Error::invalid(format!(
                "the store uses features ({:#x}) that this Umbel does not know; open it with a \
                 newer one",
                identity.features & !KNOWN
            )))
        }
        _ => Ok(()),
    }
}
