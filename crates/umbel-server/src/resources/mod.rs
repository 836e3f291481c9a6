//! Quotas on the bytes that clients hold, open connections, inline execution, deferred drops, and
//! processor times of workers.

pub mod bounded_steps;
pub mod connection_registry;
pub mod decoding_places;
pub mod deferred_drop;
pub mod group_quota;
pub mod inbound_quota;
pub mod inline_execution;
pub mod outbound_call_share;
pub mod outbound_quota;
pub mod read_pool;
pub mod unsent_page;
pub mod worker_times;
