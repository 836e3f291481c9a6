//! The outside world as traits: files, directories, clock, entropy, threads.
//!
//! This is the only crate of the engine that names `std::fs`, `std::time` or a source of
//! randomness. Everything above reaches the world through an [`Env`], so that `umbel-sim` can put
//! a crash disk in its place. [`Env::system`] is the real one.
#![deny(unsafe_code)]

pub mod aligned;
pub mod env;
pub mod file;
pub mod system;

pub use aligned::{AlignedBuffer, DIRECT_ALIGNMENT};
pub use env::{Clock, Entropy, Env, JoinHandle, Resources, Threads};
pub use file::{
    Access, DirectoryEntry, DirectoryPlace, File, FileIdentity, FileSystem, Lock, Mapping, Pin,
    Populator,
};
