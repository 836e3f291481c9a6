//! [`Config`]: where the server listens and what it says of itself.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use umbel_proto::limits::PORT;

use crate::limits::PARTS_TIME;
use crate::tls::Certificates;
use crate::users::FirstPasswords;

/// Options of a server.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where to listen. Port 0 takes any that is free.
    pub listen: SocketAddr,
    /// The host and the port under which clients are told to reach it. `None`: the one under which
    /// the client that asks did.
    pub advertise: Option<(String, u16)>,
    /// How long an append or a batch may take from its first part to its last. What has come of it
    /// is held in memory meanwhile, and given up after that.
    pub parts_time: Duration,
    /// Whether users are asked who they are, and the passwords of the first ones. `None`: nobody
    /// is asked, and whoever reaches the server may do everything.
    pub users: Option<FirstPasswords>,
    /// Where its certificates are. `None`: whoever sees what goes over the network reads it.
    pub tls: Option<Arc<dyn Certificates>>,
}

impl Default for Config {
    fn default() -> Config {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT));
        Config { listen, advertise: None, parts_time: PARTS_TIME, users: None, tls: None }
    }
}
