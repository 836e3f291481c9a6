//! `event_store.client.persistent_subscriptions`: groups of consumers that share the events of a
//! stream or of all, and tell which of them are done.
//!
//! What has the same fields as in reads is the same type.

mod about;
mod create;

use crate::shared::{StreamIdentifier, Uuid};
use crate::streams::read_req::UuidOption;
use crate::streams::read_resp::{EventPosition, RecordedEvent};

pub use crate::streams::read_resp::SubscriptionConfirmation;
pub use about::{
    ConnectionInfo, DeleteOptions, DeleteReq, DeletedStream, GetInfoOptions, GetInfoReq,
    GetInfoResp, ListOption, ListOptions, ListReq, ListResp, ListStream, ListedStream, Measurement,
    ReplayParkedOptions, ReplayParkedReq, ReplayedStream, StopAt, SubscriptionInfo,
};
pub use create::{
    CheckpointAfter, CreateOptions, CreateReq, GroupAllOptions, GroupFilter, GroupOrigin,
    GroupStart, MessageTimeout, NamedStrategy, Settings, UpdateReq,
};

/// The service's name in paths.
pub const SERVICE: &str = "event_store.client.persistent_subscriptions.PersistentSubscriptions";

/// What a consumer sends: its options once, then what became of events.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ReadReq {
    /// One of the three.
    #[prost(oneof = "Said", tags = "1, 2, 3")]
    pub content: Option<Said>,
}

/// What a consumer says.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Said {
    /// Which group it joins.
    #[prost(message, tag = "1")]
    Options(ReadOptions),
    /// These events are done.
    #[prost(message, tag = "2")]
    Ack(Ack),
    /// These are not.
    #[prost(message, tag = "3")]
    Nack(Nack),
}

/// Which group a consumer joins.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ReadOptions {
    /// What the group is of.
    #[prost(oneof = "JoinedStream", tags = "1, 5")]
    pub stream_option: Option<JoinedStream>,
    /// The group's name.
    #[prost(string, tag = "2")]
    pub group_name: String,
    /// How many events may be on the way.
    #[prost(int32, tag = "3")]
    pub buffer_size: i32,
    /// In which form identifiers are answered.
    #[prost(message, optional, tag = "4")]
    pub uuid_option: Option<UuidOption>,
}

/// What the group is of that a consumer joins.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum JoinedStream {
    /// A stream.
    #[prost(message, tag = "1")]
    Stream(StreamIdentifier),
    /// All events.
    #[prost(message, tag = "5")]
    All(()),
}

/// These events are done.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Ack {
    /// Of the subscription.
    #[prost(bytes = "vec", tag = "1")]
    pub id: Vec<u8>,
    /// The events; where they came through links, the links.
    #[prost(message, repeated, tag = "2")]
    pub ids: Vec<Uuid>,
}

/// These events are not done.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Nack {
    /// Of the subscription.
    #[prost(bytes = "vec", tag = "1")]
    pub id: Vec<u8>,
    /// The events; where they came through links, the links.
    #[prost(message, repeated, tag = "2")]
    pub ids: Vec<Uuid>,
    /// What to do with them.
    #[prost(enumeration = "NackAction", tag = "3")]
    pub action: i32,
    /// Why.
    #[prost(string, tag = "4")]
    pub reason: String,
}

/// What to do with events that are not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum NackAction {
    /// The client does not say.
    Unknown = 0,
    /// Put aside.
    Park = 1,
    /// Send again.
    Retry = 2,
    /// Leave out.
    Skip = 3,
    /// The consumer stops.
    Stop = 4,
}

/// What a consumer is sent.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ReadResp {
    /// One of the two.
    #[prost(oneof = "Sent", tags = "1, 2")]
    pub content: Option<Sent>,
}

/// What a consumer is sent.
#[derive(Clone, PartialEq, prost::Oneof)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly every answer is an event; a box would be one more allocation for each"
)]
pub enum Sent {
    /// An event.
    #[prost(message, tag = "1")]
    Event(SentEvent),
    /// It has joined the group.
    #[prost(message, tag = "2")]
    Confirmation(SubscriptionConfirmation),
}

/// An event for a consumer.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SentEvent {
    /// The event; not there where a link points to nothing.
    #[prost(message, optional, tag = "1")]
    pub event: Option<RecordedEvent>,
    /// The link through which it came.
    #[prost(message, optional, tag = "2")]
    pub link: Option<RecordedEvent>,
    /// Where it stands among all events.
    #[prost(oneof = "EventPosition", tags = "3, 4")]
    pub position: Option<EventPosition>,
    /// How often it was sent before.
    #[prost(oneof = "RetryCount", tags = "5, 6")]
    pub count: Option<RetryCount>,
}

/// How often an event was sent before.
#[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
pub enum RetryCount {
    /// So often.
    #[prost(int32, tag = "5")]
    Times(i32),
    /// Nobody knows.
    #[prost(message, tag = "6")]
    Unknown(()),
}
