//! `event_store.client.gossip`: which nodes there are, asked by clients that look for the leader.

use crate::shared::Uuid;

/// The service's name in paths.
pub const SERVICE: &str = "event_store.client.gossip.Gossip";

/// The nodes.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ClusterInfo {
    /// One entry a node.
    #[prost(message, repeated, tag = "1")]
    pub members: Vec<MemberInfo>,
}

/// Where a node can be reached.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct EndPoint {
    /// A name or an address.
    #[prost(string, tag = "1")]
    pub address: String,
    /// A port.
    #[prost(uint32, tag = "2")]
    pub port: u32,
}

/// A node.
#[derive(Clone, PartialEq, prost::Message)]
pub struct MemberInfo {
    /// Chosen anew at each start.
    #[prost(message, optional, tag = "1")]
    pub instance_id: Option<Uuid>,
    /// When this was last known, in ticks of 100 ns since 1970.
    #[prost(int64, tag = "2")]
    pub time_stamp: i64,
    /// What it is doing.
    #[prost(enumeration = "VNodeState", tag = "3")]
    pub state: i32,
    /// Whether it answers.
    #[prost(bool, tag = "4")]
    pub is_alive: bool,
    /// Where it answers.
    #[prost(message, optional, tag = "5")]
    pub http_end_point: Option<EndPoint>,
}

/// What a node is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum VNodeState {
    /// It starts.
    Initializing = 0,
    /// It looks for the leader.
    DiscoverLeader = 1,
    /// Nobody knows.
    Unknown = 2,
    /// It is about to copy.
    PreReplica = 3,
    /// It copies what it lacks.
    CatchingUp = 4,
    /// It has everything but does not vote.
    Clone = 5,
    /// It has everything and votes.
    Follower = 6,
    /// It is about to lead.
    PreLeader = 7,
    /// It takes the writes.
    Leader = 8,
    /// It only manages.
    Manager = 9,
    /// It stops.
    ShuttingDown = 10,
    /// It has stopped.
    Shutdown = 11,
    /// It may be read and knows no leader.
    ReadOnlyLeaderless = 12,
    /// It is about to copy, to be read only.
    PreReadOnlyReplica = 13,
    /// It may be read only.
    ReadOnlyReplica = 14,
    /// It hands the lead over.
    ResigningLeader = 15,
}
