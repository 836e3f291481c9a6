//! A server on the crash disk, its client, and checks of answers.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tokio::runtime::{Builder, Runtime};
use tonic::{Code, Status};
use umbel_events::{Store, StoreOptions};
use umbel_server::{BootstrapPasswords, Config, Running, Secret, Server};
use umbel_sim::{Random, Sim};

use umbel_testing::server_connection::Connection;

const FOLDER: &str = "/events";
/// Time limit of a call; a longer call counts as hanging.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// First passwords of the users.
pub const FIRST_PASSWORD: [(&str, &str); 2] = [("admin", "first"), ("ops", "second")];

/// A server and a runtime for its client.
pub struct CallServer {
    store: Store,
    running: Running,
    clients: Runtime,
}

impl CallServer {
    /// Starts a server, with authentication if `has_users`.
    pub fn start(sim: &Sim, has_users: bool) -> Result<CallServer, String> {
        let options = StoreOptions {
            chunk_bytes: 1 << 20,
            memory_bytes: Some(8 << 20),
            env: sim.env(),
            ..StoreOptions::default()
        };
        let describe = |what: &str, error: &dyn std::fmt::Display| format!("{what}: {error}");
        let store = Store::open(FOLDER, options).map_err(|error| describe("opening", &error))?;
        let [admin, ops] = FIRST_PASSWORD.map(|(_, password)| Some(Secret::new(password)));
        let users = has_users.then_some(BootstrapPasswords { admin, ops });
        let config = Config { listen: ([127, 0, 0, 1], 0).into(), users, ..Config::default() };
        let running = Server::start(store.clone(), config);
        let running = running.map_err(|error| describe("starting the server", &error))?;
        let clients = Builder::new_current_thread().enable_all().build();
        let clients = clients.map_err(|error| describe("starting the client", &error))?;
        Ok(CallServer { store, running, clients })
    }

    /// Returns the address at which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.running.address()
    }

    /// Runs a client's work with a time limit.
    pub fn run<T>(&self, work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
        let limited = async { tokio::time::timeout(CALL_TIMEOUT, work).await };
        self.clients.block_on(limited).unwrap_or_else(|_| Err("a call hangs".to_string()))
    }

    /// Stops the server.
    pub fn end(self) -> Result<(), String> {
        drop(self.clients);
        self.running.shutdown();
        self.store.close().map_err(|error| format!("closing: {error}"))
    }
}

/// Returns a client of the same connection with a user's credentials.
pub fn as_user(client: &Connection, login: &str, password: &str) -> Connection {
    let text = format!("Basic {}", STANDARD.encode(format!("{login}:{password}")));
    let mut client = client.clone();
    client.authorization = text.parse().ok();
    client
}

/// Expected result of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpectedEnd {
    /// Success.
    Success,
    /// An error with this status.
    WithCode(Code),
    /// An error with this status and this exception name in its trailers.
    Named(Code, &'static str),
}

/// The request is invalid.
pub const WRONG: ExpectedEnd = ExpectedEnd::WithCode(Code::InvalidArgument);
/// The caller has no permission.
pub const DENIED: ExpectedEnd = ExpectedEnd::Named(Code::PermissionDenied, "access-denied");
/// The caller has wrong credentials.
pub const UNKNOWN: ExpectedEnd = ExpectedEnd::WithCode(Code::Unauthenticated);

impl ExpectedEnd {
    /// Fails if a call had another result than expected.
    pub fn check<T: std::fmt::Debug>(
        self,
        what: &str,
        answer: Result<T, Status>,
    ) -> Result<Option<T>, String> {
        let is_right = match (&answer, self) {
            (Ok(_), ExpectedEnd::Success) => true,
            (Err(status), ExpectedEnd::WithCode(code)) => status.code() == code,
            (Err(status), ExpectedEnd::Named(code, name)) => {
                status.code() == code && exception(status) == Some(name)
            }
            _ => false,
        };
        if is_right {
            return Ok(answer.ok());
        }
        Err(format!("{what} was answered with {answer:?} and not {self:?}"))
    }
}

/// Returns the exception name of an error.
pub fn exception(status: &Status) -> Option<&str> {
    status.metadata().get("exception")?.to_str().ok()
}

/// Returns a random element.
pub fn one_of<T: Copy>(random: &mut Random, all: &[T]) -> T {
    all[random.below(all.len() as u64) as usize]
}
