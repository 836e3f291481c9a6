//! Opening of the event store that a command names.

use std::path::Path;

use umbel::Durability;
use umbel_env::Env;
use umbel_events::{Error, Store, StoreOptions, check_folder_kind};

use crate::errors::{CommandError, CommandResult};
use crate::global_options::StoreLimits;
use crate::open_kv_store::{refuse_file, require_directory};
use crate::store_kind::is_event_store;

fn named_directory(directory: Option<&Path>) -> CommandResult<&Path> {
    let directory = require_directory(directory)?;
    refuse_file(directory)?;
    Ok(directory)
}

fn event_store_options(limits: StoreLimits, durability: Durability) -> StoreOptions {
    StoreOptions { durability, ..limits.to_event_store() }
}

/// Opens the store for writing and creates it where the directory is missing or empty.
pub fn open_or_create(
    directory: Option<&Path>,
    limits: StoreLimits,
    durability: Durability,
) -> CommandResult<Store> {
    open_or_create_with(directory, event_store_options(limits, durability))
}

/// The same with every option.
pub fn open_or_create_with(
    directory: Option<&Path>,
    options: StoreOptions,
) -> CommandResult<Store> {
    Ok(Store::open(named_directory(directory)?, options)?)
}

/// Opens a store that exists for reading only, beside a process that writes to it too. Where the
/// index has to be written first, as where it is missing, the store is opened for writing. Where
/// another process has it open, what keeps it from being read is reported, not that.
pub fn open_read_only(directory: Option<&Path>, limits: StoreLimits) -> CommandResult<Store> {
    let options = event_store_options(limits, Durability::Buffered);
    let directory = existing_directory(directory)?;
    let refused = match Store::open_read_only(directory, options.clone()) {
        Err(refused @ Error::Invalid(_)) => refused,
        opened => return Ok(opened?),
    };
    match Store::open(directory, StoreOptions { create_if_missing: false, ..options }) {
        Err(Error::Store(umbel::Error::Locked(_))) => Err(refused.into()),
        opened => Ok(opened?),
    }
}

/// The directory of a store that exists.
fn existing_directory(directory: Option<&Path>) -> CommandResult<&Path> {
    let directory = named_directory(directory)?;
    if !is_event_store(directory) {
        check_folder_kind(&Env::system(), directory)?;
        return Err(CommandError::usage(format!(
            "there is no event store in {}; check --db, or create an event store there with \
             `umbel append`",
            directory.display()
        )));
    }
    Ok(directory)
}

/// Opens an existing store. If it was not closed, the open recovers it, which writes.
pub fn open(
    directory: Option<&Path>,
    limits: StoreLimits,
    durability: Durability,
) -> CommandResult<Store> {
    let options =
        StoreOptions { create_if_missing: false, ..event_store_options(limits, durability) };
    Ok(Store::open(existing_directory(directory)?, options)?)
}
