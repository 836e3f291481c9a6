//! Gossip for clients that look for the leader: the server answers that it is the single live node
//! and the leader.

use hyper::http::uri::Authority;
use umbel_proto::gossip::{ClusterInfo, EndPoint, MemberInfo, VNodeState};
use umbel_proto::streams::read_req::UuidForm;

use crate::protocol::proto_convert;
use crate::server_context::ServerContext;

/// Ticks of 100 ns in a microsecond.
const TICKS: u64 = 10;

/// Describes the single node. `reached` is the authority of the request, under which the client can
/// reach the server again.
pub fn cluster_info(service: &ServerContext, reached: Option<&Authority>) -> ClusterInfo {
    let (address, port) = node_address(service, reached);
    let member = MemberInfo {
        instance_id: Some(proto_convert::to_uuid(service.instance_id, UuidForm::String(()))),
        time_stamp: (service.env.clock.wall_micros() * TICKS) as i64,
        state: VNodeState::Leader as i32,
        is_alive: true,
        http_end_point: Some(EndPoint { address, port: u32::from(port) }),
    };
    ClusterInfo { members: vec![member] }
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
