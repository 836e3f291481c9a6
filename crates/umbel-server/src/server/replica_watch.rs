//! Watches the node of a replicated log: logs its role, brings what the server read from the store
//! up to date while it follows, and stops the server once the node has ended.
//!
//! A node that led and leads no more has ended its store: all its waits have failed. The server
//! stops, and the next one opens the store as a follower.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use umbel_events::{NodeRole, NodeStatus, ReplicaNode, StreamState};

use crate::access_control::users;
use crate::server_context::ServerContext;

/// Interval of the checks.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// Result of the last check.
#[derive(Debug, Default)]
struct LastCheck {
    /// Role and epoch.
    role: Option<(NodeRole, u64)>,
    /// The newest visible event.
    position: u64,
    /// The last failed request, and the number of checks in a row that saw one.
    failure: Option<String>,
    failed_checks: u32,
    /// Whether the leader that the node follows was lost.
    has_lost_leader: bool,
}

/// Checks in a row with a failed request, after which an outage is logged.
const OUTAGE_CHECKS: u32 = 5;

/// Watches the node until the server stops. Without a node it ends at once.
pub async fn watch(service: Arc<ServerContext>, mut stopped: watch::Receiver<bool>) {
    let Some(node) = service.replica.clone() else { return };
    let mut last = LastCheck::default();
    loop {
        if let Some(end) = node.end() {
            tracing::error!(
                node = node.name(),
                reason = %end,
                failure = last.failure,
                "this node serves its open store no more, and the server stops"
            );
            // A server that is embedded in a program stops with it.
            service.request_stop();
            return;
        }
        check(&service, &node, &mut last).await;
        tokio::select! {
            _ = stopped.wait_for(|stopped| *stopped) => return,
            () = tokio::time::sleep(CHECK_INTERVAL) => {}
        }
    }
}

async fn check(service: &Arc<ServerContext>, node: &ReplicaNode, last: &mut LastCheck) {
    let status = node.status();
    let role = (status.role, status.epoch);
    let was_leading = last.role.is_some_and(|(role, _)| role == NodeRole::Leader);
    if last.role.replace(role) != Some(role) {
        log_role(&status);
    }
    log_outages(&status, last);
    if was_leading {
        return;
    }
    let position = service.store.visible_position();
    let has_led_since = status.role == NodeRole::Leader;
    if position == last.position && !has_led_since {
        return;
    }
    last.position = position;
    refresh(service).await;
    if has_led_since && service.authorizer.has_users() {
        check_users(service).await;
    }
}

/// Reads again what other calls of a server keep in memory, and what the leader changes.
async fn refresh(service: &ServerContext) {
    if let Err(error) = service.system_projections.reload(&service.store).await {
        tracing::warn!(%error, "the stopped views could not be read again");
    }
    service.group_registry.state.lock().await.configs = None;
}

/// Logs the beginning and the end of an outage of the object store, and of the leader.
fn log_outages(status: &NodeStatus, last: &mut LastCheck) {
    let NodeStatus { node, store, slot, .. } = status;
    match &status.failure {
        Some(failure) => {
            last.failed_checks = last.failed_checks.saturating_add(1);
            if last.failed_checks == OUTAGE_CHECKS {
                tracing::warn!(node, store, slot, failure, "the object store fails this node");
            }
            last.failure = Some(failure.clone());
        }
        None => {
            if last.failed_checks >= OUTAGE_CHECKS {
                tracing::info!(node, store, slot, "the object store answers this node again");
            }
            (last.failed_checks, last.failure) = (0, None);
        }
    }
    let is_lost = status.role == NodeRole::Follower && status.epoch > 0 && !status.is_leader_alive;
    if is_lost && !last.has_lost_leader {
        let leader = status.leader.as_ref().map(|leader| leader.node.as_str());
        match status.has_leader_resigned {
            true => tracing::warn!(node, leader, slot, "the leader gave up its epoch"),
            false => tracing::warn!(node, leader, slot, "the leader creates no slots"),
        }
    }
    last.has_lost_leader = is_lost;
}

fn log_role(status: &NodeStatus) {
    let NodeStatus { node, epoch, slot, .. } = status;
    match (status.role, &status.leader) {
        (NodeRole::Leader, _) => tracing::info!(node, epoch, slot, "this node leads"),
        (NodeRole::Candidate, _) => tracing::info!(node, epoch, slot, "this node begins an epoch"),
        (NodeRole::Follower, Some(leader)) => tracing::info!(
            node,
            epoch,
            slot,
            leader = leader.node,
            host = leader.host,
            port = leader.port,
            "this node follows; `umbel promote` makes it the leader"
        ),
        (NodeRole::Follower, None) => tracing::info!(
            node,
            epoch,
            slot,
            "this node follows, and no node has led yet; `umbel promote` makes it the leader"
        ),
        (NodeRole::Ended, _) => {}
    }
}

/// Warns about a log without users, whose former leader served every client.
async fn check_users(service: &ServerContext) {
    let stream = users::user_stream(users::ADMIN_LOGIN);
    let state = service.store.blocking(move |store| store.stream_state(&stream)).await;
    if matches!(state, Ok(StreamState::Missing)) {
        tracing::warn!(
            "the replicated log has no users, so every login fails; start this server again, which \
             creates the first users"
        );
    }
}
