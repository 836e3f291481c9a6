//! What the kernel says of the server's process.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

/// What a process holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Vitals {
    /// Bytes of memory of its own,
    pub anonymous: u64,
    /// and those that are pages of files.
    pub of_files: u64,
    /// Its threads.
    pub threads: u64,
    /// Its open sockets,
    pub sockets: u64,
    /// files and folders,
    pub files: u64,
    /// and descriptors of other kinds.
    pub others: u64,
}

impl Vitals {
    /// Those of the process with this number; `None` where the system does not tell.
    pub fn of(process: u32) -> Option<Vitals> {
        let folder = format!("/proc/{process}");
        let status = std::fs::read_to_string(format!("{folder}/status")).ok()?;
        let mut vitals = Vitals::read(&status)?;
        for entry in std::fs::read_dir(format!("{folder}/fd")).ok()? {
            // One that is closed meanwhile counts no more.
            let Ok(target) = std::fs::read_link(entry.ok()?.path()) else { continue };
            match target.to_string_lossy() {
                target if target.starts_with("socket:") => vitals.sockets += 1,
                target if target.starts_with('/') && !target.starts_with("/dev/") => {
                    vitals.files += 1;
                }
                _ => vitals.others += 1,
            }
        }
        Some(vitals)
    }

    fn read(status: &str) -> Option<Vitals> {
        let field = |name: &str| -> Option<u64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse().ok()
        };
        Some(Vitals {
            anonymous: field("RssAnon:")? << 10,
            of_files: (field("RssFile:")? + field("RssShmem:")?) << 10,
            threads: field("Threads:")?,
            ..Vitals::default()
        })
    }
}

/// How long the server may take to say what it holds.
const STATS_TIME: Duration = Duration::from_secs(5);

/// Bytes that the server's index says it holds, which are within its budget; `None` where it does
/// not say.
pub fn index_bytes(server: SocketAddr) -> Option<u64> {
    let mut stream = TcpStream::connect_timeout(&server, STATS_TIME).ok()?;
    stream.set_read_timeout(Some(STATS_TIME)).ok()?;
    let asked = format!("GET /stats HTTP/1.1\r\nhost: {server}\r\nconnection: close\r\n\r\n");
    stream.write_all(asked.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    said_of_index(&answer)
}

fn said_of_index(answer: &str) -> Option<u64> {
    let object = answer.get(answer.find('{')?..=answer.rfind('}')?)?;
    let said: Value = serde_json::from_str(object).ok()?;
    said.get("index")?.get("memoryBytes")?.as_u64()
}

/// Bytes of all files in a folder and those in it.
pub fn folder_bytes(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let mut bytes = 0;
    for entry in entries.flatten() {
        // What is removed meanwhile has no bytes.
        let Ok(metadata) = entry.metadata() else { continue };
        bytes += if metadata.is_dir() { folder_bytes(&entry.path()) } else { metadata.len() };
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_kernel_says() {
        let status = "Name:\tumbel\nVmRSS:\t 300 kB\nRssAnon:\t 100 kB\nRssFile:\t 196 kB\n\
                      RssShmem:\t 4 kB\nThreads:\t7\n";
        let vitals = Vitals::read(status).unwrap();
        assert_eq!((vitals.anonymous, vitals.of_files), (100 << 10, 200 << 10));
        assert_eq!(vitals.threads, 7);
        assert_eq!(Vitals::read("Name:\tumbel\n"), None);
    }

    #[test]
    fn reads_what_the_server_says_of_its_index() {
        let answer = "HTTP/1.1 200 OK\r\n\r\n{\"index\":{\"memoryBytes\":95166565},\"x\":{}}";
        assert_eq!(said_of_index(answer), Some(95_166_565));
        assert_eq!(said_of_index("HTTP/1.1 503 Service Unavailable\r\n\r\n"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_file_and_a_socket_more_are_counted() {
        let process = std::process::id();
        let folder = std::env::temp_dir().join(format!("umbel-watch-{process}"));
        std::fs::create_dir_all(folder.join("inner")).unwrap();
        std::fs::write(folder.join("inner/file"), [0; 1000]).unwrap();
        let before = Vitals::of(process).unwrap();
        let file = std::fs::File::open(folder.join("inner/file")).unwrap();
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let after = Vitals::of(process).unwrap();
        // Other tests of this process may open and close theirs meanwhile.
        assert!(after.files > 0 && after.sockets > 0);
        assert!(
            after.files + after.sockets + after.others > 2
                && before.threads > 0
                && before.anonymous > 0
        );
        assert_eq!(folder_bytes(&folder), 1000);
        drop((file, socket));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
