//! Repair of a damaged store. The salvageable part of its event log keeps its positions and
//! revisions. The report names what is lost, and the damaged files are moved aside.
//!
//! A damaged chunk is rewritten as in a scavenge, with its salvaged events; readers skip lost
//! positions. `docs/how-to/repair.md` describes the repair for users.

use std::path::Path;

use umbel_env::{Env, check_path};

use crate::backup::backup_manifest::{check_no_backup, restore_marker_path};
use crate::event_log::chunk_manifest::ChunkManifest;
use crate::event_log::replica_file::check_not_replica;
use crate::types::error::{Error, Result};

mod execute;
mod foreign_chunks;
mod fuzz_fixture;
mod index_ownership;
mod inspect_orphan;
mod log_survey;
mod lost_epochs;
mod lost_tail;
mod old_index_events;
mod orphan_chunks;
mod renamed_chunks;
mod repair_plan;
mod repair_report;
mod salvage;
mod stale_manifest;

pub use repair_report::{
    ChunkRepair, LostRange, LostRevisions, RepairOptions, RepairReport, UnplacedChunk,
};

pub use fuzz_fixture::fuzz;
pub use lost_tail::find_unrecovered;

use execute::ResumedRepair;
use old_index_events::OldIndexEvents;
use repair_plan::RepairPlan;

/// Repairs the event store in a folder, which no process may have open. The repair reads the whole
/// store before it changes anything. If the process is killed during a repair, another call of
/// `repair` continues.
///
/// The repair keeps every append that can be read as a whole and that is proven to have been
/// appended. The proof is the chain of events, the chunk manifest or the index. Kept events keep
/// their positions and revisions; readers skip lost events, and the report names the loss. The
/// damaged files go into a directory `damaged-N` of the store. The next open rebuilds the index.
///
/// # Errors
/// `Invalid` if the folder holds no event store, `Locked` if another handle has the store open, and
/// errors such as a full disk. An error loses no data.
pub fn repair(env: &Env, folder: &Path, options: RepairOptions) -> Result<RepairReport> {
    check_path("the event store", folder)?;
    let folder = &*env.files.absolute(folder)?;
    check_repairable(env, folder)?;
    let env = &env.open_directory(folder)?;
    let locked = env.lock(&folder.join("LOCK"), options.lock_wait);
    let is_unlocked = match &locked {
        // A dry run also works on a store that the operator cannot write to.
        Err(umbel::Error::Locked(_)) => false,
        Err(_) => options.dry_run,
        Ok(_) => false,
    };
    let _lock = if is_unlocked { None } else { Some(locked?) };
    check_not_replica(env, folder)?;
    let resumed = execute::resume(env, folder, options.dry_run)?;
    if let Some(ResumedRepair { folder, is_loss }) = resumed.as_ref().filter(|_| options.dry_run) {
        return Ok(RepairReport {
            folder: Some(folder.clone()),
            is_resumed: true,
            is_resumed_loss: *is_loss,
            is_unlocked,
            ..RepairReport::default()
        });
    }
    let mut survey = log_survey::survey_log(env, folder)?;
    let files = log_survey::chunk_files(env, folder)?;
    let index = OldIndexEvents::load(env, folder, survey.manifest.seed)?;
    let readable = index.as_ref().and_then(|index| index.as_ref().ok());
    orphan_chunks::adopt_orphans(
        env,
        folder,
        &files,
        readable,
        &mut survey,
        options.accept_unproven,
    )?;
    let plan = RepairPlan::build(env, folder, index, survey, options)?;
    let mut report = plan.report.clone();
    report.is_unlocked = is_unlocked;
    report.is_resumed = resumed.is_some();
    report.is_resumed_loss = resumed.as_ref().is_some_and(|resumed| resumed.is_loss);
    report.folder = resumed.map(|resumed| resumed.folder);
    if plan.is_needed() && !options.dry_run {
        report.folder = Some(execute::execute_plan(env, folder, plan)?);
    } else if !options.dry_run {
        // A repair was killed before it published anything, of a store that is whole by now.
        crate::open::repair_marker::RepairMarker::remove(env, folder)?;
    }
    Ok(report)
}

/// Returns an error if the folder holds no event store.
fn check_repairable(env: &Env, folder: &Path) -> Result<()> {
    if ChunkManifest::exists(env, folder)? {
        return Ok(());
    }
    if env.files.exists(folder)? {
        check_no_backup(env, folder)?;
        let is_restoring = env.files.exists(&restore_marker_path(folder))?;
        if !is_restoring && !log_survey::chunk_files(env, folder)?.is_empty() {
            return Ok(());
        }
    }
    Err(Error::invalid(format!("there is no event store in {}", folder.display())))
}
