//! `event_store.client.projections`: views of other streams, and what can be done with them.

use prost_types::Value;

/// The service's name in paths.
pub const SERVICE: &str = "event_store.client.projections.Projections";

/// Asks to make a projection.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CreateReq {
    /// Which.
    #[prost(message, optional, tag = "1")]
    pub options: Option<CreateOptions>,
}

/// Which projection to make.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CreateOptions {
    /// How it runs, and its name.
    #[prost(oneof = "CreateMode", tags = "1, 2, 3")]
    pub mode: Option<CreateMode>,
    /// Its source.
    #[prost(string, tag = "4")]
    pub query: String,
    /// What runs it.
    #[prost(int32, tag = "5")]
    pub engine_version: i32,
}

/// How a projection runs.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum CreateMode {
    /// Once.
    #[prost(message, tag = "1")]
    OneTime(()),
    /// As long as the server does.
    #[prost(message, tag = "2")]
    Transient(Named),
    /// For ever. Its further fields mean different things to different clients; no projection is
    /// made, so nobody looks at them.
    #[prost(message, tag = "3")]
    Continuous(Named),
}

/// A name.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Named {
    /// The name.
    #[prost(string, tag = "1")]
    pub name: String,
}

/// Options of which only the projection's name counts here: those of an update, a deletion, and of
/// asking for a state or a result, of enabling, disabling and resetting. What else they say is
/// left out when they are read.
pub type NameOptions = Named;

/// A request about a projection that is named in its options.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NamedReq {
    /// Which projection.
    #[prost(message, optional, tag = "1")]
    pub options: Option<NameOptions>,
}

/// Asks what projections do.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StatisticsReq {
    /// Which ones.
    #[prost(message, optional, tag = "1")]
    pub options: Option<StatisticsOptions>,
}

/// Which projections are asked for.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StatisticsOptions {
    /// Which ones.
    #[prost(oneof = "StatisticsMode", tags = "1, 2, 3, 4, 5")]
    pub mode: Option<StatisticsMode>,
}

/// Which projections are asked for.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum StatisticsMode {
    /// The one with this name.
    #[prost(string, tag = "1")]
    Name(String),
    /// All.
    #[prost(message, tag = "2")]
    All(()),
    /// Those that run as long as the server does.
    #[prost(message, tag = "3")]
    Transient(()),
    /// Those that run for ever.
    #[prost(message, tag = "4")]
    Continuous(()),
    /// Those that run once.
    #[prost(message, tag = "5")]
    OneTime(()),
}

/// What one projection does.
#[derive(Clone, PartialEq, prost::Message)]
pub struct StatisticsResp {
    /// What it does.
    #[prost(message, optional, tag = "1")]
    pub details: Option<Details>,
}

/// What a projection does.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Details {
    /// Time it took.
    #[prost(int64, tag = "1")]
    pub core_processing_time: i64,
    /// How often it was changed.
    #[prost(int64, tag = "2")]
    pub version: i64,
    /// How often it began anew.
    #[prost(int64, tag = "3")]
    pub epoch: i64,
    /// Its name.
    #[prost(string, tag = "4")]
    pub effective_name: String,
    /// Writes that are under way.
    #[prost(int32, tag = "5")]
    pub writes_in_progress: i32,
    /// Reads that are under way.
    #[prost(int32, tag = "6")]
    pub reads_in_progress: i32,
    /// Partitions held in memory.
    #[prost(int32, tag = "7")]
    pub partitions_cached: i32,
    /// `Running` or `Stopped`.
    #[prost(string, tag = "8")]
    pub status: String,
    /// Why.
    #[prost(string, tag = "9")]
    pub state_reason: String,
    /// Its name.
    #[prost(string, tag = "10")]
    pub name: String,
    /// `Continuous`, `OneTime` or `Transient`.
    #[prost(string, tag = "11")]
    pub mode: String,
    /// How far it is.
    #[prost(string, tag = "12")]
    pub position: String,
    /// How far it is, in percent.
    #[prost(float, tag = "13")]
    pub progress: f32,
    /// How far it was when it last noted that.
    #[prost(string, tag = "14")]
    pub last_checkpoint: String,
    /// Events since it was started.
    #[prost(int64, tag = "15")]
    pub events_processed_after_restart: i64,
    /// What its checkpoint does.
    #[prost(string, tag = "16")]
    pub checkpoint_status: String,
    /// Events that wait.
    #[prost(int64, tag = "17")]
    pub buffered_events: i64,
    /// Writes that wait for those before the checkpoint.
    #[prost(int32, tag = "18")]
    pub write_pending_events_before_checkpoint: i32,
    /// Writes that wait for those after the checkpoint.
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
