//! The attacked server, and the checks after the attack.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use umbel_base::ignore_poison::IgnorePoison;

use tokio::task::LocalSet;
use umbel_proto::streams::read_req::RevisionOption;
use umbel_server::Config;

use super::super::client::{ANY, Client, events, numbers, of_stream};
use super::super::test_server::{TestServer, run};

/// Lock that lets one attack run at a time, since memory is measured for the whole process.
static TURN: Mutex<()> = Mutex::new(());

/// Allowed growth of memory over an attack. The growth allows for the store's caches of its largest
/// stream, memory that the allocator keeps, and other tests.
pub const MORE_MAX: usize = 768 << 20;

/// A server on a store of its own.
pub struct Target {
    server: TestServer,
    /// Number of tasks while idle.
    tasks: usize,
    memory: usize,
    _turn: MutexGuard<'static, ()>,
}

impl Target {
    /// Attacks a server with this configuration. After the attack, checks that the server serves
    /// clients as before, and that neither tasks nor memory leaked.
    pub fn attack(config: Config, attack: impl AsyncFnOnce(SocketAddr)) {
        Target::attack_on(|| TestServer::with(config), attack);
    }

    /// Attacks this server and makes the same checks as [`attack`].
    pub fn attack_on(server: impl FnOnce() -> TestServer, attack: impl AsyncFnOnce(SocketAddr)) {
        let turn = TURN.lock().ignore_poison();
        let server = server();
        let mut target = Target { server, tasks: 0, memory: 0, _turn: turn };
        run(LocalSet::new().run_until(async {
            let address = target.server.address();
            serves(address, 0).await;
            target.wait_until_idle(|_| true).await;
            (target.tasks, target.memory) = (target.server.tasks(), resident());
            attack(address).await;
            serves(address, 1).await;
            let tasks = target.tasks;
            target.wait_until_idle(|now| now <= tasks).await;
        }));
        let more = resident().saturating_sub(target.memory);
        assert!(more < MORE_MAX, "{} MiB were not freed", more >> 20);
    }

    /// Waits until the server is idle.
    async fn wait_until_idle(&self, is_so: impl Fn(usize) -> bool) {
        let mut idle_checks = 0;
        while idle_checks < 5 {
            tokio::time::sleep(Duration::from_millis(20)).await;
            idle_checks = if is_so(self.server.tasks()) { idle_checks + 1 } else { 0 };
        }
    }
}

/// Checks that a well-behaved client is served.
pub async fn serves(address: SocketAddr, number: u64) {
    let client = Client::connect(address).await;
    let stream = format!("good-{number}");
    client.append(&stream, ANY, &events(0..3)).await.unwrap();
    let read = client.read(of_stream(&stream, RevisionOption::Start(()))).await.unwrap();
    assert_eq!(numbers(read), [0, 1, 2]);
}

/// Resident memory of the process in bytes.
pub fn resident() -> usize {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return 0 };
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kib: usize = line.trim().trim_end_matches(" kB").parse().unwrap();
    kib << 10
}
