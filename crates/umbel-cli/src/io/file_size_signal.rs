//! Turns the signal SIGXFSZ into an error that can be reported.
//!
//! If a file grows over `ulimit -f`, the system sends this signal, which ends a process that does
//! not handle it. A process that handles it gets the error "File too large" from the write.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Handles the signal with a handler that only sets a flag, which no code reads.
pub fn ignore() {
    // Where the system refuses, everything stays as it is.
    let _ =
        signal_hook::flag::register(umbel_env::FILE_SIZE_SIGNAL, Arc::new(AtomicBool::new(false)));
}
