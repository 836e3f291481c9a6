//! Deleting a stream so that it can come back, and for good.

use crate::shared::{AllStreamPosition, StreamIdentifier};

/// What a stream must be at for a write to be done.
#[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
pub enum ExpectedRevision {
    /// This revision is its last.
    #[prost(uint64, tag = "2")]
    Revision(u64),
    /// It does not exist.
    #[prost(message, tag = "3")]
    NoStream(()),
    /// Whatever it is.
    #[prost(message, tag = "4")]
    Any(()),
    /// It exists.
    #[prost(message, tag = "5")]
    StreamExists(()),
}

/// Which stream, and what it must be at.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DeleteOptions {
    /// The stream.
    #[prost(message, optional, tag = "1")]
    pub stream_identifier: Option<StreamIdentifier>,
    /// What it must be at.
    #[prost(oneof = "ExpectedRevision", tags = "2, 3, 4, 5")]
    pub expected_stream_revision: Option<ExpectedRevision>,
}

/// Asks to delete a stream, which an append brings back.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DeleteReq {
    /// Which one.
    #[prost(message, optional, tag = "1")]
    pub options: Option<DeleteOptions>,
}

/// Asks to delete a stream for good.
pub type TombstoneReq = DeleteReq;

/// The stream is deleted.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct DeleteResp {
    /// Where the deletion stands.
    #[prost(oneof = "DeleteResult", tags = "1, 2")]
    pub position_option: Option<DeleteResult>,
}

/// The stream is deleted for good.
pub type TombstoneResp = DeleteResp;

/// Where a deletion stands in the log of all events.
pub type DeletePosition = AllStreamPosition;

/// Where a deletion stands.
#[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
pub enum DeleteResult {
    /// Here.
    #[prost(message, tag = "1")]
    Position(DeletePosition),
    /// Nothing was written.
    #[prost(message, tag = "2")]
    NoPosition(()),
}
