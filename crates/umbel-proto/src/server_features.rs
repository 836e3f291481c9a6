//! `event_store.client.server_features`: what the server can do, asked when a client connects.

/// The service's name in paths.
pub const SERVICE: &str = "event_store.client.server_features.ServerFeatures";

/// What the server can do.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SupportedMethods {
    /// Every method that it serves.
    #[prost(message, repeated, tag = "1")]
    pub methods: Vec<SupportedMethod>,
    /// The version of the protocol: three numbers with dots.
    #[prost(string, tag = "2")]
    pub event_store_server_version: String,
}

/// One method.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SupportedMethod {
    /// Its name in lower case.
    #[prost(string, tag = "1")]
    pub method_name: String,
    /// Its service's name in lower case.
    #[prost(string, tag = "2")]
    pub service_name: String,
    /// What it can do beyond its first form.
    #[prost(string, repeated, tag = "3")]
    pub features: Vec<String>,
}
