//! `event_store.client.operations`: requests of operators to a server.

/// Name of the service in request paths.
pub const SERVICE: &str = "event_store.client.operations.Operations";

/// Request to start a scavenge, which rewrites chunks without events that no reader can see.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct StartScavengeReq {
    /// Options of the scavenge.
    #[prost(message, optional, tag = "1")]
    pub options: Option<StartScavengeOptions>,
}

/// Options of a scavenge.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct StartScavengeOptions {
    /// Number of threads.
    #[prost(int32, tag = "1")]
    pub thread_count: i32,
    /// Number of the first chunk to scavenge.
    #[prost(int32, tag = "2")]
    pub start_from_chunk: i32,
}

/// Request to stop a scavenge.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StopScavengeReq {
    /// Scavenge to stop.
    #[prost(message, optional, tag = "1")]
    pub options: Option<StopScavengeOptions>,
}

/// Selection of the scavenge to stop.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StopScavengeOptions {
    /// Id of the scavenge.
    #[prost(string, tag = "1")]
    pub scavenge_id: String,
}

/// State of a scavenge.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ScavengeResp {
    /// Id of the scavenge.
    #[prost(string, tag = "1")]
    pub scavenge_id: String,
    /// Result of the request.
    #[prost(enumeration = "ScavengeResult", tag = "2")]
    pub scavenge_result: i32,
}

/// Result of a scavenge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum ScavengeResult {
    /// The scavenge started.
    Started = 0,
    /// A scavenge is already running.
    InProgress = 1,
    /// The scavenge stopped.
    Stopped = 2,
}

/// Request to set the priority of this node in leader elections.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct SetNodePriorityReq {
    /// Priority; a node with a higher number is elected first.
    #[prost(int32, tag = "1")]
    pub priority: i32,
}
