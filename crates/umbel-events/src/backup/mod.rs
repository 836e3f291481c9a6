//! Backup of a store in use: copies the durable part of the log, file by file, and appends to an
//! earlier backup in the same folder.
//!
//! INVARIANT: bytes that the manifest in the folder covers never change. A backup only adds bytes
//! after the covered ones, and removes a file only once a manifest without the file is durable. So
//! a backup that fails, is cancelled or is killed leaves the previous one intact.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;
use umbel_base::ignore_poison::IgnorePoison;

use umbel_env::{Access, DirectoryLocation, Env, File, Lock, check_path};
use umbel_log::{END_RECORD_BYTES, ExpectedEnd, Seal};

use crate::backup::backup_manifest::{BackupFile, BackupManifest, file_name, is_file_name};
use crate::backup::copy_rate_limit::{CopyOptions, CopyThrottle};
use crate::backup::file_copy::{block_checksums, copy_tail, create_directory, verify_scavenged};
use crate::event_log::chunk_manifest::{
    ChunkEnd, ChunkEntry, ChunkManifest, chunk_directory, open_error,
};
use crate::event_log::chunk_scan::{ChunkScan, scan_chunk_with_check};
use crate::event_log::durable_chunks::DurableChunks;
use crate::shared_store_state::StoreInner;
use crate::types::error::{Error, Result};
use crate::types::event::Position;

pub mod backup_manifest;
pub mod backup_verify;
pub mod copy_cancellation;
pub mod copy_rate_limit;
pub mod file_copy;
pub mod restore;
pub mod restore_target;

/// Result of a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupReport {
    /// Position of the last event in the backup; 0 without events. The backup has every event up to
    /// this position.
    pub through: Position,
    /// Number of backups that finished in the folder, including this one.
    pub number: u64,
    /// Number of files of the event log in the backup.
    pub files: u64,
    /// Total bytes of the files in the backup.
    pub bytes: u64,
    /// Files that were created or extended.
    pub copied_files: u64,
    /// Bytes that were copied.
    pub copied_bytes: u64,
}

/// A chunk to copy.
struct ChunkCopy {
    /// Entry of the chunk in the manifest. If the chunk is still being written, the entry's end is
    /// set after the copy.
    entry: ChunkEntry,
    /// Length of the prefix of the chunk's file to copy, in bytes.
    len: u64,
    /// The part of the chunk that the backup's folder has already, which stays unchanged.
    copied: BackupFile,
}

impl ChunkCopy {
    fn new(entry: ChunkEntry, len: u64) -> ChunkCopy {
        let copied = BackupFile { name: file_name(&entry), len: 0, block_checksums: Vec::new() };
        ChunkCopy { entry, len, copied }
    }
}

/// A backup in progress.
struct BackupJob<'a> {
    shared: &'a StoreInner,
    /// Environment whose file names are resolved in the open target.
    env: &'a Env,
    target: &'a Path,
    previous: BackupManifest,
}

/// Backs up everything that was appended before the call.
pub fn backup(
    shared: &StoreInner,
    target: &Path,
    options: CopyOptions<'_>,
) -> Result<BackupReport> {
    shared.check_open()?;
    shared.check_not_replicated("backups")?;
    options.cancellation.check()?;
    check_path("the backup", target)?;
    let target = &*shared.outer_env.files.absolute(target)?;
    back_up_to(shared, target, options).map_err(|error| at_backup_disk(error, target))
}

/// Converts an error of the disk of the target, such as a full disk. The advice of the error itself
/// is for the disk of the store.
fn at_backup_disk(error: Error, target: &Path) -> Error {
    let Error::Store(cause) = error else { return error };
    let is_in_backup = match &cause {
        umbel::Error::Io { path, .. } | umbel::Error::DiskFull { path, .. } => {
            path.starts_with(target)
        }
        _ => false,
    };
    match is_in_backup && cause.disk_remedy().is_some() {
        true => Error::BackupDisk(cause),
        false => Error::Store(cause),
    }
}

/// Backs up to an absolute path.
fn back_up_to(
    shared: &StoreInner,
    target: &Path,
    options: CopyOptions<'_>,
) -> Result<BackupReport> {
    check_backup_target(&shared.outer_env, &store_directory(shared)?, target)?;
    check_log_durable(shared)?;
    // Files of chunks must not be removed while they are copied.
    let _copying = shared.log.copy_lock.lock().ignore_poison();
    let (env, _lock, old) = prepare_target(shared, target, options.lock_wait)?;
    if !shared.read_only {
        shared.sync_log()?;
    }
    let DurableChunks { manifest: mut chunk_manifest, chunks } = shared.log.durable_chunks();
    let backup = BackupJob { shared, env: &env, target, previous: old };
    let wanted = chunks.into_iter().map(|(entry, len)| ChunkCopy::new(entry, len)).collect();
    let wanted = backup.match_existing(wanted)?;
    let missing = wanted.iter().map(|wanted| wanted.len - wanted.copied.len).sum();
    let mut pace = CopyThrottle::begin(&shared.env, options, missing);
    let mut files = Vec::with_capacity(wanted.len());
    let (mut copied_files, mut copied_bytes) = (0, 0);
    chunk_manifest.chunks.clear();
    for mut wanted in wanted {
        pace.check()?;
        let new = wanted.len - wanted.copied.len;
        if new > 0 && !backup.adopt_complete_file(&mut wanted, &mut pace)? {
            backup.copy_chunk(&mut wanted, &mut pace)?;
            copied_files += 1;
            copied_bytes += new;
        }
        if new == 0 {
            backup.truncate_to_manifest(&wanted.copied)?;
        }
        chunk_manifest.chunks.push(wanted.entry);
        files.push(wanted.copied);
    }
    let number = backup.previous.number + 1;
    let manifest = BackupManifest { number, chunk_manifest, files };
    env.files.sync_dir(&chunk_directory(target))?;
    pace.check()?;
    manifest.write(&env, target)?;
    remove_obsolete(&env, target, &manifest);
    Ok(BackupReport {
        through: Position(manifest.last_position()),
        number,
        files: manifest.files.len() as u64,
        bytes: manifest.bytes(),
        copied_files,
        copied_bytes,
    })
}

/// Returns an error if the events may not be durable and this handle cannot sync them. Without this
/// check, a power loss could remove events from the store that the backup already has.
pub fn check_log_durable(shared: &StoreInner) -> Result<()> {
    let chunks = shared.log.chunks.all();
    if !shared.read_only || chunks.iter().all(|chunk| chunk.ended.get().is_some()) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "the event store in {} has a writer or was not closed, and a read-only handle cannot sync \
         the events that it would back up: let the writer make the backup, or open the store for \
         writing",
        shared.folder.display()
    )))
}

impl BackupJob<'_> {
    /// Finds the parts of chunks that the backup's folder has already.
    ///
    /// # Errors
    /// `Invalid` if the folder has events that this store lacks, so that the backup is of another
    /// copy of the store.
    fn match_existing(&self, mut wanted: Vec<ChunkCopy>) -> Result<Vec<ChunkCopy>> {
        let end = |wanted: &ChunkCopy| match (wanted.entry.scavenged, wanted.entry.ended) {
            (Some(_), Some(ended)) => ended.file_bytes(),
            _ => wanted.len,
        };
        let through = wanted.last().map_or(0, |last| last.entry.start + end(last));
        if self.previous.last_position() > through {
            return Err(self.diverged_error(&format!(
                "the backup ends at position {}, after the last event of this store",
                self.previous.last_position()
            )));
        }
        let old: HashMap<_, _> =
            self.previous.chunks().map(|(entry, file)| (&file.name, (entry, file))).collect();
        for wanted in &mut wanted {
            let Some((entry, file)) = old.get(&wanted.copied.name) else { continue };
            let place = |entry: &ChunkEntry| (entry.id, entry.start, entry.capacity, entry.key);
            let was_sealed = entry.ended.is_some_and(|ended| ended.seal.is_some());
            let differs = place(entry) != place(&wanted.entry)
                || file.len > wanted.len
                || entry.scavenged != wanted.entry.scavenged
                || (was_sealed && entry.ended != wanted.entry.ended);
            if differs {
                return Err(self.diverged_error(&format!("it has another {}", file.name)));
            }
            if !self.is_complete(file)? {
                continue;
            }
            if file.len == wanted.len && wanted.entry.ended.is_none() {
                wanted.entry.ended = entry.ended;
            }
            wanted.copied.clone_from(file);
        }
        Ok(wanted)
    }

    fn diverged_error(&self, what: &str) -> Error {
        Error::invalid(format!(
            "{} holds the backup of another copy of this store, or of a later state ({what}), for \
             example of the original of a restored store; back up this store to another directory",
            self.target.display()
        ))
    }

    fn path(&self, file: &BackupFile) -> PathBuf {
        chunk_directory(self.target).join(&file.name)
    }

    /// Whether the folder has a file that the manifest lists in full length.
    fn is_complete(&self, file: &BackupFile) -> Result<bool> {
        let path = self.path(file);
        let files = &self.env.files;
        Ok(files.exists(&path)? && files.open(&path, Access::Read)?.len()? >= file.len)
    }

    /// Truncates a file to its length in the manifest. No finished backup wrote the bytes after
    /// that length, and a scavenged chunk is valid only with its exact length.
    fn truncate_to_manifest(&self, held: &BackupFile) -> Result<()> {
        let (path, files) = (self.path(held), &self.env.files);
        if files.open(&path, Access::Read)?.len()? > held.len {
            let file = files.open(&path, Access::ReadWrite)?;
            file.set_len(held.len)?;
            file.sync()?;
        }
        Ok(())
    }

    /// Adopts a file that an interrupted backup left, where the chunk is sealed and the seal proves
    /// that the file is complete.
    fn adopt_complete_file(
        &self,
        wanted: &mut ChunkCopy,
        pace: &mut CopyThrottle<'_>,
    ) -> Result<bool> {
        let (path, files) = (self.path(&wanted.copied), &self.env.files);
        let Some(ended) = wanted.entry.ended else { return Ok(false) };
        let Some(seal) = ended.seal else { return Ok(false) };
        if wanted.copied.len > 0 || !files.exists(&path)? {
            return Ok(false);
        }
        let file = files.open(&path, Access::ReadWrite)?;
        let is_whole = self.is_whole(&*file, wanted, (ended, seal), pace)?;
        if is_whole {
            let id = wanted.entry.id;
            let sums = block_checksums(&*file, id, wanted.len, pace);
            wanted.copied.block_checksums = sums.map_err(Error::into_backup_error)?;
            wanted.copied.len = wanted.len;
            file.sync()?;
            pace.record(wanted.len)?;
        }
        Ok(is_whole)
    }

    /// Whether a file in the folder is the whole chunk. A file that cannot be read is not.
    ///
    /// # Errors
    /// `Cancelled` if the caller requested the end, and errors of the system about the file's
    /// length.
    fn is_whole(
        &self,
        file: &dyn File,
        wanted: &ChunkCopy,
        (ended, seal): (ChunkEnd, Seal),
        pace: &CopyThrottle<'_>,
    ) -> Result<bool> {
        let entry = &wanted.entry;
        let is_whole = match &entry.scavenged {
            Some(scavenged) => verify_scavenged(file, entry.id, scavenged, pace).is_ok(),
            None => {
                let check = || pace.check();
                let seal = ExpectedEnd::Sealed(seal);
                let read = scan_chunk_with_check(self.env, self.target, entry, seal, &check);
                file.len()? == wanted.len && read.is_ok_and(|read| chunk_end(&read) == ended)
            }
        };
        // A cancelled check says nothing about the file.
        pace.check()?;
        Ok(is_whole)
    }

    /// Copies the new part of a chunk, makes the copy durable and verifies it.
    fn copy_chunk(&self, wanted: &mut ChunkCopy, pace: &mut CopyThrottle<'_>) -> Result<()> {
        let path = self.path(&wanted.copied);
        let is_new = wanted.copied.len == 0;
        let copied = self.copy_file(wanted, &path, pace);
        let copied = copied.and_then(|()| self.verify_copy(wanted, pace));
        if copied.is_err() && is_new {
            // It would only take disk space; the first failure is reported.
            let _ = self.env.files.remove_file(&path);
        }
        copied
    }

    fn copy_file(
        &self,
        wanted: &mut ChunkCopy,
        path: &Path,
        pace: &mut CopyThrottle<'_>,
    ) -> Result<()> {
        let files = &self.env.files;
        let source = self.source(&wanted.copied.name);
        let opened = self.shared.env.files.open(&source, Access::Read);
        let source = opened.map_err(|error| open_error(&source, error))?;
        let target = match wanted.copied.len {
            0 => {
                if files.exists(path)? {
                    // Left by an interrupted backup.
                    files.remove_file(path)?;
                }
                files.create(path)?
            }
            _ => files.open(path, Access::ReadWrite)?,
        };
        let (id, end) = (wanted.entry.id, wanted.len);
        if !copy_tail((&*source, &*target), id, &mut wanted.copied, end, pace)? {
            // Damage of the store in that block is not another copy of the store.
            self.verify_source(wanted, pace)?;
            return Err(self.diverged_error(&format!("it has another {}", wanted.copied.name)));
        }
        // An interrupted backup may have written more.
        target.set_len(end)?;
        Ok(target.sync()?)
    }

    fn source(&self, name: &str) -> PathBuf {
        chunk_directory(&self.shared.folder).join(name)
    }

    /// Verifies a copy, so that damage of the log is not backed up unnoticed. If the chunk is still
    /// being written, sets the chunk's end in the backup.
    ///
    /// # Errors
    /// Damage of the store only if the source itself is damaged; otherwise damage of the backup.
    fn verify_copy(&self, wanted: &mut ChunkCopy, pace: &CopyThrottle<'_>) -> Result<()> {
        let copy = match self.verify_chunk((self.env, self.target), wanted, pace) {
            Err(error @ Error::Store(umbel::Error::Corruption { .. })) => {
                self.verify_source(wanted, pace)?;
                return Err(error.into_backup_error());
            }
            verified => verified?,
        };
        let Some(found) = copy else { return Ok(()) };
        if found.file_bytes() != wanted.len {
            let path = self.path(&wanted.copied);
            return Err(Error::Backup(early_end(&path, found, wanted)));
        }
        wanted.entry.ended = Some(found);
        Ok(())
    }

    /// Verifies the part of a chunk that is backed up, in the store.
    fn verify_source(&self, wanted: &ChunkCopy, pace: &CopyThrottle<'_>) -> Result<()> {
        let place = (&self.shared.env, &*self.shared.folder);
        match self.verify_chunk(place, wanted, pace) {
            // A writer has appended it since.
            Err(Error::Store(umbel::Error::Corruption { offset, .. })) if offset >= wanted.len => {
                Ok(())
            }
            verified => verified.map(drop),
        }
    }

    /// Reads every record of a chunk in a folder. Returns the end of the records, which is not
    /// before the end of the backup; `None` for a scavenged chunk.
    fn verify_chunk(
        &self,
        (env, folder): (&Env, &Path),
        wanted: &ChunkCopy,
        pace: &CopyThrottle<'_>,
    ) -> Result<Option<ChunkEnd>> {
        let path = chunk_directory(folder).join(&wanted.copied.name);
        let (entry, check) = (&wanted.entry, || pace.check());
        if let Some(scavenged) = &entry.scavenged {
            let file = env.files.open(&path, Access::Read)?;
            return verify_scavenged(&*file, entry.id, scavenged, pace).map(|()| None);
        }
        let sealed = entry.ended.and_then(|ended| ended.seal);
        let expectation = sealed.map_or(ExpectedEnd::Open, ExpectedEnd::Sealed);
        let found = chunk_end(&scan_chunk_with_check(env, folder, entry, expectation, &check)?);
        let is_right =
            found.file_bytes() >= wanted.len && entry.ended.is_none_or(|ended| ended == found);
        match is_right {
            true => Ok(Some(found)),
            false => Err(early_end(&path, found, wanted).into()),
        }
    }
}

/// The error about a chunk whose records do not end where the records that are backed up do.
fn early_end(path: &Path, found: ChunkEnd, wanted: &ChunkCopy) -> umbel::Error {
    let reason = format!(
        "the records of this chunk of the event log end here, but the chunk was durable up to byte \
         {}",
        wanted.len
    );
    umbel::Error::corruption(path, found.file_bytes(), reason)
}

/// Returns the end of a chunk that was scanned.
fn chunk_end(&ChunkScan { outcome, last_event, .. }: &ChunkScan) -> ChunkEnd {
    let checksum = outcome.checksum;
    match outcome.sealed {
        true => {
            let sealed = Some(Seal { len: outcome.end, checksum });
            ChunkEnd { end: outcome.end - END_RECORD_BYTES, last_event, seal: sealed }
        }
        false => ChunkEnd { end: outcome.end, last_event, seal: None },
    }
}

/// Returns an error if no backup of the store in `folder` can be made in `target`; checks only what
/// is possible without opening the store.
///
/// # Errors
/// - A path is empty, the target is in the store's folder, or the target holds something that no
///   backup wrote.
/// - A call of the system fails.
pub fn check_backup_target(env: &Env, folder: &Path, target: &Path) -> Result<()> {
    check_path("the event store", folder)?;
    check_path("the backup", target)?;
    if env.files.resolved(target).starts_with(env.files.resolved(folder)) {
        return Err(Error::invalid(format!(
            "{} lies in the directory of the store itself; back up the store to another \
             directory, best on another disk",
            target.display()
        )));
    }
    crate::types::nested_store_check::check_not_nested(env, target)?;
    if env.files.exists(target)? && !BackupManifest::exists(env, target)? {
        check_empty(env, target)?;
    }
    Ok(())
}

/// Prepares the directory for a backup of the store, and locks it. Returns the environment of the
/// open directory, and the manifest of the backup.
fn prepare_target(
    shared: &StoreInner,
    target: &Path,
    lock_wait: Duration,
) -> Result<(Env, Box<dyn Lock>, BackupManifest)> {
    let (seed, instance) = {
        let chunk_manifest = shared.log.manifest.lock().ignore_poison();
        (chunk_manifest.seed, chunk_manifest.instance)
    };
    let chunks = chunk_directory(target);
    create_directory(&shared.outer_env, target)?;
    create_directory(&shared.outer_env, &chunks)?;
    let env = shared.outer_env.open_directory(target)?;
    let lock = env.lock(&target.join("LOCK"), lock_wait).map_err(|error| match error {
        umbel::Error::Locked(_) => Error::BackupInUse(target.to_path_buf()),
        error => error.into(),
    })?;
    if !BackupManifest::exists(&env, target)? {
        // An operator may have replaced the directory since it was checked.
        check_empty(&env, target)?;
        let manifest = BackupManifest::new(seed, instance);
        manifest.write(&env, target)?;
        return Ok((env, lock, manifest));
    }
    let manifest = BackupManifest::read(&env, target).map_err(Error::into_backup_error)?;
    check_manifest_owner(&manifest, (seed, instance), target)?;
    Ok((env, lock, manifest))
}

/// Returns an error if the target holds the backup of another store, or of another copy of this
/// store.
pub fn check_owner(shared: &StoreInner, target: &Path) -> Result<()> {
    let env = &shared.outer_env;
    let target = &*env.files.absolute(target)?;
    if !BackupManifest::exists(env, target)? {
        return Ok(());
    }
    let owner = {
        let chunk_manifest = shared.log.manifest.lock().ignore_poison();
        (chunk_manifest.seed, chunk_manifest.instance)
    };
    let manifest = BackupManifest::read(env, target).map_err(Error::into_backup_error)?;
    check_manifest_owner(&manifest, owner, target)
}

/// Returns an error if the backup is not that of the store with this seed and instance.
fn check_manifest_owner(
    manifest: &BackupManifest,
    (seed, instance): ([u8; 16], [u8; 16]),
    target: &Path,
) -> Result<()> {
    let bound = manifest.chunk_manifest.instance;
    if manifest.chunk_manifest.seed == seed
        && bound != instance
        && bound != [0; 16]
        && instance != [0; 16]
    {
        return Err(Error::invalid(format!(
            "{} holds a backup of another copy of this store (one of the two was restored from a \
             backup); back up this copy to another directory",
            target.display()
        )));
    }
    if manifest.chunk_manifest.seed != seed {
        return Err(Error::invalid(format!(
            "{} holds a backup of another store; back up this store to another directory",
            target.display()
        )));
    }
    Ok(())
}

/// Present path of the store's directory, if the operating system can tell.
fn store_directory(shared: &StoreInner) -> Result<PathBuf> {
    Ok(match shared.env.files.directory_location()? {
        DirectoryLocation::Moved { path: Some(now) } => now,
        _ => shared.folder.clone(),
    })
}

/// Returns an error where a folder holds something that no backup wrote.
fn check_empty(env: &Env, target: &Path) -> Result<()> {
    for entry in env.files.read_dir(target)? {
        let is_fine = match &entry.name[..] {
            "log" if entry.is_directory => env.files.read_dir(&chunk_directory(target))?.is_empty(),
            name => BackupManifest::is_partial_backup_name(name),
        };
        if !is_fine {
            let what = match ChunkManifest::exists(env, target)? {
                true => "holds an event store".to_string(),
                false => format!("holds '{}', but no backup", entry.name),
            };
            return Err(Error::invalid(format!(
                "{} {what}; name an empty directory, a directory that does not exist, or the \
                 directory of an earlier backup of this store",
                target.display()
            )));
        }
    }
    Ok(())
}

/// Removes files of chunks that the manifest does not name. A file that cannot be removed only
/// costs disk space.
fn remove_obsolete(env: &Env, target: &Path, manifest: &BackupManifest) {
    let folder = chunk_directory(target);
    let Ok(entries) = env.files.read_dir(&folder) else { return };
    let named: HashSet<_> = manifest.files.iter().map(|file| &file.name).collect();
    for entry in entries.iter().filter(|entry| is_file_name(&entry.name)) {
        if !named.contains(&entry.name) {
            let _ = env.files.remove_file(&folder.join(&entry.name));
        }
    }
}
