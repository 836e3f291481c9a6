//! [`Config`]: where the server listens and what it says of itself.

use std::net::{Ipv4Addr, SocketAddr};

use umbel_proto::limits::PORT;

/// Options of a server.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where to listen. Port 0 takes any that is free.
    pub listen: SocketAddr,
    /// The host and the port under which clients are told to reach it. `None`: the one under which
    /// the client that asks did.
    pub advertise: Option<(String, u16)>,
}

impl Default for Config {
    fn default() -> Config {
        Config { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)), advertise: None }
    }
}
