//! [`SupervisedServer`]: a server that starts again at its port after it ended, as a container or a
//! service does. Tests of a cluster shut its leader down.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;

use crate::clients::client_programs::Server;

/// A server with its supervisor.
pub struct SupervisedServer {
    /// Port of the server.
    pub port: u16,
    is_stopping: Arc<AtomicBool>,
    process: Arc<AtomicU32>,
    supervisor: JoinHandle<()>,
}

impl SupervisedServer {
    #[expect(clippy::disallowed_methods, reason = "no test owns the threads of this command")]
    /// Starts the server that `start` starts at a port; 0 is any free port.
    pub fn start(
        start: impl Fn(u16) -> Result<Server, String> + Send + 'static,
    ) -> Result<SupervisedServer, String> {
        let first = start(0)?;
        let port = first.port().ok_or_else(|| format!("no port in `{}`", first.connection))?;
        let (is_stopping, process) =
            (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(first.id())));
        let (stops, id) = (Arc::clone(&is_stopping), Arc::clone(&process));
        let supervisor = std::thread::spawn(move || {
            let mut server = first;
            loop {
                server.wait();
                if stops.load(Ordering::SeqCst) {
                    return;
                }
                // A failure shows in the tests that follow.
                let Ok(next) = start(port) else { return };
                id.store(next.id(), Ordering::SeqCst);
                server = next;
            }
        });
        Ok(SupervisedServer { port, is_stopping, process, supervisor })
    }

    /// Stops the server for good.
    pub fn stop(self) {
        self.is_stopping.store(true, Ordering::SeqCst);
        let id = self.process.load(Ordering::SeqCst).to_string();
        // A process that has ended is not there any more.
        Command::new("kill").arg(id).status().ok();
        self.supervisor.join().ok();
    }
}
