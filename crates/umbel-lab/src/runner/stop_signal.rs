//! Ctrl-C: the first one asks a run to stop where nothing is lost, the second ends the process.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What becomes true when somebody asks to stop.
pub fn listen() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    #[cfg(unix)]
    {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
        use signal_hook::flag::{register, register_conditional_default};

        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // Where it cannot be listened to, it ends the process, and repetitions are kept.
            let _ = register_conditional_default(signal, Arc::clone(&stop));
            let _ = register(signal, Arc::clone(&stop));
        }
    }
    stop
}
