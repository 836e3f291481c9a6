//! Disk space of the stores' files, and bytes written to the device.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::engine::Result;

/// Returns every file below a folder with its length and its disk space, in bytes, in order.
pub fn listing(folder: &Path) -> Result<Vec<(PathBuf, u64, u64)>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            // A file may be deleted after the listing.
            let Ok(metadata) = path.symlink_metadata() else { continue };
            if metadata.is_dir() {
                folders.push(path);
            } else {
                files.push((path, metadata.len(), metadata.blocks() * 512));
            }
        }
    }
    files.sort_unstable();
    Ok(files)
}

/// Returns a checksum over the names and lengths of every file below a folder.
pub fn fingerprint(folder: &Path) -> Result<u64> {
    let mut text = String::new();
    for (path, length, _) in listing(folder)? {
        text.push_str(&format!("{} {length}\n", path.display()));
    }
    Ok(xxhash_rust::xxh3::xxh3_64(text.as_bytes()))
}

/// Returns the disk space of the files below a folder.
pub fn bytes(folder: &Path) -> Result<u64> {
    Ok(listing(folder)?.iter().map(|(_, _, taken)| taken).sum())
}

/// Syncs every file below a folder, even if the engine has synced it.
pub fn sync_all(folder: &Path) -> Result<()> {
    for (path, _, _) in listing(folder)? {
        match File::open(&path) {
            Ok(file) => file.sync_all()?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Returns the bytes written to the device of a folder so far, by all processes.
pub fn device_written_bytes(folder: &Path) -> Option<u64> {
    let device = std::fs::metadata(folder).ok()?.dev();
    // The C library's major and minor numbers of a device.
    let major = ((device >> 32) & 0xffff_f000) | ((device >> 8) & 0xfff);
    let minor = ((device >> 12) & 0xffff_ff00) | (device & 0xff);
    let text = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
    let sectors: u64 = text.split_whitespace().nth(6)?.parse().ok()?;
    Some(sectors * 512)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_in_subfolders_are_counted() {
        let folder = std::env::temp_dir().join(format!("umbel-rivals-disk-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("below")).unwrap();
        std::fs::write(folder.join("below/file"), [1; 5000]).unwrap();
        sync_all(&folder).unwrap();
        let files = listing(&folder).unwrap();
        let before = fingerprint(&folder).unwrap();
        assert_eq!(fingerprint(&folder).unwrap(), before);
        std::fs::write(folder.join("below/file"), [1; 5001]).unwrap();
        assert_ne!(fingerprint(&folder).unwrap(), before);
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(files.len(), 1);
        assert_eq!(files[0].1, 5000);
        assert!(files[0].2 >= 4096);
    }
}
