//! Backups in object stores: `umbel backup --to URL`, `umbel restore --from URL` and `umbel verify
//! --from URL`.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use umbel::Durability;
use umbel_env::{Env, Objects};
use umbel_events::{
    ObjectBackupError, ObjectBackupOptions, ObjectBackupReport, ObjectRequestOptions,
    ObjectVerifyReport, Position, RestorableRange, RestoreTo, RetentionOptions, RetentionReport,
    Store, restore_events_from_objects, restore_from_objects, retain, verify_objects,
};
use umbel_server::ObjectBackupConfig;

use crate::backup_url::{check_for_backup, open, options, request_error};
use crate::errors::{CommandError, CommandResult};
use crate::events::event_args::{BackupArgs, RestoreArgs};
use crate::events::open_event_store;
use crate::events::remaining_data::with_server_remedy;
use crate::events::timestamps;
use crate::global_options::StoreLimits;
use crate::io::output::note;
use crate::object_backup_outcome::{ObjectBackupOutcome, note_replaced, note_resumed};
use crate::open_kv_store::refuse_file;
use crate::text::numbers;

/// Remedy where a server has the store open.
const AT_A_SERVER: &str = "let it back up by itself: umbel serve --backup-to URL";

/// Opens the object store of a server's continuous backup. The server itself probes it, so that it
/// also starts while the store cannot be reached.
pub fn continuous_backup(
    url: &str,
    bytes_per_second: Option<u64>,
) -> CommandResult<ObjectBackupConfig> {
    let objects = open(&Env::system(), url)?;
    let config = ObjectBackupConfig::new(objects);
    let requests = ObjectRequestOptions { bytes_per_second, ..config.requests };
    let check = |env: &Env, objects: &dyn Objects| Ok(check_for_backup(env, objects)?);
    Ok(ObjectBackupConfig { check, requests, ..config })
}

/// Backs up the event store in the directory into the object store, which is opened last.
pub fn back_up(
    directory: &Path,
    open: impl FnOnce() -> CommandResult<Arc<dyn Objects>>,
    args: &BackupArgs,
    limits: StoreLimits,
) -> CommandResult<ObjectBackupOutcome> {
    let store = open_event_store::open(Some(directory), limits, Durability::Buffered)
        .map_err(|failure| with_server_remedy(failure, limits, AT_A_SERVER))?;
    let done = open().and_then(|objects| back_up_store(&store, objects, args));
    let closed = store.close();
    let (objects, report) = done?;
    closed?;
    let retention = args.keep.map(|keep| {
        let requests = options(args.throttle);
        let options = RetentionOptions { keep, dry_run: args.dry_run, requests };
        retain(&Env::system(), Arc::clone(&objects), options)
    });
    let retention = retention.transpose().map_err(backup_error)?;
    Ok(backup_outcome(objects.location(), &report, retention.as_ref().map(|it| (it, args))))
}

fn back_up_store(
    store: &Store,
    objects: Arc<dyn Objects>,
    args: &BackupArgs,
) -> CommandResult<(Arc<dyn Objects>, ObjectBackupReport)> {
    let requests = options(args.throttle);
    let options = ObjectBackupOptions { requests, ..ObjectBackupOptions::default() };
    let backup = store.object_backup(Arc::clone(&objects), options).map_err(backup_error)?;
    let lost = backup.find_lost().map_err(backup_error)?;
    let report = backup.run_once().map_err(backup_error)?;
    note_replaced(&lost, objects.location());
    Ok((objects, report))
}

fn backup_outcome(
    location: &str,
    report: &ObjectBackupReport,
    retention: Option<(&RetentionReport, &BackupArgs)>,
) -> ObjectBackupOutcome {
    let json = json!({
        "position": report.through.0,
        "manifest": report.manifest,
        "uploaded_objects": report.uploaded_objects,
        "uploaded_bytes": report.uploaded_bytes,
        "requests": report.requests,
        "retention": retention.map(|(it, args)| retention_json(it, args.dry_run)),
    });
    let contents = format!("all events up to position {}", report.through.0);
    let uploaded = (report.uploaded_bytes, report.uploaded_objects);
    let mut outcome = ObjectBackupOutcome::backed_up(location, &contents, uploaded, json);
    if let Some((done, args)) = retention {
        let deleted = (done.deleted_manifests, done.deleted_pieces, done.deleted_bytes);
        let first = format!("position {}", done.first_through.0);
        outcome.add_retention(args.dry_run, deleted, &first);
    }
    outcome
}

fn retention_json(report: &RetentionReport, is_dry_run: bool) -> Value {
    json!({
        "dry_run": is_dry_run,
        "first_manifest": report.first_manifest,
        "first_position": report.first_through.0,
        "deleted_manifests": report.deleted_manifests,
        "deleted_objects": report.deleted_pieces,
        "deleted_bytes": report.deleted_bytes,
        "young_objects": report.young_pieces,
    })
}

/// Restores a store from the object store into the directory. An end before that of the first
/// append makes an empty store only beside keys and values, whose history can begin earlier.
pub fn restore(
    directory: &Path,
    objects: Arc<dyn Objects>,
    args: &RestoreArgs,
    has_keys: impl FnOnce() -> CommandResult<bool>,
) -> CommandResult<ObjectBackupOutcome> {
    refuse_file(directory)?;
    let restore_to = match (args.to_position, args.to_time) {
        (Some(position), _) => RestoreTo::Position(Position(position)),
        (None, Some(ticks)) => RestoreTo::Time(ticks),
        (None, None) => RestoreTo::Latest,
    };
    let (env, requests) = (Env::system(), || options(args.throttle));
    let again = Arc::clone(&objects);
    let mut restored =
        restore_events_from_objects(&env, objects, directory, restore_to, requests());
    if matches!(restored, Err(ObjectBackupError::NoEvents { .. })) && has_keys()? {
        restored = restore_from_objects(&env, again, directory, restore_to, requests());
    }
    let report = restored.map_err(backup_error)?;
    if report.is_short {
        note(
            "umbel: warning: the backup ends before the requested end, so later events can be \
             missing",
        );
    }
    match restore_to {
        RestoreTo::Position(_) | RestoreTo::Time(_) if report.through.0 == 0 => note(
            "umbel: warning: no append ends at or before the requested end, so the store is empty",
        ),
        RestoreTo::Position(wanted) if report.through < wanted && !report.is_short => note(
            "umbel: the last restored event is before the requested position: an append is \
             restored only if its last event is not after that position",
        ),
        _ => {}
    }
    note_resumed(report.is_resumed, directory);
    let json = json!({
        "position": report.through.0,
        "is_resumed": report.is_resumed,
        "manifest": report.manifest,
        "files": report.files,
        "bytes": report.bytes,
        "is_short": report.is_short,
    });
    let size = (report.bytes, report.files);
    let line = restored_sentence(directory, report.through, size);
    Ok(ObjectBackupOutcome::new("the store was restored", vec![line], json))
}

/// Sentence about a restored store of these bytes in a number of files.
pub fn restored_sentence(
    directory: &Path,
    through: Position,
    (bytes, files): (u64, u64),
) -> String {
    format!(
        "restored {}: all events up to position {}, {} in {}; the index is built when the store is \
         opened",
        directory.display(),
        through.0,
        numbers::bytes(bytes),
        numbers::counted(files, "file"),
    )
}

/// Checks every object of the backup.
pub fn verify(objects: Arc<dyn Objects>) -> CommandResult<ObjectBackupOutcome> {
    let location = objects.location().to_owned();
    let report = verify_objects(&Env::system(), objects, options(None)).map_err(backup_error)?;
    let undamaged = format!(
        "the backup in {location} is undamaged: all events up to position {}, {} in {} checked",
        report.through.0,
        numbers::bytes(report.bytes),
        numbers::counted(report.objects, "object"),
    );
    let ranges = report.restorable.iter().map(|range| {
        format!(
            "can be restored: backups of {} to {}, up to positions {} to {}",
            timestamps::rfc3339_of_micros(range.first_wall_micros),
            timestamps::rfc3339_of_micros(range.last_wall_micros),
            range.first_through.0,
            range.last_through.0,
        )
    });
    let json = verify_json(&report);
    Ok(ObjectBackupOutcome::verified(&report.damage, undamaged, ranges, json))
}

fn verify_json(report: &ObjectVerifyReport) -> Value {
    let range = |range: &RestorableRange| {
        json!({
            "first_manifest": range.first,
            "last_manifest": range.last,
            "first_position": range.first_through.0,
            "last_position": range.last_through.0,
            "first_time": timestamps::rfc3339_of_micros(range.first_wall_micros),
            "last_time": timestamps::rfc3339_of_micros(range.last_wall_micros),
        })
    };
    json!({
        "backup": true,
        "position": report.through.0,
        "first_manifest": report.first_manifest,
        "newest_manifest": report.newest_manifest,
        "objects": report.objects,
        "bytes": report.bytes,
        "damage": report.damage.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "restorable": report.restorable.iter().map(range).collect::<Vec<_>>(),
    })
}

fn backup_error(error: ObjectBackupError) -> CommandError {
    match error {
        ObjectBackupError::Store(error) => error.into(),
        ObjectBackupError::Objects(error) => request_error(error),
        ObjectBackupError::NoEvents { position, created } => CommandError::Usage(format!(
            "no append ends at or before the requested end, so the store would be empty; the \
             first append ends at position {} and has the time {}: name a later end",
            position.0,
            timestamps::rfc3339(created)
        )),
        error => CommandError::Usage(error.to_string()),
    }
}
