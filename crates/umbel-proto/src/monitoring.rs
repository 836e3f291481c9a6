//! `event_store.client.monitoring`: what a server says of itself, again and again.

/// The service's name in paths.
pub const SERVICE: &str = "event_store.client.monitoring.Monitoring";

/// Asks for the numbers.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct StatsReq {
    /// Whether each is told with what it is.
    #[prost(bool, tag = "1")]
    pub use_metadata: bool,
    /// How often, in milliseconds.
    #[prost(uint64, tag = "4")]
    pub refresh_time_period_in_ms: u64,
}

/// The numbers as text.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StatsResp {
    /// Each by its name.
    #[prost(btree_map = "string, string", tag = "1")]
    pub stats: std::collections::BTreeMap<String, String>,
}
