//! `event_store.client.persistent_subscriptions`: consumer groups. Their consumers share the
//! events of a stream or of all, and acknowledge processed events.
//!
//! Messages with the same fields as in reads have the same type.

mod group_admin;
mod group_settings;

use crate::shared::{StreamIdentifier, Uuid};
use crate::streams::read_req::UuidOption;
use crate::streams::read_resp::{EventPosition, RecordedEvent};

pub use crate::streams::read_resp::SubscriptionConfirmation;
pub use group_admin::{
    ConnectionInfo, DeleteOptions, DeleteReq, DeleteStreamOption, GetInfoOptions, GetInfoReq,
    GetInfoResp, GetInfoStreamOption, ListOption, ListOptions, ListReq, ListResp, ListStream,
    Measurement, ReplayParkedOptions, ReplayParkedReq, ReplayStreamOption, StopAt,
    SubscriptionInfo,
};
pub use group_settings::{
    CheckpointAfter, CreateOptions, CreateReq, GroupAllOptions, GroupFilter, GroupOrigin,
    GroupStart, MessageTimeout, NamedStrategy, Settings, UpdateReq,
};

/// Name of the service in request paths.
pub const SERVICE: &str = "event_store.client.persistent_subscriptions.PersistentSubscriptions";

/// Message of a consumer: its options once, then acks and nacks.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ReadReq {
    /// Content of the message.
    #[prost(oneof = "ReadReqContent", tags = "1, 2, 3")]
    pub content: Option<ReadReqContent>,
}

/// Kinds of messages of a consumer.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum ReadReqContent {
    /// Joins a group.
    #[prost(message, tag = "1")]
    Options(ReadOptions),
    /// Acknowledges events.
    #[prost(message, tag = "2")]
    Ack(Ack),
    /// Reports events that the consumer did not process.
    #[prost(message, tag = "3")]
    Nack(Nack),
}

/// Group that a consumer joins, and its options.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ReadOptions {
    /// Source of the group.
    #[prost(oneof = "ReadStreamOption", tags = "1, 5")]
    pub stream_option: Option<ReadStreamOption>,
    /// Name of the group.
    #[prost(string, tag = "2")]
    pub group_name: String,
    /// Maximum number of events in flight.
    #[prost(int32, tag = "3")]
    pub buffer_size: i32,
    /// Form of the identifiers in responses.
    #[prost(message, optional, tag = "4")]
    pub uuid_option: Option<UuidOption>,
}

/// Source of the group that a consumer joins.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum ReadStreamOption {
    /// A stream.
    #[prost(message, tag = "1")]
    Stream(StreamIdentifier),
    /// All events.
    #[prost(message, tag = "5")]
    All(()),
}

/// Ack: the consumer processed these events.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Ack {
    /// Id of the subscription.
    #[prost(bytes = "vec", tag = "1")]
    pub id: Vec<u8>,
    /// Ids of the events; for resolved links, ids of the links.
    #[prost(message, repeated, tag = "2")]
    pub ids: Vec<Uuid>,
}

/// Nack: the consumer did not process these events.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Nack {
    /// Id of the subscription.
    #[prost(bytes = "vec", tag = "1")]
    pub id: Vec<u8>,
    /// Ids of the events; for resolved links, ids of the links.
    #[prost(message, repeated, tag = "2")]
    pub ids: Vec<Uuid>,
    /// Action for the events.
    #[prost(enumeration = "NackAction", tag = "3")]
    pub action: i32,
    /// Reason of the consumer.
    #[prost(string, tag = "4")]
    pub reason: String,
}

/// Action for events that a consumer did not process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum NackAction {
    /// The consumer chose no action.
    Unknown = 0,
    /// Park the events.
    Park = 1,
    /// Retry the events.
    Retry = 2,
    /// Skip the events.
    Skip = 3,
    /// Stop the consumer.
    Stop = 4,
}

/// Message to a consumer.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ReadResp {
    /// Content of the message.
    #[prost(oneof = "ReadRespContent", tags = "1, 2")]
    pub content: Option<ReadRespContent>,
}

/// Kinds of messages to a consumer.
#[derive(Clone, PartialEq, prost::Oneof)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly every answer is an event; a box would be one more allocation for each"
)]
pub enum ReadRespContent {
    /// An event of the subscription.
    #[prost(message, tag = "1")]
    Event(ReadRespEvent),
    /// The consumer joined the group.
    #[prost(message, tag = "2")]
    Confirmation(SubscriptionConfirmation),
}

/// An event in flight to a consumer.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ReadRespEvent {
    /// The event; `None` where a link points to a missing event.
    #[prost(message, optional, tag = "1")]
    pub event: Option<RecordedEvent>,
    /// The link that led to the event.
    #[prost(message, optional, tag = "2")]
    pub link: Option<RecordedEvent>,
    /// Position of the event in the event log.
    #[prost(oneof = "EventPosition", tags = "3, 4")]
    pub position: Option<EventPosition>,
    /// Number of earlier deliveries.
    #[prost(oneof = "RetryCount", tags = "5, 6")]
    pub count: Option<RetryCount>,
}

/// Number of earlier deliveries of an event.
#[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
pub enum RetryCount {
    /// This number.
    #[prost(int32, tag = "5")]
    Times(i32),
    /// Unknown.
    #[prost(message, tag = "6")]
    Unknown(()),
}
