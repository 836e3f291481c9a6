//! The traits of `umbel-env` over a simulated [`Machine`].

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use umbel_base::{Error, Result};
use umbel_env::{Access, DIRECT_ALIGNMENT, DirectoryEntry, File, FileSystem, Lock, Mapping};

use crate::call::{Call, Machine, State, Verdict};
use crate::content::{FILE_BYTES_MAX, PAGE_BYTES};
use crate::disk::{Change, Node};
use crate::random::{digest, join};
use crate::site::{Operation, class_of};
use crate::survival::SECTOR_BYTES;

/// The class of every directory.
const DIRECTORY: &str = "directory";

/// The file system of a simulated machine.
#[derive(Debug)]
pub(crate) struct SimFiles {
    pub(crate) machine: Arc<Machine>,
}

/// An open file.
#[derive(Debug)]
struct SimFile {
    machine: Arc<Machine>,
    name: Arc<FileName>,
    access: Access,
    token: Arc<()>,
}

/// Which file a handle means.
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

/// Where a file that is to reach `end` runs out of space; `end` itself where there is enough.
fn end_of_space(state: &State, number: u64, end: u64) -> io::Result<u64> {
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
    fn write(&self, state: &mut State, bytes: &[u8], offset: u64) -> io::Result<()> {
        let end = check_len(offset.checked_add(bytes.len() as u64))?;
        // A full disk takes what still fits before it says that it is full.
        let end_of_space = end_of_space(state, self.name.number, end)?;
        let fitting = end_of_space.saturating_sub(offset).min(bytes.len() as u64) as usize;
        self.write_some(state, &bytes[..fitting], offset)?;
        if fitting < bytes.len() { Err(disk_full()) } else { Ok(()) }
    }

    fn write_some(&self, state: &mut State, bytes: &[u8], offset: u64) -> io::Result<()> {
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
                Verdict::Ignore => Ok(()),
                Verdict::Do => self.write(state, bytes, offset).map_err(|error| call.error(error)),
                Verdict::Fail(kind) => {
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

    /// As `write_all_at`: direct writes too are durable only after a sync.
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
                Verdict::Ignore => Ok(()),
                Verdict::Do if state.plan.lies => Ok(()),
                Verdict::Do => state.disk.sync(number),
                Verdict::Fail(kind) => {
                    let reverts = state.plan.reverts;
                    state.disk.give_up(number, reverts).and(Err(kind.error()))
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

/// A mapped file: each store is a call and a pending unit of its own.
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
                    "the file was cut; a real process dies of this store",
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
    number: u64,
}

impl Lock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.machine.state().locks.remove(&self.number);
    }
}

impl SimFiles {
    fn handle(&self, state: &mut State, path: &Path, number: u64, access: Access) -> Arc<dyn File> {
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
}

/// The class of what a path names: a name cannot say whether it is a directory's, so the disk does.
fn class_at(machine: &Machine, path: &Path) -> String {
    match machine.state().disk.find(path) {
        Ok(Node::Directory(_)) => DIRECTORY.to_owned(),
        _ => class_of(path),
    }
}

fn on<'a>(operation: Operation, class: &'a str, path: &'a Path) -> Call<'a> {
    Call { operation, class, path, detail: 0 }
}

fn towards<'a>(operation: Operation, class: &'a str, source: &'a Path, target: &Path) -> Call<'a> {
    let detail = digest(target.as_os_str().as_encoded_bytes());
    Call { operation, class, path: source, detail }
}

impl FileSystem for SimFiles {
    fn create_dir_all(&self, path: &Path) -> Result<()> {
        let call = on(Operation::CreateDir, DIRECTORY, path);
        self.machine.simple_call(call, None, |state| state.disk.create_dir_all(path))
    }

    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        let class = class_of(path);
        self.machine.simple_call(on(Operation::Create, &class, path), None, |state| {
            let number = state.disk.create(path)?;
            Ok(self.handle(state, path, number, Access::ReadWrite))
        })
    }

    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn File>> {
        let class = class_of(path);
        self.machine.simple_call(on(Operation::Open, &class, path), None, |state| {
            let number = state.disk.find_file(path)?;
            Ok(self.handle(state, path, number, access))
        })
    }

    fn rename(&self, source: &Path, target: &Path) -> Result<()> {
        let class = format!("{} to {}", class_of(source), class_of(target));
        let call = towards(Operation::Rename, &class, source, target);
        self.machine.simple_call(call, Some(()), |state| state.disk.rename(source, target))
    }

    fn hard_link(&self, source: &Path, target: &Path) -> Result<()> {
        let class = class_of(source);
        let call = towards(Operation::HardLink, &class, source, target);
        self.machine.simple_call(call, Some(()), |state| state.disk.hard_link(source, target))
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        let class = class_of(path);
        let call = on(Operation::Remove, &class, path);
        self.machine.simple_call(call, Some(()), |state| state.disk.remove(path))
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        let call = on(Operation::RemoveDir, DIRECTORY, path);
        self.machine.simple_call(call, Some(()), |state| state.disk.remove_dir(path))
    }

    fn read_dir(&self, path: &Path) -> Result<Vec<DirectoryEntry>> {
        let call = on(Operation::ReadDir, DIRECTORY, path);
        self.machine.simple_call(call, None, |state| {
            let number = state.disk.find_directory(path)?;
            let Some(directory) = state.disk.directories.get(&number) else { return Ok(vec![]) };
            let entry = |(name, node): (&String, &Node)| {
                let (len, is_directory) = match node {
                    Node::File(number) => (state.disk.inode(*number)?.current.len(), false),
                    Node::Directory(_) => (0, true),
                };
                Ok(DirectoryEntry { name: name.clone(), len, is_directory })
            };
            directory.current.iter().map(entry).collect()
        })
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        let class = class_at(&self.machine, path);
        let call = on(Operation::Exists, &class, path);
        self.machine.simple_call(call, None, |state| match state.disk.find(path) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        })
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        let call = on(Operation::SyncDir, DIRECTORY, path);
        self.machine.simple_call(call, Some(()), |state| {
            let directory = state.disk.find_directory(path)?;
            if !state.plan.lies {
                state.disk.sync_names(directory);
            }
            state.collect_garbage();
            Ok(())
        })
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>> {
        let class = class_of(path);
        let taken = self.machine.simple_call(on(Operation::Lock, &class, path), None, |state| {
            let number = match state.disk.find_file(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => state.disk.create(path)?,
                found => found?,
            };
            Ok(state.locks.insert(number).then_some(number))
        })?;
        let Some(number) = taken else {
            return Err(Error::Locked(path.parent().unwrap_or(Path::new("")).to_path_buf()));
        };
        Ok(Box::new(SimLock { machine: Arc::clone(&self.machine), number }))
    }
}
