//! The event store over the network: HTTP/2 in clear with the calls that event store clients make,
//! and HTTP/1.1 for whoever watches over it, on one port.
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
//! A call comes in through `router`, which knows every path; what the messages mean is read and
//! written in `convert`; the store, which blocks, is asked through `store` alone, and that of keys
//! and values, where there is one, through `kv_store`. Answers that
//! go on for long are made while they are taken: a reader that takes nothing costs one page of
//! events and no thread, and one that went away costs nothing. `docs/server.md` says what is served
//! and what is answered.
#![forbid(unsafe_code)]

mod access;
mod acl;
mod answers;
mod append;
mod append_records;
mod append_session;
mod asked;
mod backups;
mod batch;
mod batch_append;
mod batch_outcome;
mod budget;
mod call_log;
mod calls;
mod config;
mod connections;
mod console;
mod console_changes;
mod console_query;
mod console_views;
mod consumers;
mod convert;
mod counted;
mod credentials;
mod cut;
mod deadline;
mod delete;
mod directory_watch;
mod encoded;
mod failure;
mod features;
mod filter_request;
mod filters;
mod follower;
#[doc(hidden)]
pub mod fuzz;
mod gates;
mod gossip;
mod group;
mod group_config;
mod group_info;
mod group_keep;
mod group_key;
mod group_message;
mod group_pace;
mod group_registry;
mod group_room;
mod groups;
mod handler;
mod http;
mod known;
mod kv;
mod kv_store;
pub mod limits;
mod messages;
mod metrics;
mod monitoring;
mod opening;
mod operations;
mod outcomes;
mod oversize;
mod pages;
mod passwords;
mod peers;
mod permit;
mod persistent;
mod planted;
mod policy;
mod projections;
mod question;
mod quick;
mod read;
mod read_request;
mod reader;
mod record;
mod reflection;
mod rich_failure;
mod router;
mod rules;
mod scavenging;
mod server;
mod service;
mod sight;
mod skim;
#[cfg(test)]
mod stage;
mod store;
mod subscription;
mod tls;
mod trace;
mod transaction;
mod unread;
mod user_calls;
mod users;
mod v2_calls;
mod writing;
#[cfg(test)]
mod wrong_calls_client;
#[cfg(test)]
mod wrong_calls_tests;
#[cfg(test)]
mod wrong_kv_calls_tests;

pub use config::Config;
pub use kv_store::KeyValues;
pub use passwords::{PASSWORD_BYTES_MAX, Secret};
pub use server::{Interrupts, Prepared, Running, Server, StartError};
pub use tls::{Certificates, Pem};
pub use users::FirstPasswords;
