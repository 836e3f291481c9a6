//! The two servers as processes of their own.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use umbel_lab::engine::Result;

use super::bare::address_in;

/// Ticks of the processor times that the kernel tells, in a second.
const TICKS: f64 = 100.0;

/// Which server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Which {
    /// `umbel serve`.
    Umbel,
    /// The bare one.
    Bare,
}

impl Which {
    /// Its name in the report.
    pub fn name(self) -> &'static str {
        match self {
            Which::Umbel => "umbel",
            Which::Bare => "bare",
        }
    }
}

/// A server that runs; it is killed when this is dropped, and its files are removed.
#[derive(Debug)]
pub struct Running {
    /// Where it listens.
    pub address: SocketAddr,
    child: Child,
    folder: PathBuf,
}

impl Running {
    /// Starts a server whose files are in `folder`, which is emptied.
    ///
    /// # Errors
    /// It did not start, or said no address.
    #[expect(clippy::disallowed_methods, reason = "another process tells nobody that it listens")]
    pub fn start(which: Which, umbel: &Path, folder: &Path, synced: bool) -> Result<Running> {
        if folder.exists() {
            std::fs::remove_dir_all(folder)?;
        }
        std::fs::create_dir_all(folder)?;
        let mut command = match which {
            Which::Umbel => {
                let mut command = Command::new(umbel);
                command.args(["serve", "--insecure", "--listen", "127.0.0.1:0", "--db"]);
                command.arg(folder.join("db"));
                if synced {
                    command.arg("--sync");
                }
                command
            }
            Which::Bare => {
                let mut command = Command::new(std::env::current_exe()?);
                command.arg("--bare");
                if synced {
                    command.arg("--sync").arg(folder.join("appended"));
                }
                command
            }
        };
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = pipes.spawn()?;
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            BufReader::new(output).read_line(&mut line)?;
        }
        let Some(address) = address_in(&line) else {
            child.kill()?;
            child.wait()?;
            return Err(format!("{} did not start; it said `{line}`", which.name()).into());
        };
        let running = Running { address, child, folder: folder.to_path_buf() };
        // The bare one says where it is going to listen.
        for _ in 0..100 {
            if TcpStream::connect(address).is_ok() {
                return Ok(running);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(format!("{} does not listen at {address}", which.name()).into())
    }

    /// The processor time it has taken, where the system tells it.
    pub fn processor_time(&self) -> Option<Duration> {
        processor_time(&self.child.id().to_string())
    }

    /// Bytes of memory it holds now, and the most it ever held.
    pub fn memory(&self) -> Option<(u64, u64)> {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let field = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name))?;
            Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? << 10)
        };
        Some((field("VmRSS:")?, field("VmHWM:")?))
    }
}

/// The processor time of a process, by its number or `self`.
pub(super) fn processor_time(process: &str) -> Option<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // Behind the name, which may hold anything, in parentheses.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks: f64 = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
    Some(Duration::from_secs_f64(ticks / TICKS))
}

impl Drop for Running {
    fn drop(&mut self) {
        // Errors here would hide the one that led here.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    #[cfg(target_os = "linux")]
    fn the_processor_time_grows() {
        let before = super::processor_time("self").unwrap();
        let mut sum = 0u64;
        while super::processor_time("self").unwrap() == before {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
    }
}
