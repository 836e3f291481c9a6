//! Appending one group of events per call.

/// A part of an append: first the options, then the events.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AppendReq {
    /// Which part.
    #[prost(oneof = "append_req::Content", tags = "1, 2")]
    pub content: Option<append_req::Content>,
}

/// The parts of [`AppendReq`].
pub mod append_req {
    use std::collections::BTreeMap;

    use prost::bytes::Bytes;

    use crate::shared::{StreamIdentifier, Uuid};
    use crate::streams::ExpectedRevision;

    /// A part of an append.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Content {
        /// Where the events go. Comes first, and once.
        #[prost(message, tag = "1")]
        Options(Options),
        /// An event.
        #[prost(message, tag = "2")]
        ProposedMessage(ProposedMessage),
    }

    /// Where the events go.
    #[derive(Clone, PartialEq, Eq, prost::Message)]
    pub struct Options {
        /// The stream.
        #[prost(message, optional, tag = "1")]
        pub stream_identifier: Option<StreamIdentifier>,
        /// What it must be at.
        #[prost(oneof = "ExpectedRevision", tags = "2, 3, 4, 5")]
        pub expected_stream_revision: Option<ExpectedRevision>,
    }

    /// An event to be appended.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct ProposedMessage {
        /// Its identifier.
        #[prost(message, optional, tag = "1")]
        pub id: Option<Uuid>,
        /// `type` and `content-type`.
        #[prost(btree_map = "string, string", tag = "2")]
        pub metadata: BTreeMap<String, String>,
        /// Its metadata.
        #[prost(bytes = "bytes", tag = "3")]
        pub custom_metadata: Bytes,
        /// Its data.
        #[prost(bytes = "bytes", tag = "4")]
        pub data: Bytes,
    }
}

/// How an append ended.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct AppendResp {
    /// How.
    #[prost(oneof = "append_resp::Outcome", tags = "1, 2")]
    pub result: Option<append_resp::Outcome>,
}

/// The parts of [`AppendResp`].
pub mod append_resp {
    use crate::shared::AllStreamPosition;

    /// How an append ended.
    #[derive(Clone, Copy, PartialEq, prost::Oneof)]
    pub enum Outcome {
        /// It is done.
        #[prost(message, tag = "1")]
        Success(Success),
        /// The stream was not as expected.
        #[prost(message, tag = "2")]
        WrongExpectedVersion(WrongExpectedVersion),
    }

    /// The append is done.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
    pub struct Success {
        /// What the stream is at now.
        #[prost(oneof = "CurrentRevision", tags = "1, 2")]
        pub current_revision_option: Option<CurrentRevision>,
        /// Where the last event is.
        #[prost(oneof = "PositionOption", tags = "3, 4")]
        pub position_option: Option<PositionOption>,
    }

    /// What the stream is at.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
    pub enum CurrentRevision {
        /// The revision of its last event.
        #[prost(uint64, tag = "1")]
        CurrentRevision(u64),
        /// It does not exist.
        #[prost(message, tag = "2")]
        NoStream(()),
    }

    /// Where the last event is.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
    pub enum PositionOption {
        /// Here.
        #[prost(message, tag = "3")]
        Position(AllStreamPosition),
        /// Nothing was written.
        #[prost(message, tag = "4")]
        NoPosition(()),
    }

    /// The stream was not as expected. Clients before version 20.6.1 read fields 1 to 5.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
    pub struct WrongExpectedVersion {
        /// What the stream is at, for old clients.
        #[prost(oneof = "OldCurrent", tags = "1, 2")]
        pub old_current: Option<OldCurrent>,
        /// What was expected, for old clients.
        #[prost(oneof = "OldExpected", tags = "3, 4, 5")]
        pub old_expected: Option<OldExpected>,
        /// What the stream is at.
        #[prost(oneof = "Current", tags = "6, 7")]
        pub current: Option<Current>,
        /// What was expected.
        #[prost(oneof = "Expected", tags = "8, 9, 10, 11")]
        pub expected: Option<Expected>,
    }

    /// What the stream is at, for old clients.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
    pub enum OldCurrent {
        /// The revision of its last event.
        #[prost(uint64, tag = "1")]
        Revision(u64),
        /// It does not exist.
        #[prost(message, tag = "2")]
        NoStream(()),
    }

    /// What was expected, for old clients.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
    pub enum OldExpected {
        /// This revision.
        #[prost(uint64, tag = "3")]
        Revision(u64),
        /// Whatever it is.
        #[prost(message, tag = "4")]
        Any(()),
        /// That it exists.
        #[prost(message, tag = "5")]
        StreamExists(()),
    }

    /// What the stream is at.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
    pub enum Current {
        /// The revision of its last event.
        #[prost(uint64, tag = "6")]
        Revision(u64),
        /// It does not exist.
        #[prost(message, tag = "7")]
        NoStream(()),
    }

    /// What was expected.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
    pub enum Expected {
        /// This revision.
        #[prost(uint64, tag = "8")]
        Revision(u64),
        /// Whatever it is.
        #[prost(message, tag = "9")]
        Any(()),
        /// That it exists.
        #[prost(message, tag = "10")]
        StreamExists(()),
        /// That it does not exist.
        #[prost(message, tag = "11")]
        NoStream(()),
    }
}
