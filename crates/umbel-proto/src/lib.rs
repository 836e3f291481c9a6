//! The messages that event store clients and the server exchange, one file per package of the
//! protocol.
//!
//! They are written manually from a table of field numbers and types, with `prost` derives: no
//! definition files, no compiler for them, nothing generated while building. An empty message is
//! `()`, whichever package it belongs to: its bytes are the same.
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
