//! Recovery of a replica: keeps its log up to the last applied slot, and removes what follows.
//!
//! The slots decide which records exist, and the file `REPLICA` says which of them this node has
//! durably. What follows comes from later slots, which are applied again, or from the node's own
//! leadership. Nothing else has the latter, so it is moved into a directory `cut-N` first. The file
//! `REPLICA` names this directory before the first change, so every open finishes the cut (B15 of
//! `docs/explanation/replication.md`).
//!
//! FORMAT: `docs/formats/replica.md`.

use std::path::{Path, PathBuf};

use umbel_env::{Access, Env};
use umbel_log::{ExpectedEnd, HEADER_BYTES};
use umbel_slots::LogPoint;

use crate::event_log::chunk_manifest::{
    ChunkEnd, ChunkEntry, ChunkManifest, chunk_directory, chunk_path, parse_chunk_name,
};
use crate::event_log::chunk_scan::{scan_chunk, torn_bytes};
use crate::event_log::replica_file::{
    AppliedLog, EVENT_LOG_KIND, ReplicaRecord, ReplicaState, ReplicatedLog,
};
use crate::types::error::{Error, Result};

/// Bytes of a file that are copied at a time.
const COPY_BYTES: u64 = 1 << 20;
/// Remedy for a directory that is not the one of this replica.
const OTHER_DIRECTORY_REMEDY: &str = "check the options of the cluster; if they are right, move \
                                      the directory away, and start the node with an empty one";

/// The recovered log of a replica.
#[derive(Debug)]
pub struct RecoveredReplica {
    /// The last applied slot.
    pub record: ReplicaRecord,
    /// Point up to which the log has records, all of which are in applied slots.
    pub in_slots: LogPoint,
    /// The chunk that goes on; `None` before the first one, or after one that ended.
    pub open_chunk: Option<OpenChunk>,
}

/// The chunk of a replica that goes on.
#[derive(Debug, Clone, Copy)]
pub struct OpenChunk {
    /// The chunk in the manifest.
    pub entry: ChunkEntry,
    /// Offset after its last record.
    pub end: u64,
    /// Offset of its last event; 0 without events.
    pub last_event: u64,
}

/// Chunks that the applied slots have.
struct AppliedChunks {
    /// The chunks as the manifest should have them.
    chunks: Vec<ChunkEntry>,
    /// End of the last one, and the bytes of its file that the slots decide; `None` without chunks.
    last: Option<(ChunkEnd, u64)>,
}

/// Recovers the log of a replica, and removes what no applied slot has. Creates a replica in a
/// directory without events.
///
/// # Errors
/// `Invalid` if the directory belongs to another replicated log, or is no replica and has events;
/// damage; failed calls.
pub fn recover_replica(
    env: &Env,
    folder: &Path,
    manifest: &mut ChunkManifest,
    log: &ReplicatedLog,
) -> Result<RecoveredReplica> {
    let mut state = match ReplicaState::read(env, folder)? {
        Some(state) => state,
        None => create(env, folder, manifest, log)?,
    };
    check_directory(folder, manifest, log, &state)?;
    let applied = AppliedChunks::find(env, folder, manifest, state.last_log)?;
    let later = later_chunks(env, folder, &applied)?;
    if state.has_led && state.cut == 0 && applied.is_followed(env, folder, &later)? {
        state.cut = unused_number(env, folder)?;
        state.write(env, folder)?;
    }
    let target = (state.cut > 0).then(|| folder.join(cut_name(state.cut)));
    if let Some(target) = &target {
        env.files.create_dir_all(target)?;
        env.files.sync_dir(folder)?;
        copy_last(env, folder, &applied, target)?;
    }
    applied.publish(env, folder, manifest)?;
    remove_later(env, folder, &later, target.as_deref())?;
    if state.has_led {
        (state.has_led, state.cut) = (false, 0);
        state.write(env, folder)?;
    }
    let epoch = state.chain.end.epoch;
    let (in_slots, open_chunk) = (applied.in_slots(epoch), applied.open_chunk());
    let mut record = ReplicaRecord::new(env, folder, state);
    record.moved_aside = target;
    Ok(RecoveredReplica { record, in_slots, open_chunk })
}

/// Makes an event store without events a replica.
fn create(
    env: &Env,
    folder: &Path,
    manifest: &ChunkManifest,
    log: &ReplicatedLog,
) -> Result<ReplicaState> {
    if !manifest.chunks.is_empty() {
        return Err(Error::invalid(format!(
            "{} holds an event store that is no replica; name an empty directory",
            folder.display()
        )));
    }
    let state = ReplicaState::new(log, manifest.instance);
    if manifest.seed == log.seed {
        state.write(env, folder)?;
    }
    Ok(state)
}

/// Returns an error where the directory is not a replica of this log.
fn check_directory(
    folder: &Path,
    manifest: &ChunkManifest,
    log: &ReplicatedLog,
    state: &ReplicaState,
) -> Result<()> {
    let reason = match () {
        () if state.store != log.id || manifest.seed != log.seed => {
            "belongs to another replicated log"
        }
        () if state.instance != manifest.instance => {
            "is a copy of a replica, or was restored into one"
        }
        () => return Ok(()),
    };
    Err(Error::invalid(format!("{} {reason}; {OTHER_DIRECTORY_REMEDY}", folder.display())))
}

impl AppliedChunks {
    /// Verifies the last chunk that the applied slots have, and finds its end.
    fn find(
        env: &Env,
        folder: &Path,
        manifest: &ChunkManifest,
        last: Option<AppliedLog>,
    ) -> Result<AppliedChunks> {
        let Some(last) = last else {
            return Ok(AppliedChunks { chunks: Vec::new(), last: None });
        };
        let manifest_error = |reason: String| -> Error {
            umbel::Error::corruption(&folder.join("CHUNKS"), 0, reason).into()
        };
        let id = last.log.id;
        let index = manifest.chunks.iter().position(|entry| entry.id == id);
        let Some(index) = index.filter(|_| last.log.kind == EVENT_LOG_KIND) else {
            return Err(manifest_error(format!(
                "the applied slots end in log {id} of kind {}, which is no chunk of the manifest: \
                 the manifest is an older copy; {OTHER_DIRECTORY_REMEDY}",
                last.log.kind
            )));
        };
        let mut chunks = manifest.chunks[..=index].to_vec();
        for entry in chunks[..index].iter_mut().filter(|entry| entry.ended.is_none()) {
            // A leader's manifest learns of the end once a further chunk is prepared.
            let scan = scan_chunk(env, folder, entry, ExpectedEnd::Open)?;
            if !scan.outcome.sealed {
                let path = chunk_path(folder, entry.id);
                let reason = format!("this chunk has no end record, and chunk {id} follows");
                return Err(umbel::Error::corruption(&path, scan.outcome.end, reason).into());
            }
            entry.ended = Some(scan.end());
        }
        let entry = &mut chunks[index];
        if entry.scavenged.is_some() {
            return Err(Error::invalid(format!("chunk {id} of a replica was scavenged")));
        }
        let scan = scan_chunk(env, folder, entry, ExpectedEnd::Prefix(last.file_bytes()))?;
        let end = scan.end();
        if (end.end, end.seal.is_some()) != (last.end, last.has_ended) {
            let reason = format!("the chunk does not end at byte {} as in its slots", last.end);
            return Err(umbel::Error::corruption(&chunk_path(folder, id), end.end, reason).into());
        }
        entry.ended = last.has_ended.then_some(end);
        Ok(AppliedChunks { chunks, last: Some((end, last.file_bytes())) })
    }

    /// Whether bytes follow in the last chunk, or a later chunk has some. Zeros are reserved space.
    fn is_followed(&self, env: &Env, folder: &Path, later: &[PathBuf]) -> Result<bool> {
        let last = self.last_file(folder);
        let files = last.iter().map(|(path, bytes)| (path, *bytes));
        for (path, bytes) in files.chain(later.iter().map(|path| (path, HEADER_BYTES))) {
            if torn_bytes(&*env.files.open(path, Access::Read)?, bytes)? > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Path of the last chunk, and the bytes of it that the slots decide.
    fn last_file(&self, folder: &Path) -> Option<(PathBuf, u64)> {
        let (_, bytes) = self.last?;
        Some((chunk_path(folder, self.chunks.last()?.id), bytes))
    }

    /// Writes a manifest with these chunks, unless it has exactly them.
    fn publish(&self, env: &Env, folder: &Path, manifest: &mut ChunkManifest) -> Result<()> {
        let mut changed = manifest.clone();
        changed.chunks.clone_from(&self.chunks);
        // Ids and positions of removed chunks are used again: no slot has them.
        let end = self.chunks.last().map_or(0, |last| last.start + last.capacity);
        let epoch = changed.epochs.last().map_or(0, |epoch| epoch.position);
        changed.next_id = self.chunks.last().map_or(1, |last| last.id + 1);
        changed.next_start = end.max(epoch);
        if changed != *manifest {
            *manifest = changed;
            manifest.write(env, folder)?;
        }
        Ok(())
    }

    /// Point up to which the chunks have records.
    fn in_slots(&self, epoch: u64) -> LogPoint {
        let last = self.last.map(|(end, _)| end);
        let ends = self.chunks.iter().rev().enumerate().filter_map(|(index, entry)| {
            let end = if index == 0 { last } else { entry.ended };
            end.filter(|end| end.last_event > 0).map(|end| entry.start + end.end)
        });
        LogPoint { epoch, offset: ends.max().unwrap_or(0) }
    }

    /// The chunk that goes on.
    fn open_chunk(&self) -> Option<OpenChunk> {
        let entry = *self.chunks.last().filter(|entry| entry.ended.is_none())?;
        let (ChunkEnd { end, last_event, .. }, _) = self.last?;
        Some(OpenChunk { entry, end, last_event })
    }
}

/// Returns the files of chunks after those that the applied slots have.
fn later_chunks(env: &Env, folder: &Path, applied: &AppliedChunks) -> Result<Vec<PathBuf>> {
    let last = applied.chunks.last().map_or(0, |last| last.id);
    let directory = chunk_directory(folder);
    let entries = env.files.read_dir(&directory)?.into_iter();
    let later = entries.filter(|entry| parse_chunk_name(&entry.name).is_some_and(|it| it.0 > last));
    Ok(later.map(|entry| directory.join(entry.name)).collect())
}

/// Moves these files into a directory, or removes them without one. Files without records are
/// removed in any case.
fn remove_later(env: &Env, folder: &Path, later: &[PathBuf], target: Option<&Path>) -> Result<()> {
    for path in later {
        let is_empty = torn_bytes(&*env.files.open(path, Access::Read)?, HEADER_BYTES)? == 0;
        match (target, path.file_name()) {
            (Some(target), Some(name)) if !is_empty => {
                env.files.rename(path, &target.join(name))?;
            }
            _ => env.files.remove_file(path)?,
        }
    }
    if let Some(target) = target {
        env.files.sync_dir(target)?;
    }
    if !later.is_empty() {
        env.files.sync_dir(&chunk_directory(folder))?;
    }
    Ok(())
}

/// Copies the last chunk into a directory, if bytes follow that the slots do not decide. Does
/// nothing if an earlier open made the copy.
fn copy_last(env: &Env, folder: &Path, applied: &AppliedChunks, target: &Path) -> Result<()> {
    let Some((path, kept)) = applied.last_file(folder) else { return Ok(()) };
    let source = env.files.open(&path, Access::Read)?;
    let torn = torn_bytes(&*source, kept)?;
    let copy = target.join(path.file_name().unwrap_or_default());
    if torn == 0 || env.files.exists(&copy)? {
        return Ok(());
    }
    let new = copy.with_extension("new");
    if env.files.exists(&new)? {
        // Left by an open that was killed here. It is listed, so that it counts as an own file.
        env.files.read_dir(target)?;
        env.files.remove_file(&new)?;
    }
    let file = env.files.create(&new)?;
    let end = kept + torn;
    let mut buffer = vec![0; COPY_BYTES as usize];
    for start in (0..end).step_by(COPY_BYTES as usize) {
        let block = &mut buffer[..COPY_BYTES.min(end - start) as usize];
        source.read_exact_at(block, start)?;
        file.write_all_at(block, start)?;
    }
    file.sync()?;
    env.files.rename(&new, &copy)?;
    Ok(env.files.sync_dir(target)?)
}

/// Name of the directory with this number that receives records which no slot has.
fn cut_name(number: u64) -> String {
    format!("cut-{number}")
}

/// Returns a number above those of all such directories.
fn unused_number(env: &Env, folder: &Path) -> Result<u64> {
    let entries = env.files.read_dir(folder)?;
    let numbers = entries.iter().filter_map(|entry| {
        let number: u64 = entry.name.strip_prefix("cut-")?.parse().ok()?;
        (cut_name(number) == entry.name).then_some(number)
    });
    let newest = numbers.max().unwrap_or(0);
    newest.checked_add(1).ok_or_else(|| {
        let name = cut_name(newest);
        Error::invalid(format!("there is no free number after {name}; rename that directory"))
    })
}
