//! Commands for an event store: `append`, `read`, `streams`, `delete --stream`, `verify`,
//! `serve`.

pub mod append;
pub mod args;
pub mod delete;
pub mod line;
pub mod read;
pub mod serve;
mod serve_config;
mod serve_options;
pub mod store;
pub mod streams;
pub mod time;
pub mod verify;
