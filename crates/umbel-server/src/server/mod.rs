//! [`Server`]: starting and stopping.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::limits::{BACKLOG, BLOCKING_THREADS_MAX};
use tokio::net::TcpSocket;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use umbel_env::{Env, ProcessBound, check_path};
use umbel_events::Store;

use crate::backups::Backups;
use crate::config::Config;
use crate::connections::{self, Limits};
use crate::directory_watch;
use crate::gates::Gates;
use crate::kv_store::{KeyValues, KvStore};
use crate::passwords::Secret;
use crate::scavenging::{Scavenging, StoreScavenging};
use crate::service::Service;
use crate::store::EventStore;
use crate::tls::Tls;
use crate::users;

/// How long reads of the store that nobody waits for any more may keep the process from ending.
const LAST_READS: Duration = Duration::from_secs(5);

/// Starts servers.
#[derive(Debug)]
pub struct Server;

/// A server that is about to start: the port is its own and the certificates make sense, so that it
/// is not refused for these once a store was made for it. Who comes before it starts is refused.
///
/// A forked child does not have its threads: there it is not started, and dropping it does nothing.
#[derive(Debug)]
pub struct Prepared(ProcessBound<Ready>);

/// What a server that is about to start has.
#[derive(Debug)]
struct Ready {
    runtime: Runtime,
    socket: TcpSocket,
    tls: Option<Arc<Tls>>,
}

/// A server that runs until it is told to stop or dropped.
///
/// It runs in the process that started it. A forked child has nothing of it but open sockets:
/// stopping or dropping its copy there does nothing.
#[derive(Debug)]
pub struct Running(ProcessBound<Parts>);

/// What a running server consists of.
#[derive(Debug)]
struct Parts {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    /// A client asks to stop.
    ask: watch::Sender<bool>,
    connections: Option<JoinHandle<()>>,
    runtime: Option<Runtime>,
    /// Those that write to the stores.
    writers: Vec<Box<dyn umbel_env::JoinHandle>>,
    made: Vec<(&'static str, Secret)>,
    tls: Option<Arc<Tls>>,
}

/// Why a server did not start.
#[derive(Debug)]
pub enum StartError {
    /// Another process listens there.
    AddressInUse(SocketAddr),
    /// The certificates cannot be used; why, as a sentence.
    Certificates(String),
    /// The operating system refused.
    System {
        /// What was being done, as a verb phrase.
        doing: String,
        /// What it said.
        source: io::Error,
    },
}

impl Server {
    /// Serves `store` until it is told to stop. Who called closes the store after that, and that of
    /// keys and values where there is one.
    ///
    /// REQUIRES: the store has background threads; without them nobody says when an append is done.
    ///
    /// # Errors
    ///
    /// Another process listens at the address, or the operating system refuses threads, random
    /// bytes or the address.
    pub fn start(store: Store, config: Config) -> Result<Running, StartError> {
        Server::prepare(&config)?.start(store, config)
    }

    /// Takes the address and reads the certificates, as far as a start needs no store.
    ///
    /// # Errors
    ///
    /// The path of the backup is empty, another process listens at the address, the certificates
    /// cannot be used, or the operating system refuses threads or the address.
    pub fn prepare(config: &Config) -> Result<Prepared, StartError> {
        if let Some(folder) = &config.backup {
            check_path("the backup", folder)
                .map_err(|error| StartError::system("use the folder of backups", other(&error)))?;
        }
        let runtime = Builder::new_multi_thread()
            .enable_all()
            .max_blocking_threads(BLOCKING_THREADS_MAX)
            .thread_name("umbel-server")
            .build()
            .map_err(|source| StartError::system("start threads", source))?;
        let socket =
            bound(config.listen).map_err(|source| StartError::bind(config.listen, source))?;
        let tls = match &config.tls {
            Some(certificates) => {
                let (certificates, clock) = (Arc::clone(certificates), Env::system().clock);
                let tls = Tls::open(certificates, clock).map_err(StartError::Certificates)?;
                Some(Arc::new(tls))
            }
            None => None,
        };
        Ok(Prepared(ProcessBound::new(Ready { runtime, socket, tls })))
    }
}

impl Prepared {
    /// Serves `store`, as [`Server::start`] does.
    ///
    /// REQUIRES: `config` is that which this was prepared with, but for the keys and values.
    ///
    /// # Errors
    ///
    /// As [`Server::start`].
    pub fn start(self, store: Store, config: Config) -> Result<Running, StartError> {
        let Some(Ready { runtime, socket, tls }) = self.0.into_inner() else {
            let why = "it was prepared by the process that forked this one; prepare it after that";
            return Err(StartError::system("start the server", io::Error::other(why)));
        };
        let listener = runtime
            .block_on(async { socket.listen(BACKLOG) })
            .map_err(|source| StartError::bind(config.listen, source))?;
        let address = listener
            .local_addr()
            .map_err(|source| StartError::system("read the address listened at", source))?;
        let (stop, stopped) = watch::channel(false);
        let env = Env::system();
        let gates = Gates::read(&store).map_err(|error| {
            let source = io::Error::other(error.to_string());
            StartError::system("read which views are stopped", source)
        })?;
        let made = match &config.users {
            Some(first) => users::begin(&store, &env, first).map_err(|why| {
                StartError::system("write the first users", io::Error::other(why))
            })?,
            None => Vec::new(),
        };
        let scavenging = Arc::new(StoreScavenging::new(store.clone()));
        let backups = Backups::new(store.clone(), &env, config.backup.clone());
        let work = (gates, scavenging as Arc<dyn Scavenging>, backups);
        let (store, appender) = EventStore::new(store, &env)
            .map_err(|error| StartError::system("start a thread", other(&error)))?;
        let limits = Limits::of(&config);
        let (kv, kv_writer) = key_values(config.kv.clone(), &env)?.unzip();
        let mut service =
            Service::new(store, work, env, config, address.port(), stopped.clone())
                .map_err(|error| StartError::system("choose an identifier", other(&error)))?;
        service.kv = kv;
        let ask = service.ask.clone();
        let service = Arc::new(service);
        let watch = directory_watch::watch(Arc::clone(&service), stopped.clone());
        let serve = connections::serve(listener, service, tls.clone(), limits, stopped);
        let serve = async {
            tokio::join!(serve, watch);
        };
        let connections = Some(runtime.spawn(serve));
        let (runtime, writers) = (Some(runtime), kv_writer.into_iter().chain([appender]).collect());
        let parts = Parts { address, stop, ask, connections, runtime, writers, made, tls };
        Ok(Running(ProcessBound::new(parts)))
    }
}

impl Running {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// The first users whose passwords nobody chose, with those that were made for them. They are
    /// nowhere else.
    pub fn made_passwords(&self) -> &[(&'static str, Secret)] {
        &self.0.made
    }

    /// How many tasks serve connections and their calls; one more takes connections. None in a
    /// forked child.
    pub fn tasks(&self) -> usize {
        if !self.0.process().is_current() {
            return 0;
        }
        self.0.runtime.as_ref().map_or(0, |runtime| runtime.metrics().num_alive_tasks())
    }

    /// Listens for Ctrl-C, for a client that asks the server to stop and, where there are such
    /// signals, for `SIGTERM`. From here on none of them ends the process: [`Interrupts::wait`]
    /// tells of it, however early it came. `SIGHUP` does not either: the certificates are looked at
    /// at once.
    pub fn interrupts(&self) -> io::Result<Interrupts> {
        if !self.0.process().is_current() {
            return Err(io::Error::other("it runs in the process that forked this one"));
        }
        let runtime = self.0.runtime.as_ref();
        let runtime = runtime.ok_or_else(|| io::Error::other("it was stopped"))?;
        let handle = runtime.handle().clone();
        let _inside = handle.enter();
        let asked = self.0.ask.subscribe();
        let (signals, tls) = (Signals::listen()?, self.0.tls.clone());
        let waited_for = WaitedFor { handle: handle.clone(), signals, asked, tls };
        Ok(Interrupts(ProcessBound::new(waited_for)))
    }

    /// Takes no more calls, tells subscribers to come back, lets calls that are being served end
    /// for some seconds, and stops.
    pub fn shutdown(self) {
        drop(self);
    }
}

impl Parts {
    fn stop(&mut self) {
        self.stop.send_replace(true);
        let (Some(runtime), Some(connections)) = (self.runtime.take(), self.connections.take())
        else {
            return;
        };
        // An error says that serving panicked: there is nothing left to wait for.
        let _ = runtime.block_on(connections);
        runtime.shutdown_timeout(LAST_READS);
        // The calls went with the runtime, and the threads end when there is nobody to write for.
        for writer in self.writers.drain(..) {
            writer.join();
        }
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Tells when somebody stops the process; from [`Running::interrupts`].
#[derive(Debug)]
pub struct Interrupts(ProcessBound<WaitedFor>);

/// What stops a process.
#[derive(Debug)]
struct WaitedFor {
    handle: Handle,
    signals: Signals,
    asked: watch::Receiver<bool>,
    tls: Option<Arc<Tls>>,
}

impl Interrupts {
    /// Waits for an interrupt. Returns at once in a forked child, which none reaches.
    pub fn wait(self) {
        let Some(mut this) = self.0.into_inner() else { return };
        let asked = async {
            if this.asked.wait_for(|asked| *asked).await.is_err() {
                // Nobody can ask any more.
                std::future::pending().await
            }
        };
        let mut asked = pin!(asked);
        this.handle.block_on(async {
            loop {
                tokio::select! {
                    told = this.signals.next() => match told {
                        Told::Stop => return,
                        Told::Look => this.tls.iter().for_each(|tls| tls.look()),
                    },
                    () = asked.as_mut() => return,
                }
            }
        });
    }
}

/// A socket with this address, at which nobody listens yet.
fn bound(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // Without it a server that starts again waits for what the former one's connections left.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

/// What a signal asks for.
#[derive(Debug, Clone, Copy)]
enum Told {
    Stop,
    /// Look whether there are other certificates.
    #[cfg_attr(not(unix), expect(dead_code, reason = "there is no such signal"))]
    Look,
}

#[cfg(unix)]
#[derive(Debug)]
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    hang_up: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn listen() -> io::Result<Signals> {
        use tokio::signal::unix::{SignalKind, signal};
        // A file that meets the limit of its length (`ulimit -f`) would end the process. Once the
        // signal was listened for, the write fails instead, as on a full disk.
        drop(signal(SignalKind::from_raw(umbel_env::FILE_SIZE_SIGNAL))?);
        let (terminate, interrupt) =
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        Ok(Signals { terminate, interrupt, hang_up: signal(SignalKind::hangup())? })
    }

    async fn next(&mut self) -> Told {
        tokio::select! {
            _ = self.terminate.recv() => Told::Stop,
            _ = self.interrupt.recv() => Told::Stop,
            _ = self.hang_up.recv() => Told::Look,
        }
    }
}

#[cfg(not(unix))]
#[derive(Debug)]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn listen() -> io::Result<Signals> {
        Ok(Signals)
    }

    async fn next(&mut self) -> Told {
        // Where nobody can tell of Ctrl-C, it ends the process by itself.
        let _ = tokio::signal::ctrl_c().await;
        Told::Stop
    }
}

/// Keys and values that are served, and the thread that writes them.
type Served = (Arc<KvStore>, Box<dyn umbel_env::JoinHandle>);

/// Begins to serve keys and values, where they are to be.
fn key_values(what: Option<KeyValues>, env: &Env) -> Result<Option<Served>, StartError> {
    let Some(what) = what else { return Ok(None) };
    let (store, writer) = KvStore::new(what, env)
        .map_err(|error| StartError::system("begin to serve keys and values", other(&error)))?;
    Ok(Some((Arc::new(store), writer)))
}

fn other(error: &umbel::Error) -> io::Error {
    io::Error::other(error.to_string())
}

impl StartError {
    fn system(doing: &str, source: io::Error) -> StartError {
        StartError::System { doing: doing.to_string(), source }
    }

    fn bind(address: SocketAddr, source: io::Error) -> StartError {
        if source.kind() == io::ErrorKind::AddrInUse {
            return StartError::AddressInUse(address);
        }
        StartError::system(&format!("listen at {address}"), source)
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::AddressInUse(address) => write!(
                f,
                "another process listens at {address}; stop it, or choose another port with \
                 --listen"
            ),
            StartError::Certificates(why) => write!(f, "no connection can be encrypted: {why}"),
            StartError::System { doing, source } => write!(f, "could not {doing}: {source}"),
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            StartError::AddressInUse(_) | StartError::Certificates(_) => None,
            StartError::System { source, .. } => Some(source),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hundreds who came at once while the server was busy: the system kept 128 of them for it, and
    /// the others, strangers to that crowd among them, tried again after a second and longer.
    #[test]
    fn who_comes_in_a_crowd_finds_room() {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let socket = bound("127.0.0.1:0".parse().unwrap()).unwrap();
            let listener = socket.listen(BACKLOG).unwrap();
            let address = listener.local_addr().unwrap();
            // Nobody takes them.
            let mut crowd = Vec::new();
            for number in 0..system_backlog().min(1000) {
                let coming = tokio::net::TcpStream::connect(address);
                let come = tokio::time::timeout(LAST_READS, coming).await;
                crowd.push(come.unwrap_or_else(|_| panic!("{number} found none")).unwrap());
            }
        });
    }

    /// How many the system keeps at most.
    fn system_backlog() -> usize {
        let said = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap_or_default();
        said.trim().parse().unwrap_or(128)
    }
}
