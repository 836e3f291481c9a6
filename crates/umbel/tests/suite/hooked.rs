//! A file system that calls the test back in the middle of what the engine does, so that two
//! things that must not disturb each other meet on purpose.

use std::any::Any;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use umbel::{Env, Result};
use umbel_env::{Access, DirectoryEntry, DirectoryPlace, File, FileIdentity, FileSystem, Lock};

type Hook = Box<dyn FnOnce() + Send>;

/// A hook and the call it waits for.
#[derive(Default, Clone)]
pub struct Hooks {
    waiting: Arc<Mutex<Option<(&'static str, Hook)>>>,
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

    /// Whether the hook set last was called.
    pub fn was_called(&self) -> bool {
        self.waiting.lock().unwrap().is_none()
    }

    fn meet(&self, operation: &str, path: &Path) {
        let mut waiting = self.waiting.lock().unwrap();
        let meant = waiting.as_ref().is_some_and(|(call, _)| {
            let (wanted, name) = call.split_once(" *").expect("a call and the end of a path");
            wanted == operation && path.to_string_lossy().ends_with(name)
        });
        let hook = if meant { waiting.take() } else { None };
        drop(waiting);
        if let Some((_, hook)) = hook {
            hook();
        }
    }
}

/// `env` with hooks in its file system.
pub fn hooked(env: &Env) -> (Env, Hooks) {
    let hooks = Hooks::default();
    let files = Arc::new(HookedFiles { inner: Arc::clone(&env.files), hooks: hooks.clone() });
    (Env { files, ..env.clone() }, hooks)
}

#[derive(Debug)]
struct HookedFiles {
    inner: Arc<dyn FileSystem>,
    hooks: Hooks,
}

impl FileSystem for HookedFiles {
    fn absolute(&self, path: &Path) -> Result<PathBuf> {
        self.inner.absolute(path)
    }

    fn hold(&self, path: &Path) -> Result<Arc<dyn FileSystem>> {
        let inner = self.inner.hold(path)?;
        Ok(Arc::new(HookedFiles { inner, hooks: self.hooks.clone() }))
    }

    fn reaches(&self, path: &Path) -> bool {
        self.inner.reaches(path)
    }

    fn place(&self) -> Result<DirectoryPlace> {
        self.inner.place()
    }

    fn identity(&self, path: &Path) -> Result<Option<FileIdentity>> {
        self.inner.identity(path)
    }

    fn innermost(&self) -> &dyn Any {
        self.inner.innermost()
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
        self.inner.open(path, access)
    }

    fn rename(&self, source: &Path, target: &Path) -> Result<()> {
        self.inner.rename(source, target)
    }

    fn hard_link(&self, source: &Path, target_files: &dyn FileSystem, target: &Path) -> Result<()> {
        self.hooks.meet("hard_link", target);
        self.inner.hard_link(source, target_files, target)
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        self.hooks.meet("remove_file", path);
        self.inner.remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        self.inner.remove_dir(path)
    }

    fn read_dir(&self, path: &Path) -> Result<Vec<DirectoryEntry>> {
        self.inner.read_dir(path)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.inner.exists(path)
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.inner.sync_dir(path)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>> {
        self.inner.lock(path)
    }
}
