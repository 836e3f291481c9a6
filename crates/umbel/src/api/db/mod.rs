//! [`Db`]: an open store.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use umbel_base::{Error, Result, limits};

use crate::advise::{self, FilterAdvice};
use crate::background;
use crate::batch::Batch;
use crate::blobs;
use crate::by_hand;
use crate::checkpoint::{self, CheckpointReport};
use crate::close;
use crate::commit;
use crate::existence_upkeep;
use crate::flush_now;
use crate::handle::Handle;
use crate::keyspace::Keyspace;
use crate::keyspace_core::KeyspaceCore;
use crate::open;
use crate::open_read_only;
use crate::options::{KeyspaceOptions, Options};
use crate::room::{self, Extent};
use crate::snapshot::Snapshot;
use crate::stats::{self, DirectoryStats, Stats};
use crate::verify::{self, VerifyReport};
use crate::version::{Edit, Version};

/// An open store. Cloning shares it; the last handle of any kind closes it.
#[derive(Debug, Clone)]
pub struct Db {
    handle: Arc<Handle>,
}

impl Db {
    /// Opens the store in `path`, or creates it where the options allow it.
    ///
    /// After a fork the handle is the parent's alone: in the child every call is refused with
    /// [`Error::Forked`], and dropping the handle there does nothing. Open it after the fork.
    ///
    /// # Errors
    /// `Locked` where another process or handle has it open, `Invalid` where the folder is no
    /// store, was written by a newer Umbel or an option is out of range, `Corruption` where files
    /// do not agree with what was written.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Db> {
        Db::open_as(path.as_ref(), options, false)
    }

    /// Opens the store in `path` for reading only and changes no byte of it. Writes through the
    /// handle are refused.
    ///
    /// Any number of handles, of this process and of others, read a store while one writes to it.
    /// Each sees every write acknowledged before this call, and stays at the state it opened. The
    /// writer keeps the files of that state until the handle is closed; on a medium where it cannot
    /// know of the reader (no `LOCK` file, or one that may not be read), it may remove them.
    ///
    /// # Errors
    /// As [`Db::open`], without `Locked`; and [`Error::Stale`] where the writer changed the store
    /// during each attempt to read it, or later removed a file: open it again.
    pub fn open_read_only(path: impl AsRef<Path>, options: Options) -> Result<Db> {
        Db::open_as(path.as_ref(), options, true)
    }

    fn open_as(path: &Path, options: Options, read_only: bool) -> Result<Db> {
        let store = match read_only {
            true => open_read_only::open(path, options)?,
            false => open::open(path, options, false)?,
        };
        let handle = Arc::new(Handle { store });
        background::start(&handle.store)?;
        existence_upkeep::start(&handle.store)?;
        if !read_only {
            flush_now::after_open(&handle.store)?;
        }
        Ok(Db { handle })
    }

    /// The keyspace called `name`, which is created where it does not exist.
    ///
    /// With `None` one that exists keeps its options, and a new one gets the default ones. Options
    /// given replace those of one that exists, for what is written from now on.
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
            && (*core.options_given() == options || store.read_only)
        {
            return Ok(Keyspace::new(&self.handle, core));
        }
        store.check_writable()?;
        // Nobody writes while a keyspace appears or changes between logged and not.
        let commit = store.commit_lock();
        let mut manifest = store.manifest_lock()?;
        let existing = store.keyspace(name);
        if let (false, Some(core)) = (is_given, &existing) {
            // Somebody else has just created it.
            return Ok(Keyspace::new(&self.handle, Arc::clone(core)));
        }
        let id = existing.as_ref().map_or(manifest.state().next_keyspace_id, |core| core.id);
        if existing.is_none() && manifest.state().keyspaces.len() >= limits::KEYSPACES_MAX {
            return Err(Error::invalid(format!(
                "the store has {} keyspaces, which is the most it may have",
                limits::KEYSPACES_MAX
            )));
        }
        if existing.as_ref().is_some_and(|core| core.logs() != options.log && core.has_unflushed())
        {
            return Err(Error::invalid(format!(
                "keyspace '{name}' holds unflushed writes; flush it before changing whether it has \
                 a log"
            )));
        }
        if let Some(core) = existing.as_ref().filter(|core| core.hasher.kind() != options.hash) {
            return Err(Error::invalid(format!(
                "keyspace '{name}' hashes its keys with {}, and what it was created with stays: \
                 give that, or create another keyspace with {}",
                core.hasher.kind(),
                options.hash
            )));
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
                let core = KeyspaceCore::new(id, name, options, keys, caps, Version::default());
                let core = Arc::new(core);
                store.add_keyspace(Arc::clone(&core));
                if store.check_open().is_err() {
                    // A close may have looked for keyspaces before.
                    core.open.close();
                }
                core
            }
        };
        drop((manifest, commit));
        // Other sizes may end a wait or begin work.
        background::update_pressure(store, &core);
        existence_upkeep::start(store)?;
        store.signal();
        Ok(Keyspace::new(&self.handle, core))
    }

    /// The keyspace called `name` with the options it has; `None` where there is none.
    pub fn existing_keyspace(&self, name: &str) -> Result<Option<Keyspace>> {
        self.handle.store.check_open()?;
        let core = self.handle.store.keyspace(name);
        Ok(core.map(|core| Keyspace::new(&self.handle, core)))
    }

    /// The names of the keyspaces, in the order in which they were created; none in a forked child.
    pub fn keyspaces(&self) -> Vec<String> {
        if self.handle.store.open.is_forked() {
            return Vec::new();
        }
        self.handle.store.keyspaces().iter().map(|core| core.name.clone()).collect()
    }

    /// Drops a keyspace with everything in it. Handles of it answer with an error from then on.
    pub fn drop_keyspace(&self, name: &str) -> Result<()> {
        let drop_once = || self.drop_keyspace_once(name);
        room::with_room(&self.handle.store, Extent::All, drop_once)
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
        // The files go when the last reader of them does.
        let view = core.view.hold();
        for (_, table) in view.version.tables() {
            table.mark_obsolete();
            blobs::retire(table.blobs().iter().cloned(), []);
        }
        for buffer in view.frozen.iter().chain([&view.active]) {
            blobs::retire(buffer.blobs(), []);
        }
        core.view.clear(&core.options());
        drop((manifest, commit));
        existence_upkeep::remove(store, &core);
        commit::weigh_buffers(store);
        store.signal();
        Ok(())
    }

    /// A batch of writes that happen together, to one or several keyspaces.
    pub fn batch(&self) -> Batch {
        Batch::new(&self.handle)
    }

    /// A consistent view of every keyspace as it is now.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(&self.handle)
    }

    /// What the store consists of and what it did so far; nothing in a forked child.
    pub fn stats(&self) -> Stats {
        if self.handle.store.open.is_forked() {
            return Stats::default();
        }
        stats::of_store(&self.handle.store)
    }

    /// Bytes of all memtables, and those of the whole memory budget.
    #[doc(hidden)]
    pub fn memtable_bytes(&self) -> (u64, u64) {
        let store = &self.handle.store;
        let keyspaces = store.keyspaces();
        let bytes = keyspaces.iter().map(|keyspace| keyspace.memtable_bytes()).sum();
        (bytes, store.budget.sizes.total)
    }

    /// Calls `attempt`, and once more where the disk has no space and some is reserved for a small
    /// segment of the log, which goes back to the disk for it.
    #[doc(hidden)]
    pub fn with_reserved_segment<T>(&self, attempt: impl FnMut() -> Result<T>) -> Result<T> {
        self.handle.store.with_reserved_segment(attempt)
    }

    /// Whether flushes or compactions run at this moment: for who has work that can wait.
    pub fn is_working(&self) -> bool {
        self.handle.store.budget.is_working()
    }

    /// Which filters are kept and why, and what other memory would bring, of each keyspace. Decides
    /// again first. Empty in a forked child.
    pub fn advice(&self) -> Vec<FilterAdvice> {
        if self.handle.store.open.is_forked() {
            return Vec::new();
        }
        advise::advice(&self.handle.store)
    }

    /// Why nothing can be written any more until the store is opened again; `None` where it can.
    pub fn failure(&self) -> Option<String> {
        self.handle.store.poison.reason()
    }

    /// Makes every write so far durable: it survives power loss from then on.
    pub fn sync(&self) -> Result<()> {
        let store = &self.handle.store;
        store.check_writable()?;
        let through = store.commit_lock().wal.last_sequence();
        store.sync_through(through)?;
        // Where all was durable already, nothing looked at the log.
        store.syncer.check_kept().map_err(|error| store.poison.set(error))
    }

    /// Writes every memtable into tables and waits for it.
    pub fn flush(&self) -> Result<()> {
        self.handle.store.check_process()?;
        let keyspaces = self.handle.store.keyspaces();
        flush_now::flush_together(&self.handle.store, &keyspaces, None)
    }

    /// Flushes several keyspaces without a log together with `marker`: after a crash either all of
    /// them hold what was written before the call and answer with the marker, or none does.
    pub fn flush_all(&self, keyspaces: &[&Keyspace], marker: &[u8]) -> Result<()> {
        let mut cores: Vec<Arc<KeyspaceCore>> = Vec::with_capacity(keyspaces.len());
        for keyspace in keyspaces {
            if !keyspace.belongs_to(&self.handle) {
                return Err(Error::invalid(format!(
                    "keyspace '{}' is of another store",
                    keyspace.name()
                )));
            }
            keyspace.core.check_not_dropped()?;
            crate::writes::check_marker(&keyspace.core, marker)?;
            if !cores.iter().any(|core| Arc::ptr_eq(core, &keyspace.core)) {
                cores.push(Arc::clone(&keyspace.core));
            }
        }
        flush_now::flush_together(&self.handle.store, &cores, Some(marker))
    }

    /// Reads every byte of every table and checks it. Damage is in the report, not in the error.
    pub fn verify(&self) -> Result<VerifyReport> {
        verify::verify(&self.handle.store)
    }

    /// Writes a consistent copy of the present state to `target`, a directory that does not exist
    /// or is empty. Tables are shared by hard links and cost no space. Where `target` is on another
    /// file system or on one without hard links they are copied, and the report says so. The
    /// copy is a store of its own, with its own
    /// [instance id](crate::DirectoryStats::instance_id). After an error nothing is left in
    /// `target`.
    pub fn checkpoint(&self, target: impl AsRef<Path>) -> Result<CheckpointReport> {
        checkpoint::checkpoint(&self.handle.store, target.as_ref())
    }

    /// Waits until there is nothing to flush or compact; where others go on writing, at least until
    /// the memtables are flushed that were full when it was called, and as many bytes are compacted
    /// as were owed then. So it returns beside a writer that never pauses.
    ///
    /// # Errors
    /// [`Error::Full`] where work waits for room on the disk: it is tried again later, and the
    /// store goes on.
    pub fn wait_for_compaction(&self) -> Result<()> {
        by_hand::wait_until_idle(&self.handle.store)
    }

    /// Closes the store for every handle: waits for background work, makes everything durable and
    /// writes down where each file ends, so that the next open notices any change to them. Whoever
    /// calls it while another handle closes the store, or later, waits and gets the same answer.
    pub fn close(self) -> Result<()> {
        close::close(&self.handle.store)
    }

    /// Where the store's directory is: looks at the path by which it was opened.
    pub fn directory(&self) -> DirectoryStats {
        DirectoryStats::of_store(&self.handle.store)
    }

    /// The store's folder.
    pub fn path(&self) -> &Path {
        &self.handle.store.folder
    }
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
#[path = "db_tests.rs"]
mod tests;
