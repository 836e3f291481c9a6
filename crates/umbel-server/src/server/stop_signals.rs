//! [`Signals`]: the signals to the process. [`StopSignals`]: those that ask it to stop.

use std::io;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

/// Time in which a runtime sees a signal that has arrived.
const LOOK_TIME: Duration = Duration::from_millis(20);

/// Action that a signal requests.
#[derive(Debug, Clone, Copy)]
pub enum SignalAction {
    /// Stop the server; the name is the signal's.
    Stop(&'static str),
    /// Reload the certificates if they changed.
    #[cfg_attr(not(unix), expect(dead_code, reason = "there is no such signal"))]
    ReloadCertificates,
}

/// Signals of the operating system to the process.
#[cfg(unix)]
#[derive(Debug)]
pub struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    hang_up: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    /// Begins to listen. REQUIRES: a runtime is entered.
    pub fn listen() -> io::Result<Signals> {
        use tokio::signal::unix::{SignalKind, signal};
        // A file that reaches its length limit (`ulimit -f`) would end the process. Once a handler
        // was installed, the write fails instead, as on a full disk.
        drop(signal(SignalKind::from_raw(umbel_env::FILE_SIZE_SIGNAL))?);
        let (terminate, interrupt) =
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        Ok(Signals { terminate, interrupt, hang_up: signal(SignalKind::hangup())? })
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) -> SignalAction {
        tokio::select! {
            _ = self.terminate.recv() => SignalAction::Stop("SIGTERM"),
            _ = self.interrupt.recv() => SignalAction::Stop("SIGINT"),
            _ = self.hang_up.recv() => SignalAction::ReloadCertificates,
        }
    }
}

/// Signals of the operating system to the process.
#[cfg(not(unix))]
#[derive(Debug)]
pub struct Signals;

#[cfg(not(unix))]
impl Signals {
    /// Begins to listen. REQUIRES: a runtime is entered.
    pub fn listen() -> io::Result<Signals> {
        Ok(Signals)
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) -> SignalAction {
        // Without support for Ctrl-C handlers, it ends the process by itself.
        let _ = tokio::signal::ctrl_c().await;
        SignalAction::Stop("Ctrl-C")
    }
}

/// Signals that tell the process to stop, also while it has no server. Without this value, a signal
/// between two servers of a process would be lost.
#[derive(Debug)]
pub struct StopSignals {
    runtime: Runtime,
    signals: Signals,
    has_arrived: bool,
}

impl StopSignals {
    /// Begins to listen.
    ///
    /// # Errors
    /// The operating system refuses a handler or a descriptor.
    pub fn listen() -> io::Result<StopSignals> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let signals = {
            let _inside = runtime.enter();
            Signals::listen()?
        };
        Ok(StopSignals { runtime, signals, has_arrived: false })
    }

    /// Whether a signal to stop has arrived since [`StopSignals::listen`].
    pub fn has_arrived(&mut self) -> bool {
        let signals = &mut self.signals;
        self.has_arrived |= self.runtime.block_on(async {
            loop {
                tokio::select! {
                    biased;
                    action = signals.next() => {
                        if let SignalAction::Stop(_) = action {
                            return true;
                        }
                    }
                    // Its turn comes after the runtime looked for signals.
                    () = tokio::time::sleep(LOOK_TIME) => return false,
                }
            }
        });
        self.has_arrived
    }
}
