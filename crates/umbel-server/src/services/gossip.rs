//! Gossip for clients that look for the leader. A server without a replicated log answers that it
//! is the single live node and the leader.

use hyper::http::uri::Authority;
use umbel_events::EventId;
use umbel_proto::gossip::{ClusterInfo, EndPoint, MemberInfo, VNodeState};
use umbel_proto::streams::read_req::UuidForm;

use crate::protocol::proto_convert;
use crate::server_context::ServerContext;

/// Ticks of 100 ns in a microsecond.
const TICKS: u64 = 10;

/// A node as its gossip describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GossipMember {
    /// Id of the start of the node; of another node an id made from its name.
    pub instance_id: EventId,
    /// State, which clients choose by.
    pub state: VNodeState,
    /// Whether the node is reachable as far as this node knows.
    pub is_alive: bool,
    /// Host and port for clients.
    pub address: (String, u16),
}

/// Describes the nodes. `reached` is the authority of the request, under which the client can reach
/// the server again.
pub fn cluster_info(service: &ServerContext, reached: Option<&Authority>) -> ClusterInfo {
    let time_stamp = (service.env.clock.wall_micros() * TICKS) as i64;
    let info = |member: GossipMember| {
        let (address, port) = member.address;
        MemberInfo {
            instance_id: Some(proto_convert::to_uuid(member.instance_id, UuidForm::String(()))),
            time_stamp,
            state: member.state as i32,
            is_alive: member.is_alive,
            http_end_point: Some(EndPoint { address, port: u32::from(port) }),
        }
    };
    ClusterInfo { members: members(service, reached).into_iter().map(info).collect() }
}

/// Returns this node, and the leader that it follows if it knows one. Nodes do not know their
/// followers.
pub fn members(service: &ServerContext, reached: Option<&Authority>) -> Vec<GossipMember> {
    let own = GossipMember {
        instance_id: service.instance_id,
        state: own_state(service),
        is_alive: true,
        address: node_address(service, reached),
    };
    let mut members = vec![own];
    let followed = service.replica.as_ref().filter(|node| !node.is_leader());
    if let Some(node) = followed {
        let status = node.status();
        let is_alive = status.is_leader_alive;
        members.extend(status.leader.filter(|leader| leader.node != node.name()).map(|leader| {
            let mut id = [0; 16];
            id.iter_mut().zip(leader.node.bytes()).for_each(|(to, byte)| *to = byte);
            let (instance_id, state) = (EventId(id), VNodeState::Leader);
            GossipMember { instance_id, state, is_alive, address: (leader.host, leader.port) }
        }));
    }
    members
}

/// State of this node.
pub fn own_state(service: &ServerContext) -> VNodeState {
    match &service.replica {
        Some(node) if node.is_leader() => VNodeState::Leader,
        Some(node) if node.is_read_only() => VNodeState::ReadOnlyReplica,
        Some(_) => VNodeState::Follower,
        None => VNodeState::Leader,
    }
}

/// Returns host and port under which the client can reach the node again.
pub fn node_address(service: &ServerContext, reached: Option<&Authority>) -> (String, u16) {
    match (&service.advertise, reached) {
        (Some((host, port)), _) => (host.clone(), *port),
        (None, Some(authority)) => {
            let host = authority.host().trim_start_matches('[').trim_end_matches(']');
            (host.to_string(), authority.port_u16().unwrap_or(service.port))
        }
        (None, None) => ("localhost".to_string(), service.port),
    }
}
