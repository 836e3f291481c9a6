//! Making and changing groups.

use crate::shared::StreamIdentifier;
use crate::streams::read_req::{self, FilterOptions, Position};

/// Asks to make a group.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CreateReq {
    /// Which, and how it works.
    #[prost(message, optional, tag = "1")]
    pub options: Option<CreateOptions>,
}

/// Asks to change a group. An update says nothing of filters; all else is as when it was made.
pub type UpdateReq = CreateReq;

/// Which group, and how it works.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CreateOptions {
    /// The stream, as older clients say it.
    #[prost(message, optional, tag = "1")]
    pub stream_identifier: Option<StreamIdentifier>,
    /// The group's name.
    #[prost(string, tag = "2")]
    pub group_name: String,
    /// How it works.
    #[prost(message, optional, tag = "3")]
    pub settings: Option<Settings>,
    /// What it is of, and where it begins.
    #[prost(oneof = "GroupOrigin", tags = "4, 5")]
    pub stream_option: Option<GroupOrigin>,
}

/// What a group is of, and where it begins.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum GroupOrigin {
    /// A stream.
    #[prost(message, tag = "4")]
    Stream(read_req::StreamOptions),
    /// All events.
    #[prost(message, tag = "5")]
    All(GroupAllOptions),
}

/// Where among all events a group begins, and which of them it takes.
#[derive(Clone, PartialEq, prost::Message)]
pub struct GroupAllOptions {
    /// Where it begins.
    #[prost(oneof = "GroupStart", tags = "1, 2, 3")]
    pub all_option: Option<GroupStart>,
    /// What it takes.
    #[prost(oneof = "GroupFilter", tags = "4, 5")]
    pub filter_option: Option<GroupFilter>,
}

/// Where among all events a group begins.
#[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
pub enum GroupStart {
    /// Here.
    #[prost(message, tag = "1")]
    Position(Position),
    /// With the first.
    #[prost(message, tag = "2")]
    Start(()),
    /// Behind the last there is now.
    #[prost(message, tag = "3")]
    End(()),
}

/// Which of all events a group takes.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum GroupFilter {
    /// Those that pass.
    #[prost(message, tag = "4")]
    Filter(FilterOptions),
    /// Every one.
    #[prost(message, tag = "5")]
    NoFilter(()),
}

/// How a group works.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Settings {
    /// Whether links are answered with what they point to.
    #[prost(bool, tag = "1")]
    pub resolve_links: bool,
    /// Where it begins, as older clients say it.
    #[prost(uint64, tag = "2")]
    pub revision: u64,
    /// Whether more is measured.
    #[prost(bool, tag = "3")]
    pub extra_statistics: bool,
    /// When an event that was sent is sent again.
    #[prost(oneof = "MessageTimeout", tags = "4, 14")]
    pub message_timeout: Option<MessageTimeout>,
    /// How often an event is sent again before it is parked.
    #[prost(int32, tag = "5")]
    pub max_retry_count: i32,
    /// How long a checkpoint may wait.
    #[prost(oneof = "CheckpointAfter", tags = "6, 15")]
    pub checkpoint_after: Option<CheckpointAfter>,
    /// How many events make a checkpoint worth while,
    #[prost(int32, tag = "7")]
    pub min_checkpoint_count: i32,
    /// and how many make one at once.
    #[prost(int32, tag = "8")]
    pub max_checkpoint_count: i32,
    /// How many consumers may join; any number where it is 0.
    #[prost(int32, tag = "9")]
    pub max_subscriber_count: i32,
    /// How many live events are held.
    #[prost(int32, tag = "10")]
    pub live_buffer_size: i32,
    /// How many events are read at once.
    #[prost(int32, tag = "11")]
    pub read_batch_size: i32,
    /// How many events are held while catching up.
    #[prost(int32, tag = "12")]
    pub history_buffer_size: i32,
    /// Who gets which event, as older clients say it.
    #[prost(enumeration = "NamedStrategy", tag = "13")]
    pub named_consumer_strategy: i32,
    /// Who gets which event, by its name.
    #[prost(string, tag = "16")]
    pub consumer_strategy: String,
}

/// When an event that was sent is sent again.
#[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
pub enum MessageTimeout {
    /// In units of 100 nanoseconds.
    #[prost(int64, tag = "4")]
    Ticks(i64),
    /// In milliseconds.
    #[prost(int32, tag = "14")]
    Millis(i32),
}

/// How long a checkpoint may wait.
#[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
pub enum CheckpointAfter {
    /// In units of 100 nanoseconds.
    #[prost(int64, tag = "6")]
    Ticks(i64),
    /// In milliseconds.
    #[prost(int32, tag = "15")]
    Millis(i32),
}

/// Who gets which event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum NamedStrategy {
    /// One consumer as long as it has room.
    DispatchToSingle = 0,
    /// Each in turn.
    RoundRobin = 1,
    /// One consumer for each stream.
    Pinned = 2,
}
