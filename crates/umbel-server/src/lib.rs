//! Server of the event store. One port serves HTTP/2 without TLS for event store clients and
//! HTTP/1.1 for operators.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("events");
//! use umbel_events::{Store, StoreOptions};
//! use umbel_server::{Config, Server};
//!
//! let store = Store::open(&path, StoreOptions::default())?;
//! let config = Config { listen: "127.0.0.1:0".parse()?, ..Config::default() };
//! let running = Server::start(store.clone(), config)?;
//! println!("kurrentdb://{}?tls=false", running.address());
//! running.shutdown();
//! store.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! A call enters through `router`, which knows every path. `proto_convert` converts between
//! messages and the store's types. Only `event_store` calls the blocking store, and only `kv_store`
//! the key-value store. Threads of `continuous_backup` back up both.
//!
//! Long responses are produced while the client takes them. A client that reads nothing costs one
//! page of events and no thread; a client that has disconnected costs nothing.
//! `docs/reference/server.md` lists every call and endpoint.
#![forbid(unsafe_code)]

mod access_control;
mod auth;
mod config;
mod consumer_groups;
mod continuous_backup;
mod event_store;
mod grpc;
mod http;
mod kv_store;
mod protocol;
mod resources;
mod server;
mod server_context;
mod services;
mod system_stream;
mod telemetry;

pub mod limits;

#[doc(hidden)]
pub mod fuzz_entry_points;
#[cfg(test)]
mod test_support;

pub use crate::access_control::passwords::{PASSWORD_BYTES_MAX, Secret};
pub use crate::access_control::users::BootstrapPasswords;
pub use crate::auth::tls::{CertificateNames, CertificateStore, Pem};
pub use crate::continuous_backup::ObjectBackupConfig;
pub use crate::event_store::backups::KV_DIRECTORY;
pub use crate::event_store::scavenge_schedule::ScavengeSchedule;
pub use crate::telemetry::otlp::otlp_config::{
    CollectorEndpoint, OtlpConfig, parse_headers, parse_pairs,
};
pub use crate::telemetry::otlp::sampler::Sampler;
pub use crate::telemetry::otlp::signal::Signal;
pub use crate::telemetry::otlp::telemetry_hub::{ExportOutcome, TelemetryHub};
pub use crate::telemetry::otlp::telemetry_record::{AttributeValue, LogRecord};
pub use crate::telemetry::trace_context::TraceId;
pub use config::Config;
pub use consumer_groups::parked_stream::parked_streams;
pub use kv_store::KvConfig;
pub use protocol::grpc_status::{LOG_QUOTA, missing_space};
pub use server::stop_signals::StopSignals;
pub use server::{Interrupts, Prepared, Running, Server, StartError};
