//! [`Scavenging`]: what the calls that begin and stop a scavenge ask of the store.

use std::fmt::Debug;

use tonic::Status;

use crate::failure;

/// How a scavenge is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScavengeOptions {
    /// With how many threads, at least one.
    pub threads: u32,
    /// From which file of the log on, counted from 0.
    pub first_chunk: u32,
}

/// What came of beginning one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begun {
    /// It has begun; its name.
    #[cfg_attr(not(test), expect(dead_code, reason = "no store begins one yet"))]
    Started(String),
    /// Another one is under way; its name.
    #[cfg_attr(not(test), expect(dead_code, reason = "no store begins one yet"))]
    InProgress(String),
}

/// Begins and stops scavenges.
pub trait Scavenging: Debug + Send + Sync {
    /// Begins one, where none is under way. It goes on after the call.
    ///
    /// # Errors
    /// It cannot be begun.
    fn start(&self, options: ScavengeOptions) -> Result<Begun, Status>;

    /// Stops the one with this name. What it gave back stays so.
    ///
    /// # Errors
    /// There is none with this name.
    fn stop(&self, id: &str) -> Result<(), Status>;
}

/// A store that cannot scavenge while it is served.
#[derive(Debug)]
pub struct NoScavenging;

impl Scavenging for NoScavenging {
    fn start(&self, _: ScavengeOptions) -> Result<Begun, Status> {
        Err(Status::unimplemented(
            "the server does not scavenge; nothing was begun, and only space is lost by that",
        ))
    }

    fn stop(&self, id: &str) -> Result<(), Status> {
        Err(failure::scavenge_not_found(id))
    }
}
