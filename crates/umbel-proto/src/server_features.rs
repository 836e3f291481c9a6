//! `event_store.client.server_features`: capabilities that a client requests when it connects.

pub use crate::generated::event_store::client::server_features::{
    SupportedMethod, SupportedMethods,
};

/// Name of the service in request paths.
pub const SERVICE: &str = "event_store.client.server_features.ServerFeatures";
