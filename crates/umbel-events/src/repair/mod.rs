//! Repairing a damaged store: what can be saved of its event log stays, at its positions and with
//! its revisions; what cannot be is named; the damaged files are moved aside.
//!
//! A damaged chunk is written anew as a scavenge would write it, with what was saved; a position
//! that is lost is one that readers pass over. `docs/repair.md` says it for users.

use std::path::Path;

use umbel_env::{Env, check_path};

use crate::backup_manifest::{check_no_backup, marker_path};
use crate::chunk_table::ChunkTable;
use crate::error::{Error, Result};

mod adopt;
mod carry_out;
mod copies;
mod edited;
mod ends;
mod examine;
mod intruders;
mod misplaced;
mod old_index;
mod own_index;
mod plan;
mod report;
mod salvage;
mod survey;

pub use report::{ChunkRepair, LostRange, LostRevisions, RepairOptions, RepairReport, Unplaced};

pub use edited::fuzz;
pub use ends::left_out;

use carry_out::Resumed;
use old_index::OldIndex;
use plan::Plan;

/// Repairs the event store in a folder, which nobody may have open. All of it is read before
/// anything is changed. Killed at any point, it can be called again and goes on.
///
/// Every append is kept that can be read as a whole and that the chain of events, the table of
/// chunks or the index proves to have been appended. Positions and revisions stay; what is lost is
/// passed over by readers and named in the report. The damaged files go into a folder `damaged-N`
/// of the store; the index is made anew when the store is opened.
///
/// # Errors
/// `Invalid` where there is no event store; `Locked` where somebody has it open; what the
/// operating system refuses, as when the disk is full. Nothing is lost then.
pub fn repair(env: &Env, folder: &Path, options: RepairOptions) -> Result<RepairReport> {
    check_path("the event store", folder)?;
    let folder = &*env.files.absolute(folder)?;
    check_store(env, folder)?;
    let env = &env.hold(folder)?;
    let locked = env.lock(&folder.join("LOCK"), options.lock_wait);
    let is_unlocked = match &locked {
        // Whoever changes nothing can look at what he may not write to.
        Err(umbel::Error::Locked(_)) => false,
        Err(_) => options.dry_run,
        Ok(_) => false,
    };
    let _lock = if is_unlocked { None } else { Some(locked?) };
    let resumed = carry_out::resume(env, folder, options.dry_run)?;
    if let Some(Resumed { folder, is_loss }) = resumed.as_ref().filter(|_| options.dry_run) {
        return Ok(RepairReport {
            folder: Some(folder.clone()),
            is_resumed: true,
            is_resumed_loss: *is_loss,
            is_unlocked,
            ..RepairReport::default()
        });
    }
    let mut survey = survey::survey(env, folder)?;
    let files = survey::chunk_files(env, folder)?;
    let index = OldIndex::find(env, folder, survey.table.seed)?;
    let readable = index.as_ref().and_then(|index| index.as_ref().ok());
    adopt::adopt(env, folder, &files, readable, &mut survey, options.accept_unproven)?;
    let plan = Plan::make(env, folder, index, survey, options)?;
    let mut report = plan.report.clone();
    report.is_unlocked = is_unlocked;
    report.is_resumed = resumed.is_some();
    report.is_resumed_loss = resumed.as_ref().is_some_and(|resumed| resumed.is_loss);
    report.folder = resumed.map(|resumed| resumed.folder);
    if plan.is_needed() && !options.dry_run {
        report.folder = Some(carry_out::carry_out(env, folder, plan)?);
    } else if !options.dry_run {
        // A repair that was killed before it published anything, of what is whole by now.
        crate::repair_marker::RepairMarker::remove(env, folder)?;
    }
    Ok(report)
}

/// An error where the folder holds no event store.
fn check_store(env: &Env, folder: &Path) -> Result<()> {
    if ChunkTable::exists(env, folder)? {
        return Ok(());
    }
    if env.files.exists(folder)? {
        check_no_backup(env, folder)?;
        let is_restoring = env.files.exists(&marker_path(folder))?;
        if !is_restoring && !survey::chunk_files(env, folder)?.is_empty() {
            return Ok(());
        }
    }
    Err(Error::invalid(format!("there is no event store in {}", folder.display())))
}
