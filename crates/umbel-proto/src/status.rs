//! `google.rpc`: a status as a message, which batch appends return.

use prost_types::Any;

/// Status of a call: code, text and one typed detail.
///
/// In `google.rpc` the details are repeated. One detail has the same bytes, and clients of batch
/// appends read only one.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Status {
    /// Code of the status.
    #[prost(enumeration = "Code", tag = "1")]
    pub code: i32,
    /// Text for people.
    #[prost(string, tag = "2")]
    pub message: String,
    /// Typed detail for programs.
    #[prost(message, optional, tag = "3")]
    pub details: Option<Any>,
}

/// Status with all its details, as in the trailer `grpc-status-details-bin`. The
/// typed one comes last, because some clients read only that.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RichStatus {
    /// Code of the status: a number of [`Code`].
    #[prost(enumeration = "Code", tag = "1")]
    pub code: i32,
    /// Text of the status.
    #[prost(string, tag = "2")]
    pub message: String,
    /// Details for programs.
    #[prost(message, repeated, tag = "3")]
    pub details: Vec<Any>,
}

/// Kind of a failure and its domain.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ErrorInfo {
    /// Kind of the failure, in capital letters.
    #[prost(string, tag = "1")]
    pub reason: String,
    /// Domain that defines the kind.
    #[prost(string, tag = "2")]
    pub domain: String,
}

/// Detail of the type `name`, which includes the package.
pub fn detail(name: &str, message: &impl prost::Message) -> Any {
    Any { type_url: format!("type.googleapis.com/{name}"), value: message.encode_to_vec() }
}

/// Codes of a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Code {
    /// Success.
    Ok = 0,
    /// The call was cancelled.
    Cancelled = 1,
    /// Unknown.
    Unknown = 2,
    /// The request is invalid.
    InvalidArgument = 3,
    /// The deadline passed.
    DeadlineExceeded = 4,
    /// The target does not exist.
    NotFound = 5,
    /// The item to create already exists.
    AlreadyExists = 6,
    /// The caller lacks permission.
    PermissionDenied = 7,
    /// A quota, a limit or a disk is exhausted.
    ResourceExhausted = 8,
    /// The state does not permit the operation.
    FailedPrecondition = 9,
    /// A concurrent operation prevailed.
    Aborted = 10,
    /// Out of range.
    OutOfRange = 11,
    /// Not implemented.
    Unimplemented = 12,
    /// Internal error.
    Internal = 13,
    /// Temporarily unavailable.
    Unavailable = 14,
    /// Data is damaged.
    DataLoss = 15,
    /// The caller is not authenticated.
    Unauthenticated = 16,
}
