//! `google.rpc`: a status as a message. Batch appends return such a status, and the trailer
//! `grpc-status-details-bin` contains one.

use prost_types::Any;

pub use crate::generated::google::rpc::{Code, ErrorInfo, Status};

/// Returns the status detail of the type `name`, which includes the package.
pub fn detail(name: &str, message: &impl prost::Message) -> Any {
    Any { type_url: format!("type.googleapis.com/{name}"), value: message.encode_to_vec() }
}
