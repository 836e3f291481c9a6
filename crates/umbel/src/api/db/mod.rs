//! [`Db`]: an open store.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use umbel_backup::BackupResult;
use umbel_base::{Error, Result, limits};
use umbel_env::Objects;

use crate::api::batch::Batch;
use crate::api::db_handle::DbHandle;
use crate::api::filter_advice::{FilterAdvice, filter_advice};
use crate::api::keyspace::Keyspace;
use crate::api::object_backup::ObjectBackup;
use crate::api::snapshot::Snapshot;
use crate::api::stats::{self, DirectoryStats, Stats};
use crate::fs::blob_files;
use crate::lifecycle::checkpoint::{self, CheckpointReport};
use crate::lifecycle::close;
use crate::lifecycle::open;
use crate::lifecycle::open_read_only;
use crate::lifecycle::verify_store::{self, VerifyReport};
use crate::maintenance::existence_maintenance;
use crate::maintenance::manual_compaction;
use crate::maintenance::manual_flush;
use crate::maintenance::memtable_limit;
use crate::maintenance::scheduler;
use crate::maintenance::space_reclaim::{self, ReclaimScope};
use crate::object_backup::ObjectBackupOptions;
use crate::options::{KeyspaceOptions, Options};
use crate::state::keyspace_state::KeyspaceState;
use crate::version::{Edit, Version};

/// An open store. A clone of the handle shares the store; dropping the last handle of any kind
/// closes the store.
#[derive(Debug, Clone)]
pub struct Db {
    handle: Arc<DbHandle>,
}

impl Db {
    /// Opens the store in `path`, or creates a store there if the options allow it.
    ///
    /// After a fork the handle belongs to the parent alone: in the child every call fails with
    /// [`Error::Forked`], and dropping the handle does nothing. A child that needs the store opens
    /// it itself.
    ///
    /// # Errors
    /// `Locked` if another process or handle has the store open. `Invalid` if the directory holds
    /// no store or a newer Umbel's store, or if an option is out of range. `Corruption` if files do
    /// not match what the store wrote.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Db> {
        Db::open_as(path.as_ref(), options, false)
    }

    /// Opens the store in `path` read-only and changes no byte of it. Writes through the handle are
    /// refused.
    ///
    /// Any number of handles, of this process and of others, read a store while one handle writes
    /// to it. A read-only handle sees every write acknowledged before this call, and no later
    /// write. The writer keeps the files that the read-only handle reads until that handle closes.
    /// The writer cannot detect a reader if `LOCK` is missing or unreadable, and may then remove
    /// files that the reader needs.
    ///
    /// # Errors
    /// As [`Db::open`], without `Locked`. [`Error::Stale`] if the writer changed the store during
    /// each attempt to read it, or later removed a file; open the store again.
    pub fn open_read_only(path: impl AsRef<Path>, options: Options) -> Result<Db> {
        Db::open_as(path.as_ref(), options, true)
    }

    fn open_as(path: &Path, options: Options, read_only: bool) -> Result<Db> {
        let store = match read_only {
            true => open_read_only::open(path, options)?,
            false => open::open(path, options, false)?,
        };
        let handle = Arc::new(DbHandle { store });
        scheduler::start(&handle.store)?;
        existence_maintenance::start(&handle.store)?;
        if !read_only {
            manual_flush::after_open(&handle.store)?;
        }
        Ok(Db { handle })
    }

    /// Returns the keyspace called `name`, and creates the keyspace if it does not exist.
    ///
    /// With options `None` an existing keyspace keeps its options, and a new keyspace gets the
    /// defaults. Options that are given replace the options of an existing keyspace for all later
    /// writes.
    pub fn keyspace(
        &self,
        name: &str,
        options: impl Into<Option<KeyspaceOptions>>,
    ) -> Result<Keyspace> {
        let options = options.into();
        self.handle.store.check_open()?;
        match self.handle.store.keyspace(name) {
            Some(core) if options.is_none() => Ok(Keyspace::new(&self.handle, core)),
            _ => self.keyspace_with(name, options),
        }
    }

    fn keyspace_with(&self, name: &str, given: Option<KeyspaceOptions>) -> Result<Keyspace> {
        let is_given = given.is_some();
        let options = given.unwrap_or_default();
        let store = &self.handle.store;
        options.check()?;
        check_name(name)?;
        if let Some(core) = store.keyspace(name)
            && (*core.configured_options() == options || store.read_only)
        {
            return Ok(Keyspace::new(&self.handle, core));
        }
        store.check_writable()?;
        // No commit runs while a keyspace appears or changes between logged and not logged.
        let commit = store.commit_lock();
        let mut manifest = store.manifest_lock()?;
        let existing = store.keyspace(name);
        if let (false, Some(core)) = (is_given, &existing) {
            // Another thread has just created it.
            return Ok(Keyspace::new(&self.handle, Arc::clone(core)));
        }
        let id = existing.as_ref().map_or(manifest.state().next_keyspace_id, |core| core.id);
        if existing.is_none() && manifest.state().keyspaces.len() >= limits::KEYSPACES_MAX {
            return Err(Error::invalid(format!(
                "the store has {} keyspaces, which is the limit",
                limits::KEYSPACES_MAX
            )));
        }
        if let Some(core) = &existing {
            check_option_change(core, &options)?;
        }
        let edit = Edit::Keyspace { id, name: name.to_string(), options: options.clone() };
        manifest.commit(&[edit])?;
        let core = match existing {
            Some(core) => {
                core.set_options(options);
                core
            }
            None => {
                let (name, caps) = (name.to_string(), store.budget.sizes.caps);
                let keys = store.context.hashers.of(options.hash).keys;
                let core = KeyspaceState::new(id, name, options, keys, caps, Version::default());
                let core = Arc::new(core);
                store.add_keyspace(Arc::clone(&core));
                if store.check_open().is_err() {
                    // A close may have listed the keyspaces before.
                    core.open.close();
                }
                core
            }
        };
        drop((manifest, commit));
        // Other sizes may end a stall or make work due.
        scheduler::update_write_throttle(store, &core);
        existence_maintenance::start(store)?;
        store.signal();
        Ok(Keyspace::new(&self.handle, core))
    }

    /// Returns the existing keyspace called `name`, with its options unchanged; `None` if no
    /// keyspace has this name.
    pub fn existing_keyspace(&self, name: &str) -> Result<Option<Keyspace>> {
        self.handle.store.check_open()?;
        let core = self.handle.store.keyspace(name);
        Ok(core.map(|core| Keyspace::new(&self.handle, core)))
    }

    /// Returns the names of the keyspaces in the order of their creation; no names in a forked
    /// child.
    pub fn keyspaces(&self) -> Vec<String> {
        if self.handle.store.open.is_forked() {
            return Vec::new();
        }
        self.handle.store.keyspaces().iter().map(|core| core.name.clone()).collect()
    }

    /// Drops a keyspace with all its data. Later calls on handles of the dropped keyspace return an
    /// error.
    pub fn drop_keyspace(&self, name: &str) -> Result<()> {
        let drop_once = || self.drop_keyspace_once(name);
        space_reclaim::retry_after_reclaim(&self.handle.store, ReclaimScope::All, drop_once)
    }

    fn drop_keyspace_once(&self, name: &str) -> Result<()> {
        let store = &self.handle.store;
        store.check_writable()?;
        let commit = store.commit_lock();
        let mut manifest = store.manifest_lock()?;
        let Some(core) = store.keyspace(name) else {
            return Err(Error::invalid(format!("there is no keyspace '{name}'")));
        };
        manifest.commit(&[Edit::DropKeyspace(core.id)])?;
        core.dropped.store(true, Ordering::Release);
        core.open.close();
        store.remove_keyspace(core.id);
        // The files are removed when their last reader ends.
        let view = core.super_version.acquire();
        for (_, table) in view.version.tables() {
            table.mark_obsolete();
            blob_files::mark_dropped(table.blobs().iter().cloned(), []);
        }
        for buffer in view.frozen.iter().chain([&view.active]) {
            blob_files::mark_dropped(buffer.blobs(), []);
        }
        core.super_version.clear(&core.options());
        drop((manifest, commit));
        existence_maintenance::remove(store, &core);
        memtable_limit::release_writers(store);
        store.signal();
        // Its writes are in the WAL, too.
        store.wal_signal.notify();
        Ok(())
    }

    /// Starts a batch of writes to one or several keyspaces that are committed together.
    pub fn batch(&self) -> Batch {
        Batch::new(&self.handle)
    }

    /// Takes a consistent snapshot of every keyspace.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(&self.handle)
    }

    /// Returns the store's statistics; empty statistics in a forked child.
    pub fn stats(&self) -> Stats {
        if self.handle.store.open.is_forked() {
            return Stats::default();
        }
        stats::of_store(&self.handle.store)
    }

    /// Returns the bytes of all memtables, and the bytes of the whole memory budget.
    #[doc(hidden)]
    pub fn memtable_bytes(&self) -> (u64, u64) {
        let store = &self.handle.store;
        let keyspaces = store.keyspaces();
        let bytes = keyspaces.iter().map(|keyspace| keyspace.memtable_bytes()).sum();
        (bytes, store.budget.sizes.total)
    }

    /// Calls `attempt`. On a full disk it frees the space reserved for a small WAL segment, if any,
    /// and calls `attempt` once more.
    #[doc(hidden)]
    pub fn with_reserved_segment<T>(&self, attempt: impl FnMut() -> Result<T>) -> Result<T> {
        self.handle.store.with_reserved_segment(attempt)
    }

    /// Whether flushes or compactions run now; callers use it to postpone other work.
    pub fn is_working(&self) -> bool {
        self.handle.store.budget.is_working()
    }

    /// Runs the advisor, and reports for each keyspace which filters are kept and what more or less
    /// memory would change. The report is empty in a forked child.
    pub fn advice(&self) -> Vec<FilterAdvice> {
        if self.handle.store.open.is_forked() {
            return Vec::new();
        }
        filter_advice(&self.handle.store)
    }

    /// Returns why the store refuses writes until it is opened again; `None` if the store accepts
    /// writes.
    pub fn failure(&self) -> Option<String> {
        self.handle.store.fatal_error.reason()
    }

    /// Syncs every earlier write, so that it survives power loss.
    pub fn sync(&self) -> Result<()> {
        let store = &self.handle.store;
        store.check_writable()?;
        let through = store.commit_lock().wal.last_sequence();
        store.group_sync.sync_through(through, &store.counters)?;
        // Where all writes were durable already, nothing checked the WAL.
        store.group_sync.check_present().map_err(|error| store.fatal_error.set(error))
    }

    /// Writes all memtables to tables, and returns after the tables are written.
    pub fn flush(&self) -> Result<()> {
        self.handle.store.check_process()?;
        let keyspaces = self.handle.store.keyspaces();
        manual_flush::flush_together(&self.handle.store, &keyspaces, None)
    }

    /// Flushes several keyspaces without a WAL together with `marker`. After a crash, either all
    /// these keyspaces have the marker and all writes before the call, or none has the marker.
    pub fn flush_all(&self, keyspaces: &[&Keyspace], marker: &[u8]) -> Result<()> {
        let mut cores: Vec<Arc<KeyspaceState>> = Vec::with_capacity(keyspaces.len());
        for keyspace in keyspaces {
            if !keyspace.belongs_to(&self.handle) {
                return Err(Error::invalid(format!(
                    "keyspace '{}' is of another store",
                    keyspace.name()
                )));
            }
            keyspace.state.check_not_dropped()?;
            crate::state::write_batch::check_marker(&keyspace.state, marker)?;
            if !cores.iter().any(|core| Arc::ptr_eq(core, &keyspace.state)) {
                cores.push(Arc::clone(&keyspace.state));
            }
        }
        manual_flush::flush_together(&self.handle.store, &cores, Some(marker))
    }

    /// Reads and checks every byte of every table. Damage appears in the report; the call returns
    /// an error only if it could not check.
    pub fn verify(&self) -> Result<VerifyReport> {
        verify_store::verify(&self.handle.store)
    }

    /// Writes a consistent copy of the store's present state to `target`, a directory that does not
    /// exist or is empty.
    ///
    /// The copy shares tables by hard links, which take no disk space. Tables are copied if
    /// `target` is on another file system or hard links are not supported; the report says so. The
    /// copy is a store with its own [instance id](crate::DirectoryStats::instance_id). After an
    /// error the call leaves nothing in `target`.
    pub fn checkpoint(&self, target: impl AsRef<Path>) -> Result<CheckpointReport> {
        checkpoint::checkpoint(&self.handle.store, target.as_ref())
    }

    /// Begins or continues the backup of the store into a prefix of an object store. An empty
    /// prefix gets the object `BACKUP`, which binds it to this copy of the store.
    ///
    /// # Errors
    /// - [`Refused`](crate::BackupError::Refused), before anything is written, if the prefix holds
    ///   foreign objects, or the backup of another store or of another copy of this store.
    /// - [`Store`](crate::BackupError::Store) if the store is read-only or refuses writes.
    /// - [`Objects`](crate::BackupError::Objects) for failed requests.
    ///
    /// ```
    /// # fn main() -> Result<(), umbel::BackupError> {
    /// # let objects = umbel_sim::ObjectSim::new(1);
    /// # let options = umbel::Options { env: objects.env(), ..umbel::Options::default() };
    /// # let db = umbel::Db::open("/data", options)?;
    /// let backup = db.object_backup(objects.client(1), umbel::ObjectBackupOptions::default())?;
    /// let report = backup.run_once()?;
    /// assert_eq!((report.manifest, report.uploaded_objects), (1, 0));
    /// # Ok(())
    /// # }
    /// ```
    pub fn object_backup(
        &self,
        objects: Arc<dyn Objects>,
        options: ObjectBackupOptions,
    ) -> BackupResult<ObjectBackup> {
        ObjectBackup::open(&self.handle, objects, options)
    }

    /// Waits until there is nothing to flush or compact. While writers continue, the call waits
    /// only for the memtables that were full when it began. The call also waits until as many bytes
    /// are compacted as the compaction debt had when it began. So the call returns even if a writer
    /// never pauses.
    ///
    /// # Errors
    /// [`Error::DiskFull`] if flushes or compactions wait for disk space. The store continues and
    /// retries them later.
    pub fn wait_for_compaction(&self) -> Result<()> {
        manual_compaction::drain(&self.handle.store)
    }

    /// Closes the store for every handle: waits for background work, syncs all writes and records
    /// where each file ends. The recorded ends let the next open detect a change to the files.
    /// Other callers of `close` wait for this close and get its result.
    pub fn close(self) -> Result<()> {
        close::close(&self.handle.store)
    }

    /// Checks where the store's directory is now, starting from the path by which the store was
    /// opened.
    pub fn directory(&self) -> DirectoryStats {
        DirectoryStats::of_store(&self.handle.store)
    }

    /// The path of the store's directory.
    pub fn path(&self) -> &Path {
        &self.handle.store.folder
    }
}

/// Fails if the options of an existing keyspace cannot change to `options`.
fn check_option_change(keyspace: &KeyspaceState, options: &KeyspaceOptions) -> Result<()> {
    let name = &keyspace.name;
    if keyspace.uses_wal() != options.log && keyspace.has_unflushed() {
        return Err(Error::invalid(format!(
            "keyspace '{name}' has unflushed writes; flush it before changing whether it has a log"
        )));
    }
    let hash = keyspace.hasher.kind();
    if hash != options.hash {
        return Err(Error::invalid(format!(
            "keyspace '{name}' was created with the hash {hash}, which cannot change; open the \
             keyspace with {hash}, or create another keyspace with {}",
            options.hash
        )));
    }
    Ok(())
}

fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > limits::KEYSPACE_NAME_BYTES_MAX {
        return Err(Error::invalid(format!(
            "a keyspace's name has {} bytes, but must have 1 to {}",
            name.len(),
            limits::KEYSPACE_NAME_BYTES_MAX
        )));
    }
    if name.chars().any(char::is_control) {
        let name = name.escape_debug();
        let message = format!("a keyspace's name has no control characters, but '{name}' does");
        return Err(Error::invalid(message));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
