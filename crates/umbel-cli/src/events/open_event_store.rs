//! Opening of the event store that a command names.

use std::path::Path;

use umbel::Durability;
use umbel_env::Env;
use umbel_events::{Error, Store, StoreOptions, check_folder_kind};

use crate::errors::{CommandError, CommandResult};
use crate::events::client::shell_command::store_command;
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

/// Opens the store for writing and creates the store if the directory is missing or empty.
pub fn open_or_create(
    directory: Option<&Path>,
    limits: StoreLimits,
    durability: Durability,
) -> CommandResult<Store> {
    open_or_create_with(directory, event_store_options(limits, durability))
}

/// Like [`open_or_create`], with all options of a store.
pub fn open_or_create_with(
    directory: Option<&Path>,
    options: StoreOptions,
) -> CommandResult<Store> {
    Ok(Store::open(named_directory(directory)?, options)?)
}

/// Opens an existing store for reading only, which also works while another process writes to it.
/// If the index must be written first, for example because it is missing, opens the store for
/// writing. If another process has the store open then, returns the reason why it cannot be read.
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

/// Returns the directory of an existing event store.
pub fn existing_directory(directory: Option<&Path>) -> CommandResult<&Path> {
    let directory = named_directory(directory)?;
    if !is_event_store(directory) {
        check_folder_kind(&Env::system(), directory)?;
        return Err(CommandError::usage(format!(
            "there is no event store in {}; check --db, or create an event store there with `{}`",
            directory.display(),
            store_command(&["append"], directory)
        )));
    }
    Ok(directory)
}

/// Opens an existing store. If the store was not closed, the open recovers it, which writes files.
pub fn open(
    directory: Option<&Path>,
    limits: StoreLimits,
    durability: Durability,
) -> CommandResult<Store> {
    let options =
        StoreOptions { create_if_missing: false, ..event_store_options(limits, durability) };
    Ok(Store::open(existing_directory(directory)?, options)?)
}
