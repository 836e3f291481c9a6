//! The honest client: appends one by one, logins of users for the first time, and health checks.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::Code;
use umbel_proto::read_options::{at_most, of_stream};
use umbel_proto::streams::read_req::RevisionOption;

use crate::background_clients::BackgroundClients;
use crate::busy_threads::BusyThreads;
use crate::client;
use crate::server_process::{self, ServerProcess};

/// Time before a window, in which the background clients begin.
const WARM_UP: Duration = Duration::from_millis(1000);
/// Interval of the health checks.
const HEALTH_TIME: Duration = Duration::from_millis(20);
/// Interval of the samples of the server's memory.
const SAMPLE_TIME: Duration = Duration::from_millis(10);
/// A call that takes longer counts as this long, and as failed.
const CALL_TIME: Duration = Duration::from_secs(10);

/// Measurements of the honest client.
#[derive(Debug, Clone, Default)]
pub struct Window {
    /// Microseconds of each append.
    pub append_us: Vec<u64>,
    /// Appends that failed.
    pub failed_appends: usize,
    /// Microseconds of each health check.
    pub health_us: Vec<u64>,
    /// First logins that succeeded, and all of them.
    pub logins: (usize, usize),
    /// Peak of the server's resident memory.
    pub resident_bytes: u64,
    /// Processor time of the server and of the background clients, in processors.
    pub processors: (f64, f64),
    /// Calls that the background clients finished.
    pub calls: u64,
    /// Steps of the server's threads.
    pub busy: BusyThreads,
}

/// Measures for some seconds.
pub fn measure(
    server: &ServerProcess,
    clients: &BackgroundClients,
    seconds: u64,
    users: &[String],
) -> Result<Window, String> {
    std::thread::sleep(WARM_UP);
    let read_busy = || crate::in_runtime(BusyThreads::read(server.address));
    let busy_before = read_busy()?;
    let is_over = AtomicBool::new(false);
    let times = || [server.id(), clients.id()].map(server_process::processor_time);
    let (before, begun) = (times(), Instant::now());
    let mut window = Window::default();
    let time = Duration::from_secs(seconds);
    std::thread::scope(|scope| -> Result<(), String> {
        let sampler = scope.spawn(|| {
            let mut peak = 0;
            while !is_over.load(Ordering::Relaxed) {
                peak = peak.max(server_process::resident_bytes(server.id()));
                std::thread::sleep(SAMPLE_TIME);
            }
            peak
        });
        let measured = crate::in_runtime(async {
            let until = tokio::time::Instant::now() + time;
            Ok(tokio::join!(
                append(server.address, until),
                check_health(server.address, until),
                log_in(server.address, users, time)
            ))
        });
        is_over.store(true, Ordering::Relaxed);
        let (appends, health, logins) = measured?;
        (window.append_us, window.failed_appends) = appends?;
        window.health_us = health?;
        window.logins = (logins, users.len());
        window.resident_bytes = sampler.join().map_err(|_| "the sampler panicked")?;
        Ok(())
    })?;
    let (after, elapsed) = (times(), begun.elapsed().as_secs_f64());
    let used = |index: usize| after[index].saturating_sub(before[index]).as_secs_f64() / elapsed;
    window.processors = (used(0), used(1));
    window.busy = read_busy()?.since(&busy_before);
    Ok(window)
}

async fn append(
    address: SocketAddr,
    until: tokio::time::Instant,
) -> Result<(Vec<u64>, usize), String> {
    let (mut times, mut failed) = (Vec::new(), 0);
    let mut connection = client::connect(address, "admin").await?;
    while tokio::time::Instant::now() < until {
        let event = client::event("Honest", b"{\"amount\":17}".to_vec(), Vec::new());
        let begun = Instant::now();
        let appended = client::append(&connection, "honest-1", event);
        let appended = tokio::time::timeout(CALL_TIME, appended).await;
        times.push(begun.elapsed().as_micros() as u64);
        if !matches!(appended, Ok(Ok(()))) {
            failed += 1;
            connection = client::connect(address, "admin").await?;
        }
    }
    Ok((times, failed))
}

async fn check_health(
    address: SocketAddr,
    until: tokio::time::Instant,
) -> Result<Vec<u64>, String> {
    let failed = |error: std::io::Error| format!("a health check: {error}");
    let mut times = Vec::new();
    let mut stream = TcpStream::connect(address).await.map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    while tokio::time::Instant::now() < until {
        let begun = Instant::now();
        let request = b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n";
        stream.write_all(request).await.map_err(failed)?;
        let mut answer = [0; 1024];
        let bytes = stream.read(&mut answer).await.map_err(failed)?;
        if !answer[..bytes].starts_with(b"HTTP/1.1 20") {
            return Err(format!("a health check: {}", String::from_utf8_lossy(&answer[..bytes])));
        }
        times.push(begun.elapsed().as_micros() as u64);
        tokio::time::sleep(HEALTH_TIME).await;
    }
    Ok(times)
}

/// Logs the users in, one after another; returns how many succeeded.
async fn log_in(address: SocketAddr, users: &[String], time: Duration) -> usize {
    let mut succeeded = 0;
    let pause = time / (users.len().max(1) as u32 + 1);
    for user in users {
        let attempt = async {
            let connection = client::connect(address, user).await.ok()?;
            let options = at_most(1, of_stream("honest-1", RevisionOption::Start(())));
            let refused = match connection.subscribe(options).await {
                Ok(mut answers) => answers.message().await.err(),
                Err(status) => Some(status),
            };
            refused.is_none_or(|status| status.code() == Code::NotFound).then_some(())
        };
        let logged_in = tokio::time::timeout(CALL_TIME, attempt).await;
        succeeded += usize::from(matches!(logged_in, Ok(Some(()))));
        tokio::time::sleep(pause).await;
    }
    succeeded
}
