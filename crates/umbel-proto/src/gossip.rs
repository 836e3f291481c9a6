//! `event_store.client.gossip`: the nodes of a cluster. Clients request the nodes to find the
//! leader.

pub use crate::generated::event_store::client::gossip::member_info::VNodeState;
pub use crate::generated::event_store::client::gossip::{ClusterInfo, EndPoint, MemberInfo};

/// Name of the service in request paths.
pub const SERVICE: &str = "event_store.client.gossip.Gossip";
