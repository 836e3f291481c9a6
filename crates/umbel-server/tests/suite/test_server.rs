//! A server on a store of its own, and a runtime for the client's side.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use tempfile::TempDir;
use umbel::{Db, Options};
use umbel_events::{Store, StoreOptions};
use umbel_server::{Config, FirstPasswords, KeyValues, Running, Secret, Server};

use super::client::Client;

/// Nothing here takes longer, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server on a store of its own.
pub struct Ground {
    _folder: TempDir,
    pub store: Store,
    /// The store of keys and values, where there is one.
    pub kv: Option<Db>,
    running: Option<Running>,
    address: SocketAddr,
}

impl Ground {
    pub fn new() -> Ground {
        Ground::with(Config::default())
    }

    /// One that asks users who they are: `admin` with the password `first`, `ops` with `second`.
    pub fn with_users() -> Ground {
        Ground::with(with_users())
    }

    /// One that serves keys and values, too.
    pub fn with_kv() -> Ground {
        Ground::with_kv_and(Config::default())
    }

    /// The same, configured so.
    pub fn with_kv_and(config: Config) -> Ground {
        let folder = tempfile::tempdir().unwrap();
        let db = Db::open(folder.path().join("kv"), Options::default()).unwrap();
        Ground::of(folder, Config { kv: Some(KeyValues::new(db)), ..config })
    }

    /// One that is configured so, but for where it listens.
    pub fn with(config: Config) -> Ground {
        Ground::of(tempfile::tempdir().unwrap(), config)
    }

    fn of(folder: TempDir, config: Config) -> Ground {
        let store = Store::open(folder.path().join("events"), StoreOptions::default()).unwrap();
        let config = Config { listen: "127.0.0.1:0".parse().unwrap(), ..config };
        let kv = config.kv.as_ref().map(|kv| kv.db.clone());
        let running = Server::start(store.clone(), config).unwrap();
        let address = running.address();
        Ground { _folder: folder, store, kv, running: Some(running), address }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many tasks serve connections and their calls.
    pub fn tasks(&self) -> usize {
        self.running.as_ref().map_or(0, Running::tasks)
    }

    /// Stops the server, on another thread because this one may be the client's.
    pub fn stop(&mut self) -> tokio::task::JoinHandle<()> {
        let running = self.running.take().unwrap();
        tokio::task::spawn_blocking(move || running.shutdown())
    }

    /// Serves the store again after it was stopped; a client of the new server.
    pub async fn serve_again(&mut self) -> Client {
        let store = self.store.clone();
        let config = Config { listen: "127.0.0.1:0".parse().unwrap(), ..Config::default() };
        let started = tokio::task::spawn_blocking(move || Server::start(store, config));
        let running = started.await.unwrap().unwrap();
        self.address = running.address();
        self.running = Some(running);
        Client::connect(self.address).await
    }

    /// Runs a client's side of a test.
    pub fn run<T>(&mut self, test: impl AsyncFnOnce(Client, &mut Ground) -> T) -> T {
        let address = self.address;
        run(async {
            let client = Client::connect(address).await;
            test(client, self).await
        })
    }
}

/// Users are asked who they are: `admin` with the password `first`, `ops` with `second`.
pub fn with_users() -> Config {
    let secret = |text| Some(Secret::new(text));
    let first = FirstPasswords { admin: secret("first"), ops: secret("second") };
    Config { users: Some(first), ..Config::default() }
}

/// Runs a client's side of a test.
pub fn run<F: Future>(test: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let limited = async { tokio::time::timeout(PATIENCE, test).await };
    runtime.block_on(limited).expect("the test hangs")
}
