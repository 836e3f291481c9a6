//! `event_store.client.operations`: requests of operators to a server.

use crate::generated::event_store::client::operations as package;

pub use package::scavenge_resp::ScavengeResult;
pub use package::start_scavenge_req::Options as StartScavengeOptions;
pub use package::stop_scavenge_req::Options as StopScavengeOptions;
pub use package::{ScavengeResp, SetNodePriorityReq, StartScavengeReq, StopScavengeReq};

/// Name of the service in request paths.
pub const SERVICE: &str = "event_store.client.operations.Operations";
