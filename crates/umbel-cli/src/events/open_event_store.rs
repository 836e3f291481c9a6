//! How a command opens the event store it was pointed at.

use std::path::Path;

use umbel::Durability;
use umbel_env::Env;
use umbel_events::{Error, Store, StoreOptions, check_mistaken};

use crate::errors::{Failure, Outcome};
use crate::folders::is_event_store;
use crate::limits::Limits;
use crate::store::{refuse_file, required};

fn named(folder: Option<&Path>) -> Outcome<&Path> {
    let folder = required(folder)?;
    refuse_file(folder)?;
    Ok(folder)
}

fn options(limits: Limits, durability: Durability) -> StoreOptions {
    StoreOptions {
        durability,
        memory_bytes: limits.memory,
        lock_wait: limits.lock_wait(),
        ..StoreOptions::default()
    }
}

/// Opens the store for writing and creates it where the folder is missing or empty.
pub fn open_or_create(
    folder: Option<&Path>,
    limits: Limits,
    durability: Durability,
) -> Outcome<Store> {
    open_or_create_with(folder, options(limits, durability))
}

/// The same with every option.
pub fn open_or_create_with(folder: Option<&Path>, options: StoreOptions) -> Outcome<Store> {
    Ok(Store::open(named(folder)?, options)?)
}

/// Opens a store that exists for reading only, beside a process that writes to it too. Where the
/// index has to be written first, as where it is missing, the store is opened for writing. Where
/// another process has it open, what keeps it from being read is told, not that.
pub fn open_to_look(folder: Option<&Path>, limits: Limits) -> Outcome<Store> {
    let options = options(limits, Durability::Buffered);
    let folder = existing(folder)?;
    let refused = match Store::open_read_only(folder, options.clone()) {
        Err(refused @ Error::Invalid(_)) => refused,
        opened => return Ok(opened?),
    };
    match Store::open(folder, StoreOptions { create_if_missing: false, ..options }) {
        Err(Error::Store(umbel::Error::Locked(_))) => Err(refused.into()),
        opened => Ok(opened?),
    }
}

/// The folder of a store that exists.
fn existing(folder: Option<&Path>) -> Outcome<&Path> {
    let folder = named(folder)?;
    if !is_event_store(folder) {
        check_mistaken(&Env::system(), folder)?;
        return Err(Failure::usage(format!(
            "there is no event store in {}; check --db, or create one there with `umbel append`",
            folder.display()
        )));
    }
    Ok(folder)
}

/// Opens a store that exists. One that was not closed is brought in order first, so this writes.
pub fn open(folder: Option<&Path>, limits: Limits, durability: Durability) -> Outcome<Store> {
    let options = StoreOptions { create_if_missing: false, ..options(limits, durability) };
    Ok(Store::open(existing(folder)?, options)?)
}
