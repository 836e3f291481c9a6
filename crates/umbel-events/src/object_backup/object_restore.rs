//! Restore of a store from a backup in an object store, up to a position or a time.
//!
//! The chunk manifest is written last, as in a restore from a directory. A marker file says what is
//! being restored, so that the same restore can resume.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use umbel_backup::{
    ManifestChain, ObjectRequestOptions, ObjectRequests, Task, download_to_file,
    interrupted_manifest, try_run_parallel,
};
use umbel_env::{Access, Env, Objects, check_path};
use umbel_log::ExpectedEnd;

use crate::backup::backup_manifest::{file_name, restore_marker_path};
use crate::backup::file_copy::create_directory;
use crate::backup::restore_target::{
    check_target, finish, read_marker, restored_manifest, write_marker,
};
use crate::event_log::chunk_manifest::{ChunkEntry, ChunkManifest, chunk_directory};
use crate::event_log::chunk_scan::scan_chunk_file;
use crate::event_log::scavenged_chunk;
use crate::object_backup::object_backup_error::{ObjectBackupError, ObjectBackupResult};
use crate::object_backup::object_manifest::{
    BackedChunk, BackupState, LogContents, ObjectManifest,
};
use crate::object_backup::restore_cut::RestoreCut;
use crate::object_backup::time_search::{first_append_end, last_kept_position};
use crate::types::event::Position;

/// End of a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoreTo {
    /// Everything in the backup.
    Latest,
    /// The appends whose last event is at this position or before.
    Position(Position),
    /// The appends up to this time, in units of 100 ns since 1970. Times are those by which events
    /// are ordered: an event counts as at least as old as each clock epoch that begins after it.
    Time(u64),
}

/// Result of a restore from an object store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectRestoreReport {
    /// Position of the last event; 0 without events.
    pub through: Position,
    /// Number of the manifest that was restored.
    pub manifest: u64,
    /// Whether the backup ends before the requested position or time, so that later events can be
    /// missing. False for [`RestoreTo::Latest`].
    pub is_short: bool,
    /// Whether an interrupted restore of [`RestoreTo::Latest`] was resumed, whose end is that of
    /// the backup when it began.
    pub is_resumed: bool,
    /// Number of files of the event log.
    pub files: u64,
    /// Total bytes of these files.
    pub bytes: u64,
}

/// A restore in progress.
#[derive(Debug)]
struct Restore {
    env: Env,
    requests: Arc<ObjectRequests>,
    backup: [u8; 16],
    chunks: PathBuf,
}

/// Creates a store from a backup in an object store, in a folder that is empty or does not exist.
/// An interrupted restore resumes: up to [`RestoreTo::Latest`] it ends where it would have ended.
/// The earliest manifest that has the requested events is restored, so that later scavenges remove
/// nothing. The first open of the store rebuilds the index.
///
/// # Errors
/// - [`ObjectBackupError::Refused`] if there is no backup, or the folder holds anything but an
///   interrupted restore of the same manifest up to the same end.
/// - [`ObjectBackupError::Objects`] for damaged or missing objects, with their names, and failed
///   requests.
/// - [`ObjectBackupError::Store`] for failed calls of the local file system, such as a full disk.
///   The same restore can then be repeated, and keeps the files that it completed.
pub fn restore_from_objects(
    env: &Env,
    objects: Arc<dyn Objects>,
    target: &Path,
    restore_to: RestoreTo,
    options: ObjectRequestOptions,
) -> ObjectBackupResult<ObjectRestoreReport> {
    let requests = Arc::new(ObjectRequests::new(env, objects, options));
    restore(env, &requests, target, restore_to, true)
}

/// Restores as [`restore_from_objects`] does, but makes no store without events from a backup with
/// events.
///
/// # Errors
/// - [`ObjectBackupError::NoEvents`], before anything is written, if the requested end is before
///   that of the first append.
/// - The errors of [`restore_from_objects`].
pub fn restore_events_from_objects(
    env: &Env,
    objects: Arc<dyn Objects>,
    target: &Path,
    restore_to: RestoreTo,
    options: ObjectRequestOptions,
) -> ObjectBackupResult<ObjectRestoreReport> {
    let requests = Arc::new(ObjectRequests::new(env, objects, options));
    restore(env, &requests, target, restore_to, false)
}

/// Restores a backup. `can_be_empty` allows a store without events from a backup with events.
fn restore(
    env: &Env,
    requests: &Arc<ObjectRequests>,
    target: &Path,
    restore_to: RestoreTo,
    can_be_empty: bool,
) -> ObjectBackupResult<ObjectRestoreReport> {
    check_path("the restored store", target)?;
    let given = target;
    let target = &*env.files.absolute(target)?;
    let (_, chain) = ManifestChain::<LogContents>::find(requests)?;
    let resumed = interrupted(env, target, &chain, restore_to)?;
    let is_resumed = resumed.is_some();
    let (manifest, cut, is_short) = match resumed {
        Some(manifest) => (manifest, RestoreCut::End, false),
        None => choose(requests, &chain, restore_to)?,
    };
    let (manifest, state) = chain.state_from(manifest)?;
    let marker = marker_bytes(&manifest, restore_to);
    let is_restored = |_: &ChunkManifest| {
        let found = read_marker(env, target);
        found.is_ok_and(|found| found == marker)
    };
    let report = |entries: &[ChunkEntry]| ObjectRestoreReport {
        is_short,
        is_resumed,
        ..report(entries, manifest.number)
    };
    if check_target(env, (target, given), is_restored, &marker)? {
        // Everything is complete, and only the marker was left.
        let restored = ChunkManifest::read(env, target)?;
        finish(&env.open_directory(target)?, target)?;
        return Ok(report(&restored.chunks));
    }
    crate::types::nested_store_check::check_not_nested(env, target)?;
    if !can_be_empty {
        refuse_empty(requests, &chain, (&state, &cut))?;
    }
    let chunks = chunk_directory(target);
    create_directory(env, target)?;
    create_directory(env, &chunks)?;
    let env = &env.open_directory(target)?;
    let _lock = env.lock(&target.join("LOCK"), std::time::Duration::ZERO)?;
    // An operator may have replaced the directory since it was checked.
    if check_target(env, (target, given), is_restored, &marker)? {
        let restored = ChunkManifest::read(env, target)?;
        finish(env, target)?;
        return Ok(report(&restored.chunks));
    }
    write_marker(env, target, &marker)?;
    let backup = chain.backup;
    let restore =
        Arc::new(Restore { env: env.clone(), requests: Arc::clone(requests), backup, chunks });
    let entries = restore.write_chunks(state.chunks.clone(), &cut)?;
    env.files.sync_dir(&restore.chunks)?;
    let mut restored = restored_manifest(env, &restored_head(&state, &entries, &cut))?;
    restored.chunks.clone_from(&entries);
    restored.write(env, target)?;
    finish(env, target)?;
    Ok(report(&entries))
}

/// Returns an error if the cut removes every event of a state, and the backup has events. Without
/// events in the state, the first ones of the newest state count.
fn refuse_empty(
    requests: &ObjectRequests,
    chain: &ManifestChain<'_, LogContents>,
    (state, cut): (&BackupState, &RestoreCut),
) -> ObjectBackupResult<()> {
    if matches!(cut, RestoreCut::End) {
        return Ok(());
    }
    let newest = &chain.newest;
    let mut first = first_append_end(requests, &chain.backup, state)?;
    if first.is_none() && newest.contents.through > 0 {
        let (_, state) = chain.state_from(newest.clone())?;
        first = first_append_end(requests, &chain.backup, &state)?;
    }
    match first {
        Some((position, created)) if !cut.keeps(position, created) => {
            let created = newest.contents.head.epochs.ordered_time(position, created);
            Err(ObjectBackupError::NoEvents { position: Position(position), created })
        }
        _ => Ok(()),
    }
}

fn report(entries: &[ChunkEntry], manifest: u64) -> ObjectRestoreReport {
    let last = entries.last().and_then(|last| Some(last.start + last.ended?.last_event));
    ObjectRestoreReport {
        through: Position(last.unwrap_or(0)),
        manifest,
        is_short: false,
        is_resumed: false,
        files: entries.len() as u64,
        bytes: entries.iter().map(crate::object_backup::object_manifest::entry_bytes).sum(),
    }
}

/// Returns the chunk manifest of the restored store, without its chunks. Clock epochs that begin
/// after the cut are not part of it.
fn restored_head(state: &BackupState, entries: &[ChunkEntry], cut: &RestoreCut) -> ChunkManifest {
    let mut head = state.head.clone();
    if !matches!(cut, RestoreCut::End) {
        let end = entries.last().map_or(0, |last| last.start + last.capacity);
        head.epochs.truncate(end);
        head.scavenge_from = 0;
    }
    head
}

/// Returns the manifest with which an interrupted restore of everything began, if the folder has
/// one: a server that goes on has newer manifests by now.
fn interrupted(
    env: &Env,
    target: &Path,
    chain: &ManifestChain<'_, LogContents>,
    restore_to: RestoreTo,
) -> ObjectBackupResult<Option<ObjectManifest>> {
    if restore_to != RestoreTo::Latest || !env.files.exists(&restore_marker_path(target))? {
        return Ok(None);
    }
    let marker = read_marker(env, target)?;
    Ok(interrupted_manifest(chain, &marker, |manifest| marker_bytes(manifest, restore_to))?)
}

/// Returns the manifest to restore, the cut, and whether the backup ends before it.
fn choose(
    requests: &ObjectRequests,
    chain: &ManifestChain<'_, LogContents>,
    restore_to: RestoreTo,
) -> ObjectBackupResult<(ObjectManifest, RestoreCut, bool)> {
    let newest = &chain.newest;
    // What only a damaged manifest has is missing in the others.
    let check_newest = |is_covered: bool| match chain.damage.first() {
        Some(damage) if !is_covered => Err(damage.clone()),
        _ => Ok(()),
    };
    match restore_to {
        RestoreTo::Latest => {
            check_newest(false)?;
            Ok((newest.clone(), RestoreCut::End, false))
        }
        RestoreTo::Position(Position(last)) => {
            check_newest(newest.contents.through >= last)?;
            let covers = |manifest: &ObjectManifest| manifest.contents.through >= last;
            let manifest = chain.earliest(covers)?;
            Ok((manifest, RestoreCut::Position(last), newest.contents.through < last))
        }
        RestoreTo::Time(last) => {
            let epochs = newest.contents.head.epochs.clone();
            let time = |manifest: &ObjectManifest| {
                epochs.ordered_time(manifest.contents.through, manifest.contents.through_created)
            };
            check_newest(time(newest) > last)?;
            let is_short = time(newest) <= last && newest.wall_micros.saturating_mul(10) < last;
            let covers = |manifest: &ObjectManifest| {
                time(manifest) > last || manifest.contents.through == newest.contents.through
            };
            let (manifest, state) = chain.state_from(chain.earliest(covers)?)?;
            let end = match time(&manifest) <= last {
                true => manifest.contents.through,
                false => {
                    let cut = RestoreCut::Time(last, epochs.clone());
                    let found = last_kept_position(requests, &chain.backup, &state, &cut)?;
                    // A scavenge can have removed the last events of the manifest before.
                    found.max(chain.through_before(manifest.number)?)
                }
            };
            // An earlier manifest can have that event: later scavenges are not restored.
            let manifest = chain.earliest(|manifest| manifest.contents.through >= end)?;
            Ok((manifest, RestoreCut::Position(end), is_short))
        }
    }
}

/// Contents of the marker of a restore.
fn marker_bytes(manifest: &ObjectManifest, restore_to: RestoreTo) -> Vec<u8> {
    let hex = |id: &[u8; 16]| id.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let end = match restore_to {
        RestoreTo::Latest => "through its end".to_owned(),
        RestoreTo::Position(Position(last)) => format!("through position {last}"),
        RestoreTo::Time(last) => format!("through time {last}"),
    };
    format!(
        "An event store is being restored here: backup {}, manifest {} {}, {end}. Run the restore \
         again, or remove the folder.\n",
        hex(&manifest.backup),
        manifest.number,
        hex(&manifest.uid)
    )
    .into_bytes()
}

impl Restore {
    /// Writes the files of all chunks up to the cut, and returns their entries.
    fn write_chunks(
        self: &Arc<Self>,
        mut chunks: Vec<BackedChunk>,
        cut: &RestoreCut,
    ) -> ObjectBackupResult<Vec<ChunkEntry>> {
        chunks.retain(|chunk| !cut.is_before(chunk.entry.start));
        let mut last = None;
        // The cut is in the last chunk that keeps an event.
        while let Some(chunk) = chunks.pop() {
            if matches!(cut, RestoreCut::End) {
                chunks.push(chunk);
                break;
            }
            self.write_chunk(&chunk)?;
            let path = self.path(&chunk.entry);
            last = cut.cut_chunk(&self.env, &path, &chunk.entry)?;
            if last.is_some() {
                break;
            }
            self.env.files.remove_file(&path)?;
        }
        let mut entries: Vec<_> = chunks.iter().map(|chunk| chunk.entry).collect();
        let task = |chunk: BackedChunk| {
            let restore = Arc::clone(self);
            Box::new(move || restore.write_chunk(&chunk)) as Task<ObjectBackupResult<()>>
        };
        let tasks = chunks.into_iter().map(task).collect();
        let parallel = self.requests.options.parallel_requests;
        try_run_parallel(&self.env, parallel, tasks)?;
        entries.extend(last);
        Ok(entries)
    }

    fn path(&self, entry: &ChunkEntry) -> PathBuf {
        self.chunks.join(file_name(entry))
    }

    /// Writes the file of a chunk and verifies it, or keeps the one that an interrupted restore
    /// wrote, if it is whole.
    fn write_chunk(&self, chunk: &BackedChunk) -> ObjectBackupResult<()> {
        let path = self.path(&chunk.entry);
        let files = &self.env.files;
        if files.exists(&path)? {
            if is_proven(&chunk.entry) && self.verify(&path, chunk).is_ok() {
                return Ok(files.open(&path, Access::ReadWrite)?.sync()?);
            }
            files.remove_file(&path)?;
        }
        let file = files.create(&path)?;
        let written = chunk.pieces.iter().try_for_each(|piece| {
            let piece = (chunk.file(), piece);
            download_to_file::<LogContents>(&self.requests, &self.backup, piece, &*file)
        });
        // The write-back goes on while the file is verified.
        let written = written.map_err(ObjectBackupError::from);
        let written = written.and_then(|()| self.verify(&path, chunk));
        let written = written.and_then(|()| Ok(file.sync()?));
        if written.is_err() {
            // It would only take disk space; the first failure is reported.
            let _ = files.remove_file(&path);
        }
        written
    }

    /// Verifies the file of a chunk by its own checksums.
    fn verify(&self, path: &Path, chunk: &BackedChunk) -> ObjectBackupResult<()> {
        verify_chunk_file(&self.env, path, &chunk.entry)
    }
}

/// Whether the entry of a chunk proves that a file is the right one.
fn is_proven(entry: &ChunkEntry) -> bool {
    entry.scavenged.is_some() || entry.ended.is_some_and(|ended| ended.seal.is_some())
}

/// Verifies the file of a chunk by its records, or by the checksum of the scavenged file.
fn verify_chunk_file(env: &Env, path: &Path, entry: &ChunkEntry) -> ObjectBackupResult<()> {
    if let Some(scavenged) = &entry.scavenged {
        let file = env.files.open(path, Access::Read)?;
        return Ok(scavenged_chunk::verify_file(&*file, entry.id, scavenged)?);
    }
    let ended = entry.ended;
    let seal = ended.and_then(|ended| ended.seal);
    let expectation = seal.map_or(ExpectedEnd::Open, ExpectedEnd::Sealed);
    let scan = scan_chunk_file(env, path, entry.id, expectation)?;
    let end = ended.map_or(0, |ended| ended.file_bytes());
    let length = env.files.open(path, Access::Read)?.len()?;
    match scan.outcome.end == end && length == end {
        true => Ok(()),
        false => {
            let reason = "the records of the restored chunk do not end where the backup states";
            Err(umbel::Error::corruption(path, scan.outcome.end, reason).into())
        }
    }
}
