//! Restore of a key-value store from a backup in an object store.
//!
//! `CURRENT` is written last, as in a checkpoint. A marker file says what is being restored, so
//! that the same restore can resume, and no open takes the directory for a store.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use umbel_backup::{
    BackupError, BackupResult, ManifestChain, ObjectRequestOptions, ObjectRequests, SourceFile,
    Task, download_to_file, interrupted_manifest, read_block_checksums, try_run_parallel,
};
use umbel_base::Error;
use umbel_env::{Access, Env, Objects, check_path};

use crate::fs::create_dir;
use crate::fs::fatal_error::FatalError;
use crate::fs::filenames;
use crate::object_backup::file_upload::{block_checksums, path_of};
use crate::object_backup::restore_target::{
    RestoreTarget, finish, read_marker, remove_unfinished_manifest, write_marker,
};
use crate::object_backup::store_contents::{
    BackedFile, BackupManifest, BackupState, StoreContents, files_of,
};
use crate::version::version_edit::ManifestState;
use crate::version::{Manifest, StoreOwnership};

/// State of a backup to restore. Each is the state of a run, as it was at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoreTo {
    /// The newest state.
    Latest,
    /// The last state that was captured at or before this time, in microseconds since 1970 by the
    /// wall clock of the backup.
    Time(u64),
    /// The state of the manifest with this number.
    Manifest(u64),
}

/// Result of a restore from an object store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectRestoreReport {
    /// Last sequence number of the restored state.
    pub last_sequence: u64,
    /// Time of the restored state, in microseconds since 1970.
    pub captured_micros: u64,
    /// Number of the manifest that was restored.
    pub manifest: u64,
    /// Number of tables and long values.
    pub files: u64,
    /// Bytes of these files.
    pub bytes: u64,
    /// Whether an interrupted restore of [`RestoreTo::Latest`] was resumed, whose state is that of
    /// the backup when it began.
    pub is_resumed: bool,
}

/// A restore in progress.
#[derive(Debug)]
struct Restore {
    env: Env,
    requests: Arc<ObjectRequests>,
    backup: [u8; 16],
    path: PathBuf,
}

/// Creates a key-value store from a backup in an object store, in a directory that is empty or does
/// not exist. An interrupted restore resumes: up to [`RestoreTo::Latest`] it ends where it would
/// have ended. The store gets its own [instance id](crate::DirectoryStats::instance_id), so that it
/// needs a prefix of its own for its backups.
///
/// # Errors
/// - [`BackupError::Refused`] if there is no backup of a key-value store, or no such manifest.
/// - [`BackupError::NoState`] if the first state is later than the requested time.
/// - [`BackupError::Store`] if the directory holds anything but an interrupted restore of the same
///   state, and for failed calls of the local file system, such as a full disk. The same restore
///   can then be repeated, and keeps the files that it completed.
/// - [`BackupError::Objects`] for damaged or missing objects, with their names, and for failed
///   requests.
///
/// ```
/// # use std::sync::Arc;
/// # fn main() -> Result<(), umbel::BackupError> {
/// # let objects = umbel_sim::ObjectSim::new(1);
/// # let env = objects.env();
/// # let objects = objects.client(1);
/// # let options = umbel::Options { env: env.clone(), ..umbel::Options::default() };
/// # let db = umbel::Db::open("/data", options.clone())?;
/// db.keyspace("users", None)?.put(b"ada", b"1815")?;
/// db.object_backup(Arc::clone(&objects), umbel::ObjectBackupOptions::default())?.run_once()?;
/// let requests = umbel::ObjectRequestOptions::default();
/// umbel::restore_from_objects(
///     &env, objects, "/copy".as_ref(), umbel::RestoreTo::Latest, requests,
/// )?;
/// let copy = umbel::Db::open("/copy", options)?;
/// assert_eq!(copy.keyspace("users", None)?.get(b"ada")?.as_deref(), Some(&b"1815"[..]));
/// # Ok(())
/// # }
/// ```
pub fn restore_from_objects(
    env: &Env,
    objects: Arc<dyn Objects>,
    directory: &Path,
    restore_to: RestoreTo,
    options: ObjectRequestOptions,
) -> BackupResult<ObjectRestoreReport> {
    check_path("the restored store", directory)?;
    let path = &*env.files.absolute(directory)?;
    let requests = Arc::new(ObjectRequests::new(env, objects, options));
    let (_, chain) = ManifestChain::<StoreContents>::find(&requests)?;
    let resumed = interrupted(env, path, &chain, restore_to)?;
    let is_resumed = resumed.is_some();
    let (manifest, state) = match resumed {
        Some(manifest) => (manifest.clone(), chain.state(manifest.number)?),
        None => choose(&requests, &chain, restore_to)?,
    };
    let (store, files) = restorable(&requests, &state)?;
    let report = ObjectRestoreReport { is_resumed, ..report(manifest.number, &state, &files) };
    let marker = marker_bytes(&manifest, restore_to);
    let target = (path, directory);
    if RestoreTarget::inspect(env, target, &marker)? == RestoreTarget::Restored {
        finish(&env.open_directory(path)?, path)?;
        return Ok(report);
    }
    create_dir::check_outside_or_inner(env, path)?;
    create_dir::create(env, path)?;
    let env = &env.open_directory(path)?;
    let _lock = env.lock(&path.join(filenames::LOCK), Duration::ZERO)?;
    // An operator may have replaced the directory since it was checked.
    if RestoreTarget::inspect(env, target, &marker)? == RestoreTarget::Restored {
        finish(env, path)?;
        return Ok(report);
    }
    write_marker(env, path, &marker)?;
    remove_unfinished_manifest(env, path)?;
    let restore = Arc::new(Restore {
        env: env.clone(),
        requests: Arc::clone(&requests),
        backup: chain.backup,
        path: path.to_path_buf(),
    });
    restore.write_files(files)?;
    env.files.sync_dir(path)?;
    create_manifest(env, path, store)?;
    finish(env, path)?;
    Ok(report)
}

/// Checks that a backup in an object store has the requested state. Reads manifests, and writes
/// nothing.
///
/// # Errors
/// The errors of [`restore_from_objects`] about the backup.
pub fn check_restorable(
    env: &Env,
    objects: Arc<dyn Objects>,
    restore_to: RestoreTo,
    options: ObjectRequestOptions,
) -> BackupResult<()> {
    let requests = Arc::new(ObjectRequests::new(env, objects, options));
    let (_, chain) = ManifestChain::<StoreContents>::find(&requests)?;
    let (_, state) = choose(&requests, &chain, restore_to)?;
    restorable(&requests, &state).map(drop)
}

/// Creates the manifest of the restored store, and makes it current.
fn create_manifest(env: &Env, path: &Path, mut state: ManifestState) -> BackupResult<()> {
    state.set_instance(env.entropy.id()?);
    // The manifest takes the first free id.
    let ids = Arc::new(AtomicU64::new(state.next_file_id));
    let ownership = Arc::new(StoreOwnership::new(Arc::clone(&env.files), path));
    let poison = Arc::new(FatalError::default());
    Manifest::create(env, path, state, ids, poison, ownership)?.seal()?;
    Ok(())
}

/// Returns the manifest with which an interrupted restore of the newest state began, if the
/// directory has one: a backup that goes on has newer manifests by now.
fn interrupted(
    env: &Env,
    path: &Path,
    chain: &ManifestChain<'_, StoreContents>,
    restore_to: RestoreTo,
) -> BackupResult<Option<BackupManifest>> {
    if restore_to != RestoreTo::Latest || !env.files.exists(&path.join(filenames::RESTORING))? {
        return Ok(None);
    }
    let marker = read_marker(env, path)?;
    interrupted_manifest(chain, &marker, |manifest| marker_bytes(manifest, restore_to))
}

/// Returns the manifest to restore, and its state.
fn choose(
    requests: &ObjectRequests,
    chain: &ManifestChain<'_, StoreContents>,
    restore_to: RestoreTo,
) -> BackupResult<(BackupManifest, BackupState)> {
    let newest = &chain.newest;
    let captured = |manifest: &BackupManifest| manifest.contents.captured_micros;
    let number = match restore_to {
        RestoreTo::Manifest(number) => {
            if !(chain.first..=newest.number).contains(&number) {
                return Err(BackupError::refused(format!(
                    "the backup in {} has no manifest {number}: it has those from {} to {}",
                    requests.objects.location(),
                    chain.first,
                    newest.number
                )));
            }
            number
        }
        // What only a damaged manifest has is missing in the others.
        RestoreTo::Latest => match chain.damage.first() {
            Some(damage) => return Err(damage.clone()),
            None => newest.number,
        },
        RestoreTo::Time(time) if captured(newest) <= time => match chain.damage.first() {
            Some(damage) => return Err(damage.clone()),
            None => newest.number,
        },
        RestoreTo::Time(time) => {
            let later = chain.earliest(|manifest| captured(manifest) > time)?;
            if later.number == chain.first {
                // The state can be one that a missing manifest hides.
                return Err(match chain.gap() {
                    Some(gap) => gap,
                    None => no_state(requests, chain)?,
                });
            }
            later.number - 1
        }
    };
    Ok((chain.manifest(number)?, chain.state(number)?))
}

/// Returns the error for a time before the first state. It names the first state whose backup is
/// complete.
fn no_state(
    requests: &ObjectRequests,
    chain: &ManifestChain<'_, StoreContents>,
) -> BackupResult<BackupError> {
    let mut number = chain.first;
    while number < chain.newest.number && chain.state(number)?.store.is_none() {
        number += 1;
    }
    let location = requests.objects.location().to_string();
    let first_micros = chain.manifest(number)?.contents.captured_micros;
    Ok(BackupError::NoState { location, first_micros })
}

/// Returns the store's state with its files.
fn restorable(
    requests: &ObjectRequests,
    state: &BackupState,
) -> BackupResult<(ManifestState, Vec<(SourceFile, BackedFile)>)> {
    let Some(store) = &state.store else {
        return Err(BackupError::refused(format!(
            "the first backup to {} is not complete at that moment; wait for it, or run it again",
            requests.objects.location()
        )));
    };
    let named = files_of(store).into_keys();
    let files = named.filter_map(|file| Some((file, *state.files.get(&file)?))).collect();
    Ok((ManifestState::clone(store), files))
}

fn report(
    manifest: u64,
    state: &BackupState,
    files: &[(SourceFile, BackedFile)],
) -> ObjectRestoreReport {
    ObjectRestoreReport {
        last_sequence: state.last_sequence(),
        captured_micros: state.captured_micros,
        manifest,
        files: files.len() as u64,
        bytes: files.iter().map(|(_, backed)| backed.content().bytes).sum(),
        is_resumed: false,
    }
}

/// Contents of the marker of a restore.
fn marker_bytes(manifest: &BackupManifest, restore_to: RestoreTo) -> Vec<u8> {
    let newest = if restore_to == RestoreTo::Latest { ", the newest one" } else { "" };
    let hex = |id: &[u8; 16]| id.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    format!(
        "A key-value store is being restored here: backup {}, manifest {} {}{newest}. Run the \
         restore again, or remove the folder.\n",
        hex(&manifest.backup),
        manifest.number,
        hex(&manifest.uid)
    )
    .into_bytes()
}

impl Restore {
    /// Writes the files at the same time.
    fn write_files(self: &Arc<Self>, files: Vec<(SourceFile, BackedFile)>) -> BackupResult<()> {
        let task = |(file, backed): (SourceFile, BackedFile)| {
            let restore = Arc::clone(self);
            Box::new(move || restore.write_file(file, &backed)) as Task<BackupResult<()>>
        };
        let tasks = files.into_iter().map(task).collect();
        let parallel = self.requests.options.parallel_requests;
        try_run_parallel(&self.env, parallel, tasks).map(drop)
    }

    /// Writes a file and reads it again, or keeps the one that an interrupted restore wrote, if it
    /// is whole.
    fn write_file(&self, file: SourceFile, backed: &BackedFile) -> BackupResult<()> {
        let path = path_of(&self.path, file);
        let files = &self.env.files;
        let sums = read_block_checksums::<StoreContents>(
            &self.requests,
            &self.backup,
            (file, &backed.piece),
        )?;
        if files.exists(&path)? {
            if self.verify(file, backed, &sums).is_ok() {
                return Ok(files.open(&path, Access::ReadWrite)?.sync()?);
            }
            files.remove_file(&path)?;
        }
        let copy = files.create(&path)?;
        let piece = (file, &backed.piece);
        let written =
            download_to_file::<StoreContents>(&self.requests, &self.backup, piece, &*copy);
        // The write-back goes on while the file is verified.
        let written = written.and_then(|()| self.verify(file, backed, &sums));
        let written = written.and_then(|()| Ok(copy.sync()?));
        if written.is_err() {
            // It would only take disk space; the first failure is reported.
            let _ = files.remove_file(&path);
        }
        written
    }

    /// Compares a written file with the checksums of its blocks.
    fn verify(&self, file: SourceFile, backed: &BackedFile, sums: &[u64]) -> BackupResult<()> {
        let path = path_of(&self.path, file);
        let copy = self.env.files.open(&path, Access::Read)?;
        let bytes = backed.content().bytes;
        let is_whole =
            copy.len()? == bytes && block_checksums(&*copy, file.id, bytes)?.as_slice() == sums;
        match is_whole {
            true => Ok(()),
            false => {
                let reason = "the restored file has other bytes than were written to it";
                Err(Error::corruption(&path, 0, reason).into())
            }
        }
    }
}
