//! Rates of synced appends beside bare fsyncs.

use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use futures_util::future::join_all;

use crate::client;
use crate::report::median;
use crate::server_process::ServerProcess;

/// Rounds, and the time of each measurement.
const ROUNDS: usize = 5;
const TIME: Duration = Duration::from_secs(1);
/// Bytes of each bare write, about as many as an event takes.
const WRITE_BYTES: usize = 150;
/// Connections of the appends in flight, and the appends in flight on each.
const CONNECTIONS: usize = 8;
const IN_FLIGHT: usize = 8;

/// Rates a second, medians of the rounds.
#[derive(Debug)]
pub struct FsyncRates {
    /// Writes with a sync each.
    pub bare: u64,
    /// Appends one by one.
    pub one: u64,
    /// Appends of 64 clients.
    pub many: u64,
    /// Rates of all rounds, in the same order.
    pub rounds: Vec<[u64; 3]>,
}

/// Measures in turns on the same file system.
pub fn measure(umbel: &Path, directory: &Path) -> Result<FsyncRates, String> {
    let folder = directory.join("fsyncs");
    let server = ServerProcess::start(umbel, &folder)?;
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let bare = bare_fsyncs(&folder.join("bare")).map_err(|error| error.to_string())?;
        let one = crate::in_runtime(appends(server.address, 1, 1))?;
        let many = crate::in_runtime(appends(server.address, CONNECTIONS, IN_FLIGHT))?;
        rounds.push([bare, one, many]);
    }
    server.stop()?;
    let of = |index: usize| median(rounds.iter().map(|rates| rates[index]).collect());
    Ok(FsyncRates { bare: of(0), one: of(1), many: of(2), rounds })
}

fn bare_fsyncs(path: &Path) -> std::io::Result<u64> {
    let mut file = File::create(path)?;
    // The appends go to a file whose bytes are allocated, too.
    file.write_all(&vec![0; 16 << 20])?;
    file.sync_all()?;
    std::io::Seek::rewind(&mut file)?;
    let (mut count, begun) = (0, Instant::now());
    while begun.elapsed() < TIME {
        file.write_all(&[7; WRITE_BYTES])?;
        file.sync_data()?;
        count += 1;
    }
    Ok((count as f64 / begun.elapsed().as_secs_f64()) as u64)
}

async fn appends(address: SocketAddr, connections: usize, in_flight: usize) -> Result<u64, String> {
    let mut clients = Vec::new();
    for _ in 0..connections {
        let connection = client::connect(address, "admin").await?;
        clients.extend(vec![connection; in_flight]);
    }
    let begun = Instant::now();
    let until = begun + TIME;
    let work = clients.iter().enumerate().map(async |(number, connection)| {
        let mut count = 0_u64;
        while Instant::now() < until {
            let event = client::event("Synced", b"{\"amount\":17}".to_vec(), Vec::new());
            let appended = client::append(connection, &format!("synced-{number}"), event).await;
            appended.map_err(|status| status.to_string())?;
            count += 1;
        }
        Ok::<_, String>(count)
    });
    let counts: Result<Vec<u64>, String> = join_all(work).await.into_iter().collect();
    Ok((counts?.iter().sum::<u64>() as f64 / begun.elapsed().as_secs_f64()) as u64)
}
