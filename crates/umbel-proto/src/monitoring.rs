//! `event_store.client.monitoring`: statistics that the server sends at intervals.

/// Name of the service in request paths.
pub const SERVICE: &str = "event_store.client.monitoring.Monitoring";

/// Request for statistics.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct StatsReq {
    /// Whether each value comes with its metadata.
    #[prost(bool, tag = "1")]
    pub use_metadata: bool,
    /// Interval in milliseconds.
    #[prost(uint64, tag = "4")]
    pub refresh_time_period_in_ms: u64,
}

/// Statistics as text.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StatsResp {
    /// Values by name.
    #[prost(btree_map = "string, string", tag = "1")]
    pub stats: std::collections::BTreeMap<String, String>,
}
