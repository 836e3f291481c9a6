//! Tests on small real file systems that are filled to their last block. Mounting a file system
//! needs root; without root these tests report that they were skipped, and why.

use std::path::{Path, PathBuf};
use std::process::Command;

use umbel::{Db, Error, Keyspace, KeyspaceOptions, Options};
use umbel_env::skipped_test::print_skipped;

use crate::suite::fixture::{all, existing, fill, filled, key, tiny, value};

/// A file system in a directory of its own, removed on drop.
struct Mounted {
    folder: tempfile::TempDir,
}

impl Mounted {
    /// A file system of `mebibytes` MiB: "tmpfs", or a type that `mke2fs -t` knows, in a file. The
    /// error is the reason why it cannot be mounted.
    fn new(kind: &str, mebibytes: u32) -> Result<Mounted, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let image = folder.path().join("image");
        let target = folder.path().join("disk");
        let (image, target) = (image.to_string_lossy(), target.to_string_lossy());
        call("mkdir", &[&target])?;
        let size = format!("{mebibytes}M");
        if kind == "tmpfs" {
            call("mount", &["-t", "tmpfs", "-o", &format!("size={size}"), "none", &target])?;
        } else {
            call("truncate", &["-s", &size, &image])?;
            call("mke2fs", &["-q", "-F", "-m", "0", "-t", kind, &image])?;
            call("mount", &["-o", "loop", &image, &target])?;
        }
        Ok(Mounted { folder })
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("disk")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.path()).output();
    }
}

/// Runs a program; the error is its output.
fn call(program: &str, arguments: &[&str]) -> Result<(), String> {
    let ran = Command::new(program).args(arguments).output();
    let output = ran.map_err(|error| format!("{program}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

fn open(folder: &Path) -> Db {
    let options = Options {
        background_threads: 1,
        log_segment_bytes: 1 << 20,
        memory_bytes: Some(16 << 20),
        ..Options::default()
    };
    Db::open(folder.join("store"), options).unwrap()
}

/// Puts until one fails. Returns the number of keys in the store.
fn fill_up(keyspace: &Keyspace, first: usize) -> usize {
    for index in first.. {
        match keyspace.put(key(index), value(index, 1)) {
            Ok(()) => {}
            Err(Error::DiskFull { .. }) => return index,
            Err(error) => panic!("put {index}: {error}"),
        }
    }
    first
}

/// Story: on file systems without `fallocate`, such as ext2, the first failed put was fatal. On
/// others the failed manual flush was fatal, and deletes failed like puts.
#[test]
fn stores_resume_after_full_disk() {
    let mut skipped = Vec::new();
    for (kind, reserves) in [("tmpfs", true), ("ext4", true), ("ext2", false)] {
        let mounted = match Mounted::new(kind, 24) {
            Ok(mounted) => mounted,
            Err(reason) => {
                skipped.push(format!("{kind} ({})", reason.replace('\n', " ")));
                continue;
            }
        };
        let disk = mounted.path();
        let filler = disk.join("filler");
        call("dd", &["if=/dev/zero", &format!("of={}", filler.display()), "bs=1M", "count=4"])
            .unwrap();
        let db = open(&disk);
        let options = KeyspaceOptions { memtable_bytes: 256 << 10, ..tiny() };
        let keyspace = db.keyspace("a", options).unwrap();
        let mut count = fill_up(&keyspace, 0);
        assert!(count > 1000, "{kind}: {count}");
        assert_eq!(db.stats().read_only_reason, None, "{kind}");
        match keyspace.flush() {
            Ok(()) | Err(Error::DiskFull { .. }) => {}
            Err(error) => panic!("{kind}: {error}"),
        }
        if reserves {
            keyspace.delete(key(0)).unwrap();
        } else {
            let _ = keyspace.delete(key(0));
        }
        assert_eq!(db.stats().read_only_reason, None, "{kind}");
        call("rm", &[&filler.to_string_lossy()]).unwrap();
        fill(&keyspace, 0..1, 1);
        fill(&keyspace, count..count + 10, 1);
        count += 10;
        keyspace.flush().unwrap();
        assert!(all(&keyspace) == filled(0..count, 1), "{kind}");
        keyspace.delete_range(key(0), key(count - 1)).unwrap();
        keyspace.compact(None, None).unwrap();
        fill(&keyspace, 0..1000, 1);
        drop(keyspace);
        db.close().unwrap();
        let db = open(&disk);
        let keyspace = existing(&db, "a");
        assert_eq!(keyspace.iter().count(), 1001, "{kind}");
        drop(keyspace);
        db.close().unwrap();
    }
    if !skipped.is_empty() {
        let reason = format!("these cannot be mounted here: {}", skipped.join(", "));
        print_skipped("full real disks", reason);
    }
}
