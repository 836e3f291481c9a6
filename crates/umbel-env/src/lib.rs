//! The outside world as traits: files, directories, clock, entropy, threads.
//!
//! This is the only crate of the engine that names `std::fs`, `std::time` or a source of
//! randomness. Everything above reaches the world through an [`Env`], so that `umbel-sim` can put
//! a crash disk in its place. [`Env::system`] is the real one.
#![deny(unsafe_code)]

pub mod aligned;
pub mod env;
pub mod file;
mod kept_files;
mod lock_wait;
mod own_files;
pub mod pass_on;
pub mod path;
pub mod process;
mod process_files;
mod root_file;
pub mod system;
#[cfg(all(feature = "testing", target_os = "linux"))]
#[doc(hidden)]
pub mod testing;

/// The number of the signal that a file sends which would grow beyond the limit of its length
/// (`ulimit -f`). A process that handles it gets an error from the write instead.
#[cfg(unix)]
pub const FILE_SIZE_SIGNAL: i32 = libc::SIGXFSZ;

pub use aligned::{AlignedBuffer, DIRECT_ALIGNMENT};
pub use env::{Clock, Entropy, Env, JoinHandle, Resources, Threads};
pub use file::{
    Access, DirectoryEntry, DirectoryPlace, File, FileIdentity, FileSystem, Lock, Mapping, Pin,
    Populator,
};
pub use kept_files::KeptFiles;
pub use own_files::{OwnFiles, OwnershipCheck};
pub use path::check_path;
pub use process::{OpenMark, OpenState, PerProcess, ProcessBound, ProcessMark};
pub use root_file::RootFile;
