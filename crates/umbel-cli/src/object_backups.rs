//! Commands for backups in object stores: `umbel backup --to URL`, `umbel restore --from URL` and
//! `umbel verify --from URL`. The keys and values of a server lie in its directory, and their
//! backup below its prefix.

use std::path::Path;
use std::sync::Arc;

use umbel_backup::{BackupKind, SERVER_KV_PREFIX, server_kv_objects};
use umbel_env::{Env, Objects};

use crate::backup_url::{find_kind, open, open_for_backup, refuse_unnamed_url, url_of};
use crate::errors::{CommandError, CommandResult};
use crate::events::client::shell_command::store_command;
use crate::events::event_args::{BackupArgs, RestoreArgs};
use crate::events::timestamps;
use crate::global_options::StoreLimits;
use crate::io::output::note;
use crate::object_backup_outcome::ObjectBackupOutcome;
use crate::open_kv_store::{StoreLocation, require_directory};
use crate::store_kind::{KV_DIRECTORY, is_kv_store};
use crate::{events, kv};

/// Backs up the store in the directory.
pub fn back_up(
    directory: Option<&Path>,
    args: &BackupArgs,
    json: bool,
    limits: StoreLimits,
) -> CommandResult<()> {
    let to = args.to.as_deref().filter(|_| args.connect.is_none());
    let Some(url) = to.map(url_of).transpose()?.flatten() else {
        check_directory_backup(directory.filter(|_| args.connect.is_none()))?;
        return events::backup::run(directory, args, json, limits);
    };
    let directory = require_directory(directory)?;
    let back_up_kv = |directory: &Path, objects: &dyn Fn() -> CommandResult<Arc<dyn Objects>>| {
        let store = StoreLocation::at_directory(Some(directory), limits)?;
        kv::object_backup::back_up(&store, objects, args)
    };
    let open = || open_for_backup(&Env::system(), url);
    if is_kv_store(directory) {
        return back_up_kv(directory, &open)?.print(json);
    }
    let mut done = events::object_backup::back_up(directory, open, args, limits)?;
    let kv = directory.join(KV_DIRECTORY);
    if is_kv_store(&kv) {
        match back_up_kv(&kv, &|| Ok(server_kv_objects(open()?))) {
            Ok(kv) => done.add_kv(kv),
            Err(error) => {
                done.print(json)?;
                return Err(error);
            }
        }
    }
    done.print(json)
}

/// Returns an error for a store that has no backups into a directory.
fn check_directory_backup(directory: Option<&Path>) -> CommandResult<()> {
    match directory.filter(|directory| is_kv_store(directory)) {
        None => Ok(()),
        Some(directory) => Err(CommandError::usage(format!(
            "{} holds a key-value store, which is backed up into an object store: write \
             --to file:///DIR for one in a directory, or copy the store with `{}`",
            directory.display(),
            store_command(&["checkpoint", "COPY"], directory)
        ))),
    }
}

/// Restores a store into the directory.
pub fn restore(
    directory: Option<&Path>,
    args: &RestoreArgs,
    json: bool,
    limits: StoreLimits,
) -> CommandResult<()> {
    let Some(url) = url_of(&args.from)? else {
        return events::backup::restore(directory, args, json, limits);
    };
    let (directory, env) = (require_directory(directory)?, Env::system());
    let objects = open(&env, url)?;
    if find_kind(&env, &objects)? == Some(BackupKind::KeyValues) {
        if args.to_position.is_some() {
            return Err(CommandError::usage(
                "the backup is that of a key-value store, which has no positions: leave out \
                 --to-position, or name a time with --to-time",
            ));
        }
        return kv::object_backup::restore(directory, objects, args)?.print(json);
    }
    let has_keys = || -> CommandResult<bool> {
        let keys = server_kv_objects(Arc::clone(&objects));
        Ok(find_kind(&env, &keys)? == Some(BackupKind::KeyValues)
            && kv::object_backup::first_time_after(keys, args)?.is_none())
    };
    let events = Arc::clone(&objects);
    let mut done = events::object_backup::restore(directory, events, args, has_keys)?;
    match restore_kv(&env, directory, Arc::clone(&objects), args) {
        Ok(kv) => {
            if kv.is_some() && args.to_position.is_some() {
                note(
                    "umbel: warning: keys and values have no positions: they are restored to \
                     their newest state, which can be later than the events; for both at one time \
                     write --to-time in place of --to-position",
                );
            }
            kv.into_iter().for_each(|kv| done.add_kv(kv));
            done.print(json)
        }
        Err(error) => {
            done.print(json)?;
            let options = if url.contains('?') { ", and with the options of this URL" } else { "" };
            // A command up to the same time would fail again.
            let first = kv::object_backup::first_time_after(server_kv_objects(objects), args);
            let to_time = first.ok().flatten().or(args.to_time);
            let command = kv_restore_command(directory, url, to_time);
            Err(error.with_prefix(&format!(
                "the events are restored, but not the keys and values; restore them with \
                 `{command}`{options}"
            )))
        }
    }
}

/// Command that restores only the keys and values of a server, up to a time.
fn kv_restore_command(directory: &Path, url: &str, to_time: Option<u64>) -> String {
    let from = format!("{}/{SERVER_KV_PREFIX}", umbel_objects::location(url));
    let to_time = to_time.map(timestamps::rfc3339);
    let mut words = vec!["restore", "--from", &from];
    words.extend(to_time.iter().flat_map(|time| ["--to-time", time.as_str()]));
    store_command(&words, &directory.join(KV_DIRECTORY))
}

/// Restores the keys and values of a server, if its backup has some.
fn restore_kv(
    env: &Env,
    directory: &Path,
    objects: Arc<dyn Objects>,
    args: &RestoreArgs,
) -> CommandResult<Option<ObjectBackupOutcome>> {
    let objects = server_kv_objects(objects);
    match find_kind(env, &objects)? {
        Some(BackupKind::KeyValues) => {
            kv::object_backup::restore(&directory.join(KV_DIRECTORY), objects, args).map(Some)
        }
        _ => Ok(None),
    }
}

/// Checks every object of the backup below the URL. Prints each damage; the command then fails.
pub fn verify(url: &str, json: bool) -> CommandResult<()> {
    if !url.contains("://") && Path::new(url).is_dir() {
        refuse_unnamed_url(Path::new(url))?;
        return Err(CommandError::usage(format!(
            "{url} is a directory: check a backup in a directory with `{}`, and one in an object \
             store with its URL",
            store_command(&["verify"], Path::new(url))
        )));
    }
    let env = Env::system();
    let objects = open(&env, url)?;
    let location = objects.location().to_owned();
    let kind = find_kind(&env, &objects)?;
    let found = if kind == Some(BackupKind::KeyValues) {
        kv::object_backup::verify(objects)?
    } else {
        let mut found = events::object_backup::verify(Arc::clone(&objects))?;
        match verify_kv(&env, objects) {
            Ok(kv) => kv.into_iter().for_each(|kv| found.add_kv(kv)),
            Err(error) => {
                found.print(json)?;
                found.check(&location)?;
                let done = "the events are whole, but the keys and values could not be checked";
                return Err(error.with_prefix(done));
            }
        }
        found
    };
    found.print(json)?;
    found.check(&location)
}

/// Checks the keys and values of a server, if its backup has some.
fn verify_kv(env: &Env, objects: Arc<dyn Objects>) -> CommandResult<Option<ObjectBackupOutcome>> {
    let objects = server_kv_objects(objects);
    match find_kind(env, &objects)? {
        Some(BackupKind::KeyValues) => kv::object_backup::verify(objects).map(Some),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_restore_of_keys_and_values_is_one_a_shell_takes() {
        let url = "file:///mnt/my%20share/shop/?x=1";
        assert_eq!(
            kv_restore_command(Path::new("/a b"), url, Some(0)),
            "umbel restore --from file:///mnt/my%20share/shop/kv --to-time \
             1970-01-01T00:00:00.0000000Z --db '/a b/kv'"
        );
        assert_eq!(
            kv_restore_command(Path::new("a"), "s3://b/it's", None),
            r"umbel restore --from 's3://b/it'\''s/kv' --db a/kv"
        );
    }
}
