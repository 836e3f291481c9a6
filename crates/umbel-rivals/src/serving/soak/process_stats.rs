//! Resources of the server's process, as the kernel reports them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

/// Resources of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProcessStats {
    /// Bytes of anonymous memory.
    pub anonymous: u64,
    /// Bytes of resident pages of files.
    pub of_files: u64,
    /// Number of threads.
    pub threads: u64,
    /// Number of open sockets.
    pub sockets: u64,
    /// Number of open files and folders.
    pub files: u64,
    /// Number of other open descriptors.
    pub others: u64,
}

impl ProcessStats {
    /// Reads the resources of the process with this id; `None` if the system does not report them.
    pub fn of(process: u32) -> Option<ProcessStats> {
        let folder = format!("/proc/{process}");
        let status = std::fs::read_to_string(format!("{folder}/status")).ok()?;
        let mut stats = ProcessStats::read(&status)?;
        for entry in std::fs::read_dir(format!("{folder}/fd")).ok()? {
            // A descriptor that is closed meanwhile does not count.
            let Ok(target) = std::fs::read_link(entry.ok()?.path()) else { continue };
            match target.to_string_lossy() {
                target if target.starts_with("socket:") => stats.sockets += 1,
                target if target.starts_with('/') && !target.starts_with("/dev/") => {
                    stats.files += 1;
                }
                _ => stats.others += 1,
            }
        }
        Some(stats)
    }

    fn read(status: &str) -> Option<ProcessStats> {
        let field = |name: &str| -> Option<u64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse().ok()
        };
        Some(ProcessStats {
            anonymous: field("RssAnon:")? << 10,
            of_files: (field("RssFile:")? + field("RssShmem:")?) << 10,
            threads: field("Threads:")?,
            ..ProcessStats::default()
        })
    }
}

/// Timeout of the request for the server's statistics.
const STATS_TIME: Duration = Duration::from_secs(5);

/// Requests the bytes that the server's index holds, which must be within the memory budget; `None`
/// if the server does not report them.
pub fn index_bytes(server: SocketAddr) -> Option<u64> {
    let mut stream = TcpStream::connect_timeout(&server, STATS_TIME).ok()?;
    stream.set_read_timeout(Some(STATS_TIME)).ok()?;
    let request = format!("GET /stats HTTP/1.1\r\nhost: {server}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    index_bytes_of(&answer)
}

fn index_bytes_of(answer: &str) -> Option<u64> {
    let object = answer.get(answer.find('{')?..=answer.rfind('}')?)?;
    let stats: Value = serde_json::from_str(object).ok()?;
    stats.get("index")?.get("memoryBytes")?.as_u64()
}

/// Sums the bytes of all files below a folder.
pub fn folder_bytes(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let mut bytes = 0;
    for entry in entries.flatten() {
        // A file that is removed meanwhile has no bytes.
        let Ok(metadata) = entry.metadata() else { continue };
        bytes += if metadata.is_dir() { folder_bytes(&entry.path()) } else { metadata.len() };
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_stats_are_read_from_proc() {
        let status = "Name:\tumbel\nVmRSS:\t 300 kB\nRssAnon:\t 100 kB\nRssFile:\t 196 kB\n\
                      RssShmem:\t 4 kB\nThreads:\t7\n";
        let stats = ProcessStats::read(status).unwrap();
        assert_eq!((stats.anonymous, stats.of_files), (100 << 10, 200 << 10));
        assert_eq!(stats.threads, 7);
        assert_eq!(ProcessStats::read("Name:\tumbel\n"), None);
    }

    #[test]
    fn index_bytes_are_parsed_from_stats() {
        let answer = "HTTP/1.1 200 OK\r\n\r\n{\"index\":{\"memoryBytes\":95166565},\"x\":{}}";
        assert_eq!(index_bytes_of(answer), Some(95_166_565));
        assert_eq!(index_bytes_of("HTTP/1.1 503 Service Unavailable\r\n\r\n"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_file_and_a_socket_more_are_counted() {
        let process = std::process::id();
        let folder = std::env::temp_dir().join(format!("umbel-watch-{process}"));
        std::fs::create_dir_all(folder.join("inner")).unwrap();
        std::fs::write(folder.join("inner/file"), [0; 1000]).unwrap();
        let before = ProcessStats::of(process).unwrap();
        let file = std::fs::File::open(folder.join("inner/file")).unwrap();
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let after = ProcessStats::of(process).unwrap();
        // Other tests of this process may open and close descriptors meanwhile.
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
