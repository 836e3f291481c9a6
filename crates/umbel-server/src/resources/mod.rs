//! Quotas on the bytes that clients hold, open connections, and inline execution.

pub mod connection_registry;
pub mod group_quota;
pub mod inbound_quota;
pub mod inline_execution;
pub mod outbound_quota;
pub mod outbound_share;
pub mod pending_page;
