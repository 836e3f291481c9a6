//! `umbel serve`: an event store over the network, until somebody stops it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use serde_json::json;
use umbel::Durability;
use umbel_server::{Config, Server, StartError};

use super::args::ServeArgs;
use super::store;
use crate::errors::{Failure, Outcome};
use crate::limits::Limits;
use crate::output::{Output, note};

/// Serves the event store in the folder, which is created where it is missing or empty.
pub fn run(folder: Option<&Path>, args: &ServeArgs, json: bool, limits: Limits) -> Outcome<()> {
    if !args.insecure {
        return Err(Failure::usage(
            "connections cannot be encrypted yet; with --insecure the server listens in clear, and \
             whoever reaches its port may read and write",
        ));
    }
    let advertise = args.advertise.as_deref().map(host_and_port).transpose()?;
    let durability = if args.sync { Durability::Synced } else { Durability::Buffered };
    let store = store::open_or_create(folder, limits, durability)?;
    let config = Config { listen: args.listen, advertise, ..Config::default() };
    let running = match Server::start(store.clone(), config) {
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

fn host_and_port(text: &str) -> Outcome<(String, u16)> {
    let parts = text.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
    match parts {
        Some((host, port)) if !host.is_empty() => {
            Ok((host.trim_matches(['[', ']']).to_string(), port))
        }
        _ => Err(Failure::usage(format!(
            "--advertise is {text}, but must be a name or an address, a colon and a port"
        ))),
    }
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

    #[test]
    fn hosts_have_ports() {
        let read = |text| host_and_port(text).ok();
        assert_eq!(read("store.example:2113"), Some(("store.example".to_string(), 2113)));
        assert_eq!(read("[::1]:2113"), Some(("::1".to_string(), 2113)));
        for wrong in ["store.example", ":2113", "store:65536", ""] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
