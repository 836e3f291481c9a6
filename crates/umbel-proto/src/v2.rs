//! `kurrentdb.protocol.v2`: services of newer clients.

/// `kurrentdb.protocol.v2.streams`: atomic appends to several streams.
pub mod streams {
    use crate::generated::kurrentdb::protocol::v2::streams as package;

    pub use package::consistency_check::{Check as CheckType, StreamStateCheck};
    pub use package::{
        AppendRecord, AppendRecordsRequest, AppendRecordsResponse, AppendRequest, AppendResponse,
        AppendSessionResponse, ConsistencyCheck, SchemaFormat, SchemaInfo, StreamRevision,
    };

    /// Name of the service in request paths.
    pub const SERVICE: &str = "kurrentdb.protocol.v2.streams.StreamsService";

    /// Negative numbers by which clients state an expected revision.
    pub mod expected {
        /// The stream does not exist or was deleted.
        pub const NO_STREAM: i64 = -1;
        /// Any revision.
        pub const ANY: i64 = -2;
        /// The stream exists.
        pub const EXISTS: i64 = -4;
        /// The stream was deleted and does not exist; only checks can use this number.
        pub const DELETED: i64 = -5;
        /// The stream has a tombstone; only checks can use this number.
        pub const TOMBSTONED: i64 = -6;
    }
}

/// `kurrentdb.protocol.v2.streams.errors`: typed details of a failed status.
pub mod errors {
    use crate::generated::kurrentdb::protocol::v2::streams::errors as package;

    pub use crate::generated::kurrent::rpc::not_leader_node_error_details::NodeInfo;
    pub use crate::generated::kurrent::rpc::{AccessDeniedErrorDetails, NotLeaderNodeErrorDetails};
    pub use package::consistency_violation::Violation as ViolationType;
    pub use package::{
        AppendConsistencyViolationErrorDetails, AppendRecordSizeExceededErrorDetails,
        AppendTransactionSizeExceededErrorDetails, ConsistencyViolation,
        StreamAlreadyInAppendSessionErrorDetails, StreamRevisionConflictErrorDetails,
        StreamStateViolation, StreamTombstonedErrorDetails,
    };

    /// Package of the details.
    pub const PACKAGE: &str = "kurrentdb.protocol.v2.streams.errors";
}
