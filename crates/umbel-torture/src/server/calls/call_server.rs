//! A server on the crash disk, one client, and what all calls are compared with.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tokio::runtime::{Builder, Runtime};
use tonic::{Code, Status};
use umbel_events::{Store, StoreOptions};
use umbel_server::{Config, FirstPasswords, Running, Secret, Server};
use umbel_sim::Sim;

use crate::histories_server::connection::Connection;
use crate::random::Random;

const FOLDER: &str = "/events";
/// Nothing takes longer, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);
/// The password of the first user of each name.
pub const FIRST: [(&str, &str); 2] = [("admin", "first"), ("ops", "second")];

/// A server and a runtime for its client.
pub struct World {
    store: Store,
    running: Running,
    clients: Runtime,
}

impl World {
    /// Starts a server; one that asks who somebody is, where that is wanted.
    pub fn start(sim: &Sim, has_users: bool) -> Result<World, String> {
        let options = StoreOptions {
            chunk_bytes: 1 << 20,
            memory_bytes: Some(8 << 20),
            env: sim.env(),
            ..StoreOptions::default()
        };
        let said = |what: &str, error: &dyn std::fmt::Display| format!("{what}: {error}");
        let store = Store::open(FOLDER, options).map_err(|error| said("opening", &error))?;
        let [admin, ops] = FIRST.map(|(_, password)| Some(Secret::new(password)));
        let users = has_users.then_some(FirstPasswords { admin, ops });
        let config = Config { listen: ([127, 0, 0, 1], 0).into(), users, ..Config::default() };
        let running = Server::start(store.clone(), config);
        let running = running.map_err(|error| said("starting the server", &error))?;
        let clients = Builder::new_current_thread().enable_all().build();
        let clients = clients.map_err(|error| said("starting the client", &error))?;
        Ok(World { store, running, clients })
    }

    /// Where the server listens.
    pub fn address(&self) -> SocketAddr {
        self.running.address()
    }

    /// Does what a client does, and sees to it that it ends.
    pub fn run<T>(&self, work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
        let limited = async { tokio::time::timeout(PATIENCE, work).await };
        self.clients.block_on(limited).unwrap_or_else(|_| Err("a call hangs".to_string()))
    }

    /// Ends it.
    pub fn end(self) -> Result<(), String> {
        drop(self.clients);
        self.running.shutdown();
        self.store.close().map_err(|error| format!("closing: {error}"))
    }
}

/// The same connection, over which this user calls.
pub fn as_user(client: &Connection, login: &str, password: &str) -> Connection {
    let said = format!("Basic {}", STANDARD.encode(format!("{login}:{password}")));
    let mut client = client.clone();
    client.authorization = said.parse().ok();
    client
}

/// How a call has to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Well.
    Well,
    /// With this status.
    With(Code),
    /// With this status, whose trailers name this kind of failure.
    Named(Code, &'static str),
}

/// The request itself is wrong.
pub const WRONG: End = End::With(Code::InvalidArgument);
/// Whoever asks may not.
pub const DENIED: End = End::Named(Code::PermissionDenied, "access-denied");
/// Whoever asks is not who he says he is.
pub const UNKNOWN: End = End::With(Code::Unauthenticated);

impl End {
    /// An error where a call ended otherwise.
    pub fn is<T: std::fmt::Debug>(
        self,
        what: &str,
        answer: Result<T, Status>,
    ) -> Result<Option<T>, String> {
        let is_right = match (&answer, self) {
            (Ok(_), End::Well) => true,
            (Err(status), End::With(code)) => status.code() == code,
            (Err(status), End::Named(code, name)) => {
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

/// The name of a failure.
pub fn exception(status: &Status) -> Option<&str> {
    status.metadata().get("exception")?.to_str().ok()
}

/// One of these.
pub fn one_of<T: Copy>(random: &mut Random, all: &[T]) -> T {
    all[random.below(all.len() as u64) as usize]
}
