//! [`Config`]: options of a server.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use umbel_env::Env;
use umbel_events::ReplicaNode;
use umbel_proto::limits::PORT;

use crate::access_control::users::BootstrapPasswords;
use crate::auth::tls::CertificateStore;
use crate::continuous_backup::ObjectBackupConfig;
use crate::event_store::scavenge_schedule::ScavengeSchedule;
use crate::kv_store::KvConfig;
use crate::limits::{
    CONNECTIONS_MAX, GROUPS_BYTES_MAX, KEEPALIVE_INTERVAL, KEEPALIVE_TIMEOUT, OPEN_CALLS_MAX,
    OUTBOUND_BYTES_MAX, PARTIAL_APPEND_TIME, SLOW_CALL_TIME,
};
use crate::telemetry::otlp::telemetry_hub::TelemetryHub;

/// Options of a server.
#[derive(Debug, Clone)]
pub struct Config {
    /// The operating system as the server uses it: clock, randomness, threads, and the resources
    /// that it reports, such as the space of the disk. The stores have their own.
    pub env: Env,
    /// Address to listen on. Port 0 takes any free port.
    pub listen: SocketAddr,
    /// Host and port that clients should connect to. `None` means the host and port that the client
    /// used.
    pub advertise: Option<(String, u16)>,
    /// Time limit of an append or a batch from its first part to its last. The parts stay in memory
    /// until the last part arrives or the time is over.
    pub partial_append_time: Duration,
    /// Passwords of the initial users, which turns authentication on. `None` means no
    /// authentication: every client has all permissions.
    pub users: Option<BootstrapPasswords>,
    /// Source of the certificates. `None` means that traffic is not encrypted.
    pub tls: Option<Arc<dyn CertificateStore>>,
    /// Directory of backups that clients request. `None` means that clients cannot request backups.
    pub backup_directory: Option<PathBuf>,
    /// Continuous backup into an object store; `None` for none. A key-value store is backed up
    /// below `kv/`.
    pub object_backup: Option<ObjectBackupConfig>,
    /// Node of the replicated log that the store belongs to; `None` for a store of one machine. The
    /// caller ends it after the shutdown.
    pub replica: Option<Arc<ReplicaNode>>,
    /// Times of automatic scavenges, until a client sets other ones; `None` for none.
    pub scavenge_schedule: Option<ScavengeSchedule>,
    /// Key-value store that is served besides the events; `None` for none.
    pub kv: Option<KvConfig>,
    /// Maximum number of connections.
    pub connections_max: usize,
    /// Maximum number of open calls, on all connections together.
    pub open_calls_max: usize,
    /// Idle time before a keepalive ping.
    pub keepalive_interval: Duration,
    /// Time limit for the answer to a keepalive ping.
    pub keepalive_timeout: Duration,
    /// Byte limit of all data that was read but not yet taken by clients.
    pub outbound_bytes_max: usize,
    /// Byte limit of the events that all consumer groups together hold in memory.
    pub groups_bytes_max: usize,
    /// A call whose first response takes longer than this counts as slow and is logged.
    pub slow_call_time: Duration,
    /// Export to an OpenTelemetry collector; `None` for no export.
    pub telemetry: Option<Arc<TelemetryHub>>,
    /// Whether the processor time of each poll of a task, and of each job of the appender thread,
    /// is measured for the metric `umbel_worker_busy_seconds`.
    pub measures_workers: bool,
    /// Commit of the program, for the metric of the build; empty if unknown.
    pub revision: String,
}

impl Default for Config {
    fn default() -> Config {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT));
        Config {
            env: Env::system(),
            listen,
            advertise: None,
            partial_append_time: PARTIAL_APPEND_TIME,
            users: None,
            tls: None,
            backup_directory: None,
            object_backup: None,
            replica: None,
            scavenge_schedule: None,
            kv: None,
            connections_max: CONNECTIONS_MAX,
            open_calls_max: OPEN_CALLS_MAX,
            keepalive_interval: KEEPALIVE_INTERVAL,
            keepalive_timeout: KEEPALIVE_TIMEOUT,
            outbound_bytes_max: OUTBOUND_BYTES_MAX,
            groups_bytes_max: GROUPS_BYTES_MAX,
            slow_call_time: SLOW_CALL_TIME,
            telemetry: None,
            measures_workers: false,
            revision: String::new(),
        }
    }
}
