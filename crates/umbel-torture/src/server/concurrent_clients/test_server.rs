//! A server over a store on the crash disk, and the runtime of its clients.

use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use umbel_events::{Durability, Store, StoreOptions};
use umbel_server::{Config, Running, Server};
use umbel_sim::Sim;

const FOLDER: &str = "/events";
/// Time limit of a call; a longer call counts as hanging.
pub const SERVER_TIMEOUT: Duration = Duration::from_secs(20);

/// Options of a store.
#[derive(Debug, Clone, Copy)]
pub struct StoreMode {
    /// Durability of acknowledged appends.
    pub durability: Durability,
    /// Number of background threads.
    pub threads: usize,
}

/// A server over a store on the crash disk.
#[derive(Debug)]
pub struct TestServer {
    /// The store.
    pub store: Store,
    /// The server.
    pub running: Running,
    /// Runtime of the clients.
    pub clients: Runtime,
}

impl TestServer {
    /// Starts the store and the server. Returns `None` if the power failed during the start.
    pub fn start(sim: &Sim, mode: StoreMode) -> Result<Option<TestServer>, String> {
        let options = StoreOptions {
            durability: mode.durability,
            background_threads: mode.threads,
            chunk_bytes: 64 << 10,
            memory_bytes: Some(8 << 20),
            env: sim.env(),
            ..StoreOptions::default()
        };
        let store = match Store::open(FOLDER, options) {
            Ok(store) => store,
            Err(_) if sim.is_dead() => return Ok(None),
            Err(error) => return Err(format!("opening: {error}")),
        };
        let listen = ([127, 0, 0, 1], 0).into();
        // The server reads from the store which views are stopped.
        let running = match Server::start(store.clone(), Config { listen, ..Config::default() }) {
            Ok(running) => running,
            Err(_) if sim.is_dead() => return Ok(None),
            Err(error) => return Err(format!("starting the server: {error}")),
        };
        let clients = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| format!("starting the clients: {error}"))?;
        Ok(Some(TestServer { store, running, clients }))
    }

    /// Stops the clients, then the server, and returns the store.
    pub fn end(self) -> Store {
        drop(self.clients);
        self.running.shutdown();
        self.store
    }
}
