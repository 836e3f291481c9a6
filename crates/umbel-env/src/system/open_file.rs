//! Opens a file by its location.

use std::{fs, io};

use rustix::fs::{Mode, OFlags, openat};

use crate::file_system::Access;
use crate::system::open_directory::{self, Location};

/// Flags of every open of a file. `O_NONBLOCK` keeps the open of a pipe from waiting for the pipe's
/// other end, and has no effect on a regular file.
const SAFE_OPEN_FLAGS: OFlags =
    OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC).union(OFlags::NOCTTY);

/// Opens the file at a location, with `more` flags in addition to [`SAFE_OPEN_FLAGS`].
pub(super) fn open_file(location: &Location, access: Access, more: OFlags) -> io::Result<fs::File> {
    let flags = match access {
        Access::Read => OFlags::RDONLY,
        Access::ReadWrite => OFlags::RDWR,
    };
    let opened = open_directory::retry_on_interrupt(|| {
        let mode = Mode::RUSR | Mode::WUSR;
        openat(location.directory(), location.name(), flags | SAFE_OPEN_FLAGS | more, mode)
    });
    open_directory::above_standard_streams(opened?).map(fs::File::from)
}
