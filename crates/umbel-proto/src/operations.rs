//! `event_store.client.operations`: what is asked of a server by those who look after it.

/// The service's name in paths.
pub const SERVICE: &str = "event_store.client.operations.Operations";

/// Asks to begin giving back the space of what nobody can read.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct StartScavengeReq {
    /// How.
    #[prost(message, optional, tag = "1")]
    pub options: Option<StartScavengeOptions>,
}

/// How to scavenge.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct StartScavengeOptions {
    /// With how many threads.
    #[prost(int32, tag = "1")]
    pub thread_count: i32,
    /// From which file of the log on.
    #[prost(int32, tag = "2")]
    pub start_from_chunk: i32,
}

/// Asks to stop doing so.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StopScavengeReq {
    /// Which one.
    #[prost(message, optional, tag = "1")]
    pub options: Option<StopScavengeOptions>,
}

/// Which one to stop.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StopScavengeOptions {
    /// Its name.
    #[prost(string, tag = "1")]
    pub scavenge_id: String,
}

/// What became of it.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ScavengeResp {
    /// Its name.
    #[prost(string, tag = "1")]
    pub scavenge_id: String,
    /// What became of it.
    #[prost(enumeration = "ScavengeResult", tag = "2")]
    pub scavenge_result: i32,
}

/// What became of a scavenge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum ScavengeResult {
    /// It has begun.
    Started = 0,
    /// One was under way already.
    InProgress = 1,
    /// It was stopped.
    Stopped = 2,
}

/// Says how much this node wants to lead.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct SetNodePriorityReq {
    /// Higher numbers lead sooner.
    #[prost(int32, tag = "1")]
    pub priority: i32,
}
