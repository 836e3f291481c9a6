//! `umbel delete --stream`: deletes a stream, or tombstones it for good.

use std::path::Path;

use umbel::Durability;

use crate::errors::{CommandError, CommandResult};
use crate::events::event_args;
use crate::events::open_event_store;
use crate::global_options::StoreLimits;

/// Stream to delete, and the kind of deletion.
#[derive(Debug, Clone, Copy)]
pub struct DeleteRequest<'a> {
    /// The stream.
    pub stream: &'a str,
    /// Expected revision of the stream.
    pub expected: Option<&'a str>,
    /// Whether the stream is tombstoned, which deletes it for good.
    pub tombstone: bool,
    /// Whether the command returns only once the delete survives power loss.
    pub sync: bool,
}

/// Deletes the stream.
pub fn run(
    directory: Option<&Path>,
    deletion: DeleteRequest<'_>,
    limits: StoreLimits,
) -> CommandResult<()> {
    let DeleteRequest { stream, expected, tombstone, sync } = deletion;
    let durability = if sync { Durability::Synced } else { Durability::Buffered };
    let expected = event_args::parse_expected(expected.unwrap_or("any"))
        .map_err(|reason| CommandError::usage(format!("--expected: {reason}")))?;
    let store = open_event_store::open(directory, limits, durability)?;
    match tombstone {
        true => store.tombstone(stream, expected)?,
        false => store.delete(stream, expected)?,
    };
    Ok(store.close()?)
}
