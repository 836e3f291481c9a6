//! [`Server`]: start and shutdown.

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
use umbel_backup::server_kv_objects;
use umbel_env::{Clock, Env, ProcessOwned};
use umbel_events::Store;

use crate::access_control::passwords::Secret;
use crate::access_control::users;
use crate::auth::tls::Tls;
use crate::config::Config;
use crate::continuous_backup::backed_up_store::BackedUpStore;
use crate::continuous_backup::{ContinuousBackup, ObjectBackupConfig};
use crate::event_store::EventStore;
use crate::event_store::store_work::StoreWork;
use crate::kv_store::{KvConfig, KvStore};
use crate::resources::worker_times::TaskSpawner;
use crate::server::backup_directory_check::{check_backup_directory, check_backup_owner};
use crate::server::listener::ListenerLimits;
use crate::server::stop_signals::{SignalAction, Signals};
#[cfg(feature = "otlp")]
use crate::server::telemetry_exporter::TelemetryExporter;
use crate::server_context::ServerContext;

pub mod backup_directory_check;
pub mod clock_watch;
pub mod existence_watch;
pub mod listener;
pub mod metric_sampler;
pub mod preface_timeout;
pub mod replica_watch;
pub mod router;
pub mod stop_signals;
pub mod store_directory_watch;
#[cfg(feature = "otlp")]
pub mod telemetry_exporter;
pub mod work_timer;

/// Time limit at exit for reads that no caller waits for any more.
const READ_DRAIN_TIME: Duration = Duration::from_secs(5);

/// Starts servers.
#[derive(Debug)]
pub struct Server;

/// A server that is about to start. The prepared server owns its port and has valid certificates,
/// so that neither can fail the start after a store was created. Connections before the start are
/// refused.
///
/// In a forked child, which lacks the server's threads, a prepared server cannot be started, and
/// dropping it does nothing.
#[derive(Debug)]
pub struct Prepared(ProcessOwned<PreparedParts>);

/// Parts of a server that is about to start.
#[derive(Debug)]
struct PreparedParts {
    runtime: Runtime,
    socket: TcpSocket,
    tls: Option<Arc<Tls>>,
}

/// A server that runs until it is shut down or dropped.
///
/// The server runs in the process that started it. A forked child has only the server's open
/// sockets: stopping or dropping the child's copy does nothing.
#[derive(Debug)]
pub struct Running(ProcessOwned<RunningParts>);

/// Parts of a running server.
#[derive(Debug)]
struct RunningParts {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    /// Becomes true when a client requests a shutdown.
    stop_request: watch::Sender<bool>,
    connections: Option<JoinHandle<()>>,
    runtime: Option<Runtime>,
    /// Threads that read or write the stores.
    threads: Vec<Box<dyn umbel_env::JoinHandle>>,
    generated_passwords: Vec<(&'static str, Secret)>,
    tls: Option<Arc<Tls>>,
    /// Continuous backups, which make their last runs after the last write.
    continuous_backups: Vec<Arc<ContinuousBackup>>,
    /// Thread that exports telemetry.
    #[cfg(feature = "otlp")]
    exporter: Option<TelemetryExporter>,
}

/// Reason why a server did not start.
#[derive(Debug)]
pub enum StartError {
    /// Another process listens at the address.
    AddressInUse(SocketAddr),
    /// The wall clock is before 1970, so that responses could have no date.
    ClockBefore1970,
    /// The certificates cannot be used; the value is the reason, as a sentence.
    Certificates(String),
    /// The object store, or the backup in it, cannot be the one of this store; the value is the
    /// reason, as a sentence.
    ObjectBackup(String),
    /// The operating system refused an action.
    System {
        /// The failed action, as a verb phrase.
        doing: String,
        /// The system's error.
        source: io::Error,
    },
}

impl Server {
    /// Serves `store` until shutdown. After the shutdown, the caller closes the store, and the
    /// key-value store if one is served.
    ///
    /// REQUIRES: the store has background threads; without them appends are never acknowledged.
    ///
    /// # Errors
    ///
    /// Another process listens at the address, the object store of the backup is refused, or the
    /// operating system refuses threads, random bytes or the address.
    pub fn start(store: Store, config: Config) -> Result<Running, StartError> {
        Server::prepare(&config)?.start(store, config)
    }

    /// Does the part of a start that needs no store: binds the address and reads the certificates.
    ///
    /// # Errors
    ///
    /// - The wall clock is before 1970.
    /// - The path of the backup directory is empty or a URL, or leads through a file.
    /// - Another process listens at the address.
    /// - The certificates cannot be used.
    /// - The operating system refuses threads or the address.
    pub fn prepare(config: &Config) -> Result<Prepared, StartError> {
        check_clock(&*config.env.clock)?;
        if let Some(directory) = &config.backup_directory {
            check_backup_directory(&config.env, directory)?;
        }
        let runtime = Builder::new_multi_thread()
            .enable_all()
            .max_blocking_threads(BLOCKING_THREADS_MAX)
            .thread_name("umbel-server")
            .build()
            .map_err(|source| StartError::system("start threads", source))?;
        let socket =
            bind_socket(config.listen).map_err(|source| StartError::bind(config.listen, source))?;
        let tls = match &config.tls {
            Some(certificates) => {
                let clock = Arc::clone(&config.env.clock);
                let tls =
                    Tls::open(Arc::clone(certificates), clock).map_err(StartError::Certificates)?;
                Some(Arc::new(tls))
            }
            None => None,
        };
        Ok(Prepared(ProcessOwned::new(PreparedParts { runtime, socket, tls })))
    }
}

/// Returns an error if the clock is before 1970: hyper panics where it writes the date of a
/// response.
fn check_clock(clock: &dyn Clock) -> Result<(), StartError> {
    if clock.wall_micros() > 0 { Ok(()) } else { Err(StartError::ClockBefore1970) }
}

impl Prepared {
    /// Address that the server will listen on, whose port is free no more.
    ///
    /// # Errors
    ///
    /// The operating system does not tell the address; a call in a forked child.
    pub fn address(&self) -> Result<SocketAddr, StartError> {
        if !self.0.process().is_current() {
            let why = "the server was prepared by the process that forked this one";
            return Err(StartError::system("read the listen address", io::Error::other(why)));
        }
        self.0
            .socket
            .local_addr()
            .map_err(|source| StartError::system("read the listen address", source))
    }

    /// Serves `store`, like [`Server::start`].
    ///
    /// REQUIRES: `config` is the one given to [`Server::prepare`], apart from the key-value store.
    ///
    /// # Errors
    ///
    /// The errors of [`Server::start`].
    pub fn start(self, store: Store, config: Config) -> Result<Running, StartError> {
        let Some(PreparedParts { runtime, socket, tls }) = self.0.into_inner() else {
            let why = "the server was prepared by the process that forked this one; prepare it \
                in this process";
            return Err(StartError::system("start the server", io::Error::other(why)));
        };
        let listener = runtime
            .block_on(async { socket.listen(BACKLOG) })
            .map_err(|source| StartError::bind(config.listen, source))?;
        let address = listener
            .local_addr()
            .map_err(|source| StartError::system("read the listen address", source))?;
        let (stop, stopped) = watch::channel(false);
        let env = config.env.clone();
        log_recovery(&store);
        let continuous_backups = start_backups(&store, &env, &config)?;
        let (backups, schedule) =
            (config.backup_directory.clone(), config.scavenge_schedule.clone());
        let work = StoreWork::read(&store, &env, backups, schedule).map_err(|error| {
            let source = io::Error::other(error.to_string());
            StartError::system("read the state of views, scavenges and backups", source)
        })?;
        let made = create_first_users(&store, &env, &config)?;
        let tasks = TaskSpawner::new(config.measures_workers, &env.clock);
        let (store, mut threads) = start_event_store(&runtime, store, &env, &tasks)?;
        let limits = ListenerLimits::new(&config, env.resources.open_files_max());
        let (kv, kv_writer) = start_kv(config.kv.clone(), &env)?.unzip();
        let mut service =
            ServerContext::new(store, work, env, config, address.port(), stopped.clone()).map_err(
                |error| StartError::system("generate an instance id", to_io_error(&error)),
            )?;
        (service.kv, service.tls, service.tasks) = (kv, tls.clone(), tasks);
        service.continuous_backups.clone_from(&continuous_backups);
        let ask = service.stop_request.clone();
        let service = Arc::new(service);
        #[cfg(feature = "otlp")]
        let exporter = start_exporter(&service)?;
        let watch = store_directory_watch::watch(Arc::clone(&service), stopped.clone());
        let clock_watch = clock_watch::watch(Arc::clone(&service), stopped.clone());
        let filter_watch = existence_watch::watch(Arc::clone(&service), stopped.clone());
        let sampler = metric_sampler::sample(Arc::clone(&service), stopped.clone());
        let timer = work_timer::run(Arc::clone(&service), stopped.clone());
        let replica_watch = replica_watch::watch(Arc::clone(&service), stopped.clone());
        let serve = listener::serve(listener, Arc::clone(&service), tls.clone(), limits, stopped);
        let serve = async move {
            tokio::join!(serve, watch, clock_watch, filter_watch, sampler, timer, replica_watch);
            if service.is_leader() {
                service.group_registry.write_list(&service).await;
            }
        };
        let connections = Some(runtime.spawn(serve));
        threads.extend(kv_writer);
        let parts = RunningParts {
            address,
            stop,
            stop_request: ask,
            connections,
            runtime: Some(runtime),
            threads,
            generated_passwords: made,
            tls,
            continuous_backups,
            #[cfg(feature = "otlp")]
            exporter,
        };
        Ok(Running(ProcessOwned::new(parts)))
    }
}

/// Creates the first users, unless the store gets its users from the leader of a replicated log.
/// Returns the users whose passwords were generated.
fn create_first_users(
    store: &Store,
    env: &Env,
    config: &Config,
) -> Result<Vec<(&'static str, Secret)>, StartError> {
    let is_leader = config.replica.as_ref().is_none_or(|node| node.is_leader());
    let Some(first) = config.users.as_ref().filter(|_| is_leader) else { return Ok(Vec::new()) };
    users::bootstrap(store, env, first)
        .map_err(|why| StartError::system("write the first users", io::Error::other(why)))
}

/// Starts the threads of the event store.
fn start_event_store(
    runtime: &Runtime,
    store: Store,
    env: &Env,
    tasks: &TaskSpawner,
) -> Result<(EventStore, Vec<Box<dyn umbel_env::JoinHandle>>), StartError> {
    // The appender leaves work to the blocking threads.
    let _inside = runtime.enter();
    EventStore::new(store, env, tasks)
        .map_err(|error| StartError::system("start a thread", to_io_error(&error)))
}

/// Logs what the open of a store recovered after a crash.
fn log_recovery(store: &Store) {
    let Some(recovery) = store.crash_recovery() else { return };
    tracing::info!(
        chunks = recovery.chunks,
        bytes_cut = recovery.bytes_cut,
        events_indexed = recovery.events_indexed,
        position = store.visible_position().0,
        seconds = recovery.took.as_secs_f64(),
        "the store had not been closed; it was recovered"
    );
    for file in &recovery.files_left_out {
        tracing::warn!(
            file = %file.display(),
            "a file of the event log has no valid event and was left out: keep it and check the \
             disk"
        );
    }
}

impl Running {
    /// Address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// Initial users whose passwords were generated, with these passwords. The passwords are stored
    /// nowhere else.
    pub fn generated_passwords(&self) -> &[(&'static str, Secret)] {
        &self.0.generated_passwords
    }

    /// Number of tasks that serve connections and their calls, including one that accepts
    /// connections; 0 in a forked child.
    pub fn tasks(&self) -> usize {
        if !self.0.process().is_current() {
            return 0;
        }
        self.0.runtime.as_ref().map_or(0, |runtime| runtime.metrics().num_alive_tasks())
    }

    /// Listens for Ctrl-C, for a client's shutdown request and, where it exists, for `SIGTERM`.
    /// From this call on, none of these ends the process; [`Interrupts::wait`] returns instead,
    /// even if the interrupt came before. `SIGHUP` does not end the process either, but reloads the
    /// certificates at once.
    pub fn interrupts(&self) -> io::Result<Interrupts> {
        if !self.0.process().is_current() {
            return Err(io::Error::other("the server runs in the parent process"));
        }
        let runtime = self.0.runtime.as_ref();
        let runtime = runtime.ok_or_else(|| io::Error::other("the server was stopped"))?;
        let handle = runtime.handle().clone();
        let _inside = handle.enter();
        let stop_requested = self.0.stop_request.subscribe();
        let (signals, tls) = (Signals::listen()?, self.0.tls.clone());
        let waited_for = InterruptSources { handle: handle.clone(), signals, stop_requested, tls };
        Ok(Interrupts(ProcessOwned::new(waited_for)))
    }

    /// Refuses new calls, sends subscribers a status to reconnect, lets running calls end for some
    /// seconds, and stops.
    pub fn shutdown(self) {
        drop(self);
    }
}

impl RunningParts {
    fn stop(&mut self) {
        self.stop.send_replace(true);
        let (Some(runtime), Some(connections)) = (self.runtime.take(), self.connections.take())
        else {
            return;
        };
        // An error means that serving panicked: there is nothing left to wait for.
        let _ = runtime.block_on(connections);
        #[cfg(feature = "otlp")]
        if let Some(exporter) = self.exporter.take() {
            exporter.stop();
        }
        runtime.shutdown_timeout(READ_DRAIN_TIME);
        // The calls ended with the runtime; the threads end when there is no caller left.
        for thread in self.threads.drain(..) {
            thread.join();
        }
        ContinuousBackup::finish(&self.continuous_backups);
    }
}

impl Drop for RunningParts {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Reports when the process is to stop; returned by [`Running::interrupts`].
#[derive(Debug)]
pub struct Interrupts(ProcessOwned<InterruptSources>);

/// Sources of a request to stop the process.
#[derive(Debug)]
struct InterruptSources {
    handle: Handle,
    signals: Signals,
    stop_requested: watch::Receiver<bool>,
    tls: Option<Arc<Tls>>,
}

impl Interrupts {
    /// Waits for an interrupt. Returns at once in a forked child, which no interrupt reaches.
    pub fn wait(self) {
        let Some(mut this) = self.0.into_inner() else { return };
        let stop_requested = async {
            if this.stop_requested.wait_for(|requested| *requested).await.is_err() {
                // No client can request it any more.
                std::future::pending().await
            }
        };
        let mut stop_requested = pin!(stop_requested);
        this.handle.block_on(async {
            loop {
                tokio::select! {
                    action = this.signals.next() => match action {
                        SignalAction::Stop(signal) => {
                            tracing::info!(signal, "shutdown began");
                            return;
                        }
                        SignalAction::ReloadCertificates => {
                            if let Some(tls) = &this.tls {
                                tracing::info!(signal = "SIGHUP", "certificate reload requested");
                                tls.request_reload();
                            }
                        }
                    },
                    () = stop_requested.as_mut() => return,
                }
            }
        });
    }
}

/// Creates a socket bound to this address, which does not listen yet.
fn bind_socket(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // Without it a restarted server waits for remains of its predecessor's connections.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

/// The served key-value store, and the thread that writes it.
type StartedKv = (Arc<KvStore>, Box<dyn umbel_env::JoinHandle>);

/// Begins to serve the key-value store, if configured.
fn start_kv(what: Option<KvConfig>, env: &Env) -> Result<Option<StartedKv>, StartError> {
    let Some(what) = what else { return Ok(None) };
    let (store, writer) = KvStore::new(what, env)
        .map_err(|error| StartError::system("open the key-value store", to_io_error(&error)))?;
    Ok(Some((Arc::new(store), writer)))
}

/// Starts the continuous backups, if configured.
fn start_backups(
    store: &Store,
    env: &Env,
    config: &Config,
) -> Result<Vec<Arc<ContinuousBackup>>, StartError> {
    if let Some(directory) = &config.backup_directory {
        check_backup_owner(store, directory);
    }
    let Some(backup) = &config.object_backup else { return Ok(Vec::new()) };
    let mut stores: Vec<(Box<dyn BackedUpStore>, ObjectBackupConfig)> =
        vec![(Box::new(store.clone()), backup.clone())];
    if let Some(kv) = &config.kv {
        let objects = server_kv_objects(Arc::clone(&backup.objects));
        stores.push((Box::new(kv.db.clone()), ObjectBackupConfig { objects, ..backup.clone() }));
    }
    ContinuousBackup::start(env, stores).map_err(StartError::ObjectBackup)
}

/// Starts the export of telemetry, if configured.
#[cfg(feature = "otlp")]
fn start_exporter(service: &Arc<ServerContext>) -> Result<Option<TelemetryExporter>, StartError> {
    let Some(hub) = service.telemetry.clone() else { return Ok(None) };
    let exporter = TelemetryExporter::start(Arc::clone(service), hub);
    exporter.map(Some).map_err(|error| StartError::system("start a thread", error))
}

fn to_io_error(error: &umbel::Error) -> io::Error {
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
            StartError::ClockBefore1970 => f.write_str(
                "this machine's clock is before 1970, so that no response could have a date; \
                 set the clock, then start the server again",
            ),
            StartError::Certificates(why) => write!(f, "no connection can be encrypted: {why}"),
            StartError::ObjectBackup(why) => write!(f, "the backup cannot begin: {why}"),
            StartError::System { doing, source } => write!(f, "could not {doing}: {source}"),
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            StartError::AddressInUse(_)
            | StartError::ClockBefore1970
            | StartError::Certificates(_)
            | StartError::ObjectBackup(_) => None,
            StartError::System { source, .. } => Some(source),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Story: hyper panicked at the first response where the clock was before 1970.
    #[test]
    fn server_does_not_start_before_1970() {
        #[derive(Debug)]
        struct Unset(u64);
        impl Clock for Unset {
            fn now(&self) -> Duration {
                Duration::ZERO
            }
            fn wall_micros(&self) -> u64 {
                self.0
            }
        }
        let refused = check_clock(&Unset(0)).unwrap_err();
        assert!(refused.to_string().contains("set the clock"), "{refused}");
        check_clock(&Unset(1)).unwrap();
    }

    /// Story: hundreds of clients connected at once while the server was busy. The system queued
    /// 128 connections; all other clients retried after a second or more.
    #[test]
    fn accept_backlog_holds_a_burst_of_clients() {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let socket = bind_socket("127.0.0.1:0".parse().unwrap()).unwrap();
            let listener = socket.listen(BACKLOG).unwrap();
            let address = listener.local_addr().unwrap();
            // No task accepts them.
            let mut clients = Vec::new();
            for number in 0..system_backlog().min(1000) {
                let coming = tokio::net::TcpStream::connect(address);
                let come = tokio::time::timeout(READ_DRAIN_TIME, coming).await;
                clients.push(
                    come.unwrap_or_else(|_| {
                        panic!("connection {number} found no place in the backlog")
                    })
                    .unwrap(),
                );
            }
        });
    }

    /// Upper limit of the system's accept queue.
    fn system_backlog() -> usize {
        let limit = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap_or_default();
        limit.trim().parse().unwrap_or(128)
    }
}
