//! Doing what was planned, so that it can be killed at any point.
//!
//! ```text
//! keep      damaged-N/ with the report and a copy of the table -> sync
//! mark      REPAIR -> sync: from here on the store does not open
//! write     what was saved of each chunk, as files that no table names -> sync -> sync log/
//! publish   the table: from here on the store is the repaired one
//! move      damaged chunks, the index and the filter into damaged-N/ -> sync
//! unmark    remove REPAIR -> sync
//! ```
//!
//! Killed before the table is published, the repair begins again, from the same files. Killed after
//! that, which the table's generation and seed tell, it only moves what is left to be moved.

use std::path::Path;

use umbel_env::{Access, Env};

use super::plan::Plan;
use super::survey::chunk_files;
use crate::chunk_table::{ChunkTable, chunk_folder};
use crate::error::{Error, Result};
use crate::repair_marker::RepairMarker;

const TABLE: &str = "CHUNKS";
const REPORT: &str = "report.txt";

/// The name of the folder with this number that takes what was damaged.
fn folder_name(number: u64) -> String {
    format!("damaged-{number}")
}

/// A repair that was interrupted when its table had been published.
#[derive(Debug)]
pub struct Resumed {
    /// The folder with what was damaged, and with its report.
    pub folder: String,
    /// Whether something could not be saved.
    pub is_loss: bool,
}

/// Brings a repair to its end whose table is published already. Returns what it was; `None` where
/// there is none.
pub fn resume(env: &Env, folder: &Path, dry_run: bool) -> Result<Option<Resumed>> {
    let Some(marker) = RepairMarker::read(env, folder)? else { return Ok(None) };
    let is_there = ChunkTable::exists(env, folder)?;
    let table = if is_there { ChunkTable::read(env, folder).ok() } else { None };
    let Some(table) = table.filter(|table| marker.is_published_by(table)) else {
        return Ok(None);
    };
    if !dry_run {
        finish(env, folder, marker, &table)?;
    }
    Ok(Some(Resumed { folder: folder_name(marker.number), is_loss: marker.is_loss }))
}

/// Does what was planned, and returns the name of the folder that has the damaged files.
///
/// # Errors
/// A failed call, as when the disk is full. Where the table was not published yet, the store is as
/// it was.
pub fn carry_out(env: &Env, folder: &Path, mut plan: Plan) -> Result<String> {
    let number = free_number(env, folder)?;
    let target = folder.join(folder_name(number));
    let (generation, is_seed_new) = (plan.generation, plan.is_seed_new);
    let is_loss = plan.report.is_loss();
    let seed_checksum = RepairMarker::checksum_of(&plan.table.seed);
    let marker = RepairMarker { number, generation, seed_checksum, is_seed_new, is_loss };
    let prepared = prepare(env, folder, &target, marker, &mut plan);
    let published = prepared.and_then(|()| Ok(plan.table.write(env, folder)?));
    if let Err(error) = published {
        let table = ChunkTable::read(env, folder).ok();
        if table.is_none_or(|table| table.generation <= generation) {
            // The first failure is the one to report; what stays is in nobody's way.
            let _ = undo(env, folder, &target, &plan);
        }
        return Err(error);
    }
    finish(env, folder, marker, &plan.table)?;
    Ok(folder_name(number))
}

/// Takes away what was made before the table was published.
fn undo(env: &Env, folder: &Path, target: &Path, plan: &Plan) -> Result<()> {
    let made = plan.rebuilds.iter().map(|rebuild| rebuild.target(folder));
    for path in made.chain([target.join(REPORT), target.join(TABLE)]) {
        let _ = env.files.remove_file(&path);
    }
    // What else is in it is somebody's, and keeps it.
    let _ = env.files.remove_dir(target);
    RepairMarker::remove(env, folder)
}

/// Everything up to the table.
fn prepare(
    env: &Env,
    folder: &Path,
    target: &Path,
    marker: RepairMarker,
    plan: &mut Plan,
) -> Result<()> {
    env.files.create_dir_all(target)?;
    write_new(env, &target.join(REPORT), plan.report.to_string().as_bytes())?;
    let table = folder.join(TABLE);
    if env.files.exists(&table)? {
        let bytes = super::survey::read_file(env, &table)?;
        write_new(env, &target.join(TABLE), &bytes)?;
    }
    env.files.sync_dir(target)?;
    marker.write(env, folder)?;
    env.files.create_dir_all(&chunk_folder(folder))?;
    for rebuild in &plan.rebuilds {
        let (bytes, packed) = rebuild.pack(env, &plan.streams)?;
        write_new(env, &rebuild.target(folder), &bytes)?;
        plan.table.chunks[rebuild.number].packed = Some(packed);
        let entry = &mut plan.table.chunks[rebuild.number];
        let end = packed.last_event + 8;
        entry.ended = entry.ended.map(|ended| crate::chunk_table::Ended {
            end: ended.end.max(end),
            sealed: None,
            ..ended
        });
    }
    // Chunks that no table named are others than those of any copy.
    for entry in plan.table.chunks.iter_mut().filter(|entry| entry.key == 0) {
        entry.key = env.entropy.number()?;
    }
    for path in &plan.unsynced {
        env.files.open(path, Access::ReadWrite)?.sync()?;
    }
    Ok(env.files.sync_dir(&chunk_folder(folder))?)
}

/// Everything behind the table.
fn finish(env: &Env, folder: &Path, marker: RepairMarker, table: &ChunkTable) -> Result<()> {
    let target = folder.join(folder_name(marker.number));
    env.files.create_dir_all(&target)?;
    let log = chunk_folder(folder);
    for file in chunk_files(env, folder)? {
        let path = log.join(&file.name);
        if table.chunks.iter().all(|entry| entry.path(folder) != path) {
            env.files.rename(&path, &target.join(&file.name))?;
        }
    }
    env.files.sync_dir(&log)?;
    // The filter may cover what is lost now, and is soon made anew with the index.
    for name in ["index", "existence"] {
        if env.files.exists(&folder.join(name))? && !env.files.exists(&target.join(name))? {
            env.files.rename(&folder.join(name), &target.join(name))?;
        }
    }
    env.files.sync_dir(&target)?;
    env.files.sync_dir(folder)?;
    RepairMarker::remove(env, folder)
}

/// The number of a folder that does not exist or is empty. Whatever has such a name and is not a
/// folder is let be, too.
fn free_number(env: &Env, folder: &Path) -> Result<u64> {
    let entries = env.files.read_dir(folder)?;
    let number_of = |name: &str| {
        let number = name.strip_prefix("damaged-")?.parse().ok()?;
        (folder_name(number) == name).then_some(number)
    };
    let numbered = entries.iter().filter_map(|entry| Some((number_of(&entry.name)?, entry)));
    let Some((newest, entry)) = numbered.max_by_key(|(number, _)| *number) else { return Ok(1) };
    let is_empty = entry.is_directory && env.files.read_dir(&folder.join(&entry.name))?.is_empty();
    let next = if is_empty { Some(newest) } else { newest.checked_add(1) };
    next.ok_or_else(|| {
        let name = folder_name(newest);
        Error::invalid(format!("there is no number behind that of {name}; rename the folder"))
    })
}

fn write_new(env: &Env, path: &Path, bytes: &[u8]) -> Result<()> {
    let file = env.files.create(path)?;
    file.write_all_at(bytes, 0)?;
    Ok(file.sync()?)
}
