//! `umbel serve`: an event store over the network, until somebody stops it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use serde_json::json;
use umbel::Durability;
use umbel_events::StoreOptions;
use umbel_server::{Config, Server, StartError};

use super::args::ServeArgs;
use super::serve_config::ServeConfig;
use super::serve_options::Levels;
use super::store;
use crate::errors::{Failure, Outcome};
use crate::limits::Limits;
use crate::output::{Output, note};

/// Serves the event store in the folder, which is created where it is missing or empty.
pub fn run(folder: Option<&Path>, args: &ServeArgs, json: bool, limits: Limits) -> Outcome<()> {
    let levels = Levels::collect(args, folder, limits.memory, std::env::vars_os())?;
    let config = ServeConfig::read(&levels)?;
    if args.print_config {
        return config.print(&levels, json);
    }
    if !config.insecure {
        return Err(Failure::usage(
            "connections cannot be encrypted yet; with --insecure the server listens in clear, and \
             whoever reaches its port may read and write",
        ));
    }
    let durability = if config.sync { Durability::Synced } else { Durability::Buffered };
    let options = StoreOptions {
        durability,
        memory_bytes: config.memory,
        existence: config.existence,
        ..StoreOptions::default()
    };
    let store = store::open_or_create_with(config.db.as_deref(), options)?;
    let (listen, advertise, parts_time) = (config.listen, config.advertise, config.append_time);
    let running = match Server::start(store.clone(), Config { listen, advertise, parts_time }) {
        Ok(running) => running,
        Err(error) => {
            store.close()?;
            return Err(failed(error));
        }
    };
    // Whoever reads the address may stop the server at once.
    let interrupts = running
        .interrupts()
        .map_err(|error| Failure::System(format!("could not wait for Ctrl-C: {error}")));
    let served = interrupts.and_then(|interrupts| {
        announce(running.address(), json)?;
        interrupts.wait();
        Ok(())
    });
    running.shutdown();
    store.close()?;
    served?;
    note("stopped; everything that was acknowledged is on disk");
    Ok(())
}

/// The first line of output is what clients connect with.
fn announce(address: SocketAddr, json: bool) -> Outcome<()> {
    let connection = format!("kurrentdb://{}?tls=false", reachable(address));
    let mut output = Output::new();
    if json {
        output.json(&json!({ "connection_string": connection }))?;
    } else {
        output.line(&connection)?;
    }
    output.flush()?;
    note(&format!(
        "listening at {address} in clear: whoever reaches it may read and write; Ctrl-C stops"
    ));
    Ok(())
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
    Failure::System(error.to_string())
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
