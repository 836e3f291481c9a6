//! Compares `umbel serve` with a bare tonic server, in one run.
//!
//! The bare server takes messages of the same sizes over the same calls, returns answers of the
//! same sizes, and stores nothing. For synced work it writes the appends to a file, with one sync
//! for all waiting calls. The bare server's rate is the upper bound for a store behind gRPC on this
//! machine, with the client on the same machine. Each server is a separate process; one client
//! program sends the same requests to both, in turns.
//!
//! Instead of the bare server, another binary of Umbel can be the measure, or the same binary
//! without scrapes, console and telemetry.
//!
//! The soak is no comparison: it runs only `umbel serve`, for a long time.

mod bare_append_sink;
mod bare_subscribers;

pub mod bare_server;
pub mod load_kinds;
pub mod server_observers;
pub mod server_process;
pub mod serving_arguments;
pub mod serving_report;
pub mod serving_run;

#[expect(clippy::disallowed_methods, reason = "real servers are timed with the real clock")]
mod load_client;
#[expect(clippy::disallowed_methods, reason = "real servers are timed with the real clock")]
mod messages;
#[expect(clippy::disallowed_methods, reason = "a real server is watched by the real clock")]
pub mod soak;
