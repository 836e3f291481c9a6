//! `umbel serve`: an event store over the network, until somebody stops it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use umbel::{Db, Options};
use umbel_env::Env;
use umbel_events::{StoreOptions, check_backup_folder};
use umbel_server::{Certificates, Config, KeyValues, Running, Server, StartError};

use super::args::ServeArgs;
use super::serve_config::ServeConfig;
use super::serve_log::{Log, LogFormat};
use super::serve_options::{Levels, Source};
use super::serve_security::Security;
use super::store;
use crate::errors::{Failure, Outcome};
use crate::folders::KV_FOLDER;
use crate::limits::Limits;
use crate::output::{Output, note};
use crate::store::refuse_file;

/// Serves the event store in the folder that somebody names, which is created where it is missing
/// or empty.
pub fn run(
    folder: Option<(&Path, Source)>,
    args: &ServeArgs,
    json: bool,
    limits: Limits,
) -> Outcome<()> {
    let levels = Levels::collect(args, folder, limits.memory, std::env::vars_os())?;
    let config = ServeConfig::read(&levels)?;
    if args.print_config {
        return config.print(&levels, json);
    }
    let security = Security::of(&config)?;
    let log = Log::begin(config.log_format, config.log_level)?;
    let outcome = serve(&config, &security, &log, json, limits);
    log.ended(outcome.map_err(|failure| limits.waited(failure)))
}

fn serve(
    config: &ServeConfig,
    security: &Security,
    log: &Log,
    json: bool,
    limits: Limits,
) -> Outcome<()> {
    // Whoever is refused leaves no store behind, and one that was there as it was.
    refuse_file(&config.db)?;
    if let Some(target) = &config.backup_dir {
        check_backup_folder(&Env::system(), &config.db, target)?;
    }
    let server = server_config(config, security);
    let prepared = Server::prepare(&server).map_err(failed)?;
    let lock_wait = limits.lock_wait();
    let options = StoreOptions { lock_wait, ..config.store_options() };
    let store = store::open_or_create_with(Some(&config.db), options)?;
    // The folder is that of an event store first: nobody else makes one of it.
    let kv = match config.kv.then(|| key_values(config, lock_wait)).transpose() {
        Ok(kv) => kv,
        Err(failure) => {
            store.close()?;
            return Err(failure);
        }
    };
    let server = Config { kv: kv.clone(), ..server };
    let running = prepared.start(store.clone(), server).map_err(failed);
    let served =
        running.and_then(|running| serve_until_stopped(running, config, security, log, json));
    // Both are closed, whatever comes of either.
    let closed = (store.close(), kv.map_or(Ok(()), |kv| kv.db.close()));
    served?;
    closed.0?;
    closed.1?;
    log.say("stopped; everything that was acknowledged is on disk");
    Ok(())
}

/// Serves until somebody stops it.
fn serve_until_stopped(
    running: Running,
    config: &ServeConfig,
    security: &Security,
    log: &Log,
    json: bool,
) -> Outcome<()> {
    // Whoever reads the address may stop the server at once.
    let interrupts = running
        .interrupts()
        .map_err(|error| Failure::System(format!("could not wait for Ctrl-C: {error}")));
    let served = interrupts.and_then(|interrupts| {
        announce(&running, config, security, log, json)?;
        interrupts.wait();
        Ok(())
    });
    running.shutdown();
    served
}

/// Opens the store of keys and values beside the events.
fn key_values(config: &ServeConfig, lock_wait: Duration) -> Outcome<KeyValues> {
    let options = Options { lock_wait, ..config.kv_options() };
    let db = Db::open(config.db.join(KV_FOLDER), options)?;
    Ok(KeyValues { sync: config.sync, ..KeyValues::new(db) })
}

/// Options of the server, without the keys and values.
fn server_config(config: &ServeConfig, security: &Security) -> Config {
    let (users, tls) = match security {
        Security::Insecure => (None, None),
        Security::Users { first, tls } => {
            let tls = tls.as_ref().map(|files| Arc::clone(files) as Arc<dyn Certificates>);
            (Some(first.clone()), tls)
        }
    };
    let (listen, advertise) = (config.listen, config.advertise.clone());
    let (parts_time, slow_time) = (config.append_time, config.log_slow);
    let backup = config.backup_dir.clone();
    Config { listen, advertise, parts_time, users, tls, backup, slow_time, ..Config::default() }
}

/// The first line of output is what clients connect with.
fn announce(
    running: &Running,
    config: &ServeConfig,
    security: &Security,
    log: &Log,
    json: bool,
) -> Outcome<()> {
    let address = running.address();
    let is_encrypted = matches!(security, Security::Users { tls: Some(_), .. });
    // A certificate names the host under which clients are to come.
    let connection = match &config.advertise {
        Some((host, port)) if is_encrypted => format!("kurrentdb://{}", joined(host, *port)),
        _ if is_encrypted => format!("kurrentdb://{}", reachable(address)),
        _ => format!("kurrentdb://{}?tls=false", reachable(address)),
    };
    let made = running.made_passwords();
    let mut output = Output::new();
    // A full disk below the output ends no server, unless a password would be lost with it.
    let or_go_on = |written: Outcome<()>| if made.is_empty() { Ok(()) } else { written };
    if json {
        let passwords =
            made.iter().map(|(user, secret)| (user.to_string(), secret.reveal().into()));
        let passwords: serde_json::Map<String, serde_json::Value> = passwords.collect();
        let mut said = json!({ "connection_string": connection });
        if !passwords.is_empty() {
            said["passwords"] = passwords.into();
        }
        or_go_on(output.json(&said))?;
    } else {
        or_go_on(output.line(&connection))?;
    }
    or_go_on(output.flush())?;
    // A log has no secrets in it: where each line of it is one for programs, the output says them.
    for (user, secret) in made.iter().filter(|_| !json) {
        let secret = secret.reveal();
        let said = format!("the password of {user} is {secret} and is not shown again: keep it");
        match config.log_format {
            LogFormat::Text => note(&said),
            LogFormat::Json => or_go_on(output.line(&said))?,
        }
    }
    or_go_on(output.flush())?;
    let scheme = if is_encrypted { "https" } else { "http" };
    let host = connection.trim_start_matches("kurrentdb://").trim_end_matches("?tls=false");
    log.say(&format!("the store is in {}", config.db.display()));
    if config.kv {
        log.say(&format!("keys and values are in {}", config.db.join(KV_FOLDER).display()));
    }
    log.say(&format!("the console is at {scheme}://{host}/console/"));
    let user = if matches!(security, Security::Insecure) { "" } else { "-u admin " };
    log.say(&format!(
        "an event to paste: curl {user}-H 'content-type: application/json' -H 'x-umbel-console: 1' \
         {scheme}://{host}/console/api/append \
         -d '{{\"stream\":\"cart-42\",\"type\":\"Opened\",\"data\":\"{{}}\"}}'"
    ));
    log.say(&match security {
        Security::Insecure => format!(
            "listening at {address} in clear: whoever reaches it may read and write; Ctrl-C stops"
        ),
        Security::Users { tls: None, .. } => format!(
            "listening at {address} for users, in clear: their passwords can be read on the way \
             unless something in front of it encrypts; Ctrl-C stops"
        ),
        Security::Users { tls: Some(_), .. } => {
            format!("listening at {address} for users, encrypted; Ctrl-C stops")
        }
    });
    Ok(())
}

fn joined(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// An address by which this machine reaches who listens at `address`.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

fn failed(error: StartError) -> Failure {
    match error {
        StartError::Certificates(_) => Failure::usage(error.to_string()),
        error => Failure::System(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_listens_everywhere_is_reached_here() {
        let shown = |address: &str| reachable(address.parse().unwrap()).to_string();
        assert_eq!(shown("0.0.0.0:7"), "127.0.0.1:7");
        assert_eq!(shown("[::]:7"), "[::1]:7");
        assert_eq!(shown("10.0.0.1:7"), "10.0.0.1:7");
    }
}
