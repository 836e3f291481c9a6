//! Requests to create and update groups.

use crate::shared::StreamIdentifier;
use crate::streams::read_req::{self, FilterOptions, Position};

/// Request to create a group.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CreateReq {
    /// Group and its settings.
    #[prost(message, optional, tag = "1")]
    pub options: Option<CreateOptions>,
}

/// Request to update a group. An update has no filter; its other fields are those of a creation.
pub type UpdateReq = CreateReq;

/// Group and its settings.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CreateOptions {
    /// Name of the stream; only older clients set this field.
    #[prost(message, optional, tag = "1")]
    pub stream_identifier: Option<StreamIdentifier>,
    /// Name of the group.
    #[prost(string, tag = "2")]
    pub group_name: String,
    /// Settings of the group.
    #[prost(message, optional, tag = "3")]
    pub settings: Option<Settings>,
    /// Source and start of the group.
    #[prost(oneof = "GroupOrigin", tags = "4, 5")]
    pub stream_option: Option<GroupOrigin>,
}

/// Source and start of a group.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum GroupOrigin {
    /// A stream.
    #[prost(message, tag = "4")]
    Stream(read_req::StreamOptions),
    /// All events.
    #[prost(message, tag = "5")]
    All(GroupAllOptions),
}

/// Start and filter of a group of all events.
#[derive(Clone, PartialEq, prost::Message)]
pub struct GroupAllOptions {
    /// Position of the start.
    #[prost(oneof = "GroupStart", tags = "1, 2, 3")]
    pub all_option: Option<GroupStart>,
    /// Filter of the events.
    #[prost(oneof = "GroupFilter", tags = "4, 5")]
    pub filter_option: Option<GroupFilter>,
}

/// Start of a group of all events.
#[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
pub enum GroupStart {
    /// At this position.
    #[prost(message, tag = "1")]
    Position(Position),
    /// At the first event.
    #[prost(message, tag = "2")]
    Start(()),
    /// After the last existing event.
    #[prost(message, tag = "3")]
    End(()),
}

/// Filter of a group of all events.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum GroupFilter {
    /// Events that pass this filter.
    #[prost(message, tag = "4")]
    Filter(FilterOptions),
    /// All events.
    #[prost(message, tag = "5")]
    NoFilter(()),
}

/// Settings of a group.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Settings {
    /// Whether the server resolves links.
    #[prost(bool, tag = "1")]
    pub resolve_links: bool,
    /// Revision at which the group starts; only older clients set this field.
    #[prost(uint64, tag = "2")]
    pub revision: u64,
    /// Whether the server measures latencies.
    #[prost(bool, tag = "3")]
    pub extra_statistics: bool,
    /// Time after which an unacknowledged event is retried.
    #[prost(oneof = "MessageTimeout", tags = "4, 14")]
    pub message_timeout: Option<MessageTimeout>,
    /// Maximum number of retries before an event is parked.
    #[prost(int32, tag = "5")]
    pub max_retry_count: i32,
    /// Maximum delay of a checkpoint.
    #[prost(oneof = "CheckpointAfter", tags = "6, 15")]
    pub checkpoint_after: Option<CheckpointAfter>,
    /// Minimum number of events for a checkpoint.
    #[prost(int32, tag = "7")]
    pub min_checkpoint_count: i32,
    /// Number of events that force a checkpoint.
    #[prost(int32, tag = "8")]
    pub max_checkpoint_count: i32,
    /// Maximum number of consumers; no limit where it is 0.
    #[prost(int32, tag = "9")]
    pub max_subscriber_count: i32,
    /// Number of live events that the group buffers.
    #[prost(int32, tag = "10")]
    pub live_buffer_size: i32,
    /// Number of events per read.
    #[prost(int32, tag = "11")]
    pub read_batch_size: i32,
    /// Number of events that the group buffers during catch-up.
    #[prost(int32, tag = "12")]
    pub history_buffer_size: i32,
    /// Consumer strategy: which consumer receives which event; only older clients set this field.
    #[prost(enumeration = "NamedStrategy", tag = "13")]
    pub named_consumer_strategy: i32,
    /// Consumer strategy by name.
    #[prost(string, tag = "16")]
    pub consumer_strategy: String,
}

/// Time after which an unacknowledged event is retried.
#[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
pub enum MessageTimeout {
    /// In units of 100 nanoseconds.
    #[prost(int64, tag = "4")]
    Ticks(i64),
    /// In milliseconds.
    #[prost(int32, tag = "14")]
    Millis(i32),
}

/// Maximum delay of a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
pub enum CheckpointAfter {
    /// In units of 100 nanoseconds.
    #[prost(int64, tag = "6")]
    Ticks(i64),
    /// In milliseconds.
    #[prost(int32, tag = "15")]
    Millis(i32),
}

/// Consumer strategy: which consumer receives which event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum NamedStrategy {
    /// Only one consumer receives events while its buffer has space.
    DispatchToSingle = 0,
    /// Consumers receive events in turn.
    RoundRobin = 1,
    /// Each stream has one consumer.
    Pinned = 2,
}
