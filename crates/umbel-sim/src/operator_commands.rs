//! Operations of an operator on directories while processes run.
//!
//! No operation of an operator is a numbered call. Each operation is durable at once, so that a
//! later power loss shows the directories as the operator left them.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use umbel_env::FileIdentity;

use crate::disk::{DirectorySlot, Disk, MountPoint, Node, ResolvedDirectory};
use crate::sim::Sim;

/// Access that a mount allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mount {
    /// The mount allows every call.
    ReadWrite,
    /// The mount refuses every change with the error "read-only file system".
    ReadOnly,
    /// The mount refuses every change with the error "permission denied", as for a user with read
    /// access only.
    WithoutPermission,
}

impl Mount {
    fn refusal(self) -> Option<i32> {
        match self {
            Mount::ReadWrite => None,
            Mount::ReadOnly => Some(30),
            Mount::WithoutPermission => Some(13),
        }
    }
}

impl Sim {
    /// Changes the current directory of the process.
    pub fn set_current_dir(&self, path: impl AsRef<Path>) {
        let mut state = self.machine.state();
        let current = state.disk.path_of(state.current_dir.directory).unwrap_or_default();
        let reached =
            state.disk.resolve_directory(ResolvedDirectory::ROOT, &current.join(path.as_ref()));
        state.current_dir = expect(reached, path.as_ref());
    }

    /// Makes a directory and its missing parents.
    pub fn make_dir(&self, path: impl AsRef<Path>) {
        self.change(path.as_ref(), |disk, path| disk.create_dir_all(ResolvedDirectory::ROOT, path));
    }

    /// Gives a file or directory another name, like `mv`. REQUIRES: the new name does not exist.
    pub fn move_path(&self, source: impl AsRef<Path>, target: impl AsRef<Path>) {
        self.change(source.as_ref(), |disk, source| {
            let to = disk.resolve_slot(ResolvedDirectory::ROOT, target.as_ref())?;
            let from = disk.resolve_slot(ResolvedDirectory::ROOT, source)?;
            disk.rename(from, to)
        });
    }

    /// Copies a directory with its contents to a path that does not exist, like `cp -a`. The copies
    /// have new identities.
    pub fn copy_tree(&self, source: impl AsRef<Path>, target: impl AsRef<Path>) {
        self.change(source.as_ref(), |disk, source| {
            let from = disk.find_directory(source)?;
            copy(disk, from, target.as_ref())
        });
    }

    /// Overwrites the bytes of a file with those of another file, like `cp` onto an existing file,
    /// which keeps its identity.
    pub fn copy_over(&self, source: impl AsRef<Path>, target: impl AsRef<Path>) {
        self.change(source.as_ref(), |disk, source| {
            let (from, to) = (disk.find_file(source)?, disk.find_file(target.as_ref())?);
            let content = disk.inode(from)?.current.clone();
            let inode = disk.inode_mut(to)?;
            inode.pending.clear();
            inode.durable = content.clone();
            inode.current = content;
            Ok(())
        });
    }

    /// Removes a file, or a directory with its contents, like `rm -r`.
    pub fn remove_tree(&self, path: impl AsRef<Path>) {
        self.change(path.as_ref(), remove);
    }

    /// Mounts the directory at `source` over the directory at `target`. A process that holds the
    /// directory at `target` still sees it.
    pub fn mount(&self, source: impl AsRef<Path>, target: impl AsRef<Path>, mount: Mount) {
        self.change(target.as_ref(), |disk, target| {
            let directory = disk.find_directory(source.as_ref())?;
            let over = disk.find_directory(target)?;
            disk.mounts.insert(over, MountPoint { directory, refusal: mount.refusal() });
            Ok(())
        });
    }

    /// Ends the mount at a path.
    pub fn unmount(&self, path: impl AsRef<Path>) {
        self.change(path.as_ref(), |disk, path| {
            let place = disk.resolve_slot(ResolvedDirectory::ROOT, path)?;
            match disk.at(&place) {
                Some(Node::Directory(number)) if disk.mounts.remove(&number).is_some() => Ok(()),
                _ => Err(io::Error::from_raw_os_error(22)),
            }
        });
    }

    /// Ends every mount.
    pub fn unmount_all(&self) {
        self.machine.state().disk.mounts.clear();
    }

    /// Identity of the file or directory that a path from the root leads to; `None` if the path
    /// leads to none.
    pub fn identity(&self, path: impl AsRef<Path>) -> Option<FileIdentity> {
        match self.machine.state().disk.find(path.as_ref()) {
            Ok(Node::File(inode) | Node::Directory(inode)) => {
                Some(FileIdentity { device: 0, inode })
            }
            Err(_) => None,
        }
    }

    /// Returns the present path of a directory, whatever is mounted over it; `None` if it has none.
    pub fn path_of(&self, directory: FileIdentity) -> Option<PathBuf> {
        self.machine.state().disk.path_of(directory.inode)
    }

    /// Returns the bytes of every file below a directory, whatever its path and whatever is mounted
    /// over it.
    pub fn tree_of(&self, directory: FileIdentity) -> BTreeMap<PathBuf, Vec<u8>> {
        let state = self.machine.state();
        let mut files = BTreeMap::new();
        list(&state.disk, directory.inode, Path::new(""), &mut files);
        files
    }

    /// Returns the bytes of every file below a directory, by the file's path from that directory.
    pub fn tree(&self, path: impl AsRef<Path>) -> BTreeMap<PathBuf, Vec<u8>> {
        let state = self.machine.state();
        let directory = expect(state.disk.find_directory(path.as_ref()), path.as_ref());
        let mut files = BTreeMap::new();
        list(&state.disk, directory, Path::new(""), &mut files);
        files
    }

    /// Changes the disk and makes the changed names durable. Panics if the change fails, since a
    /// script that changes nothing must not pass.
    fn change(&self, path: &Path, work: impl FnOnce(&mut Disk, &Path) -> io::Result<()>) {
        let mut state = self.machine.state();
        let pending = state.disk.name_changes.len();
        let done = work(&mut state.disk, path);
        expect(done, path);
        let directories: Vec<u64> = state.disk.name_changes[pending..]
            .iter()
            .flat_map(|change| change.directories())
            .collect();
        for directory in directories {
            state.disk.sync_names(directory);
        }
    }
}

fn expect<T>(done: io::Result<T>, path: &Path) -> T {
    match done {
        Ok(done) => done,
        Err(error) => panic!("{}: {error}", path.display()),
    }
}

fn copy(disk: &mut Disk, from: u64, target: &Path) -> io::Result<()> {
    disk.create_dir_all(ResolvedDirectory::ROOT, target)?;
    let names = disk.directories.get(&from).map(|d| d.current.clone()).unwrap_or_default();
    for (name, node) in names.iter() {
        let path = target.join(name);
        match *node {
            Node::Directory(inner) => copy(disk, inner, &path)?,
            Node::File(number) => {
                let content = disk.inode(number)?.current.clone();
                let place = disk.resolve_slot(ResolvedDirectory::ROOT, &path)?;
                let made = disk.create(place)?;
                let inode = disk.inode_mut(made)?;
                inode.durable = content.clone();
                inode.current = content;
            }
        }
    }
    Ok(())
}

fn remove(disk: &mut Disk, path: &Path) -> io::Result<()> {
    let place: DirectorySlot = disk.resolve_slot(ResolvedDirectory::ROOT, path)?;
    let Some(Node::Directory(number)) = disk.at(&place) else { return disk.remove(place) };
    let names = disk.directories.get(&number).map(|d| d.current.clone()).unwrap_or_default();
    for name in names.keys() {
        remove(disk, &path.join(name))?;
    }
    disk.remove_dir(place)
}

fn list(disk: &Disk, directory: u64, path: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
    let Some(directory) = disk.directories.get(&directory) else { return };
    for (name, node) in directory.current.iter() {
        match *node {
            Node::Directory(inner) => list(disk, inner, &path.join(name), files),
            Node::File(number) => {
                if let Ok(inode) = disk.inode(number) {
                    files.insert(path.join(name), inode.current.to_vec());
                }
            }
        }
    }
}
