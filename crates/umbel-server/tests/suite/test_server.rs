//! [`TestServer`]: a server on its own store, and a runtime for the client.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use tempfile::TempDir;
use umbel::{Db, Options};
use umbel_events::{Store, StoreOptions};
use umbel_server::{BootstrapPasswords, Config, KvConfig, Running, Secret, Server};

use super::client::Client;

/// Time limit of a wait; a longer wait counts as hanging.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// A server on a store of its own.
pub struct TestServer {
    _directory: TempDir,
    pub store: Store,
    /// The key-value store, if served.
    pub kv: Option<Db>,
    config: Config,
    running: Option<Running>,
    address: SocketAddr,
}

impl TestServer {
    pub fn new() -> TestServer {
        TestServer::with(Config::default())
    }

    /// Starts a server with authentication: `admin` has the password `first`, `ops` has `second`.
    pub fn with_users() -> TestServer {
        TestServer::with(with_users())
    }

    /// Starts a server with a key-value store.
    pub fn with_kv() -> TestServer {
        TestServer::with_kv_and(Config::default())
    }

    /// Starts a server with a key-value store and this configuration.
    pub fn with_kv_and(config: Config) -> TestServer {
        TestServer::with_kv_on(StoreOptions::default(), config)
    }

    /// Starts a server with a key-value store, these options of the event store, and this
    /// configuration.
    pub fn with_kv_on(options: StoreOptions, config: Config) -> TestServer {
        let directory = tempfile::tempdir().unwrap();
        let db = Db::open(directory.path().join("kv"), Options::default()).unwrap();
        TestServer::on(directory, options, Config { kv: Some(KvConfig::new(db)), ..config })
    }

    /// Starts a server with this configuration, except for its address.
    pub fn with(config: Config) -> TestServer {
        TestServer::of(tempfile::tempdir().unwrap(), config)
    }

    /// Starts a server on a store whose event log has this quota.
    pub fn with_log_quota(bytes: u64) -> TestServer {
        let options = StoreOptions { log_quota_bytes: Some(bytes), ..StoreOptions::default() };
        TestServer::on(tempfile::tempdir().unwrap(), options, Config::default())
    }

    /// Starts a server on the store in the folder `events` of a directory.
    pub fn of(directory: TempDir, config: Config) -> TestServer {
        TestServer::on(directory, StoreOptions::default(), config)
    }

    fn on(directory: TempDir, options: StoreOptions, config: Config) -> TestServer {
        let store = Store::open(directory.path().join("events"), options).unwrap();
        let config = Config { listen: "127.0.0.1:0".parse().unwrap(), ..config };
        let kv = config.kv.as_ref().map(|kv| kv.db.clone());
        let started = Server::start(store.clone(), config.clone()).unwrap();
        let (address, running) = (started.address(), Some(started));
        TestServer { _directory: directory, store, kv, config, running, address }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Number of tasks that serve connections and their calls.
    pub fn tasks(&self) -> usize {
        self.running.as_ref().map_or(0, Running::tasks)
    }

    /// Stops the server, on another thread because this one may run the client.
    pub fn stop(&mut self) -> tokio::task::JoinHandle<()> {
        let running = self.running.take().unwrap();
        tokio::task::spawn_blocking(move || running.shutdown())
    }

    /// Stops the server, and starts it again with the same configuration.
    pub fn restart(&mut self) {
        self.running.take().unwrap().shutdown();
        let running = Server::start(self.store.clone(), self.config.clone()).unwrap();
        self.address = running.address();
        self.running = Some(running);
    }

    /// Serves the store again after a stop; returns a client of the new server.
    pub async fn serve_again(&mut self) -> Client {
        let store = self.store.clone();
        let config = Config { listen: "127.0.0.1:0".parse().unwrap(), ..Config::default() };
        let started = tokio::task::spawn_blocking(move || Server::start(store, config));
        let running = started.await.unwrap().unwrap();
        self.address = running.address();
        self.running = Some(running);
        Client::connect(self.address).await
    }

    /// Runs the client's part of a test.
    pub fn run<T>(&mut self, test: impl AsyncFnOnce(Client, &mut TestServer) -> T) -> T {
        let address = self.address;
        run(async {
            let client = Client::connect(address).await;
            test(client, self).await
        })
    }
}

/// Configuration with authentication: `admin` has the password `first`, `ops` has `second`.
pub fn with_users() -> Config {
    let secret = |text| Some(Secret::new(text));
    let first = BootstrapPasswords { admin: secret("first"), ops: secret("second") };
    Config { users: Some(first), ..Config::default() }
}

/// Runs the client's part of a test.
pub fn run<F: Future>(test: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let limited = async { tokio::time::timeout(TEST_TIMEOUT, test).await };
    runtime.block_on(limited).expect("the test hangs")
}
