//! `event_store.client.gossip`: the nodes of a cluster. Clients request them to find the leader.

use crate::shared::Uuid;

/// Name of the service in request paths.
pub const SERVICE: &str = "event_store.client.gossip.Gossip";

/// The nodes of the cluster.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ClusterInfo {
    /// One entry for each node.
    #[prost(message, repeated, tag = "1")]
    pub members: Vec<MemberInfo>,
}

/// Address of a node.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct EndPoint {
    /// Host name or IP address.
    #[prost(string, tag = "1")]
    pub address: String,
    /// TCP port.
    #[prost(uint32, tag = "2")]
    pub port: u32,
}

/// State and address of a node.
#[derive(Clone, PartialEq, prost::Message)]
pub struct MemberInfo {
    /// Instance id, which is new at each start.
    #[prost(message, optional, tag = "1")]
    pub instance_id: Option<Uuid>,
    /// Time of the last update, in ticks of 100 ns since 1970.
    #[prost(int64, tag = "2")]
    pub time_stamp: i64,
    /// State of the node.
    #[prost(enumeration = "VNodeState", tag = "3")]
    pub state: i32,
    /// Whether the node is reachable.
    #[prost(bool, tag = "4")]
    pub is_alive: bool,
    /// Address for client connections.
    #[prost(message, optional, tag = "5")]
    pub http_end_point: Option<EndPoint>,
}

/// State of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum VNodeState {
    /// Starting.
    Initializing = 0,
    /// Looking for the leader.
    DiscoverLeader = 1,
    /// Unknown.
    Unknown = 2,
    /// About to replicate.
    PreReplica = 3,
    /// Replicating the missing events.
    CatchingUp = 4,
    /// Has all events but does not vote.
    Clone = 5,
    /// Follower: has all events and votes.
    Follower = 6,
    /// About to become the leader.
    PreLeader = 7,
    /// Leader: accepts writes.
    Leader = 8,
    /// Manager node without data.
    Manager = 9,
    /// Shutting down.
    ShuttingDown = 10,
    /// Shut down.
    Shutdown = 11,
    /// Read-only replica without a leader.
    ReadOnlyLeaderless = 12,
    /// Read-only replica that is about to replicate.
    PreReadOnlyReplica = 13,
    /// Read-only replica.
    ReadOnlyReplica = 14,
    /// Leader that resigns.
    ResigningLeader = 15,
}
