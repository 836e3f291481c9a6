//! Pins: shared locks of single bytes of a lock file, one byte for each version.
//!
//! Pins are locks of open file descriptions (`F_OFD_SETLK`). A descriptor opened for reading is
//! enough, so a pin works on a read-only mount and without write permission. Pins do not conflict
//! with the `flock` of the writer, so a reader never keeps a writer from opening the store.

use std::fs;
use std::io;
use std::path::Path;

use rustix::fs::OFlags;
use umbel_base::{Error, Result};

use crate::file_system::{Access, Pin};
use crate::system::open_directory::Location;
use crate::system::open_file::open_file;

/// A reader's pin; closing the file releases it. A child process that still has the file open keeps
/// the pin: then files stay longer than needed, but none is removed too early.
#[derive(Debug)]
pub(super) struct SystemPin {
    _file: fs::File,
}

impl Pin for SystemPin {}

/// Pins a version in the lock file at a location. Returns `None` if there is no lock file, it is
/// not readable, or the system has no such locks.
pub(super) fn take(location: &Location, path: &Path, version: u64) -> Result<Option<SystemPin>> {
    let file = match open_file(location, Access::Read, OFlags::empty()) {
        Ok(file) => file,
        Err(error) => {
            use io::ErrorKind::{NotFound, PermissionDenied};
            return match error.kind() {
                NotFound | PermissionDenied => Ok(None),
                _ => Err(Error::io("open for a pin", path, error)),
            };
        }
    };
    Ok(lock_byte(&file, version).then_some(SystemPin { _file: file }))
}

/// Returns the lock of the bytes of the versions from `first` to `through`. Byte 0 belongs to no
/// version.
#[cfg(target_os = "linux")]
fn bytes(first: u64, through: u64) -> Option<libc::flock> {
    let start = libc::off_t::try_from(first.checked_add(1)?).ok()?;
    let end = libc::off_t::try_from(through.checked_add(2)?).ok()?;
    Some(libc::flock {
        l_type: 0,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start,
        l_len: end - start,
        l_pid: 0,
    })
}

#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "no crate of the table offers locks of open file descriptions")]
fn lock_byte(file: &fs::File, version: u64) -> bool {
    use std::os::fd::AsRawFd;
    let Some(mut lock) = bytes(version, version) else { return false };
    lock.l_type = libc::F_RDLCK as libc::c_short;
    loop {
        // SAFETY: the descriptor is open while `file` is borrowed, and the call only reads `lock`,
        // which outlives it.
        let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
        if done == 0 {
            return true;
        }
        if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return false;
        }
    }
}

/// Whether another descriptor pins version `through` or an earlier one. The check takes no lock, so
/// no reader fails to pin meanwhile. An error counts as a pin.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "no crate of the table offers locks of open file descriptions")]
pub(super) fn is_pinned(file: &fs::File, through: u64) -> bool {
    use std::os::fd::AsRawFd;
    let Some(mut lock) = bytes(0, through) else { return true };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    loop {
        // SAFETY: the descriptor is open while `file` is borrowed, and `lock`, which the call reads
        // and writes, is borrowed mutably and outlives it.
        let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
        if done == 0 {
            return lock.l_type != libc::F_UNLCK as libc::c_short;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            // Where there are no such locks, no reader has one.
            let unsupported = [libc::EINVAL, libc::ENOSYS, libc::EOPNOTSUPP, libc::ENOTSUP];
            return !unsupported.iter().any(|number| error.raw_os_error() == Some(*number));
        }
    }
}

/// This platform has no locks of open file descriptions.
#[cfg(not(target_os = "linux"))]
fn lock_byte(_file: &fs::File, _version: u64) -> bool {
    false
}

/// This platform has no locks of open file descriptions.
#[cfg(not(target_os = "linux"))]
pub(super) fn is_pinned(_file: &fs::File, _through: u64) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::Env;
    use crate::system::open_directory::Location;

    /// Story: readers took the writer's own lock, or no lock on a read-only mount. So they blocked
    /// writers, or read files that a writer removed meanwhile.
    #[cfg(target_os = "linux")]
    #[test]
    fn writer_sees_a_pin_and_is_not_blocked() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("LOCK");
        let files = Env::system().files;
        assert!(files.pin(&path, 0).unwrap().is_none(), "there is no lock file, and none is made");
        let lock = files.lock(&path).unwrap();
        assert!(!lock.is_pinned(u64::MAX >> 2).unwrap());
        let (first, second) = (files.pin(&path, 7).unwrap(), files.pin(&path, 9).unwrap());
        let (first, second) = (first.expect("pinned"), second.expect("pinned"));
        assert!(!lock.is_pinned(6).unwrap(), "no version up to 6 is pinned");
        assert!(lock.is_pinned(7).unwrap() && lock.is_pinned(8).unwrap());
        drop(first);
        assert!(!lock.is_pinned(8).unwrap() && lock.is_pinned(9).unwrap());
        drop(lock);
        let lock = files.lock(&path).expect("a pin keeps no writer out");
        assert!(lock.is_pinned(9).unwrap(), "the next writer sees it, too");
        drop(second);
        assert!(!lock.is_pinned(u64::MAX >> 2).unwrap());
    }

    /// A user without write permission, or a read-only mount, can pin: the file is opened for
    /// reading only.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_pin_changes_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("LOCK");
        std::fs::write(&path, b"x").unwrap();
        let location = Location::anywhere(Path::new(&path));
        assert!(super::take(&location, &path, 3).unwrap().is_some());
        assert_eq!(std::fs::read(&path).unwrap(), b"x");
    }
}
