//! Backups of key-value stores in object stores: `umbel backup --to URL`, `umbel restore --from
//! URL` and `umbel verify --from URL`.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use umbel::{
    BackupError, Db, Durability, ObjectBackupOptions, ObjectBackupReport, ObjectVerifyReport,
    RestorableManifests, RestoreTo, RetentionOptions, RetentionReport, check_restorable,
    restore_from_objects, retain, verify_objects,
};
use umbel_env::{Env, Objects};

use crate::backup_url::{backup_error, options};
use crate::errors::{CommandError, CommandResult};
use crate::events::event_args::{BackupArgs, RestoreArgs};
use crate::events::timestamps::rfc3339_of_micros as time;
use crate::object_backup_outcome::{ObjectBackupOutcome, note_replaced, note_resumed};
use crate::open_kv_store::{StoreLocation, refuse_file};
use crate::text::numbers;

/// Backs up the store into the object store, which is opened last.
pub fn back_up(
    store: &StoreLocation,
    open: impl FnOnce() -> CommandResult<Arc<dyn Objects>>,
    args: &BackupArgs,
) -> CommandResult<ObjectBackupOutcome> {
    let db = store.open_existing(Durability::Buffered)?;
    let done = open().and_then(|objects| back_up_store(&db, objects, args));
    let closed = db.close();
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
    db: &Db,
    objects: Arc<dyn Objects>,
    args: &BackupArgs,
) -> CommandResult<(Arc<dyn Objects>, ObjectBackupReport)> {
    let requests = options(args.throttle);
    let options = ObjectBackupOptions { requests, ..ObjectBackupOptions::default() };
    let backup = db.object_backup(Arc::clone(&objects), options).map_err(backup_error)?;
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
        "time": time(report.captured_micros),
        "sequence": report.last_sequence,
        "manifest": report.manifest,
        "uploaded_objects": report.uploaded_objects,
        "uploaded_bytes": report.uploaded_bytes,
        "requests": report.requests,
        "retention": retention.map(|(it, args)| retention_json(it, args.dry_run)),
    });
    let contents = format!("all writes up to {}", time(report.captured_micros));
    let uploaded = (report.uploaded_bytes, report.uploaded_objects);
    let mut outcome = ObjectBackupOutcome::backed_up(location, &contents, uploaded, json);
    if let Some((done, args)) = retention {
        let deleted = (done.deleted_manifests, done.deleted_objects, done.deleted_bytes);
        outcome.add_retention(args.dry_run, deleted, &time(done.first_captured_micros));
    }
    outcome
}

fn retention_json(report: &RetentionReport, is_dry_run: bool) -> Value {
    json!({
        "dry_run": is_dry_run,
        "first_manifest": report.first_manifest,
        "first_time": time(report.first_captured_micros),
        "deleted_manifests": report.deleted_manifests,
        "deleted_objects": report.deleted_objects,
        "deleted_bytes": report.deleted_bytes,
        "young_objects": report.young_objects,
    })
}

/// State that the arguments name. Their time counts in units of 100 ns.
fn restore_to(args: &RestoreArgs) -> RestoreTo {
    args.to_time.map_or(RestoreTo::Latest, |time| RestoreTo::Time(time / 10))
}

/// Returns the time of the backup's first state, in units of 100 ns since 1970, if it is after the
/// time that the arguments name.
pub fn first_time_after(
    objects: Arc<dyn Objects>,
    args: &RestoreArgs,
) -> CommandResult<Option<u64>> {
    let requests = options(args.throttle);
    match check_restorable(&Env::system(), objects, restore_to(args), requests) {
        Ok(()) => Ok(None),
        Err(BackupError::NoState { first_micros, .. }) => Ok(Some(first_micros.saturating_mul(10))),
        Err(error) => Err(backup_error(error)),
    }
}

/// Returns the failure of a restore.
fn restore_error(error: BackupError) -> CommandError {
    match error {
        BackupError::NoState { location, first_micros } => CommandError::Usage(format!(
            "the backup in {location} has no state of that time or before; its first state is of \
             {}: name that time or a later one",
            time(first_micros)
        )),
        error => backup_error(error),
    }
}

/// Restores a store from the object store into the directory, to the last run up to the time that
/// the arguments name.
pub fn restore(
    directory: &Path,
    objects: Arc<dyn Objects>,
    args: &RestoreArgs,
) -> CommandResult<ObjectBackupOutcome> {
    refuse_file(directory)?;
    let (env, requests) = (Env::system(), options(args.throttle));
    let restored = restore_from_objects(&env, objects, directory, restore_to(args), requests);
    let report = restored.map_err(restore_error)?;
    note_resumed(report.is_resumed, directory);
    let json = json!({
        "time": time(report.captured_micros),
        "sequence": report.last_sequence,
        "is_resumed": report.is_resumed,
        "manifest": report.manifest,
        "files": report.files,
        "bytes": report.bytes,
    });
    let line = format!(
        "restored {}: all writes up to {}, {} in {}",
        directory.display(),
        time(report.captured_micros),
        numbers::bytes(report.bytes),
        numbers::counted(report.files, "file"),
    );
    Ok(ObjectBackupOutcome::new("the store was restored", vec![line], json))
}

/// Checks every object of the backup.
pub fn verify(objects: Arc<dyn Objects>) -> CommandResult<ObjectBackupOutcome> {
    let location = objects.location().to_owned();
    let report = verify_objects(&Env::system(), objects, options(None)).map_err(backup_error)?;
    let undamaged = format!(
        "the backup in {location} is undamaged: {} in {} checked",
        numbers::bytes(report.bytes),
        numbers::counted(report.objects, "object"),
    );
    let ranges = report.restorable.iter().map(|range| {
        format!(
            "can be restored: states of {} to {}",
            time(range.first_wall_micros),
            time(range.last_wall_micros),
        )
    });
    let json = verify_json(&report);
    Ok(ObjectBackupOutcome::verified(&report.damage, undamaged, ranges, json))
}

fn verify_json(report: &ObjectVerifyReport) -> Value {
    let range = |range: &RestorableManifests| {
        json!({
            "first_manifest": range.first,
            "last_manifest": range.last,
            "first_time": time(range.first_wall_micros),
            "last_time": time(range.last_wall_micros),
        })
    };
    json!({
        "backup": true,
        "sequence": report.last_sequence,
        "first_manifest": report.first_manifest,
        "newest_manifest": report.newest_manifest,
        "objects": report.objects,
        "bytes": report.bytes,
        "damage": report.damage.iter().map(BackupError::to_string).collect::<Vec<_>>(),
        "restorable": report.restorable.iter().map(range).collect::<Vec<_>>(),
    })
}
