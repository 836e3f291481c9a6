//! File system with a hook that is called before a file is read or written and after it was synced.
//! So a test can pause a thread at these calls.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use umbel_base::Result;
use umbel_env::{Access, DirectoryEntry, Env, File, FileIdentity, FileSystem, Lock, Mapping, Pin};

/// Call at which a hook may pause the thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileCall {
    /// A file was created.
    Created,
    /// A file is about to be written.
    Writing,
    /// A file was synced.
    Synced,
    /// A directory is about to be locked.
    Locking,
    /// This many bytes of a file are about to be read.
    Reading(usize),
    /// A call that changes nothing is about to be made, or half of a file's bytes were read.
    Inspecting,
}

type Hook = Arc<dyn Fn(FileCall, &Path) + Send + Sync>;

/// Returns the same environment with `hook` called.
pub fn with_hook(env: Env, hook: impl Fn(FileCall, &Path) + Send + Sync + 'static) -> Env {
    let files = HookedFiles { inner: Arc::clone(&env.files), hook: Arc::new(hook) };
    Env { files: Arc::new(files), ..env }
}

struct HookedFiles {
    inner: Arc<dyn FileSystem>,
    hook: Hook,
}

struct HookedFile {
    inner: Arc<dyn File>,
    hook: Hook,
}

impl fmt::Debug for HookedFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Files")
    }
}

impl fmt::Debug for HookedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HookedFile").field(&self.inner.path()).finish()
    }
}

impl HookedFiles {
    fn file(&self, inner: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(HookedFile { inner, hook: Arc::clone(&self.hook) })
    }
}

impl FileSystem for HookedFiles {
    umbel_env::delegate_calls! {
        inner: absolute reaches directory_location identity innermost create_dir_all rename exchange
            hard_link remove_file remove_dir sync_dir
    }

    fn read_dir(&self, path: &Path) -> Result<Vec<DirectoryEntry>> {
        (self.hook)(FileCall::Inspecting, path);
        self.inner.read_dir(path)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        (self.hook)(FileCall::Inspecting, path);
        self.inner.exists(path)
    }

    fn pin(&self, path: &Path, version: u64) -> Result<Option<Box<dyn Pin>>> {
        (self.hook)(FileCall::Inspecting, path);
        self.inner.pin(path, version)
    }

    fn open_directory(&self, path: &Path) -> Result<Arc<dyn FileSystem>> {
        (self.hook)(FileCall::Inspecting, path);
        let inner = self.inner.open_directory(path)?;
        Ok(Arc::new(HookedFiles { inner, hook: Arc::clone(&self.hook) }))
    }

    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        let file = self.inner.create(path)?;
        (self.hook)(FileCall::Created, path);
        Ok(self.file(file))
    }

    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn File>> {
        (self.hook)(FileCall::Inspecting, path);
        Ok(self.file(self.inner.open(path, access)?))
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>> {
        (self.hook)(FileCall::Locking, path);
        self.inner.lock(path)
    }
}

impl File for HookedFile {
    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn identity(&self) -> Result<FileIdentity> {
        self.inner.identity()
    }

    fn modified_micros(&self) -> Result<u64> {
        (self.hook)(FileCall::Inspecting, self.inner.path());
        self.inner.modified_micros()
    }

    fn len(&self) -> Result<u64> {
        (self.hook)(FileCall::Inspecting, self.inner.path());
        self.inner.len()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        (self.hook)(FileCall::Reading(buffer.len()), self.inner.path());
        // A read is not atomic.
        let half = buffer.len() / 2;
        let read = self.inner.read_at(&mut buffer[..half], offset)?;
        if read < half {
            return Ok(read);
        }
        (self.hook)(FileCall::Inspecting, self.inner.path());
        Ok(read + self.inner.read_at(&mut buffer[half..], offset + half as u64)?)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        (self.hook)(FileCall::Writing, self.inner.path());
        self.inner.write_all_at(bytes, offset)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.inner.set_len(len)
    }

    fn preallocate(&self, len: u64) -> Result<()> {
        self.inner.preallocate(len)
    }

    fn sync(&self) -> Result<()> {
        self.inner.sync()?;
        (self.hook)(FileCall::Synced, self.inner.path());
        Ok(())
    }

    fn map(&self, _: u64) -> Result<Option<Box<dyn Mapping>>> {
        // The hook would miss stores into a mapping.
        Ok(None)
    }
}
