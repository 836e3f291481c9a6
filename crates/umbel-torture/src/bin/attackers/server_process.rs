//! [`ServerProcess`]: `umbel serve` as a process of its own.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::client::PASSWORD;

/// Memory budget of the store.
pub const MEMORY_MIB: u64 = 256;
/// Longest wait for the start of a server, in polls.
const START_POLLS: usize = 600;
const POLL_TIME: Duration = Duration::from_millis(50);
/// Clock ticks per second of the processor times in `/proc`.
const TICKS_PER_SECOND: f64 = 100.0;

/// A running server, which is killed when this value is dropped.
#[derive(Debug)]
pub struct ServerProcess {
    /// Address at which it listens.
    pub address: SocketAddr,
    child: Child,
    folder: PathBuf,
}

impl ServerProcess {
    /// Starts a server with users and synced appends in an empty folder.
    pub fn start(umbel: &Path, folder: &Path) -> Result<ServerProcess, String> {
        let _ = std::fs::remove_dir_all(folder);
        ServerProcess::start_on(umbel, folder)
    }

    /// Starts a server on the store in a folder.
    pub fn start_on(umbel: &Path, folder: &Path) -> Result<ServerProcess, String> {
        let failed = |error: std::io::Error| format!("{}: {error}", umbel.display());
        std::fs::create_dir_all(folder).map_err(failed)?;
        let log = File::create(folder.join("log")).map_err(failed)?;
        let mut command = Command::new(umbel);
        command.args(["serve", "--disable-tls", "--listen", "127.0.0.1:0", "--measure-workers"]);
        command
            .args(["--kv", "--memory"])
            .arg(format!("{MEMORY_MIB}MiB"))
            .arg("--db")
            .arg(folder.join("db"));
        command.env("UMBEL_ADMIN_PASSWORD", PASSWORD).env("UMBEL_OPS_PASSWORD", PASSWORD);
        let printed = folder.join("printed");
        let output = File::create(&printed).map_err(failed)?;
        command.stdin(Stdio::null()).stdout(output).stderr(log);
        let child = command.spawn().map_err(failed)?;
        let address = SocketAddr::from(([0, 0, 0, 0], 0));
        let mut server = ServerProcess { address, child, folder: folder.to_path_buf() };
        for _ in 0..START_POLLS {
            let text = std::fs::read_to_string(&printed).map_err(failed)?;
            if let Some(address) = address_in(&text) {
                server.address = address;
                return Ok(server);
            }
            std::thread::sleep(POLL_TIME);
        }
        let log = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
        Err(format!("the server did not start: {}", log.trim()))
    }

    /// Process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Stops the server and removes its folder.
    pub fn stop(mut self) -> Result<(), String> {
        if let Ok(Some(status)) = self.child.try_wait() {
            return Err(format!("the server ended by itself: {status}"));
        }
        self.child.kill().map_err(|error| error.to_string())?;
        Ok(())
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The address in the first line that a server prints.
fn address_in(text: &str) -> Option<SocketAddr> {
    let (line, _) = text.split_once('\n')?;
    line.split(['/', '?', ' ']).find_map(|word| word.parse().ok())
}

/// Resident memory of a process in bytes.
pub fn resident_bytes(process: u32) -> u64 {
    let path = format!("/proc/{process}/statm");
    let pages = std::fs::read_to_string(path).ok();
    let pages = pages.and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}

/// Processor time of a process.
pub fn processor_time(process: u32) -> Duration {
    let read = || {
        let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks = |index: usize| fields.get(index)?.parse::<f64>().ok();
        Some(Duration::from_secs_f64((ticks(11)? + ticks(12)?) / TICKS_PER_SECOND))
    };
    read().unwrap_or_default()
}
