//! [`Service`]: what every call of one server shares.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tonic::Status;
use umbel_env::Env;
use umbel_events::EventId;

use crate::access::Access;
use crate::backups::Backups;
use crate::budget::Budget;
use crate::call_log::CallLog;
use crate::calls::Calls;
use crate::config::Config;
use crate::failure;
use crate::gates::Gates;
use crate::group_registry::Groups;
use crate::group_room::GroupRoom;
use crate::kv_store::KvStore;
use crate::limits::RECEIVING_BYTES_MAX;
use crate::peers::Peers;
use crate::scavenging::Scavenging;
use crate::store::EventStore;
use crate::unread::Unread;

/// What every call of one server shares.
#[derive(Debug)]
pub struct Service {
    /// The store.
    pub store: EventStore,
    /// Who may do what.
    pub access: Access,
    /// How many calls came.
    pub calls: Calls,
    /// What the log is told of calls.
    pub call_log: Arc<CallLog>,
    /// What appends may hold in memory.
    pub budget: Arc<Budget>,
    /// What messages may hold that have come in part.
    pub receiving: Arc<Budget>,
    /// What was read for clients that have not taken it.
    pub unread: Arc<Unread>,
    /// The connections there are.
    pub peers: Arc<Peers>,
    /// How many calls may be open on all of them.
    pub calls_max: usize,
    /// The clock.
    pub env: Env,
    /// Chosen anew at each start.
    pub instance: EventId,
    /// The host and the port under which clients are told to reach it.
    pub advertise: Option<(String, u16)>,
    /// The port it listens on.
    pub port: u16,
    /// How long an append or a batch may take from its first part to its last.
    pub parts_time: Duration,
    /// Up to where the built-in views show what there is.
    pub gates: Gates,
    /// Groups of consumers.
    pub groups: Groups,
    /// What they may hold in memory.
    pub group_room: Arc<GroupRoom>,
    /// Copies the store while it is served.
    pub backups: Backups,
    /// Keys and values, where they are served.
    pub kv: Option<Arc<KvStore>>,
    /// Gives space back.
    pub scavenging: Arc<dyn Scavenging>,
    /// Tells whoever runs the server that a client asks it to stop.
    pub ask: watch::Sender<bool>,
    stop: watch::Receiver<bool>,
}

impl Service {
    /// `stop` becomes true once, when no call may begin to wait any more. `port` is the one that
    /// is listened on.
    pub fn new(
        store: EventStore,
        (gates, scavenging, backups): (Gates, Arc<dyn Scavenging>, Backups),
        env: Env,
        config: Config,
        port: u16,
        stop: watch::Receiver<bool>,
    ) -> umbel::Result<Service> {
        let mut random = [0; 16];
        env.entropy.fill(&mut random)?;
        let instance = EventId::from_random(random);
        let budget = Arc::new(Budget::default());
        let Config { advertise, parts_time, users, unread_bytes_max, slow_time, .. } = config;
        let group_room = Arc::new(GroupRoom::new(config.groups_bytes_max));
        let access = Access::new(Arc::clone(store.rules()), &env, users.is_some())?;
        let (unread, peers) = (Arc::new(Unread::new(unread_bytes_max)), Arc::default());
        let (calls, call_log) = (Calls::default(), Arc::new(CallLog::new(&env, slow_time)));
        let ask = watch::Sender::new(false);
        Ok(Service {
            store,
            access,
            calls,
            call_log,
            budget,
            receiving: Arc::new(Budget::new(RECEIVING_BYTES_MAX)),
            unread,
            peers,
            calls_max: config.calls_max,
            env,
            instance,
            advertise,
            port,
            parts_time,
            gates,
            groups: Groups::default(),
            group_room,
            backups,
            kv: None,
            scavenging,
            ask,
            stop,
        })
    }

    /// A new identifier for what needs one.
    pub fn new_id(&self) -> umbel::Result<EventId> {
        let mut random = [0; 16];
        self.env.entropy.fill(&mut random)?;
        Ok(EventId::from_random(random))
    }

    /// A new identifier for an event whose client left that to the server.
    pub fn event_id(&self) -> Result<EventId, Status> {
        self.new_id().map_err(|error| failure::status(&error.into()))
    }

    /// Asks whoever runs the server to stop it. `false` where nobody listens.
    pub fn ask_to_stop(&self) -> bool {
        self.ask.send(true).is_ok()
    }

    /// Why a store of the server takes no write any more, if one does not.
    pub fn failure(&self) -> Option<String> {
        self.store.failure().or_else(|| self.kv.as_ref()?.failure())
    }

    /// Whether the server is about to stop.
    pub fn is_stopping(&self) -> bool {
        *self.stop.borrow()
    }

    /// Waits until the server is about to stop.
    pub async fn stopping(&self) {
        // An error says that nobody can tell it to stop any more: it has.
        let _ = self.stop.clone().wait_for(|stop| *stop).await;
    }
}
