//! Turns the signal SIGXFSZ into an error that can be reported.
//!
//! Where a file grows over `ulimit -f` the system first sends this signal, which ends a process on
//! the spot; one that handles it gets the error "File too large" from the write instead.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Handles the signal by noting it in a place that no code reads.
pub fn ignore() {
    // Where the system refuses, everything stays as it is.
    let _ =
        signal_hook::flag::register(umbel_env::FILE_SIZE_SIGNAL, Arc::new(AtomicBool::new(false)));
}
