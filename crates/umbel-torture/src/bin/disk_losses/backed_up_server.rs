//! [`BackedUpServer`]: `umbel serve --backup-to` as a process of its own.

use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest wait for the start of a server, in polls.
const START_POLLS: usize = 600;
const POLL_TIME: Duration = Duration::from_millis(50);

/// A running server, which is killed when this value is dropped.
#[derive(Debug)]
pub struct BackedUpServer {
    /// Address at which it listens.
    pub address: SocketAddr,
    child: Child,
}

impl BackedUpServer {
    /// Starts a server with its store in `db` of the folder, and waits until it listens.
    pub fn start(
        umbel: &Path,
        folder: &Path,
        to: &str,
        interval: u64,
    ) -> Result<BackedUpServer, String> {
        let failed = |error: std::io::Error| format!("{}: {error}", umbel.display());
        let (printed, log) = (folder.join("printed"), folder.join("log"));
        let mut command = Command::new(umbel);
        command.args(["serve", "--insecure", "--listen", "127.0.0.1:0", "--backup-to", to]);
        command.args(["--backup-interval", &format!("{interval}s")]);
        command.arg("--db").arg(folder.join("db")).stdin(Stdio::null());
        command.stdout(File::create(&printed).map_err(failed)?);
        command.stderr(File::create(&log).map_err(failed)?);
        let child = command.spawn().map_err(failed)?;
        let mut server = BackedUpServer { address: SocketAddr::from(([0, 0, 0, 0], 0)), child };
        for _ in 0..START_POLLS {
            let text = std::fs::read_to_string(&printed).map_err(failed)?;
            if let Some(address) = address_in(&text) {
                server.address = address;
                return Ok(server);
            }
            std::thread::sleep(POLL_TIME);
        }
        let log = std::fs::read_to_string(log).unwrap_or_default();
        Err(format!("the server did not start: {}", log.trim()))
    }

    /// Kills the server, and returns the moment of its death.
    pub fn kill(mut self) -> Result<Instant, String> {
        if let Ok(Some(status)) = self.child.try_wait() {
            return Err(format!("the server ended by itself: {status}"));
        }
        self.child.kill().map_err(|error| error.to_string())?;
        let killed = Instant::now();
        self.child.wait().map_err(|error| error.to_string())?;
        Ok(killed)
    }
}

impl Drop for BackedUpServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The address in the first line that a server prints.
fn address_in(text: &str) -> Option<SocketAddr> {
    let (line, _) = text.split_once('\n')?;
    line.split(['/', '?', ' ']).find_map(|word| word.parse().ok())
}
