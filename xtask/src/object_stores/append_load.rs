//! [`AppendLoad`]: clients that append events at a server, each one after the other.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::tools::built_programs;

/// Bytes of an event's data.
pub const EVENT_BYTES: usize = 1000;
/// Time until a server answers a request.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Clients that append until this value is dropped.
#[derive(Debug)]
pub struct AppendLoad {
    clients: Vec<Child>,
    acknowledged: Arc<AtomicU64>,
}

impl AppendLoad {
    /// Starts clients, each with a stream and a connection of its own.
    ///
    /// # Errors
    /// A client did not start.
    pub fn start(connection: &str, clients: usize) -> Result<AppendLoad, String> {
        let mut load = AppendLoad { clients: Vec::new(), acknowledged: Arc::default() };
        for number in 0..clients {
            load.start_client(connection, number)?;
        }
        Ok(load)
    }

    #[expect(clippy::disallowed_methods, reason = "no test owns the threads of this command")]
    fn start_client(&mut self, connection: &str, number: usize) -> Result<(), String> {
        let stream = format!("load-{number}");
        let mut command = Command::new(built_programs::released_program("umbel"));
        command.args(["append", "--connect", connection, "--stream", &stream, "--type", "Loaded"]);
        command.env_remove("UMBEL_DB").stdin(Stdio::piped());
        let spawned = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut client = spawned.map_err(|error| format!("`umbel append`: {error}"))?;
        if let (Some(input), Some(output)) = (client.stdin.take(), client.stdout.take()) {
            let acknowledged = Arc::clone(&self.acknowledged);
            std::thread::spawn(move || write_events(input));
            std::thread::spawn(move || count_events(output, &acknowledged));
        }
        if let Some(errors) = client.stderr.take() {
            std::thread::spawn(move || show_errors(errors));
        }
        self.clients.push(client);
        Ok(())
    }

    /// Returns the number of acknowledged events.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// Fails if a client has ended.
    ///
    /// # Errors
    /// A client has ended.
    pub fn check(&mut self) -> Result<(), String> {
        let ended = self.clients.iter_mut().find_map(|client| client.try_wait().ok().flatten());
        match ended {
            Some(status) => Err(format!("a client of the server ended: {status}")),
            None => Ok(()),
        }
    }
}

impl Drop for AppendLoad {
    fn drop(&mut self) {
        for client in &mut self.clients {
            // A process that has ended is the aim.
            client.kill().ok();
            client.wait().ok();
        }
    }
}

/// Writes lines until the client has ended.
fn write_events(mut input: ChildStdin) {
    let line = format!("{{\"data\":\"{}\"}}\n", "x".repeat(EVENT_BYTES - 2));
    while input.write_all(line.as_bytes()).is_ok() {}
}

/// Counts the lines of acknowledged events until the client has ended.
fn count_events(output: ChildStdout, acknowledged: &AtomicU64) {
    let mut lines = BufReader::new(output);
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
        acknowledged.fetch_add(1, Ordering::Relaxed);
        line.clear();
    }
}

/// Shows what a client prints, without the lines of its progress.
fn show_errors(errors: ChildStderr) {
    for line in BufReader::new(errors).lines().map_while(Result::ok) {
        if !line.starts_with("... ") {
            eprintln!("{line}");
        }
    }
}

/// Returns the sum of a metric of a server over its labels; 0 if the metric is absent.
///
/// # Errors
/// The server did not answer.
pub fn metric(port: u16, name: &str) -> Result<f64, String> {
    let failed = |error: std::io::Error| format!("/metrics: {error}");
    let mut stream = TcpStream::connect(("127.0.0.1", port)).map_err(failed)?;
    stream.set_read_timeout(Some(ANSWER_MAX)).map_err(failed)?;
    let host = format!("127.0.0.1:{port}");
    let request = format!("GET /metrics HTTP/1.0\r\nHost: {host}\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(failed)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(failed)?;
    match answer.lines().next() {
        Some(status) if status.contains(" 200") => Ok(sum_of_metric(&answer, name)),
        status => Err(format!("/metrics: {}", status.unwrap_or("no answer"))),
    }
}

fn sum_of_metric(text: &str, name: &str) -> f64 {
    let values = text.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let value = rest
            .strip_prefix('{')
            .map_or(rest, |labels| labels.rsplit_once('}').map_or("", |(_, value)| value));
        value.strip_prefix(' ')?.parse::<f64>().ok()
    });
    values.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_a_metric_are_added() {
        let text = "# HELP bytes_total Bytes\nbytes_total{store=\"events\"} 40\n\
                    bytes_total{store=\"kv\"} 2\nbytes_total_of_others 7\nbytes 3\n";
        assert_eq!(sum_of_metric(text, "bytes_total"), 42.0);
        assert_eq!(sum_of_metric(text, "bytes"), 3.0);
        assert_eq!(sum_of_metric(text, "absent"), 0.0);
    }
}
