//! `umbel backup`, `umbel restore`, and `umbel verify` of a backup.

use std::path::Path;

use serde_json::json;
use umbel::{Durability, Error};
use umbel_env::Env;
use umbel_events::{
    BackupReport, CopyOptions, CopyProgress, Position, is_backup as holds_backup, verify_backup,
};

use crate::backup_url::refuse_unnamed_url;
use crate::errors::{CommandError, CommandResult};
use crate::events::client::connection_string::ConnectionString;
use crate::events::client::server_work::ServerWork;
use crate::events::client::shell_command::store_command;
use crate::events::event_args::{BackupArgs, RestoreArgs};
use crate::events::object_backup;
use crate::events::open_event_store;
use crate::events::remaining_data::with_server_remedy;
use crate::events::server_history::ServerHistory;
use crate::global_options::StoreLimits;
use crate::io::output::{Output, note};
use crate::io::progress::{Progress, Unit};
use crate::open_kv_store::{refuse_file, refuse_file_as_backup, require_directory};
use crate::store_kind::KV_DIRECTORY;
use crate::text::escaping::printable_line;
use crate::text::numbers;

/// Maximum number of damages that are named; the others are only counted.
const REPORTED_DAMAGES_MAX: usize = 20;

/// Remedy where a server has the store open.
const AT_A_SERVER: &str = "let the server back up: umbel backup --connect ADDRESS";

/// Whether the directory holds a backup.
pub fn is_backup(directory: &Path) -> bool {
    holds_backup(&Env::system(), directory).unwrap_or(false)
}

/// Runs a backup, restore or verification while a progress bar shows its progress.
fn with_progress<T>(
    name: &str,
    env: &Env,
    (bytes_per_second, limits): (Option<u64>, StoreLimits),
    work: impl FnOnce(CopyOptions<'_>) -> umbel_events::Result<T>,
) -> CommandResult<T> {
    let mut progress: Option<Progress> = None;
    let mut show = |done: CopyProgress| {
        let total = Some(done.total_bytes);
        let progress =
            progress.get_or_insert_with(|| Progress::new(name, Unit::Bytes, total, &env.clock));
        progress.set(done.bytes, String::new);
    };
    let lock_wait = limits.lock_wait();
    let progress: Option<&mut dyn FnMut(CopyProgress)> = Some(&mut show);
    let options = CopyOptions { bytes_per_second, lock_wait, progress, ..CopyOptions::default() };
    Ok(work(options)?)
}

/// Adds the place and the remedy to an error of a disk or share, if the file of the error lies in
/// the directory. The error itself has the remedy for a store that is in use.
fn at_place(failure: CommandError, directory: &Path, place: &str, again: &str) -> CommandError {
    let CommandError::Store(error) = &failure else { return failure };
    let (Error::Io { operation, path, source } | Error::DiskFull { operation, path, source }) =
        error
    else {
        return failure;
    };
    let absolute = Env::system().files.absolute(directory);
    let is_inside =
        path.starts_with(directory) || absolute.is_ok_and(|directory| path.starts_with(directory));
    match error.disk_remedy().filter(|_| is_inside) {
        Some(remedy) => CommandError::System(format!(
            "could not {operation} {}: {source}; this file is in {place}: {remedy}, then {again}",
            path.display()
        )),
        None => failure,
    }
}

/// Backs up the event store in the directory.
pub fn run(
    directory: Option<&Path>,
    args: &BackupArgs,
    json: bool,
    limits: StoreLimits,
) -> CommandResult<()> {
    let target = match (&args.connect, &args.to) {
        (Some(connect), _) if args.history => return ServerHistory::Backups.print(connect, json),
        (Some(connect), _) => return run_on_server(connect, args.throttle, json),
        (None, Some(target)) => target,
        (None, None) => return Err(CommandError::usage("name the directory with --to DIR")),
    };
    if args.keep.is_some() {
        return Err(CommandError::usage(
            "--keep deletes old states of a backup in an object store, and a directory has only \
             one state: name an object store with --to URL, or leave out --keep",
        ));
    }
    refuse_file_as_backup(target)?;
    let store = open_event_store::open(directory, limits, Durability::Buffered)
        .map_err(|failure| with_server_remedy(failure, limits, AT_A_SERVER))?;
    let env = Env::system();
    let keys = store.path().join(KV_DIRECTORY);
    let omits_keys = keys.is_dir();
    let report = with_progress("backup", &env, (args.throttle, limits), |options| {
        store.backup(target, options)
    });
    let closed = store.close();
    let report = report.map_err(|failure| {
        let again = "run the backup again, which continues with the complete files";
        at_place(failure, target, "the backup, not in the store", again)
    })?;
    closed?;
    if omits_keys {
        note(&format!(
            "umbel: the keys and values in {} are not in this backup; back them up with `{}`, or \
             back up both into an object store with --to URL",
            keys.display(),
            store_command(&["checkpoint", "COPY"], &keys)
        ));
    }
    print_report(&target.display().to_string(), &report, json)
}

/// Lets a server back up its store, and waits for the outcome.
fn run_on_server(connect: &str, throttle: Option<u64>, json: bool) -> CommandResult<()> {
    let address = ConnectionString::parse("--connect", connect)?;
    let clock = Env::system().clock;
    let mut progress: Option<Progress> = None;
    let query = throttle.map(|bytes| format!("?bytesPerSecond={bytes}")).unwrap_or_default();
    let work = ServerWork {
        start: format!("/admin/backup{query}"),
        link: "backupLink",
        result: "backupResult",
        id: "backupId",
        name: "backup",
        history: &["backup", "--history"],
    };
    let ended = work.run(&address, |state| {
        let total = state["totalBytes"].as_u64();
        let progress =
            progress.get_or_insert_with(|| Progress::new("backup", Unit::Bytes, total, &clock));
        progress.set(state["bytes"].as_u64().unwrap_or_default(), String::new);
    })?;
    if let Some(progress) = progress {
        progress.finish();
    }
    let number = |name: &str| ended[name].as_u64().unwrap_or_default();
    let through = ended["through"].as_str().and_then(|text| text.parse().ok());
    let report = BackupReport {
        through: Position(through.unwrap_or_default()),
        number: number("number"),
        files: number("files"),
        bytes: number("backupBytes"),
        copied_files: number("copiedFiles"),
        copied_bytes: number("copiedBytes"),
    };
    if ended["omitsKeysAndValues"].as_bool() == Some(true) {
        note(
            "umbel: the keys and values of the server are not in this backup; its option --kv \
             with --backup-to backs them up, too",
        );
    }
    let directory = printable_line(ended["directory"].as_str().unwrap_or_default());
    print_report(&format!("{directory} of the server"), &report, json)
}

fn print_report(target: &str, report: &BackupReport, json: bool) -> CommandResult<()> {
    let mut output = Output::new().after("the backup was made");
    if json {
        output.json(&json!({
            "position": report.through.0,
            "backups": report.number,
            "files": report.files,
            "bytes": report.bytes,
            "copied_files": report.copied_files,
            "copied_bytes": report.copied_bytes,
        }))?;
    } else {
        output.line(&format!(
            "backed up to {target}: all events up to position {}, {} in {}, {} of it copied now",
            report.through.0,
            numbers::bytes(report.bytes),
            numbers::counted(report.files, "file"),
            numbers::bytes(report.copied_bytes),
        ))?;
    }
    output.flush()
}

/// Restores a store from a backup into the directory.
pub fn restore(
    directory: Option<&Path>,
    args: &RestoreArgs,
    json: bool,
    limits: StoreLimits,
) -> CommandResult<()> {
    if args.to_position.is_some() || args.to_time.is_some() {
        return Err(CommandError::usage(
            "a backup in a directory has only one state: leave out --to-position and --to-time, or \
             restore from an object store",
        ));
    }
    let directory = require_directory(directory)?;
    refuse_file(directory)?;
    refuse_file_as_backup(&args.from)?;
    let env = Env::system();
    let report = with_progress("restore", &env, (args.throttle, limits), |options| {
        umbel_events::restore(&env, &args.from, directory, options)
    });
    let again = "run the restore again, which continues";
    let report = report
        .map_err(|failure| at_place(failure, &args.from, "the backup", again))
        .map_err(|failure| at_place(failure, directory, "the restored store", again))?;
    let mut output = Output::new().after("the store was restored");
    if json {
        output.json(&json!({
            "position": report.through.0,
            "files": report.files,
            "bytes": report.bytes,
        }))?;
    } else {
        output.line(&object_backup::restored_sentence(
            directory,
            report.through,
            (report.bytes, report.files),
        ))?;
    }
    output.flush()
}

/// Checks every byte of the backup in the directory. Prints each damage with file and offset; the
/// command then fails.
pub fn verify(directory: Option<&Path>, json: bool, limits: StoreLimits) -> CommandResult<()> {
    let directory = require_directory(directory)?;
    refuse_unnamed_url(directory)?;
    let env = Env::system();
    let start = env.clock.now();
    let report = with_progress("verify", &env, (None, limits), |options| {
        verify_backup(&env, directory, options)
    });
    let report =
        report.map_err(|failure| at_place(failure, directory, "the backup", "verify it again"))?;
    let seconds = env.clock.now().saturating_sub(start).as_secs_f64();
    let damage: Vec<String> =
        report.damage.iter().map(umbel_events::Error::message_without_advice).collect();
    let mut output = Output::of_verdict();
    let shown = directory.display();
    if json {
        output.json(&json!({
            "backup": true,
            "position": report.through.0,
            "backups": report.number,
            "files": report.files,
            "bytes": report.bytes,
            "damage": damage,
            "seconds": seconds,
        }))?;
    } else if damage.is_empty() {
        output.line(&format!(
            "the backup in {shown} is undamaged: all events up to position {}, {} in {} checked in \
             {seconds:.1} s",
            report.through.0,
            numbers::bytes(report.bytes),
            numbers::counted(report.files, "file"),
        ))?;
    } else {
        for damage in damage.iter().take(REPORTED_DAMAGES_MAX) {
            output.line(&printable_line(damage))?;
        }
    }
    output.flush()?;
    if damage.is_empty() {
        return Ok(());
    }
    Err(CommandError::Damaged(format!(
        "the backup in {shown} is damaged in {} and cannot be restored: back up the store \
         to another directory, or copy the damaged files from another copy of this backup",
        numbers::counted(damage.len() as u64, "place")
    )))
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    /// Story: on a full backup disk, the advice was about the store: nothing acknowledged was lost,
    /// and deleting was possible. Other errors of a disk had no remedy.
    #[test]
    fn disk_errors_name_place_and_remedy() {
        let failure = |path: &str, kind: io::ErrorKind| {
            let error = Error::io("write to", Path::new(path), io::Error::from(kind));
            let failure = CommandError::from(error);
            let shown = at_place(failure, Path::new("/mnt/backup"), "the backup", "run it again");
            assert_eq!(shown.exit_code(), 4);
            shown.to_string()
        };
        for (kind, remedy) in [
            (io::ErrorKind::StorageFull, "free space on that disk"),
            (io::ErrorKind::ReadOnlyFilesystem, "mount its file system for writing"),
            (io::ErrorKind::NotConnected, "mount its file system again"),
            (io::ErrorKind::StaleNetworkFileHandle, "mount its file system again"),
        ] {
            let text = failure("/mnt/backup/log/1.chunk", kind);
            assert!(text.starts_with("could not write to /mnt/backup/log/1.chunk: "), "{text}");
            assert!(text.contains("this file is in the backup: "), "{text}");
            assert!(text.ends_with(&format!("{remedy}, then run it again")), "{text}");
            assert!(!text.contains("nothing acknowledged"), "{text}");
        }
        let of_store = failure("/mnt/store/1.wal", io::ErrorKind::StorageFull);
        assert!(of_store.contains("nothing acknowledged"), "{of_store}");
        let denied = failure("/mnt/backup/LOCK", io::ErrorKind::PermissionDenied);
        assert!(!denied.contains("this file is in"), "{denied}");
    }
}
