//! Backups of key-value stores in object stores: `umbel backup --to URL`, `umbel restore --from
//! URL` and `umbel verify --from URL`.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use umbel::{
    BackupError, Db, Durability, ObjectBackupOptions, ObjectBackupReport, ObjectVerifyReport,
    RestorableManifests, RestoreTo, RetentionOptions, RetentionReport, restore_from_objects,
    retain, verify_objects,
};
use umbel_env::{Env, Objects};

use crate::backup_objects::{backup_error, open_for_backup, options};
use crate::errors::{CommandError, CommandResult};
use crate::events::event_args::{BackupArgs, RestoreArgs};
use crate::events::timestamps;
use crate::io::output::Output;
use crate::open_kv_store::{StoreLocation, refuse_file, require_directory};
use crate::text::numbers;

/// Maximum number of damages and ranges that are named; the others are only counted.
const REPORTED_LINES_MAX: usize = 20;

/// Time in RFC 3339 from microseconds since 1970.
fn time(micros: u64) -> String {
    timestamps::rfc3339(micros.saturating_mul(10))
}

/// Backs up the store into the object store.
pub fn back_up(
    store: &StoreLocation,
    url: &str,
    args: &BackupArgs,
    json: bool,
) -> CommandResult<()> {
    let env = Env::system();
    let db = store.open_existing(Durability::Buffered)?;
    let done = back_up_store(&db, &env, url, args);
    let closed = db.close();
    let (objects, report) = done?;
    closed?;
    let retention = args.keep.map(|keep| {
        let requests = options(args.throttle);
        retain(&env, objects.clone(), RetentionOptions { keep, dry_run: args.dry_run, requests })
    });
    let retention = retention.transpose().map_err(backup_error)?;
    print_backup(objects.location(), &report, retention.as_ref().map(|it| (it, args)), json)
}

fn back_up_store(
    db: &Db,
    env: &Env,
    url: &str,
    args: &BackupArgs,
) -> CommandResult<(Arc<dyn Objects>, ObjectBackupReport)> {
    let objects = open_for_backup(env, url)?;
    let requests = options(args.throttle);
    let options = ObjectBackupOptions { requests, ..ObjectBackupOptions::default() };
    let backup = db.object_backup(Arc::clone(&objects), options).map_err(backup_error)?;
    let report = backup.run_once().map_err(backup_error)?;
    Ok((objects, report))
}

fn print_backup(
    location: &str,
    report: &ObjectBackupReport,
    retention: Option<(&RetentionReport, &BackupArgs)>,
    json: bool,
) -> CommandResult<()> {
    let mut output = Output::new();
    if json {
        let retained = retention.map(|(it, args)| retention_json(it, args.dry_run));
        output.json(&json!({
            "time": time(report.captured_micros),
            "sequence": report.last_sequence,
            "manifest": report.manifest,
            "uploaded_objects": report.uploaded_objects,
            "uploaded_bytes": report.uploaded_bytes,
            "requests": report.requests,
            "retention": retained,
        }))?;
        return output.flush();
    }
    output.line(&format!(
        "backed up to {location}: all writes up to {}, {} in {} uploaded now",
        time(report.captured_micros),
        numbers::bytes(report.uploaded_bytes),
        numbers::counted(report.uploaded_objects, "object"),
    ))?;
    if let Some((done, args)) = retention {
        let verb = if args.dry_run { "would be deleted" } else { "deleted" };
        output.line(&format!(
            "{verb}: {} and {} with {}; every state from {} on can be restored",
            numbers::counted(done.deleted_manifests, "manifest"),
            numbers::counted(done.deleted_objects, "object"),
            numbers::bytes(done.deleted_bytes),
            time(done.first_captured_micros),
        ))?;
    }
    output.flush()
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

/// Restores a store from the object store into the directory.
pub fn restore(
    directory: Option<&Path>,
    objects: Arc<dyn Objects>,
    args: &RestoreArgs,
    json: bool,
) -> CommandResult<()> {
    if args.to_position.is_some() {
        return Err(CommandError::usage(
            "the backup is that of a key-value store, which has no positions: leave out \
             --to-position, or name a time with --to-time",
        ));
    }
    let directory = require_directory(directory)?;
    refuse_file(directory)?;
    // The argument counts in units of 100 ns.
    let restore_to = args.to_time.map_or(RestoreTo::Latest, |time| RestoreTo::Time(time / 10));
    let env = Env::system();
    let restored =
        restore_from_objects(&env, objects, directory, restore_to, options(args.throttle));
    let report = restored.map_err(backup_error)?;
    let mut output = Output::new();
    if json {
        output.json(&json!({
            "time": time(report.captured_micros),
            "sequence": report.last_sequence,
            "manifest": report.manifest,
            "files": report.files,
            "bytes": report.bytes,
        }))?;
    } else {
        output.line(&format!(
            "restored {}: all writes up to {}, {} in {}",
            directory.display(),
            time(report.captured_micros),
            numbers::bytes(report.bytes),
            numbers::counted(report.files, "file"),
        ))?;
    }
    output.flush()
}

/// Checks every object of the backup. Prints each damage; the command then fails.
pub fn verify(objects: Arc<dyn Objects>, json: bool) -> CommandResult<()> {
    let location = objects.location().to_owned();
    let report = verify_objects(&Env::system(), objects, options(None)).map_err(backup_error)?;
    let mut output = Output::new();
    match json {
        true => output.json(&verify_json(&report))?,
        false => print_verification(&location, &report, &mut output)?,
    }
    output.flush()?;
    if report.damage.is_empty() {
        return Ok(());
    }
    Err(CommandError::Damaged(format!(
        "the backup in {location} is damaged in {}: restore the objects from a version or a copy, \
         or back up the store to another prefix",
        numbers::counted(report.damage.len() as u64, "place")
    )))
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

fn print_verification(
    location: &str,
    report: &ObjectVerifyReport,
    output: &mut Output,
) -> CommandResult<()> {
    for damage in report.damage.iter().take(REPORTED_LINES_MAX) {
        output.line(&damage.to_string())?;
    }
    if report.damage.is_empty() {
        output.line(&format!(
            "the backup in {location} is undamaged: {} in {} checked",
            numbers::bytes(report.bytes),
            numbers::counted(report.objects, "object"),
        ))?;
    }
    for range in report.restorable.iter().take(REPORTED_LINES_MAX) {
        output.line(&format!(
            "can be restored: states of {} to {}",
            time(range.first_wall_micros),
            time(range.last_wall_micros),
        ))?;
    }
    Ok(())
}
