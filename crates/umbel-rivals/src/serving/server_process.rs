//! The two servers as processes of their own.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

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

/// A server that runs; it is killed when this is dropped.
#[derive(Debug)]
pub struct Running {
    /// Where it listens.
    pub address: SocketAddr,
    child: Child,
    /// What is removed when this is dropped.
    folder: Option<PathBuf>,
}

impl Running {
    /// Starts a server whose files are in `folder`, which is emptied, and removed when the server
    /// is dropped.
    ///
    /// # Errors
    /// It did not start, or said no address.
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
        command.stderr(Stdio::null());
        let mut running = Running::spawn(which, command)?;
        running.folder = Some(folder.to_path_buf());
        Ok(running)
    }

    /// Starts Umbel on what is in `folder`, in clear, with these words more. What it says of itself
    /// is added to the file `log` there.
    ///
    /// # Errors
    /// It did not start, or said no address.
    pub fn serve(umbel: &Path, folder: &Path, words: &[&str]) -> Result<Running> {
        std::fs::create_dir_all(folder)?;
        let log = OpenOptions::new().create(true).append(true).open(folder.join("log"))?;
        let mut command = Command::new(umbel);
        command.args(["serve", "--insecure", "--listen", "127.0.0.1:0", "--db"]);
        command.arg(folder.join("db")).args(words).stderr(log);
        Running::spawn(Which::Umbel, command)
    }

    #[expect(clippy::disallowed_methods, reason = "another process tells nobody that it listens")]
    fn spawn(which: Which, mut command: Command) -> Result<Running> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            BufReader::new(output).read_line(&mut line)?;
        }
        let Some(address) = address_in(&line) else {
            child.kill()?;
            child.wait()?;
            return Err(format!("{} did not start; it said `{line}`", which.name()).into());
        };
        let running = Running { address, child, folder: None };
        // The bare one says where it is going to listen.
        for _ in 0..100 {
            if TcpStream::connect(address).is_ok() {
                return Ok(running);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(format!("{} does not listen at {address}", which.name()).into())
    }

    /// The number of its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Asks it to end as systems do, and waits for that: how it ended, and how long it took.
    ///
    /// # Errors
    /// It cannot be asked, or has not ended in so long.
    #[expect(clippy::disallowed_methods, reason = "another process tells nobody that it ended")]
    pub fn terminate(&mut self, patience: Duration) -> Result<(ExitStatus, Duration)> {
        let since = Instant::now();
        let asked = Command::new("kill").arg("-TERM").arg(self.id().to_string()).status()?;
        if !asked.success() {
            return Err(format!("the server could not be asked to end: {asked}").into());
        }
        while since.elapsed() < patience {
            if let Some(status) = self.child.try_wait()? {
                return Ok((status, since.elapsed()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err(format!("the server did not end within {} s", patience.as_secs()).into())
    }

    /// The processor time it has taken, where the system tells it.
    pub fn processor_time(&self) -> Option<Duration> {
        processor_time(&self.child.id().to_string())
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
        if let Some(folder) = &self.folder {
            let _ = std::fs::remove_dir_all(folder);
        }
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
