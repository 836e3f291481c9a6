//! `umbel serve`: serves an event store over the network until the operator stops it.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use clap::ArgMatches;
use serde_json::json;
use umbel::{Db, Durability};
use umbel_backup::SERVER_KV_PREFIX;
use umbel_env::Env;
use umbel_events::check_backup_target;
use umbel_objects::location;
use umbel_server::{
    CertificateStore, Config, KvConfig, ObjectBackupConfig, Prepared, Running, Server, StartError,
    StopSignals, TelemetryHub,
};

use crate::errors::{CommandError, CommandResult};
use crate::events::client::connection_string::{ConnectionString, TlsOptions};
use crate::events::client::shell_command::curl_command;
use crate::events::object_backup;
use crate::events::open_event_store;
use crate::events::serve::certificate_host::{certificate_host, reachable_address};
use crate::events::serve::option_sources::read_options_file;
use crate::events::serve::replica_start::ReplicaStart;
use crate::events::serve::serve_args::{ServeArgs, ServeOptions};
use crate::events::serve::serve_config::ServeConfig;
use crate::events::serve::server_log::{LogFormat, ServerLog, log_lifecycle};
use crate::events::serve::server_security::ServerSecurity;
use crate::io::output::Output;
use crate::io::temporary_directory::{MEM_DB_PREFIX, TemporaryDirectory};
use crate::open_kv_store::{refuse_file, refuse_file_as_backup};
use crate::store_kind::{KV_DIRECTORY, is_event_store, is_kv_store};

pub mod certificate_host;
pub mod kurrent_options;
pub mod option_sources;
pub mod otlp_flags;
pub mod otlp_options;
pub mod replica_start;
pub mod serve_args;
pub mod serve_config;
pub mod server_log;
pub mod server_security;
pub mod telemetry_layer;

/// Serves the event store in the directory that the operator names; creates the store if the
/// directory is missing or empty.
///
/// `flags` is the result of parsing `args`.
pub fn run(args: &ServeArgs, flags: &ArgMatches, json: bool) -> CommandResult<()> {
    let text = args.config.as_deref().map(read_options_file).transpose()?;
    let file = args.config.as_deref().zip(text.as_deref());
    let (config, sources) = ServeConfig::read(file, std::env::vars_os(), Some(flags))?;
    if args.print_config {
        return config.print(&sources, json);
    }
    let security = ServerSecurity::from_config(&config)?;
    let hub = config.otlp.to_hub(&config.options, &sources)?;
    let log = ServerLog::start(config.options.log_format, config.options.log_level, hub.clone())?;
    for notice in sources.notices() {
        tracing::warn!("{notice}");
    }
    let limits = config.limits;
    let outcome = serve_logged(config, (&security, hub), &log, json);
    log.report_exit(outcome.map_err(|failure| limits.with_lock_wait(failure)))
}

/// Serves the store, with `--mem-db` a temporary one, and logs the stop.
fn serve_logged(
    mut config: ServeConfig,
    (security, telemetry): (&ServerSecurity, Option<Arc<TelemetryHub>>),
    log: &ServerLog,
    json: bool,
) -> CommandResult<()> {
    if !config.options.mem_db {
        serve(&config, (security, telemetry), log, json)?;
        log_lifecycle("stopped; all acknowledged writes are on disk");
        return Ok(());
    }
    let temporary = TemporaryDirectory::create(MEM_DB_PREFIX, Env::system().clock.wall_micros())?;
    config.db = temporary.path().join("events");
    let served = serve(&config, (security, telemetry), log, json);
    // The store is closed.
    temporary_outcome(served, temporary.remove())?;
    log_lifecycle("stopped; the store is removed");
    Ok(())
}

/// The outcome of a server with a temporary store, which was then removed. The error of the server
/// comes first; the other one is logged.
fn temporary_outcome(served: CommandResult<()>, removed: CommandResult<()>) -> CommandResult<()> {
    let removed =
        removed.map_err(|failure| failure.with_prefix("remove the temporary store, which is left"));
    match (served, removed) {
        (Err(failure), Err(left)) => {
            tracing::warn!("{left}");
            Err(failure)
        }
        (served, removed) => served.and(removed),
    }
}

/// Opens the object store of the continuous backup; `None` without one.
fn continuous_backup(options: &ServeOptions) -> CommandResult<Option<ObjectBackupConfig>> {
    let Some(url) = options.backup_to.as_deref() else { return Ok(None) };
    let config = object_backup::continuous_backup(url, options.backup_throttle)?;
    let (interval, keep) = (options.backup_interval, options.backup_keep);
    Ok(Some(ObjectBackupConfig { interval, keep, ..config }))
}

/// Refuses a directory that can never have backups of the store. A disk that fails prevents no
/// start; the server warns about it.
fn check_backup_directory(store: &Path, target: &Path) -> CommandResult<()> {
    refuse_file_as_backup(target)?;
    match check_backup_target(&Env::system(), store, target) {
        Err(umbel_events::Error::Store(umbel::Error::Io { source, .. }))
            if source.kind() != ErrorKind::NotADirectory =>
        {
            Ok(())
        }
        checked => Ok(checked?),
    }
}

fn serve(
    config: &ServeConfig,
    (security, telemetry): (&ServerSecurity, Option<Arc<TelemetryHub>>),
    log: &ServerLog,
    json: bool,
) -> CommandResult<()> {
    // A refused start creates no store, and leaves an existing one unchanged.
    refuse_file(&config.db)?;
    if let Some(target) = &config.options.backup_dir {
        check_backup_directory(&config.db, target)?;
    }
    let object_backup = continuous_backup(&config.options)?;
    let replica = ReplicaStart::check(&config.db, &config.options)?;
    let server = Config { telemetry, object_backup, ..server_config(config, security) };
    let prepared = Server::prepare(&server).map_err(start_error)?;
    let is_new = !is_event_store(&config.db);
    if let Some(replica) = replica {
        let announce = |running: &Running| announce(running, config, security, log, json);
        return serve_node(&replica, config, (prepared, server), announce);
    }
    let store = open_event_store::open_or_create_with(Some(&config.db), config.store_options())?;
    if is_new {
        announce_creation("event store", &config.db, config);
    }
    // The directory is that of an event store first: no other process makes one of it.
    let kv = match config.options.kv.then(|| open_kv_store(config)).transpose() {
        Ok(kv) => kv,
        Err(failure) => {
            store.close()?;
            return Err(failure);
        }
    };
    let server = Config { kv: kv.clone(), ..server };
    let running = prepared.start(store.clone(), server).map_err(start_error);
    let announce = |running: &Running| announce(running, config, security, log, json);
    let served = running.and_then(|running| serve_until_stopped(running, announce));
    // Both are closed, whatever comes of either.
    let closed = (store.close(), kv.map_or(Ok(()), |kv| kv.db.close()));
    served?;
    closed.0?;
    Ok(closed.1?)
}

/// Serves as a node of a replicated log until the process is to stop. A leader that another node
/// replaced has ended its store (B10): it opens the store again under the same address, and
/// follows.
fn serve_node(
    replica: &ReplicaStart,
    config: &ServeConfig,
    (mut prepared, mut server): (Prepared, Config),
    announce: impl Fn(&Running) -> CommandResult<()>,
) -> CommandResult<()> {
    let signals = StopSignals::listen();
    let mut signals = signals
        .map_err(|error| CommandError::System(format!("could not wait for signals: {error}")))?;
    let is_new = !is_event_store(&config.db);
    let address = prepared.address().map_err(start_error)?;
    server.listen = address;
    let mut started = replica.open(&config.db, config.store_options(), address)?;
    if is_new {
        announce_creation("event store", &config.db, config);
    }
    let mut is_first = true;
    loop {
        let node = Some(Arc::clone(&started.node));
        let with_node = Config { replica: node, ..server.clone() };
        let running = prepared.start(started.store.clone(), with_node).map_err(start_error);
        let served = running.and_then(|running| {
            serve_until_stopped(running, |running| match is_first {
                true => announce(running),
                false => Ok(()),
            })
        });
        let stopped = started.stop();
        served?;
        let Some(end) = stopped?.filter(|_| !signals.has_arrived()) else { return Ok(()) };
        log_lifecycle(&format!("this node leads no more: {end}; it opens its store again"));
        is_first = false;
        prepared = Server::prepare(&server).map_err(start_error)?;
        started = replica.open_again(&config.db, config.store_options(), address)?;
    }
}

/// Serves until a signal or a client's call `Shutdown` stops the server.
fn serve_until_stopped(
    running: Running,
    announce: impl FnOnce(&Running) -> CommandResult<()>,
) -> CommandResult<()> {
    // A reader of the address may stop the server at once.
    let interrupts = running
        .interrupts()
        .map_err(|error| CommandError::System(format!("could not wait for Ctrl-C: {error}")));
    let served = interrupts.and_then(|interrupts| {
        announce(&running)?;
        interrupts.wait();
        Ok(())
    });
    running.shutdown();
    served
}

/// Opens the key-value store of the server.
fn open_kv_store(config: &ServeConfig) -> CommandResult<KvConfig> {
    let directory = config.db.join(KV_DIRECTORY);
    let is_new = !is_kv_store(&directory);
    let db = Db::open(&directory, config.kv_options())?;
    if is_new {
        announce_creation("key-value store", &directory, config);
    }
    let sync = config.options.durability == Durability::Synced;
    Ok(KvConfig { sync, ..KvConfig::new(db) })
}

/// Returns the options of the server, without the key-value store.
fn server_config(config: &ServeConfig, security: &ServerSecurity) -> Config {
    let (users, tls) = match security {
        ServerSecurity::Insecure => (None, None),
        ServerSecurity::Users { first, tls } => {
            let tls = tls.as_ref().map(|files| Arc::clone(files) as Arc<dyn CertificateStore>);
            (Some(first.clone()), tls)
        }
    };
    let options = &config.options;
    Config {
        listen: options.listen,
        advertise: options.advertise.clone(),
        partial_append_time: options.append_time,
        users,
        tls,
        backup_directory: options.backup_dir.clone(),
        scavenge_schedule: options.scavenge_schedule.clone(),
        slow_call_time: options.log_slow_milliseconds,
        measures_workers: options.measure_workers,
        revision: env!("UMBEL_COMMIT").trim_matches([' ', '(', ')']).to_string(),
        ..Config::default()
    }
}

/// Prints the connection string for clients as the first line of output.
fn announce(
    running: &Running,
    config: &ServeConfig,
    security: &ServerSecurity,
    log: &ServerLog,
    json: bool,
) -> CommandResult<()> {
    let address = running.address();
    let is_encrypted = matches!(security, ServerSecurity::Users { tls: Some(_), .. });
    // A certificate names the host under which clients are to come.
    let connection = match &config.options.advertise {
        Some((host, port)) if is_encrypted => format!("kurrentdb://{}", host_and_port(host, *port)),
        _ if is_encrypted => format!("kurrentdb://{}", reachable_address(address)),
        _ => format!("kurrentdb://{}?tls=false", reachable_address(address)),
    };
    let generated = running.generated_passwords();
    let mut output = Output::new();
    // A full disk below the output ends no server, unless a password would be lost with it.
    let unless_fatal =
        |written: CommandResult<()>| if generated.is_empty() { Ok(()) } else { written };
    if json {
        let passwords =
            generated.iter().map(|(user, secret)| (user.to_string(), secret.reveal().into()));
        let passwords: serde_json::Map<String, serde_json::Value> = passwords.collect();
        let mut object = json!({ "connection_string": connection });
        if !passwords.is_empty() {
            object["passwords"] = passwords.into();
        }
        unless_fatal(output.json(&object))?;
    } else {
        unless_fatal(output.line(&connection))?;
    }
    unless_fatal(output.flush())?;
    // Generated passwords are no part of the log: where its lines are for programs, they go to the
    // output.
    for (user, secret) in generated.iter().filter(|_| !json) {
        let secret = secret.reveal();
        let line = format!("the password of {user} is {secret} and is not shown again");
        match config.options.log_format {
            LogFormat::Text => log.print_secret(&line),
            LogFormat::Json => unless_fatal(output.line(&line))?,
        }
    }
    unless_fatal(output.flush())?;
    let operator = operator_address(address, config, security);
    announce_stores(config);
    log_lifecycle(&format!("the console is at {}/console/", operator.origin()));
    if !config.options.read_only_replica {
        let options = ["-H", "content-type: application/json", "-H", "kurrent-eventtype: Opened"];
        let options = [&options[..], &["-d", "{}"]].concat();
        let append = curl_command(&operator, &options, "/streams/cart-42");
        log_lifecycle(&format!("append an event: {append}"));
    }
    log_lifecycle(&listening_message(address, security));
    Ok(())
}

/// Logs that a store did not exist before: a mistyped directory is one without a store. The one of
/// `--mem-db` is always new.
fn announce_creation(kind: &str, directory: &Path, config: &ServeConfig) {
    if !config.options.mem_db {
        let shown = directory.display();
        log_lifecycle(&format!("created a new {kind} in {shown}, which had none before"));
    }
}

/// Logs where the data lies, and when it is durable.
fn announce_stores(config: &ServeConfig) {
    log_lifecycle(&format!("the store is in {}", config.db.display()));
    announce_collector(config);
    if config.options.mem_db {
        log_lifecycle(
            "this directory is temporary (--mem-db): it is removed when the process ends",
        );
    }
    log_lifecycle(durability_message(config.options.durability));
    if let Some(quota_bytes) = config.options.log_quota {
        log_lifecycle(&format!(
            "appends are refused once the event log has {quota_bytes} bytes (--log-quota)"
        ));
    }
    if let (Some(url), Some(node)) = (&config.options.store, &config.options.node) {
        let place = location(url);
        log_lifecycle(&format!("this is node {node} of the replicated log in {place} (--store)"));
    }
    if let Some(url) = &config.options.backup_to {
        let (place, seconds) = (location(url), config.options.backup_interval.as_secs());
        log_lifecycle(&format!("events are backed up to {place} every {seconds} s (--backup-to)"));
        if config.options.kv {
            log_lifecycle(&format!("keys and values are backed up to {place}/{SERVER_KV_PREFIX}"));
        }
    }
    if config.options.kv {
        let directory = config.db.join(KV_DIRECTORY);
        log_lifecycle(&format!("keys and values are in {}", directory.display()));
    }
}

/// The address of the server for an operator on this machine. Its certificate is trusted as it is,
/// because the operating system may not know the authority that signed it.
fn operator_address(
    address: SocketAddr,
    config: &ServeConfig,
    security: &ServerSecurity,
) -> ConnectionString {
    let reachable = reachable_address(address);
    let (tls, user) = match security {
        ServerSecurity::Insecure => (None, None),
        ServerSecurity::Users { tls, .. } => {
            (tls.as_ref(), Some(("admin".to_string(), String::new())))
        }
    };
    let named = tls.and_then(|files| files.read().ok());
    let named = named.and_then(|pem| certificate_host(&pem.certificates, reachable));
    let own = || (named.unwrap_or_else(|| reachable.ip().to_string()), reachable.port());
    let advertised = config.options.advertise.clone().filter(|_| tls.is_some());
    let (host, port) = advertised.unwrap_or_else(own);
    let encryption = tls.map(|files| TlsOptions {
        verifies: true,
        authorities: Some(files.certificate_file().to_path_buf()),
        user: None,
    });
    ConnectionString { host, port, encryption, user }
}

/// Logs where telemetry is exported to, if it is.
fn announce_collector(config: &ServeConfig) {
    if let Some(collector) = config.options.otlp_endpoint.as_ref().filter(|_| config.otlp.is_on()) {
        let signals = config.options.otlp_signals.names().replace(',', ", ");
        log_lifecycle(&format!("OpenTelemetry collector at {collector} gets {signals}"));
    }
}

/// The log line with the durability of acknowledged writes.
fn durability_message(durability: Durability) -> &'static str {
    match durability {
        Durability::Synced => {
            "acknowledged writes are on disk and survive power loss (--durability synced)"
        }
        Durability::Buffered => {
            "acknowledged writes survive the death of the process, not power loss (--durability \
             buffered)"
        }
    }
}

/// The log line with the address and the protection of the server.
fn listening_message(address: SocketAddr, security: &ServerSecurity) -> String {
    match security {
        ServerSecurity::Insecure => format!(
            "listening at {address} without TLS and users: every client that reaches it may read \
             and write; Ctrl-C stops"
        ),
        ServerSecurity::Users { tls: None, .. } => format!(
            "listening at {address} for users, without TLS: passwords can be read on the network \
             unless a proxy encrypts; Ctrl-C stops"
        ),
        ServerSecurity::Users { tls: Some(_), .. } => {
            format!("listening at {address} for users, with TLS; Ctrl-C stops")
        }
    }
}

fn host_and_port(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

fn start_error(error: StartError) -> CommandError {
    match error {
        StartError::Certificates(_) | StartError::ObjectBackup(_) => {
            CommandError::usage(error.to_string())
        }
        error => CommandError::System(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Story: a server that could not remove its temporary store ended with code 0.
    #[test]
    fn temporary_store_that_is_left_is_a_failure() {
        let left = || CommandError::System("could not remove DIR: busy".to_string());
        let refused = || CommandError::usage("no such certificate");
        let code = |served, removed| {
            temporary_outcome(served, removed).map_err(|failure| failure.exit_code())
        };
        assert_eq!(code(Ok(()), Ok(())), Ok(()));
        assert_eq!(code(Ok(()), Err(left())), Err(4));
        assert_eq!(code(Err(refused()), Ok(())), Err(2));
        assert_eq!(code(Err(refused()), Err(left())), Err(2));
    }
}
