//! The messages that event store clients and the server exchange, one module per package of the
//! protocol.
//!
//! The definitions are in `proto`, for clients of every language. The build script generates the
//! types from the definitions. A module selects the types of its package, and gives the types of
//! nested messages their own names. Messages with the same fields have the same type. The empty
//! message of every package is `()`, since the encoded bytes are the same.
//!
//! ```
//! use prost::Message;
//! use umbel_proto::shared::StreamIdentifier;
//!
//! let name = StreamIdentifier { stream_name: "orders-7".into() };
//! let bytes = name.encode_to_vec();
//! assert_eq!(bytes, b"\x1a\x08orders-7");
//! assert_eq!(StreamIdentifier::decode(&bytes[..]), Ok(name));
//! ```
#![forbid(unsafe_code)]

pub mod gossip;
pub mod kv;
pub mod limits;
pub mod monitoring;
pub mod operations;
pub mod persistent;
pub mod projections;
pub mod read_options;
pub mod server_features;
pub mod shared;
pub mod status;
pub mod streams;
pub mod users;
pub mod v2;

/// Definitions of all messages and services, as servers send them to clients: an encoded
/// `google.protobuf.FileDescriptorSet`.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// The generated types, in modules that are nested like the packages.
mod generated {
    include!(concat!(env!("OUT_DIR"), "/messages.rs"));
}
