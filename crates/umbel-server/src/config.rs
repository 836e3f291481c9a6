//! [`Config`]: where the server listens and what it says of itself.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use umbel_proto::limits::PORT;

use crate::kv_store::KeyValues;
use crate::limits::{
    ASK_AFTER, ASK_TIME, CONNECTIONS_MAX, GROUPS_BYTES_MAX, OPEN_CALLS_MAX, PARTS_TIME, SLOW_TIME,
    UNREAD_BYTES_MAX,
};
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
    /// The folder that backups go to which are asked for while it runs; none without.
    pub backup: Option<PathBuf>,
    /// Keys and values that are served besides the events; none without.
    pub kv: Option<KeyValues>,
    /// Most connections at a time.
    pub connections_max: usize,
    /// Most calls that are open at a time, on all connections together.
    pub calls_max: usize,
    /// A client that says nothing for so long is asked whether it is there,
    pub ask_after: Duration,
    /// and has so long to answer.
    pub ask_time: Duration,
    /// Bytes that may have been read for clients that have not taken them, for all together.
    pub unread_bytes_max: usize,
    /// Bytes of the events that all groups of consumers together may hold.
    pub groups_bytes_max: usize,
    /// A call whose answer begins later than this is slow, and told of.
    pub slow_time: Duration,
}

impl Default for Config {
    fn default() -> Config {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT));
        Config {
            listen,
            advertise: None,
            parts_time: PARTS_TIME,
            users: None,
            tls: None,
            backup: None,
            kv: None,
            connections_max: CONNECTIONS_MAX,
            calls_max: OPEN_CALLS_MAX,
            ask_after: ASK_AFTER,
            ask_time: ASK_TIME,
            unread_bytes_max: UNREAD_BYTES_MAX,
            groups_bytes_max: GROUPS_BYTES_MAX,
            slow_time: SLOW_TIME,
        }
    }
}
