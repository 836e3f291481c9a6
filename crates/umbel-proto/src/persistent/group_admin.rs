//! Requests to delete, describe and list groups, and to replay parked events.

use crate::shared::StreamIdentifier;

/// Request to delete a group.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DeleteReq {
    /// Group to delete.
    #[prost(message, optional, tag = "1")]
    pub options: Option<DeleteOptions>,
}

/// Selection of the group to delete.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DeleteOptions {
    /// Source of the group.
    #[prost(oneof = "DeleteStreamOption", tags = "1, 3")]
    pub stream_option: Option<DeleteStreamOption>,
    /// Name of the group.
    #[prost(string, tag = "2")]
    pub group_name: String,
}

/// Source of the group to delete.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum DeleteStreamOption {
    /// A stream.
    #[prost(message, tag = "1")]
    Stream(StreamIdentifier),
    /// All events.
    #[prost(message, tag = "3")]
    All(()),
}

/// Request for the state of a group.
#[derive(Clone, PartialEq, prost::Message)]
pub struct GetInfoReq {
    /// Requested group.
    #[prost(message, optional, tag = "1")]
    pub options: Option<GetInfoOptions>,
}

/// Selection of the requested group.
#[derive(Clone, PartialEq, prost::Message)]
pub struct GetInfoOptions {
    /// Source of the group.
    #[prost(oneof = "GetInfoStreamOption", tags = "1, 2")]
    pub stream_option: Option<GetInfoStreamOption>,
    /// Name of the group.
    #[prost(string, tag = "3")]
    pub group_name: String,
}

/// Source of a group.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum GetInfoStreamOption {
    /// A stream.
    #[prost(message, tag = "1")]
    Stream(StreamIdentifier),
    /// All events.
    #[prost(message, tag = "2")]
    All(()),
}

/// State of the requested group.
#[derive(Clone, PartialEq, prost::Message)]
pub struct GetInfoResp {
    /// State.
    #[prost(message, optional, tag = "1")]
    pub subscription_info: Option<SubscriptionInfo>,
}

/// Request to replay parked events.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ReplayParkedReq {
    /// Group and number of events.
    #[prost(message, optional, tag = "1")]
    pub options: Option<ReplayParkedOptions>,
}

/// Selection of the group and of the events to replay.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ReplayParkedOptions {
    /// Name of the group.
    #[prost(string, tag = "1")]
    pub group_name: String,
    /// Source of the group.
    #[prost(oneof = "ReplayStreamOption", tags = "2, 3")]
    pub stream_option: Option<ReplayStreamOption>,
    /// End of the replay.
    #[prost(oneof = "StopAt", tags = "4, 5")]
    pub stop_at_option: Option<StopAt>,
}

/// Source of the group whose events are replayed.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum ReplayStreamOption {
    /// A stream.
    #[prost(message, tag = "2")]
    Stream(StreamIdentifier),
    /// All events.
    #[prost(message, tag = "3")]
    All(()),
}

/// End of a replay.
#[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
pub enum StopAt {
    /// Only events before this revision of the parked stream.
    #[prost(int64, tag = "4")]
    Revision(i64),
    /// All parked events.
    #[prost(message, tag = "5")]
    NoLimit(()),
}

/// Request for the list of groups.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ListReq {
    /// Requested groups.
    #[prost(message, optional, tag = "1")]
    pub options: Option<ListOptions>,
}

/// Selection of the requested groups.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ListOptions {
    /// Scope of the list.
    #[prost(oneof = "ListOption", tags = "1, 2")]
    pub list_option: Option<ListOption>,
}

/// Scope of a list of groups.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum ListOption {
    /// All groups.
    #[prost(message, tag = "1")]
    AllSubscriptions(()),
    /// Groups of one stream, or of all events.
    #[prost(message, tag = "2")]
    ForStream(ListStream),
}

/// Source of the requested groups.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ListStream {
    /// Stream or all events.
    #[prost(oneof = "GetInfoStreamOption", tags = "1, 2")]
    pub stream_option: Option<GetInfoStreamOption>,
}

/// List of groups.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ListResp {
    /// State of each group.
    #[prost(message, repeated, tag = "1")]
    pub subscriptions: Vec<SubscriptionInfo>,
}

/// State of a group.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SubscriptionInfo {
    /// Source of the group: stream name or `$all`.
    #[prost(string, tag = "1")]
    pub event_source: String,
    /// Name of the group.
    #[prost(string, tag = "2")]
    pub group_name: String,
    /// `Live`, or another state.
    #[prost(string, tag = "3")]
    pub status: String,
    /// Connected consumers.
    #[prost(message, repeated, tag = "4")]
    pub connections: Vec<ConnectionInfo>,
    /// Events processed per second, on average.
    #[prost(int32, tag = "5")]
    pub average_per_second: i32,
    /// Number of events sent to consumers.
    #[prost(int64, tag = "6")]
    pub total_items: i64,
    /// Number of events sent since the last request.
    #[prost(int64, tag = "7")]
    pub count_since_last_measurement: i64,
    /// Position of the stored checkpoint.
    #[prost(string, tag = "8")]
    pub last_checkpointed_event_position: String,
    /// Position of the last event read.
    #[prost(string, tag = "9")]
    pub last_known_event_position: String,
    /// Whether the server resolves links.
    #[prost(bool, tag = "10")]
    pub resolve_link_tos: bool,
    /// Start of the subscription.
    #[prost(string, tag = "11")]
    pub start_from: String,
    /// Time in milliseconds after which an unacknowledged event is retried.
    #[prost(int32, tag = "12")]
    pub message_timeout_milliseconds: i32,
    /// Whether the server measures latencies.
    #[prost(bool, tag = "13")]
    pub extra_statistics: bool,
    /// Maximum number of retries before an event is parked.
    #[prost(int32, tag = "14")]
    pub max_retry_count: i32,
    /// Number of live events that the group buffers.
    #[prost(int32, tag = "15")]
    pub live_buffer_size: i32,
    /// Number of events that the group buffers during catch-up.
    #[prost(int32, tag = "16")]
    pub buffer_size: i32,
    /// Number of events per read.
    #[prost(int32, tag = "17")]
    pub read_batch_size: i32,
    /// Maximum delay of a checkpoint in milliseconds.
    #[prost(int32, tag = "18")]
    pub check_point_after_milliseconds: i32,
    /// Minimum number of events for a checkpoint.
    #[prost(int32, tag = "19")]
    pub min_check_point_count: i32,
    /// Number of events that force a checkpoint.
    #[prost(int32, tag = "20")]
    pub max_check_point_count: i32,
    /// Number of buffered events.
    #[prost(int32, tag = "21")]
    pub read_buffer_count: i32,
    /// Number of live events among them.
    #[prost(int64, tag = "22")]
    pub live_buffer_count: i64,
    /// Number of events that wait for a retry.
    #[prost(int32, tag = "23")]
    pub retry_buffer_count: i32,
    /// Number of events in flight.
    #[prost(int32, tag = "24")]
    pub total_in_flight_messages: i32,
    /// Number of events sent and not acknowledged.
    #[prost(int32, tag = "25")]
    pub outstanding_messages_count: i32,
    /// Consumer strategy: which consumer receives which event.
    #[prost(string, tag = "26")]
    pub named_consumer_strategy: String,
    /// Maximum number of consumers.
    #[prost(int32, tag = "27")]
    pub max_subscriber_count: i32,
    /// Number of parked events.
    #[prost(int64, tag = "28")]
    pub parked_message_count: i64,
}

/// State of a consumer.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ConnectionInfo {
    /// Address of the consumer.
    #[prost(string, tag = "1")]
    pub from: String,
    /// User that connected.
    #[prost(string, tag = "2")]
    pub username: String,
    /// Events sent to the consumer per second, on average.
    #[prost(int32, tag = "3")]
    pub average_items_per_second: i32,
    /// Number of events sent to the consumer.
    #[prost(int64, tag = "4")]
    pub total_items: i64,
    /// Number of events sent since the last request.
    #[prost(int64, tag = "5")]
    pub count_since_last_measurement: i64,
    /// Measured values.
    #[prost(message, repeated, tag = "6")]
    pub observed_measurements: Vec<Measurement>,
    /// Free slots for events in flight.
    #[prost(int32, tag = "7")]
    pub available_slots: i32,
    /// Number of events in flight.
    #[prost(int32, tag = "8")]
    pub in_flight_messages: i32,
    /// Name that the client gave the connection.
    #[prost(string, tag = "9")]
    pub connection_name: String,
}

/// One measured value.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Measurement {
    /// Name of the value.
    #[prost(string, tag = "1")]
    pub key: String,
    /// Measured value.
    #[prost(int64, tag = "2")]
    pub value: i64,
}
