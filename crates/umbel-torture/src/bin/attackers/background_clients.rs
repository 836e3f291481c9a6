//! [`BackgroundClients`]: attackers, readers or idle connections in a process of their own, at the
//! lowest priority, so that they slow the server as clients on another machine would.

use std::io::Read;
use std::net::SocketAddr;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use umbel_testing::server_connection::Connection;

use crate::attack::Attack;
use crate::reading_calls::ReadingCall;

/// First argument of the process.
pub const CHILD: &str = "--background-clients";
/// The work of clients that only stay connected.
pub const IDLE: &str = "idle";

/// Running clients, which end when this value is dropped.
#[derive(Debug)]
pub struct BackgroundClients {
    child: Child,
}

impl BackgroundClients {
    /// Starts clients that do this work.
    pub fn start(
        work: &str,
        address: SocketAddr,
        count: usize,
    ) -> Result<BackgroundClients, String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = Command::new("nice");
        command.args(["-n", "19"]).arg(program).args([CHILD, work]);
        command.args([address.to_string(), count.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = command.spawn().map_err(|error| format!("nice: {error}"))?;
        Ok(BackgroundClients { child })
    }

    /// Process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Stops the clients; returns how many calls they finished.
    pub fn stop(mut self) -> Result<u64, String> {
        drop(self.child.stdin.take());
        let mut text = String::new();
        if let Some(mut output) = self.child.stdout.take() {
            output.read_to_string(&mut text).map_err(|error| error.to_string())?;
        }
        text.trim().parse().map_err(|_| format!("the background clients printed `{text}`"))
    }
}

impl Drop for BackgroundClients {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs the clients until the standard input ends.
pub fn run(work: &str, address: &str, count: &str) -> ExitCode {
    let (Ok(address), Ok(count)) = (crate::parse_address(address), count.parse::<usize>()) else {
        return ExitCode::FAILURE;
    };
    let calls = Arc::new(AtomicU64::new(0));
    let Ok(runtime) =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()
    else {
        return ExitCode::FAILURE;
    };
    for number in 0..count {
        let (work, calls) = (work.to_string(), Arc::clone(&calls));
        runtime.spawn(async move {
            let counted = |more: u64| {
                calls.fetch_add(more, Ordering::Relaxed);
            };
            let _ = run_client(&work, address, number, &counted).await;
        });
    }
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    println!("{}", calls.load(Ordering::Relaxed));
    std::process::exit(0)
}

async fn run_client(
    work: &str,
    address: SocketAddr,
    number: usize,
    counted: &(impl Fn(u64) + Sync),
) -> Result<(), String> {
    if let Some(attack) = Attack::parse(work) {
        return attack.run(address, number, counted).await;
    }
    if let Some((call, target)) = ReadingCall::parse(work) {
        return call.run(address, number, &target, counted).await;
    }
    let _connection = Connection::to(address).await?;
    std::future::pending().await
}
