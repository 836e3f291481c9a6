//! [`Disk`]: the simulated disk with its durable state, its page cache, and the pending units
//! between them.
//!
//! INVARIANT: `current` of a file is `durable` with every pending unit applied in order, unless the
//! file is `forgetful`. `current` of the names is the durable names with every pending name change
//! applied.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use crate::file_content::{FileContent, PAGE_BYTES};

/// Number of a pending unit; units are numbered over the whole disk, in the order of their
/// creation.
pub(crate) type UnitNumber = u64;

/// Node that a name refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Node {
    File(u64),
    Directory(u64),
}

/// One change of a file's bytes or length that is not durable yet.
#[derive(Debug, Clone)]
pub(crate) struct Unit {
    pub(crate) number: UnitNumber,
    pub(crate) change: Change,
}

/// Change of a [`Unit`].
#[derive(Debug, Clone)]
pub(crate) enum Change {
    Write { offset: u64, bytes: Arc<[u8]> },
    SetLen(u64),
    Grow(u64),
}

impl Change {
    /// Applies the whole change to `content`.
    pub(crate) fn apply(&self, content: &mut FileContent) {
        match self {
            Change::Write { offset, bytes } => content.write(bytes, *offset),
            Change::SetLen(len) => content.set_len(*len),
            Change::Grow(len) => content.grow(*len),
        }
    }
}

/// A file without its names.
#[derive(Debug, Clone, Default)]
pub(crate) struct Inode {
    pub(crate) durable: FileContent,
    pub(crate) current: FileContent,
    pub(crate) pending: Vec<Unit>,
    /// Number of bytes for which space was reserved since the machine started.
    pub(crate) reserved: u64,
    /// Whether a failed sync dropped bytes that the page cache still shows.
    pub(crate) forgetful: bool,
    /// Time of the last change of the bytes, in microseconds since 1970. It survives every crash.
    pub(crate) modified_micros: u64,
}

/// The names in a directory.
pub(crate) type Names = BTreeMap<String, Node>;

/// A directory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Directory {
    pub(crate) durable: Arc<Names>,
    pub(crate) current: Arc<Names>,
    /// Whether the directory's name was removed, so that no file can be created in it.
    pub(crate) is_removed: bool,
}

/// A name and the directory that holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DirectorySlot {
    pub(crate) directory: u64,
    pub(crate) name: String,
}

/// A directory, and whether the path by which a process reached it refuses changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ResolvedDirectory {
    pub(crate) directory: u64,
    /// Error number of every change below the directory, if the path to it goes through a mount
    /// that refuses changes.
    pub(crate) refusal: Option<i32>,
}

impl ResolvedDirectory {
    /// The root directory.
    pub(crate) const ROOT: ResolvedDirectory = ResolvedDirectory { directory: ROOT, refusal: None };

    /// Returns an error if changes are refused.
    pub(crate) fn check_writable(self) -> io::Result<()> {
        self.refusal.map_or(Ok(()), |number| Err(io::Error::from_raw_os_error(number)))
    }
}

/// A directory that is mounted over another directory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MountPoint {
    pub(crate) directory: u64,
    pub(crate) refusal: Option<i32>,
}

/// One change of names that is not durable yet. A name change survives a power loss whole or not at
/// all.
#[derive(Debug, Clone)]
pub(crate) struct NameChange {
    pub(crate) number: UnitNumber,
    pub(crate) node: Node,
    /// Slot where the node loses a name.
    pub(crate) source: Option<DirectorySlot>,
    /// Slot where the node gets a name.
    pub(crate) target: Option<DirectorySlot>,
    /// Node that gets the name at the source, if two names exchange their files.
    pub(crate) exchanged: Option<Node>,
}

impl NameChange {
    /// Returns the directories that the change affects, each once.
    pub(crate) fn directories(&self) -> impl Iterator<Item = u64> {
        let source = self.source.as_ref().map(|place| place.directory);
        let target = self.target.as_ref().map(|place| place.directory);
        source.into_iter().chain(target.filter(|target| Some(*target) != source))
    }

    /// Applies the change to the names of one directory. A name that belongs to another node,
    /// because an earlier change did not survive, stays as it is.
    pub(crate) fn apply(&self, directory: u64, names: &mut Names) {
        let here = |place: &&DirectorySlot| place.directory == directory;
        if let Some(source) = self.source.as_ref().filter(here)
            && names.get(&source.name) == Some(&self.node)
        {
            match self.exchanged {
                Some(other) => names.insert(source.name.clone(), other),
                None => names.remove(&source.name),
            };
        }
        if let Some(target) = self.target.as_ref().filter(here) {
            names.insert(target.name.clone(), self.node);
        }
    }
}

/// The number of the root directory.
pub(crate) const ROOT: u64 = 0;

/// A whole disk. Cloning copies it; unchanged pages stay shared.
#[derive(Debug, Clone)]
pub(crate) struct Disk {
    pub(crate) inodes: BTreeMap<u64, Inode>,
    pub(crate) directories: BTreeMap<u64, Directory>,
    pub(crate) name_changes: Vec<NameChange>,
    /// Directories that are mounted over others; a restart unmounts all of them.
    pub(crate) mounts: BTreeMap<u64, MountPoint>,
    /// Time of the present call, in microseconds since 1970.
    pub(crate) now_micros: u64,
    next_node: u64,
    next_unit: UnitNumber,
}

impl Disk {
    /// A disk with an empty root directory.
    pub(crate) fn new() -> Disk {
        Disk {
            inodes: BTreeMap::new(),
            directories: BTreeMap::from([(ROOT, Directory::default())]),
            name_changes: Vec::new(),
            mounts: BTreeMap::new(),
            now_micros: 0,
            next_node: ROOT + 1,
            next_unit: 1,
        }
    }

    /// Returns this disk without files, names and pending units, on which an image is then built.
    pub(crate) fn without_files(&self) -> Disk {
        Disk { next_node: self.next_node, next_unit: self.next_unit, ..Disk::new() }
    }

    fn new_node(&mut self) -> u64 {
        self.next_node += 1;
        self.next_node - 1
    }

    fn new_unit(&mut self) -> UnitNumber {
        self.next_unit += 1;
        self.next_unit - 1
    }

    // -- paths --

    /// Current node of a path from the root.
    pub(crate) fn find(&self, path: &Path) -> io::Result<Node> {
        self.find_from(ResolvedDirectory::ROOT, path).map(|(node, _)| node)
    }

    /// Returns the node of a path that begins in a directory, and the reason if a mount refuses
    /// changes to the node.
    pub(crate) fn find_from(
        &self,
        start: ResolvedDirectory,
        path: &Path,
    ) -> io::Result<(Node, Option<i32>)> {
        let mut node = Node::Directory(start.directory);
        let mut refusal = start.refusal;
        for name in names_of(path)? {
            let directory = self.directory(node)?;
            node = *directory.current.get(&name).ok_or_else(missing)?;
            if let Node::Directory(number) = node
                && let Some(mounted) = self.mounts.get(&number)
            {
                node = Node::Directory(mounted.directory);
                refusal = mounted.refusal;
            }
        }
        Ok((node, refusal))
    }

    /// The directory that a path leads to.
    pub(crate) fn resolve_directory(
        &self,
        start: ResolvedDirectory,
        path: &Path,
    ) -> io::Result<ResolvedDirectory> {
        match self.find_from(start, path)? {
            (Node::Directory(directory), refusal) => Ok(ResolvedDirectory { directory, refusal }),
            (Node::File(_), _) => Err(not_a_directory()),
        }
    }

    fn directory(&self, node: Node) -> io::Result<&Directory> {
        match node {
            Node::Directory(number) => self.directories.get(&number).ok_or_else(missing),
            Node::File(_) => Err(not_a_directory()),
        }
    }

    /// The number of the file that a path from the root names.
    pub(crate) fn find_file(&self, path: &Path) -> io::Result<u64> {
        match self.find(path)? {
            Node::File(number) => Ok(number),
            Node::Directory(_) => Err(io::Error::other("it is not a regular file")),
        }
    }

    /// The number of the directory that a path from the root names.
    pub(crate) fn find_directory(&self, path: &Path) -> io::Result<u64> {
        self.resolve_directory(ResolvedDirectory::ROOT, path).map(|reached| reached.directory)
    }

    /// Returns the directory and the last name of a path that is to be changed; the name need not
    /// exist.
    pub(crate) fn resolve_slot(
        &self,
        start: ResolvedDirectory,
        path: &Path,
    ) -> io::Result<DirectorySlot> {
        let mut names = names_of(path)?;
        let name = names.pop().ok_or_else(|| io::Error::from(ErrorKind::InvalidInput))?;
        let parent: PathBuf = names.iter().collect();
        let reached = self.resolve_directory(start, &parent)?;
        reached.check_writable()?;
        Ok(DirectorySlot { directory: reached.directory, name })
    }

    /// Nodes that have a name now.
    pub(crate) fn at(&self, place: &DirectorySlot) -> Option<Node> {
        self.directories.get(&place.directory)?.current.get(&place.name).copied()
    }

    // -- names --

    fn change_names(
        &mut self,
        node: Node,
        source: Option<DirectorySlot>,
        target: Option<DirectorySlot>,
    ) {
        let number = self.new_unit();
        self.put_names(NameChange { number, node, source, target, exchanged: None });
    }

    fn put_names(&mut self, change: NameChange) {
        for number in change.directories() {
            if let Some(directory) = self.directories.get_mut(&number) {
                change.apply(number, Arc::make_mut(&mut directory.current));
            }
        }
        self.name_changes.push(change);
    }

    /// Makes a directory and its missing parents.
    pub(crate) fn create_dir_all(
        &mut self,
        start: ResolvedDirectory,
        path: &Path,
    ) -> io::Result<()> {
        let mut reached = start;
        for name in names_of(path)? {
            let name_path = Path::new(&name);
            if let Ok((node, refusal)) = self.find_from(reached, name_path) {
                let Node::Directory(directory) = node else { return Err(exists()) };
                reached = ResolvedDirectory { directory, refusal };
                continue;
            }
            let place = self.resolve_slot(reached, name_path)?;
            self.check_not_removed(place.directory)?;
            let directory = self.new_node();
            self.directories.insert(directory, Directory::default());
            self.change_names(Node::Directory(directory), None, Some(place));
            reached = ResolvedDirectory { directory, ..reached };
        }
        Ok(())
    }

    /// Returns an error if a directory was removed, so that no file can be created in it.
    fn check_not_removed(&self, directory: u64) -> io::Result<()> {
        match self.directories.get(&directory) {
            Some(directory) if !directory.is_removed => Ok(()),
            _ => Err(missing()),
        }
    }

    /// Makes an empty file.
    pub(crate) fn create(&mut self, place: DirectorySlot) -> io::Result<u64> {
        self.check_not_removed(place.directory)?;
        if self.at(&place).is_some() {
            return Err(exists());
        }
        let number = self.new_node();
        let modified_micros = self.now_micros;
        self.inodes.insert(number, Inode { modified_micros, ..Inode::default() });
        self.change_names(Node::File(number), None, Some(place));
        Ok(number)
    }

    /// Gives a node another name.
    pub(crate) fn rename(&mut self, from: DirectorySlot, to: DirectorySlot) -> io::Result<()> {
        let node = self.at(&from).ok_or_else(missing)?;
        self.check_not_removed(to.directory)?;
        match (node, self.at(&to)) {
            (node, Some(other)) if node == other => return Ok(()),
            (Node::File(_), Some(Node::Directory(_))) => return Err(is_a_directory()),
            (Node::Directory(_), Some(Node::File(_))) => return Err(not_a_directory()),
            (Node::Directory(_), Some(_)) => return Err(exists()),
            (Node::Directory(moved), None) if self.contains(moved, to.directory) => {
                return Err(ErrorKind::InvalidInput.into());
            }
            _ => {}
        }
        self.change_names(node, Some(from), Some(to));
        Ok(())
    }

    /// Exchanges the files of two names.
    pub(crate) fn exchange(&mut self, one: DirectorySlot, other: DirectorySlot) -> io::Result<()> {
        let node = self.at(&one).ok_or_else(missing)?;
        let exchanged = self.at(&other).ok_or_else(missing)?;
        if node == exchanged {
            return Ok(());
        }
        let (number, source, target) = (self.new_unit(), Some(one), Some(other));
        self.put_names(NameChange { number, node, source, target, exchanged: Some(exchanged) });
        Ok(())
    }

    /// Whether a directory is another directory, or lies in it at any depth.
    fn contains(&self, directory: u64, inner: u64) -> bool {
        let holds = |node: &Node| match *node {
            Node::Directory(number) => self.contains(number, inner),
            Node::File(_) => false,
        };
        directory == inner
            || self.directories.get(&directory).is_some_and(|d| d.current.values().any(holds))
    }

    /// Gives a file a second name.
    pub(crate) fn hard_link(&mut self, node: Node, place: DirectorySlot) -> io::Result<()> {
        let Node::File(number) = node else { return Err(io::Error::from_raw_os_error(1)) };
        self.check_not_removed(place.directory)?;
        if self.at(&place).is_some() {
            return Err(exists());
        }
        self.change_names(Node::File(number), None, Some(place));
        Ok(())
    }

    /// Removes a file's name.
    pub(crate) fn remove(&mut self, place: DirectorySlot) -> io::Result<()> {
        let node = self.at(&place).ok_or_else(missing)?;
        let Node::File(number) = node else { return Err(is_a_directory()) };
        self.change_names(Node::File(number), Some(place), None);
        Ok(())
    }

    /// Removes an empty directory.
    pub(crate) fn remove_dir(&mut self, place: DirectorySlot) -> io::Result<()> {
        let node = self.at(&place).ok_or_else(missing)?;
        let Node::Directory(number) = node else { return Err(not_a_directory()) };
        let directory = self.directories.get_mut(&number).ok_or_else(missing)?;
        if !directory.current.is_empty() {
            return Err(ErrorKind::DirectoryNotEmpty.into());
        }
        directory.is_removed = true;
        self.change_names(Node::Directory(number), Some(place), None);
        Ok(())
    }

    /// Returns a path that leads to a directory now; `None` if no path does.
    pub(crate) fn path_of(&self, directory: u64) -> Option<PathBuf> {
        let mut open = vec![(ROOT, PathBuf::from("/"))];
        while let Some((number, path)) = open.pop() {
            if number == directory {
                return Some(path);
            }
            for (name, node) in self.directories.get(&number)?.current.iter() {
                if let Node::Directory(inner) = node {
                    open.push((*inner, path.join(name)));
                }
            }
        }
        None
    }

    /// Makes the names in a directory durable.
    pub(crate) fn sync_names(&mut self, directory: u64) {
        let is_touched = |change: &mut NameChange| change.directories().any(|d| d == directory);
        let due: Vec<_> = self.name_changes.extract_if(.., is_touched).collect();
        for change in &due {
            for number in change.directories() {
                if let Some(directory) = self.directories.get_mut(&number) {
                    change.apply(number, Arc::make_mut(&mut directory.durable));
                }
            }
        }
    }

    // -- bytes --

    /// Returns the bytes of a file; an error if its last name and handle are gone.
    pub(crate) fn inode(&self, number: u64) -> io::Result<&Inode> {
        self.inodes.get(&number).ok_or_else(missing)
    }

    pub(crate) fn inode_mut(&mut self, number: u64) -> io::Result<&mut Inode> {
        self.inodes.get_mut(&number).ok_or_else(missing)
    }

    /// Changes a file in the page cache and records the change as pending.
    pub(crate) fn change(&mut self, number: u64, change: Change) -> io::Result<()> {
        let unit = Unit { number: self.new_unit(), change };
        let now_micros = self.now_micros;
        let inode = self.inode_mut(number)?;
        inode.modified_micros = now_micros;
        unit.change.apply(&mut inode.current);
        inode.pending.push(unit);
        Ok(())
    }

    /// Makes a file's bytes durable.
    pub(crate) fn sync(&mut self, number: u64) -> io::Result<()> {
        let inode = self.inode_mut(number)?;
        if inode.forgetful {
            for unit in &inode.pending {
                unit.change.apply(&mut inode.durable);
            }
        } else {
            inode.durable = inode.current.clone();
        }
        inode.pending.clear();
        Ok(())
    }

    /// Applies a failed sync: drops pending units, whose error no later sync returns again.
    pub(crate) fn fail_sync(&mut self, number: u64, reverts: bool) -> io::Result<()> {
        let inode = self.inode_mut(number)?;
        inode.forgetful |= !inode.pending.is_empty();
        inode.pending.clear();
        if reverts {
            let len = inode.current.len();
            inode.current = inode.durable.clone();
            inode.current.set_len(len);
        }
        Ok(())
    }

    /// Number of bytes that all files with a name take, in whole pages.
    pub(crate) fn bytes_used(&self) -> u64 {
        let nodes = self.directories.values().flat_map(|directory| directory.current.values());
        let named: BTreeSet<_> = nodes.collect();
        let len_of = |node: &&Node| match node {
            Node::File(number) => self.inodes.get(number).map_or(0, |inode| inode.current.len()),
            Node::Directory(_) => 0,
        };
        named.iter().map(|node| len_of(node).next_multiple_of(PAGE_BYTES as u64)).sum()
    }

    /// Drops the files that have no name, neither now nor after any power loss, and no handle.
    pub(crate) fn collect_garbage(&mut self, is_open: impl Fn(u64) -> bool) {
        let directories = self.directories.values();
        let names = directories.flat_map(|d| d.current.values().chain(d.durable.values()));
        let changed = self
            .name_changes
            .iter()
            .flat_map(|change| [Some(&change.node), change.exchanged.as_ref()]);
        let changed = changed.flatten();
        let alive: BTreeSet<Node> = names.chain(changed).copied().collect();
        self.inodes.retain(|number, _| alive.contains(&Node::File(*number)) || is_open(*number));
    }

    /// The numbers of all pending units, unordered.
    pub(crate) fn pending(&self) -> Vec<UnitNumber> {
        let units = self.inodes.values().flat_map(|inode| &inode.pending).map(|unit| unit.number);
        units.chain(self.name_changes.iter().map(|change| change.number)).collect()
    }
}

/// The names along a path.
fn names_of(path: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => names.push(name.to_string_lossy().into_owned()),
            Component::RootDir | Component::CurDir => {}
            Component::ParentDir => {
                names.pop();
            }
            Component::Prefix(_) => return Err(ErrorKind::InvalidInput.into()),
        }
    }
    Ok(names)
}

fn missing() -> io::Error {
    io::Error::from_raw_os_error(2)
}

fn exists() -> io::Error {
    io::Error::from_raw_os_error(17)
}

fn not_a_directory() -> io::Error {
    io::Error::from_raw_os_error(20)
}

fn is_a_directory() -> io::Error {
    io::Error::from_raw_os_error(21)
}
