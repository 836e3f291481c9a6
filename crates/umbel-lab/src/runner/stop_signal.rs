//! Handles Ctrl-C: the first stops the run and keeps its repetitions, the second ends the process.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Returns a flag that becomes true when the operator stops the run.
pub fn listen() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    #[cfg(unix)]
    {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
        use signal_hook::flag::{register, register_conditional_default};

        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // Without a handler the signal ends the process, and the repetitions are kept.
            let _ = register_conditional_default(signal, Arc::clone(&stop));
            let _ = register(signal, Arc::clone(&stop));
        }
    }
    stop
}
