//! Campaigns against an event store: concurrent appends, subscriptions.

pub mod concurrent_appends;
pub mod subscriptions;
