//! Checkpoint: a consistent copy of an open store, by hard links where possible.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use umbel_base::{Error, Result};
use umbel_env::{Access, Env, File, check_path};

use crate::fs::create_dir;
use crate::fs::fatal_error::FatalError;
use crate::fs::filenames;
use crate::lifecycle::state_capture::StateCapture;
use crate::state::store::Store;
use crate::version::version_edit::ManifestState;
use crate::version::{Manifest, StoreOwnership};

/// Number of bytes that are copied in one step.
const COPY_BYTES: usize = 256 << 10;

/// Counts the files of a checkpoint by whether they were linked or copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct CheckpointReport {
    /// Number of files that are hard links to files of the store, and take no space.
    pub files_linked: u64,
    /// Number of files that were copied, because hard links from the store to the target are not
    /// possible.
    pub files_copied: u64,
    /// Bytes of the copied files.
    pub bytes_copied: u64,
}

/// Writes a copy of the store's present state to `target`, a directory that does not exist or is
/// empty.
///
/// The copy contains all writes before the call, and is a separate store with its own instance id.
/// After an error nothing is left in `target`.
pub fn checkpoint(store: &Arc<Store>, target: &Path) -> Result<CheckpointReport> {
    check_path("the checkpoint", target)?;
    store.check_writable()?;
    let files = &store.outer_env.files;
    let path = files.absolute(target)?;
    let existed = files.exists(&path)?;
    if existed && !files.read_dir(&path)?.is_empty() {
        return Err(Error::invalid(format!(
            "{} is not empty; name a directory that does not exist yet",
            target.display()
        )));
    }
    create_dir::check_outside(&store.outer_env, &path)?;
    create_dir::create(&store.outer_env, &path)?;
    write(store, &path).inspect_err(|_| {
        if !existed {
            // The error of the checkpoint is the one to report.
            let _ = store.outer_env.files.remove_dir(&path);
        }
    })
}

/// Writes a checkpoint to the directory `path`, which was empty. After an error nothing of the
/// checkpoint is left there.
fn write(store: &Arc<Store>, path: &Path) -> Result<CheckpointReport> {
    let env = store.outer_env.open_directory(path)?;
    let mut target =
        CheckpointTarget { env, path: path.to_path_buf(), names: vec![filenames::LOCK.into()] };
    let _lock = target.env.files.lock(&target.path.join(filenames::LOCK))?;
    let begun = target.check_empty().inspect_err(|error| {
        // Nothing in a directory of an operator is changed.
        if !matches!(error, Error::Invalid(_)) {
            target.clear();
        }
    });
    begun.and_then(|()| target.write(store).inspect_err(|_| target.clear()))
}

/// Target directory of a checkpoint, held open.
struct CheckpointTarget {
    env: Env,
    path: PathBuf,
    /// Names of the checkpoint's files, in the order of their creation.
    names: Vec<PathBuf>,
}

impl CheckpointTarget {
    /// Returns an error if the directory that is held open is not empty, and changes nothing in it.
    /// Another program can have replaced the directory after the check by path.
    fn check_empty(&self) -> Result<()> {
        let entries = self.env.files.read_dir(&self.path)?;
        match entries.iter().find(|entry| entry.name != filenames::LOCK) {
            None => Ok(()),
            Some(other) => Err(Error::invalid(format!(
                "{} was replaced while the checkpoint began, and contains '{}' now; name a \
                 directory that does not exist yet",
                self.path.display(),
                other.name
            ))),
        }
    }

    fn write(&mut self, store: &Arc<Store>) -> Result<CheckpointReport> {
        let StateCapture { mut state, views } = StateCapture::take(store)?;
        let mut report = CheckpointReport::default();
        for name in file_names(&state) {
            self.names.push(name.clone());
            self.link_or_copy(store, &name, &mut report)?;
        }
        drop(views);
        state.set_instance(self.env.entropy.id()?);
        // The manifest takes the first free id.
        self.names.push(filenames::manifest(Path::new(""), state.next_file_id));
        self.names.extend([filenames::CURRENT_NEW, filenames::CURRENT].map(PathBuf::from));
        let ids = Arc::new(AtomicU64::new(state.next_file_id));
        let ownership = Arc::new(StoreOwnership::new(Arc::clone(&self.env.files), &self.path));
        let poison = Arc::new(FatalError::default());
        Manifest::create(&self.env, &self.path, state, ids, poison, ownership)?.seal()?;
        Ok(report)
    }

    /// Links a file of the store, or copies it.
    fn link_or_copy(
        &self,
        store: &Store,
        name: &Path,
        report: &mut CheckpointReport,
    ) -> Result<()> {
        let files = &store.options.env.files;
        let (source, target) = (store.folder.join(name), self.path.join(name));
        match files.hard_link(&source, &*self.env.files, &target) {
            Ok(()) => report.files_linked += 1,
            Err(Error::Io { source: error, .. }) if is_link_unsupported(error.kind()) => {
                report.files_copied += 1;
                report.bytes_copied += self.copy(&*files.open(&source, Access::Read)?, &target)?;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Copies a file and syncs the copy's bytes. Returns the length of the file.
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

    /// Removes the files of a failed checkpoint, except those that cannot be removed. The names
    /// come from `names`: a directory listing needs a file descriptor and includes files of other
    /// programs.
    fn clear(&self) {
        // CURRENT, which makes it a store, is created last.
        for name in self.names.iter().rev() {
            let _ = self.env.files.remove_file(&self.path.join(name));
        }
    }
}

/// Returns the names of the files of all tables and long values of a state, without duplicates.
fn file_names(state: &ManifestState) -> BTreeSet<PathBuf> {
    let here = Path::new("");
    let live = state.keyspaces.values().flat_map(|record| record.levels.iter().flatten());
    live.flat_map(|meta| {
        let blobs = meta.blobs.iter().map(|blob| filenames::blob(here, blob.id));
        [filenames::table(here, meta.id)].into_iter().chain(blobs)
    })
    .collect()
}

/// Whether an error of kind `kind` means that a hard link is impossible, but a copy is not. Reasons
/// are another file system, one without hard links, or the maximum number of links.
fn is_link_unsupported(kind: ErrorKind) -> bool {
    use ErrorKind::{CrossesDevices, PermissionDenied, TooManyLinks, Unsupported};
    matches!(kind, CrossesDevices | TooManyLinks | Unsupported | PermissionDenied)
}
