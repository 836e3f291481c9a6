//! Executes a repair plan. The process can be killed at any point without further loss.
//!
//! ```text
//! keep      damaged-N/ with the report and a copy of the manifest -> sync
//! mark      REPAIR -> sync: from here on the store does not open
//! write     the salvaged events of each chunk, as files in no manifest -> sync -> sync log/
//! publish   the chunk manifest: from here on the store is the repaired one
//! move      damaged chunks, the index and the filter into damaged-N/ -> sync
//! unmark    remove REPAIR -> sync
//! ```
//!
//! After a kill before the manifest is published, the next repair begins again, from the same
//! files. After a kill once the manifest is published, which its generation and seed show, the next
//! repair only moves the remaining files.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use umbel_env::{Access, Env};

use crate::event_log::chunk_manifest::{ChunkManifest, chunk_directory};
use crate::open::repair_marker::RepairMarker;
use crate::repair::log_survey::chunk_files;
use crate::repair::repair_plan::RepairPlan;
use crate::types::error::{Error, Result};

const MANIFEST_COPY_NAME: &str = "CHUNKS";
const REPORT_NAME: &str = "report.txt";

/// Name of the directory with this number that receives the damaged files.
fn damaged_folder_name(number: u64) -> String {
    format!("damaged-{number}")
}

/// Repair that was interrupted after it had published its chunk manifest.
#[derive(Debug)]
pub struct ResumedRepair {
    /// Directory with the damaged files and the report.
    pub folder: String,
    /// Whether some events could not be salvaged.
    pub is_loss: bool,
}

/// Finishes a repair whose chunk manifest is already published. Returns the finished repair; `None`
/// if no repair was interrupted at this stage.
pub fn resume(env: &Env, folder: &Path, dry_run: bool) -> Result<Option<ResumedRepair>> {
    let Some(marker) = RepairMarker::read(env, folder)? else { return Ok(None) };
    let is_there = ChunkManifest::exists(env, folder)?;
    let manifest = if is_there { ChunkManifest::read(env, folder).ok() } else { None };
    let Some(manifest) = manifest.filter(|manifest| marker.is_published_by(manifest)) else {
        return Ok(None);
    };
    if !dry_run {
        finish_published(env, folder, marker, &manifest)?;
    }
    Ok(Some(ResumedRepair { folder: damaged_folder_name(marker.number), is_loss: marker.is_loss }))
}

/// Executes the plan, and returns the name of the directory with the damaged files.
///
/// # Errors
/// A failed call, for example when the disk is full. If the manifest was not published yet, the
/// store is unchanged.
pub fn execute_plan(env: &Env, folder: &Path, mut plan: RepairPlan) -> Result<String> {
    let number = unused_folder_number(env, folder)?;
    let target = folder.join(damaged_folder_name(number));
    let (generation, is_seed_new) = (plan.generation, plan.is_seed_new);
    let is_loss = plan.report.has_loss();
    let seed_checksum = RepairMarker::checksum_of(&plan.manifest.seed);
    let marker = RepairMarker { number, generation, seed_checksum, is_seed_new, is_loss };
    let prepared = prepare_publish(env, folder, &target, marker, &mut plan);
    let published = prepared.and_then(|()| Ok(plan.manifest.write(env, folder)?));
    if let Err(error) = published {
        let manifest = ChunkManifest::read(env, folder).ok();
        if manifest.is_none_or(|manifest| manifest.generation <= generation) {
            // The first failure is reported; the remaining files do no harm.
            let _ = undo_unpublished(env, folder, &target, &plan);
        }
        return Err(error);
    }
    finish_published(env, folder, marker, &plan.manifest)?;
    Ok(damaged_folder_name(number))
}

/// Removes the files that the repair created, since it could not publish the manifest.
fn undo_unpublished(env: &Env, folder: &Path, target: &Path, plan: &RepairPlan) -> Result<()> {
    let made = plan.rebuilds.iter().map(|rebuild| rebuild.target(folder));
    for path in made.chain([target.join(REPORT_NAME), target.join(MANIFEST_COPY_NAME)]) {
        let _ = env.files.remove_file(&path);
    }
    // Other files in it are not the store's, and keep the directory.
    let _ = env.files.remove_dir(target);
    RepairMarker::remove(env, folder)
}

/// Executes all steps before the manifest is published.
fn prepare_publish(
    env: &Env,
    folder: &Path,
    target: &Path,
    marker: RepairMarker,
    plan: &mut RepairPlan,
) -> Result<()> {
    env.files.create_dir_all(target)?;
    write_new(env, &target.join(REPORT_NAME), plan.report.to_string().as_bytes())?;
    let manifest_copy = folder.join(MANIFEST_COPY_NAME);
    if env.files.exists(&manifest_copy)? {
        let bytes = crate::repair::log_survey::read_file(env, &manifest_copy)?;
        write_new(env, &target.join(MANIFEST_COPY_NAME), &bytes)?;
    }
    env.files.sync_dir(target)?;
    marker.write(env, folder)?;
    env.files.create_dir_all(&chunk_directory(folder))?;
    for rebuild in &plan.rebuilds {
        let (bytes, scavenged) = rebuild.build_file(env, &plan.streams)?;
        write_new(env, &rebuild.target(folder), &bytes)?;
        plan.manifest.chunks[rebuild.manifest_index].scavenged = Some(scavenged);
        let entry = &mut plan.manifest.chunks[rebuild.manifest_index];
        let end = scavenged.last_event + 8;
        entry.ended = entry.ended.map(|ended| crate::event_log::chunk_manifest::ChunkEnd {
            end: ended.end.max(end),
            seal: None,
            ..ended
        });
    }
    // Chunks that no manifest named differ from those of any copy.
    for entry in plan.manifest.chunks.iter_mut().filter(|entry| entry.key == 0) {
        entry.key = env.entropy.number()?;
    }
    for path in &plan.unsynced {
        env.files.open(path, Access::ReadWrite)?.sync()?;
    }
    Ok(env.files.sync_dir(&chunk_directory(folder))?)
}

/// Executes all steps after the manifest is published.
fn finish_published(
    env: &Env,
    folder: &Path,
    marker: RepairMarker,
    manifest: &ChunkManifest,
) -> Result<()> {
    let target = folder.join(damaged_folder_name(marker.number));
    env.files.create_dir_all(&target)?;
    let log = chunk_directory(folder);
    let named: HashSet<PathBuf> = manifest.chunks.iter().map(|entry| entry.path(folder)).collect();
    for file in chunk_files(env, folder)? {
        let path = log.join(&file.name);
        if !named.contains(&path) {
            env.files.rename(&path, &target.join(&file.name))?;
        }
    }
    env.files.sync_dir(&log)?;
    // The filter may cover lost events, and is soon rebuilt with the index.
    for name in ["index", "existence"] {
        if env.files.exists(&folder.join(name))? && !env.files.exists(&target.join(name))? {
            env.files.rename(&folder.join(name), &target.join(name))?;
        }
    }
    env.files.sync_dir(&target)?;
    env.files.sync_dir(folder)?;
    RepairMarker::remove(env, folder)
}

/// Returns the number of a directory that does not exist or is empty. A number whose name belongs
/// to a file is not used either.
fn unused_folder_number(env: &Env, folder: &Path) -> Result<u64> {
    let entries = env.files.read_dir(folder)?;
    let number_of = |name: &str| {
        let number = name.strip_prefix("damaged-")?.parse().ok()?;
        (damaged_folder_name(number) == name).then_some(number)
    };
    let numbered = entries.iter().filter_map(|entry| Some((number_of(&entry.name)?, entry)));
    let Some((newest, entry)) = numbered.max_by_key(|(number, _)| *number) else { return Ok(1) };
    let is_empty = entry.is_directory && env.files.read_dir(&folder.join(&entry.name))?.is_empty();
    let next = if is_empty { Some(newest) } else { newest.checked_add(1) };
    next.ok_or_else(|| {
        let name = damaged_folder_name(newest);
        Error::invalid(format!(
            "there is no free number after the directory {name}; rename that directory"
        ))
    })
}

fn write_new(env: &Env, path: &Path, bytes: &[u8]) -> Result<()> {
    let file = env.files.create(path)?;
    file.write_all_at(bytes, 0)?;
    Ok(file.sync()?)
}
