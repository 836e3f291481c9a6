//! Appends of many groups of events over one call.

use crate::shared::{StreamIdentifier, Uuid};

/// Part of a batch; parts of several batches may be mixed.
#[derive(Clone, PartialEq, prost::Message)]
pub struct BatchAppendReq {
    /// Id of the batch.
    #[prost(message, optional, tag = "1")]
    pub correlation_id: Option<Uuid>,
    /// Target of the events; only in the first part.
    #[prost(message, optional, tag = "2")]
    pub options: Option<batch_append_req::Options>,
    /// Events of this part.
    #[prost(message, repeated, tag = "3")]
    pub proposed_messages: Vec<batch_append_req::ProposedMessage>,
    /// Whether this part is the last of its batch.
    #[prost(bool, tag = "4")]
    pub is_final: bool,
}

/// Parts of [`BatchAppendReq`].
pub mod batch_append_req {
    use prost_types::{Duration, Timestamp};

    use crate::shared::StreamIdentifier;
    use crate::streams::ExpectedRevision;

    pub use crate::streams::append_req::ProposedMessage;

    /// Target and deadline of a batch.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Options {
        /// Name of the stream.
        #[prost(message, optional, tag = "1")]
        pub stream_identifier: Option<StreamIdentifier>,
        /// Expected revision.
        #[prost(oneof = "ExpectedRevision", tags = "2, 3, 4, 5")]
        pub expected_stream_position: Option<ExpectedRevision>,
        /// Deadline of the append.
        #[prost(oneof = "DeadlineOption", tags = "6, 7")]
        pub deadline_option: Option<DeadlineOption>,
    }

    /// Deadline of an append.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
    pub enum DeadlineOption {
        /// At this time; only clients before version 21.10 set this field.
        #[prost(message, tag = "6")]
        Moment(Timestamp),
        /// After this duration.
        #[prost(message, tag = "7")]
        Duration(Duration),
    }
}

/// Result of a batch.
#[derive(Clone, PartialEq, prost::Message)]
pub struct BatchAppendResp {
    /// Id of the batch.
    #[prost(message, optional, tag = "1")]
    pub correlation_id: Option<Uuid>,
    /// Result.
    #[prost(oneof = "batch_append_resp::Outcome", tags = "2, 3")]
    pub result: Option<batch_append_resp::Outcome>,
    /// Name of the stream.
    #[prost(message, optional, tag = "4")]
    pub stream_identifier: Option<StreamIdentifier>,
    /// Expected revision of the request.
    #[prost(oneof = "batch_append_resp::Expected", tags = "5, 6, 7, 8")]
    pub expected_stream_position: Option<batch_append_resp::Expected>,
}

/// Parts of [`BatchAppendResp`].
pub mod batch_append_resp {
    use crate::status::Status;

    pub use crate::streams::append_resp::{CurrentRevision, PositionOption, Success};

    /// Result of a batch.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Outcome {
        /// The batch failed.
        #[prost(message, tag = "2")]
        Error(Status),
        /// The batch is acknowledged.
        #[prost(message, tag = "3")]
        Success(Success),
    }

    /// Expected revision.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
    pub enum Expected {
        /// This revision.
        #[prost(uint64, tag = "5")]
        StreamPosition(u64),
        /// The stream does not exist.
        #[prost(message, tag = "6")]
        NoStream(()),
        /// Any revision.
        #[prost(message, tag = "7")]
        Any(()),
        /// The stream exists.
        #[prost(message, tag = "8")]
        StreamExists(()),
    }
}
