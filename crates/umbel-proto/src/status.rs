//! `google.rpc`: an outcome as a message, as batch appends answer it.

use prost_types::Any;

/// An outcome: a code, a sentence and one typed detail.
///
/// Elsewhere the details are repeated; one of them is the same bytes, and one is what clients of
/// batch appends look for.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Status {
    /// What kind of outcome.
    #[prost(enumeration = "Code", tag = "1")]
    pub code: i32,
    /// A sentence for people.
    #[prost(string, tag = "2")]
    pub message: String,
    /// The facts for programs.
    #[prost(message, optional, tag = "3")]
    pub details: Option<Any>,
}

/// An outcome with all its details, as it stands in the trailer `grpc-status-details-bin`. The
/// typed one comes last: some clients look at no other.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RichStatus {
    /// What kind of outcome: a number of [`Code`].
    #[prost(enumeration = "Code", tag = "1")]
    pub code: i32,
    /// The sentence of the status itself.
    #[prost(string, tag = "2")]
    pub message: String,
    /// The facts for programs.
    #[prost(message, repeated, tag = "3")]
    pub details: Vec<Any>,
}

/// What kind of failure it is, and whose words these are.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ErrorInfo {
    /// The kind, in capital letters.
    #[prost(string, tag = "1")]
    pub reason: String,
    /// Where the kind is defined.
    #[prost(string, tag = "2")]
    pub domain: String,
}

/// A detail of the type `name`, which includes the package.
pub fn detail(name: &str, message: &impl prost::Message) -> Any {
    Any { type_url: format!("type.googleapis.com/{name}"), value: message.encode_to_vec() }
}

/// The kinds of outcomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Code {
    /// Done.
    Ok = 0,
    /// Somebody stopped it.
    Cancelled = 1,
    /// Nobody knows.
    Unknown = 2,
    /// The request is wrong.
    InvalidArgument = 3,
    /// The deadline passed first.
    DeadlineExceeded = 4,
    /// What it is about is not there.
    NotFound = 5,
    /// What it would make is there.
    AlreadyExists = 6,
    /// Not for this caller.
    PermissionDenied = 7,
    /// A quota, a limit or a disk is exhausted.
    ResourceExhausted = 8,
    /// The state does not allow it.
    FailedPrecondition = 9,
    /// Somebody else was faster.
    Aborted = 10,
    /// Past the end.
    OutOfRange = 11,
    /// Not served.
    Unimplemented = 12,
    /// Something is broken.
    Internal = 13,
    /// Not now.
    Unavailable = 14,
    /// Data is damaged.
    DataLoss = 15,
    /// Nobody knows who the caller is.
    Unauthenticated = 16,
}
