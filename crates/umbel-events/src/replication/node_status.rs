//! [`NodeStatus`]: the state of a node of a replicated log for operators.

use std::time::Duration;

/// Address of the leader of a replicated log, as the slot that began its epoch states it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaderAddress {
    /// Name of the node.
    pub node: String,
    /// Host for clients.
    pub host: String,
    /// Port at this host.
    pub port: u16,
}

/// Role of a node of a replicated log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeRole {
    /// The node applies the slots of others, and accepts no writes.
    Follower,
    /// The node begins an epoch.
    Candidate,
    /// The node writes the slots.
    Leader,
    /// The node does neither any more. Its process is to end.
    Ended,
}

impl NodeRole {
    /// Name of the role in reports.
    pub fn name(self) -> &'static str {
        match self {
            NodeRole::Follower => "follower",
            NodeRole::Candidate => "candidate",
            NodeRole::Leader => "leader",
            NodeRole::Ended => "ended",
        }
    }
}

/// State of a node for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeStatus {
    /// Name of the node.
    pub node: String,
    /// Id of the replicated log, as text.
    pub log: String,
    /// Location of the object store with the slots.
    pub store: String,
    /// Role of the node.
    pub role: NodeRole,
    /// Whether the node leads only after a promotion.
    pub is_read_only: bool,
    /// Epoch of the last slot that the node applied or created.
    pub epoch: u64,
    /// Number of this slot.
    pub slot: u64,
    /// Later slots, as far as the node knows. It counts up to 1,000 of them.
    pub slots_behind: u64,
    /// Time since the object store last answered as it should; `None` before the first answer.
    pub contact_age: Option<Duration>,
    /// Bytes of the event log that no slot has; 0 while the node does not lead.
    pub bytes_not_in_slots: u64,
    /// The leader of the epoch; `None` before the first one, or while it is not known.
    pub leader: Option<LeaderAddress>,
    /// Whether the leader created a slot within the time after which followers count it as dead,
    /// and did not give up its epoch.
    pub is_leader_alive: bool,
    /// Whether the leader gave up its epoch, and no other one is known.
    pub has_leader_resigned: bool,
    /// The last failed request since the last answer.
    pub failure: Option<String>,
}
