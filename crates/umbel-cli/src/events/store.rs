//! How a command opens the event store it was pointed at.

use std::io::ErrorKind;
use std::path::Path;

use umbel::Durability;
use umbel_env::Env;
use umbel_events::{Store, StoreOptions, check_mistaken};

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

/// Opens a store that exists to look at it: for writing, as one that was not closed needs, or,
/// where nobody may write to the folder or nothing more fits, without changing anything.
pub fn open_to_look(folder: Option<&Path>, limits: Limits) -> Outcome<Store> {
    match open(folder, limits, Durability::Buffered) {
        Err(Failure::Store(error)) if is_unwritable(&error) => {
            let options = options(limits, Durability::Buffered);
            // Where it has to be written to first, the question is why it cannot be.
            let opened = Store::open_read_only(named(folder)?, options);
            opened.map_err(|_| Failure::Store(error))
        }
        opened => opened,
    }
}

/// Whether it is the writing that failed, which reading can do without.
fn is_unwritable(error: &umbel::Error) -> bool {
    match error {
        umbel::Error::Full { .. } => true,
        umbel::Error::Io { source, .. } => {
            [ErrorKind::PermissionDenied, ErrorKind::ReadOnlyFilesystem].contains(&source.kind())
        }
        _ => false,
    }
}

/// Opens a store that exists. One that was not closed is brought in order first, so this writes.
pub fn open(folder: Option<&Path>, limits: Limits, durability: Durability) -> Outcome<Store> {
    let folder = named(folder)?;
    if !is_event_store(folder) {
        check_mistaken(&Env::system(), folder)?;
        return Err(Failure::usage(format!(
            "there is no event store in {}; check --db, or create one there with `umbel append`",
            folder.display()
        )));
    }
    let options = StoreOptions { create_if_missing: false, ..options(limits, durability) };
    Ok(Store::open(folder, options)?)
}
