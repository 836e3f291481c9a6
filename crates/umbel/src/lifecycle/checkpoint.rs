//! A consistent copy of an open store, by hard links where they can be had.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use umbel_base::{Error, Result};
use umbel_env::{Access, Env, File, check_path};

use crate::flush_now;
use crate::folder;
use crate::names;
use crate::poison::Poison;
use crate::store::Store;
use crate::version::edit::State;
use crate::version::{Manifest, Ownership};

/// Bytes copied at a time.
const COPY_BYTES: usize = 256 << 10;

/// How a checkpoint got its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct CheckpointReport {
    /// Files that are hard links to those of the store and take no space.
    pub files_linked: u64,
    /// Files that were copied, since the target is on another file system or on one without hard
    /// links.
    pub files_copied: u64,
    /// The bytes of the copied files.
    pub bytes_copied: u64,
}

/// Writes a copy of the present state to `target`, a directory that does not exist or is empty.
///
/// Everything written before the call is in the copy. The copy is a store of its own, with an
/// instance id of its own. After an error nothing is left in `target`.
pub fn checkpoint(store: &Arc<Store>, target: &Path) -> Result<CheckpointReport> {
    check_path("the checkpoint", target)?;
    store.check_writable()?;
    let files = &store.outside.files;
    let path = files.absolute(target)?;
    let existed = files.exists(&path)?;
    if existed && !files.read_dir(&path)?.is_empty() {
        return Err(Error::invalid(format!(
            "{} is not empty; name a folder that does not exist yet",
            target.display()
        )));
    }
    folder::check_outside(&store.outside, &path)?;
    folder::create(&store.outside, &path)?;
    write(store, &path).inspect_err(|_| {
        if !existed {
            // The error of the checkpoint is the one to report.
            let _ = store.outside.files.remove_dir(&path);
        }
    })
}

/// Writes a checkpoint to a directory that was empty. After an error nothing of it is left there.
fn write(store: &Arc<Store>, path: &Path) -> Result<CheckpointReport> {
    let env = store.outside.hold(path)?;
    let mut target = Target { env, path: path.to_path_buf(), names: vec![names::LOCK.into()] };
    let _lock = target.env.files.lock(&target.path.join(names::LOCK))?;
    let begun = target.check_empty().inspect_err(|error| {
        // Of a directory that an operator put there nothing is changed.
        if !matches!(error, Error::Invalid(_)) {
            target.clear();
        }
    });
    begun.and_then(|()| target.write(store).inspect_err(|_| target.clear()))
}

/// Where a checkpoint goes. Its files are held at that directory.
struct Target {
    env: Env,
    path: PathBuf,
    /// The files in it that are the checkpoint's, in the order in which they are created.
    names: Vec<PathBuf>,
}

impl Target {
    /// An error where the held directory is another one than was looked at: an operator may have
    /// put it there meanwhile. Nothing of it is changed.
    fn check_empty(&self) -> Result<()> {
        let entries = self.env.files.read_dir(&self.path)?;
        match entries.iter().find(|entry| entry.name != names::LOCK) {
            None => Ok(()),
            Some(other) => Err(Error::invalid(format!(
                "{} was replaced while the checkpoint began, and holds '{}' now; name a folder \
                 that does not exist yet",
                self.path.display(),
                other.name
            ))),
        }
    }

    fn write(&mut self, store: &Arc<Store>) -> Result<CheckpointReport> {
        let (mut state, views) = loop {
            let keyspaces = store.keyspaces();
            // While a view is held none of its tables is removed; while the flush has not returned,
            // no later write gets into the manifest's state.
            let capture = || {
                let manifest = store.manifest_lock()?;
                let views: Vec<_> = keyspaces.iter().map(|keyspace| keyspace.view.hold()).collect();
                let flushed = |id: &u32| keyspaces.iter().any(|keyspace| keyspace.id == *id);
                // A keyspace that appeared meanwhile was not flushed: once more, with it.
                let whole = manifest.state().keyspaces.keys().all(flushed);
                Ok(whole.then(|| (manifest.state().clone(), views)))
            };
            if let Some(captured) = flush_now::flush_then(store, &keyspaces, None, capture)? {
                break captured;
            }
        };
        state.logs.clear();
        let mut report = CheckpointReport::default();
        for name in names_of(&state) {
            self.names.push(name.clone());
            self.take(store, &name, &mut report)?;
        }
        drop(views);
        state.set_instance(self.env.entropy.id()?);
        // The manifest takes the first id that is free.
        self.names.push(names::manifest(Path::new(""), state.next_file_id));
        self.names.extend([names::CURRENT_NEW, names::CURRENT].map(PathBuf::from));
        let ids = Arc::new(AtomicU64::new(state.next_file_id));
        let ownership = Arc::new(Ownership::new(Arc::clone(&self.env.files), &self.path));
        let poison = Arc::new(Poison::default());
        Manifest::create(&self.env, &self.path, state, ids, poison, ownership)?.seal()?;
        Ok(report)
    }

    /// Links a file of the store, or copies it.
    fn take(&self, store: &Store, name: &Path, report: &mut CheckpointReport) -> Result<()> {
        let files = &store.options.env.files;
        let (source, target) = (store.folder.join(name), self.path.join(name));
        match files.hard_link(&source, &*self.env.files, &target) {
            Ok(()) => report.files_linked += 1,
            Err(Error::Io { source: error, .. }) if cannot_link(error.kind()) => {
                report.files_copied += 1;
                report.bytes_copied += self.copy(&*files.open(&source, Access::Read)?, &target)?;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Copies a file and makes its bytes durable. Returns its length.
    fn copy(&self, source: &dyn File, target: &Path) -> Result<u64> {
        let file = self.env.files.create(target)?;
        let mut buffer = vec![0; COPY_BYTES];
        let mut at = 0;
        loop {
            let read = source.read_at(&mut buffer, at)?;
            let Some(bytes) = buffer.get(..read).filter(|bytes| !bytes.is_empty()) else { break };
            file.write_all_at(bytes, at)?;
            at += read as u64;
        }
        file.sync()?;
        Ok(at)
    }

    /// Removes what a checkpoint that failed left. What cannot be removed stays. A listing could
    /// find no descriptor, and would name what another program puts there.
    fn clear(&self) {
        // CURRENT, which makes it a store, is created last.
        for name in self.names.iter().rev() {
            let _ = self.env.files.remove_file(&self.path.join(name));
        }
    }
}

/// The names of the tables and long values that a state consists of, each once.
fn names_of(state: &State) -> BTreeSet<PathBuf> {
    let here = Path::new("");
    let live = state.keyspaces.values().flat_map(|record| record.levels.iter().flatten());
    live.flat_map(|meta| {
        let blobs = meta.blobs.iter().map(|blob| names::blob(here, blob.id));
        [names::table(here, meta.id)].into_iter().chain(blobs)
    })
    .collect()
}

/// Whether a hard link is refused although the file can be copied: the target is on another file
/// system, on one without hard links, or the file has as many names as it may have.
fn cannot_link(kind: ErrorKind) -> bool {
    use ErrorKind::{CrossesDevices, PermissionDenied, TooManyLinks, Unsupported};
    matches!(kind, CrossesDevices | TooManyLinks | Unsupported | PermissionDenied)
}
