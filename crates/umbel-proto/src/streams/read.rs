//! Reads and subscriptions.

/// Request for events.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ReadReq {
    /// Options of the read.
    #[prost(message, optional, tag = "1")]
    pub options: Option<read_req::Options>,
}

/// Parts of [`ReadReq`].
pub mod read_req {
    use crate::shared::StreamIdentifier;

    /// Selection, order and number of the events.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Options {
        /// Source: one stream or all events.
        #[prost(oneof = "StreamOption", tags = "1, 2")]
        pub stream_option: Option<StreamOption>,
        /// Direction of the read.
        #[prost(enumeration = "ReadDirection", tag = "3")]
        pub read_direction: i32,
        /// Whether the server resolves links.
        #[prost(bool, tag = "4")]
        pub resolve_links: bool,
        /// Maximum number of events, or a subscription.
        #[prost(oneof = "CountOption", tags = "5, 6")]
        pub count_option: Option<CountOption>,
        /// Filter of the events.
        #[prost(oneof = "FilterOption", tags = "7, 8")]
        pub filter_option: Option<FilterOption>,
        /// Form of the identifiers in responses.
        #[prost(message, optional, tag = "9")]
        pub uuid_option: Option<UuidOption>,
        /// Response features that the client supports.
        #[prost(message, optional, tag = "10")]
        pub control_option: Option<ControlOption>,
    }

    /// Source of a read.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum StreamOption {
        /// One stream.
        #[prost(message, tag = "1")]
        Stream(StreamOptions),
        /// All events.
        #[prost(message, tag = "2")]
        All(AllOptions),
    }

    /// Maximum number of events, or a subscription.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
    pub enum CountOption {
        /// Maximum number of events.
        #[prost(uint64, tag = "5")]
        Count(u64),
        /// Subscription: existing events, then new ones.
        #[prost(message, tag = "6")]
        Subscription(()),
    }

    /// Filter of a read.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum FilterOption {
        /// Events that pass this filter.
        #[prost(message, tag = "7")]
        Filter(FilterOptions),
        /// All events.
        #[prost(message, tag = "8")]
        NoFilter(()),
    }

    /// Stream and start of a read.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct StreamOptions {
        /// Name of the stream.
        #[prost(message, optional, tag = "1")]
        pub stream_identifier: Option<StreamIdentifier>,
        /// Start of the read.
        #[prost(oneof = "RevisionOption", tags = "2, 3, 4")]
        pub revision_option: Option<RevisionOption>,
    }

    /// Start of a read in a stream.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
    pub enum RevisionOption {
        /// At this revision; a subscription starts after it.
        #[prost(uint64, tag = "2")]
        Revision(u64),
        /// At the first event.
        #[prost(message, tag = "3")]
        Start(()),
        /// At the last event; a subscription starts after it.
        #[prost(message, tag = "4")]
        End(()),
    }

    /// Start of a read of all events.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
    pub struct AllOptions {
        /// Start of the read.
        #[prost(oneof = "AllOption", tags = "1, 2, 3")]
        pub all_option: Option<AllOption>,
    }

    /// Start of a read of all events.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
    pub enum AllOption {
        /// At this position. Backward reads and subscriptions exclude it.
        #[prost(message, tag = "1")]
        Position(Position),
        /// At the first event.
        #[prost(message, tag = "2")]
        Start(()),
        /// At the last event; a subscription starts after it.
        #[prost(message, tag = "3")]
        End(()),
    }

    /// Position in the event log.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
    pub struct Position {
        /// Commit position of the write.
        #[prost(uint64, tag = "1")]
        pub commit_position: u64,
        /// Prepare position of the event.
        #[prost(uint64, tag = "2")]
        pub prepare_position: u64,
    }

    /// Event filter, and the interval of reported positions.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct FilterOptions {
        /// Part of the event that the filter tests.
        #[prost(oneof = "Filter", tags = "1, 2")]
        pub filter: Option<Filter>,
        /// Number of events in a window.
        #[prost(oneof = "Window", tags = "3, 4")]
        pub window: Option<Window>,
        /// Number of windows after which the server reports a position.
        #[prost(uint32, tag = "5")]
        pub checkpoint_interval_multiplier: u32,
    }

    /// Part of the event that a filter tests.
    #[derive(Clone, PartialEq, Eq, prost::Oneof)]
    pub enum Filter {
        /// Name of the stream.
        #[prost(message, tag = "1")]
        StreamIdentifier(Expression),
        /// Type of the event.
        #[prost(message, tag = "2")]
        EventType(Expression),
    }

    /// Number of events in a window of a filtered read.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
    pub enum Window {
        /// Maximum number of events.
        #[prost(uint32, tag = "3")]
        Max(u32),
        /// The same number as the read requests.
        #[prost(message, tag = "4")]
        Count(()),
    }

    /// Condition on a name.
    #[derive(Clone, PartialEq, Eq, prost::Message)]
    pub struct Expression {
        /// Regular expression that the name matches.
        #[prost(string, tag = "1")]
        pub regex: String,
        /// Prefixes; the name begins with one of them.
        #[prost(string, repeated, tag = "2")]
        pub prefix: Vec<String>,
    }

    /// Form of the identifiers in responses.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
    pub struct UuidOption {
        /// Requested form.
        #[prost(oneof = "UuidForm", tags = "1, 2")]
        pub content: Option<UuidForm>,
    }

    /// Forms of identifiers.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
    pub enum UuidForm {
        /// Two integers.
        #[prost(message, tag = "1")]
        Structured(()),
        /// Text.
        #[prost(message, tag = "2")]
        String(()),
    }

    /// Response features that a client supports.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
    pub struct ControlOption {
        /// Feature level; from 1 on, responses include the ends of a stream.
        #[prost(uint32, tag = "1")]
        pub compatibility: u32,
    }

    /// Directions of a read.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
    #[repr(i32)]
    pub enum ReadDirection {
        /// Older events first.
        Forwards = 0,
        /// Newer events first.
        Backwards = 1,
    }
}

/// Message of a read or a subscription.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ReadResp {
    /// Content of the message.
    #[prost(oneof = "read_resp::Content", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9")]
    pub content: Option<read_resp::Content>,
}

/// Parts of [`ReadResp`].
pub mod read_resp {
    use std::collections::BTreeMap;

    use prost::bytes::Bytes;
    use prost_types::Timestamp;

    use crate::shared::{AllStreamPosition, StreamIdentifier, Uuid};

    /// Kinds of messages of a read.
    #[derive(Clone, PartialEq, prost::Oneof)]
    #[expect(
        clippy::large_enum_variant,
        reason = "nearly every answer is an event; a box would be one more allocation for each"
    )]
    pub enum Content {
        /// An event.
        #[prost(message, tag = "1")]
        Event(ReadEvent),
        /// The subscription is established.
        #[prost(message, tag = "2")]
        Confirmation(SubscriptionConfirmation),
        /// Position up to which a filtered subscription has read.
        #[prost(message, tag = "3")]
        Checkpoint(Checkpoint),
        /// The stream does not exist.
        #[prost(message, tag = "4")]
        StreamNotFound(StreamNotFound),
        /// Revision of the stream's first event.
        #[prost(uint64, tag = "5")]
        FirstStreamPosition(u64),
        /// Revision of the stream's last event.
        #[prost(uint64, tag = "6")]
        LastStreamPosition(u64),
        /// Position of the last event of the store.
        #[prost(message, tag = "7")]
        LastAllStreamPosition(AllStreamPosition),
        /// The subscription is live: it has delivered all existing events.
        #[prost(message, tag = "8")]
        CaughtUp(Progress),
        /// The subscription is behind again.
        #[prost(message, tag = "9")]
        FellBehind(Progress),
    }

    /// Event, with the link that led to it.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct ReadEvent {
        /// The event; `None` where a link points to a missing event.
        #[prost(message, optional, tag = "1")]
        pub event: Option<RecordedEvent>,
        /// The link that led to the event.
        #[prost(message, optional, tag = "2")]
        pub link: Option<RecordedEvent>,
        /// Position in the event log.
        #[prost(oneof = "EventPosition", tags = "3, 4")]
        pub position: Option<EventPosition>,
    }

    /// Position of an event in the event log.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
    pub enum EventPosition {
        /// Commit position of the write.
        #[prost(uint64, tag = "3")]
        CommitPosition(u64),
        /// Unknown.
        #[prost(message, tag = "4")]
        NoPosition(()),
    }

    /// Stored event.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct RecordedEvent {
        /// Id of the event, chosen by its writer.
        #[prost(message, optional, tag = "1")]
        pub id: Option<Uuid>,
        /// Name of the stream.
        #[prost(message, optional, tag = "2")]
        pub stream_identifier: Option<StreamIdentifier>,
        /// Revision of the event, from 0.
        #[prost(uint64, tag = "3")]
        pub stream_revision: u64,
        /// Prepare position.
        #[prost(uint64, tag = "4")]
        pub prepare_position: u64,
        /// Commit position of the write.
        #[prost(uint64, tag = "5")]
        pub commit_position: u64,
        /// `type`, `content-type` and `created`.
        #[prost(btree_map = "string, string", tag = "6")]
        pub metadata: BTreeMap<String, String>,
        /// Metadata of the event.
        #[prost(bytes = "bytes", tag = "7")]
        pub custom_metadata: Bytes,
        /// Data of the event.
        #[prost(bytes = "bytes", tag = "8")]
        pub data: Bytes,
    }

    /// Confirmation of a subscription.
    #[derive(Clone, PartialEq, Eq, prost::Message)]
    pub struct SubscriptionConfirmation {
        /// Id of the subscription, for logs.
        #[prost(string, tag = "1")]
        pub subscription_id: String,
    }

    /// Position up to which a filtered subscription has read.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
    pub struct Checkpoint {
        /// Commit position of the write.
        #[prost(uint64, tag = "1")]
        pub commit_position: u64,
        /// Prepare position of the event.
        #[prost(uint64, tag = "2")]
        pub prepare_position: u64,
        /// Time of the report.
        #[prost(message, optional, tag = "3")]
        pub timestamp: Option<Timestamp>,
    }

    /// State of a subscription.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
    pub struct Progress {
        /// Time of the report.
        #[prost(message, optional, tag = "1")]
        pub timestamp: Option<Timestamp>,
        /// Revision of the last event; only for a subscription to one stream.
        #[prost(int64, optional, tag = "2")]
        pub stream_revision: Option<i64>,
        /// Position of the last event; only for a subscription to all events.
        #[prost(message, optional, tag = "3")]
        pub position: Option<AllStreamPosition>,
    }

    /// The stream does not exist.
    #[derive(Clone, PartialEq, Eq, prost::Message)]
    pub struct StreamNotFound {
        /// Name of the stream.
        #[prost(message, optional, tag = "1")]
        pub stream_identifier: Option<StreamIdentifier>,
    }
}
