//! [`ServerContext`]: state that all calls of one server share.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use tonic::Status;
use umbel_env::Env;
use umbel_events::{EventId, LeaderAddress, ReplicaNode};

use crate::auth::authorization::Authorizer;
use crate::auth::tls::Tls;
use crate::config::Config;
use crate::consumer_groups::group_registry::GroupRegistry;
use crate::continuous_backup::ContinuousBackup;
use crate::continuous_backup::backed_up_store::KV_LABEL;
use crate::event_store::EventStore;
use crate::event_store::auto_scavenge::AutoScavenge;
use crate::event_store::backups::Backups;
use crate::event_store::scavenging::{ScavengeOptions, ScavengeStart, Scavenger};
use crate::event_store::store_work::StoreWork;
use crate::event_store::system_projections::SystemProjections;
use crate::event_store::work_history::{WorkHistory, WorkOrigin};
use crate::kv_store::KvStore;
use crate::limits::{CONSOLE_REQUESTS_MAX, RECEIVE_BYTES_MAX};
use crate::protocol::grpc_status;
use crate::protocol::id_generator::IdGenerator;
use crate::resources::connection_registry::ConnectionRegistry;
use crate::resources::decoding_places::DecodingPlaces;
use crate::resources::group_quota::GroupQuota;
use crate::resources::inbound_quota::InboundQuota;
use crate::resources::outbound_quota::OutboundQuota;
use crate::resources::worker_times::TaskSpawner;
use crate::telemetry::access_log::AccessLog;
use crate::telemetry::call_metrics::CallMetrics;
use crate::telemetry::failed_logins::FailedLogins;
use crate::telemetry::metric_history::MetricHistory;
use crate::telemetry::otlp::telemetry_hub::TelemetryHub;

/// State that all calls of one server share.
#[derive(Debug)]
pub struct ServerContext {
    /// The event store.
    pub store: EventStore,
    /// Authorization of callers.
    pub authorizer: Authorizer,
    /// Counters of calls.
    pub call_metrics: CallMetrics,
    /// Samples of the metrics for the plots of the console.
    pub metric_history: MetricHistory,
    /// Log of failed and slow calls.
    pub access_log: Arc<AccessLog>,
    /// Counts and log of requests with invalid credentials.
    pub failed_logins: FailedLogins,
    /// Export to an OpenTelemetry collector; `None` if nothing is exported.
    pub telemetry: Option<Arc<TelemetryHub>>,
    /// Memory quota of appends.
    pub append_quota: Arc<InboundQuota>,
    /// Memory quota of partially received messages.
    pub receive_quota: Arc<InboundQuota>,
    /// Places of the messages that are decoded at the same time.
    pub decoding_places: DecodingPlaces,
    /// Memory quota of data that clients have not taken yet.
    pub outbound_quota: Arc<OutboundQuota>,
    /// Open connections.
    pub connections: Arc<ConnectionRegistry>,
    /// Maximum number of open calls on all connections together.
    pub open_calls_max: usize,
    /// Starts the tasks of connections, calls and groups.
    pub tasks: TaskSpawner,
    /// Operating system environment.
    pub env: Env,
    /// Random identifier of this start of the server.
    pub instance_id: EventId,
    /// Host and port that clients should connect to.
    pub advertise: Option<(String, u16)>,
    /// Port that the server listens on.
    pub port: u16,
    /// Whether the server encrypts connections. Otherwise a proxy may do so.
    pub is_encrypted: bool,
    /// Time limit of an append or a batch from its first part to its last.
    pub partial_append_time: Duration,
    /// State of the built-in projections, including their frozen positions.
    pub system_projections: SystemProjections,
    /// Consumer groups.
    pub group_registry: GroupRegistry,
    /// Memory quota of all consumer groups together.
    pub group_quota: Arc<GroupQuota>,
    /// Online backups of the store.
    pub backups: Backups,
    /// Continuous backups into an object store, if configured.
    pub continuous_backups: Vec<Arc<ContinuousBackup>>,
    /// Node of the replicated log that the store belongs to; `None` for a store of one machine.
    pub replica: Option<Arc<ReplicaNode>>,
    /// Key-value store, if served.
    pub kv: Option<Arc<KvStore>>,
    /// TLS of the listener; `None` if the server does not encrypt.
    pub tls: Option<Arc<Tls>>,
    /// Starts and stops scavenges.
    pub scavenger: Arc<dyn Scavenger>,
    /// Outcomes of scavenges.
    pub scavenge_history: Arc<WorkHistory>,
    /// Scavenges that a schedule starts.
    pub auto_scavenge: Arc<AutoScavenge>,
    /// Permits of console requests whose bodies are in memory.
    pub console_requests: Semaphore,
    /// Commit of the program; empty if unknown.
    pub revision: String,
    /// Becomes true when a client requests a shutdown.
    pub stop_request: watch::Sender<bool>,
    stopping: watch::Receiver<bool>,
}

impl ServerContext {
    /// Creates the context. `stop` becomes true when the server stops; after that no call may begin
    /// to wait. `port` is the port that the server listens on.
    pub fn new(
        store: EventStore,
        work: StoreWork,
        env: Env,
        config: Config,
        port: u16,
        stop: watch::Receiver<bool>,
    ) -> umbel::Result<ServerContext> {
        let mut random = [0; 16];
        env.entropy.fill(&mut random)?;
        let instance = EventId::from_random(random);
        let budget = Arc::new(InboundQuota::default());
        let Config {
            advertise,
            partial_append_time: parts_time,
            users,
            outbound_bytes_max: unread_bytes_max,
            slow_call_time: slow_time,
            revision,
            telemetry,
            replica,
            ..
        } = config;
        let is_encrypted = config.tls.is_some();
        let group_quota = Arc::new(GroupQuota::new(config.groups_bytes_max));
        let access = Authorizer::new(Arc::clone(store.acl_cache()), &env, users.is_some())?;
        let (unread, connections) =
            (Arc::new(OutboundQuota::new(unread_bytes_max)), Arc::default());
        let (calls, call_log) = (CallMetrics::default(), Arc::new(AccessLog::new(&env, slow_time)));
        let stop_request = watch::Sender::new(false);
        let StoreWork { projections, scavenger, scavenge_history, auto_scavenge, backups } = work;
        Ok(ServerContext {
            store,
            authorizer: access,
            call_metrics: calls,
            metric_history: MetricHistory::default(),
            access_log: call_log,
            failed_logins: FailedLogins::new(Arc::clone(&env.clock)),
            telemetry,
            append_quota: budget,
            receive_quota: Arc::new(InboundQuota::new(RECEIVE_BYTES_MAX)),
            decoding_places: DecodingPlaces::default(),
            outbound_quota: unread,
            connections,
            open_calls_max: config.open_calls_max,
            tasks: TaskSpawner::default(),
            env,
            instance_id: instance,
            advertise,
            port,
            is_encrypted,
            partial_append_time: parts_time,
            system_projections: projections,
            group_registry: GroupRegistry::default(),
            group_quota,
            backups,
            continuous_backups: Vec::new(),
            replica,
            kv: None,
            tls: None,
            scavenger,
            scavenge_history,
            auto_scavenge,
            console_requests: Semaphore::new(CONSOLE_REQUESTS_MAX),
            revision,
            stop_request,
            stopping: stop,
        })
    }

    /// Generates a random identifier.
    pub fn new_id(&self) -> umbel::Result<EventId> {
        let mut random = [0; 16];
        self.env.entropy.fill(&mut random)?;
        Ok(EventId::from_random(random))
    }

    /// Generates an identifier for an event that the client sent without one.
    pub fn event_id(&self) -> Result<EventId, Status> {
        self.new_id().map_err(|error| grpc_status::status(&error.into()))
    }

    /// Starts a scavenge on a blocking thread, because the start is recorded first.
    ///
    /// # Errors
    /// The errors of [`Scavenger::start`]; the server is stopping.
    pub async fn start_scavenge(
        &self,
        options: ScavengeOptions,
        origin: WorkOrigin,
    ) -> Result<ScavengeStart, Status> {
        let scavenger = Arc::clone(&self.scavenger);
        let starting = tokio::task::spawn_blocking(move || scavenger.start(options, origin)).await;
        starting.unwrap_or_else(|_| Err(grpc_status::shutting_down()))
    }

    /// Starts a backup into the backup directory, which leaves out keys and values.
    ///
    /// # Errors
    /// The errors of [`Backups::start`].
    pub fn start_backup(
        &self,
        origin: WorkOrigin,
        bytes_per_second: Option<u64>,
    ) -> Result<String, Status> {
        self.backups.start(origin, bytes_per_second, self.kv.is_some())
    }

    /// Creates the generator of identifiers for the events of one call.
    pub fn id_generator(&self) -> IdGenerator {
        IdGenerator::new(&self.env.entropy)
    }

    /// Requests a shutdown. Returns `false` if no thread listens for shutdown requests.
    pub fn request_stop(&self) -> bool {
        self.stop_request.send(true).is_ok()
    }

    /// Reason why a store of the server refuses writes; `None` if all accept writes.
    pub fn failure(&self) -> Option<String> {
        self.store.failure().or_else(|| self.kv.as_ref()?.failure())
    }

    /// Number of runs of the backup of keys and values that failed because data is damaged. The
    /// event store counts the runs of its backup itself.
    pub fn damaged_kv_runs(&self) -> u64 {
        let backups = self.continuous_backups.iter().map(|backup| backup.status());
        backups.filter(|it| it.names.label == KV_LABEL).map(|it| it.damaged_runs).sum()
    }

    /// Whether this server accepts writes: it leads, or has its store alone.
    pub fn is_leader(&self) -> bool {
        self.replica.as_ref().is_none_or(|node| node.is_leader())
    }

    /// Returns the leader elsewhere, if it is known, as an error; `Ok` if this server accepts
    /// writes, and no other one does by the lease of the leader.
    pub fn check_leader(&self) -> Result<(), Option<LeaderAddress>> {
        let Some(node) = self.replica.as_ref().filter(|node| !node.has_lease()) else {
            return Ok(());
        };
        // A node that led, or that does not lead yet, is no place to go to.
        let status = node.status();
        let leader = status.leader.filter(|leader| leader.node != node.name());
        // One that gave up its epoch ends.
        Err(leader.filter(|_| !status.has_leader_resigned))
    }

    /// Whether the server is stopping.
    pub fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Waits until the server is stopping.
    pub async fn wait_stopping(&self) {
        // An error means that the sender is gone: the server has stopped.
        let _ = self.stopping.clone().wait_for(|stop| *stop).await;
    }
}
