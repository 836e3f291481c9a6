//! Stream deletes and stream tombstones.

use crate::shared::{AllStreamPosition, StreamIdentifier};

/// Expected revision of the stream.
#[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
pub enum ExpectedRevision {
    /// This revision.
    #[prost(uint64, tag = "2")]
    Revision(u64),
    /// The stream does not exist.
    #[prost(message, tag = "3")]
    NoStream(()),
    /// Any revision.
    #[prost(message, tag = "4")]
    Any(()),
    /// The stream exists.
    #[prost(message, tag = "5")]
    StreamExists(()),
}

/// Selection of a stream, with its expected revision.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DeleteOptions {
    /// Name of the stream.
    #[prost(message, optional, tag = "1")]
    pub stream_identifier: Option<StreamIdentifier>,
    /// Expected revision.
    #[prost(oneof = "ExpectedRevision", tags = "2, 3, 4, 5")]
    pub expected_stream_revision: Option<ExpectedRevision>,
}

/// Request to delete a stream. A later append creates it again.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DeleteReq {
    /// Stream to delete.
    #[prost(message, optional, tag = "1")]
    pub options: Option<DeleteOptions>,
}

/// Request to tombstone a stream, which hides it for good.
pub type TombstoneReq = DeleteReq;

/// Result of a stream delete.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct DeleteResp {
    /// Position of the deletion.
    #[prost(oneof = "DeleteResult", tags = "1, 2")]
    pub position_option: Option<DeleteResult>,
}

/// Result of a stream tombstone.
pub type TombstoneResp = DeleteResp;

/// Position of a deletion in the event log.
pub type DeletePosition = AllStreamPosition;

/// Position of a deletion.
#[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
pub enum DeleteResult {
    /// This position.
    #[prost(message, tag = "1")]
    Position(DeletePosition),
    /// The deletion wrote no event.
    #[prost(message, tag = "2")]
    NoPosition(()),
}
