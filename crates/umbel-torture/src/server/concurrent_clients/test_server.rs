//! A server over a store on the crash disk, and the runtime of its clients.

use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use umbel_events::{Durability, Store, StoreOptions};
use umbel_server::{Config, Running, Server};
use umbel_sim::Sim;

const FOLDER: &str = "/events";
/// Nothing takes longer, unless it hangs.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// How a store is opened.
#[derive(Debug, Clone, Copy)]
pub struct Manner {
    /// What an acknowledged append survives.
    pub durability: Durability,
    /// Threads in the background.
    pub threads: usize,
}

/// A server over a store on the crash disk.
#[derive(Debug)]
pub struct Stand {
    /// The store.
    pub store: Store,
    /// The server.
    pub running: Running,
    /// Where the clients run.
    pub clients: Runtime,
}

impl Stand {
    /// `None` where the power was lost meanwhile.
    pub fn start(sim: &Sim, manner: Manner) -> Result<Option<Stand>, String> {
        let options = StoreOptions {
            durability: manner.durability,
            background_threads: manner.threads,
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
        // The server reads of the store which views are stopped.
        let running = match Server::start(store.clone(), Config { listen, ..Config::default() }) {
            Ok(running) => running,
            Err(_) if sim.is_dead() => return Ok(None),
            Err(error) => return Err(format!("starting the server: {error}")),
        };
        let clients = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| format!("starting the clients: {error}"))?;
        Ok(Some(Stand { store, running, clients }))
    }

    /// Lets the clients go away, then the server, and leaves the store.
    pub fn end(self) -> Store {
        drop(self.clients);
        self.running.shutdown();
        self.store
    }
}
