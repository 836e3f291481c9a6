//! `event_store.client.projections`: views of other streams, and their administration.

use prost_types::Value;

/// Name of the service in request paths.
pub const SERVICE: &str = "event_store.client.projections.Projections";

/// Request to create a projection.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CreateReq {
    /// Projection to create.
    #[prost(message, optional, tag = "1")]
    pub options: Option<CreateOptions>,
}

/// Projection to create.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CreateOptions {
    /// Mode and name.
    #[prost(oneof = "CreateMode", tags = "1, 2, 3")]
    pub mode: Option<CreateMode>,
    /// Source code of the projection.
    #[prost(string, tag = "4")]
    pub query: String,
    /// Version of the engine that runs it.
    #[prost(int32, tag = "5")]
    pub engine_version: i32,
}

/// Mode of a projection.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum CreateMode {
    /// Runs once.
    #[prost(message, tag = "1")]
    OneTime(()),
    /// Runs until the server stops.
    #[prost(message, tag = "2")]
    Transient(ProjectionName),
    /// Runs continuously. Its further fields mean different things to different clients. The server
    /// creates no projection, so no code reads them.
    #[prost(message, tag = "3")]
    Continuous(ProjectionName),
}

/// Name of a projection.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ProjectionName {
    /// Name of the projection.
    #[prost(string, tag = "1")]
    pub name: String,
}

/// Options in which only the projection's name counts. They belong to requests that update, delete,
/// enable, disable or reset a projection, or that read its state or result. Decoding skips other
/// fields.
pub type NameOptions = ProjectionName;

/// Request for one projection, named in its options.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ProjectionReq {
    /// Selected projection.
    #[prost(message, optional, tag = "1")]
    pub options: Option<NameOptions>,
}

/// Request for the state of projections.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StatisticsReq {
    /// Requested projections.
    #[prost(message, optional, tag = "1")]
    pub options: Option<StatisticsOptions>,
}

/// Selection of the requested projections.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StatisticsOptions {
    /// Scope of the request.
    #[prost(oneof = "StatisticsMode", tags = "1, 2, 3, 4, 5")]
    pub mode: Option<StatisticsMode>,
}

/// Scope of a request for statistics.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum StatisticsMode {
    /// The projection of this name.
    #[prost(string, tag = "1")]
    Name(String),
    /// All projections.
    #[prost(message, tag = "2")]
    All(()),
    /// Projections that run until the server stops.
    #[prost(message, tag = "3")]
    Transient(()),
    /// Projections that run continuously.
    #[prost(message, tag = "4")]
    Continuous(()),
    /// Projections that run once.
    #[prost(message, tag = "5")]
    OneTime(()),
}

/// State of one projection.
#[derive(Clone, PartialEq, prost::Message)]
pub struct StatisticsResp {
    /// State of the projection.
    #[prost(message, optional, tag = "1")]
    pub details: Option<Details>,
}

/// State of a projection.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Details {
    /// Processing time in milliseconds.
    #[prost(int64, tag = "1")]
    pub core_processing_time: i64,
    /// Number of updates of the definition.
    #[prost(int64, tag = "2")]
    pub version: i64,
    /// Number of restarts.
    #[prost(int64, tag = "3")]
    pub epoch: i64,
    /// Effective name of the projection.
    #[prost(string, tag = "4")]
    pub effective_name: String,
    /// Number of writes in progress.
    #[prost(int32, tag = "5")]
    pub writes_in_progress: i32,
    /// Number of reads in progress.
    #[prost(int32, tag = "6")]
    pub reads_in_progress: i32,
    /// Number of partitions in memory.
    #[prost(int32, tag = "7")]
    pub partitions_cached: i32,
    /// `Running` or `Stopped`.
    #[prost(string, tag = "8")]
    pub status: String,
    /// Reason of the state.
    #[prost(string, tag = "9")]
    pub state_reason: String,
    /// Name of the projection.
    #[prost(string, tag = "10")]
    pub name: String,
    /// `Continuous`, `OneTime` or `Transient`.
    #[prost(string, tag = "11")]
    pub mode: String,
    /// Position of the last processed event.
    #[prost(string, tag = "12")]
    pub position: String,
    /// Progress in percent.
    #[prost(float, tag = "13")]
    pub progress: f32,
    /// Position of the last checkpoint.
    #[prost(string, tag = "14")]
    pub last_checkpoint: String,
    /// Number of events processed since the last start.
    #[prost(int64, tag = "15")]
    pub events_processed_after_restart: i64,
    /// State of the checkpoint.
    #[prost(string, tag = "16")]
    pub checkpoint_status: String,
    /// Number of buffered events.
    #[prost(int64, tag = "17")]
    pub buffered_events: i64,
    /// Number of writes pending before the checkpoint.
    #[prost(int32, tag = "18")]
    pub write_pending_events_before_checkpoint: i32,
    /// Number of writes pending after the checkpoint.
    #[prost(int32, tag = "19")]
    pub write_pending_events_after_checkpoint: i32,
}

/// A state or a result.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ValueResp {
    /// The state or the result.
    #[prost(message, optional, tag = "1")]
    pub value: Option<Value>,
}
