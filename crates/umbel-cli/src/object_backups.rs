//! `umbel backup`, `umbel restore --from` and `umbel verify --from`, by the kind of store.

use std::path::Path;

use umbel_backup::BackupKind;
use umbel_env::Env;

use crate::backup_objects::{open_backup, url_of};
use crate::errors::CommandResult;
use crate::events::event_args::{BackupArgs, RestoreArgs};
use crate::global_options::StoreLimits;
use crate::open_kv_store::StoreLocation;
use crate::store_kind::is_kv_store;
use crate::{events, kv};

/// Backs up the store in the directory.
pub fn back_up(
    directory: Option<&Path>,
    args: &BackupArgs,
    json: bool,
    limits: StoreLimits,
) -> CommandResult<()> {
    match args.to.as_deref().and_then(url_of) {
        Some(url) if directory.is_some_and(is_kv_store) => {
            let store = StoreLocation::at_directory(directory, limits)?;
            kv::object_backup::back_up(&store, url, args, json)
        }
        _ => events::backup::run(directory, args, json, limits),
    }
}

/// Restores a store into the directory.
pub fn restore(
    directory: Option<&Path>,
    args: &RestoreArgs,
    json: bool,
    limits: StoreLimits,
) -> CommandResult<()> {
    if let Some(url) = url_of(&args.from)
        && let (objects, Some(BackupKind::KeyValues)) = open_backup(&Env::system(), url)?
    {
        return kv::object_backup::restore(directory, objects, args, json);
    }
    events::backup::restore(directory, args, json, limits)
}

/// Checks every object of the backup below the URL.
pub fn verify(url: &str, json: bool) -> CommandResult<()> {
    match open_backup(&Env::system(), url)? {
        (objects, Some(BackupKind::KeyValues)) => kv::object_backup::verify(objects, json),
        _ => events::object_backup::verify(url, json),
    }
}
