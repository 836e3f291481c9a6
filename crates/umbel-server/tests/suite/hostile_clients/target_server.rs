//! The server that is attacked, and what is looked at afterwards.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::LocalSet;
use umbel_proto::streams::read_req::RevisionOption;
use umbel_server::Config;

use super::super::client::{ANY, Client, events, numbers, of_stream};
use super::super::ground::{Ground, run};

/// One attack at a time: memory is that of the process.
static TURN: Mutex<()> = Mutex::new(());

/// How much more memory the process may have after an attack than before it: what the store keeps
/// of its largest stream, what the allocator does not give back, and what other tests take.
pub const MORE_MAX: usize = 768 << 20;

/// A server on a store of its own.
pub struct Target {
    ground: Ground,
    /// Tasks that serve nobody.
    tasks: usize,
    memory: usize,
    _turn: MutexGuard<'static, ()>,
}

impl Target {
    /// Attacks a server that is configured so; then who comes is served as before, no task is left
    /// and no memory.
    pub fn attack(config: Config, attack: impl AsyncFnOnce(SocketAddr)) {
        Target::attack_on(|| Ground::with(config), attack);
    }

    /// The same to a server on this ground.
    pub fn attack_on(ground: impl FnOnce() -> Ground, attack: impl AsyncFnOnce(SocketAddr)) {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let ground = ground();
        let mut target = Target { ground, tasks: 0, memory: 0, _turn: turn };
        run(LocalSet::new().run_until(async {
            let address = target.ground.address();
            serves(address, 0).await;
            target.rested(|_| true).await;
            (target.tasks, target.memory) = (target.ground.tasks(), resident());
            attack(address).await;
            serves(address, 1).await;
            let tasks = target.tasks;
            target.rested(|now| now <= tasks).await;
        }));
        let more = resident().saturating_sub(target.memory);
        assert!(more < MORE_MAX, "{} MiB stayed behind", more >> 20);
    }

    /// Waits until nobody is served.
    async fn rested(&self, is_so: impl Fn(usize) -> bool) {
        let mut calm = 0;
        while calm < 5 {
            tokio::time::sleep(Duration::from_millis(20)).await;
            calm = if is_so(self.ground.tasks()) { calm + 1 } else { 0 };
        }
    }
}

/// Whether somebody is served who does no harm.
pub async fn serves(address: SocketAddr, number: u64) {
    let client = Client::connect(address).await;
    let stream = format!("good-{number}");
    client.append(&stream, ANY, &events(0..3)).await.unwrap();
    let read = client.read(of_stream(&stream, RevisionOption::Start(()))).await.unwrap();
    assert_eq!(numbers(read), [0, 1, 2]);
}

/// Bytes of memory that the process has.
pub fn resident() -> usize {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return 0 };
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kib: usize = line.trim().trim_end_matches(" kB").parse().unwrap();
    kib << 10
}
