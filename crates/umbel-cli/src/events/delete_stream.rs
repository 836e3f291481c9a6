//! `umbel delete --stream`: a stream deleted, to be created again or for good.

use std::path::Path;

use umbel::Durability;

use super::args;
use super::store;
use crate::errors::{Failure, Outcome};
use crate::limits::Limits;

/// Which stream is deleted, and how.
#[derive(Debug, Clone, Copy)]
pub struct Deletion<'a> {
    /// The stream.
    pub stream: &'a str,
    /// What is expected of it.
    pub expected: Option<&'a str>,
    /// Whether for good.
    pub tombstone: bool,
    /// Whether to return once it survives power loss.
    pub sync: bool,
}

/// Deletes the stream.
pub fn run(folder: Option<&Path>, deletion: Deletion<'_>, limits: Limits) -> Outcome<()> {
    let Deletion { stream, expected, tombstone, sync } = deletion;
    let durability = if sync { Durability::Synced } else { Durability::Buffered };
    let expected = args::expected(expected.unwrap_or("any"))
        .map_err(|reason| Failure::usage(format!("--expected: {reason}")))?;
    let store = store::open(folder, limits, durability)?;
    match tombstone {
        true => store.tombstone(stream, expected)?,
        false => store.delete(stream, expected)?,
    };
    Ok(store.close()?)
}
