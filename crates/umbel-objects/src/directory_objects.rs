//! [`DirectoryObjects`]: objects as files of a directory, for mounted file systems and for tests.
//!
//! A new object is first a **temporary file** in `.temporary`, written and synced. Then a hard link
//! gives it the object's name, and the directory of the name is synced. `link` fails if the name
//! exists, so one of several writers succeeds, and no reader sees a part of an object. An exclusive
//! create would not do: a writer that dies after it leaves an empty object for ever.
//!
//! Objects are never changed. A writer that died leaves its temporary file, which a later writer
//! removes after an hour by the file system's clock.
//!
//! INVARIANT: an object that a call has reported is durable. A creation syncs the directory before
//! it reports success or an existing name, and a read syncs it before it returns bytes, since the
//! writer may not have done so yet.
//!
//! INVARIANT: the time in the answer to a creation is not before the link. A creation takes the
//! time of a file that it creates after the link: the machine can pause before the link, and its
//! own clock can hide the pause. Other answers have no time, since most callers need none, and a
//! restore must not write. [`Objects::time_micros`] states the time of a new file, less than the
//! file system's granularity before its creation.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};
use std::time::Duration;

use umbel_base::ignore_poison::IgnorePoison;
use umbel_base::{Error, Result};
use umbel_env::{
    Access, Answer, Creation, CreationRequest, DirectoryEntry, DirectoryLocation, Env, File,
    FileIdentity, FileSystem, ListPage, ListedObject, ObjectBytes, ObjectError, ObjectErrorKind,
    ObjectName, ObjectResult, ObjectSource, Objects,
};
use url::Url;

use crate::file_errors::{is_definite, is_without_links, object_error};

/// Directory of files that are not objects yet. Its name cannot be that of an object.
const TEMPORARY_DIRECTORY: &str = ".temporary";
/// Age after which a temporary file is one of a writer that died, by the file system's clock.
const TEMPORARY_MICROS_MAX: u64 = 60 * 60 * 1_000_000;
/// Bytes of an object that are in memory while it is written or compared.
const COPY_BYTES: usize = 1 << 20;
/// Number of objects of which a handle remembers that they are durable.
const DURABLE_OBJECTS_MAX: usize = 4096;

/// Object store in a directory of a mounted file system.
#[derive(Debug, Clone)]
pub struct DirectoryObjects {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    env: Env,
    /// File system that holds the directory open.
    files: Arc<dyn FileSystem>,
    root: PathBuf,
    location: String,
    durable: Mutex<DurableState>,
    /// The newest time of the file system that this handle took, and the clock of the process
    /// before it.
    taken_time: Mutex<Option<(Duration, u64)>>,
}

/// Names that this handle knows to be durable.
#[derive(Debug, Default)]
struct DurableState {
    directories: BTreeSet<PathBuf>,
    /// Objects by name, file and time: the number of a removed file is used again.
    objects: BTreeSet<(ObjectName, FileIdentity, u64)>,
    /// Whether temporary files of dead writers were removed.
    is_swept: bool,
}

/// Outcome of an attempt to give a written file the name of an object.
enum LinkOutcome {
    Linked,
    NameTaken,
    Unknown(ObjectError),
}

/// A written and synced file without the name of an object.
#[derive(Debug)]
struct TemporaryFile {
    path: PathBuf,
    file: Arc<dyn File>,
}

impl DirectoryObjects {
    /// Opens the store in the directory `root`, which must exist: a missing directory is often a
    /// missing mount.
    ///
    /// # Errors
    /// The directory is missing or cannot be opened.
    pub fn open(env: &Env, root: &Path) -> Result<DirectoryObjects> {
        let root = env.files.absolute(root)?;
        let files = env.files.open_directory(&root).map_err(|error| match error {
            missing if missing.is_missing_file() => Error::invalid(format!(
                "the directory {} of the object store is missing; mount its file system, or create \
                 the directory",
                root.display()
            )),
            Error::Io { source, .. } if source.kind() == ErrorKind::NotADirectory => {
                not_a_directory(env, &root)
            }
            other => other,
        })?;
        let location = match Url::from_directory_path(&root) {
            Ok(url) => url.as_str().trim_end_matches('/').to_owned(),
            Err(()) => format!("file://{}", root.display()),
        };
        let (durable, taken_time) = (Mutex::default(), Mutex::default());
        let shared = Shared { env: env.clone(), files, root, location, durable, taken_time };
        Ok(DirectoryObjects { shared: Arc::new(shared) })
    }
}

/// The error for a path that names a file or leads through one.
fn not_a_directory(env: &Env, root: &Path) -> Error {
    // Nothing has a name below a file, so the first one that exists is the file.
    let file = root.ancestors().find(|path| env.files.exists(path).is_ok_and(|exists| exists));
    let shown = file.unwrap_or(root).display();
    Error::invalid(match file.is_none_or(|file| file == root) {
        true => format!("{shown} is a file, but an object store of this scheme is a directory"),
        false => format!(
            "{shown} is a file, so the directory {} of the object store cannot exist; name another \
             directory",
            root.display()
        ),
    })
}

impl Shared {
    fn durable(&self) -> MutexGuard<'_, DurableState> {
        // Each set is whole between any two statements.
        self.durable.lock().ignore_poison()
    }

    fn path(&self, name: &ObjectName) -> PathBuf {
        self.root.join(name.as_str())
    }

    fn object(&self, name: &ObjectName) -> String {
        format!("{}/{name}", self.location)
    }

    /// Returns an error if the path of the store leads to another directory now, for example after
    /// an unmount: two writers would create the same name in two directories.
    fn check_location(&self) -> Result<()> {
        let reason = match self.files.directory_location()? {
            DirectoryLocation::Unchanged => return Ok(()),
            DirectoryLocation::Moved { .. } => "its path leads to another directory now",
            DirectoryLocation::Removed => "the directory was removed",
        };
        Err(Error::Replaced { path: self.root.clone(), reason: reason.into() })
    }

    /// Creates the directories of a path below the root, and makes their names durable.
    fn create_directories(&self, directory: &Path) -> Result<()> {
        let rest = directory.strip_prefix(&self.root).unwrap_or(Path::new(""));
        let mut made = self.root.clone();
        for part in rest.components() {
            let parent = made.clone();
            made.push(part);
            if self.durable().directories.contains(&made) {
                continue;
            }
            self.files.create_dir_all(&made)?;
            self.files.sync_dir(&parent)?;
            self.durable().directories.insert(made.clone());
        }
        Ok(())
    }

    // -- creation --

    /// Creates an empty temporary file.
    fn create_temporary(&self) -> Result<TemporaryFile> {
        let directory = self.root.join(TEMPORARY_DIRECTORY);
        self.create_directories(&directory)?;
        let id = self.env.entropy.id()?;
        let path = directory.join(format!("{:032x}", u128::from_be_bytes(id)));
        let file = self.files.create(&path)?;
        Ok(TemporaryFile { path, file })
    }

    /// Returns the file system's time, from a new file.
    fn now_micros(&self) -> Result<u64> {
        let before = self.env.clock.now_with_suspends();
        let temporary = self.create_temporary()?;
        let now = temporary.file.modified_micros();
        self.remove_temporary(&temporary);
        let now = now?;
        *self.taken_time.lock().ignore_poison() = Some((before, now));
        Ok(now)
    }

    /// Returns a time of the file system that is at most this old.
    fn recent_micros(&self, age_max: Duration) -> Result<u64> {
        let taken = *self.taken_time.lock().ignore_poison();
        let now = self.env.clock.now_with_suspends();
        if let Some((before, micros)) = taken
            && now.saturating_sub(before) < age_max
        {
            return Ok(micros);
        }
        self.check_location()?;
        self.now_micros()
    }

    /// Writes and syncs a file that is no object yet. `body_delay` is a wait after its first byte.
    fn write_temporary(
        &self,
        object: &str,
        source: &dyn ObjectSource,
        body_delay: Duration,
    ) -> std::result::Result<TemporaryFile, ObjectError> {
        let failed = |error: Error| object_error("create", object, &error);
        self.check_location().map_err(failed)?;
        let temporary = self.create_temporary().map_err(failed)?;
        let written = self
            .copy(&*temporary.file, object, source, body_delay)
            .and_then(|()| temporary.file.sync().map_err(failed));
        match written {
            Ok(()) => Ok(temporary),
            Err(error) => {
                self.remove_temporary(&temporary);
                Err(error)
            }
        }
    }

    fn copy(
        &self,
        file: &dyn File,
        object: &str,
        source: &dyn ObjectSource,
        body_delay: Duration,
    ) -> std::result::Result<(), ObjectError> {
        let bytes = source.byte_count();
        let mut buffer = vec![0; COPY_BYTES.min(usize::try_from(bytes).unwrap_or(COPY_BYTES))];
        let mut done = 0;
        while done < bytes {
            let is_slow_start = done == 0 && !body_delay.is_zero();
            let left = usize::try_from(bytes - done).unwrap_or(usize::MAX);
            let len = if is_slow_start { 1 } else { buffer.len().min(left) };
            source.read(&mut buffer[..len], done)?;
            file.write_all_at(&buffer[..len], done)
                .map_err(|error| object_error("create", object, &error))?;
            if is_slow_start {
                self.env.threads.pause(body_delay);
            }
            done += len as u64;
        }
        Ok(())
    }

    /// Removes the name of a temporary file. A failure is no error of the caller, since a later
    /// writer removes the file.
    fn remove_temporary(&self, temporary: &TemporaryFile) {
        let _ = self.files.remove_file(&temporary.path);
    }

    /// Gives a written file the name of an object, unless the name exists.
    ///
    /// # Errors
    /// The file certainly did not get the name, and will not get it.
    fn link(
        &self,
        name: &ObjectName,
        temporary: &TemporaryFile,
    ) -> std::result::Result<LinkOutcome, ObjectError> {
        let (object, path) = (self.object(name), self.path(name));
        let failed = |error: &Error| object_error("create", &object, error);
        let parent = path.parent().unwrap_or(&self.root);
        self.create_directories(parent).map_err(|error| failed(&error))?;
        let own = temporary.file.identity().map_err(|error| failed(&error))?;
        if let Err(error) = self.files.hard_link(&temporary.path, &*self.files, &path) {
            if is_without_links(&error) {
                let kind = ObjectErrorKind::Refused;
                let cause = format!(
                    "this file system has no hard links, which atomic creations need; use another \
                     file system ({error})"
                );
                return Err(ObjectError::new(kind, "create", object, cause));
            }
            // The server of a network file system may have done a link whose answer was lost. A
            // repeated link then reports that the name exists.
            match self.files.identity(&path) {
                Ok(Some(found)) if found == own => {}
                Ok(Some(_)) => return Ok(self.existing(name)),
                Ok(None) if is_definite(&error) => return Err(failed(&error)),
                Ok(None) | Err(_) => return Ok(LinkOutcome::Unknown(failed(&error))),
            }
        }
        match self.files.sync_dir(parent) {
            Ok(()) => Ok(LinkOutcome::Linked),
            Err(error) => Ok(LinkOutcome::Unknown(failed(&error))),
        }
    }

    /// Outcome for a name that exists, after the name is durable.
    fn existing(&self, name: &ObjectName) -> LinkOutcome {
        let path = self.path(name);
        match self.files.sync_dir(path.parent().unwrap_or(&self.root)) {
            Ok(()) => LinkOutcome::NameTaken,
            Err(error) => LinkOutcome::Unknown(object_error("create", &self.object(name), &error)),
        }
    }

    /// Creates an object unless one has this name. Returns the outcome and the time after it.
    fn create(
        &self,
        name: &ObjectName,
        source: &dyn ObjectSource,
        body_delay: Duration,
    ) -> std::result::Result<(LinkOutcome, Option<u64>), ObjectError> {
        let temporary = self.write_temporary(&self.object(name), source, body_delay)?;
        let linked = self.link(name, &temporary);
        self.remove_temporary(&temporary);
        let outcome = linked?;
        let store_micros = match outcome {
            LinkOutcome::Linked | LinkOutcome::NameTaken => self.now_micros().ok(),
            LinkOutcome::Unknown(_) => None,
        };
        if let Some(now) = store_micros {
            self.sweep(now);
        }
        Ok((outcome, store_micros))
    }

    /// Removes temporary files of writers that died, once for each handle. Failures only leave
    /// files behind.
    fn sweep(&self, now_micros: u64) {
        if std::mem::replace(&mut self.durable().is_swept, true) {
            return;
        }
        let directory = self.root.join(TEMPORARY_DIRECTORY);
        let is_dead = |entry: &DirectoryEntry| {
            entry.is_file && now_micros.saturating_sub(entry.modified_micros) > TEMPORARY_MICROS_MAX
        };
        let entries = self.files.read_dir(&directory).unwrap_or_default();
        for entry in entries.iter().filter(|entry| is_dead(entry)) {
            let _ = self.files.remove_file(&directory.join(&entry.name));
        }
    }

    /// Returns an error unless the object with this name has the bytes of `source`.
    fn check_same_bytes(
        &self,
        name: &ObjectName,
        source: &dyn ObjectSource,
    ) -> std::result::Result<(), ObjectError> {
        let object = self.object(name);
        let failed = |error: Error| object_error("write", &object, &error);
        let differs = || {
            let kind = ObjectErrorKind::Refused;
            let cause = "another object has this name; a name must end in an id of its own";
            Err(ObjectError::new(kind, "write", &object, cause))
        };
        let file = self.files.open(&self.path(name), Access::Read).map_err(failed)?;
        let bytes = source.byte_count();
        if file.len().map_err(failed)? != bytes {
            return differs();
        }
        let (mut expected, mut found) = (vec![0; COPY_BYTES], vec![0; COPY_BYTES]);
        let mut done = 0;
        while done < bytes {
            let left = usize::try_from(bytes - done).unwrap_or(usize::MAX);
            let len = COPY_BYTES.min(left);
            source.read(&mut expected[..len], done)?;
            file.read_exact_at(&mut found[..len], done).map_err(failed)?;
            if expected[..len] != found[..len] {
                return differs();
            }
            done += len as u64;
        }
        Ok(())
    }

    // -- reads --

    /// Makes the name of an object durable that was found under it.
    fn make_durable(&self, name: &ObjectName, file: &dyn File) -> Result<()> {
        let key = (name.clone(), file.identity()?, file.modified_micros()?);
        if self.durable().objects.contains(&key) {
            return Ok(());
        }
        let path = self.path(name);
        let mut directory = path.parent().unwrap_or(&self.root);
        // The names of the directories can be as new as the object.
        loop {
            self.files.sync_dir(directory)?;
            match directory.parent() {
                Some(parent) if directory != self.root => directory = parent,
                _ => break,
            }
        }
        let mut durable = self.durable();
        if durable.objects.len() >= DURABLE_OBJECTS_MAX {
            durable.objects.clear();
        }
        durable.objects.insert(key);
        Ok(())
    }

    fn read(&self, name: &ObjectName, range: Range<u64>) -> Result<Option<ObjectBytes>> {
        self.check_location()?;
        let file = match self.files.open(&self.path(name), Access::Read) {
            Err(error) if error.is_missing_file() => return Ok(None),
            opened => opened?,
        };
        self.make_durable(name, &*file)?;
        let object_bytes = file.len()?;
        let start = range.start.min(object_bytes);
        let end = range.end.clamp(start, object_bytes);
        let Ok(len) = usize::try_from(end - start) else {
            return Err(Error::invalid("the range is larger than the memory"));
        };
        let mut bytes = vec![0; len];
        file.read_exact_at(&mut bytes, start)?;
        Ok(Some(ObjectBytes { bytes, object_bytes }))
    }

    /// Adds the objects below `directory` to `page` in the order of their names. Returns whether
    /// the page is full.
    fn list_directory(
        &self,
        directory: &str,
        query: &ListQuery<'_>,
        page: &mut ListPage,
    ) -> Result<bool> {
        let path = self.root.join(directory.trim_end_matches('/'));
        let mut entries = match self.files.read_dir(&path) {
            // It was removed, or never created.
            Err(error) if error.is_missing_file() => return Ok(false),
            listed => listed?,
        };
        // A directory's objects come where its name with a slash belongs.
        for entry in entries.iter_mut().filter(|entry| entry.is_directory) {
            entry.name.push('/');
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        for entry in entries {
            let name = format!("{directory}{}", entry.name);
            // Other files, such as those of a network file system, are no objects.
            let Ok(checked) = ObjectName::new(name.trim_end_matches('/')) else { continue };
            if entry.is_directory {
                if query.can_be_below(&name) && self.list_directory(&name, query, page)? {
                    return Ok(true);
                }
            } else if entry.is_file && query.matches(&name) {
                if page.objects.len() == query.objects_max {
                    let last = page.objects.last();
                    page.next_after = last.map(|object| object.name.as_str().to_owned());
                    return Ok(true);
                }
                page.objects.push(ListedObject {
                    name: checked,
                    bytes: entry.len,
                    created_micros: Some(entry.modified_micros),
                });
            }
        }
        Ok(false)
    }

    fn list(&self, query: &ListQuery<'_>) -> Result<ListPage> {
        self.check_location()?;
        let mut page = ListPage::default();
        // Directories outside of the prefix are not read.
        let directory = query.prefix.rfind('/').map_or("", |end| &query.prefix[..=end]);
        let is_name = |directory: &str| ObjectName::new(directory.trim_end_matches('/')).is_ok();
        if directory.is_empty() || is_name(directory) {
            self.list_directory(directory, query, &mut page)?;
        }
        Ok(page)
    }

    fn delete(&self, name: &ObjectName) -> Result<()> {
        self.check_location()?;
        let path = self.path(name);
        // Only a regular file is an object.
        let opened = self.files.open(&path, Access::Read);
        match opened.and_then(|_| self.files.remove_file(&path)) {
            Err(error) if error.is_missing_file() => {}
            removed => removed?,
        }
        match self.files.sync_dir(path.parent().unwrap_or(&self.root)) {
            // Without its directory there was no object.
            Err(error) if error.is_missing_file() => Ok(()),
            synced => synced,
        }
    }
}

/// The objects of a list.
#[derive(Debug)]
struct ListQuery<'a> {
    prefix: &'a str,
    after: Option<&'a str>,
    objects_max: usize,
}

impl ListQuery<'_> {
    fn matches(&self, name: &str) -> bool {
        name.starts_with(self.prefix) && self.after.is_none_or(|after| name > after)
    }

    /// Whether a directory, whose name ends in a slash, can have objects of the list.
    fn can_be_below(&self, directory: &str) -> bool {
        let overlaps = directory.starts_with(self.prefix) || self.prefix.starts_with(directory);
        // All names of the directory are smaller if it is, unless `after` is one of them.
        let is_passed = |after: &str| directory < after && !after.starts_with(directory);
        overlaps && !self.after.is_some_and(is_passed)
    }
}

fn answer<T>(value: T, store_micros: Option<u64>) -> ObjectResult<T> {
    Ok(Answer { value, store_micros })
}

fn creation(outcome: LinkOutcome, store_micros: Option<u64>) -> Answer<Creation> {
    let value = match outcome {
        LinkOutcome::Linked => Creation::Created,
        LinkOutcome::NameTaken => Creation::Exists,
        LinkOutcome::Unknown(error) => Creation::Unknown(error),
    };
    Answer { value, store_micros }
}

impl Objects for DirectoryObjects {
    fn location(&self) -> &str {
        &self.shared.location
    }

    fn create(&self, name: &ObjectName, bytes: &[u8]) -> ObjectResult<Creation> {
        let (outcome, store_micros) = self.shared.create(name, &bytes.to_vec(), Duration::ZERO)?;
        Ok(creation(outcome, store_micros))
    }

    fn create_concurrently(&self, requests: &[CreationRequest]) -> Vec<ObjectResult<Creation>> {
        let outcomes = Arc::new(Mutex::new(vec![None; requests.len()]));
        let gate = Arc::new(RwLock::new(()));
        let closed = gate.write().ignore_poison();
        let mut threads = Vec::new();
        for (index, request) in requests.iter().cloned().enumerate() {
            let (shared, gate) = (Arc::clone(&self.shared), Arc::clone(&gate));
            let outcomes = Arc::clone(&outcomes);
            let work = move || {
                drop(gate.read().ignore_poison());
                let made = shared.create(&request.name, &request.bytes, request.body_delay);
                let made = made.map(|(outcome, micros)| creation(outcome, micros));
                outcomes.lock().ignore_poison()[index] = Some(made);
            };
            threads.push(self.shared.env.threads.spawn("umbel-create", Box::new(work)));
        }
        drop(closed);
        for (index, thread) in threads.into_iter().enumerate() {
            let failure = match thread.map(|thread| thread.join()) {
                Ok(true) => continue,
                Ok(false) => Error::invalid("internal: the thread of the request panicked"),
                Err(error) => error,
            };
            let object = self.shared.object(&requests[index].name);
            let error = object_error("create", &object, &failure);
            outcomes.lock().ignore_poison()[index] = Some(Err(error));
        }
        let outcomes = std::mem::take(&mut *outcomes.lock().ignore_poison());
        outcomes.into_iter().flatten().collect()
    }

    fn put(&self, name: &ObjectName, source: &dyn ObjectSource) -> ObjectResult<()> {
        let (outcome, store_micros) = self.shared.create(name, source, Duration::ZERO)?;
        match outcome {
            LinkOutcome::Linked => {}
            LinkOutcome::NameTaken => self.shared.check_same_bytes(name, source)?,
            LinkOutcome::Unknown(error) => return Err(error),
        }
        answer((), store_micros)
    }

    fn read(&self, name: &ObjectName, range: Range<u64>) -> ObjectResult<Option<ObjectBytes>> {
        match self.shared.read(name, range) {
            Ok(found) => answer(found, None),
            Err(error) => Err(object_error("read", &self.shared.object(name), &error)),
        }
    }

    fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        objects_max: usize,
    ) -> ObjectResult<ListPage> {
        let query = ListQuery { prefix, after, objects_max: objects_max.max(1) };
        match self.shared.list(&query) {
            Ok(page) => answer(page, None),
            Err(error) => {
                let object = format!("{}/{prefix}", self.shared.location);
                Err(object_error("list", &object, &error))
            }
        }
    }

    fn delete(&self, name: &ObjectName) -> ObjectResult<()> {
        match self.shared.delete(name) {
            Ok(()) => answer((), None),
            Err(error) => Err(object_error("delete", &self.shared.object(name), &error)),
        }
    }

    fn time_micros(&self, age_max: Duration) -> std::result::Result<Option<u64>, ObjectError> {
        let failed = |error: Error| object_error("take the time of", &self.shared.location, &error);
        self.shared.recent_micros(age_max).map(Some).map_err(failed)
    }
}
