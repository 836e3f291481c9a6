//! Reading and subscribing.

/// Asks for events.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ReadReq {
    /// Which ones.
    #[prost(message, optional, tag = "1")]
    pub options: Option<read_req::Options>,
}

/// The parts of [`ReadReq`].
pub mod read_req {
    use crate::shared::StreamIdentifier;

    /// Which events, in which order, and how many.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Options {
        /// Of one stream or of all.
        #[prost(oneof = "StreamOption", tags = "1, 2")]
        pub stream_option: Option<StreamOption>,
        /// In which direction.
        #[prost(enumeration = "ReadDirection", tag = "3")]
        pub read_direction: i32,
        /// Whether a link is answered with what it points to.
        #[prost(bool, tag = "4")]
        pub resolve_links: bool,
        /// A number of them, or all that come from now on.
        #[prost(oneof = "CountOption", tags = "5, 6")]
        pub count_option: Option<CountOption>,
        /// Which of them.
        #[prost(oneof = "FilterOption", tags = "7, 8")]
        pub filter_option: Option<FilterOption>,
        /// In which form identifiers are answered.
        #[prost(message, optional, tag = "9")]
        pub uuid_option: Option<UuidOption>,
        /// What the client understands beyond the first form.
        #[prost(message, optional, tag = "10")]
        pub control_option: Option<ControlOption>,
    }

    /// Of one stream or of all.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum StreamOption {
        /// Of one.
        #[prost(message, tag = "1")]
        Stream(StreamOptions),
        /// Of all.
        #[prost(message, tag = "2")]
        All(AllOptions),
    }

    /// A number of events, or all that come from now on.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
    pub enum CountOption {
        /// At most so many.
        #[prost(uint64, tag = "5")]
        Count(u64),
        /// A subscription.
        #[prost(message, tag = "6")]
        Subscription(()),
    }

    /// Which events.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum FilterOption {
        /// Those that pass.
        #[prost(message, tag = "7")]
        Filter(FilterOptions),
        /// Every one.
        #[prost(message, tag = "8")]
        NoFilter(()),
    }

    /// A stream and where in it to begin.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct StreamOptions {
        /// Which stream.
        #[prost(message, optional, tag = "1")]
        pub stream_identifier: Option<StreamIdentifier>,
        /// Where to begin.
        #[prost(oneof = "RevisionOption", tags = "2, 3, 4")]
        pub revision_option: Option<RevisionOption>,
    }

    /// Where in a stream to begin.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
    pub enum RevisionOption {
        /// At this event; a subscription begins after it.
        #[prost(uint64, tag = "2")]
        Revision(u64),
        /// At the first.
        #[prost(message, tag = "3")]
        Start(()),
        /// At the last; a subscription begins after it.
        #[prost(message, tag = "4")]
        End(()),
    }

    /// Where in all events to begin.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
    pub struct AllOptions {
        /// Where to begin.
        #[prost(oneof = "AllOption", tags = "1, 2, 3")]
        pub all_option: Option<AllOption>,
    }

    /// Where in all events to begin.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
    pub enum AllOption {
        /// At this place; backwards and for a subscription, beside it.
        #[prost(message, tag = "1")]
        Position(Position),
        /// At the first.
        #[prost(message, tag = "2")]
        Start(()),
        /// At the last; a subscription begins after it.
        #[prost(message, tag = "3")]
        End(()),
    }

    /// A place in the log of all events.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
    pub struct Position {
        /// Where the write was committed.
        #[prost(uint64, tag = "1")]
        pub commit_position: u64,
        /// Where the event was prepared.
        #[prost(uint64, tag = "2")]
        pub prepare_position: u64,
    }

    /// Which events pass, and how often a place is told meanwhile.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct FilterOptions {
        /// By what.
        #[prost(oneof = "Filter", tags = "1, 2")]
        pub filter: Option<Filter>,
        /// How many events are looked at before a place is told.
        #[prost(oneof = "Window", tags = "3, 4")]
        pub window: Option<Window>,
        /// After how many windows.
        #[prost(uint32, tag = "5")]
        pub checkpoint_interval_multiplier: u32,
    }

    /// By what events pass.
    #[derive(Clone, PartialEq, Eq, prost::Oneof)]
    pub enum Filter {
        /// By the stream's name.
        #[prost(message, tag = "1")]
        StreamIdentifier(Expression),
        /// By the event's type.
        #[prost(message, tag = "2")]
        EventType(Expression),
    }

    /// How many events are looked at before a place is told.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
    pub enum Window {
        /// So many.
        #[prost(uint32, tag = "3")]
        Max(u32),
        /// As many as the read asks for.
        #[prost(message, tag = "4")]
        Count(()),
    }

    /// What a name must be like.
    #[derive(Clone, PartialEq, Eq, prost::Message)]
    pub struct Expression {
        /// It matches this.
        #[prost(string, tag = "1")]
        pub regex: String,
        /// It begins with one of these.
        #[prost(string, repeated, tag = "2")]
        pub prefix: Vec<String>,
    }

    /// In which form identifiers are answered.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
    pub struct UuidOption {
        /// The form.
        #[prost(oneof = "UuidForm", tags = "1, 2")]
        pub content: Option<UuidForm>,
    }

    /// The forms of identifiers.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
    pub enum UuidForm {
        /// Two integers.
        #[prost(message, tag = "1")]
        Structured(()),
        /// Text.
        #[prost(message, tag = "2")]
        String(()),
    }

    /// What the client understands beyond the first form.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
    pub struct ControlOption {
        /// From 1 on: the ends of a stream as answers of their own.
        #[prost(uint32, tag = "1")]
        pub compatibility: u32,
    }

    /// In which direction.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
    #[repr(i32)]
    pub enum ReadDirection {
        /// Older events first.
        Forwards = 0,
        /// Newer events first.
        Backwards = 1,
    }
}

/// One answer of a read or a subscription.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ReadResp {
    /// What it is.
    #[prost(oneof = "read_resp::Content", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9")]
    pub content: Option<read_resp::Content>,
}

/// The parts of [`ReadResp`].
pub mod read_resp {
    use std::collections::BTreeMap;

    use prost::bytes::Bytes;
    use prost_types::Timestamp;

    use crate::shared::{AllStreamPosition, StreamIdentifier, Uuid};

    /// What an answer is.
    #[derive(Clone, PartialEq, prost::Oneof)]
    #[expect(
        clippy::large_enum_variant,
        reason = "nearly every answer is an event; a box would be one more allocation for each"
    )]
    pub enum Content {
        /// An event.
        #[prost(message, tag = "1")]
        Event(ReadEvent),
        /// The subscription stands.
        #[prost(message, tag = "2")]
        Confirmation(SubscriptionConfirmation),
        /// How far a filtered subscription has looked.
        #[prost(message, tag = "3")]
        Checkpoint(Checkpoint),
        /// There is no such stream.
        #[prost(message, tag = "4")]
        StreamNotFound(StreamNotFound),
        /// The revision of the stream's first event.
        #[prost(uint64, tag = "5")]
        FirstStreamPosition(u64),
        /// The revision of the stream's last event.
        #[prost(uint64, tag = "6")]
        LastStreamPosition(u64),
        /// The place of the last of all events.
        #[prost(message, tag = "7")]
        LastAllStreamPosition(AllStreamPosition),
        /// The subscription has answered everything there was.
        #[prost(message, tag = "8")]
        CaughtUp(Progress),
        /// The subscription no longer has.
        #[prost(message, tag = "9")]
        FellBehind(Progress),
    }

    /// An event, with the link that led to it.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct ReadEvent {
        /// The event.
        #[prost(message, optional, tag = "1")]
        pub event: Option<RecordedEvent>,
        /// The link.
        #[prost(message, optional, tag = "2")]
        pub link: Option<RecordedEvent>,
        /// Its place in the log of all events.
        #[prost(oneof = "EventPosition", tags = "3, 4")]
        pub position: Option<EventPosition>,
    }

    /// An event's place in the log of all events.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
    pub enum EventPosition {
        /// Where its write was committed.
        #[prost(uint64, tag = "3")]
        CommitPosition(u64),
        /// Nobody knows.
        #[prost(message, tag = "4")]
        NoPosition(()),
    }

    /// An event as it is stored.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct RecordedEvent {
        /// Its identifier, given by its writer.
        #[prost(message, optional, tag = "1")]
        pub id: Option<Uuid>,
        /// Its stream.
        #[prost(message, optional, tag = "2")]
        pub stream_identifier: Option<StreamIdentifier>,
        /// Its number in the stream, from 0.
        #[prost(uint64, tag = "3")]
        pub stream_revision: u64,
        /// Where it was prepared.
        #[prost(uint64, tag = "4")]
        pub prepare_position: u64,
        /// Where its write was committed.
        #[prost(uint64, tag = "5")]
        pub commit_position: u64,
        /// `type`, `content-type` and `created`.
        #[prost(btree_map = "string, string", tag = "6")]
        pub metadata: BTreeMap<String, String>,
        /// Its metadata, given by its writer.
        #[prost(bytes = "bytes", tag = "7")]
        pub custom_metadata: Bytes,
        /// Its data.
        #[prost(bytes = "bytes", tag = "8")]
        pub data: Bytes,
    }

    /// The subscription stands.
    #[derive(Clone, PartialEq, Eq, prost::Message)]
    pub struct SubscriptionConfirmation {
        /// Its name for logs.
        #[prost(string, tag = "1")]
        pub subscription_id: String,
    }

    /// How far a filtered subscription has looked.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
    pub struct Checkpoint {
        /// Where the write was committed.
        #[prost(uint64, tag = "1")]
        pub commit_position: u64,
        /// Where the event was prepared.
        #[prost(uint64, tag = "2")]
        pub prepare_position: u64,
        /// When.
        #[prost(message, optional, tag = "3")]
        pub timestamp: Option<Timestamp>,
    }

    /// How far a subscription is.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
    pub struct Progress {
        /// When.
        #[prost(message, optional, tag = "1")]
        pub timestamp: Option<Timestamp>,
        /// The revision of the last event, where it is of one stream.
        #[prost(int64, optional, tag = "2")]
        pub stream_revision: Option<i64>,
        /// The place of the last event, where it is of all.
        #[prost(message, optional, tag = "3")]
        pub position: Option<AllStreamPosition>,
    }

    /// There is no such stream.
    #[derive(Clone, PartialEq, Eq, prost::Message)]
    pub struct StreamNotFound {
        /// Its name.
        #[prost(message, optional, tag = "1")]
        pub stream_identifier: Option<StreamIdentifier>,
    }
}
