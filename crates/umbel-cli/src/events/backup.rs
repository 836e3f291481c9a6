//! `umbel backup`, `umbel restore`, and `umbel verify` of a backup.

use std::path::Path;

use serde_json::json;
use umbel::Durability;
use umbel_env::Env;
use umbel_events::{CopyOptions, CopyProgress, is_backup as holds_backup, verify_backup};

use super::args::{BackupArgs, RestoreArgs};
use super::store;
use crate::errors::{Failure, Outcome};
use crate::limits::Limits;
use crate::number;
use crate::output::Output;
use crate::progress::{Progress, Unit};
use crate::store::{refuse_file, required};

/// Named damages; the rest is counted.
const NAMED_DAMAGES: usize = 20;

/// Whether there is a backup in the folder.
pub fn is_backup(folder: &Path) -> bool {
    holds_backup(&Env::system(), folder).unwrap_or(false)
}

/// Does something while its progress is shown.
fn shown<T>(
    name: &str,
    env: &Env,
    (bytes_per_second, limits): (Option<u64>, Limits),
    work: impl FnOnce(CopyOptions<'_>) -> umbel_events::Result<T>,
) -> Outcome<T> {
    let mut progress: Option<Progress> = None;
    let mut show = |done: CopyProgress| {
        let total = Some(done.total_bytes);
        let progress =
            progress.get_or_insert_with(|| Progress::new(name, Unit::Bytes, total, &env.clock));
        progress.set(done.bytes, String::new);
    };
    let lock_wait = limits.lock_wait();
    Ok(work(CopyOptions { bytes_per_second, lock_wait, progress: Some(&mut show) })?)
}

/// Backs up the event store in the folder.
pub fn run(folder: Option<&Path>, args: &BackupArgs, json: bool, limits: Limits) -> Outcome<()> {
    let store = store::open(folder, limits, Durability::Buffered)?;
    let (env, target) = (Env::system(), &args.to);
    let report =
        shown("backup", &env, (args.throttle, limits), |options| store.backup(target, options));
    let closed = store.close();
    let report = report?;
    closed?;
    let mut output = Output::new();
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
            "backed up to {}: everything up to position {}, {} in {}, of which {} were copied now",
            target.display(),
            report.through.0,
            number::bytes(report.bytes),
            files(report.files),
            number::bytes(report.copied_bytes),
        ))?;
    }
    output.flush()
}

/// Makes a store in the folder out of a backup.
pub fn restore(
    folder: Option<&Path>,
    args: &RestoreArgs,
    json: bool,
    limits: Limits,
) -> Outcome<()> {
    let folder = required(folder)?;
    refuse_file(folder)?;
    let env = Env::system();
    let report = shown("restore", &env, (args.throttle, limits), |options| {
        umbel_events::restore(&env, &args.from, folder, options)
    })?;
    let mut output = Output::new();
    if json {
        output.json(&json!({
            "position": report.through.0,
            "files": report.files,
            "bytes": report.bytes,
        }))?;
    } else {
        output.line(&format!(
            "restored {}: everything up to position {}, {} in {}; the index is made when the \
             store is opened",
            folder.display(),
            report.through.0,
            number::bytes(report.bytes),
            files(report.files),
        ))?;
    }
    output.flush()
}

fn files(count: u64) -> String {
    match count {
        1 => "1 file".to_string(),
        count => format!("{} files", number::grouped(count)),
    }
}

/// Checks every byte of the backup in the folder. Each damage is said with file and offset, then
/// the command fails.
pub fn verify(folder: Option<&Path>, json: bool, limits: Limits) -> Outcome<()> {
    let folder = required(folder)?;
    let env = Env::system();
    let start = env.clock.now();
    let report =
        shown("verify", &env, (None, limits), |options| verify_backup(&env, folder, options))?;
    let seconds = env.clock.now().saturating_sub(start).as_secs_f64();
    let damage: Vec<String> =
        report.damage.iter().map(umbel_events::Error::without_remedy).collect();
    let mut output = Output::new();
    let shown = folder.display();
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
            "the backup in {shown} is whole: everything up to position {}, {} in {} checked in \
             {seconds:.1} s",
            report.through.0,
            number::bytes(report.bytes),
            files(report.files),
        ))?;
    } else {
        for damage in damage.iter().take(NAMED_DAMAGES) {
            output.line(damage)?;
        }
    }
    output.flush()?;
    if damage.is_empty() {
        return Ok(());
    }
    Err(Failure::Damaged(format!(
        "the backup in {shown} is damaged in {} places; nothing is restored from it as it is: back \
         up the store to another folder, or take these files from another copy of this backup",
        number::grouped(damage.len() as u64)
    )))
}
