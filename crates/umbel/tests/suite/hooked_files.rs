//! A file system that calls the test back during an operation of the engine, so that a test can
//! interleave two operations.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use umbel::{Env, Result};
use umbel_env::{Access, DirectoryEntry, File, FileIdentity, FileSystem, Mapping, Pin};

type Hook = Box<dyn FnOnce() + Send>;

/// A hook and the call that triggers it.
#[derive(Default, Clone)]
pub struct Hooks {
    waiting: Arc<Mutex<Option<(&'static str, Hook)>>>,
    counted: Arc<Mutex<Counted>>,
    /// Whether calls on open files trigger hooks as well.
    everywhere: bool,
}

/// Hooks before calls with any name, and the numbers of the calls that trigger them.
#[derive(Default)]
struct Counted {
    calls: u64,
    at: Option<u64>,
    hook: Option<Box<dyn FnMut() + Send>>,
    was_called: bool,
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks").finish_non_exhaustive()
    }
}

impl Hooks {
    /// Calls `hook` once, before the next call whose name and path end with `call`, for example
    /// `create *.table`.
    pub fn before(&self, call: &'static str, hook: impl FnOnce() + Send + 'static) {
        *self.waiting.lock().unwrap() = Some((call, Box::new(hook)));
    }

    /// Calls `hook` once, before the call with this number, the first one being 0.
    pub fn before_call(&self, number: u64, hook: impl FnMut() + Send + 'static) {
        let mut counted = self.counted.lock().unwrap();
        counted.at = Some(number);
        counted.hook = Some(Box::new(hook));
    }

    /// Calls `hook` before every call.
    pub fn before_each_call(&self, hook: impl FnMut() + Send + 'static) {
        self.counted.lock().unwrap().hook = Some(Box::new(hook));
    }

    /// Whether the hook set last was called.
    pub fn was_called(&self) -> bool {
        match self.everywhere {
            true => self.counted.lock().unwrap().was_called,
            false => self.waiting.lock().unwrap().is_none(),
        }
    }

    fn count(&self) {
        // Not while the hook runs: the hook has a file system of its own.
        let mut counted = self.counted.lock().unwrap();
        let is_due = counted.at.is_none_or(|at| at == counted.calls);
        counted.calls += 1;
        if is_due && let Some(hook) = counted.hook.as_mut() {
            hook();
            counted.was_called = true;
        }
    }

    fn meet(&self, operation: &str, path: &Path) {
        if self.everywhere {
            return self.count();
        }
        let mut waiting = self.waiting.lock().unwrap();
        let is_expected = waiting.as_ref().is_some_and(|(call, _)| {
            let (wanted, name) = call.split_once(" *").expect("a call and the end of a path");
            wanted == operation && path.to_string_lossy().ends_with(name)
        });
        let hook = if is_expected { waiting.take() } else { None };
        drop(waiting);
        if let Some((_, hook)) = hook {
            hook();
        }
    }
}

/// Returns `env` with hooks in its file system.
pub fn hooked(env: &Env) -> (Env, Hooks) {
    let hooks = Hooks::default();
    let files = Arc::new(HookedFiles { inner: Arc::clone(&env.files), hooks: hooks.clone() });
    (Env { files, ..env.clone() }, hooks)
}

/// Returns `env` with hooks before every call of its file system, and of files opened through it.
pub fn hooked_everywhere(env: &Env) -> (Env, Hooks) {
    let hooks = Hooks { everywhere: true, ..Hooks::default() };
    let files = Arc::new(HookedFiles { inner: Arc::clone(&env.files), hooks: hooks.clone() });
    (Env { files, ..env.clone() }, hooks)
}

/// An open file whose calls trigger hooks.
#[derive(Debug)]
struct HookedFile {
    inner: Arc<dyn File>,
    hooks: Hooks,
}

impl File for HookedFile {
    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn identity(&self) -> Result<FileIdentity> {
        self.hooks.count();
        self.inner.identity()
    }

    fn modified_micros(&self) -> Result<u64> {
        self.hooks.count();
        self.inner.modified_micros()
    }

    fn len(&self) -> Result<u64> {
        self.hooks.count();
        self.inner.len()
    }

    /// Half of the bytes are read before the hook and half after it, as a read is not atomic.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let half = buffer.len() / 2;
        let read = self.inner.read_at(&mut buffer[..half], offset)?;
        if read < half {
            return Ok(read);
        }
        self.hooks.count();
        Ok(read + self.inner.read_at(&mut buffer[half..], offset + half as u64)?)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.inner.write_all_at(bytes, offset)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.inner.set_len(len)
    }

    fn preallocate(&self, len: u64) -> Result<()> {
        self.inner.preallocate(len)
    }

    fn sync(&self) -> Result<()> {
        self.inner.sync()
    }

    fn map(&self, len: u64) -> Result<Option<Box<dyn Mapping>>> {
        self.inner.map(len)
    }
}

#[derive(Debug)]
struct HookedFiles {
    inner: Arc<dyn FileSystem>,
    hooks: Hooks,
}

impl FileSystem for HookedFiles {
    umbel_env::delegate_calls! {
        inner: absolute reaches directory_location identity innermost rename exchange remove_dir
            sync_dir lock
    }

    fn open_directory(&self, path: &Path) -> Result<Arc<dyn FileSystem>> {
        self.hooks.meet("hold", path);
        let inner = self.inner.open_directory(path)?;
        Ok(Arc::new(HookedFiles { inner, hooks: self.hooks.clone() }))
    }

    fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.hooks.meet("create_dir_all", path);
        self.inner.create_dir_all(path)
    }

    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        self.hooks.meet("create", path);
        self.inner.create(path)
    }

    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn File>> {
        self.hooks.meet("open", path);
        let inner = self.inner.open(path, access)?;
        match self.hooks.everywhere {
            true => Ok(Arc::new(HookedFile { inner, hooks: self.hooks.clone() })),
            false => Ok(inner),
        }
    }

    fn hard_link(&self, source: &Path, target_files: &dyn FileSystem, target: &Path) -> Result<()> {
        self.hooks.meet("hard_link", target);
        self.inner.hard_link(source, target_files, target)
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        self.hooks.meet("remove_file", path);
        self.inner.remove_file(path)
    }

    fn read_dir(&self, path: &Path) -> Result<Vec<DirectoryEntry>> {
        self.hooks.meet("read_dir", path);
        self.inner.read_dir(path)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.hooks.meet("exists", path);
        self.inner.exists(path)
    }

    fn pin(&self, path: &Path, version: u64) -> Result<Option<Box<dyn Pin>>> {
        self.hooks.meet("pin", path);
        self.inner.pin(path, version)
    }
}
