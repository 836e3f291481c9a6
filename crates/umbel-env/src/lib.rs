//! The services of the operating system as traits: files, directories, clock, entropy, threads.
//!
//! This is the only crate of the engine that names `std::fs`, `std::time` or a source of
//! randomness. All other crates use the operating system through an [`Env`], so that `umbel-sim`
//! can put a crash disk in its place. [`Env::system`] is the real operating system.
#![deny(unsafe_code)]

mod atomic_file;
mod fork_guarded_files;
mod lock_wait;
mod ownership_checked_files;
mod pinned_files;

pub mod aligned_buffer;
pub mod empty_path_check;
pub mod env;
pub mod file_system;
#[doc(hidden)]
pub mod file_system_wrapper;
pub mod job_thread;
pub mod objects;
pub mod process;
pub mod system;

#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod memory_file;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod skipped_test;
#[cfg(all(feature = "testing", target_os = "linux"))]
#[doc(hidden)]
pub mod test_processes;

/// Number of the signal that a write raises if its file would exceed the limit of file lengths
/// (`ulimit -f`). A process that handles the signal gets an error from the write instead.
#[cfg(unix)]
pub const FILE_SIZE_SIGNAL: i32 = libc::SIGXFSZ;

pub use aligned_buffer::{AlignedBuffer, DIRECT_ALIGNMENT};
pub use atomic_file::AtomicFile;
pub use empty_path_check::check_path;
pub use env::{Clock, DiskSpace, Entropy, Env, JoinHandle, ProcessUsage, Resources, Threads};
pub use file_system::{
    Access, DirectoryEntry, DirectoryLocation, File, FileIdentity, FileSystem, Lock, Mapping, Pin,
    Prefaulter,
};
#[doc(hidden)]
pub use file_system_wrapper::WrapperResult;
pub use job_thread::JobThread;
pub use objects::{
    Answer, Creation, CreationRequest, ListPage, ListedObject, OBJECT_NAME_BYTES_MAX,
    OBJECT_NAME_SEGMENT_BYTES_MAX, OBJECT_NAME_SEGMENTS_MAX, ObjectBytes, ObjectError,
    ObjectErrorKind, ObjectName, ObjectResult, ObjectSource, Objects, PrefixedObjects,
};
pub use ownership_checked_files::{OwnershipCheck, OwnershipCheckedFiles};
pub use pinned_files::PinnedFiles;
pub use process::{OpenMark, OpenState, ProcessLocal, ProcessMark, ProcessOwned};
