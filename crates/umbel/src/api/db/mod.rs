//! [`Db`]: an open store.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use umbel_base::{Error, Result, limits};

use crate::api::batch::Batch;
use crate::api::db_handle::DbHandle;
use crate::api::filter_advice::{FilterAdvice, filter_advice};
use crate::api::keyspace::Keyspace;
use crate::api::snapshot::Snapshot;
use crate::api::stats::{self, DirectoryStats, Stats};
use crate::fs::blob_files;
use crate::lifecycle::checkpoint::{self, CheckpointReport};
use crate::lifecycle::close;
use crate::lifecycle::open;
use crate::lifecycle::open_read_only;
use crate::lifecycle::verify_store::{self, VerifyReport};
use crate::maintenance::disk_full_reclaim::{self, ReclaimScope};
use crate::maintenance::existence_maintenance;
use crate::maintenance::manual_compaction;
use crate::maintenance::manual_flush;
use crate::maintenance::memtable_limit;
use crate::maintenance::scheduler;
use crate::options::{KeyspaceOptions, Options};
use crate::state::keyspace_state::KeyspaceState;
use crate::version::{Edit, Version};

/// An open store. Cloning shares it; the last handle of any kind closes it.
#[derive(Debug, Clone)]
pub struct Db {
    handle: Arc<DbHandle>,
}

impl Db {
    /// Opens the store in `path`, or creates it where the options allow it.
    ///
    /// After a fork the handle belongs to the parent alone: in the child every call fails with
    /// [`Error::Forked`], and dropping the handle does nothing. Open the store after the fork.
    ///
    /// # Errors
    /// `Locked` where another process or handle has it open. `Invalid` where the directory is no
    /// store, was written by a newer Umbel, or an option is out of range. `Corruption` where files
    /// do not match what was written.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Db> {
        Db::open_as(path.as_ref(), options, false)
    }

    /// Opens the store in `path` read-only and changes no byte of it. Writes through the handle are
    /// refused.
    ///
    /// Any number of handles, of this process and of others, read a store while one handle writes
    /// to it. Each sees every write acknowledged before this call, and stays at the state that it
    /// opened. The writer keeps the files of that state until the handle is closed. Where the
    /// writer cannot detect the reader (no `LOCK` file, or one that may not be read), it may remove
    /// them.
    ///
    /// # Errors
    /// As [`Db::open`], without `Locked`. [`Error::Stale`] where the writer changed the store
    /// during each attempt to read it, or later removed a file: open it again.
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

    /// Returns the keyspace called `name`, and creates it where it does not exist.
    ///
    /// With `None` an existing keyspace keeps its options, and a new one gets the defaults. Given
    /// options replace those of an existing keyspace, for all later writes.
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

    /// Returns the existing keyspace called `name` with its own options; `None` where there is
    /// none.
    pub fn existing_keyspace(&self, name: &str) -> Result<Option<Keyspace>> {
        self.handle.store.check_open()?;
        let core = self.handle.store.keyspace(name);
        Ok(core.map(|core| Keyspace::new(&self.handle, core)))
    }

    /// Returns the names of the keyspaces in the order of their creation; empty in a forked child.
    pub fn keyspaces(&self) -> Vec<String> {
        if self.handle.store.open.is_forked() {
            return Vec::new();
        }
        self.handle.store.keyspaces().iter().map(|core| core.name.clone()).collect()
    }

    /// Drops a keyspace with all its data. Handles of it return an error from then on.
    pub fn drop_keyspace(&self, name: &str) -> Result<()> {
        let drop_once = || self.drop_keyspace_once(name);
        disk_full_reclaim::retry_after_reclaim(&self.handle.store, ReclaimScope::All, drop_once)
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

    /// Returns the store's statistics; empty in a forked child.
    pub fn stats(&self) -> Stats {
        if self.handle.store.open.is_forked() {
            return Stats::default();
        }
        stats::of_store(&self.handle.store)
    }

    /// Returns the bytes of all memtables, and those of the whole memory budget.
    #[doc(hidden)]
    pub fn memtable_bytes(&self) -> (u64, u64) {
        let store = &self.handle.store;
        let keyspaces = store.keyspaces();
        let bytes = keyspaces.iter().map(|keyspace| keyspace.memtable_bytes()).sum();
        (bytes, store.budget.sizes.total)
    }

    /// Calls `attempt`. On a full disk it returns the space reserved for a small WAL segment, if
    /// any, to the disk and calls `attempt` once more.
    #[doc(hidden)]
    pub fn with_reserved_segment<T>(&self, attempt: impl FnMut() -> Result<T>) -> Result<T> {
        self.handle.store.with_reserved_segment(attempt)
    }

    /// Whether flushes or compactions run now, for callers with work that can wait.
    pub fn is_working(&self) -> bool {
        self.handle.store.budget.is_working()
    }

    /// Explains for each keyspace which filters are kept, and what other memory would bring. Runs
    /// the advisor first. Empty in a forked child.
    pub fn advice(&self) -> Vec<FilterAdvice> {
        if self.handle.store.open.is_forked() {
            return Vec::new();
        }
        filter_advice(&self.handle.store)
    }

    /// Returns why the store refuses writes until it is opened again; `None` where it accepts them.
    pub fn failure(&self) -> Option<String> {
        self.handle.store.fatal_error.reason()
    }

    /// Makes every earlier write durable, so that it survives power loss.
    pub fn sync(&self) -> Result<()> {
        let store = &self.handle.store;
        store.check_writable()?;
        let through = store.commit_lock().wal.last_sequence();
        store.group_sync.sync_through(through, &store.counters)?;
        // Where all writes were durable already, nothing checked the WAL.
        store.group_sync.check_present().map_err(|error| store.fatal_error.set(error))
    }

    /// Writes all memtables to tables and waits for it.
    pub fn flush(&self) -> Result<()> {
        self.handle.store.check_process()?;
        let keyspaces = self.handle.store.keyspaces();
        manual_flush::flush_together(&self.handle.store, &keyspaces, None)
    }

    /// Flushes several keyspaces without a WAL together with `marker`. After a crash either all of
    /// them have the writes before the call and the marker, or none has.
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

    /// Reads and checks every byte of every table. Damage is in the report, not in the error.
    pub fn verify(&self) -> Result<VerifyReport> {
        verify_store::verify(&self.handle.store)
    }

    /// Writes a consistent copy of the present state to `target`, a directory that does not exist
    /// or is empty.
    ///
    /// Tables are shared by hard links and take no disk space. Where `target` is on another file
    /// system, or on one without hard links, they are copied, and the report says so. The copy is a
    /// store with its own [instance id](crate::DirectoryStats::instance_id). After an error nothing
    /// is left in `target`.
    pub fn checkpoint(&self, target: impl AsRef<Path>) -> Result<CheckpointReport> {
        checkpoint::checkpoint(&self.handle.store, target.as_ref())
    }

    /// Waits until there is nothing to flush or compact. Beside other writers, it waits for the
    /// memtables that were full at the call, and for as many compacted bytes as the debt was. So it
    /// returns even beside a writer that never pauses.
    ///
    /// # Errors
    /// [`Error::DiskFull`] where work waits for disk space. The work is retried later, and the
    /// store continues.
    pub fn wait_for_compaction(&self) -> Result<()> {
        manual_compaction::drain(&self.handle.store)
    }

    /// Closes the store for every handle: waits for background work, makes everything durable and
    /// records where each file ends. So the next open detects any change to the files. Further
    /// callers, during the close or later, wait and get the same result.
    pub fn close(self) -> Result<()> {
        close::close(&self.handle.store)
    }

    /// Locates the store's directory by checking the path that it was opened by.
    pub fn directory(&self) -> DirectoryStats {
        DirectoryStats::of_store(&self.handle.store)
    }

    /// The store's directory.
    pub fn path(&self) -> &Path {
        &self.handle.store.folder
    }
}

/// An error if the options of an existing keyspace cannot change to these.
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
            "keyspace '{name}' was created with the hash {hash}, which cannot change: use it, or \
             create another keyspace with {}",
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
