//! Appends of one group of events per call.

/// Message of an append: first the options, then the events.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AppendReq {
    /// Content of the message.
    #[prost(oneof = "append_req::Content", tags = "1, 2")]
    pub content: Option<append_req::Content>,
}

/// Parts of [`AppendReq`].
pub mod append_req {
    use std::collections::BTreeMap;

    use prost::bytes::Bytes;

    use crate::shared::{StreamIdentifier, Uuid};
    use crate::streams::ExpectedRevision;

    /// Kinds of messages of an append.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Content {
        /// Target of the events, which comes first and once.
        #[prost(message, tag = "1")]
        Options(Options),
        /// One event.
        #[prost(message, tag = "2")]
        ProposedMessage(ProposedMessage),
    }

    /// Target of the events.
    #[derive(Clone, PartialEq, Eq, prost::Message)]
    pub struct Options {
        /// Name of the stream.
        #[prost(message, optional, tag = "1")]
        pub stream_identifier: Option<StreamIdentifier>,
        /// Expected revision.
        #[prost(oneof = "ExpectedRevision", tags = "2, 3, 4, 5")]
        pub expected_stream_revision: Option<ExpectedRevision>,
    }

    /// Event to append.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct ProposedMessage {
        /// Id of the event.
        #[prost(message, optional, tag = "1")]
        pub id: Option<Uuid>,
        /// `type` and `content-type`.
        #[prost(btree_map = "string, string", tag = "2")]
        pub metadata: BTreeMap<String, String>,
        /// Metadata of the event.
        #[prost(bytes = "bytes", tag = "3")]
        pub custom_metadata: Bytes,
        /// Data of the event.
        #[prost(bytes = "bytes", tag = "4")]
        pub data: Bytes,
    }
}

/// Result of an append.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct AppendResp {
    /// Result.
    #[prost(oneof = "append_resp::Outcome", tags = "1, 2")]
    pub result: Option<append_resp::Outcome>,
}

/// Parts of [`AppendResp`].
pub mod append_resp {
    use crate::shared::AllStreamPosition;

    /// Result of an append.
    #[derive(Clone, Copy, PartialEq, prost::Oneof)]
    pub enum Outcome {
        /// The append is acknowledged.
        #[prost(message, tag = "1")]
        Success(Success),
        /// The stream has another revision than the client expected.
        #[prost(message, tag = "2")]
        WrongExpectedVersion(WrongExpectedVersion),
    }

    /// Result of an acknowledged append.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
    pub struct Success {
        /// Current revision of the stream.
        #[prost(oneof = "CurrentRevision", tags = "1, 2")]
        pub current_revision_option: Option<CurrentRevision>,
        /// Position of the last event.
        #[prost(oneof = "PositionOption", tags = "3, 4")]
        pub position_option: Option<PositionOption>,
    }

    /// Current revision of the stream.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
    pub enum CurrentRevision {
        /// Revision of the last event.
        #[prost(uint64, tag = "1")]
        CurrentRevision(u64),
        /// The stream does not exist.
        #[prost(message, tag = "2")]
        NoStream(()),
    }

    /// Position of the last event.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
    pub enum PositionOption {
        /// This position.
        #[prost(message, tag = "3")]
        Position(AllStreamPosition),
        /// The append wrote no event.
        #[prost(message, tag = "4")]
        NoPosition(()),
    }

    /// Version conflict. Clients before version 20.6.1 read fields 1 to 5.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
    pub struct WrongExpectedVersion {
        /// Current revision of the stream, for older clients.
        #[prost(oneof = "OldCurrent", tags = "1, 2")]
        pub old_current: Option<OldCurrent>,
        /// Expected revision, for older clients.
        #[prost(oneof = "OldExpected", tags = "3, 4, 5")]
        pub old_expected: Option<OldExpected>,
        /// Current revision of the stream.
        #[prost(oneof = "Current", tags = "6, 7")]
        pub current: Option<Current>,
        /// Expected revision.
        #[prost(oneof = "Expected", tags = "8, 9, 10, 11")]
        pub expected: Option<Expected>,
    }

    /// Current revision of the stream, for older clients.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
    pub enum OldCurrent {
        /// Revision of the last event.
        #[prost(uint64, tag = "1")]
        Revision(u64),
        /// The stream does not exist.
        #[prost(message, tag = "2")]
        NoStream(()),
    }

    /// Expected revision, for older clients.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
    pub enum OldExpected {
        /// This revision.
        #[prost(uint64, tag = "3")]
        Revision(u64),
        /// Any revision.
        #[prost(message, tag = "4")]
        Any(()),
        /// The stream exists.
        #[prost(message, tag = "5")]
        StreamExists(()),
    }

    /// Current revision of the stream.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
    pub enum Current {
        /// Revision of the last event.
        #[prost(uint64, tag = "6")]
        Revision(u64),
        /// The stream does not exist.
        #[prost(message, tag = "7")]
        NoStream(()),
    }

    /// Expected revision.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
    pub enum Expected {
        /// This revision.
        #[prost(uint64, tag = "8")]
        Revision(u64),
        /// Any revision.
        #[prost(message, tag = "9")]
        Any(()),
        /// The stream exists.
        #[prost(message, tag = "10")]
        StreamExists(()),
        /// The stream does not exist.
        #[prost(message, tag = "11")]
        NoStream(()),
    }
}
