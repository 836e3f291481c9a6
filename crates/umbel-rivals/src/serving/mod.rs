//! The third comparison: `umbel serve` beside a bare tonic server, in one run.
//!
//! The bare server takes messages of the same sizes over the same calls, answers with messages of
//! the same sizes, and keeps nothing; where it is told to sync it writes what came to a file, one
//! sync for all who wait. What it reaches is what a store behind gRPC can reach on this machine
//! with the client beside it. Both are processes of their own; one client program asks both, by
//! turns.
//!
//! The soak is no comparison: it watches one server for long.

pub mod arguments;
pub mod bare;
#[expect(clippy::disallowed_methods, reason = "real servers are timed with the real clock")]
mod client;
mod live;
#[expect(clippy::disallowed_methods, reason = "real servers are timed with the real clock")]
mod messages;
pub mod process;
pub mod report;
pub mod run;
mod sink;
#[expect(clippy::disallowed_methods, reason = "a real server is watched by the real clock")]
pub mod soak;
pub mod work;

#[path = "../../umbel-server/tests/suite/connection.rs"]
#[expect(unreachable_pub, reason = "written for another crate")]
mod connection;
