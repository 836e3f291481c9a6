//! The traits of `umbel-env` over a simulated [`Machine`].

use std::any::Any;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use umbel_base::ignore_poison::IgnorePoison;

use umbel_base::{Error, Result};
use umbel_env::{
    Access, DIRECT_ALIGNMENT, DirectoryEntry, DirectoryLocation, File, FileIdentity, FileSystem,
    Lock, Mapping, Pin,
};

use crate::disk::{Change, DirectorySlot, Node, ResolvedDirectory};
use crate::file_call_class::{Operation, class_of};
use crate::file_content::{FILE_BYTES_MAX, PAGE_BYTES};
use crate::power_loss::SECTOR_BYTES;
use crate::random::{digest, join};
use crate::simulated_machine::{Call, CallVerdict, Machine, MachineState};

/// The class of every directory.
const DIRECTORY: &str = "directory";

/// The file system of a simulated machine.
#[derive(Debug)]
pub(crate) struct SimFiles {
    machine: Arc<Machine>,
    open_directory: Option<Arc<OpenDirectory>>,
}

/// An open file.
#[derive(Debug)]
struct SimFile {
    machine: Arc<Machine>,
    name: Arc<FileName>,
    access: Access,
    token: Arc<()>,
}

/// File of a handle.
#[derive(Debug)]
struct FileName {
    path: PathBuf,
    class: String,
    number: u64,
}

impl FileName {
    fn call(&self, operation: Operation, detail: u64) -> Call<'_> {
        Call { operation, class: &self.class, path: &self.path, detail }
    }
}

/// Offset at which a file that grows to `end` runs out of space; `end` itself if the space
/// suffices.
fn end_of_space(state: &MachineState, number: u64, end: u64) -> io::Result<u64> {
    let held = state.disk.inode(number)?.current.len();
    match state.plan.capacity {
        Some(capacity) if end > held => {
            let page = PAGE_BYTES as u64;
            let free = capacity.saturating_sub(state.disk.bytes_used()) / page * page;
            Ok(held.next_multiple_of(page).saturating_add(free).min(end))
        }
        _ => Ok(end),
    }
}

fn disk_full() -> io::Error {
    io::Error::from_raw_os_error(28)
}

fn check_len(end: Option<u64>) -> io::Result<u64> {
    let too_large = || io::Error::from(io::ErrorKind::FileTooLarge);
    end.filter(|end| *end <= FILE_BYTES_MAX).ok_or_else(too_large)
}

impl SimFile {
    fn write(&self, state: &mut MachineState, bytes: &[u8], offset: u64) -> io::Result<()> {
        let end = check_len(offset.checked_add(bytes.len() as u64))?;
        // A full disk writes the part that fits before it fails.
        let end_of_space = end_of_space(state, self.name.number, end)?;
        let fitting = end_of_space.saturating_sub(offset).min(bytes.len() as u64) as usize;
        self.write_some(state, &bytes[..fitting], offset)?;
        if fitting < bytes.len() { Err(disk_full()) } else { Ok(()) }
    }

    fn write_some(&self, state: &mut MachineState, bytes: &[u8], offset: u64) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        state.disk.change(self.name.number, Change::Write { offset, bytes: bytes.into() })
    }

    fn write_as(&self, operation: Operation, bytes: &[u8], offset: u64) -> Result<()> {
        let call = self.name.call(operation, join(offset, digest(bytes)));
        self.machine.call(call, |state, verdict| {
            self.check_writable(&call)?;
            match verdict {
                CallVerdict::Ignore => Ok(()),
                CallVerdict::Execute => {
                    self.write(state, bytes, offset).map_err(|error| call.error(error))
                }
                CallVerdict::Fail(kind) => {
                    // The disk may have taken some sectors before it failed.
                    let sectors = (bytes.len() as u64).div_ceil(SECTOR_BYTES);
                    let mut random = state.chance_of_call();
                    let taken = random.below(2) * random.below(sectors + 1) * SECTOR_BYTES;
                    let taken = (taken as usize).min(bytes.len().saturating_sub(1));
                    let _ = self.write(state, &bytes[..taken], offset);
                    Err(call.error(kind.error()))
                }
            }
        })
    }

    fn check_writable(&self, call: &Call<'_>) -> Result<()> {
        match self.access {
            Access::ReadWrite => Ok(()),
            Access::Read => Err(call.error(io::Error::from_raw_os_error(9))),
        }
    }
}

impl File for SimFile {
    fn path(&self) -> &Path {
        &self.name.path
    }

    fn identity(&self) -> Result<FileIdentity> {
        let call = self.name.call(Operation::Identity, 0);
        let number = self.name.number;
        self.machine.simple_call(call, None, |state| {
            let _ = state.disk.inode(number)?;
            Ok(FileIdentity { device: 0, inode: number })
        })
    }

    fn modified_micros(&self) -> Result<u64> {
        let call = self.name.call(Operation::Modified, 0);
        let number = self.name.number;
        self.machine.simple_call(call, None, |state| Ok(state.disk.inode(number)?.modified_micros))
    }

    fn len(&self) -> Result<u64> {
        let call = self.name.call(Operation::Len, 0);
        let number = self.name.number;
        self.machine.simple_call(call, None, |state| Ok(state.disk.inode(number)?.current.len()))
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let call = self.name.call(Operation::Read, join(offset, buffer.len() as u64));
        let number = self.name.number;
        self.machine.simple_call(call, None, |state| {
            let read = state.disk.inode(number)?.current.read(buffer, offset);
            state.trace = join(state.trace, digest(&buffer[..read]));
            Ok(read)
        })
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.write_as(Operation::Write, bytes, offset)
    }

    /// Like `write_all_at`: direct writes are also durable only after a sync.
    fn write_direct(&self, bytes: &[u8], offset: u64) -> Result<bool> {
        let alignment = DIRECT_ALIGNMENT;
        let is_aligned = bytes.as_ptr().addr().is_multiple_of(alignment)
            && bytes.len().is_multiple_of(alignment)
            && offset.is_multiple_of(alignment as u64);
        assert!(is_aligned, "a direct write of {} is not aligned", self.name.path.display());
        if self.machine.state().plan.refuses_direct {
            return Ok(false);
        }
        self.write_as(Operation::WriteDirect, bytes, offset).map(|()| true)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        let call = self.name.call(Operation::SetLen, len);
        self.machine.simple_call(call, Some(()), |state| {
            self.check_writable(&call).map_err(|_| io::Error::from_raw_os_error(22))?;
            let len = check_len(Some(len))?;
            if state.disk.inode(self.name.number)?.current.len() == len {
                return Ok(());
            }
            state.disk.change(self.name.number, Change::SetLen(len))
        })
    }

    fn preallocate(&self, len: u64) -> Result<()> {
        let call = self.name.call(Operation::Preallocate, len);
        self.machine.simple_call(call, Some(()), |state| {
            self.check_writable(&call).map_err(|_| io::Error::from_raw_os_error(9))?;
            let len = check_len(Some(len))?;
            if end_of_space(state, self.name.number, len)? < len {
                return Err(disk_full());
            }
            let inode = state.disk.inode_mut(self.name.number)?;
            inode.reserved = inode.reserved.max(len);
            if inode.current.len() >= len {
                return Ok(());
            }
            state.disk.change(self.name.number, Change::Grow(len))
        })
    }

    fn sync(&self) -> Result<()> {
        let call = self.name.call(Operation::Sync, 0);
        let number = self.name.number;
        self.machine.call(call, |state, verdict| {
            let done = match verdict {
                CallVerdict::Ignore => Ok(()),
                CallVerdict::Execute if state.plan.lies => Ok(()),
                CallVerdict::Execute => state.disk.sync(number),
                CallVerdict::Fail(kind) => {
                    let reverts = state.plan.reverts;
                    state.disk.fail_sync(number, reverts).and(Err(kind.error()))
                }
            };
            done.map_err(|error| call.error(error))
        })
    }

    fn map(&self, len: u64) -> Result<Option<Box<dyn Mapping>>> {
        let call = self.name.call(Operation::Map, len);
        let held = self.machine.simple_call(call, None, |state| {
            let inode = state.disk.inode(self.name.number)?;
            let held = inode.reserved.min(inode.current.len());
            Ok(if state.plan.refuses_mappings { None } else { Some(held) })
        })?;
        let Some(held) = held.filter(|_| len > 0) else { return Ok(None) };
        self.check_writable(&call)?;
        if held < len {
            let message = format!(
                "{} has {held} bytes reserved, {len} of them cannot be mapped; preallocate first",
                self.name.path.display()
            );
            return Err(Error::invalid(message));
        }
        Ok(Some(Box::new(SimMapping {
            machine: Arc::clone(&self.machine),
            name: Arc::clone(&self.name),
            len,
            _token: Arc::clone(&self.token),
        })))
    }
}

/// A mapped file: each store is a separate call and a separate pending unit.
#[derive(Debug)]
struct SimMapping {
    machine: Arc<Machine>,
    name: Arc<FileName>,
    len: u64,
    _token: Arc<()>,
}

impl Mapping for SimMapping {
    fn len(&self) -> u64 {
        self.len
    }

    fn write_at(&mut self, bytes: &[u8], offset: u64) -> Result<()> {
        let end = offset.checked_add(bytes.len() as u64);
        if end.is_none_or(|end| end > self.len) {
            let (count, mapped, path) = (bytes.len(), self.len, self.name.path.display());
            let message = format!("{count} bytes at {offset} do not fit the {mapped} of {path}");
            return Err(Error::invalid(message));
        }
        let call = self.name.call(Operation::Store, join(offset, digest(bytes)));
        self.machine.simple_call(call, Some(()), |state| {
            if bytes.is_empty() {
                return Ok(());
            }
            if state.disk.inode(self.name.number)?.current.len() < offset + bytes.len() as u64 {
                return Err(io::Error::other(
                    "the file was truncated; a real process dies of this store",
                ));
            }
            state.disk.change(self.name.number, Change::Write { offset, bytes: bytes.into() })
        })
    }
}

/// A held lock.
#[derive(Debug)]
struct SimLock {
    machine: Arc<Machine>,
    numbers: [u64; 2],
}

impl Lock for SimLock {
    fn is_pinned(&self, through: u64) -> Result<bool> {
        let file = self.numbers[0];
        Ok(self.machine.state().pins.range((file, 0)..=(file, through)).next().is_some())
    }
}

/// A held pin.
#[derive(Debug)]
struct SimPin {
    machine: Arc<Machine>,
    key: (u64, u64),
}

impl Pin for SimPin {}

impl Drop for SimPin {
    fn drop(&mut self) {
        let mut state = self.machine.state();
        if let Some(count) = state.pins.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                state.pins.remove(&self.key);
            }
        }
    }
}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut state = self.machine.state();
        for number in self.numbers {
            state.locks.remove(&number);
        }
    }
}

impl SimFiles {
    /// Creates the view of the whole file system.
    pub(crate) fn new(machine: &Arc<Machine>) -> SimFiles {
        SimFiles { machine: Arc::clone(machine), open_directory: None }
    }

    fn handle(
        &self,
        state: &mut MachineState,
        path: &Path,
        number: u64,
        access: Access,
    ) -> Arc<dyn File> {
        let slot = state.handles.entry(number).or_default();
        let token = slot.upgrade().unwrap_or_default();
        *slot = Arc::downgrade(&token);
        let name = FileName { path: path.to_path_buf(), class: class_of(path), number };
        Arc::new(SimFile {
            machine: Arc::clone(&self.machine),
            name: Arc::new(name),
            access,
            token,
        })
    }

    /// Returns the directory at which the resolution of a path starts, and the remaining path.
    fn start<'a>(
        &self,
        state: &MachineState,
        path: &'a Path,
    ) -> io::Result<(ResolvedDirectory, &'a Path)> {
        match &self.open_directory {
            None if path.is_absolute() => Ok((ResolvedDirectory::ROOT, path)),
            None => Ok((state.current_dir, path)),
            Some(held) => held.start(state, path),
        }
    }

    fn find(&self, state: &MachineState, path: &Path) -> io::Result<(Node, Option<i32>)> {
        let (start, rest) = self.start(state, path)?;
        state.disk.find_from(start, rest)
    }

    fn slot_of(&self, state: &MachineState, path: &Path) -> io::Result<DirectorySlot> {
        let (start, rest) = self.start(state, path)?;
        state.disk.resolve_slot(start, rest)
    }

    /// The number of the directory at a path. A held subdirectory is not looked up again.
    fn directory(&self, state: &MachineState, path: &Path) -> io::Result<u64> {
        if let Some(known) = self.open_directory.as_ref().and_then(|held| held.resolved(path)) {
            return Ok(known.directory);
        }
        let (start, rest) = self.start(state, path)?;
        Ok(state.disk.resolve_directory(start, rest)?.directory)
    }

    /// The number of the file at a path that is to be opened.
    fn find_file(&self, state: &MachineState, path: &Path, access: Access) -> io::Result<u64> {
        match self.find(state, path)? {
            (Node::File(_), Some(refusal)) if access == Access::ReadWrite => {
                Err(io::Error::from_raw_os_error(refusal))
            }
            (Node::File(number), _) => Ok(number),
            (Node::Directory(_), _) => Err(io::Error::other("it is not a regular file")),
        }
    }

    /// The class of the file that a path names. The disk decides whether it is a
    /// directory.
    fn class_at(&self, path: &Path) -> String {
        match self.find(&self.machine.state(), path) {
            Ok((Node::Directory(_), _)) => DIRECTORY.to_owned(),
            _ => class_of(path),
        }
    }
}

/// A directory held open.
#[derive(Debug)]
struct OpenDirectory {
    path: PathBuf,
    directory: ResolvedDirectory,
    /// Subdirectories that a call has named, by their path from this directory.
    subdirectories: Mutex<BTreeMap<PathBuf, ResolvedDirectory>>,
}

impl OpenDirectory {
    fn subdirectories(&self) -> MutexGuard<'_, BTreeMap<PathBuf, ResolvedDirectory>> {
        self.subdirectories.lock().ignore_poison()
    }

    fn start<'a>(
        &self,
        state: &MachineState,
        path: &'a Path,
    ) -> io::Result<(ResolvedDirectory, &'a Path)> {
        let rest = path.strip_prefix(&self.path);
        assert!(rest.is_ok(), "{} is not in {}", path.display(), self.path.display());
        let rest = rest.unwrap_or(path);
        let parent = rest.parent().filter(|parent| !parent.as_os_str().is_empty());
        let Some(parent) = parent else { return Ok((self.directory, rest)) };
        let name = rest.file_name().map_or(rest, Path::new);
        if let Some(known) = self.subdirectories().get(parent) {
            return Ok((*known, name));
        }
        let reached = state.disk.resolve_directory(self.directory, parent)?;
        self.subdirectories().insert(parent.to_path_buf(), reached);
        Ok((reached, name))
    }

    /// Returns the directory at `path`, if it is this directory or a subdirectory that a call has
    /// named before.
    fn resolved(&self, path: &Path) -> Option<ResolvedDirectory> {
        let rest = path.strip_prefix(&self.path).ok()?;
        match rest.as_os_str().is_empty() {
            true => Some(self.directory),
            false => self.subdirectories().get(rest).copied(),
        }
    }

    fn forget(&self, path: &Path) {
        if let Ok(rest) = path.strip_prefix(&self.path) {
            self.subdirectories().retain(|held, _| !held.starts_with(rest));
        }
    }
}

fn path_call<'a>(operation: Operation, class: &'a str, path: &'a Path) -> Call<'a> {
    Call { operation, class, path, detail: 0 }
}

fn two_path_call<'a>(
    operation: Operation,
    class: &'a str,
    source: &'a Path,
    target: &Path,
) -> Call<'a> {
    let detail = digest(target.as_os_str().as_encoded_bytes());
    Call { operation, class, path: source, detail }
}

impl FileSystem for SimFiles {
    fn absolute(&self, path: &Path) -> Result<PathBuf> {
        if path.as_os_str().is_empty() {
            return Err(Error::invalid("the path is empty; name a directory"));
        }
        let state = self.machine.state();
        let current = state.disk.path_of(state.current_dir.directory);
        let missing =
            || path_call(Operation::LocateDirectory, DIRECTORY, path).error(missing_directory());
        current.map(|current| current.join(path)).ok_or_else(missing)
    }

    fn open_directory(&self, path: &Path) -> Result<Arc<dyn FileSystem>> {
        assert!(path.is_absolute(), "{} is not absolute", path.display());
        let call = path_call(Operation::OpenDirectory, DIRECTORY, path);
        let directory = self.machine.simple_call(call, None, |state| {
            let (start, rest) = self.start(state, path)?;
            state.disk.resolve_directory(start, rest)
        })?;
        let held =
            OpenDirectory { path: path.to_path_buf(), directory, subdirectories: Mutex::default() };
        let machine = Arc::clone(&self.machine);
        Ok(Arc::new(SimFiles { machine, open_directory: Some(Arc::new(held)) }))
    }

    fn reaches(&self, path: &Path) -> bool {
        self.open_directory.as_ref().is_none_or(|held| path.starts_with(&held.path))
    }

    fn directory_location(&self) -> Result<DirectoryLocation> {
        let Some(held) = &self.open_directory else { return Ok(DirectoryLocation::Unchanged) };
        let call = path_call(Operation::LocateDirectory, DIRECTORY, &held.path);
        self.machine.simple_call(call, None, |state| {
            let number = held.directory.directory;
            let is_removed = state.disk.directories.get(&number).is_none_or(|d| d.is_removed);
            let found = state.disk.resolve_directory(ResolvedDirectory::ROOT, &held.path);
            Ok(match found {
                _ if is_removed => DirectoryLocation::Removed,
                Ok(found) if found.directory == number => DirectoryLocation::Unchanged,
                _ => DirectoryLocation::Moved { path: state.disk.path_of(number) },
            })
        })
    }

    fn identity(&self, path: &Path) -> Result<Option<FileIdentity>> {
        let class = class_of(path);
        self.machine.simple_call(path_call(Operation::Identity, &class, path), None, |state| {
            match self.find(state, path) {
                Ok((node, _)) => Ok(Some(identity_of(node))),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(error),
            }
        })
    }

    fn create_dir_all(&self, path: &Path) -> Result<()> {
        let call = path_call(Operation::CreateDir, DIRECTORY, path);
        self.machine.simple_call(call, None, |state| {
            // Parents may be missing, so that nothing but the held directory itself is a start.
            let (start, rest) = match &self.open_directory {
                Some(held) => (held.directory, path.strip_prefix(&held.path).unwrap_or(path)),
                None => self.start(state, path)?,
            };
            state.disk.create_dir_all(start, rest)
        })
    }

    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        let class = class_of(path);
        self.machine.simple_call(path_call(Operation::Create, &class, path), None, |state| {
            let place = self.slot_of(state, path)?;
            let number = state.disk.create(place)?;
            Ok(self.handle(state, path, number, Access::ReadWrite))
        })
    }

    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn File>> {
        let class = class_of(path);
        self.machine.simple_call(path_call(Operation::Open, &class, path), None, |state| {
            let number = self.find_file(state, path, access)?;
            Ok(self.handle(state, path, number, access))
        })
    }

    fn rename(&self, source: &Path, target: &Path) -> Result<()> {
        let class = format!("{} to {}", class_of(source), class_of(target));
        let call = two_path_call(Operation::Rename, &class, source, target);
        self.machine.simple_call(call, Some(()), |state| {
            let (from, to) = (self.slot_of(state, source)?, self.slot_of(state, target)?);
            state.disk.rename(from, to)
        })?;
        if let Some(held) = &self.open_directory {
            held.forget(source);
            held.forget(target);
        }
        Ok(())
    }

    fn exchange(&self, one: &Path, other: &Path) -> Result<bool> {
        let class = format!("{} and {}", class_of(one), class_of(other));
        let call = two_path_call(Operation::Rename, &class, one, other);
        self.machine.simple_call(call, Some(true), |state| {
            if state.plan.refuses_exchanges {
                return Ok(false);
            }
            let places = (self.slot_of(state, one)?, self.slot_of(state, other)?);
            state.disk.exchange(places.0, places.1)?;
            Ok(true)
        })
    }

    fn hard_link(&self, source: &Path, target_files: &dyn FileSystem, target: &Path) -> Result<()> {
        let class = class_of(source);
        let call = two_path_call(Operation::HardLink, &class, source, target);
        let target_files = target_files.innermost().downcast_ref::<SimFiles>();
        self.machine.simple_call(call, Some(()), |state| {
            let target_files = target_files.ok_or_else(|| io::Error::from_raw_os_error(18))?;
            let (node, _) = self.find(state, source)?;
            if state.plan.refuses_links {
                return Err(io::Error::from_raw_os_error(18));
            }
            let place = target_files.slot_of(state, target)?;
            state.disk.hard_link(node, place)
        })
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        let class = class_of(path);
        let call = path_call(Operation::Remove, &class, path);
        self.machine.simple_call(call, Some(()), |state| {
            let place = self.slot_of(state, path)?;
            state.disk.remove(place)
        })
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        let call = path_call(Operation::RemoveDir, DIRECTORY, path);
        self.machine.simple_call(call, Some(()), |state| {
            let place = self.slot_of(state, path)?;
            state.disk.remove_dir(place)
        })?;
        if let Some(held) = &self.open_directory {
            held.forget(path);
        }
        Ok(())
    }

    fn read_dir(&self, path: &Path) -> Result<Vec<DirectoryEntry>> {
        let call = path_call(Operation::ReadDir, DIRECTORY, path);
        self.machine.simple_call(call, None, |state| {
            let (start, rest) = self.start(state, path)?;
            let number = state.disk.resolve_directory(start, rest)?.directory;
            let Some(directory) = state.disk.directories.get(&number) else { return Ok(vec![]) };
            let entry = |(name, node): (&String, &Node)| {
                let (len, modified_micros, is_file) = match node {
                    Node::File(number) => {
                        let inode = state.disk.inode(*number)?;
                        (inode.current.len(), inode.modified_micros, true)
                    }
                    Node::Directory(_) => (0, 0, false),
                };
                let (name, identity, is_directory) = (name.clone(), identity_of(*node), !is_file);
                Ok(DirectoryEntry { name, len, is_directory, is_file, identity, modified_micros })
            };
            directory.current.iter().map(entry).collect()
        })
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        let class = self.class_at(path);
        let call = path_call(Operation::Exists, &class, path);
        self.machine.simple_call(call, None, |state| match self.find(state, path) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        })
    }

    fn check_writable(&self, path: &Path) -> Result<()> {
        let call = path_call(Operation::CheckWritable, DIRECTORY, path);
        self.machine.simple_call(call, None, |state| {
            let (start, rest) = self.start(state, path)?;
            match state.disk.resolve_directory(start, rest)?.refusal {
                Some(error_number) => Err(io::Error::from_raw_os_error(error_number)),
                None => Ok(()),
            }
        })
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        let call = path_call(Operation::SyncDir, DIRECTORY, path);
        self.machine.simple_call(call, Some(()), |state| {
            let directory = self.directory(state, path)?;
            if !state.plan.lies {
                state.disk.sync_names(directory);
            }
            state.collect_garbage();
            Ok(())
        })
    }

    fn innermost(&self) -> &dyn Any {
        self
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>> {
        let class = class_of(path);
        let taken =
            self.machine.simple_call(path_call(Operation::Lock, &class, path), None, |state| {
                let number = match self.find_file(state, path, Access::ReadWrite) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {
                        let place = self.slot_of(state, path)?;
                        state.disk.create(place)?
                    }
                    found => found?,
                };
                // The directory is locked, too: a lock file that was removed and created again is
                // no second lock.
                let numbers = [number, self.slot_of(state, path)?.directory];
                let is_free = numbers.iter().all(|number| !state.locks.contains(number));
                if is_free {
                    state.locks.extend(numbers);
                }
                Ok(is_free.then_some(numbers))
            })?;
        let Some(numbers) = taken else {
            return Err(Error::Locked(path.parent().unwrap_or(Path::new("")).to_path_buf()));
        };
        Ok(Box::new(SimLock { machine: Arc::clone(&self.machine), numbers }))
    }

    fn pin(&self, path: &Path, version: u64) -> Result<Option<Box<dyn Pin>>> {
        let class = class_of(path);
        let taken =
            self.machine.simple_call(path_call(Operation::Pin, &class, path), None, |state| {
                let key = match self.find_file(state, path, Access::Read) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                    found => (found?, version),
                };
                if state.plan.refuses_pins {
                    return Ok(None);
                }
                *state.pins.entry(key).or_default() += 1;
                Ok(Some(key))
            })?;
        // Outside of the call, which may drop its result while it holds the state.
        let pin =
            |key| Box::new(SimPin { machine: Arc::clone(&self.machine), key }) as Box<dyn Pin>;
        Ok(taken.map(pin))
    }
}

fn identity_of(node: Node) -> FileIdentity {
    let (Node::File(inode) | Node::Directory(inode)) = node;
    FileIdentity { device: 0, inode }
}

fn missing_directory() -> io::Error {
    io::Error::from_raw_os_error(2)
}
