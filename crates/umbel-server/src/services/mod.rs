//! The gRPC services, one module each.

pub mod gossip;
pub mod kv;
pub mod monitoring;
pub mod node_info;
pub mod operations;
pub mod persistent_subscriptions;
pub mod projections;
pub mod read_permission;
pub mod reflection;
pub mod server_features;
pub mod streams;
pub mod user_service;
