//! `event_store.client.server_features`: capabilities that a client requests when it connects.

/// Name of the service in request paths.
pub const SERVICE: &str = "event_store.client.server_features.ServerFeatures";

/// Capabilities of the server.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SupportedMethods {
    /// Methods that the server serves.
    #[prost(message, repeated, tag = "1")]
    pub methods: Vec<SupportedMethod>,
    /// Version of the protocol: three numbers with dots.
    #[prost(string, tag = "2")]
    pub event_store_server_version: String,
}

/// One method of a service.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SupportedMethod {
    /// Name of the method in lower case.
    #[prost(string, tag = "1")]
    pub method_name: String,
    /// Name of the service in lower case.
    #[prost(string, tag = "2")]
    pub service_name: String,
    /// Optional features of the method.
    #[prost(string, repeated, tag = "3")]
    pub features: Vec<String>,
}
