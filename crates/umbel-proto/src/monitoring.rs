//! `event_store.client.monitoring`: statistics that the server sends at intervals.

pub use crate::generated::event_store::client::monitoring::{StatsReq, StatsResp};

/// Name of the service in request paths.
pub const SERVICE: &str = "event_store.client.monitoring.Monitoring";
