//! Commands for an event store: `append`, `read`, `streams`, `delete --stream`, `verify`,
//! `metadata`, `scavenge`, `backup`, `restore`, `repair`, `import-events`, `serve`, `subscribe`,
//! `doctor`.

pub mod append;
pub mod args;
pub mod backup;
pub mod connection;
pub mod delete;
pub mod doctor;
mod encryption;
pub mod filter;
pub mod import;
pub mod line;
pub mod metadata;
pub mod read;
pub mod remote;
pub mod repair;
pub mod scavenge;
pub mod serve;
pub mod serve_config;
mod serve_log;
pub mod serve_options;
mod serve_security;
pub mod server_address;
pub mod store;
pub mod streams;
pub mod subscribe;
pub mod time;
pub mod verify;
