//! Runs the two servers as separate processes.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use umbel_lab::engine::Result;

use crate::serving::bare_server::address_in;

/// Clock ticks per second of the processor times in `/proc`.
const TICKS_PER_SECOND: f64 = 100.0;

/// Kind of server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ServerKind {
    /// `umbel serve`.
    Umbel,
    /// The bare server.
    Bare,
    /// `umbel serve` of another binary, or of the same binary without observers.
    Baseline,
}

impl ServerKind {
    /// Returns the name in the report.
    pub fn name(self) -> &'static str {
        match self {
            ServerKind::Umbel => "umbel",
            ServerKind::Bare => "bare",
            ServerKind::Baseline => "baseline",
        }
    }
}

/// Running server, which is killed when this value is dropped.
#[derive(Debug)]
pub struct ServerProcess {
    /// Address at which it listens.
    pub address: SocketAddr,
    child: Child,
    /// Folder that is removed when this value is dropped.
    folder: Option<PathBuf>,
}

impl ServerProcess {
    /// Starts a server with its files in `folder`, which is emptied first, and removed when the
    /// server is dropped. `words` are added to the arguments of `umbel serve`.
    ///
    /// # Errors
    /// The server did not start, or printed no address.
    pub fn start(
        kind: ServerKind,
        umbel: &Path,
        folder: &Path,
        synced: bool,
        words: &[String],
    ) -> Result<ServerProcess> {
        if folder.exists() {
            std::fs::remove_dir_all(folder)?;
        }
        std::fs::create_dir_all(folder)?;
        let mut command = match kind {
            ServerKind::Umbel | ServerKind::Baseline => {
                let mut command = Command::new(umbel);
                command.args(["serve", "--insecure", "--listen", "127.0.0.1:0", "--db"]);
                command.arg(folder.join("db"));
                command.args(["--durability", if synced { "synced" } else { "buffered" }]);
                command.args(words);
                command
            }
            ServerKind::Bare => {
                let mut command = Command::new(std::env::current_exe()?);
                command.arg("--bare");
                if synced {
                    command.arg("--sync").arg(folder.join("appended"));
                }
                command
            }
        };
        command.stderr(Stdio::null());
        let mut running = ServerProcess::spawn(kind, command)?;
        running.folder = Some(folder.to_path_buf());
        Ok(running)
    }

    /// Starts Umbel on the store in `folder`, without TLS, with these arguments added. The server's
    /// log is appended to the file `log` in that folder.
    ///
    /// # Errors
    /// The server did not start, or printed no address.
    pub fn serve(umbel: &Path, folder: &Path, words: &[&str]) -> Result<ServerProcess> {
        std::fs::create_dir_all(folder)?;
        let log = OpenOptions::new().create(true).append(true).open(folder.join("log"))?;
        let mut command = Command::new(umbel);
        command.args(["serve", "--insecure", "--listen", "127.0.0.1:0", "--db"]);
        command.arg(folder.join("db")).args(words).stderr(log);
        ServerProcess::spawn(ServerKind::Umbel, command)
    }

    #[expect(clippy::disallowed_methods, reason = "polls until another process listens")]
    fn spawn(kind: ServerKind, mut command: Command) -> Result<ServerProcess> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            BufReader::new(output).read_line(&mut line)?;
        }
        let Some(address) = address_in(&line) else {
            child.kill()?;
            child.wait()?;
            return Err(format!("{} did not start; it printed `{line}`", kind.name()).into());
        };
        let running = ServerProcess { address, child, folder: None };
        // The bare server prints its address before it listens.
        for _ in 0..100 {
            if TcpStream::connect(address).is_ok() {
                return Ok(running);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(format!("{} does not listen at {address}", kind.name()).into())
    }

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Stops the server by SIGTERM and waits for its end. Returns the server's exit status, and the
    /// time that it took to end.
    ///
    /// # Errors
    /// The signal cannot be sent, or the server has not ended within the timeout.
    #[expect(clippy::disallowed_methods, reason = "polls for the end of another process")]
    pub fn terminate(&mut self, timeout: Duration) -> Result<(ExitStatus, Duration)> {
        let since = Instant::now();
        let sent = Command::new("kill").arg("-TERM").arg(self.id().to_string()).status()?;
        if !sent.success() {
            return Err(format!("SIGTERM could not be sent to the server: {sent}").into());
        }
        while since.elapsed() < timeout {
            if let Some(status) = self.child.try_wait()? {
                return Ok((status, since.elapsed()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err(format!("the server did not end within {} s", timeout.as_secs()).into())
    }

    /// Returns the processor time of the server, if the system reports it.
    pub fn processor_time(&self) -> Option<Duration> {
        processor_time(&self.child.id().to_string())
    }
}

/// Returns the processor time of a process, by its id or `self`.
pub(super) fn processor_time(process: &str) -> Option<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // Fields after the name, which may contain anything, in parentheses.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks: f64 = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
    Some(Duration::from_secs_f64(ticks / TICKS_PER_SECOND))
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // An error here would hide the error that led here.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(folder) = &self.folder {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    #[cfg(target_os = "linux")]
    fn processor_time_grows() {
        let before = super::processor_time("self").unwrap();
        let mut sum = 0u64;
        while super::processor_time("self").unwrap() == before {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
    }
}
