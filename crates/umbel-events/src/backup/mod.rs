//! Backing up a store while it is used: the log up to where it is durable, file by file, behind
//! what an earlier backup in the same folder has of them.
//!
//! INVARIANT: what the manifest in the folder names is never changed: bytes are only added behind
//! those it speaks of, and files are removed only after a manifest without them is durable.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use umbel_env::{Access, DirectoryPlace, Env, Lock, check_path};
use umbel_log::{END_RECORD_BYTES, Expectation, Sealed};

use crate::backup_copy::{CopyOptions, Pace, block_sums, copy_behind, make_folder};
use crate::backup_manifest::{BackupFile, BackupManifest, file_name, is_file_name};
use crate::chunk::FIRST_EVENT_AT;
use crate::chunk_read::{ChunkRead, read_chunk};
use crate::chunk_table::{ChunkEntry, ChunkTable, Ended, chunk_folder, unopened};
use crate::error::{Error, Result};
use crate::event::Position;
use crate::lock::locked;
use crate::packed;
use crate::shared::Shared;

/// What a backup did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupReport {
    /// The position of the last event in it; 0 where there is none. Everything up to there is.
    pub through: Position,
    /// How many backups came to their end in the folder, this one included.
    pub number: u64,
    /// Files of the event log in the backup.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files that were written, or written on.
    pub copied_files: u64,
    /// Bytes that were copied.
    pub copied_bytes: u64,
}

/// What is to be had of one chunk.
struct Wanted {
    /// Its row of the table. Where it goes on, it gets its end once that was copied.
    entry: ChunkEntry,
    /// Its first so many bytes.
    len: u64,
    /// What the folder has of it already, which stays as it is.
    held: BackupFile,
}

/// A backup on its way.
struct Backup<'a> {
    shared: &'a Shared,
    /// The world, with its files held at the target.
    env: &'a Env,
    target: &'a Path,
    old: BackupManifest,
}

/// Backs up everything that was appended before the call.
pub fn backup(shared: &Shared, target: &Path, options: CopyOptions<'_>) -> Result<BackupReport> {
    shared.check_open()?;
    check_path("the backup", target)?;
    let target = &*shared.outside.files.absolute(target)?;
    check_backup_folder(&shared.outside, &own_directory(shared)?, target)?;
    check_durable(shared)?;
    // Files of chunks do not go while they are copied.
    let _copying = locked(&shared.log.copying);
    let (env, _lock, old) = prepare(shared, target, options.lock_wait)?;
    if !shared.read_only {
        shared.sync_log()?;
    }
    let (mut table, wanted) = Backup::plan(shared);
    let backup = Backup { shared, env: &env, target, old };
    let wanted = backup.compare(wanted)?;
    let missing = wanted.iter().map(|wanted| wanted.len - wanted.held.len).sum();
    let mut pace = Pace::begin(&shared.env, options, missing);
    let mut files = Vec::with_capacity(wanted.len());
    let (mut copied_files, mut copied_bytes) = (0, 0);
    table.chunks.clear();
    for mut wanted in wanted {
        let new = wanted.len - wanted.held.len;
        if new > 0 && !backup.take_over(&mut wanted, &mut pace)? {
            backup.copy(&mut wanted, &mut pace)?;
            copied_files += 1;
            copied_bytes += new;
        }
        if new == 0 {
            backup.cut_off(&wanted.held)?;
        }
        table.chunks.push(wanted.entry);
        files.push(wanted.held);
    }
    let number = backup.old.number + 1;
    let manifest = BackupManifest { number, table, files };
    env.files.sync_dir(&chunk_folder(target))?;
    manifest.write(&env, target)?;
    remove_others(&env, target, &manifest);
    Ok(BackupReport {
        through: Position(manifest.through()),
        number,
        files: manifest.files.len() as u64,
        bytes: manifest.bytes(),
        copied_files,
        copied_bytes,
    })
}

/// An error where what is read may not be durable, and this handle cannot make it so: a power cut
/// could take from the store what the backup has.
fn check_durable(shared: &Shared) -> Result<()> {
    let chunks = shared.log.chunks.all();
    if !shared.read_only || chunks.iter().all(|chunk| chunk.ended.get().is_some()) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "the event store in {} has a writer or was not closed, and a handle that is open for \
         reading only cannot make durable what it would back up: have the writer make the backup, \
         or open the store for writing",
        shared.folder.display()
    )))
}

impl Backup<'_> {
    /// The table, and what of each chunk is durable and has events.
    fn plan(shared: &Shared) -> (ChunkTable, Vec<Wanted>) {
        let durable = shared.log.durable();
        // In this order: a chunk is in the table before it is in the list.
        let chunks = shared.log.chunks.all();
        let table = locked(&shared.log.table).clone();
        let by_id: HashMap<u64, _> = chunks.iter().map(|chunk| (chunk.id, chunk)).collect();
        let mut wanted = Vec::new();
        for entry in &table.chunks {
            let Some(chunk) = by_id.get(&entry.id) else { continue };
            let durable = durable.saturating_sub(entry.start);
            let ended = chunk.ended.get().copied();
            let ended = ended.filter(|ended| ended.file_bytes() <= durable);
            let len = ended.map_or(durable.min(entry.capacity), |ended| ended.file_bytes());
            let has_events = ended.map_or(len > FIRST_EVENT_AT, |ended| ended.last_event > 0);
            // What was scavenged says so in its file, also where nothing else is left.
            let has_events = has_events || entry.packed.is_some();
            let len = entry.packed.map_or(len, |packed| packed.file_bytes);
            if has_events {
                let held = BackupFile { name: file_name(entry), len: 0, blocks: Vec::new() };
                wanted.push(Wanted { entry: ChunkEntry { ended, ..*entry }, len, held });
            }
            if ended.is_none() {
                // What comes after it is not durable before all of it is.
                break;
            }
        }
        (table, wanted)
    }

    /// Finds out what of this the folder has.
    ///
    /// # Errors
    /// `Invalid` where it has what this store has not, so that it is the backup of another copy of
    /// the store.
    fn compare(&self, mut wanted: Vec<Wanted>) -> Result<Vec<Wanted>> {
        let end = |wanted: &Wanted| match (wanted.entry.packed, wanted.entry.ended) {
            (Some(_), Some(ended)) => ended.file_bytes(),
            _ => wanted.len,
        };
        let through = wanted.last().map_or(0, |last| last.entry.start + end(last));
        if self.old.through() > through {
            return Err(self.diverged(&format!(
                "it goes up to position {}, which is beyond what this store has",
                self.old.through()
            )));
        }
        let old: HashMap<_, _> =
            self.old.chunks().map(|(entry, file)| (&file.name, (entry, file))).collect();
        for wanted in &mut wanted {
            let Some((entry, file)) = old.get(&wanted.held.name) else { continue };
            let place = |entry: &ChunkEntry| (entry.id, entry.start, entry.capacity, entry.key);
            let was_sealed = entry.ended.is_some_and(|ended| ended.sealed.is_some());
            let differs = place(entry) != place(&wanted.entry)
                || file.len > wanted.len
                || entry.packed != wanted.entry.packed
                || (was_sealed && entry.ended != wanted.entry.ended);
            if differs {
                return Err(self.diverged(&format!("it has another {}", file.name)));
            }
            if !self.is_there(file)? {
                continue;
            }
            if file.len == wanted.len && wanted.entry.ended.is_none() {
                wanted.entry.ended = entry.ended;
            }
            wanted.held.clone_from(file);
        }
        Ok(wanted)
    }

    fn diverged(&self, what: &str) -> Error {
        Error::invalid(format!(
            "{} holds the backup of another copy of this store ({what}), as when the store was \
             restored from an earlier backup and both went on; back it up to another folder",
            self.target.display()
        ))
    }

    fn path(&self, file: &BackupFile) -> PathBuf {
        chunk_folder(self.target).join(&file.name)
    }

    /// Whether the folder has all that the manifest says of a file, as far as its length tells.
    fn is_there(&self, file: &BackupFile) -> Result<bool> {
        let path = self.path(file);
        let files = &self.env.files;
        Ok(files.exists(&path)? && files.open(&path, Access::Read)?.len()? >= file.len)
    }

    /// Takes off what stands in a file behind what the manifest says of it: no backup that counts
    /// put it there, and a packed chunk is whole only with its own length.
    fn cut_off(&self, held: &BackupFile) -> Result<()> {
        let (path, files) = (self.path(held), &self.env.files);
        if files.open(&path, Access::Read)?.len()? > held.len {
            let file = files.open(&path, Access::ReadWrite)?;
            file.set_len(held.len)?;
            file.sync()?;
        }
        Ok(())
    }

    /// Takes a file as it is that a backup left which did not come to its end, where the chunk is
    /// sealed and the seal proves that all of it is there.
    fn take_over(&self, wanted: &mut Wanted, pace: &mut Pace<'_>) -> Result<bool> {
        let (path, env) = (self.path(&wanted.held), self.env);
        let Some(ended) = wanted.entry.ended else { return Ok(false) };
        let Some(sealed) = ended.sealed else { return Ok(false) };
        if wanted.held.len > 0 || !env.files.exists(&path)? {
            return Ok(false);
        }
        let file = env.files.open(&path, Access::ReadWrite)?;
        let is_whole = match &wanted.entry.packed {
            Some(packed) => packed::check(&*file, wanted.entry.id, packed).is_ok(),
            None => {
                let seal = Expectation::Sealed(sealed);
                let read = read_chunk(env, self.target, &wanted.entry, seal);
                file.len()? == wanted.len && read.is_ok_and(|read| end_of(&read) == ended)
            }
        };
        if is_whole {
            wanted.held.blocks = block_sums(&*file, wanted.entry.id, wanted.len)?;
            wanted.held.len = wanted.len;
            file.sync()?;
            pace.did(wanted.len);
        }
        Ok(is_whole)
    }

    /// Copies what is new of a chunk, makes it durable and reads it.
    fn copy(&self, wanted: &mut Wanted, pace: &mut Pace<'_>) -> Result<()> {
        let path = self.path(&wanted.held);
        let is_new = wanted.held.len == 0;
        let copied = self.copy_file(wanted, &path, pace);
        let copied = copied.and_then(|()| self.check(wanted));
        if copied.is_err() && is_new {
            // It would only take room; the first failure is the one to report.
            let _ = self.env.files.remove_file(&path);
        }
        copied
    }

    fn copy_file(&self, wanted: &mut Wanted, path: &Path, pace: &mut Pace<'_>) -> Result<()> {
        let files = &self.env.files;
        let source = self.source(&wanted.held.name);
        let opened = self.shared.env.files.open(&source, Access::Read);
        let source = opened.map_err(|error| unopened(&source, error))?;
        let target = match wanted.held.len {
            0 => {
                if files.exists(path)? {
                    // Left over from a backup that did not come to its end.
                    files.remove_file(path)?;
                }
                files.create(path)?
            }
            _ => files.open(path, Access::ReadWrite)?,
        };
        let (id, end) = (wanted.entry.id, wanted.len);
        if !copy_behind((&*source, &*target), id, &mut wanted.held, end, pace)? {
            return Err(self.diverged(&format!("it has another {}", wanted.held.name)));
        }
        // A backup that did not come to its end may have written more.
        target.set_len(end)?;
        Ok(target.sync()?)
    }

    fn source(&self, name: &str) -> PathBuf {
        chunk_folder(&self.shared.folder).join(name)
    }

    /// Reads every record of a copy. What is damaged in the log is not backed up as if it were not.
    /// Where the chunk goes on, this is how it ended for the backup.
    fn check(&self, wanted: &mut Wanted) -> Result<()> {
        if let Some(packed) = &wanted.entry.packed {
            let file = self.env.files.open(&self.path(&wanted.held), Access::Read)?;
            let checked = packed::check(&*file, wanted.entry.id, packed);
            return checked.map_err(|error| self.in_source(wanted, error.into()));
        }
        let sealed = wanted.entry.ended.and_then(|ended| ended.sealed);
        let expectation = sealed.map_or(Expectation::Open, Expectation::Sealed);
        let read = read_chunk(self.env, self.target, &wanted.entry, expectation);
        let read = read.map_err(|error| self.in_source(wanted, error))?;
        let found = end_of(&read);
        let is_right = found.file_bytes() == wanted.len
            && wanted.entry.ended.is_none_or(|ended| ended == found);
        if !is_right {
            let reason = format!(
                "the records of this part of the event log end here, but it was durable up to \
                 byte {}; nothing more is backed up before that is mended",
                wanted.len
            );
            let path = self.source(&wanted.held.name);
            return Err(umbel::Error::corruption(&path, read.outcome.end, reason).into());
        }
        wanted.entry.ended = Some(found);
        Ok(())
    }

    /// Damage in a copy that was just made is in the file that it was made of.
    fn in_source(&self, wanted: &Wanted, error: Error) -> Error {
        match error {
            Error::Store(umbel::Error::Corruption { offset, reason, .. }) => {
                let path = self.source(&wanted.held.name);
                umbel::Error::corruption(&path, offset, reason).into()
            }
            error => error,
        }
    }
}

/// How a chunk ends of which this was read.
fn end_of(&ChunkRead { outcome, last_event, .. }: &ChunkRead) -> Ended {
    let checksum = outcome.checksum;
    match outcome.sealed {
        true => {
            let sealed = Some(Sealed { len: outcome.end, checksum });
            Ended { end: outcome.end - END_RECORD_BYTES, last_event, sealed }
        }
        false => Ended { end: outcome.end, last_event, sealed: None },
    }
}

/// An error where no backup of the store in `folder` can be made in `target`, as far as that can be
/// told without opening the store.
///
/// # Errors
/// A path is empty, the target lies in the store's folder, or it holds what no backup put there;
/// and what the system refuses.
pub fn check_backup_folder(env: &Env, folder: &Path, target: &Path) -> Result<()> {
    check_path("the event store", folder)?;
    check_path("the backup", target)?;
    if env.files.resolved(target).starts_with(env.files.resolved(folder)) {
        return Err(Error::invalid(format!(
            "{} lies in the folder of the store itself; back it up to another folder, best on \
             another disk",
            target.display()
        )));
    }
    crate::open::check_above(env, target)?;
    if env.files.exists(target)? && !BackupManifest::exists(env, target)? {
        check_empty(env, target)?;
    }
    Ok(())
}

/// Makes the directory ready for a backup of the store, and locks it. Returns the world held at it,
/// and what it holds.
fn prepare(
    shared: &Shared,
    target: &Path,
    lock_wait: Duration,
) -> Result<(Env, Box<dyn Lock>, BackupManifest)> {
    let (seed, instance) = {
        let table = locked(&shared.log.table);
        (table.seed, table.instance)
    };
    let chunks = chunk_folder(target);
    make_folder(&shared.outside, target)?;
    make_folder(&shared.outside, &chunks)?;
    let env = shared.outside.hold(target)?;
    let lock = env.lock(&target.join("LOCK"), lock_wait)?;
    if !BackupManifest::exists(&env, target)? {
        // An operator may have put another directory there since it was looked at.
        check_empty(&env, target)?;
        let manifest = BackupManifest::new(seed, instance);
        manifest.write(&env, target)?;
        return Ok((env, lock, manifest));
    }
    let manifest = BackupManifest::read(&env, target).map_err(Error::in_backup)?;
    let bound = manifest.table.instance;
    if manifest.table.seed == seed && bound != instance && bound != [0; 16] && instance != [0; 16] {
        return Err(Error::invalid(format!(
            "{} holds a backup of another copy of this store (one of the two was restored from a \
             backup); back this one up to another folder",
            target.display()
        )));
    }
    if manifest.table.seed != seed {
        return Err(Error::invalid(format!(
            "{} holds a backup of another store; back this one up to another folder",
            target.display()
        )));
    }
    Ok((env, lock, manifest))
}

/// Where the store's directory is now, as far as the system tells.
fn own_directory(shared: &Shared) -> Result<PathBuf> {
    Ok(match shared.env.files.place()? {
        DirectoryPlace::Moved { now: Some(now) } => now,
        _ => shared.folder.clone(),
    })
}

/// An error where a folder holds something that no backup put there.
fn check_empty(env: &Env, target: &Path) -> Result<()> {
    for entry in env.files.read_dir(target)? {
        let is_fine = match &entry.name[..] {
            "log" if entry.is_directory => env.files.read_dir(&chunk_folder(target))?.is_empty(),
            name => BackupManifest::is_left_over(name),
        };
        if !is_fine {
            let what = match ChunkTable::exists(env, target)? {
                true => "holds an event store".to_string(),
                false => format!("holds '{}', but no backup", entry.name),
            };
            return Err(Error::invalid(format!(
                "{} {what}; name an empty folder, one that does not exist, or that of an earlier \
                 backup of this store",
                target.display()
            )));
        }
    }
    Ok(())
}

/// Removes files of chunks that the manifest does not name. One that stays costs room and nothing
/// else.
fn remove_others(env: &Env, target: &Path, manifest: &BackupManifest) {
    let folder = chunk_folder(target);
    let Ok(entries) = env.files.read_dir(&folder) else { return };
    let named: HashSet<_> = manifest.files.iter().map(|file| &file.name).collect();
    for entry in entries.iter().filter(|entry| is_file_name(&entry.name)) {
        if !named.contains(&entry.name) {
            let _ = env.files.remove_file(&folder.join(&entry.name));
        }
    }
}
