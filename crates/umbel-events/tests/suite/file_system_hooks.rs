//! A file system that tells somebody before a file is read or written and after it was synced, so
//! that a test can hold a thread there.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use umbel_base::Result;
use umbel_env::{Access, DirectoryEntry, Env, File, FileIdentity, FileSystem, Lock, Mapping, Pin};

/// A call at which somebody may hold the thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// A file was created.
    Created,
    /// A file is about to be written.
    Writing,
    /// A file was synced.
    Synced,
    /// A folder is about to be locked.
    Locking,
    /// So many bytes of a file are about to be read.
    Reading(usize),
    /// A call that changes nothing is about to be made, or half of a file's bytes were read.
    Looking,
}

type Hook = Arc<dyn Fn(Moment, &Path) + Send + Sync>;

/// The same world, of which `hook` is told.
pub fn hooked(env: Env, hook: impl Fn(Moment, &Path) + Send + Sync + 'static) -> Env {
    let files = Files { inner: Arc::clone(&env.files), hook: Arc::new(hook) };
    Env { files: Arc::new(files), ..env }
}

struct Files {
    inner: Arc<dyn FileSystem>,
    hook: Hook,
}

struct HookedFile {
    inner: Arc<dyn File>,
    hook: Hook,
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Files")
    }
}

impl fmt::Debug for HookedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HookedFile").field(&self.inner.path()).finish()
    }
}

impl Files {
    fn file(&self, inner: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(HookedFile { inner, hook: Arc::clone(&self.hook) })
    }
}

impl FileSystem for Files {
    umbel_env::pass_on! {
        inner: absolute reaches place identity innermost create_dir_all rename exchange hard_link
            remove_file remove_dir sync_dir
    }

    fn read_dir(&self, path: &Path) -> Result<Vec<DirectoryEntry>> {
        (self.hook)(Moment::Looking, path);
        self.inner.read_dir(path)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        (self.hook)(Moment::Looking, path);
        self.inner.exists(path)
    }

    fn pin(&self, path: &Path, version: u64) -> Result<Option<Box<dyn Pin>>> {
        (self.hook)(Moment::Looking, path);
        self.inner.pin(path, version)
    }

    fn hold(&self, path: &Path) -> Result<Arc<dyn FileSystem>> {
        (self.hook)(Moment::Looking, path);
        let inner = self.inner.hold(path)?;
        Ok(Arc::new(Files { inner, hook: Arc::clone(&self.hook) }))
    }

    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        let file = self.inner.create(path)?;
        (self.hook)(Moment::Created, path);
        Ok(self.file(file))
    }

    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn File>> {
        (self.hook)(Moment::Looking, path);
        Ok(self.file(self.inner.open(path, access)?))
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>> {
        (self.hook)(Moment::Locking, path);
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

    fn len(&self) -> Result<u64> {
        (self.hook)(Moment::Looking, self.inner.path());
        self.inner.len()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        (self.hook)(Moment::Reading(buffer.len()), self.inner.path());
        // A read is not one step.
        let half = buffer.len() / 2;
        let read = self.inner.read_at(&mut buffer[..half], offset)?;
        if read < half {
            return Ok(read);
        }
        (self.hook)(Moment::Looking, self.inner.path());
        Ok(read + self.inner.read_at(&mut buffer[half..], offset + half as u64)?)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        (self.hook)(Moment::Writing, self.inner.path());
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
        (self.hook)(Moment::Synced, self.inner.path());
        Ok(())
    }

    fn map(&self, _: u64) -> Result<Option<Box<dyn Mapping>>> {
        // Stores into a mapping would pass unnoticed.
        Ok(None)
    }
}
