//! Start of `umbel serve` as a node of a replicated log.
//!
//! What can be refused is refused before the directory is opened, so that a refused start creates
//! no store.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use umbel_env::{Env, Objects};
use umbel_events::{
    LeaderEnd, NodeRole, ReplicaNode, ReplicaNodeOptions, ReplicatedLog, SlotLeaderOptions, Store,
    StoreOptions,
};
use umbel_slots::{NodeClaim, SLOT_PREFIX, StoreObject};

use crate::backup_url::request_error;
use crate::errors::{CommandError, CommandResult};
use crate::events::serve::serve_args::ServeOptions;
use crate::events::serve::server_log::log_lifecycle;
use crate::replicated_log::{self, slot_error};
use crate::store_kind::is_event_store;

/// Interval of log lines while a node catches up.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);
/// Time within which a leader that stops creates slots with its last appends.
const RESIGN_TIME: Duration = Duration::from_secs(10);

/// The checked start of a node.
#[derive(Debug)]
pub struct ReplicaStart {
    env: Env,
    objects: Arc<dyn Objects>,
    object: StoreObject,
    node: String,
    is_read_only: bool,
    advertise: Option<(String, u16)>,
}

/// A node that serves.
#[derive(Debug)]
pub struct StartedReplica {
    /// The node.
    pub node: Arc<ReplicaNode>,
    /// Its store.
    pub store: Store,
}

impl ReplicaStart {
    /// Checks the object store and the options of a node; `None` without a replicated log.
    ///
    /// # Errors
    /// The URL names no replicated log or another one than `join`; the directory is empty, and the
    /// log is not, but `join` is missing; another directory has the name of the node.
    pub fn check(db: &Path, options: &ServeOptions) -> CommandResult<Option<ReplicaStart>> {
        let (Some(url), Some(node)) = (&options.store, &options.node) else { return Ok(None) };
        let env = Env::system();
        let (objects, object) = replicated_log::open(&env, url)?;
        let start = ReplicaStart {
            env,
            objects,
            object,
            node: node.clone(),
            is_read_only: options.read_only_replica,
            advertise: options.advertise.clone(),
        };
        start.check_join(db, options.join.as_deref())?;
        Ok(Some(start))
    }

    fn check_join(&self, db: &Path, join: Option<&str>) -> CommandResult<()> {
        let (location, id) = (self.objects.location(), self.object.id_text());
        if let Some(other) = join.filter(|join| *join != id) {
            return Err(CommandError::usage(format!(
                "{location} has the replicated log {id}, and --join names {other}; check the URL \
                 of --store, or name that id"
            )));
        }
        if is_event_store(db) {
            // The store compares the ids.
            return Ok(());
        }
        let slots = self.objects.list(SLOT_PREFIX, None, 1).map_err(request_error)?;
        if join.is_none() && !slots.value.objects.is_empty() {
            return Err(CommandError::usage(format!(
                "{} has no event store, and the replicated log {id} in {location} has events; if \
                 this is a new node of that log, add --join {id}; otherwise check --db and --store",
                db.display()
            )));
        }
        let claim = NodeClaim::read(&*self.objects, &*self.env.clock, &self.node);
        match claim.map_err(slot_error)? {
            Some(_) => Err(slot_error(NodeClaim::taken(&*self.objects, &self.node))),
            None => Ok(()),
        }
    }

    /// Opens the store in the directory, and starts the node. Returns once the node has all slots,
    /// and leads if it is to do so without a promotion. `address` is that of the server.
    ///
    /// # Errors
    /// The directory is not that of a node of this log, or of another node; the node ended.
    pub fn open(
        &self,
        db: &Path,
        options: StoreOptions,
        address: SocketAddr,
    ) -> CommandResult<StartedReplica> {
        let opened = self.open_node(db, options, address, |store| self.claim(store))?;
        match wait_ready(&opened.node) {
            Ok(()) => Ok(opened),
            Err(failure) => {
                // The failure says why the node does not start.
                let _ = opened.store.close();
                Err(failure)
            }
        }
    }

    /// Opens the store again, after another node replaced this one as the leader. The object store
    /// may be unreachable: the node serves the slots that it has.
    ///
    /// # Errors
    /// The directory is not that of a node of this log any more.
    pub fn open_again(
        &self,
        db: &Path,
        options: StoreOptions,
        address: SocketAddr,
    ) -> CommandResult<StartedReplica> {
        self.open_node(db, options, address, |_| Ok(()))
    }

    fn open_node(
        &self,
        db: &Path,
        options: StoreOptions,
        address: SocketAddr,
        claim: impl FnOnce(&Store) -> CommandResult<()>,
    ) -> CommandResult<StartedReplica> {
        let log = ReplicatedLog::new(&self.object);
        let (store, replication, applier) = Store::open_replica(db, options, log)?;
        if let Some(cut) = applier.moved_aside() {
            tracing::warn!(
                directory = %cut.display(),
                "records after the last recorded slot were moved aside; those in later slots are \
                 applied again, and the others were never acknowledged"
            );
        }
        let claimed = claim(&store);
        let own = || (address.ip().to_string(), address.port());
        let (host, port) = self.advertise.clone().unwrap_or_else(own);
        let leader = SlotLeaderOptions::new(self.node.clone(), host, port);
        let is_read_only = self.is_read_only;
        let options = ReplicaNodeOptions { is_read_only, ..ReplicaNodeOptions::new(leader) };
        let parts = (replication, applier);
        let objects = Arc::clone(&self.objects);
        let started = claimed.and_then(|()| {
            Ok(ReplicaNode::start(&self.env, parts, self.object, objects, options)?)
        });
        match started {
            Ok(node) => Ok(StartedReplica { node: Arc::new(node), store }),
            Err(failure) => {
                // The failure says why the node does not start.
                let _ = store.close();
                Err(failure)
            }
        }
    }

    fn claim(&self, store: &Store) -> CommandResult<()> {
        let instance = store.directory().instance_id.ok_or_else(|| {
            CommandError::System("the directory of the event store has no instance id".to_string())
        })?;
        let claim = NodeClaim { store: self.object.store, instance };
        claim.take(&*self.objects, &*self.env.clock, &self.node).map_err(slot_error)
    }
}

/// Waits until the node has all slots, and logs its progress.
fn wait_ready(node: &ReplicaNode) -> CommandResult<()> {
    loop {
        match node.wait_ready(REPORT_INTERVAL) {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(end) => {
                return Err(CommandError::System(format!("this node cannot start: {end}")));
            }
        }
        let status = node.status();
        let progress = match status.role {
            NodeRole::Candidate => format!("begins an epoch after slot {}", status.slot),
            _ => format!("applied slot {}, {} to go", status.slot, status.slots_behind),
        };
        match status.failure {
            Some(failure) => log_lifecycle(&format!("this node waits: {failure}")),
            None => log_lifecycle(&format!("this node catches up: {progress}")),
        }
    }
}

impl StartedReplica {
    /// Ends the node and closes its store. A leader first creates slots with its last appends.
    /// Returns why the node had ended before as a leader that was replaced, if it had.
    ///
    /// # Errors
    /// The node had ended for another reason, or a failed close.
    pub fn stop(self) -> CommandResult<Option<LeaderEnd>> {
        if let Some(end) = self.node.end() {
            // The store has ended with the node.
            let _ = self.store.close();
            return match end {
                LeaderEnd::Deposed | LeaderEnd::Stale => Ok(Some(end)),
                end => Err(CommandError::System(format!(
                    "this node serves no more: {end}; remove the cause, and start it again: it \
                     follows if another node leads"
                ))),
            };
        }
        self.node.resign(RESIGN_TIME);
        // A leader has ended its store with its last slot.
        match self.store.close() {
            Err(umbel_events::Error::Store(umbel::Error::Closed)) | Ok(()) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}
