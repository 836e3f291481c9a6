//! Deleting groups, asking what they do, sending again what they parked.

use crate::shared::StreamIdentifier;

/// Asks to delete a group.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DeleteReq {
    /// Which.
    #[prost(message, optional, tag = "1")]
    pub options: Option<DeleteOptions>,
}

/// Which group to delete.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DeleteOptions {
    /// What it is of.
    #[prost(oneof = "DeletedStream", tags = "1, 3")]
    pub stream_option: Option<DeletedStream>,
    /// Its name.
    #[prost(string, tag = "2")]
    pub group_name: String,
}

/// What the group is of that is deleted.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum DeletedStream {
    /// A stream.
    #[prost(message, tag = "1")]
    Stream(StreamIdentifier),
    /// All events.
    #[prost(message, tag = "3")]
    All(()),
}

/// Asks what a group does.
#[derive(Clone, PartialEq, prost::Message)]
pub struct GetInfoReq {
    /// Which.
    #[prost(message, optional, tag = "1")]
    pub options: Option<GetInfoOptions>,
}

/// Which group is asked for.
#[derive(Clone, PartialEq, prost::Message)]
pub struct GetInfoOptions {
    /// What it is of.
    #[prost(oneof = "ListedStream", tags = "1, 2")]
    pub stream_option: Option<ListedStream>,
    /// Its name.
    #[prost(string, tag = "3")]
    pub group_name: String,
}

/// What the groups are of that are asked for.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum ListedStream {
    /// A stream.
    #[prost(message, tag = "1")]
    Stream(StreamIdentifier),
    /// All events.
    #[prost(message, tag = "2")]
    All(()),
}

/// What a group does.
#[derive(Clone, PartialEq, prost::Message)]
pub struct GetInfoResp {
    /// What it does.
    #[prost(message, optional, tag = "1")]
    pub subscription_info: Option<SubscriptionInfo>,
}

/// Asks to send again what is parked.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ReplayParkedReq {
    /// Of which group, how much.
    #[prost(message, optional, tag = "1")]
    pub options: Option<ReplayParkedOptions>,
}

/// Of which group, how much is sent again.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ReplayParkedOptions {
    /// The group's name.
    #[prost(string, tag = "1")]
    pub group_name: String,
    /// What it is of.
    #[prost(oneof = "ReplayedStream", tags = "2, 3")]
    pub stream_option: Option<ReplayedStream>,
    /// How much.
    #[prost(oneof = "StopAt", tags = "4, 5")]
    pub stop_at_option: Option<StopAt>,
}

/// What the group is of whose events are sent again.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum ReplayedStream {
    /// A stream.
    #[prost(message, tag = "2")]
    Stream(StreamIdentifier),
    /// All events.
    #[prost(message, tag = "3")]
    All(()),
}

/// How much is sent again.
#[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
pub enum StopAt {
    /// What comes before this revision of the stream of parked events.
    #[prost(int64, tag = "4")]
    Revision(i64),
    /// All there is.
    #[prost(message, tag = "5")]
    NoLimit(()),
}

/// Asks which groups there are.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ListReq {
    /// Which ones.
    #[prost(message, optional, tag = "1")]
    pub options: Option<ListOptions>,
}

/// Which groups are asked for.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ListOptions {
    /// Which ones.
    #[prost(oneof = "ListOption", tags = "1, 2")]
    pub list_option: Option<ListOption>,
}

/// Which groups are asked for.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum ListOption {
    /// Every one.
    #[prost(message, tag = "1")]
    AllSubscriptions(()),
    /// Those of one stream, or of all events.
    #[prost(message, tag = "2")]
    ForStream(ListStream),
}

/// Whose groups are asked for.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ListStream {
    /// A stream's, or those of all events.
    #[prost(oneof = "ListedStream", tags = "1, 2")]
    pub stream_option: Option<ListedStream>,
}

/// The groups there are.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ListResp {
    /// Each.
    #[prost(message, repeated, tag = "1")]
    pub subscriptions: Vec<SubscriptionInfo>,
}

/// What a group does.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SubscriptionInfo {
    /// What it is of.
    #[prost(string, tag = "1")]
    pub event_source: String,
    /// Its name.
    #[prost(string, tag = "2")]
    pub group_name: String,
    /// `Live`, or what else it is at.
    #[prost(string, tag = "3")]
    pub status: String,
    /// Its consumers.
    #[prost(message, repeated, tag = "4")]
    pub connections: Vec<ConnectionInfo>,
    /// Events that were done in a second.
    #[prost(int32, tag = "5")]
    pub average_per_second: i32,
    /// Events that were sent.
    #[prost(int64, tag = "6")]
    pub total_items: i64,
    /// Events that were sent since that was last asked.
    #[prost(int64, tag = "7")]
    pub count_since_last_measurement: i64,
    /// Up to where all is done, as it is kept.
    #[prost(string, tag = "8")]
    pub last_checkpointed_event_position: String,
    /// The last event that was read.
    #[prost(string, tag = "9")]
    pub last_known_event_position: String,
    /// Whether links are answered with what they point to.
    #[prost(bool, tag = "10")]
    pub resolve_link_tos: bool,
    /// Where it began.
    #[prost(string, tag = "11")]
    pub start_from: String,
    /// When an event that was sent is sent again.
    #[prost(int32, tag = "12")]
    pub message_timeout_milliseconds: i32,
    /// Whether more is measured.
    #[prost(bool, tag = "13")]
    pub extra_statistics: bool,
    /// How often an event is sent again before it is parked.
    #[prost(int32, tag = "14")]
    pub max_retry_count: i32,
    /// How many live events are held.
    #[prost(int32, tag = "15")]
    pub live_buffer_size: i32,
    /// How many events are held while catching up.
    #[prost(int32, tag = "16")]
    pub buffer_size: i32,
    /// How many events are read at once.
    #[prost(int32, tag = "17")]
    pub read_batch_size: i32,
    /// How long a checkpoint may wait.
    #[prost(int32, tag = "18")]
    pub check_point_after_milliseconds: i32,
    /// How many events make a checkpoint worth while.
    #[prost(int32, tag = "19")]
    pub min_check_point_count: i32,
    /// How many make one at once.
    #[prost(int32, tag = "20")]
    pub max_check_point_count: i32,
    /// Events that were read and not sent.
    #[prost(int32, tag = "21")]
    pub read_buffer_count: i32,
    /// Live ones among them.
    #[prost(int64, tag = "22")]
    pub live_buffer_count: i64,
    /// Events that wait to be sent again.
    #[prost(int32, tag = "23")]
    pub retry_buffer_count: i32,
    /// Events on the way.
    #[prost(int32, tag = "24")]
    pub total_in_flight_messages: i32,
    /// Events that were sent and not done.
    #[prost(int32, tag = "25")]
    pub outstanding_messages_count: i32,
    /// Who gets which event.
    #[prost(string, tag = "26")]
    pub named_consumer_strategy: String,
    /// How many consumers may join.
    #[prost(int32, tag = "27")]
    pub max_subscriber_count: i32,
    /// Events that are parked.
    #[prost(int64, tag = "28")]
    pub parked_message_count: i64,
}

/// What a consumer does.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ConnectionInfo {
    /// Where it calls from.
    #[prost(string, tag = "1")]
    pub from: String,
    /// Who it is.
    #[prost(string, tag = "2")]
    pub username: String,
    /// Events that it was sent in a second.
    #[prost(int32, tag = "3")]
    pub average_items_per_second: i32,
    /// Events that it was sent.
    #[prost(int64, tag = "4")]
    pub total_items: i64,
    /// Events since that was last asked.
    #[prost(int64, tag = "5")]
    pub count_since_last_measurement: i64,
    /// What was measured.
    #[prost(message, repeated, tag = "6")]
    pub observed_measurements: Vec<Measurement>,
    /// How many more may be on the way.
    #[prost(int32, tag = "7")]
    pub available_slots: i32,
    /// How many are.
    #[prost(int32, tag = "8")]
    pub in_flight_messages: i32,
    /// The name that it gave itself.
    #[prost(string, tag = "9")]
    pub connection_name: String,
}

/// What was measured.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Measurement {
    /// Its name.
    #[prost(string, tag = "1")]
    pub key: String,
    /// Its value.
    #[prost(int64, tag = "2")]
    pub value: i64,
}
