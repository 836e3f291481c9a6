//! Manual damage of files: bytes that change, vanish or move while no process writes them.
//!
//! Each of these functions first makes the file durable as it is, so that every later image has the
//! damage. Each panics if the file does not exist or ends before the damaged place, since a test
//! that damages nothing must not pass.

use std::path::{Path, PathBuf};

use crate::disk::{Disk, Node, ROOT, ResolvedDirectory};
use crate::file_content::FileContent;
use crate::power_loss::SECTOR_BYTES;
use crate::sim::Sim;

impl Sim {
    /// Every file by its path, sorted.
    pub fn files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        list(&self.machine.state().disk, ROOT, Path::new("/"), &mut files);
        files.sort();
        files
    }

    /// The bytes of a file as a process sees them.
    pub fn read(&self, path: impl AsRef<Path>) -> Vec<u8> {
        self.with_file(path.as_ref(), |content| content.to_vec())
    }

    /// Whether a file has this name.
    pub fn has(&self, path: impl AsRef<Path>) -> bool {
        self.machine.state().disk.find_file(path.as_ref()).is_ok()
    }

    /// Flips the bits of `mask` in the byte at `offset`.
    pub fn flip(&self, path: impl AsRef<Path>, offset: u64, mask: u8) {
        assert_ne!(mask, 0, "a mask of 0 damages nothing");
        self.edit(path.as_ref(), |content| {
            let mut byte = take(content, offset, 1);
            byte[0] ^= mask;
            content.write(&byte, offset);
        });
    }

    /// Fills the sector that holds `offset` with zeros, up to the end of the file.
    pub fn zero_sector(&self, path: impl AsRef<Path>, offset: u64) {
        self.edit(path.as_ref(), |content| {
            let start = offset - offset % SECTOR_BYTES;
            take(content, offset, 1);
            let len = SECTOR_BYTES.min(content.len() - start);
            content.write(&vec![0; len as usize], start);
        });
    }

    /// Cuts a file to `len` bytes.
    pub fn truncate(&self, path: impl AsRef<Path>, len: u64) {
        self.edit(path.as_ref(), |content| {
            assert!(len < content.len(), "the file has only {} bytes", content.len());
            content.set_len(len);
        });
    }

    /// Appends bytes to a file.
    pub fn extend(&self, path: impl AsRef<Path>, bytes: &[u8]) {
        self.edit(path.as_ref(), |content| content.write(bytes, content.len()));
    }

    /// Replaces the bytes of a file.
    pub fn replace(&self, path: impl AsRef<Path>, bytes: &[u8]) {
        self.edit(path.as_ref(), |content| {
            content.set_len(0);
            content.write(bytes, 0);
        });
    }

    /// Removes a file's name durably.
    pub fn remove(&self, path: impl AsRef<Path>) {
        let path = path.as_ref();
        let parent = path.parent().unwrap_or(Path::new(""));
        let mut state = self.machine.state();
        let place = state.disk.resolve_slot(ResolvedDirectory::ROOT, path);
        let removed = place.and_then(|place| state.disk.remove(place));
        assert!(removed.is_ok(), "no file {} to remove", path.display());
        if let Ok(directory) = state.disk.find_directory(parent) {
            state.disk.sync_names(directory);
        }
    }

    /// Exchanges two ranges of `len` bytes of one file, like a disk that confuses two blocks.
    pub fn swap_blocks(&self, path: impl AsRef<Path>, first: u64, second: u64, len: usize) {
        self.edit(path.as_ref(), |content| {
            let (at_first, at_second) = (take(content, first, len), take(content, second, len));
            content.write(&at_second, first);
            content.write(&at_first, second);
        });
    }

    /// Exchanges the bytes of two files.
    pub fn swap_files(&self, first: impl AsRef<Path>, second: impl AsRef<Path>) {
        let of_first = self.with_file(first.as_ref(), |content| content.clone());
        let of_second = self.with_file(second.as_ref(), |content| content.clone());
        self.edit(first.as_ref(), |content| *content = of_second);
        self.edit(second.as_ref(), |content| *content = of_first);
    }

    /// Restores the bytes that an older copy of the disk has at `offset`, as if the disk had lost a
    /// write.
    pub fn restore_block(&self, older: &Sim, path: impl AsRef<Path>, offset: u64, len: usize) {
        let path = path.as_ref();
        let bytes = older.with_file(path, |content| take(content, offset, len));
        self.edit(path, |content| {
            take(content, offset, len);
            content.write(&bytes, offset);
        });
    }

    fn with_file<T>(&self, path: &Path, ask: impl FnOnce(&mut FileContent) -> T) -> T {
        let mut state = self.machine.state();
        let number = state.disk.find_file(path);
        let inode = number.and_then(|number| state.disk.inode_mut(number));
        match inode {
            Ok(inode) => ask(&mut inode.current),
            Err(error) => panic!("no file {}: {error}", path.display()),
        }
    }

    fn edit(&self, path: &Path, edit: impl FnOnce(&mut FileContent)) {
        self.with_file(path, edit);
        let mut state = self.machine.state();
        if let Ok(inode) = state.disk.find_file(path).and_then(|n| state.disk.inode_mut(n)) {
            inode.durable = inode.current.clone();
            inode.pending.clear();
            inode.forgetful = false;
        }
    }
}

/// Returns the bytes at a place, which must be within the file.
fn take(content: &FileContent, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let read = content.read(&mut bytes, offset);
    assert_eq!(read, len, "the file ends at {}", content.len());
    bytes
}

fn list(disk: &Disk, directory: u64, at: &Path, files: &mut Vec<PathBuf>) {
    let Some(directory) = disk.directories.get(&directory) else { return };
    for (name, node) in directory.current.iter() {
        match *node {
            Node::File(_) => files.push(at.join(name)),
            Node::Directory(number) => list(disk, number, &at.join(name), files),
        }
    }
}
