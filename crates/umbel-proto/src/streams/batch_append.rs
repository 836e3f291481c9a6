//! Appending many groups of events over one call.

use crate::shared::{StreamIdentifier, Uuid};

/// A part of a batch; parts of several batches may be mixed.
#[derive(Clone, PartialEq, prost::Message)]
pub struct BatchAppendReq {
    /// Which batch.
    #[prost(message, optional, tag = "1")]
    pub correlation_id: Option<Uuid>,
    /// Where its events go; in its first part only.
    #[prost(message, optional, tag = "2")]
    pub options: Option<batch_append_req::Options>,
    /// Events of it.
    #[prost(message, repeated, tag = "3")]
    pub proposed_messages: Vec<batch_append_req::ProposedMessage>,
    /// Whether this is its last part.
    #[prost(bool, tag = "4")]
    pub is_final: bool,
}

/// The parts of [`BatchAppendReq`].
pub mod batch_append_req {
    use prost_types::{Duration, Timestamp};

    use crate::shared::StreamIdentifier;
    use crate::streams::ExpectedRevision;

    pub use crate::streams::append_req::ProposedMessage;

    /// Where a batch's events go, and until when.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Options {
        /// The stream.
        #[prost(message, optional, tag = "1")]
        pub stream_identifier: Option<StreamIdentifier>,
        /// What it must be at.
        #[prost(oneof = "ExpectedRevision", tags = "2, 3, 4, 5")]
        pub expected_stream_position: Option<ExpectedRevision>,
        /// Until when it is worth doing.
        #[prost(oneof = "DeadlineOption", tags = "6, 7")]
        pub deadline_option: Option<DeadlineOption>,
    }

    /// Until when an append is worth doing.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
    pub enum DeadlineOption {
        /// Until this moment, as clients before version 21.10 say it.
        #[prost(message, tag = "6")]
        Moment(Timestamp),
        /// For so long from now on.
        #[prost(message, tag = "7")]
        Duration(Duration),
    }
}

/// How a batch ended.
#[derive(Clone, PartialEq, prost::Message)]
pub struct BatchAppendResp {
    /// Which batch.
    #[prost(message, optional, tag = "1")]
    pub correlation_id: Option<Uuid>,
    /// How.
    #[prost(oneof = "batch_append_resp::Outcome", tags = "2, 3")]
    pub result: Option<batch_append_resp::Outcome>,
    /// The stream.
    #[prost(message, optional, tag = "4")]
    pub stream_identifier: Option<StreamIdentifier>,
    /// What was expected, as the request said it.
    #[prost(oneof = "batch_append_resp::Expected", tags = "5, 6, 7, 8")]
    pub expected_stream_position: Option<batch_append_resp::Expected>,
}

/// The parts of [`BatchAppendResp`].
pub mod batch_append_resp {
    use crate::status::Status;

    pub use crate::streams::append_resp::{CurrentRevision, PositionOption, Success};

    /// How a batch ended.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Outcome {
        /// Not done.
        #[prost(message, tag = "2")]
        Error(Status),
        /// Done.
        #[prost(message, tag = "3")]
        Success(Success),
    }

    /// What was expected.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
    pub enum Expected {
        /// This revision.
        #[prost(uint64, tag = "5")]
        StreamPosition(u64),
        /// That it does not exist.
        #[prost(message, tag = "6")]
        NoStream(()),
        /// Whatever it is.
        #[prost(message, tag = "7")]
        Any(()),
        /// That it exists.
        #[prost(message, tag = "8")]
        StreamExists(()),
    }
}
